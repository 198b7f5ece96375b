/* dual_rail.cu: packed output of many channels with stride 1, wgmma and.popc, M = 64 filters, N =
 * up to 128 positions.
 *
 * Every bit travels with its complement, as on two rails: pixels as [a, not a], filters as [w, not
 * w]. The matrix unit counts popc(a and w) + popc(not a and not w), the equal signs, so that
 *
 *   dot = 2 count - k
 *
 * where all taps are inside the image, k being the bits of a filter; a tap outside has zeros on
 * both rails, which is half its channels short of a dot of 0. So an output needs nothing but its
 * count and the number of taps outside, the same for all filters: no set bits of pixels, no sums
 * over windows, no table of filters and borders. It costs twice the products, which few other
 * kernels are bound by.
 *
 * A position is a pixel with the zeros beside and above it, 16 bytes in each plane, one a unit of
 * the rails. One warp copies them as boxes of a tensor (dual_rail.cuh); a tap's operand is the
 * same memory some positions on. Two warpgroups each multiply a part of a band and write it
 * (dual_rail_out.cuh), while the other multiplies. Two blocks have room on a multiprocessor, so
 * that the next kernel's filters come while this one multiplies. */
#include "dual_rail_out.cuh"

#include <cudaTypedefs.h>

#if XN_HAS_WGMMA

/* ---- what a thread that writes has of its filters and pixel ---- */

/* The least count of a filter for which dot >= threshold, as what is added to a count of up to
 * 32,767 so that bit 15 says whether it is; in both halves of a word. */
__device__ __forceinline__ uint32_t start_of(const dual_rail_args &a, const xn_wgmma_block &b,
                                             int32_t row) {
    const xn_wgmma_filter f = xn_wgmma_filter_of(a.conv, b.group, b.m0 + row, a.io.threshold);
    const int32_t k = a.conv.group_channels * a.conv.kernel_h * a.conv.kernel_w;
    const int32_t least = (f.threshold + k + 1) >> 1;
    const uint32_t more = 0x8000u - (uint32_t)(f.live ? max(0, min(least, 0x7fff)) : 0x7fff);
    return more | more << 16;
}

__device__ __forceinline__ uint2 flips_of(const dual_rail_args &a, const xn_wgmma_block &b) {
    const int32_t word = (b.group * a.conv.group_out_channels + b.m0) / 32;
    uint2 flips = make_uint2(0, 0);
    if (a.io.flip && word * 32 < a.conv.out_channels)
        flips.x = a.io.flip[word];
    if (a.io.flip && (word + 1) * 32 < a.conv.out_channels)
        flips.y = a.io.flip[word + 1];
    return flips;
}

template <int N>
__device__ __forceinline__ dual_rail_own own_of(const dual_rail_args &a) {
    const xn_conv &c = a.conv;
    const xn_cuda_dual_rail_shape &s = a.shape;
    const int32_t position = (int32_t)threadIdx.x % GROUP;
    const int32_t image = xn_divide(position, a.image_pitch);
    const int32_t rest = position - image * s.image_pitch;
    const int32_t y = xn_divide(rest, a.pitch), x = rest - y * s.pitch;
    const bool live = position < N && image < s.images && y < s.rows && x < c.out_width;
    return {image, live ? y * c.out_width + x : -1, y, x};
}

/* ---- the warpgroups that multiply and write ---- */

/* What is added to the counts of a job's pixels: half the channels of their taps outside. */
__device__ __forceinline__ void make_outside(const dual_rail_args &a, const xn_wgmma_block &b,
                                             const dual_rail_own &own, int32_t y,
                                             uint16_t *outside) {
    const xn_conv &c = a.conv;
    const uint8_t *inside = (const uint8_t *)(b.memory + a.shape.inside_at);
    const int32_t position = threadIdx.x % GROUP;
    int32_t missing = 0; /* of what is no output: it must not carry into its neighbour */
    if (own.place >= 0) {
        const int32_t line = min(y + own.y, c.out_height - 1); /* a band's last rows may be none */
        missing = c.kernel_h * c.kernel_w - inside[line] * inside[c.out_height + own.x];
    }
    outside[outside_at(position / 8, position / 2 % 4) + position % 2] =
        (uint16_t)(c.group_channels / 2 * missing);
}

/* Of which row such a table is: one for all whose windows have all their lines inside. */
__device__ __forceinline__ int32_t row_of(const dual_rail_args &a, int32_t y) {
    const xn_cuda_dual_rail_shape &s = a.shape;
    return y >= s.full_first && y + s.rows <= s.full_end ? s.full_first : y;
}

