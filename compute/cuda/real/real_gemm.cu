/* real_gemm.cu: modes bwn and float in fp32, as an implicit GEMM without matrix units: M = 64
 * filters of a group, N = 64 output pixels of all images, K = its channels times taps in the order
 * of the weights. A thread has 8 filters and 4 neighbouring pixels.
 *
 * Sums are those of real.cu: fp32 over runs of RUN terms, which are what a block has of K at a
 * time, added up in double; results that are not finite are taken again in double throughout. Taps
 * outside the image are multiplied too, by the filler, so weights must be finite. */
#include "real_gemm.h"

#include "epilogue.cuh"
#include "launch.cuh"
#include "ptx.cuh"

enum {
    M = 64,
    N = 64,
    RUN = 32,
    TM = 8, /* of a thread */
    TN = 4,
    THREADS = M / TM * (N / TN),
    PITCH = M + 4,           /* floats; M is N */
    EACH = M * RUN / THREADS /* values of either operand that a thread brings */
};
static_assert(M == N && EACH == 16, "both operands are brought alike");

struct gemm_args {
    xn_conv conv;
    const void *input;
    const float *weights;
    xn_epilogue_args out;
    xn_fast_divisor plane, width, kernel, kernel_w; /* outputs of a filter and image; taps */
    int64_t pixels;                                 /* of all images */
    int32_t terms;                                  /* K */
    bool vectors;                                   /* outputs and residuals by four */
};

/* A term of K as a window has it: what its pixel is from the window's first. */
struct gemm_term {
    int32_t offset, y, x;
};

struct gemm_shared {
    float filters[2][RUN][PITCH], pixels[2][RUN][PITCH];
    gemm_term terms[2][RUN];
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

/* ---- operands ---- */

/* What a thread brings of a run: of the filters four neighbouring terms of every 16th, of the
 * pixels every second term of one. */
struct gemm_held {
    float filters[EACH], pixels[EACH];
};

__device__ __forceinline__ void bring_filters(const gemm_args &a, int64_t first, int32_t live,
                                              int32_t run, gemm_held &held) {
    const int32_t row = (int32_t)threadIdx.x / 8, k = run * RUN + (int32_t)threadIdx.x % 8 * 4;
    const bool signs = a.conv.mode == XN_MODE_BWN;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int32_t m = row + r * 16;
            float w = 0.0f;
            if (m < live && k + e < a.terms) {
                w = __ldg(a.weights + (first + m) * a.terms + k + e);
                if (signs)
                    w = xn_sign_bit(w) ? 1.0f : -1.0f;
            }
            held.filters[r * 4 + e] = w;
        }
}

template <typename T>
__device__ __forceinline__ void bring_pixels(const gemm_args &a, const gemm_pixel &p, const T *from,
                                             int32_t run, const gemm_term *terms, gemm_held &held) {
    const xn_conv &c = a.conv;
    const float outside = (float)c.pad_value;
#pragma unroll
    for (int r = 0; r < EACH; r++) {
        const int32_t k = (int32_t)threadIdx.x / N + r * 2;
        const gemm_term t = terms[k];
        const bool inside =
            (uint32_t)(p.y + t.y) < (uint32_t)c.height && (uint32_t)(p.x + t.x) < (uint32_t)c.width;
        const bool exists = p.exists && run * RUN + k < a.terms;
        held.pixels[r] = exists ? outside : 0.0f;
        if (exists && inside)
            held.pixels[r] = xn_real_fp32(from[t.offset]);
    }
}

__device__ __forceinline__ void put(const gemm_held &held, gemm_shared &s, int32_t at) {
    const int32_t row = (int32_t)threadIdx.x / 8, k = (int32_t)threadIdx.x % 8 * 4;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        s.filters[at][k + n % 4][row + n / 4 * 16] = held.filters[n];
        s.pixels[at][(int32_t)threadIdx.x / N + n * 2][threadIdx.x % N] = held.pixels[n];
    }
}

/* ---- products ---- */

