/* filter_stationary.cuh: what filter_stationary.cu has in shared memory beside filters: of a block
 * the table of the filters' part of dot, of each worker its positions, their set bits and the
 * pixels' part. */
#ifndef XN_CUDA_FILTER_STATIONARY_CUH
#define XN_CUDA_FILTER_STATIONARY_CUH

#include "fast_divide.cuh"
#include "filter_stationary.h"
#include "wgmma_filters.cuh"
#include "wgmma_kernel.cuh"

struct stationary_more {
    xn_epilogue_args out;
    xn_fast_divisor image_pitch, width; /* of the raster */
    int32_t lanes_shift;                /* lanes that share a row vector, as a power of two */
    int32_t filters_shift;              /* filters of a block, likewise */
    int32_t warp_slots;                 /* positions that a warp gathers at once */
    int32_t vector; /* pixels from a multiple of so many on are neighbours in memory: 8, 4 or 1 */
    xn_wgmma_rest rest;
};
typedef xn_wgmma_args<xn_cuda_stationary_shape, xn_cuda_stationary_io, stationary_more>
    stationary_args;

enum {
    SUB = XN_CUDA_STATIONARY_PIXELS,
    WORKER = XN_WGMMA_GROUP,
    NO_OUTPUT = -1,
    MAGIC = 0x4b400000, /* plus an integer: the float 1.5 * 2^23 plus that integer */
};

#if XN_HAS_WGMMA

/* What a block shares. */
struct stationary_block {
    char *filters;
    int32_t group, m0; /* the first filter, of the group */
    int32_t *table;    /* packed output: [class][odd][filter]; else [class][filter] */
    xn_wgmma_constants constants;
    uint32_t *flips;      /* in the place of factors, for packed output */
    int32_t *multiplying; /* workers that may begin to */
};

/* Of an output pixel: where it goes (NO_OUTPUT: nowhere), its part of dot, its row of the table.
 * Its box of K, or 1, lies apart. */
struct __align__(16) stationary_pixel {
    int64_t base;
    int32_t part, row;
};

/* What a worker, a warpgroup, has of its own. */
struct stationary_worker {
    int32_t thread, barrier;
    char *buffers, *turn;
    int32_t *counts; /* set bits of each position */
    stationary_pixel *pixels;
    float *boxes;
};

__device__ __forceinline__ stationary_block block_parts(const stationary_args &a,
                                                        const xn_wgmma_block &own) {
    const xn_cuda_stationary_shape &s = a.shape;
    stationary_block b;
    b.filters = own.memory;
    b.group = own.group;
    b.m0 = own.m0;
    b.table = (int32_t *)(own.memory + s.table_at);
    b.constants = xn_wgmma_constants::at(own.memory + s.constants_at, s.block_filters);
    b.flips = (uint32_t *)b.constants.factor;
    b.multiplying = (int32_t *)b.constants.largest + 2;
    return b;
}

__device__ __forceinline__ stationary_worker worker_parts(const stationary_args &a, char *memory) {
    const xn_cuda_stationary_shape &s = a.shape;
    const int32_t index = (int32_t)threadIdx.x / WORKER;
    stationary_worker w;
    w.thread = (int32_t)threadIdx.x % WORKER;
    w.barrier = 1 + index;
    w.buffers = memory + s.workers_at + index * s.worker_bytes;
    w.counts = (int32_t *)(w.buffers + s.counts_at);
    w.pixels = (stationary_pixel *)(w.buffers + s.pixels_at);
    w.boxes = (float *)(w.buffers + s.k_at);
    w.turn = w.buffers + s.turn_at;
    return w;
}

__device__ __forceinline__ void worker_barrier(const stationary_worker &w) {
    xn_named_barrier(w.barrier, WORKER);
}

struct position {
    int32_t image, row, column;
};

__device__ __forceinline__ position position_of(const stationary_args &a, int32_t raster) {
    position p;
    p.image = xn_divide(raster, a.image_pitch);
    const int32_t rest = raster - p.image * (int32_t)a.image_pitch.divisor;
    p.row = xn_divide(rest, a.width);
    p.column = rest - p.row * (int32_t)a.width.divisor;
    return p;
}

