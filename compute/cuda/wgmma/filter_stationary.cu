/* filter_stationary.cu: mode xnor as an implicit GEMM on the matrix units of sm_90a (wgmma).
 *
 *   C[pixel, filter] = sum over chunks of popc(a[pixel][chunk] and w[filter][chunk])
 *
 * M = output pixels, so that a thread ends up with neighbouring filters of one pixel, which is what
 * packed output wants. A chunk is 128 bits: 16 bytes of the row vector of kernel row i, the taps
 * (i, 0..KW-1) of a pixel one after the other.
 *
 * Filters stay: a block copies those of its filter tiles once, as the matrix instruction reads them
 * (layout.h), in pieces that the first multiplications wait for one by one; they and the table of
 * border classes are under way before the kernel ahead in the stream has ended.
 *
 * Pixels pass: each warpgroup is a worker of its own with a range of the positions of the raster of
 * all images' outputs. It gathers what some subtiles of 64 positions read, multiplies them by each
 * filter tile and writes; nothing is common to the workers but filters and table, so that one's
 * epilogue and gather run beside another's matrix instructions, and the block never meets again.
 *
 * What a tile reads is gathered once into shared memory, chunk-major, 16 bytes a position. There
 * the matrix instruction reads rows from any multiple of 16 on, so with stride 1 the operand of
 * kernel row i is the same memory dilation * i raster rows further on: nothing is copied per kernel
 * row, and taps outside the image were gathered as zeros. For that the raster has rows of zeros
 * between images, whose positions yield outputs that nobody stores. Where chunks pair up within a
 * tap (256 channels and more) the taps of a row overlap in the same way, with columns of zeros
 * between rows; otherwise a position has the taps of a kernel row one after the other, which packs
 * few channels densely. With stride 2 and more, and where the overlap saves nothing, every kernel
 * row has its own positions.
 *
 * The rest of dot (layout.h) is made while matrix instructions run: the set bits of each position
 * from shared memory, K from the channel means that came with them. */
#include "filter_stationary_out.cuh"
#include "launch.cuh"
#include "wgmma_pipeline.cuh"

#if XN_HAS_WGMMA

/* ---- filters ---- */

/* Warp 0: barriers, then one bulk copy a pair of chunks, the lanes in turn. */
__device__ __forceinline__ void start_filters(const wide_args &a, const wide_block &b,
                                              uint32_t barriers, int64_t filter) {
    const xn_cuda_stationary_shape &s = a.shape;
    const int32_t lane = threadIdx.x & 31;
    const uint32_t bytes = (uint32_t)(s.block_tiles * s.tile_filters) * 32;
    const int32_t first = lane * s.piece_pairs;
    if (lane == 0)
        for (int32_t piece = 0; piece < XN_WGMMA_MAX_PIECES; piece++)
            xn_mbarrier_init(barriers + piece * 8, 1);
    xn_mbarrier_init_fence();
    __syncwarp();
    if (first < s.pairs)
        xn_mbarrier_expect(barriers + lane * 8, min(s.piece_pairs, s.pairs - first) * bytes);
    __syncwarp();
    for (int32_t pair = lane; pair < s.pairs; pair += 32)
        xn_bulk_copy(b.filters + (uint32_t)pair * bytes,
                     (const char *)a.io.filters + (pair * a.io.filter_rows + filter) * 32, bytes,
                     barriers + (uint32_t)(pair / s.piece_pairs) * 8);
}

/* ---- a worker ---- */

/* Starts all matrix instructions of a subtile, whose positions begin at shared address `rows` * 16,
 * and a filter tile, whose first pair has the descriptor `filters`. */
template <int NT>
__device__ __forceinline__ void multiply(const wide_args &a, xn_wgmma_pieces *f, uint32_t rows,
                                         uint32_t filters, int32_t (&counts)[NT / 2]) {
    xn_wgmma_products(a.shape, f, rows, filters, (uint32_t)a.shape.block_tiles * (NT * 2),
                      [&](uint32_t position, uint32_t filter, int32_t add) {
                          xn_wgmma<NT>::run(counts, xn_matrix(position, 128),
                                            xn_matrix(filter, 256), add);
                      });
}

/* Where multiplying takes long, two workers at a time do it: if all did, all would end at the same
 * time and leave the matrix units idle while they write and gather, and one alone cannot start
 * instructions fast enough. A meeting of the worker follows. */
__device__ __forceinline__ void take_turn(const wide_block &b, const wide_worker &w) {
    if (w.thread == 0)
        while (atomicSub(b.multiplying, 1) <= 0) {
            atomicAdd(b.multiplying, 1);
            __nanosleep(32);
        }
}

__device__ __forceinline__ void end_turn(const wide_block &b, const wide_worker &w) {
    if (w.thread == 0)
        atomicAdd(b.multiplying, 1);
}

/* Subtiles [next, end) of a worker. */
struct wide_range {
    int32_t next, end;
};

