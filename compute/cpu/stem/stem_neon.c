/* stem_neon.c: stems on arm64. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "lanes_neon.h"

#define STEM_KERNELS xn_cpu_stem_neon
#define TERM_NS 0.012 /* not measured */
#define ROUNDS_ONCE
#define PACKING XN_CPU_STEM_HALVES
#define PRODUCTS "stem_halves.h"
#include "stem_body.h"
#endif
