/* bitgemm_avx2.c: the path bitgemm on x86-64 with AVX2: byte look-ups of 32 pixels. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "target.h"

XN_TARGET_BEGIN("avx2")

#define KERNELS xn_cpu_bitgemm_avx2
#define VECTOR_BYTES 32
#define STEP_NS 1.1
#define FEW_QUERIES 18
/* Bit 3 of an index tells which half of the table it is of. */
#define LOOKUP(table, i)                                                                           \
    (vector_u32) _mm256_blendv_ps(                                                                 \
        (__m256)_mm256_permutevar8x32_epi32(_mm256_loadu_si256((const void *)(table)),             \
                                            (__m256i)(i)),                                         \
        (__m256)_mm256_permutevar8x32_epi32(_mm256_loadu_si256((const void *)((table) + 8)),       \
                                            (__m256i)(i)),                                         \
        (__m256)_mm256_slli_epi32((__m256i)(i), 28))
#define ANY(mask) (_mm256_movemask_epi8((__m256i)(mask)) != 0)
#define NIBBLES
#define TILE_VECTORS 2
#define TILE_FILTERS 4
#define NIBBLE_COUNTS(p) (vector_u32) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p)))
#define NIBBLE_TABLE(t)                                                                            \
    (vector_u8) _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(const void *)(t)))
#define NIBBLE_LOOKUP(table, i) (vector_u8) _mm256_shuffle_epi8((__m256i)(table), (__m256i)(i))

#include "bitgemm_body.h"

XN_TARGET_END
#endif