__device__ __forceinline__ wide_range range_of(const wide_args &a) {
    const int32_t worker = (int32_t)(threadIdx.x / WORKER * gridDim.x + blockIdx.x);
    wide_range r;
    r.next = worker * a.range_each + min(worker, a.range_more);
    r.end = r.next + a.range_each + (worker < a.range_more);
    return r;
}

/* While the first matrix instructions of a tile run: what its outputs need of its positions. */
template <int OUT>
__device__ __forceinline__ void prepare(const wide_args &a, const wide_block &b,
                                        const wide_worker &w, int32_t buffer, int32_t first,
                                        int32_t subtiles) {
    const char *positions = w.buffers + buffer * a.shape.buffer_bytes;
    count_positions(a, w, positions, subtiles * SUB);
    worker_barrier(w);
    make_pixels<OUT>(a, b, w, positions, first * SUB, subtiles);
    if (OUT != XN_CUDA_STATIONARY_PACKED)
        worker_barrier(w); /* other warps store these pixels' outputs */
}

template <int NT, int OUT>
__device__ __forceinline__ void run_worker(const wide_args &a, const wide_block &b,
                                           const wide_worker &w, xn_wgmma_pieces filters,
                                           int32_t group, int32_t m0, wide_range range) {
    const int32_t tiles = a.shape.block_tiles, most = a.shape.tile_pixels;
    const uint32_t filter_low = xn_matrix_low(b.filters, 128);
    int32_t buffer = 0;
#pragma unroll 1
    while (range.next < range.end) {
        const int32_t first = range.next, subtiles = min(most, range.end - first);
        const uint32_t rows =
            (xn_shared_address(w.buffers) + (uint32_t)(buffer * a.shape.buffer_bytes)) >> 4;
        range.next += subtiles;
        xn_copy_wait<0>();
        xn_fence_proxy();
        int32_t subtile = 0, tile = 0;
#pragma unroll 1
        do {
            int32_t counts[NT / 2];
            const bool turns = a.shape.in_turn;
            if (turns)
                take_turn(b, w);
            if (turns || (subtile == 0 && tile == 0))
                worker_barrier(w);
            multiply<NT>(a, &filters, rows + (uint32_t)subtile * SUB,
                         filter_low + (uint32_t)tile * (NT * 2), counts);
            if (turns)
                end_turn(b, w);
            const wide_outputs outputs = {group, m0, tile * NT};
            const int32_t at = subtile;
            if (subtile == 0 && tile == 0) {
                prepare<OUT>(a, b, w, buffer, first, subtiles);
                if (a.shape.buffers == 2 && range.next < range.end) {
                    buffer ^= 1;
                    gather(a, w, group, range.next * SUB, min(most, range.end - range.next),
                           buffer);
                }
            }
            if (++tile == tiles) {
                tile = 0;
                subtile++;
            }
            xn_wgmma_wait<0>();
            if (subtile == subtiles && a.shape.buffers == 1 && range.next < range.end) {
                worker_barrier(w); /* all have read the positions */
                gather(a, w, group, range.next * SUB, min(most, range.end - range.next), 0);
            }
            write_outputs<NT, OUT>(a, b, w, at, outputs, counts);
        } while (subtile < subtiles);
    }
}

#endif

template <int NT, int OUT>
struct wide_limits { /* registers: 65536 over the threads that run at once */
    enum { TILE = NT == 128 ? 0 : NT == 64 ? 1 : 2, PACKED = OUT == XN_CUDA_STATIONARY_PACKED };
    enum { THREADS = xn_stationary_workers(TILE, PACKED) * WORKER };
    enum { BLOCKS = xn_stationary_blocks(TILE, PACKED) };
};

template <int NT, int OUT>
__global__ void __launch_bounds__((wide_limits<NT, OUT>::THREADS), (wide_limits<NT, OUT>::BLOCKS))
    wide_kernel(const __grid_constant__ wide_args a) {
#if XN_HAS_WGMMA
    extern __shared__ __align__(128) char wide_memory[];
    __shared__ uint64_t barriers[XN_WGMMA_MAX_PIECES];
    constexpr bool PACKED = OUT == XN_CUDA_STATIONARY_PACKED;
    const wide_block block = block_parts(a, wide_memory);
    const wide_worker worker = worker_parts(a, wide_memory);
    const int32_t group = (int32_t)blockIdx.z;
    const int32_t m0 = (int32_t)blockIdx.y * a.shape.block_tiles * NT;
    const wide_range range = range_of(a);
    xn_wgmma_pieces filters = {xn_shared_address(barriers), 0};
    xn_let_next_kernel_start();
    if (threadIdx.x < 32)
        start_filters(a, block, filters.barrier, (int64_t)group * a.conv.group_out_channels + m0);
    if (threadIdx.x == 32) {
        block.largest[0] = block.largest[1] = 0;
        *block.multiplying = 2;
    }
    __syncthreads();
    make_constants<PACKED>(a, block, group, m0);
    make_table<PACKED>(a, block, group, m0);
    xn_wait_for_previous_kernel();
    if (range.next < range.end)
        gather(a, worker, group, range.next * SUB, min(a.shape.tile_pixels, range.end - range.next),
               0);
    __syncthreads();
    run_worker<NT, OUT>(a, block, worker, filters, group, m0, range);
#else
    (void)a;
    __trap();
#endif
}

