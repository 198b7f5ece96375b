/* gemm_bands.cu: packed output of many channels with stride 1, wgmma and.popc, M = 64 filters,
 * N = up to 240 positions. For little work, which its chain suits: no pass over the input before.
 *
 * A band is some whole output rows of an image, or some whole images: its positions, rows and
 * images kept apart by zeros, are gathered into shared memory once, chunk-major, 16 bytes a
 * position. There the matrix instruction reads rows from any multiple of 16 on, so the operand of
 * every tap is the same memory some positions on. Filters stay in shared memory; a job is a band
 * times one tile of them.
 *
 * Two warpgroups produce: they gather, count set bits, and make the pixels' part of every
 * output. The others take the jobs in turn: they multiply and write, and where multiplying takes
 * long one passes the matrix units to the next when all its instructions are on their way, so that
 * one writes while another multiplies. Filters and the table of border classes are under way before
 * the kernel ahead in the stream has ended. */
#include "gemm_bands_out.cuh"
#include "gemm_products.cuh"
#include "launch.cuh"

#if XN_HAS_WGMMA

/* ---- filters and their table ---- */

/* Warp 0: barriers, and what filters will bring. */
__device__ __forceinline__ void start(const bands_args &a, const bands_block &b) {
    const xn_cuda_bands_shape &s = a.shape;
    const int32_t lane = threadIdx.x & 31;
    const uint32_t bytes = (uint32_t)(s.block_tiles * M) * 32;
    const int32_t first = lane * s.piece_pairs;
    if (lane < BARRIERS) {
        const bool produced = (lane >= POSITIONS_FULL && lane < POSITIONS_FREE) ||
                              (lane >= RECORDS_FULL && lane < RECORDS_FREE);
        const bool used = (lane >= POSITIONS_FREE && lane < RECORDS_FULL) ||
                          (lane >= RECORDS_FREE && lane < TURNS);
        xn_mbarrier_init(xn_barrier_at(b.barriers, lane), produced        ? PRODUCERS
                                                          : used          ? 4 * s.block_tiles
                                                          : lane >= TURNS ? 4
                                                                          : 1);
    }
    xn_mbarrier_init_fence();
    __syncwarp();
    if (first < s.pairs)
        xn_mbarrier_expect(xn_barrier_at(b.barriers, lane),
                           min(s.piece_pairs, s.pairs - first) * bytes);
}

/* One bulk copy a pair of chunks. The warps share them: to start one takes a thread about a hundred
 * cycles. */
__device__ __forceinline__ void copy_filters(const bands_args &a, const bands_block &b,
                                             int32_t threads) {
    const xn_cuda_bands_shape &s = a.shape;
    const uint32_t bytes = (uint32_t)(s.block_tiles * M) * 32;
    const uint32_t filters = xn_shared_address(b.memory);
    const int64_t filter = (int64_t)b.group * a.conv.group_out_channels + b.m0;
    if (threadIdx.x % 32 == 0)
        for (int32_t pair = (int32_t)threadIdx.x / 32; pair < s.pairs; pair += threads / 32)
            xn_bulk_copy(filters + (uint32_t)pair * bytes,
                         (const char *)a.io.filters + (pair * a.io.filter_rows + filter) * 32,
                         bytes, xn_barrier_at(b.barriers, pair / s.piece_pairs));
    __syncwarp();
}

/* What a class adds to the entries of a filter. */
__device__ __forceinline__ void put_entry(const bands_args &a, const xn_gemm_filter &f, int32_t cls,
                                          int32_t inside, int32_t all, int32_t *row) {
    const xn_conv &c = a.conv;
    const int32_t taps = c.kernel_h * c.kernel_w, in = a.shape.borders.pixel_class[cls].inside;
    const int32_t part = xn_cuda_filter_part(c.pad_value, inside, all - inside);
    const int32_t base = xn_cuda_pixel_part(c.pad_value, c.group_channels, in, taps - in, 0);
    row += 2 * cls * a.shape.table_pitch;
    row[0] = f.live ? xn_count_limit(f.threshold, part, base, 0) : 1 << 29;
    row[a.shape.table_pitch] = f.live ? xn_count_limit(f.threshold, part, base, 1) : 1 << 29;
}

