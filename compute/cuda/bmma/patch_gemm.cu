/* patch_gemm.cu: groups of few channels by the matrix units of sm_80 and later, in one pass: any
 * stride, dilation and kernel whose patch is a few hundred bits; and, several groups at a time as
 * one whose filters are zero outside their own channels, depth-wise layers too.
 *
 * A block makes a tile of outputs of one image and of up to MAX_SPAN filters:
 *
 * 1. It reads the tile's inputs, runs of pixels or single ones, and packs the signs of a pixel's
 *    channels into a field of 1 to 32 bits. Fields lie along the row, so that the taps of a kernel
 *    row are neighbouring bits (with dilation d, columns are ordered by their remainder modulo d
 *    first). There are two such images: `positive`, the bits of signs +1, and `negative`, those of
 *    -1. Taps outside are in neither where pad_value is 0, so nothing further knows of borders but
 *    the number of taps inside. The sum of |x| goes beside them.
 * 2. Filters are laid out in the same order of bits, and once more inverted, while the kernel ahead
 *    still runs.
 * 3. K's sums (epilogue.cuh): the means, their sums along the rows, the sums of these.
 * 4. A warp takes 16 outputs at a time. Their patches' words are unaligned windows of the rows, one
 *    funnel shift each, straight into the fragment that the matrix instruction multiplies with 16
 *    filters:
 *        agreeing = popc(positive and w) + popc(negative and not w),  dot = 2 agreeing - taps
 *    The accumulator starts as the bits of 2^23, so that it ends as the float 2^23 + agreeing.
 *    Where outputs are too few for all warps, several share the filters.
 *
 * Bound by reading the input and writing the output when there are several filters a channel, by
 * the instructions of steps 1 and 3 for depth-wise layers. */
#include "costs.h"
#include "launch.cuh"
#include "patch_gemm_stage.cuh"
#include "paths.h"
#include "ptx.cuh"

#include <math.h>

enum {
    ROWS = 16, /* filters, and outputs of a warp, of one matrix instruction and of two */
    MAX_SPAN = 128,
    MAX_TILE = 1024,
    RESIDENT = 5, /* blocks of a multiprocessor, as registers allow; more where patches are small */
    SHARED_LIMIT = 48 << 10,
    MAX_KERNEL = 32,
    MAX_STAGED = 1 << 14, /* rows and columns */
};

/* ---- 4: outputs ---- */

/* Four outputs side by side. */
struct patch_quad {
    float box[4], taps[4];
    int32_t live;  /* how many exist */
    int64_t index; /* in its plane */
};

__device__ __forceinline__ void load_quad(const float *from, float (&to)[4]) {
    const float4 v = *(const float4 *)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

__device__ __forceinline__ patch_quad find_quad(const patch_args &a, const patch_block &b,
                                                int32_t p) {
    const xn_conv &c = a.conv;
    const int32_t tile = a.cut.tile_w * a.cut.tile_h;
    patch_quad q;
    if (a.cut.tile_w == c.out_width) { /* a run of outputs */
        q.index = (int64_t)b.out_y * c.out_width + p;
        q.live = min(4, min(tile, (c.out_height - b.out_y) * c.out_width) - p);
    } else {
        const int32_t y = xn_divide(p, a.shape.by_tile_w), x = p - y * a.cut.tile_w;
        q.index = (int64_t)(b.out_y + y) * c.out_width + b.out_x + x;
        q.live = p < tile && b.out_y + y < c.out_height ? min(4, c.out_width - b.out_x - x) : 0;
    }
    return q;
}

/* The outputs of one filter; agreeing as floats from 2^23 on. False where one is not finite. */
__device__ __forceinline__ bool write_quad(const patch_args &a, const patch_quad &q,
                                           const patch_filter &f, int64_t index, bool vector,
                                           const float *agreeing) {
    float v[4];
#pragma unroll
    for (int n = 0; n < 4; n++)
        v[n] = xn_value(fmaf(agreeing[n] - 0x1p23f, 2.0f, -q.taps[n]), q.box[n], f.constants);
    xn_few_store(a.epilogue, index, vector, q.live, v);
    return isfinite(fabsf(v[0]) + fabsf(v[1]) + fabsf(v[2]) + fabsf(v[3]));
}

/* Where the words of this thread's part of a fragment lie, from a patch's first word on. */
template <int STEPS>
__device__ __forceinline__ void find_words(const int32_t *offsets, int32_t (&offset)[STEPS][2]) {
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        const int2 v = *(const int2 *)(offsets + k * STEP + (int32_t)(threadIdx.x & 3) * 2);
        offset[k][0] = v.x, offset[k][1] = v.y;
    }
}

