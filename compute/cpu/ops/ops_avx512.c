/* ops_avx512.c: steps that are no convolutions, on x86-64 with AVX-512. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "ops_kernels.h"
#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq" XN_TARGET_WIDE)

#define OPS_KERNELS xn_cpu_ops_avx512

#include "ops_body.h"

XN_TARGET_END
#endif
