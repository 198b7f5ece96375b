/* floor.h: the least time that an H200 would take for steps of a network: the largest of products,
 * bytes and a launch. */
#ifndef XN_BENCH_FLOOR_H
#define XN_BENCH_FLOOR_H

#include "xn_network.h"

/* Microseconds of `count` steps from `first` on as one kernel: what lies between them stays on the
 * chip, and each other tensor is read or written once. */
double xn_bench_floor_us(const xn_network *network, int first, int count, int64_t images);

#endif
