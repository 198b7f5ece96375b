/* stem_avx2.c: stems on x86-64 with AVX2. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "target.h"

XN_TARGET_BEGIN("avx2,fma")

#define STEM_KERNELS xn_cpu_stem_avx2
#define TERM_NS 0.02

#include "stem_body.h"

XN_TARGET_END
#endif
