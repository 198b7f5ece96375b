/* warp_specialised.cu: many channels with stride 1, wgmma and.popc, M = 64 filters, N = up to 256
 * positions.
 *
 * Activations come with their borders and by units of 16 bytes a position (layout.h: lines), so
 * some lines of a unit are one run of memory, and one bulk copy takes them to shared memory. There
 * the matrix instruction reads rows from any multiple of 16 on, and the operand of every tap is the
 * same memory some positions on. A band is some lines of an image, or some whole images; a block
 * keeps 64 filters, and a job is a band times those.
 *
 * One warp copies, one or two warpgroups multiply and put the counts into a stage in shared memory,
 * and as many others as there is room for make outputs of them (warp_specialised_out.cuh). Filters
 * and the table of border classes are under way before the kernel ahead in the stream has ended. */
#include "launch.cuh"
#include "warp_specialised_out.cuh"

#if XN_HAS_WGMMA

/* ---- filters and their table ---- */

/* Warp 0: barriers, and what filters will bring. */
__device__ __forceinline__ void start(const lines_args &a, const xn_wgmma_block &b) {
    const int32_t lane = threadIdx.x & 31;
    /* One arrives with what it expects; all threads that read or wrote; the warps that multiplied,
     * of each a lane. */
    if (lane < BARRIERS)
        xn_mbarrier_init(xn_barrier_at(b.barriers, lane), lane < BAND_FREE    ? 1
                                                          : lane < STAGE_FULL ? GROUP + 4
                                                          : lane < TURNS      ? GROUP
                                                                              : 4);
    xn_mbarrier_init_fence();
    __syncwarp();
    if (lane == 0)
        xn_mbarrier_expect(xn_barrier_at(b.barriers, FILTERS), (uint32_t)a.shape.pairs * (M * 32));
}

/* The part of dot that a filter has at a class, with what the class adds for all filters. For real
 * outputs as a float, less what the pixels' parts have too much (make_records). */
template <int OUT>
__device__ __forceinline__ int32_t entry_of(const lines_args &a, int32_t cls, int32_t inside,
                                            int32_t all) {
    const xn_conv &c = a.conv;
    const int32_t taps = c.kernel_h * c.kernel_w, in = a.shape.borders.pixel_class[cls].inside;
    const int32_t part = xn_cuda_filter_part(c.pad_value, inside, all - inside) +
                         xn_cuda_pixel_part(c.pad_value, c.group_channels, in, taps - in, 0);
    return OUT == XN_INT32 ? part : __float_as_int((float)(part - 2 * MOST));
}

template <int OUT>
__device__ __forceinline__ void make_table(const lines_args &a, const xn_wgmma_block &b,
                                           const lines_table &t, int32_t thread, int32_t threads) {
    constexpr int32_t BATCH = 3; /* loads of several classes at once */
    const xn_conv &c = a.conv;
    const int64_t pitch = c.out_channels;
    const int32_t classes = a.shape.borders.classes, m = thread % M, step = threads / M;
    const xn_wgmma_filter f = xn_wgmma_filter_of<false>(c, NULL, b.group, b.m0 + m);
    const int32_t *prefix = a.io.prefix + f.index;
    const int32_t all = xn_bits_of_filter(c, prefix, pitch);
    for (int32_t first = thread / M; first < classes; first += BATCH * step) {
        int32_t inside[BATCH];
        xn_bits_of_classes(prefix, pitch, a.shape.borders, first, step, inside);
#pragma unroll
        for (int n = 0; n < BATCH; n++)
            if (first + n * step < classes)
                ((int32_t *)t.rows)[(first + n * step) * a.shape.table_pitch + m] =
                    entry_of<OUT>(a, first + n * step, inside[n], all);
    }
}

/* Factor and bias. *t.largest is zero before, and threads meet after. */
__device__ __forceinline__ void make_constants(const lines_args &a, const xn_wgmma_block &b,
                                               const lines_table &t, int32_t thread) {
    if (thread >= M)
        return;
    const xn_wgmma_filter f = xn_wgmma_filter_of<false>(a.conv, NULL, b.group, b.m0 + thread);
    const float factor = f.live ? xn_factor_of(a.factor, f.index) : 0.0f;
    const float bias = f.live ? xn_bias_of(a.bias, f.index) : 0.0f;
    t.factor[thread] = factor;
    t.bias[thread] = bias;
    atomicMax(t.largest, __float_as_uint(fabsf(factor)));
    atomicMax(t.largest + 1, __float_as_uint(fabsf(bias)));
}

