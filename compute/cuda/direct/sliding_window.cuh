/* sliding_window.cuh: XNOR convolution of few channels at the speed of memory: stride 1, dilation 1
 * (2 in sliding_window_single.cuh), kernels up to 7 x 7.
 *
 * A thread owns 4 output columns and walks down a strip of rows with the rows of its windows in
 * registers; columns of its neighbours come by shuffles, those past the segment's ends by a load of
 * its first and last lane. Nothing but the filters' tables passes through shared memory (and, with
 * several channels, the thread's own patterns). Of an input row a thread keeps
 *
 *   h[4]      the sums of |x| over the KW columns of each output's window; K is their vertical sum
 *   pattern   one nibble an output: the signs (1 = negative) of the 3 columns from the window's
 *             first on; further nibbles are the windows that start further right
 *
 * PRMT looks up 4 nibbles at once in a table of 8 bytes. The table of 3 taps holds for each pattern
 * of 3 signs the number that differ from the filter's, so one PRMT counts 3 taps for 4 outputs, and
 * byte-wise sums of the words (no byte passes 255) give 4 outputs' differing taps:
 *     dot = taps - 2 differ
 * Outside the image the sign is +1, which is pad_value 1. For -1 the pattern's bits are set. For 0
 * the taps cancel in the mean of both: dot = taps - differ(+1) - differ(-1); only warps that touch
 * a border count twice.
 *
 * No sum is ever taken back, so NaN and Inf stay in their windows. What could pass FLT_MAX on the
 * way to a finite result (rows of |x| beyond 2^64, extreme factors) is computed once more, in
 * double, when the strip is done. */
#ifndef XN_CUDA_SLIDING_WINDOW_CUH
#define XN_CUDA_SLIDING_WINDOW_CUH

#include "sliding_window_rows.cuh"

/* ---- filters ---- */

/* What a block prepares of each filter. */
struct __align__(16) xn_strip_filter {
    float factor, bias; /* factor divided by what K's sums must be */
    uint32_t extreme;
};

/* tables[plane of the stack][filter][channel][row of taps][TABLES] and the filters' constants. */
template <int KW>
__device__ __forceinline__ void xn_strip_prepare(const xn_strip_args &a, int32_t plane,
                                                 int32_t o_first, int32_t tap_rows,
                                                 xn_strip_filter *filters, uint2 *tables) {
    constexpr int TABLES = xn_strip_window<KW>::TABLES;
    const int32_t all = a.span << a.stack_log2;
    /* Filter f of the stack; past the last one it repeats, which nothing reads. */
    auto filter_of = [&](int32_t f) {
        const int32_t group = a.groups == 1 ? 0 : (plane + f / a.span) % a.groups;
        const int32_t o = o_first + (a.span == 1 ? 0 : f % a.span);
        return group * a.filters + min(o, a.filters - 1);
    };
    for (int32_t e = threadIdx.x; e < all * tap_rows * TABLES; e += blockDim.x) {
        const int32_t part = e % TABLES * 3, row = e / TABLES % tap_rows;
        const int32_t at = row * KW + part, taps = min(KW - part, 3);
        const uint32_t *patch =
            a.patches + (int64_t)filter_of(e / (TABLES * tap_rows)) * a.patch_words + at / 32;
        uint32_t bits = __ldg(patch) >> at % 32;
        if (at % 32 + taps > 32)
            bits |= __ldg(patch + 1) << (32 - at % 32);
        tables[e] = xn_strip_table(~bits, taps);
    }
    for (int32_t f = threadIdx.x; f < all; f += blockDim.x) {
        const int32_t o = filter_of(f);
        const float factor = xn_factor_of(a.factor, o), bias = xn_bias_of(a.bias, o);
        filters[f] = {factor * a.reciprocal, bias, xn_strip_extreme(factor, bias)};
    }
}

/* ---- outputs ---- */

/* Differing taps of ROWS x 4 outputs, one byte each. TWICE: also with the columns and rows outside
 * counted as -1. rows(c, pattern) gives the patterns of a channel. */
