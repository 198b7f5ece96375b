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

#include <algorithm>

#if XN_HAS_WGMMA

/* Starts all matrix instructions of a subtile, whose positions begin at shared address `rows` * 16,
 * and a filter tile, whose first pair has the descriptor `filters`. */
template <int NT>
__device__ __forceinline__ void multiply(const stationary_args &a, xn_wgmma_pieces *f,
                                         uint32_t rows, uint32_t filters,
                                         int32_t (&counts)[NT / 2]) {
    xn_wgmma_products(a.shape, f, rows, filters, (uint32_t)a.shape.block_tiles * (NT * 2),
                      [&](uint32_t position, uint32_t filter, int32_t add) {
                          xn_wgmma<NT>::run(counts, xn_matrix(position, 128),
                                            xn_matrix(filter, 256), add);
                      });
}

/* Where multiplying takes long, two workers at a time do it: if all did, all would end at the same
 * time and leave the matrix units idle while they write and gather, and one alone cannot start
 * instructions fast enough. A meeting of the worker follows. */
__device__ __forceinline__ void take_turn(const stationary_block &b, const stationary_worker &w) {
    if (w.thread == 0)
        while (atomicSub(b.multiplying, 1) <= 0) {
            atomicAdd(b.multiplying, 1);
            __nanosleep(32);
        }
}

__device__ __forceinline__ void end_turn(const stationary_block &b, const stationary_worker &w) {
    if (w.thread == 0)
        atomicAdd(b.multiplying, 1);
}

/* While the first matrix instructions of a tile run: what its outputs need of its positions. */
template <int OUT>
__device__ __forceinline__ void prepare(const stationary_args &a, const stationary_worker &w,
                                        const char *positions, int32_t first, int32_t subtiles) {
    count_positions(a, w, positions, subtiles * SUB);
    worker_barrier(w);
    make_pixels<OUT>(a, w, positions, first * SUB, subtiles);
    if (OUT != XN_CUDA_STATIONARY_PACKED)
        worker_barrier(w); /* other warps store these pixels' outputs */
}

template <int NT, int OUT>
__device__ __forceinline__ void run_worker(const stationary_args &a, const stationary_block &b,
                                           const stationary_worker &w, xn_wgmma_pieces filters,
                                           xn_wgmma_range range) {
    constexpr bool CHECKED = OUT != XN_INT32 && OUT != XN_CUDA_STATIONARY_PACKED;
    const int32_t tiles = a.shape.block_tiles, most = a.shape.tile_pixels;
    const uint32_t filter_low = xn_matrix_low(xn_shared_address(b.filters), 128);
    int32_t buffer = 0;
#pragma unroll 1
    while (range.next < range.end) {
        const int32_t first = range.next, subtiles = min(most, range.end - first);
        const char *positions = w.buffers + buffer * a.shape.buffer_bytes;
        const uint32_t rows = xn_shared_address(positions) >> 4;
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
            const int32_t at = subtile, column = tile * NT;
            if (subtile == 0 && tile == 0) {
                prepare<OUT>(a, w, positions, first, subtiles);
                if (a.shape.buffers == 2 && range.next < range.end) {
                    buffer ^= 1;
                    gather(a, w, b.group, range.next * SUB, min(most, range.end - range.next),
                           buffer);
                }
            }
            if (++tile == tiles) {
                tile = 0;
                subtile++;
            }
            xn_wgmma_wait<0>();
            const bool fast = !CHECKED || cannot_overflow(a, b, w.boxes + at * SUB);
            if (CHECKED && !fast)
                write_again<NT>(a, b, w, (const uint4 *)positions + at * SUB,
                                (const uint4 *)b.filters, w.pixels + at * SUB, w.boxes + at * SUB,
                                (first + at) * SUB, column);
            if (subtile == subtiles && a.shape.buffers == 1 && range.next < range.end) {
                worker_barrier(w); /* all have read the positions */
                gather(a, w, b.group, range.next * SUB, min(most, range.end - range.next), 0);
            }
            if (fast)
                write_outputs<NT, OUT>(a, b, w, at, (first + at) * SUB, column, counts);
        } while (subtile < subtiles);
    }
}

