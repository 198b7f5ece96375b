/* real_gemm.cu: modes bwn and float in fp32, as an implicit GEMM without matrix units: M = filters
 * of a group, N = output pixels of all images, K = its channels times taps in the order of the
 * weights. A block of 128 threads has M = 8 T by N = 16 T, a thread T by T: T = 8, or 4 where there
 * would be too few blocks for the chip. Copies to shared memory are one step of STEP terms ahead:
 * of 16 bytes for 1x1 kernels that read whole planes, of 4 for other windows of fp32.
 *
 * Sums are the same whatever T is: fp32 over runs of RUN terms, added up in fp32 where there are at
 * most RUNS of them, else in double. A run errs by at most RUN * 2^-24 of its magnitudes, less than
 * half of what xn_conv.h allows, and additions of RUNS by as much. Values that are not finite are
 * taken again in double throughout, without taps outside the image, which are else multiplied by
 * the filler: so weights need not be finite. */
#include "epilogue.cuh"
#include "launch.cuh"
#include "ptx.cuh"
#include "real.h"

enum { THREADS = 128, STEP = 16, RUN = 4 * STEP, RUNS = 64 };

struct gemm_args {
    xn_conv conv;
    const void *input;
    const float *weights;
    xn_epilogue_args out;
    xn_fast_divisor plane, width, kernel, kernel_w; /* outputs of a filter and image; taps */
    xn_fast_divisor tiles_m, tiles_n;
    int64_t pixels;    /* of all images */
    int32_t terms;     /* K */
    bool whole_planes; /* a term of four neighbouring pixels is 16 bytes of the input */
    bool copies;       /* a term of a pixel is 4 bytes of the input, or 0 */
    bool vectors;      /* outputs and residuals by four */
};

/* A term of K as a window has it: what its pixel is from the window's first. */
struct gemm_term {
    int32_t offset, y, x;
};

template <int T>
struct gemm_tile {
    enum { M = 8 * T, N = 16 * T, PITCH = M + 4 };
};

template <int T>
struct gemm_shared {
    enum { M = gemm_tile<T>::M, N = gemm_tile<T>::N };
    gemm_term terms[2][STEP];
    union {
        struct {
            float filters[2][STEP][gemm_tile<T>::PITCH], pixels[2][STEP][N];
        };
        float values[M][N]; /* when no thread reads the operands any more */
    };
};

/* A block's place, and its first filter among those of all groups. */
struct gemm_place {
    int32_t group, m0;
    int64_t n0, filter;
    int32_t live; /* filters of the group from m0 on */
};

/* An output pixel: its image, and where its window starts, maybe outside. */
struct gemm_pixel {
    int64_t image;
    int32_t out, y, x; /* out: among the image's */
    bool exists;
};

__device__ __forceinline__ gemm_pixel pixel_of(const gemm_args &a, int64_t number) {
    const xn_conv &c = a.conv;
    gemm_pixel p;
    p.exists = number < a.pixels;
    const int32_t n = p.exists ? (int32_t)number : 0;
    const int32_t image = xn_divide(n, a.plane);
    p.image = image;
    p.out = n - image * (int32_t)a.plane.divisor;
    const int32_t row = xn_divide(p.out, a.width);
    p.y = row * c.stride_h - c.pad_top;
    p.x = (p.out - row * c.out_width) * c.stride_w - c.pad_left;
    return p;
}

__device__ __forceinline__ gemm_term term_of(const gemm_args &a, int32_t k) {
    const xn_conv &c = a.conv;
    const int32_t channel = xn_divide(k, a.kernel), tap = k - channel * (int32_t)a.kernel.divisor;
    const int32_t i = xn_divide(tap, a.kernel_w);
    gemm_term t;
    t.y = i * c.dilation_h;
    t.x = (tap - i * c.kernel_w) * c.dilation_w;
    t.offset = channel * c.height * c.width + t.y * c.width + t.x;
    return t;
}

