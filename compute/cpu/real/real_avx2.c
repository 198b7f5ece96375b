/* real_avx2.c: modes bwn and float on x86-64 with AVX2 and FMA. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "target.h"

XN_TARGET_BEGIN("avx2,fma")

#include "lanes_avx2.h"

#define REAL_KERNELS xn_cpu_real_avx2
#define TILE_VECTORS 3
#define COSTS 0.174, 0.593, 13.4, 2.91, 0.087, 0.43, 19
#define TILE_FILTERS 4

#include "real_body.h"

XN_TARGET_END
#endif