/* The table, by all threads that multiply: a thread has one filter and every so many-th class. */
__device__ __forceinline__ void make_table(const bands_args &a, const bands_block &b,
                                           const bands_table &t, int32_t thread, int32_t threads) {
    constexpr int32_t BATCH = 3; /* loads of several classes at once */
    const xn_conv &c = a.conv;
    const int64_t pitch = c.out_channels;
    const int32_t filters = a.shape.block_tiles * M, classes = a.shape.borders.classes;
    const int32_t step = max(threads / filters, 1);
    for (int32_t m = thread % filters; m < filters; m += threads) {
        const xn_gemm_filter f = xn_gemm_filter_of<true>(c, a.io.threshold, b.group, b.m0 + m);
        const int32_t *prefix = a.io.prefix + f.index;
        const int32_t all = xn_bits_of_filter(c, prefix, pitch);
        for (int32_t first = thread / filters; first < classes; first += BATCH * step) {
            int32_t inside[BATCH];
            xn_bits_of_classes(prefix, pitch, a.shape.borders, first, step, inside);
#pragma unroll
            for (int n = 0; n < BATCH; n++)
                if (first + n * step < classes)
                    put_entry(a, f, first + n * step, inside[n], all, (int32_t *)t.rows + m);
        }
    }
}

/* The bits to turn. */
__device__ __forceinline__ void copy_flips(const bands_args &a, const bands_block &b,
                                           const bands_table &t, int32_t thread) {
    if (thread >= a.shape.block_tiles * M / 32)
        return;
    const int32_t word = (b.group * a.conv.group_out_channels + b.m0) / 32 + thread;
    t.flips[thread] = a.io.flip && word * 32 < a.conv.out_channels ? a.io.flip[word] : 0;
}

/* ---- the warpgroups that multiply ---- */

/* 64 filters by N positions, a pair of chunks. More than 128 positions are two instructions, which
 * take as long as one: ptxas compiles none that needs more registers than the launch bound gives.
 */
template <int N>
__device__ __forceinline__ void multiply_pair(int32_t (&counts)[N / 2], uint32_t filters,
                                              uint32_t rows, int32_t add) {
    constexpr int32_t FIRST = N > 224 ? 128 : N > 128 ? N / 2 : N;
    xn_wgmma<FIRST>::run(counts, xn_matrix(filters, 256), xn_matrix(rows, 128), add);
    if constexpr (N > FIRST)
        xn_wgmma<N - FIRST>::run(counts + FIRST / 2, xn_matrix(filters, 256),
                                 xn_matrix(rows + FIRST, 128), add);
}

/* Starts all matrix instructions of a job: positions begin at shared address `rows` * 16, the first
 * pair of the filters has the descriptor `filters`. */
template <int N>
__device__ __forceinline__ void multiply(const bands_args &a, xn_gemm_filters *f, uint32_t rows,
                                         uint32_t filters, int32_t (&counts)[N / 2]) {
    xn_gemm_products(a.shape, f, rows, filters, (uint32_t)a.shape.block_tiles * (M * 2),
                     [&](uint32_t position, uint32_t filter, int32_t add) {
                         multiply_pair<N>(counts, filter, position, add);
                     });
}

