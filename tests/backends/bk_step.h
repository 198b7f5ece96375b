/* bk_step.h: a step of any kind with its data, run on a target in guarded memory, and how far two
 * results are apart. Values are small multiples of 1/4 and factors powers of 2, so that what a step
 * computes of them is exact in fp32. */
#ifndef BK_STEP_H
#define BK_STEP_H

#include "bk_run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What memory that a step writes holds before. */
enum { BK_POISON = 0xa5 };

typedef struct bk_step {
    xn_step step;
    bool exact; /* results are compared as they are; else within what sigmoid and softmax may err */
    int64_t images;
    uint64_t seed;                      /* printed */
    xn_weights *weights;                /* or NULL */
    xn_prepared *prepared[BK_BACKENDS]; /* made when it first runs on a backend */
    unsigned char *input, *second, *residual;
} bk_step;

/* What a step wrote, with a guard behind each. */
typedef struct bk_written {
    unsigned char *real, *bits;
    size_t real_bytes, bits_bytes;
} bk_written;

void *bk_take(size_t bytes); /* zeros; never NULL */

/* Values of a datatype; special: NaN, infinities and zeros of both signs are among them. */
void bk_fill_quarters(xn_rng *rng, bool special, int32_t datatype, size_t bytes, void *to);
/* The convolution of a case, as a step without data. */
void bk_step_of_case(const bk_case *c, bk_step *out);
/* Draws the input, the gate and the residual, in place of those that were there. */
void bk_step_fill(xn_rng *rng, bool special, bk_step *s);
/* Those parts that the step reads, or `all` there may be; `signs`: the kernel's are 1 and -1. */
void bk_step_weigh(xn_rng *rng, bool all, bool signs, bk_step *s);
/* The step of a seed, with its data: any datatype, layout, part of a tensor and epilogue that the
 * kind may have. large: an image may have 12,000 pixels. */
void bk_step_random(xn_step_kind kind, uint64_t seed, bool large, bk_step *out);
void bk_step_free(bk_step *s);

/* In batches of so many images; false where the path cannot run it. */
bool bk_step_run(const bk_target *t, bk_step *s, int64_t batch, bk_written *out);
void bk_written_free(bk_written *w);

/* Fails the test where values or bits are not the same; 0 and -0 are. whose: got's. */
void bk_step_expect(const char *whose, const bk_step *s, const bk_written *got,
                    const bk_written *right);

#ifdef __cplusplus
}
#endif
#endif
