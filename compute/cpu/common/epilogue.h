/* epilogue.h: the epilogue of xn_epilogue.h, for every path of this backend.
 *
 *   v = acc * f [* S] + bias        fp32, each operation rounded once, in this order
 *
 * S is K's sum (kmap.h) and f the factor, with what makes K of the sum in it: f = factor * unit,
 * rounded once. Where v is not finite, fp32 may have overflowed on the way to a result that it
 * holds: v is then computed again in double, acc * factor * K + bias, and rounded once; for modes
 * bwn and float from sums in double too. So it is where f is too small for fp32: f is then NaN
 * here, and with it every v. All of this is of one element and its channel: what its neighbours
 * are, and which path computes it, makes no difference.
 *
 * A path computes v with its own kernels, or xn_cpu_finish_acc does, all by the operations above
 * (vectors.h). Where the epilogue is plain, v is the output. Otherwise xn_cpu_finish, or
 * xn_cpu_finish_acc in the same pass, does the rest: residual, activation, stores of reals and of
 * signs. */
#ifndef XN_CPU_EPILOGUE_H
#define XN_CPU_EPILOGUE_H

#include "kernels.h"
#include "xn_weights.h"

/* One image of a batch, wherever its request's buffers are. */
typedef struct xn_cpu_image {
    const unsigned char *input;    /* in the layout of the step's input */
    const unsigned char *residual; /* [O][OH][OW] */
    const unsigned char *second;   /* [C] */
    int32_t residual_datatype;
    unsigned char *output; /* [O][OH][OW] */
    unsigned char *bits;   /* in the layout of the step's bits */
    uint8_t *signs;        /* [O][OH][OW], 0 or 1, of paths that do not write bits */
} xn_cpu_image;

/* The epilogue of a run. */
typedef struct xn_cpu_epilogue {
    const xn_cpu_kernels *kernels;
    const xn_conv *conv;
    const xn_weights *weights; /* NULL where the step has none */
    const float *factor;       /* [O]: f */
    const float *bias;         /* [O]; -0 where there is none: it leaves every v as it is */
} xn_cpu_epilogue;

/* Where some values of one channel go, and those of the next channels: `pitch` elements on, of
 * words to the next bit. */
typedef struct xn_cpu_place {
    const void *residual;
    int32_t residual_datatype;
    void *real;
    uint8_t *signs; /* a byte each; or NULL */
    size_t pitch;
    uint32_t *words; /* or `bit` of a word each; or NULL */
    uint32_t bit;
    bool past_caches; /* where the epilogue is plain; rows of real are aligned to a line */
} xn_cpu_place;

/* Whether this backend has such an epilogue. */
static inline bool xn_cpu_epilogue_fits(const xn_epilogue *e) {
    const int32_t a = e->activation;
    return (a == XN_ACTIVATION_NONE || a == XN_ACTIVATION_PRELU || a == XN_ACTIVATION_CLIP) &&
           (e->datatype != XN_BITS || e->bits) &&
           (e->datatype == XN_FP32 || e->datatype == XN_FP16 || e->datatype == XN_INT32 ||
            e->datatype == XN_BITS);
}

/* v is the output, fp32. */
static inline bool xn_cpu_is_plain(const xn_epilogue *e) {
    return e->datatype == XN_FP32 && !e->residual && !e->bits &&
           e->activation == XN_ACTIVATION_NONE;
}

/* The real output is the accumulator of mode xnor, INT32. */
static inline bool xn_cpu_is_dots(const xn_epilogue *e) {
    return e->datatype == XN_INT32 && e->factor == XN_FACTOR_NONE && !e->k && !e->bias &&
           !e->residual && e->activation == XN_ACTIVATION_NONE;
}

/* f and bias of channels [first, last), from place 0 on. */
void xn_cpu_epilogue_fill(const xn_conv *conv, const xn_weights *weights, int32_t first,
                          int32_t last, float *factor, float *bias);

/* v of channel o again in double, where it is not finite. sums: NULL, or S; exact: K in double,
 * read where S is not finite. */
void xn_cpu_values_again(const xn_cpu_epilogue *epilogue, int32_t o, const int32_t *acc,
                         const float *sums, const double *exact, int32_t n, float *v);
/* One v from an accumulator in double, K within. */
float xn_cpu_value_again(const xn_conv *conv, const xn_weights *weights, int32_t o, double acc);

/* Outputs of channel o from `pixel` on. */
xn_cpu_place xn_cpu_place_of(const xn_conv *conv, const xn_cpu_image *image, int32_t o,
                             size_t pixel);

/* n values of each of `rows` channels, o and those after it, to their place. pitch: from one row
 * of them to the next. */
void xn_cpu_finish(const xn_cpu_epilogue *epilogue, int32_t o, int32_t rows, const float *v,
                   size_t pitch, int32_t n, const xn_cpu_place *place);
/* Of sums or dots, with the channels' factors and biases. False where a v is not finite: then all
 * is to be written again, of values; no word has its bits. */
bool xn_cpu_finish_acc(const xn_cpu_epilogue *epilogue, int32_t o, int32_t rows,
                       xn_cpu_acc_kind kind, const void *from, size_t pitch, const float *k,
                       int32_t n, const xn_cpu_place *place);
/* v alone of one channel, by the same operations. False where one is not finite. */
bool xn_cpu_make_values(const xn_cpu_epilogue *epilogue, int32_t o, xn_cpu_acc_kind kind,
                        const void *from, const float *k, int32_t n, float *v);
/* Where the output is dots. */
void xn_cpu_finish_dots(const xn_cpu_epilogue *epilogue, int32_t o, const int32_t *acc, int32_t n,
                        const xn_cpu_place *place);

#endif
