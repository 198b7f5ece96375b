/* lanes_portable.h: the operations of lanes_avx512.h for any machine. */
#include "lanes_scalar.h"

#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define MULTIPLY_ADD_8(a, b, c) MULTIPLY_ADD(a, b, c)
