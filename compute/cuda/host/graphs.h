/* graphs.h: which CUDA graphs a program keeps. A graph has the addresses of everything in it, so it
 * is known by what those follow from: the number of images, where the stream's memory is, and which
 * weights on this device each step has. Of those that were seen last a few are kept, so a program
 * that never meets the same again keeps no more than these.
 *
 * A run is put on the stream step by step when it is met first, recorded when it has been met often
 * enough for that to pay, and played from then on: what comes but once pays nothing, nor do batches
 * of ever other numbers of images. All of this needs no device. */
#ifndef XN_CUDA_GRAPHS_H
#define XN_CUDA_GRAPHS_H

#include "xn_backend.h"

#include <cuda_runtime.h>

enum {
    XN_CUDA_GRAPHS = 16, /* the most of a program */
    /* Recording takes the host some hundred us, in the driver's locks; playing saves it 2 to 3 us a
     * kernel. So a run has been met so many times before, over its kernels, but at least once. */
    XN_CUDA_GRAPH_MEETINGS = 60,
    XN_CUDA_GRAPH_KERNELS =
        3, /* launching a graph costs the host about what two or three kernels do */
};

/* serials: of the weights of each step, 0 without; equal only for the same weights (xn_cuda.h). */
typedef struct xn_cuda_graph_key {
    int64_t images;
    const void *workspace, *arena;
    const uint64_t *serials;
    bool zero_copy; /* with the kernels that gather and scatter */
} xn_cuda_graph_key;

typedef struct xn_cuda_graph {
    xn_cuda_graph_key key; /* its serials are the set's */
    cudaGraphExec_t exec;  /* NULL: met, and not recorded */
    uint64_t used;         /* when, by the set's clock; 0: free */
    int meetings;          /* before this one */
} xn_cuda_graph;

/* A program's. */
struct xn_recordings {
    const xn_device *device; /* NULL before there is a graph */
    int steps;
    bool gave_up; /* recording failed once */
    uint64_t clock;
    xn_cuda_graph graphs[XN_CUDA_GRAPHS];
    uint64_t *serials; /* [XN_CUDA_GRAPHS][steps], of the graphs */
    uint64_t *met;     /* [steps], of the run at hand */
};

/* NULL without memory. */
xn_recordings *xn_cuda_recordings_create(int steps);
/* The graph of that key, which is the one used last now, with one more meeting; a new one, without
 * exec, in the place of a free one or of that used longest ago. */
xn_cuda_graph *xn_cuda_graph_of(xn_recordings *set, const xn_cuda_graph_key *key);
void xn_cuda_recordings_free(xn_recordings *set); /* NULL-safe */

#endif
