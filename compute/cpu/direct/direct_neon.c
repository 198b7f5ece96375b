/* direct_neon.c: few filters a group, modes bwn and float, on arm64. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "lanes_neon.h"

#define DIRECT_KERNELS xn_cpu_direct_neon

#include "direct_body.h"
#endif
