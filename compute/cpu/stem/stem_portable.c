/* stem_portable.c: stems on any machine. */
#define STEM_KERNELS xn_cpu_stem_portable
#define TERM_NS 0.06

#include "stem_body.h"
