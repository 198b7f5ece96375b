/* kernels_avx2.c: the kernels for x86-64 with AVX2 (and FMA, which came with it). */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"
#include "target.h"

XN_TARGET_BEGIN("avx2,f16c")

#define KERNELS xn_cpu_kernels_avx2
#define VECTOR_BYTES 32
#define STREAM(to, v) _mm256_stream_si256((void *)(to), (__m256i)(v))
#define FLUSH() _mm_sfence()
#define FROM_FP16(h) _mm256_cvtph_ps(_mm_loadu_si128((const void *)(h)))
#define TO_FP16(h, v)                                                                              \
    _mm_storeu_si128((void *)(h), _mm256_cvtps_ph((__m256)(v), _MM_FROUND_TO_NEAREST_INT))

#include "kernels_body.h"

XN_TARGET_END
#endif
