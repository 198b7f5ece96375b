/* xn_oip.h: inference requests and answers of the Open Inference Protocol, version 2, with its
 * binary tensor extension, classification and shared memory: what POST /v2/models/{m}/infer takes
 * and gives (PROTOCOL.md). As in xn_proto.h parsing reads the small part and finds the values;
 * xn_proto_tensor_read reads them, with the input's name as the field.
 *
 * Three requests: JSON (no inference header length, or one equal to the body's), JSON followed by
 * values, and raw (an inference header length of 0): the whole body is the one input. A fourth is a
 * body that is a picture (xn_oip_parse_picture). */
#ifndef XN_OIP_H
#define XN_OIP_H

#include "xn_proto.h"

#define XN_OIP_MAX_INPUTS 8
#define XN_OIP_MAX_OUTPUTS 64 /* XN_GRAPH_MAX_OUTPUTS */
#define XN_OIP_MAX_NAME 255
#define XN_OIP_MAX_REGION 128 /* characters of a shared memory region's name */

/* Where a tensor lies in a registered shared memory region. */
typedef struct xn_oip_shared {
    bool present;
    const char *region;
    uint64_t offset, bytes;
} xn_oip_shared;

typedef struct xn_oip_input {
    const char *name; /* "" of a raw body */
    /* Its values, data or text set unless they are shared. Of a raw body: data and bytes alone,
     * with rank 0 and `raw`: datatype and shape are the model's. */
    xn_tensor_ref tensor;
    bool raw;
    /* Datatype BYTES: tensor.elements encoded pictures (xn_oip_pictures); tensor.datatype and, of
     * text, bytes mean nothing. */
    bool pictures;
    xn_oip_shared shared;
} xn_oip_input;

typedef struct xn_oip_output {
    const char *name;
    bool binary;            /* its values behind the header, else in JSON */
    int64_t classification; /* n best classes; 0: the values themselves */
    xn_oip_shared shared;
} xn_oip_output;

typedef struct xn_infer_request {
    char id[XN_PROTO_MAX_ID + 1]; /* "" when not given or empty */
    int input_count, output_count;
    xn_oip_input *inputs;
    xn_oip_output *outputs; /* none: all of the model's, as `binary` says */
    bool binary;            /* binary_data_output, or a raw body */
    int64_t timeout_us;     /* -1 when not given, or 0; > 0, at most 2147483647 ms */
    int64_t timeout_ms;     /* the parameter timeout_ms of /conv; -1 when not given */
    /* Parameters of /conv among the request's `parameters`, for weights that answer as a model:
     * with their defaults where not given; conv_given: there was one of xn_conv_params, which a
     * network has no use for. backend "auto" when not given. */
    xn_conv_params conv;
    bool conv_given;
    char backend[8];
} xn_infer_request;

/* Where a request's inputs, outputs and names go: take gives memory that lives as long as its
 * caller says, aligned to 8, or says why there is none. */
typedef struct xn_oip_memory {
    xn_status (*take)(void *context, size_t bytes, void **out, xn_error *error);
    void *context;
} xn_oip_memory;

/* body->form is not looked at: header_length alone says which of the three it is. *out borrows from
 * the body, and lies in `memory` but for itself: one block, of a few hundred bytes as a rule, taken
 * once at most. It is undefined where this fails. Inputs and outputs have names of their own each,
 * and are at least one and any number. */
xn_status xn_oip_parse_infer(const xn_proto_body *body, const xn_proto_limits *limits,
                             const xn_oip_memory *memory, xn_infer_request *out, xn_error *error);

/* The same of a body that is a picture and nothing else: one input, raw. */
xn_status xn_oip_parse_picture(const xn_proto_body *body, const xn_oip_memory *memory,
                               xn_infer_request *out, xn_error *error);

/* The pictures of an input, one after the other. Base64 is decoded where it stands: the body is
 * written to, and can be walked through once. memory: what the body lies in. */
typedef struct xn_oip_pictures {
    const xn_oip_input *input;
    int number; /* of the input, for messages */
    int64_t count, next;
    char *at, *end;
} xn_oip_pictures;
void xn_oip_pictures_begin(const xn_oip_input *input, int number, void *memory,
                           xn_oip_pictures *out);
/* Called count times. XN_ERR_MALFORMED. */
xn_status xn_oip_pictures_next(xn_oip_pictures *pictures, const void **bytes, size_t *length,
                               xn_error *error);
/* What the next one is called: "inputs[0].data[2]", or "body". */
void xn_oip_pictures_field(const xn_oip_pictures *pictures, char *field, size_t size);

