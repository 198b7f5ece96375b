/* gemm_wide.cuh: what a block of gemm_wide.cu has in shared memory before it multiplies, and beside
 * it: the activations of a tile, the table of the filters' part of dot, the pixels' part. */
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
    int32_t workers;                 /* blocks a filter tile */
    int32_t filter_tiles;
    int32_t lanes_shift; /* lanes that share a row vector, as a power of two */
    bool vectors;        /* a raster group of 4 may be 4 neighbours in memory, aligned */
};

enum {
    MT = XN_CUDA_WIDE_PIXELS,
    THREADS = XN_CUDA_WIDE_THREADS,
    STAGE_CHUNKS = XN_CUDA_WIDE_STAGE_CHUNKS,
    MAX_STAGES = XN_CUDA_WIDE_MAX_STAGES,
    PITCH = XN_CUDA_WIDE_TURN_PITCH,
    NO_OUTPUT = -1,
};

#if XN_HAS_WGMMA

/* The parts of dynamic shared memory. */
struct wide_shared {
    char *activations, *filters, *turn;
    int32_t *table; /* [class][NT + 4] */
    float *factor, *bias;
    uint32_t *flips;     /* in the place of factor, for packed output */
    int32_t *class_part; /* [class]: the pixel part of dot but for the set bits */
    uint2 *stage_chunks; /* [stage]: low halves of its chunks' descriptors, from address 0 */
    int32_t *row_popc, *pixel_part, *pixel_class;
    float *k;
    int64_t *base;
};

