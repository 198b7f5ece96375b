/* real_portable.c: modes bwn and float on any machine, with what the compiler makes of 16-byte
 * vectors. */
#include "lanes_portable.h"

#define REAL_KERNELS xn_cpu_real_portable
#define TILE_VECTORS 2
#define COSTS 0.273, 3.06, 9.6, 0.98, 0.39, 1.67, 27
#define TILE_FILTERS 4

#include "real_body.h"
