/* gemm_wide.cu: mode xnor as an implicit GEMM on the matrix units of sm_90a (wgmma).
 *
 *   C[pixel, filter] = sum over chunks of popc(a[pixel][chunk] and w[filter][chunk])
 *
 * M = output pixels, so that a thread ends up with neighbouring filters of one pixel, which is what
 * packed output wants. A chunk is 128 bits: 16 bytes of the row vector of kernel row i, the taps
 * (i, 0..KW-1) of a pixel one after the other.
 *
 * Activations: a block has 128 positions of the raster of all images' outputs. What they read is
 * gathered once into shared memory, chunk-major, 16 bytes a position. There the matrix instruction
 * reads rows from any multiple of 16 on, so with stride 1 the operand of kernel row i is the same
 * memory dilation * i raster rows further on: nothing is copied per kernel row, and taps outside
 * the image were gathered as zeros. For that the raster has rows of zeros between images, whose
 * positions yield outputs that nobody stores. Where chunks pair up within a tap (256 channels and
 * more) the taps of a row overlap in the same way, with columns of zeros between rows; otherwise a
 * position has the taps of a kernel row one after the other, which packs few channels densely.
 * With stride 2 and more, and where the overlap saves nothing, every kernel row has its own
 * positions.
 *
 * Filters: as the matrix instruction reads them, in device memory too (layout.h), so half a stage
 * of four chunks is one bulk copy, started by one thread: through a ring of STAGES, or, when all
 * chunks fit, once for all tiles of a persistent block.
 *
 * The rest of dot (layout.h) is done while the matrix instructions run: the set bits of each
 * position from shared memory, K from the channel means; the filters' part from a table of border
 * classes (distinct rectangles of taps inside), made once a block. */
#include "gemm_wide.cuh"
#include "launch.cuh"

#if XN_HAS_WGMMA

/* ---- the pipeline ---- */

/* Shared addresses of the barriers, and of the stages' filters. Stage n has slot n % ring. Resident
 * stages have a slot each and are copied once; otherwise the block has one tile. */
struct wide_pipe {
    uint32_t full, empty, filters;
    const char *from; /* of stage 0 */
    int64_t step;     /* bytes from chunk pair to chunk pair */
};

/* Starts the copies of a stage into a slot; one thread. */
template <int NT>
__device__ __forceinline__ void fill(const wide_pipe &p, int32_t stage, uint32_t slot) {
    const char *from = p.from + (int64_t)stage * 2 * p.step;
    const uint32_t to = p.filters + slot * (NT * 64), full = p.full + slot * 8;
    xn_mbarrier_expect(full, NT * 64);
    xn_bulk_copy(to, from, NT * 32, full);
    xn_bulk_copy(to + NT * 32, from + p.step, NT * 32, full);
}

/* All stages of a tile, two matrix instructions each. While they run, `meanwhile` is called once.
 * A slot is refilled when both warpgroups have left it, behind the next stage's instructions. */
