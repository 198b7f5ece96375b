/* warp_specialised.cu: many channels with strides 1 and 2, wgmma and.popc, M = 64 filters, N = up
 * to 256 positions.
 *
 * Activations come with their borders and by units of 16 bytes a position (layout.h: lines), so
 * some lines of a unit and phase are one run of memory, and one bulk copy takes them to shared
 * memory. There the matrix instruction reads rows from any multiple of 16 on, and the operand of
 * every tap is the same memory some positions on. A band is some lines of an image, or some whole
 * images; a block keeps 64 filters, and a job is a band times those.
 *
 * A warp copies each phase, one or two warpgroups multiply and put the counts into a stage in
 * shared memory, and as many others as there is room for make outputs of them
 * (warp_specialised_out.cuh). Filters and the table of border classes are under way before the
 * kernel ahead in the stream has ended. */
#include "warp_specialised_out.cuh"

#if XN_HAS_WGMMA

/* Table, factor and bias of the block's filters, by all that write. For real outputs the table has
 * floats, less what the pixels' parts have too much (make_records). */
template <int OUT>
__device__ __forceinline__ void make_filters(const specialised_args &a, const xn_wgmma_block &b,
                                             const specialised_table &t, int32_t thread,
                                             int32_t threads) {
    if (thread < M)
        t.constants.set(a.out, xn_wgmma_filter_of(a.conv, b.group, b.m0 + thread), thread);
    xn_wgmma_make_table(a, b.group, b.m0, thread, threads,
                        [&](int32_t m, int32_t cls, int32_t part) {
                            ((int32_t *)t.rows)[cls * a.shape.table_pitch + m] =
                                OUT == XN_INT32 ? part : __float_as_int((float)(part - 2 * MOST));
                        });
}

/* ---- the warpgroups that multiply ---- */

/* Every MULTIPLIERS-th job, from the one of its number on, to the stage of the writers whose turn
 * it is. */
