/* op_value.cuh: the values of op.cuh's blocks: what is read, the accumulators of a step's kind, and
 * the epilogue that stores them. */
#ifndef XN_CUDA_OP_VALUE_CUH
#define XN_CUDA_OP_VALUE_CUH

#include "epilogue.cuh"
#include "op.h"

#include <type_traits>

/* The image that a pixel of all images is of. */
XN_HD int64_t xn_op_image(const xn_op_args &a, int64_t pixel) {
    return a.pixels <= INT32_MAX ? xn_divide((int32_t)pixel, a.plane_of) : pixel / a.plane;
}

/* ---- reading ---- */

XN_HD float xn_op_bit(uint32_t word, int32_t bit) {
    return word >> bit & 1u ? 1.0f : -1.0f;
}

/* Channel c of pixel p of an image. */
XN_HD float xn_op_element(const xn_op_args &a, int64_t image, int32_t c, int64_t p) {
    if (a.datatype == XN_BITS) {
        const int64_t pixel = (image * a.in_plane + p) * a.in_unit;
        return a.layout == XN_LAYOUT_BYTES
                   ? xn_op_bit(((const uint8_t *)a.input)[pixel + c / 8], c % 8)
                   : xn_op_bit(((const uint32_t *)a.input)[pixel + c / 32], c % 32);
    }
    const int64_t at = a.layout == XN_LAYOUT_NHWC ? p * a.channels + c : c * a.in_plane + p;
    return xn_read_real(a.input, a.datatype, image * a.input_pitch + at);
}

/* V neighbours of FP32 or FP16 as they lie in memory, from an address aligned to all of them. */
template <int V>
struct xn_op_run {
    uint32_t word[V]; /* of FP16 the first half */

    XN_HD void load(const void *from, bool fp16, int64_t index) {
        if (fp16)
            copy<V * 2>((const __half *)from + index);
        else
            copy<V * 4>((const float *)from + index);
    }
    XN_HD void to_fp32(bool fp16, float (&v)[V]) const {
        XN_UNROLL
        for (int n = 0; n < V; n++)
            if (fp16)
                v[n] = xn_to_fp32(__ushort_as_half((uint16_t)(word[n / 2] >> n % 2 * 16)));
            else
                v[n] = xn_fp32_of_bits(word[n]);
    }

  private:
    template <int BYTES>
    XN_HD void copy(const void *from) {
#ifdef __CUDA_ARCH__
        if constexpr (BYTES >= 4)
            xn_load_words((const uint32_t *)from, *(uint32_t(*)[BYTES / 4]) word);
        else
            word[0] = *(const uint16_t *)from;
#else
        memset(word, 0, sizeof word);
        memcpy(word, from, BYTES);
#endif
    }
};

/* ---- accumulators: xn_step.h's kinds ---- */

XN_HD float xn_op_gate(const xn_op_args &a, int64_t image, int32_t c) {
    return xn_read_real(a.second, a.second_datatype, image * a.second_pitch + c);
}

/* Rounded by itself, whatever it is added to. */
XN_HD float xn_op_product(float x, float y) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(x, y);
#else
    return x * y;
#endif
}

XN_HD float xn_op_quantized(const xn_op_args &a, float v) {
    const xn_attributes &with = a.attributes;
    float level = rintf(v / with.quantum);
    level = level < with.low ? with.low : level; /* NaN stays */
    level = level > with.high ? with.high : level;
    return xn_op_product(level, with.quantum);
}

/* map, mul or quantize of neighbours of a channel. */
template <int V>
XN_HD void xn_op_by_kind(const xn_op_args &a, int64_t image, int32_t c, float (&acc)[V]) {
    if (a.kind == XN_STEP_MAP)
        return;
    if (a.kind == XN_STEP_MUL) {
        const float gate = xn_op_gate(a, image, c);
        XN_UNROLL
        for (int n = 0; n < V; n++)
            acc[n] = xn_op_product(acc[n], gate);
    }
    if (a.kind == XN_STEP_QUANTIZE)
        XN_UNROLL
    for (int n = 0; n < V; n++)
        acc[n] = xn_op_quantized(a, acc[n]);
}

