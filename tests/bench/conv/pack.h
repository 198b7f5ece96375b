/* pack.h: binarise-and-pack on a GPU, alone: what pack.c reports. */
#ifndef XN_BENCH_PACK_H
#define XN_BENCH_PACK_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every datatype and many shapes against the definition; how many are wrong. */
int xn_bench_pack_check(void);
/* Microseconds a launch: of the kernel, from device memory; and of one that only reads. */
double xn_bench_pack_us(const xn_conv *conv, int64_t images, const void *input, bool overlapped);
double xn_bench_pack_read_us(const void *input, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
