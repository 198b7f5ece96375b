/* kernels_portable.c: the kernels for any machine, with what the compiler makes of 16-byte vectors.
 */
#include "kernels.h"

#define KERNELS xn_cpu_kernels_portable
#define VECTOR_BYTES 16

#include "kernels_body.h"
