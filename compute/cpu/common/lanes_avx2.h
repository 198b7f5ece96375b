/* lanes_avx2.h: the operations of lanes_avx512.h for AVX2 and FMA. */
#define VECTOR_BYTES 32
#define MULTIPLY_ADD(a, b, c) (vector_f32) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define MULTIPLY_ADD_8(a, b, c) _mm256_fmadd_ps(a, b, c)
#define STREAM(to, v) _mm256_stream_ps((float *)(void *)(to), (__m256)(v))
#define LOAD_INSIDE(from, inside, pads) (vector_f32) load_inside(from, inside, (__m256)(pads))
#define STORE_FIRST(to, n, v) _mm256_maskstore_ps(to, lanes_of((1u << (n)) - 1), (__m256)(v))
#define EVENS(a, b)                                                                                \
    (vector_f32) in_order(_mm256_shuffle_ps((__m256)(a), (__m256)(b), _MM_SHUFFLE(2, 0, 2, 0)))
#define ODDS(a, b)                                                                                 \
    (vector_f32) in_order(_mm256_shuffle_ps((__m256)(a), (__m256)(b), _MM_SHUFFLE(3, 1, 3, 1)))
#define LARGER(a, b) (vector_f32) _mm256_max_ps((__m256)(a), (__m256)(b))
#define SHIFT_IN(before, v) (vector_f32) shift_in((__m256i)(before), (__m256i)(v))
#define MOVE(from, inside, pad, to) move(from, inside, (__m256)(pad), to)

/* All ones in the lanes that the lowest bits of `inside` name. */
static inline __attribute__((always_inline)) __m256i lanes_of(uint32_t inside) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)inside), bits), bits);
}

static inline __attribute__((always_inline)) __m256 load_inside(const float *from, uint32_t inside,
                                                                __m256 pad) {
    __m256i mask = lanes_of(inside);
    return _mm256_blendv_ps(pad, _mm256_maskload_ps(from, mask), _mm256_castsi256_ps(mask));
}

static inline __attribute__((always_inline)) __m256i shift_in(__m256i before, __m256i v) {
    return _mm256_alignr_epi8(v, _mm256_permute2x128_si256(before, v, 0x21), 12);
}

/* Of pairs that a shuffle of both halves left as 0, 2, 1, 3. */
static inline __attribute__((always_inline)) __m256 in_order(__m256 pairs) {
    return _mm256_castpd_ps(
        _mm256_permute4x64_pd(_mm256_castps_pd(pairs), _MM_SHUFFLE(3, 1, 2, 0)));
}

static inline __attribute__((always_inline)) void move(const float *from, uint32_t inside,
                                                       __m256 pad, float *to) {
    if (inside == 0xffff) {
        _mm256_storeu_ps(to, _mm256_loadu_ps(from));
        _mm256_storeu_ps(to + 8, _mm256_loadu_ps(from + 8));
        return;
    }
    _mm256_storeu_ps(to, load_inside(from, inside, pad));
    _mm256_storeu_ps(to + 8, load_inside(from + 8, inside >> 8, pad));
}
