/* launch.cuh: what every launcher does: a grid for so many threads, the launch, its error. */
#ifndef XN_CUDA_LAUNCH_CUH
#define XN_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#define XN_CUDA_THREADS 256
#define XN_CUDA_MAX_GRID 0x40000000 /* blocks in x; kernels loop when there is more to do */

/* Blocks for `work` items of `per_block`; at least one. */
static inline int xn_cuda_grid(int64_t work, int64_t per_block) {
    int64_t blocks = work > 0 ? (work - 1) / per_block + 1 : 1;
    return (int)(blocks < XN_CUDA_MAX_GRID ? blocks : XN_CUDA_MAX_GRID);
}

template <typename Args>
static cudaError_t xn_cuda_launch(void (*kernel)(const Args), dim3 grid, int block,
                                  size_t shared_bytes, cudaStream_t stream, const Args &args) {
    void *pointers[1] = {const_cast<Args *>(&args)};
    return cudaLaunchKernel((const void *)kernel, grid, dim3((unsigned)block), pointers,
                            shared_bytes, stream);
}

/* The same, when overlapped without waiting for the kernel ahead of it to end: the kernel itself
 * does (griddepcontrol.wait). cluster: neighbours in x that are launched together, sm_90 and later;
 * 1: none. */
template <typename Args>
static cudaError_t xn_cuda_launch_clusters(void (*kernel)(const Args), dim3 grid, int block,
                                           size_t shared_bytes, bool overlapped, int cluster,
                                           cudaStream_t stream, const Args &args) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2];
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)block);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (overlapped) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim = {(unsigned)cluster, 1, 1};
        config.numAttrs++;
    }
    void *pointers[1] = {const_cast<Args *>(&args)};
    return cudaLaunchKernelExC(&config, (const void *)kernel, pointers);
}

template <typename Args>
static cudaError_t xn_cuda_launch_with(void (*kernel)(const Args), dim3 grid, int block,
                                       size_t shared_bytes, bool overlapped, cudaStream_t stream,
                                       const Args &args) {
    return xn_cuda_launch_clusters(kernel, grid, block, shared_bytes, overlapped, 1, stream, args);
}

/* Loads the code of kernels onto the current device. */
template <typename... Args>
static cudaError_t xn_cuda_load(void (*...kernel)(const Args)) {
    cudaFuncAttributes attributes;
    cudaError_t e = cudaSuccess;
    ((e = e == cudaSuccess ? cudaFuncGetAttributes(&attributes, (const void *)kernel) : e), ...);
    return e;
}

/* The same, and lets the kernel have that much dynamic shared memory. */
template <typename Args>
static cudaError_t xn_cuda_load_with(void (*kernel)(const Args), size_t shared_bytes) {
    const cudaError_t e = xn_cuda_load(kernel);
    if (e != cudaSuccess)
        return e;
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes);
}

/* The same for one that needs wgmma, and lets it have that much dynamic shared memory. Where the
 * device has no such instruction the kernel is a trap without shared memory: *usable is false then.
 */
template <typename Args>
static cudaError_t xn_cuda_load_wgmma(void (*kernel)(const Args), int shared_bytes, bool *usable) {
    cudaFuncAttributes attributes;
    const cudaError_t e = cudaFuncGetAttributes(&attributes, (const void *)kernel);
    *usable = *usable && (e != cudaSuccess || attributes.sharedSizeBytes);
    return e == cudaSuccess && *usable ? xn_cuda_load_with(kernel, (size_t)shared_bytes) : e;
}

#endif
