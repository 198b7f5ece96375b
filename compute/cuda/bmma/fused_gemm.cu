/* fused_gemm.cu: mode xnor from real input in one launch, for small problems: any stride, dilation
 * and kernel, groups of any size. What two launches (pack.cu, then filter_stationary.cu or another)
 * cost beside their work is most of the time of one image; here a block packs what its outputs need
 * and multiplies at once.
 *
 * 1. Before the kernel ahead has ended: the block's 16 to 128 filters to shared memory, and by the
 *    matrix units what each of them counts over the taps inside the image (C below), with a matrix
 *    of ones and zeros in the place of the input.
 * 2. The inputs of a tile of outputs are read, 8 channels of a position a thread, and packed:
 *    position after position, a filter's units of up to 16 bytes the same way. Blocks of the same
 *    tile and other filters form a cluster: each packs a share of the positions, for all of them.
 *    Positions are those columns and rows that some tap reads (axes with a step). Outside the
 *    image they are zeros.
 * 3. The box of K and the pixel's part of dot, from each position's mean and set bits.
 * 4. mma.sync and.popc, M = filters, N = outputs, both read from shared memory: thread (g, t) of a
 *    warp needs units t, t + 4, ... of filters g and g + 8 and of output g.
 *        dot = part of the pixel (layout.h) + 2 pad_value (popc(w) - C) - 2 C + 4 popc(a and w)
 *
 * Bound by latency: it is launched where all its blocks run at once. */
#include "fused_gemm.cuh"
#include "launch.cuh"

/* ---- products ---- */

/* A warp's part of a block: one of its row tiles, every `apart`-th of its columns from `column` on.
 */
struct fused_warp {
    int32_t row_tile, column, apart;
};

__device__ __forceinline__ fused_warp find_warp(const fused_args &a) {
    const xn_cuda_fused_cut &cut = a.shape.cut;
    const int32_t warp = (int32_t)threadIdx.x >> 5, shift = __ffs(cut.row_tiles) - 1;
    return {warp & (cut.row_tiles - 1), warp >> shift, cut.warps >> shift};
}

template <int COUNT>
__device__ __forceinline__ void load_units(const fused_unit *from, fused_unit (&to)[COUNT]) {
    uint32_t words[2 * COUNT];
    load_words(from, words);
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        to[n] = {(int32_t)words[2 * n], (int32_t)words[2 * n + 1]};
}

/* counts += products of the warp's filters with LIVE columns, of which load(column, units, words)
 * reads what this thread multiplies in a step. One column is summed in two chains. */
template <int UNIT, int LIVE, class Load>
__device__ __forceinline__ void multiply(const fused_args &a, const fused_block &b,
                                         const fused_warp &w, int32_t (&counts)[LIVE][4],
                                         Load load) {
    constexpr int WORDS = UNIT == 4 ? 4 : 2;
    const int32_t g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, pitch = a.shape.filter_pitch;
    const char *filter = b.filters + (w.row_tile * ROWS + g) * pitch + t * WORDS * 4;
    const fused_unit *units = b.table + t * (WORDS / UNIT);
    int32_t chain[2][4] = {};
    fused_unit now[WORDS / UNIT]; /* read a step ahead */
    load_units(units, now);
#pragma unroll 2
    for (int32_t step = 0; step < a.shape.steps; step++) {
        uint32_t upper[WORDS], lower[WORDS], words[LIVE][WORDS];
        load_words(filter, upper);
        load_words(filter + 8 * pitch, lower);
#pragma unroll
        for (int n = 0; n < LIVE; n++)
            load(n, now, words[n]);
        filter += WORDS * 16;
        units += WORDS / UNIT * 4;
        load_units(units, now);
#pragma unroll
        for (int k = 0; k < WORDS; k += 2) {
            const uint32_t fragment[4] = {upper[k], lower[k], upper[k + 1], lower[k + 1]};
#pragma unroll
            for (int n = 0; n < LIVE; n++) {
                const uint32_t column[2] = {words[n][k], words[n][k + 1]};
                xn_mma_and_popc(LIVE == 1 ? chain[k / 2] : counts[n], fragment, column);
            }
        }
    }
    if (LIVE == 1)
#pragma unroll
        for (int e = 0; e < 4; e++)
            counts[0][e] = chain[0][e] + chain[1][e];
}

