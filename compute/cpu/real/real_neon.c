/* real_neon.c: modes bwn and float on arm64: 32 registers, so a tile as on AVX-512, of narrower
 * vectors. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "real_scalar_move.h"

#define REAL_KERNELS xn_cpu_real_neon
#define VECTOR_BYTES 16
#define TILE_VECTORS 3
#define TILE_FILTERS 8
#define MULTIPLY_ADD(a, b, c)                                                                      \
    (vector_f32) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#define STREAM(to, v) (*(loose_f32 *)(to) = (v))

#include "real_body.h"
#endif
