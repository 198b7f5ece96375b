/* op.h: steps that are no convolutions (xn_step.h), as their kernels take them. What is decided of
 * one on the host is here, and needs no device; what a block computes is in op.cuh. */
#ifndef XN_CUDA_OP_H
#define XN_CUDA_OP_H

#include "kernel.h"
#include "xn_step.h"

enum { XN_OP_THREADS = 256, XN_OP_ROWS = 4 /* outputs of a thread of XN_OP_COLUMNS */ };

/* How a block goes about it. */
typedef enum {
    XN_OP_EACH,      /* map, mul, quantize: a value for itself */
    XN_OP_MAP_APART, /* map of FP32 and FP16: channels of four pixels a thread, */
    XN_OP_MAP_FOUR,  /* or, of all three, of four neighbours, */
    XN_OP_MAP_EIGHT, /* or of eight, of FP16 */
    XN_OP_FEW,       /* the same, up to four channels: a pixel a thread, */
    XN_OP_FEW_FOUR,  /* or four neighbours */
    XN_OP_CURVE,     /* sigmoid, softmax: the same in double */
    XN_OP_WINDOW,    /* pools */
    XN_OP_WHOLE,     /* pools to a single pixel: several threads a window */
    XN_OP_WORDS,     /* max_pool of words to words: a word a thread */
    XN_OP_COLUMNS    /* pools of reals by windows of a few columns */
} xn_op_body;

/* Of the channels of a pixel: the greatest, and the sum of the exponentials of what each is below
 * that. */
typedef struct xn_op_pixel {
    double sum;
    float greatest;
} xn_op_pixel;

typedef struct xn_op_args {
    xn_epilogue_args e;
    const void *input, *second; /* the first image's parts */
    xn_op_pixel *stats;         /* of softmax, one a pixel of all images */
    const float *turned;        /* of max_pool: a channel where it is negative takes the least */
    int64_t input_pitch, second_pitch, output_pitch, residual_pitch; /* elements, image to image */
    int64_t in_plane, plane;                                         /* pixels of an image */
    int64_t pixels; /* outputs of a channel, of all images */
    int32_t kind, channels;
    int32_t datatype, layout; /* of the input; layout: 0 (NCHW) or XN_LAYOUT_NHWC of reals */
    int32_t words_log;        /* words of channels that a block of these has: 1, 2 or 4 */
    xn_fast_divisor groups;   /* such blocks of a pixel */
    /* Of XN_OP_COLUMNS: lanes, those of an image, of 32 for all images; out_width. */
    xn_fast_divisor lanes_of, tiles_of, width_of;
    int32_t lanes;
    xn_fast_divisor plane_of; /* of plane; where pixels are less than 2^31 */
    int32_t in_unit;          /* words or bytes of a pixel of the input in bits */
    int32_t out_unit;         /* the same of the bits written */
    bool to_bytes;
    bool linear; /* there is a factor or a bias */
    int32_t second_datatype;
    xn_attributes attributes;
    /* of pools */
    int32_t height, width, out_height, out_width, kernel_h, kernel_w, stride_h, stride_w;
    int32_t dilation_h, dilation_w, pad_top, pad_left;
} xn_op_args;

/* What a step reads besides its residual, which is the epilogue's. The epilogue's pointers and gaps
 * are of the parts, these are of whole tensors. */
typedef struct xn_op_inputs {
    const void *input, *second;
    const float *scale; /* of the weights, or NULL */
    xn_op_pixel *stats; /* of softmax: memory */
} xn_op_inputs;

/* The first image's part of a tensor. */
void *xn_cuda_part_at(const void *tensor, const xn_view *view, int32_t datatype);
xn_op_args xn_op_args_of(const xn_step *step, int64_t images, const xn_op_inputs *in,
                         const xn_epilogue_args *epilogue);
/* The rest of an epilogue, of v that lies whole in memory, fp32, or int32 where the real output is;
 * it may be where the output is. step: the convolution. */
xn_op_args xn_op_finish_args_of(const xn_step *step, int64_t images, const void *v,
                                const xn_epilogue_args *epilogue);
xn_op_body xn_op_body_of(const xn_op_args *args);
/* The bodies where there are many outputs of what XN_OP_COLUMNS and XN_OP_FEW run; maybe those. */
xn_op_body xn_op_few_of_many(const xn_op_args *args);
int64_t xn_op_blocks(const xn_op_args *args, xn_op_body body);
/* Pixels that share a block where stats are made of them, and blocks for all. */
int32_t xn_op_stats_lanes(const xn_op_args *args);
int64_t xn_op_stats_blocks(const xn_op_args *args);

/* Launcher as in kernel.h. overlapped: it may start before the kernel ahead has ended. */
cudaError_t xn_cuda_op_launch(const xn_op_args *args, bool overlapped, cudaStream_t stream);
cudaError_t xn_cuda_op_load(void);

/* bits.cu: bits between bytes and words, around paths that read and write words alone: the input of
 * a convolution, bytes to words of each group; its output, words of one group to bytes. */
cudaError_t xn_cuda_words_launch(const xn_conv *conv, int64_t images, const uint8_t *bytes,
                                 uint32_t *words, cudaStream_t stream);
cudaError_t xn_cuda_bytes_launch(const xn_conv *conv, int64_t images, const uint32_t *words,
                                 uint8_t *bytes, cudaStream_t stream);
cudaError_t xn_cuda_bits_load(void);

#endif
