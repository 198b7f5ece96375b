/* lookup_portable.c: the kernels of lookup for any machine, with what the compiler makes of
 * 16-byte vectors. */
#include "lookup_kernels.h"

#include <stddef.h>

#define LOOKUP_KERNELS xn_cpu_lookup_portable
#define VECTOR_BYTES 16
#define LOOK_UP_NS 2.0
#define LOAD_TABLE(from) *(const loose_u8 *)(from)
#define LOOK_UP(table, patterns) look_up(table, patterns)
#define SIGN_BYTES(v) sign_bytes(v)
#define WIDEN(v, q) widen(v, q)
#define MOST(a, b) (((b) & (vector_u32)((b) > (a))) | ((a) & ~(vector_u32)((b) > (a))))
#define STREAM(to, v) (*(loose_f32 *)(to) = (v))
#define TAKE NULL
#define TILE NULL

typedef float part_f32 __attribute__((vector_size(16)));
typedef int32_t part_i32 __attribute__((vector_size(16)));
typedef int16_t part_i16 __attribute__((vector_size(16)));
typedef int8_t part_i8 __attribute__((vector_size(16)));
typedef uint8_t part_u8 __attribute__((vector_size(16)));

/* No shuffle by variable bytes: what each of the 4 taps adds, where its bit is set. */
static inline __attribute__((always_inline)) part_u8 look_up(part_u8 table, part_u8 patterns) {
    part_u8 sum = {0};
    for (int t = 0; t < XN_CPU_PATTERN_TAPS; t++) {
        const uint8_t bit = (uint8_t)(1 << t);
        sum += (part_u8)((patterns & bit) != 0) & table[bit];
    }
    return sum;
}

/* Comparisons give lanes of all ones; the low byte of each. */
static inline __attribute__((always_inline)) part_u8 sign_bytes(const part_f32 v[4]) {
    part_i16 low = __builtin_shufflevector((part_i16)(v[0] >= 0.0f), (part_i16)(v[1] >= 0.0f), 0, 2,
                                           4, 6, 8, 10, 12, 14);
    part_i16 high = __builtin_shufflevector((part_i16)(v[2] >= 0.0f), (part_i16)(v[3] >= 0.0f), 0,
                                            2, 4, 6, 8, 10, 12, 14);
    part_u8 all = __builtin_shufflevector((part_u8)low, (part_u8)high, 0, 2, 4, 6, 8, 10, 12, 14,
                                          16, 18, 20, 22, 24, 26, 28, 30);
    return all & 1;
}

/* A byte doubled is a word whose upper half is the byte, and so on; shifting down extends its
 * sign. */
static inline __attribute__((always_inline)) part_f32 widen(part_i8 v, const int q) {
    part_i8 pairs = q < 2 ? __builtin_shufflevector(v, v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                                    6, 22, 7, 23)
                          : __builtin_shufflevector(v, v, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                                    29, 14, 30, 15, 31);
    part_i16 words = (part_i16)pairs;
    words = q % 2 ? __builtin_shufflevector(words, words, 4, 12, 5, 13, 6, 14, 7, 15)
                  : __builtin_shufflevector(words, words, 0, 8, 1, 9, 2, 10, 3, 11);
    return __builtin_convertvector((part_i32)words >> 24, part_f32);
}

#include "lookup_body.h"
