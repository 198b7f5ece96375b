/* pack.cu: real input of any datatype, NCHW, to bits packed along the channels of a group (the
 * layout of layout.h), with each pixel's number of set bits and mean magnitude. It reads every
 * input once, and is bound by that, or where the input comes from the L2 cache by the instructions.
 *
 * A thread has V neighbouring pixels of C channels (pack_vector.cuh). A block has some such vectors
 * side by side, and `rows` groups of C channels: all there are, or up to 1024 channels and panel
 * after panel. Bits and sums meet in shared memory; from there the bits leave in pieces of 16
 * bytes, neighbours to neighbours.
 *
 * Sums are in fp32 within a panel, of at most 1024 numbers with at most 41 roundings (7 to 31 in a
 * thread, then four sums side by side), and in double over panels. One that passes FLT_MAX is taken
 * again in double from memory. */
#include "fast_divide.cuh"
#include "kernels.h"
#include "launch.cuh"
#include "layout.h"
#include "pack_vector.cuh"

#include <algorithm>

enum {
    MAX_THREADS = 512,
    PANEL_CHANNELS = 1024,
    BLOCK_BYTES = 32 * 1024, /* of input that a block's threads read at once */
    PIECE_WORDS = 4,         /* of a store of bits */
    FEW_ELEMENTS = 8192,     /* a multiprocessor; below, threads take fewer each, */
    FEW_ROWS = 16,           /* in so many rows of them */
};
static const int64_t SLICE_PIXELS = 1 << 30; /* of one launch, so that pixels count in 32 bits */

struct pack_args {
    const void *input;
    uint32_t *bits;
    int32_t *popc;
    float *mean;
    int64_t plane, slab; /* bytes from channel to channel, from (image, group) to the next */
    double reciprocal;   /* of group_channels */
    xn_fast_divisor plane_vectors, block_vectors;
    xn_fast_divisor pixel_pieces; /* pieces of bits that a pixel has in a panel */
    int32_t vectors, pixels, group_channels, tap_words;
    int32_t rows;
    int32_t pitch, sums_at; /* in shared memory: C bits[rows][pitch], sums[rows][pixel] */
};

/* The panel's magnitudes of a pixel again, where fp32 does not hold their sum. */
template <typename T, int V>
__device__ __forceinline__ double sum_again(const pack_args &a, int32_t pixel, int32_t panel,
                                            int32_t channels) {
    const int32_t plane = xn_divide(pixel / V, a.plane_vectors);
    const int32_t at = pixel - plane * (int32_t)a.plane_vectors.divisor * V;
    const char *from = (const char *)a.input + plane * a.slab + panel * a.plane;
    const int32_t count = min(a.group_channels - panel, channels);
    double sum = 0.0;
#pragma unroll 1
    for (int32_t c = 0; c < count; c++, from += a.plane)
        sum += fabs((double)xn_to_fp32(((const T *)from)[at]));
    return sum;
}