template <int KW, int KH, int ROWS, bool TWICE, class Rows>
__device__ __forceinline__ void
xn_strip_differ(const xn_strip_args &a, const uint2 *tables, int32_t channels, int32_t kernel_h,
                const uint32_t (&outside)[ROWS + KH - 1][xn_strip_window<KW>::WORDS], Rows rows,
                uint32_t *counts, uint32_t *others) {
    typedef xn_strip_window<KW> window;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        counts[r] = others[r] = 0;
    for (int32_t c = 0; c < channels; c++) {
        uint32_t pattern[ROWS + KH - 1][window::WORDS];
        rows(c, pattern);
#pragma unroll
        for (int i = 0; i < KH; i++) {
            if (i >= kernel_h)
                break;
#pragma unroll
            for (int part = 0; part < window::TABLES; part++) {
                const uint2 t = tables[(c * kernel_h + i) * window::TABLES + part];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const uint32_t select = xn_strip_select(pattern[r + i], part);
                    counts[r] += xn_permute(t.x, t.y, select);
                    if (TWICE)
                        others[r] +=
                            xn_permute(t.x, t.y, select | xn_strip_select(outside[r + i], part));
                }
            }
        }
    }
}

/* Outputs of one chunk for the block's filters. pattern rows come from `rows`. */
template <int KW, int KH, int ROWS, bool TWICE, int KIND, class Rows>
__device__ __forceinline__ void
xn_strip_outputs(const xn_strip_args &a, const xn_strip_place &p, int32_t o_first, int32_t o_count,
                 const xn_strip_filter *filters, const uint2 *tables, int32_t channels,
                 int32_t kernel_h, int32_t out_y, const uint32_t *columns,
                 const float (&k)[ROWS][XN_STRIP_WIDTH], Rows rows) {
    typedef xn_strip_window<KW> window;
    constexpr int IN_ROWS = ROWS + KH - 1;
    uint32_t outside[IN_ROWS][window::WORDS];
#pragma unroll
    for (int r = 0; r < IN_ROWS; r++)
#pragma unroll
        for (int w = 0; w < window::WORDS; w++)
            outside[r][w] =
                (uint32_t)(out_y - a.pad_top + r) < (uint32_t)a.height ? columns[w] : XN_STRIP_ALL;
    const float taps = (float)(channels * kernel_h * KW) + 0x1p16f;
    const int64_t outputs = (int64_t)a.out_height * a.out_width;
    const int32_t rows_left = p.live > 0 ? a.out_height - out_y : 0;
    int64_t index =
        p.plane * a.out_plane + o_first * outputs + (int64_t)out_y * a.out_width + p.out_x;
    for (int32_t f = 0; f < o_count; f++, index += outputs) {
        uint32_t counts[ROWS], others[ROWS];
        xn_strip_differ<KW, KH, ROWS, TWICE>(a, tables + f * channels * kernel_h * window::TABLES,
                                             channels, kernel_h, outside, rows, counts, others);
        const float factor = filters[f].factor, bias = filters[f].bias;
        constexpr int BYTES = KIND == XN_STRIP_FP16 ? 2 : 4;
        char *to = (char *)a.out.data + index * BYTES;
#pragma unroll
        for (int r = 0; r < ROWS; r++, to += (int64_t)a.out_width * BYTES) {
            float v[XN_STRIP_WIDTH];
#pragma unroll
            for (int j = 0; j < XN_STRIP_WIDTH; j++) {
                const float differ = xn_strip_count(counts[r], j);
                const float dot = TWICE ? taps - differ - xn_strip_count(others[r], j)
                                        : fmaf(differ, -2.0f, taps);
                v[j] = fmaf(dot * factor, k[r][j], bias);
            }
            if (KIND == XN_STRIP_FP32)
                xn_store_16_if(to, make_float4(v[0], v[1], v[2], v[3]), r < rows_left);
            else if (KIND == XN_STRIP_FP16)
                xn_store_8_if(to, xn_strip_halves(v), r < rows_left);
            else if (r < rows_left)
                xn_strip_store(a, index + r * a.out_width, p.live, v);
        }
    }
}

