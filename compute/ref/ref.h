/* ref.h: what the files of the oracle share.
 *
 *   ref_device.c    device, weights, stream, the backend's table
 *   ref_plan.c      plans, and running one: which memory each image of a tensor is in
 *   ref_read.c      an image of any datatype and layout as fp32
 *   ref_conv.c, ref_stem.c, ref_ops.c  the accumulators of each kind of step
 *   ref_top_k.c     the best values, without any of the others being kept
 *   ref_epilogue.c  from accumulators to what is stored
 *
 * Plain loops in the order of the equations, double wherever a value is real, one thread, no
 * packing (xn_weights.alpha is never looked at, xn_weights.bits only of weights that were packed in
 * their file), every tap tested against the image on its own. What a step stores is rounded once,
 * there. With the other backends it shares only the definition of sign. Slow by design: for tests,
 * and for `--backend ref` when someone doubts an answer. */
#ifndef XN_REF_H
#define XN_REF_H

#include "xn_backend.h"

struct xn_device {
    int ordinal;
};

/* In double; NULL where there is none. factor for alpha, scale or none is chosen by the epilogue.
 */
struct xn_prepared {
    int32_t out_channels, group_channels, kernel_h, kernel_w;
    float *real;
    const xn_weights *packed; /* borrowed, where there is no real: weights are its bits */
    double *alpha, *scale, *bias, *slope, *shift;
    const struct xn_planes *planes; /* borrowed */
};

struct xn_stream {
    xn_device *device;
    int64_t started_ns; /* the run under way */
    void *arena;
    size_t arena_bytes;
};

struct xn_plan {
    xn_step step;
    int64_t max_images;
    float *image; /* one input image as fp32, [C][H][W] */
};

/* One image of a step's tensors; each points at its image, not yet at the view's part of it. */
typedef struct xn_ref_image {
    const xn_step *step;
    const xn_prepared *weights; /* or NULL */
    const float *input;         /* [C][H][W] */
    const void *second, *residual;
    void *output, *bits;
} xn_ref_image;

/* Runs the step on an image. */
void xn_ref_run(const xn_ref_image *image);
void xn_ref_conv(const xn_ref_image *image);
void xn_ref_stem(const xn_ref_image *image);
void xn_ref_top_k(const xn_ref_image *image);
/* The exact dot of filter o of a convolution of one pixel. */
int32_t xn_ref_dot(const xn_ref_image *image, int32_t o);

/* The step's input, an image at `from`, as fp32. */
void xn_ref_read_input(const xn_step *step, const void *from, float *image);
/* Element `index` of a real tensor. */
double xn_ref_read_real(int32_t datatype, const void *from, int64_t index);

/* The epilogue of one accumulator; at: its element of the output. k: K there, where there is one.
 */
double xn_ref_value(const xn_ref_image *image, int32_t o, int64_t at, double acc, double k);
/* The same, and storing. */
void xn_ref_finish(const xn_ref_image *image, int32_t o, int32_t y, int32_t x, double acc,
                   double k);

xn_status xn_ref_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error);
void xn_ref_plan_free(xn_plan *plan);
xn_status xn_ref_enqueue(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                         xn_error *error);
xn_status xn_ref_canary(const xn_backend *backend, xn_device *device, xn_error *error);

#endif
