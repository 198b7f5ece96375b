/* gemm_products.cuh: the loop of products that gemm_wide.cu and gemm_bands.cu share. A block copies
 * its filters in pieces with a barrier each, and the first products wait for one after the other.
 */
#ifndef XN_CUDA_GEMM_PRODUCTS_CUH
#define XN_CUDA_GEMM_PRODUCTS_CUH

#include "gemm_ptx.cuh"

#if XN_HAS_WGMMA

/* How far the filters of a block are: piece n has come when barrier n is in its second phase. */
struct xn_gemm_filters {
    uint32_t barrier; /* of the next piece to wait for */
    int32_t ready;    /* pairs that this warpgroup knows to be there */
};

/* Starts all matrix instructions of one result: multiply(positions, filters, add) for each pair of
 * chunks, with the low halves of both descriptors. Positions begin at shared address `rows` * 16;
 * `filters` is the first pair's and moves by `step`. The loops are in the form that ptxas leaves
 * alone: unrolled by hand, or with a fence in every round, they get a wait behind every instruction
 * (its remark C7520). */
template <typename Shape, typename Multiply>
__device__ __forceinline__ void xn_gemm_products(const Shape &shape, xn_gemm_filters *f,
                                                 uint32_t rows, uint32_t filters, uint32_t step,
                                                 Multiply multiply) {
    const int32_t pairs = shape.pairs;
    rows = __shfl_sync(0xffffffffu, rows, 0); /* the compiler sees that a warp has one */
    filters = __shfl_sync(0xffffffffu, filters, 0);
    uint32_t next = shape.pair_low[0]; /* read ahead: it takes longer than an instruction */
    const auto run = [&](int32_t pair) {
        const uint32_t low = rows + next;
        next = shape.pair_low[pair + 1];
        multiply(low, filters, pair > 0);
        filters += step;
    };
    xn_wgmma_fence();
    if (f->ready >= pairs) {
#pragma unroll 3
        for (int32_t pair = 0; pair < pairs; pair++)
            run(pair);
    } else {
#pragma unroll 1
        for (int32_t pair = 0; pair < pairs; pair++) {
            if (pair >= f->ready) {
                xn_mbarrier_wait(f->barrier, 0);
                f->barrier += 8;
                f->ready += shape.piece_pairs;
            }
            run(pair);
        }
    }
    xn_wgmma_commit();
}

#endif
#endif
