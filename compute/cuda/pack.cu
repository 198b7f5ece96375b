/* pack.cu: real input of any datatype, NCHW, to bits packed along the channels of a group (the
 * layout of layout.h), with each pixel's number of set bits and mean magnitude. It reads every
 * input once, and is bound by that.
 *
 * A thread has V neighbouring pixels of 8 channels: 8 loads of V elements, all in flight at once,
 * which yield a byte of V pixels and V sums of 8 magnitudes. A block has 1 << shift such vectors,
 * side by side, and `rows` groups of 8 channels: all of them up to 1024 channels, else a panel of
 * 1024 after the other. Bytes and sums meet in shared memory; from there the bits leave in pieces
 * of 16 bytes, neighbours to neighbours.
 *
 * Sums are in fp32 within a panel (at most 8 + 5 + 32 roundings) and in double over panels. One
 * that passes FLT_MAX is taken again in double from memory. Where V and the block end is a matter
 * of alignment and of how much there is to do (shape_of). */
#include "element.cuh"
#include "fast_divide.cuh"
#include "kernels.h"
#include "launch.cuh"
#include "layout.h"
#include "ptx.cuh"

#include <algorithm>

enum {
    CHANNELS = 8, /* of a thread: the bits of a byte */
    MAX_ROWS = 128,
    MAX_THREADS = 1024,
    PIECE = 16, /* bytes of a store of bits */
};
static const int64_t SLICE_PIXELS = 1 << 30; /* of one launch, so that pixels count in 32 bits */

struct pack_args {
    const void *input;
    uint32_t *bits;
    int32_t *popc;
    float *mean;
    int64_t plane, slab; /* elements from channel to channel, from (image, group) to the next */
    double reciprocal;   /* of group_channels */
    xn_fast_divisor plane_vectors, pixel_pieces; /* pieces of 16 bytes of a pixel in a panel */
    int32_t vectors, pixels, group_channels, tap_words;
    int32_t shift, rows;
    int32_t byte_pitch, sums_at; /* in shared memory: bytes[rows][byte_pitch], sums[warp][pixel] */
};

/* ---- a vector of V elements ---- */

template <int BYTES>
struct raw_vector {
    uint32_t word[BYTES < 4 ? 1 : BYTES / 4];

    __device__ __forceinline__ void load(const void *from) {
        if constexpr (BYTES == 16) {
            const uint4 v = *(const uint4 *)from;
            word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
        } else if constexpr (BYTES == 8) {
            const uint2 v = *(const uint2 *)from;
            word[0] = v.x, word[1] = v.y;
        } else if constexpr (BYTES == 4) {
            word[0] = *(const uint32_t *)from;
        } else if constexpr (BYTES == 2) {
            word[0] = *(const uint16_t *)from;
        } else {
            word[0] = *(const uint8_t *)from;
        }
    }
};

/* Element j of a vector: whether its bit is set, and its magnitude in a type whose sums of 8 are
 * exact where they can be. */
template <typename T>
struct element_of;

template <>
struct element_of<float> {
    typedef float sum;
    static __device__ __forceinline__ float value(const uint32_t *word, int j) {
        return __uint_as_float(word[j]);
    }
};
template <>
struct element_of<__half> {
    typedef float sum;
    static __device__ __forceinline__ float value(const uint32_t *word, int j) {
        const __half2 pair = *(const __half2 *)&word[j / 2];
        return j % 2 ? __high2float(pair) : __low2float(pair);
    }
};
template <>
struct element_of<xn_bf16_bits> {
    typedef float sum;
    static __device__ __forceinline__ float value(const uint32_t *word, int j) {
        return __uint_as_float(j % 2 ? word[j / 2] & 0xffff0000u : word[j / 2] << 16);
    }
};
template <>
struct element_of<int8_t> {
    typedef int32_t sum;
    static __device__ __forceinline__ int32_t value(const uint32_t *word, int j) {
        return (int8_t)(word[j / 4] >> j % 4 * 8);
    }
};
template <>
struct element_of<uint8_t> {
    typedef int32_t sum;
    static __device__ __forceinline__ int32_t value(const uint32_t *word, int j) {
        return (uint8_t)(word[j / 4] >> j % 4 * 8);
    }
};
template <>
struct element_of<xn_bool_byte> {
    typedef int32_t sum;
    static __device__ __forceinline__ int32_t value(const uint32_t *word, int j) {
        return (uint8_t)(word[j / 4] >> j % 4 * 8) != 0;
    }
};

