/* wgmma_terms.h: what the costs of filter_stationary and warp_specialised are made of (costs.h). */
#ifndef XN_CUDA_WGMMA_TERMS_H
#define XN_CUDA_WGMMA_TERMS_H

#include "paths.h"

/* The kernel's cycles by its own model, its products, and what the kernel before it reads. */
static inline void xn_wgmma_terms(const xn_cuda_job *job, const xn_cuda_chip *chip, double cycles,
                                  double *t) {
    const xn_conv *c = &job->conv;
    const xn_cuda_counts n = xn_cuda_counts_of(job, chip);
    const double words = n.taps * xn_packed_words(c->group_channels);
    const bool bits = job->target == XN_CUDA_TO_WORDS;
    const bool reals = job->source == XN_CUDA_FROM_REALS;
    t[0] = reals ? 1 : 0;
    t[1] = reals ? 0 : 1;
    t[2] = bits ? 0 : cycles;
    t[3] = bits ? cycles : 0;
    t[4] = bits ? 0 : n.outputs * words;
    t[5] = bits ? n.outputs * words : 0;
    t[6] = reals ? n.inputs * (double)xn_datatype_bytes((xn_datatype)c->input_datatype) : 0;
    t[7] = reals ? 0 : n.inputs;
    t[8] = bits ? 0 : n.outputs * (double)xn_datatype_bytes((xn_datatype)c->epilogue.datatype);
    t[9] = bits ? 0 : n.uneven;
    t[11] = job->target == XN_CUDA_TO_ALL ? n.outputs : 0; /* with what comes after the value */
    t[10] = n.windows * n.taps * ((c->group_out_channels - 1) / 64 + 1);
}

#endif
