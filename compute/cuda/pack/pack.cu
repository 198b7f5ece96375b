/* pack.cu: real input of any datatype, NCHW, to bits packed along the channels of a group (the
 * layout of layout.h), with each pixel's number of set bits and mean magnitude. It reads every
 * input once, and is bound by that, or where the input comes from the L2 cache by the instructions.
 *
 * A thread has V neighbouring pixels of C channels (pack_vector.cuh). A block has some such vectors
 * side by side, and `rows` groups of C channels: all there are, or up to 1024 channels and panel
 * after panel. Bits and sums meet in shared memory; from there the bits leave, neighbours to
 * neighbours, into lines in pieces of 16 bytes.
 *
 * Sums are in the order of epilogue.cuh, whose panels of 1024 channels are one or more of a
 * block's. One that passes FLT_MAX is taken again in double from memory. */
#include "fast_divide.cuh"
#include "launch.cuh"
#include "layout.h"
#include "pack_vector.cuh"
#include "packing.h"

#include <algorithm>

enum {
    MAX_THREADS = 512,
    BLOCK_BYTES = 32 * 1024, /* of input that a block's threads read at once */
    PIECE_WORDS = 4,         /* of a store of bits to lines */
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
    xn_fast_divisor panel_words;
    int32_t vectors, pixels, group_channels, tap_words;
    int32_t rows;
    int32_t pitch, sums_at; /* in shared memory: C bits[rows][pitch], sums[rows][pixel] */
    xn_cuda_padded lines;   /* where bits, popc and mean are laid out as that, */
    xn_fast_divisor width;
    int32_t height;
};

/* How bits lie: as layout.h's activations, or lines. */
enum { PLAIN = XN_CUDA_PLAIN, LINED = XN_CUDA_AS_PADDED };

/* A pixel as row and column of a plane, the image of a group. */
struct pack_place {
    int32_t plane, y, x;
};

/* Of lines: a position of a phase of a plane; no phase: -1. */
struct line_place {
    int32_t plane, phase, position;

    /* Among those of set bits and means. */
    __device__ __forceinline__ int64_t at(const xn_cuda_padded &l) const {
        return (int64_t)plane * l.plane + phase * l.phase + position;
    }
};

template <int V>
__device__ __forceinline__ pack_place place_of(const pack_args &a, int32_t pixel) {
    pack_place p;
    p.plane = xn_divide(pixel / V, a.plane_vectors);
    const int32_t rest = pixel - p.plane * (int32_t)a.plane_vectors.divisor * V;
    p.y = xn_divide(rest, a.width);
    p.x = rest - p.y * (int32_t)a.width.divisor;
    return p;
}

__device__ __forceinline__ line_place line_of(const xn_cuda_padded &l, const pack_place &p) {
    line_place to = {p.plane, 0, 0};
    to.position = xn_cuda_padded_position(&l, p.y, p.x, &to.phase);
    return to;
}

/* A pixel's magnitudes of XN_PANEL channels again, where fp32 does not hold their sum. */
template <typename T, int V>
__device__ __forceinline__ double sum_again(const pack_args &a, int32_t pixel, int32_t panel) {
    const int32_t plane = xn_divide(pixel / V, a.plane_vectors);
    const int32_t at = pixel - plane * (int32_t)a.plane_vectors.divisor * V;
    const char *from = (const char *)a.input + plane * a.slab + panel * a.plane;
    const int32_t count = min(a.group_channels - panel, (int32_t)XN_PANEL);
    double sum = 0.0;
#pragma unroll 1
    for (int32_t c = 0; c < count; c++, from += a.plane)
        sum += fabs((double)xn_to_fp32(((const T *)from)[at]));
    return sum;
}

/* Fours of words, going on from `sum`, of a pixel's sums of C channels each, `pitch` apart. There
 * are 1, 2 or a multiple of 4 words. */
