/* stem_neon.c: stems on arm64. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#define STEM_KERNELS xn_cpu_stem_neon
#define TERM_NS 0.05 /* not measured */

#include "stem_body.h"
#endif
