/* real_avx512.c: modes bwn and float on x86-64 with AVX-512. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq" XN_TARGET_WIDE)

#define REAL_KERNELS xn_cpu_real_avx512
#define VECTOR_BYTES 64
#define TILE_VECTORS 3
#define TILE_FILTERS 8
#define MULTIPLY_ADD(a, b, c) (vector_f32) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define MOVE(from, inside, pad, to)                                                                \
    _mm512_storeu_ps(to, _mm512_mask_loadu_ps((__m512)(pad), (__mmask16)(inside), from))
#define STREAM(to, v) _mm512_stream_ps(to, (__m512)(v))
#define LOAD_INSIDE(from, inside, pads)                                                            \
    (vector_f32) _mm512_mask_loadu_ps((__m512)(pads), (__mmask16)(inside), from)
#define STORE_FIRST(to, n, v) _mm512_mask_storeu_ps(to, (__mmask16)((1u << (n)) - 1), (__m512)(v))
#define EVENS(a, b) (vector_f32) every_other((__m512)(a), (__m512)(b), 0)
#define ODDS(a, b) (vector_f32) every_other((__m512)(a), (__m512)(b), 1)

static inline __attribute__((always_inline)) __m512 every_other(__m512 a, __m512 b, int first) {
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(first)), b);
}

#include "real_body.h"

XN_TARGET_END
#endif