/* Both instructions' columns, 16 outputs from p on: column g of instruction n is output
 * 4 (g / 2) + 2 n + g % 2, so that a thread's four results are neighbours. */
template <int STEPS>
__device__ __forceinline__ void load_patches(const patch_args &a, const uint32_t *rows, int32_t p,
                                             const int32_t (&offset)[STEPS][2],
                                             uint32_t (&patch)[2][STEPS][2]) {
    const int32_t g = (threadIdx.x & 31) >> 2, tile = a.cut.tile_w * a.cut.tile_h;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const int32_t at = min(p + (g >> 1) * 4 + n * 2 + (g & 1), tile - 1);
        const int32_t y = xn_divide(at, a.shape.by_tile_w), x = at - y * a.cut.tile_w;
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

/* The outputs that this thread's warp makes of a block's, by the definition. It finds the block
 * again, so that callers need not keep it. */
[[maybe_unused]] static __device__ __noinline__ void outputs_again(const patch_args &a) {
    const xn_conv &c = a.conv;
    const patch_block b = find_block(a);
    const int32_t tile = a.cut.tile_w * a.cut.tile_h, warp = (int32_t)threadIdx.x >> 5;
    const int32_t log2 = a.shape.sharers_log2, lane = threadIdx.x & 31;
    const int32_t part = warp & ((1 << log2) - 1);
    __syncwarp(); /* what its lanes have stored is overwritten by others */
#pragma unroll 1
    for (int32_t e = lane; e < tile * b.filters; e += 32) {
        const int32_t at = e / b.filters, f = e - at * b.filters;
        const patch_quad q = find_quad(a, b, at & ~3);
        if (at / ROWS % (WARPS >> log2) != warp >> log2 || f / ROWS % (1 << log2) != part ||
            (at & 3) >= q.live)
            continue;
        const int32_t o = b.group * c.group_out_channels + b.filter + f;
        const int64_t group = b.image * c.groups + xn_divide(o, a.shape.by_filters);
        const int64_t index = q.index + (at & 3);
        const int32_t y = (int32_t)(index / c.out_width), x = (int32_t)(index % c.out_width);
        const float v = xn_few_again(a, o, group * c.group_channels * c.height * c.width,
                                     y * c.stride_h - c.pad_top, x * c.stride_w - c.pad_left);
        const int64_t outputs = (int64_t)c.out_height * c.out_width;
        xn_store_reals(a.epilogue, (b.image * c.out_channels + o) * outputs + index, {v});
    }
}

/* A warp takes every so many of the tile's outputs, 16 at a time, with all filters or every so many
 * of them. */
template <int STEPS>
__device__ __forceinline__ void
make_outputs(const patch_args &a, const patch_block &b, int32_t span, const uint32_t *rows,
             const int32_t *offsets, const uint32_t *filters, const patch_filter *info,
             const float *box, const float *taps) {
    const xn_conv &c = a.conv;
    const int32_t tile = a.cut.tile_w * a.cut.tile_h, lane = threadIdx.x & 31, g = lane >> 2;
    const int32_t warp = (int32_t)threadIdx.x >> 5, log2 = a.shape.sharers_log2;
    const int32_t first_filter = (warp & ((1 << log2) - 1)) * ROWS;
    const int64_t outputs = (int64_t)c.out_height * c.out_width;
    const int64_t first = (b.image * c.out_channels + (int64_t)b.group * c.group_out_channels +
                           b.filter + first_filter + g) *
                          outputs;
    const int64_t step = (ROWS << log2) * outputs;
    const bool several = a.cut.together > 1;
    bool finite = true;
    int32_t offset[STEPS][2];
    find_words<STEPS>(offsets, offset);
#pragma unroll 1
    for (int32_t p = (warp >> log2) * ROWS; p < tile; p += (WARPS >> log2) * ROWS) {
        uint32_t patch[2][STEPS][2];
        load_patches<STEPS>(a, rows, p, offset, patch);
        const int32_t at = p + (lane & 3) * 4;
        patch_quad q = find_quad(a, b, at);
        const bool vector = ((outputs | q.index) & 3) == 0;
        load_quad(taps + at, q.taps);
        load_quad(box + at, q.box);
        int64_t index = first + q.index;
#pragma unroll 1
        for (int32_t m = first_filter; m < span; m += ROWS << log2, index += step) {
            int32_t counts[2][4];
            multiply<STEPS>(filters + m * STEP, span, patch, counts);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int32_t f = m + g + h * 8;
                if (f >= b.filters)
                    continue;
                if (several)
                    load_quad(box + info[f].group * a.shape.tile + at, q.box);
                const float agreeing[4] = {
                    __int_as_float(counts[0][h * 2]), __int_as_float(counts[0][h * 2 + 1]),
                    __int_as_float(counts[1][h * 2]), __int_as_float(counts[1][h * 2 + 1])};
                if (!write_quad(a, q, info[f], index + h * 8 * outputs, vector, agreeing))
                    finite = false;
            }
        }
    }
    if (__any_sync(0xffffffffu, !finite))
        outputs_again(a);
}