/* Where the group's first channel of a pixel's window begins, or would. */
__device__ __forceinline__ int64_t group_start(const gemm_args &a, const gemm_pixel &p,
                                               int32_t group) {
    const xn_conv &c = a.conv;
    return (p.image * c.groups + group) * c.group_channels * ((int64_t)c.height * c.width) +
           (int64_t)p.y * c.width + p.x;
}

/* ---- operands ---- */

/* Filters are brought in PARTS, one after the other, so that a thread holds no more than four
 * neighbouring terms of a filter. */
template <int T>
struct gemm_filters {
    enum { M = gemm_tile<T>::M, PARTS = STEP * M / 4 / THREADS };
    float held[4];

    static __device__ __forceinline__ int32_t filter_of(int part) {
        return ((int32_t)threadIdx.x + part * THREADS) / 2 % M;
    }
    static __device__ __forceinline__ int32_t term_of(int part) {
        const int32_t number = (int32_t)threadIdx.x + part * THREADS;
        return number % 2 * 4 + number / (2 * M) * 8;
    }
    __device__ __forceinline__ void load(const gemm_args &a, const gemm_place &at, int32_t step,
                                         int part) {
        const int32_t m = filter_of(part), k = step * STEP + term_of(part);
        const float *from = a.weights + (at.filter + m) * a.terms + k;
        const int32_t left = m < at.live ? a.terms - k : 0;
        uint32_t word[4] = {};
        if (a.terms % 4 == 0)
            xn_load_16_if(word, from, left > 0);
        else
#pragma unroll
            for (int e = 0; e < 4; e++)
                xn_load_4_if(word + e, from + e, e < left);
#pragma unroll
        for (int e = 0; e < 4; e++)
            held[e] = __uint_as_float(word[e]);
    }
    __device__ __forceinline__ void store(const gemm_args &a, gemm_shared<T> &s, int32_t step,
                                          int part) const {
        const bool signs = a.conv.mode == XN_MODE_BWN;
#pragma unroll
        for (int e = 0; e < 4; e++)
            s.filters[step % 2][term_of(part) + e][filter_of(part)] = !signs ? held[e]
                                                                      : xn_sign_bit(held[e])
                                                                          ? 1.0f
                                                                          : -1.0f;
    }
};

/* The pixel whose terms a thread brings, or the first of four. */
template <int T>
__device__ __forceinline__ int32_t own_pixel(const gemm_args &a) {
    enum { N = gemm_tile<T>::N };
    return a.whole_planes ? (int32_t)threadIdx.x % (N / 4) * 4 : (int32_t)threadIdx.x % N;
}

/* from: the window of p in the group's first channel. */
template <int T>
__device__ __forceinline__ void bring_fours(const gemm_args &a, const gemm_pixel &p,
                                            const float *from, int32_t step, gemm_shared<T> &s) {
    enum { EACH = THREADS / (gemm_tile<T>::N / 4) };
#pragma unroll
    for (int r = 0; r < STEP / EACH; r++) {
        const int32_t k = (int32_t)threadIdx.x / (gemm_tile<T>::N / 4) + r * EACH;
        xn_copy_ahead<16>(&s.pixels[step % 2][k][own_pixel<T>(a)],
                          from + (int64_t)(step * STEP + k) * a.plane.divisor,
                          p.exists && step * STEP + k < a.terms ? 16 : 0);
    }
}

template <int T, class Move>
__device__ __forceinline__ void each_term(const gemm_args &a, const gemm_pixel &p, int32_t step,
                                          const gemm_shared<T> &s, Move move) {
    enum { EACH = THREADS / gemm_tile<T>::N };
#pragma unroll
    for (int r = 0; r < STEP / EACH; r++) {
        const int32_t k = (int32_t)threadIdx.x / gemm_tile<T>::N + r * EACH;
        const gemm_term t = s.terms[step % 2][k];
        const bool exists = p.exists && step * STEP + k < a.terms;
        const bool inside = (uint32_t)(p.y + t.y) < (uint32_t)a.conv.height &&
                            (uint32_t)(p.x + t.x) < (uint32_t)a.conv.width;
        move(r, k, t.offset, exists, inside);
    }
}

