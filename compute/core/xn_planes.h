/* xn_planes.h: the weights of a stem (xn_step.h): whole numbers, so that its sums are exact and
 * every backend has the same bits.
 *
 * A stem reads u, bytes of 0 to 255, and computes, over the taps inside the picture,
 *
 *   (sum of W * (gain[c] * u + offset[c])) * factor[o] + bias[o]
 *
 * With W * gain = q * m + error, m an integer, q a power of 2 for each filter, that is
 *
 *   v = fp32(sum of m * u) * scale[o] + border[o, where]      one fma, in fp32
 *   scale = factor * q        border = scale * (sum of m * offset / gain) + bias
 *
 * both computed in double and rounded once. The second sum is over the taps inside too: it differs
 * where windows reach over the border, so there is a border for each class of rows and columns.
 * m has 15 bits or 22: the last of `count` planes of 8 bits, each plane before that 7 bits from -64
 * to 63 (xn_plane_digit). |error| is at most 2^-13.9 or 2^-20.9 of the largest |W * gain| of its
 * filter. A filter has at most XN_PLANES_TAPS values, so that the sum of 15 bits fits int32. */
#ifndef XN_PLANES_H
#define XN_PLANES_H

#include "xn_arith.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { XN_PLANES_TAPS = 512, XN_PLANES_CLASSES = 1024 };

typedef struct xn_planes {
    int32_t count; /* 2: 15 bits; 3: 22 */
    int32_t terms; /* of a filter: C*KH*KW */
    int32_t kernel_h, kernel_w;
    /* Outputs (of the convolution, not of a pool behind it) whose windows begin before the picture,
     * end behind it. */
    int32_t top, bottom, left, right;
    int32_t *weight; /* [O][KH][KW][C]: m */
    float *border;   /* [top + 1 + bottom][left + 1 + right][O] */
    size_t bytes;
} xn_planes;

/* What they are made of; NULL: 1 of gain and factor, 0 of the others. conv: mode float, one group,
 * out_height and out_width its own. */
typedef struct xn_planes_source {
    const xn_conv *conv;
    int32_t count;
    const float *weight;         /* [O][C][KH][KW], finite */
    const double *gain, *offset; /* [C]; gain not 0 */
    const double *factor, *bias; /* [O] */
} xn_planes_source;

/* Whether weights and geometry are such that they can be made. */
bool xn_planes_fit(const xn_planes_source *source);
/* NULL without memory. scale: [O], written. */
xn_planes *xn_planes_create(const xn_planes_source *source, float *scale);
void xn_planes_free(xn_planes *planes); /* NULL-safe */

/* The class of output `at` of `outputs`, of which the first `before` and the last `after` have one
 * each. */
XN_HD int32_t xn_planes_class(int32_t at, int32_t outputs, int32_t before, int32_t after) {
    return at < before ? at : at >= outputs - after ? before + outputs - at : before;
}

/* Plane p of m: m is the sum of them times 128^p. */
XN_HD int32_t xn_plane_digit(int32_t m, int32_t p, int32_t count) {
    for (int32_t n = 0; n < p; n++)
        m = (m - (((m + 64) & 127) - 64)) / 128;
    return p == count - 1 ? m : ((m + 64) & 127) - 64;
}

#ifdef __cplusplus
}
#endif
#endif