template <int NT, class Meanwhile>
__device__ __forceinline__ void multiply(const wide_args &a, const wide_shared &s,
                                         const wide_pipe &p, uint32_t activations,
                                         int32_t (&acc)[NT / 2], Meanwhile meanwhile) {
    const int32_t stages = a.shape.stages;
    const uint32_t rows = activations >> 4;
    const uint32_t slots = (uint32_t)a.shape.ring;
    const bool resident = a.shape.resident;
    const int32_t pause = resident ? stages - 1 : min(stages - 1, 1);
    uint32_t slot = 0, parity = 0;
#pragma unroll 1
    for (int32_t stage = 0; stage < stages; stage++) {
        const uint2 low = s.stage_chunks[stage];
        const uint32_t filters = xn_matrix_low(p.filters + slot * (NT * 64), 128);
        xn_mbarrier_wait(p.full + slot * 8, parity);
        xn_wgmma_fence();
        xn_wgmma<NT>::run(acc, xn_matrix(rows + low.x, 128), xn_matrix(filters, 256), stage > 0);
        xn_wgmma<NT>::run(acc, xn_matrix(rows + low.y, 128), xn_matrix(filters + NT * 2, 256), 1);
        xn_wgmma_commit();
        if (stage == pause)
            meanwhile();
        if (!resident && stage > 0) {
            const uint32_t left = (slot ? slot : slots) - 1, empty = p.empty + left * 8;
            xn_wgmma_wait<1>();
            if (threadIdx.x % 128 == 0) {
                xn_mbarrier_arrive(empty);
                const int32_t next = stage - 1 + (int32_t)slots;
                if (threadIdx.x == 0 && next < stages) {
                    xn_mbarrier_wait(empty, slot ? parity : parity ^ 1);
                    fill<NT>(p, next, left);
                }
            }
            __syncwarp();
        }
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
    xn_wgmma_wait<0>();
}

/* ---- from counts to outputs ---- */

/* The quad of lanes of a pixel has its words byte by byte: 8 filters a lane. */
template <int NT>
__device__ __forceinline__ void write_packed(const wide_args &a, const wide_shared &s,
                                             int32_t group, int32_t m0,
                                             const int32_t (&acc)[NT / 2]) {
    const int32_t lane = threadIdx.x & 31, t = lane & 3;
    const int32_t m = (int32_t)threadIdx.x / 32 * 16 + lane / 4;
    const int32_t column = (group * a.conv.group_out_channels + m0) / 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int32_t pixel = s.pixel_part[m + h * 8];
        const int64_t base = s.base[m + h * 8];
        const int32_t *table = s.table + s.pixel_class[m + h * 8] + 8 * t;
#pragma unroll
        for (int b = 0; b < NT / 32; b++) {
            const int4 low = *(const int4 *)(table + b * 32);
            const int4 high = *(const int4 *)(table + b * 32 + 4);
            const int32_t limit[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            uint32_t byte = 0;
#pragma unroll
            for (int f = 7; f >= 0; f--) {
                const int32_t count = acc[b * 16 + f / 2 * 4 + h * 2 + f % 2];
                byte = __funnelshift_l((uint32_t)(limit[f] - pixel - 4 * count), byte, 1);
            }
            uint32_t word = byte << (8 * t);
            word |= __shfl_xor_sync(0xffffffffu, word, 1);
            word |= __shfl_xor_sync(0xffffffffu, word, 2);
            if (t == b % 4 && base >= 0 && column + b < a.shape.packed_words)
                a.io.packed[base + column + b] = word ^ s.flips[b];
        }
    }
}

template <int OUT>
struct wide_output {
    typedef float type;
};
template <>
struct wide_output<XN_INT32> {
    typedef int32_t type;
};
template <>
struct wide_output<XN_FP16> {
    typedef __half type;
};

/* Four filters of a pixel into the turned block, whose rows are four times PITCH apart. */
template <typename T>
__device__ __forceinline__ void put_four(const int32_t (&dot)[4], const float4 &factor, float k,
                                         const float4 &bias, T *to) {
    const float f[4] = {factor.x, factor.y, factor.z, factor.w};
    const float b[4] = {bias.x, bias.y, bias.z, bias.w};
    float v[4], finite = 0.0f; /* NaN when one of them is not finite */
#pragma unroll
    for (int r = 0; r < 4; r++) {
        v[r] = xn_epilogue((float)dot[r], f[r], k, b[r]);
        finite = fmaf(v[r], 0.0f, finite);
    }
    if (finite != 0.0f)
#pragma unroll
        for (int r = 0; r < 4; r++)
            v[r] = xn_cuda_epilogue(dot[r], f[r], k, b[r]);
#pragma unroll
    for (int r = 0; r < 4; r++)
        if constexpr (sizeof(T) == 2)
            to[r * 4 * PITCH] = __float2half_rn(v[r]);
        else
            to[r * 4 * PITCH] = v[r];
}

__device__ __forceinline__ void put_four(const int32_t (&dot)[4], const float4 &, float,
                                         const float4 &, int32_t *to) {
#pragma unroll
    for (int r = 0; r < 4; r++)
        to[r * 4 * PITCH] = dot[r];
}

/* Four pixels of a turned row, `apart` from each other. */
template <typename T>
__device__ __forceinline__ void store_four(T *output, const int64_t (&base)[4], bool together,
                                           int64_t offset, const T *from, int32_t apart) {
    if (together && sizeof(T) == 4)
        *(uint4 *)(output + base[0] + offset) = *(const uint4 *)from;
    else if (together)
        *(uint2 *)(output + base[0] + offset) = *(const uint2 *)from;
    else
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (base[i] >= 0)
                output[base[i] + offset] = from[i * apart];
}

/* A warpgroup turns its 64 pixels by 16 filters at a time in shared memory, so that 16 lanes store
 * the neighbouring pixels of one filter. Row 4r + t of the turned block is filter 8t + r (+ 4) of
 * 32: what the lanes of a quad write at once lies in different banks. */
template <int NT, int OUT>
__device__ __forceinline__ void write_real(const wide_args &a, const wide_shared &s, int32_t group,
                                           int32_t m0, const int32_t (&acc)[NT / 2]) {
    typedef typename wide_output<OUT>::type T;
    const int32_t thread = threadIdx.x % 128, half = threadIdx.x / 128;
    const int32_t lane = thread & 31, t = lane & 3, own = thread / 32 * 16 + lane / 4;
    T *turn = (T *)(s.turn + half * 16 * PITCH * 4);
    const int64_t plane_outputs = (int64_t)a.conv.out_height * a.conv.out_width;
    const int32_t apart = a.vectors ? 1 : 16, pixel0 = thread % 16 * (a.vectors ? 4 : 1);
    int64_t base[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        base[i] = s.base[half * 64 + pixel0 + i * apart];
    const bool together = a.vectors && base[0] >= 0 && base[0] % 4 == 0 && base[1] == base[0] + 1 &&
                          base[2] == base[0] + 2 && base[3] == base[0] + 3;
    int32_t pixel[2], cls[2];
    float k[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        pixel[h] = s.pixel_part[half * 64 + own + h * 8];
        cls[h] = s.pixel_class[half * 64 + own + h * 8];
        k[h] = s.k[half * 64 + own + h * 8];
    }
#pragma unroll
    for (int p = 0; p < NT / 16; p++) {
        const int32_t column = p / 2 * 32 + p % 2 * 4 + 8 * t;
        const float4 factor = *(const float4 *)(s.factor + column);
        const float4 bias = *(const float4 *)(s.bias + column);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int4 part = *(const int4 *)(s.table + cls[h] + column);
            const int32_t *count = &acc[p * 8 + h * 2];
            const int32_t dot[4] = {
                pixel[h] + part.x + 4 * count[0], pixel[h] + part.y + 4 * count[1],
                pixel[h] + part.z + 4 * count[4], pixel[h] + part.w + 4 * count[5]};
            put_four(dot, factor, k[h], bias, turn + t * PITCH + own + h * 8);
        }
        xn_named_barrier(2 + half, 128);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int32_t row = thread / 16 + u * 8;
            const int32_t m = m0 + p / 2 * 32 + p % 2 * 4 + row % 4 * 8 + row / 4;
            if (m < a.conv.group_out_channels)
                store_four((T *)a.output, base, together,
                           (group * a.conv.group_out_channels + m) * plane_outputs,
                           turn + row * PITCH + pixel0, apart);
        }
        xn_named_barrier(2 + half, 128);
    }
}

