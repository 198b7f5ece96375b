/* stem_portable.c: stems on any machine. */
#include "lanes_portable.h"

#define STEM_KERNELS xn_cpu_stem_portable
#define TERM_NS 0.03
#define PACKING XN_CPU_STEM_HALVES
#define PRODUCTS "stem_halves.h"
#include "stem_body.h"
