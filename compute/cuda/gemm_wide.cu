/* gemm_wide.cu: mode xnor as an implicit GEMM on the matrix units of sm_90a (wgmma).
 *
 *   C[pixel, filter] = sum over chunks of popc(a[pixel][chunk] and w[filter][chunk])
 *
 * M = output pixels, so that a thread ends up with neighbouring filters of one pixel, which is what
 * packed output wants. A chunk is 128 bits: 16 bytes of the row vector of kernel row i, the taps
 * (i, 0..KW-1) of a pixel one after the other.
 *
 * Activations: a block has 128 positions of the raster of all images' outputs. Row vectors are
 * gathered once into shared memory, chunk-major, 16 bytes a position. There the matrix instruction
 * reads rows from any multiple of 16 on, so with stride 1 the operand of kernel row i is the same
 * memory dilation * i raster rows further on: nothing is copied per kernel row, and taps outside
 * the image were gathered as zeros. For that the raster has rows of zeros between images, whose
 * positions yield outputs that nobody stores. With stride 2 and more, and where the overlap saves
 * nothing, every kernel row has its own positions.
 *
 * Filters: [chunk][filter][16 bytes] in device memory (layout.h), so a stage of 2 chunks is 2 bulk
 * copies by one thread, in a ring of STAGES, or, when all chunks fit, copied once for all
 * tiles of a persistent block. Blocks of a cluster share the filters: each copies its part to all.
 *
 * The rest of dot (layout.h) is done while the matrix instructions run: the set bits of each
 * position from shared memory, K from the channel means; the filters' part from a table of border
 * classes (distinct rectangles of taps inside), made once a block. */
#include "element.cuh"
#include "gemm_ptx.cuh"
#include "gemm_wide.h"
#include "launch.cuh"
#include "ptx.cuh"

struct fast_divisor {
    uint32_t multiplier, shift, divisor;
};

/* Exact for dividends below 2^31. */
__device__ __forceinline__ int32_t divide(int32_t n, const fast_divisor &d) {
    return (int32_t)(__umulhi((uint32_t)n * 2, d.multiplier) >> d.shift);
}

struct wide_args {
    xn_conv conv;
    xn_cuda_wide_io io;
    const float *factor, *bias;
    void *output;
    int32_t images;
    xn_cuda_wide_shape shape;
    fast_divisor image_pitch, width; /* of the raster */
    int32_t workers;                 /* blocks a filter tile */
    int32_t filter_tiles, copy_lanes, cluster;
    bool vectors; /* a raster group of 4 may be 4 neighbours in memory, aligned */
};

enum {
    MT = XN_CUDA_WIDE_PIXELS,
    THREADS = XN_CUDA_WIDE_THREADS,
    STAGES = XN_CUDA_WIDE_STAGES,
    STAGE_CHUNKS = XN_CUDA_WIDE_STAGE_CHUNKS,
    AHEAD = 2, /* matrix instructions under way while a slot is refilled */
    MAX_STAGES = XN_CUDA_WIDE_MAX_STAGES,
    PITCH = XN_CUDA_WIDE_TURN_PITCH,
    NO_OUTPUT = -1,
};

#if XN_HAS_WGMMA

/* The parts of dynamic shared memory. */
struct wide_shared {
    char *activations, *zeros, *filters, *turn;
    int32_t *table; /* [class][NT + 4] */
    float *factor, *bias;
    int32_t *row_popc, *pixel_part, *pixel_class;
    float *k;
    int64_t *base;
};

__device__ __forceinline__ wide_shared parts_of(const wide_args &a, char *memory) {
    const xn_cuda_wide_shape &s = a.shape;
    wide_shared p;
    p.activations = memory;
    p.zeros = memory + s.zeros_at;
    p.filters = memory + s.filters_at;
    p.turn = memory + s.turn_at;
    p.table = (int32_t *)(memory + s.table_at);
    p.factor = (float *)(memory + s.constants_at);
    p.bias = p.factor + s.tile_filters;
    p.base = (int64_t *)(memory + s.pixels_at);
    p.pixel_part = (int32_t *)(p.base + MT);
    p.pixel_class = p.pixel_part + MT;
    p.k = (float *)(p.pixel_class + MT);
    p.row_popc = (int32_t *)(p.k + MT);
    return p;
}

struct position {
    int32_t image, row, column;
};

