/* ops_portable.c: steps that are no convolutions, on any machine. */
#define OPS_KERNELS xn_cpu_ops_portable

#include "ops_body.h"
