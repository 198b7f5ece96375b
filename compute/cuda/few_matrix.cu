/* few_matrix.cu: groups of few channels by the matrix units of sm_80 and later, in one pass: any
 * stride, dilation and kernel whose patch is a few hundred bits; and, several groups at a time as
 * one whose filters are zero outside their own channels, depth-wise layers too.
 *
 * A block makes a tile of outputs of one image and of up to MAX_SPAN filters:
 *
 * 1. It reads the tile's inputs, a pixel a thread, and packs the signs of a pixel's channels into a
 *    field of 1 to 32 bits. Fields lie along the row, so that the taps of a kernel row are
 *    neighbouring bits (with dilation d, columns are ordered by their remainder modulo d first).
 *    There are two such images: `positive`, the bits of signs +1, and `negative`, those of -1. Taps
 *    outside are in neither where pad_value is 0, so nothing further knows of borders but the
 *    number of taps inside. The mean of |x| goes beside them.
 * 2. Filters are laid out in the same order of bits, and once more inverted.
 * 3. K is the box sum of the means, a thread an output.
 * 4. A warp takes 16 outputs at a time. Their patches' words are unaligned windows of the rows, one
 *    funnel shift each, straight into the fragment that the matrix instruction multiplies with 16
 *    filters:
 *        agreeing = popc(positive and w) + popc(negative and not w),  dot = 2 agreeing - taps
 *    The accumulator starts as the bits of 2^23, so that it ends as the float 2^23 + agreeing.
 *
 * Bound by reading the input and writing the output when there are several filters a channel, by
 * the instructions of steps 1 and 3 for depth-wise layers. */
#include "element.cuh"
#include "few_matrix.h"
#include "launch.cuh"
#include "layout.h"
#include "ptx.cuh"

enum {
    THREADS = 128,
    WARPS = THREADS / 32,
    STEP = XN_CUDA_STEP_WORDS,
    ROWS = 16, /* filters, and outputs of a warp, of one matrix instruction and of two */
    MAX_SPAN = 128,
    FEW = 4,        /* channels, of which a thread reads those of as many pixels at a time, */
    IN_FLIGHT = 16, /* else so many of one */
    MAX_STEPS = 6,
    MAX_TILE = 512,
    MIN_TILE = 64,
    WIDE_ROW = 128, /* outputs; wider images are cut into tiles of up to WIDE_TILE */
    WIDE_TILE = 64,
    SHARED_LIMIT = 48 << 10,
    BLOCKS_WANTED = 4, /* a multiprocessor's */
    MAX_KERNEL = 32,
    MAX_STAGED = 1 << 14, /* rows and columns */
};

/* Division by a number that the host knows, of up to 15 bits: n up to 2^16. */
struct matrix_divisor {
    uint32_t magic, divisor;

    __device__ __forceinline__ int32_t of(int32_t n) const {
        return divisor == 1 ? n : (int32_t)__umulhi((uint32_t)n, magic);
    }
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
    matrix_divisor by_tile_w, by_chunks, by_phase_w;
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
    const int32_t phase = d == 1 ? 0 : a.shape.by_phase_w.of(position);
    return (position - phase * a.shape.phase_w) * d + phase;
}

__device__ __forceinline__ int32_t position_of(const matrix_args &a, int32_t column) {
    const int32_t d = a.conv.dilation_w;
    return d == 1 ? column : column % d * a.shape.phase_w + column / d;
}

/* A pixel of the stage: what its channels gave so far. */
struct matrix_pixel {
    int32_t at;     /* of the staged plane; -1: none */
    int32_t offset; /* of the image's plane; -1: outside */
    uint32_t field;
    float sum;
};

/* The mean of |x| over one group's channels of a pixel whose plain sum overflowed. */
template <class T>
__device__ __noinline__ float mean_again(const T *first, int32_t plane, int32_t channels) {
    xn_abs_sum sum = {0.0f, 0.0f};
    for (int32_t ch = 0; ch < channels; ch++)
        xn_abs_sum_add(&sum, xn_to_fp32(first[(int64_t)ch * plane]));
    return xn_abs_sum_mean(&sum, channels, 1.0f / (float)channels);
}

