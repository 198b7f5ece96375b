/* stem_amx.c: stems on x86-64 with AMX (Sapphire Rapids and later). */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "stem_kernels.h"
#include "target.h"
#include "xn_arith.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,fma,amx-tile,amx-int8" XN_TARGET_WIDE)

#include "lanes_avx512.h"

#define STEM_KERNELS xn_cpu_stem_amx
#define TERM_NS 0.0005
#define ROUNDS_ONCE
#define PACKING XN_CPU_STEM_BYTES
#define PRODUCTS "stem_tiles.h"
#include "stem_body.h"

XN_TARGET_END
#endif
