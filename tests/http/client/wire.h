/* wire.h: requests and answers of /conv made and read by hand, and the convolution they ask for
 * computed naively, all independent of the code under test: raw bytes, doubles, plain loops.
 *
 * A problem is a case of the table (xt_case) with random tensors and its expected output; it is
 * encoded in any of the forms, and an answer in any form is checked against it. */
#ifndef XT_WIRE_H
#define XT_WIRE_H

#include "client.h"

/* XT_RAW is only for weights that have a name, and has no place for scale and bias: tests that go
 * through all forms leave it out. */
typedef enum { XT_JSON, XT_OIP, XT_SAFETENSORS, XT_FORMS, XT_RAW = XT_FORMS } xt_form;

const char *xt_form_type(xt_form form); /* the media type */

/* ---- tensors ---- */

typedef struct xt_tensor {
    const char *datatype; /* as on the wire, "FP32"; NULL: no tensor */
    int rank;
    int64_t dims[4];
    int64_t count;
    size_t bytes;
    double *values;     /* exactly what raw holds; of BITS 1 and -1 */
    unsigned char *raw; /* little-endian; of BITS packed by pixel, with random spare bits */
} xt_tensor;

xt_tensor xt_tensor_random(xn_rng *rng, const char *datatype, int rank, const int64_t *dims);
void xt_tensor_free(xt_tensor *tensor);
size_t xt_datatype_bytes(const char *datatype);
double xt_half_value(uint16_t bits); /* IEEE binary16 */

/* ---- problems ---- */

/* Zeroes mean the protocol's defaults: stride 1, padding 0, groups 1, FP32, ... */
typedef struct xt_case {
    const char *name;
    int64_t n, c, h, w; /* input */
    int64_t o, kh, kw;  /* weights [o, c/groups, kh, kw] */
    int64_t groups;
    int64_t stride[2], dilation[2], padding[4];
    const char *padding_name; /* "same", "valid" or NULL */
    int pad_value;
    const char *mode, *scaling;              /* NULL: "xnor" */
    const char *precision;                   /* NULL: fp32 */
    const char *datatype, *weights_datatype; /* NULL: FP32 */
    const char *output_datatype;             /* NULL: FP32 */
    bool scale, bias;
} xt_case;

typedef struct xt_problem {
    xt_case what;
    xt_tensor input, weights, scale, bias;
    int64_t shape[4]; /* of the output */
    int64_t count;
    double *expected;
    double *magnitude; /* what a relative error is relative to: the sum of |terms| */
} xt_problem;

void xt_problem_make(xt_problem *problem, const xt_case *what, uint64_t seed);
/* Computes what is expected anew, after a test changed values (and raw) of a tensor. */
void xt_problem_solve(xt_problem *problem);
void xt_problem_free(xt_problem *problem);

/* ---- requests ---- */

typedef struct xt_options {
    const char *weights_name; /* instead of the inline tensor */
    const char *id, *backend, *accept;
    int64_t timeout_ms;
    bool own_affine; /* scale and bias in the request although the weights have a name */
    bool nested;     /* JSON data as nested arrays */
    bool in_file;    /* safetensors: parameters in __metadata__, not in the query string */
    const char *extra_headers;
} xt_options;

typedef struct xt_message {
    xt_buffer target, headers, body;
} xt_message;

void xt_encode(const xt_problem *problem, xt_form form, const xt_options *options,
               xt_message *message);
/* PUT /weights/{name}: the problem's weights, scale and bias; OIP is possible too. */
void xt_encode_weights(const xt_problem *problem, xt_form form, xt_message *message);
void xt_message_free(xt_message *message);
xt_result xt_post(xt_conn *conn, const xt_message *message, xt_response *response);
/* The same in chunks of random sizes. */
xt_result xt_post_chunked(xt_conn *conn, const xt_message *message, xn_rng *rng,
                          xt_response *response);
xt_result xt_put(xt_conn *conn, const char *target, const xt_message *message,
                 xt_response *response);

/* ---- JSON, read without a tree ---- */

/* Where the value at a dotted path ("output.shape", "outputs.0.name") starts, or NULL. */
const char *xt_json_at(const char *text, const char *path);
double xt_json_number(const char *text, const char *path); /* NAN if it is no number */
/* An unescaped copy, or NULL if it is no string; free(). */
char *xt_json_string(const char *text, const char *path);
bool xt_json_is(const char *text, const char *path, const char *value); /* a string, equal */
bool xt_json_valid(const char *text); /* one whole value and nothing after it */

/* ---- answers ---- */

enum {
    XT_RECEIVE,
    XT_DECODE,
    XT_QUEUE,
    XT_UPLOAD,
    XT_COMPUTE,
    XT_DOWNLOAD,
    XT_ENCODE,
    XT_OTHER,
    XT_TOTAL,
    XT_STAGES
};
extern const char *const xt_stage_names[XT_STAGES];

typedef struct xt_answer {
    char id[160], backend[32], precision[8], datatype[8];
    int64_t shape[4];
    int64_t count;
    double *values; /* JSON null is NAN */
    bool json, cached;
    double batch_requests, batch_images;
    double timing_us[XT_STAGES];
} xt_answer;

/* False with what is wrong in error. */
bool xt_answer_read(const xt_response *response, xt_form form, xt_answer *answer, char *error,
                    size_t size);
void xt_answer_free(xt_answer *answer);
/* Shape, datatype and every value: integers exactly, floats within 1e-5 (binary16: its own
 * rounding more). */
bool xt_answer_matches(const xt_answer *answer, const xt_problem *problem, char *error,
                       size_t size);
/* Status 200, readable in that form, matching, and with this id (NULL: any). */
bool xt_response_matches(const xt_response *response, xt_form form, const xt_problem *problem,
                         const char *id, char *error, size_t size);

/* ---- whole exchanges, on a connection of their own ---- */

/* The test is aborted unless a response comes. */
void xt_conv(const xt_daemon *daemon, const xt_problem *problem, xt_form form,
             const xt_options *options, xt_response *response);
/* Its answer, which must match, is in that form. */
void xt_conv_check(const xt_daemon *daemon, const xt_problem *problem, xt_form form, xt_form answer,
                   const xt_options *options);
/* PUT /weights/{name}, which must succeed; whether the name is new. */
bool xt_put_weights(const xt_daemon *daemon, const char *name, const xt_problem *problem,
                    xt_form form);

/* ---- refusals ---- */

/* That the response is this status with a well-formed error object of the status's code, whose
 * field and message hold these texts (NULL: any); aborts the test otherwise. what names the case.
 */
void xt_check_error(const xt_response *response, int status, const char *field,
                    const char *message_part, const char *what);

#endif
