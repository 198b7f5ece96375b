/* ops_neon.c: steps that are no convolutions, on arm64, where NEON is always there. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#define OPS_KERNELS xn_cpu_ops_neon

#include "ops_body.h"
#endif