XN_HD float xn_op_curve(const xn_op_args &a, int64_t pixel, float v) {
    if (a.kind == XN_STEP_SIGMOID)
        return (float)(1.0 / (1.0 + exp(-(double)v)));
    const xn_op_pixel &s = a.stats[pixel];
    return (float)(exp((double)v - (double)s.greatest) / s.sum);
}

/* The taps of an output that lie in the image. */
struct xn_op_window {
    int32_t y, x; /* of tap (0, 0) */
    int32_t i0, i1, j0, j1;
};

XN_HD xn_op_window xn_op_window_of(const xn_op_args &a, int64_t p) {
    xn_op_window w;
    w.y = (int32_t)(p / a.out_width) * a.stride_h - a.pad_top;
    w.x = (int32_t)(p % a.out_width) * a.stride_w - a.pad_left;
    if (a.dilation_h == 1 && a.dilation_w == 1) { /* without divisions */
        xn_valid_taps(w.y, 1, a.kernel_h, a.height, &w.i0, &w.i1);
        xn_valid_taps(w.x, 1, a.kernel_w, a.width, &w.j0, &w.j1);
    } else {
        xn_valid_taps(w.y, a.dilation_h, a.kernel_h, a.height, &w.i0, &w.i1);
        xn_valid_taps(w.x, a.dilation_w, a.kernel_w, a.width, &w.j0, &w.j1);
    }
    return w;
}

/* Calls action with every `step`-th of these pixels of the input from number `first` on, line by
 * line. */
template <class Action>
XN_HD void xn_op_over(const xn_op_args &a, const xn_op_window &w, int32_t first, int32_t step,
                      Action action) {
    const int32_t columns = w.j1 - w.j0;
    int32_t i = w.i0, j = w.j0 + first;
    if (columns < 1)
        return;
    for (;;) {
        while (j >= w.j1) {
            j -= columns;
            i++;
        }
        if (i >= w.i1)
            return;
        action((int64_t)(w.y + i * a.dilation_h) * a.width + w.x + j * a.dilation_w);
        j += step;
    }
}

/* Whether max_pool takes the least of a channel. */
XN_HD bool xn_op_turned(const xn_op_args &a, int32_t c) {
    return a.turned && xn_read_only(a.turned + c) < 0.0f;
}

/* What pools make of values one after the other, the start of it, and what two of that are
 * together. A double has all that fp32 has. */
struct xn_op_pool {
    bool average, least;

    XN_HD double start() const {
        return average ? 0.0 : least ? (double)INFINITY : -(double)INFINITY;
    }
    XN_HD double join(double so_far, double value) const {
        if (average)
            return so_far + value;
        return (least ? value < so_far : value > so_far) ? value : so_far; /* not NaN */
    }
};

XN_HD xn_op_pool xn_op_pool_of(const xn_op_args &a, int32_t c) {
    return {a.kind == XN_STEP_AVG_POOL, xn_op_turned(a, c)};
}

/* Of every `step`-th of `count` neighbours from number `first` on. */
template <typename T>
XN_HD double xn_op_pooled_row(const xn_op_pool &pool, const T *from, int32_t count, int32_t first,
                              int32_t step) {
    double value = pool.start();
    for (; first < count; first += 8 * step) {
        T v[8] = {}; /* loads in flight */
        XN_UNROLL
        for (int32_t n = 0; n < 8; n++)
            if (first + n * step < count)
                v[n] = from[first + n * step];
        XN_UNROLL
        for (int32_t n = 0; n < 8; n++)
            if (first + n * step < count)
                value = pool.join(value, (double)xn_to_fp32(v[n]));
    }
    return value;
}

