/* patch.cu: mode xnor of groups of few channels, in one pass on any chip: any stride and dilation,
 * and kernels whose patch is a few words.
 *
 * A block makes a tile of outputs of some planes, a plane being a group of an image, for all
 * filters or a share of them:
 *
 * 1. Of each pixel that the tile's windows reach it puts into shared memory the signs of the
 *    channels, as the low bits of a word, and their mean for K.
 * 2. A thread gathers the patches of PIXELS outputs, several taps a word (layout.h), and a
 *    mask of the bits that count: taps outside do not where pad_value is 0.
 * 3. Filter by filter: dot = bits of the mask - 2 popc((patch xor filter) and mask). Adders of
 *    three words make two thirds of the words, or less, to be counted.
 *
 * Bound by memory while filters are few, else by counting. */
#include "costs.h"
#include "few.cuh"
#include "launch.cuh"
#include "paths.h"

#include <math.h>

enum {
    THREADS = 128,
    PIXELS = 2, /* of a thread at a time, which share what is read of a filter */
    MOST_STAGED = 1 << 14,
    MOST_PIXELS = 1 << 30, /* of an axis, with its padding */
    SHARED_LIMIT = 48 << 10,
    L2_KIB = 300, /* of a multiprocessor */
};

/* How a problem is cut into blocks. */
struct patch_cut {
    int32_t planes, tile_w, tile_h, span; /* of a block; span: filters of each plane */
};

struct patch_args : xn_few_args {
    patch_cut cut;
    int64_t images;
    int32_t in_w, in_h, staged; /* what a tile reaches of a plane */
    int32_t tile, part;         /* outputs of a plane; those a thread's pixels are apart */
    int32_t taps, word_taps;    /* in all, and in a word */
    int32_t shared_bytes;
    int32_t lanes_log2; /* that read a row */
    int32_t splits, tiles_x, tiles_y;
    int64_t blocks;
    float reciprocal;
    xn_fast_divisor by_kernel_w, by_span, by_in_h, by_part, by_tile_w, by_splits, by_tiles_x,
        by_tiles_y;
};

struct patch_block {
    int64_t plane;
    int32_t planes, filter, filters, out_x, out_y;
};

/* In shared memory: the signs of a pixel's channels, and their mean. */
struct __align__(8) patch_pixel {
    uint32_t word;
    float mean;
};

template <int WORDS>
struct __align__(16) patch_filter {
    xn_filter constants;
    uint32_t words[WORDS];
};

/* Splits of the filters run fastest, then columns, rows, planes. */
__device__ __forceinline__ patch_block find_block(const patch_args &a) {
    const int32_t tile = xn_divide((int32_t)blockIdx.x, a.by_splits);
    const int32_t down = xn_divide(tile, a.by_tiles_x), bundle = xn_divide(down, a.by_tiles_y);
    patch_block b;
    b.filter = ((int32_t)blockIdx.x - tile * a.splits) * a.cut.span;
    b.filters = min(a.cut.span, a.conv.group_out_channels - b.filter);
    b.out_x = (tile - down * a.tiles_x) * a.cut.tile_w;
    b.out_y = (down - bundle * a.tiles_y) * a.cut.tile_h;
    b.plane = (int64_t)bundle * a.cut.planes;
    b.planes = (int32_t)min((int64_t)a.cut.planes, a.images * a.conv.groups - b.plane);
    return b;
}

/* ---- 1: pixels ---- */

/* The box of the window with that first pixel. */
template <class Sum>
__device__ __forceinline__ Sum box_of(const patch_args &a, const patch_pixel *first) {
    const int32_t down = a.conv.dilation_h * a.in_w, right = a.conv.dilation_w;
    return xn_box_of<Sum>(a.conv.kernel_h, a.conv.kernel_w,
                          [&](int32_t i, int32_t j) { return first[i * down + j * right].mean; });
}

