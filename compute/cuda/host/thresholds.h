/* thresholds.h: outputs in bits without K, residual and activation: a comparison of the dot, which
 * is an integer, with one integer a filter. */
#ifndef XN_CUDA_THRESHOLDS_H
#define XN_CUDA_THRESHOLDS_H

#include "xn_weights.h"

/* Whether thresholds say all of such an epilogue's bits, and nothing else is written. */
bool xn_cuda_thresholds_suffice(const xn_epilogue *epilogue);

/* For each filter: the bit of the epilogue is dot >= threshold[o], turned where bit o % 32 of
 * flip[o / 32] is 1. flip is zero-filled. */
void xn_cuda_thresholds_fill(const xn_weights *weights, const xn_epilogue *epilogue,
                             int32_t *threshold, uint32_t *flip);

#endif
