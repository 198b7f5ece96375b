/* kernels_avx512_shuffle.c: the kernels for x86-64 with AVX-512 but without VPOPCNTDQ (Skylake-X,
 * Cascade Lake). Bits are counted as by AVX2, by looking up nibbles in a table of 16, on 64 bytes;
 * 31 words fit before the byte counts must be folded. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")

#define KERNELS xn_cpu_kernels_avx512_shuffle
#define KERNELS_NAME "avx512"
#define VECTOR_BYTES 64
#define FOLD_WORDS 31
#define WORD_COST 9
#define COUNT(x) count_bytes(x)

typedef uint32_t count_vector __attribute__((vector_size(VECTOR_BYTES)));
static inline __attribute__((always_inline)) count_vector count_bytes(count_vector x) {
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    __m512i low = (__m512i)(x & 0x0f0f0f0fu), high = (__m512i)(x >> 4 & 0x0f0f0f0fu);
    return (count_vector)_mm512_add_epi8(_mm512_shuffle_epi8(table, low),
                                         _mm512_shuffle_epi8(table, high));
}

#include "kernels_body.h"
#endif
