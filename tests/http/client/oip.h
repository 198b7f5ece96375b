/* oip.h: requests and answers of the Open Inference Protocol, made and read by hand, and networks
 * in folders of a repository with what they give: what the tests of models share. */
#ifndef XT_OIP_H
#define XT_OIP_H

#include "nw_net.h"
#include "wire.h"

/* ---- networks ---- */

typedef enum {
    XT_NET_PLAIN, /* FP32 [3, 6, 5]; one output, "logits" [10] with labels */
    XT_NET_BYTES, /* UINT8 NHWC [6, 5, 3]; outputs "out0" [8, 6, 5] and "out1" [10] */
    XT_NETS
} xt_net_kind;

#define XT_NET_MAX_BATCH 16

typedef struct xt_net {
    xt_net_kind kind;
    nw_net *net;
    xn_network *network;
    const char *datatype; /* of the input */
    int64_t elements;     /* of an image */
    size_t image_bytes;
} xt_net;

/* With parameters for which fp32 is exact: every backend gives the same bits. */
void xt_net_make(xt_net *net, xt_net_kind kind, uint64_t seed);
void xt_net_free(xt_net *net);
/* config.json, model.safetensors and classes.txt, its labels, into repository/name, which is made.
 */
void xt_net_write(const xt_net *net, const char *repository, const char *name);
/* Random images, in the input's datatype; free(). */
void *xt_net_images(const xt_net *net, xn_rng *rng, int64_t images);
/* What ref gives: all outputs of an image, one image after the other; free(). */
float *xt_net_expect(const xt_net *net, const void *images, int64_t count);

/* A new folder in the system's folder of temporary files. */
void xt_folder_make(char *path, size_t size);
void xt_folder_remove(const char *path); /* and all that is in it */

extern const char *const xt_net_names[XT_NETS]; /* "plain", "bytes" */
/* A repository with a network of each kind, by these names; and its end. */
void xt_nets_make(xt_net nets[XT_NETS], char *repository, size_t size);
void xt_nets_free(xt_net nets[XT_NETS], const char *repository);

/* ---- requests ---- */

typedef enum { XT_IN_JSON, XT_IN_NESTED, XT_IN_BINARY, XT_IN_RAW } xt_in;

typedef struct xt_infer {
    xt_in in;
    const char *id;    /* NULL: none */
    const char *name;  /* of the input; NULL: "input" */
    const char *rest;  /* of the JSON, behind inputs: ", \"outputs\": [...]", or NULL */
    const char *shape; /* as JSON, in place of the right one */
    const char *datatype;
    const char *headers;  /* more of them, whole lines; or NULL */
    size_t header_length; /* made: of the JSON in front of values */
} xt_infer;

/* The body of a request with these images. */
void xt_infer_body(xt_infer *how, const xt_net *net, const void *images, int64_t count,
                   xt_buffer *body);
/* Sends it to /v2/models/{model}/infer. */
xt_result xt_infer_send(xt_conn *conn, const char *model, const xt_infer *how,
                        const xt_buffer *body, xt_response *response);
/* Both, on a connection of its own. */
void xt_ask(const xt_daemon *daemon, const char *model, xt_infer *how, const xt_net *net,
            const void *images, int64_t count, xt_response *response);

/* ---- answers ---- */

typedef struct xt_output {
    char name[64], datatype[16];
    int rank;
    int64_t shape[8];
    bool binary;
    size_t bytes;
    unsigned char *values; /* as bytes, or floats that JSON numbers were read into; NULL of BYTES */
    const char *text;      /* of BYTES in JSON: the array; points into the response */
} xt_output;

/* The output of that number; aborts the test where the answer is not well-formed. */
void xt_output_read(const xt_response *response, int index, xt_output *out);
void xt_output_free(xt_output *output);
/* That output of an answer with status 200 has the part [from, to) of each image of `expected`,
 * bit by bit. */
void xt_check_output(const xt_response *response, int index, const char *name,
                     const float *expected, int64_t images, int64_t image_elements, int64_t from,
                     int64_t to);

/* That the response is this status with {"error": "text"}, and that the text holds the part (NULL:
 * any); aborts the test otherwise. */
void xt_check_oip_error(const xt_response *response, int status, const char *part,
                        const char *what);

#endif
