/* inference.h: one inference request, from its body to its answer: what /conv and infer
 * share.
 *
 * Steps: understand the request, prepare its job, run it on a worker while the connection is
 * suspended, answer. All but the run happen on the HTTP thread, or on the background pool if the
 * time grows with a large body or answer. The request is validated, and its memory counted, before
 * any memory is allocated that depends on its content. */
#ifndef XN_INFERENCE_H
#define XN_INFERENCE_H

#include "context.h"

#include <stdatomic.h>

#define XN_INFERENCE_INLINE_BYTES                                                                  \
    ((size_t)256 << 10) /* more is decoded or written in the background */

typedef struct xn_inference xn_inference;

typedef struct xn_inference_kind {
    /* Parses and validates. Sets job.problem, images and pool and the deadline, and counts the
     * output (xn_inference_count_output). */
    xn_status (*understand)(xn_inference *work, xn_error *error);
    bool (*preparing_is_long)(const xn_inference *work);
    /* Sets job.input and the asset. */
    xn_status (*prepare)(xn_inference *work, xn_error *error);
    bool (*answering_is_long)(const xn_inference *work);
    void (*answer)(xn_inference *work, int64_t encode_started_ns);
    void (*finished)(xn_inference *work); /* frees what the kind adds; may be NULL */
} xn_inference_kind;

struct xn_inference {
    xn_task task; /* first: the task pointer is cast back */
    xn_context *ctx;
    const xn_inference_kind *kind;
    bool understood;
    atomic_bool gone; /* the client hung up while a background thread decodes */
    atomic_bool half; /* job.in_use: one of the request and the run is over */
    xn_job job;
    xn_asset *asset;
    void *input; /* values that could not stay in the body; from the pool, or NULL */
    size_t input_bytes;
    unsigned char *output; /* owner, headroom, tensor; NULL once the response owns it */
    size_t output_bytes;
    int64_t decode_ns, encode_started_ns, answered_ns;
};

/* For `complete` of a resource: `bytes` of which the first are an xn_inference, zeroed, and on
 * its way.
 */
void xn_inference_start(xn_context *ctx, const xn_inference_kind *kind, size_t bytes);
/* The other moments of such a resource. */
void xn_inference_answer(xn_context *ctx);
void xn_inference_gone(xn_context *ctx);
void xn_inference_finished(xn_context *ctx);

/* ---- for kinds ---- */

xn_buffers *xn_inference_buffers(const xn_inference *work);

/* The deadline: that long after the body was complete, in units of unit_ns; -1 when not given.
 * field: what gave it. */
xn_status xn_inference_set_deadline(xn_inference *work, int64_t timeout, int64_t unit_ns,
                                    const char *field, xn_error *error);
/* backend: as the request names it. */
xn_status xn_inference_set_pool(xn_inference *work, const char *backend, xn_error *error);

/* Counts an output of `bytes` bytes, and `more` for the answer's text. */
xn_status xn_inference_count_output(xn_inference *work, size_t bytes, size_t more, xn_error *error);

/* Instead of that: the output goes to `memory`, which the kind keeps until `finished`. */
xn_status xn_inference_borrow_output(xn_inference *work, void *memory, size_t more,
                                     xn_error *error);

/* A buffer for the input, counted; job.input. */
xn_status xn_inference_take_input(xn_inference *work, size_t bytes, xn_error *error);
/* The input where the backend can read it: in the body if it lies aligned, else in a buffer. */
xn_status xn_inference_place_input(xn_inference *work, const xn_tensor_ref *input,
                                   const char *field, xn_error *error);

/* ---- answering ---- */

/* Where the time went until now. The second writes that to the metrics and to Server-Timing. */
void xn_inference_time_stages(const xn_inference *work, int64_t encode_started_ns, xn_timing *out);
void xn_inference_tell_timing(const xn_inference *work, const xn_timing *timing);
const char *xn_inference_backend(const xn_inference *work); /* what ran the job: "cuda:0" */

/* The output's buffer leaves as the body, from `body` on, which lies in it. */
void xn_inference_respond_output(xn_inference *work, const char *type, void *body, size_t length);

/* Memory for an answer's text: at most `bytes` of it, counted with XN_INFERENCE_TEXT_BYTES more;
 * NULL where there is none. It leaves with respond_text, or is dropped. */
#define XN_INFERENCE_TEXT_BYTES 64
char *xn_inference_take_text(const xn_inference *work, size_t bytes);
void xn_inference_respond_text(const xn_inference *work, const char *type, char *text,
                               size_t length);
void xn_inference_drop_text(char *text);

#endif
