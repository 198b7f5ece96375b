/* gpu_timing.cuh: what the GPU benchmarks share: checked calls, kernel times by graph replay, and
 * the floor of a memory-bound kernel, a copy of as many bytes. Launches follow each other on the
 * same buffers, so what fits the L2 cache is read from there on both sides. */
#ifndef XN_BENCH_GPU_TIMING_CUH
#define XN_BENCH_GPU_TIMING_CUH

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t result_ = (call);                                                              \
        if (result_ != cudaSuccess) {                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    cudaGetErrorString(result_));                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define REQUIRE(call)                                                                              \
    do {                                                                                           \
        if (call) {                                                                                \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, error.message);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Microseconds a launch. */
struct stats {
    double median, p10, p90;
};

static stats replay(cudaStream_t stream, const std::function<void()> &launch, int launches,
                    int replays) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, stop;
    std::vector<double> us;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++)
        launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    for (int i = 0; i < replays; i++) {
        float ms;
        CHECK(cudaEventRecord(start, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(stop, stream));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        us.push_back(ms * 1e3 / launches);
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    std::sort(us.begin(), us.end());
    return {us[replays / 2], us[replays / 10], us[replays - 1 - replays / 10]};
}

/* A thread a vector, as the kernels under test do. */
static __global__ void copy_kernel(const float4 *in, float4 *out, size_t in_count,
                                   size_t out_count) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = make_float4(1, 2, 3, 4);
    if (i < in_count)
        v = in[i];
    if (i < out_count)
        out[i] = v;
    else if (v.x + v.y + v.z + v.w == 12345.678f)
        out[0] = v;
}

static stats time_copy(cudaStream_t stream, const void *input, size_t in_bytes, void *output,
                       size_t out_bytes, int launches, int replays) {
    const size_t in = in_bytes / 16, out = out_bytes / 16, most = std::max(in, out);
    return replay(
        stream,
        [&] {
            copy_kernel<<<(unsigned)((most + 255) / 256), 256, 0, stream>>>(
                (const float4 *)input, (float4 *)output, in, out);
            CHECK(cudaGetLastError());
        },
        launches, replays);
}

#endif