template <int N, int MULTIPLIERS, int WRITERS>
__device__ __forceinline__ void multiply_jobs(const specialised_args &a, const xn_wgmma_block &b,
                                              int32_t mine) {
    const xn_cuda_specialised_shape &s = a.shape;
    const int32_t after = mine + 1 == MULTIPLIERS ? 0 : mine + 1, lane = threadIdx.x % 32;
    const xn_wgmma_range bands = xn_wgmma_share_of(a, (int32_t)blockIdx.x);
    const uint32_t filter_low = xn_matrix_low(xn_shared_address(b.memory), 128);
    const uint32_t buffers = (xn_shared_address(b.memory) + (uint32_t)s.buffers_at) >> 4;
    xn_ring ring = {0, 0}, writer = {0, 0};
    uint32_t turn = 0;
    ring.skip(mine, s.depth);
    writer.skip(mine, WRITERS);
    if (s.in_turn && after == 0)
        xn_warp_arrives(lane, xn_barrier_at(b.barriers, TURNS));
    xn_mbarrier_wait(xn_barrier_at(b.barriers, FILTERS), 0);
#pragma unroll 1
    for (int32_t number = bands.next + mine; number < bands.end; number += MULTIPLIERS) {
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
        xn_wgmma_multiply<N>(s, filter_low, rows, counts);
        if (s.in_turn)
            xn_warp_arrives(lane, xn_barrier_at(b.barriers, TURNS + after));
        xn_wgmma_wait<0>();
        xn_warp_arrives(lane, xn_barrier_at(b.barriers, BAND_FREE + ring.place));
        if (number - bands.next >= WRITERS)
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
template <int N, int MULTIPLIERS, int WRITERS, int OUT, bool REST>
struct specialised_kernel {
    typedef specialised_args args;
    enum { THREADS = (1 + MULTIPLIERS + WRITERS) * GROUP, BLOCKS = 1, BARRIERS = ::BARRIERS };
    enum { LAUNCHED = 65536 / THREADS / 8 * 8, MORE = REST && MULTIPLIERS == 1 };
    enum { COPIER = MORE ? 24 : 32, WRITER = MULTIPLIERS > 1 ? 80 : MORE ? 96 : 88 };
    enum { MULTIPLIER = MULTIPLIERS > 1 ? 144 : MORE ? 160 : 176 };
    /* with more than there are a warpgroup would wait for ever */
    static_assert(GROUP * (COPIER + MULTIPLIERS * MULTIPLIER + WRITERS * WRITER) <=
                      THREADS * LAUNCHED,
                  "registers of a block");

#if XN_HAS_WGMMA
    /* One arrives with what it expects; all threads that read or wrote; the warps that multiplied,
     * of each a lane. */
    static __device__ __forceinline__ uint32_t arrivals(const args &, int32_t barrier) {
        return barrier < BAND_FREE    ? 1
               : barrier < STAGE_FULL ? GROUP + 4
               : barrier < TURNS      ? GROUP
                                      : 4;
    }
    static __device__ __forceinline__ void begin(const args &a, const xn_wgmma_block &b) {
        const specialised_table table = table_of(a, b.memory);
        if (threadIdx.x == 32)
            table.constants.largest[0] = table.constants.largest[1] = 0;
    }
    static __device__ __forceinline__ void run(const args &a, const xn_wgmma_block &b) {
        const int32_t group = __shfl_sync(0xffffffffu, (int32_t)threadIdx.x / GROUP, 0);
        if (group == 0) {
            xn_fewer_registers<COPIER>();
            const int32_t warp = (int32_t)threadIdx.x / 32;
            if (threadIdx.x % 32 == 0 && warp < a.lines.phases)
                xn_wgmma_copy_bands<BAND_FREE>(a, b, xn_wgmma_share_of(a, (int32_t)blockIdx.x),
                                               warp);
        } else if (group <= WRITERS) {
            const specialised_table table = table_of(a, b.memory);
            xn_fewer_registers<WRITER>();
            make_filters<OUT>(a, b, table, (int32_t)threadIdx.x - GROUP, WRITERS * GROUP);
            xn_named_barrier(WRITERS_MEET, WRITERS * GROUP);
            write_jobs<OUT, REST, WRITERS>(a, b, table, group - 1);
        } else {
            xn_more_registers<MULTIPLIER>();
            multiply_jobs<N, MULTIPLIERS, WRITERS>(a, b, group - 1 - WRITERS);
        }
    }
#endif
};

/* ---- launcher ---- */

enum { OUTPUTS = 5 };
#define KERNEL(N, MULTIPLIERS, WRITERS, OUT, REST)                                                 \
    xn_wgmma_kernel<specialised_kernel<N, MULTIPLIERS, WRITERS, OUT, REST>>,
#define KERNELS(N, MULTIPLIERS, WRITERS)                                                           \
    KERNEL(N, MULTIPLIERS, WRITERS, XN_FP32, false)                                                \
    KERNEL(N, MULTIPLIERS, WRITERS, XN_FP16, false)                                                \
    KERNEL(N, MULTIPLIERS, WRITERS, XN_INT32, false)                                               \
    KERNEL(N, MULTIPLIERS, WRITERS, XN_FP32, true) KERNEL(N, MULTIPLIERS, WRITERS, XN_FP16, true)
/* By variant, then output, plain ones first. */
static void (*const kernels[XN_CUDA_SPECIALISED_VARIANTS * OUTPUTS])(const specialised_args) = {
    XN_CUDA_SPECIALISED_EACH_VARIANT(KERNELS)};

cudaError_t xn_cuda_specialised_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                       xn_cuda_specialised_cut *cut,
                                       const xn_cuda_specialised_io *io,
                                       const xn_epilogue_args *epilogue, cudaStream_t stream) {
    specialised_args a = {};
    cudaError_t e = xn_wgmma_fill(&a, conv, images, cut, io, [&](xn_cuda_specialised_shape *shape) {
        return xn_cuda_specialised_plan(conv, images, multiprocessors, shape);
    });
    if (e == cudaSuccess)
        e = xn_wgmma_fill_epilogue(&a, epilogue, a.shape.vector, stream);
    if (e != cudaSuccess)
        return e;
    const xn_cuda_specialised_shape *s = &a.shape;
    a.lines = xn_cuda_padded_of(conv);
    a.row_bands = xn_fast_divisor_of(s->row_bands);
    a.image_pixels = xn_fast_divisor_of(s->rows * conv->out_width);
    a.out_width = xn_fast_divisor_of(conv->out_width);
    a.count_high = conv->epilogue.datatype == XN_INT32 ? 0 : COUNT_FLOAT;
    const int output = xn_wgmma_output(conv) + (a.rest == XN_WGMMA_PLAIN ? 0 : 3);
    return xn_wgmma_launch(kernels[s->variant * OUTPUTS + output], &a,
                           (1 + s->multipliers + s->writers) * GROUP, stream);
}

cudaError_t xn_cuda_specialised_load(bool *usable) {
    return xn_wgmma_load(kernels, std::size(kernels), usable);
}