/* ---- the kernel ---- */

template <int NT, int OUT>
__device__ __forceinline__ void run_tiles(const wide_args &a, const wide_shared &s,
                                          const wide_pipe &pipe, int32_t group, int32_t m0,
                                          int32_t worker) {
    constexpr bool PACKED = OUT == XN_CUDA_WIDE_PACKED;
    int32_t buffer = 0;
#pragma unroll 1
    for (int32_t tile = worker; tile < a.shape.tiles; tile += a.workers) {
        char *activations = s.activations + buffer * a.shape.buffer_bytes;
        xn_copy_wait<0>();
        xn_fence_proxy();
        __syncthreads();
        if (tile + a.workers < a.shape.tiles) {
            buffer ^= 1; /* there are two where a block has several tiles */
            gather(a, group, (tile + a.workers) * MT,
                   xn_shared_address(s.activations) + buffer * a.shape.buffer_bytes);
        }
        int32_t acc[NT / 2];
        multiply<NT>(a, s, pipe, xn_shared_address(activations) + threadIdx.x / 128 * 1024, acc,
                     [&] {
                         count_rows(a, activations, s.row_popc);
                         __syncthreads();
                         if (threadIdx.x < MT)
                             make_pixel<NT, PACKED>(a, s, group, tile * MT, threadIdx.x);
                         __syncwarp();
                     });
        __syncthreads();
        if constexpr (PACKED)
            write_packed<NT>(a, s, group, m0, acc);
        else
            write_real<NT, OUT>(a, s, group, m0, acc);
    }
}

#endif

template <int NT, int OUT, int MIN_BLOCKS>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    wide_kernel(const __grid_constant__ wide_args a) {
#if XN_HAS_WGMMA
    extern __shared__ __align__(128) char wide_memory[];
    __shared__ uint64_t barriers[2 * MAX_STAGES];
    const wide_shared s = parts_of<NT>(a, wide_memory);
    const int32_t worker = (int32_t)blockIdx.x % a.workers;
    const int32_t rest = (int32_t)blockIdx.x / a.workers;
    const int32_t group = rest / a.filter_tiles, m0 = rest % a.filter_tiles * NT;
    const int64_t filter = (int64_t)group * a.conv.group_out_channels + m0;
    wide_pipe pipe;
    pipe.full = xn_shared_address(barriers);
    pipe.empty = pipe.full + MAX_STAGES * 8;
    pipe.filters = xn_shared_address(s.filters);
    pipe.from = (const char *)a.io.filters + filter * 32;
    pipe.step = a.io.filter_rows * 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < a.shape.ring; i++) {
            xn_mbarrier_init(pipe.full + i * 8, 1);
            xn_mbarrier_init(pipe.empty + i * 8, THREADS / 128);
        }
        xn_mbarrier_init_fence();
