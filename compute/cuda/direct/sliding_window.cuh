/* sliding_window.cuh: XNOR convolution of groups of one channel and one filter at the speed of
 * memory: stride 1, kernels up to 7 x 7.
 *
 * A thread owns 4 output columns and walks down a strip of rows with the rows of its windows in
 * registers; columns of its neighbours come by shuffles, those past the segment's ends by a load of
 * its first and last lane. Nothing passes through shared memory but rows on their way,
 * and no thread waits for another but in shuffles. Of an input row a thread keeps
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
 * Dilation: rows of one remainder of it are an image of their own, and a strip is of one of these.
 * Columns 2 apart need no other threads than those of a window of 5, and as many instructions as
 * neighbours.
 *
 * No sum is ever taken back, so NaN and Inf stay in their windows. What could pass FLT_MAX on the
 * way to a finite result (sums of K beyond 2^64, extreme factors) is computed once more, by the
 * definition, when the strip is done. */
#ifndef XN_CUDA_SLIDING_WINDOW_CUH
#define XN_CUDA_SLIDING_WINDOW_CUH

#include "sliding_window_ring.cuh"

/* ---- the filter ---- */

/* In registers. Its words are read before the rows: after them the loads
 * would be issued only when the rows have arrived. */
template <int KW, int KH>
struct xn_strip_own_filter {
    static constexpr int WORDS = (KH * KW + 31) / 32, TABLES = xn_strip_window<KW>::TABLES;
    uint32_t words[WORDS];
    float factor, bias;
    uint2 tables[KH * TABLES];
    xn_filter filter;

    __device__ __forceinline__ void load(const xn_strip_args &a, const xn_strip_place &p) {
        const int32_t o = a.conv.groups == 1 ? 0 : p.plane % a.conv.groups;
        const xn_epilogue_args &e = a.epilogue;
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            words[w] = xn_load_4(a.weights + (int64_t)o * a.weight_words + w);
        factor = e.factor ? __uint_as_float(xn_load_4(e.factor + o)) : 1.0f;
        bias = e.bias ? __uint_as_float(xn_load_4(e.bias + o)) : 0.0f;
    }
    __device__ __forceinline__ void make(const xn_strip_args &a) {
        filter = xn_filter_from(a.epilogue, factor, bias);
#pragma unroll
        for (int t = 0; t < KH * TABLES; t++) {
            const int part = t % TABLES * 3, at = t / TABLES * KW + part, word = at / 32;
            const uint32_t next = word + 1 < WORDS ? words[word + 1 < WORDS ? word + 1 : 0] : 0;
            tables[t] = xn_strip_table(~__funnelshift_r(words[word], next, at % 32),
                                       KW - part < 3 ? KW - part : 3);
        }
    }
};

/* ---- outputs ---- */

/* Adds what the tables of a channel say of the 4 outputs whose windows start in this row, a byte
 * each. TWICE: to others what it is with the columns and rows outside as -1. */
template <int KW, int KH, bool TWICE>
__device__ __forceinline__ void
xn_strip_differ(const uint2 *tables, const uint32_t (*pattern)[xn_strip_window<KW>::WORDS],
                int32_t in_y, int32_t height, const uint32_t *columns, uint32_t *counts,
                uint32_t *others) {
    constexpr int TABLES = xn_strip_window<KW>::TABLES;
#pragma unroll
    for (int i = 0; i < KH; i++)
#pragma unroll
        for (int part = 0; part < TABLES; part++) {
            const uint2 t = tables[i * TABLES + part];
            const uint32_t select = xn_strip_select(pattern[i], part);
            *counts += xn_permute(t.x, t.y, select);
            const bool inside = (uint32_t)(in_y + i) < (uint32_t)height;
            if (TWICE)
                *others += xn_permute(
                    t.x, t.y, select | (inside ? xn_strip_select(columns, part) : XN_STRIP_ALL));
        }
}

