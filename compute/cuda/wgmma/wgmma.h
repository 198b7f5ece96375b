/* wgmma.h: what the shapes of the wgmma kernels have in common. A shape is decided on the host from
 * the geometry alone (X_plan.cu) and read by the kernel X.cu.
 *
 * Two kernels multiply bits by wgmma, and who knows one reads the others:
 *
 *   filter_stationary  M = 64 output pixels, N = filters. Each warpgroup gathers positions, takes
 *                      all filters of its block along, writes. Any stride, every kind of output.
 *   warp_specialised   M = 64 filters, N = up to 256 positions. One warp copies bands, one or two
 *                      warpgroups multiply, others write. Stride 1, real outputs and INT32.
 *
 * Each is a policy of the same skeleton, in the same order of files:
 *
 *   X.h          the shape: what a tile (band, part) is and where it lies in shared memory
 *   X_plan.cu    fits, shapes in question, memory, cycles of one; the search is wgmma_plan.h's
 *   X.cuh        the producer: how positions come into shared memory
 *   X.cu         the consumers: who multiplies and who writes; the table of kernels, the launch
 *   X_out.cuh    the output stage: from counts in registers to outputs in memory
 *   X_path.cu    the row in the table of paths (paths.h); wgmma_terms.h: what its cost is made of
 *   wgmma_*.cuh  shared: instructions (ptx), filters, bands, turns and products (pipeline), what a
 *                block knows of its filters and borders (filters), entry and launch (kernel)
 *
 * In both of them positions are 16 bytes a unit in shared memory, overlap from tap to tap, and
 * pair_low has for every pair of chunks where its operand begins among them. */
#ifndef XN_CUDA_WGMMA_H
#define XN_CUDA_WGMMA_H

#include "border.h"
#include "kernel.h"
#include "layout.h"

enum {
    XN_WGMMA_GROUP = 128,     /* threads of a warpgroup */
    XN_WGMMA_FILTERS = 64,    /* of a block where M is filters */
    XN_WGMMA_MAX_PAIRS = 256, /* matrix instructions a result: chunks of 128 bits, by two */
    XN_WGMMA_MAX_PIECES = 8,  /* in which filters arrive */
};

struct xn_wgmma_shape {
    int32_t variant;
    int32_t tap_words, chunks, pairs;
    int32_t piece_pairs;   /* filters arrive in pieces of so many pairs */
    int32_t block_filters; /* that a block keeps */
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

/* Where one warp copies bands for all: so many whole images, or rows of one. */
struct xn_wgmma_bands : xn_wgmma_shape {
    int32_t positions;                /* of a result, N */
    bool whole;                       /* whole images */
    int32_t images, rows;             /* of a result */
    int32_t row_bands, bands;         /* an image's; all */
    int32_t units;                    /* of 16 bytes a position */
    int32_t image_pitch;              /* positions from image to image of a band, */
    int32_t plane;                    /* and from unit to unit */
    int32_t depth;                    /* bands in shared memory */
    int32_t buffers_at, buffer_bytes; /* where, and of one */
};

/* The shape for so many images, 0: none yet. A launcher keeps in it what was decided for its conv,
 * multiprocessors and kind of output, and decides anew where the number of images is another. */
template <typename Shape>
struct xn_wgmma_cut {
    int64_t images;
    Shape shape;
};

#endif
