/* weights_dir_internal.h: what the parts of --weights-dir share; each calls those below it:
 *
 *   weights_dir.c          put, delete, the thread
 *   weights_dir_follow.c   what the folder holds, against what is known
 *   weights_dir_records.c  what is known
 *   weights_dir_file.c     files
 *   weights_given.c        the tensors of a file, or of a request
 *
 * Locks: dir->mutex guards the records and keeps a change on disk and the same change in the store
 * together. The store's mutex may be taken inside it. */
#ifndef XN_WEIGHTS_DIR_INTERNAL_H
#define XN_WEIGHTS_DIR_INTERNAL_H

#include "weights_dir.h"
#include "weights_given.h"
#include "xn_mem.h"
#include "xn_weights_file.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define XN_WEIGHTS_SUFFIX ".safetensors"
#define XN_WEIGHTS_FILE_MAX (XN_PROTO_MAX_NAME + sizeof XN_WEIGHTS_SUFFIX)

/* ---- files (weights_dir_file.c) ---- */

/* By what a file is known again. */
typedef struct xn_file_id {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified;
    struct timespec changed; /* permissions too; not compared: rename changes it */
} xn_file_id;

bool xn_file_id_equal(const xn_file_id *a, const xn_file_id *b);

typedef struct xn_folder {
    char path[PATH_MAX];
    int fd;
    dev_t device;
    ino_t inode;
    bool ignores_case;
    int64_t clock_skew_ns; /* of its file system against ours */
} xn_folder;

/* Opens the folder and tries whether it can be written. */
xn_status xn_folder_open(xn_folder *folder, const char *path, xn_error *error);
void xn_folder_close(xn_folder *folder);
/* That the path still leads to the folder that is open. */
xn_status xn_folder_check(const xn_folder *folder, xn_error *error);
/* Makes renames and removals last. what: what of, for the message. */
xn_status xn_folder_sync(const xn_folder *folder, const char *what, xn_error *error);
int64_t xn_folder_now_ns(const xn_folder *folder); /* by the clock its files' times come from */

/* A new hidden file of these contents, on disk. *id: what it will be known by once renamed. On
 * failure there is no file. */
typedef struct xn_aside {
    char file[48];
    xn_file_id id;
} xn_aside;
xn_status xn_aside_write(const xn_folder *folder, const xn_weights_file_head *head,
                         const xn_tensor *const tensors[3], xn_aside *out, xn_error *error);
xn_status xn_aside_rename(const xn_folder *folder, const xn_aside *aside, const char *file,
                          xn_error *error);
void xn_aside_remove(const xn_folder *folder, const xn_aside *aside);
bool xn_aside_is(const char *file); /* is this a name of one? */

xn_status xn_folder_stat(const xn_folder *folder, const char *file, xn_file_id *id,
                         xn_error *error); /* or XN_ERR_NOT_FOUND */
xn_status xn_folder_remove(const xn_folder *folder, const char *file,
                           xn_error *error); /* or XN_ERR_NOT_FOUND */
/* The checksum that the file states, from its first bytes. */
xn_status xn_folder_mark(const xn_folder *folder, const char *file, uint64_t *checksum,
                         xn_error *error);

/* A file in memory, its tensors ready for xn_store_make. */
typedef struct xn_loaded_file {
    xn_file_id id;
    uint64_t checksum;
    xn_weights_given given;
    void *bytes;
} xn_loaded_file;
/* max_bytes: of all tensors together. stop: gives up when it becomes true. */
xn_status xn_loaded_file_read(const xn_folder *folder, const char *file,
                              const xn_proto_limits *limits, int64_t max_bytes,
                              const atomic_bool *stop, xn_loaded_file *out, xn_error *error);
void xn_loaded_file_free(xn_loaded_file *loaded);

/* ---- records (weights_dir_records.c) ---- */

/* What is known of one file. */
typedef struct xn_kept {
    char file[NAME_MAX + 1];
    xn_file_id id;
    uint64_t checksum; /* while loaded */
    bool loaded;       /* the store has its contents */
    bool bad;          /* it was found not to be usable as it is (it may be loaded: from before) */
    bool may_pass;     /* bad for a reason that may be gone later: */
    int64_t retry_ns, pause_ns;
    unsigned seen; /* the last look at the whole folder that met it */
} xn_kept;

struct xn_weights_dir {
    /* constant after opening */
    xn_folder folder;
    int64_t poll_ns;
    xn_proto_limits limits;
    int64_t max_bytes;
    size_t most_files;
    xn_store *store;
    xn_metrics *metrics;
    void (*on_loaded)(void *context);
    void *on_loaded_context;
    int notify_fd, wake_fd; /* inotify (-1: none) and the eventfd that ends the thread */
    pthread_t thread;
    atomic_bool stop;

    /* the thread's own */
    unsigned look; /* counts looks at the whole folder */
    bool all_loaded;
    bool unreadable, crowded; /* reported, and not over yet */

    pthread_mutex_t mutex; /* guards all below */
    xn_kept **kept;        /* in the order of file */
    size_t kept_count, kept_capacity;
};

/* The record of the file, or NULL. */
xn_kept *xn_kept_find_locked(const xn_weights_dir *dir, const char *file);
/* The same, made if there is none; NULL without memory. */
xn_kept *xn_kept_make_locked(xn_weights_dir *dir, const char *file);
void xn_kept_drop_locked(xn_weights_dir *dir, xn_kept *kept);
/* Counts the files that are of no use. */
void xn_kept_set_bad_locked(xn_weights_dir *dir, xn_kept *kept, bool bad);
void xn_kept_free_all(xn_weights_dir *dir);

/* ---- following (weights_dir_follow.c); only the thread ---- */

/* Not "." and "..", and not a hidden file but for weights whose name begins with a dot: those are
 * nobody's business, network file systems make some. */
bool xn_weights_dir_cares(const char *file);
/* Looks at one file and does what has become of it. closely: although it looks the same. */
void xn_weights_dir_follow(xn_weights_dir *dir, const char *file, bool closely);
/* Looks at the whole folder. */
xn_status xn_weights_dir_scan(xn_weights_dir *dir, xn_error *error);

#endif
