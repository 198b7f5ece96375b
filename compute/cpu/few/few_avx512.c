/* few_avx512.c: the few-channel kernels for x86-64 with AVX-512 (F, BW, VL, DQ). */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "few_kernels.h"
#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,fma" XN_TARGET_WIDE)

#define FEW_KERNELS xn_cpu_few_avx512
#define WINDOWS 0
#include "few_512.h"

XN_TARGET_END
#endif
