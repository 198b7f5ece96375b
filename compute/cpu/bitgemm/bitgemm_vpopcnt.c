/* bitgemm_vpopcnt.c: the path bitgemm on x86-64 with AVX-512 and VPOPCNTDQ (Ice Lake, Zen 4 and
 * later): one instruction counts the bits of 16 words, and one has any function of three bits. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "target.h"

XN_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq" XN_TARGET_WIDE)

#define KERNELS xn_cpu_bitgemm_vpopcnt
#define VECTOR_BYTES 64
#define STEP_NS 0.2
#define FEW_QUERIES 3
#define STREAM(to, v) _mm512_stream_si512((void *)(to), (__m512i)(v))
#define LOOKUP(table, i)                                                                           \
    (vector_u32) _mm512_permutexvar_epi32((__m512i)(i), _mm512_loadu_si512(table))
#define CARRY_SAVE
#define TILE_VECTORS 2
#define TILE_FILTERS XN_CPU_PAIR_FILTERS
#define FOLD_WORDS INT32_MAX
#define FOLD(counts) (counts)
#define COUNT(x) (vector_u32) _mm512_popcnt_epi32((__m512i)(x))
/* Sets those of word bit in lanes where a is at least b, both within 31 bits. Written out:
 * compilers bring a word that they know here by general registers. */
#define SET_BIT(bits, bit, a, b)                                                                   \
    do {                                                                                           \
        vector_u32 less_;                                                                          \
        __asm__("vpsubd %[y], %[x], %[less]\n\t"                                                   \
                "vpsrad $31, %[less], %[less]\n\t"                                                 \
                "vpternlogd $0xf2, %[one]%{1to16%}, %[less], %[all]"                               \
                : [all] "+v"(bits), [less] "=&v"(less_)                                            \
                : [x] "v"(a), [y] "v"(b), [one] "m"(bit));                                         \
    } while (0)
#define ANY(mask) (_mm512_movepi32_mask((__m512i)(mask)) != 0)
/* Adds the words at u and w to a count and a parity (bitgemm_carry_save.h), for lanes whose words
 * are x and y. Written out: compilers move the xors of a tile together, away from what waits for
 * them, and copy parities about. 0x3a is p' ? ~p'' : p. */
#define ADD_PAIR(count, parity, x, y, u, w)                                                        \
    do {                                                                                           \
        vector_u32 first_, second_;                                                                \
        __asm__(                                                                                   \
            "vpxord %[w0]%{1to16%}, %[x0], %[first]\n\t"                                           \
            "vpxord %[w1]%{1to16%}, %[x1], %[second]\n\t"                                          \
            "vpternlogd $0x3a, %[p], %[second], %[first]\n\t"                                      \
            "vpopcntd %[first], %[first]\n\t"                                                      \
            "vpaddd %[first], %[sum], %[sum]\n\t"                                                  \
            "vmovdqa64 %[second], %[p]"                                                            \
            : [first] "=&v"(first_), [second] "=&v"(second_), [p] "+v"(parity), [sum] "+v"(count)  \
            : [x0] "v"(x), [x1] "v"(y), [w0] "m"(*(u)), [w1] "m"(*(w)));                           \
    } while (0)

/* Moves two rows on, without a register for the bytes of both. */
#define NEXT_ROWS(patches, row) __asm__("lea (%0,%1,8), %0" : "+r"(patches) : "r"(row))

#include "bitgemm_body.h"

XN_TARGET_END
#endif