__device__ __forceinline__ float magnitude(float v) {
    return fabsf(v);
}
__device__ __forceinline__ int32_t magnitude(int32_t v) {
    return abs(v);
}

/* The bytes of V pixels, four a word. */
template <typename T, int V>
struct pixel_bytes {
    uint32_t packed[(V + 3) / 4];

    __device__ __forceinline__ void add(const uint32_t *word, int channel) {
#pragma unroll
        for (int j = 0; j < V; j++)
            if (element_of<T>::value(word, j) >= 0)
                packed[j / 4] |= 1u << (j % 4 * 8 + channel);
    }
    __device__ __forceinline__ uint32_t bytes(int q) const {
        return packed[q];
    }
};

/* fp16: two comparisons an instruction. */
template <int V>
struct pixel_bytes<__half, V> {
    uint32_t pair[(V + 1) / 2];

    __device__ __forceinline__ void add(const uint32_t *word, int channel) {
#pragma unroll
        for (int j = 0; j < (V + 1) / 2; j++)
            pair[j] |= __hge2_mask(*(const __half2 *)&word[j], __half2half2(__ushort_as_half(0))) &
                       0x00010001u << channel;
    }
    __device__ __forceinline__ uint32_t bytes(int q) const {
        return xn_permute(pair[q * 2], V > 2 ? pair[V > 2 ? q * 2 + 1 : 0] : 0, 0x6420);
    }
};

/* ---- a block ---- */

/* What a thread packs; sums of 8 magnitudes. */
template <typename T, int V>
__device__ __forceinline__ void pack_vector(const pack_args &a, const T *from, int32_t channels,
                                            uint32_t (&bytes)[(V + 3) / 4], float (&sums)[V]) {
    raw_vector<V *(int)sizeof(T)> raw[CHANNELS];
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
        raw[i] = {};
        if (i < channels)
            raw[i].load(from + i * a.plane);
    }
    pixel_bytes<T, V> packed = {};
#pragma unroll
    for (int i = 0; i < CHANNELS; i++)
        packed.add(raw[i].word, i);
    const uint32_t live = 0x01010101u * (0xffu >> (CHANNELS - max(0, min(channels, CHANNELS))));
#pragma unroll
    for (int q = 0; q < (V + 3) / 4; q++)
        bytes[q] = packed.bytes(q) & live;
    if (!a.mean)
        return;
#pragma unroll
    for (int j = 0; j < V; j++) {
        typename element_of<T>::sum sum = 0;
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
            sum += magnitude(element_of<T>::value(raw[i].word, j));
        sums[j] = (float)sum;
    }
}

template <int V>
__device__ __forceinline__ void put_bytes(unsigned char *to, const uint32_t (&bytes)[(V + 3) / 4]) {
    if constexpr (V == 8)
        *(uint2 *)to = make_uint2(bytes[0], bytes[1]);
    else if constexpr (V == 4)
        *(uint32_t *)to = bytes[0];
    else if constexpr (V == 2)
        *(uint16_t *)to = (uint16_t)bytes[0];
    else
        *to = (unsigned char)bytes[0];
}

