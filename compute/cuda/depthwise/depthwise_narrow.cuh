/* depthwise_narrow.cuh: planes of short rows, unit steps, as wide an output as the input
 * (depthwise.cu). */
#ifndef XN_CUDA_DEPTHWISE_NARROW_CUH
#define XN_CUDA_DEPTHWISE_NARROW_CUH

#include "depthwise.cuh"

enum { SHORT_ROW = 16 }; /* columns at most; with a border they fit one word */

/* Sums of |v| over the K columns around each; beyond the row there is nothing. */
template <int K>
__device__ __forceinline__ void sum_columns(const float (&v)[SHORT_ROW], float (&sums)[SHORT_ROW]) {
    constexpr int SIDE = K / 2, COLUMNS = SHORT_ROW + 2 * SIDE;
    float one[COLUMNS], two[COLUMNS], four[COLUMNS]; /* from a column on */
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
        one[n] = n < SIDE || n >= SHORT_ROW + SIDE ? 0.0f : fabsf(v[n - SIDE]);
#pragma unroll
    for (int n = 0; n + 1 < COLUMNS; n++)
        two[n] = one[n] + one[n + 1];
#pragma unroll
    for (int n = 0; n + 3 < COLUMNS; n++)
        four[n] = two[n] + two[n + 2];
#pragma unroll
    for (int n = 0; n < SHORT_ROW; n++) {
        if constexpr (K == 3)
            sums[n] = two[n] + one[n + 2];
        else if constexpr (K == 5)
            sums[n] = four[n] + one[n + 4];
        else
            sums[n] = four[n] + (two[n + 4] + one[n + 6]);
    }
}

/* The staged rows: each row's signs to a word, column x at bit x + K / 2, as pad_value says
 * outside; its sums in its place. A thread a row. */
template <int K>
__device__ __forceinline__ void sum_rows(const depthwise_args &a, float *in, uint32_t *rows,
                                         int32_t count) {
    const uint32_t own = xn_cuda_low_bits(a.conv.width) << K / 2;
    for (int32_t r = threadIdx.x; r < count; r += blockDim.x) {
        float *row = in + r * a.conv.width, v[SHORT_ROW], sums[SHORT_ROW];
        uint32_t signs = 0;
#pragma unroll
        for (int n = 0; n < SHORT_ROW; n++)
            v[n] = n < a.conv.width ? row[n] : 0.0f;
#pragma unroll
        for (int n = 0; n < SHORT_ROW; n++)
            if (v[n] >= 0.0f) /* xn_sign_bit */
                signs |= 1u << (n + K / 2);
        rows[r] = (signs & own) | (a.conv.pad_value > 0 ? ~own : 0u);
        sum_columns<K>(v, sums);
#pragma unroll
        for (int n = 0; n < SHORT_ROW; n++)
            if (n < a.conv.width)
                row[n] = sums[n];
    }
}

/* Down a column; sums and rows are where row 0 of the plane would be. */
template <int K>
__device__ __forceinline__ void
narrow_walk(const depthwise_args &a, const depthwise_block &b, const depthwise_place &p,
            int32_t plane, const float *sums, const uint32_t *rows,
            const depthwise_filter<K, K> &filter, float *out, bool *finite) {
    constexpr uint32_t ALL = (1u << K) - 1u;
    const int32_t in_x = p.x - K / 2;
    const uint32_t border = a.conv.pad_value ? ALL : 0u,
                   border_signs = a.conv.pad_value > 0 ? ALL : 0u;
    const uint32_t inside =
        border | xn_cuda_bit_range(max(-in_x, 0), min(a.conv.width - in_x, (int32_t)K));
    depthwise_window<K, K> w = {};
    int32_t y = b.out_y + p.row - a.conv.pad_top; /* of the window's first row */
    auto push = [&](int32_t row) {
        const bool is_inside = (uint32_t)row < (uint32_t)a.conv.height;
        float sum = 0.0f;
        uint32_t signs = border_signs;
        if (is_inside) {
            sum = sums[row * a.conv.width + p.x];
            signs = rows[row] >> p.x & ALL;
        }
#pragma unroll
        for (int i = 0; i < K - 1; i++)
            w.sums[i] = w.sums[i + 1];
        w.sums[K - 1] = sum;
        depthwise_window<K, K>::push(w.signs, signs);
        depthwise_window<K, K>::push(w.inside, is_inside ? inside : border);
    };
#pragma unroll
    for (int i = 0; i < K - 1; i++)
        push(y + i);
    out += p.row * a.conv.out_width + p.x;
#pragma unroll K /* so that a window's sums stay in their registers */
    for (int32_t row = p.row; row < p.end; row++, y++, out += a.conv.out_width) {
        push(y + K - 1);
        *out = output_of<K, K>(a, w, filter, finite);
    }
}

template <int K>
__global__ void __launch_bounds__(MAX_THREADS, 4)
    narrow_kernel(const __grid_constant__ depthwise_args a) {
    extern __shared__ __align__(16) float shared[];
    const depthwise_filter<K, K> *filters = (const depthwise_filter<K, K> *)(shared + a.info_at);
    uint32_t *rows = (uint32_t *)(shared + a.rows_at);
    const depthwise_block b = find_block(a, K);
    float *in = stage_block<K, K>(a, b, shared);
    sum_rows<K>(a, in, rows, b.planes * b.in_rows);
    __syncthreads();
    const int64_t out_first = first_output(a, b);
    float *out = shared + a.out_at + (out_first & 3);
    bool finite = true;
    each_walk(a, b, [&](int32_t plane, const depthwise_place &p) {
        const int32_t row = plane * b.in_rows - b.in_y;
        narrow_walk<K>(a, b, p, plane, in + row * a.conv.width, rows + row, filters[plane],
                       out + plane * b.out_rows * a.conv.out_width, &finite);
    });
    if (!finite)
        walks_again(a, out, out_first);
    __syncthreads();
    write_run(a.epilogue, out_first, b.planes * b.out_rows * a.conv.out_width, shared + a.out_at);
}

#endif
