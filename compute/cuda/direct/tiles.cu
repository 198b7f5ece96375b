/* tiles.cu: mode xnor for groups of few channels in tiles, of any stride and dilation and on any
 * chip: what few_choose.cu falls back to. It reads each input value once (and the halo between
 * tiles again) and writes each output once; few outputs a thread leave it bound by instructions.
 *
 * A block makes a tile of tile_w x tile_h outputs of one plane (image, group), 4 neighbours a
 * thread. It loads the input tile with its halo, one warp per 32 columns of a row; a ballot packs
 * the signs along the row, and sums of |x| over the channels go to a tile of floats. Each thread
 * then gathers the bits of its 4 patches, in the order of the filters' bits, with masks of the taps
 * inside the image, and for every filter counts
 *     dot = taps inside - 2 popc((patch xor filter) and mask)
 * K is a box sum over the tile of |x|. When there are more multiprocessors than tiles, the filters
 * of a group are divided among o_splits blocks, which load the same tile. */
#include "element.cuh"
#include "launch.cuh"
#include "layout.h"
#include "sliding_window.h"

enum {
    THREADS = XN_CUDA_THREADS,
    WARPS = THREADS / 32,
    WIDTH = 4,           /* outputs of a thread, side by side */
    IN_FLIGHT = 8,       /* loads a warp has in flight */
    PLAIN_SUM_TAPS = 64, /* K over more taps is summed in double */
    SHARED_LIMIT = 48 << 10,
    MIN_SPLIT_FILTERS = 8, /* a block with fewer spends more on its tile than on them */
    MAX_PADDED = 1 << 30,  /* of an axis, so that columns of a tile past its end fit 32 bits */
};

/* The tile: a function of the geometry alone. */
struct few_tile {
    int32_t threads_x;         /* tile_w = 4 threads_x */
    int32_t tile_w, tile_h;    /* outputs */
    int32_t in_w, in_h;        /* inputs with halo */
    int32_t chunks, row_words; /* words of 32 columns; with one more, zero, for windows */
    int32_t quarter;           /* floats in a quarter of a row of the |x| tile */
    int32_t sums_offset;       /* of the |x| tile, in words from the start of shared memory */
    int32_t shared_bytes;
};

struct few_args {
    xn_conv conv;
    few_tile tile;
    const void *input;
    const uint32_t *patches;
    const float *factor, *bias;
    xn_output out;
    int32_t tiles_x, tiles_y, o_splits, o_span;
    int32_t want_k;
};

/* ---- loading the tile ---- */

/* Walks the loads of one warp: channels fastest, then every WARPS-th chunk of 32 columns. */
struct load_walk {
    int32_t channel, chunk, row;
};

__device__ __forceinline__ void load_walk_settle(load_walk *walk, int32_t chunks) {
    while (walk->chunk >= chunks) {
        walk->chunk -= chunks;
        walk->row++;
    }
}

__device__ __forceinline__ void load_walk_next(load_walk *walk, int32_t channels, int32_t chunks) {
    if (++walk->channel == channels) {
        walk->channel = 0;
        walk->chunk += WARPS;
        load_walk_settle(walk, chunks);
    }
}

/* Where this lane's next IN_FLIGHT values lie in the plane; bit u of the result tells that value u
 * is inside the image. */
__device__ __forceinline__ uint32_t locate_values(const few_args &a, int32_t channels, int32_t y0,
                                                  int32_t x0, load_walk walk, int32_t *offsets) {
    const xn_conv &c = a.conv;
    uint32_t inside = 0;
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
        const int32_t column = walk.chunk * 32 + (int32_t)(threadIdx.x & 31);
        const int32_t y = y0 + walk.row, x = x0 + column;
        if (walk.row < a.tile.in_h && column < a.tile.in_w && y >= 0 && y < c.height && x >= 0 &&
            x < c.width)
            inside |= 1u << u;
        offsets[u] = (int32_t)(((uint32_t)walk.channel * (uint32_t)c.height + (uint32_t)y) *
                                   (uint32_t)c.width +
                               (uint32_t)x); /* only used when inside, where it fits */
        load_walk_next(&walk, channels, a.tile.chunks);
    }
    return inside;
}

