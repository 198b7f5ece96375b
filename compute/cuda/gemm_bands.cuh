/* gemm_bands.cuh: what gemm_bands.cu has in shared memory beside filters, and the warpgroups that
 * fill it: they gather a band's positions, count their set bits, and make a record of every
 * output pixel from the sums over its window, while others multiply and write. */
#ifndef XN_CUDA_GEMM_BANDS_CUH
#define XN_CUDA_GEMM_BANDS_CUH

#include "element.cuh"
#include "fast_divide.cuh"
#include "gemm_bands.h"
#include "gemm_ptx.cuh"
#include "gemm_sums.cuh"
#include "ptx.cuh"

struct bands_args {
    xn_conv conv;
    xn_cuda_wide_io io;
    int32_t images;
    xn_cuda_bands_shape shape;
    xn_fast_divisor image_pitch, width, row_bands, column_bands;
    int32_t held;                    /* loads of a thread for a band; 0: it copies */
    int32_t lanes_shift;             /* lanes that share a position, as a power of two */
    int32_t step_rows, step_columns; /* from position to position of a producer */
    int32_t bands_each, bands_more;  /* bands a block; so many blocks have one more */
};

enum {
    GROUP = XN_CUDA_BANDS_GROUP,
    PRODUCERS = XN_CUDA_BANDS_PRODUCERS,
    M = XN_CUDA_BANDS_FILTERS,
    DEPTH = XN_CUDA_BANDS_MAX_DEPTH,
    NO_OUTPUT = -1,
    /* Barriers of a block, 8 bytes each. Of each place for a band: its positions have come, have
     * been multiplied; its records have come, have been used. */
    PIECES = 0,
    POSITIONS_FULL = XN_CUDA_BANDS_MAX_PIECES,
    POSITIONS_FREE = POSITIONS_FULL + DEPTH,
    RECORDS_FULL = POSITIONS_FREE + DEPTH,
    RECORDS_FREE = RECORDS_FULL + DEPTH,
    TURNS = RECORDS_FREE + DEPTH, /* of each multiplying warpgroup */
    BARRIERS = TURNS + 4,
    /* Named barriers. */
    MULTIPLIERS_MEET = 1,
    PRODUCERS_MEET = 2,
    GROUP_MEETS = 3, /* and one for each multiplying warpgroup from here on */
};

#if XN_HAS_WGMMA

/* What a block shares. */
struct bands_block {
    char *memory;
    uint32_t barriers;
    int32_t group, m0;  /* the first filter, of the group */
    int32_t first, end; /* bands */
};

/* A band: its first image and output. */
struct bands_origin {
    int32_t image, y, x;
};

__device__ __forceinline__ bands_origin origin_of(const bands_args &a, int32_t band) {
    const int32_t rest = xn_divide(band, a.column_bands);
    const int32_t column = band - rest * a.shape.column_bands;
    const int32_t image = xn_divide(rest, a.row_bands);
    const int32_t row = rest - image * a.shape.row_bands;
    return {image * a.shape.images, row * a.shape.rows, column * a.shape.columns};
}

/* Of a band's pixels, in pairs: half of their set bits and where in the table their class begins,
 * in bytes; and the number of the pixel, or NO_OUTPUT. */
struct bands_records {
    char *memory;
    int32_t positions;

    __device__ __forceinline__ int4 sums(int32_t pair) const {
        return *(const int4 *)(memory + pair * 16);
    }
    __device__ __forceinline__ int32_t place(int32_t m) const {
        return ((const int32_t *)(memory + positions * 8))[m];
    }
    __device__ __forceinline__ void put(int32_t m, int32_t part, int32_t row, int32_t place) const {
        int32_t *to = (int32_t *)memory + m / 2 * 4 + m % 2;
        to[0] = part;
        to[2] = row;
        ((int32_t *)(memory + positions * 8))[m] = place;
    }
};

__device__ __forceinline__ bands_records records_of(const bands_args &a, const bands_block &b,
                                                    int32_t place) {
    return {b.memory + a.shape.records_at + place * a.shape.record_bytes, a.shape.positions};
}