template <int NT>
__device__ __forceinline__ wide_shared parts_of(const wide_args &a, char *memory) {
    const xn_cuda_wide_shape &s = a.shape;
    wide_shared p;
    p.activations = memory;
    p.filters = memory + s.filters_at;
    p.turn = memory + s.turn_at;
    p.table = (int32_t *)(memory + s.table_at);
    p.factor = (float *)(memory + s.constants_at);
    p.bias = p.factor + NT;
    p.stage_chunks = (uint2 *)(p.bias + NT);
    p.class_part = (int32_t *)(p.stage_chunks + s.stages);
    p.flips = (uint32_t *)p.factor;
    p.base = (int64_t *)(memory + s.pixels_at);
    p.pixel_part = (int32_t *)(p.base + MT);
    p.pixel_class = p.pixel_part + MT;
    p.k = (float *)(p.pixel_class + MT);
    p.row_popc = (int32_t *)(p.k + MT);
    return p;
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

/* ---- activations into shared memory ---- */

/* The row vector of one position, whose first tap is at column x0 of the image row that begins at
 * pixel `line`. Taps of 4 words and more: each of the lanes copies every lanes-th 16 bytes. */
template <int WORDS>
__device__ __forceinline__ void gather_row(const wide_args &a, int64_t line, int32_t x0,
                                           bool row_inside, int32_t lane, uint32_t to) {
    const xn_conv &c = a.conv;
    const uint32_t plane_bytes = (uint32_t)a.shape.plane * 16;
    const int32_t units = a.shape.tap_words / WORDS, lanes = 1 << a.lanes_shift;
    const char *bits = (const char *)a.io.bits;
    const char *from = bits + ((line + x0) * units + lane) * (WORDS * 4);
    int32_t x = x0;
    to += (uint32_t)lane * plane_bytes;
#pragma unroll 1
    for (int32_t j = 0; j < a.shape.row_taps; j++) {
        const bool inside = row_inside && (uint32_t)x < (uint32_t)c.width;
        const char *at = inside ? from : bits;
        if (WORDS == 4) {
            uint32_t unit_to = to;
            for (int32_t u = lane; u < units; u += lanes) {
                xn_copy_async_at<WORDS * 4>(unit_to, at, inside);
                unit_to += (uint32_t)lanes * plane_bytes;
                at += lanes * 16;
            }
            to += (uint32_t)units * plane_bytes;
        } else {
            const int32_t word = j * WORDS;
            xn_copy_async_at<WORDS * 4>(to + (uint32_t)(word >> 2) * plane_bytes + (word & 3) * 4,
                                        at, inside);
        }
        x += c.dilation_w;
        from += (int64_t)c.dilation_w * units * (WORDS * 4);
    }
}

template <int WORDS>
__device__ __forceinline__ void gather_tile(const wide_args &a, int32_t group, int32_t first,
                                            uint32_t activations) {
    const xn_conv &c = a.conv;
    const int32_t lane = (int32_t)threadIdx.x & ((1 << a.lanes_shift) - 1);
#pragma unroll 1
    for (int32_t slot = (int32_t)threadIdx.x >> a.lanes_shift; slot < a.shape.slots;
         slot += THREADS >> a.lanes_shift) {
        int32_t i = 0, m = slot;
        if (!a.shape.overlap) {
            i = slot / MT;
            m = slot % MT;
        }
        const position p = position_of(a, first + m);
        const int32_t y = p.row * c.stride_h + i * c.dilation_h - c.pad_top;
        const bool inside = p.image < a.images && (uint32_t)y < (uint32_t)c.height;
        const int64_t line =
            inside ? (((int64_t)p.image * c.groups + group) * c.height + y) * c.width : 0;
        gather_row<WORDS>(a, line, p.column * c.stride_w - c.pad_left, inside, lane,
                          activations + (uint32_t)slot * 16);
    }
}

__device__ __forceinline__ void gather(const wide_args &a, int32_t group, int32_t first,
                                       uint32_t activations) {
    if (a.shape.tap_words >= 4)
        gather_tile<4>(a, group, first, activations);
    else if (a.shape.tap_words == 2)
        gather_tile<2>(a, group, first, activations);
    else
        gather_tile<1>(a, group, first, activations);
    xn_copy_commit();
}

/* Words of the row vectors past their taps, and the chunk that pads an odd number: once a block. */
__device__ __forceinline__ void clear_padding(const wide_args &a, const wide_shared &s) {
    const int32_t words = a.shape.row_taps * a.shape.tap_words;
    const int32_t planes = a.shape.buffers * a.shape.slots;
    if (words % 4)
        for (int32_t e = threadIdx.x; e < planes; e += THREADS) {
            char *activations = s.activations + (e >= a.shape.slots ? a.shape.buffer_bytes : 0);
            const int32_t slot = e >= a.shape.slots ? e - a.shape.slots : e;
            for (int32_t word = words; word % 4; word++)
                *(uint32_t *)(activations + ((int64_t)(word >> 2) * a.shape.plane + slot) * 16 +
                              (word & 3) * 4) = 0;
        }
    if (a.shape.chunks % STAGE_CHUNKS)
        for (int32_t e = threadIdx.x; e < MT * a.shape.buffers; e += THREADS)
            *(uint4 *)(s.activations + (e >= MT ? a.shape.buffer_bytes : 0) + a.shape.zeros_at +
                       e % MT * 16) = make_uint4(0, 0, 0, 0);
}

__device__ __forceinline__ uint32_t chunk_offset(const wide_args &a, int32_t chunk) {
    if (chunk >= a.shape.chunks)
        return (uint32_t)a.shape.zeros_at;
    const xn_cuda_wide_shape &s = a.shape;
    if (s.tap_words % 8) {
        const int32_t c = chunk / a.conv.kernel_h, i = chunk % a.conv.kernel_h;
        return (uint32_t)(c * s.plane + i * s.row_step) * 16;
    }
    const int32_t units = s.tap_words / 4, tap = chunk / units, unit = chunk % units;
    const int32_t i = tap / a.conv.kernel_w, j = tap % a.conv.kernel_w;
    const int32_t plane = s.slide ? unit : j * units + unit;
    return (uint32_t)(plane * s.plane + i * s.row_step + j * s.column_step) * 16;
}

/* Where the four chunks of each stage are. Their order (layout.h) is such that the second of a pair
 * is never before the first. */
__device__ __forceinline__ void make_stages(const wide_args &a, const wide_shared &s) {
    for (int32_t stage = threadIdx.x; stage < a.shape.stages; stage += THREADS) {
        uint32_t at[STAGE_CHUNKS];
#pragma unroll
        for (int n = 0; n < STAGE_CHUNKS; n++)
            at[n] = chunk_offset(a, stage * STAGE_CHUNKS + n);
        s.stage_chunks[stage] =
            make_uint2(xn_matrix_low(at[0], at[1] - at[0]), xn_matrix_low(at[2], at[3] - at[2]));
    }
}

/* ---- what depends on the filter ---- */

/* The table of the filters' part of dot, or for packed output of threshold - 1 - that part; factor
 * and bias; and what is common to the pixels of a class. */
template <int NT, bool PACKED>
__device__ __forceinline__ void make_filters(const wide_args &a, const wide_shared &s,
                                             int32_t group, int32_t m0) {
    constexpr int32_t GROUPS = THREADS / NT, BATCH = NT == 128 ? 5 : 3;
    const xn_conv &c = a.conv;
    const int64_t pitch = c.out_channels;
    const int32_t m = (int32_t)threadIdx.x % NT;
    const bool live = m0 + m < c.group_out_channels;
    const int32_t filter = group * c.group_out_channels + m0 + m, taps = c.kernel_h * c.kernel_w;
    const int32_t *prefix = a.io.prefix + filter;
    const int32_t all = live ? prefix[((c.kernel_h + 1) * (c.kernel_w + 1) - 1) * pitch] : 0;
    int32_t limit = 0;
    if (PACKED && live) { /* beyond +-(bits + 1) a threshold means no more */
        const int32_t most = c.group_channels * taps + 1;
        limit = max(-most, min(most, a.io.threshold[filter])) - 1;
    }
    const int32_t classes = a.shape.classes;
    for (int32_t first = (int32_t)threadIdx.x / NT; first < classes; first += BATCH * GROUPS) {
        int32_t inside[BATCH]; /* loads of several classes at once */
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const xn_cuda_class cls = a.shape.pixel_class[min(first + n * GROUPS, classes - 1)];
            inside[n] = live ? __ldg(prefix + cls.high_last * pitch) -
                                   __ldg(prefix + cls.low_last * pitch) -
                                   __ldg(prefix + cls.high_first * pitch) +
                                   __ldg(prefix + cls.low_first * pitch)
                             : 0;
        }
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const int32_t cls = first + n * GROUPS;
            const int32_t part = xn_cuda_filter_part(c.pad_value, inside[n], all - inside[n]);
            if (cls < classes)
                s.table[cls * (NT + 4) + m] = !PACKED ? part : live ? limit - part : 1 << 29;
        }
    }
    for (int32_t cls = threadIdx.x; cls < classes; cls += THREADS) {
        const int32_t inside = a.shape.pixel_class[cls].inside;
        s.class_part[cls] =
            xn_cuda_pixel_part(c.pad_value, c.group_channels, inside, taps - inside, 0);
    }
    if (PACKED && threadIdx.x < NT / 32) {
        const int32_t word = (group * c.group_out_channels + m0) / 32 + (int32_t)threadIdx.x;
        s.flips[threadIdx.x] = a.io.flip && word * 32 < c.out_channels ? a.io.flip[word] : 0;
    }
    if (!PACKED && threadIdx.x < NT) {
        s.factor[m] = live ? xn_factor_of(a.factor, filter) : 0.0f;
        s.bias[m] = live ? xn_bias_of(a.bias, filter) : 0.0f;
    }
}

