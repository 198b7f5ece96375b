/* direct_portable.c: few filters a group, modes bwn and float, on any machine. */
#include "lanes_portable.h"

#define DIRECT_KERNELS xn_cpu_direct_portable

#include "direct_body.h"
