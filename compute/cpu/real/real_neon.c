/* real_neon.c: modes bwn and float on arm64: 32 registers, so a tile as on AVX-512, of narrower
 * vectors. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "lanes_neon.h"

#define REAL_KERNELS xn_cpu_real_neon
#define TILE_VECTORS 3
#define COSTS 0.2, 1.5, 9.6, 1, 0.2, 0.8, 30 /* not measured */
#define TILE_FILTERS 8

#include "real_body.h"
#endif