/* ---- launcher ---- */

typedef void (*wide_function)(const wide_args);

#define TILE(NT)                                                                                   \
    {                                                                                              \
        wide_kernel<NT, XN_FP32>, wide_kernel<NT, XN_FP16>, wide_kernel<NT, XN_INT32>,             \
            wide_kernel<NT, XN_CUDA_STATIONARY_PACKED>                                             \
    }
/* By XN_CUDA_STATIONARY_TILES, then output. */
static const wide_function kernels[XN_CUDA_STATIONARY_TILES][4] = {TILE(128), TILE(64), TILE(32)};

static wide_function kernel_of(const xn_cuda_stationary_shape *shape, const xn_conv *conv) {
    int output = shape->packed                         ? 3
                 : conv->epilogue.datatype == XN_INT32 ? 2
                 : conv->epilogue.datatype == XN_FP16  ? 1
                                                       : 0;
    return kernels[shape->variant][output];
}

/* Lanes that share a row vector: 8, or less where the 16 bytes of a tap are not a multiple. */
static int32_t lanes_shift(const xn_cuda_stationary_shape *shape) {
    int32_t shift = 0;
    while (shift < 3 && shape->tap_words % (8 << shift) == 0)
        shift++;
    return shift;
}

/* Positions that a warp gathers at once: all of a tile in as few rounds as 32 a warp allow, shared
 * evenly. */
static int32_t warp_slots(const xn_cuda_raster *raster) {
    const int32_t rounds = (raster->slots + WORKER - 1) / WORKER;
    const int32_t slots = (raster->slots + 4 * rounds - 1) / (4 * rounds);
    return (slots + 7) / 8 * 8;
}

/* Pixels of an aligned group of the raster that are neighbours in memory, and aligned there. */
static int32_t vector_of(const xn_conv *conv, const xn_cuda_raster *raster) {
    const int64_t plane = (int64_t)conv->out_height * conv->out_width;
    if (raster->width != conv->out_width || raster->image_pitch % 8)
        return 1;
    return plane % 8 == 0 ? 8 : plane % 4 == 0 ? 4 : 1;
}

cudaError_t xn_cuda_stationary_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                      xn_cuda_stationary_cut *cut, const xn_cuda_stationary_io *io,
                                      const xn_cuda_epilogue_args *epilogue, cudaStream_t stream) {
    wide_args a = {};
    const cudaError_t e = xn_cuda_keep_cut(cut, images, [&](xn_cuda_stationary_shape *shape) {
        return xn_cuda_stationary_plan(conv, images, multiprocessors, io->packed != NULL, shape);
    });
    if (e != cudaSuccess)
        return e;
    a.shape = cut->shape;
    a.conv = *conv;
    a.io = *io;
    a.factor = epilogue->factor;
    a.bias = epilogue->bias;
    a.output = epilogue->output;
    a.images = (int32_t)images;
    a.image_pitch = xn_fast_divisor_of(a.shape.raster.image_pitch);
    a.width = xn_fast_divisor_of(a.shape.raster.width);
    a.lanes_shift = lanes_shift(&a.shape);
    a.warp_slots = warp_slots(&a.shape.raster);
    a.vector = vector_of(conv, &a.shape.raster);
    a.taps_reciprocal = 1.0f / (float)(conv->kernel_h * conv->kernel_w);
    while (1 << a.filters_shift < a.shape.block_tiles * a.shape.tile_filters)
        a.filters_shift++;
    const int32_t workers = a.shape.pixel_blocks * a.shape.workers;
    a.range_each = a.shape.raster.subtiles / workers;
    a.range_more = a.shape.raster.subtiles % workers;
    const dim3 blocks((unsigned)a.shape.pixel_blocks, (unsigned)a.shape.filter_blocks,
                      (unsigned)conv->groups);
    return xn_cuda_launch_with(kernel_of(&a.shape, conv), blocks, a.shape.workers * WORKER,
                               a.shape.bytes, io->overlapped, stream, a);
}

cudaError_t xn_cuda_stationary_load(bool *usable) {
    *usable = true;
    for (const wide_function(&tile)[4] : kernels)
        for (wide_function kernel : tile) {
            cudaError_t e = xn_cuda_load_wgmma(kernel, XN_CUDA_WGMMA_SHARED_BYTES, usable);
            if (e == cudaSuccess && *usable) /* all blocks of the plan at once */
                e = cudaFuncSetAttribute((const void *)kernel,
                                         cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared);
            if (e != cudaSuccess)
                return e;
        }
    return cudaSuccess;
}