template <int N>
__device__ __forceinline__ void consume(const bands_args &a, const bands_block &b,
                                        const bands_table &t, int32_t consumer) {
    const xn_cuda_bands_shape &s = a.shape;
    const int32_t jobs = (b.end - b.first) * s.block_tiles;
    const int32_t after = consumer + 1 == s.consumers ? 0 : consumer + 1;
    const uint32_t filter_low = xn_matrix_low(xn_shared_address(b.memory), 128);
    xn_gemm_filters filters = {xn_barrier_at(b.barriers, PIECES), 0};
    bands_job job = {};
    job.group = b.group;
    job.consumer = consumer;
    job.warp = (int32_t)threadIdx.x / 32 % 4;
    job.lane = (int32_t)threadIdx.x % 32;
    if (s.in_turn && after == 0)
        xn_warp_arrives(job.lane, xn_barrier_at(b.barriers, TURNS));
    uint32_t turn = 0;
#pragma unroll 1
    for (job.number = consumer; job.number < jobs; job.number += s.consumers) {
        const int32_t band = job.number / s.block_tiles, place = band % s.depth;
        const uint32_t parity = (uint32_t)(band / s.depth) & 1;
        const uint32_t rows =
            (xn_shared_address(b.memory) + (uint32_t)(s.buffers_at + place * s.buffer_bytes)) >> 4;
        int32_t counts[N / 2];
        job.band = b.first + band;
        job.tile = job.number - band * s.block_tiles;
        job.m = b.m0 + job.tile * M;
        if (s.in_turn)
            xn_mbarrier_wait(xn_barrier_at(b.barriers, TURNS + consumer), turn);
        turn ^= 1;
        xn_mbarrier_wait(xn_barrier_at(b.barriers, POSITIONS_FULL + place), parity);
        multiply<N>(a, &filters, rows, filter_low + (uint32_t)job.tile * (M * 2), counts);
        if (s.in_turn)
            xn_warp_arrives(job.lane, xn_barrier_at(b.barriers, TURNS + after));
        xn_wgmma_wait<0>();
        xn_warp_arrives(job.lane, xn_barrier_at(b.barriers, POSITIONS_FREE + place));
        xn_mbarrier_wait(xn_barrier_at(b.barriers, RECORDS_FULL + place), parity);
        write_outputs<N>(a, b, t, records_of(a, b, place), job, counts);
        xn_warp_arrives(job.lane, xn_barrier_at(b.barriers, RECORDS_FREE + place));
    }
}

#endif

/* Warpgroups that multiply, and the registers of a thread of each kind. A block has what the launch
 * gives all its threads alike; the producers give some of theirs to the others. */
template <int N>
struct bands_limits {
    enum { CONSUMERS = N > 128 ? 2 : N > 64 ? 3 : 4 };
    enum { THREADS = XN_CUDA_BANDS_PRODUCERS + CONSUMERS * XN_CUDA_BANDS_GROUP };
    enum { PRODUCER = N > 128 ? 72 : N > 64 ? 56 : 64 };
    enum { CONSUMER = N > 128 ? 184 : N > 64 ? 120 : 88 };
    enum { LAUNCHED = 65536 / THREADS / 8 * 8 };
    /* with more than there are a warpgroup would wait for ever */
    static_assert(XN_CUDA_BANDS_PRODUCERS * PRODUCER + CONSUMERS * XN_CUDA_BANDS_GROUP * CONSUMER <=
                      THREADS * LAUNCHED,
                  "registers of a block");
    static_assert(PRODUCER < LAUNCHED && LAUNCHED < CONSUMER, "one kind gives, the other takes");
};

template <int N>
__global__ void __launch_bounds__(bands_limits<N>::THREADS, 1)
    bands_kernel(const __grid_constant__ bands_args a) {
#if XN_HAS_WGMMA
    extern __shared__ __align__(128) char bands_memory[];
    __shared__ uint64_t barriers[BARRIERS];
    const int32_t warpgroup = __shfl_sync(0xffffffffu, (int32_t)threadIdx.x / GROUP, 0);
    bands_block b;
    b.memory = bands_memory;
    b.barriers = xn_shared_address(barriers);
    b.group = (int32_t)blockIdx.z;
    b.m0 = (int32_t)blockIdx.y * a.shape.block_tiles * M;
    b.first = (int32_t)blockIdx.x * a.bands_each + min((int32_t)blockIdx.x, a.bands_more);
    b.end = b.first + a.bands_each + ((int32_t)blockIdx.x < a.bands_more);
    const bands_table table = table_of(a, bands_memory);
    xn_let_next_kernel_start();
    if (threadIdx.x < 32)
        start(a, b);
    __syncthreads();
    copy_filters(a, b, bands_limits<N>::THREADS);
    if (warpgroup < PRODUCERS / GROUP) {
        xn_fewer_registers<bands_limits<N>::PRODUCER>();
        produce<N>(a, b);
    } else {
        xn_more_registers<bands_limits<N>::CONSUMER>();
        const int32_t threads = bands_limits<N>::CONSUMERS * GROUP;
        copy_flips(a, b, table, (int32_t)threadIdx.x - PRODUCERS);
        make_table(a, b, table, (int32_t)threadIdx.x - PRODUCERS, threads);
        xn_named_barrier(MULTIPLIERS_MEET, threads);
        consume<N>(a, b, table, warpgroup - PRODUCERS / GROUP);
    }
#else
    (void)a;
    __trap();
#endif
}

