/* direct_avx2.c: few filters a group, modes bwn and float, on x86-64 with AVX2 and FMA. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "target.h"

XN_TARGET_BEGIN("avx2,fma")

#include "lanes_avx2.h"

#define DIRECT_KERNELS xn_cpu_direct_avx2
#define COSTS 0.96, 2.04, 6.5, 21, 1.7, 0.1, 0.265, 0.22, 12.6, 1.6

#include "direct_body.h"

XN_TARGET_END
#endif
