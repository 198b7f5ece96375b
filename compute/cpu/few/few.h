/* few.h: what the files of the path for few channels share: few.c the run, few_weights.c what it
 * wants of the weights; few_kernels.h are its kernels. */
#ifndef XN_CPU_FEW_H
#define XN_CPU_FEW_H

#include "few_kernels.h"
#include "prepared.h"

/* Filters of at most so many channels and taps in all. */
#define XN_CPU_FEW_CHANNELS 32
#define XN_CPU_FEW_FILTER 8192

/* A kernel row's taps, channel by channel, go into `planes` patterns. */
typedef struct xn_cpu_few_weights {
    int32_t planes;
    /* [O][filter]: indices (c*KH + i)*KW + j of the filter's taps, those of weight +1 first;
     * plus[o] of them are +1. */
    int32_t *order, *plus;
    uint8_t *tables; /* [O][KH][planes][XN_CPU_TABLE_BYTES] */
    /* [O][KH + 1][KW]: the sum of the weights of all channels in the kernel rows above i. */
    int32_t *above;
} xn_cpu_few_weights;

extern const xn_cpu_form xn_cpu_few_form;

#endif
