/* op_value.cuh: the values of op.cuh's blocks: what is read, the accumulators of a step's kind, and
 * the epilogue that stores them. */
#ifndef XN_CUDA_OP_VALUE_CUH
#define XN_CUDA_OP_VALUE_CUH

#include "epilogue.cuh"
#include "op.h"

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

/* Channel c of V neighbouring pixels from p on; of three channels of bytes side by side from words
 * that hold all of them, which a compiler loads once. */
template <int V>
XN_HD void xn_op_few_elements(const xn_op_args &a, int64_t image, int32_t c, int64_t p,
                              float (&v)[V]) {
#ifdef __CUDA_ARCH__
    if (a.datatype == XN_UINT8 && a.layout == XN_LAYOUT_NHWC && a.channels == 3 && a.whole_words) {
        static_assert(V == 4, "12 bytes");
        const uint8_t *from = (const uint8_t *)a.input + image * a.input_pitch + p * 3;
        const uint32_t word[3] = {__ldg((const uint32_t *)from), __ldg((const uint32_t *)from + 1),
                                  __ldg((const uint32_t *)from + 2)};
        XN_UNROLL
        for (int n = 0; n < V; n++) {
            const uint32_t at = (uint32_t)(n * 3 + c);
            const uint32_t of = at < 4 ? word[0] : at < 8 ? word[1] : word[2];
            v[n] = (float)(of >> at % 4 * 8 & 255u);
        }
        return;
    }
#endif
    XN_UNROLL
    for (int n = 0; n < V; n++)
        v[n] = xn_op_element(a, image, c, p + n);
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
        if constexpr (BYTES == 16 || BYTES == 32) {
            XN_UNROLL
            for (int n = 0; n < BYTES / 16; n++) {
                const uint4 four = ((const uint4 *)from)[n];
                word[4 * n] = four.x, word[4 * n + 1] = four.y;
                word[4 * n + 2] = four.z, word[4 * n + 3] = four.w;
            }
        } else if constexpr (BYTES == 8) {
            const uint2 two = *(const uint2 *)from;
            word[0] = two.x, word[1] = two.y;
        } else if constexpr (BYTES == 4) {
            word[0] = *(const uint32_t *)from;
        } else {
            word[0] = *(const uint16_t *)from;
        }
#else
        memset(word, 0, sizeof word);
        memcpy(word, from, BYTES);
#endif
    }
};

template <int V>
XN_HD void xn_op_load(const void *from, bool fp16, int64_t index, float (&v)[V]) {
    xn_op_run<V> run;
    run.load(from, fp16, index);
    run.to_fp32(fp16, v);
}

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
    xn_valid_taps(w.y, a.dilation_h, a.kernel_h, a.height, &w.i0, &w.i1);
    xn_valid_taps(w.x, a.dilation_w, a.kernel_w, a.width, &w.j0, &w.j1);
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
    if (columns == a.width && a.dilation_h == 1) { /* rows are one string */
        const int64_t from = (int64_t)(w.y + w.i0) * a.width;
#ifdef __CUDA_ARCH__
#pragma unroll 3
#endif
        for (int64_t at = first; at < (int64_t)(w.i1 - w.i0) * columns; at += step)
            action(from + at);
        return;
    }
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

/* Of every `step`-th value of the window from number `first` on. */
XN_HD double xn_op_pooled(const xn_op_args &a, const xn_op_window &w, int64_t image, int32_t c,
                          int32_t first, int32_t step) {
    const xn_op_pool pool = xn_op_pool_of(a, c);
    const int64_t channel = image * a.input_pitch + c * a.in_plane;
    double value = pool.start();
    if (a.datatype == XN_FP32) {
        const float *from = (const float *)a.input + channel;
        xn_op_over(a, w, first, step,
                   [&](int64_t p) { value = pool.join(value, (double)from[p]); });
    } else if (a.datatype == XN_FP16) {
        const __half *from = (const __half *)a.input + channel;
        xn_op_over(a, w, first, step,
                   [&](int64_t p) { value = pool.join(value, (double)xn_to_fp32(from[p])); });
    } else {
        xn_op_over(a, w, first, step, [&](int64_t p) {
            value = pool.join(value, (double)xn_op_element(a, image, c, p));
        });
    }
    return value;
}