/* The positions of the first taps of this thread's columns; past the last output, the last. */
template <int LIVE>
__device__ __forceinline__ void find_columns(const fused_args &a, const fused_warp &w,
                                             int32_t (&position)[LIVE]) {
    const int32_t g = (threadIdx.x & 31) >> 2;
    const int32_t last = a.shape.cut.tile_w * a.shape.cut.tile_h - 1;
#pragma unroll
    for (int n = 0; n < LIVE; n++)
        position[n] = position_of_output(a, min((w.column + n * w.apart) * COLUMNS + g, last));
}

template <int UNIT, int LIVE>
__device__ __forceinline__ void
multiply_inside(const fused_args &a, const fused_block &b, const fused_warp &w,
                const int32_t (&position)[LIVE], int32_t (&counts)[LIVE][4]) {
    multiply<UNIT, LIVE>(a, b, w, counts, [&](int n, const fused_unit *units, auto &words) {
        words[0] = words[1] = b.inside[position[n] + units[0].position];
        if constexpr (UNIT == 4)
            words[2] = words[3] = words[0];
        else
            words[1] = b.inside[position[n] + units[1].position];
    });
}

template <int UNIT, int LIVE>
__device__ __forceinline__ void
multiply_inputs(const fused_args &a, const fused_block &b, const fused_warp &w,
                const int32_t (&position)[LIVE], int32_t (&counts)[LIVE][4]) {
    const char *first[LIVE];
#pragma unroll
    for (int n = 0; n < LIVE; n++)
        first[n] = b.positions + position[n] * a.shape.tap_words * 4;
    multiply<UNIT, LIVE>(a, b, w, counts, [&](int n, const fused_unit *units, auto &words) {
        if constexpr (UNIT == 4) {
            load_words(first[n] + units[0].byte, words);
        } else {
            words[0] = *(const uint32_t *)(first[n] + units[0].byte);
            words[1] = *(const uint32_t *)(first[n] + units[1].byte);
        }
    });
}

/* ---- outputs ---- */

/* Of a thread's filter: constants, its part of dot that no pixel changes, its plane of outputs. */
struct fused_filter {
    xn_filter constants;
    int32_t part, number; /* number: of all filters */
    int64_t plane;
    bool live; /* it exists */
};

__device__ __forceinline__ fused_filter find_filter(const fused_args &a, const fused_block &b,
                                                    int32_t row) {
    const xn_conv &c = a.shape.conv;
    const int32_t m = b.filter + row, table = (c.kernel_h + 1) * (c.kernel_w + 1);
    fused_filter f;
    f.live = m < c.group_out_channels;
    const int64_t o = (int64_t)b.group * c.group_out_channels + min(m, c.group_out_channels - 1);
    f.number = (int32_t)o;
    f.constants = xn_filter_of(a.out, o);
    f.part = 2 * c.pad_value * __ldg(a.prefix + o * table + table - 1);
    f.plane = (b.image * c.out_channels + o) * c.out_height * c.out_width;
    return f;
}

/* Two outputs side by side, or the first alone, or none. */
__device__ __forceinline__ void store_outputs(const fused_args &a, int64_t index, int32_t count,
                                              const int32_t (&dots)[2], const float (&v)[2]) {
    const bool pair = count > 1 && (index & 1) == 0;
    if (a.out.what.datatype == XN_INT32) {
        int32_t *to = (int32_t *)a.out.output + index;
        if (pair)
            xn_store(to, dots);
        else
            for (int e = 0; e < min(count, 2); e++)
                to[e] = dots[e];
    } else if (pair) {
        xn_store_reals(a.out, index, v);
    } else {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float one[1] = {v[e]};
            if (e < count)
                xn_store_reals(a.out, index + e, one);
        }
    }
}

