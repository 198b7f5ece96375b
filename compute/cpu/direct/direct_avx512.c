/* direct_avx512.c: few filters a group, modes bwn and float, on x86-64 with AVX-512. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq" XN_TARGET_WIDE)

#include "lanes_avx512.h"

#define DIRECT_KERNELS xn_cpu_direct_avx512
#define COSTS 1.34, 3.36, 0, 46, 0, 0.084, 0.47, 0.37, 16, 7

#include "direct_body.h"

XN_TARGET_END
#endif
