/* few_matrix_stage.cuh: what a block of few_matrix.cu has in shared memory before it multiplies:
 * steps 1 to 3 of that file's comment. */
#ifndef XN_CUDA_FEW_MATRIX_STAGE_CUH
#define XN_CUDA_FEW_MATRIX_STAGE_CUH

#include "element.cuh"
#include "fast_divide.cuh"
#include "few_matrix.h"
#include "layout.h"

enum {
    THREADS = 128,
    WARPS = THREADS / 32,
    STEP = XN_CUDA_STEP_WORDS,
    FEW = 4,        /* channels, of which a thread reads those of as many pixels at a time, */
    IN_FLIGHT = 16, /* else so many of one */
};

/* What the host works out of a cut. */
struct matrix_shape {
    int32_t channels, filters;        /* of the groups together */
    int32_t field_log2;               /* bits of a pixel */
    int32_t in_w, in_h;               /* staged inputs */
    int32_t phase_w;                  /* columns of one remainder modulo the dilation */
    int32_t chunks;                   /* of 32 columns */
    int32_t pitch;                    /* words of a staged row, one more than its bits take */
    int32_t parts, words;             /* words of a kernel row, of a patch */
    int32_t steps;                    /* matrix instructions for both halves of the patch */
    int32_t tiles_x, tiles_y, splits; /* splits: of the filters */
    int32_t bundles;                  /* of groups */
    int32_t tile;                     /* outputs, rounded up to whole warps' */
    int32_t filters_at, info_at, sums_at, k_at, taps_at; /* bytes into shared memory; rows at 0 */
    xn_fast_divisor by_tile_w, by_chunks, by_phase_w;
    int32_t shared_bytes;
};

struct matrix_args {
    xn_conv conv;
    xn_cuda_matrix_cut cut;
    matrix_shape shape;
    const void *input;
    const uint32_t *rows; /* layout.h */
    const float *factor, *bias;
    xn_output out;
    int32_t row_words, want_k;
};

/* A filter's constants, and which of the groups it belongs to. */
struct __align__(16) matrix_filter {
    float factor, bias;
    int32_t group;
};

/* What a block works on. */
struct matrix_block {
    int64_t image;
    int32_t group, groups;   /* the first and how many */
    int32_t filter, filters; /* the first, counted from the first of `group` on, and how many */
    int32_t out_x, out_y;
};

__device__ __forceinline__ matrix_block find_block(const matrix_args &a) {
    const matrix_shape &s = a.shape;
    matrix_block b;
    int32_t rest = (int32_t)blockIdx.x;
    b.filter = rest % s.splits * a.cut.span;
    rest /= s.splits;
    b.out_x = rest % s.tiles_x * a.cut.tile_w;
    rest /= s.tiles_x;
    b.out_y = rest % s.tiles_y * a.cut.tile_h;
    rest /= s.tiles_y;
    b.group = rest % s.bundles * a.cut.together;
    b.image = rest / s.bundles;
    b.groups = min(a.cut.together, a.conv.groups - b.group);
    b.filters = min(a.cut.span, b.groups * a.conv.group_out_channels - b.filter);
    return b;
}

/* ---- 1: fields and means ---- */

/* Which input column lies at a position of a staged row. */
__device__ __forceinline__ int32_t column_at(const matrix_args &a, int32_t position) {
    const int32_t d = a.conv.dilation_w;
    const int32_t phase = d == 1 ? 0 : xn_divide(position, a.shape.by_phase_w);
    return (position - phase * a.shape.phase_w) * d + phase;
}

__device__ __forceinline__ int32_t position_of(const matrix_args &a, int32_t column) {
    const int32_t d = a.conv.dilation_w;
    return d == 1 ? column : column % d * a.shape.phase_w + column / d;
}

/* The input: fp32 and fp16 as such, what else there is by a branch an element, which keeps the
 * kernel small. */
template <class T>
struct matrix_input {
    const T *data;
    __device__ __forceinline__ float at(int64_t index) const {
        return xn_to_fp32(data[index]);
    }
};

struct matrix_any_input {
    const void *data;
    int32_t datatype;
    __device__ __forceinline__ float at(int64_t index) const {
        float value = 0.0f;
        xn_with_input(data, datatype, [&](auto *input) { value = xn_to_fp32(input[index]); });
        return value;
    }
};

/* A pixel that a lane stages. */
struct matrix_pixel {
    int32_t row, position; /* of the stage; row in_h and on: none */
    int32_t offset;        /* in the image's plane; -1: outside */
};