/* ROWS rows of outputs from index on, of which rows_left exist. */
template <int KW, int KH, int ROWS, int KIND, bool TWICE>
__device__ __forceinline__ void
xn_strip_outputs(const xn_strip_args &a, const xn_strip_place &p,
                 const xn_strip_own_filter<KW, KH> &f,
                 const uint32_t (*patterns)[xn_strip_window<KW>::WORDS], const uint32_t *columns,
                 const float (&box)[ROWS][XN_STRIP_WIDTH], const xn_strip_phase &phase,
                 int32_t in_y, int32_t rows_left, int64_t index) {
    constexpr int BYTES = KIND == XN_STRIP_FP16 ? 2 : 4;
    const int64_t pitch = (int64_t)a.conv.out_width * phase.step;
    const float most = (float)(KH * KW) + 0x1p16f;
    char *to = (char *)a.epilogue.output + index * BYTES;
#pragma unroll
    for (int r = 0; r < ROWS; r++, to += pitch * BYTES) {
        uint32_t counts = 0, others = 0;
        float v[XN_STRIP_WIDTH];
        xn_strip_differ<KW, KH, TWICE>(f.tables, patterns + r, in_y + r, phase.height, columns,
                                       &counts, &others);
#pragma unroll
        for (int j = 0; j < XN_STRIP_WIDTH; j++)
            v[j] = xn_value(xn_strip_dot<TWICE>(most, counts, others, j), box[r][j], f.filter);
        xn_strip_store<KIND>(a, index + r * pitch, to, r < rows_left, p.live, v);
    }
}

/* ---- the kernel ---- */

/* Blocks of the most threads that a multiprocessor has room for. */
constexpr int xn_strip_resident(int kernel_w, int kind, int depth) {
    const bool large = kernel_w > 5 || (kernel_w > 3 && kind == XN_STRIP_ANY);
    return large ? 2 : kernel_w > 3 ? 3 : depth > 0 ? 5 : 4;
}

/* DEPTH: chunks that are on their way while one is made; 0: one, in registers. D: columns from tap
 * to tap; with 2, rows have any dilation, and each phase of them is a plane of its own. */
