/* stem_avx512.c: stems on x86-64 with AVX-512. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq" XN_TARGET_WIDE)

#define STEM_KERNELS xn_cpu_stem_avx512
#define TERM_NS 0.012

#include "stem_body.h"

XN_TARGET_END
#endif
