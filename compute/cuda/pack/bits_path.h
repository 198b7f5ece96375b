/* bits_path.h: what the paths that multiply plain bits (layout.h: activations) do first: the bits
 * of the input, their set bits and means, and sums of those over each window. */
#ifndef XN_CUDA_BITS_PATH_H
#define XN_CUDA_BITS_PATH_H

#include "packing.h"
#include "paths.h"

typedef struct xn_cuda_bits {
    const uint32_t *bits; /* the input's own where it has bits */
    int32_t *popc;        /* set bits a pixel; NULL where not wanted, as the others */
    float *mean;          /* with K */
    int32_t *pixel_part;  /* of popc, a window; box.cu */
    float *box;           /* of mean, likewise */
} xn_cuda_bits;

/* Bits and means alone. */
xn_cuda_bits xn_cuda_bits_take(const xn_cuda_job *job, xn_cuda_scratch *scratch);
/* With what box.cu makes of them; popc where counts. */
xn_cuda_bits xn_cuda_bits_take_sums(const xn_cuda_job *job, bool counts, xn_cuda_scratch *scratch);

/* Makes what was taken; b->bits is where they lie. overlapped: what comes next is launched so. */
cudaError_t xn_cuda_bits_make(const xn_cuda_run *run, xn_cuda_bits *b, bool overlapped);

#endif