/* The jobs of a consumer: those of a part of every so many-th band. */
struct dual_rail_jobs {
    int32_t image, row, step; /* of the next band: its first image, its number in the image */
    int32_t part_image, part_y;

    __device__ __forceinline__ void begin(const dual_rail_args &a, int32_t number, int32_t part,
                                          int32_t bands) {
        const xn_cuda_dual_rail_shape &s = a.shape;
        image = s.whole ? number : xn_divide(number, a.row_bands);
        row = s.whole ? 0 : number - image * s.row_bands;
        step = bands;
        part_image = s.whole ? part * s.images : 0;
        part_y = s.whole ? 0 : part * s.rows;
    }
    __device__ __forceinline__ dual_rail_job next(const dual_rail_args &a) {
        const xn_cuda_dual_rail_shape &s = a.shape;
        dual_rail_job job;
        job.image = image * s.band_images + part_image;
        job.y = row * s.band_rows + part_y;
        job.images = a.images - job.image;
        job.rows = max(0, min(s.rows, a.conv.out_height - job.y));
        row += step;
        while (row >= s.row_bands) {
            row -= s.row_bands;
            image++;
        }
        return job;
    }
};

/* Every CONSUMERS-th job, from the one of its number on. */
template <int N>
__device__ __forceinline__ void consume(const dual_rail_args &a, const xn_wgmma_block &b,
                                        int32_t mine) {
    const xn_cuda_dual_rail_shape &s = a.shape;
    const int32_t lane = (int32_t)threadIdx.x % 32;
    const int32_t filter = (int32_t)threadIdx.x % GROUP / 32 * 16 + lane / 4; /* the first of two */
    const int32_t step = s.parts == CONSUMERS ? 1 : CONSUMERS;
    const int32_t part = s.parts == CONSUMERS ? mine : 0, first = mine - part;
    const uint32_t filter_low = xn_matrix_low(xn_shared_address(b.memory), 128);
    const uint32_t start[2] = {start_of(a, b, filter), start_of(a, b, filter + 8)};
    const uint2 flips = flips_of(a, b);
    const dual_rail_turn bits_turn = turn_of(lane);
    const dual_rail_own own = own_of<N>(a);
    const dual_rail_target target = target_of(a, b, own);
    char *stage = b.memory + s.stage_at + mine * s.stage_bytes;
    uint16_t *outside = (uint16_t *)(b.memory + s.outside_at) + mine * (2 * OUTSIDE);
    uint32_t turn = 0;
    xn_ring ring = {first, 0};
    const xn_wgmma_range bands = xn_wgmma_share_of(a, (int32_t)blockIdx.x);
    int32_t number = bands.next + first;
    dual_rail_jobs jobs;
    jobs.begin(a, number, part, step);
    dual_rail_job job = jobs.next(a);
    int32_t here = row_of(a, job.y), there = -1; /* rows of this job's table, of the other one */
    int32_t counts[N / 2] = {};
    make_outside(a, b, own, job.y, outside);
    xn_named_barrier(GROUP_MEETS + mine, GROUP);
    if (s.in_turn && mine == CONSUMERS - 1)
        xn_warp_arrives(lane, xn_barrier_at(b.barriers, TURNS));
    xn_mbarrier_wait(xn_barrier_at(b.barriers, FILTERS), 0);
#pragma unroll 1
    for (; number < bands.end; number += step, turn ^= 1) {
        const uint32_t buffer = xn_shared_address(buffer_of(a, b, ring.place));
        const dual_rail_job next = jobs.next(a);
        const int32_t row = row_of(a, next.y);
        char *bits = stage + turn * (4 * (N * 2 + 16));
        if (s.in_turn)
            xn_mbarrier_wait(xn_barrier_at(b.barriers, TURNS + mine), turn);
        xn_mbarrier_wait(xn_barrier_at(b.barriers, BAND_FULL + ring.place), ring.parity);
        xn_wgmma_multiply<N, false>(s, filter_low, (buffer >> 4) + (uint32_t)(part * s.part_step),
                                    counts);
        if (s.in_turn)
            xn_warp_arrives(lane, xn_barrier_at(b.barriers, TURNS + (mine + 1) % CONSUMERS));
        if (row != there)
            make_outside(a, b, own, next.y, outside + (turn ^ 1) * OUTSIDE);
        there = here;
        here = row;
        __syncwarp(); /* for the warpgroup's next instruction */
        xn_wgmma_wait<0>();
        xn_mbarrier_arrive(xn_barrier_at(b.barriers, BAND_FREE + ring.place));
        put_bits<N>(bits_turn, start, outside + turn * OUTSIDE, bits, counts);
        xn_named_barrier(GROUP_MEETS + mine, GROUP);
        write_packed<N>(a, job, own, target, flips, bits);
        job = next;
        ring.place += step;
        if (ring.place >= s.depth) {
            ring.place -= s.depth;
            ring.parity ^= 1;
        }
    }
}

