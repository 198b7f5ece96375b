/* kernels_avx2.c: the kernels for x86-64 with AVX2 (and FMA, which came with it). */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

#pragma GCC target("avx2")

#define KERNELS xn_cpu_kernels_avx2
#define VECTOR_BYTES 32
#define WORD_COST 18

#include "kernels_body.h"
#endif
