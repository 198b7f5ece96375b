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
#include "launch.cuh"
#include "warp_specialised_out.cuh"

#if XN_HAS_WGMMA

/* Table, factor and bias of the block's filters, by all that write. The table has floats, less what
 * the pixels' parts have too much (make_records). */
__device__ __forceinline__ void make_filters(const specialised_args &a, const specialised_block &b,
                                             const specialised_table &t, int32_t thread,
                                             int32_t threads) {
    if (thread < M)
        t.constants.set(a.out, filter_of(a.conv, b.group, b.m0 + thread), thread);
    make_table(a, b.group, b.m0, thread, threads, [&](int32_t m, int32_t cls, int32_t part) {
        ((float *)t.rows)[cls * a.shape.table_pitch + m] = (float)(part - 2 * MOST);
    });
}

/* ---- the warpgroups that multiply ---- */

/* The products of a tile of 64 filters and N positions, added to what `counts` hold. Positions
 * begin at shared address `rows` * 16; `filters` is the low half of the first pair's descriptor.
 * The loop is in the form that ptxas leaves alone: unrolled by hand, or with a fence or anything
 * that may wait in every round, it gets a wait behind every instruction (its remark C7520). More
 * than 128 positions are two instructions, which take as long as one: ptxas compiles none that
 * needs more registers than the launch bound gives. */
template <int N>
__device__ __forceinline__ void multiply(const xn_cuda_specialised_shape &s, uint32_t filters,
                                         uint32_t rows, int32_t (&counts)[N / 2]) {
    constexpr int32_t FIRST = N > 128 ? N / 2 : N;
    const int32_t pairs = s.pairs;
    rows = __shfl_sync(0xffffffffu, rows, 0); /* the compiler sees that a warp has one */
    filters = __shfl_sync(0xffffffffu, filters, 0);
    uint32_t next = s.pair_low[0]; /* read ahead: it takes longer than an instruction */
    xn_wgmma_fence();
#pragma unroll 3
    for (int32_t pair = 0; pair < pairs; pair++) {
        const uint32_t low = rows + next;
        next = s.pair_low[pair + 1];
        xn_wgmma<FIRST>::run(counts, xn_matrix(filters, 256), xn_matrix(low, 128), true);
        if constexpr (N > FIRST)
            xn_wgmma<N - FIRST>::run(counts + FIRST / 2, xn_matrix(filters, 256),
                                     xn_matrix(low + FIRST, 128), true);
        filters += M * 32 / 16;
    }
    xn_wgmma_commit();
}

/* Every MULTIPLIERS-th job, from the one of its number on, to the stage of the writers whose turn
 * it is. */
