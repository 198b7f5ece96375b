/* lookup_avx2.c: the kernels of lookup for x86-64 with AVX2. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "lookup_kernels.h"
#include "target.h"

XN_TARGET_BEGIN("avx2")

#define LOOKUP_KERNELS xn_cpu_lookup_avx2
#define VECTOR_BYTES 32
#define LOOK_UP_NS 0.65
#define LOAD_TABLE(from)                                                                           \
    (vector_u8) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(from)))
#define LOOK_UP(table, patterns)                                                                   \
    (vector_u8) _mm256_shuffle_epi8((__m256i)(table), (__m256i)(patterns))
#define SIGN_BYTES(v) (vector_u8) sign_bytes(v)
#define WIDEN(v, q) (vector_f32) widen((__m256i)(v), q)
#define MOST(a, b) (vector_u32) _mm256_max_epu32((__m256i)(a), (__m256i)(b))
#define STREAM(to, v) _mm256_stream_ps(to, (__m256)(v))
#define TAKE NULL
#define TILE NULL

/* Packing works on halves of 16 bytes: groups of 4 come out in the order 0 4 1 5 of v[0], v[1].. */
static inline __attribute__((always_inline)) __m256i sign_bytes(const void *from) {
    const __m256 *v = from, zero = _mm256_setzero_ps();
    __m256i m[4];
    for (int q = 0; q < 4; q++)
        m[q] = _mm256_castps_si256(_mm256_cmp_ps(v[q], zero, _CMP_GE_OQ));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(m[0], m[1]), _mm256_packs_epi32(m[2], m[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return _mm256_and_si256(bytes, _mm256_set1_epi8(1));
}

static inline __attribute__((always_inline)) __m256 widen(__m256i v, const int q) {
    __m128i half = q < 2 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q % 2 ? _mm_srli_si128(half, 8) : half));
}

#include "lookup_body.h"

XN_TARGET_END
#endif