template <int KW, int KH, int ROWS, int KIND, int DEPTH, int D>
__global__ void __launch_bounds__(XN_STRIP_MAX_THREADS, xn_strip_resident(KW, KIND, DEPTH))
    xn_strip_kernel(const __grid_constant__ xn_strip_args a) {
    typedef xn_strip_window<KW, D> window;
    typedef xn_strip_source<KW, KIND, D> rows_source;
    constexpr int IN_ROWS = ROWS + KH - 1, CARRY = KH - 1;
    const bool want_k = KIND != XN_STRIP_ANY || a.conv.epilogue.k;
    const int32_t chunks = a.chunks;
    const xn_strip_block block = xn_strip_find_block(a);
    if (block.plane << a.stack_log2 >= a.planes)
        return;
    xn_strip_place p = xn_strip_find(a, block, ROWS * chunks, window::LEFT, rows_source::VECTORS);
    xn_strip_phase phase = xn_strip_whole(a);
    if (D > 1) {
        phase = xn_strip_phase_of(a, p.plane % a.conv.dilation_h);
        p.plane /= a.conv.dilation_h;
    }
    xn_strip_own_filter<KW, KH> filter;
    filter.load(a, p);
    xn_wait_for_previous_kernel();
    xn_let_next_kernel_start();
    xn_strip_raw<KW, D> raw[IN_ROWS] = {};
    rows_source source;
    xn_strip_ring<KW, KH, ROWS, KIND, DEPTH> ring;
    if constexpr (DEPTH > 0) {
        extern __shared__ uint32_t shared[];
        ring.begin(a, p, (char *)shared);
        ring.copy_first(a, p);
    } else {
        source.begin(a, p, phase, p.plane * a.in_plane);
        source.template next<IN_ROWS>(a, p, raw);
    }
    filter.make(a);

    int32_t in_y = p.out_y + phase.above;
    const int32_t leftmost = p.in_x - window::LEFT;
    const bool touches = leftmost < 0 || leftmost + window::COLUMNS > a.conv.width || in_y < 0 ||
                         in_y + IN_ROWS + (chunks - 1) * ROWS > phase.height;
    const bool border = a.conv.pad_value < 1 && __any_sync(0xffffffffu, touches && p.live > 0);
    uint32_t columns[window::WORDS] = {}; /* outside */
    if (border)
        xn_strip_outside<KW, D>(a, p, columns);

    float h[IN_ROWS][XN_STRIP_WIDTH];
    uint32_t patterns[IN_ROWS][window::WORDS];
    auto digest = [&](int from, int slot, int32_t y) {
        float v[window::COLUMNS];
        xn_strip_columns<KW, KIND, D>(p, raw[from], v);
        xn_strip_signs<KW, KIND, D>(v, patterns[slot]);
        xn_strip_sums<KW, D>(v, h[slot]);
        if (KIND == XN_STRIP_ANY && border && a.conv.pad_value < 0)
#pragma unroll
            for (int w = 0; w < window::WORDS; w++)
                patterns[slot][w] |=
                    (uint32_t)y < (uint32_t)phase.height ? columns[w] : XN_STRIP_ALL;
    };
    if constexpr (DEPTH > 0)
        ring.take_first(p, raw);
#pragma unroll
    for (int r = 0; r < IN_ROWS; r++)
        digest(r, r, in_y + r);

    bool large = false;
    int32_t rows_left = p.live > 0 ? phase.out_height - p.out_y : 0;
    int64_t index = p.plane * a.out_plane + p.out_x +
                    ((int64_t)p.out_y * phase.step + phase.out_first) * a.conv.out_width;
    for (int32_t chunk = chunks;;) {
        const bool more = --chunk > 0;
        if constexpr (DEPTH > 0)
            ring.copy_next(a, p, chunk >= DEPTH);
        else if (more)
            source.template next<ROWS>(a, p, raw);
        float box[ROWS][XN_STRIP_WIDTH];
        xn_strip_box<KH, ROWS>(h, box);
        large = large || xn_strip_large<KH, ROWS, (KW < 3 || D > 1)>(box);
        if (!want_k)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int j = 0; j < XN_STRIP_WIDTH; j++)
                    box[r][j] = 1.0f;
        if (border && a.conv.pad_value == 0)
            xn_strip_outputs<KW, KH, ROWS, KIND, true>(a, p, filter, patterns, columns, box, phase,
                                                       in_y, rows_left, index);
        else
            xn_strip_outputs<KW, KH, ROWS, KIND, false>(a, p, filter, patterns, columns, box, phase,
                                                        in_y, rows_left, index);
        if (!more)
            break;
        in_y += ROWS;
        rows_left -= ROWS;
        index += (int64_t)ROWS * phase.step * a.conv.out_width;
#pragma unroll
        for (int r = 0; r < CARRY; r++) {
#pragma unroll
            for (int j = 0; j < XN_STRIP_WIDTH; j++)
                h[r][j] = h[r + ROWS][j];
#pragma unroll
            for (int w = 0; w < window::WORDS; w++)
                patterns[r][w] = patterns[r + ROWS][w];
        }
        if constexpr (DEPTH > 0)
            ring.take_next(p, raw);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            digest(r, CARRY + r, in_y + CARRY + r);
    }

    const int32_t made = p.live > 0 ? min(phase.out_height - p.out_y, ROWS * chunks) : 0;
    if (((large && want_k) || xn_strip_extreme(filter.filter)) && made > 0 &&
        a.epilogue.what.datatype != XN_INT32)
        xn_strip_again(a, p.plane, p.out_x, p.out_y, made, p.live, phase);
}

#endif
