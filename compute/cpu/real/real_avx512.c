/* real_avx512.c: modes bwn and float on x86-64 with AVX-512. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq" XN_TARGET_WIDE)

#include "lanes_avx512.h"

#define REAL_KERNELS xn_cpu_real_avx512
#define TILE_VECTORS 3
#define COSTS 0.35, 0.433, 15.9, 3.21, 0.0444, 0.263, 17.5
#define TILE_FILTERS 8

#include "real_body.h"

XN_TARGET_END
#endif