#pragma unroll 1
        for (int i = 0; i < a.shape.ring; i++)
            fill<NT>(pipe, i, (uint32_t)i);
    }
    __syncwarp();
    clear_padding(a, s);
    xn_fence_proxy();
    make_stages(a, s);
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    gather(a, group, worker * MT, xn_shared_address(s.activations));
    make_filters<NT, OUT == XN_CUDA_WIDE_PACKED>(a, s, group, m0);
    run_tiles<NT, OUT>(a, s, pipe, group, m0, worker);
#else
    (void)a;
    __trap();
#endif
}

/* ---- launcher ---- */

typedef void (*wide_function)(const wide_args);

#define TILE(NT, MIN_BLOCKS)                                                                       \
    {                                                                                              \
        wide_kernel<NT, XN_FP32, MIN_BLOCKS>, wide_kernel<NT, XN_FP16, MIN_BLOCKS>,                \
            wide_kernel<NT, XN_INT32, MIN_BLOCKS>,                                                 \
            wide_kernel<NT, XN_CUDA_WIDE_PACKED, MIN_BLOCKS>                                       \
    }
/* By XN_CUDA_WIDE_TILES, then output. */
static const wide_function kernels[XN_CUDA_WIDE_TILES][4] = {TILE(128, 2), TILE(64, 3),
                                                             TILE(32, 3)};

static fast_divisor divisor_of(int32_t divisor) {
    uint32_t shift = 0;
    while ((INT64_C(1) << shift) < divisor)
        shift++;
    uint64_t power = UINT64_C(1) << (31 + shift);
    return {(uint32_t)((power + (uint32_t)divisor - 1) / (uint32_t)divisor), shift,
            (uint32_t)divisor};
}

static wide_function kernel_of(const xn_cuda_wide_shape *shape, const xn_conv *conv) {
    int output = shape->packed                       ? 3
                 : conv->output_datatype == XN_INT32 ? 2
                 : conv->output_datatype == XN_FP16  ? 1
                                                     : 0;
    return kernels[shape->tile][output];
}

/* Lanes that share a row vector: as many as a tap has copies of 16 bytes, up to 8. */
static int32_t lanes_shift(const xn_cuda_wide_shape *shape) {
    int32_t shift = 0;
    while (shift < 3 && 8 << shift <= shape->tap_words)
        shift++;
    return shift;
}

cudaError_t xn_cuda_wide_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                const xn_cuda_wide_io *io, const xn_cuda_epilogue_args *epilogue,
                                cudaStream_t stream) {
    wide_args a = {};
    if (!xn_cuda_wide_plan(conv, images, multiprocessors, io->packed != NULL, &a.shape))
        return cudaErrorInvalidConfiguration; /* xn_cuda_wide_fits said so */
    a.conv = *conv;
    a.io = *io;
    a.factor = epilogue->factor;
    a.bias = epilogue->bias;
    a.output = epilogue->output;
    a.images = (int32_t)images;
    a.image_pitch = divisor_of(a.shape.image_pitch);
    a.width = divisor_of(a.shape.width);
    a.workers = a.shape.workers;
    a.filter_tiles = a.shape.filter_tiles;
    a.lanes_shift = lanes_shift(&a.shape);
    a.vectors = !a.shape.slide && (int64_t)conv->out_height * conv->out_width % 4 == 0;
    int blocks = a.workers * a.filter_tiles * conv->groups;
    return xn_cuda_launch_with(kernel_of(&a.shape, conv), blocks, THREADS, a.shape.bytes,
                               io->overlapped, stream, a);
}

/* Where the device has no such instruction the kernels are a trap, without shared memory. */
cudaError_t xn_cuda_wide_load(bool *usable) {
    *usable = true;
    for (const wide_function(&tile)[4] : kernels)
        for (wide_function kernel : tile) {
            cudaFuncAttributes attributes;
            cudaError_t e = cudaFuncGetAttributes(&attributes, (const void *)kernel);
            if (e == cudaSuccess && attributes.sharedSizeBytes == 0)
                *usable = false;
            else if (e == cudaSuccess)
                e = cudaFuncSetAttribute((const void *)kernel,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         XN_CUDA_WIDE_SHARED_BYTES);
            if (e != cudaSuccess)
                return e;
        }
    return cudaSuccess;
}