/* Of any datatype and filler: loads, all at once, then stores. */
template <int T, typename Input>
__device__ __forceinline__ void bring_values(const gemm_args &a, const gemm_pixel &p,
                                             const Input *from, int32_t step, gemm_shared<T> &s) {
    enum { EACH = THREADS / gemm_tile<T>::N };
    float value[STEP / EACH];
    each_term<T>(a, p, step, s, [&](int r, int32_t, int32_t offset, bool exists, bool inside) {
        value[r] = exists ? (float)a.conv.pad_value : 0.0f;
        if (exists && inside)
            value[r] = xn_real_fp32(from[offset]);
    });
#pragma unroll
    for (int r = 0; r < STEP / EACH; r++)
        s.pixels[step % 2][(int32_t)threadIdx.x / gemm_tile<T>::N + r * EACH][own_pixel<T>(a)] =
            value[r];
}

template <int T>
__device__ __forceinline__ void bring_pixels(const gemm_args &a, const gemm_pixel &p, int64_t start,
                                             int32_t step, gemm_shared<T> &s) {
    if (a.whole_planes) {
        bring_fours<T>(a, p, (const float *)a.input + start, step, s);
    } else if (a.copies) {
        const float *from = (const float *)a.input + start;
        each_term<T>(a, p, step, s, [&](int, int32_t k, int32_t offset, bool exists, bool inside) {
            xn_copy_ahead<4>(&s.pixels[step % 2][k][own_pixel<T>(a)], from + offset,
                             exists && inside ? 4 : 0);
        });
    } else {
        xn_with_input(a.input, a.conv.input_datatype,
                      [&](auto *input) { bring_values<T>(a, p, input + start, step, s); });
    }
    xn_copy_commit();
}

template <int T>
__device__ __forceinline__ void make_terms(const gemm_args &a, int32_t step, gemm_shared<T> &s) {
    if (!a.whole_planes && threadIdx.x < STEP)
        s.terms[step % 2][threadIdx.x] = term_of(a, step * STEP + (int32_t)threadIdx.x);
}

/* ---- products ---- */

/* Where a thread's filter i and pixel i are in the tile: fours of neighbours. Warps are 2 by 2,
 * their lanes 4 by 8. */
template <int T>
__device__ __forceinline__ int32_t filter_at(int i) {
    const int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
    return warp % 2 * (4 * T) + i / 4 * 16 + lane / 8 * 4 + i % 4;
}
template <int T>
__device__ __forceinline__ int32_t pixel_at(int j) {
    const int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
    return warp / 2 * (8 * T) + j / 4 * 32 + lane % 8 * 4 + j % 4;
}

template <int T>
__device__ __forceinline__ void load_fours(const float *from, int32_t apart, float (&to)[T]) {
#pragma unroll
    for (int i = 0; i < T; i += 4)
        xn_load_words(from + i / 4 * apart, *(float(*)[4])(to + i));
}

/* One of PARTS of a step. */
template <int T>
__device__ __forceinline__ void multiply(const gemm_shared<T> &s, int32_t at, int part,
                                         float (&run)[T][T]) {
    constexpr int TERMS = STEP / gemm_filters<T>::PARTS;
    const int32_t m = filter_at<T>(0), n = pixel_at<T>(0);
#pragma unroll
    for (int k = 0; k < TERMS; k++) {
        float x[T], y[T];
        load_fours(&s.filters[at][part * TERMS + k][m], 16, x);
        load_fours(&s.pixels[at][part * TERMS + k][n], 32, y);
#pragma unroll
        for (int i = 0; i < T; i++)
#pragma unroll
            for (int j = 0; j < T; j++)
                run[i][j] = fmaf(y[j], x[i], run[i][j]);
    }
}

/* Adds a run's sums and starts the next run. */
template <int T, typename Total>
__device__ __forceinline__ void end_run(float (&run)[T][T], Total (&total)[T][T]) {
#pragma unroll
    for (int i = 0; i < T; i++)
#pragma unroll
        for (int j = 0; j < T; j++) {
            total[i][j] += run[i][j];
            run[i][j] = 0.0f;
        }
}

/* ---- outputs ---- */