/* The mean of the pixel whose first channel is element `at`, where fp32 has no finite sum. */
static __device__ __noinline__ float mean_again(const patch_args &a, int64_t at) {
    const int64_t plane = (int64_t)a.conv.height * a.conv.width;
    double sum = 0;
#pragma unroll 1
    for (int32_t c = 0; c < a.conv.group_channels; c++)
        sum += fabs((double)xn_few_element(a, at + c * plane));
    return xn_mean_again(sum, 1.0 / a.conv.group_channels);
}

/* A thread has some pixels of rows that lie apart, ROWS of them and CHANNELS at a time. */
template <int CHANNELS, int ROWS>
__device__ __forceinline__ void stage_pixels(const patch_args &a, const patch_block &b,
                                             int32_t in_y, int32_t in_x, patch_pixel *pixels) {
    const xn_conv &c = a.conv;
    const int32_t channels = c.group_channels, rows = b.planes * a.in_h, plane = c.height * c.width;
    const int32_t step = THREADS >> a.lanes_log2, lane = threadIdx.x & ((1 << a.lanes_log2) - 1);
    const int64_t base = b.plane * channels * plane + in_x;
    const uint32_t low = xn_cuda_low_bits(channels), outside = c.pad_value > 0 ? low : 0u;
    for (int32_t row = threadIdx.x >> a.lanes_log2; row < rows; row += step * ROWS) {
        int32_t from[ROWS];
        bool inside[ROWS];
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            const int32_t local = xn_divide(row + n * step, a.by_in_h);
            const int32_t y = in_y + row + n * step - local * a.in_h;
            inside[n] = row + n * step < rows && (uint32_t)y < (uint32_t)c.height;
            from[n] = local * channels * plane + y * c.width;
        }
#pragma unroll 1
        for (int32_t x = lane; x < a.in_w; x += 1 << a.lanes_log2) {
            const bool in_row = (uint32_t)(in_x + x) < (uint32_t)c.width;
            float octet[ROWS] = {}, sum[ROWS] = {}, sum_2[ROWS] = {};
            uint32_t word[ROWS] = {};
#pragma unroll 1
            for (int32_t channel = 0; channel < channels; channel += CHANNELS) {
                float v[ROWS][CHANNELS] = {};
                xn_few_with_input(a, [&](auto *input) {
#pragma unroll
                    for (int n = 0; n < ROWS; n++)
#pragma unroll
                        for (int k = 0; k < CHANNELS; k++)
                            if (inside[n] && in_row && channel + k < channels)
                                v[n][k] =
                                    xn_to_fp32(input[base + from[n] + x + (channel + k) * plane]);
                });
#pragma unroll
                for (int n = 0; n < ROWS; n++) {
#pragma unroll
                    for (int k = 0; k < CHANNELS; k++) {
                        const int32_t at = channel + k;
                        octet[n] += fabsf(v[n][k]);
                        word[n] |= xn_sign_bit(v[n][k]) << (at & 31);
                        if (k % XN_OCTET < XN_OCTET - 1 && k < CHANNELS - 1)
                            continue;
                        if (at % XN_OCTET < XN_OCTET - 1 && at < channels - 1)
                            continue;
                        sum[n] += at & 16 ? 0.0f : octet[n]; /* fours of octets */
                        sum_2[n] += at & 16 ? octet[n] : 0.0f;
                        octet[n] = 0.0f;
                    }
                }
            }
#pragma unroll
            for (int n = 0; n < ROWS; n++) {
                const bool in_image = inside[n] && in_row;
                float mean = xn_mean(sum[n] + sum_2[n], a.reciprocal);
                if (isinf(mean))
                    mean = mean_again(a, base + from[n] + x);
                if (row + n * step < rows)
                    pixels[(row + n * step) * a.in_w + x] = {in_image ? word[n] & low : outside,
                                                             mean};
            }
        }
    }
}

/* ---- 2: patches ---- */

