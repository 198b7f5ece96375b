/* top_k.h: steps of kind top_k (xn_op.h): the k best of a row of reals, or of the values of a dense
 * layer of bits, which are never stored.
 *
 * A candidate is a key of 64 bits: the rank of its value in the higher half, its position in the
 * lower, so that the lesser of two keys is the better one and no two are equal. A list has room for
 * twice k keys and more; once it is full a warp sorts it, keeps the k best, and what is not better
 * than the last of them is not put there any more. The k least of all keys are the same however
 * rows are shared out, and in whichever order they come.
 *
 * Dense layers (scan.cuh): a block has all rows of a share and a tile of queries, each with a list
 * in shared memory. mma.sync counts popc(row and query); of a row with r and a query with q set
 * bits, and n bits in which they differ,
 *
 *   x = 2 popc(row and query) - r = q - n,         dot = bits - 2 n = bits - 2 q + 2 x
 *
 * Where the value is a monotone function of the dot, it is x that is compared: only candidates
 * become values. Where less dots are better the bits of queries are turned, which turns the dot's
 * sign. With many rows a sample comes first, the best x of some tiles of rows: the k-th of those is
 * a bound that few rows reach. All blocks count how many candidates have each x from there on, and
 * now and then raise their bounds to what k of them reach. */
#ifndef XN_CUDA_TOP_K_H
#define XN_CUDA_TOP_K_H

#include "paths.h"

typedef struct xn_cuda_top_k_io {
    const void *input;
    const uint32_t *rows;      /* XN_CUDA_PART_CODES; NULL: the input is reals */
    const xn_weights *weights; /* on the host, with rows */
    bool uniform;              /* the weights have one scale, one bias and one slope */
    void *output;
} xn_cuda_top_k_io;

/* What a run of up to scratch->images takes of it. */
typedef struct xn_cuda_top_k_room {
    void *queries;     /* as operands of mma.sync */
    int32_t *set_bits; /* [queries] */
    int32_t *greatest; /* [queries][tiles of the sample] */
    int32_t *least;    /* [queries]: the sample's bounds */
    int32_t *reached;  /* [queries][SCAN_LEVELS] */
    uint64_t *lists;   /* of all blocks */
} xn_cuda_top_k_room;
xn_cuda_top_k_room xn_cuda_top_k_take(const xn_step *step, const xn_cuda_chip *chip,
                                      xn_cuda_scratch *scratch);

cudaError_t xn_cuda_top_k_launch(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                                 const xn_cuda_top_k_room *room, const xn_cuda_top_k_io *io,
                                 const xn_epilogue_args *epilogue, cudaStream_t stream);
cudaError_t xn_cuda_top_k_load(const xn_cuda_chip *chip);

#endif
