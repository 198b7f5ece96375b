/* models_internal.h: what the parts of the models share; each calls those below it:
 *
 *   models_scan.c    what the configuration names, against what is known
 *   models.c         names and their states; what is asked and done by name
 *   models_serve.c   which versions of a name serve: loading and unloading
 *   models_load.c    a version, from the files of its folder
 *   models_files.c   the files
 *   models_stats.c   how /metrics shows what requests count
 *
 * Locks: models->mutex guards the entries and their totals; it is held for moments only. An entry
 * that a thread loads or unloads is `busy`: others wait for it, so what happens to a name happens
 * in order. models->scanning is held by the one scan that runs, and taken first. Statistics have a
 * mutex each, below all others. Files are read, models made, backends called and last references
 * released without any of them. */
#ifndef XN_MODELS_INTERNAL_H
#define XN_MODELS_INTERNAL_H

#include "arrays.h"
#include "mapping.h"
#include "models.h"
#include "xn_mem.h"

#include <pthread.h>
#include <stdatomic.h>

#define XN_MODEL_FIRST_VERSION "1"
#define XN_MODEL_CONFIG_FILE "config.json"
#define XN_MODEL_TENSORS_FILE "model.safetensors"

/* ---- files (models_files.c) ---- */

/* Where a model's folder is: a path that the configuration gives, or a name in the repository.
 * Links in the one or the other are followed where they stay in it. */
typedef struct xn_model_location {
    const char *repository; /* or NULL */
    const char *folder;
} xn_model_location;

/* Files of a request that override those of the folder. */
typedef struct xn_model_overrides {
    const char *config; /* or NULL */
    size_t config_length;
    const xn_model_file *files;
    int file_count;
} xn_model_overrides;

/* The folder that has the files of the version to serve, open. */
typedef struct xn_model_folder {
    int fd;   /* -1: there is none */
    int root; /* the repository, or the model's own folder: nothing outside of it is opened */
    char version[24];
    uint64_t fingerprint; /* of the names, inodes, sizes and times of its files */
} xn_model_folder;

/* version: NULL for the highest. XN_ERR_NOT_FOUND: there is no such folder. */
xn_status xn_model_folder_open(const xn_model_location *location, const char *version,
                               xn_model_folder *out, xn_error *error);
/* Those that the policy has served, at least one; of a folder without numbered ones the one. */
xn_status xn_model_folder_versions(const xn_model_location *location,
                                   const xn_version_policy *policy, xn_model_versions *out,
                                   xn_error *error);
bool xn_model_versions_have(const xn_model_versions *versions, const char *version);
bool xn_model_version_higher(const char *version, const char *than);
void xn_model_folder_close(xn_model_folder *folder);
/* Of its large file, as it is now; 0: there is none. */
int64_t xn_model_folder_bytes(const xn_model_folder *folder);

/* A file in memory, aligned to XN_MEM_ALIGNMENT: a copy, or where xn_model_read.map says so the
 * file itself (mapping.h). */
typedef xn_memory xn_model_bytes;

/* A plain file of the folder. `most` bytes, which `limit` names if it is a setting. stop: gives up
 * when it becomes true. XN_ERR_LOADING where it changes while it is read. */
typedef struct xn_model_read {
    const char *file;
    int64_t most;
    const char *limit;
    const atomic_bool *stop;
    bool map; /* if it is large */
} xn_model_read;
xn_status xn_model_check_size(const xn_model_read *what, size_t bytes, xn_error *error);
xn_status xn_model_folder_read(const xn_model_folder *folder, const xn_model_read *what,
                               xn_model_bytes *out, xn_error *error);
void xn_model_free_copy(void *bytes, size_t length); /* the release of copies */
void xn_model_bytes_free(xn_model_bytes *bytes);

/* Calls `each` with the name of every folder in the repository that may be a model's, in the order
 * of the file system, until it is false. */
xn_status xn_model_repository_each(const char *repository,
                                   bool (*each)(void *context, const char *name), void *context,
                                   xn_error *error);

/* ---- versions (models_load.c) ---- */

typedef struct xn_model_labels {
    char **labels;
    char *memory;
} xn_model_labels;

typedef struct xn_model_version {
    xn_model model; /* first: references to it are this one's */
    atomic_int references;
    char name[XN_PROTO_MAX_NAME + 1], version[24];
    xn_model_config *config; /* the names of its ends are there */
    xn_network *network;     /* until the asset has it */
    size_t mapped_bytes;     /* of its file, where weights lie in it */
    size_t host_bytes;       /* of all that is kept of it, also on devices that are the host */
    int layer_count, step_count;
    xn_model_end *outputs;
    xn_model_labels *labels; /* one an output */
} xn_model_version;

typedef struct xn_model_limits {
    xn_conv_limits of_image;
    int64_t max_bytes;
    int64_t image_bytes; /* between the layers of one model, for one image */
    const atomic_bool *stop;
} xn_model_limits;

