/* served_model.h: what answers under a name at /v2/models: a network of the repository, or else
 * registered weights: a convolution whose parameters come with the request. */
#ifndef XN_SERVED_MODEL_H
#define XN_SERVED_MODEL_H

#include "context.h"

/* Points into itself: do not copy it. */
typedef struct xn_served_model {
    const xn_model *network; /* NULL: registered weights, */
    xn_asset *weights;       /* these */
    const char *name, *version, *platform;
    xn_model_counters *counters;
    int64_t max_batch_size;
    xn_image_layout layout;
    /* Shapes of one image; -1 is any size. */
    const xn_model_end *input, *outputs;
    int output_count;
    xn_model_end ends[2]; /* of weights */
} xn_served_model;

/* name outlives *out; version: "" for the one that serves. XN_ERR_NOT_FOUND, XN_ERR_LOADING. */
xn_status xn_served_model_get(const xn_service *service, const char *name, const char *version,
                              xn_served_model *out, xn_error *error);
void xn_served_model_release(xn_served_model *model); /* idempotent; of zeroes too */

#endif