/* Of output `at` of the tile: its place in its plane, and how many of it and its neighbour exist.
 */
struct fused_place {
    int64_t index;
    int32_t count;
};

__device__ __forceinline__ fused_place find_place(const fused_args &a, const fused_block &b,
                                                  int32_t at) {
    const xn_cuda_fused_shape &s = a.shape;
    const xn_conv &c = s.conv;
    int32_t y = 0, x = at; /* a run of outputs, or a row's */
    int32_t left = min(s.cut.tile_w * s.cut.tile_h, (c.out_height - b.out_y) * c.out_width) - at;
    if (s.cut.tile_w < c.out_width) {
        y = xn_divide(at, s.by_tile_w);
        x = at - y * s.cut.tile_w;
        left = y < s.cut.tile_h && b.out_y + y < c.out_height ? c.out_width - b.out_x - x : 0;
    }
    return {(int64_t)(b.out_y + y) * c.out_width + b.out_x + x, left};
}

/* A thread has outputs 2t and 2t + 1 of filters g and g + 8 in each of its columns. The filter's
 * part of dot is 2 pad_value (bits - inside) - 2 inside. */
template <int LIVE>
__device__ __forceinline__ void write_outputs(const fused_args &a, const fused_block &b,
                                              const fused_warp &w, const fused_filter (&filter)[2],
                                              const int32_t (&inside)[LIVE][4],
                                              const int32_t (&counts)[LIVE][4]) {
    const int32_t of_inside = -2 - 2 * a.shape.conv.pad_value;
#pragma unroll
    for (int n = 0; n < LIVE; n++) {
        const int32_t at = (w.column + n * w.apart) * COLUMNS + 2 * ((int32_t)threadIdx.x & 3);
        const fused_place place = find_place(a, b, at);
        if (place.count <= 0)
            continue;
        const fused_output out[2] = {b.outputs[at], b.outputs[at + 1]};
        int32_t dots[2][2];
        float v[2][2];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                dots[h][e] = out[e].part + filter[h].part + of_inside * inside[n][h * 2 + e] +
                             4 * counts[n][h * 2 + e];
                v[h][e] = xn_value((float)dots[h][e], out[e].box, filter[h].constants);
            }
        if (!isfinite(fabsf(v[0][0]) + fabsf(v[0][1]) + fabsf(v[1][0]) + fabsf(v[1][1])))
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (!isfinite(v[h][e]))
                        v[h][e] = value_again(a, b.info, at + e, filter[h].number, dots[h][e],
                                              out[e].box);
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (filter[h].live)
                store_outputs(a, filter[h].plane + place.index, place.count, dots[h], v[h]);
    }
}

/* ---- the kernel ---- */

template <int UNIT, int LIVE, class Input>
__device__ __forceinline__ void run_block(const fused_args &a, const fused_block &b,
                                          const Input &input) {
    const bool clusters = a.shape.cut.cluster > 1;
    const fused_warp w = find_warp(a);
    const int32_t row = w.row_tile * ROWS + (int32_t)((threadIdx.x & 31) >> 2);
    int32_t position[LIVE], inside[LIVE][4] = {}, counts[LIVE][4] = {};
    copy_filters(a, b);
    if (clusters) {
        if (threadIdx.x == 0) {
            xn_mbarrier_init(b.arrival, 1);
            xn_mbarrier_init_fence();
            xn_mbarrier_expect(b.arrival, bytes_from_others(a, b));
        }
        __syncwarp();
        cluster_arrive();
    }
    make_table(a, b);
    mark_inside(a, b);
    clear_own(a, b);
    find_columns<LIVE>(a, w, position);
    const fused_filter filter[2] = {find_filter(a, b, row), find_filter(a, b, row + 8)};
    xn_copy_wait<0>();
    __syncthreads();
    multiply_inside<UNIT, LIVE>(a, b, w, position, inside);
    if (clusters)
        cluster_wait();
    xn_wait_for_previous_kernel();
    pack_own(a, b, input);
    __syncthreads();
    if (clusters)
        send_own<UNIT>(a, b);
    sum_own(a, b);
    if (clusters)
        xn_mbarrier_wait(b.arrival, 0);
    __syncthreads();
    make_outputs(a, b);
    multiply_inputs<UNIT, LIVE>(a, b, w, position, counts);
    __syncthreads();
    write_outputs<LIVE>(a, b, w, filter, inside, counts);
}