/* Channels from .. from + CHANNELS - 1 of all pixels, of which `channels` exist. */
template <int PIXELS, int CHANNELS, class T>
__device__ __forceinline__ void
read_channels(const T *input, int32_t plane, int32_t from, int32_t channels,
              const matrix_pixel (&pixels)[PIXELS], float (&values)[PIXELS][CHANNELS]) {
    T raw[PIXELS][CHANNELS];
#pragma unroll
    for (int u = 0; u < PIXELS; u++)
#pragma unroll
        for (int n = 0; n < CHANNELS; n++)
            if (pixels[u].offset >= 0 && from + n < channels)
                raw[u][n] = input[(int64_t)(from + n) * plane + pixels[u].offset];
#pragma unroll
    for (int u = 0; u < PIXELS; u++)
#pragma unroll
        for (int n = 0; n < CHANNELS; n++)
            values[u][n] =
                pixels[u].offset >= 0 && from + n < channels ? xn_to_fp32(raw[u][n]) : 0.0f;
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

/* Sums and signs of one batch of channels. SEVERAL: groups; `left` channels of the group that is
 * under way are to come, whose mean goes to means. */
template <bool SEVERAL, int PIXELS, int CHANNELS, class T>
__device__ __forceinline__ void
take_channels(const matrix_args &a, const T *input, int32_t from, int32_t channels,
              const float (&values)[PIXELS][CHANNELS], matrix_pixel (&pixels)[PIXELS],
              int32_t *left, float **means) {
    const xn_conv &c = a.conv;
    const float reciprocal = 1.0f / (float)c.group_channels;
#pragma unroll
    for (int u = 0; u < PIXELS; u++) {
        uint32_t bits = 0;
#pragma unroll
        for (int n = 0; n < CHANNELS; n++)
            if (values[u][n] >= 0.0f) /* xn_sign_bit */
                bits |= 1u << n;
        pixels[u].field |= bits << from;
    }
#pragma unroll
    for (int n = 0; n < CHANNELS; n++) {
        if (SEVERAL && from + n >= channels)
            break;
#pragma unroll
        for (int u = 0; u < PIXELS; u++)
            pixels[u].sum += fabsf(values[u][n]);
        if (SEVERAL ? --*left == 0 : from + n == channels - 1) {
            const int32_t plane = c.height * c.width;
#pragma unroll
            for (int u = 0; u < PIXELS; u++) {
                float mean = pixels[u].sum * reciprocal;
                if (isinf(mean) && pixels[u].offset >= 0)
                    mean = mean_again(input + pixels[u].offset +
                                          (int64_t)(from + n + 1 - c.group_channels) * plane,
                                      plane, c.group_channels);
                if (pixels[u].at >= 0 && a.want_k)
                    (*means)[pixels[u].at] = mean;
                pixels[u].sum = 0.0f;
            }
            *means += a.shape.in_h * a.shape.chunks * 32;
            *left = c.group_channels;
        }
    }
}

/* Both planes of fields and the means of the block's tile. */
template <bool SEVERAL, int PIXELS, int CHANNELS, class T>
__device__ __forceinline__ void stage_inputs(const matrix_args &a, const matrix_block &b,
                                             const T *input, uint32_t *rows, float *means) {
    const xn_conv &c = a.conv;
    const matrix_shape &s = a.shape;
    const int32_t lane = threadIdx.x & 31, channels = b.groups * c.group_channels;
    const uint32_t all = xn_cuda_low_bits(channels);
    const int32_t y0 = b.out_y * c.stride_h - c.pad_top, x0 = b.out_x * c.stride_w - c.pad_left;
    const int32_t plane = c.height * c.width, chunks = s.in_h * s.chunks;
    input += (b.image * c.channels + (int64_t)b.group * c.group_channels) * plane;
    for (int32_t first = (int32_t)threadIdx.x >> 5; first < chunks; first += WARPS * PIXELS) {
        matrix_pixel pixels[PIXELS];
#pragma unroll
        for (int u = 0; u < PIXELS; u++) {
            const int32_t chunk = first + u * WARPS, row = s.by_chunks.of(chunk);
            const int32_t position = (chunk - row * s.chunks) * 32 + lane;
            const int32_t column = column_at(a, position), y = y0 + row, x = x0 + column;
            const bool inside = (uint32_t)y < (uint32_t)c.height &&
                                (uint32_t)x < (uint32_t)c.width && column < s.in_w &&
                                chunk < chunks;
            pixels[u] = {chunk < chunks ? chunk * 32 + lane : -1, inside ? y * c.width + x : -1, 0u,
                         0.0f};
        }
        float *to = means;
        int32_t left = c.group_channels;
        for (int32_t from = 0; from < channels; from += CHANNELS) {
            float values[PIXELS][CHANNELS];
            read_channels(input, plane, from, channels, pixels, values);
            take_channels<SEVERAL>(a, input, from, channels, values, pixels, &left, &to);
        }
#pragma unroll
        for (int u = 0; u < PIXELS; u++) {
            const int32_t chunk = first + u * WARPS, row = s.by_chunks.of(chunk);
            if (chunk >= chunks)
                break;
            const bool inside = pixels[u].offset >= 0;
            const uint32_t counted = inside || c.pad_value ? all : 0u;
            const uint32_t signs = inside ? pixels[u].field : c.pad_value > 0 ? all : 0u;
            uint32_t *at = rows + row * s.pitch;
            write_fields(at, at + s.in_h * s.pitch, (chunk - row * s.chunks) * 32 + lane,
                         s.field_log2, counted & signs, counted & ~signs);
        }
    }
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
        const int32_t y = a.shape.by_tile_w.of(p), x = p - y * a.cut.tile_w;
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

/* ---- 4: outputs ---- */

/* Four outputs side by side. */
struct matrix_quad {
    float k[4], taps[4];
    int32_t live;  /* how many exist */
    int64_t index; /* in its plane */
};

__device__ __forceinline__ void load_quad(const float *from, float (&to)[4]) {
    const float4 v = *(const float4 *)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

__device__ __forceinline__ matrix_quad find_quad(const matrix_args &a, const matrix_block &b,
                                                 int32_t p) {
    const xn_conv &c = a.conv;
    const int32_t tile = a.cut.tile_w * a.cut.tile_h;
    matrix_quad q;
    if (a.cut.tile_w == c.out_width) { /* a run of outputs */
        q.index = (int64_t)b.out_y * c.out_width + p;
        q.live = min(4, min(tile, (c.out_height - b.out_y) * c.out_width) - p);
    } else {
        const int32_t y = a.shape.by_tile_w.of(p), x = p - y * a.cut.tile_w;
        q.index = (int64_t)(b.out_y + y) * c.out_width + b.out_x + x;
        q.live = p < tile && b.out_y + y < c.out_height ? min(4, c.out_width - b.out_x - x) : 0;
    }
    return q;
}

/* The outputs of one filter; agreeing as floats from 2^23 on. */
__device__ __forceinline__ void write_quad(const matrix_args &a, const matrix_quad &q,
                                           const matrix_filter &f, int64_t index, bool vector,
                                           const float *agreeing) {
    float dots[4], v[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        dots[n] = fmaf(agreeing[n] - 0x1p23f, 2.0f, -q.taps[n]);
        v[n] = xn_epilogue(dots[n], f.factor, q.k[n], f.bias);
    }
    if (a.out.datatype == XN_INT32) {
        int32_t *out = (int32_t *)a.out.data + index;
        if (vector && q.live == 4)
            *(int4 *)out =
                make_int4((int32_t)dots[0], (int32_t)dots[1], (int32_t)dots[2], (int32_t)dots[3]);
        else
            for (int n = 0; n < 4; n++)
                if (n < q.live)
                    out[n] = (int32_t)dots[n];
        return;
    }
    if (!isfinite(fabsf(v[0]) + fabsf(v[1]) + fabsf(v[2]) + fabsf(v[3])))
#pragma unroll
        for (int n = 0; n < 4; n++)
            v[n] = xn_cuda_epilogue((int32_t)dots[n], f.factor, q.k[n], f.bias);
    if (!vector || q.live < 4) {
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (n < q.live)
                xn_store_fp32(a.out, index + n, v[n]);
    } else if (a.out.datatype == XN_FP32) {
        *(float4 *)((float *)a.out.data + index) = make_float4(v[0], v[1], v[2], v[3]);
    } else {
        const __half2 low = __floats2half2_rn(v[0], v[1]), high = __floats2half2_rn(v[2], v[3]);
        uint2 packed;
        memcpy(&packed.x, &low, 4);
        memcpy(&packed.y, &high, 4);
        *(uint2 *)((__half *)a.out.data + index) = packed;
    }
}

/* Where the words of this thread's part of a fragment lie, from a patch's first word on. */
template <int STEPS>
__device__ __forceinline__ void find_words(const matrix_args &a, int32_t (&offset)[STEPS][2]) {
    const matrix_shape &s = a.shape;
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int32_t at = k * STEP + (int32_t)(threadIdx.x & 3) * 2 + n;
            const int32_t half = at % s.words, inverted = at / s.words;
            offset[k][n] =
                inverted > 1 ? 0 /* any: the filters are zero there */
                             : (inverted * s.in_h + half / s.parts * a.conv.dilation_h) * s.pitch +
                                   half % s.parts;
        }
}

/* Both instructions' columns, 16 outputs from p on: column g of instruction n is output
 * 4 (g / 2) + 2 n + g % 2, so that a thread's four results are neighbours. */
template <int STEPS>
__device__ __forceinline__ void load_patches(const matrix_args &a, const uint32_t *rows, int32_t p,
                                             const int32_t (&offset)[STEPS][2],
                                             uint32_t (&patch)[2][STEPS][2]) {
    const int32_t g = (threadIdx.x & 31) >> 2, tile = a.cut.tile_w * a.cut.tile_h;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const int32_t at = min(p + (g >> 1) * 4 + n * 2 + (g & 1), tile - 1);
        const int32_t y = a.shape.by_tile_w.of(at), x = at - y * a.cut.tile_w;
        const int32_t bit = position_of(a, x * a.conv.stride_w) << a.shape.field_log2;
        const uint32_t *first = rows + y * a.conv.stride_h * a.shape.pitch + (bit >> 5);
#pragma unroll
        for (int k = 0; k < STEPS; k++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                patch[n][k][e] = __funnelshift_r(first[offset[k][e]], first[offset[k][e] + 1],
                                                 (uint32_t)bit & 31u);
    }
}

/* Counts of 16 filters by 16 outputs: counts[n][..] of instruction n as the fragment has them. */
template <int STEPS>
__device__ __forceinline__ void multiply(const uint32_t *filters, int32_t span,
                                         const uint32_t (&patch)[2][STEPS][2],
                                         int32_t (&counts)[2][4]) {
    const int32_t g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            counts[n][e] = 0x4b000000; /* 2^23 */
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        const uint32_t *from = filters + (k * span + g) * STEP + t * 2;
        const uint2 upper = *(const uint2 *)from, lower = *(const uint2 *)(from + 8 * STEP);
        const uint32_t fragment[4] = {upper.x, lower.x, upper.y, lower.y};
        xn_mma_and_popc(counts[0], fragment, patch[0][k]);
        xn_mma_and_popc(counts[1], fragment, patch[1][k]);
    }
}

template <int STEPS>
__device__ __forceinline__ void make_outputs(const matrix_args &a, const matrix_block &b,
                                             int32_t span, const uint32_t *rows,
                                             const uint32_t *filters, const matrix_filter *info,
                                             const float *k, const float *taps) {
    const xn_conv &c = a.conv;
    const int32_t tile = a.cut.tile_w * a.cut.tile_h, lane = threadIdx.x & 31, g = lane >> 2;
    const int64_t outputs = (int64_t)c.out_height * c.out_width;
    const int64_t first =
        (b.image * c.out_channels + (int64_t)b.group * c.group_out_channels + b.filter) * outputs;
    const bool several = a.cut.together > 1;
    int32_t offset[STEPS][2];
    find_words<STEPS>(a, offset);
    for (int32_t p = (int32_t)(threadIdx.x >> 5) * ROWS; p < tile; p += WARPS * ROWS) {
        uint32_t patch[2][STEPS][2];
        load_patches<STEPS>(a, rows, p, offset, patch);
        const int32_t at = p + (lane & 3) * 4;
        matrix_quad q = find_quad(a, b, at);
        const bool vector = ((outputs | q.index) & 3) == 0;
        load_quad(taps + at, q.taps);
        load_quad(k + at, q.k);
        int64_t index = first + g * outputs + q.index;
        for (int32_t m = 0; m < span; m += ROWS) {
            int32_t counts[2][4];
            multiply<STEPS>(filters + m * STEP, span, patch, counts);
#pragma unroll
            for (int h = 0; h < 2; h++, index += 8 * outputs) {
                const int32_t f = m + g + h * 8;
                if (f >= b.filters)
                    continue;
                if (several)
                    load_quad(k + info[f].group * a.shape.tile + at, q.k);
                const float agreeing[4] = {
                    __int_as_float(counts[0][h * 2]), __int_as_float(counts[0][h * 2 + 1]),
                    __int_as_float(counts[1][h * 2]), __int_as_float(counts[1][h * 2 + 1])};
                write_quad(a, q, info[f], index, vector, agreeing);
            }
        }
    }
}

template <int STEPS>
__global__ void __launch_bounds__(THREADS, 5) matrix_kernel(const __grid_constant__ matrix_args a) {
    extern __shared__ __align__(16) char shared[];
    const matrix_shape &s = a.shape;
    const int32_t span = (a.cut.span + ROWS - 1) / ROWS * ROWS;
    uint32_t *rows = (uint32_t *)shared, *filters = (uint32_t *)(shared + s.filters_at);
    matrix_filter *info = (matrix_filter *)(shared + s.info_at);
    float *means = (float *)(shared + s.sums_at), *k = (float *)(shared + s.k_at);
    float *taps = (float *)(shared + s.taps_at);
    const matrix_block b = find_block(a);
    stage_filters(a, b, span, filters, info);
    xn_wait_for_previous_kernel();
    xn_let_next_kernel_start();
    xn_with_input(a.input, a.conv.input_datatype, [&](auto *input) {
        if (a.cut.together > 1)
            stage_inputs<true, 1, IN_FLIGHT>(a, b, input, rows, means);
        else if (a.shape.channels <= FEW)
            stage_inputs<false, FEW, FEW>(a, b, input, rows, means);
        else
            stage_inputs<false, 1, IN_FLIGHT>(a, b, input, rows, means);
    });
    __syncthreads();
    make_pixels(a, b, means, k, taps);
    __syncthreads();
    make_outputs<STEPS>(a, b, span, rows, filters, info, k, taps);
}

/* ---- the cut ---- */

static int32_t log2_from(int32_t v) {
    int32_t log = 0;
    while (1 << log < v)
        log++;
    return log;
}

static matrix_divisor divisor_of(int32_t n) {
    const matrix_divisor d = {n > 1 ? (uint32_t)(((uint64_t)1 << 32) / (uint32_t)n + 1) : 0u,
                              (uint32_t)n};
    return d;
}

static int32_t place(int64_t *total, int64_t bytes) {
    const int64_t at = *total;
    *total += (bytes + 15) / 16 * 16;
    return (int32_t)at;
}

static bool takes(const xn_conv *c) {
    return c->mode == XN_MODE_XNOR && c->group_channels <= XN_CUDA_MATRIX_CHANNELS &&
           c->kernel_h <= MAX_KERNEL && c->kernel_w <= MAX_KERNEL &&
           (int64_t)c->channels * c->height * c->width <= INT32_MAX &&
           (int64_t)c->out_height * c->out_width <= INT32_MAX &&
           (int64_t)c->height + c->pad_top + c->pad_bottom <= 1 << 30 &&
           (int64_t)c->width + c->pad_left + c->pad_right <= 1 << 30;
}

/* False when what a block would need does not fit. */
static bool make_shape(const xn_conv *c, int64_t images, const xn_cuda_matrix_cut *cut,
                       matrix_shape *out) {
    matrix_shape s = {};
    const bool want_k = c->scaling == XN_SCALING_XNOR;
    const int64_t in_w =
        (int64_t)(cut->tile_w - 1) * c->stride_w + (int64_t)(c->kernel_w - 1) * c->dilation_w + 1;
    const int64_t in_h =
        (int64_t)(cut->tile_h - 1) * c->stride_h + (int64_t)(c->kernel_h - 1) * c->dilation_h + 1;
    if (in_w > MAX_STAGED || in_h > MAX_STAGED)
        return false;
    s.channels = cut->together * c->group_channels;
    s.filters = cut->together * c->group_out_channels;
    s.field_log2 = log2_from(s.channels);
    s.in_w = (int32_t)in_w;
    s.in_h = (int32_t)in_h;
    s.phase_w = (s.in_w - 1) / c->dilation_w + 1;
    s.chunks = (s.phase_w * c->dilation_w - 1) / 32 + 1;
    s.pitch = (s.chunks << s.field_log2) + 1;
    s.parts = ((c->kernel_w << s.field_log2) - 1) / 32 + 1;
    s.words = s.parts * c->kernel_h;
    s.steps = (2 * s.words - 1) / STEP + 1;
    if (s.steps > MAX_STEPS)
        return false;
    s.steps = s.steps == 5 ? 6 : s.steps;
    s.tiles_x = (c->out_width - 1) / cut->tile_w + 1;
    s.tiles_y = (c->out_height - 1) / cut->tile_h + 1;
    s.splits = cut->together > 1 ? 1 : (s.filters - 1) / cut->span + 1;
    s.bundles = (c->groups - 1) / cut->together + 1;
    s.tile = (cut->tile_w * cut->tile_h + ROWS - 1) / ROWS * ROWS;
    const int64_t staged = in_h * s.chunks * 32;
    const int64_t span = (cut->span + ROWS - 1) / ROWS * ROWS;
    int64_t total = 0;
    place(&total, 2 * in_h * s.pitch * 4);
    s.filters_at = place(&total, s.steps * span * STEP * 4);
    s.info_at = place(&total, span * (int64_t)sizeof(matrix_filter));
    s.sums_at = place(&total, want_k ? cut->together * staged * 4 : 0);
    s.k_at = place(&total, (int64_t)cut->together * s.tile * 4);
    s.taps_at = place(&total, (int64_t)s.tile * 4);
    if (total > SHARED_LIMIT ||
        images * s.bundles > INT32_MAX / ((int64_t)s.tiles_x * s.tiles_y * s.splits))
        return false;
    s.by_tile_w = divisor_of(cut->tile_w);
    s.by_chunks = divisor_of(s.chunks);
    s.by_phase_w = divisor_of(s.phase_w);
    s.shared_bytes = (int32_t)total;
    *out = s;
    return true;
}

bool xn_cuda_matrix_fits(const xn_conv *c, int64_t images, const xn_cuda_matrix_cut *cut) {
    matrix_shape shape;
    return takes(c) && cut->together >= 1 && cut->tile_w >= 1 && cut->tile_h >= 1 &&
           (int64_t)cut->tile_w * cut->tile_h <= MAX_TILE && cut->span >= 1 &&
           cut->span <= MAX_SPAN &&
           (cut->tile_w == c->out_width ||
            (cut->tile_w % ROWS == 0 && cut->tile_w < c->out_width)) &&
           (int64_t)cut->together * c->group_channels <= XN_CUDA_MATRIX_CHANNELS &&
           (cut->together == 1 || (int64_t)cut->together * c->group_out_channels <= cut->span) &&
           make_shape(c, images, cut, &shape);
}

/* Groups until they have 16 filters, as far as their channels fit. */
static int32_t choose_together(const xn_conv *c) {
    int32_t together = 1;
    while (together * c->group_out_channels < ROWS && together < c->groups &&
           2 * together * c->group_channels <= ROWS)
        together *= 2;
    return together;
}

/* The most outputs that `most` allows, in tiles of like size. */
static void choose_tile(const xn_conv *c, int32_t most, xn_cuda_matrix_cut *cut) {
    cut->tile_w = c->out_width;
    if (c->out_width > WIDE_ROW) {
        const int32_t across = (c->out_width - 1) / WIDE_TILE + 1;
        cut->tile_w = ((c->out_width - 1) / across + ROWS) / ROWS * ROWS;
    }
    const int32_t rows = most / cut->tile_w < 1 ? 1 : most / cut->tile_w;
    const int32_t down = (c->out_height - 1) / rows + 1;
    cut->tile_h = (c->out_height - 1) / down + 1;
}

bool xn_cuda_matrix_choose(const xn_conv *c, int64_t images, int multiprocessors,
                           xn_cuda_matrix_cut *out) {
    xn_cuda_matrix_cut cut = {};
    matrix_shape shape;
    if (!takes(c))
        return false;
    cut.together = choose_together(c);
    const int32_t filters = cut.together * c->group_out_channels;
    const int32_t splits = (filters - 1) / MAX_SPAN + 1;
    cut.span = (filters - 1) / splits + 1;
    bool found = false;
    for (int32_t most = MAX_TILE; most >= MIN_TILE; most /= 2) {
        choose_tile(c, most, &cut);
        if (!xn_cuda_matrix_fits(c, images, &cut) || !make_shape(c, images, &cut, &shape))
            continue;
        found = true;
        *out = cut;
        if (images * shape.bundles * shape.tiles_x * shape.tiles_y * shape.splits >=
            BLOCKS_WANTED * (int64_t)multiprocessors)
            break;
    }
    if (!found)
        return false;
    /* few tiles: fewer filters a block */
    cut = *out;
    while (cut.together == 1 && cut.span > 2 * ROWS && make_shape(c, images, &cut, &shape) &&
           images * shape.bundles * shape.tiles_x * shape.tiles_y * shape.splits < multiprocessors)
        cut.span = (cut.span / 2 + ROWS - 1) / ROWS * ROWS;
    *out = cut;
    return xn_cuda_matrix_fits(c, images, out);
}

typedef void (*matrix_function)(const matrix_args);
static const struct {
    int32_t steps;
    matrix_function function;
} kernels[] = {{1, matrix_kernel<1>},
               {2, matrix_kernel<2>},
               {3, matrix_kernel<3>},
               {4, matrix_kernel<4>},
               {6, matrix_kernel<6>}};

cudaError_t xn_cuda_matrix_launch(const xn_conv *c, int64_t images, const xn_cuda_matrix_cut *cut,
                                  const xn_cuda_few_io *io, const xn_cuda_epilogue_args *epilogue,
                                  bool overlapped, cudaStream_t stream) {
    matrix_args a = {};
    if (!xn_cuda_matrix_fits(c, images, cut) || !make_shape(c, images, cut, &a.shape))
        return cudaErrorInvalidConfiguration;
    a.conv = *c;
    a.cut = *cut;
    a.input = io->input;
    a.rows = io->rows;
    a.factor = epilogue->factor;
    a.bias = epilogue->bias;
    a.out = {epilogue->output, c->output_datatype};
    a.row_words = (int32_t)xn_cuda_row_words(c->group_channels, c->kernel_h, c->kernel_w);
    a.want_k = c->scaling == XN_SCALING_XNOR;
    const matrix_shape &s = a.shape;
    const int64_t blocks = images * s.bundles * s.tiles_x * s.tiles_y * s.splits;
    for (const auto &k : kernels)
        if (k.steps == s.steps)
            return xn_cuda_launch_with(k.function, (int)blocks, THREADS, (size_t)s.shared_bytes,
                                       overlapped, stream, a);
    return cudaErrorInvalidConfiguration; /* make_shape said so */
}

cudaError_t xn_cuda_matrix_load(void) {
    for (const auto &k : kernels) {
        cudaError_t e = xn_cuda_load(k.function);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