/* A value again, its sum in double throughout. */
__device__ __noinline__ float value_again(const gemm_args &a, int32_t group, int64_t number,
                                          int64_t filter) {
    const xn_conv &c = a.conv;
    const gemm_pixel p = pixel_of(a, number);
    const int64_t start = group_start(a, p, group);
    double sum = 0;
    for (int32_t k = 0; k < a.terms; k++) {
        const gemm_term t = term_of(a, k);
        const bool inside =
            (uint32_t)(p.y + t.y) < (uint32_t)c.height && (uint32_t)(p.x + t.x) < (uint32_t)c.width;
        const float w = a.weights[filter * a.terms + k];
        const double x = inside ? (double)xn_read_real(a.input, c.input_datatype, start + t.offset)
                                : (double)c.pad_value;
        if (inside || c.pad_value)
            sum += c.mode == XN_MODE_BWN ? (xn_sign_bit(w) ? x : -x) : x * (double)w;
    }
    return xn_value_again(a.out, filter, sum, 1.0);
}

/* The tile's values, from a thread's sums. */
template <int T, typename Total>
__device__ __forceinline__ void put_values(const gemm_args &a, const gemm_place &at,
                                           const Total (&total)[T][T], gemm_shared<T> &s) {
#pragma unroll
    for (int i = 0; i < T; i++) {
        const int32_t m = filter_at<T>(i);
        const xn_filter f = xn_filter_of(a.out, at.filter + min(m, at.live - 1));
#pragma unroll
        for (int j = 0; j < T; j += 4) {
            float v[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] = xn_value((float)total[i][j + e], 1.0f, f);
            xn_store(&s.values[m][pixel_at<T>(j)], v);
        }
    }
}

/* V neighbouring outputs of filter o, from a pixel on; index: of the first. They take the place of
 * their values where bits are wanted. */
template <int V>
__device__ __forceinline__ void write_outputs(const gemm_args &a, const gemm_place &at, int64_t o,
                                              int64_t pixel, int64_t index,
                                              const xn_residual_vector<V> &residual, float *value) {
    float y[V];
#pragma unroll
    for (int v = 0; v < V; v++)
        y[v] = value[v];
#pragma unroll
    for (int v = 0; v < V; v++)
        if (!isfinite(y[v]))
            y[v] = value_again(a, at.group, pixel + v, o);
    xn_finish_vector(a.out, o, index, residual, y);
    if (a.out.what.bits)
#pragma unroll
        for (int v = 0; v < V; v++)
            value[v] = y[v];
}

/* A thread has V pixels of some filters. */
template <int T, int V>
__device__ __forceinline__ void write_rows(const gemm_args &a, const gemm_place &at,
                                           gemm_shared<T> &s) {
    enum { LANES = gemm_tile<T>::N / V, EACH = THREADS / LANES, BATCH = 4 };
    const int32_t column = (int32_t)threadIdx.x % LANES * V;
    const gemm_pixel p = pixel_of(a, at.n0 + column);
    const int32_t rows = p.exists ? min((int32_t)gemm_tile<T>::M, at.live) : 0;
    const int64_t plane = a.plane.divisor;
    const int64_t first = (p.image * a.conv.out_channels + at.filter) * plane + p.out;
#pragma unroll 1
    for (int32_t m = (int32_t)threadIdx.x / LANES; m < rows; m += BATCH * EACH) {
        xn_residual_vector<V> residual[BATCH];
#pragma unroll
        for (int r = 0; r < BATCH && a.out.what.residual; r++)
            residual[r].load(a.out, first + (m + r * EACH) * plane, m + r * EACH < rows);
#pragma unroll
        for (int r = 0; r < BATCH; r++)
            if (m + r * EACH < rows)
                write_outputs<V>(a, at, at.filter + m + r * EACH, at.n0 + column,
                                 first + (m + r * EACH) * plane, residual[r],
                                 &s.values[m + r * EACH][column]);
    }
}

