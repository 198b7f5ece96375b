/* kernels_avx512.c: the kernels for x86-64 with AVX-512 and VPOPCNTDQ (Ice Lake, Zen 4 and later).
 */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "few_kernels.h"
#include "kernels.h"
#include "real_kernels.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,prefer-vector-width=512")

#define KERNELS xn_cpu_kernels_avx512
#define KERNELS_NAME "avx512-vpopcntdq"
#define KERNELS_FEW &xn_cpu_few_avx512
#define KERNELS_REAL &xn_cpu_real_avx512
#define VECTOR_BYTES 64
#define WORD_COST 3

#include "kernels_body.h"
#endif
