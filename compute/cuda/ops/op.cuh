/* op.cuh: what a block of the kernels of op.cu computes. All of it is code for device and host: a
 * block is a type whose each() has every thread do something and then meet, on the device by its
 * own threads and a barrier, in tests by a loop. So what lies where is tested without a device. */
#ifndef XN_CUDA_OP_CUH
#define XN_CUDA_OP_CUH

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
    const int64_t at = image * a.second_pitch + c;
    return a.second_fp16 ? xn_to_fp32(((const __half *)a.second)[at])
                         : ((const float *)a.second)[at];
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
    float level = rintf(v / a.quantum);
    level = level < a.low ? a.low : level; /* NaN stays */
    level = level > a.high ? a.high : level;
    return xn_op_product(level, a.quantum);
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
    const int64_t taps =
        a.count_padding ? (int64_t)a.kernel_h * a.kernel_w : (int64_t)(w.i1 - w.i0) * (w.j1 - w.j0);
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
        const int32_t taps = a.count_padding ? KW * KW : rows * (j1 - j0);
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

/* ---- a tile: 32 channels of 32 V pixels ---- */

/* A warp has 4 channels, a lane V neighbouring pixels of them; then a thread makes the word of a
 * pixel. */
template <int V>
struct xn_op_shared {
    uint8_t bits[32 * V][8]; /* of a pixel and 4 channels */
};

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

template <xn_op_body BODY, int V>
XN_HD void xn_op_accumulate(const xn_op_args &a, int64_t image, int64_t pixel, int64_t p, int32_t c,
                            float (&acc)[V]) {
    if constexpr (BODY == XN_OP_COLUMNS || BODY == XN_OP_COLUMNS_FOUR)
        xn_op_pool_row<V, false>(a, image, c, p, acc);
    else if constexpr (BODY == XN_OP_COLUMNS_EIGHT)
        xn_op_pool_row<V, true>(a, image, c, p, acc);
    else if constexpr (BODY == XN_OP_FEW_FOUR)
        xn_op_few_elements<V>(a, image, c, p, acc);
    else if constexpr (BODY == XN_OP_WINDOW) {
        const xn_op_window w = xn_op_window_of(a, p);
        acc[0] = xn_op_pool_value(a, w, xn_op_pooled(a, w, image, c, 0, 1));
    } else
        acc[0] = xn_op_element(a, image, c, p);
    if constexpr (BODY == XN_OP_CURVE)
        acc[0] = xn_op_curve(a, pixel, acc[0]);
    if constexpr (BODY == XN_OP_EACH || BODY == XN_OP_FEW_FOUR)
        xn_op_by_kind(a, image, c, acc);
}

/* Channels that a thread has in registers at the same time. */
template <xn_op_body BODY>
struct xn_op_together {
    enum { CHANNELS = BODY == XN_OP_COLUMNS_EIGHT || BODY == XN_OP_FEW_FOUR ? 1 : 4 };
};

/* Four channels from c on of V pixels from `pixel` on; bits come back, those of a pixel in 4. */
template <xn_op_body BODY, int V>
XN_HD uint32_t xn_op_four_channels(const xn_op_args &a, int64_t pixel, int32_t c) {
    constexpr int TOGETHER = xn_op_together<BODY>::CHANNELS;
    const int64_t image = xn_op_image(a, pixel), p = pixel - image * a.plane;
    const int64_t out = image * a.output_pitch + p, beside = image * a.residual_pitch + p;
    uint32_t bits = 0;
    XN_NO_UNROLL
    for (int first = 0; first < 4; first += TOGETHER, c += TOGETHER) {
        float acc[TOGETHER][V];
        xn_op_run<V> residual[TOGETHER];
        XN_UNROLL
        for (int k = 0; k < TOGETHER; k++) {
            if (c + k >= a.channels)
                continue;
            xn_op_accumulate<BODY, V>(a, image, pixel, p, c + k, acc[k]);
            if (a.e.what.residual)
                residual[k].load(a.e.residual, a.e.residual_fp16, beside + (c + k) * a.plane);
        }
        XN_UNROLL
        for (int k = 0; k < TOGETHER; k++) {
            if (c + k >= a.channels)
                continue;
            const int64_t to = out + (c + k) * a.plane;
            if (a.e.what.datatype == XN_INT32) /* the accumulator as it is */
                ((int32_t *)a.e.output)[to] =
                    ((const int32_t *)a.input)[image * a.input_pitch + (c + k) * a.in_plane + p];
            bits |= xn_op_finish<V, 4>(a, c + k, to, acc[k], residual[k], a.e.residual_fp16)
                    << (first + k);
        }
    }
    return bits;
}

