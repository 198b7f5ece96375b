/* zero_copy.h: small batches without copy engines and events. A kernel gathers the items from
 * pinned host memory into the program's input, another scatters its output to them, and says in
 * host memory that all is there and when what began and ended by the device's clock (%globaltimer,
 * nanoseconds). So a run is kernels alone: one CUDA graph, which knows neither the items nor their
 * number, since the kernels read both from a table in pinned memory; and the thread that waits
 * reads memory, not the driver. Copies and events cost the host 2 to 4 us each, and the driver
 * takes events of all threads one after the other.
 *
 * What lies in memory that is not pinned, or is large, is left to the copy engines, which are
 * faster with large items and leave the multiprocessors to kernels. */
#ifndef XN_CUDA_ZERO_COPY_H
#define XN_CUDA_ZERO_COPY_H

#include "xn_backend.h"

#include <cuda_runtime.h>

enum {
    XN_ZERO_COPY_ITEMS = 256, /* the most of a batch */
    /* The most of input and output together: of an item on average, or of a batch. Measured on an
     * H200: the copy engines reach 76 GB/s both ways where four threads have large batches, kernels
     * 60; up to this what copies and events cost the host is more. */
    XN_ZERO_COPY_ITEM_BYTES = 1 << 20,
    XN_ZERO_COPY_BATCH_BYTES = 1 << 21
};

/* An item's memory as kernels see it, and its first image among those of the batch. */
typedef struct xn_zero_copy_item {
    const char *input;
    char *output;
    int64_t first;
} xn_zero_copy_item;

/* What the host tells of a run. Behind the items comes one that only has `first`: all images. */
typedef struct xn_zero_copy_table {
    uint32_t sequence; /* which run it is */
    int32_t count;
    uint32_t unused[2]; /* items are read 16 bytes at a time, 8 of the first 128 at once */
    xn_zero_copy_item items[XN_ZERO_COPY_ITEMS + 2];
} xn_zero_copy_table;

/* What the device tells. */
typedef struct xn_zero_copy_report {
    uint64_t start_ns, uploaded_ns, computed_ns, done_ns;
    uint32_t sequence; /* of the run that the report is of; written last */
} xn_zero_copy_report;

typedef struct xn_zero_copy xn_zero_copy;

/* Of that stream. NULL where there is no memory for it: then nothing is done this way. */
xn_zero_copy *xn_zero_copy_create(cudaStream_t stream);
void xn_zero_copy_free(xn_zero_copy *z); /* NULL-safe; nothing is under way */
cudaError_t xn_zero_copy_load(void);     /* the kernels' code */

/* Begins a run. False where the batch is not for this way. */
bool xn_zero_copy_take(xn_zero_copy *z, const xn_batch *batch);
/* The kernels, for a batch of as many images and bytes; they can be captured. overlaps: the device
 * has programmatic launch. */
cudaError_t xn_zero_copy_gather(const xn_zero_copy *z, const xn_batch *batch, void *input,
                                cudaStream_t stream);
cudaError_t xn_zero_copy_scatter(const xn_zero_copy *z, const xn_batch *batch, const void *output,
                                 bool overlaps, cudaStream_t stream);
/* Whether the run that was begun last is over. */
bool xn_zero_copy_is_done(const xn_zero_copy *z);
/* What it took. */
void xn_zero_copy_end(const xn_zero_copy *z, xn_run_times *times);
/* Runs begun so far. */
uint32_t xn_zero_copy_runs(const xn_zero_copy *z);

/* ---- what a block copies; pure, of host and device ---- */

/* Bytes [at, at + bytes) of a tensor of all images lie at `offset` of item i. */
typedef struct xn_zero_copy_piece {
    int32_t item;
    size_t at, offset, bytes;
} xn_zero_copy_piece;

#if defined(__CUDACC__)
__host__ __device__
#endif
    /* The first piece of bytes [at, end), end > at, of a tensor of image_bytes an image. */
    static inline xn_zero_copy_piece
    xn_zero_copy_piece_of(const xn_zero_copy_item *items, int32_t count, size_t image_bytes,
                          size_t at, size_t end) {
    const int64_t image = (int64_t)(at / image_bytes);
    int32_t low = 0, high = count - 1; /* the last item that begins at the image or before */
    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (items[middle].first <= image)
            low = middle;
        else
            high = middle - 1;
    }
    const size_t begins = (size_t)items[low].first * image_bytes;
    const size_t ends = (size_t)items[low + 1].first * image_bytes;
    const xn_zero_copy_piece piece = {low, at, at - begins, (ends < end ? ends : end) - at};
    return piece;
}

#endif