template <int C>
__device__ __forceinline__ float sum_of_words(float sum, const float *sums, int32_t pitch,
                                              int32_t words) {
    const auto word = [&](int32_t w) {
        const float *rows = sums + w * (32 / C) * pitch;
        return xn_fours<32 / C>([&](int r) { return rows[r * pitch]; });
    };
    if (words < 4)
        return words < 2 ? word(0) : word(0) + word(1);
#pragma unroll 1
    for (int32_t w = 0; w < words; w += 4)
        sum += xn_fours<4>([&](int n) { return word(w + n); });
    return sum;
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

template <int C>
__device__ __forceinline__ void write_bits(const pack_args &a, const unsigned char *bits,
                                           int32_t first_pixel, int32_t block_pixels,
                                           int32_t first_word) {
    const int32_t words = a.rows * C / 32, left = a.pixels - first_pixel;
    /* From the block's last thread on: the first ones have the sums. */
    for (int32_t e = (int32_t)(blockDim.x - 1 - threadIdx.x); e < block_pixels * words;
         e += (int32_t)blockDim.x) {
        const int32_t p = xn_divide(e, a.panel_words), w = e - p * words;
        if (p < left && first_word + w < a.tap_words)
            a.bits[(int64_t)(first_pixel + p) * a.tap_words + first_word + w] =
                word_at<C>(bits, a.pitch, p, w);
    }
}

/* WORDS words of a pixel, from word w on, into lines: in its own position and, where a pixel has
 * less than 16 bytes, in those whose taps to the right it is. */
template <int WORDS>
__device__ __forceinline__ void put_line(const pack_args &a, const line_place &p, int32_t w,
                                         const uint32_t (&word)[WORDS]) {
    const xn_cuda_padded &l = a.lines;
    if (WORDS == 4) {
        uint4 *to = (uint4 *)a.bits + ((int64_t)p.plane * l.units + w / 4) * l.plane +
                    p.phase * l.phase + p.position;
        *to = make_uint4(word[0], word[WORDS / 2 - 1], word[WORDS / 2], word[WORDS - 1]);
        return;
    }
    /* with a stride of 2 every other tap is of columns of the other parity */
    const int32_t odd = p.phase >= l.phases_h, row = p.phase - odd * l.phases_h;
    uint32_t *to = a.bits + ((int64_t)p.plane * l.plane + row * l.phase) * 4;
#pragma unroll
    for (int j = 0; j < 4 / WORDS; j++) {
        const int32_t at = p.position - (j * l.step >> l.odd_w);
        if ((j * l.step & l.odd_w) != odd)
            continue;
        if (at < 0)
            break;
        if (WORDS == 2)
            *(uint2 *)(to + at * 4 + 2 * j) = make_uint2(word[0], word[WORDS - 1]);
        else
            to[at * 4 + j] = word[0];
    }
}

/* What lies between lines of a phase: zeros, by the warps that have the pixels before them. Of a
 * panel's units; set bits and means with the last panel. */
template <int V, int WORDS>
__device__ __forceinline__ void put_zeros(const pack_args &a, int32_t first_pixel,
                                          int32_t block_pixels, int32_t first_word, int32_t words,
                                          bool last) {
    const xn_cuda_padded &l = a.lines;
    const int32_t lane = threadIdx.x % 32, count = min(block_pixels, a.pixels - first_pixel);
    const int32_t units = min(words, l.tap_words - first_word) / WORDS;
    const uint32_t zero[WORDS] = {};
    for (int32_t e = (int32_t)threadIdx.x; e - lane < count; e += (int32_t)blockDim.x) {
        line_place own = {};
        int32_t to = 0, top = 0; /* positions above the phase's first pixel */
        if (e < count) {
            const pack_place p = place_of<V>(a, first_pixel + e);
            own = line_of(l, p);
            const int32_t first = own.position - (p.x >> l.odd_w); /* pixel of the line */
            if (own.phase >= 0 && p.x + 1 + l.odd_w >= (int32_t)a.width.divisor) {
                const bool bottom = p.y + 1 + l.odd_h >= a.height;
                to = bottom ? l.phase : first + l.pitch;
                top = bottom ? first - (p.y >> l.odd_h) * l.pitch : 0;
            }
        }
        /* a phase may end with its last pixel and still have lines above the first */
        const bool zeros = own.position + 1 < to || to == l.phase;
        for (uint32_t some = __ballot_sync(0xffffffffu, zeros); some; some &= some - 1) {
            const int32_t source = __ffs((int32_t)some) - 1;
            const int32_t begin = __shfl_sync(0xffffffffu, own.position, source) + 1;
            const int32_t end = __shfl_sync(0xffffffffu, to, source);
            const int32_t above = __shfl_sync(0xffffffffu, top, source); /* with the last line */
            line_place there = {__shfl_sync(0xffffffffu, own.plane, source),
                                __shfl_sync(0xffffffffu, own.phase, source), 0};
            for (int32_t n = lane; n < end - begin + above; n += 32) {
                there.position = n < above ? n : begin + n - above;
                for (int32_t unit = 0; unit < units; unit++)
                    put_line<WORDS>(a, there, first_word + unit * WORDS, zero);
                if (last && a.popc)
                    a.popc[there.at(l)] = 0;
                if (last && a.mean)
                    a.mean[there.at(l)] = 0.0f;
            }
        }
    }
}

/* As write_bits, into lines; WORDS: 1, 2 or 4, of a store. */
template <int V, int C, int WORDS>
__device__ __forceinline__ void write_lines(const pack_args &a, const unsigned char *bits,
                                            int32_t first_pixel, int32_t block_pixels,
                                            int32_t first_word, bool last) {
    const int32_t pieces = max(a.rows * C / 32 / PIECE_WORDS, 1), left = a.pixels - first_pixel;
    /* neighbours are neighbours of one unit */
    for (int32_t e = (int32_t)(blockDim.x - 1 - threadIdx.x); e < block_pixels * pieces;
         e += (int32_t)blockDim.x) {
        const int32_t piece = WORDS < 4 ? 0 : xn_divide(e / V, a.block_vectors);
        const int32_t p = e - piece * block_pixels, w = piece * PIECE_WORDS;
        if (p >= left || first_word + w >= a.tap_words)
            continue;
        const line_place place = line_of(a.lines, place_of<V>(a, first_pixel + p));
        if (place.phase < 0)
            continue;
        uint32_t word[WORDS];
#pragma unroll
        for (int n = 0; n < WORDS; n++)
            word[n] = word_at<C>(bits, a.pitch, p, w + n);
        put_line<WORDS>(a, place, first_word + w, word);
    }
    put_zeros<V, WORDS>(a, first_pixel, block_pixels, first_word, a.rows * C / 32, last);
}

/* What a thread has of its pixel from panel to panel of the block. */
struct pack_sums {
    float panel;  /* of epilogue.cuh's panel so far */
    double total; /* of the panels before */
    int32_t count;
};

/* Means and counts of the block's pixels. Where there are several panels a thread has one pixel at
 * most. */
template <typename T, int V, int C, int LAYOUT>
__device__ __forceinline__ void
add_panel(const pack_args &a, const unsigned char *bits, const float *sums, int32_t first_pixel,
          int32_t block_pixels, int32_t panel, bool last, pack_sums *so_far) {
    const int32_t words = a.rows * C / 32, panel_of_sums = panel / XN_PANEL * XN_PANEL;
    const bool whole = last || panel + words * 32 == panel_of_sums + XN_PANEL;
    for (int32_t p = threadIdx.x; p < block_pixels; p += (int32_t)blockDim.x) {
        const int32_t pixel = first_pixel + p;
        if (pixel >= a.pixels)
            break;
        int64_t at = pixel;
        if (LAYOUT == LINED) {
            const line_place place = line_of(a.lines, place_of<V>(a, pixel));
            if (place.phase < 0)
                continue;
            at = place.at(a.lines);
        }
        if (a.mean) {
            const float sum = sum_of_words<C>(so_far->panel, sums + p, block_pixels, words);
            const bool again = sums_overflow<T>() && isinf(sum);
            so_far->panel = whole ? 0.0f : sum;
            if (last && panel_of_sums == 0 && !again) {
                a.mean[at] = xn_mean(sum, (float)a.reciprocal);
            } else if (whole) {
                so_far->total += again ? sum_again<T, V>(a, pixel, panel_of_sums) : (double)sum;
                if (last)
                    a.mean[at] = xn_mean_again(so_far->total, a.reciprocal);
            }
        }
        if (a.popc) {
#pragma unroll 1
            for (int32_t w = 0; w < words; w++)
                so_far->count += __popc(word_at<C>(bits, a.pitch, p, w));
            if (last)
                a.popc[at] = so_far->count;
        }
        if (last)
            *so_far = {};
    }
}

template <typename T, int V, int C, int LAYOUT>
__global__ void __launch_bounds__(MAX_THREADS, LAYOUT == LINED && C == 8 ? 3 : 0)
    pack_kernel(const __grid_constant__ pack_args a) {
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
    int32_t panel = 0;
    pack_sums so_far = {};
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
            make_sums<T, V, C>(raw, channels, magnitudes);
            store_sums(sums + row * block_pixels + at * V, magnitudes);
        }
        __syncthreads();
        add_panel<T, V, C, LAYOUT>(a, bits, sums, first_pixel, block_pixels, panel, last, &so_far);
        if (LAYOUT == PLAIN)
            write_bits<C>(a, bits, first_pixel, block_pixels, panel / 32);
        else if (a.tap_words == 1)
            write_lines<V, C, 1>(a, bits, first_pixel, block_pixels, 0, last);
        else if (a.tap_words == 2)
            write_lines<V, C, 2>(a, bits, first_pixel, block_pixels, 0, last);
        else
            write_lines<V, C, 4>(a, bits, first_pixel, block_pixels, panel / 32, last);
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

#define KERNELS(T, LAYOUT)                                                                         \
    { pack_kernel<T, 4, 16, LAYOUT>, pack_kernel<T, 2, 8, LAYOUT>, pack_kernel<T, 1, 32, LAYOUT> }
#define SINGLES(T, LAYOUT)                                                                         \
    { NULL, NULL, pack_kernel<T, 1, 32, LAYOUT> }
#define ALL_KERNELS(LAYOUT)                                                                        \
    {                                                                                              \
        KERNELS(float, LAYOUT), KERNELS(__half, LAYOUT), SINGLES(xn_bf16_bits, LAYOUT),            \
            SINGLES(int8_t, LAYOUT), SINGLES(uint8_t, LAYOUT), SINGLES(xn_bool_byte, LAYOUT)       \
    }
/* By layout, by datatype, XN_FP32 to XN_BOOL, and cut. What comes from the host alone, over a
 * slower way than memory, has one. */
static const pack_function kernels[2][6][CUTS] = {ALL_KERNELS(PLAIN), ALL_KERNELS(LINED)};

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
    const int32_t factor = !kernels[0][conv->input_datatype][WIDE]                 ? 1
                           : plane % 4 == 0 && (uintptr_t)input % (4 * bytes) == 0 ? 4
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
    s.rows = std::min(std::min(channels, (int32_t)XN_PANEL) / c, threads / side);
    s.vectors = std::min(std::max((128 / s.rows + 3) / 4 * 4, side), threads / s.rows / 4 * 4);
    return s;
}