/* Word `tile` of a pixel's bits, or as many of its bytes as there are. */
XN_HD void xn_op_store_word(const xn_op_args &a, int64_t pixel, int64_t tile, uint32_t word) {
    if (!a.to_bytes) {
        a.e.bits[pixel * a.out_unit + tile] = word;
        return;
    }
    for (int32_t n = 0; n < 4 && tile * 4 + n < a.out_unit; n++)
        ((uint8_t *)a.e.bits)[pixel * a.out_unit + tile * 4 + n] = (uint8_t)(word >> 8 * n);
}
XN_HD void xn_op_store_word(const xn_op_args &a, int64_t pixel, int64_t tile,
                            const uint8_t (&bits)[8]) {
    uint32_t word = 0;
    XN_UNROLL
    for (int n = 0; n < 8; n++)
        word |= (uint32_t)bits[n] << (4 * n);
    xn_op_store_word(a, pixel, tile, word);
}

template <xn_op_body BODY, int V, class Block>
XN_HD void xn_op_tile(const xn_op_args &a, const Block &block, xn_op_shared<V> &s) {
    const uint32_t across = (uint32_t)((a.pixels - 1) / (32 * V) + 1); /* tiles of pixels */
    const int64_t tile = (uint32_t)block.index / across;
    const int64_t first = (block.index - tile * across) * (32 * V);
    block.each([&](int32_t thread) {
        const int32_t lane = thread % 32, strand = thread / 32;
        const int64_t pixel = first + lane * V, c = tile * 32 + strand * 4;
        uint32_t bits = 0;
        if (pixel < a.pixels && c < a.channels)
            bits = xn_op_four_channels<BODY, V>(a, pixel, (int32_t)c);
        for (int n = 0; n < V; n++)
            s.bits[lane * V + n][strand] = (uint8_t)(bits >> 4 * n & 15u);
    });
    if (!a.e.what.bits)
        return;
    block.each([&](int32_t thread) {
        if (thread < 32 * V && first + thread < a.pixels)
            xn_op_store_word(a, first + thread, tile, s.bits[thread]);
    });
}

/* ---- map, mul and quantize of FP32 or FP16, NCHW ---- */

/* C channels from c on of V pixels from `pixel` on, all loads in flight at once; bits come back,
 * pixel after pixel, C each. Reals beside FP16 are FP16. */
template <typename T, int V, int C>
XN_HD uint32_t xn_op_map_channels(const xn_op_args &a, int64_t pixel, int32_t c) {
    constexpr bool FP16 = sizeof(T) == 2;
    const bool beside_fp16 = FP16 || a.e.residual_fp16;
    const int64_t image = xn_op_image(a, pixel), at = c * a.plane + pixel - image * a.plane;
    const int64_t from = image * a.input_pitch + at, beside = image * a.residual_pitch + at;
    const int64_t to = image * a.output_pitch + at;
    xn_op_run<V> in[C], residual[C];
    uint32_t bits = 0;
    XN_UNROLL
    for (int k = 0; k < C; k++)
        if (c + k < a.channels) {
            in[k].load(a.input, FP16, from + k * a.plane);
            if (a.e.what.residual)
                residual[k].load(a.e.residual, beside_fp16, beside + k * a.plane);
        }
    XN_UNROLL
    for (int k = 0; k < C; k++)
        if (c + k < a.channels) {
            float acc[V];
            in[k].to_fp32(FP16, acc);
            xn_op_by_kind(a, image, c + k, acc);
            bits |= xn_op_finish<V, C>(a, c + k, to + k * a.plane, acc, residual[k], beside_fp16)
                    << k;
        }
    return bits;
}

struct xn_op_map_shared {
    uint32_t bits[XN_OP_THREADS + 24];
};

/* A block has 1, 2 or 4 words of channels, so that bits of a pixel leave side by side, and as many
 * pixels as its threads make then. */