__device__ __forceinline__ void load_four(const float *from, float *to) {
    const float4 v = *(const float4 *)from;
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

__device__ __forceinline__ void multiply_run(const gemm_shared &s, int32_t at, int32_t m, int32_t n,
                                             double (&total)[TM][TN]) {
    float run[TM][TN] = {};
#pragma unroll 8
    for (int k = 0; k < RUN; k++) {
        float x[TM], y[TN];
        load_four(&s.filters[at][k][m], x);
        load_four(&s.filters[at][k][m + 4], x + 4);
        load_four(&s.pixels[at][k][n], y);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                run[i][j] = fmaf(y[j], x[i], run[i][j]);
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            total[i][j] += run[i][j];
}

/* ---- outputs ---- */

/* A sum again, in double throughout. */
__device__ __noinline__ double sum_again(const gemm_args &a, const gemm_pixel &p, int64_t plane,
                                         int64_t filter) {
    const xn_conv &c = a.conv;
    double sum = 0;
    for (int32_t k = 0; k < a.terms; k++) {
        const gemm_term t = term_of(a, k);
        const bool inside =
            (uint32_t)(p.y + t.y) < (uint32_t)c.height && (uint32_t)(p.x + t.x) < (uint32_t)c.width;
        const float w = a.weights[filter * a.terms + k];
        const int64_t at = plane + (int64_t)p.y * c.width + p.x + t.offset;
        const double x =
            inside ? (double)xn_read_real(a.input, c.input_datatype, at) : (double)c.pad_value;
        if (inside || c.pad_value)
            sum += c.mode == XN_MODE_BWN ? (xn_sign_bit(w) ? x : -x) : x * (double)w;
    }
    return sum;
}

/* V neighbouring pixels of filter o; index: of the first output. Their bits come back. */
template <int V>
__device__ __forceinline__ uint32_t write_outputs(const gemm_args &a, int64_t o, int64_t index,
                                                  float (&y)[V]) {
    uint32_t bits = 0;
    if (a.out.what.residual) {
        xn_residual_vector<V> residual;
        residual.load(a.out, index, true);
#pragma unroll
        for (int v = 0; v < V; v++)
            y[v] += residual.at(a.out, v);
    }
    const xn_activation_of_filter activate(a.out, o);
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (a.out.what.activation != XN_ACTIVATION_NONE)
            y[v] = activate(y[v]);
        if (a.out.what.bits)
            bits |= xn_output_bit(a.out, o, y[v]) << v;
    }
    if (a.out.what.datatype != XN_BITS)
        xn_store_reals(a.out, xn_part_index(a.out, index, a.out.output_gap), y);
    return bits;
}

/* The 8 filters of a thread: a byte of a pixel's words, where they have no others. */
__device__ __forceinline__ void store_bits(const gemm_args &a, const gemm_pixel &p, int32_t o,
                                           uint32_t bits) {
    const xn_conv &c = a.conv;
    const int64_t pixel = p.image * a.plane.divisor + p.out;
    if (xn_has_half_words(c))
        ((uint8_t *)a.out.bits)[pixel * (c.out_channels / 8) + o / 8] = (uint8_t)bits;
    else
        xn_add_bits(a.out, c.out_channels, pixel, o, bits);
}

template <int V>
__device__ __forceinline__ void write_pixels(const gemm_args &a, int32_t group, int32_t first,
                                             int64_t number, const double (&total)[TM][TN]) {
    const xn_conv &c = a.conv;
    const int64_t in_plane = (int64_t)c.group_channels * c.height * c.width;
    uint32_t bits[TN] = {};
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const int32_t o = group * c.group_out_channels + first + i;
        if (first + i >= c.group_out_channels)
            break;
#pragma unroll
        for (int j = 0; j < TN; j += V) {
            const gemm_pixel p = pixel_of(a, number + j);
            float y[V];
            if (!p.exists)
                continue;
#pragma unroll
            for (int v = 0; v < V; v++) {
                double sum = total[i][j + v];
                if (!isfinite(sum))
                    sum = sum_again(a, pixel_of(a, number + j + v),
                                    (p.image * c.groups + group) * in_plane, o);
                y[v] = xn_value_again(a.out, o, sum, 1.0);
            }
            const int64_t index = (p.image * c.out_channels + o) * (int64_t)a.plane.divisor + p.out;
            const uint32_t own = write_outputs<V>(a, o, index, y);
#pragma unroll
            for (int v = 0; v < V; v++)
                bits[j + v] |= (own >> v & 1u) << i;
        }
    }
    if (a.out.what.bits && first < c.group_out_channels)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            const gemm_pixel p = pixel_of(a, number + j);
            if (p.exists)
                store_bits(a, p, group * c.group_out_channels + first, bits[j]);
        }
}