/* Outside the image |x| counts as 0. */
template <typename T>
__device__ __forceinline__ void load_values(const T *plane, const int32_t *offsets, uint32_t inside,
                                            float *values) {
    T raw[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
        if (inside >> u & 1)
            raw[u] = plane[offsets[u]];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
        values[u] = inside >> u & 1 ? xn_to_fp32(raw[u]) : 0.0f;
}

/* Fills bits[channel][row][row_words] and, when K is wanted, sums[row][4][quarter]. */
__device__ __forceinline__ void load_tile(const few_args &a, int64_t plane, int32_t channels,
                                          int32_t y0, int32_t x0, uint32_t *bits, float *sums) {
    const xn_conv &c = a.conv;
    const few_tile &t = a.tile;
    const int32_t lane = threadIdx.x & 31;
    const int64_t plane_elements = (int64_t)channels * c.height * c.width;
    const uint32_t outside_bit = c.pad_value > 0;
    const float reciprocal = 1.0f / (float)channels;
    for (int32_t r = threadIdx.x; r < channels * t.in_h; r += THREADS)
        bits[r * t.row_words + t.chunks] = 0; /* read by windows, then masked away */

    load_walk walk = {0, (int32_t)(threadIdx.x >> 5), 0};
    load_walk_settle(&walk, t.chunks);
    xn_abs_sum sum = {0.0f, 0.0f};
    while (walk.row < t.in_h) { /* uniform over the warp, as is everything of walk */
        float values[IN_FLIGHT];
        int32_t offsets[IN_FLIGHT];
        const uint32_t inside = locate_values(a, channels, y0, x0, walk, offsets);
        xn_with_input(a.input, c.input_datatype, [&](auto *input) {
            load_values(input + plane * plane_elements, offsets, inside, values);
        });
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (walk.row >= t.in_h)
                break;
            uint32_t bit = inside >> u & 1 ? xn_sign_bit(values[u]) : outside_bit;
            uint32_t word = __ballot_sync(0xffffffffu, bit);
            if (lane == 0)
                bits[(walk.channel * t.in_h + walk.row) * t.row_words + walk.chunk] = word;
            xn_abs_sum_add(&sum, values[u]);
            if (walk.channel == channels - 1) {
                if (a.want_k)
                    sums[walk.row * 4 * t.quarter +
                         xn_cuda_quarter_index(walk.chunk * 32 + lane, t.quarter)] =
                        xn_abs_sum_mean(&sum, channels, reciprocal);
                sum = {0.0f, 0.0f};
            }
            load_walk_next(&walk, channels, t.chunks);
        }
    }
}

/* ---- K ---- */

/* The box sum of one output in double: for many taps, and where fp32 overflowed. */
__device__ __forceinline__ double box_sum_exact(const few_args &a, const float *sums, int32_t row,
                                                int32_t column) {
    double total = 0.0;
    for (int32_t i = 0; i < a.conv.kernel_h; i++)
        for (int32_t j = 0; j < a.conv.kernel_w; j++)
            total += sums[(row + i * a.conv.dilation_h) * 4 * a.tile.quarter +
                          xn_cuda_quarter_index(column + j * a.conv.dilation_w, a.tile.quarter)];
    return total;
}

/* Adds one row of taps to the 4 box sums; with unit stride and dilation every value is read once
 * and slides through the 4 windows. */
template <bool UNIT>
__device__ __forceinline__ void box_row(const few_args &a, const float *row, int32_t kernel_w,
                                        int32_t column, float *box) {
    const int32_t quarter = a.tile.quarter;
    if constexpr (UNIT) {
        float w[WIDTH];
#pragma unroll
        for (int v = 0; v < WIDTH; v++)
            w[v] = row[xn_cuda_quarter_index(column + v, quarter)];
        for (int32_t j = 0;; j++) {
#pragma unroll
            for (int v = 0; v < WIDTH; v++)
                box[v] += w[v];
            if (j == kernel_w - 1)
                break;
#pragma unroll
            for (int v = 0; v < WIDTH - 1; v++)
                w[v] = w[v + 1];
            w[WIDTH - 1] = row[xn_cuda_quarter_index(column + j + WIDTH, quarter)];
        }
    } else {
        for (int32_t j = 0; j < kernel_w; j++)
#pragma unroll
            for (int v = 0; v < WIDTH; v++)
                box[v] += row[xn_cuda_quarter_index(
                    column + v * a.conv.stride_w + j * a.conv.dilation_w, quarter)];
    }
}

