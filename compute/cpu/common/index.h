/* index.h: arithmetic on sizes and indices that all of the CPU backend uses. */
#ifndef XN_CPU_INDEX_H
#define XN_CPU_INDEX_H

#include <stdint.h>

static inline int64_t xn_cpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t xn_cpu_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t xn_cpu_div_up(int64_t a, int64_t b) {
    return (a - 1) / b + 1; /* a >= 1 */
}

/* The outputs [*first, *last) of one axis whose tap at `offset` (= i*dilation - pad) is inside the
 * image: 0 <= x*stride + offset < size. */
static inline void xn_cpu_valid_outputs(int64_t offset, int32_t stride, int32_t size,
                                        int32_t outputs, int32_t *first, int32_t *last) {
    int64_t lo = offset >= 0 ? 0 : xn_cpu_div_up(-offset, stride);
    int64_t room = size - offset;
    int64_t hi = room <= 0 ? 0 : xn_cpu_min(xn_cpu_div_up(room, stride), outputs);
    *first = (int32_t)xn_cpu_min(lo, hi);
    *last = (int32_t)hi;
}

#endif