static cudaError_t launch_shape(const xn_conv *conv, const pack_shape &s, int64_t plane,
                                int64_t pixels, pack_args a, int layout, bool overlapped,
                                cudaStream_t stream) {
    const int32_t v = cuts[s.cut].vector, c = cuts[s.cut].channels;
    const int32_t block_pixels = s.vectors << v;
    a.pixels = (int32_t)pixels;
    a.vectors = a.pixels >> v;
    a.plane_vectors = xn_fast_divisor_of((int32_t)std::min(plane, SLICE_PIXELS) >> v);
    a.block_vectors = xn_fast_divisor_of(s.vectors);
    a.panel_words = xn_fast_divisor_of(s.rows * c / 32);
    a.rows = s.rows;
    a.pitch = block_pixels + 4; /* neither bank by bank nor out of alignment */
    a.sums_at = (s.rows * a.pitch * (c / 8) + 15) / 16 * 16;
    const size_t shared = (size_t)a.sums_at + (a.mean ? s.rows * block_pixels * 4 : 0);
    return xn_cuda_launch_with(kernels[layout][conv->input_datatype][s.cut],
                               xn_cuda_grid(pixels, block_pixels), s.rows * s.vectors, shared,
                               overlapped, stream, a);
}

/* Starting early is for small grids: the blocks of a large one would be spread over the chip by the
 * room that the kernel ahead happens to leave. */