__device__ __forceinline__ matrix_pixel find_pixel(const matrix_args &a, const matrix_block &b,
                                                   int32_t chunk) {
    const xn_conv &c = a.conv;
    const matrix_shape &s = a.shape;
    matrix_pixel p;
    p.row = xn_divide(chunk, s.by_chunks);
    p.position = (chunk - p.row * s.chunks) * 32 + (int32_t)(threadIdx.x & 31);
    const int32_t column = column_at(a, p.position);
    const int32_t y = b.out_y * c.stride_h - c.pad_top + p.row;
    const int32_t x = b.out_x * c.stride_w - c.pad_left + column;
    const bool inside = (uint32_t)y < (uint32_t)c.height && (uint32_t)x < (uint32_t)c.width &&
                        column < s.in_w && p.row < s.in_h;
    p.offset = inside ? y * c.width + x : -1;
    return p;
}

/* The means of a pixel's groups where a plain sum overflowed. */
__device__ __noinline__ void means_again(const matrix_args &a, int64_t first, int32_t groups,
                                         float *means) {
    const int32_t channels = a.conv.group_channels, plane = a.conv.height * a.conv.width;
    const matrix_any_input input = {a.input, a.conv.input_datatype};
    for (int32_t g = 0; g < groups; g++, means += a.shape.in_h * a.shape.chunks * 32) {
        xn_abs_sum sum = {0.0f, 0.0f};
        for (int32_t ch = 0; ch < channels; ch++, first += plane)
            xn_abs_sum_add(&sum, input.at(first));
        *means = xn_abs_sum_mean(&sum, channels, 1.0f / (float)channels);
    }
}

/* Writes the fields of positive and negative signs of this lane and its neighbours, a byte at
 * least. All lanes; the position is the lane's, modulo 32. */
__device__ __forceinline__ void write_fields(uint32_t *positives, uint32_t *negatives,
                                             int32_t position, int32_t field_log2,
                                             uint32_t positive, uint32_t negative) {
    if (field_log2 == 5) {
        positives[position] = positive;
        negatives[position] = negative;
    } else if (field_log2 == 4) {
        ((uint16_t *)positives)[position] = (uint16_t)positive;
        ((uint16_t *)negatives)[position] = (uint16_t)negative;
    } else {
        uint32_t both = negative << 16 | positive;
        for (int32_t log2 = field_log2; log2 < 3; log2++) /* two lanes' into the lower one's */
            both |= __shfl_down_sync(0xffffffffu, both, 1 << (log2 - field_log2)) << (1 << log2);
        if ((position & ((8 >> field_log2) - 1)) == 0) {
            ((uint8_t *)positives)[position >> (3 - field_log2)] = (uint8_t)both;
            ((uint8_t *)negatives)[position >> (3 - field_log2)] = (uint8_t)(both >> 16);
        }
    }
}

/* The fields of a staged pixel, from the signs of its channels. All lanes. */
__device__ __forceinline__ void write_pixel(const matrix_args &a, const matrix_pixel &p,
                                            uint32_t all, uint32_t signs, uint32_t *rows) {
    const matrix_shape &s = a.shape;
    const bool inside = p.offset >= 0;
    const uint32_t counted = inside || a.conv.pad_value ? all : 0u;
    signs = inside ? signs : a.conv.pad_value > 0 ? all : 0u;
    uint32_t *at = rows + p.row * s.pitch;
    write_fields(at, at + s.in_h * s.pitch, p.position, s.field_log2, counted & signs,
                 counted & ~signs);
}

/* One group of up to FEW channels: as many pixels a lane at a time. */
template <class Input>
__device__ __forceinline__ void stage_few(const matrix_args &a, const matrix_block &b,
                                          const Input &input, int64_t base, uint32_t *rows,
                                          float *means) {
    const matrix_shape &s = a.shape;
    const int32_t channels = s.channels, plane = a.conv.height * a.conv.width;
    const uint32_t all = xn_cuda_low_bits(channels);
    const float reciprocal = 1.0f / (float)channels;
    const int32_t chunks = s.in_h * s.chunks;
    for (int32_t first = (int32_t)threadIdx.x >> 5; first < chunks; first += WARPS * FEW) {
        matrix_pixel pixels[FEW];
        float values[FEW][FEW];
#pragma unroll
        for (int u = 0; u < FEW; u++) {
            pixels[u] = find_pixel(a, b, first + u * WARPS);
            const int64_t at = base + pixels[u].offset;
#pragma unroll
            for (int n = 0; n < FEW; n++) {
                values[u][n] = 0.0f;
                if (pixels[u].offset >= 0 && n < channels)
                    values[u][n] = input.at(at + n * plane);
            }
        }
#pragma unroll
        for (int u = 0; u < FEW; u++) {
            if (pixels[u].row >= s.in_h)
                break;
            uint32_t signs = 0;
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < FEW; n++) {
                if (values[u][n] >= 0.0f) /* xn_sign_bit */
                    signs |= 1u << n;
                sum += fabsf(values[u][n]);
            }
            write_pixel(a, pixels[u], all, signs, rows);
            if (a.want_k) {
                float *mean = means + pixels[u].row * s.chunks * 32 + pixels[u].position;
                *mean = sum * reciprocal;
                if (isinf(sum))
                    means_again(a, base + pixels[u].offset, 1, mean);
            }
        }
    }
}