/* ---- positions into shared memory ---- */

/* A position of a band: row and column from the first on, of an image whose line 0, of all lines of
 * all images, is `line`. */
struct bands_walk {
    int32_t image, line, row, column;
};

__device__ __forceinline__ bands_walk walk_from(const bands_args &a, int32_t group,
                                                const bands_origin &o, int32_t slot) {
    bands_walk w;
    const int32_t image = xn_divide(slot, a.image_pitch);
    const int32_t rest = slot - image * a.shape.image_pitch;
    w.image = o.image + image;
    w.line = (w.image * a.conv.groups + group) * a.conv.height;
    w.row = xn_divide(rest, a.width);
    w.column = rest - w.row * a.shape.width;
    return w;
}

/* To the next position of a thread. */
__device__ __forceinline__ void walk_on(const bands_args &a, bands_walk *w) {
    w->row += a.step_rows;
    w->column += a.step_columns;
    if (w->column >= a.shape.width) {
        w->column -= a.shape.width;
        w->row++;
    }
    while (a.shape.images > 1 && w->row >= a.shape.image_rows) {
        w->row -= a.shape.image_rows;
        w->image++;
        w->line += a.conv.groups * a.conv.height;
    }
}

/* Less than 16 bytes a pixel: a position has the pixels of the taps that follow, too. */
template <int WORDS>
__device__ __forceinline__ void copy_taps(const bands_args &a, int32_t pixel, int32_t x,
                                          uint32_t to) {
    const int32_t step = a.conv.dilation_w;
    const char *bits = (const char *)a.io.bits + (int64_t)pixel * (WORDS * 4);
#pragma unroll
    for (int32_t j = 0; j < 4 / WORDS; j++)
        xn_copy_async_at<WORDS * 4>(to + (uint32_t)j * (WORDS * 4),
                                    bits + (int64_t)j * step * (WORDS * 4),
                                    (uint32_t)(x + j * step) < (uint32_t)a.conv.width);
}

__device__ __forceinline__ void copy_small(const bands_args &a, int32_t pixel, int32_t x,
                                           uint32_t to) {
    if (a.shape.tap_words == 2)
        copy_taps<2>(a, pixel, x, to);
    else
        copy_taps<1>(a, pixel, x, to);
}

/* What a thread has of the next band, where a band is of one image and each lane takes one unit of
 * a position. Copies past the registers (cp.async) access shared memory once for every unit, since
 * neighbouring ones go to different planes; stores less than half as often. */
template <int N>
struct bands_held {
    enum { UNITS = XN_CUDA_BANDS_HELD(N) };
    uint4 units[UNITS];
};

/* Starts the loads of a band; zeros where a position is outside the image. */
template <int N>
__device__ __forceinline__ void hold(const bands_args &a, const bands_block &b, int32_t band,
                                     bands_held<N> *held) {
    const xn_cuda_bands_shape &s = a.shape;
    const xn_conv &c = a.conv;
    const bands_origin o = origin_of(a, band);
    const int32_t shift = a.lanes_shift, unit = threadIdx.x & ((1 << shift) - 1);
    const bands_walk w = walk_from(a, b.group, o, (int32_t)threadIdx.x >> shift);
    const int32_t pixel_bytes = s.units * 16, width = s.width;
    const int32_t x0 = o.x - c.pad_left, end = x0 + width;
    const int32_t down = a.step_rows, right = a.step_columns;
    const int32_t on = (down * c.width + right) * pixel_bytes;
    const int32_t wrap = (c.width - width) * pixel_bytes;
    const uint32_t lines = w.image < a.images ? (uint32_t)c.height : 0; /* past the band: none */
    int32_t y = o.y - c.pad_top + w.row, x = x0 + w.column;
    const char *from =
        (const char *)a.io.bits + unit * 16 + ((int64_t)(w.line + y) * c.width + x) * pixel_bytes;
#pragma unroll
    for (int n = 0; n < bands_held<N>::UNITS; n++) {
        held->units[n] = make_uint4(0, 0, 0, 0);
        if (n < a.held && (uint32_t)y < lines && (uint32_t)x < (uint32_t)c.width)
            held->units[n] = __ldcg((const uint4 *)from);
        x += right;
        y += down;
        from += on;
        if (x >= end) {
            x -= width;
            y++;
            from += wrap;
        }
    }
}