/* The accumulator, of what the whole window came to. */
XN_HD float xn_op_pool_value(const xn_op_args &a, const xn_op_window &w, double value) {
    const int64_t taps = a.attributes.count_padding ? (int64_t)a.kernel_h * a.kernel_w
                                                    : (int64_t)(w.i1 - w.i0) * (w.j1 - w.j0);
    return (float)(a.kind == XN_STEP_AVG_POOL ? value / (double)taps : value);
}

/* ---- square windows of a few columns, from whole planes of reals ---- */

template <bool FIRST, typename A, typename B>
struct xn_op_choose {
    typedef A type;
};
template <typename A, typename B>
struct xn_op_choose<false, A, B> {
    typedef B type;
};

/* A division of doubles takes as long as all the rest; by a power of two a product is the same. */
XN_HD float xn_op_mean(double sum, int32_t taps) {
    return (float)(taps == 4 ? sum * 0.25 : taps == 2 ? sum * 0.5 : sum / (double)taps);
}

/* Eight from an address aligned to 16 bytes. */
XN_HD void xn_op_load_eight(const float *from, bool inside, float none, float (&v)[8]) {
    float four[4] = {none, none, none, none};
    XN_UNROLL
    for (int half = 0; half < 2; half++) {
        if (inside)
            xn_op_load(from, false, half * 4, four);
        XN_UNROLL
        for (int n = 0; n < 4; n++)
            v[half * 4 + n] = four[n];
    }
}
XN_HD void xn_op_load_eight(const __half *from, bool inside, float none, float (&v)[8]) {
    __half eight[8];
    if (inside) {
#ifdef __CUDA_ARCH__
        *(uint4 *)eight = *(const uint4 *)from;
#else
        memcpy(eight, from, sizeof eight);
#endif
    }
    XN_UNROLL
    for (int n = 0; n < 8; n++)
        v[n] = inside ? xn_to_fp32(eight[n]) : none;
}

/* Where windows of V outputs begin in a row, and what of a row they have. VECTOR: 8 columns from
 * the first output's place on are whole, aligned and inside, with LEAD more before them. */
template <int KW, int S, int V, bool VECTOR>
struct xn_op_columns {
    enum { SPAN = (V - 1) * S + KW, LEAD = SPAN - 8 };
    float column[SPAN];

    /* Column x of the row is the first; what is outside is `none`. */
    template <typename T>
    XN_HD void load(const T *row, int32_t x, int32_t width, bool inside, float none) {
        if constexpr (VECTOR) {
            float eight[8];
            xn_op_load_eight(row + x + LEAD, inside, none, eight);
            if (LEAD)
                column[0] = inside && x >= 0 ? xn_real_fp32(row[x]) : none;
            XN_UNROLL
            for (int j = 0; j < 8; j++)
                column[LEAD + j] = eight[j];
        } else {
            XN_UNROLL
            for (int j = 0; j < SPAN; j++) {
                const bool live = inside && (uint32_t)(x + j) < (uint32_t)width;
                column[j] = live ? xn_real_fp32(row[x + j]) : none;
            }
        }
    }
};

/* V neighbouring outputs of a row of channel c, from output p of the plane on: rows are read once.
 * S: the stride. */
template <int KW, int S, int V, bool VECTOR, bool AVERAGE, typename T>
XN_HD void xn_op_pooled_columns(const xn_op_args &a, int64_t image, int32_t c, int64_t p,
                                float (&acc)[V]) {
    const int32_t out_y = (int32_t)p / a.out_width, out_x = (int32_t)p - out_y * a.out_width;
    const int32_t y0 = out_y * a.stride_h - a.pad_top, x0 = out_x * S - a.pad_left;
    const T *from = (const T *)a.input + image * a.input_pitch + c * a.in_plane;
    const float sign = xn_op_turned(a, c) ? -1.0f : 1.0f; /* the least is the greatest of these */
    typename xn_op_choose<AVERAGE, double, float>::type so_far[V];
    int32_t rows = 0;
    XN_UNROLL
    for (int v = 0; v < V; v++)
        so_far[v] = AVERAGE ? 0.0f : -INFINITY;
    XN_UNROLL
    for (int32_t i = 0; i < KW; i++) {
        const int32_t y = y0 + i * a.dilation_h;
        const bool inside = (uint32_t)y < (uint32_t)a.height;
        xn_op_columns<KW, S, V, VECTOR> row;
        row.load(from + (inside ? y : 0) * a.width, x0, a.width, inside,
                 AVERAGE ? 0.0f : -INFINITY * sign);
        rows += inside;
        XN_UNROLL
        for (int v = 0; v < V; v++)
            XN_UNROLL
        for (int j = 0; j < KW; j++) {
            const float x = row.column[v * S + j];
            if (AVERAGE)
                so_far[v] += x;
            else
                so_far[v] = x * sign > so_far[v] ? x * sign : so_far[v]; /* not NaN */
        }
    }
    XN_UNROLL
    for (int v = 0; v < V; v++) {
        int32_t j0, j1;
        xn_valid_taps(x0 + v * S, 1, KW, a.width, &j0, &j1);
        const int32_t taps = a.attributes.count_padding ? KW * KW : rows * (j1 - j0);
        acc[v] = AVERAGE ? xn_op_mean(so_far[v], taps) : (float)so_far[v] * sign;
    }
}

