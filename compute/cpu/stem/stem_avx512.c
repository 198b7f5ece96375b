/* stem_avx512.c: stems on x86-64 with AVX-512. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "stem_kernels.h"
#include "target.h"
#include "xn_arith.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,fma" XN_TARGET_WIDE)

#include "lanes_avx512.h"

#define STEM_KERNELS xn_cpu_stem_avx512
#define TERM_NS 0.004
#define ROUNDS_ONCE
#define PACKING XN_CPU_STEM_HALVES
#define PRODUCTS "stem_halves.h"
#define MULTIPLY_PAIRS(a, b, c) ((c) + (vector_i32)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))
#include "stem_body.h"

XN_TARGET_END
#endif