/* ---- launcher ---- */

typedef void (*bands_function)(const bands_args);

/* By gemm_bands_plan.cu's variants. */
static const bands_function kernels[XN_CUDA_BANDS_VARIANTS] = {bands_kernel<240>, bands_kernel<224>,
                                                               bands_kernel<128>, bands_kernel<64>};

/* Lanes that share a position: 8, or less where its units are not a multiple. */
static int32_t lanes_shift(const xn_cuda_bands_shape *shape) {
    int32_t shift = 0;
    while (shift < 3 && shape->units % (2 << shift) == 0)
        shift++;
    return shift;
}

/* Loads of a producer for a band, where each takes one unit of every so many positions of an image
 * and has the registers; else 0. */
static int32_t held_loads(const xn_cuda_bands_shape *s, int32_t shift) {
    const int32_t step = XN_CUDA_BANDS_PRODUCERS >> shift, loads = (s->slots + step - 1) / step;
    const bool fits = loads <= XN_CUDA_BANDS_HELD(s->positions);
    return s->images == 1 && s->units > 1 && s->units == 1 << shift && fits ? loads : 0;
}

cudaError_t xn_cuda_bands_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                 xn_cuda_bands_cut *cut, const xn_cuda_wide_io *io,
                                 cudaStream_t stream) {
    bands_args a = {};
    const cudaError_t e = xn_cuda_keep_cut(cut, images, [&](xn_cuda_bands_shape *shape) {
        return xn_cuda_bands_plan(conv, images, multiprocessors, shape);
    });
    if (e != cudaSuccess)
        return e;
    const xn_cuda_bands_shape *s = &cut->shape;
    a.shape = *s;
    a.conv = *conv;
    a.io = *io;
    a.images = (int32_t)images;
    a.image_pitch = xn_fast_divisor_of(s->image_pitch);
    a.width = xn_fast_divisor_of(s->width);
    a.row_bands = xn_fast_divisor_of(s->row_bands);
    a.column_bands = xn_fast_divisor_of(s->column_bands);
    a.lanes_shift = lanes_shift(s);
    a.held = held_loads(s, a.lanes_shift);
    a.step_rows = (XN_CUDA_BANDS_PRODUCERS >> a.lanes_shift) / s->width;
    a.step_columns = (XN_CUDA_BANDS_PRODUCERS >> a.lanes_shift) % s->width;
    a.bands_each = s->bands / s->pixel_blocks;
    a.bands_more = s->bands % s->pixel_blocks;
    const dim3 blocks((unsigned)s->pixel_blocks, (unsigned)s->filter_blocks,
                      (unsigned)conv->groups);
    return xn_cuda_launch_with(kernels[s->variant], blocks,
                               XN_CUDA_BANDS_PRODUCERS + s->consumers * XN_CUDA_BANDS_GROUP,
                               (size_t)s->bytes, io->overlapped, stream, a);
}

cudaError_t xn_cuda_bands_load(bool *usable) {
    cudaError_t e = cudaSuccess;
    *usable = true;
    for (bands_function kernel : kernels)
        if (e == cudaSuccess)
            e = xn_cuda_load_wgmma(kernel, XN_CUDA_BANDS_SHARED_BYTES, usable);
    return e;
}