/* Up to 32 channels of one or several groups: one pixel a lane, IN_FLIGHT channels at a time. */
template <class Input>
__device__ __forceinline__ void stage_many(const matrix_args &a, const matrix_block &b,
                                           const Input &input, int64_t base, uint32_t *rows,
                                           float *means) {
    const matrix_shape &s = a.shape;
    const int32_t each = a.conv.group_channels, channels = b.groups * each;
    const int32_t plane = a.conv.height * a.conv.width, staged = s.in_h * s.chunks * 32;
    const uint32_t all = xn_cuda_low_bits(channels);
    const float reciprocal = 1.0f / (float)each;
    const int32_t chunks = s.in_h * s.chunks;
    for (int32_t chunk = (int32_t)threadIdx.x >> 5; chunk < chunks; chunk += WARPS) {
        const matrix_pixel p = find_pixel(a, b, chunk);
        const bool inside = p.offset >= 0;
        float *const first = means + p.row * s.chunks * 32 + p.position, *mean = first;
        float sum = 0.0f, largest = 0.0f;
        uint32_t signs = 0;
        int32_t left = each;
        for (int32_t from = 0; from < channels; from += IN_FLIGHT) {
            float values[IN_FLIGHT];
            int64_t at = base + p.offset + (int64_t)from * plane;
#pragma unroll
            for (int n = 0; n < IN_FLIGHT; n++, at += plane) {
                values[n] = 0.0f;
                if (inside && from + n < channels)
                    values[n] = input.at(at);
            }
            uint32_t bits = 0;
#pragma unroll
            for (int n = 0; n < IN_FLIGHT; n++)
                if (values[n] >= 0.0f) /* xn_sign_bit */
                    bits |= 1u << n;
            signs |= bits << from;
            if (!a.want_k)
                continue;
#pragma unroll
            for (int n = 0; n < IN_FLIGHT; n++) {
                sum += fabsf(values[n]); /* 0 past the last */
                if (--left == 0) {
                    *mean = sum * reciprocal;
                    largest = fmaxf(largest, sum);
                    mean += staged;
                    left = from + n + 1 < channels ? each : -1;
                    sum = 0.0f;
                }
            }
        }
        write_pixel(a, p, all, signs, rows);
        if (isinf(largest))
            means_again(a, base + p.offset, b.groups, first);
    }
}

/* Both planes of fields and the means of the block's tile. */
template <class Input>
__device__ __forceinline__ void stage_inputs(const matrix_args &a, const matrix_block &b,
                                             const Input &input, uint32_t *rows, float *means) {
    const int64_t base = (b.image * a.conv.channels + (int64_t)b.group * a.conv.group_channels) *
                         a.conv.height * a.conv.width;
    if (a.shape.channels <= FEW && a.cut.together == 1)
        stage_few(a, b, input, base, rows, means);
    else
        stage_many(a, b, input, base, rows, means);
}

/* ---- 2: filters ---- */

/* One word of a filter: of kernel row i, the taps from j on. */
__device__ __forceinline__ uint32_t filter_word(const matrix_args &a, const uint32_t *taps,
                                                int32_t i, int32_t j, int32_t shift,
                                                bool inverted) {
    const xn_conv &c = a.conv;
    const uint32_t own = xn_cuda_low_bits(c.group_channels);
    const int32_t last = min(c.kernel_w, j + (32 >> a.shape.field_log2));
    uint32_t word = 0;
#pragma unroll 4
    for (; j < last; j++, shift += 1 << a.shape.field_log2) {
        const uint32_t tap = __ldg(taps + i * c.kernel_w + j);
        word |= ((inverted ? ~tap : tap) & own) << shift;
    }
    return word;
}