__device__ __forceinline__ position position_of(const wide_args &a, int32_t raster) {
    position p;
    p.image = divide(raster, a.image_pitch);
    const int32_t rest = raster - p.image * (int32_t)a.image_pitch.divisor;
    p.row = divide(rest, a.width);
    p.column = rest - p.row * (int32_t)a.width.divisor;
    return p;
}

/* ---- activations into shared memory, ---- */

template <int WORDS>
__device__ __forceinline__ void copy_words(char *to, const uint32_t *from, bool inside) {
    xn_copy_async<WORDS * 4>(to, from, inside);
}

/* The row vector of one position: `lane` of copy_lanes copies every copy_lanes-th unit of a tap. */
template <int WORDS>
__device__ __forceinline__ void gather_row(const wide_args &a, const uint32_t *bits, int64_t line,
                                           int32_t x0, bool row_inside, int32_t slot, int32_t lane,
                                           char *activations) {
    const xn_conv &c = a.conv;
    const int32_t tap_words = a.shape.tap_words, units = tap_words / WORDS;
    for (int32_t j = 0; j < c.kernel_w; j++) {
        const int32_t x = x0 + j * c.dilation_w;
        const bool inside = row_inside && x >= 0 && x < c.width;
        const uint32_t *from = inside ? bits + (line + x) * tap_words : bits;
        for (int32_t u = lane; u < units; u += a.copy_lanes) {
            const int32_t word = j * tap_words + u * WORDS;
            copy_words<WORDS>(activations + ((int64_t)(word >> 2) * a.shape.plane + slot) * 16 +
                                  (word & 3) * 4,
                              inside ? from + u * WORDS : bits, inside);
        }
    }
}

template <int WORDS>
__device__ __forceinline__ void gather_tile(const wide_args &a, int32_t group, int32_t first,
                                            char *activations) {
    const xn_conv &c = a.conv;
    const int32_t lane = (int32_t)threadIdx.x % a.copy_lanes;
    for (int32_t slot = (int32_t)threadIdx.x / a.copy_lanes; slot < a.shape.slots;
         slot += THREADS / a.copy_lanes) {
        int32_t i = 0, m = slot;
        if (!a.shape.overlap) {
            i = slot / MT;
            m = slot % MT;
        }
        const position p = position_of(a, first + m);
        const int32_t y = p.row * c.stride_h + i * c.dilation_h - c.pad_top;
        const bool inside = p.image < a.images && y >= 0 && y < c.height;
        const int64_t line =
            inside ? (((int64_t)p.image * c.groups + group) * c.height + y) * c.width : 0;
        gather_row<WORDS>(a, a.io.bits, line, p.column * c.stride_w - c.pad_left, inside, slot,
                          lane, activations);
    }
}

__device__ __forceinline__ void gather(const wide_args &a, int32_t group, int32_t first,
                                       char *activations) {
    if (a.shape.tap_words >= 4)
        gather_tile<4>(a, group, first, activations);
    else if (a.shape.tap_words == 2)
        gather_tile<2>(a, group, first, activations);
    else
        gather_tile<1>(a, group, first, activations);
    xn_copy_commit();
}

/* Words of the row vectors past their taps, and the chunk that pads an odd number: once a block. */
__device__ __forceinline__ void clear_padding(const wide_args &a, const wide_shared &s) {
    const int32_t words = a.conv.kernel_w * a.shape.tap_words;
    const int32_t planes = a.shape.buffers * a.shape.slots;
    if (words % 4)
        for (int32_t e = threadIdx.x; e < planes; e += THREADS) {
            char *activations = s.activations + (e >= a.shape.slots ? a.shape.buffer_bytes : 0);
            const int32_t slot = e >= a.shape.slots ? e - a.shape.slots : e;
            for (int32_t word = words; word % 4; word++)
                *(uint32_t *)(activations + ((int64_t)(word >> 2) * a.shape.plane + slot) * 16 +
                              (word & 3) * 4) = 0;
        }
    for (int32_t e = threadIdx.x; e < MT; e += THREADS)
        *(uint4 *)(s.zeros + e * 16) = make_uint4(0, 0, 0, 0);
}

/* ---- what depends on the filter ---- */

/* The table of the filters' part of dot, or for packed output of threshold - 1 - that part; factor
 * and bias. */
