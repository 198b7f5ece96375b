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
 * on stride, padding, dilation or the number of groups.
 *
 * Steps that have no kernel (affine, prelu) have weights without one: only values for each channel.
 * There group_channels, kernel_h, kernel_w and words are 0, and real, bits and alpha NULL. A
 * backend without such steps refuses to prepare them (XN_ERR_UNSUPPORTED).
 *
 * Weights made of BITS are signs, for mode xnor without alpha: real and alpha are NULL. */
typedef struct xn_weights {
    int32_t out_channels, group_channels, kernel_h, kernel_w;
    int32_t words;        /* per tap */
    xn_datatype datatype; /* of the tensor it was made from */
    float *real;          /* [O][C/groups][KH][KW], exact fp32 of the source */
    const uint32_t *bits; /* [O][KH][KW][words] */
    float *alpha;         /* [O] mean |W|, summed in double, rounded once */
    /* [O] or NULL, see xn_epilogue.h; with `broadcast` [1], a value for all output channels. */
    float *scale, *bias, *slope, *shift;
    bool broadcast;
    /* Of a stem, whose kernel they are: `real` and `bits` are NULL then, and `scale` is theirs. Set
     * by lowering; owned. */
    struct xn_planes *planes;
    uint32_t *own_bits; /* bits, or NULL where those are in memory that others own */
    size_t host_bytes;  /* memory this object holds */
} xn_weights;

/* What weights are made of; borrowed while they are made. Where weights is NULL there is no kernel,
 * and at least one of the others is given. */
typedef struct xn_weights_parts {
    const xn_tensor *weights, *scale, *bias, *slope, *shift;
    /* The data of `weights` stays for as long as what is made of it: BITS that lie as `bits` do, in
     * 32 channels and aligned to 4, are not copied. */
    bool stays;
    bool broadcast; /* beside `weights`, for steps of kind top_k alone: the others are [1] */
} xn_weights_parts;

/* Copies and prepares. weights: rank 4 [O, C/groups, KH, KW] of an input datatype or BITS; the
 * others: NULL or rank 1 [O] of an input datatype. Errors: XN_ERR_GEOMETRY (rank, sizes that
 * differ; fields "weights.shape", "scale.shape", "bias.shape", "slope.shape", "shift.shape"),
 * XN_ERR_MALFORMED (a datatype; nothing given), XN_ERR_LIMIT, XN_ERR_NO_MEMORY. The caller owns
 * *out and frees it with xn_weights_free. */
xn_status xn_weights_create_parts(const xn_weights_parts *parts, xn_weights **out, xn_error *error);

/* The same of the parts that a request to /conv may bring: weights is not NULL. */
xn_status xn_weights_create(const xn_tensor *weights, const xn_tensor *scale, const xn_tensor *bias,
                            xn_weights **out, xn_error *error);
void xn_weights_free(xn_weights *weights); /* NULL-safe */

void xn_weights_shape_of(const xn_weights *weights, xn_weights_shape *out);
/* Where the values of output channel o stand. */
static inline size_t xn_weights_value_at(const xn_weights *weights, int32_t o) {
    return weights->broadcast ? 0 : (size_t)o;
}

/* Whether all filters have one scale, one bias and one slope, bit by bit. Reads all of them. */
bool xn_weights_is_uniform(const xn_weights *weights);

#ifdef __cplusplus
}
#endif
#endif
