/* dense_avx2.c: images of one output pixel on x86-64 with AVX2 and FMA. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "target.h"

XN_TARGET_BEGIN("avx2,fma")

#include "lanes_avx2.h"

#define DENSE_KERNELS xn_cpu_dense_avx2
#define MOST_POINTS 4
#define TILE_VECTORS 3
#define ALONE_VECTORS 6
#define COSTS 0.05, 0.3, 1

#include "dense_body.h"

XN_TARGET_END
#endif