template <int NT, bool PACKED>
__device__ __forceinline__ void make_filters(const wide_args &a, const wide_shared &s,
                                             int32_t group, int32_t m0) {
    const xn_conv &c = a.conv;
    const int32_t pitch = (c.kernel_h + 1) * (c.kernel_w + 1);
    const int32_t classes = a.shape.rows_classes * a.shape.columns_classes;
    for (int32_t e = threadIdx.x; e < classes * NT; e += THREADS) {
        const int32_t cls = e / NT, m = e % NT;
        int32_t value = PACKED ? 1 << 29 : 0;
        if (m0 + m < c.group_out_channels) {
            const int32_t filter = group * c.group_out_channels + m0 + m;
            const xn_cuda_range v = a.shape.rows[cls / a.shape.columns_classes];
            const xn_cuda_range h = a.shape.columns[cls % a.shape.columns_classes];
            const xn_cuda_rect rect = {v.first, v.last, h.first, h.last};
            const int32_t *prefix = a.io.prefix + (int64_t)filter * pitch;
            const int32_t inside = xn_cuda_rect_popc(prefix, c.kernel_w, &rect);
            value = xn_cuda_filter_part(c.pad_value, inside, prefix[pitch - 1] - inside);
            if (PACKED) { /* beyond +-(bits + 1) a threshold means no more */
                const int32_t most = c.group_channels * c.kernel_h * c.kernel_w + 1;
                value = max(-most, min(most, a.io.threshold[filter])) - 1 - value;
            }
        }
        s.table[cls * (NT + 4) + m] = value;
    }
    if (!PACKED)
        for (int32_t m = threadIdx.x; m < NT; m += THREADS) {
            const bool live = m0 + m < c.group_out_channels;
            const int64_t filter = (int64_t)group * c.group_out_channels + m0 + m;
            s.factor[m] = live ? xn_factor_of(a.factor, filter) : 0.0f;
            s.bias[m] = live ? xn_bias_of(a.bias, filter) : 0.0f;
        }
}

/* ---- what depends on the pixel ---- */

/* Set bits of each position's row vector. */
__device__ __forceinline__ void count_rows(const wide_args &a, const char *activations,
                                           int32_t *row_popc) {
    for (int32_t slot = threadIdx.x; slot < a.shape.slots; slot += THREADS) {
        int32_t count = 0;
        for (int32_t chunk = 0; chunk < a.shape.row_chunks; chunk++) {
            const uint4 v =
                *(const uint4 *)(activations + ((int64_t)chunk * a.shape.plane + slot) * 16);
            count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
        }
        row_popc[slot] = count;
    }
}

__device__ __forceinline__ int32_t class_of(const wide_args &a, const xn_cuda_rect &r) {
    const xn_cuda_wide_shape &s = a.shape;
    int32_t v = 0, h = 0;
    while (v + 1 < s.rows_classes && (s.rows[v].first != r.i0 || s.rows[v].last != r.i1))
        v++;
    while (h + 1 < s.columns_classes && (s.columns[h].first != r.j0 || s.columns[h].last != r.j1))
        h++;
    return v * s.columns_classes + h;
}

__device__ __forceinline__ float pixel_k(const wide_args &a, int64_t plane, const position &p,
                                         const xn_cuda_rect &r) {
    const xn_conv &c = a.conv;
    const int32_t y0 = p.row * c.stride_h - c.pad_top, x0 = p.column * c.stride_w - c.pad_left;
    double sum = 0.0;
    for (int32_t i = r.i0; i < r.i1; i++)
        for (int32_t j = r.j0; j < r.j1; j++)
            sum += a.io.mean[(plane * c.height + y0 + i * c.dilation_h) * c.width + x0 +
                             j * c.dilation_w];
    return (float)(sum / (double)(c.kernel_h * c.kernel_w));
}

