/* computation.h: one request for computation, from its body to its answer: what /conv and infer
 * share.
 *
 * Understand the request on the HTTP thread, prepare its job, compute on a worker while the
 * connection is parked, answer on the HTTP thread when it wakes; what grows with a large body or
 * answer is done by the loader instead. Everything is validated before memory that depends on the
 * request's content is taken, and memory is counted before that. */
#ifndef XN_COMPUTATION_H
#define XN_COMPUTATION_H

#include "exchange.h"

#include <stdatomic.h>

#define XN_COMPUTATION_INLINE_BYTES ((size_t)256 << 10) /* so much is decoded or written inline */

typedef struct xn_computation xn_computation;

typedef struct xn_computation_kind {
    /* Whether understanding takes time that grows with the body. */
    bool (*understanding_is_long)(const xn_computation *work);
    /* What the request wants: refused here if it cannot be; job.problem, images and pool, the
     * deadline, and the output counted (xn_computation_count_output). */
    xn_status (*understand)(xn_computation *work, xn_error *error);
    bool (*preparing_is_long)(const xn_computation *work);
    /* Input and asset. */
    xn_status (*prepare)(xn_computation *work, xn_error *error);
    bool (*answering_is_long)(const xn_computation *work);
    void (*answer)(xn_computation *work, int64_t encode_started_ns);
    void (*finished)(xn_computation *work); /* frees what the kind adds; may be NULL */
} xn_computation_kind;

struct xn_computation {
    xn_task task; /* first: the loader hands it back */
    xn_exchange *exchange;
    const xn_computation_kind *kind;
    bool understood;
    atomic_bool gone; /* the client, while the loader decodes */
    atomic_bool half; /* job.in_use: the exchange or the run is over, not both */
    xn_job job;
    xn_asset *asset;
    void *input; /* values that could not stay in the body; from the pool, or NULL */
    size_t input_bytes;
    unsigned char *output; /* owner, headroom, tensor; NULL once the response owns it */
    size_t output_bytes;
    int64_t decode_ns;
};

/* For `complete` of a resource: `bytes` of which the first are an xn_computation, zeroed, and on
 * its way.
 */
void xn_computation_start(xn_exchange *exchange, const xn_computation_kind *kind, size_t bytes);
/* The other moments of such a resource. */
void xn_computation_answer(xn_exchange *exchange);
void xn_computation_gone(xn_exchange *exchange);
void xn_computation_finished(xn_exchange *exchange);

/* ---- for kinds ---- */

xn_buffers *xn_computation_buffers(const xn_computation *work);

/* Whether parsing the body takes time: a coded one is decoded, text is read number by number, and
 * values that lie where no element may are moved. */
bool xn_computation_parsing_is_long(const xn_exchange *exchange);

/* The deadline: that long after the body was complete, in units of unit_ns; -1 when not given.
 * field: what gave it. */
xn_status xn_computation_set_deadline(xn_computation *work, int64_t timeout, int64_t unit_ns,
                                      const char *field, xn_error *error);
/* backend: as the request names it. */
xn_status xn_computation_set_pool(xn_computation *work, const char *backend, xn_error *error);

/* Counts an output of so many bytes, and `more` for the answer's text. */
xn_status xn_computation_count_output(xn_computation *work, size_t bytes, size_t more,
                                      xn_error *error);

/* In place of it: the output goes there, which the kind keeps until `finished`. */
xn_status xn_computation_borrow_output(xn_computation *work, void *memory, size_t more,
                                       xn_error *error);

/* A buffer for the input, counted; job.input. */
xn_status xn_computation_take_input(xn_computation *work, size_t bytes, xn_error *error);
/* The input where the backend can read it: in the body if it lies aligned, else in a buffer. */
xn_status xn_computation_place_input(xn_computation *work, const xn_tensor_ref *input,
                                     const char *field, xn_error *error);

/* ---- answering ---- */

/* Where the time went, until now; told to the metrics and as Server-Timing by the second. */
void xn_computation_time_stages(const xn_computation *work, int64_t encode_started_ns,
                                xn_timing *out);
void xn_computation_tell_timing(const xn_computation *work, const xn_timing *timing);
const char *xn_computation_backend(const xn_computation *work); /* what ran the job: "cuda:0" */

/* The output's buffer leaves as the body, from `body` on, which lies in it. */
void xn_computation_respond_output(xn_computation *work, const char *type, void *body,
                                   size_t length);

/* Memory for an answer's text: at most `bytes` of it, counted with XN_COMPUTATION_TEXT_BYTES more;
 * NULL where there is none. It leaves with respond_text, or is dropped. */
#define XN_COMPUTATION_TEXT_BYTES 64
char *xn_computation_take_text(const xn_computation *work, size_t bytes);
void xn_computation_respond_text(const xn_computation *work, const char *type, char *text,
                                 size_t length);
void xn_computation_drop_text(char *text);

#endif