/* What a block has in shared memory. */
template <int WORDS>
struct patch_shared {
    patch_pixel *pixels;                        /* [planes][in_h][in_w] */
    patch_filter<WORDS> *filters;               /* [planes][span] */
    int32_t *taps;                              /* a tap's pixel, from the window's first one on */
    uint32_t (*rows)[WORDS], (*columns)[WORDS]; /* of the tile: bits of the taps inside */
};

/* Bits of word w of a patch whose taps count, along an axis of `size` pixels, from `first` on. */
__device__ __forceinline__ uint32_t inside_bits(const patch_args &a, int32_t w, int32_t first,
                                                int32_t size, bool down) {
    const xn_conv &c = a.conv;
    uint32_t word = 0;
    for (int32_t n = 0, t = w * a.word_taps; n < a.word_taps && t < a.taps; n++, t++) {
        const int32_t i = xn_divide(t, a.by_kernel_w), j = t - i * c.kernel_w;
        const int32_t at = first + (down ? i * c.dilation_h : j * c.dilation_w);
        if (c.pad_value || (uint32_t)at < (uint32_t)size)
            word |= xn_cuda_low_bits(c.group_channels) << n * c.group_channels;
    }
    return word;
}

/* The outputs of a thread. */
template <int WORDS>
struct patch_pixels {
    uint32_t patch[PIXELS][WORDS], mask[PIXELS][WORDS];
    const patch_pixel *first[PIXELS]; /* of the window */
    int32_t bits[PIXELS];             /* that count */
    int32_t at[PIXELS]; /* of the first output, bytes from the first one of the block on */
    float box[PIXELS];
    bool live[PIXELS];
};

/* KERNEL: 3 for 3x3, 0 for any. */
template <int WORDS, int KERNEL>
__device__ __forceinline__ void
find_pixels(const patch_args &a, const patch_block &b, int32_t local, int32_t first,
            const patch_shared<WORDS> &shared, patch_pixels<WORDS> *to) {
    const xn_conv &c = a.conv;
    const uint32_t scale = 1u << (c.group_channels & 31); /* of 32 channels a word has one tap */
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
        const int32_t at = min(first + p * a.part, a.tile - 1);
        const int32_t down = xn_divide(at, a.by_tile_w), right = at - down * a.cut.tile_w;
        const int32_t y = b.out_y + down, x = b.out_x + right;
        to->live[p] = first + p * a.part < a.tile && y < c.out_height && x < c.out_width;
        to->first[p] =
            shared.pixels + local * a.staged + down * c.stride_h * a.in_w + right * c.stride_w;
        to->at[p] = ((local * c.group_out_channels * c.out_height + y) * c.out_width + x) *
                    (c.epilogue.datatype == XN_FP16 ? 2 : 4);
        to->bits[p] = 0;
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            to->patch[p][w] = 0;
            to->mask[p][w] = shared.rows[down][w] & shared.columns[right][w];
            to->bits[p] += __popc(to->mask[p][w]);
        }
        asm("" : "+r"(to->bits[p])); /* counted once, not in each turn of a loop */
        if constexpr (KERNEL == 3) {
            patch_pixel tap[9];
#pragma unroll
            for (int t = 0; t < 9; t++)
                tap[t] = to->first[p][t / 3 * c.dilation_h * a.in_w + t % 3 * c.dilation_w];
            to->box[p] = xn_box<3, 3>([&](int i, int j) { return tap[i * 3 + j].mean; });
#pragma unroll
            for (int t = 8; t >= 0; t--) {
                uint32_t *const word = &to->patch[p][t / ((9 - 1) / WORDS + 1)];
                *word = *word * scale + tap[t].word;
            }
        } else {
            to->box[p] = box_of<float>(a, to->first[p]);
        }
        if (!c.epilogue.k)
            to->box[p] = 1.0f;
    }
