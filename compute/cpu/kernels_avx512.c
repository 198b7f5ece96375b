/* kernels_avx512.c: the kernels for x86-64 with AVX-512 and VPOPCNTDQ (Ice Lake, Zen 4 and later):
 * one instruction counts the bits of 16 words. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,prefer-vector-width=512")

#define KERNELS xn_cpu_kernels_avx512
#define KERNELS_NAME "avx512-vpopcnt"
#define VECTOR_BYTES 64
#define FOLD_WORDS 0
#define WORD_COST 3
#define COUNT(x) (vector_u32) _mm512_popcnt_epi32((__m512i)(x))

#include "kernels_body.h"
#endif
