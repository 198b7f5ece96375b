/* bench_layer.h: a layer with random data and the outputs it must give, for kernels that are timed
 * on device memory. What is right comes from the CPU backend, on all cores and for all images; that
 * backend is itself compared with backend ref on a part of the same layer that takes ref well under
 * a second (the first rows of the first image, a few filters). */
#ifndef XN_BENCH_LAYER_H
#define XN_BENCH_LAYER_H

#include "bench.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel reads and writes. */
typedef enum {
    XN_BENCH_FP32,          /* K and alpha applied; */
    XN_BENCH_FP16,          /* the same */
    XN_BENCH_PACKED_INT32,  /* packed bits in, dots out */
    XN_BENCH_PACKED_FP16,   /* packed bits in, alpha applied */
    XN_BENCH_PACKED_PACKED, /* packed bits in, packed bits out */
    XN_BENCH_KINDS
} xn_bench_kind;

typedef struct xn_bench_layer {
    xn_bench_shape shape; /* bench_runner.h */
    xn_conv conv;         /* fp32 to fp32, scaling xnor */
    xn_weights *weights;
    float *real;        /* the weights */
    float *input;       /* fp32 values that fp16 holds exactly, so that all kinds have one input */
    float *scaled;      /* outputs with K and alpha; NULL until a kind needs them */
    int32_t *dots;      /* likewise */
    int32_t *threshold; /* [filters], of packed output */
    uint32_t *flip;     /* a bit a filter */
} xn_bench_layer;

void xn_bench_layer_make(const xn_bench_shape *shape, xn_bench_layer *out);
void xn_bench_layer_free(xn_bench_layer *layer);

/* The problem of that kind; of packed output, the one that gives its dots. */
xn_conv xn_bench_layer_conv(const xn_bench_layer *layer, xn_bench_kind kind);

/* Input and output of a kind, as they lie in memory. Packed: [N*G][H*W][words of a pixel], where a
 * group of that many channels has words_in, and all filters together words_out. */
typedef struct xn_bench_words {
    int32_t in, out;
} xn_bench_words;
size_t xn_bench_input_bytes(const xn_bench_layer *l, xn_bench_kind kind, xn_bench_words words);
size_t xn_bench_output_bytes(const xn_bench_layer *l, xn_bench_kind kind, xn_bench_words words);
void xn_bench_fill_input(const xn_bench_layer *l, xn_bench_kind kind, xn_bench_words words,
                         void *out);

/* How many elements (words of packed output) of all images' output are not what they must be: dots
 * and bits exactly, reals within 1e-5 and their rounding. */
int64_t xn_bench_count_wrong(xn_bench_layer *l, xn_bench_kind kind, xn_bench_words words,
                             const void *got);

#ifdef __cplusplus
}
#endif
#endif
