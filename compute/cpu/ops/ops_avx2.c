/* ops_avx2.c: steps that are no convolutions, on x86-64 with AVX2. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "ops_kernels.h"
#include "target.h"

XN_TARGET_BEGIN("avx2")

#define OPS_KERNELS xn_cpu_ops_avx2

#include "ops_body.h"

XN_TARGET_END
#endif