/* Reads the folder (fd -1: there is none, only its version) with its overrides, validates and
 * lowers it. No device takes part: the version has no asset yet. */
xn_status xn_model_version_read(const char *name, const xn_model_folder *folder,
                                const xn_model_overrides *overrides, const xn_model_limits *limits,
                                xn_model_version **out, xn_error *error);
/* The name that the configuration in the folder gives, or "". */
xn_status xn_model_own_name(const xn_model_folder *folder, char name[XN_PROTO_MAX_NAME + 1],
                            xn_error *error);

/* ---- names (models.c) ---- */

/* A version that serves, or did until it was unloaded or could not be loaded. */
typedef struct xn_model_slot {
    char version[24];
    xn_model_version *serving;   /* a reference, or NULL */
    xn_model_counters *counters; /* or NULL: it never served */
    char reason[360];            /* why it does not serve */
    uint64_t fingerprint;        /* of the folder when it was last loaded; 0: load it */
    bool failed;                 /* the last load did */
} xn_model_slot;

typedef struct xn_model_entry {
    char name[XN_PROTO_MAX_NAME + 1];
    xn_model_slot *slots; /* by version, the highest last */
    int slot_count;
    char reason[360]; /* why none serves, where slots do not say */
    bool tried;       /* it was loaded, or could not be */
    bool failed;      /* the last load did, of one version at least */
    bool busy;        /* a thread loads or unloads it */
    bool pending;     /* the scan that runs has yet to load it */
    bool listed;      /* the last scan found it */
    unsigned seen;    /* the last scan that found it */
    int users;        /* threads that wait for it or are busy with it: not removed while positive */
} xn_model_entry;

/* A folder of --model. */
typedef struct xn_model_source {
    char name[XN_PROTO_MAX_NAME + 1]; /* "": what it says itself is not known */
    bool named;                       /* by the setting */
    char folder[256];
} xn_model_source;

struct xn_models {
    /* constant after creation */
    const char *repository; /* or NULL */
    size_t max_models;
    xn_model_limits limits;
    xn_store *store;                 /* NULL: models are only checked */
    const xn_version_policy *policy; /* of the configuration */
    int64_t max_batch_images;
    xn_model_warm_up *warm_up; /* or NULL */
    void *warm_up_context;
    size_t source_count;

    atomic_bool stop;
    atomic_bool changed;      /* since xn_models_changed */
    pthread_mutex_t scanning; /* guards scan */
    unsigned scan;

    pthread_mutex_t mutex;   /* guards all below, and the names of sources */
    pthread_cond_t progress; /* an entry is no longer busy, or files were read */
    xn_names entries;        /* of xn_model_entry */
    int64_t bytes;           /* of what serves, and of what is about to */
    int64_t reading;         /* of the files of loads under way */
    bool scanned;            /* once at least */
    xn_model_source *sources;
};

/* The entry, with one more user; made if there is none. Given back by xn_models_leave_locked. */
xn_status xn_models_enter_locked(xn_models *models, const char *name, xn_model_entry **out,
                                 xn_error *error);
void xn_models_leave_locked(xn_models *models, xn_model_entry *entry);
void xn_models_leave(xn_models *models, xn_model_entry *entry);
/* The same without making one; NULL: there is none. */
xn_model_entry *xn_models_find_locked(xn_models *models, const char *name);

/* ---- versions that serve (models_serve.c); models->mutex is held for those in _locked ---- */

/* The highest that serves, or NULL; the one of that version, serving or not, or NULL; why none
 * serves; frees them all. */
xn_model_slot *xn_model_serving_locked(const xn_model_entry *entry);
xn_model_slot *xn_model_slot_locked(const xn_model_entry *entry, const char *version);
const char *xn_model_reason_locked(const xn_model_entry *entry);
void xn_model_slots_free(xn_model_entry *entry);
/* A folder that comes back is loaded again. */
void xn_model_forget_locked(xn_model_entry *entry);

/* Opens the name's folder, of that version or NULL: fd -1 and its version where there is no folder
 * and none is needed. */
xn_status xn_models_open_folder(xn_models *models, const char *name, const char *version,
                                const xn_model_overrides *overrides, xn_model_folder *out,
                                xn_error *error);
/* Loads what the name's folder has: when: always, or only where that is not what was loaded last.
 * The caller is a user of the entry. */
typedef enum { XN_MODEL_LOAD_ALWAYS, XN_MODEL_LOAD_CHANGED } xn_model_when;
xn_status xn_models_load_entry(xn_models *models, xn_model_entry *entry,
                               const xn_model_overrides *overrides, xn_model_when when,
                               xn_error *error);
/* XN_ERR_LIMIT: max-models-bytes. */
xn_status xn_model_fail_bytes(int64_t bytes, int64_t others, int64_t most, xn_error *error);
void xn_models_unload_entry(xn_models *models, xn_model_entry *entry, const char *reason);

#endif
