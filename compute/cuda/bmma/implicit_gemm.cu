/* implicit_gemm.cu: mode xnor as an implicit GEMM over bits, for the matrix units of sm_80 and
 * later.
 *
 *   C[filter, pixel] = sum over words of popc(row[filter][word] and patch[pixel][word])
 *
 * for one group: M = its filters, N = the output pixels of all images, K = the words of a filter
 * row (layout.h: tap-major, whole steps of 256 bits). Patches are never written out: each step
 * copies, for every pixel of the tile, the 8 words under the filters' 8, in units of a tap's
 * words, straight from the packed activations; a unit outside the image is zero. Copies run STAGES
 * - 1 steps ahead of the matrix instructions; one barrier a step.
 *
 * Rows of 8 words lie one after the other in shared memory: a thread's 8-byte read (words 2t and
 * 2t + 1 of row g) makes a warp read 256 successive bytes, without bank conflicts. That takes the
 * two words as blocks t and t + 4 of the instruction, in a and b alike, which AND does not mind.
 *
 * Bound by the matrix units for many channels, by writing the output for few. */
#include "epilogue.cuh"
#include "launch.cuh"
#include "layout.h"
#include "ptx.cuh"

enum {
    STAGES = 4,
    STEP = XN_CUDA_STEP_WORDS,
    MAX_KERNEL = 255, /* tap numbers fit a byte */
};

struct gemm_args {
    xn_conv conv;
    xn_cuda_bit_args bits;
    xn_epilogue_args out;
    int64_t pixels; /* images * OH * OW */
    int64_t row_words;
    int32_t tap_words, steps;
    int32_t tiles_m, tiles_n;
};

/* One output pixel of the tile. */
struct gemm_pixel {
    int64_t output; /* index of the group's first filter at this pixel */
    int32_t plane;  /* image * groups + group; -1 past the last pixel */
    float box;      /* of K, or 1 */
    int32_t pixel_part;
    int32_t y0, x0; /* where the window starts in the image, maybe outside */
    uint8_t i0, i1, j0, j1;
};

/* One filter of the tile. */
struct gemm_filter {
    xn_filter constants;
    int32_t popc; /* of all taps */
};

/* The pipeline's stages, and in the same place, once it has run, 16 rows of every warp's counts:
 * rows are 8 words longer than they need be, so that neighbouring ones begin in other banks. */
template <int BM, int BN, int WM, int WN>
struct gemm_shared {
    static constexpr int PITCH = WN + 8;
    union {
        struct {
            alignas(16) uint32_t rows[STAGES][BM][STEP];
            alignas(16) uint32_t patches[STAGES][BN][STEP];
        };
        int32_t counts[BM / WM * (BN / WN)][16 * PITCH];
    };
    gemm_pixel pixels[BN];
    gemm_filter filters[BM];
};

__device__ __forceinline__ gemm_filter make_filter(const gemm_args &a, int32_t group, int32_t m) {
    const xn_conv &c = a.conv;
    const int64_t pitch = (int64_t)(c.kernel_h + 1) * (c.kernel_w + 1);
    gemm_filter f = {};
    if (m < c.group_out_channels) {
        const int64_t filter = (int64_t)group * c.group_out_channels + m;
        f.constants = xn_filter_of(a.out, filter);
        f.popc = a.bits.prefix[filter * pitch + pitch - 1];
    }
    return f;
}