/* Of every `step`-th value of the window from number `first` on. */
XN_HD double xn_op_pooled(const xn_op_args &a, const xn_op_window &w, int64_t image, int32_t c,
                          int32_t first, int32_t step) {
    const xn_op_pool pool = xn_op_pool_of(a, c);
    const bool real = a.datatype == XN_FP32 || a.datatype == XN_FP16;
    if (real && a.layout != XN_LAYOUT_NHWC && w.j1 - w.j0 == a.width && a.dilation_h == 1) {
        const int64_t from = image * a.input_pitch + c * a.in_plane + (w.y + w.i0) * a.width;
        const int32_t count = (w.i1 - w.i0) * a.width;
        return a.datatype == XN_FP16
                   ? xn_op_pooled_row(pool, (const __half *)a.input + from, count, first, step)
                   : xn_op_pooled_row(pool, (const float *)a.input + from, count, first, step);
    }
    double value = pool.start();
    xn_op_over(a, w, first, step,
               [&](int64_t p) { value = pool.join(value, (double)xn_op_element(a, image, c, p)); });
    return value;
}

/* The accumulator, of what the whole window came to. */
XN_HD float xn_op_pool_value(const xn_op_args &a, const xn_op_window &w, double value) {
    const int64_t taps = a.attributes.count_padding ? (int64_t)a.kernel_h * a.kernel_w
                                                    : (int64_t)(w.i1 - w.i0) * (w.j1 - w.j0);
    return (float)(a.kind == XN_STEP_AVG_POOL ? value / (double)taps : value);
}

/* ---- square windows of a few columns, from whole planes of reals ---- */

/* V outputs of a channel, one below the other, whose first window begins at (y, x) of the plane
 * `from`; what windows share of a row is read once. S: the stride. Only those of 3x3 may be partly
 * outside, and only the greatest of those are taken. */
template <int K, int S, bool AVERAGE, int V, typename T>
XN_HD void xn_op_pool_rows(const xn_op_args &a, const T *from, int32_t y, int32_t x,
                           float (&acc)[V]) {
    const T *row = from + y * a.width + x;
    float value[(V - 1) * S + K][K];
    XN_UNROLL
    for (int i = 0; i < (V - 1) * S + K; i++, row += a.width)
        XN_UNROLL
    for (int j = 0; j < K; j++) {
        const bool inside = K == 2 || ((uint32_t)(y + i) < (uint32_t)a.height &&
                                       (uint32_t)(x + j) < (uint32_t)a.width);
        value[i][j] = inside ? xn_to_fp32(row[j]) : -INFINITY;
    }
    XN_UNROLL
    for (int v = 0; v < V; v++) {
        std::conditional_t<AVERAGE, double, float> so_far = AVERAGE ? 0.0f : -INFINITY;
        XN_UNROLL
        for (int n = 0; n < K * K; n++) {
            const float next = value[v * S + n / K][n % K];
            if (AVERAGE)
                so_far += next;
            else
                so_far = next > so_far ? next : so_far; /* not NaN */
        }
        acc[v] = (float)(AVERAGE ? so_far / (K * K) : so_far);
    }
}

/* ---- the epilogue ---- */

/* By instructions that the compiler does not take apart. */
template <typename T, int V>
XN_HD void xn_op_store(T *to, const float (&v)[V]) {
#ifdef __CUDA_ARCH__
    xn_store_if(to, v, true);
#else
    xn_store(to, v);
#endif
}

/* Shifts STEP bits into `bits` from below, of which the upper says whether y + shift is at least 0:
 * the difference is -0 or less there. NaN has no sign here. */
template <int STEP>
XN_HD uint32_t xn_op_add_sign(uint32_t bits, float y, float shift) {
#ifdef __CUDA_ARCH__
    return __funnelshift_l(__float_as_uint(__fadd_rd(-y, -shift)), bits, STEP);
#else
    return bits << STEP | xn_sign_bit(y + shift) << (STEP - 1);
#endif
}