/* With small patches registers are enough for more blocks, which hide each other's waiting. */
constexpr int resident(int steps) {
    return steps <= 3 ? 7 : RESIDENT;
}

template <int STEPS, int DATATYPE>
__global__ void __launch_bounds__(THREADS, resident(STEPS))
    patch_kernel(const __grid_constant__ patch_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(16) char shared[];
    const patch_shape &s = a.shape;
    const int32_t span = (a.cut.span + ROWS - 1) / ROWS * ROWS;
    uint32_t *rows = (uint32_t *)shared, *filters = (uint32_t *)(shared + s.filters_at);
    patch_filter *info = (patch_filter *)(shared + s.info_at);
    float *sums = (float *)(shared + s.sums_at), *lines = (float *)(shared + s.lines_at);
    float *box = (float *)(shared + s.k_at), *taps = (float *)(shared + s.taps_at);
    int32_t *offsets = (int32_t *)(shared + s.offsets_at);
    const patch_block b = find_block(a);
    stage_filters(a, b, span, filters, info);
    stage_offsets(a, offsets);
    xn_wait_for_previous_kernel();
    xn_let_next_kernel_start();
    const int64_t first = (b.image * a.conv.channels + (int64_t)b.group * a.conv.group_channels) *
                          a.conv.height * a.conv.width;
    if constexpr (DATATYPE == XN_FP32)
        stage_inputs(a, b, patch_input<float>{(const float *)a.input, first}, rows, sums);
    else if constexpr (DATATYPE == XN_FP16)
        stage_inputs(a, b, patch_input<__half>{(const __half *)a.input, first}, rows, sums);
    else
        stage_inputs(a, b, patch_any_input{a.input, first, a.conv.input_datatype}, rows, sums);
    __syncthreads();
    if (a.conv.epilogue.k) {
        if (s.layers > 1) { /* of one group */
            join_layers(a, sums);
            __syncthreads();
        }
        make_lines(a, b, sums, lines);
        __syncthreads();
    }
    make_pixels(a, b, lines, box, taps);
    __syncthreads();
    make_outputs<STEPS>(a, b, span, rows, offsets, filters, info, box, taps);
#else
    (void)a;
    __trap();
#endif
}

