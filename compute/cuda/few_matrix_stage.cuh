/* few_matrix_stage.cuh: what a block of few_matrix.cu has in shared memory before it multiplies:
 * steps 1 to 3 of that file's comment. */
#ifndef XN_CUDA_FEW_MATRIX_STAGE_CUH
#define XN_CUDA_FEW_MATRIX_STAGE_CUH

#include "element.cuh"
#include "fast_divide.cuh"
#include "few_matrix.h"
#include "layout.h"

#include <type_traits>

enum {
    THREADS = 128,
    WARPS = THREADS / 32,
    STEP = XN_CUDA_STEP_WORDS,
    MAX_STEPS = 6,
    IN_FLIGHT = 16, /* elements a thread reads at a time: so many channels of one pixel, or fewer of
                       several */
};

/* What the host works out of a cut. */
struct matrix_shape {
    int32_t channels, filters;        /* of the groups together */
    int32_t field_log2;               /* bits of a pixel */
    int32_t in_w, in_h;               /* staged inputs */
    int32_t phase_w;                  /* columns of one remainder modulo the dilation */
    int32_t width;                    /* positions of a staged row, a multiple of 8 */
    int32_t pitch;                    /* words of a staged row, one more than its bits take */
    int32_t parts, words;             /* words of a kernel row, of a patch */
    int32_t steps;                    /* matrix instructions for both halves of the patch */
    int32_t items;                    /* of a filter: words, and what is zero past both halves */
    uint32_t part_mask, last_mask;    /* bits of a part that are taps; those of a row's last */
    int32_t tiles_x, tiles_y, splits; /* splits: of the filters */
    int32_t bundles;                  /* of groups */
    int32_t tile;                     /* outputs, rounded up to whole warps' */
    int32_t filters_at, info_at, sums_at, lines_at, k_at, taps_at; /* bytes into shared memory */
    xn_fast_divisor by_tile_w, by_tile_h, by_width, by_phase_w, by_parts, by_items;
    xn_fast_divisor by_splits, by_tiles_x, by_tiles_y, by_bundles;
    int32_t shared_bytes;
    int32_t offset[MAX_STEPS * STEP]; /* of a patch's words, from its first */
};