template <int NT, bool PACKED>
__device__ __forceinline__ void make_pixel(const wide_args &a, const wide_shared &s, int32_t group,
                                           int32_t first, int32_t m) {
    const xn_conv &c = a.conv;
    const position p = position_of(a, first + m);
    s.base[m] = NO_OUTPUT;
    s.pixel_part[m] = s.pixel_class[m] = 0;
    s.k[m] = 0.0f;
    if (p.image >= a.images || p.row >= c.out_height)
        return;
    const int64_t plane_outputs = (int64_t)c.out_height * c.out_width;
    const int64_t at = (int64_t)p.row * c.out_width + p.column;
    const xn_cuda_rect rect = xn_cuda_valid_rect(&c, p.row, p.column);
    const int32_t taps = c.kernel_h * c.kernel_w, inside = xn_cuda_rect_taps(&rect);
    int32_t popc = 0;
    for (int32_t i = 0; i < c.kernel_h; i++)
        popc += s.row_popc[m + i * a.shape.tap_step];
    s.pixel_part[m] =
        xn_cuda_pixel_part(c.pad_value, c.group_channels, inside, taps - inside, popc);
    s.pixel_class[m] = class_of(a, rect) * (NT + 4);
    s.k[m] = a.io.mean ? pixel_k(a, (int64_t)p.image * c.groups + group, p, rect) : 1.0f;
    s.base[m] = PACKED ? (p.image * plane_outputs + at) * a.shape.packed_words
                       : p.image * c.out_channels * plane_outputs + at;
}

/* ---- the pipeline ---- */

/* Stages are numbered over all tiles of the block; number n lies in slot n % slots. */
struct wide_pipe {
    uint64_t *full, *empty;
    int32_t stages; /* of a tile */
    bool resident;  /* all of them stay in shared memory */
    int32_t done;   /* stages of the tiles before this one; 0 when resident */
    int32_t filled, fills;
};

__device__ __forceinline__ int32_t slot_of(const wide_pipe &p, int32_t number) {
    return p.resident ? number : number % STAGES;
}
__device__ __forceinline__ uint32_t round_of(const wide_pipe &p, int32_t number) {
    return p.resident ? 0 : (uint32_t)(number / STAGES) & 1;
}

/* Starts the copies of the stages before `end`, by one thread, once all consumers have left their
 * slots. The blocks of a cluster copy a part each, to all of them. */
template <int NT>
__device__ __forceinline__ void fill(const wide_args &a, const wide_shared &s, wide_pipe *pipe,
                                     int64_t filter, int32_t end) {
    end = min(end, pipe->fills);
    if (threadIdx.x == 0)
        for (int32_t number = pipe->filled; number < end; number++) {
            const int32_t slot = slot_of(*pipe, number);
            const int32_t chunk = number % pipe->stages * STAGE_CHUNKS;
            const int32_t count = min(a.shape.chunks - chunk, (int32_t)STAGE_CHUNKS);
            if (!pipe->resident && number >= STAGES)
                xn_mbarrier_wait(&pipe->empty[slot], round_of(*pipe, number) ^ 1);
            xn_mbarrier_expect(&pipe->full[slot], (uint32_t)count * NT * 16);
            const int32_t rank = a.cluster > 1 ? (int32_t)xn_cluster_rank() : 0;
            const int32_t split = a.cluster > 2 ? 2 : 1, bytes = NT * 16 / split;
#pragma unroll 1
            for (int32_t part = rank; part < count * split; part += a.cluster)
                xn_bulk_copy(s.filters + slot * STAGE_CHUNKS * NT * 16 + part * bytes,
                             (const char *)a.io.filters +
                                 ((chunk + part / split) * a.io.filter_rows + filter) * 16 +
                                 part % split * bytes,
                             bytes, &pipe->full[slot], (1u << a.cluster) - 1);
        }
    __syncwarp();
    pipe->filled = max(pipe->filled, end);
}

/* The chunks of the activations in the order of the filters': kernel rows of one chunk, then the
 * next chunk; addresses only grow. */
struct chunk_walk {
    uint32_t address;
    int32_t i, left;
};

__device__ __forceinline__ uint32_t next_chunk(const wide_args &a, chunk_walk *w, uint32_t zeros) {
    const uint32_t address = w->left > 0 ? w->address : zeros;
    w->left--;
    w->address += (uint32_t)a.shape.tap_step * 16;
    if (++w->i == a.conv.kernel_h) {
        w->i = 0;
        w->address += (uint32_t)(a.shape.plane - a.conv.kernel_h * a.shape.tap_step) * 16;
    }
    return address;
}

