/* lanes_neon.h: the operations of lanes_avx512.h for NEON. */
#include "lanes_scalar.h"

#define MULTIPLY_ADD(a, b, c)                                                                      \
    (vector_f32) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#define MULTIPLY_ADD_8(a, b, c) multiply_add_8(a, b, c)

typedef float eight_f32 __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) eight_f32 multiply_add_8(eight_f32 a, eight_f32 b,
                                                                      eight_f32 c) {
    float32x4_t halves[3][2];
    memcpy(halves[0], &a, sizeof a);
    memcpy(halves[1], &b, sizeof b);
    memcpy(halves[2], &c, sizeof c);
    for (int h = 0; h < 2; h++)
        halves[2][h] = vfmaq_f32(halves[2][h], halves[0][h], halves[1][h]);
    memcpy(&c, halves[2], sizeof c);
    return c;
}