template <int N>
__device__ __forceinline__ void put_held(const bands_args &a, char *positions,
                                         const bands_held<N> &held) {
    const xn_cuda_bands_shape &s = a.shape;
    const int32_t shift = a.lanes_shift, unit = threadIdx.x & ((1 << shift) - 1);
    const int32_t first = (int32_t)threadIdx.x >> shift, step = PRODUCERS >> shift;
    uint4 *to = (uint4 *)positions + unit * s.plane + first;
#pragma unroll
    for (int n = 0; n < bands_held<N>::UNITS; n++)
        if (first + n * step < s.slots)
            to[n * step] = held.units[n];
}

/* Starts the copies of all that a band reads. 2^shift neighbouring lanes share a position, each
 * copies every 2^shift-th of its units. A band's top and bottom lines may lie outside the image, as
 * may its columns: zeros are written. */
__device__ __forceinline__ void gather(const bands_args &a, const bands_block &b, int32_t band,
                                       int32_t place) {
    const xn_cuda_bands_shape &s = a.shape;
    const bands_origin o = origin_of(a, band);
    const int32_t shift = a.lanes_shift, unit = threadIdx.x & ((1 << shift) - 1);
    const int32_t y0 = o.y - a.conv.pad_top, x0 = o.x - a.conv.pad_left;
    const int32_t rounds = s.units >> shift;
    const uint32_t unit_bytes = (uint32_t)s.plane * 16 << shift;
    const char *bits = (const char *)a.io.bits + unit * 16;
    const uint32_t buffer =
        xn_shared_address(b.memory) + (uint32_t)(s.buffers_at + place * s.buffer_bytes);
    const uint32_t units_at = buffer + (uint32_t)(unit * s.plane) * 16;
    const bool large = s.tap_words >= 4;
    bands_walk w = walk_from(a, b.group, o, (int32_t)threadIdx.x >> shift);
#pragma unroll 1
    for (int32_t slot = (int32_t)threadIdx.x >> shift; slot < s.slots;
         slot += PRODUCERS >> shift, walk_on(a, &w)) {
        const int32_t y = y0 + w.row, x = x0 + w.column;
        const bool line = w.image < a.images && (uint32_t)y < (uint32_t)a.conv.height;
        const bool inside = line && (uint32_t)x < (uint32_t)a.conv.width;
        const int32_t pixel = (w.line + y) * a.conv.width + x;
        uint32_t to = units_at + (uint32_t)slot * 16;
        if (large) {
            const char *from = bits + (uint64_t)(uint32_t)pixel * (uint32_t)(s.units * 16);
            xn_copy_async_at<16>(to, from, inside);
#pragma unroll 1
            for (int32_t n = 1; n < rounds; n++) {
                to += unit_bytes;
                from += 16 << shift;
                xn_copy_async_at<16>(to, from, inside);
            }
        } else {
            copy_small(a, pixel, line ? x : INT32_MIN / 2, to);
        }
    }
    xn_copy_commit();
}

/* ---- what depends on the pixel ---- */

/* Set bits of each position's own pixel. */
__device__ __forceinline__ void count_positions(const bands_args &a, const char *positions,
                                                int32_t *counts) {
    const int32_t plane_bytes = a.shape.plane * 16, words = a.shape.tap_words;
    for (int32_t slot = threadIdx.x; slot < a.shape.slots; slot += PRODUCERS) {
        const char *at = positions + slot * 16;
        int32_t bits = 0;
        if (words < 4) {
            const uint2 v = *(const uint2 *)at;
            bits = __popc(v.x) + (words > 1 ? __popc(v.y) : 0);
        } else {
#pragma unroll 8
            for (int32_t unit = 0; unit < a.shape.units; unit++, at += plane_bytes) {
                const uint4 v = *(const uint4 *)at;
                bits += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
            }
        }
        counts[slot] = bits;
    }
}

