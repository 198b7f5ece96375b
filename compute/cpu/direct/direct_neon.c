/* direct_neon.c: few filters a group, modes bwn and float, on arm64. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "lanes_neon.h"

#define DIRECT_KERNELS xn_cpu_direct_neon
#define COSTS 0.9, 3, 8, 20, 2, 0.1, 0.25, 0.5, 12.5, 1 /* not measured */

#include "direct_body.h"
#endif