/* ---- the cut ---- */

static int32_t place(int64_t *total, int64_t bytes) {
    const int64_t at = *total;
    *total += (bytes + 15) / 16 * 16;
    return (int32_t)at;
}

static bool takes(const xn_conv *c) {
    return xn_few_takes(c) && c->group_channels <= MOST_CHANNELS && c->kernel_h <= MAX_KERNEL &&
           c->kernel_w <= MAX_KERNEL && (int64_t)c->channels * c->height * c->width <= INT32_MAX &&
           (int64_t)c->out_height * c->out_width <= INT32_MAX &&
           (int64_t)c->height + c->pad_top + c->pad_bottom <= 1 << 30 &&
           (int64_t)c->width + c->pad_left + c->pad_right <= 1 << 30;
}

/* What the kernel would else work out in every thread. */
static void finish_shape(const xn_conv *c, const patch_cut *cut, patch_shape *s) {
    const int32_t last_bits = (c->kernel_w << s->field_log2) - (s->parts - 1) * 32;
    for (int32_t bit = 0; bit < 32; bit += 1 << s->field_log2)
        s->part_mask |= xn_cuda_low_bits(c->group_channels) << bit;
    s->last_mask = s->part_mask & xn_cuda_low_bits(last_bits);
    s->channel_reciprocal = 1.0f / (float)c->group_channels;
    s->staged_reciprocal = s->layers > 1 ? 1.0f : s->channel_reciprocal;
    s->by_tile_w = xn_fast_divisor_of(cut->tile_w);
    s->by_tile = xn_fast_divisor_of(s->tile);
    s->by_width = xn_fast_divisor_of(s->width);
    s->by_phase_w = xn_fast_divisor_of(s->phase_w);
    s->by_parts = xn_fast_divisor_of(s->parts);
    s->by_filters = xn_fast_divisor_of(c->group_out_channels);
    s->by_splits = xn_fast_divisor_of(s->splits);
    s->by_tiles_x = xn_fast_divisor_of(s->tiles_x);
    s->by_tiles_y = xn_fast_divisor_of(s->tiles_y);
    s->by_bundles = xn_fast_divisor_of(s->bundles);
    s->by_tasks_across = xn_fast_divisor_of(s->tasks_across);
    s->by_in_h = xn_fast_divisor_of(s->in_h);
    s->by_line_blocks = xn_fast_divisor_of(s->line_blocks);
}

/* How inputs are read: by runs of pixels (patch_task) where rows are whole ones in memory, and
 * each has all of a group's channels or 8 of them. */
static void make_runs(const xn_conv *c, const patch_cut *cut, patch_shape *s) {
    const bool own_kernel = c->input_datatype == XN_FP32 || c->input_datatype == XN_FP16;
    const bool whole = cut->together == 1 || (c->group_channels <= OCTET &&
                                              (c->group_channels & (c->group_channels - 1)) == 0);
    s->run_field = s->field_log2 < 3 ? s->field_log2 : 3;
    s->octets = (s->channels - 1) / OCTET + 1;
    const bool runs = own_kernel && whole && c->dilation_w == 1 && c->width % RUN == 0;
    s->run = runs ? RUN : 1;
    s->run_pixels = runs && s->run_field >= 2 ? RUN : 8;
    s->lead = (s->run - c->pad_left % s->run) % s->run;
    s->layers = runs && cut->together == 1 ? s->octets : 1;
    s->layer_channels = runs && cut->together == 1 ? 1 << s->run_field : c->group_channels;
    s->octet_layers = s->run_field < 3 ? 0 : OCTET / s->layer_channels;
}