/* k[0..3] of the outputs whose windows start at (row, column + v stride) of the tile. */
template <bool UNIT>
__device__ __forceinline__ void box_means(const few_args &a, const float *sums, int32_t kernel_h,
                                          int32_t kernel_w, int32_t row, int32_t column,
                                          int32_t live, float *k) {
    const int32_t taps = kernel_h * kernel_w;
    float box[WIDTH] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (taps <= PLAIN_SUM_TAPS)
        for (int32_t i = 0; i < kernel_h; i++)
            box_row<UNIT>(a, sums + (row + i * a.conv.dilation_h) * 4 * a.tile.quarter, kernel_w,
                          column, box);
#pragma unroll
    for (int v = 0; v < WIDTH; v++) {
        k[v] = box[v] * (1.0f / (float)taps);
        if (v < live && (taps > PLAIN_SUM_TAPS || isinf(box[v])))
            k[v] =
                (float)(box_sum_exact(a, sums, row, column + v * a.conv.stride_w) / (double)taps);
    }
}

/* ---- patches ---- */

/* Concatenates `rows` pieces of kernel_w bits, piece(row), into words. */
template <int WORDS, class Piece>
__device__ __forceinline__ void gather(uint32_t *words, int32_t rows, int32_t kernel_w,
                                       Piece piece) {
    uint64_t buffer = 0;
    int32_t have = 0, row = 0; /* bits in the buffer: never more than 31 + 32 */
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        while (have < 32 && row < rows) {
            buffer |= (uint64_t)piece(row++) << have;
            have += kernel_w;
        }
        words[w] = (uint32_t)buffer;
        buffer >>= 32;
        have = have > 32 ? have - 32 : 0;
    }
}

/* The bits of one output's patch, whose window starts at (row, column) of the tile. */
template <int WORDS>
__device__ __forceinline__ void gather_patch(const few_args &a, const uint32_t *bits, int32_t row,
                                             int32_t column, uint32_t *patch) {
    const xn_conv &c = a.conv;
    int32_t channel = 0, i = 0;
    gather<WORDS>(patch, c.group_channels * c.kernel_h, c.kernel_w, [&](int32_t) {
        const uint32_t *line =
            bits + (channel * a.tile.in_h + row + i * c.dilation_h) * a.tile.row_words;
        if (++i == c.kernel_h) {
            i = 0;
            channel++;
        }
        return xn_cuda_row_taps(line, column, c.dilation_w, c.kernel_w);
    });
}

/* The mask of the taps inside the image, in the same order. */
template <int WORDS>
__device__ __forceinline__ void gather_mask(const xn_conv &c, const xn_cuda_rect &rect,
                                            uint32_t *mask) {
    const uint32_t taps = xn_cuda_bit_range(rect.j0, rect.j1);
    int32_t i = 0;
    gather<WORDS>(mask, c.group_channels * c.kernel_h, c.kernel_w, [&](int32_t) {
        uint32_t line = i >= rect.i0 && i < rect.i1 ? taps : 0u;
        if (++i == c.kernel_h)
            i = 0;
        return line;
    });
}

/* ---- the kernel ---- */

/* Patches, masks and counted taps of a thread's 4 outputs, and their K. */
template <int WORDS>
struct few_work {
    uint32_t patch[WIDTH][WORDS], mask[WIDTH][WORDS];
    int32_t taps[WIDTH];
    float k[WIDTH];
};

/* True when all windows of the 4 outputs lie inside the image, or outside taps count anyway. */
__device__ __forceinline__ bool all_taps_count(const xn_conv &c, int32_t out_y, int32_t out_x) {
    int32_t y = out_y * c.stride_h - c.pad_top, x = out_x * c.stride_w - c.pad_left;
    int32_t last_y = y + (c.kernel_h - 1) * c.dilation_h;
    int32_t last_x = x + (WIDTH - 1) * c.stride_w + (c.kernel_w - 1) * c.dilation_w;
    return c.pad_value != 0 || (y >= 0 && x >= 0 && last_y < c.height && last_x < c.width);
}

