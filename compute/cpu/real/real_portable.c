/* real_portable.c: modes bwn and float on any machine, with what the compiler makes of 16-byte
 * vectors. */
#include "real_scalar_move.h"

#define REAL_KERNELS xn_cpu_real_portable
#define VECTOR_BYTES 16
#define TILE_VECTORS 2
#define TILE_FILTERS 4
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define STREAM(to, v) (*(loose_f32 *)(to) = (v))

#include "real_body.h"
