/* wgmma.h: what a kernel that multiplies bits by wgmma is made of. Its shape is decided on the host
 * from the geometry alone (X_plan.cu) and read by the kernel X.cu.
 *
 *   warp_specialised   M = 64 filters, N = up to 256 positions. One warpgroup copies bands, one or
 *                      two multiply, others write. Strides 1 and 2, every kind of output.
 *
 * The kernel is a policy of a skeleton, in this order of files:
 *
 *   X.h          the shape: what a band is and where it lies in shared memory
 *   X_plan.cu    fits, shapes in question, memory, cycles of one; the search is wgmma_plan.h's
 *   X.cuh        the producer: how positions come into shared memory
 *   X.cu         the consumers: who multiplies and who writes; the table of kernels, the launch
 *   X_out.cuh    the output stage: from counts in registers to outputs in memory
 *   X_path.cu    the row in the table of paths (paths.h)
 *   wgmma_*.cuh  the skeleton: instructions (ptx), filters, bands and products (pipeline), what a
 *                block knows of its filters and borders (filters), entry and launch (kernel)
 *
 * Positions are 16 bytes a unit in shared memory, overlap from tap to tap, and pair_low has for
 * every pair of chunks where its operand begins among them. */
#ifndef XN_CUDA_WGMMA_H
#define XN_CUDA_WGMMA_H

#include "border.h"
#include "kernel.h"
#include "layout.h"

enum {
    XN_WGMMA_GROUP = 128,     /* threads of a warpgroup */
    XN_WGMMA_FILTERS = 64,    /* of a block */
    XN_WGMMA_MAX_PAIRS = 256, /* matrix instructions a result: chunks of 128 bits, by two */
};

struct xn_wgmma_shape {
    int32_t variant;
    int32_t tap_words, chunks, pairs;
    int32_t filter_blocks; /* of a group */
    int32_t pixel_blocks;  /* blocks that share the pixels of a filter block */
    int32_t bytes;         /* of shared memory; filters come first */
    bool in_turn;          /* not all warpgroups multiply at the same time */
    bool means;            /* K is asked for */
    double cycles;         /* that a launch takes by the plan's model */
};

/* Low halves of the descriptors of each pair's positions, from address 0. Comes last in a shape, so
 * that what a kernel reads all the time lies together in the cache of its constants. */
typedef uint32_t xn_wgmma_pair_low[XN_WGMMA_MAX_PAIRS + 1];

/* Bands: so many whole images, or rows of one. */
struct xn_wgmma_bands : xn_wgmma_shape {
    int32_t positions;                /* of a result, N */
    bool whole;                       /* whole images */
    int32_t images, rows;             /* of a result */
    int32_t row_bands, bands;         /* an image's; all */
    int32_t units;                    /* of 16 bytes a position */
    int32_t image_pitch;              /* positions from image to image of a band, */
    int32_t phase, plane;             /* from phase to phase, and from unit to unit */
    int32_t depth;                    /* bands in shared memory */
    int32_t buffers_at, buffer_bytes; /* where, and of one */
};

/* Whether reals are made as fp16, 8 at once: also where bits alone are made of them. */
static inline bool xn_wgmma_is_fp16(const xn_conv *c) {
    return c->epilogue.datatype == XN_FP16 ||
           (c->epilogue.datatype == XN_BITS && !c->epilogue.residual);
}

/* The shape for so many images, 0: none yet. A launcher keeps in it what was decided for its conv,
 * multiprocessors and kind of output, and decides anew where the number of images is another. */
template <typename Shape>
struct xn_wgmma_cut {
    int64_t images;
    Shape shape;
};

#endif