template <int WORDS>
__device__ __forceinline__ void make_masks(const few_args &a, int32_t out_y, int32_t out_x,
                                           few_work<WORDS> *work) {
    const xn_conv &c = a.conv;
    if (all_taps_count(c, out_y, out_x)) { /* past the filter's end patches and filters are 0 */
#pragma unroll
        for (int v = 0; v < WIDTH; v++) {
#pragma unroll
            for (int w = 0; w < WORDS; w++)
                work->mask[v][w] = 0xffffffffu;
            work->taps[v] = c.group_channels * c.kernel_h * c.kernel_w;
        }
        return;
    }
#pragma unroll
    for (int v = 0; v < WIDTH; v++) {
        const xn_cuda_rect rect = xn_cuda_valid_rect(&c, out_y, out_x + v);
        gather_mask<WORDS>(c, rect, work->mask[v]);
        work->taps[v] = c.group_channels * xn_cuda_rect_taps(&rect);
    }
}

/* Any kernel of this path. */
template <int WORDS>
__device__ __forceinline__ void prepare_any(const few_args &a, const uint32_t *bits,
                                            const float *sums, int32_t row, int32_t column,
                                            int32_t live, few_work<WORDS> *work) {
    const xn_conv &c = a.conv;
#pragma unroll
    for (int v = 0; v < WIDTH; v++) {
        gather_patch<WORDS>(a, bits, row, column + v * c.stride_w, work->patch[v]);
        work->k[v] = 1.0f;
    }
    if (!a.want_k)
        return;
    if (c.stride_w == 1 && c.dilation_w == 1)
        box_means<true>(a, sums, c.kernel_h, c.kernel_w, row, column, live, work->k);
    else
        box_means<false>(a, sums, c.kernel_h, c.kernel_w, row, column, live, work->k);
}

/* One channel, 3 x 3, unit stride and dilation: everything of fixed length. */
__device__ __forceinline__ void prepare_3x3(const few_args &a, const uint32_t *bits,
                                            const float *sums, int32_t row, int32_t column,
                                            int32_t live, few_work<1> *work) {
    uint64_t window[3];
#pragma unroll
    for (int i = 0; i < 3; i++)
        window[i] = xn_cuda_row_window(bits + (row + i) * a.tile.row_words, column);
#pragma unroll
    for (int v = 0; v < WIDTH; v++) {
        work->patch[v][0] = ((uint32_t)window[0] >> v & 7u) | ((uint32_t)window[1] >> v & 7u) << 3 |
                            ((uint32_t)window[2] >> v & 7u) << 6;
        work->k[v] = 1.0f;
    }
    if (a.want_k)
        box_means<true>(a, sums, 3, 3, row, column, live, work->k);
}

template <int WORDS>
__device__ __forceinline__ void write_outputs(const few_args &a, const few_work<WORDS> &work,
                                              int64_t plane, int32_t o_first, int32_t out_y,
                                              int32_t out_x, int32_t live) {
    const xn_conv &c = a.conv;
    const int32_t group = (int32_t)(plane % c.groups);
    const int32_t o_last = min(o_first + a.o_span, c.group_out_channels);
    for (int32_t o = o_first; o < o_last; o++) {
        const int64_t filter = (int64_t)group * c.group_out_channels + o;
        const int64_t index =
            ((plane * c.group_out_channels + o) * c.out_height + out_y) * c.out_width + out_x;
        const float factor = xn_factor_of(a.factor, filter), bias = xn_bias_of(a.bias, filter);
        int32_t differ[WIDTH] = {0, 0, 0, 0}, dots[WIDTH];
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            uint32_t bits = __ldg(a.patches + filter * WORDS + w);
#pragma unroll
            for (int v = 0; v < WIDTH; v++)
                differ[v] += __popc((work.patch[v][w] ^ bits) & work.mask[v][w]);
        }
#pragma unroll
        for (int v = 0; v < WIDTH; v++)
            dots[v] = xn_dot_from_xor(work.taps[v], differ[v]);
        if (live == WIDTH && index % WIDTH == 0) {
            xn_store_4_dots(a.out, index, dots, factor, work.k, bias);
        } else {
#pragma unroll
            for (int v = 0; v < WIDTH; v++)
                if (v < live)
                    xn_store_dot(a.out, index + v, dots[v], factor, work.k[v], bias);
        }
    }
}