/* filters[steps][span][8 words]; zero past the last filter and past the patch. */
__device__ __forceinline__ void stage_filters(const matrix_args &a, const matrix_block &b,
                                              int32_t span, uint32_t *filters,
                                              matrix_filter *info) {
    const xn_conv &c = a.conv;
    const matrix_shape &s = a.shape;
    const int64_t first = (int64_t)b.group * c.group_out_channels + b.filter;
    for (int32_t step = 0; step < s.steps;
         step++) { /* a thread has one word of every 16th filter */
        const int32_t at = step * STEP + (int32_t)threadIdx.x % STEP;
        const int32_t inverted = at / s.words, half = at - inverted * s.words;
        const int32_t i = half / s.parts, part = half - i * s.parts;
        for (int32_t f = (int32_t)threadIdx.x / STEP; f < span; f += THREADS / STEP) {
            uint32_t word = 0;
            if (f < b.filters && inverted < 2) {
                const int32_t group = a.cut.together > 1 ? f / c.group_out_channels : 0;
                word = filter_word(a, a.rows + (first + f) * a.row_words, i,
                                   part << (5 - s.field_log2), group * c.group_channels, inverted);
            }
            filters[(step * span + f) * STEP + at % STEP] = word;
        }
    }
    for (int32_t f = threadIdx.x; f < span; f += THREADS) {
        const int64_t o = first + min(f, b.filters - 1);
        info[f] = {xn_factor_of(a.factor, o), xn_bias_of(a.bias, o),
                   min(f + b.filter, b.filter + b.filters - 1) / c.group_out_channels};
    }
}

/* ---- 3: K and the number of taps ---- */

__device__ __forceinline__ double box_exact(const matrix_args &a, const float *means) {
    double sum = 0.0;
    for (int32_t i = 0; i < a.conv.kernel_h; i++)
        for (int32_t j = 0; j < a.conv.kernel_w; j++)
            sum += means[i * a.conv.dilation_h * a.shape.chunks * 32 + j];
    return sum;
}

/* The taps of an output that count. */
__device__ __forceinline__ int32_t count_taps(const xn_conv &c, int32_t out_y, int32_t out_x) {
    const int32_t y = out_y * c.stride_h - c.pad_top, x = out_x * c.stride_w - c.pad_left;
    if (c.pad_value || (y >= 0 && y + (c.kernel_h - 1) * c.dilation_h < c.height && x >= 0 &&
                        x + (c.kernel_w - 1) * c.dilation_w < c.width))
        return c.kernel_h * c.kernel_w;
    const xn_cuda_rect rect = xn_cuda_valid_rect(&c, out_y, out_x);
    return xn_cuda_rect_taps(&rect);
}

/* k[group][tile] and taps[tile], which count. */
__device__ __forceinline__ void make_pixels(const matrix_args &a, const matrix_block &b,
                                            const float *means, float *k, float *taps) {
    const xn_conv &c = a.conv;
    const matrix_shape &s = a.shape;
    const int32_t tile = s.tile, pitch = s.chunks * 32;
    const int32_t kernel_h = c.kernel_h, kernel_w = c.kernel_w, step = c.dilation_h * pitch;
    const float reciprocal = 1.0f / (float)(kernel_h * kernel_w);
    for (int32_t p = threadIdx.x; p < tile; p += THREADS) {
        const int32_t y = xn_divide(p, a.shape.by_tile_w), x = p - y * a.cut.tile_w;
        if (y >= a.cut.tile_h) { /* nobody stores these */
            taps[p] = 0.0f;
            for (int32_t g = 0; g < a.cut.together; g++)
                k[g * tile + p] = 0.0f;
            continue;
        }
        taps[p] = (float)(c.group_channels * count_taps(c, b.out_y + y, b.out_x + x));
        const float *window = means + y * c.stride_h * pitch + position_of(a, x * c.stride_w);
        for (int32_t g = 0; g < (a.want_k ? b.groups : 0); g++, window += s.in_h * pitch) {
            float sum = 0.0f;
            const float *row = window;
            for (int32_t i = 0; i < kernel_h; i++, row += step) {
                float line = row[0]; /* by rows: fewer roundings in a row for large kernels */
#pragma unroll 4
                for (int32_t j = 1; j < kernel_w; j++)
                    line += row[j];
                sum += line;
            }
            k[g * tile + p] =
                isinf(sum) ? (float)(box_exact(a, window) * reciprocal) : sum * reciprocal;
        }
        if (!a.want_k)
            for (int32_t g = 0; g < b.groups; g++)
                k[g * tile + p] = 1.0f;
    }
}

#endif
