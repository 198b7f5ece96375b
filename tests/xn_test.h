/* xn_test.h: what every test file uses. A file registers its suite with XN_SUITE and needs no
 * entry in any list; tests/main.c runs all registered suites in one runner. */
#ifndef XN_TEST_H
#define XN_TEST_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct xn_test_suite {
    const char *name;
    Suite *(*make)(void);
    struct xn_test_suite *next;
} xn_test_suite;

void xn_test_register(xn_test_suite *suite);

/* XN_SUITE(tensor) { Suite *s = suite_create("tensor"); ...; return s; } */
#define XN_SUITE(name_)                                                                            \
    static Suite *xn_suite_make_##name_(void);                                                     \
    __attribute__((constructor)) static void xn_suite_register_##name_(void) {                     \
        static xn_test_suite suite = {#name_, xn_suite_make_##name_, 0};                           \
        xn_test_register(&suite);                                                                  \
    }                                                                                              \
    static Suite *xn_suite_make_##name_(void)

/* The seed of this run, printed at its start: XNORD_TEST_SEED or the default. */
uint64_t xn_test_seed(void);

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
