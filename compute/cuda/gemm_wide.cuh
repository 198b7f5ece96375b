/* gemm_wide.cuh: what gemm_wide.cu has in shared memory beside filters: of a block the table of the
 * filters' part of dot, of each worker its positions, their set bits and the pixels' part. */
#ifndef XN_CUDA_GEMM_WIDE_CUH
#define XN_CUDA_GEMM_WIDE_CUH

#include "element.cuh"
#include "gemm_ptx.cuh"
#include "gemm_wide.h"
#include "ptx.cuh"

struct fast_divisor {
    uint32_t multiplier, shift, divisor;
};

/* Exact for dividends below 2^31. */
__device__ __forceinline__ int32_t divide(int32_t n, const fast_divisor &d) {
    return (int32_t)(__umulhi((uint32_t)n * 2, d.multiplier) >> d.shift);
}

struct wide_args {
    xn_conv conv;
    xn_cuda_wide_io io;
    const float *factor, *bias;
    void *output;
    int32_t images;
    xn_cuda_wide_shape shape;
    fast_divisor image_pitch, width; /* of the raster */
    int32_t lanes_shift;             /* lanes that share a row vector, as a power of two */
    int32_t vector; /* pixels from a multiple of so many on are neighbours in memory: 8, 4 or 1 */
};

enum {
    SUB = XN_CUDA_WIDE_PIXELS,
    WORKER = XN_CUDA_WIDE_WORKER,
    NO_OUTPUT = -1,
    MAGIC = 0x4b400000, /* plus an integer: the float 1.5 * 2^23 plus that integer */
};

#if XN_HAS_WGMMA

/* What a block shares. */
struct wide_block {
    uint32_t filters; /* shared address */
    int32_t *table;   /* packed output: [class][odd][filter]; else [class][filter] */
    float *factor, *bias;
    uint32_t *flips;     /* in the place of factor, for packed output */
    int32_t *class_part; /* [class]: the pixel part of dot but for the set bits */
    uint32_t *largest;   /* bits of the largest |factor| and |bias| */
};

/* Of an output pixel: where it goes (NO_OUTPUT: nowhere), its part of dot, its row of the table. */
struct __align__(16) wide_pixel {
    int64_t base;
    int32_t part, row;
};

/* What a worker, a warpgroup, has of its own. */
struct wide_worker {
    int32_t thread, barrier;
    char *buffers, *turn; /* turn: of this warp */
    int32_t *counts;      /* set bits of each position */
    wide_pixel *pixels;
    float *k;
};

__device__ __forceinline__ wide_block block_parts(const wide_args &a, char *memory) {
    const xn_cuda_wide_shape &s = a.shape;
    const int32_t filters = s.block_tiles * s.tile_filters;
    wide_block b;
    b.filters = xn_shared_address(memory);
    b.table = (int32_t *)(memory + s.table_at);
    b.factor = (float *)(memory + s.constants_at);
    b.bias = b.factor + filters;
    b.flips = (uint32_t *)b.factor;
    b.class_part = (int32_t *)(b.bias + filters);
    b.largest = (uint32_t *)(b.class_part + s.classes);
    return b;
}

__device__ __forceinline__ wide_worker worker_parts(const wide_args &a, char *memory) {
    const xn_cuda_wide_shape &s = a.shape;
    const int32_t index = (int32_t)threadIdx.x / WORKER;
    wide_worker w;
    w.thread = (int32_t)threadIdx.x % WORKER;
    w.barrier = 1 + index;
    w.buffers = memory + s.workers_at + index * s.worker_bytes;
    w.counts = (int32_t *)(w.buffers + s.counts_at);
    w.pixels = (wide_pixel *)(w.buffers + s.pixels_at);
    w.k = (float *)(w.buffers + s.k_at);
    w.turn = w.buffers + s.turn_at + w.thread / 32 * XN_CUDA_WIDE_TURN_BYTES;
    return w;
}

__device__ __forceinline__ void worker_barrier(const wide_worker &w) {
    xn_named_barrier(w.barrier, WORKER);
}

struct position {
    int32_t image, row, column;
};

__device__ __forceinline__ position position_of(const wide_args &a, int32_t raster) {
    position p;
    p.image = divide(raster, a.image_pitch);
    const int32_t rest = raster - p.image * (int32_t)a.image_pitch.divisor;
    p.row = divide(rest, a.width);
    p.column = rest - p.row * (int32_t)a.width.divisor;
    return p;
}

/* ---- positions into shared memory ---- */

/* Where a position's bits and means go, and how far it is to the next chunk or tap. */
struct gather_target {
    uint32_t bits, plane_bytes, means, means_bytes;
};

/* The row vector of one position, whose first tap is at column x0 of the image row that begins at
 * pixel `line`. Taps of 4 words and more: each of the lanes copies every lanes-th 16 bytes. */