__device__ __forceinline__ float sum_of_rows(const float *sums, int32_t pitch, int32_t rows) {
    float sum[4] = {};
#pragma unroll 4
    for (int32_t row = 0; row < rows; row += 4)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (row + i < rows)
                sum[i] += sums[(row + i) * pitch];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* Word w of a pixel's bits in the panel. */
template <int C>
__device__ __forceinline__ uint32_t word_at(const unsigned char *bits, int32_t pitch, int32_t pixel,
                                            int32_t w) {
    const int32_t at = w * (32 / C) * pitch + pixel;
    uint32_t word = 0;
#pragma unroll
    for (int r = 0; r < 32 / C; r++) {
        const int32_t e = at + r * pitch;
        const uint32_t part = C == 32   ? ((const uint32_t *)bits)[e]
                              : C == 16 ? ((const uint16_t *)bits)[e]
                                        : bits[e];
        word |= part << r * (C % 32);
    }
    return word;
}

/* Pixels of WORDS = 1 or 2 words: several a piece; of more words: pieces of a pixel. */
template <int C, int WORDS>
__device__ __forceinline__ void write_bits(const pack_args &a, const unsigned char *bits,
                                           int32_t first_pixel, int32_t block_pixels,
                                           int32_t first_word) {
    constexpr int32_t PIXELS = PIECE_WORDS / WORDS;
    const int32_t pieces = (int32_t)a.pixel_pieces.divisor, left = a.pixels - first_pixel;
    /* From the block's last thread on: the first ones have the sums. */
    for (int32_t e = (int32_t)(blockDim.x - 1 - threadIdx.x); e < block_pixels / PIXELS * pieces;
         e += (int32_t)blockDim.x) {
        const int32_t unit = WORDS < 4 ? e : xn_divide(e, a.pixel_pieces);
        const int32_t p = unit * PIXELS, w = (e - unit * pieces) * PIECE_WORDS;
        if (p >= left || first_word + w >= a.tap_words)
            continue;
        uint32_t *to = a.bits + (int64_t)(first_pixel + p) * a.tap_words + first_word + w;
        uint32_t word[PIECE_WORDS];
#pragma unroll
        for (int n = 0; n < PIECE_WORDS; n++)
            word[n] = word_at<C>(bits, a.pitch, p + n / WORDS, w + n % WORDS);
        if (WORDS == 4 || (p + PIXELS <= left && (uintptr_t)to % 16 == 0))
            *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
        else
#pragma unroll
            for (int n = 0; n < PIECE_WORDS; n++)
                if (p + n / WORDS < left)
                    to[n] = word[n];
    }
}

/* Means and counts of the block's pixels. Where there are several panels a thread has one pixel at
 * most, whose total and count stay with it. */
template <typename T, int V, int C>
__device__ __forceinline__ void
add_panel(const pack_args &a, const unsigned char *bits, const float *sums, int32_t first_pixel,
          int32_t block_pixels, int32_t panel, bool last, double *total, int32_t *count) {
    for (int32_t p = threadIdx.x; p < block_pixels; p += (int32_t)blockDim.x) {
        const int32_t pixel = first_pixel + p;
        if (pixel >= a.pixels)
            break;
        if (a.mean) {
            const float sum = sum_of_rows(sums + p, block_pixels, a.rows);
            const bool again = sums_overflow<T>() && isinf(sum);
            if (last && panel == 0 && !again) {
                a.mean[pixel] = sum * (float)a.reciprocal;
            } else {
                *total += again ? sum_again<T, V>(a, pixel, panel, a.rows * C) : (double)sum;
                if (last)
                    a.mean[pixel] = (float)(*total * a.reciprocal);
            }
        }
        if (a.popc) {
#pragma unroll 1
            for (int32_t w = 0; w < a.rows * C / 32; w++)
                *count += __popc(word_at<C>(bits, a.pitch, p, w));
            if (last)
                a.popc[pixel] = *count;
        }
        if (last) {
            *total = 0.0;
            *count = 0;
        }
    }
}

template <typename T, int V, int C>
__global__ void __launch_bounds__(MAX_THREADS) pack_kernel(const __grid_constant__ pack_args a) {
    extern __shared__ __align__(16) unsigned char pack_memory[];
    unsigned char *bits = pack_memory;
    float *sums = (float *)(pack_memory + a.sums_at);
    const int32_t block_vectors = (int32_t)a.block_vectors.divisor;
    const int32_t row = xn_divide((int32_t)threadIdx.x, a.block_vectors);
    const int32_t at = (int32_t)threadIdx.x - row * block_vectors;
    const int32_t vector = (int32_t)blockIdx.x * block_vectors + at;
    const int32_t block_pixels = V * block_vectors, first_pixel = blockIdx.x * block_pixels;
    const int32_t plane = xn_divide(vector, a.plane_vectors);
    const int32_t rest = vector - plane * (int32_t)a.plane_vectors.divisor;
    const char *from = (const char *)a.input + plane * a.slab + row * C * a.plane +
                       (uint32_t)rest * (uint64_t)(V * sizeof(T));
    int32_t channels = vector < a.vectors ? a.group_channels - row * C : 0; /* from here on */
    int32_t panel = 0, count = 0;
    double total = 0.0;
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    for (;;) {
        const int32_t next = panel + a.rows * C;
        const bool last = next >= a.tap_words * 32;
        raw_vector<V *(int)sizeof(T)> raw[C];
        pixel_bits<V, C> mine;
        load_vectors(from, a.plane, channels, raw);
        make_bits<T, V, C>(raw, &mine);
        if (channels < C)
            mine.clear_from(channels);
        mine.store(bits + (row * a.pitch + at * V) * (C / 8));
        if (a.mean) {
            float magnitudes[V];
            make_sums<T, V, C>(raw, magnitudes);
            store_sums(sums + row * block_pixels + at * V, magnitudes);
        }
        __syncthreads();
        add_panel<T, V, C>(a, bits, sums, first_pixel, block_pixels, panel, last, &total, &count);
        if (a.tap_words == 1)
            write_bits<C, 1>(a, bits, first_pixel, block_pixels, 0);
        else if (a.tap_words == 2)
            write_bits<C, 2>(a, bits, first_pixel, block_pixels, 0);
        else
            write_bits<C, 4>(a, bits, first_pixel, block_pixels, panel / 32);
        if (last)
            return;
        __syncthreads();
        from += (next - panel) * a.plane;
        channels -= next - panel;
        panel = next;
    }
}

/* ---- launcher ---- */

typedef void (*pack_function)(const pack_args);

/* What a thread has: 1 << vector pixels by `channels`. */
struct pack_cut {
    int32_t vector, channels;
};
enum { WIDE, SMALL, SINGLE, CUTS };
static const pack_cut cuts[CUTS] = {{2, 16}, {1, 8}, {0, 32}};

#define KERNELS(T)                                                                                 \
    { pack_kernel<T, 4, 16>, pack_kernel<T, 2, 8>, pack_kernel<T, 1, 32> }
/* By datatype, XN_FP32 to XN_BOOL, and cut. */
static const pack_function kernels[6][CUTS] = {KERNELS(float),        KERNELS(__half),
                                               KERNELS(xn_bf16_bits), KERNELS(int8_t),
                                               KERNELS(uint8_t),      KERNELS(xn_bool_byte)};

/* A block has that many vectors side by side, by rows. */
struct pack_shape {
    int32_t cut, vectors, rows;
    bool few; /* far from filling the chip */
};

static int32_t clamp(int32_t n, int32_t least, int32_t most) {
    return std::max(least, std::min(n, most));
}

/* Vectors as wide as planes and address allow; small ones where little is to do and they do not
 * make too many rows. Blocks of 128 threads and more, of up to BLOCK_BYTES in flight, with
 * neighbours of 64 bytes side by side (few: 16), as otherwise sectors are read twice. */
static pack_shape shape_of(const xn_conv *conv, const void *input, int64_t pixels,
                           int multiprocessors) {
    const int64_t plane = (int64_t)conv->height * conv->width;
    const int32_t channels = xn_packed_words(conv->group_channels) * 32;
    const int32_t bytes = (int32_t)xn_datatype_bytes((xn_datatype)conv->input_datatype);
    const int32_t factor = plane % 4 == 0 && (uintptr_t)input % (4 * bytes) == 0   ? 4
                           : plane % 2 == 0 && (uintptr_t)input % (2 * bytes) == 0 ? 2
                                                                                   : 1;
    pack_shape s;
    s.few = pixels * conv->group_channels < (int64_t)multiprocessors * FEW_ELEMENTS;
    s.cut = factor == 1                                                             ? SINGLE
            : factor == 2 || (s.few && channels <= FEW_ROWS * cuts[SMALL].channels) ? SMALL
                                                                                    : WIDE;
    const int32_t vector_bytes = bytes << cuts[s.cut].vector, c = cuts[s.cut].channels;
    const int32_t threads = std::min(BLOCK_BYTES / (vector_bytes * c), (int32_t)MAX_THREADS);
    const int32_t side = s.few ? clamp(16 / vector_bytes, 4, 8) : clamp(64 / vector_bytes, 8, 32);
    /* More channels than that are panels of a power of two of rows: whole pieces of bits. */
    s.rows = std::min(std::min(channels, (int32_t)PANEL_CHANNELS) / c, threads / side);
    s.vectors = std::min(std::max((128 / s.rows + 3) / 4 * 4, side), threads / s.rows / 4 * 4);
    return s;
}

static cudaError_t launch_shape(const xn_conv *conv, const pack_shape &s, int64_t plane,
                                int64_t pixels, pack_args a, bool overlapped, cudaStream_t stream) {
    const int32_t v = cuts[s.cut].vector, c = cuts[s.cut].channels;
    const int32_t block_pixels = s.vectors << v;
    a.pixels = (int32_t)pixels;
    a.vectors = a.pixels >> v;
    a.plane_vectors = xn_fast_divisor_of((int32_t)std::min(plane, SLICE_PIXELS) >> v);
    a.block_vectors = xn_fast_divisor_of(s.vectors);
    a.pixel_pieces = xn_fast_divisor_of(std::max(s.rows * c / 32 / PIECE_WORDS, 1));
    a.rows = s.rows;
    a.pitch = block_pixels + 4; /* neither bank by bank nor out of alignment */
    a.sums_at = (s.rows * a.pitch * (c / 8) + 15) / 16 * 16;
    const size_t shared = (size_t)a.sums_at + (a.mean ? s.rows * block_pixels * 4 : 0);
    return xn_cuda_launch_with(kernels[conv->input_datatype][s.cut],
                               xn_cuda_grid(pixels, block_pixels), s.rows * s.vectors, shared,
                               overlapped, stream, a);
}

/* Starting early is for small grids: the blocks of a large one would be spread over the chip by the
 * room that the kernel ahead happens to leave. */
cudaError_t xn_cuda_pack_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                const void *input, uint32_t *bits, int32_t *popc, float *mean,
                                bool overlapped, cudaStream_t stream) {
    const int64_t plane = (int64_t)conv->height * conv->width;
    const int64_t pixels = plane * images * conv->groups;
    const int64_t bytes = (int64_t)xn_datatype_bytes((xn_datatype)conv->input_datatype);
    pack_args a = {};
    a.plane = plane * bytes;
    a.slab = a.plane * conv->group_channels;
    a.reciprocal = 1.0 / conv->group_channels;
    a.group_channels = conv->group_channels;
    a.tap_words = xn_packed_words(conv->group_channels);
    const pack_shape shape = shape_of(conv, input, pixels, multiprocessors);
    const int64_t step = plane < SLICE_PIXELS ? SLICE_PIXELS / plane * plane : SLICE_PIXELS;
    cudaError_t e = cudaSuccess;
    for (int64_t at = 0, count; e == cudaSuccess && at < pixels; at += count) {
        count = std::min(step, pixels - at);
        if (plane > SLICE_PIXELS) /* slices within a plane, not across */
            count = std::min(count, plane - at % plane);
        a.input = (const char *)input + at / plane * a.slab + at % plane * bytes;
        a.bits = bits + at * a.tap_words;
        a.popc = popc ? popc + at : NULL;
        a.mean = mean ? mean + at : NULL;
        e = launch_shape(conv, shape, plane, count, a, overlapped && shape.few, stream);
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
    a.words = xn_packed_words(conv->out_channels);
    return xn_cuda_launch(threshold_kernel, xn_cuda_grid(a.pixels * a.words, XN_CUDA_THREADS),
                          XN_CUDA_THREADS, 0, stream, a);
}

cudaError_t xn_cuda_pack_load(void) {
    cudaError_t e = cudaSuccess;
    for (const pack_function(&datatype)[CUTS] : kernels)
        for (pack_function kernel : datatype)
            if (e == cudaSuccess && kernel)
                e = xn_cuda_load(kernel);
    if (e == cudaSuccess)
        e = xn_cuda_load(count_kernel);
    return e == cudaSuccess ? xn_cuda_load(threshold_kernel) : e;
}