#endif

template <int NT, int OUT>
struct stationary_kernel {
    typedef stationary_args args;
    enum { TILE = NT == 128 ? 0 : NT == 64 ? 1 : 2, PACKED = OUT == XN_CUDA_STATIONARY_PACKED };
    /* registers: 65536 over the threads that run at once */
    enum { THREADS = xn_stationary_workers(TILE, PACKED) * WORKER };
    enum {
        BLOCKS = xn_stationary_blocks(TILE, PACKED),
        PIECES = XN_WGMMA_MAX_PIECES,
        BARRIERS = PIECES
    };

#if XN_HAS_WGMMA
    static __device__ __forceinline__ uint32_t arrivals(const args &, int32_t) {
        return 1;
    }
    static __device__ __forceinline__ void begin(const args &a, const xn_wgmma_block &own) {
        const stationary_block b = block_parts(a, own);
        if (threadIdx.x == 32) {
            b.constants.largest[0] = b.constants.largest[1] = 0;
            *b.multiplying = 2;
        }
    }
    static __device__ __forceinline__ void run(const args &a, const xn_wgmma_block &own) {
        const stationary_block b = block_parts(a, own);
        const stationary_worker w = worker_parts(a, own.memory);
        const xn_wgmma_range range =
            xn_wgmma_share_of(a, (int32_t)(threadIdx.x / WORKER * gridDim.x + blockIdx.x));
        make_filters<PACKED>(a, b);
        xn_wait_for_previous_kernel();
        if (range.next < range.end)
            gather(a, w, b.group, range.next * SUB,
                   min(a.shape.tile_pixels, range.end - range.next), 0);
        __syncthreads();
        run_worker<NT, OUT>(a, b, w, {own.barriers, 0}, range);
    }
#endif
};

/* ---- launcher ---- */

#define TILE(NT)                                                                                   \
    xn_wgmma_kernel<stationary_kernel<NT, XN_FP32>>,                                               \
        xn_wgmma_kernel<stationary_kernel<NT, XN_FP16>>,                                           \
        xn_wgmma_kernel<stationary_kernel<NT, XN_INT32>>,                                          \
        xn_wgmma_kernel<stationary_kernel<NT, XN_CUDA_STATIONARY_PACKED>>,                         \
        xn_wgmma_kernel<stationary_kernel<NT, XN_CUDA_STATIONARY_ANY>>
/* By tile, then output. */
static void (*const kernels[XN_CUDA_STATIONARY_TILES][5])(const stationary_args) = {
    {TILE(128)}, {TILE(64)}, {TILE(32)}};

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
                                      const xn_epilogue_args *epilogue, cudaStream_t stream) {
    stationary_args a = {};
    cudaError_t e = xn_wgmma_fill(&a, conv, images, cut, io, [&](xn_cuda_stationary_shape *shape) {
        return xn_cuda_stationary_plan(conv, images, multiprocessors, io->packed != NULL, shape);
    });
    if (e != cudaSuccess)
        return e;
    const xn_cuda_stationary_shape *s = &a.shape;
    a.vector = vector_of(conv, &s->raster);
    e = xn_wgmma_fill_epilogue(&a, epilogue, std::min(a.vector, 4), stream);
    if (e != cudaSuccess)
        return e;
    const int output = s->packed ? 3 : a.rest != XN_WGMMA_PLAIN ? 4 : xn_wgmma_output(conv);
    if (!xn_residual_has_vectors(a.out, 4))
        a.vector = 1;
    a.image_pitch = xn_fast_divisor_of(s->raster.image_pitch);
    a.width = xn_fast_divisor_of(s->raster.width);
    a.lanes_shift = lanes_shift(s);
    a.warp_slots = warp_slots(&s->raster);
    while (1 << a.filters_shift < s->block_filters)
        a.filters_shift++;
    return xn_wgmma_launch(kernels[s->variant][output], &a, s->raster.subtiles, s->workers,
                           s->workers * WORKER, stream);
}

cudaError_t xn_cuda_stationary_load(bool *usable) {
    return xn_wgmma_load(kernels[0], sizeof kernels / sizeof kernels[0][0], true, usable);
}
