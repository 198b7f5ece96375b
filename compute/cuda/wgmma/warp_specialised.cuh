/* warp_specialised.cuh: what warp_specialised.cu has in shared memory, and how it gets there: a
 * warpgroup copies bands from memory, and those who write make a record of every output pixel from
 * the sums over its window. */
#ifndef XN_CUDA_WARP_SPECIALISED_CUH
#define XN_CUDA_WARP_SPECIALISED_CUH

#include "fast_divide.cuh"
#include "warp_specialised.h"
#include "wgmma_filters.cuh"
#include "wgmma_kernel.cuh"

struct specialised_more {
    xn_epilogue_args out;
    xn_cuda_padded lines; /* of the activations */
    xn_fast_divisor row_bands, image_pixels, out_width;
    xn_wgmma_rest rest;
    uint32_t count_high; /* COUNT_FLOAT, for INT32 0; from here the compiler does not know it: of a
                            permutation's operands one can be immediate, not two */
};
typedef xn_wgmma_args<xn_cuda_specialised_shape, xn_cuda_specialised_io, specialised_more>
    specialised_args;

enum {
    GROUP = XN_WGMMA_GROUP,
    M = XN_WGMMA_FILTERS,
    DEPTH = XN_CUDA_SPECIALISED_MAX_DEPTH,
    /* Half of what may be subtracted from a count, so that all stays positive until the table's
     * part is added, which has it taken off again. */
    MOST = 1 << 16,
    COUNT_FLOAT = 0x4b80,
    /* Barriers of a block, 8 bytes each: filters have come; of each place for a band: it has come,
     * has been used; of each writing warpgroup's stage: likewise; turns of those that multiply. */
    FILTERS = 0,
    BAND_FULL = 1,
    BAND_FREE = BAND_FULL + DEPTH,
    STAGE_FULL = BAND_FREE + DEPTH,
    STAGE_FREE = STAGE_FULL + XN_CUDA_SPECIALISED_WRITERS,
    TURNS = STAGE_FREE + XN_CUDA_SPECIALISED_WRITERS,
    BARRIERS = TURNS + XN_CUDA_SPECIALISED_MULTIPLIERS,
    /* Named barriers. */
    WRITERS_MEET = 1,
    GROUP_MEETS = 2, /* and one for each writing warpgroup from here on */
};

#if XN_HAS_WGMMA

/* A band: its first image and row, images and rows that there are, outputs of a filter. */
struct specialised_band {
    int32_t image, y, images, rows, pixels;
};

__device__ __forceinline__ specialised_band band_of(const specialised_args &a, int32_t number) {
    const int32_t part = xn_divide(number, a.row_bands);
    specialised_band b;
    b.image = part * a.shape.images;
    b.y = (number - part * a.shape.row_bands) * a.shape.rows;
    b.images = min(a.shape.images, a.images - b.image);
    b.rows = min(a.shape.rows, a.conv.out_height - b.y);
    b.pixels = b.images * b.rows * a.conv.out_width;
    return b;
}

/* Of a band's outputs, one after the other: their part of dot, half of it; the box of K, or 1;
 * where in the table their class begins, in bytes. */
struct specialised_records {
    char *memory;
    int32_t bytes; /* of one kind */

    __device__ __forceinline__ int32_t *parts() const {
        return (int32_t *)memory;
    }
    __device__ __forceinline__ float *boxes() const {
        return (float *)(memory + bytes);
    }
    __device__ __forceinline__ int32_t *rows() const {
        return (int32_t *)(memory + 2 * bytes);
    }
};

__device__ __forceinline__ specialised_records records_of(const specialised_args &a,
                                                          const xn_wgmma_block &b, int32_t place) {
    return {b.memory + a.shape.records_at + place * a.shape.record_bytes, a.shape.record_bytes / 3};
}

/* Where a warp of a writing warpgroup finds the counts of its 16 filters. */
__device__ __forceinline__ char *stage_of(const specialised_args &a, const xn_wgmma_block &b,
                                          int32_t writer) {
    const int32_t warp = (int32_t)threadIdx.x / 32 % 4;
    return b.memory + a.shape.stage_at + (writer * M + warp * 16) * a.shape.stage_row;
}

/* ---- the warps that copy ---- */

/* Positions of an image and phase of a band that are copied. */
__device__ __forceinline__ int32_t copied_of(const specialised_args &a,
                                             const specialised_band &band) {
    return min(a.shape.copied, a.lines.phase - band.y * a.lines.pitch);
}

__device__ __forceinline__ void expect_band(const specialised_args &a, const xn_wgmma_block &b,
                                            const specialised_band &band, int32_t place) {
    const xn_cuda_specialised_shape &s = a.shape;
    const int32_t all = (band.images - 1) * s.image_pitch + copied_of(a, band);
    const int32_t bytes = a.lines.bit_phases * s.units * 16 + a.lines.phases * (s.means ? 8 : 4);
    xn_mbarrier_expect(xn_barrier_at(b.barriers, BAND_FULL + place), (uint32_t)(all * bytes));
}

