/* xn_model_config.h: the files of a model folder, read: config.json, model.safetensors, labels.txt
 * (MODELS.md), into a graph. Reading a configuration needs no tensors, so that what a folder holds
 * is known and refused before anything large is read.
 *
 * No function here touches files; all are reentrant. Errors name the layer, its number and the
 * member at fault: "layers[3].stride". */
#ifndef XN_MODEL_CONFIG_H
#define XN_MODEL_CONFIG_H

#include "xn_graph.h"
#include "xn_picture.h"
#include "xn_proto.h"

#define XN_MODEL_CONFIG_BYTES (4 << 20)  /* the largest config.json */
#define XN_MODEL_LABELS_BYTES (1 << 30)  /* the largest file of labels: ids of millions of codes */
#define XN_MODEL_HEADER_BYTES (16 << 20) /* the largest header of a model.safetensors */
#define XN_MODEL_FILE_NAME 128           /* characters of a file name in a configuration */

typedef struct xn_model_config xn_model_config; /* immutable */

/* An output as it is asked for: what clients call it, and the layer it is of. A top_k is two, with
 * ".values" and ".indices" behind its name; labels are those of the positions. */
typedef struct xn_model_output {
    const char *name;
    const char *layer;
    const char *labels; /* the name of a file in the folder, with no '/' in it, or NULL */
} xn_model_output;

/* Borrowed from the configuration. */
typedef struct xn_model_about {
    const char *name;       /* "" where it does not say */
    int64_t max_batch_size; /* >= 1; what it does not say is 1024 */
    const char *input_name;
    xn_datatype input_datatype; /* FP32, FP16 or UINT8 */
    xn_image_layout input_layout;
    xn_shape input_shape;    /* of one image, as the file has it: the graph's to check */
    int64_t packed_channels; /* of an input of packed signs, or 0 */
    xn_picture_rule picture;
    xn_precision precision;
    int layer_count, output_count;
    const xn_model_output *outputs; /* in the order of the graph's */
} xn_model_about;

/* The whole of config.json, by its structure: syntax, members, types, ranges of a member by itself.
 * What needs shapes or tensors is checked by xn_model_config_graph. XN_ERR_MALFORMED, XN_ERR_LIMIT,
 * XN_ERR_NO_MEMORY. */
xn_status xn_model_config_parse(const char *text, size_t length, xn_model_config **out,
                                xn_error *error);
void xn_model_config_free(xn_model_config *config); /* NULL-safe */
void xn_model_config_about(const xn_model_config *config, xn_model_about *out);

/* The graph, with its tensors from the bytes of a model.safetensors: `<layer>.<part>` (weight,
 * scale, bias, slope, shift). Every tensor that is named for a layer must be one that its op takes;
 * a tensor of no layer is an error that names it. limits: as xn_graph_create.
 *
 * The graph borrows bytes, which are aligned to 64, until it is freed (lowering copies what it
 * needs, so that is soon). Packed weights are BITS in it. Tensors that do not lie aligned in bytes
 * are copied to *memory, one block of at most length bytes or NULL: the caller's, to be freed with
 * xn_mem_free after the graph. */
xn_status xn_model_config_graph(const xn_model_config *config, const void *bytes, size_t length,
                                const xn_conv_limits *limits, xn_graph **out, void **memory,
                                xn_error *error);

/* A file of labels: one a line, UTF-8, LF or CRLF, the last line end may be missing. labels[i]
 * points into *memory; both are the caller's to free (xn_mem_free). More labels than `most`, no
 * valid UTF-8, a NUL: XN_ERR_MALFORMED with the line's number. */
xn_status xn_model_labels_parse(const char *text, size_t length, int64_t most, char ***labels,
                                int64_t *count, char **memory, xn_error *error);

#endif