/* A stage's matrix instruction. */
template <int NT>
__device__ __forceinline__ void multiply(const wide_args &a, const wide_shared &s,
                                         const wide_pipe &pipe, int32_t stage, chunk_walk *walk,
                                         uint32_t zeros, int32_t (&acc)[NT / 2]) {
    const int32_t number = pipe.done + stage, slot = slot_of(pipe, number);
    const uint32_t first = next_chunk(a, walk, zeros), second = next_chunk(a, walk, zeros);
    const uint32_t filters = xn_shared_address(s.filters) + slot * STAGE_CHUNKS * NT * 16;
    xn_mbarrier_wait(&pipe.full[slot], round_of(pipe, number));
    xn_wgmma_fence();
    xn_wgmma<NT>::run(acc, xn_matrix(first, second - first, 128), xn_matrix(filters, NT * 16, 128),
                      stage > 0);
    xn_wgmma_commit();
}

/* One thread of each warpgroup tells the cluster's blocks that a slot is free. */
__device__ __forceinline__ void release(const wide_args &a, const wide_pipe &pipe, int32_t stage) {
    if (!pipe.resident && stage >= 0 && threadIdx.x % 128 == 0)
#pragma unroll 1
        for (int32_t rank = 0; rank < a.cluster; rank++)
            xn_mbarrier_arrive(&pipe.empty[slot_of(pipe, pipe.done + stage)], rank);
    __syncwarp();
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
            if (t == b % 4 && base >= 0 && column + b < a.shape.packed_words) {
                if (a.io.flip && (column + b) * 32 < a.conv.out_channels)
                    word ^= a.io.flip[column + b];
                a.io.packed[base + column + b] = word;
            }
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

__device__ __forceinline__ void convert(int32_t dot, float, float, float, int32_t *out) {
    *out = dot;
}
__device__ __forceinline__ void convert(int32_t dot, float factor, float k, float bias,
                                        float *out) {
    *out = xn_cuda_epilogue(dot, factor, k, bias);
}
__device__ __forceinline__ void convert(int32_t dot, float factor, float k, float bias,
                                        __half *out) {
    *out = __float2half_rn(xn_cuda_epilogue(dot, factor, k, bias));
}

/* Four neighbours of a turned row, to four outputs. */
template <typename T>
__device__ __forceinline__ void store_group(T *output, const int64_t (&base)[4], bool together,
                                            int64_t offset, const T *from) {
    if (together && sizeof(T) == 4)
        *(uint4 *)(output + base[0] + offset) = *(const uint4 *)from;
    else if (together)
        *(uint2 *)(output + base[0] + offset) = *(const uint2 *)from;
    else
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (base[i] >= 0)
                output[base[i] + offset] = from[i];
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
    const int32_t quad = half * 64 + thread % 16 * 4;
    int64_t base[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        base[i] = s.base[quad + i];
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
        const float4 f4 = *(const float4 *)(s.factor + column);
        const float4 b4 = *(const float4 *)(s.bias + column);
        const float factor[4] = {f4.x, f4.y, f4.z, f4.w}, bias[4] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int4 part4 = *(const int4 *)(s.table + cls[h] + column);
            const int32_t part[4] = {part4.x, part4.y, part4.z, part4.w};
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const int32_t dot = pixel[h] + part[r] + 4 * acc[p * 8 + r / 2 * 4 + h * 2 + r % 2];
                convert(dot, factor[r], k[h], bias[r], turn + (r * 4 + t) * PITCH + own + h * 8);
            }
        }
        xn_named_barrier(2 + half, 128);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int32_t row = thread / 16 + u * 8;
            const int32_t m = m0 + p / 2 * 32 + p % 2 * 4 + row % 4 * 8 + row / 4;
            if (m < a.conv.group_out_channels)
                store_group((T *)a.output, base, together,
                            (group * a.conv.group_out_channels + m) * plane_outputs,
                            turn + row * PITCH + thread % 16 * 4);
        }
        xn_named_barrier(2 + half, 128);
    }
}

/* ---- the kernel ---- */

