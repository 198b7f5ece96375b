/* op.cuh: what a block of the kernels of op.cu computes. All of it is code for device and host: a
 * block is a type whose each() has every thread do something and then meet, on the device by its
 * own threads and a barrier, in tests by a loop. So what lies where is tested without a device. */
#ifndef XN_CUDA_OP_CUH
#define XN_CUDA_OP_CUH

#include "op_value.cuh"

/* ---- a tile: 32 channels of 32 V pixels ---- */

/* A warp has 4 channels, a lane V pixels of them: neighbours, or of pools one below the other. Then
 * a thread makes the word of a pixel. */
template <int V>
struct xn_op_shared {
    uint8_t bits[32 * V][8]; /* of a pixel and 4 channels */
};

template <xn_op_body BODY, int V>
XN_HD void xn_op_accumulate(const xn_op_args &a, int64_t image, int64_t pixel, int64_t p, int32_t c,
                            float (&acc)[V]) {
    XN_UNROLL
    for (int n = 0; n < V && BODY != XN_OP_WINDOW; n++)
        acc[n] = xn_op_element(a, image, c, p + n);
    if constexpr (BODY == XN_OP_WINDOW) {
        const xn_op_window w = xn_op_window_of(a, p);
        acc[0] = xn_op_pool_value(a, w, xn_op_pooled(a, w, image, c, 0, 1));
    }
    if constexpr (BODY == XN_OP_CURVE)
        acc[0] = xn_op_curve(a, pixel, acc[0]);
    if constexpr (BODY == XN_OP_EACH || BODY == XN_OP_FEW_FOUR)
        xn_op_by_kind(a, image, c, acc);
}