/* ---- the kernel ---- */

template <int KW, int KH, int ROWS>
struct xn_strip_state {
    static constexpr int IN_ROWS = ROWS + KH - 1;
    float h[IN_ROWS][XN_STRIP_WIDTH];
    uint32_t pattern[IN_ROWS][xn_strip_window<KW>::WORDS];
};

/* KH: the most rows of taps; EXACT: no fewer. ONE: one channel a group. */
template <int KW, int KH, int ROWS, bool EXACT, bool ONE, int KIND>
__global__ void __launch_bounds__(XN_STRIP_MAX_THREADS, KW > 3 || !ONE ? 1 : 2)
    xn_strip_kernel(const __grid_constant__ xn_strip_args a) {
    typedef xn_strip_window<KW> window;
    constexpr int IN_ROWS = ROWS + KH - 1, CARRY = KH - 1;
    constexpr int BATCH =
        KIND == XN_STRIP_ANY && IN_ROWS > XN_STRIP_BATCH ? XN_STRIP_BATCH : IN_ROWS;
    /* The next rows are on their way while these are digested; the steps are channels and, when a
     * channel's rows are more than a batch, parts of them. */
    constexpr int PARTS = (IN_ROWS + BATCH - 1) / BATCH;
    extern __shared__ uint32_t shared[];
    const int32_t kernel_h = EXACT ? KH : a.kernel_h, channels = ONE ? 1 : a.channels;
    const int32_t chunks = ONE && EXACT ? a.chunks : 1; /* else slots are not compile-time */
    const bool want_k = KIND != XN_STRIP_ANY || a.want_k;
    const xn_strip_block block = xn_strip_find_block(a);
    if (block.plane << a.stack_log2 >= a.planes)
        return;
    const int32_t o_first = block.split * a.span, o_count = min(a.span, a.filters - o_first);
    const int32_t in_rows = ROWS + kernel_h - 1;

    xn_strip_filter *filters = (xn_strip_filter *)shared;
    uint2 *tables = (uint2 *)(filters + (a.span << a.stack_log2));
    const int32_t tables_each = a.span * channels * kernel_h * window::TABLES;
    uint32_t *patterns = (uint32_t *)(tables + (tables_each << a.stack_log2)) + threadIdx.x;

    const xn_strip_place p =
        xn_strip_find(a, block, ROWS * chunks, window::LEFT, KIND != XN_STRIP_ANY);
    const int32_t in_y = p.out_y - a.pad_top, leftmost = p.in_x - window::LEFT;
    const bool touches = leftmost < 0 || leftmost + window::COLUMNS > a.width || in_y < 0 ||
                         in_y + in_rows + (chunks - 1) * ROWS > a.height;
    const bool border = a.pad_value < 1 && __any_sync(0xffffffffu, touches && p.live > 0);
    uint32_t columns[window::WORDS] = {}; /* outside */
    if (border)
        xn_strip_outside<KW>(a, p, columns);

    xn_strip_state<KW, KH, ROWS> s;
    xn_strip_raw<KW> raw[BATCH];
    const int64_t start = p.plane * a.in_plane;
    auto digest = [&](const xn_strip_raw<KW> &row, int32_t y, float *h, uint32_t *pattern) {
        xn_strip_digest<KW, KIND>(a, p, row, h, pattern);
        if (KIND == XN_STRIP_ANY && border && a.pad_value < 0)
#pragma unroll
            for (int w = 0; w < window::WORDS; w++)
                pattern[w] |= (uint32_t)y < (uint32_t)a.height ? columns[w] : XN_STRIP_ALL;
    };

    xn_wait_for_previous_kernel();
    xn_let_next_kernel_start();
    xn_strip_load<KW, BATCH, KIND>(a, start, p, in_y, in_rows, raw);
    xn_strip_prepare<KW>(a, block.plane << a.stack_log2, o_first, channels * kernel_h, filters,
                         tables);
    __syncthreads();
    filters += p.stack * a.span;
    tables += p.stack * tables_each;

    const int64_t channel = (int64_t)a.height * a.width;
    for (int32_t c = 0; c < channels; c++) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const int from = part * BATCH, next = part + 1 < PARTS ? from + BATCH : 0;
            xn_strip_raw<KW> ahead[BATCH] = {};
            if (c + (next == 0) < channels)
                xn_strip_load<KW, BATCH, KIND>(a, start + (c + (next == 0)) * channel, p,
                                               in_y + next, in_rows - next, ahead);
#pragma unroll
            for (int r = from; r < from + BATCH && r < IN_ROWS; r++) {
                if (r >= in_rows)
                    break;
                if constexpr (ONE) {
                    digest(raw[r - from], in_y + r, s.h[r], s.pattern[r]);
                    continue;
                }
                float h[XN_STRIP_WIDTH];
                uint32_t pattern[window::WORDS];
                digest(raw[r - from], in_y + r, h, pattern);
#pragma unroll
                for (int j = 0; j < XN_STRIP_WIDTH; j++)
                    s.h[r][j] = c ? s.h[r][j] + h[j] : h[j];
#pragma unroll
                for (int w = 0; w < window::WORDS; w++)
                    patterns[((c * IN_ROWS + r) * window::WORDS + w) * blockDim.x] = pattern[w];
            }
#pragma unroll
            for (int r = 0; r < BATCH; r++)
                raw[r] = ahead[r];
        }
    }

    auto rows = [&](int32_t c, uint32_t(&pattern)[IN_ROWS][window::WORDS]) {
#pragma unroll
        for (int r = 0; r < IN_ROWS; r++)
#pragma unroll
            for (int w = 0; w < window::WORDS; w++)
                if (ONE)
                    pattern[r][w] = s.pattern[r][w];
                else
                    pattern[r][w] =
                        r < in_rows ? patterns[((c * IN_ROWS + r) * window::WORDS + w) * blockDim.x]
                                    : 0u;
    };
    bool large = false;
    for (int32_t chunk = 0;;) {
        const int32_t out_y = p.out_y + chunk * ROWS;
        const bool more = ++chunk < chunks;
        if (more)
            xn_strip_load<KW, ROWS, KIND>(a, start, p, out_y - a.pad_top + in_rows, ROWS, raw);
        float k[ROWS][XN_STRIP_WIDTH];
        xn_strip_box<KH, ROWS>(s.h, kernel_h, k);
        large = large || xn_strip_large<KW, KH, ROWS, EXACT>(k);
        if (!want_k)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int j = 0; j < XN_STRIP_WIDTH; j++)
                    k[r][j] = 1.0f;
        if (border && a.pad_value == 0)
            xn_strip_outputs<KW, KH, ROWS, true, KIND>(a, p, o_first, o_count, filters, tables,
                                                       channels, kernel_h, out_y, columns, k, rows);
        else
            xn_strip_outputs<KW, KH, ROWS, false, KIND>(a, p, o_first, o_count, filters, tables,
                                                        channels, kernel_h, out_y, columns, k,
                                                        rows);
        if (!more)
            break;
#pragma unroll
        for (int r = 0; r < CARRY; r++) {
#pragma unroll
            for (int j = 0; j < XN_STRIP_WIDTH; j++)
                s.h[r][j] = s.h[r + ROWS][j];
#pragma unroll
            for (int w = 0; w < window::WORDS; w++)
                s.pattern[r][w] = s.pattern[r + ROWS][w];
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            digest(raw[r], out_y - a.pad_top + in_rows + r, s.h[CARRY + r], s.pattern[CARRY + r]);
    }

    const int32_t left = p.live > 0 ? min(a.out_height - p.out_y, ROWS * chunks) : 0;
    for (int32_t f = 0; f < o_count; f++)
        if ((filters[f].extreme || (large && want_k)) && left > 0 && a.out.datatype != XN_INT32)
            xn_strip_again<KW>(a, p.plane, o_first + f, p.out_x, p.out_y, left, p.live,
                               xn_strip_whole(a), 1);
}

#endif
