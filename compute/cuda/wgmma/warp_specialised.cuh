/* warp_specialised.cuh: what warp_specialised.cu has in shared memory, and how it gets there: a
 * warpgroup copies bands from memory, and those who write make tables of what a block's filters
 * have beside their bits, and a record of every output pixel from the sums over its window. */
#ifndef XN_CUDA_WARP_SPECIALISED_CUH
#define XN_CUDA_WARP_SPECIALISED_CUH

#include "epilogue.cuh"
#include "fast_divide.cuh"
#include "warp_specialised.h"
#include "wgmma_ptx.cuh"

/* What is between a value and memory: nothing; residuals and bits that lie so that the fast way has
 * them; activations too; anything. */
enum specialised_kind { PLAIN, BESIDE, ACTIVATED, ANY };

/* Bands are shared evenly among blocks. */
struct specialised_args {
    xn_epilogue_args out;
    xn_cuda_padded lines; /* of the activations */
    xn_fast_divisor row_bands, image_pixels, out_width;
    specialised_kind rest;
    uint32_t count_high; /* COUNT_FLOAT; from here the compiler does not know it: of a permutation's
                            operands one can be immediate, not two */
    int32_t images;
    xn_conv conv;
    xn_cuda_specialised_io io;
    int32_t share_each, share_more; /* bands of a block; share_more blocks have one more */
    xn_cuda_specialised_shape shape;
};

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

/* A place in a ring, and the parity of the phase that ends when it is full; free has ended once
 * less. */
struct specialised_ring {
    int32_t place;
    uint32_t parity;

