/* dense_avx512.c: images of one output pixel on x86-64 with AVX-512. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq" XN_TARGET_WIDE)

#include "lanes_avx512.h"

#define DENSE_KERNELS xn_cpu_dense_avx512
#define MOST_POINTS 8
#define TILE_VECTORS 3
#define ALONE_VECTORS 3
#define COSTS 0.05, 0.3, 1

#include "dense_body.h"

XN_TARGET_END
#endif
