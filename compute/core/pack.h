/* pack.h: weights to bits, in the one normative layout (xn_weights.h):
 *
 *   bits[o][i][j][word]    channel c is bit c % 32 of word c / 32; 1 = +1, 0 = -1; tail bits 0
 *
 * from reals, and from and to packed bits as files have them (XN_BITS):
 *
 *   packed[o][i][j][byte]  channel c is bit c % 8 of byte c / 8 */
#ifndef XN_PACK_H
#define XN_PACK_H

#include <stdint.h>

/* Words a tap takes: ceil(group_channels / 32). */
int32_t xn_pack_words(int32_t group_channels);

/* real is [out_channels][group_channels][taps], bits [out_channels][taps][words], zero-filled. */
void xn_pack_weights(const float *real, int32_t out_channels, int32_t group_channels, int64_t taps,
                     uint32_t *bits);

/* Of `pixels` taps of all filters. */
void xn_pack_words_of_bytes(const uint8_t *packed, int64_t pixels, int32_t group_channels,
                            uint32_t *bits);
/* signs is [filters][channels][taps], -1 and +1. */
void xn_unpack_signs(const uint8_t *packed, int64_t filters, int64_t channels, int64_t taps,
                     int8_t *signs);
/* From dense filters, whose channels are [channels][taps], to filters of `taps`; out is
 * zero-filled. */
void xn_pack_split_taps(const uint8_t *packed, int64_t filters, int64_t channels, int64_t taps,
                        uint8_t *out);

#endif
