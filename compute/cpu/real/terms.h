/* terms.h: the terms of a filter in modes bwn and float, their order and their weights, for the
 * paths real and direct.
 *
 * A tap is a kernel position; a term, a tap of one channel. Terms are numbered tap by tap, channels
 * within (term = tap * C/groups + channel), so that what is found out for a tap serves all
 * channels. They are cut into parts of equal length, of at most XN_CPU_REAL_TAPS.
 *
 * An output is the sum of its terms in that order: within a part by fused multiplications and
 * additions in fp32, so within 128 * 2^-24 = 7.6e-6 of the sum of its terms' magnitudes; parts by
 * Kahan's compensated summation, which adds 2 * 2^-24 of it whatever the length of the filter.
 * Every path does these operations in this order, so that all give the same bits. Taps outside the
 * image hold the pad value. 0 adds nothing but where the weight is Inf or NaN: that, and sums that
 * overflow in fp32 though the result does not, show as values that are not finite. Those are
 * computed again in double. */
#ifndef XN_CPU_TERMS_H
#define XN_CPU_TERMS_H

#include "epilogue.h"
#include "index.h"
#include "prepared.h"
#include "real_kernels.h"

/* Outputs of a run from so many bytes on are written past the caches: more than stays there. */
#define XN_CPU_REAL_STREAM_BYTES (8u << 20)

/* Terms of a part; the last part may have fewer. */
static inline int32_t xn_cpu_part_terms(int32_t filter) {
    return (int32_t)xn_cpu_div_up(filter, xn_cpu_div_up(filter, XN_CPU_REAL_TAPS));
}

static inline int32_t xn_cpu_real_tiles(int32_t out_channels) {
    return (int32_t)xn_cpu_div_up(out_channels, XN_CPU_REAL_FILTERS);
}

/* The weights in the order of the kernels, part by part: [part][tile][term of the
 * part][XN_CPU_REAL_FILTERS], so that a panel meets one contiguous run of them. bwn has floats of
 * +1 and -1: its products then are those of float. Filters past the last are 0. */
extern const xn_cpu_form xn_cpu_real_form;

/* A filter's weight at a term. */
float xn_cpu_term_weight(const xn_prepared *prepared, xn_mode mode, int32_t o, int32_t term);

xn_status xn_cpu_real_ready(const xn_prepared *prepared, xn_mode mode, xn_error *error);
/* Once that was done: */
const float *xn_cpu_real_weights(const xn_prepared *prepared, xn_mode mode);

/* The weights of a part, `terms` terms from `first` on, for tiles from `tile` on. */
static inline const float *xn_cpu_real_part(const xn_prepared *p, const float *weights,
                                            int32_t tile, int32_t first, int32_t terms) {
    return weights + ((size_t)first * (size_t)xn_cpu_real_tiles(p->out_channels) +
                      (size_t)tile * (size_t)terms) *
                         XN_CPU_REAL_FILTERS;
}

/* Of n values v of filter o, from column x of row y on, those that are not finite, again: from sums
 * in double, from the image itself. temp: [W]. */
void xn_cpu_real_again(const xn_conv *conv, const xn_prepared *prepared, const unsigned char *input,
                       int32_t o, int32_t y, int32_t x, int32_t n, float *temp, float *v);

#endif