__device__ __forceinline__ gemm_pixel make_pixel(const gemm_args &a, int32_t group, int64_t p) {
    const xn_conv &c = a.conv;
    const int64_t plane_outputs = (int64_t)c.out_height * c.out_width;
    gemm_pixel pixel = {};
    pixel.plane = -1;
    if (p >= a.pixels)
        return pixel;
    const int64_t image = p / plane_outputs, rest = p % plane_outputs;
    const int32_t out_y = (int32_t)(rest / c.out_width), out_x = (int32_t)(rest % c.out_width);
    const xn_cuda_rect rect = xn_cuda_valid_rect(&c, out_y, out_x);
    pixel.plane = (int32_t)(image * c.groups + group);
    pixel.output = (int64_t)pixel.plane * c.group_out_channels * plane_outputs + rest;
    const int64_t at = pixel.plane * plane_outputs + rest;
    pixel.pixel_part = a.bits.pixel_part[at];
    pixel.box = a.bits.box ? a.bits.box[at] : 1.0f;
    pixel.y0 = out_y * c.stride_h - c.pad_top;
    pixel.x0 = out_x * c.stride_w - c.pad_left;
    pixel.i0 = (uint8_t)rect.i0;
    pixel.i1 = (uint8_t)rect.i1;
    pixel.j0 = (uint8_t)rect.j0;
    pixel.j1 = (uint8_t)rect.j1;
    return pixel;
}

/* ---- copying a step into shared memory ---- */

/* What one thread copies of the patches: unit `unit` of the step, of every ROW_STRIDE-th pixel. */
template <int BN, int THREADS, int VEC>
struct patch_loader {
    static constexpr int UNITS = STEP / VEC; /* copies a row and step */
    static constexpr int ROW_STRIDE = THREADS / UNITS;
    static constexpr int ROWS = (BN + ROW_STRIDE - 1) / ROW_STRIDE;

    int32_t plane[ROWS]; /* -1: zeros */
    int32_t y0[ROWS], x0[ROWS];
    xn_cuda_walk walk;

    __device__ __forceinline__ int32_t unit() const {
        return (int32_t)threadIdx.x % UNITS;
    }
    __device__ __forceinline__ int32_t row(int r) const {
        return (int32_t)threadIdx.x / UNITS + r * ROW_STRIDE;
    }

    __device__ __forceinline__ void start(const gemm_args &a, const gemm_pixel *pixels) {
        const xn_conv &c = a.conv;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            plane[r] = -1;
            y0[r] = x0[r] = 0;
            if (row(r) < BN && pixels[row(r)].plane >= 0) {
                const gemm_pixel &p = pixels[row(r)];
                plane[r] = p.plane;
                y0[r] = p.y0;
                x0[r] = p.x0;
            }
        }
        walk = {0, 0, 0};
        xn_cuda_walk_advance(&walk, unit() * VEC, a.tap_words, c.kernel_w);
    }

    /* Starts the copies of the next step, then moves on by one step. */
    __device__ __forceinline__ void copy(const gemm_args &a, uint32_t (*patches)[STEP]) {
        const xn_conv &c = a.conv;
        const bool tap_exists = walk.i < c.kernel_h;
        const int32_t dy = tap_exists ? walk.i * c.dilation_h : 0, dx = walk.j * c.dilation_w;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (row(r) >= BN)
                break;
            const int32_t y = y0[r] + dy, x = x0[r] + dx;
            const bool inside =
                tap_exists && plane[r] >= 0 && y >= 0 && y < c.height && x >= 0 && x < c.width;
            const uint32_t *from = a.bits.bits;
            if (inside)
                from +=
                    (((int64_t)plane[r] * c.height + y) * c.width + x) * a.tap_words + walk.word;
            xn_copy_async<VEC * 4>(&patches[row(r)][unit() * VEC], from, inside);
        }
        xn_cuda_walk_advance(&walk, STEP, a.tap_words, c.kernel_w);
    }
};

/* Filter rows are contiguous: 2 copies of 16 bytes a row and step. */
template <int BM, int THREADS>
__device__ __forceinline__ void copy_rows(const gemm_args &a, int32_t group, int32_t m0,
                                          int32_t step, uint32_t (*rows)[STEP]) {
    for (int32_t u = threadIdx.x; u < BM * 2; u += THREADS) {
        const int32_t m = m0 + u / 2;
        const bool live = m < a.conv.group_out_channels;
        const int64_t filter = (int64_t)group * a.conv.group_out_channels + (live ? m : 0);
        xn_copy_async<16>(&rows[u / 2][u % 2 * 4],
                          a.bits.rows + filter * a.row_words + (int64_t)step * STEP + u % 2 * 4,
                          live);
    }
}

