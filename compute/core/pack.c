/* pack.c: weights to bits. */
#include "pack.h"

#include "xn_arith.h"
#include "xn_tensor.h"

#include <string.h>

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

void xn_pack_words_of_bytes(const uint8_t *packed, int64_t pixels, int32_t group_channels,
                            uint32_t *bits) {
    const size_t words = (size_t)xn_pack_words(group_channels);
    const size_t bytes = (size_t)xn_bits_pixel_bytes(group_channels);
    for (int64_t at = 0; at < pixels; at++, packed += bytes, bits += words) {
        bits[words - 1] = 0;
        memcpy(bits, packed, bytes);
    }
}

static int bit_of(const uint8_t *packed, int64_t channel) {
    return packed[channel / 8] >> (channel % 8) & 1;
}

void xn_unpack_signs(const uint8_t *packed, int64_t filters, int64_t channels, int64_t taps,
                     int8_t *signs) {
    const int64_t bytes = xn_bits_pixel_bytes(channels);
    for (int64_t o = 0; o < filters; o++, signs += channels * taps)
        for (int64_t tap = 0; tap < taps; tap++, packed += bytes)
            for (int64_t c = 0; c < channels; c++)
                signs[c * taps + tap] = bit_of(packed, c) ? 1 : -1;
}

void xn_pack_split_taps(const uint8_t *packed, int64_t filters, int64_t channels, int64_t taps,
                        uint8_t *out) {
    const int64_t from = xn_bits_pixel_bytes(channels * taps), to = xn_bits_pixel_bytes(channels);
    for (int64_t o = 0; o < filters; o++, packed += from)
        for (int64_t tap = 0; tap < taps; tap++, out += to)
            for (int64_t c = 0; c < channels; c++)
                out[c / 8] |= (uint8_t)(bit_of(packed, c * taps + tap) << (c % 8));
}
