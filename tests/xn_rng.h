/* xn_rng.h: the random numbers of tests and benchmarks: small, seeded, the same everywhere. */
#ifndef XN_RNG_H
#define XN_RNG_H

#include <stdint.h>

/* splitmix64 */
typedef struct xn_rng {
    uint64_t state;
} xn_rng;
static inline uint64_t xn_rng_next(xn_rng *rng) {
    uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* 0 .. n-1 */
static inline uint64_t xn_rng_below(xn_rng *rng, uint64_t n) {
    return xn_rng_next(rng) % n;
}
/* uniform in [-1, 1) */
static inline float xn_rng_float(xn_rng *rng) {
    return (float)((double)(int64_t)xn_rng_next(rng) / 9223372036854775808.0);
}

#endif
