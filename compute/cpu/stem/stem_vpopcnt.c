/* stem_vpopcnt.c: stems on x86-64 with AVX-512 and VNNI (sets.c). */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "stem_kernels.h"
#include "target.h"
#include "xn_arith.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma" XN_TARGET_WIDE)

#include "lanes_avx512.h"

#define STEM_KERNELS xn_cpu_stem_vpopcnt
#define TERM_NS 0.003
#define ROUNDS_ONCE
#define PACKING XN_CPU_STEM_BYTES
#define PRODUCTS "stem_bytes.h"
#include "stem_body.h"

XN_TARGET_END
#endif
