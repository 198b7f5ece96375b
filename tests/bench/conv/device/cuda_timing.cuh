/* cuda_timing.cuh: what the GPU's files share: checked calls, and times by graph replay. Launches
 * of a graph follow each other on the same buffers, so what fits the L2 cache is read from there,
 * by what is timed and by the copy beside it. */
#ifndef XN_BENCH_CUDA_TIMING_CUH
#define XN_BENCH_CUDA_TIMING_CUH

#include "device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t result_ = (call);                                                        \
        if (result_ != cudaSuccess)                                                                \
            xn_bench_fail(#call, cudaGetErrorString(result_));                                     \
    } while (0)

/* The stream that everything here runs on. */
cudaStream_t xn_bench_cuda_stream();

/* Launches, captured as a graph. */
class replayed {
  public:
    /* At least so many launches, and more while they take less than sample_us. */
    replayed(const std::function<void()> &launch, double sample_us);
    ~replayed();
    replayed(const replayed &) = delete;
    replayed &operator=(const replayed &) = delete;

    double sample_us(); /* microseconds a launch */
    double median_us(int replays);

  private:
    void capture(const std::function<void()> &launch, int launches);
    void release();
    int launches_ = 0;
    cudaGraphExec_t exec_ = nullptr;
    cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

#endif