__device__ __forceinline__ void make_records(const bands_args &a, const bands_origin &o,
                                             const int32_t *counts, const bands_records &records) {
    const xn_conv &c = a.conv;
    const xn_cuda_bands_shape &s = a.shape;
    const int32_t m = (int32_t)threadIdx.x;
    if (m >= s.positions)
        return;
    const int32_t bits =
        xn_window_sum<int32_t>(counts + m, c.kernel_h, s.row_step, c.kernel_w, s.column_step);
    const int32_t image = xn_divide(m, a.image_pitch), rest = m - image * s.image_pitch;
    const int32_t line = xn_divide(rest, a.width), column = rest - line * s.width;
    const int32_t n = o.image + image, y = o.y + line, x = o.x + column;
    const bool live = image < s.images && n < a.images && line < s.rows && y < c.out_height &&
                      column < s.columns && x < c.out_width;
    const int32_t cls =
        live ? xn_border_class(s.borders.rows, y, c.out_height) * s.borders.columns.classes +
                   xn_border_class(s.borders.columns, x, c.out_width)
             : 0;
    records.put(m, bits >> 1, (cls * 2 + (bits & 1)) * s.table_pitch * 4,
                live ? (n * c.out_height + y) * c.out_width + x : NO_OUTPUT);
}

/* ---- the producers ---- */

template <int N>
__device__ __forceinline__ void produce(const bands_args &a, const bands_block &b) {
    const xn_cuda_bands_shape &s = a.shape;
    int32_t *counts = (int32_t *)(b.memory + s.counts_at);
    const int32_t bands = b.end - b.first;
    int32_t place = 0;
    uint32_t round = 0; /* how often all places have been used, parity */
    bands_held<N> held;
    xn_wait_for_previous_kernel();
    if (bands > 0 && a.held)
        hold(a, b, b.first, &held);
    else if (bands > 0)
        gather(a, b, b.first, 0);
#pragma unroll 1
    for (int32_t band = 0; band < bands; band++) {
        char *positions = b.memory + s.buffers_at + place * s.buffer_bytes;
        const bands_records records = records_of(a, b, place);
        const uint32_t full = xn_barrier_at(b.barriers, POSITIONS_FULL + place);
        const int32_t next = place + 1 == s.depth ? 0 : place + 1;
        const uint32_t free = xn_barrier_at(b.barriers, POSITIONS_FREE + next);
        const uint32_t free_round = next ? round ^ 1 : round;
        const bool more = band + 1 < bands;
        if (a.held) {
            if (band >= s.depth)
                xn_mbarrier_wait(xn_barrier_at(b.barriers, POSITIONS_FREE + place), round ^ 1);
            put_held(a, positions, held);
        } else {
            xn_copy_wait<0>();
        }
        xn_fence_proxy();
        xn_mbarrier_arrive(full);
        if (a.held && more)
            hold(a, b, b.first + band + 1, &held);
        xn_mbarrier_wait(full, round); /* the positions of all producers */
        /* Where the next band's place is still being multiplied this one's records come first. */
        const bool early =
            more && !a.held &&
            (band + 1 < s.depth || __all_sync(0xffffffffu, xn_mbarrier_done(free, free_round)));
        if (early)
            gather(a, b, b.first + band + 1, next);
        count_positions(a, positions, counts);
        if (band >= s.depth)
            xn_mbarrier_wait(xn_barrier_at(b.barriers, RECORDS_FREE + place), round ^ 1);
        xn_named_barrier(PRODUCERS_MEET, PRODUCERS);
        make_records(a, origin_of(a, b.first + band), counts, records);
        xn_mbarrier_arrive(xn_barrier_at(b.barriers, RECORDS_FULL + place));
        if (more && !early && !a.held) {
            xn_mbarrier_wait(free, free_round);
            gather(a, b, b.first + band + 1, next);
        }
        place = next;
        round ^= next == 0;
    }
}

#endif
#endif