/* Four channels from c on of V pixels from `pixel` on; bits come back, those of a pixel in 4. */
template <xn_op_body BODY, int V>
XN_HD uint32_t xn_op_four_channels(const xn_op_args &a, int64_t pixel, int32_t c) {
    constexpr int TOGETHER = BODY == XN_OP_FEW_FOUR ? 1 : 4; /* channels in registers at a time */
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

/* A block's tile of channels, of lanes from `first` on, of which there are `lanes`. four(lane, c)
 * makes the outputs of four channels, and gives their bits; pixel(lane, n) is the place of one. */
template <int V, class Block, class Four, class Pixel>
XN_HD void xn_op_tile_of(const xn_op_args &a, const Block &block, xn_op_shared<V> &s, int64_t tile,
                         int64_t first, int64_t lanes, Four four, Pixel pixel) {
    block.each([&](int32_t thread) {
        const int32_t lane = thread % 32, strand = thread / 32;
        const int64_t c = tile * 32 + strand * 4;
        const uint32_t bits =
            first + lane < lanes && c < a.channels ? four(first + lane, (int32_t)c) : 0;
        for (int n = 0; n < V && a.e.what.bits; n++)
            s.bits[lane * V + n][strand] = (uint8_t)(bits >> 4 * n & 15u);
    });
    if (!a.e.what.bits)
        return;
    block.each([&](int32_t thread) {
        if (thread < 32 * V && first + thread / V < lanes)
            xn_op_store_word(a, pixel(first + thread / V, thread % V), tile, s.bits[thread]);
    });
}

template <xn_op_body BODY, class Block>
XN_HD void xn_op_tile(const xn_op_args &a, const Block &block, xn_op_shared<1> &s) {
    const uint32_t across = (uint32_t)((a.pixels - 1) / 32 + 1); /* tiles of pixels */
    const int64_t tile = (uint32_t)block.index / across;
    xn_op_tile_of<1>(
        a, block, s, tile, (block.index - tile * across) * 32, a.pixels,
        [&](int64_t pixel, int32_t c) { return xn_op_four_channels<BODY, 1>(a, pixel, c); },
        [](int64_t pixel, int32_t) { return pixel; });
}

/* ---- pools of reals by windows of a few columns ---- */

/* The first of XN_OP_ROWS outputs one below the other. Lanes go along the columns of as many rows,
 * then to the next; the last rows of an image begin further up, so some outputs are made twice. */
struct xn_op_column {
    int32_t image, y, x;
};
XN_HD xn_op_column xn_op_column_of(const xn_op_args &a, int32_t lane) {
    const int32_t image = xn_divide(lane, a.lanes_of), at = lane - image * a.lanes_of.divisor;
    const int32_t rows = xn_divide(at, a.width_of), last = a.out_height - XN_OP_ROWS;
    const int32_t y = rows * XN_OP_ROWS < last ? rows * XN_OP_ROWS : last;
    return {image, y, at - rows * a.out_width};
}

/* Four channels of such outputs from c on; bits come back, those of a pixel in 4. */
template <typename T, int K, int S, bool AVERAGE>
XN_HD uint32_t xn_op_pool_four(const xn_op_args &a, const xn_op_column &at, int32_t c) {
    const int64_t p = c * a.plane + at.y * a.out_width + at.x;
    const T *from = (const T *)a.input + at.image * a.input_pitch + c * a.in_plane;
    const T *beside = (const T *)a.e.residual + at.image * a.residual_pitch + p;
    T *to = (T *)a.e.output + at.image * a.output_pitch + p;
    uint32_t bits = 0;
    XN_NO_UNROLL
    for (int k = 0; k < 4 && c + k < a.channels; k++) {
        float acc[XN_OP_ROWS];
        xn_op_pool_rows<K, S, AVERAGE>(a, from, at.y * S - a.pad_top, at.x * S - a.pad_left, acc);
        bits |= xn_op_finish_apart<T, 4>(
                    a, c + k, acc, [&](int n) { return beside + n * a.out_width; },
                    [&](int n) { return to + n * a.out_width; })
                << k;
        from += a.in_plane;
        beside += a.plane;
        to += a.plane;
    }
    return bits;
}

template <typename T, int K, int S, bool AVERAGE, class Block>
XN_HD void xn_op_pool_columns(const xn_op_args &a, const Block &block,
                              xn_op_shared<XN_OP_ROWS> &s) {
    const int32_t tile = xn_divide((int32_t)block.index, a.tiles_of);
    xn_op_tile_of<XN_OP_ROWS>(
        a, block, s, tile, ((int32_t)block.index - tile * a.tiles_of.divisor) * 32, a.lanes,
        [&](int64_t lane, int32_t c) {
            return xn_op_pool_four<T, K, S, AVERAGE>(a, xn_op_column_of(a, (int32_t)lane), c);
        },
        [&](int64_t lane, int32_t n) {
            const xn_op_column at = xn_op_column_of(a, (int32_t)lane);
            return at.image * a.plane + (at.y + n) * a.out_width + at.x;
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

/* The same of V pixels that lie `apart`, where planes have no vectors. Past the last pixel that is
 * made again. */
template <typename T, int V, int C>
XN_HD uint32_t xn_op_map_apart(const xn_op_args &a, int64_t pixel, int32_t apart, int32_t c) {
    const T *from[V], *beside[V];
    T *to[V];
    uint32_t bits = 0;
    XN_UNROLL
    for (int n = 0; n < V; n++, pixel += apart) {
        const int64_t p = pixel < a.pixels ? pixel : a.pixels - 1, image = xn_op_image(a, p);
        const int64_t at = c * a.plane + p - image * a.plane;
        from[n] = (const T *)a.input + image * a.input_pitch + at;
        beside[n] = (const T *)a.e.residual + image * a.residual_pitch + at;
        to[n] = (T *)a.e.output + image * a.output_pitch + at;
    }
    XN_NO_UNROLL
    for (int k = 0; k < C && c + k < a.channels; k++) {
        float acc[V];
        XN_UNROLL
        for (int n = 0; n < V; n++)
            acc[n] = xn_to_fp32(from[n][k * a.plane]);
        bits |= xn_op_finish_apart<T, C>(
                    a, c + k, acc, [&](int n) { return beside[n] + k * a.plane; },
                    [&](int n) { return to[n] + k * a.plane; })
                << k;
    }
    return bits;
}

struct xn_op_map_shared {
    uint32_t bits[XN_OP_THREADS + 24];
};

/* A block has 1, 2 or 4 words of channels, so that bits of a pixel leave side by side, and as many
 * pixels as its threads make then. */
template <typename T, int V, int C, bool APART, class Block>
XN_HD void xn_op_map(const xn_op_args &a, const Block &block, xn_op_map_shared &s) {
    constexpr int32_t PARTS = 32 / C; /* threads that make a word of V pixels */
    constexpr int32_t LOG = C == 4 ? 5 : 6, LOG_V = V == 8 ? 3 : 2;
    const int32_t lanes_log = LOG - a.words_log, words = 1 << a.words_log;
    const int32_t across = xn_divide((int32_t)block.index, a.groups);
    const int32_t word = ((int32_t)block.index - across * (int32_t)a.groups.divisor) * words;
    const int64_t first = (int64_t)across << (lanes_log + LOG_V);
    block.each([&](int32_t thread) {
        const int32_t strand = thread >> lanes_log, c = word * 32 + strand * C;
        const int32_t lane = thread - (strand << lanes_log);
        const int64_t pixel = first + (APART ? lane : lane * V);
        uint32_t bits = 0;
        if (pixel < a.pixels && c < a.channels) {
            if constexpr (APART)
                bits = xn_op_map_apart<T, V, C>(a, pixel, 1 << lanes_log, c);
            else
                bits = xn_op_map_channels<T, V, C>(a, pixel, c);
        }
        s.bits[thread + strand / PARTS * 8] = bits; /* 8: words lie in banks of their own */
    });
    if (!a.e.what.bits)
        return;
    block.each([&](int32_t thread) {
        const int32_t w = thread & (words - 1), p = thread >> a.words_log;
        const int32_t lane = APART ? p & ((1 << lanes_log) - 1) : p >> LOG_V;
        const int32_t n = APART ? p >> lanes_log : p & (V - 1);
        const uint32_t *from = s.bits + w * ((PARTS << lanes_log) + 8) + lane;
        uint32_t all = 0;
        if (thread >= 8 * C * V || first + p >= a.pixels)
            return;
        XN_UNROLL
        for (int part = 0; part < PARTS; part++)
            all |= (from[part << lanes_log] >> n * C & ((1u << C) - 1)) << part * C;
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
        for (int n = 0; n < V && a.e.what.bits; n++)
            xn_op_store_word(a, pixel + n, 0, all >> 4 * n & 15u);
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
    const int64_t tile = (uint32_t)block.index / (uint32_t)a.pixels;
    const int64_t image = block.index - tile * a.pixels;
    const xn_op_window w = xn_op_window_of(a, 0);
    block.each([&](int32_t thread) {
        const int64_t c = tile * 32 + thread / 8;
        s.value[thread] =
            c < a.channels ? xn_op_pooled(a, w, image, (int32_t)c, thread % 8, 8) : 0.0;
    });
    block.each([&](int32_t thread) {
        const int64_t c = tile * 32 + thread;
        if (thread >= 32)
            return;
        s.bits[thread] = 0;
        if (c >= a.channels)
            return;
        const xn_op_pool pool = xn_op_pool_of(a, (int32_t)c);
        double *value = s.value + thread * 8;
        XN_UNROLL
        for (int32_t half = 4; half; half /= 2)
            XN_UNROLL
        for (int32_t n = 0; n < half; n++)
            value[n] = pool.join(value[n], value[n + half]);
        const float acc[1] = {xn_op_pool_value(a, w, value[0])};
        xn_op_run<1> residual = {};
        if (a.e.what.residual)
            residual.load(a.e.residual, a.e.residual_fp16, image * a.residual_pitch + c);
        s.bits[thread] = (uint8_t)xn_op_finish<1>(a, (int32_t)c, image * a.output_pitch + c, acc,
                                                  residual, a.e.residual_fp16);
    });
    if (!a.e.what.bits)
        return;
    block.each([&](int32_t thread) {
        uint32_t word = 0;
        if (thread)
            return;
        for (int n = 0; n < 32; n++)
            word |= (uint32_t)s.bits[n] << n;
        xn_op_store_word(a, image, tile, word);
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

#endif
