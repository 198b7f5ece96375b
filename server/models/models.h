/* models.h: the networks that the daemon serves, by name and version: read from folders, checked,
 * lowered and prepared on every device beside traffic. A version is immutable; loading makes a new
 * one, which takes the name's place in one step, and jobs that hold the old one finish with it.
 *
 * A folder of a model is NAME/config.json with model.safetensors beside it, or numbered folders of
 * those, NAME/1, NAME/2, of which --version-policy says what is served: the highest by default.
 * Thread-safe. */
#ifndef XN_MODELS_H
#define XN_MODELS_H

#include "asset.h"
#include "config.h"
#include "document.h"
#include "model_stats.h"
#include "store.h"
#include "xn_model_config.h"
#include "xn_problem.h"

typedef struct xn_models xn_models;

/* ---- one version of a model ---- */

typedef struct xn_model_end {
    const char *name;
    xn_datatype datatype;
    xn_shape shape;            /* of one image */
    int64_t elements;          /* of one image */
    int64_t classes;           /* the most labels an output may have */
    const char *const *labels; /* or NULL; */
    const char *labels_file;   /* what they were read from, in the folder */
    int64_t label_count;
    size_t longest_label; /* bytes */
} xn_model_end;

/* Of a network: the positions of a top_k, whose values are the output before. */
static inline bool xn_model_end_is_positions(const xn_model_end *output) {
    return output->datatype == XN_INT32;
}

typedef struct xn_model {
    const char *name, *version; /* the version is the number of its folder, "1" without one */
    int64_t max_batch_size;
    xn_model_end input;
    xn_image_layout input_layout;
    int64_t packed_channels; /* of an input of packed signs, or 0 */
    xn_picture_rule picture; /* how encoded pictures become the input */
    int output_count;
    const xn_model_end *outputs; /* one after the other in the program's output, 4 bytes each */
    xn_precision precision;
    xn_asset *asset;             /* of the network; held by the model, as are: */
    xn_model_counters *counters; /* of the name and version: they outlive a reload */
    xn_problem problem;          /* of one image */
} xn_model;

void xn_model_retain(const xn_model *model);
void xn_model_release(const xn_model *model); /* NULL-safe */

/* ---- all of them ---- */

/* Reads nothing yet; looks whether the repository is there (XN_ERR_IO). config: model_repository,
 * models, and the limits; borrowed, like the store. */
xn_status xn_models_create(const xn_config *config, xn_store *store, xn_models **out,
                           xn_error *error);
/* Called with each version that is on the devices, before it serves, with the largest batch that
 * will be made of requests to it. Its failure is the load's. Set before the first load. */
typedef xn_status xn_model_warm_up(void *context, const xn_model *model, int64_t images,
                                   xn_error *error);
void xn_models_set_warm_up(xn_models *models, xn_model_warm_up *warm_up, void *context);
void xn_models_free(xn_models *models); /* NULL-safe; no call runs, every reference was released */
/* Loads in flight end soon with XN_ERR_DRAINING, and so do later ones. NULL-safe; any thread. */
void xn_models_stop(xn_models *models);

/* Whether all of --model could be loaded as far as that needs no device; the first that could not
 * is the error. Those of the repository that could not are logged, as a scan would. */
xn_status xn_models_check(const xn_config *config, xn_error *error);

/* Loads all that the configuration names; a broken one is logged, listed as unavailable with the
 * reason, and leaves the others alone. Blocks; at the start, and at SIGHUP, where it loads what is
 * new or changed and unloads what is gone. XN_ERR_IO: the repository itself cannot be read. */
xn_status xn_models_scan(xn_models *models, xn_error *error);

/* Whether the scans so far could load all of --model; the first that could not is the error. */
xn_status xn_models_check_named(xn_models *models, xn_error *error);

/* A reference to the highest version that serves (version NULL or ""), or to that one.
 * XN_ERR_NOT_FOUND: no such model or version; XN_ERR_LOADING: it is known and not ready, and why.
 */
xn_status xn_models_get(xn_models *models, const char *name, const char *version,
                        const xn_model **out, xn_error *error);

/* Explicit load. config and files override files of the folder; either may be absent, and with both
 * no folder is needed; with either, the highest version alone is loaded. Blocks: called by threads
 * of the model pool. XN_ERR_NOT_FOUND: no such folder; XN_ERR_LIMIT: max-models, max-models-bytes.
 * What serves stays where loading fails. */
typedef struct xn_model_file {
    const char *path; /* in the model's folder: "labels.txt", "1/model.safetensors" */
    const void *bytes;
    size_t length;
} xn_model_file;
xn_status xn_models_load(xn_models *models, const char *name, const char *config,
                         size_t config_length, const xn_model_file *files, int file_count,
                         xn_error *error);
/* XN_ERR_NOT_FOUND when there is no model of that name. Jobs under way finish. */
xn_status xn_models_unload(xn_models *models, const char *name, xn_error *error);

/* The versions that serve, the lowest first; none of an unknown name. */
typedef struct xn_model_versions {
    int count;
    char names[XN_VERSIONS_MAX][XN_VERSION_DIGITS_MAX + 1];
} xn_model_versions;
void xn_models_versions(xn_models *models, const char *name, xn_model_versions *out);

/* The index: every model of the repository and every one that was ever loaded, an item for each
 * version that is known. */
typedef enum { XN_MODEL_READY, XN_MODEL_LOADING, XN_MODEL_UNAVAILABLE } xn_model_state;
typedef struct xn_model_item {
    char name[129], version[24];
    xn_model_state state;
    char reason[360]; /* why not ready, or "" */
} xn_model_item;
/* In order of names and versions, as a snapshot; free with xn_mem_free. */
xn_status xn_models_list(xn_models *models, xn_model_item **items, size_t *count, xn_error *error);

/* Whether models were loaded or unloaded since it was last asked: much memory may be free now.
 * NULL-safe. */
bool xn_models_changed(xn_models *models);

/* Adds what /metrics shows of models: a series for each that has been loaded. */
void xn_models_metrics(void *models, xn_document *page);

#endif