/* WORDS: of a patch. SIMPLE: one channel, 3 x 3, unit stride and dilation. */
template <int WORDS, bool SIMPLE>
__global__ void __launch_bounds__(THREADS) few_kernel(const __grid_constant__ few_args a) {
    extern __shared__ uint32_t shared[];
    const xn_conv &c = a.conv;
    const few_tile &t = a.tile;
    uint32_t *bits = shared;
    float *sums = (float *)(shared + t.sums_offset);
    int32_t block = (int32_t)blockIdx.x;
    const int32_t o_first = block % a.o_splits * a.o_span;
    block /= a.o_splits;
    const int32_t tile_x = block % a.tiles_x * t.tile_w;
    block /= a.tiles_x;
    const int32_t tile_y = block % a.tiles_y * t.tile_h;
    const int64_t plane = block / a.tiles_y;

    load_tile(a, plane, SIMPLE ? 1 : c.group_channels, tile_y * c.stride_h - c.pad_top,
              tile_x * c.stride_w - c.pad_left, bits, sums);
    __syncthreads();

    const int32_t x = (int32_t)threadIdx.x % t.threads_x * WIDTH;
    const int32_t live = min(c.out_width - tile_x - x, (int32_t)WIDTH);
    const int32_t height = min(t.tile_h, c.out_height - tile_y);
    if (live <= 0)
        return;
    for (int32_t y = (int32_t)threadIdx.x / t.threads_x; y < height; y += THREADS / t.threads_x) {
        few_work<WORDS> work;
        if constexpr (SIMPLE)
            prepare_3x3(a, bits, sums, y, x, live, &work);
        else
            prepare_any<WORDS>(a, bits, sums, y * c.stride_h, x * c.stride_w, live, &work);
        make_masks<WORDS>(a, tile_y + y, tile_x + x, &work);
        write_outputs<WORDS>(a, work, plane, o_first, tile_y + y, tile_x + x, live);
    }
}

/* ---- launcher ---- */

static few_tile make_tile(const xn_conv *c, int32_t threads_x, int32_t rounds) {
    few_tile t = {};
    t.threads_x = threads_x;
    t.tile_w = threads_x * WIDTH;
    t.tile_h = THREADS / threads_x * rounds;
    int64_t in_w =
        (int64_t)(t.tile_w - 1) * c->stride_w + (int64_t)(c->kernel_w - 1) * c->dilation_w + 1;
    int64_t in_h =
        (int64_t)(t.tile_h - 1) * c->stride_h + (int64_t)(c->kernel_h - 1) * c->dilation_h + 1;
    int64_t chunks = (in_w + 31) / 32;
    bool want_k = c->epilogue.k;
    if (in_w > SHARED_LIMIT || in_h > SHARED_LIMIT)
        return t; /* shared_bytes 0: does not fit */
    int64_t words = c->group_channels * in_h * (chunks + 1);
    int64_t bytes = 4 * (words + (want_k ? in_h * 32 * chunks : 0));
    if (bytes > SHARED_LIMIT)
        return t;
    t.in_w = (int32_t)in_w;
    t.in_h = (int32_t)in_h;
    t.chunks = (int32_t)chunks;
    t.row_words = (int32_t)chunks + 1;
    t.quarter = (int32_t)chunks * 8;
    t.sums_offset = (int32_t)words;
    t.shared_bytes = (int32_t)bytes;
    return t;
}

static int64_t tile_count(const xn_conv *c, const few_tile *t, int64_t images) {
    int64_t x = (c->out_width - 1) / t->tile_w + 1, y = (c->out_height - 1) / t->tile_h + 1;
    return x * y * images * c->groups;
}