/* ---- positions into shared memory ---- */

/* A position as a lane knows it: the pixel of its row vector's first tap, whose column is x; no
 * column of an image where the row lies outside. */
struct source {
    int32_t pixel, x;
};

__device__ __forceinline__ source source_of(const stationary_args &a, int32_t group, int32_t first,
                                            int32_t slot) {
    const xn_conv &c = a.conv;
    const xn_cuda_raster &r = a.shape.raster;
    int32_t i = 0, m = slot;
    if (!r.overlap) {
        i = slot / r.row_step;
        m = slot % r.row_step;
    }
    const position p = position_of(a, first + m);
    const int32_t y = p.row * c.stride_h + i * c.dilation_h - c.pad_top;
    const int32_t x = p.column * c.stride_w - c.pad_left;
    const bool inside = p.image < a.images && (uint32_t)y < (uint32_t)c.height;
    const int32_t line = ((p.image * c.groups + group) * c.height + y) * c.width;
    return {line + x, inside ? x : INT32_MIN / 2};
}

/* Of the positions that a warp knows, 2^shift neighbouring lanes copy one, each every 2^shift-th
 * BYTES of its taps, and then one of the next 32 >> shift. Taps of less than 16 bytes lie one after
 * the other, and have a lane alone. Where a copy is not of the image its address is not read. */
template <int BYTES>
__device__ __forceinline__ void gather_taps(const stationary_args &a, const source &own,
                                            int32_t slots, uint32_t to) {
    const xn_cuda_raster &r = a.shape.raster;
    const int32_t shift = BYTES == 16 ? a.lanes_shift : 0;
    const int32_t lane = threadIdx.x & 31, unit = lane & ((1 << shift) - 1);
    const int32_t tap_copies = BYTES == 16 ? a.shape.tap_words / 4 >> shift : 1;
    const uint32_t plane_bytes = (uint32_t)r.plane * 16;
    const int64_t step = (int64_t)a.conv.dilation_w * a.shape.tap_words * 4;
    const char *bits = (const char *)a.io.bits + unit * 16;
    to += (uint32_t)(lane >> shift) * 16 + (uint32_t)unit * plane_bytes;
#pragma unroll 1
    for (int32_t done = 0; done < slots; done += 32 >> shift) {
        const int32_t slot = done + (lane >> shift);
        const int32_t pixel = __shfl_sync(0xffffffffu, own.pixel, slot);
        int32_t x = __shfl_sync(0xffffffffu, own.x, slot);
        if (slot < slots) {
            const char *from = bits + (int64_t)pixel * (a.shape.tap_words * 4);
            uint32_t unit_to = to;
#pragma unroll 1
            for (int32_t j = 1; j <= r.row_taps; j++) {
                const bool inside = (uint32_t)x < (uint32_t)a.conv.width;
                const char *next = from;
#pragma unroll 1
                for (int32_t u = 0; u < tap_copies; u++) {
                    xn_copy_async_at<BYTES>(unit_to, next, inside);
                    next += 16 << shift;
                    unit_to += BYTES == 16      ? plane_bytes << shift
                               : j * BYTES % 16 ? BYTES
                                                : plane_bytes - (16 - BYTES);
                }
                from += step;
                x += a.conv.dilation_w;
            }
        }
        to += (uint32_t)(32 >> shift) * 16;
    }
}

/* The same where a position has one tap, of one copy a lane. */
__device__ __forceinline__ void gather_once(const stationary_args &a, const source &own,
                                            int32_t slots, uint32_t to) {
    const int32_t shift = a.lanes_shift, lane = threadIdx.x & 31, unit = lane & ((1 << shift) - 1);
    const int32_t pixel = (uint32_t)own.x < (uint32_t)a.conv.width ? own.pixel : -1;
    const char *bits = (const char *)a.io.bits + unit * 16;
    int32_t slot = lane >> shift;
    to += (uint32_t)(slot + unit * a.shape.raster.plane) * 16;
#pragma unroll 2
    for (int32_t done = 0; done < slots; done += 32 >> shift) {
        const int32_t from = __shfl_sync(0xffffffffu, pixel, slot);
        if (slot < slots)
            xn_copy_async_at<16>(to, bits + ((int64_t)from << shift) * 16, from >= 0);
        slot += 32 >> shift;
        to += (uint32_t)(32 >> shift) * 16;
    }
}

