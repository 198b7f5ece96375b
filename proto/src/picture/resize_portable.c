/* resize_portable.c: rows resampled where there is no SSE2; see xn_picture_inside.h. */
#ifndef __SSE2__
#include "xn_picture_inside.h"

void xn_resize_across(const xn_axis *axis, const uint8_t *pixels, int channels, uint8_t *out) {
    for (int64_t i = 0; i < axis->size; i++)
        for (int c = 0; c < channels; c++)
            xn_resize_output(axis, i, pixels + (int64_t)axis->first[i] * channels + c,
                             (size_t)channels, out++);
}

void xn_resize_down(const xn_axis *axis, int64_t i, const uint8_t *rows, size_t row_bytes,
                    uint8_t *out) {
    enum { BLOCK = 64 }; /* columns whose sums stay in registers or the first cache */
    const int32_t *weights = axis->weights + i * axis->taps, count = axis->count[i];
    for (size_t x = 0; x < row_bytes; x += BLOCK) {
        const size_t columns = row_bytes - x < BLOCK ? row_bytes - x : BLOCK;
        int32_t sums[BLOCK];
        for (size_t c = 0; c < columns; c++)
            sums[c] = XN_RESIZE_HALF;
        for (int32_t t = 0; t < count; t++)
            for (size_t c = 0; c < columns; c++)
                sums[c] += rows[(size_t)t * row_bytes + x + c] * weights[t];
        for (size_t c = 0; c < columns; c++) {
            const int32_t value = sums[c] >> XN_RESIZE_BITS;
            out[x + c] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
}

#else
typedef int xn_resize_portable_unused; /* C has no empty file */
#endif