/* Adds up the rows that share a warp; its first row puts the sums down. */
template <int V>
__device__ __forceinline__ void put_sums(const pack_args &a, float *to, float (&sums)[V]) {
    const int32_t lane = threadIdx.x & 31, vectors = 1 << a.shift;
    for (int32_t apart = vectors; apart < 32; apart *= 2)
#pragma unroll
        for (int j = 0; j < V; j++)
            sums[j] += __shfl_xor_sync(0xffffffffu, sums[j], apart);
    if (lane >= vectors)
        return;
    to += ((int32_t)(threadIdx.x >> 5) * vectors + lane) * V;
    if constexpr (V >= 4)
#pragma unroll
        for (int j = 0; j < V; j += 4)
            *(float4 *)(to + j) = make_float4(sums[j], sums[j + 1], sums[j + 2], sums[j + 3]);
    else
#pragma unroll
        for (int j = 0; j < V; j++)
            to[j] = sums[j];
}

/* The panel's magnitudes of a pixel again, where fp32 does not hold their sum. */
template <typename T, int V>
__device__ __noinline__ double sum_again(const pack_args &a, int32_t pixel, int32_t panel) {
    const int32_t vector = pixel / V, plane = xn_divide(vector, a.plane_vectors);
    const int64_t offset = (int64_t)(vector - plane * (int32_t)a.plane_vectors.divisor) * V;
    const T *from = (const T *)a.input + plane * a.slab + offset + pixel % V;
    const int32_t end = min(a.group_channels - panel, a.rows * CHANNELS);
    double sum = 0.0;
    for (int32_t c = panel; c < panel + end; c++)
        sum += fabs((double)xn_to_fp32(from[c * a.plane]));
    return sum;
}

/* The panel's magnitudes of a pixel of the block. */
template <typename T, int V>
__device__ __forceinline__ double panel_sum(const pack_args &a, const float *sums, int32_t p,
                                            int32_t pixel, int32_t panel) {
    const int32_t pitch = V << a.shift, warps = (int32_t)blockDim.x >> 5;
    float sum = 0.0f, odd = 0.0f;
    int32_t w = 0;
#pragma unroll 4
    for (; w + 1 < warps; w += 2) {
        sum += sums[w * pitch + p];
        odd += sums[(w + 1) * pitch + p];
    }
    if (w < warps)
        sum += sums[w * pitch + p];
    sum += odd;
    return isinf(sum) ? sum_again<T, V>(a, pixel, panel) : (double)sum;
}