template <int NT, int OUT>
__device__ __forceinline__ void run_tiles(const wide_args &a, const wide_shared &s, wide_pipe pipe,
                                          int32_t group, int32_t m0, int32_t worker) {
    constexpr bool PACKED = OUT == XN_CUDA_WIDE_PACKED;
    const int64_t filter = (int64_t)group * a.conv.group_out_channels + m0;
    const int32_t wg = (int32_t)threadIdx.x / 128;
    const uint32_t zeros = xn_shared_address(s.zeros) + wg * 1024;
    const int32_t ahead = pipe.resident ? pipe.stages : min(pipe.stages, (int32_t)AHEAD);
    int32_t buffer = 0;
    for (int32_t tile = worker; tile < a.shape.tiles; tile += a.workers) {
        char *activations = s.activations + buffer * a.shape.buffer_bytes;
        xn_copy_wait<0>();
        xn_fence_proxy();
        __syncthreads();
        if (tile + a.workers < a.shape.tiles) {
            buffer ^= 1; /* there are two where a block has several tiles */
            gather(a, group, (tile + a.workers) * MT,
                   s.activations + buffer * a.shape.buffer_bytes);
        }
        int32_t acc[NT / 2];
        chunk_walk walk = {xn_shared_address(activations) + wg * 1024, 0, a.shape.chunks};
#pragma unroll 1
        for (int32_t stage = 0; stage < ahead; stage++)
            multiply<NT>(a, s, pipe, stage, &walk, zeros, acc);
        count_rows(a, activations, s.row_popc);
        __syncthreads();
        if (threadIdx.x < MT)
            make_pixel<NT, PACKED>(a, s, group, tile * MT, threadIdx.x);
        __syncwarp();
#pragma unroll 1
        for (int32_t stage = ahead; stage < pipe.stages; stage++) {
            xn_wgmma_wait<AHEAD - 1>();
            release(a, pipe, stage - AHEAD);
            fill<NT>(a, s, &pipe, filter, pipe.done + stage - AHEAD + STAGES);
            multiply<NT>(a, s, pipe, stage, &walk, zeros, acc);
        }
        xn_wgmma_wait<0>();
#pragma unroll 1
        for (int32_t stage = pipe.stages - ahead; stage < pipe.stages; stage++)
            release(a, pipe, stage);
        if (!pipe.resident)
            pipe.done += pipe.stages;
        __syncthreads();
        fill<NT>(a, s, &pipe, filter, pipe.done + STAGES);
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
    __shared__ uint64_t full[MAX_STAGES], empty[STAGES];
    const wide_shared s = parts_of(a, wide_memory);
    const int32_t worker = (int32_t)blockIdx.x % a.workers;
    const int32_t rest = (int32_t)blockIdx.x / a.workers;
    const int32_t group = rest / a.filter_tiles, m0 = rest % a.filter_tiles * NT;
    const int32_t tiles = (a.shape.tiles - worker + a.workers - 1) / a.workers;
    wide_pipe pipe = {full, empty, a.shape.stages, a.shape.resident, 0, 0, 0};
    pipe.fills = pipe.resident ? pipe.stages : pipe.stages * tiles;
    if (threadIdx.x == 0) {
        for (int i = 0; i < MAX_STAGES; i++)
            xn_mbarrier_init(&full[i], 1);
        for (int i = 0; i < STAGES; i++)
            xn_mbarrier_init(&empty[i], THREADS / 128 * a.cluster);
        xn_mbarrier_init_fence();
    }
    clear_padding(a, s);
    xn_fence_proxy();
    __syncthreads();
    if (a.cluster > 1)
        xn_cluster_sync();
    fill<NT>(a, s, &pipe, (int64_t)group * a.conv.group_out_channels + m0,
             pipe.resident ? pipe.stages : STAGES);
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    gather(a, group, worker * MT, s.activations);
    make_filters<NT, OUT == XN_CUDA_WIDE_PACKED>(a, s, group, m0);
    run_tiles<NT, OUT>(a, s, pipe, group, m0, worker);
    if (a.cluster > 1)
        xn_cluster_sync(); /* no block leaves while another may still write into it */
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
static int32_t copy_lanes(const xn_cuda_wide_shape *shape) {
    int32_t lanes = 1;
    while (lanes < 8 && lanes * 8 <= shape->tap_words)
        lanes *= 2;
    return lanes;
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
    a.width = divisor_of(conv->out_width);
    a.workers = a.shape.workers;
    a.filter_tiles = a.shape.filter_tiles;
    a.cluster = a.shape.cluster;
    a.copy_lanes = copy_lanes(&a.shape);
    a.vectors = (int64_t)conv->out_height * conv->out_width % 4 == 0;
    int blocks = a.workers * a.filter_tiles * conv->groups;
    return xn_cuda_launch_with(kernel_of(&a.shape, conv), blocks, THREADS, a.shape.bytes, a.cluster,
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