/* ---- a step of matrix instructions ---- */

template <int WM, int WN>
__device__ __forceinline__ void multiply(const uint32_t (*rows)[STEP],
                                         const uint32_t (*patches)[STEP],
                                         int32_t (&acc)[WM / 16][WN / 8][4]) {
    const int32_t g = (threadIdx.x & 31) / 4, t = threadIdx.x & 3;
    uint32_t b[WN / 8][2];
#pragma unroll
    for (int n = 0; n < WN / 8; n++) {
        const uint2 words = *(const uint2 *)&patches[n * 8 + g][t * 2];
        b[n][0] = words.x;
        b[n][1] = words.y;
    }
#pragma unroll
    for (int m = 0; m < WM / 16; m++) {
        const uint2 upper = *(const uint2 *)&rows[m * 16 + g][t * 2];
        const uint2 lower = *(const uint2 *)&rows[m * 16 + 8 + g][t * 2];
        const uint32_t fragment[4] = {upper.x, lower.x, upper.y, lower.y};
#pragma unroll
        for (int n = 0; n < WN / 8; n++)
            xn_mma_and_popc(acc[m][n], fragment, b[n]);
    }
}

/* ---- from counts to outputs ---- */

__device__ __forceinline__ int32_t filter_part(const gemm_args &a, const gemm_pixel &pixel,
                                               int64_t filter, int32_t popc_w) {
    const xn_conv &c = a.conv;
    int32_t inside = popc_w;
    const xn_cuda_rect rect = {pixel.i0, pixel.i1, pixel.j0, pixel.j1};
    if (xn_cuda_rect_taps(&rect) < c.kernel_h * c.kernel_w) {
        const int64_t pitch = (int64_t)(c.kernel_h + 1) * (c.kernel_w + 1);
        inside = xn_cuda_rect_popc(a.bits.prefix + filter * pitch, c.kernel_w, &rect);
    }
    return xn_cuda_filter_part(c.pad_value, inside, popc_w - inside);
}

/* The output of a filter, number m of its group, at a pixel. */
__device__ __forceinline__ void write_dot(const gemm_args &a, const gemm_pixel &pixel,
                                          const xn_filter &f, int64_t filter, int32_t m,
                                          int32_t dot) {
    const xn_conv &c = a.conv;
    const int32_t plane_outputs = c.out_height * c.out_width;
    const int64_t index = pixel.output + (int64_t)m * plane_outputs;
    if (a.out.what.datatype == XN_INT32) {
        ((int32_t *)a.out.output)[index] = dot;
        return;
    }
    float v[1] = {xn_value_or_again(a.out, f, filter, (float)dot, pixel.box, [&] {
        const float *means = a.bits.mean + (int64_t)pixel.plane * c.height * c.width;
        return xn_box_of_means<double>(c, means, (pixel.y0 + c.pad_top) / c.stride_h,
                                       (pixel.x0 + c.pad_left) / c.stride_w);
    })};
    const uint32_t bit = xn_finish_and_store(a.out, filter, index, v);
    if (a.out.what.bits)
        xn_add_bits(a.out, c.out_channels,
                    pixel.output % plane_outputs +
                        (int64_t)(pixel.plane / c.groups) * plane_outputs,
                    (int32_t)filter, bit);
}

/* Turns a warp's counts, 16 filters at a time, so that a lane has one pixel and neighbouring lanes
 * store neighbouring outputs. */