/* The widest tile that is not mostly empty and fits; shared_bytes is 0 when none does. */
static few_tile widest_tile(const xn_conv *c) {
    int32_t threads_x = c->out_width > 64 ? 32 : c->out_width > 32 ? 16 : 8;
    few_tile t = make_tile(c, threads_x, 1);
    while (!t.shared_bytes && threads_x > 8)
        t = make_tile(c, threads_x /= 2, 1);
    return t;
}

/* The same with two rounds a thread when there are blocks enough: it loads less halo. */
static few_tile choose_tile(const xn_conv *c, int64_t images, int multiprocessors) {
    few_tile narrow = widest_tile(c), high = make_tile(c, narrow.threads_x, 2);
    bool enough = tile_count(c, &high, images) >= 8 * (int64_t)multiprocessors;
    return high.shared_bytes && enough ? high : narrow;
}

bool xn_cuda_few_tile_fits(const xn_conv *c, int64_t images) {
    if (!xn_cuda_patch_words(c->group_channels, c->kernel_h, c->kernel_w) ||
        (int64_t)c->group_channels * c->height * c->width > INT32_MAX ||
        (int64_t)c->height + c->pad_top + c->pad_bottom > MAX_PADDED ||
        (int64_t)c->width + c->pad_left + c->pad_right > MAX_PADDED)
        return false;
    few_tile t = widest_tile(c);
    return t.shared_bytes && tile_count(c, &t, images) <= INT32_MAX;
}

typedef void (*few_function)(const few_args);

static few_function choose_kernel(const xn_conv *c) {
    bool simple = c->group_channels == 1 && c->kernel_h == 3 && c->kernel_w == 3 &&
                  c->stride_h == 1 && c->stride_w == 1 && c->dilation_h == 1 && c->dilation_w == 1;
    switch (xn_cuda_patch_words(c->group_channels, c->kernel_h, c->kernel_w)) {
    case 1:
        return simple ? few_kernel<1, true> : few_kernel<1, false>;
    case 2:
        return few_kernel<2, false>;
    case 3:
        return few_kernel<3, false>;
    case 5:
        return few_kernel<5, false>;
    default:
        return few_kernel<8, false>;
    }
}

cudaError_t xn_cuda_few_tile_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                    const xn_cuda_few_io *io, const xn_cuda_epilogue_args *epilogue,
                                    cudaStream_t stream) {
    few_args a = {};
    a.conv = *conv;
    a.tile = choose_tile(conv, images, multiprocessors);
    a.input = io->input;
    a.patches = io->patches;
    a.factor = epilogue->factor;
    a.bias = epilogue->bias;
    a.out = {epilogue->output, conv->epilogue.datatype};
    a.want_k = conv->epilogue.k;
    a.tiles_x = (conv->out_width - 1) / a.tile.tile_w + 1;
    a.tiles_y = (conv->out_height - 1) / a.tile.tile_h + 1;

    int64_t tiles = tile_count(conv, &a.tile, images), wanted = 2 * (int64_t)multiprocessors;
    int64_t splits = tiles < wanted ? (wanted + tiles - 1) / tiles : 1;
    int64_t most = (conv->group_out_channels + MIN_SPLIT_FILTERS - 1) / MIN_SPLIT_FILTERS;
    splits = splits < most ? splits : most;
    a.o_span = (int32_t)((conv->group_out_channels + splits - 1) / splits);
    a.o_splits = (conv->group_out_channels - 1) / a.o_span + 1;
    int64_t blocks = tiles * a.o_splits;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidConfiguration; /* xn_cuda_few_tile_fits said so */
    return xn_cuda_launch(choose_kernel(conv), (int)blocks, THREADS, (size_t)a.tile.shared_bytes,
                          stream, a);
}

cudaError_t xn_cuda_few_tile_load(void) {
    const few_function all[] = {few_kernel<1, true>,  few_kernel<1, false>, few_kernel<2, false>,
                                few_kernel<3, false>, few_kernel<5, false>, few_kernel<8, false>};
    for (few_function kernel : all) {
        cudaError_t e = xn_cuda_load(kernel);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