struct matrix_args {
    xn_conv conv;
    xn_cuda_matrix_cut cut;
    matrix_shape shape;
    const void *input;
    const uint32_t *rows, *fields; /* layout.h */
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
    /* splits of the filters run fastest, then columns, rows, bundles of groups, images */
    const int32_t tile = xn_divide((int32_t)blockIdx.x, s.by_splits);
    const int32_t down = xn_divide(tile, s.by_tiles_x), bundle = xn_divide(down, s.by_tiles_y);
    const int32_t image = xn_divide(bundle, s.by_bundles);
    b.filter = ((int32_t)blockIdx.x - tile * s.splits) * a.cut.span;
    b.out_x = (tile - down * s.tiles_x) * a.cut.tile_w;
    b.out_y = (down - bundle * s.tiles_y) * a.cut.tile_h;
    b.group = (bundle - image * s.bundles) * a.cut.together;
    b.image = image;
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

/* The input from element `first` on: fp32 and fp16 as such, what else there is by a branch a pixel,
 * which keeps the kernel small. read: elements `step` apart, of which `count` exist; 0 past them.
 */
template <class T>
struct matrix_input {
    const T *data;
    int64_t first;
    template <int CHANNELS>
    __device__ __forceinline__ void read(int32_t index, int32_t step, int32_t count,
                                         float (&values)[CHANNELS]) const {
        const T *from = data + first;
#pragma unroll
        for (int n = 0; n < CHANNELS; n++, index += step) {
            values[n] = 0.0f;
            if (n < count)
                values[n] = xn_to_fp32(from[index]);
        }
    }
};

struct matrix_any_input {
    const void *data;
    int64_t first;
    int32_t datatype;
    template <int CHANNELS>
    __device__ __forceinline__ void read(int32_t index, int32_t step, int32_t count,
                                         float (&values)[CHANNELS]) const {
        xn_with_other_input(data, datatype, [&](auto *from) {
            matrix_input<std::remove_cv_t<std::remove_pointer_t<decltype(from)>>>{from, first}.read(
                index, step, count, values);
        });
    }
};

/* A pixel that a lane stages. */
struct matrix_pixel {
    int32_t row, position; /* of the stage; row in_h and on: none */
    int32_t offset;        /* in the image's plane; -1: outside */
};

__device__ __forceinline__ matrix_pixel find_pixel(const matrix_args &a, const matrix_block &b,
                                                   int32_t at) {
    const xn_conv &c = a.conv;
    const matrix_shape &s = a.shape;
    matrix_pixel p;
    p.row = xn_divide(at, s.by_width);
    p.position = at - p.row * s.width;
    const int32_t column = column_at(a, p.position);
    const int32_t y = b.out_y * c.stride_h - c.pad_top + p.row;
    const int32_t x = b.out_x * c.stride_w - c.pad_left + column;
    const bool inside = (uint32_t)y < (uint32_t)c.height && (uint32_t)x < (uint32_t)c.width &&
                        column < s.in_w && p.row < s.in_h;
    p.offset = inside ? y * c.width + x : -1;
    return p;
}

/* The means of a pixel's groups, from element `first` on, where a plain sum overflowed. */
__device__ __noinline__ void means_again(const matrix_args &a, int64_t first, int32_t groups,
                                         float *means) {
    const int32_t channels = a.conv.group_channels, plane = a.conv.height * a.conv.width;
    for (int32_t g = 0; g < groups; g++, means += a.shape.in_h * a.shape.width) {
        xn_abs_sum sum = {0.0f, 0.0f};
        for (int32_t ch = 0; ch < channels; ch++, first += plane)
            xn_with_input(a.input, a.conv.input_datatype,
                          [&](auto *input) { xn_abs_sum_add(&sum, xn_to_fp32(input[first])); });
        *means = xn_abs_sum_mean(&sum, channels, 1.0f / (float)channels);
    }
}

/* Writes the fields of positive and negative signs of this lane and its neighbours, a byte at
 * least, where `valid`. All lanes; 8 neighbours are of one row. */
__device__ __forceinline__ void write_fields(uint32_t *positives, uint32_t *negatives,
                                             int32_t position, bool valid, int32_t field_log2,
                                             uint32_t positive, uint32_t negative) {
    if (field_log2 == 5) {
        if (valid) {
            positives[position] = positive;
            negatives[position] = negative;
        }
    } else if (field_log2 == 4) {
        if (valid) {
            ((uint16_t *)positives)[position] = (uint16_t)positive;
            ((uint16_t *)negatives)[position] = (uint16_t)negative;
        }
    } else {
        uint32_t both = negative << 16 | positive;
        for (int32_t log2 = field_log2; log2 < 3; log2++) /* two lanes' into the lower one's */
            both |= __shfl_down_sync(0xffffffffu, both, 1 << (log2 - field_log2)) << (1 << log2);
        if (valid && (position & ((8 >> field_log2) - 1)) == 0) {
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
    write_fields(at, at + s.in_h * s.pitch, p.position, p.row < s.in_h, s.field_log2,
                 counted & signs, counted & ~signs);
}

/* A sum in four chains. */
template <int COUNT>
__device__ __forceinline__ float sum_magnitudes(const float (&values)[COUNT]) {
    float sums[4] = {};
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        sums[n % 4] += fabsf(values[n]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* The means of several groups of a pixel, `staged` apart. */
__device__ __forceinline__ void write_means(const matrix_args &a, int32_t groups,
                                            const float (&values)[IN_FLIGHT], float *mean,
                                            int32_t staged) {
    const int32_t each = a.conv.group_channels;
    const float reciprocal = 1.0f / (float)each;
    float sums[IN_FLIGHT];
#pragma unroll
    for (int n = 0; n < IN_FLIGHT; n++)
        sums[n] = fabsf(values[n]);
    if (each & (each - 1)) {
        float sum = 0.0f;
        int32_t left = each;
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; n++) {
            sum += sums[n];
            if (--left == 0 && groups-- > 0) {
                *mean = sum * reciprocal;
                mean += staged;
                left = each;
                sum = 0.0f;
            }
        }
        return;
    }
    auto level = [&](auto length) { /* sums of so many channels each, then of twice as many */
                                    constexpr int COUNT = IN_FLIGHT / decltype(length)::value;
                                    if (each == decltype(length)::value) {
#pragma unroll
                                        for (int n = 0; n < COUNT; n++)
                                            if (n < groups)
                                                mean[n * staged] = sums[n] * reciprocal;
                                    }
#pragma unroll
                                    for (int n = 0; n < COUNT / 2; n++)
                                        sums[n] = sums[2 * n] + sums[2 * n + 1];
    };
    level(std::integral_constant<int, 1>());
    level(std::integral_constant<int, 2>());
    level(std::integral_constant<int, 4>());
    level(std::integral_constant<int, 8>());
}

/* PIXELS a lane at a time, of up to CHANNELS channels each. Where PIXELS is 1: of as many in
 * several groups, or of more in one. */
template <int PIXELS, int CHANNELS, class Input>
__device__ __forceinline__ void stage_pixels(const matrix_args &a, const matrix_block &b,
                                             const Input &input, uint32_t *rows, float *means) {
    const matrix_shape &s = a.shape;
    const int32_t channels = b.groups * a.conv.group_channels;
    const int32_t plane = a.conv.height * a.conv.width, staged = s.in_h * s.width;
    const uint32_t all = xn_cuda_low_bits(channels);
    const float reciprocal = 1.0f / (float)a.conv.group_channels;
    const int32_t lane = (int32_t)threadIdx.x & 31;
    for (int32_t first = threadIdx.x; first - lane < staged; first += THREADS * PIXELS) {
        matrix_pixel pixels[PIXELS];
        float values[PIXELS][CHANNELS];
#pragma unroll
        for (int u = 0; u < PIXELS; u++) {
            pixels[u] = find_pixel(a, b, first + u * THREADS);
            if (PIXELS > 1)
                input.read(pixels[u].offset, plane, pixels[u].offset >= 0 ? channels : 0,
                           values[u]);
        }
#pragma unroll
        for (int u = 0; u < PIXELS; u++) {
            const matrix_pixel &p = pixels[u];
            float *const mean = means + p.row * s.width + p.position;
            uint32_t signs = 0;
            float sum = 0.0f;
            for (int32_t from = 0; from < channels; from += CHANNELS) {
                uint32_t bits = 0;
                if (PIXELS == 1)
                    input.read(p.offset + from * plane, plane, p.offset >= 0 ? channels - from : 0,
                               values[u]);
#pragma unroll
                for (int n = 0; n < CHANNELS; n++)
                    if (values[u][n] >= 0.0f) /* xn_sign_bit */
                        bits |= 1u << n;
                signs |= bits << from;
                if (a.want_k)
                    sum += sum_magnitudes(values[u]);
                if (PIXELS > 1)
                    break;
            }
            write_pixel(a, p, all, signs, rows);
            if (!a.want_k || p.row >= s.in_h)
                continue;
            if constexpr (CHANNELS == IN_FLIGHT) {
                if (a.cut.together > 1)
                    write_means(a, b.groups, values[u], mean, staged);
            }
            if (a.cut.together == 1)
                *mean = sum * reciprocal;
            if (!isfinite(sum)) /* also where only the sum is not */
                means_again(a, input.first + p.offset, b.groups, mean);
        }
    }
}

/* Both planes of fields and the means of the block's tile. */
template <class Input>
__device__ __forceinline__ void stage_inputs(const matrix_args &a, const matrix_block &b,
                                             const Input &input, uint32_t *rows, float *means) {
    if constexpr (!std::is_same<Input, matrix_any_input>::value) {
        if (a.cut.together == 1 && a.shape.channels <= IN_FLIGHT / 4)
            return stage_pixels<4, IN_FLIGHT / 4>(a, b, input, rows, means);
        if (a.cut.together == 1 && a.shape.channels <= IN_FLIGHT / 2)
            return stage_pixels<2, IN_FLIGHT / 2>(a, b, input, rows, means);
    }
    stage_pixels<1, IN_FLIGHT>(a, b, input, rows, means);
}

/* ---- 2: filters ---- */

/* One word of a filter of several groups: of kernel row i, the taps from j on, in their group's
 * bits of each field. */
__device__ __forceinline__ uint32_t filter_word(const matrix_args &a, const uint32_t *taps,
                                                int32_t i, int32_t j, int32_t shift) {
    const xn_conv &c = a.conv;
    const int32_t last = min(c.kernel_w, j + (32 >> a.shape.field_log2));
    uint32_t word = 0;
#pragma unroll 4
    for (; j < last; j++, shift += 1 << a.shape.field_log2)
        word |= __ldg(taps + i * c.kernel_w + j) << shift;
    return word;
}

/* filters[steps][span][8 words]: positive, then negative; zero past the last filter and past the
 * patch. */
__device__ __forceinline__ void stage_filters(const matrix_args &a, const matrix_block &b,
                                              int32_t span, uint32_t *filters,
                                              matrix_filter *info) {
    const xn_conv &c = a.conv;
    const matrix_shape &s = a.shape;
    const int64_t first = (int64_t)b.group * c.group_out_channels + b.filter;
#pragma unroll 4
    for (int32_t item = threadIdx.x; item < span * s.items; item += THREADS) {
        const int32_t f = xn_divide(item, s.by_items), at = item - f * s.items;
        const int32_t i = xn_divide(at, s.by_parts), part = at - i * s.parts;
        uint32_t word = 0, mask = 0;
        if (f < b.filters && at < s.words) {
            mask = part + 1 < s.parts ? s.part_mask : s.last_mask;
            if (a.cut.together == 1) {
                word = __ldg(a.fields + (first + f) * s.words + at);
            } else {
                const int32_t shift = f / c.group_out_channels * c.group_channels;
                mask <<= shift;
                word = filter_word(a, a.rows + (first + f) * a.row_words, i,
                                   part << (5 - s.field_log2), shift);
            }
        }
        const int32_t inverted = at + s.words;
        if (at < s.words)
            filters[(at / STEP * span + f) * STEP + at % STEP] = word;
        filters[(inverted / STEP * span + f) * STEP + inverted % STEP] = ~word & mask;
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
            sum += means[i * a.conv.dilation_h * a.shape.width + j];
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

/* lines[group][tile row][position]: sums of the means over the rows of a window. Most tiles are
 * wide and low, so that this order has the fewest additions. */
__device__ __forceinline__ void make_lines(const matrix_args &a, const matrix_block &b,
                                           const float *means, float *lines) {
    const xn_conv &c = a.conv;
    const matrix_shape &s = a.shape;
    const int32_t step = c.dilation_h * s.width;
    for (int32_t at = threadIdx.x; at < b.groups * a.cut.tile_h * s.width; at += THREADS) {
        const int32_t line = xn_divide(at, s.by_width), group = xn_divide(line, s.by_tile_h);
        const float *from =
            means + at + /* row `line` to row stride * y of its group */
            (group * s.in_h + (line - group * a.cut.tile_h) * c.stride_h - line) * s.width;
        float sum = from[0];
#pragma unroll 4
        for (int32_t i = 1; i < c.kernel_h; i++)
            sum += from[i * step];
        lines[at] = sum;
    }
}

/* k[group][tile] and taps[tile], which count. */
__device__ __forceinline__ void make_pixels(const matrix_args &a, const matrix_block &b,
                                            const float *means, const float *lines, float *k,
                                            float *taps) {
    const xn_conv &c = a.conv;
    const matrix_shape &s = a.shape;
    const int32_t tile = s.tile, kernel_w = c.kernel_w;
    const float reciprocal = 1.0f / (float)(c.kernel_h * kernel_w);
    for (int32_t p = threadIdx.x; p < tile; p += THREADS) {
        const int32_t y = xn_divide(p, s.by_tile_w), x = p - y * a.cut.tile_w;
        if (y >= a.cut.tile_h) { /* nobody stores these */
            taps[p] = 0.0f;
            for (int32_t g = 0; g < a.cut.together; g++)
                k[g * tile + p] = 0.0f;
            continue;
        }
        taps[p] = (float)(c.group_channels * count_taps(c, b.out_y + y, b.out_x + x));
        const int32_t position = position_of(a, x * c.stride_w);
        const float *line = lines + y * s.width + position;
        for (int32_t g = 0; g < b.groups; g++, line += a.cut.tile_h * s.width) {
            if (!a.want_k) {
                k[g * tile + p] = 1.0f;
                continue;
            }
            float sum = line[0];
#pragma unroll 4
            for (int32_t j = 1; j < kernel_w; j++)
                sum += line[j];
            sum *= reciprocal;
            if (isinf(sum))
                sum = (float)(box_exact(a, means + (g * s.in_h + y * c.stride_h) * s.width +
                                               position) *
                              reciprocal);
            k[g * tile + p] = sum;
        }
    }
}

#endif