/* ---- the warpgroups that multiply ---- */

/* Every MULTIPLIERS-th job, from the one of its number on, to the stage of the writers whose turn
 * it is. */
template <int N, int MULTIPLIERS, int WRITERS>
__device__ __forceinline__ void multiply_jobs(const lines_args &a, const xn_wgmma_block &b,
                                              int32_t mine) {
    const xn_cuda_specialised_shape &s = a.shape;
    const int32_t after = mine + 1 == MULTIPLIERS ? 0 : mine + 1, lane = threadIdx.x % 32;
    const uint32_t filter_low = xn_matrix_low(xn_shared_address(b.memory), 128);
    const uint32_t buffers = (xn_shared_address(b.memory) + (uint32_t)s.buffers_at) >> 4;
    xn_ring ring = {0, 0}, writer = {0, 0};
    uint32_t turn = 0;
    for (int32_t n = 0; n < mine; n++) {
        ring.next(s.depth);
        writer.next(WRITERS);
    }
    if (s.in_turn && after == 0)
        xn_warp_arrives(lane, xn_barrier_at(b.barriers, TURNS));
    xn_mbarrier_wait(xn_barrier_at(b.barriers, FILTERS), 0);
#pragma unroll 1
    for (int32_t number = b.first + mine; number < b.end; number += MULTIPLIERS) {
        const uint32_t rows = buffers + (uint32_t)(ring.place * (s.buffer_bytes >> 4));
        int32_t counts[N / 2];
        /* written, or ptxas keeps registers for what they were before */
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            asm volatile("mov.b32 %0, 0;" : "=r"(counts[i]));
        if (s.in_turn)
            xn_mbarrier_wait(xn_barrier_at(b.barriers, TURNS + mine), turn);
        turn ^= 1;
        xn_mbarrier_wait(xn_barrier_at(b.barriers, BAND_FULL + ring.place), ring.parity);
        xn_wgmma_multiply<N, true>(s, filter_low, rows, counts);
        if (s.in_turn)
            xn_warp_arrives(lane, xn_barrier_at(b.barriers, TURNS + after));
        xn_wgmma_wait<0>();
        xn_warp_arrives(lane, xn_barrier_at(b.barriers, BAND_FREE + ring.place));
        if (number - b.first >= WRITERS)
            xn_mbarrier_wait(xn_barrier_at(b.barriers, STAGE_FREE + writer.place),
                             writer.parity ^ 1);
        put_counts<N>(a, stage_of(a, b, writer.place), counts);
        xn_mbarrier_arrive(xn_barrier_at(b.barriers, STAGE_FULL + writer.place));
#pragma unroll
        for (int n = 0; n < MULTIPLIERS; n++) {
            ring.next(s.depth);
            writer.next(WRITERS);
        }
    }
}

#endif

/* Warpgroups that multiply and that write, and the registers of a thread of each kind. A block has
 * what the launch gives all its threads alike; those who copy and write give some of theirs to
 * those who multiply. */
template <int MULTIPLIERS_, int WRITERS_>
struct lines_limits {
    enum { MULTIPLIERS = MULTIPLIERS_, WRITERS = WRITERS_ };
    enum { THREADS = (1 + MULTIPLIERS + WRITERS) * GROUP };
    enum { COPIER = 32 };
    enum { WRITER = MULTIPLIERS == 1 ? 88 : 80 };
    enum { MULTIPLIER = MULTIPLIERS == 1 ? 176 : 144 };
    enum { LAUNCHED = 65536 / THREADS / 8 * 8 };
    /* with more than there are a warpgroup would wait for ever */
    static_assert(GROUP * (COPIER + MULTIPLIERS * MULTIPLIER + WRITERS * WRITER) <=
                      THREADS * LAUNCHED,
                  "registers of a block");
};