template <int N, int MULTIPLIERS, int WRITERS>
__device__ __forceinline__ void multiply_jobs(const specialised_args &a, const specialised_block &b,
                                              int32_t mine) {
    const xn_cuda_specialised_shape &s = a.shape;
    const int32_t after = mine + 1 == MULTIPLIERS ? 0 : mine + 1, lane = threadIdx.x % 32;
    const specialised_range bands = share_of(a);
    const uint32_t filter_low = xn_matrix_low(xn_shared_address(b.memory), 128);
    const uint32_t buffers = (xn_shared_address(b.memory) + (uint32_t)s.buffers_at) >> 4;
    specialised_ring ring = {0, 0}, writer = {0, 0};
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
        multiply<N>(s, filter_low, rows, counts);
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

/* ---- a block ---- */

/* Barriers, and what filters will bring, by one warp. One arrives with what it expects; all threads
 * that read or wrote; the warps that multiplied, of each a lane. */
__device__ __forceinline__ void start_barriers(const specialised_args &a,
                                               const specialised_block &b) {
    static_assert(BARRIERS <= 32, "a lane each");
    const int32_t lane = threadIdx.x & 31;
    if (lane < BARRIERS)
        xn_mbarrier_init(xn_barrier_at(b.barriers, lane), lane < BAND_FREE    ? 1
                                                          : lane < STAGE_FULL ? GROUP + 4
                                                          : lane < TURNS      ? GROUP
                                                                              : 4);
    xn_mbarrier_init_fence();
    __syncwarp();
    if (lane == 0)
        xn_mbarrier_expect(b.barriers, (uint32_t)a.shape.pairs * M * 32);
    __syncwarp();
}

#endif

/* Warpgroups that multiply and that write, and the registers of a thread of each kind. A block has
 * what the launch gives all its threads alike; those who copy and write give some of theirs to
 * those who multiply. */
template <int MULTIPLIERS, int WRITERS, bool REST>
struct specialised_registers {
    enum { THREADS = (1 + MULTIPLIERS + WRITERS) * GROUP, LAUNCHED = 65536 / THREADS / 8 * 8 };
    enum { MORE = REST && MULTIPLIERS == 1, COPIER = MORE ? 24 : 32 };
    enum { WRITER = MULTIPLIERS > 1 ? 80 : MORE ? 96 : 88 };
    enum { MULTIPLIER = MULTIPLIERS > 1 ? 144 : MORE ? 160 : 176 };
    /* with more than there are a warpgroup would wait for ever */
    static_assert(GROUP * (COPIER + MULTIPLIERS * MULTIPLIER + WRITERS * WRITER) <=
                      THREADS * LAUNCHED,
                  "registers of a block");
};

template <int N, int MULTIPLIERS, int WRITERS, int OUT, bool REST>
__global__ void __launch_bounds__((1 + MULTIPLIERS + WRITERS) * GROUP, 1)
    specialised_kernel(const __grid_constant__ specialised_args a) {
#if XN_HAS_WGMMA
    typedef specialised_registers<MULTIPLIERS, WRITERS, REST> registers;
    extern __shared__ __align__(128) char wgmma_memory[];
    __shared__ uint64_t barriers[BARRIERS];
    const specialised_block b = {wgmma_memory, xn_shared_address(barriers), (int32_t)blockIdx.z,
                                 (int32_t)blockIdx.y * M};
    xn_let_next_kernel_start();
    if (threadIdx.x < 32)
        start_barriers(a, b);
    if (threadIdx.x == 32) {
        const specialised_table table = table_of(a, b.memory);
        table.constants.largest[0] = table.constants.largest[1] = 0;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) /* at once, by all warps */
        copy_filters(a, b, (int32_t)threadIdx.x / 32, (int32_t)blockDim.x / 32);
    __syncwarp();
    const int32_t group = __shfl_sync(0xffffffffu, (int32_t)threadIdx.x / GROUP, 0);
    if (group == 0) {
        xn_fewer_registers<registers::COPIER>();
        const int32_t warp = (int32_t)threadIdx.x / 32;
        if (threadIdx.x % 32 == 0 && warp < a.lines.phases)
            copy_bands(a, b, warp);
    } else if (group <= WRITERS) {
        const specialised_table table = table_of(a, b.memory);
        xn_fewer_registers<registers::WRITER>();
        make_filters(a, b, table, (int32_t)threadIdx.x - GROUP, WRITERS * GROUP);
        xn_named_barrier(WRITERS_MEET, WRITERS * GROUP);
        write_jobs<OUT, REST, WRITERS>(a, b, table, group - 1);
    } else {
        xn_more_registers<registers::MULTIPLIER>();
        multiply_jobs<N, MULTIPLIERS, WRITERS>(a, b, group - 1 - WRITERS);
    }
#else
    (void)a;
    __trap();
#endif
}

/* ---- launcher ---- */

enum { OUTPUTS = 4 };
#define KERNEL(N, MULTIPLIERS, WRITERS, OUT, REST)                                                 \
    specialised_kernel<N, MULTIPLIERS, WRITERS, OUT, REST>,
#define KERNELS(N, MULTIPLIERS, WRITERS)                                                           \
    KERNEL(N, MULTIPLIERS, WRITERS, XN_FP32, false)                                                \
    KERNEL(N, MULTIPLIERS, WRITERS, XN_FP16, false)                                                \
    KERNEL(N, MULTIPLIERS, WRITERS, XN_FP32, true) KERNEL(N, MULTIPLIERS, WRITERS, XN_FP16, true)
/* By variant, then output, plain ones first. */
static void (*const kernels[XN_CUDA_SPECIALISED_VARIANTS * OUTPUTS])(const specialised_args) = {
    XN_CUDA_SPECIALISED_EACH_VARIANT(KERNELS)};

/* How much of an epilogue the fast way does, which has `vector` neighbouring outputs at a time, and
 * residuals of their datatype. */
static specialised_kind kind_of(const xn_conv *conv, const xn_epilogue_args *out, int32_t vector) {
    const bool fp16 = out->what.datatype == XN_FP16;
    if (xn_is_plain(out->what))
        return PLAIN;
    if ((out->what.bits && !xn_has_half_words(*conv)) ||
        (out->what.residual &&
         (out->residual_fp16 != fp16 || !xn_residual_has_vectors(*out, vector))))
        return ANY;
    return out->what.activation == XN_ACTIVATION_NONE ? BESIDE : ACTIVATED;
}

cudaError_t xn_cuda_specialised_launch(const xn_conv *conv, int64_t images,
                                       const xn_cuda_specialised_shape *s,
                                       const xn_cuda_specialised_io *io,
                                       const xn_epilogue_args *epilogue, cudaStream_t stream) {
    specialised_args a = {};
    a.out = xn_epilogue_of(conv, epilogue);
    if (conv->epilogue.datatype == XN_INT32) { /* the dot itself, which fp32 holds */
        a.out.factor = a.out.bias = NULL;
        a.out.unit = 1.0f;
    }
    a.lines = xn_cuda_padded_of(conv);
    a.row_bands = xn_fast_divisor_of(s->row_bands);
    a.image_pixels = xn_fast_divisor_of(s->rows * conv->out_width);
    a.out_width = xn_fast_divisor_of(conv->out_width);
    a.rest = kind_of(conv, &a.out, s->vector);
    a.count_high = COUNT_FLOAT;
    a.images = (int32_t)images;
    a.conv = *conv;
    a.io = *io;
    a.share_each = s->bands / s->pixel_blocks;
    a.share_more = s->bands % s->pixel_blocks;
    a.shape = *s;
    const bool clears = a.out.what.bits && a.rest == ANY;
    const cudaError_t e = clears ? xn_clear_bits(conv, images, &a.out, stream) : cudaSuccess;
    if (e != cudaSuccess)
        return e;
    const int output = xn_wgmma_is_fp16(conv) + (a.rest == PLAIN ? 0 : 2);
    const dim3 blocks((unsigned)s->pixel_blocks, (unsigned)s->filter_blocks,
                      (unsigned)conv->groups);
    return xn_cuda_launch_with(kernels[s->variant * OUTPUTS + output], blocks,
                               (1 + s->multipliers + s->writers) * GROUP, (size_t)s->bytes,
                               io->overlapped && !clears, stream, a);
}

cudaError_t xn_cuda_specialised_load(bool *usable) {
    cudaError_t e = cudaSuccess;
    *usable = true;
    for (auto kernel : kernels)
        if (e == cudaSuccess)
            e = xn_cuda_load_wgmma(kernel, XN_CUDA_WGMMA_SHARED_BYTES, usable);
    return e;
}