template <int WM, int WN, int PITCH>
__device__ __forceinline__ void write_outputs(const gemm_args &a, const gemm_pixel *pixels,
                                              const gemm_filter *filters, int32_t group, int32_t m0,
                                              int32_t *counts,
                                              const int32_t (&acc)[WM / 16][WN / 8][4]) {
    const xn_conv &c = a.conv;
    const int32_t lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;
    const int32_t column = lane % WN;
    const int64_t plane_outputs = (int64_t)c.out_height * c.out_width;
    const gemm_pixel pixel = pixels[column];
    const int32_t live = pixel.plane >= 0 ? c.group_out_channels - m0 : 0;
#pragma unroll
    for (int m = 0; m < WM; m += 16) {
#pragma unroll
        for (int n = 0; n < WN / 8; n++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(int2 *)&counts[(g + h * 8) * PITCH + n * 8 + t * 2] =
                    make_int2(acc[m / 16][n][h * 2], acc[m / 16][n][h * 2 + 1]);
        __syncwarp();
#pragma unroll 2
        for (int32_t row = lane / WN; row < 16; row += 32 / WN)
            if (m + row < live) {
                const gemm_filter f = filters[m + row];
                const int64_t filter = (int64_t)group * c.group_out_channels + m0 + m + row;
                const int32_t dot =
                    xn_cuda_dot(pixel.pixel_part, filter_part(a, pixel, filter, f.popc),
                                counts[row * PITCH + column]);
                write_dot(a, pixel, f.constants, filter, m0 + m + row, dot);
            }
        __syncwarp();
    }
}

/* ---- the kernel: BM filters by BN pixels a block, WM by WN a warp, copies of VEC words ---- */

template <int BM, int BN, int WM, int WN, int VEC, int MIN_BLOCKS>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, MIN_BLOCKS)
    gemm_kernel(const __grid_constant__ gemm_args a) {
    constexpr int THREADS = BM / WM * (BN / WN) * 32;
    __shared__ gemm_shared<BM, BN, WM, WN> s;
    int32_t block = (int32_t)blockIdx.x;
    const int32_t m0 = block % a.tiles_m * BM;
    block /= a.tiles_m;
    const int64_t p0 = (int64_t)(block % a.tiles_n) * BN;
    const int32_t group = block / a.tiles_n;
    for (int32_t p = threadIdx.x; p < BN; p += THREADS)
        s.pixels[p] = make_pixel(a, group, p0 + p);
    for (int32_t m = threadIdx.x; m < BM; m += THREADS)
        s.filters[m] = make_filter(a, group, m0 + m);
    __syncthreads();

    patch_loader<BN, THREADS, VEC> loader;
    loader.start(a, s.pixels);
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) {
        if (step < a.steps) {
            copy_rows<BM, THREADS>(a, group, m0, step, s.rows[step]);
            loader.copy(a, s.patches[step]);
        }
        xn_copy_commit();
    }

    const int32_t warp = (int32_t)threadIdx.x / 32;
    const int32_t wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
    int32_t acc[WM / 16][WN / 8][4] = {};
    for (int32_t step = 0; step < a.steps; step++) {
        xn_copy_wait<STAGES - 2>();
        __syncthreads(); /* this step has arrived for all; the stage refilled next is read no more
                          */
        const int32_t ahead = step + STAGES - 1;
        if (ahead < a.steps) {
            copy_rows<BM, THREADS>(a, group, m0, ahead, s.rows[ahead % STAGES]);
            loader.copy(a, s.patches[ahead % STAGES]);
        }
        xn_copy_commit();
        multiply<WM, WN>(s.rows[step % STAGES] + wm, s.patches[step % STAGES] + wn, acc);
    }
    __syncthreads(); /* no warp reads the stages any more, whose place the counts take */
    write_outputs<WM, WN, s.PITCH>(a, s.pixels + wn, s.filters + wm, group, m0 + wm, s.counts[warp],
                                   acc);
}

/* ---- launcher ---- */

typedef void (*gemm_function)(const gemm_args);

