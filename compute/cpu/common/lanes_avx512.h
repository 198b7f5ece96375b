/* lanes_avx512.h: operations on vectors of floats for AVX-512, as kernel texts name them:
 *
 *   MULTIPLY_ADD(a, b, c)            a * b + c, rounded once where the set can
 *   MULTIPLY_ADD_8(a, b, c)          the same of vectors of 8
 *   STREAM(to, v)                    a store past the caches; to is aligned to the vector
 *   LOAD_INSIDE(from, inside, pads)  the lanes that bits of `inside` name, of pads elsewhere
 *   STORE_FIRST(to, n, v)            the first n lanes
 *   EVENS(a, b), ODDS(a, b)          lanes 0, 2, 4, ..., or 1, 3, ... of a, then of b
 *   LARGER(a, b)                     a where it is more than b, else b
 *   SHIFT_IN(before, v)              the last lane of before, then all of v but its last
 *   MOVE(from, inside, pad, to)      one move of a panel (real_kernels.h) */
#define VECTOR_BYTES 64
#define MULTIPLY_ADD(a, b, c) (vector_f32) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define MULTIPLY_ADD_8(a, b, c) _mm256_maskz_fmadd_ps(0xff, a, b, c)
#define STREAM(to, v) _mm512_stream_ps((float *)(void *)(to), (__m512)(v))
#define LOAD_INSIDE(from, inside, pads)                                                            \
    (vector_f32) _mm512_mask_loadu_ps((__m512)(pads), (__mmask16)(inside), from)
#define STORE_FIRST(to, n, v) _mm512_mask_storeu_ps(to, (__mmask16)((1u << (n)) - 1), (__m512)(v))
#define EVENS(a, b) (vector_f32) every_other((__m512)(a), (__m512)(b), 0)
#define ODDS(a, b) (vector_f32) every_other((__m512)(a), (__m512)(b), 1)
#define LARGER(a, b) (vector_f32) _mm512_max_ps((__m512)(a), (__m512)(b))
#define SHIFT_IN(before, v) (vector_f32) _mm512_alignr_epi32((__m512i)(v), (__m512i)(before), 15)
#define MOVE(from, inside, pad, to)                                                                \
    _mm512_storeu_ps(to, _mm512_mask_loadu_ps((__m512)(pad), (__mmask16)(inside), from))

static inline __attribute__((always_inline)) __m512 every_other(__m512 a, __m512 b, int first) {
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(first)), b);
}