/* A thread has a pixel and 32 filters at a time. */
template <int T>
__device__ __forceinline__ void write_bits(const gemm_args &a, const gemm_place &at,
                                           const gemm_shared<T> &s) {
    const int32_t n = (int32_t)threadIdx.x % gemm_tile<T>::N;
    const int64_t pixel = at.n0 + n;
    if (pixel >= a.pixels)
        return;
    for (int32_t m = (int32_t)threadIdx.x / gemm_tile<T>::N * 32;
         m < gemm_tile<T>::M && m < at.live; m += THREADS / gemm_tile<T>::N * 32) {
        const int32_t o = (int32_t)at.filter + m, count = min(32, at.live - m);
        uint32_t bits = 0;
#pragma unroll 4
        for (int32_t e = 0; e < count; e++)
            bits |= xn_output_bit(a.out, o + e, s.values[m + e][n]) << e;
        if (xn_has_half_words(a.conv))
            a.out.bits[pixel * (a.conv.out_channels / 32) + o / 32] = bits;
        else
            xn_add_bits(a.out, a.conv.out_channels, pixel, o, bits);
    }
}

/* ---- a block ---- */

template <int T>
__device__ __forceinline__ gemm_place place_of(const gemm_args &a) {
    const int32_t number = (int32_t)blockIdx.x, tile = xn_divide(number, a.tiles_m);
    gemm_place at;
    at.group = xn_divide(tile, a.tiles_n);
    at.m0 = (number - tile * (int32_t)a.tiles_m.divisor) * gemm_tile<T>::M;
    at.n0 = (int64_t)(tile - at.group * (int32_t)a.tiles_n.divisor) * gemm_tile<T>::N;
    at.filter = (int64_t)at.group * a.conv.group_out_channels + at.m0;
    at.live = a.conv.group_out_channels - at.m0;
    return at;
}

template <int T, typename Total>
__device__ __forceinline__ void sum_up(const gemm_args &a, const gemm_place &at, gemm_shared<T> &s,
                                       Total (&total)[T][T]) {
    const int32_t steps = (a.terms - 1) / STEP + 1;
    const gemm_pixel own = pixel_of(a, at.n0 + own_pixel<T>(a));
    const int64_t start = group_start(a, own, at.group);
    constexpr int PARTS = gemm_filters<T>::PARTS;
    float run[T][T] = {};
    gemm_filters<T> filters;
    make_terms<T>(a, 0, s);
    __syncthreads();
#pragma unroll 1
    for (int32_t step = -1; step < steps; step++) { /* the one before the first only brings */
        const bool more = step + 1 < steps;
        if (step >= 0) {
            xn_copy_wait<0>();
            __syncthreads();
        }
        if (more)
            bring_pixels<T>(a, own, start, step + 1, s);
        make_terms<T>(a, step + 2, s); /* where those of this step were */
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            if (more)
                filters.load(a, at, step + 1, part);
            if (step >= 0)
                multiply<T>(s, step % 2, part, run);
            if (more)
                filters.store(a, s, step + 1, part);
        }
        if (step % (RUN / STEP) == RUN / STEP - 1 || !more)
            end_run(run, total);
    }
}

template <int T, typename Total, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    real_gemm_kernel(const __grid_constant__ gemm_args a) {
    __shared__ __align__(16) gemm_shared<T> s;
    const gemm_place at = place_of<T>(a);
    Total total[T][T] = {};
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    sum_up(a, at, s, total);
    __syncthreads();
    put_values(a, at, total, s);
    __syncthreads();
    if (a.vectors)
        write_rows<T, 4>(a, at, s);
    else
        write_rows<T, 1>(a, at, s);
    if (!a.out.what.bits)
        return;
    __syncthreads();
    write_bits<T>(a, at, s);
}

/* ---- launcher ---- */

static int64_t blocks_of(const xn_conv *c, int64_t images, int32_t m, int32_t n) {
    const int64_t pixels = images * c->out_height * c->out_width;
    return ((c->group_out_channels - 1) / m + 1) * ((pixels - 1) / n + 1) * c->groups;
}

