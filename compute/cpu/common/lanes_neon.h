/* lanes_neon.h: the operations of lanes_avx512.h for NEON. */
#include "lanes_scalar.h"

#define MULTIPLY_ADD(a, b, c)                                                                      \
    (vector_f32) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