struct gemm_tile {
    int32_t bm, bn, threads;
    gemm_function by_vec[3]; /* copies of 1, 2, 4 words */
};

#define TILE(BM, BN, WM, WN, MIN_BLOCKS)                                                           \
    {                                                                                              \
        BM, BN, BM / WM *(BN / WN) * 32, {                                                         \
            gemm_kernel<BM, BN, WM, WN, 1, MIN_BLOCKS>,                                            \
                gemm_kernel<BM, BN, WM, WN, 2, MIN_BLOCKS>,                                        \
                gemm_kernel<BM, BN, WM, WN, 4, MIN_BLOCKS>                                         \
        }                                                                                          \
    }
/* From the least traffic per operation to the most blocks. */
static const gemm_tile tiles[] = {
    TILE(128, 128, 64, 32, 2),
    TILE(64, 64, 32, 32, 4),
    TILE(32, 32, 16, 16, 4),
};
enum { TILES = 3 };

static int64_t blocks_m(const xn_conv *c, const gemm_tile *t) {
    return (c->group_out_channels - 1) / t->bm + 1;
}

static int64_t blocks_n(const xn_conv *c, const gemm_tile *t, int64_t images) {
    return (images * c->out_height * c->out_width - 1) / t->bn + 1;
}

static int64_t blocks_of(const xn_conv *c, const gemm_tile *t, int64_t images) {
    return blocks_m(c, t) * blocks_n(c, t, images) * c->groups;
}

/* The largest tile that is not mostly empty and gives every multiprocessor a block. */
static const gemm_tile *choose_tile(const xn_conv *c, int64_t images, int multiprocessors) {
    for (int i = 0; i < TILES - 1; i++)
        if (c->group_out_channels > tiles[i].bm / 2 &&
            blocks_of(c, &tiles[i], images) >= multiprocessors)
            return &tiles[i];
    return &tiles[TILES - 1];
}

bool xn_cuda_implicit_gemm_fits(const xn_conv *c, int64_t images) {
    return c->kernel_h <= MAX_KERNEL && c->kernel_w <= MAX_KERNEL &&
           images * c->groups <= INT32_MAX && blocks_of(c, &tiles[TILES - 1], images) <= INT32_MAX;
}

cudaError_t xn_cuda_implicit_gemm_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                         const xn_cuda_bit_args *bits,
                                         const xn_epilogue_args *epilogue, cudaStream_t stream) {
    const gemm_tile *tile = choose_tile(conv, images, multiprocessors);
    gemm_args a = {};
    a.conv = *conv;
    a.bits = *bits;
    a.out = xn_epilogue_of(conv, epilogue);
    a.pixels = images * conv->out_height * conv->out_width;
    a.row_words = xn_cuda_row_words(conv->group_channels, conv->kernel_h, conv->kernel_w);
    a.tap_words = xn_packed_words(conv->group_channels);
    a.steps = (int32_t)(a.row_words / STEP);
    a.tiles_m = (int32_t)blocks_m(conv, tile);
    a.tiles_n = (int32_t)blocks_n(conv, tile, images);
    int64_t blocks = blocks_of(conv, tile, images);
    if (blocks > INT32_MAX)
        return cudaErrorInvalidConfiguration; /* xn_cuda_implicit_gemm_fits said so */
    const cudaError_t e = xn_clear_bits(conv, images, epilogue, stream);
    if (e != cudaSuccess)
        return e;
    int vec = a.tap_words == 1 ? 0 : a.tap_words == 2 ? 1 : 2;
    return xn_cuda_launch(tile->by_vec[vec], (int)blocks, tile->threads, 0, stream, a);
}

cudaError_t xn_cuda_implicit_gemm_load(void) {
    for (const gemm_tile &tile : tiles)
        for (gemm_function kernel : tile.by_vec) {
            cudaError_t e = xn_cuda_load(kernel);
            if (e != cudaSuccess)
                return e;
        }
    return cudaSuccess;
}