template <typename T, int V, int C, class Block>
XN_HD void xn_op_map(const xn_op_args &a, const Block &block, xn_op_map_shared &s) {
    constexpr int32_t PARTS = 32 / C; /* threads that make a word of V pixels */
    constexpr int32_t LOG = C == 4 ? 5 : C == 8 ? 6 : 7, LOG_V = V == 8 ? 3 : V == 4 ? 2 : 0;
    const int32_t lanes_log = LOG - a.words_log, words = 1 << a.words_log;
    const int32_t across = xn_divide((int32_t)block.index, a.groups);
    const int32_t word = ((int32_t)block.index - across * (int32_t)a.groups.divisor) * words;
    const int64_t first = (int64_t)across << (lanes_log + LOG_V);
    block.each([&](int32_t thread) {
        const int32_t strand = thread >> lanes_log, c = word * 32 + strand * C;
        const int64_t pixel = first + (thread - (strand << lanes_log)) * V;
        uint32_t bits = 0;
        if (pixel < a.pixels && c < a.channels)
            bits = xn_op_map_channels<T, V, C>(a, pixel, c);
        s.bits[thread + strand / PARTS * 8] = bits; /* 8: words lie in banks of their own */
    });
    if (!a.e.what.bits)
        return;
    block.each([&](int32_t thread) {
        const int32_t w = thread & (words - 1), p = thread >> a.words_log;
        const uint32_t *from = s.bits + w * ((PARTS << lanes_log) + 8) + (p >> LOG_V);
        uint32_t all = 0;
        if (thread >= 8 * C * V || first + p >= a.pixels)
            return;
        XN_UNROLL
        for (int part = 0; part < PARTS; part++)
            all |= (from[part << lanes_log] >> (p & (V - 1)) * C & ((1u << C) - 1)) << part * C;
        xn_op_store_word(a, first + p, word + w, all);
    });
}

/* ---- up to 4 channels: a thread has all of V neighbouring pixels ---- */

template <int V, class Block>
XN_HD void xn_op_few(const xn_op_args &a, const Block &block) {
    block.each([&](int32_t thread) {
        const int64_t pixel = (block.index * XN_OP_THREADS + thread) * V;
        if (pixel >= a.pixels)
            return;
        const uint32_t all = xn_op_four_channels < V == 1 ? XN_OP_EACH : XN_OP_FEW_FOUR,
                       V > (a, pixel, 0);
        for (int n = 0; n < V && a.e.what.bits; n++) {
            const uint8_t bits[8] = {(uint8_t)(all >> 4 * n & 15u)};
            xn_op_store_word(a, pixel + n, 0, bits);
        }
    });
}

/* ---- pools of which an image has one pixel: 32 channels a block, 8 threads a channel ---- */

struct xn_op_whole_shared {
    double value[XN_OP_THREADS];
    uint8_t bits[32];
};

/* Eight neighbouring threads read neighbouring values, and join what they have in one order. */
template <class Block>
XN_HD void xn_op_pool_whole(const xn_op_args &a, const Block &block, xn_op_whole_shared &s) {
    const int64_t image = block.index % a.pixels, tile = block.index / a.pixels;
    const xn_op_window w = xn_op_window_of(a, 0);
    block.each([&](int32_t thread) {
        const int64_t c = tile * 32 + thread / 8;
        s.value[thread] =
            c < a.channels ? xn_op_pooled(a, w, image, (int32_t)c, thread % 8, 8) : 0.0;
    });
    for (int32_t half = 4; half; half /= 2)
        block.each([&](int32_t thread) {
            const int64_t c = tile * 32 + thread / 8;
            if (thread % 8 < half && c < a.channels)
                s.value[thread] =
                    xn_op_pool_of(a, (int32_t)c).join(s.value[thread], s.value[thread + half]);
        });
    block.each([&](int32_t thread) {
        const int64_t c = tile * 32 + thread;
        if (thread >= 32)
            return;
        s.bits[thread] = 0;
        if (c >= a.channels)
            return;
        const float acc[1] = {xn_op_pool_value(a, w, s.value[thread * 8])};
        xn_op_run<1> residual = {};
        if (a.e.what.residual)
            residual.load(a.e.residual, a.e.residual_fp16, image * a.residual_pitch + c);
        s.bits[thread] = (uint8_t)xn_op_finish<1>(a, (int32_t)c, image * a.output_pitch + c, acc,
                                                  residual, a.e.residual_fp16);
    });
    if (!a.e.what.bits)
        return;
    block.each([&](int32_t thread) {
        uint8_t fours[8];
        if (thread)
            return;
        for (int n = 0; n < 8; n++)
            fours[n] = (uint8_t)(s.bits[4 * n] | s.bits[4 * n + 1] << 1 | s.bits[4 * n + 2] << 2 |
                                 s.bits[4 * n + 3] << 3);
        xn_op_store_word(a, image, tile, fours);
    });
}