/* False when what a block would need does not fit. */
static bool make_shape(const xn_conv *c, int64_t images, const patch_cut *cut, patch_shape *out) {
    patch_shape s = {};
    const bool want_k = c->epilogue.k;
    const int64_t in_w =
        (int64_t)(cut->tile_w - 1) * c->stride_w + (int64_t)(c->kernel_w - 1) * c->dilation_w + 1;
    const int64_t in_h =
        (int64_t)(cut->tile_h - 1) * c->stride_h + (int64_t)(c->kernel_h - 1) * c->dilation_h + 1;
    if (in_w > MAX_STAGED || in_h > MAX_STAGED)
        return false;
    s.channels = cut->together * c->group_channels;
    s.filters = cut->together * c->group_out_channels;
    s.field_log2 = xn_few_log2(s.channels);
    s.in_w = (int32_t)in_w;
    s.in_h = (int32_t)in_h;
    s.line_blocks = (s.in_h - 1) / LINES + 1;
    s.phase_w = (s.in_w - 1) / c->dilation_w + 1;
    make_runs(c, cut, &s);
    s.width = (s.lead + s.phase_w * c->dilation_w + s.run_pixels - 1) / s.run_pixels * s.run_pixels;
    s.tasks_across = s.width / s.run_pixels;
    s.pitch = ((s.width << s.field_log2) - 1) / 32 + 2;
    s.parts = ((c->kernel_w << s.field_log2) - 1) / 32 + 1;
    s.words = s.parts * c->kernel_h;
    s.steps = (2 * s.words - 1) / STEP + 1;
    if (s.steps > MAX_STEPS)
        return false;
    s.steps = s.steps == 5 ? 6 : s.steps;
    s.items = s.steps * STEP - s.words;
    s.item_lanes_log2 = xn_few_log2(s.items < 32 ? s.items : 32);
    s.tiles_x = (c->out_width - 1) / cut->tile_w + 1;
    s.tiles_y = (c->out_height - 1) / cut->tile_h + 1;
    s.splits = cut->together > 1 ? 1 : (s.filters - 1) / cut->span + 1;
    s.bundles = (c->groups - 1) / cut->together + 1;
    s.tile = (cut->tile_w * cut->tile_h + ROWS - 1) / ROWS * ROWS;
    const int64_t staged = in_h * s.width;
    const int32_t span = (cut->span + ROWS - 1) / ROWS * ROWS;
    while ((s.tile / ROWS << s.sharers_log2) < WARPS && 1 << s.sharers_log2 < span / ROWS)
        s.sharers_log2++;
    s.k_sharers = THREADS / s.tile < cut->together ? THREADS / s.tile : cut->together;
    s.k_sharers = s.k_sharers > 1 ? s.k_sharers : 1;
    int64_t total = 0;
    place(&total, 2 * in_h * s.pitch * 4);
    s.filters_at = place(&total, (int64_t)s.steps * span * STEP * 4);
    s.info_at = place(&total, span * (int64_t)sizeof(patch_filter));
    s.sums_at = place(&total, want_k ? cut->together * s.layers * staged * 4 : 0);
    s.lines_at = place(&total, want_k ? cut->together * in_h * cut->tile_w * 4 : 0);
    s.k_at = place(&total, (int64_t)cut->together * s.tile * 4);
    s.taps_at = place(&total, (int64_t)s.tile * 4);
    s.offsets_at = place(&total, s.steps * STEP * 4);
    if (total > SHARED_LIMIT ||
        images * s.bundles > INT32_MAX / ((int64_t)s.tiles_x * s.tiles_y * s.splits))
        return false;
    s.shared_bytes = (int32_t)total;
    *out = s;
    return true;
}

/* Groups until they have 16 filters, as far as their channels fit; the choice tries half of them
 * too. */
static int32_t choose_together(const xn_conv *c) {
    int32_t together = 1;
    while (together * c->group_out_channels < ROWS && together < c->groups &&
           2 * together * c->group_channels <= ROWS)
        together *= 2;
    return together;
}

