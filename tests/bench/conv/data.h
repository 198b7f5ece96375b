/* data.h: a problem's random data, and what its outputs must be. What is right comes from the CPU
 * backend, on all cores and for all images; that backend is itself compared with backend ref on a
 * part of the same layer that takes ref well under a second (the first rows of the first image, a
 * few filters). */
#ifndef XN_BENCH_DATA_H
#define XN_BENCH_DATA_H

#include "problem.h"

typedef struct xn_bench_data {
    xn_bench_shape shape;
    xn_bench_kind kind; /* fp32 to fp32, of the mode */
    xn_conv conv;       /* of that */
    xn_weights *weights;
    xn_weights *bit_weights; /* scale and shift make signs of the thresholds and flips below */
    float *real;  /* the weights; like the input of values that fp16 holds exactly, so that what */
    float *input; /* is right is so for all kinds */
    int32_t *threshold; /* [filters], of packed output */
    uint32_t *flip;     /* a bit a filter */
    /* What is right; NULL until a kind needs it: */
    float *outputs;   /* with K and alpha, or of mode bwn or float */
    float *magnitude; /* of those modes, the sums of the terms' magnitudes */
    int32_t *dots;
} xn_bench_data;

void xn_bench_data_make(const xn_bench_shape *shape, xn_mode mode, xn_bench_data *out);
void xn_bench_data_free(xn_bench_data *data);

/* Input and output of a kind, as they lie in host memory. Packed: [N*G][H*W][words of a pixel], of
 * output one group of all filters. */
size_t xn_bench_input_bytes(const xn_bench_data *data, const xn_bench_kind *kind);
size_t xn_bench_output_bytes(const xn_bench_data *data, const xn_bench_kind *kind);
void xn_bench_fill_input(const xn_bench_data *data, const xn_bench_kind *kind, void *out);

/* Fills the dots, if they are not there yet. */
void xn_bench_expect_dots(xn_bench_data *data);

/* How many elements (words of packed output) of all images' output are not what they must be: dots
 * and bits exactly, reals of mode xnor within 1e-5, of other modes within what the order of their
 * sum may change; and the output's rounding. */
int64_t xn_bench_count_wrong(xn_bench_data *data, const xn_bench_kind *kind, const void *got);

#endif
