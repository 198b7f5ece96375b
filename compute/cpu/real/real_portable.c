/* real_portable.c: modes bwn and float on any machine, with what the compiler makes of 16-byte
 * vectors. */
#include "lanes_portable.h"

#define REAL_KERNELS xn_cpu_real_portable
#define TILE_VECTORS 2
#define COSTS 0.241, 0.667, 19.7, 10.7, 0.0715, 1.04, 1.18
#define TILE_FILTERS 4

#include "real_body.h"
