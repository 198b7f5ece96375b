/* lookup_vpopcnt.c: the kernels of lookup for x86-64 with AVX-512 (VBMI too, which all have that
 * have VPOPCNTDQ). */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "lookup_kernels.h"
#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,fma" XN_TARGET_WIDE)

#define LOOKUP_KERNELS xn_cpu_lookup_vpopcnt
#define WINDOWS 1
#include "lookup_512.h"

XN_TARGET_END
#endif
