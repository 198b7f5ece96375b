/* pack.c: real weights to bits. */
#include "pack.h"

#include "xn_arith.h"

int32_t xn_pack_words(int32_t group_channels) {
    return (int32_t)(((int64_t)group_channels + 31) / 32);
}

void xn_pack_weights(const float *real, int32_t out_channels, int32_t group_channels, int64_t taps,
                     uint32_t *bits) {
    int64_t words = xn_pack_words(group_channels);
    for (int32_t o = 0; o < out_channels; o++, bits += taps * words) {
        for (int32_t c = 0; c < group_channels; c++, real += taps) {
            uint32_t *word = bits + c / 32;
            for (int64_t tap = 0; tap < taps; tap++)
                word[tap * words] |= xn_sign_bit(real[tap]) << (c % 32);
        }
    }
}