/* The instructions of a warp that stages inputs, with what it waits for them. */
static double staging_of(const patch_shape *s) {
    const double pixels = (double)s->in_h * s->width;
    if (s->run == 1)
        return ceil(pixels / THREADS) * (230 + 7.4 * s->channels);
    const double channels = s->run_field == 3 ? OCTET : s->channels;
    const double tasks = pixels / s->run_pixels * (s->run_field == 3 ? s->octets : 1);
    return ceil(tasks / THREADS) * (70 + 5.7 * s->run_pixels * channels);
}

/* What a cut amounts to. */
struct patch_load {
    double work;   /* instructions of a block's warp */
    double blocks; /* of a multiprocessor */
    double waves;  /* of blocks that are resident together */
};

static patch_load load_of(const xn_conv *c, int64_t images, int multiprocessors,
                          const patch_shape *s, const patch_cut *cut) {
    const double shared_bytes = 227 << 10, threads = THREADS;
    const int32_t warps = WARPS >> s->sharers_log2; /* that share no outputs */
    const double lines = ceil((double)cut->together * cut->tile_h * s->width / threads);
    const double pixels = ceil((double)s->k_sharers * s->tile / threads) *
                          (50 + 30 * ceil((double)cut->together / s->k_sharers));
    const double rows = ceil((double)(s->tile / ROWS) / warps);
    const double spans = ceil((double)((cut->span - 1) / ROWS + 1) / (1 << s->sharers_log2));
    const double blocks = (double)images * s->bundles * s->tiles_x * s->tiles_y * s->splits;
    const double resident = fmin(RESIDENT, floor(shared_bytes / (s->shared_bytes + 1024)));
    patch_load l;
    l.work = 160 + staging_of(s) + lines * (31 + 20 * c->kernel_h * s->layers) + pixels +
             rows * (45 + 22 * s->steps + spans * (136 + 3.2 * s->steps));
    l.blocks = ceil(blocks / multiprocessors);
    l.waves = ceil(blocks / (multiprocessors * resident));
    return l;
}

/* By which cuts are compared: the instructions of a multiprocessor's blocks, and how long one block
 * takes from its first load to its last store. The weights were fitted to 1,980 timed cuts of 60
 * problems, when K was summed down the rows first: off by 8% (standard deviation within a problem),
 * and what it chooses takes 2% longer than the best of the cuts tried. */
static double cost_of(const patch_load &l) {
    const double issue = 4.9, chain = 5500 + 9.3 * l.work;
    return l.blocks * l.work * WARPS / issue + chain * (0.12 + 0.3 * l.waves);
}

/* The tile of about so many rows, evenly. */
static int32_t even_rows(const xn_conv *c, int32_t rows) {
    const int32_t down = (c->out_height - 1) / rows + 1;
    return (c->out_height - 1) / down + 1;
}

/* All filters of a block's groups; of one group also shares of them, for more blocks. */
static void try_spans(const xn_conv *c, int64_t images, int multiprocessors, patch_cut cut,
                      double *least, patch_cut *best) {
    const int32_t filters = cut.together * c->group_out_channels;
    const int32_t splits = (filters - 1) / MAX_SPAN + 1;
    for (cut.span = (filters - 1) / splits + 1;;
         cut.span = (cut.span / 2 + ROWS - 1) / ROWS * ROWS) {
        patch_shape s;
        if (cut.tile_w * cut.tile_h <= MAX_TILE && make_shape(c, images, &cut, &s)) {
            const double cost = cost_of(load_of(c, images, multiprocessors, &s, &cut));
            if (*least == 0 || cost < *least) {
                *least = cost;
                *best = cut;
            }
        }
        if (cut.together > 1 || cut.span <= ROWS)
            break;
    }
}