/* The real outputs of V accumulators of a channel; residual(add) says what is added where there is
 * something. Their bits come back, STEP from one to the next. */
template <int STEP, int V, class Residual>
XN_HD uint32_t xn_op_outputs(const xn_op_args &a, int32_t c, const float (&acc)[V],
                             Residual residual, float (&y)[V]) {
    const xn_epilogue &what = a.e.what;
    uint32_t bits = 0;
    const float factor = a.linear ? xn_factor_of(a.e.factor, c) : 1.0f;
    const float bias = a.linear ? xn_bias_of(a.e.bias, c) : -0.0f; /* with 1 they keep numbers */
    float zero = 0.0f; /* NaN where an output is not finite: one test for all, as it is rare */
    XN_UNROLL
    for (int n = 0; n < V; n++) {
        y[n] = xn_value(acc[n], 1.0f, {factor, bias});
        zero = fmaf(y[n], 0.0f, zero);
    }
    if (a.linear && isnan(zero))
        XN_UNROLL
    for (int n = 0; n < V; n++)
        y[n] = isfinite(y[n]) ? y[n] : xn_value_again(a.e, c, acc[n], 1.0);
    if (what.residual) {
        float add[V];
        residual(add);
        XN_UNROLL
        for (int n = 0; n < V; n++)
            y[n] += add[n];
    }
    if (what.activation != XN_ACTIVATION_NONE) {
        const bool clips = what.activation == XN_ACTIVATION_CLIP;
        const float slope = clips ? 1.0f : xn_read_only(a.e.slope + c);
        XN_UNROLL
        for (int n = 0; n < V; n++)
            y[n] = y[n] >= 0.0f ? y[n] : y[n] * slope;
        if (clips)
            XN_UNROLL
        for (int n = 0; n < V; n++)
            y[n] = xn_activate(a.e, c, y[n]);
    }
    if (what.bits) {
        const float shift = what.shift ? xn_read_only(a.e.shift + c) : 0.0f;
        XN_UNROLL
        for (int n = V - 1; n >= 0; n--)
            bits = xn_op_add_sign<STEP>(bits, y[n], shift);
        bits = bits >> (STEP - 1) & UINT32_MAX / ((1u << STEP) - 1);
    }
    return bits;
}

/* The same of neighbours, with their residuals as they lie, stored from index `out` on. */
template <int V, int STEP = 1>
XN_HD uint32_t xn_op_finish(const xn_op_args &a, int32_t c, int64_t out, const float (&acc)[V],
                            const xn_op_run<V> &residual, bool fp16) {
    float y[V];
    const uint32_t bits = xn_op_outputs<STEP>(
        a, c, acc, [&](float(&add)[V]) { residual.to_fp32(fp16, add); }, y);
    if (a.e.what.datatype == XN_FP32)
        xn_op_store((float *)a.e.output + out, y);
    else if (a.e.what.datatype == XN_FP16)
        xn_op_store((__half *)a.e.output + out, y);
    return bits;
}

/* The same of outputs that lie apart, which are T as their residuals are: beside(n), to(n). */
template <typename T, int STEP, int V, class Beside, class To>
XN_HD uint32_t xn_op_finish_apart(const xn_op_args &a, int32_t c, const float (&acc)[V],
                                  Beside beside, To to) {
    T residual[V] = {};
    float y[V];
    XN_UNROLL
    for (int n = 0; n < V && a.e.what.residual; n++)
        residual[n] = *beside(n);
    const auto add_residual = [&](float(&add)[V]) {
        XN_UNROLL
        for (int n = 0; n < V; n++)
            add[n] = xn_to_fp32(residual[n]);
    };
    const uint32_t bits = xn_op_outputs<STEP>(a, c, acc, add_residual, y);
    if (a.e.what.datatype != XN_BITS)
        XN_UNROLL
    for (int n = 0; n < V; n++)
        xn_store(to(n), {y[n]});
    return bits;
}

#endif
