/* host_peak.c: see host_peak.h. Eight independent chains hide the latency of each instruction; the
 * empty assembler statements keep the compiler from folding or moving them. */
#include "host_peak.h"

#include "bench/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512vpopcntdq")

enum { ROUNDS = 200000, REAL_ROUNDS = 2000000, CHAINS = 8 };

#define EACH(STEP) STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
#define DECLARE(i) __m512i x##i = _mm512_set1_epi32(i + 1), sum##i = x##i;
#define HOLD(v) __asm__ volatile("" : "+v"(v));
#define XOR_COUNT_ADD(i)                                                                           \
    sum##i = _mm512_add_epi32(sum##i, _mm512_popcnt_epi32(_mm512_xor_si512(x##i, w)));             \
    HOLD(sum##i)                                                                                   \
    HOLD(x##i)

static void xor_count_add_rounds(void) {
    __m512i w = _mm512_set1_epi32(77);
    EACH(DECLARE)
    for (int round = 0; round < ROUNDS; round++) {
        HOLD(w)
        EACH(XOR_COUNT_ADD)
    }
}

#define DECLARE_REAL(i) __m512 real##i = _mm512_set1_ps(i + 1.0f);
#define MULTIPLY_ADD(i)                                                                            \
    real##i = _mm512_fmadd_ps(real##i, half, half);                                                \
    HOLD(real##i)

static void multiply_add_rounds(void) {
    __m512 half = _mm512_set1_ps(0.5f);
    EACH(DECLARE_REAL)
    for (int round = 0; round < REAL_ROUNDS; round++) {
        HOLD(half)
        EACH(MULTIPLY_ADD)
    }
}

XN_TARGET_END

/* In units of 10^12, of loops whose every step does 2 operations on so many lanes. */
static double rate(void (*rounds)(void), int count, int lanes) {
    int threads = 0;
    if (!__builtin_cpu_supports("avx512vpopcntdq"))
        return 0;
    const int64_t start = xn_bench_now_ns();
#pragma omp parallel reduction(+ : threads)
    {
        rounds();
        threads++;
    }
    const double seconds = 1e-9 * (double)(xn_bench_now_ns() - start);
    return 2.0 * lanes * CHAINS * count * threads / seconds / 1e12;
}

double xn_host_peak_xor_count_add(void) {
    return rate(xor_count_add_rounds, ROUNDS, 512);
}

double xn_host_peak_multiply_add(void) {
    return rate(multiply_add_rounds, REAL_ROUNDS, 16);
}
#else
double xn_host_peak_xor_count_add(void) {
    return 0;
}

double xn_host_peak_multiply_add(void) {
    return 0;
}
#endif
