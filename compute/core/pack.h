/* pack.h: real weights to bits, in the one normative layout (xn_weights.h):
 *
 *   bits[o][i][j][word]    channel c is bit c % 32 of word c / 32; 1 = +1, 0 = -1; tail bits 0 */
#ifndef XN_PACK_H
#define XN_PACK_H

#include <stdint.h>

/* Words a tap takes: ceil(group_channels / 32). */
int32_t xn_pack_words(int32_t group_channels);

/* real is [out_channels][group_channels][taps], bits [out_channels][taps][words], zero-filled. */
void xn_pack_weights(const float *real, int32_t out_channels, int32_t group_channels, int64_t taps,
                     uint32_t *bits);

#endif
