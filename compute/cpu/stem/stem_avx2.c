/* stem_avx2.c: stems on x86-64 with AVX2. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "stem_kernels.h"
#include "target.h"
#include "xn_arith.h"

XN_TARGET_BEGIN("avx2,fma")

#include "lanes_avx2.h"

#define STEM_KERNELS xn_cpu_stem_avx2
#define TERM_NS 0.0057
#define ROUNDS_ONCE
#define PACKING XN_CPU_STEM_HALVES
#define PRODUCTS "stem_halves.h"
#define MULTIPLY_PAIRS(a, b, c) ((c) + (vector_i32)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))
#include "stem_body.h"

XN_TARGET_END
#endif