/* The cut for this problem; false where the kernel does not take it. */
static bool choose(const xn_conv *c, int64_t images, int multiprocessors, patch_cut *out) {
    static const int32_t heights[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 24, 32, 64};
    static const int32_t widths[] = {16, 32, 64, 128};
    patch_cut cut = {};
    double least = 0;
    if (!takes(c))
        return false;
    const int32_t most = choose_together(c), fewest = (most + 1) / 2;
    for (cut.together = most; cut.together >= fewest; cut.together /= 2)
        for (int32_t height : heights) {
            if (height > c->out_height)
                break;
            cut.tile_h = even_rows(c, height);
            cut.tile_w = c->out_width;
            try_spans(c, images, multiprocessors, cut, &least, out);
            for (int32_t width : widths) {
                cut.tile_w = width;
                if (width < c->out_width)
                    try_spans(c, images, multiprocessors, cut, &least, out);
            }
        }
    return least > 0;
}

typedef void (*patch_function)(const patch_args);
#define KERNELS(STEPS)                                                                             \
    {                                                                                              \
        STEPS, {                                                                                   \
            patch_kernel<STEPS, XN_FP32>, patch_kernel<STEPS, XN_FP16>,                            \
                patch_kernel<STEPS, XN_BF16>                                                       \
        }                                                                                          \
    }
static const struct {
    int32_t steps;
    patch_function function[3]; /* fp32, fp16 and the rest */
} kernels[] = {KERNELS(1), KERNELS(2), KERNELS(3), KERNELS(4), KERNELS(6)};

/* ---- the path ---- */

struct patch_state {
    int64_t images;
    patch_cut cut;
};

static bool fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *out) {
    patch_state *s = (patch_state *)out;
    s->images = job->images;
    return xn_cuda_is_plain(job) && choose(&job->conv, job->images, chip->multiprocessors, &s->cut);
}

static void terms(const xn_cuda_job *job, const xn_cuda_chip *chip, const void *state, double *t) {
    const xn_conv *c = &job->conv;
    const patch_cut *cut = &((const patch_state *)state)->cut;
    patch_shape s;
    if (!make_shape(c, job->images, cut, &s))
        return;
    const patch_load l = load_of(c, job->images, chip->multiprocessors, &s, cut);
    t[0] = 1;
    t[1] = l.work; /* of one block */
    t[2] = l.work * l.waves;
    t[3] = l.waves;
    t[4] = l.work * l.blocks * WARPS;
    t[5] = xn_few_streamed(c, job->images, chip->multiprocessors);
    t[8] = xn_cuda_counts_of(job, chip).uneven;
}

static uint64_t wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_ROWS);
}

static cudaError_t run(xn_cuda_run *r) {
    const xn_conv *c = &r->job->conv;
    const int64_t images = r->job->images;
    const patch_cut *cut = &((const patch_state *)r->state)->cut;
    xn_cuda_few_io io = {};
    io.input = r->input;
    io.rows = (const uint32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_ROWS);
    patch_args a = {};
    if (!make_shape(c, images, cut, &a.shape))
        return cudaErrorInvalidConfiguration;
    a.cut = *cut;
    xn_few_set(&a, c, &io, &r->out, false);
    finish_shape(c, cut, &a.shape);
    const patch_shape &s = a.shape;
    const int64_t blocks = images * s.bundles * s.tiles_x * s.tiles_y * s.splits;
    const int type = c->input_datatype == XN_FP32 ? 0 : c->input_datatype == XN_FP16 ? 1 : 2;
    for (const auto &k : kernels)
        if (k.steps == s.steps)
            return xn_cuda_launch_with(k.function[type], (int)blocks, THREADS,
                                       (size_t)s.shared_bytes, r->chip->overlaps, r->stream, a);
    return cudaErrorInvalidConfiguration; /* make_shape said so */
}

static cudaError_t load(bool *) {
    cudaError_t e = cudaSuccess;
    for (const auto &k : kernels)
        for (patch_function function : k.function)
            if (e == cudaSuccess)
                e = xn_cuda_load(function);
    return e;
}

const xn_cuda_path xn_cuda_patch_gemm_path = {"patch_gemm",
                                              XN_CUDA_HAS_MATRIX,
                                              sizeof(patch_state),
                                              fits,
                                              terms,
                                              xn_cuda_costs_patch_gemm,
                                              NULL,
                                              wants,
                                              run,
                                              load};
