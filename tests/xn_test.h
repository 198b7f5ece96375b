/* xn_test.h: what every test file uses. A file registers its suite with XN_SUITE and needs no
 * entry in any list; tests/main.c runs all registered suites in one runner. */
#ifndef XN_TEST_H
#define XN_TEST_H

#include "xn_rng.h"

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/* A test case as always, each of whose tests is a section of the run's output (output.h). */
TCase *xn_test_case_create(const char *name);
/* One of the suite's, whose tests may take `seconds` each; 0: as many as the runner gives. */
TCase *xn_test_case(Suite *suite, const char *name, double seconds);
#define tcase_create(name) xn_test_case_create(name)

/* Every assertion that holds tells the runner where the test is, so that it can say where one that
 * crashed was. In a loop that took most of the time of some suites: here only a place that is none
 * of the last few is told. */
void xn_test_mark(const char *file, int line);
#define _mark_point(file, line) xn_test_mark(file, line)

/* For xn_mem_set_hook: of the allocations from now on, of any thread, the one fails that finds 0 in
 * the atomic_int *countdown. */
bool xn_test_count_down(void *countdown, size_t bytes);

/* Under AddressSanitizer and ThreadSanitizer, which bring an allocator of their own and take their
 * shadow memory out of the address space. */
#if defined(__has_feature)
#define XN_TEST_FEATURE(name) __has_feature(name)
#else
#define XN_TEST_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    XN_TEST_FEATURE(address_sanitizer) || XN_TEST_FEATURE(thread_sanitizer)
#define XN_TEST_SANITIZED 1
#else
#define XN_TEST_SANITIZED 0
#endif

/* The seed of this run, printed at its start: XNORD_TEST_SEED or the default. */
uint64_t xn_test_seed(void);

#ifdef __cplusplus
}
#endif
#endif
