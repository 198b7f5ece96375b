#include "kernels.h"

#define KERNELS xn_cpu_kernels_portable
#define VECTOR_BYTES 16
#define WORD_COST 52

#include "kernels_body.h"
