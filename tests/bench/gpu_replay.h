/* gpu_replay.h: the time of a kernel by graph replay: a CUDA graph of many launches back to back on
 * the same buffers, so that the host's share is gone and what fits the L2 cache is read there. */
#ifndef XN_GPU_REPLAY_H
#define XN_GPU_REPLAY_H

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define XN_GPU_CHECK(call)                                                                         \
    do {                                                                                           \
        cudaError_t result_ = (call);                                                              \
        if (result_ != cudaSuccess) {                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    cudaGetErrorString(result_));                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct xn_replay_times {
    double median, p10, p90; /* microseconds a launch */
};

/* launch() puts one launch on the stream and returns its error. */
template <class Launch>
static xn_replay_times xn_gpu_replay(cudaStream_t stream, Launch launch, int launches = 20,
                                     int replays = 21) {
    const int warm_up = 3;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, stop;
    std::vector<double> us;
    XN_GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++)
        XN_GPU_CHECK(launch());
    XN_GPU_CHECK(cudaStreamEndCapture(stream, &graph));
    XN_GPU_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    XN_GPU_CHECK(cudaEventCreate(&start));
    XN_GPU_CHECK(cudaEventCreate(&stop));
    for (int i = 0; i < replays + warm_up; i++) {
        float ms;
        XN_GPU_CHECK(cudaEventRecord(start, stream));
        XN_GPU_CHECK(cudaGraphLaunch(exec, stream));
        XN_GPU_CHECK(cudaEventRecord(stop, stream));
        XN_GPU_CHECK(cudaEventSynchronize(stop));
        XN_GPU_CHECK(cudaEventElapsedTime(&ms, start, stop));
        if (i >= warm_up)
            us.push_back(ms * 1e3 / launches);
    }
    XN_GPU_CHECK(cudaEventDestroy(start));
    XN_GPU_CHECK(cudaEventDestroy(stop));
    XN_GPU_CHECK(cudaGraphExecDestroy(exec));
    XN_GPU_CHECK(cudaGraphDestroy(graph));
    std::sort(us.begin(), us.end());
    return {us[us.size() / 2], us[us.size() / 10], us[us.size() - 1 - us.size() / 10]};
}

#endif