template <int WORDS>
__device__ __forceinline__ void gather_row(const wide_args &a, int64_t line, int32_t x0,
                                           bool row_inside, int32_t lane, gather_target to) {
    const xn_conv &c = a.conv;
    const int32_t units = a.shape.tap_words / WORDS, lanes = 1 << a.lanes_shift;
    const char *bits = (const char *)a.io.bits;
    const char *from = bits + ((line + x0) * units + lane) * (WORDS * 4);
    const float *mean = a.io.mean + line;
    const bool means = a.shape.means && lane == 0;
    int32_t x = x0;
    to.bits += (uint32_t)lane * to.plane_bytes;
#pragma unroll 1
    for (int32_t j = 0; j < a.shape.raster.row_taps; j++) {
        const bool inside = row_inside && (uint32_t)x < (uint32_t)c.width;
        const char *at = inside ? from : bits;
        if (WORDS == 4) {
            uint32_t unit_to = to.bits;
            for (int32_t u = lane; u < units; u += lanes) {
                xn_copy_async_at<WORDS * 4>(unit_to, at, inside);
                unit_to += (uint32_t)lanes * to.plane_bytes;
                at += lanes * 16;
            }
            to.bits += (uint32_t)units * to.plane_bytes;
        } else {
            const int32_t word = j * WORDS;
            xn_copy_async_at<WORDS * 4>(
                to.bits + (uint32_t)(word >> 2) * to.plane_bytes + (word & 3) * 4, at, inside);
        }
        if (means)
            xn_copy_async_at<4>(to.means, inside ? mean + x : a.io.mean, inside);
        to.means += to.means_bytes;
        x += c.dilation_w;
        from += (int64_t)c.dilation_w * units * (WORDS * 4);
    }
}

template <int WORDS>
__device__ __forceinline__ void gather_positions(const wide_args &a, const wide_worker &w,
                                                 int32_t group, int32_t first, int32_t pixels,
                                                 uint32_t buffer) {
    const xn_conv &c = a.conv;
    const xn_cuda_raster &r = a.shape.raster;
    const int32_t lane = w.thread & ((1 << a.lanes_shift) - 1);
    const int32_t count = r.overlap ? pixels + r.span : r.slots;
    gather_target to;
    to.plane_bytes = (uint32_t)r.plane * 16;
    to.means_bytes = (uint32_t)r.slots * 4;
#pragma unroll 1
    for (int32_t slot = w.thread >> a.lanes_shift; slot < count; slot += WORKER >> a.lanes_shift) {
        int32_t i = 0, m = slot;
        if (!r.overlap) {
            i = slot / r.row_step;
            m = slot % r.row_step;
        }
        const position p = position_of(a, first + m);
        const int32_t y = p.row * c.stride_h + i * c.dilation_h - c.pad_top;
        const bool inside = p.image < a.images && (uint32_t)y < (uint32_t)c.height;
        const int64_t line =
            inside ? (((int64_t)p.image * c.groups + group) * c.height + y) * c.width : 0;
        to.bits = buffer + (uint32_t)slot * 16;
        to.means = buffer + (uint32_t)a.shape.means_at + (uint32_t)slot * 4;
        gather_row<WORDS>(a, line, p.column * c.stride_w - c.pad_left, inside, lane, to);
    }
}

/* Starts the copies of all that `subtiles` from position `first` on read. */
__device__ __forceinline__ void gather(const wide_args &a, const wide_worker &w, int32_t group,
                                       int32_t first, int32_t subtiles, int32_t buffer) {
    const uint32_t to = xn_shared_address(w.buffers) + (uint32_t)(buffer * a.shape.buffer_bytes);
    if (a.shape.tap_words >= 4)
        gather_positions<4>(a, w, group, first, subtiles * SUB, to);
    else if (a.shape.tap_words == 2)
        gather_positions<2>(a, w, group, first, subtiles * SUB, to);
    else
        gather_positions<1>(a, w, group, first, subtiles * SUB, to);
    xn_copy_commit();
}

/* Words of the row vectors past their taps, which no copy writes: once. */
__device__ __forceinline__ void clear_padding(const wide_args &a, const wide_worker &w) {
    const xn_cuda_raster &r = a.shape.raster;
    const int32_t words = r.row_taps * a.shape.tap_words;
    if (words % 4 == 0)
        return;
    for (int32_t b = 0; b < a.shape.buffers; b++)
        for (int32_t slot = w.thread; slot < r.slots; slot += WORKER)
            for (int32_t word = words; word % 4; word++)
                *(uint32_t *)(w.buffers + b * a.shape.buffer_bytes +
                              ((int64_t)(word >> 2) * r.plane + slot) * 16 + (word & 3) * 4) = 0;
}