#endif

template <int N>
struct dual_rail_kernel {
    typedef dual_rail_args args;
    enum { THREADS = CONSUMERS * GROUP + 32, BLOCKS = 2, BARRIERS = ::BARRIERS, PIECES = 1 };

#if XN_HAS_WGMMA
    /* One arrives with what it expects; all threads that used a band; the warps that multiplied, of
     * each a lane. */
    static __device__ __forceinline__ uint32_t arrivals(const args &a, int32_t barrier) {
        return barrier < BAND_FREE ? 1 : barrier < TURNS ? a.shape.parts * GROUP : 4;
    }
    static __device__ __forceinline__ void begin(const args &a, const xn_wgmma_block &b) {
        if (threadIdx.x == 0)
            xn_touch_map(&a.bits);
        count_inside(a, b, THREADS);
        fill_gaps(a, b, THREADS);
        xn_fence_proxy();
    }
    static __device__ __forceinline__ void run(const args &a, const xn_wgmma_block &b) {
        const int32_t group = __shfl_sync(0xffffffffu, (int32_t)threadIdx.x / GROUP, 0);
        if (group < CONSUMERS)
            consume<N>(a, b, group);
        else if (threadIdx.x % 32 == 0)
            xn_wgmma_copy_bands<BAND_FREE>(a, b, xn_wgmma_share_of(a, (int32_t)blockIdx.x));
    }
#endif
};

/* ---- launcher ---- */

#define KERNEL(N) xn_wgmma_kernel<dual_rail_kernel<N>>,
/* By variant. */
static void (*const kernels[XN_CUDA_DUAL_RAIL_VARIANTS])(const dual_rail_args) = {
    XN_CUDA_DUAL_RAIL_EACH_VARIANT(KERNEL)};

/* The driver's function that makes maps; the runtime is linked, the driver is not. */
static PFN_cuTensorMapEncodeTiled_v12000 map_encoder() {
    void *function = NULL;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                           12000, cudaEnableDefault, &result);
#else
    const cudaError_t e =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
    return e == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? (PFN_cuTensorMapEncodeTiled_v12000)function
               : NULL;
}

/* Rails as [unit][image][line][8 bytes], of which a band's box is copied at once; outside the
 * images zeros are read. */
static cudaError_t make_map(const xn_conv *c, const xn_cuda_dual_rail_shape *s, const void *bits,
                            int64_t images, CUtensorMap *out) {
    static const PFN_cuTensorMapEncodeTiled_v12000 encode = map_encoder();
    const cuuint64_t width = (cuuint64_t)c->width, height = (cuuint64_t)c->height;
    const cuuint64_t units = (cuuint64_t)s->units * (cuuint64_t)c->groups;
    const cuuint64_t plane = width * height * 16;
    const cuuint64_t dims[4] = {2 * width, height, (cuuint64_t)images, units};
    const cuuint64_t strides[3] = {width * 16, units * plane, plane};
    const cuuint32_t box[4] = {(cuuint32_t)(2 * s->pitch), (cuuint32_t)s->lines,
                               (cuuint32_t)s->band_images, (cuuint32_t)s->units};
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    if (!encode)
        return cudaErrorNotSupported;
    const CUresult r =
        encode(out, CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 4, const_cast<void *>(bits), dims, strides,
               box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t xn_cuda_dual_rail_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                     xn_cuda_dual_rail_cut *cut, const xn_cuda_dual_rail_io *io,
                                     cudaStream_t stream) {
    dual_rail_args a = {};
    cudaError_t e = xn_wgmma_fill(&a, conv, images, cut, io, [&](xn_cuda_dual_rail_shape *shape) {
        return xn_cuda_dual_rail_plan(conv, images, multiprocessors, shape);
    });
    const xn_cuda_dual_rail_shape *s = &a.shape;
    if (e == cudaSuccess)
        e = make_map(conv, s, io->bits, images, &a.bits);
    if (e != cudaSuccess)
        return e;
    a.row_bands = xn_fast_divisor_of(s->row_bands);
    a.image_pitch = xn_fast_divisor_of(s->image_pitch);
    a.pitch = xn_fast_divisor_of(s->pitch);
    return xn_wgmma_launch(kernels[s->variant], &a, s->bands, 1, dual_rail_kernel<64>::THREADS,
                           stream);
}

cudaError_t xn_cuda_dual_rail_load(bool *usable) {
    return xn_wgmma_load(kernels, std::size(kernels), true, usable);
}
