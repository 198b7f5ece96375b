/* bitgemm_avx512.c: the path bitgemm on x86-64 with AVX-512 but no VPOPCNTDQ (Skylake-X, Cascade
 * Lake): byte look-ups of 64 pixels. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq" XN_TARGET_WIDE)

#define KERNELS xn_cpu_bitgemm_avx512
#define VECTOR_BYTES 64
#define STEP_NS 0.7
#define LOOKUP(table, i)                                                                           \
    (vector_u32) _mm512_permutexvar_epi32((__m512i)(i), _mm512_loadu_si512(table))
#define ANY(mask) (_mm512_movepi32_mask((__m512i)(mask)) != 0)
#define NIBBLES
#define TILE_VECTORS 4
#define TILE_FILTERS 4
#define NIBBLE_COUNTS(p) (vector_u32) _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(p)))
#define NIBBLE_TABLE(t)                                                                            \
    (vector_u8) _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)(t)))
#define NIBBLE_LOOKUP(table, i) (vector_u8) _mm512_shuffle_epi8((__m512i)(table), (__m512i)(i))

#include "bitgemm_body.h"

XN_TARGET_END
#endif