/* ---- what depends on the filter: once a block ---- */

/* For packed output the least count of AND that does not suffice for dot >= threshold, without the
 * whole half of the activations' set bits, which is added to it (write_packed):
 *
 *   base - 2 popc(a) + part + 4 count >= threshold      base: class_part, part: of the filter
 *   count >= ceil((ceil((threshold - part - base) / 2) + popc(a)) / 2)
 *
 * and popc(a) = 2 (popc(a) / 2) + odd. */
__device__ __forceinline__ int32_t count_limit(int32_t threshold, int32_t part, int32_t base,
                                               int32_t odd) {
    const int32_t half = (threshold - part - base + 1) >> 1;
    return ((half + odd + 1) >> 1) - 1;
}

struct wide_filter {
    bool live;
    int32_t index, threshold;
};

template <bool PACKED>
__device__ __forceinline__ wide_filter filter_of(const wide_args &a, int32_t group, int32_t m) {
    const xn_conv &c = a.conv;
    wide_filter f;
    f.live = m < c.group_out_channels;
    f.index = group * c.group_out_channels + (f.live ? m : 0);
    f.threshold = 0;
    if (PACKED) { /* beyond +-(bits + 1) a threshold means no more */
        const int32_t most = c.group_channels * c.kernel_h * c.kernel_w + 1;
        f.threshold = max(-most, min(most, __ldg(a.io.threshold + f.index)));
    }
    return f;
}

/* The table, for filters from m0 of the group on. */
template <bool PACKED>
__device__ __forceinline__ void make_table(const wide_args &a, const wide_block &b, int32_t group,
                                           int32_t m0) {
    constexpr int32_t BATCH = 4; /* loads of several entries at once */
    const xn_conv &c = a.conv;
    const int64_t pitch = c.out_channels;
    const int32_t filters = a.shape.block_tiles * a.shape.tile_filters;
    const int32_t taps = c.kernel_h * c.kernel_w, entries = a.shape.classes * filters;
    const int32_t last = (c.kernel_h + 1) * (c.kernel_w + 1) - 1;
    for (int32_t first = threadIdx.x; first < entries; first += BATCH * blockDim.x) {
        int32_t inside[BATCH], all[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const int32_t e = min(first + n * (int32_t)blockDim.x, entries - 1);
            const xn_cuda_class cls = a.shape.pixel_class[e / filters];
            const wide_filter f = filter_of<false>(a, group, m0 + e % filters);
            const int32_t *prefix = a.io.prefix + f.index;
            inside[n] =
                __ldg(prefix + cls.high_last * pitch) - __ldg(prefix + cls.low_last * pitch) -
                __ldg(prefix + cls.high_first * pitch) + __ldg(prefix + cls.low_first * pitch);
            all[n] = __ldg(prefix + last * pitch);
        }
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const int32_t e = first + n * (int32_t)blockDim.x;
            if (e >= entries)
                break;
            const int32_t cls = e / filters, m = e % filters;
            const int32_t in = a.shape.pixel_class[cls].inside;
            const int32_t part = xn_cuda_filter_part(c.pad_value, inside[n], all[n] - inside[n]);
            const int32_t base =
                xn_cuda_pixel_part(c.pad_value, c.group_channels, in, taps - in, 0);
            if (PACKED) {
                const wide_filter f = filter_of<true>(a, group, m0 + m);
                int32_t *row = b.table + cls * 2 * a.shape.table_pitch + m;
#pragma unroll
                for (int odd = 0; odd < 2; odd++)
                    row[odd * a.shape.table_pitch] =
                        f.live ? count_limit(f.threshold, part, base, odd) : 1 << 29;
            } else {
                b.table[cls * a.shape.table_pitch + m] = part;
            }
            if (m == 0)
                b.class_part[cls] = base;
        }
    }
}

/* Factor and bias, or the bits to turn. *b.largest is zero before, and threads meet after. */
template <bool PACKED>
__device__ __forceinline__ void make_constants(const wide_args &a, const wide_block &b,
                                               int32_t group, int32_t m0) {
    const xn_conv &c = a.conv;
    const int32_t filters = a.shape.block_tiles * a.shape.tile_filters;
    for (int32_t m = threadIdx.x; m < filters; m += blockDim.x) {
        const wide_filter f = filter_of<false>(a, group, m0 + m);
        if (!PACKED) {
            b.factor[m] = f.live ? xn_factor_of(a.factor, f.index) : 0.0f;
            b.bias[m] = f.live ? xn_bias_of(a.bias, f.index) : 0.0f;
            atomicMax(b.largest, __float_as_uint(fabsf(b.factor[m])));
            atomicMax(b.largest + 1, __float_as_uint(fabsf(b.bias[m])));
        } else if (m % 32 == 0) {
            const int32_t word = (group * c.group_out_channels + m0 + m) / 32;
            b.flips[m / 32] = a.io.flip && word * 32 < c.out_channels ? a.io.flip[word] : 0;
        }
    }
}

