/* no_cuda.c: what cuda.cu and pack_cuda.cu are in a build without CUDA: nothing calls the latter.
 */
#include "bench/conv/device/device.h"
#include "bench/conv/pack.h"

const xn_bench_place *xn_bench_cuda(void) {
    return NULL;
}

int xn_bench_pack_check(void) {
    return 0;
}

double xn_bench_pack_us(const xn_conv *conv, int64_t images, const void *input, bool overlapped) {
    (void)conv, (void)images, (void)input, (void)overlapped;
    return NAN;
}

double xn_bench_pack_read_us(const void *input, size_t bytes) {
    (void)input, (void)bytes;
    return NAN;
}