    __device__ __forceinline__ void next(int32_t places) {
        if (++place == places) {
            place = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void skip(int32_t count, int32_t places) {
        for (int32_t n = 0; n < count; n++)
            next(places);
    }
};

/* A block's tile of filters, which come first in its shared memory: the first one, of the group. */
struct specialised_block {
    char *memory;
    uint32_t barriers;
    int32_t group, m0;
};

/* A share of the bands. */
struct specialised_range {
    int32_t next, end;
};

__device__ __forceinline__ specialised_range share_of(const specialised_args &a) {
    const int32_t sharer = (int32_t)blockIdx.x;
    const int32_t first = sharer * a.share_each + min(sharer, a.share_more);
    return {first, first + a.share_each + (sharer < a.share_more)};
}

/* Of every step-th pair of chunks from `first` on a bulk copy, which takes the thread that starts
 * it about a hundred cycles. */
__device__ __forceinline__ void copy_filters(const specialised_args &a, const specialised_block &b,
                                             int32_t first, int32_t step) {
    const uint32_t to = xn_shared_address(b.memory), bytes = M * 32;
    const char *from =
        (const char *)a.io.filters + ((int64_t)b.group * a.conv.group_out_channels + b.m0) * 32;
#pragma unroll 1
    for (int32_t pair = first; pair < a.shape.pairs; pair += step)
        xn_bulk_copy(to + (uint32_t)pair * bytes, from + pair * a.io.filter_rows * 32, bytes,
                     b.barriers);
}

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

    __device__ __forceinline__ float *parts() const {
        return (float *)memory;
    }
    __device__ __forceinline__ float *boxes() const {
        return (float *)(memory + bytes);
    }
    __device__ __forceinline__ int32_t *rows() const {
        return (int32_t *)(memory + 2 * bytes);
    }
};

__device__ __forceinline__ specialised_records records_of(const specialised_args &a,
                                                          const specialised_block &b,
                                                          int32_t place) {
    return {b.memory + a.shape.records_at + place * a.shape.record_bytes, a.shape.record_bytes / 3};
}

/* Where a warp of a writing warpgroup finds the counts of its 16 filters. */
__device__ __forceinline__ char *stage_of(const specialised_args &a, const specialised_block &b,
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

__device__ __forceinline__ void expect_band(const specialised_args &a, const specialised_block &b,
                                            const specialised_band &band, int32_t place) {
    const xn_cuda_specialised_shape &s = a.shape;
    const int32_t all = (band.images - 1) * s.image_pitch + copied_of(a, band);
    const int32_t bytes = a.lines.bit_phases * s.units * 16 + a.lines.phases * (s.means ? 8 : 4);
    xn_mbarrier_expect(xn_barrier_at(b.barriers, BAND_FULL + place), (uint32_t)(all * bytes));
}

/* All that a band has of a phase. */
__device__ __forceinline__ void copy_band(const specialised_args &a, const specialised_block &b,
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

/* All bands of a block, by a lane of each of some warps, once the band that had the place has been
 * used: all that one brings is announced by warp 0, which the first time does not wait for the
 * kernel ahead, and each warp copies a phase. */
__device__ __forceinline__ void copy_bands(const specialised_args &a, const specialised_block &b,
                                           int32_t warp) {
    specialised_range bands = share_of(a);
    specialised_ring ring = {0, 0};
#pragma unroll 1
    for (int32_t done = 0; bands.next < bands.end; bands.next++, done++) {
        if (done >= a.shape.depth)
            xn_mbarrier_wait(xn_barrier_at(b.barriers, BAND_FREE + ring.place), ring.parity ^ 1);
        const specialised_band band = band_of(a, bands.next);
        if (warp == 0)
            expect_band(a, b, band, ring.place);
        if (done == 0)
            xn_wait_for_previous_kernel();
        copy_band(a, b, band, ring.place, warp);
        ring.next(a.shape.depth);
    }
}

/* ---- filters and border classes ---- */

struct specialised_filter {
    bool live;
    int32_t index;
};

/* Filter m of a group, or one that is not live past its end. */
__device__ __forceinline__ specialised_filter filter_of(const xn_conv &c, int32_t group,
                                                        int32_t m) {
    const bool live = m < c.group_out_channels;
    return {live, group * c.group_out_channels + (live ? m : 0)};
}

__device__ __forceinline__ int32_t border_class(const xn_cuda_axis &axis, int32_t at,
                                                int32_t outputs) {
    if (at < axis.first_count)
        return axis.first[at];
    const int32_t from_end = outputs - 1 - at;
    return from_end < axis.last_count ? axis.last[from_end] : 0;
}

/* Set bits of a filter over the taps inside at a class; `prefix` is its own (layout.h), with
 * `pitch` from row to row. */
__device__ __forceinline__ int32_t bits_inside(const int32_t *prefix, int64_t pitch,
                                               const xn_cuda_class cls) {
    return __ldg(prefix + cls.high_last * pitch) - __ldg(prefix + cls.low_last * pitch) -
           __ldg(prefix + cls.high_first * pitch) + __ldg(prefix + cls.low_first * pitch);
}

/* put(m, class, part) for a block's filters, from m0 of the group on: the part of dot that a filter
 * has at a class, with what the class adds for all filters. Of `threads` one has a filter and every
 * so many-th class, of which the loads of several are under way at once. */
template <typename Put>
__device__ __forceinline__ void make_table(const specialised_args &a, int32_t group, int32_t m0,
                                           int32_t thread, int32_t threads, Put put) {
    constexpr int32_t BATCH = 3;
    const xn_conv &c = a.conv;
    const xn_cuda_borders &borders = a.shape.borders;
    const int64_t pitch = c.out_channels;
    const int32_t taps = c.kernel_h * c.kernel_w, step = max(threads / M, 1);
    for (int32_t m = thread % M; m < M; m += threads) {
        const specialised_filter f = filter_of(c, group, m0 + m);
        const int32_t *prefix = a.io.prefix + f.index;
        const int32_t all = __ldg(prefix + ((c.kernel_h + 1) * (c.kernel_w + 1) - 1) * pitch);
        for (int32_t first = thread / M; first < borders.classes; first += BATCH * step) {
            int32_t inside[BATCH];
#pragma unroll
            for (int n = 0; n < BATCH; n++)
                inside[n] = bits_inside(
                    prefix, pitch, borders.pixel_class[min(first + n * step, borders.classes - 1)]);
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                const int32_t cls = first + n * step;
                if (cls >= borders.classes)
                    break;
                const int32_t in = borders.pixel_class[cls].inside;
                put(m, cls,
                    xn_cuda_filter_part(c.pad_value, inside[n], all - inside[n]) +
                        xn_cuda_pixel_part(c.pad_value, c.group_channels, in, taps - in, 0));
            }
        }
    }
}

struct specialised_constants {
    float *factor, *bias;
    uint32_t *largest; /* bits of the largest |factor| and |bias| */

    static __device__ __forceinline__ specialised_constants at(char *memory) {
        float *factor = (float *)memory;
        return {factor, factor + M, (uint32_t *)(factor + 2 * M)};
    }

    /* *largest is zero before, and threads meet after. */
    __device__ __forceinline__ void set(const xn_epilogue_args &e, const specialised_filter &filter,
                                        int32_t m) const {
        const xn_filter f = filter.live ? xn_filter_of(e, filter.index) : xn_filter{0, 0};
        factor[m] = f.factor;
        bias[m] = f.bias;
        atomicMax(largest, __float_as_uint(fabsf(f.factor)));
        atomicMax(largest + 1, __float_as_uint(fabsf(f.bias)));
    }

    /* Whether no product or sum of the epilogue can overflow at a pixel, so that xn_value is all of
     * it. A factor that is NaN is no less than infinity here; a bias or box that is fails. */
    __device__ __forceinline__ bool cannot_overflow(const xn_conv &c, float box) const {
        const float most = (float)(c.group_channels * c.kernel_h * c.kernel_w);
        return largest[0] < 0x7f800000u &&
               box * most * fmaxf(__uint_as_float(largest[0]), 1.0f) + __uint_as_float(largest[1]) <
                   3e38f;
    }
};

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
        own.column_class[i] = border_class(s.borders.columns, x, c.out_width);
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
template <bool NINE>
__device__ __forceinline__ void
make_records(const specialised_args &a, const specialised_band &band, const specialised_own &own,
             const char *buffer, const specialised_records &records) {
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
        const float box = s.means ? window_sum<NINE>(a, means + own.at[i]) : 1.0f;
        const int32_t cls = border_class(s.borders.rows, band.y + own.line[i], c.out_height) *
                                s.borders.columns.classes +
                            own.column_class[i];
        if (pixel < band.pixels) {
            records.parts()[pixel] = (float)(MOST - bits) - 0x1p24f;
            records.boxes()[pixel] = box;
            records.rows()[pixel] = cls * s.table_pitch * 4;
        }
    }
}

#endif
#endif