#pragma unroll
    for (int w = 0; w < WORDS && KERNEL == 0; w++) {
        const int32_t *taps = shared.taps + w * a.word_taps;
#pragma unroll 4
        for (int32_t n = min(a.word_taps, a.taps - w * a.word_taps) - 1; n >= 0; n--)
#pragma unroll
            for (int p = 0; p < PIXELS; p++)
                to->patch[p][w] = to->patch[p][w] * scale + to->first[p][taps[n]].word;
    }
}

/* ---- 3: outputs ---- */

/* Set bits of N words. */
template <int N>
__device__ __forceinline__ int32_t count_bits(const uint32_t (&x)[N]) {
    if constexpr (N < 3) {
        return __popc(x[0]) + (N > 1 ? __popc(x[N - 1]) : 0);
    } else {
        constexpr int THIRD = N / 3;
        uint32_t ones[THIRD + N % 3], twos[THIRD];
#pragma unroll
        for (int n = 0; n < THIRD; n++) {
            const uint32_t u = x[3 * n], v = x[3 * n + 1], w = x[3 * n + 2];
            ones[n] = u ^ v ^ w;
            twos[n] = (u & v) | (w & (u | v));
        }
#pragma unroll
        for (int n = 0; n < N % 3; n++)
            ones[THIRD + n] = x[3 * THIRD + n];
        return count_bits(ones) + 2 * count_bits(twos);
    }
}

/* Those of all filters; false where some are not finite. AGAIN: by the definition (epilogue.cuh).
 */
template <int WORDS, bool AGAIN>
__device__ __forceinline__ bool write_outputs(const patch_args &a, const patch_block &b,
                                              int32_t local, const patch_pixels<WORDS> &of,
                                              const patch_filter<WORDS> *filters) {
    const xn_epilogue_args &e = a.epilogue;
    const bool halves = e.what.datatype == XN_FP16, dots = e.what.datatype == XN_INT32;
    const int64_t step = a.conv.out_height * a.conv.out_width * (halves ? 2 : 4);
    float sum = 0.0f; /* of what is not finite */
    char *to = (char *)e.output + (b.plane * a.conv.group_out_channels + b.filter) * step;
#pragma unroll(AGAIN ? 1 : 2)
    for (int32_t f = 0; f < b.filters; f++, to += step) {
        const patch_filter<WORDS> filter = filters[f];
#pragma unroll
        for (int p = 0; p < PIXELS; p++) {
            uint32_t differ[WORDS];
#pragma unroll
            for (int w = 0; w < WORDS; w++)
                differ[w] = (of.patch[p][w] ^ filter.words[w]) & of.mask[p][w];
            const int32_t dot = of.bits[p] - 2 * count_bits(differ);
            float v = xn_value((float)dot, of.box[p], filter.constants);
            if constexpr (AGAIN) {
                const int64_t o = (b.plane + local) % a.conv.groups * a.conv.group_out_channels;
                v = xn_value_or_again(e, filter.constants, o + b.filter + f, (float)dot, of.box[p],
                                      [&] { return box_of<double>(a, of.first[p]); });
            }
            sum += v * 0.0f;
            char *const at = to + of.at[p];
            if (of.live[p] && !halves)
                *(uint32_t *)at = dots ? (uint32_t)dot : __float_as_uint(v);
            if (of.live[p] && halves)
                *(__half *)at = __float2half_rn(v);
        }
    }
    return sum == 0.0f;
}

constexpr int resident(int words) {
    return words <= 3 ? 7 : words <= 5 ? 5 : words <= 9 ? 4 : 3;
}