__global__ void __launch_bounds__(THREADS, 3)
    real_gemm_kernel(const __grid_constant__ gemm_args a) {
    __shared__ __align__(16) gemm_shared s;
    const xn_conv &c = a.conv;
    const int32_t group = (int32_t)blockIdx.z, m0 = (int32_t)blockIdx.y * M;
    const int64_t n0 = (int64_t)blockIdx.x * N, first = (int64_t)group * c.group_out_channels + m0;
    const int32_t live = c.group_out_channels - m0, runs = (a.terms - 1) / RUN + 1;
    const int32_t m = (int32_t)threadIdx.x / (N / TN) * TM,
                  n = (int32_t)threadIdx.x % (N / TN) * TN;
    const gemm_pixel own = pixel_of(a, n0 + threadIdx.x % N);
    const int64_t start =
        (own.image * c.groups + group) * c.group_channels * ((int64_t)c.height * c.width) +
        (int64_t)own.y * c.width + own.x;
    double total[TM][TN] = {};
    gemm_held held;
    const auto bring = [&](int32_t run) {
        bring_filters(a, first, live, run, held);
        xn_with_input(a.input, c.input_datatype, [&](auto *input) {
            bring_pixels(a, own, input + start, run, s.terms[run % 2], held);
        });
    };
    const auto make_terms = [&](int32_t run) {
        if (threadIdx.x < RUN)
            s.terms[run % 2][threadIdx.x] = term_of(a, run * RUN + (int32_t)threadIdx.x);
    };
    make_terms(0);
    make_terms(1);
    xn_let_next_kernel_start();
    __syncthreads();
    xn_wait_for_previous_kernel();
    bring(0);
    put(held, s, 0);
    __syncthreads();
#pragma unroll 1
    for (int32_t run = 0; run < runs; run++) {
        const bool more = run + 1 < runs;
        if (more)
            bring(run + 1);
        multiply_run(s, run % 2, m, n, total);
        if (more)
            put(held, s, (run + 1) % 2);
        make_terms(run + 2); /* where those of this run are */
        __syncthreads();
    }
    if (a.vectors)
        write_pixels<TN>(a, group, m0 + m, n0 + n, total);
    else
        write_pixels<1>(a, group, m0 + m, n0 + n, total);
}

/* ---- launcher ---- */

bool xn_cuda_real_gemm_fits(const xn_conv *c, int64_t images) {
    enum { LEAST_FILTERS = 16, MOST = 1 << 30 };
    const int64_t terms = (int64_t)c->group_channels * c->kernel_h * c->kernel_w;
    const int64_t outputs = (int64_t)c->out_height * c->out_width;
    const int64_t span = ((int64_t)c->height + c->kernel_h * (int64_t)c->dilation_h) *
                         ((int64_t)c->width + c->kernel_w * (int64_t)c->dilation_w);
    return c->mode != XN_MODE_XNOR && c->group_out_channels >= LEAST_FILTERS && terms <= MOST / 4 &&
           span <= MOST / c->group_channels && outputs <= MOST / images &&
           (c->group_out_channels - 1) / M < 65535 && c->groups < 65535;
}

cudaError_t xn_cuda_real_gemm_launch(const xn_conv *conv, int64_t images, const void *input,
                                     const float *weights, bool overlapped,
                                     const xn_epilogue_args *epilogue, cudaStream_t stream) {
    gemm_args a = {};
    a.conv = *conv;
    a.input = input;
    a.weights = weights;
    a.out = xn_epilogue_of(conv, epilogue);
    a.plane = xn_fast_divisor_of(conv->out_height * conv->out_width);
    a.width = xn_fast_divisor_of(conv->out_width);
    a.kernel = xn_fast_divisor_of(conv->kernel_h * conv->kernel_w);
    a.kernel_w = xn_fast_divisor_of(conv->kernel_w);
    a.pixels = images * conv->out_height * conv->out_width;
    a.terms = conv->group_channels * conv->kernel_h * conv->kernel_w;
    a.vectors = conv->out_height * conv->out_width % TN == 0 && xn_residual_has_vectors(a.out, TN);
    const dim3 grid((unsigned)((a.pixels - 1) / N + 1),
                    (unsigned)((conv->group_out_channels - 1) / M + 1), (unsigned)conv->groups);
    const bool clears = conv->epilogue.bits && !xn_has_half_words(*conv);
    const cudaError_t e = clears ? xn_clear_bits(conv, images, epilogue, stream) : cudaSuccess;
    return e != cudaSuccess ? e
                            : xn_cuda_launch_with(real_gemm_kernel, grid, THREADS, 0,
                                                  overlapped && !clears, stream, a);
}

cudaError_t xn_cuda_real_gemm_load(void) {
    return xn_cuda_load(real_gemm_kernel);
}
