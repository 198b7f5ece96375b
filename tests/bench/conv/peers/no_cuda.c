/* no_cuda.c: what cuda.cu is in a build without CUDA. */
#include "bench/conv/device/device.h"

const xn_bench_place *xn_bench_cuda(void) {
    return NULL;
}