template <int WORDS, int KERNEL>
__global__ void __launch_bounds__(THREADS, resident(WORDS))
    patch_kernel(const __grid_constant__ patch_args a) {
    extern __shared__ __align__(16) char memory[];
    const xn_conv &c = a.conv;
    patch_shared<WORDS> s;
    s.filters = (patch_filter<WORDS> *)memory;
    s.pixels = (patch_pixel *)(s.filters + a.cut.planes * a.cut.span);
    s.taps = (int32_t *)(s.pixels + a.cut.planes * a.staged);
    s.rows = (uint32_t(*)[WORDS])(s.taps + a.taps);
    s.columns = s.rows + a.cut.tile_h;
    const patch_block b = find_block(a);
    const int32_t in_y = b.out_y * c.stride_h - c.pad_top, in_x = b.out_x * c.stride_w - c.pad_left;
    for (int32_t t = threadIdx.x; t < a.taps; t += THREADS) {
        const int32_t i = xn_divide(t, a.by_kernel_w), j = t - i * c.kernel_w;
        s.taps[t] = i * c.dilation_h * a.in_w + j * c.dilation_w;
    }
    for (int32_t at = threadIdx.x; at < (a.cut.tile_h + a.cut.tile_w) * WORDS; at += THREADS) {
        const int32_t y = at / WORDS, x = y - a.cut.tile_h, w = at % WORDS;
        s.rows[0][at] = x < 0 ? inside_bits(a, w, in_y + y * c.stride_h, c.height, true)
                              : inside_bits(a, w, in_x + x * c.stride_w, c.width, false);
    }
    for (int32_t at = threadIdx.x; at < b.planes * a.cut.span; at += THREADS) {
        const int32_t local = xn_divide(at, a.by_span), f = at - local * a.cut.span;
        const int64_t o =
            (b.plane + local) % c.groups * c.group_out_channels + b.filter + min(f, b.filters - 1);
        s.filters[at].constants = xn_filter_of(a.epilogue, o);
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            s.filters[at].words[w] = __ldg(a.weights + o * WORDS + w);
    }
    xn_wait_for_previous_kernel();
    xn_let_next_kernel_start();
    constexpr bool FEW = KERNEL == 0 || WORDS < 3, MANY = KERNEL == 0 || WORDS >= 3;
    if (WORDS < 3 && c.group_channels == 1)
        stage_pixels<1, 8>(a, b, in_y, in_x, s.pixels);
    else if (MANY && c.group_channels > 4)
        stage_pixels<8, (WORDS < 5 ? 1 : 2)>(a, b, in_y, in_x, s.pixels);
    else if (FEW)
        stage_pixels<4, 2>(a, b, in_y, in_x, s.pixels);
    __syncthreads();
    for (int32_t unit = threadIdx.x; unit < b.planes * a.part; unit += THREADS) {
        const int32_t local = xn_divide(unit, a.by_part);
        const patch_filter<WORDS> *filters = s.filters + local * a.cut.span;
        patch_pixels<WORDS> of;
        find_pixels<WORDS, KERNEL>(a, b, local, unit - local * a.part, s, &of);
        if (!write_outputs<WORDS, false>(a, b, local, of, filters))
            write_outputs<WORDS, true>(a, b, local, of, filters);
    }
}

/* ---- the cut ---- */