static void (*kernel_of(bool large, bool few))(const gemm_args) {
    if (large)
        return few ? real_gemm_kernel<8, float, 2> : real_gemm_kernel<8, double, 2>;
    return few ? real_gemm_kernel<4, float, 4> : real_gemm_kernel<4, double, 4>;
}

bool xn_cuda_real_gemm_fits(const xn_conv *c, int64_t images) {
    enum { MOST = 1 << 30 };
    const int64_t terms = (int64_t)c->group_channels * c->kernel_h * c->kernel_w;
    const int64_t outputs = (int64_t)c->out_height * c->out_width;
    const int64_t span = ((int64_t)c->height + c->kernel_h * (int64_t)c->dilation_h) *
                         ((int64_t)c->width + c->kernel_w * (int64_t)c->dilation_w);
    return c->mode != XN_MODE_XNOR && terms <= MOST / 4 && span <= MOST / c->group_channels &&
           outputs <= MOST / images &&
           blocks_of(c, images, gemm_tile<4>::M, gemm_tile<4>::N) <= MOST;
}

static gemm_args arguments(const xn_conv *conv, int64_t images, const xn_cuda_real_io *io,
                           const xn_epilogue_args *epilogue) {
    const int32_t plane = conv->out_height * conv->out_width;
    gemm_args a = {};
    a.conv = *conv;
    a.input = io->input;
    a.weights = (const float *)io->weights;
    a.out = xn_epilogue_of(conv, epilogue);
    a.plane = xn_fast_divisor_of(plane);
    a.width = xn_fast_divisor_of(conv->out_width);
    a.kernel = xn_fast_divisor_of(conv->kernel_h * conv->kernel_w);
    a.kernel_w = xn_fast_divisor_of(conv->kernel_w);
    a.pixels = images * plane;
    a.terms = conv->group_channels * conv->kernel_h * conv->kernel_w;
    a.copies = conv->input_datatype == XN_FP32 && !conv->pad_value;
    a.whole_planes = conv->input_datatype == XN_FP32 && a.terms == conv->group_channels &&
                     conv->height == conv->out_height && conv->width == conv->out_width &&
                     conv->stride_h == 1 && conv->stride_w == 1 && !conv->pad_top &&
                     !conv->pad_left && plane % 4 == 0 && (uintptr_t)io->input % 16 == 0;
    a.vectors = plane % 4 == 0 && xn_residual_has_vectors(a.out, 4);
    return a;
}

cudaError_t xn_cuda_real_gemm_launch(const xn_conv *conv, int64_t images, int multiprocessors,
                                     const xn_cuda_real_io *io, const xn_epilogue_args *epilogue,
                                     cudaStream_t stream) {
    if (xn_cuda_real_dense_fits(conv, images))
        return xn_cuda_real_dense_launch(conv, images, multiprocessors, io, epilogue, stream);
    gemm_args a = arguments(conv, images, io, epilogue);
    const bool large =
        blocks_of(conv, images, gemm_tile<8>::M, gemm_tile<8>::N) >= multiprocessors &&
        conv->group_out_channels > gemm_tile<4>::M;
    const int32_t t = large ? 8 : 4, m = 8 * t, n = 16 * t;
    const dim3 grid((unsigned)blocks_of(conv, images, m, n));
    a.tiles_m = xn_fast_divisor_of((conv->group_out_channels - 1) / m + 1);
    a.tiles_n = xn_fast_divisor_of((int32_t)((images * a.plane.divisor - 1) / n + 1));
    const bool clears = conv->epilogue.bits && !xn_has_half_words(*conv);
    const cudaError_t e = clears ? xn_clear_bits(conv, images, epilogue, stream) : cudaSuccess;
    return e != cudaSuccess ? e
                            : xn_cuda_launch_with(kernel_of(large, a.terms <= RUNS * RUN), grid,
                                                  THREADS, 0, io->overlapped && !clears, stream, a);
}

cudaError_t xn_cuda_real_gemm_load(bool *) {
    const cudaError_t e = xn_cuda_load(kernel_of(true, true), kernel_of(true, false),
                                       kernel_of(false, true), kernel_of(false, false));
    return e == cudaSuccess ? xn_cuda_real_dense_load() : e;
}
