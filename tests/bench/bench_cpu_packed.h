/* bench_cpu_packed.h: a part of bench_cpu.c: the 3x3 layers of a ResNet with packed input, beside
 * oneDNN's convolution of the same layer in its own layouts and what the machine can count. */
#ifndef XN_BENCH_CPU_PACKED_H
#define XN_BENCH_CPU_PACKED_H

#include "bench.h"

/* Rows whose name has `only` in it; NULL: all. json may be NULL. */
void xn_bench_cpu_packed(const xn_bench_device *device, const char *only, FILE *json);

#endif
