/* bitgemm_avx2.c: the path bitgemm on x86-64 with AVX2: byte look-ups of 32 pixels. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "target.h"

XN_TARGET_BEGIN("avx2")

#define KERNELS xn_cpu_bitgemm_avx2
#define VECTOR_BYTES 32
#define STEP_NS 1.1
#define NIBBLES
#define TILE_VECTORS 2
#define TILE_FILTERS 4
#define NIBBLE_TABLE(t)                                                                            \
    (vector_u8) _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(const void *)(t)))
#define NIBBLE_LOOKUP(table, i) (vector_u8) _mm256_shuffle_epi8((__m256i)(table), (__m256i)(i))

#include "bitgemm_body.h"

XN_TARGET_END
#endif