/* All that a band has of a phase. */
__device__ __forceinline__ void copy_band(const specialised_args &a, const xn_wgmma_block &b,
                                          const specialised_band &band, int32_t place,
                                          int32_t phase) {
    const xn_cuda_specialised_shape &s = a.shape;
    const xn_cuda_padded &l = a.lines;
    const uint32_t to =
        xn_shared_address(b.memory) + (uint32_t)(s.buffers_at + place * s.buffer_bytes);
    const uint32_t full = xn_barrier_at(b.barriers, BAND_FULL + place);
    const int32_t first = band.y * l.pitch;
    const int32_t count = copied_of(a, band);
    int32_t at = 0;
#pragma unroll 1
    for (int32_t i = 0; i < band.images; i++) {
        /* the zeros between images are those below the first of them */
        const int32_t end =
            i * s.image_pitch + (i + 1 < band.images ? s.image_pitch + l.lead : count);
        const int64_t plane = (int64_t)(band.image + i) * a.conv.groups + b.group;
        const int32_t n = end - at, from = first + at - i * s.image_pitch;
        const int64_t single = plane * l.plane + phase * l.phase + from;
        const char *bits =
            (const char *)a.io.bits + (single + plane * (s.units - 1) * l.plane) * 16;
        const int32_t there = phase * s.phase + at;
#pragma unroll 1
        for (int32_t unit = 0; unit < s.units && phase < l.bit_phases; unit++)
            xn_bulk_copy(to + (uint32_t)(unit * s.plane + there) * 16,
                         bits + (int64_t)unit * l.plane * 16, (uint32_t)n * 16, full);
        xn_bulk_copy(to + (uint32_t)(s.counts_at + there * 4), a.io.counts + single,
                     (uint32_t)n * 4, full);
        if (s.means)
            xn_bulk_copy(to + (uint32_t)(s.means_at + there * 4), a.io.means + single,
                         (uint32_t)n * 4, full);
        at = end;
    }
}

/* ---- records ---- */

/* A thread has the same pixels of every band: where their windows begin, and what does not change.
 */
enum { OWN = 256 / GROUP };
struct specialised_own {
    int32_t at[OWN], line[OWN], column_class[OWN];
};

__device__ __forceinline__ specialised_own own_pixels(const specialised_args &a) {
    const xn_conv &c = a.conv;
    const xn_cuda_specialised_shape &s = a.shape;
    specialised_own own;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int32_t pixel = min((int32_t)threadIdx.x % GROUP + i * GROUP, s.pixels - 1);
        const int32_t image = s.images > 1 ? xn_divide(pixel, a.image_pixels) : 0;
        const int32_t rest = pixel - image * s.rows * c.out_width;
        const int32_t line = xn_divide(rest, a.out_width), x = rest - line * c.out_width;
        own.at[i] = image * s.image_pitch + line * a.lines.pitch + x + s.first_tap;
        own.line[i] = line;
        own.column_class[i] = xn_border_class(s.borders.columns, x, c.out_width);
    }
    return own;
}

/* The sum of a window's values in the order of K (epilogue.cuh), from its first tap's on. NINE: the
 * window is 3 x 3, whose values are loaded at once. */
template <bool NINE, typename T>
__device__ __forceinline__ T window_sum(const specialised_args &a, const T *at) {
    const xn_cuda_specialised_shape &s = a.shape;
    if constexpr (NINE)
        return xn_box<3, 3, T>([&](int32_t i, int32_t j) {
            return at[(i ? s.row_at[i - 1] : 0) + (j ? s.column_at[j - 1] : 0)];
        });
    return xn_box_of<T>(a.conv.kernel_h, a.conv.kernel_w, [&](int32_t i, int32_t j) {
        return at[(i & 1) * s.row_at[0] + (i >> 1) * s.row_at[1] + (j & 1) * s.column_at[0] +
                  (j >> 1) * s.column_at[1]];
    });
}

/* The records of a band, by a warpgroup. */
template <int OUT, bool NINE>
__device__ __forceinline__ void
make_records(const specialised_args &a, const specialised_band &band, const specialised_own &own,
             const char *buffer, const specialised_records &records) {
    constexpr bool REAL = OUT != XN_INT32;
    const xn_conv &c = a.conv;
    const xn_cuda_specialised_shape &s = a.shape;
    const int32_t *counts = (const int32_t *)(buffer + s.counts_at);
    const float *means = (const float *)(buffer + s.means_at);
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int32_t pixel = (int32_t)threadIdx.x % GROUP + i * GROUP;
        if (i > 0 && i * GROUP >= s.pixels)
            break;
        const int32_t bits = window_sum<NINE>(a, counts + own.at[i]);
        const float box = REAL && s.means ? window_sum<NINE>(a, means + own.at[i]) : 1.0f;
        const int32_t cls = xn_border_class(s.borders.rows, band.y + own.line[i], c.out_height) *
                                s.borders.columns.classes +
                            own.column_class[i];
        if (pixel < band.pixels) {
            records.parts()[pixel] =
                REAL ? __float_as_int((float)(MOST - bits) - 0x1p24f) : -2 * bits;
            records.rows()[pixel] = cls * s.table_pitch * 4;
            if (REAL)
                records.boxes()[pixel] = box;
        }
    }
}

#endif
#endif