cudaError_t xn_cuda_pack_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                const void *input, uint32_t *bits, int32_t *popc, float *mean,
                                xn_cuda_bits_layout layout, bool overlapped, cudaStream_t stream) {
    const int64_t plane = (int64_t)conv->height * conv->width;
    const int64_t pixels = plane * images * conv->groups;
    const int64_t bytes = (int64_t)xn_datatype_bytes((xn_datatype)conv->input_datatype);
    pack_args a = {};
    a.plane = plane * bytes;
    a.slab = a.plane * conv->group_channels;
    a.reciprocal = 1.0 / conv->group_channels;
    a.group_channels = conv->group_channels;
    a.tap_words = xn_packed_words(conv->group_channels);
    if (layout == XN_CUDA_AS_PADDED)
        a.lines = xn_cuda_padded_of(conv);
    a.width = xn_fast_divisor_of(conv->width);
    a.height = conv->height;
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
        e = launch_shape(conv, shape, plane, count, a, layout, overlapped && shape.few, stream);
    }
    return e;
}

cudaError_t xn_cuda_pack_load(void) {
    cudaError_t e = cudaSuccess;
    for (const pack_function(&layout)[6][CUTS] : kernels)
        for (const pack_function(&datatype)[CUTS] : layout)
            for (pack_function kernel : datatype)
                if (e == cudaSuccess && kernel)
                    e = xn_cuda_load(kernel);
    return e;
}