/* ---- max_pool of words to words: OR, and AND where the channel is turned ---- */

template <class Block>
XN_HD void xn_op_pool_words(const xn_op_args &a, const Block &block) {
    block.each([&](int32_t thread) {
        const int64_t at = block.index * XN_OP_THREADS + thread;
        const int64_t pixel = at / a.out_unit, image = pixel / a.plane;
        const int32_t word = (int32_t)(at % a.out_unit);
        if (pixel >= a.pixels)
            return;
        const uint32_t *from = (const uint32_t *)a.input + image * a.in_plane * a.in_unit + word;
        uint32_t any = 0, all = 0xffffffffu, turned = 0;
        xn_op_over(a, xn_op_window_of(a, pixel % a.plane), 0, 1, [&](int64_t p) {
            any |= from[p * a.in_unit];
            all &= from[p * a.in_unit];
        });
        for (int32_t n = 0; a.turned && n < 32 && word * 32 + n < a.channels; n++)
            turned |= (uint32_t)xn_op_turned(a, word * 32 + n) << n;
        a.e.bits[at] = (any & ~turned) | (all & turned);
    });
}

/* ---- softmax: the sums of its pixels ---- */

struct xn_op_stats_shared {
    float greatest[XN_OP_THREADS];
    double sum[XN_OP_THREADS];
};

/* LANES pixels a block, and as many threads as there are then for the channels of each. */
template <int LANES, class Block>
XN_HD void xn_op_stats(const xn_op_args &a, const Block &block, xn_op_stats_shared &s) {
    constexpr int32_t STRANDS = XN_OP_THREADS / LANES;
    const int64_t first = block.index * LANES;
    block.each([&](int32_t thread) {
        const int64_t pixel = first + thread % LANES;
        float greatest = -INFINITY;
        if (pixel < a.pixels)
            for (int32_t c = thread / LANES; c < a.channels; c += STRANDS)
                greatest = fmaxf(greatest, xn_op_element(a, pixel / a.plane, c, pixel % a.plane));
        s.greatest[thread] = greatest;
    });
    for (int32_t half = XN_OP_THREADS / 2; half >= LANES; half /= 2)
        block.each([&](int32_t thread) {
            if (thread < half)
                s.greatest[thread] = fmaxf(s.greatest[thread], s.greatest[thread + half]);
        });
    block.each([&](int32_t thread) {
        const int64_t pixel = first + thread % LANES;
        const double most = (double)s.greatest[thread % LANES];
        double sum = 0;
        if (pixel < a.pixels)
            for (int32_t c = thread / LANES; c < a.channels; c += STRANDS)
                sum += exp((double)xn_op_element(a, pixel / a.plane, c, pixel % a.plane) - most);
        s.sum[thread] = sum;
    });
    for (int32_t half = XN_OP_THREADS / 2; half >= LANES; half /= 2)
        block.each([&](int32_t thread) {
            if (thread < half)
                s.sum[thread] += s.sum[thread + half];
        });
    block.each([&](int32_t thread) {
        if (thread < LANES && first + thread < a.pixels) {
            a.stats[first + thread].sum = s.sum[thread];
            a.stats[first + thread].greatest = s.greatest[thread];
        }
    });
}

/* ---- parts ---- */

template <class Unit>
XN_HD void xn_op_copy(const xn_op_part &part, int64_t at) {
    ((Unit *)part.to)[at] =
        ((const Unit *)part.from)[at / part.count * part.pitch + at % part.count];
}

template <class Block>
XN_HD void xn_op_copy_part(const xn_op_part &part, const Block &block) {
    block.each([&](int32_t thread) {
        const int64_t at = block.index * XN_OP_THREADS + thread;
        if (at >= part.all)
            return;
        if (part.unit == 16)
            xn_op_copy<uint4>(part, at);
        else if (part.unit == 8)
            xn_op_copy<uint2>(part, at);
        else if (part.unit == 4)
            xn_op_copy<uint32_t>(part, at);
        else if (part.unit == 2)
            xn_op_copy<uint16_t>(part, at);
        else
            xn_op_copy<uint8_t>(part, at);
    });
}

#endif
