/* op.cu: the kernels of op.cuh, and their launches. */
#include "launch.cuh"
#include "op.cuh"

/* The threads of a block (op.cuh). */
struct device_block {
    int64_t index;

    template <class Action>
    __device__ __forceinline__ void each(Action action) const {
        action((int32_t)threadIdx.x);
        __syncthreads();
    }
};

/* A kernel behind waits for what it reads by itself, so it may be made ready at once. */
__device__ __forceinline__ device_block begin_block() {
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    return {(int64_t)blockIdx.x};
}

/* Pools wait for memory: more blocks of them. */
template <xn_op_body BODY, int V>
__global__ void __launch_bounds__(XN_OP_THREADS, BODY == XN_OP_COLUMNS_EIGHT ? 4 : 1)
    op_tile_kernel(const __grid_constant__ xn_op_args a) {
    __shared__ xn_op_shared<V> s;
    xn_op_tile<BODY, V>(a, begin_block(), s);
}

template <typename T, int V, int C>
__global__ void __launch_bounds__(XN_OP_THREADS, 4)
    op_map_kernel(const __grid_constant__ xn_op_args a) {
    __shared__ xn_op_map_shared s;
    xn_op_map<T, V, C>(a, begin_block(), s);
}

template <int V>
__global__ void __launch_bounds__(XN_OP_THREADS, 6)
    op_few_kernel(const __grid_constant__ xn_op_args a) {
    xn_op_few<V>(a, begin_block());
}

__global__ void __launch_bounds__(XN_OP_THREADS)
    op_words_kernel(const __grid_constant__ xn_op_args a) {
    xn_op_pool_words(a, begin_block());
}

__global__ void __launch_bounds__(XN_OP_THREADS, 4)
    op_whole_kernel(const __grid_constant__ xn_op_args a) {
    __shared__ xn_op_whole_shared s;
    xn_op_pool_whole(a, begin_block(), s);
}

template <int LANES>
__global__ void __launch_bounds__(XN_OP_THREADS)
    op_stats_kernel(const __grid_constant__ xn_op_args a) {
    __shared__ xn_op_stats_shared s;
    xn_op_stats<LANES>(a, begin_block(), s);
}

__global__ void __launch_bounds__(XN_OP_THREADS)
    op_part_kernel(const __grid_constant__ xn_op_part part) {
    xn_op_copy_part(part, begin_block());
}

template <typename Args>
static cudaError_t launch(void (*kernel)(const Args), int64_t blocks, const Args &args,
                          bool overlapped, cudaStream_t stream) {
    if (blocks > XN_CUDA_MAX_GRID)
        return cudaErrorInvalidConfiguration; /* tensors of 2^30 blocks: more than memory */
    return xn_cuda_launch_with(kernel, dim3((unsigned)blocks), XN_OP_THREADS, 0, overlapped, stream,
                               args);
}

typedef void (*op_kernel)(const xn_op_args);

static op_kernel kernel_of(xn_op_body body, bool fp16) {
    switch (body) {
    case XN_OP_EACH:
        return op_tile_kernel<XN_OP_EACH, 1>;
    case XN_OP_MAP:
        return fp16 ? op_map_kernel<__half, 1, 16> : op_map_kernel<float, 1, 16>;
    case XN_OP_MAP_FOUR:
        return fp16 ? op_map_kernel<__half, 4, 8> : op_map_kernel<float, 4, 4>;
    case XN_OP_MAP_EIGHT:
        return op_map_kernel<__half, 8, 4>;
    case XN_OP_FEW:
        return op_few_kernel<1>;
    case XN_OP_FEW_FOUR:
        return op_few_kernel<4>;
    case XN_OP_COLUMNS:
        return op_tile_kernel<XN_OP_COLUMNS, 1>;
    case XN_OP_COLUMNS_FOUR:
        return op_tile_kernel<XN_OP_COLUMNS_FOUR, 4>;
    case XN_OP_COLUMNS_EIGHT:
        return op_tile_kernel<XN_OP_COLUMNS_EIGHT, 4>;
    case XN_OP_CURVE:
        return op_tile_kernel<XN_OP_CURVE, 1>;
    case XN_OP_WINDOW:
        return op_tile_kernel<XN_OP_WINDOW, 1>;
    case XN_OP_WHOLE:
        return op_whole_kernel;
    default:
        return op_words_kernel;
    }
}

cudaError_t xn_cuda_op_launch(const xn_op_args *args, bool overlapped, cudaStream_t stream) {
    const xn_op_body body = xn_op_body_of(args);
    if (args->kind == XN_STEP_SOFTMAX) {
        const cudaError_t e =
            launch(xn_op_stats_lanes(args) == 1 ? op_stats_kernel<1> : op_stats_kernel<32>,
                   xn_op_stats_blocks(args), *args, overlapped, stream);
        if (e != cudaSuccess)
            return e;
    }
    return launch(kernel_of(body, args->datatype == XN_FP16), xn_op_blocks(args, body), *args,
                  overlapped, stream);
}

cudaError_t xn_cuda_part_launch(const xn_op_part *part, bool overlapped, cudaStream_t stream) {
    return launch(op_part_kernel, (part->all - 1) / XN_OP_THREADS + 1, *part, overlapped, stream);
}

cudaError_t xn_cuda_op_load(void) {
    cudaError_t e = xn_cuda_load(op_part_kernel);
    for (int n = 2 * XN_OP_EACH; n < 2 * (XN_OP_WORDS + 1) && e == cudaSuccess; n++)
        e = xn_cuda_load(kernel_of((xn_op_body)(n / 2), n % 2));
    if (e == cudaSuccess)
        e = xn_cuda_load(op_stats_kernel<1>);
    return e == cudaSuccess ? xn_cuda_load(op_stats_kernel<32>) : e;
}