template <int N, int MULTIPLIERS, int WRITERS, int OUT>
__global__ void __launch_bounds__(lines_limits<MULTIPLIERS, WRITERS>::THREADS, 1)
    lines_kernel(const __grid_constant__ lines_args a) {
#if XN_HAS_WGMMA
    typedef lines_limits<MULTIPLIERS, WRITERS> limits;
    extern __shared__ __align__(128) char lines_memory[];
    __shared__ uint64_t barriers[BARRIERS];
    const int32_t warp = __shfl_sync(0xffffffffu, (int32_t)threadIdx.x / 32, 0);
    const int32_t group = warp / 4;
    const xn_wgmma_block b = xn_wgmma_block_of<M>(a, lines_memory, barriers);
    const lines_table table = table_of(a, lines_memory);
    xn_let_next_kernel_start();
    if (warp == 0)
        start(a, b);
    if (threadIdx.x == 32)
        table.largest[0] = table.largest[1] = 0;
    __syncthreads();
    xn_wgmma_copy_filters(a, b, xn_barrier_at(b.barriers, FILTERS), limits::THREADS);
    if (group == 0) {
        xn_fewer_registers<limits::COPIER>();
        if (threadIdx.x == 0)
            xn_wgmma_copy_bands<BAND_FREE>(a, b);
    } else if (group <= WRITERS) {
        xn_fewer_registers<limits::WRITER>();
        const int32_t thread = (int32_t)threadIdx.x - GROUP;
        make_constants(a, b, table, thread);
        make_table<OUT>(a, b, table, thread, WRITERS * GROUP);
        xn_named_barrier(WRITERS_MEET, WRITERS * GROUP);
        write_jobs<OUT, WRITERS>(a, b, table, group - 1);
    } else {
        xn_more_registers<limits::MULTIPLIER>();
        multiply_jobs<N, MULTIPLIERS, WRITERS>(a, b, group - 1 - WRITERS);
    }
#else
    (void)a;
    __trap();
#endif
}

/* ---- launcher ---- */

typedef void (*lines_function)(const lines_args);

#define KERNELS(N, MULTIPLIERS, WRITERS)                                                           \
    {lines_kernel<N, MULTIPLIERS, WRITERS, XN_FP32>,                                               \
     lines_kernel<N, MULTIPLIERS, WRITERS, XN_FP16>,                                               \
     lines_kernel<N, MULTIPLIERS, WRITERS, XN_INT32>},
/* By variant, then output. */
static const lines_function kernels[XN_CUDA_SPECIALISED_VARIANTS][3] = {
    XN_CUDA_SPECIALISED_EACH_VARIANT(KERNELS)};

cudaError_t xn_cuda_specialised_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                       xn_cuda_specialised_cut *cut,
                                       const xn_cuda_specialised_io *io,
                                       const xn_cuda_epilogue_args *epilogue, cudaStream_t stream) {
    lines_args a = {};
    const cudaError_t e = xn_cuda_keep_cut(cut, images, [&](xn_cuda_specialised_shape *shape) {
        return xn_cuda_specialised_plan(conv, images, multiprocessors, shape);
    });
    if (e != cudaSuccess)
        return e;
    const xn_cuda_specialised_shape *s = &cut->shape;
    a.shape = *s;
    a.conv = *conv;
    a.io = *io;
    a.lines = xn_cuda_padded_of(conv);
    a.factor = epilogue->factor;
    a.bias = epilogue->bias;
    a.output = epilogue->output;
    a.images = (int32_t)images;
    a.row_bands = xn_fast_divisor_of(s->row_bands);
    a.image_pixels = xn_fast_divisor_of(s->rows * conv->out_width);
    a.out_width = xn_fast_divisor_of(conv->out_width);
    a.taps_reciprocal = 1.0f / (float)(conv->kernel_h * conv->kernel_w);
    a.count_high = conv->epilogue.datatype == XN_INT32 ? 0 : COUNT_FLOAT;
    const dim3 blocks = xn_wgmma_grid(s, conv->groups, &a);
    const int output = conv->epilogue.datatype == XN_INT32  ? 2
                       : conv->epilogue.datatype == XN_FP16 ? 1
                                                            : 0;
    return xn_cuda_launch_with(kernels[s->variant][output], blocks,
                               (1 + s->multipliers + s->writers) * GROUP, (size_t)s->bytes,
                               io->overlapped, stream, a);
}

cudaError_t xn_cuda_specialised_load(bool *usable) {
    cudaError_t e = cudaSuccess;
    *usable = true;
    for (const lines_function(&variant)[3] : kernels)
        for (lines_function kernel : variant)
            if (e == cudaSuccess)
                e = xn_cuda_load_wgmma(kernel, XN_CUDA_WGMMA_SHARED_BYTES, usable);
    return e;
}