template <int KW, int S, int V, bool VECTOR, typename T>
XN_HD void xn_op_pooled_kind(const xn_op_args &a, int64_t image, int32_t c, int64_t p,
                             float (&acc)[V]) {
    if (a.kind == XN_STEP_AVG_POOL)
        xn_op_pooled_columns<KW, S, V, VECTOR, true, T>(a, image, c, p, acc);
    else
        xn_op_pooled_columns<KW, S, V, VECTOR, false, T>(a, image, c, p, acc);
}

template <int V, bool VECTOR, typename T>
XN_HD void xn_op_pooled_row(const xn_op_args &a, int64_t image, int32_t c, int64_t p,
                            float (&acc)[V]) {
    if (a.kernel_w == 2 && a.stride_w == 2)
        xn_op_pooled_kind<2, 2, V, VECTOR, T>(a, image, c, p, acc);
    else if (a.stride_w == 2)
        xn_op_pooled_kind<3, 2, V, VECTOR, T>(a, image, c, p, acc);
    else if constexpr (!VECTOR) {
        if (a.kernel_w == 2)
            xn_op_pooled_kind<2, 1, V, false, T>(a, image, c, p, acc);
        else
            xn_op_pooled_kind<3, 1, V, false, T>(a, image, c, p, acc);
    }
}

template <int V, bool VECTOR>
XN_HD void xn_op_pool_row(const xn_op_args &a, int64_t image, int32_t c, int64_t p,
                          float (&acc)[V]) {
    if (a.datatype == XN_FP16)
        xn_op_pooled_row<V, VECTOR, __half>(a, image, c, p, acc);
    else
        xn_op_pooled_row<V, VECTOR, float>(a, image, c, p, acc);
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

/* V neighbouring outputs of a channel, from index `out` on of the real output, given their
 * residuals as they lie. Their bits come back, STEP from one to the next. */
template <int V, int STEP = 1>
XN_HD uint32_t xn_op_finish(const xn_op_args &a, int32_t c, int64_t out, const float (&acc)[V],
                            const xn_op_run<V> &residual, bool fp16) {
    const xn_epilogue &what = a.e.what;
    const float factor = a.linear ? xn_factor_of(a.e.factor, c) : 1.0f;
    const float bias = a.linear ? xn_bias_of(a.e.bias, c) : -0.0f; /* with 1 they keep numbers */
    bool finite = true;
    uint32_t bits = 0;
    float y[V];
    XN_UNROLL
    for (int n = 0; n < V; n++) {
        y[n] = xn_value(acc[n], 1.0f, {factor, bias});
        finite &= isfinite(y[n]);
    }
    if (a.linear && !finite) /* one test for all, as it is rare */
        XN_UNROLL
    for (int n = 0; n < V; n++)
        y[n] = isfinite(y[n]) ? y[n] : xn_value_again(a.e, c, acc[n], 1.0);
    if (what.residual) {
        float add[V];
        residual.to_fp32(fp16, add);
        XN_UNROLL
        for (int n = 0; n < V; n++)
            y[n] += add[n];
    }
    if (what.activation != XN_ACTIVATION_NONE) {
        const xn_activation_of_filter activation(a.e, c);
        XN_UNROLL
        for (int n = 0; n < V; n++)
            y[n] = activation(y[n]);
    }
    if (what.bits) {
        const float shift = what.shift ? xn_read_only(a.e.shift + c) : 0.0f;
        XN_UNROLL
        for (int n = 0; n < V; n++)
            bits |= xn_sign_bit(y[n] + shift) << n * STEP;
    }
    if (what.datatype == XN_FP32)
        xn_op_store((float *)a.e.output + out, y);
    else if (what.datatype == XN_FP16)
        xn_op_store((__half *)a.e.output + out, y);
    return bits;
}

#endif
