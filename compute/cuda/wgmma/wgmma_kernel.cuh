/* wgmma_kernel.cuh: the skeleton of the wgmma kernels: arguments, entry, launch. A kernel is a
 * policy K:
 *
 *   K::args                       xn_wgmma_args, and what else it reads
 *   K::THREADS, K::BLOCKS         of a block; blocks a multiprocessor that registers must allow
 *   K::BARRIERS                   in shared memory; the first is the filters'
 *   K::arrivals(a, barrier)       that complete a phase of a barrier
 *   K::begin(a, b)                what a block makes before its threads meet
 *   K::run(a, b)                  the rest: producers, consumers, epilogue */
#ifndef XN_CUDA_WGMMA_KERNEL_CUH
#define XN_CUDA_WGMMA_KERNEL_CUH

#include "epilogue.cuh"
#include "launch.cuh"
#include "wgmma_pipeline.cuh"

#include <iterator>

/* What is between a value and memory: nothing; residuals and bits that lie so that the fast way has
 * them; activations too; anything. */
enum xn_wgmma_rest { XN_WGMMA_PLAIN, XN_WGMMA_BESIDE, XN_WGMMA_ACTIVATED, XN_WGMMA_ANY };

/* More: what else a kernel reads. Bands are shared evenly among blocks. */
template <typename Shape, typename Io, typename More>
struct xn_wgmma_args : More {
    xn_conv conv;
    Io io;
    int32_t images;
    int32_t share_each, share_more; /* so many have one more */
    Shape shape;
};

template <class K>
__global__ void __launch_bounds__(K::THREADS, K::BLOCKS)
    xn_wgmma_kernel(const __grid_constant__ typename K::args a) {
#if XN_HAS_WGMMA
    extern __shared__ __align__(128) char wgmma_memory[];
    __shared__ uint64_t barriers[K::BARRIERS];
    const xn_wgmma_block b = {wgmma_memory, xn_shared_address(barriers), (int32_t)blockIdx.z,
                              (int32_t)blockIdx.y * XN_WGMMA_FILTERS};
    xn_let_next_kernel_start();
    if (threadIdx.x < 32)
        xn_wgmma_start<K>(a, b);
    K::begin(a, b);
    __syncthreads();
    if (threadIdx.x % 32 == 0) /* at once, by all warps */
        xn_wgmma_copy_filters(a, b, (int32_t)threadIdx.x / 32, (int32_t)blockDim.x / 32);
    __syncwarp();
    K::run(a, b);
#else
    (void)a;
    __trap();
#endif
}

/* ---- launch ---- */

/* What all arguments have; the cut is decided anew where it is of other images. */
template <typename Args, typename Cut, typename Io, typename Plan>
static inline cudaError_t xn_wgmma_fill(Args *a, const xn_conv *conv, int64_t images, Cut *cut,
                                        const Io *io, Plan plan) {
    const cudaError_t e = xn_cuda_keep_cut(cut, images, plan);
    a->conv = *conv;
    a->io = *io;
    a->images = (int32_t)images;
    a->shape = cut->shape;
    return e;
}

/* How much of an epilogue the fast way does, which has `vector` neighbouring outputs at a time, and
 * residuals of their datatype. */
static inline xn_wgmma_rest xn_wgmma_rest_of(const xn_conv *conv, const xn_epilogue_args *out,
                                             int32_t vector) {
    const bool fp16 = out->what.datatype == XN_FP16;
    if (xn_is_plain(out->what))
        return XN_WGMMA_PLAIN;
    if ((out->what.bits && !xn_has_half_words(*conv)) ||
        (out->what.residual &&
         (out->residual_fp16 != fp16 || !xn_residual_has_vectors(*out, vector))))
        return XN_WGMMA_ANY;
    return out->what.activation == XN_ACTIVATION_NONE ? XN_WGMMA_BESIDE : XN_WGMMA_ACTIVATED;
}

/* The same of kernels with real outputs. */
template <typename Args>
static inline cudaError_t xn_wgmma_fill_epilogue(Args *a, const xn_epilogue_args *epilogue,
                                                 int32_t vector, cudaStream_t stream) {
    a->out = xn_epilogue_of(&a->conv, epilogue);
    a->rest = xn_wgmma_rest_of(&a->conv, &a->out, vector);
    if (!a->out.what.bits || a->rest != XN_WGMMA_ANY)
        return cudaSuccess;
    a->io.overlapped = false; /* bits are cleared first */
    return xn_clear_bits(&a->conv, a->images, &a->out, stream);
}

/* Which of the kernels for fp32, fp16 and INT32. */
static inline int xn_wgmma_output(const xn_conv *conv) {
    return conv->epilogue.datatype == XN_INT32 ? 2 : xn_wgmma_is_fp16(conv) ? 1 : 0;
}

/* Bands are shared among the blocks of a tile of filters. */
template <typename Args>
static inline cudaError_t xn_wgmma_launch(void (*kernel)(const Args), Args *a, int32_t threads,
                                          cudaStream_t stream) {
    const dim3 blocks((unsigned)a->shape.pixel_blocks, (unsigned)a->shape.filter_blocks,
                      (unsigned)a->conv.groups);
    a->share_each = a->shape.bands / a->shape.pixel_blocks;
    a->share_more = a->shape.bands % a->shape.pixel_blocks;
    return xn_cuda_launch_with(kernel, blocks, threads, (size_t)a->shape.bytes, a->io.overlapped,
                               stream, *a);
}

/* Loads `count` kernels and lets them have their shared memory. *usable: whether this device and
 * build have them. */
template <typename Args>
static inline cudaError_t xn_wgmma_load(void (*const *kernels)(const Args), size_t count,
                                        bool *usable) {
    cudaError_t e = cudaSuccess;
    *usable = true;
    for (size_t n = 0; n < count && e == cudaSuccess; n++)
        e = xn_cuda_load_wgmma(kernels[n], XN_CUDA_WGMMA_SHARED_BYTES, usable);
    return e;
}

#endif
