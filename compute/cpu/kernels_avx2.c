/* kernels_avx2.c: the kernels for x86-64 with AVX2. Bits are counted by looking up both nibbles of
 * every byte in a table of 16 (Mula's method), which leaves byte counts: 31 words fit before they
 * must be folded. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

#pragma GCC target("avx2")

#define KERNELS xn_cpu_kernels_avx2
#define KERNELS_NAME "avx2"
#define VECTOR_BYTES 32
#define FOLD_WORDS 31
#define WORD_COST 18
#define COUNT(x) count_bytes(x)

typedef uint32_t count_vector __attribute__((vector_size(VECTOR_BYTES)));
static inline __attribute__((always_inline)) count_vector count_bytes(count_vector x) {
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1,
                                           2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    __m256i low = (__m256i)(x & 0x0f0f0f0fu), high = (__m256i)(x >> 4 & 0x0f0f0f0fu);
    return (count_vector)_mm256_add_epi8(_mm256_shuffle_epi8(table, low),
                                         _mm256_shuffle_epi8(table, high));
}

#include "kernels_body.h"
#endif