/* False when what a block would need does not fit. */
static bool set_args(const xn_conv *c, int64_t images, const patch_cut *cut, patch_args *a) {
    const int64_t in_w = (int64_t)(cut->tile_w - 1) * c->stride_w + xn_cuda_span_w(c) + 1;
    const int64_t in_h = (int64_t)(cut->tile_h - 1) * c->stride_h + xn_cuda_span_h(c) + 1;
    const int32_t words = xn_cuda_patch_words(c->group_channels, c->kernel_h, c->kernel_w);
    if (in_w > MOST_STAGED || in_h > MOST_STAGED || cut->planes * in_w * in_h > MOST_STAGED ||
        cut->planes * (int64_t)c->group_channels * c->height * c->width > INT32_MAX ||
        cut->planes * (int64_t)c->group_out_channels * c->out_height * c->out_width > INT32_MAX / 4)
        return false;
    a->conv = *c;
    a->cut = *cut;
    a->images = images;
    a->in_w = (int32_t)in_w;
    a->in_h = (int32_t)in_h;
    a->staged = a->in_w * a->in_h;
    a->tile = cut->tile_w * cut->tile_h;
    a->part = (a->tile - 1) / PIXELS + 1;
    a->taps = c->kernel_h * c->kernel_w;
    a->word_taps = xn_cuda_patch_taps(c->group_channels, c->kernel_h, c->kernel_w);
    a->lanes_log2 = xn_few_log2(a->in_w < 32 ? a->in_w : 32);
    a->splits = (c->group_out_channels - 1) / cut->span + 1;
    a->tiles_x = (c->out_width - 1) / cut->tile_w + 1;
    a->tiles_y = (c->out_height - 1) / cut->tile_h + 1;
    const int64_t total = (int64_t)cut->planes * cut->span * ((words + 2 + 3) / 4 * 16) +
                          4 * (cut->planes * in_w * in_h * 2 + a->taps +
                               (int64_t)(cut->tile_h + cut->tile_w) * words);
    const int64_t bundles = (images * c->groups - 1) / cut->planes + 1;
    const int64_t tiles = (int64_t)a->tiles_x * a->tiles_y * a->splits;
    if (total > SHARED_LIMIT || tiles > INT32_MAX || bundles > INT32_MAX / tiles)
        return false;
    a->blocks = bundles * tiles;
    a->shared_bytes = (int32_t)total;
    return true;
}

static void set_divisors(patch_args *a) {
    a->reciprocal = 1.0f / (float)a->conv.group_channels;
    a->by_kernel_w = xn_fast_divisor_of(a->conv.kernel_w);
    a->by_span = xn_fast_divisor_of(a->cut.span);
    a->by_in_h = xn_fast_divisor_of(a->in_h);
    a->by_part = xn_fast_divisor_of(a->part);
    a->by_tile_w = xn_fast_divisor_of(a->cut.tile_w);
    a->by_splits = xn_fast_divisor_of(a->splits);
    a->by_tiles_x = xn_fast_divisor_of(a->tiles_x);
    a->by_tiles_y = xn_fast_divisor_of(a->tiles_y);
}

/* What the time of a cut is made of. */
static void terms_of(const patch_args *a, int multiprocessors, double *t) {
    const xn_conv *c = &a->conv;
    const double threads = THREADS, planes = a->cut.planes, span = a->cut.span;
    const double taps = c->kernel_h == 3 && c->kernel_w == 3 ? 0 : a->taps; /* in a loop */
    const int32_t words = xn_cuda_patch_words(c->group_channels, c->kernel_h, c->kernel_w);
    const int32_t channels = c->group_channels == 1 ? 1 : c->group_channels <= 4 ? 4 : 8;
    const int32_t rows = channels == 1 ? 8 : channels == 4 || words >= 5 ? 2 : 1;
    const double fit = fmin(resident(words), floor((227 << 10) / (a->shared_bytes + 1024.0)));
    const double blocks = xn_few_share((double)a->blocks, multiprocessors);
    const double waves = ceil((double)a->blocks / (multiprocessors * fit));
    /* turns of a block's threads */
    const double batches = ceil(planes * a->in_h / (threads / (1 << a->lanes_log2) * rows)) *
                           ceil((double)a->in_w / (1 << a->lanes_log2));
    const double loads = batches * ((c->group_channels - 1) / channels + 1) * channels * rows / 8;
    const double units = ceil(planes * a->part / threads);
    const double kib = (double)a->images *
                       (double)(xn_conv_input_bytes(c) + xn_conv_output_bytes(c)) / 1024 /
                       multiprocessors;
    const double w = waves, b = blocks, u = units;
    t[0] = 1, t[1] = w, t[2] = w * loads, t[3] = w * u, t[4] = w * u * taps, t[5] = w * u * span;
    t[6] = b, t[7] = b * batches, t[8] = b * loads, t[9] = b * u, t[10] = b * u * taps;
    t[11] = b * u * span * words, t[12] = kib;
    t[13] = a->cut.tile_w < c->out_width && kib > L2_KIB ? kib : 0; /* lines in parts */
}

