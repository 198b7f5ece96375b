/* xn_step.h: what a backend runs. Lowering (xn_graph.h) makes a list of steps of what the user
 * asked for; a convolution alone is a list of one. Plain data: equal steps have equal bytes.
 *
 * A step reads one tensor, or two, and writes a real tensor, bits, or both. Tensors are numbered
 * within the program; tensor 0 is its input. */
#ifndef XN_STEP_H
#define XN_STEP_H

#include "xn_conv.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    XN_STEP_CONV /* conv, with its epilogue */
} xn_step_kind;

/* How the bits of a tensor lie. Spare bits, and words past the channels, are 0.
 *   bytes      [N][H][W][ceil(C/8)]: channel c is bit c % 8 of byte c / 8. Datatype BITS, as it
 *              comes over the wire.
 *   words      [N][G][H][W][words]: channel c of the group is bit c % 32 of word c / 32, words as
 *              xn_packed_words of C/G. As steps write it, G is 1; a step with groups reads its own.
 *   dual rail  [N][G][units][H][W][16 bytes]: units of 128 channels, first all bits, then as many
 *              units of their complements; up to 64 channels are one unit, 8 bytes of each.
 *              Only where a backend says so. */
typedef enum { XN_LAYOUT_BYTES, XN_LAYOUT_WORDS, XN_LAYOUT_DUAL_RAIL } xn_layout;

#define XN_NO_TENSOR (-1)

typedef struct xn_step {
    int32_t kind;     /* xn_step_kind */
    int32_t input;    /* tensors: read; */
    int32_t residual; /* added by the epilogue, or XN_NO_TENSOR; */
    int32_t output;   /* written as reals, or XN_NO_TENSOR; */
    int32_t bits;     /* written as bits, or XN_NO_TENSOR */
    int32_t weights;  /* which of the asset's */
    /* xn_layout of the input where conv.input_datatype is XN_BITS, and of the bits written. */
    int32_t input_layout, bits_layout;
    xn_conv conv;
} xn_step;

/* The step that a convolution alone is: tensor 0 to tensor 1, bits in bytes, weights 0. */
void xn_step_of_conv(const xn_conv *conv, xn_step *out);

/* One request's share of a batch. input and output are contiguous, image after image, in the
 * datatypes of the problem, aligned to their element size; for cuda they should come from
 * host_alloc (pageable memory works but is slow). Borrowed for the duration of a run. */
typedef struct xn_batch_item {
    const void *input;
    void *output;
    int64_t images;
} xn_batch_item;

typedef struct xn_batch {
    const xn_batch_item *items;
    size_t count;
    int64_t images;                   /* of all items */
    size_t input_bytes, output_bytes; /* of one image of the program's input and output */
} xn_batch;

/* Where a step's tensors are during a run: memory of the backend, all images of the batch one after
 * the other, aligned to 256 bytes. input or the tensor that the step writes is NULL where it is the
 * program's own input or output and the backend works on the items in place. */
typedef struct xn_step_io {
    const void *input, *residual;
    void *output, *bits;
    const xn_batch *batch;
} xn_step_io;

#ifdef __cplusplus
}
#endif
#endif
