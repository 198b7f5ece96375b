/* peer_openvino.h: the binary convolution that a user would take instead on x86-64: OpenVINO's
 * BinaryConvolution, from PyPI's package `openvino` (make openvino). It gets what is best for it:
 * inputs made bits by a FakeQuantize that it fuses into packing, outputs where the next layer wants
 * them, weights packed before the clock starts. */
#ifndef XN_PEER_OPENVINO_H
#define XN_PEER_OPENVINO_H

#include "bench/conv/bench.h"

typedef struct xn_openvino xn_openvino;

typedef enum {
    XN_OPENVINO_DOTS,  /* packed bits in, dots out as fp32: the convolution's own time */
    XN_OPENVINO_BITS,  /* packed bits in and out: the same */
    XN_OPENVINO_REALS, /* fp32 NCHW in, dots * alpha out: a whole inference */
} xn_openvino_kind;

/* "2026.4", or NULL where this benchmark was built without it. */
const char *xn_openvino_version(void);
/* Its results are checked against data's dots (filled): of BITS, how many of a pixel are 1. NULL
 * where there is none. */
xn_openvino *xn_openvino_create(const xn_bench_data *data, xn_openvino_kind kind);
void xn_openvino_free(xn_openvino *peer); /* NULL-safe */
xn_contender xn_openvino_contender(xn_openvino *peer);

#endif
