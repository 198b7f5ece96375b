/* rails.h: packed tensors on the host between the two layouts of the CUDA backend (layout.h):
 * plain, [plane][pixel][words], and rails, [plane][units][pixel][4 words], bits and then their
 * complements. */
#ifndef XN_TEST_RAILS_H
#define XN_TEST_RAILS_H

#include "layout.h"

#include <stdint.h>
#include <string.h>
#include <vector>

/* Where word `word` of a pixel's bits is, in words; and its complement, so many words on. */
static inline size_t xn_rails_word(const xn_cuda_dual_rail &r, size_t pixels, size_t plane,
                                   size_t pixel, size_t word) {
    return ((plane * (size_t)r.units + word / 4) * pixels + pixel) * 4 + word % 4;
}
static inline size_t xn_rails_complement(const xn_cuda_dual_rail &r, size_t pixels) {
    return r.units == 1 ? 2 : (size_t)r.units / 2 * pixels * 4;
}

static inline std::vector<uint32_t> xn_rails_of(const uint32_t *plain, int32_t channels,
                                                size_t planes, size_t pixels) {
    const xn_cuda_dual_rail r = xn_cuda_dual_rail_of(channels);
    const size_t words = (size_t)xn_packed_words(channels), apart = xn_rails_complement(r, pixels);
    std::vector<uint32_t> rails(planes * pixels * (size_t)r.units * 4, 0xa5a5a5a5u);
    for (size_t plane = 0; plane < planes; plane++)
        for (size_t pixel = 0; pixel < pixels; pixel++)
            for (size_t word = 0; word < words; word++) {
                const size_t at = xn_rails_word(r, pixels, plane, pixel, word);
                rails[at] = plain[(plane * pixels + pixel) * words + word];
                rails[at + apart] = ~rails[at];
            }
    return rails;
}

/* False where a bit and its complement are the same. */
static inline bool xn_rails_to_plain(const uint32_t *rails, int32_t channels, size_t planes,
                                     size_t pixels, uint32_t *plain) {
    const xn_cuda_dual_rail r = xn_cuda_dual_rail_of(channels);
    const size_t words = (size_t)xn_packed_words(channels), apart = xn_rails_complement(r, pixels);
    bool right = true;
    memset(plain, 0, planes * pixels * words * 4);
    for (size_t plane = 0; plane < planes; plane++)
        for (size_t pixel = 0; pixel < pixels; pixel++)
            for (size_t word = 0; word * 32 < (size_t)channels; word++) {
                const size_t at = xn_rails_word(r, pixels, plane, pixel, word);
                const size_t left = (size_t)channels - word * 32;
                const uint32_t live = left < 32 ? (1u << left) - 1 : ~0u;
                plain[(plane * pixels + pixel) * words + word] = rails[at] & live;
                right = right && ((rails[at] ^ rails[at + apart]) & live) == live;
            }
    return right;
}

#endif
