/* wgmma_pipeline.cuh: a block and its filters, turns of places in shared memory, the loop that
 * copies bands, the loop of products. */
#ifndef XN_CUDA_WGMMA_PIPELINE_CUH
#define XN_CUDA_WGMMA_PIPELINE_CUH

#include "wgmma_ptx.cuh"

#if XN_HAS_WGMMA

/* A place in a ring, and the parity of the phase that ends when it is full; free has ended once
 * less. */
struct xn_ring {
    int32_t place;
    uint32_t parity;

    __device__ __forceinline__ void next(int32_t places) {
        if (++place == places) {
            place = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void skip(int32_t count, int32_t places) {
        for (int32_t n = 0; n < count; n++)
            next(places);
    }
};

/* A block's tile of filters, which come first in its shared memory: the first one, of the group. */
struct xn_wgmma_block {
    char *memory;
    uint32_t barriers;
    int32_t group, m0;
};

/* A share of the bands. */
struct xn_wgmma_range {
    int32_t next, end;
};

template <typename Args>
__device__ __forceinline__ xn_wgmma_range xn_wgmma_share_of(const Args &a, int32_t sharer) {
    const int32_t first = sharer * a.share_each + min(sharer, a.share_more);
    return {first, first + a.share_each + (sharer < a.share_more)};
}

/* ---- filters ---- */

/* By one warp: barriers, and what filters will bring. */
template <class K>
__device__ __forceinline__ void xn_wgmma_start(const typename K::args &a, const xn_wgmma_block &b) {
    static_assert(K::BARRIERS <= 32, "a lane each");
    const int32_t lane = threadIdx.x & 31;
    if (lane < K::BARRIERS)
        xn_mbarrier_init(xn_barrier_at(b.barriers, lane), K::arrivals(a, lane));
    xn_mbarrier_init_fence();
    __syncwarp();
    if (lane == 0)
        xn_mbarrier_expect(b.barriers, (uint32_t)a.shape.pairs * XN_WGMMA_FILTERS * 32);
    __syncwarp();
}

/* Of every step-th pair of chunks from `first` on a bulk copy, which takes the thread that starts
 * it about a hundred cycles. */
template <typename Args>
__device__ __forceinline__ void xn_wgmma_copy_filters(const Args &a, const xn_wgmma_block &b,
                                                      int32_t first, int32_t step) {
    const uint32_t to = xn_shared_address(b.memory), bytes = XN_WGMMA_FILTERS * 32;
    const char *from =
        (const char *)a.io.filters + ((int64_t)b.group * a.conv.group_out_channels + b.m0) * 32;
#pragma unroll 1
    for (int32_t pair = first; pair < a.shape.pairs; pair += step)
        xn_bulk_copy(to + (uint32_t)pair * bytes, from + pair * a.io.filter_rows * 32, bytes,
                     b.barriers);
}

/* ---- the warps that copy ---- */

/* All bands of a block, by a lane of each of some warps, once the band that had the place has been
 * used: the kernel's expect_band by warp 0, which the first time does not wait for the kernel
 * ahead, and a part of copy_band by each. USED: the first place's barrier for that, by number. */
template <int USED, typename Args>
__device__ __forceinline__ void xn_wgmma_copy_bands(const Args &a, const xn_wgmma_block &b,
                                                    xn_wgmma_range bands, int32_t warp) {
    xn_ring ring = {0, 0};
#pragma unroll 1
    for (int32_t done = 0; bands.next < bands.end; bands.next++, done++) {
        if (done >= a.shape.depth)
            xn_mbarrier_wait(xn_barrier_at(b.barriers, USED + ring.place), ring.parity ^ 1);
        const auto band = band_of(a, bands.next);
        if (warp == 0)
            expect_band(a, b, band, ring.place);
        if (done == 0)
            xn_wait_for_previous_kernel();
        copy_band(a, b, band, ring.place, warp);
        ring.next(a.shape.depth);
    }
}

/* ---- products ---- */

/* Starts all matrix instructions of one result: multiply(positions, filters) for each pair of
 * chunks, with the low halves of both descriptors. Positions begin at shared address `rows` * 16;
 * `filters` is the first pair's. The loop is in the form that ptxas leaves
 * alone: unrolled by hand, or with a fence or anything that may wait in every round, it gets a wait
 * behind every instruction (its remark C7520). */
template <typename Shape, typename Multiply>
__device__ __forceinline__ void xn_wgmma_products(const Shape &shape, uint32_t rows,
                                                  uint32_t filters, Multiply multiply) {
    const int32_t pairs = shape.pairs;
    rows = __shfl_sync(0xffffffffu, rows, 0); /* the compiler sees that a warp has one */
    filters = __shfl_sync(0xffffffffu, filters, 0);
    uint32_t next = shape.pair_low[0]; /* read ahead: it takes longer than an instruction */
    xn_wgmma_fence();
#pragma unroll 3
    for (int32_t pair = 0; pair < pairs; pair++) {
        const uint32_t low = rows + next;
        next = shape.pair_low[pair + 1];
        multiply(low, filters);
        filters += XN_WGMMA_FILTERS * 32 / 16;
    }
    xn_wgmma_commit();
}

/* The products of a tile of 64 filters and N positions, added to what `counts` hold.
 * More than 128 positions are two instructions, which take as long as one: ptxas compiles none that
 * needs more registers than the launch bound gives. */
template <int N, typename Shape>
__device__ __forceinline__ void xn_wgmma_multiply(const Shape &shape, uint32_t filters,
                                                  uint32_t rows, int32_t (&counts)[N / 2]) {
    constexpr int32_t FIRST = N > 128 ? N / 2 : N;
    xn_wgmma_products(shape, rows, filters, [&](uint32_t position, uint32_t filter) {
        xn_wgmma<FIRST>::run(counts, xn_matrix(filter, 256), xn_matrix(position, 128), true);
        if constexpr (N > FIRST)
            xn_wgmma<N - FIRST>::run(counts + FIRST / 2, xn_matrix(filter, 256),
                                     xn_matrix(position + FIRST, 128), true);
    });
}

#endif
#endif