/* ---- what depends on the pixel ---- */

/* Set bits of each position's row vector. */
__device__ __forceinline__ void count_rows(const wide_args &a, const char *activations,
                                           int32_t *row_popc) {
    const int32_t plane_bytes = a.shape.plane * 16;
    for (int32_t slot = threadIdx.x; slot < a.shape.slots; slot += THREADS) {
        const char *at = activations + slot * 16;
        int32_t count = 0;
#pragma unroll 4
        for (int32_t chunk = 0; chunk < a.shape.planes; chunk++, at += plane_bytes) {
            const uint4 v = *(const uint4 *)at;
            count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
        }
        row_popc[slot] = count;
    }
}

__device__ __forceinline__ int32_t class_of(const xn_cuda_axis &axis, int32_t at, int32_t outputs) {
    if (at < axis.first_count)
        return axis.first[at];
    const int32_t from_end = outputs - 1 - at;
    return from_end < axis.last_count ? axis.last[from_end] : 0;
}

__device__ __forceinline__ float pixel_k(const wide_args &a, int64_t plane, const position &p,
                                         const xn_cuda_range &rows, const xn_cuda_range &columns) {
    const xn_conv &c = a.conv;
    const int32_t y0 = p.row * c.stride_h - c.pad_top, x0 = p.column * c.stride_w - c.pad_left;
    double sum = 0.0;
    for (int32_t i = rows.first; i < rows.last; i++) {
        const float *line = a.io.mean + (plane * c.height + y0 + i * c.dilation_h) * c.width + x0;
        for (int32_t j = columns.first; j < columns.last; j++)
            sum += line[j * c.dilation_w];
    }
    return (float)(sum / (double)(c.kernel_h * c.kernel_w));
}

template <int NT, bool PACKED>
__device__ __forceinline__ void make_pixel(const wide_args &a, const wide_shared &s, int32_t group,
                                           int32_t first, int32_t m) {
    const xn_conv &c = a.conv;
    const position p = position_of(a, first + m);
    const bool live = p.image < a.images && p.row < c.out_height && p.column < c.out_width;
    int32_t popc = 0, cls = 0;
    int64_t base = NO_OUTPUT;
    if (live) {
        const int32_t v = class_of(a.shape.rows, p.row, c.out_height);
        const int32_t h = class_of(a.shape.columns, p.column, c.out_width);
        const int32_t plane_outputs = c.out_height * c.out_width;
        const int32_t at = p.row * c.out_width + p.column;
        const int32_t columns = a.shape.slide ? c.kernel_w : 1;
        for (int32_t i = 0; i < c.kernel_h; i++)
            for (int32_t j = 0; j < columns; j++)
                popc += s.row_popc[m + i * a.shape.row_step + j * a.shape.column_step];
        cls = v * a.shape.columns.classes + h;
        base = PACKED ? ((int64_t)p.image * plane_outputs + at) * a.shape.packed_words
                      : (int64_t)p.image * c.out_channels * plane_outputs + at;
        if (!PACKED)
            s.k[m] = a.io.mean ? pixel_k(a, (int64_t)p.image * c.groups + group, p,
                                         a.shape.rows.range[v], a.shape.columns.range[h])
                               : 1.0f;
    }
    s.pixel_part[m] = s.class_part[cls] - 2 * popc;
    s.pixel_class[m] = cls * (NT + 4);
    s.base[m] = base;
}

#endif
#endif
