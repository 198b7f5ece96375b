/* dense_neon.c: images of one output pixel on arm64. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "lanes_neon.h"

#define DENSE_KERNELS xn_cpu_dense_neon
#define MOST_POINTS 8
#define TILE_VECTORS 3
#define ALONE_VECTORS 12
#define COSTS 0.1, 0.5, 1 /* not measured */

#include "dense_body.h"
#endif
