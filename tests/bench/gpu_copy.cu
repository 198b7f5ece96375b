/* gpu_copy.cu: the floor of a memory-bound kernel on the GPU, for benchmarks in C. */
#include "bench.h"
#include "gpu_timing.cuh"

bool xn_bench_gpu_copy(size_t in_bytes, size_t out_bytes, double *us) {
    enum { LAUNCHES = 20, REPLAYS = 21 };
    void *in = nullptr, *out = nullptr;
    cudaStream_t stream = nullptr;
    CHECK(cudaMalloc(&in, in_bytes + 16));
    CHECK(cudaMalloc(&out, out_bytes + 16));
    CHECK(cudaMemset(in, 1, in_bytes));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    *us = time_copy(stream, in, in_bytes + 15, out, out_bytes + 15, LAUNCHES, REPLAYS).median;
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return true;
}