__device__ __forceinline__ void gather_means(const stationary_args &a, const source &from,
                                             uint32_t to) {
    const float *mean = a.io.mean + from.pixel;
    const int32_t taps = a.shape.raster.row_taps, step = a.conv.dilation_w;
    int32_t x = from.x;
#pragma unroll 1
    for (int32_t j = 0; j < taps; j++) {
        xn_copy_async_at<4>(to, mean, (uint32_t)x < (uint32_t)a.conv.width);
        to += (uint32_t)a.shape.raster.slots * 4;
        mean += step;
        x += step;
    }
}

/* Starts the copies of all that `subtiles` from position `first` on read. The warps share the
 * positions evenly, up to 32 each at a time. */
__device__ __forceinline__ void gather(const stationary_args &a, const stationary_worker &w,
                                       int32_t group, int32_t first, int32_t subtiles,
                                       int32_t buffer) {
    const xn_cuda_raster &r = a.shape.raster;
    const int32_t slots = r.overlap ? subtiles * SUB + r.span : r.slots;
    const int32_t lane = w.thread & 31, words = a.shape.tap_words, each = a.warp_slots;
    const uint32_t to = xn_shared_address(w.buffers) + (uint32_t)(buffer * a.shape.buffer_bytes);
#pragma unroll 1
    for (int32_t begin = w.thread / 32 * each; begin < slots; begin += 4 * each) {
        const source own = source_of(a, group, first, begin + lane);
        const int32_t count = min(each, slots - begin);
        const uint32_t at = to + (uint32_t)begin * 16;
        if (words == 4 << a.lanes_shift && r.row_taps == 1)
            gather_once(a, own, count, at);
        else if (words >= 4)
            gather_taps<16>(a, own, count, at);
        else if (words == 2)
            gather_taps<8>(a, own, count, at);
        else
            gather_taps<4>(a, own, count, at);
        if (lane < count && a.shape.means)
            gather_means(a, own, to + (uint32_t)a.shape.means_at + (begin + lane) * 4);
    }
    xn_copy_commit();
}

/* ---- what depends on the filter: once a block ---- */

/* For packed output the least count of AND that does not suffice for dot >= threshold, without the
 * whole half of the activations' set bits, which is added to it (write_packed):
 *
 *   part - 2 popc(a) + 4 count >= threshold      part: of filter and class
 *   count >= ceil((ceil((threshold - part) / 2) + popc(a)) / 2)
 *
 * and popc(a) = 2 (popc(a) / 2) + odd. */
__device__ __forceinline__ int32_t count_limit(int32_t threshold, int32_t part, int32_t odd) {
    const int32_t half = (threshold - part + 1) >> 1;
    return ((half + odd + 1) >> 1) - 1;
}

/* The table, and factor and bias or the bits to turn. */
template <bool PACKED>
__device__ __forceinline__ void make_filters(const stationary_args &a, const stationary_block &b) {
    const xn_conv &c = a.conv;
    const int32_t filters = 1 << a.filters_shift, pitch = a.shape.table_pitch;
    for (int32_t m = threadIdx.x; m < filters; m += blockDim.x) {
        const xn_wgmma_filter f = xn_wgmma_filter_of(c, b.group, b.m0 + m);
        if (!PACKED) {
            b.constants.set(a.out, f, m);
        } else if (m % 32 == 0) {
            const int32_t word = (b.group * c.group_out_channels + b.m0 + m) / 32;
            b.flips[m / 32] = a.io.flip && word * 32 < c.out_channels ? a.io.flip[word] : 0;
        }
    }
    xn_wgmma_make_table(a, b.group, b.m0, PACKED ? a.io.threshold : NULL, a.filters_shift,
                        (int32_t)threadIdx.x, (int32_t)blockDim.x,
                        [&](const xn_wgmma_filter &f, int32_t m, int32_t cls, int32_t part) {
                            if (PACKED) {
                                int32_t *row = b.table + 2 * cls * pitch + m;
                                row[0] = f.live ? count_limit(f.threshold, part, 0) : 1 << 29;
                                row[pitch] = f.live ? count_limit(f.threshold, part, 1) : 1 << 29;
                            } else {
                                b.table[cls * pitch + m] = part;
                            }
                        });
}

