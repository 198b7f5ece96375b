/* many_vpopcnt.c: many channels on x86-64 with AVX-512 and VPOPCNTDQ (Ice Lake, Zen 4 and later):
 * one instruction counts the bits of 16 words, so a step is xor, count, add. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq" XN_TARGET_WIDE)

#define KERNELS xn_cpu_many_vpopcnt
#define VECTOR_BYTES 64
#define STEP_NS 0.2
#define STREAM(to, v) _mm512_stream_si512((void *)(to), (__m512i)(v))
#define STORE_FIRST(to, n, v) _mm512_mask_storeu_ps(to, (__mmask16)((1u << (n)) - 1), (__m512)(v))
#define LOOKUP(table, i) (vector_u32) _mm512_permutexvar_epi32((__m512i)(i), (__m512i)(table))
#define FOLD_WORDS 0
#define TILE_VECTORS 4
#define TILE_FILTERS 4
#define SUM(x) (uint32_t) _mm512_reduce_add_epi32((__m512i)(x))
#define COUNT(x) (vector_u32) _mm512_popcnt_epi32((__m512i)(x))

#include "many_body.h"

XN_TARGET_END
#endif
