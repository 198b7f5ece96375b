/* few.cuh: what the paths for few channels share (sliding_window, patch). */
#ifndef XN_CUDA_FEW_CUH
#define XN_CUDA_FEW_CUH

#include "epilogue.cuh"
#include "layout.h"
#include "paths.h"

struct xn_few_args {
    xn_conv conv;
    const void *input;
    xn_epilogue_args epilogue;
    const uint32_t *weights; /* layout.h: patches */
    int32_t weight_words;    /* of a filter */
};

static inline void xn_few_set(xn_few_args *a, const xn_cuda_run *r) {
    const xn_conv *c = &r->job->conv;
    a->conv = *c;
    a->input = r->input;
    a->epilogue = xn_epilogue_of(c, &r->out);
    a->weights = (const uint32_t *)xn_cuda_part_of(r->weights, XN_CUDA_PART_PATCHES);
    a->weight_words = xn_cuda_patch_words(c->group_channels, c->kernel_h, c->kernel_w);
}

static uint64_t xn_few_wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_PATCHES);
}

/* A path's state, and whether `choose` finds a cut. */
template <class Cut>
struct xn_few_state {
    int64_t images;
    Cut cut;
};

template <class Cut, bool choose(const xn_conv *, int64_t, int, Cut *)>
static bool xn_few_fits(const xn_cuda_job *job, const xn_cuda_chip *chip, void *out) {
    xn_few_state<Cut> *s = (xn_few_state<Cut> *)out;
    s->images = job->images;
    return xn_cuda_is_plain(job) && choose(&job->conv, job->images, chip->multiprocessors, &s->cut);
}

/* Host arithmetic of cuts. */
static inline int32_t xn_few_log2(int32_t power) {
    int32_t log2 = 0;
    while (1 << log2 < power)
        log2++;
    return log2;
}

/* Blocks of a multiprocessor: the last ones leave others idle while there are few. */
static inline double xn_few_share(double blocks, int multiprocessors) {
    const double share = blocks / multiprocessors;
    return share < 4 ? ceil(share) : share;
}

/* xn_with_input with fp32 and fp16 by comparison: a jump through a table costs a small launch a
 * tenth of its time. The compiler must not see that the rest is about the same number, or it makes
 * one table of all. */
template <class Action>
__device__ __forceinline__ void xn_few_with_input(const xn_few_args &a, Action action) {
    int32_t other = a.conv.input_datatype;
    asm("" : "+r"(other));
    if (a.conv.input_datatype == XN_FP32)
        action((const float *)a.input);
    else if (a.conv.input_datatype == XN_FP16)
        action((const __half *)a.input);
    else
        xn_with_other_input(a.input, other, action);
}

__device__ __forceinline__ float xn_few_element(const xn_few_args &a, int64_t at) {
    float value = 0.0f;
    xn_few_with_input(a, [&](auto *input) { value = xn_to_fp32(input[at]); });
    return value;
}

#endif
