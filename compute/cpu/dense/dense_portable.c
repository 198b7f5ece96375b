/* dense_portable.c: images of one output pixel on any machine, with what the compiler makes of
 * 16-byte vectors. */
#include "lanes_portable.h"

#define DENSE_KERNELS xn_cpu_dense_portable
#define MOST_POINTS 4
#define TILE_VECTORS 3
#define ALONE_VECTORS 6
#define COSTS 0.08, 0.5, 1

#include "dense_body.h"
