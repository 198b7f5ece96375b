/* kernels_neon.c: the kernels for arm64, where NEON is always there. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels.h"

#define KERNELS xn_cpu_kernels_neon
#define VECTOR_BYTES 16
#define WORD_COST 8

#include "kernels_body.h"
#endif
