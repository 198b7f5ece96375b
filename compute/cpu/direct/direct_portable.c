/* direct_portable.c: few filters a group, modes bwn and float, on any machine. */
#include "lanes_portable.h"

#define DIRECT_KERNELS xn_cpu_direct_portable
#define COSTS 0.91, 3.07, 9.8, 0, 2.7, 0.1, 0.242, 0.79, 12.5, 0

#include "direct_body.h"
