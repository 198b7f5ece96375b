/* peer_onednn.h: the convolution that a user would take instead on a CPU: oneDNN's, of the same
 * layer, in one of its datatypes. Made once with weights in its own layout; a run is what is timed.
 * The data are random +1 and -1, so that what it computes is our dot: it can be checked. */
#ifndef XN_PEER_ONEDNN_H
#define XN_PEER_ONEDNN_H

#include "bench/conv/bench.h"

typedef struct xn_peer xn_peer;

typedef enum { XN_PEER_FP32, XN_PEER_BF16, XN_PEER_INT8, XN_PEER_TYPES } xn_peer_type;

typedef enum {
    XN_PEER_OWN,     /* input and output in the layout and datatype it asks for */
    XN_PEER_REORDER, /* fp32 NCHW in and out; a run has the reorders to its layouts and back */
    XN_PEER_PLAIN,   /* fp32 NCHW in and out, given to the convolution itself; fp32 only */
} xn_peer_form;

/* "2.6.3", or NULL where this benchmark was built without it. */
const char *xn_peer_version(void);
/* NULL where it has no such convolution. */
xn_peer *xn_peer_create(const xn_bench_shape *shape, xn_peer_type type, xn_peer_form form);
void xn_peer_free(xn_peer *peer); /* NULL-safe */
void xn_peer_run(void *peer);
/* The kernel it took: "brgconv:avx512_core_bf16". */
const char *xn_peer_kernel(const xn_peer *peer);
/* Of forms with fp32 NCHW: what it reads, and what the last run wrote. */
const float *xn_peer_input(const xn_peer *peer);
const float *xn_peer_weights(const xn_peer *peer);
const float *xn_peer_output(const xn_peer *peer);

#endif
