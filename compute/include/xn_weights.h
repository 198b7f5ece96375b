/* xn_weights.h: kernel weights on the host, validated, binarised and packed once. Immutable after
 * creation, so threads share it freely. */
#ifndef XN_WEIGHTS_H
#define XN_WEIGHTS_H

#include "xn_conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The one normative bit layout of weights: bits[o][i][j][word], tap-major, 32-bit words along the
 * group's channels; channel c is bit c%32 (least significant first) of word c/32; 1 = +1, 0 = -1;
 * the bits past C/groups in the last word are 0. words = ceil(C/groups / 32). It does not depend
 * on stride, padding, dilation or the number of groups. */
typedef struct xn_weights {
    int32_t out_channels, group_channels, kernel_h, kernel_w;
    int32_t words;        /* per tap */
    xn_datatype datatype; /* of the tensor it was made from */
    float *real;          /* [O][C/groups][KH][KW], exact fp32 of the source */
    uint32_t *bits;       /* [O][KH][KW][words] */
    float *alpha;         /* [O] mean |W|, summed in double, rounded once */
    float *scale;         /* [O] or NULL */
    float *bias;          /* [O] or NULL */
    size_t host_bytes;    /* memory this object holds */
} xn_weights;

/* Copies and prepares. weights: rank 4 [O, C/groups, KH, KW] of an input datatype; scale and bias:
 * NULL or rank 1 [O] of an input datatype. Errors: XN_ERR_GEOMETRY (rank, sizes that differ; fields
 * "weights.shape", "scale.shape", "bias.shape"), XN_ERR_LIMIT, XN_ERR_NO_MEMORY. The caller owns
 * *out and frees it with xn_weights_free. */
xn_status xn_weights_create(const xn_tensor *weights, const xn_tensor *scale, const xn_tensor *bias,
                            xn_weights **out, xn_error *error);
void xn_weights_free(xn_weights *weights); /* NULL-safe */

void xn_weights_shape_of(const xn_weights *weights, xn_weights_shape *out);

#ifdef __cplusplus
}
#endif
#endif