/* ---- what depends on the pixel: once a tile ---- */

/* Set bits of each position's row vector, without what follows its last word. */
__device__ __forceinline__ void count_positions(const stationary_args &a,
                                                const stationary_worker &w, const char *buffer,
                                                int32_t pixels) {
    const xn_cuda_raster &r = a.shape.raster;
    const int32_t plane_bytes = r.plane * 16, count = r.overlap ? pixels + r.span : r.slots;
    const int32_t words = r.row_taps * a.shape.tap_words, whole = words / 4;
    for (int32_t slot = w.thread; slot < count; slot += WORKER) {
        const char *at = buffer + slot * 16;
        int32_t bits = 0;
#pragma unroll 4
        for (int32_t chunk = 0; chunk < whole; chunk++, at += plane_bytes) {
            const uint4 v = *(const uint4 *)at;
            bits += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
        }
        if (words & 3) {
            const uint4 v = *(const uint4 *)at;
            bits += __popc(v.x) + ((words & 3) > 1 ? __popc(v.y) : 0) +
                    ((words & 3) > 2 ? __popc(v.z) : 0);
        }
        w.counts[slot] = bits;
    }
}

/* The box of an output, or the sum of its set bits. */
template <typename T>
__device__ __forceinline__ T window_of(const stationary_args &a, const T *at) {
    const xn_cuda_raster &r = a.shape.raster;
    return xn_wgmma_box(at, a.conv.kernel_h, r.row_step, a.conv.kernel_w,
                        r.slide ? r.column_step : r.slots);
}

/* A warp makes the 16 pixels of each subtile that it has in the matrix unit, and only these. */
template <int OUT>
__device__ __forceinline__ void make_pixels(const stationary_args &a, const stationary_worker &w,
                                            const char *buffer, int32_t first, int32_t subtiles) {
    constexpr bool PACKED = OUT == XN_CUDA_STATIONARY_PACKED;
    const xn_conv &c = a.conv;
    const xn_cuda_raster &r = a.shape.raster;
    for (int32_t e = w.thread % 32; e < subtiles * 16; e += 32) {
        const int32_t m = e / 16 * SUB + w.thread / 32 * 16 + e % 16;
        const position p = position_of(a, first + m);
        stationary_pixel pixel = {NO_OUTPUT, 0, 0};
        float box = 1.0f;
        if (p.image < a.images && p.row < c.out_height && p.column < c.out_width) {
            const int32_t v = xn_border_class(a.shape.borders.rows, p.row, c.out_height);
            const int32_t h = xn_border_class(a.shape.borders.columns, p.column, c.out_width);
            const int32_t cls = v * a.shape.borders.columns.classes + h;
            const int64_t plane = (int64_t)c.out_height * c.out_width;
            const int32_t at = p.row * c.out_width + p.column;
            const int32_t bits = r.slide ? window_of(a, w.counts + m)
                                         : xn_wgmma_box(w.counts + m, c.kernel_h, r.row_step, 1, 0);
            if (PACKED) {
                pixel.base = (p.image * plane + at) * a.shape.packed_words;
                pixel.part = bits >> 1;
                pixel.row = (cls * 2 + (bits & 1)) * a.shape.table_pitch;
            } else {
                pixel.base = (int64_t)p.image * c.out_channels * plane + at;
                pixel.part = (OUT == XN_INT32 ? 0 : MAGIC) - 2 * bits;
                pixel.row = cls * a.shape.table_pitch;
                if (OUT != XN_INT32 && a.shape.means)
                    box = window_of(a, (const float *)(buffer + a.shape.means_at) + m);
            }
        }
        w.pixels[m] = pixel;
        if (!PACKED && OUT != XN_INT32)
            w.boxes[m] = box;
    }
    __syncwarp();
}

#endif
#endif