/* 16 bytes of packed bits: ROWS of a pixel, then of the next. */
template <int ROWS>
__device__ __forceinline__ uint4 piece_at(const unsigned char *bytes, int32_t pitch) {
    uint32_t word[4] = {};
#pragma unroll
    for (int e = 0; e < PIECE; e++)
        word[e / 4] |= (uint32_t)bytes[e % ROWS * pitch + e / ROWS] << e % 4 * 8;
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Pieces of several whole pixels, 1 or 2 words each. */
template <int ROWS>
__device__ __forceinline__ void write_pixels(const pack_args &a, const unsigned char *bytes,
                                             int32_t first_pixel, int32_t block_pixels) {
    constexpr int32_t PIXELS = PIECE / ROWS, WORDS = ROWS / 4;
    for (int32_t p = (int32_t)threadIdx.x * PIXELS; p < block_pixels;
         p += (int32_t)blockDim.x * PIXELS) {
        const int32_t left = a.pixels - first_pixel - p;
        uint32_t *to = a.bits + (int64_t)(first_pixel + p) * WORDS;
        const uint4 v = piece_at<ROWS>(bytes + p, a.byte_pitch);
        if (left >= PIXELS && (uintptr_t)to % PIECE == 0) {
            *(uint4 *)to = v;
            continue;
        }
        const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (n / WORDS < left)
                to[n] = word[n];
    }
}

/* Pieces of one pixel of 4 words and more. */
__device__ __forceinline__ void write_panel(const pack_args &a, const unsigned char *bytes,
                                            int32_t first_pixel, int32_t block_pixels,
                                            int32_t first_word) {
    const int32_t pieces = (int32_t)a.pixel_pieces.divisor;
    for (int32_t e = threadIdx.x; e < block_pixels * pieces; e += blockDim.x) {
        const int32_t p = xn_divide(e, a.pixel_pieces), row = (e - p * pieces) * PIECE;
        const int32_t word = first_word + row / 4;
        if (first_pixel + p < a.pixels && word < a.tap_words)
            *(uint4 *)(a.bits + (int64_t)(first_pixel + p) * a.tap_words + word) =
                piece_at<PIECE>(bytes + row * a.byte_pitch + p, a.byte_pitch);
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(MAX_THREADS) pack_kernel(const __grid_constant__ pack_args a) {
    extern __shared__ __align__(16) unsigned char pack_memory[];
    unsigned char *bytes = pack_memory;
    float *sums = (float *)(pack_memory + a.sums_at);
    const int32_t at = (int32_t)threadIdx.x & ((1 << a.shift) - 1);
    const int32_t row = (int32_t)threadIdx.x >> a.shift;
    const int32_t vector = ((int32_t)blockIdx.x << a.shift) + at;
    const int32_t plane = xn_divide(vector, a.plane_vectors);
    const int64_t offset = (int64_t)(vector - plane * (int32_t)a.plane_vectors.divisor) * V;
    const T *from = (const T *)a.input + plane * a.slab + offset + row * CHANNELS * a.plane;
    const int32_t block_pixels = V << a.shift, first_pixel = (int32_t)blockIdx.x * block_pixels;
    const int32_t panel_channels = a.rows * CHANNELS, channels = a.tap_words * 32;
    double total = 0.0; /* over panels; then a thread has one pixel at most */
    int32_t count = 0;
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    for (int32_t panel = 0; panel < channels; panel += panel_channels) {
        const bool last = panel + panel_channels >= channels;
        uint32_t mine[(V + 3) / 4];
        float sum[V] = {};
        const int32_t left = a.group_channels - panel - row * CHANNELS;
        pack_vector<T, V>(a, from + panel * a.plane, vector < a.vectors ? left : 0, mine, sum);
        put_bytes<V>(bytes + row * a.byte_pitch + at * V, mine);
        if (a.mean)
            put_sums<V>(a, sums, sum);
        __syncthreads();
        for (int32_t p = threadIdx.x; p < block_pixels; p += blockDim.x) {
            const int32_t pixel = first_pixel + p;
            if (pixel >= a.pixels)
                break;
            if (a.mean) {
                total += panel_sum<T, V>(a, sums, p, pixel, panel);
                if (last)
                    a.mean[pixel] = (float)(total * a.reciprocal);
            }
            if (a.popc) {
                for (int32_t r = 0; r < a.rows; r++)
                    count += __popc(bytes[r * a.byte_pitch + p]);
                if (last)
                    a.popc[pixel] = count;
            }
            if (last) {
                total = 0.0;
                count = 0;
            }
        }
        if (a.rows == 4)
            write_pixels<4>(a, bytes, first_pixel, block_pixels);
        else if (a.rows == 8)
            write_pixels<8>(a, bytes, first_pixel, block_pixels);
        else
            write_panel(a, bytes, first_pixel, block_pixels, panel / 32);
        if (!last)
            __syncthreads();
    }
}

/* ---- launcher ---- */

typedef void (*pack_function)(const pack_args);

enum { VECTORS = 4 }; /* of 1, 2, 4 and 8 elements, up to 16 bytes */

#define KERNELS(T)                                                                                 \
    { pack_kernel<T, 1>, pack_kernel<T, 2>, pack_kernel<T, 4>, pack_kernel<T, 8> }
/* By datatype, XN_FP32 to XN_BOOL. */
static const pack_function kernels[6][VECTORS] = {
    {pack_kernel<float, 1>, pack_kernel<float, 2>, pack_kernel<float, 4>, NULL},
    KERNELS(__half),
    KERNELS(xn_bf16_bits),
    KERNELS(int8_t),
    KERNELS(uint8_t),
    KERNELS(xn_bool_byte)};

/* How a problem is cut: vectors of 1 << vector elements, 1 << shift of them and rows a block. */
struct pack_shape {
    int32_t vector, shift, rows;
};

/* The widest vectors that planes and address allow, then narrower ones while there are too few
 * threads for the chip; blocks of at most 256 threads where channels allow, fewer while there are
 * too few blocks, but neighbours of 32 bytes. */
static pack_shape shape_of(const xn_conv *conv, const void *input, int64_t pixels,
                           int multiprocessors) {
    const int64_t plane = (int64_t)conv->height * conv->width;
    const int64_t bytes = (int64_t)xn_datatype_bytes((xn_datatype)conv->input_datatype);
    pack_shape s = {};
    s.rows = std::min(xn_cuda_tap_words(conv->group_channels) * 4, (int32_t)MAX_ROWS);
    while (s.vector + 1 < VECTORS && plane % (2 << s.vector) == 0 &&
           bytes << (s.vector + 1) <= 16 &&
           (uintptr_t)input % (size_t)(bytes << (s.vector + 1)) == 0)
        s.vector++;
    while (s.vector > 0 && (pixels >> s.vector) * s.rows < (int64_t)multiprocessors * 256)
        s.vector--;
    s.shift = 5;
    while (s.rows << s.shift > MAX_THREADS)
        s.shift--;
    while (s.rows << s.shift > 32 && bytes << (s.vector + s.shift) > 32 &&
           (s.rows << s.shift > 256 || pixels >> (s.vector + s.shift) < 2 * multiprocessors))
        s.shift--;
    return s;
}

static cudaError_t launch_shape(const xn_conv *conv, const pack_shape &s, int64_t pixels,
                                pack_args a, bool overlapped, cudaStream_t stream) {
    const int32_t elements = 1 << s.vector, block_pixels = elements << s.shift;
    const int32_t threads = s.rows << s.shift;
    a.pixels = (int32_t)pixels;
    a.vectors = a.pixels >> s.vector;
    a.plane_vectors =
        xn_fast_divisor_of((int32_t)std::min<int64_t>(a.plane, SLICE_PIXELS) >> s.vector);
    a.pixel_pieces = xn_fast_divisor_of(std::max(s.rows / PIECE, 1));
    a.shift = s.shift;
    a.rows = s.rows;
    a.byte_pitch = block_pixels + std::max(elements, 4);
    a.sums_at = (a.rows * a.byte_pitch + 15) / 16 * 16;
    const size_t shared = (size_t)a.sums_at + (a.mean ? threads / 32 * block_pixels * 4 : 0);
    return xn_cuda_launch_with(kernels[conv->input_datatype][s.vector],
                               xn_cuda_grid(pixels, block_pixels), threads, shared, overlapped,
                               stream, a);
}

cudaError_t xn_cuda_pack_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                const void *input, uint32_t *bits, int32_t *popc, float *mean,
                                bool overlapped, cudaStream_t stream) {
    const int64_t plane = (int64_t)conv->height * conv->width;
    const int64_t pixels = plane * images * conv->groups;
    pack_args a = {};
    a.plane = plane;
    a.slab = plane * conv->group_channels;
    a.reciprocal = 1.0 / conv->group_channels;
    a.group_channels = conv->group_channels;
    a.tap_words = xn_cuda_tap_words(conv->group_channels);
    const pack_shape shape = shape_of(conv, input, pixels, multiprocessors);
    const int64_t step = plane < SLICE_PIXELS ? SLICE_PIXELS / plane * plane : SLICE_PIXELS;
    cudaError_t e = cudaSuccess;
    for (int64_t at = 0, count; e == cudaSuccess && at < pixels; at += count) {
        count = std::min(step, pixels - at);
        if (plane > SLICE_PIXELS) /* slices within a plane, not across */
            count = std::min(count, plane - at % plane);
        a.input =
            (const char *)input + (at / plane * a.slab + at % plane) *
                                      (int64_t)xn_datatype_bytes((xn_datatype)conv->input_datatype);
        a.bits = bits + at * a.tap_words;
        a.popc = popc ? popc + at : NULL;
        a.mean = mean ? mean + at : NULL;
        e = launch_shape(conv, shape, count, a, overlapped, stream);
    }
    return e;
}

/* ---- packed input and output of the paths that do not do it themselves ---- */

struct count_args {
    const uint32_t *bits;
    int32_t *popc;
    int64_t pixels;
    int32_t tap_words;
};

__global__ void __launch_bounds__(XN_CUDA_THREADS)
    count_kernel(const __grid_constant__ count_args a) {
    for (int64_t p = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; p < a.pixels;
         p += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        int32_t count = 0;
        for (int32_t w = 0; w < a.tap_words; w++)
            count += __popc(a.bits[p * a.tap_words + w]);
        a.popc[p] = count;
    }
}

cudaError_t xn_cuda_count_launch(int64_t pixels, int32_t tap_words, const uint32_t *bits,
                                 int32_t *popc, cudaStream_t stream) {
    count_args a = {bits, popc, pixels, tap_words};
    return xn_cuda_launch(count_kernel, xn_cuda_grid(pixels, XN_CUDA_THREADS), XN_CUDA_THREADS, 0,
                          stream, a);
}

struct threshold_args {
    const int32_t *dots, *threshold;
    const uint32_t *flip;
    uint32_t *packed;
    int64_t plane, pixels; /* outputs of an image's channel, of all images */
    int32_t filters, words;
};

/* A thread makes one word of a pixel. */
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    threshold_kernel(const __grid_constant__ threshold_args a) {
    for (int64_t e = (int64_t)blockIdx.x * XN_CUDA_THREADS + threadIdx.x; e < a.pixels * a.words;
         e += (int64_t)gridDim.x * XN_CUDA_THREADS) {
        const int64_t pixel = e % a.pixels;
        const int32_t first = (int32_t)(e / a.pixels) * 32;
        const int32_t *dots =
            a.dots + (pixel / a.plane * a.filters + first) * a.plane + pixel % a.plane;
        uint32_t word = 0;
        for (int32_t f = 0; f < 32 && first + f < a.filters; f++)
            word |= (uint32_t)(dots[f * a.plane] >= a.threshold[first + f]) << f;
        if (a.flip && first < a.filters)
            word ^= a.flip[first / 32];
        a.packed[pixel * a.words + first / 32] = word;
    }
}

cudaError_t xn_cuda_threshold_launch(const xn_conv *conv, int64_t images, const int32_t *dots,
                                     const int32_t *threshold, const uint32_t *flip,
                                     uint32_t *packed, cudaStream_t stream) {
    threshold_args a = {};
    a.dots = dots;
    a.threshold = threshold;
    a.flip = flip;
    a.packed = packed;
    a.plane = (int64_t)conv->out_height * conv->out_width;
    a.pixels = a.plane * images;
    a.filters = conv->out_channels;
    a.words = xn_cuda_tap_words(conv->out_channels);
    return xn_cuda_launch(threshold_kernel, xn_cuda_grid(a.pixels * a.words, XN_CUDA_THREADS),
                          XN_CUDA_THREADS, 0, stream, a);
}

cudaError_t xn_cuda_pack_load(void) {
    cudaError_t e = cudaSuccess;
    for (const pack_function(&datatype)[VECTORS] : kernels)
        for (pack_function kernel : datatype)
            if (e == cudaSuccess && kernel)
                e = xn_cuda_load(kernel);
    if (e == cudaSuccess)
        e = xn_cuda_load(count_kernel);
    return e == cudaSuccess ? xn_cuda_load(threshold_kernel) : e;
}
