/* xn_step.h: what a backend runs. Lowering (xn_network.h) makes a list of steps of what the user
 * asked for; a convolution alone is a list of one. Plain data: equal steps have equal bytes.
 *
 * A step reads one tensor, or up to three, and writes a real tensor, bits, or both. Tensors are
 * numbered within the program; tensor 0 is its input. What the last step writes is the program's
 * output; no step reads it. */
#ifndef XN_STEP_H
#define XN_STEP_H

#include "xn_conv.h"
#include "xn_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a tensor lies. Bits are bytes or words; spare bits, and words past the channels,
 * are 0. Reals are [N][C][H][W], whatever this says, but for NHWC.
 *   bytes      [N][H][W][ceil(C/8)]: channel c is bit c % 8 of byte c / 8. Datatype BITS, as it
 *              comes over the wire.
 *   words      [N][G][H][W][words]: channel c of the group is bit c % 32 of word c / 32, words as
 *              xn_packed_words of C/G. As steps write it, G is 1; a step with groups reads its own.
 *   nhwc       reals, [N][H][W][C]: a program's input, read by steps of kinds map and stem alone.
 */
typedef enum { XN_LAYOUT_BYTES, XN_LAYOUT_WORDS, XN_LAYOUT_NHWC } xn_layout;

#define XN_NO_TENSOR (-1)
#define XN_NO_WEIGHTS (-1)

/* The part of a real tensor that a step reads or writes, in elements of one image: where it begins,
 * and how many elements the whole tensor has. A pitch of 0 means that the part is the whole. So
 * concat, slice and flatten take no step. */
typedef struct xn_view {
    int32_t offset, pitch;
} xn_view;

typedef struct xn_step {
    int32_t kind;     /* xn_step_kind */
    int32_t input;    /* tensors: read; */
    int32_t residual; /* added by the epilogue, or XN_NO_TENSOR; */
    int32_t output;   /* written as reals, or XN_NO_TENSOR; */
    int32_t bits;     /* written as bits, or XN_NO_TENSOR */
    int32_t weights;  /* which of the asset's, or XN_NO_WEIGHTS */
    /* xn_layout of the input where conv.input_datatype is XN_BITS, and of the bits written; of a
     * real input XN_LAYOUT_NHWC, or 0. */
    int32_t input_layout, bits_layout;
    xn_conv conv; /* every kind's geometry, datatype of the input, and epilogue */

    /* What a convolution alone has not: all of it is 0 there, and `second` XN_NO_TENSOR. */
    int32_t second, second_datatype; /* tensor: the gate of mul */
    xn_view input_view, second_view, residual_view, output_view;
    int32_t residual_datatype; /* FP32 or FP16, whatever the output is */
    int32_t least;             /* of max_pool */
    xn_attributes attributes;  /* those of its op; 0 elsewhere */
    /* Of stem: whether there is a pool, and what the convolution makes for it; conv.out_height and
     * out_width are what the step writes. */
    int32_t pool, stem_height, stem_width;
} xn_step;

/* The step that a convolution alone is: tensor 0 to tensor 1, bits in bytes, weights 0. */
void xn_step_of_conv(const xn_conv *conv, xn_step *out);

/* True where every tensor is read and written as a whole, in the layout it has between steps. */
bool xn_step_is_whole(const xn_step *step);

/* True where it multiplies by a kernel of weights: a convolution, or a top_k with the dense layer
 * in front of it. */
bool xn_step_has_kernel(const xn_step *step);

/* Bytes of one image of a tensor as a whole: of which the step reads its input, its residual, its
 * second; writes its real output, its bits. 0 where there is none. */
size_t xn_step_input_bytes(const xn_step *step);
size_t xn_step_residual_bytes(const xn_step *step);
size_t xn_step_second_bytes(const xn_step *step);
size_t xn_step_output_bytes(const xn_step *step);
size_t xn_step_bits_bytes(const xn_step *step);

/* One request's share of a batch. input and output are contiguous, image after image, in the
 * datatypes of the problem, aligned to their element size; for cuda they should come from
 * host_alloc, or be pinned by host_register (pageable memory works but is slow). Borrowed for the
 * duration of a run. */
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
 * the other, aligned to 256 bytes. A tensor that the step has is NULL here where it is the
 * program's own input (of what is read) or output (of what is written) and the backend works on the
 * items in place. */
typedef struct xn_step_io {
    const void *input, *residual;
    void *output, *bits;
    const xn_batch *batch;
    const void *second;
} xn_step_io;

#ifdef __cplusplus
}
#endif
#endif
