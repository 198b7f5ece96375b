/* vectors.h: GNU vectors of VECTOR_BYTES, which who includes this has defined, and the arithmetic
 * of the epilogue on them. Every kernel text (*_body.h) starts with it, so that whatever computes a
 * value does the same operations in the same order. It goes inside XN_TARGET_BEGIN and END. */
#include "xn_arith.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Of a loop over an array of vectors, which else is in memory, not in registers. */
#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNALIGNED(type) aligned(sizeof(type)), may_alias

typedef uint8_t vector_u8 __attribute__((vector_size(VECTOR_BYTES)));
typedef int8_t vector_i8 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vector_u16 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vector_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vector_i32 __attribute__((vector_size(VECTOR_BYTES)));
typedef float vector_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t loose_u8 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(uint8_t)));
typedef uint32_t loose_u32 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(uint32_t)));
typedef int32_t loose_i32 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(int32_t)));
typedef float loose_f32 __attribute__((vector_size(VECTOR_BYTES), UNALIGNED(float)));

enum { LANES = VECTOR_BYTES / 4 /* words or floats of a vector */ };

/* v of epilogue.h, without K and with its sums. */
INLINE vector_f32 value_of(vector_f32 acc, float factor, float bias) {
    return acc * factor + bias;
}

INLINE vector_f32 value_with_k(vector_f32 acc, float factor, vector_f32 k, float bias) {
    return acc * factor * k + bias;
}

/* Whether values were all finite: a value less itself is 0, else NaN. Noted in a vector that begins
 * as 0. */
INLINE void note_value(vector_u32 *odd, vector_f32 v) {
    *odd |= (vector_u32)(v - v);
}

INLINE bool are_finite(vector_u32 odd) {
    uint32_t any = 0;
    for (int l = 0; l < LANES; l++)
        any |= odd[l];
    return !any;
}

/* The sum of the parts before and one more, and what rounding took from it: Kahan's summation. */
INLINE vector_f32 add_part(vector_f32 part, vector_f32 before, vector_f32 *rest) {
    const vector_f32 term = part - *rest, after = before + term;
    *rest = (after - before) - term;
    return after;
}
