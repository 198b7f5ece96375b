/* kernels_avx512.c: the kernels for x86-64 with AVX-512 (Skylake-X, Zen 4 and later). */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"
#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq" XN_TARGET_WIDE)

#define KERNELS xn_cpu_kernels_avx512
#define VECTOR_BYTES 64
#define STREAM(to, v) _mm512_stream_si512((void *)(to), (__m512i)(v))
#define FLUSH() _mm_sfence()
#define FROM_FP16(h) _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(h)))
#define TO_FP16(h, v)                                                                              \
    _mm256_storeu_si256((void *)(h), _mm512_cvtps_ph((__m512)(v), _MM_FROUND_TO_NEAREST_INT))

#define LOAD_FIRST(from, n) _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), from)
#define STORE_FIRST(to, n, v) _mm512_mask_storeu_ps(to, (__mmask16)((1u << (n)) - 1), (__m512)(v))

#include "kernels_body.h"

XN_TARGET_END
#endif