/* ---- what depends on the pixel: once a tile ---- */

/* Set bits of each position's row vector. */
__device__ __forceinline__ void count_positions(const wide_args &a, const wide_worker &w,
                                                const char *buffer, int32_t pixels) {
    const xn_cuda_raster &r = a.shape.raster;
    const int32_t plane_bytes = r.plane * 16, count = r.overlap ? pixels + r.span : r.slots;
    for (int32_t slot = w.thread; slot < count; slot += WORKER) {
        const char *at = buffer + slot * 16;
        int32_t bits = 0;
#pragma unroll 4
        for (int32_t chunk = 0; chunk < r.planes; chunk++, at += plane_bytes) {
            const uint4 v = *(const uint4 *)at;
            bits += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
        }
        w.counts[slot] = bits;
    }
}

__device__ __forceinline__ int32_t class_of(const xn_cuda_axis &axis, int32_t at, int32_t outputs) {
    if (at < axis.first_count)
        return axis.first[at];
    const int32_t from_end = outputs - 1 - at;
    return from_end < axis.last_count ? axis.last[from_end] : 0;
}

/* Means of the window's taps, which are zero outside the image. Up to 64 terms in fp32, more, or a
 * sum that overflowed on the way to a finite mean, in double. */
__device__ __forceinline__ float pixel_k(const wide_args &a, const float *means, int32_t m) {
    const xn_conv &c = a.conv;
    const xn_cuda_raster &r = a.shape.raster;
    const int32_t taps = c.kernel_h * c.kernel_w;
    const int32_t tap_step = r.slide ? r.column_step : r.slots;
    float sum = 0.0f;
    for (int32_t i = 0; i < c.kernel_h; i++)
        for (int32_t j = 0; j < c.kernel_w; j++)
            sum += means[m + i * r.row_step + j * tap_step];
    if (taps <= 64 && sum <= 3e38f)
        return sum / (float)taps;
    double total = 0.0;
    for (int32_t i = 0; i < c.kernel_h; i++)
        for (int32_t j = 0; j < c.kernel_w; j++)
            total += means[m + i * r.row_step + j * tap_step];
    return (float)(total / taps);
}

/* A warp makes the 16 pixels of each subtile that it has in the matrix unit, and only these. */
template <int OUT>
__device__ __forceinline__ void make_pixels(const wide_args &a, const wide_block &b,
                                            const wide_worker &w, const char *buffer, int32_t first,
                                            int32_t subtiles) {
    constexpr bool PACKED = OUT == XN_CUDA_WIDE_PACKED;
    const xn_conv &c = a.conv;
    const xn_cuda_raster &r = a.shape.raster;
    for (int32_t e = w.thread % 32; e < subtiles * 16; e += 32) {
        const int32_t m = e / 16 * SUB + w.thread / 32 * 16 + e % 16;
        const position p = position_of(a, first + m);
        wide_pixel pixel = {NO_OUTPUT, 0, 0};
        float k = 1.0f;
        if (p.image < a.images && p.row < c.out_height && p.column < c.out_width) {
            const int32_t v = class_of(a.shape.rows, p.row, c.out_height);
            const int32_t h = class_of(a.shape.columns, p.column, c.out_width);
            const int32_t cls = v * a.shape.columns.classes + h;
            const int32_t columns = r.slide ? c.kernel_w : 1;
            const int64_t plane = (int64_t)c.out_height * c.out_width;
            const int32_t at = p.row * c.out_width + p.column;
            int32_t bits = 0;
            for (int32_t i = 0; i < c.kernel_h; i++)
                for (int32_t j = 0; j < columns; j++)
                    bits += w.counts[m + i * r.row_step + j * r.column_step];
            if (PACKED) {
                pixel.base = (p.image * plane + at) * a.shape.packed_words;
                pixel.part = bits >> 1;
                pixel.row = (cls * 2 + (bits & 1)) * a.shape.table_pitch;
            } else {
                pixel.base = (int64_t)p.image * c.out_channels * plane + at;
                pixel.part = b.class_part[cls] - 2 * bits + (OUT == XN_INT32 ? 0 : MAGIC);
                pixel.row = cls * a.shape.table_pitch;
                if (OUT != XN_INT32 && a.shape.means)
                    k = pixel_k(a, (const float *)(buffer + a.shape.means_at), m);
            }
        }
        w.pixels[m] = pixel;
        if (OUT == XN_FP32 || OUT == XN_FP16)
            w.k[m] = k;
    }
    __syncwarp();
}

#endif
#endif
