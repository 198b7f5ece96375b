/* bitgemm_neon.c: the path bitgemm on arm64, where NEON is always there. CNT counts the bits of 16
 * bytes at once, which leaves byte counts: 31 words fit before they must be folded, and the fold is
 * two pairwise additions. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#define KERNELS xn_cpu_bitgemm_neon
#define VECTOR_BYTES 16
#define STEP_NS 1.0
#define FEW_QUERIES 2
#define FOLD_WORDS 31
#define TILE_VECTORS 2
#define TILE_FILTERS 4
#define ANY(mask) (vmaxvq_u32((uint32x4_t)(mask)) != 0)
#define COUNT(x) (vector_u32) vcntq_u8((uint8x16_t)(x))
#define FOLD(counts) (vector_u32) vpaddlq_u16(vpaddlq_u8((uint8x16_t)(counts)))

#include "bitgemm_body.h"
#endif
