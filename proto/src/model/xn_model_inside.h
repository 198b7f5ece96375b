/* xn_model_inside.h: the inside of a model's configuration, for the files that read one. */
#ifndef XN_MODEL_INSIDE_H
#define XN_MODEL_INSIDE_H

#include "xn_json_tree.h"
#include "xn_model_config.h"

/* What a layer of the file says beside its xn_layer. */
typedef struct xn_model_extra {
    int64_t packed_channels; /* of a filter, where the weight is packed bits; else 0 */
    bool slope;              /* prelu: given as a number */
} xn_model_extra;

typedef struct xn_model_name {
    const char *name;
    int index;
} xn_model_name;

/* One block: this, the lists, the text of all strings. */
struct xn_model_config {
    xn_model_about about;
    xn_graph_params params;
    xn_layer *layers; /* without tensors */
    xn_model_extra *extras;
    xn_model_name *names; /* of the layers, sorted */
    xn_model_output *outputs;
    const char **output_layers;
};

/* Where strings and lists of inputs are copied to; room for all that the file has. */
typedef struct xn_model_pool {
    char *text;
    const char **inputs;
} xn_model_pool;

const char *xn_model_keep(xn_model_pool *pool, const char *string);

/* The layer of that name, which has length bytes, or -1. */
int xn_model_find(const xn_model_config *config, const char *name, size_t length);

/* The layers[index] of a file. */
xn_status xn_model_layer_read(const xn_json *value, int index, xn_model_pool *pool, xn_layer *layer,
                              xn_model_extra *extra, xn_error *error);

/* The member `picture` of the input, or NULL, over the rule that the input alone gives. */
xn_status xn_model_picture_read(const xn_json *value, xn_picture_rule *rule, xn_error *error);

/* ---- values ---- */

/* A string without control characters and not empty: the name of something. */
xn_status xn_model_read_name(const char *field, const xn_json *value, const char **out,
                             xn_error *error);
/* One of words, which end with NULL: its index. takes lists them. */
xn_status xn_model_read_word(const char *field, const xn_json *value, const char *const *words,
                             const char *takes, int *out, xn_error *error);
#endif