template <int UNIT, int LIVE, int DATATYPE>
__global__ void __launch_bounds__(MAX_THREADS, 2)
    fused_kernel(const __grid_constant__ fused_args a) {
    extern __shared__ __align__(128) char fused_memory[];
    __shared__ uint64_t arrival;
    xn_let_next_kernel_start();
    const fused_block b = find_block(a, fused_memory, xn_shared_address(&arrival));
    touch_arguments(a, b.outputs);
    if constexpr (DATATYPE == XN_FP32)
        run_block<UNIT, LIVE>(a, b, fused_input<float>{(const float *)a.input});
    else if constexpr (DATATYPE == XN_FP16)
        run_block<UNIT, LIVE>(a, b, fused_input<__half>{(const __half *)a.input});
    else
        run_block<UNIT, LIVE>(a, b, fused_any_input{a.input, a.shape.conv.input_datatype});
}

/* ---- launcher ---- */

typedef void (*fused_function)(const fused_args);

#define KERNELS(UNIT, LIVE)                                                                        \
    {                                                                                              \
        fused_kernel<UNIT, LIVE, XN_FP32>, fused_kernel<UNIT, LIVE, XN_FP16>,                      \
            fused_kernel<UNIT, LIVE, XN_BF16>                                                      \
    }
#define COLUMNS_OF(UNIT)                                                                           \
    { KERNELS(UNIT, 1), KERNELS(UNIT, 2), KERNELS(UNIT, 4) }
/* Units of 1 word or 4; 1, 2 or 4 columns; fp32, fp16 and the rest. */
static const fused_function kernels[2][3][3] = {COLUMNS_OF(1), COLUMNS_OF(4)};

static fused_function kernel_of(const xn_cuda_fused_shape *s) {
    const int32_t datatype = s->conv.input_datatype;
    return kernels[s->unit_words == 4][s->live / 2][datatype == XN_FP32   ? 0
                                                    : datatype == XN_FP16 ? 1
                                                                          : 2];
}

cudaError_t xn_cuda_fused_launch_shape(const xn_cuda_fused_shape *shape, const xn_cuda_fused_io *io,
                                       const xn_epilogue_args *epilogue, bool overlapped,
                                       cudaStream_t stream) {
    fused_args a = {};
    a.shape = *shape;
    a.input = io->input;
    a.filters = io->rows;
    a.prefix = io->prefix;
    a.out = xn_epilogue_of(&shape->conv, epilogue);
    return xn_cuda_launch_clusters(kernel_of(shape), dim3((unsigned)shape->blocks),
                                   shape->cut.warps * 32, (size_t)shape->bytes, overlapped,
                                   shape->cut.cluster, stream, a);
}

cudaError_t xn_cuda_fused_launch(const xn_conv *conv, int64_t images, const xn_cuda_chip *chip,
                                 xn_cuda_fused_plan *plan, const xn_cuda_fused_io *io,
                                 const xn_epilogue_args *epilogue, cudaStream_t stream) {
    const cudaError_t e = xn_cuda_keep_cut(plan, images, [&](xn_cuda_fused_shape *shape) {
        return xn_cuda_fused_choose(conv, images, chip, shape);
    });
    if (e != cudaSuccess)
        return e;
    return xn_cuda_fused_launch_shape(&plan->shape, io, epilogue, chip->overlaps, stream);
}

cudaError_t xn_cuda_fused_load(void) {
    const fused_function *all = &kernels[0][0][0];
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; e == cudaSuccess && i < sizeof kernels / sizeof *all; i++)
        e = xn_cuda_load_with(all[i], XN_CUDA_FUSED_SHARED_BYTES);
    return e;
}
