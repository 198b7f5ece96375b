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

template <xn_op_body BODY>
__global__ void __launch_bounds__(XN_OP_THREADS)
    op_tile_kernel(const __grid_constant__ xn_op_args a) {
    __shared__ xn_op_shared<1> s;
    xn_op_tile<BODY>(a, begin_block(), s);
}

template <typename T, int K, int S, bool AVERAGE>
__global__ void __launch_bounds__(XN_OP_THREADS, 4)
    op_pool_kernel(const __grid_constant__ xn_op_args a) {
    __shared__ xn_op_shared<XN_OP_ROWS> s;
    xn_op_pool_columns<T, K, S, AVERAGE>(a, begin_block(), s);
}

template <typename T, int V, int C, bool APART = false>
__global__ void __launch_bounds__(XN_OP_THREADS, 4)
    op_map_kernel(const __grid_constant__ xn_op_args a) {
    __shared__ xn_op_map_shared s;
    xn_op_map<T, V, C, APART>(a, begin_block(), s);
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

typedef void (*op_kernel)(const xn_op_args);

static cudaError_t launch(op_kernel kernel, int64_t blocks, const xn_op_args &args, bool overlapped,
                          cudaStream_t stream) {
    if (blocks > XN_CUDA_MAX_GRID)
        return cudaErrorInvalidConfiguration; /* tensors of 2^30 blocks: more than memory */
    return xn_cuda_launch_with(kernel, dim3((unsigned)blocks), XN_OP_THREADS, 0, overlapped, stream,
                               args);
}

/* By body, of float and __half; from XN_OP_COLUMNS on by kernel_w + stride_w - 3, and the mean. */
static const op_kernel kernels[][2] = {
    {op_tile_kernel<XN_OP_EACH>, op_tile_kernel<XN_OP_EACH>},
    {op_map_kernel<float, 4, 8, true>, op_map_kernel<__half, 4, 8, true>},
    {op_map_kernel<float, 4, 4>, op_map_kernel<__half, 4, 8>},
    {NULL, op_map_kernel<__half, 8, 4>},
    {op_few_kernel<1>, op_few_kernel<1>},
    {op_few_kernel<4>, op_few_kernel<4>},
    {op_tile_kernel<XN_OP_CURVE>, op_tile_kernel<XN_OP_CURVE>},
    {op_tile_kernel<XN_OP_WINDOW>, op_tile_kernel<XN_OP_WINDOW>},
    {op_whole_kernel, op_whole_kernel},
    {op_words_kernel, op_words_kernel},
    {op_pool_kernel<float, 2, 1, false>, op_pool_kernel<__half, 2, 1, false>},
    {op_pool_kernel<float, 2, 2, false>, op_pool_kernel<__half, 2, 2, false>},
    {op_pool_kernel<float, 3, 2, false>, op_pool_kernel<__half, 3, 2, false>},
    {op_pool_kernel<float, 2, 2, true>, op_pool_kernel<__half, 2, 2, true>}};

cudaError_t xn_cuda_op_launch(const xn_op_args *args, bool overlapped, cudaStream_t stream) {
    const xn_op_body body = xn_op_body_of(args);
    if (args->kind == XN_STEP_SOFTMAX) {
        const cudaError_t e =
            launch(xn_op_stats_lanes(args) == 1 ? op_stats_kernel<1> : op_stats_kernel<32>,
                   xn_op_stats_blocks(args), *args, overlapped, stream);
        if (e != cudaSuccess)
            return e;
    }
    const int pool = args->kind == XN_STEP_AVG_POOL ? 3 : args->kernel_w + args->stride_w - 3;
    const op_kernel *kernel = kernels[body + (body == XN_OP_COLUMNS ? pool : 0)];
    return launch(kernel[args->datatype == XN_FP16], xn_op_blocks(args, body), *args, overlapped,
                  stream);
}

cudaError_t xn_cuda_op_load(void) {
    cudaError_t e = xn_cuda_load(op_stats_kernel<1>, op_stats_kernel<32>);
    for (const op_kernel(&body)[2] : kernels)
        for (op_kernel kernel : body)
            if (e == cudaSuccess && kernel)
                e = xn_cuda_load(kernel);
    return e;
}