static bool takes(const xn_conv *c) {
    return xn_cuda_patch_words(c->group_channels, c->kernel_h, c->kernel_w) > 0 &&
           (int64_t)c->height + c->pad_top + c->pad_bottom <= MOST_PIXELS &&
           (int64_t)c->width + c->pad_left + c->pad_right <= MOST_PIXELS;
}

static int32_t halved(int32_t size, int32_t times) {
    return ((size - 1) >> times) + 1;
}

/* The cheapest cut: parts of the outputs that were halved several times, with rows of whole sectors
 * of memory, or several planes, and parts of the filters. False where there is none. */
static bool choose(const xn_conv *c, int64_t images, int multiprocessors, patch_cut *out) {
    const int32_t filters = c->group_out_channels;
    double least = INFINITY;
    for (int i = 0; takes(c) && (i == 0 || c->out_width >> i >= 32); i++)
        for (int j = 0; c->out_height >> j; j++)
            for (int k = 0; filters >> k; k++)
                for (int n = 0; n == 0 || (i + j == 0 && n < 6); n++) {
                    const int32_t width = (halved(c->out_width, i) + 7) / 8 * 8;
                    const patch_cut cut = {1 << n, i ? width : c->out_width,
                                           halved(c->out_height, j), halved(filters, k)};
                    patch_args a = {};
                    double t[XN_CUDA_TERMS] = {};
                    if (!set_args(c, images, &cut, &a))
                        continue;
                    terms_of(&a, multiprocessors, t);
                    const double ns = xn_cuda_cost_ns(xn_cuda_costs_patch, t);
                    if (ns < least)
                        least = ns, *out = cut;
                }
    return least < INFINITY;
}

/* ---- the path ---- */

typedef xn_few_state<patch_cut> patch_state;

static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state, double *t) {
    patch_args a = {};
    if (set_args(&job->conv, job->images, &((const patch_state *)state)->cut, &a))
        terms_of(&a, chip->multiprocessors, t);
}

#define KERNEL(WORDS)                                                                              \
    {WORDS, 3, patch_kernel<WORDS, 3>}, {                                                          \
        WORDS, 0, patch_kernel<WORDS, 0>                                                           \
    }
/* The first that takes a problem is the fastest. */
static const struct {
    int32_t words, kernel;
    void (*function)(const patch_args);
} kernels[] = {KERNEL(1), KERNEL(2), KERNEL(3), KERNEL(5), KERNEL(9), {13, 0, patch_kernel<13, 0>}};

static cudaError_t run(xn_cuda_run *r) {
    patch_args a = {};
    if (!set_args(&r->job->conv, r->job->images, &((const patch_state *)r->state)->cut, &a))
        return cudaErrorInvalidConfiguration;
    xn_few_set(&a, r);
    set_divisors(&a);
    for (const auto &k : kernels)
        if (k.words == a.weight_words &&
            (!k.kernel || (k.kernel == a.conv.kernel_h && k.kernel == a.conv.kernel_w)))
            return xn_cuda_launch_with(k.function, (int)a.blocks, THREADS, (size_t)a.shared_bytes,
                                       r->chip->overlaps, r->stream, a);
    return cudaErrorInvalidConfiguration; /* no kernel has that number of words */
}

static cudaError_t load(bool *) {
    cudaError_t e = cudaSuccess;
    for (const auto &k : kernels)
        if (e == cudaSuccess)
            e = xn_cuda_load(k.function);
    return e;
}

const xn_cuda_path xn_cuda_patch_path = {"patch",
                                         XN_CUDA_ANY_CHIP,
                                         sizeof(patch_state),
                                         xn_few_fits<patch_cut, choose>,
                                         terms,
                                         xn_cuda_costs_patch,
                                         NULL,
                                         xn_few_wants,
                                         run,
                                         load};