/* ---- answers ---- */

typedef struct xn_oip_result {
    const char *name;
    xn_datatype datatype;
    xn_shape shape;
    const void *values; /* row-major; FP32, FP16, BF16 or INT32 where classified; in JSON no BF16 */
    size_t bytes;
    bool binary; /* behind the header */
    bool apart;  /* binary: the caller puts the values behind what is written; the last */
    int64_t classification; /* n: the answer is BYTES [batch, min(n, classes)], of shape[0] rows */
    const char *const *labels; /* of the classes, or NULL; an empty one is left out */
    int64_t label_count;
    size_t longest_label; /* bytes */
    /* A top_k's positions, INT32 [batch, k], best first: they are the classes, and their values are
     * k floats at scores, scores_pitch bytes from row to row; there when `values` are. */
    bool ranked;
    const char *scores;
    size_t scores_pitch;
    const xn_oip_shared
        *shared; /* not NULL: the values were put there, and nothing is said of them */
} xn_oip_result;

typedef struct xn_oip_answer {
    const char *id; /* "" : none */
    const char *model_name, *model_version;
    const char *backend; /* "cuda:0" */
    xn_precision precision;
    int64_t batch_requests, batch_images;
    bool cached; /* from the cache of answers: there was no launch */
    xn_timing timing;
    int result_count;
    const xn_oip_result *results;
} xn_oip_answer;

/* The whole answer: the header (JSON), then the binary results in order. *header_length is 0 where
 * no result is binary: then the text is all, and of media type application/json; else
 * application/octet-stream with Inference-Header-Content-Length. Writing is in two steps, so that
 * what it takes is counted before it is taken. bound: the most bytes that writing takes (checked;
 * false where that overflows, and where a result's datatype cannot be written so). write: into
 * text, which has room for the bound and is aligned to 8; returns the length. Values that are not
 * finite are null in JSON. Both are linear in the values, but for sorting the best classes. */
bool xn_oip_answer_bound(const xn_oip_answer *answer, size_t *bytes);
size_t xn_oip_answer_write(const xn_oip_answer *answer, char *text, size_t *header_length);

/* The best classes of each image as lines, "0.913000 tabby cat", or the index where a class has no
 * label; a blank line between images and outputs. Every result has a classification and is not
 * shared. As above but that all is text. */
bool xn_oip_lines_bound(const xn_oip_answer *answer, size_t *bytes);
size_t xn_oip_lines_write(const xn_oip_answer *answer, char *text);

/* {"error": "text"} and a newline, as these routes have it. At most size; terminated. */
size_t xn_oip_write_error(const char *message, char *text, size_t size);

/* ---- the other bodies ---- */

/* POST /v2/repository/models/{m}/load: the body may be empty, or an object with parameters. */
typedef struct xn_oip_file {
    const char *path;   /* as after "file:": "1/model.safetensors" */
    const char *base64; /* not terminated */
    size_t length;
} xn_oip_file;
#define XN_OIP_MAX_FILES 16
typedef struct xn_load_request {
    const char *config; /* the text of parameters.config, unescaped, or NULL */
    size_t config_length;
    int file_count;
    xn_oip_file files[XN_OIP_MAX_FILES];
    void *memory; /* what strings with escapes lie in; the others in the body */
} xn_load_request;
/* Paths are relative, without empty parts, "." and "..". */
xn_status xn_oip_parse_load(const void *body, size_t length, xn_load_request *out, xn_error *error);
void xn_load_request_free(xn_load_request *request);

/* POST .../unload and /v2/repository/index: {"ready": bool}, {"parameters": {...}}, {} or nothing.
 */
xn_status xn_oip_parse_index(const void *body, size_t length, bool *ready_only, xn_error *error);
xn_status xn_oip_parse_unload(const void *body, size_t length, xn_error *error);

/* POST /v2/systemsharedmemory/region/{name}/register */
typedef struct xn_shm_request {
    char key[256]; /* of shm_open, "/name"; the '/' is put in front where it is missing */
    uint64_t offset, byte_size;
} xn_shm_request;
xn_status xn_oip_parse_shm(const void *body, size_t length, xn_shm_request *out, xn_error *error);

/* Over the text itself, which is longer. */
xn_status xn_base64_decode_in_place(char *text, size_t length, size_t *bytes, xn_error *error);
/* The decoded bytes of base64 text; *out is the caller's (xn_mem_free), aligned to 64. */
xn_status xn_base64_decode(const char *text, size_t length, void **out, size_t *bytes,
                           xn_error *error);

#endif
