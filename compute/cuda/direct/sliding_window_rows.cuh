/* sliding_window_rows.cuh: what the kernels of sliding_window.cuh do with a row of the image: where
 * a thread works, loads, neighbours' columns, sums of |x|, patterns of signs, tables of taps, sums
 * of K, and what fp32 cannot do. */
#ifndef XN_CUDA_SLIDING_WINDOW_ROWS_CUH
#define XN_CUDA_SLIDING_WINDOW_ROWS_CUH

#include "few.cuh"
#include "launch.cuh"
#include "ptx.cuh"

#define XN_STRIP_WIDTH 4         /* outputs of a thread, side by side */
#define XN_STRIP_MAX_THREADS 128 /* of a block */
#define XN_STRIP_MAX_KERNEL 7    /* of either axis */
/* What a kernel reads and writes: any datatypes, any alignment; or fp32, fp16 in and out with rows
 * that start at multiples of 4 elements, K wanted, no pad_value -1. */
#define XN_STRIP_ANY 0
#define XN_STRIP_FP32 1
#define XN_STRIP_FP16 2
#define XN_STRIP_LOOSE 3         /* fp32 with K as well, but any alignment, one element at a time */
#define XN_STRIP_ALL 0x77777777u /* every column of a pattern */
/* Up to these the epilogue cannot leave fp32's range: sums of K, factors, biases. */
#define XN_STRIP_MOST_BOX 0x1p64f
#define XN_STRIP_MOST_FACTOR 0x1p48f
#define XN_STRIP_MOST_BIAS 0x1p120f

struct xn_strip_args : xn_few_args {
    int32_t vector_in, vector_out;                          /* rows: 4 elements at a time */
    int32_t lanes_log2, across_log2, down_log2, stack_log2; /* of a block, see strip_cut */
    int32_t chunks, tiles_x, planes;
    int64_t in_plane, out_plane; /* elements of a group's input and output */
};

/* Columns left and right of an output's own; elements loaded past a segment's ends (kinds FP32 and
 * FP16 load a vector when it is several); words of a pattern; tables of a row of taps. D: columns
 * from tap to tap; 2 is for 3 taps. */
template <int KW, int D = 1>
struct xn_strip_window {
    static_assert(D == 1 || (D == 2 && KW == 3), "patterns of these alone");
    static constexpr int LEFT = KW / 2 * D, RIGHT = (KW - 1) / 2 * D;
    static constexpr int COLUMNS = LEFT + XN_STRIP_WIDTH + RIGHT;
    static constexpr int SIDE = LEFT < 2 ? 1 : XN_STRIP_WIDTH;
    static constexpr int WORDS = KW == 7 ? 2 : 1, TABLES = (KW + 2) / 3;
};

/* The rows that belong together: with dilation, those of one remainder of it. Row r of them is row
 * first + step * r of the image, and windows start at row out_y + above. */
struct xn_strip_phase {
    int32_t step, first, height, above; /* of the input */
    int32_t out_first, out_height;      /* of the output */
};

/* Where a thread works. */
struct xn_strip_place {
    int32_t in_x, out_x, out_y;  /* in_x: the input column under output column out_x */
    int32_t live;                /* outputs of its 4 that exist */
    bool first, last;            /* lane of its segment */
    uint32_t own, side;          /* bit n: that column, that column past the end, is inside */
    int32_t lanes, plane, stack; /* stack: which of the block's planes */
};

/* A row as it was loaded: fp16 packed in vectors, all else fp32. */
template <int KW, int D = 1>
struct xn_strip_raw {
    uint32_t own[XN_STRIP_WIDTH], side[xn_strip_window<KW, D>::SIDE];
};

/* ---- loading ---- */

/* Rows of a plane, one after the other. Loads stay raw until they are used, so that many are in
 * flight. */
template <int KW, int KIND, int D>
struct xn_strip_source {
    typedef xn_strip_window<KW, D> window;
    typedef xn_strip_raw<KW, D> row;
    static constexpr bool VECTORS = KIND == XN_STRIP_FP32 || KIND == XN_STRIP_FP16;
    static constexpr int BYTES = KIND == XN_STRIP_FP16 ? 2 : 4, SIDE = window::SIDE;
    const char *own, *side;
    int64_t start, pitch; /* of ANY: elements */
    int32_t y, height;

    __device__ __forceinline__ void begin(const xn_strip_args &a, const xn_strip_place &p,
                                          const xn_strip_phase &phase, int64_t first) {
        y = p.out_y + phase.above;
        height = phase.height;
        start = first + (int64_t)phase.first * a.conv.width + p.in_x;
        pitch = (int64_t)a.conv.width * phase.step * (KIND == XN_STRIP_ANY ? 1 : BYTES);
        own = (const char *)a.input + y * pitch + start * BYTES;
        side = own + (p.first ? VECTORS ? -SIDE : -1 : XN_STRIP_WIDTH) * BYTES;
    }

    /* 0 where there is nothing to load, if row was 0 or of earlier rows. */
    __device__ __forceinline__ void load(const xn_strip_place &p, bool inside, row *to) const {
        if constexpr (VECTORS) {
            xn_load_if<XN_STRIP_WIDTH * BYTES>(to->own, own, inside && p.own);
            if constexpr (window::LEFT > 0)
                xn_load_if<SIDE * BYTES>(to->side, side, inside && p.side);
        } else {
#pragma unroll
            for (int n = 0; n < XN_STRIP_WIDTH; n++)
                xn_load_if<BYTES>(&to->own[n], own + n * BYTES, inside && (p.own >> n & 1));
#pragma unroll
            for (int n = 0; n < window::LEFT; n++)
                xn_load_if<BYTES>(&to->side[n], side + (p.first ? -n : n) * BYTES,
                                  inside && (p.side >> n & 1));
        }
    }

    template <class T>
    static __device__ __forceinline__ void load_any(const T *from, const xn_strip_place &p,
                                                    bool vector, row *to) {
        struct alignas(XN_STRIP_WIDTH * sizeof(T)) four {
            T element[XN_STRIP_WIDTH];
        };
        const auto take = [&](T v) { return __float_as_uint(xn_to_fp32(v)); };
        if (vector && p.own) {
            const four v = *(const four *)from;
#pragma unroll
            for (int n = 0; n < XN_STRIP_WIDTH; n++)
                to->own[n] = take(v.element[n]);
        }
#pragma unroll
        for (int n = 0; n < XN_STRIP_WIDTH; n++)
            if (!vector && p.own >> n & 1)
                to->own[n] = take(from[n]);
#pragma unroll
        for (int n = 0; n < window::LEFT; n++)
            if (p.side >> n & 1)
                to->side[n] = take(from[p.first ? -1 - n : XN_STRIP_WIDTH + n]);
    }

    template <int ROWS>
    __device__ __forceinline__ void next(const xn_strip_args &a, const xn_strip_place &p, row *to) {
        if constexpr (KIND == XN_STRIP_ANY) {
            xn_few_with_input(a, [&](auto *input) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    to[r] = {};
                    if ((uint32_t)(y + r) < (uint32_t)height)
                        load_any(input + start + (y + r) * pitch, p, a.vector_in, &to[r]);
                }
            });
        } else if (VECTORS && y >= 0 && y + ROWS <= height) {
#pragma unroll
            for (int r = 0; r < ROWS; r++, own += pitch, side += pitch)
                load(p, true, &to[r]);
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; r++, own += pitch, side += pitch) {
                to[r] = {};
                load(p, (uint32_t)(y + r) < (uint32_t)height, &to[r]);
            }
        }
        y += ROWS;
    }
};

/* ---- from raw elements to columns ---- */

/* Element n of a row of vectors. */
template <int KIND>
__device__ __forceinline__ float xn_strip_element(const uint32_t *words, int n) {
    if constexpr (KIND == XN_STRIP_FP16)
        return __half2float(__ushort_as_half((unsigned short)(words[n / 2] >> n % 2 * 16)));
    else
        return __uint_as_float(words[n]);
}

/* The columns of the 4 windows: 4 own ones between LEFT and RIGHT of the neighbours. All lanes of
 * the warp. But for ANY -0 becomes +0, so that the sign bit is the sign. Sides that are vectors lie
 * as in memory, others nearest first. */
template <int KW, int KIND, int D>
__device__ __forceinline__ void xn_strip_columns(const xn_strip_place &p,
                                                 const xn_strip_raw<KW, D> &raw, float *columns) {
    typedef xn_strip_window<KW, D> window;
    constexpr bool TURNED = xn_strip_source<KW, KIND, D>::VECTORS && window::SIDE > 1;
    constexpr float ZERO = KIND == XN_STRIP_ANY ? -0.0f : 0.0f; /* adding -0 changes nothing */
    float own[XN_STRIP_WIDTH];
#pragma unroll
    for (int n = 0; n < XN_STRIP_WIDTH; n++)
        columns[window::LEFT + n] = own[n] = xn_strip_element<KIND>(raw.own, n) + ZERO;
    const auto side = [&](int n) {
        const float near = xn_strip_element<KIND>(raw.side, n);
        return (TURNED && p.first ? xn_strip_element<KIND>(raw.side, window::SIDE - 1 - n) : near) +
               ZERO;
    };
#pragma unroll
    for (int n = 0; n < window::LEFT; n++) {
        const float v = __shfl_up_sync(0xffffffffu, own[XN_STRIP_WIDTH - 1 - n], 1, p.lanes);
        columns[window::LEFT - 1 - n] = p.first ? side(n) : v;
    }
#pragma unroll
    for (int n = 0; n < window::RIGHT; n++) {
        const float v = __shfl_down_sync(0xffffffffu, own[n], 1, p.lanes);
        columns[window::LEFT + XN_STRIP_WIDTH + n] = p.last ? side(n) : v;
    }
}

/* ---- a row's sums and pattern ---- */

/* K's row sums of the 4 windows; neighbours share what they have in common. */
template <int KW, int D>
__device__ __forceinline__ void xn_strip_sums(const float *columns, float *h) {
#pragma unroll
    for (int j = 0; j < XN_STRIP_WIDTH; j++)
        h[j] = xn_fours<KW>([&](int n) { return fabsf(columns[j + n * D]); });
}

/* One bit a column, 4 apart: column n at bit FIRST + 4 n of the low word and on into the high one.
 * sign(n) has the column's sign in its highest bit; what else it has is masked away. */
template <int COLUMNS, int FIRST, class Sign>
__device__ __forceinline__ void xn_strip_spread(Sign sign, uint32_t *low, uint32_t *high) {
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int n = COLUMNS - 1; n >= 0; n--)
        words[n / 8] = __funnelshift_l(sign(n), words[n / 8], n == 0 ? FIRST + 1 : n % 8 ? 4 : 1);
    *low = words[0] & 0x11111111u << FIRST;
    *high = words[1] & 0x11111111u;
}

/* Nibble n: columns n, n + D, n + 2 D. The second word, for 7 columns, has nibbles 6 .. 9, of which
 * the tables read the first column only. */
template <int KW, int D, class Sign>
__device__ __forceinline__ void xn_strip_pattern(Sign sign, uint32_t *pattern) {
    constexpr int COLUMNS = xn_strip_window<KW, D>::COLUMNS;
    uint32_t low, high;
    if constexpr (KW <= 3 && D == 1) {
        /* 24 bits, which do not meet: one multiplication adds low, low >> 3 and low >> 6 */
        xn_strip_spread<COLUMNS, 8>(sign, &low, &high);
        pattern[0] = __umulhi(low, 73u << 18);
        return;
    }
    xn_strip_spread<COLUMNS, 0>(sign, &low, &high);
    if (D == 2)
        pattern[0] = low | low >> 7 | low >> 14;
    else
        pattern[0] = low | __funnelshift_r(low, high, 3) | __funnelshift_r(low, high, 6);
    if constexpr (xn_strip_window<KW, D>::WORDS == 2)
        pattern[1] = __funnelshift_r(low, high, 24);
}

/* The same of columns. When K is wanted a NaN's sign has no effect: its windows are NaN. */
template <int KW, int KIND, int D>
__device__ __forceinline__ void xn_strip_signs(const float *columns, uint32_t *pattern) {
    xn_strip_pattern<KW, D>(
        [&](int n) {
            return KIND != XN_STRIP_ANY      ? __float_as_uint(columns[n])
                   : xn_sign_bit(columns[n]) ? 0u
                                             : 0x80000000u;
        },
        pattern);
}

/* The columns outside the image as a pattern. */
template <int KW, int D = 1>
__device__ __forceinline__ void xn_strip_outside(const xn_strip_args &a, const xn_strip_place &p,
                                                 uint32_t *pattern) {
    const int32_t first = p.in_x - xn_strip_window<KW, D>::LEFT;
    xn_strip_pattern<KW, D>(
        [&](int n) { return (uint32_t)(first + n) < (uint32_t)a.conv.width ? 0u : 0x80000000u; },
        pattern);
}

/* ---- counting taps ---- */

/* The table of up to 3 taps: byte p is how many of them differ from the signs p. */
__device__ __forceinline__ uint2 xn_strip_table(uint32_t negative, int32_t taps) {
    const uint32_t low = taps == 1 ? 0x01000100u : 0x02010100u;
    const uint32_t high = taps == 3 ? 0x03020201u : low;
    const uint32_t flip = (negative & ((1u << taps) - 1u)) * 0x1111u;
    return make_uint2(xn_permute(low, high, 0x3210u ^ flip), xn_permute(low, high, 0x7654u ^ flip));
}

/* Nibbles 3 part and on of a pattern, in the low bits. */
__device__ __forceinline__ uint32_t xn_strip_select(const uint32_t *pattern, int part) {
    return part == 2 ? pattern[1] : part == 1 ? pattern[0] >> 12 : pattern[0];
}

/* Byte j of the counts as a float: 2^15 + count, by placing it in the mantissa. */
__device__ __forceinline__ float xn_strip_count(uint32_t counts, int j) {
    return __uint_as_float(xn_permute(counts, 0x47000000u, 0x7404u | (uint32_t)j << 4));
}

/* The dot of output j; most: the taps + 2^16. TWICE: the taps outside cancel in the mean of both.
 */
template <bool TWICE>
__device__ __forceinline__ float xn_strip_dot(float most, uint32_t counts, uint32_t others, int j) {
    const float differ = xn_strip_count(counts, j);
    return TWICE ? most - differ - xn_strip_count(others, j) : fmaf(differ, -2.0f, most);
}

/* ---- K and outputs ---- */

/* K's sums of ROWS x 4 outputs. */
template <int KH, int ROWS>
__device__ __forceinline__ void xn_strip_box(const float (&h)[ROWS + KH - 1][XN_STRIP_WIDTH],
                                             float (&box)[ROWS][XN_STRIP_WIDTH]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < XN_STRIP_WIDTH; j++) {
            box[r][j] = h[r][j];
#pragma unroll
            for (int i = 1; i < KH; i++)
                box[r][j] += h[r + i][j];
        }
}

/* True when a sum may have overflowed, or may in the epilogue, or is NaN. Every row is in one of
 * the windows looked at, every column in the first or last of the 4, or in one of all (ALL). */
template <int KH, int ROWS, bool ALL>
__device__ __forceinline__ bool xn_strip_large(const float (&box)[ROWS][XN_STRIP_WIDTH]) {
    bool large = false;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r % KH == 0 || r == ROWS - 1) {
            const float total =
                ALL ? box[r][0] + box[r][1] + box[r][2] + box[r][3] : box[r][0] + box[r][3];
            large = large || !(total <= XN_STRIP_MOST_BOX);
        }
    return large;
}

/* Whether a filter's values of tame sums may not be those of the definition. */
__device__ __forceinline__ bool xn_strip_extreme(const xn_filter &f) {
    return !(fabsf(f.factor) <= XN_STRIP_MOST_FACTOR && fabsf(f.bias) <= XN_STRIP_MOST_BIAS);
}

/* Those of four neighbours, from `index` on, that exist: `live` of them; at once when `vector`. Of
 * INT32, v are the integers. */
__device__ __forceinline__ void xn_strip_store_any(const xn_epilogue_args &e, int64_t index,
                                                   bool vector, int32_t live, const float (&v)[4]) {
    if (e.what.datatype == XN_INT32) {
        const int32_t dots[4] = {(int32_t)v[0], (int32_t)v[1], (int32_t)v[2], (int32_t)v[3]};
        if (vector && live == 4)
            return xn_store((int32_t *)e.output + index, dots);
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (n < live)
                ((int32_t *)e.output)[index + n] = dots[n];
    } else if (vector && live == 4) {
        xn_store_reals(e, index, v);
    } else {
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (n < live)
                xn_store_reals(e, index + n, {v[n]});
    }
}

/* 4 outputs from `index` on, of which `live` exist, if `exists`. */
template <int KIND>
__device__ __forceinline__ void xn_strip_store(const xn_strip_args &a, int64_t index, char *to,
                                               bool exists, int32_t live,
                                               const float (&v)[XN_STRIP_WIDTH]) {
    if constexpr (KIND == XN_STRIP_FP32)
        xn_store_if((float *)to, v, exists);
    else if constexpr (KIND == XN_STRIP_FP16)
        xn_store_if((__half *)to, v, exists);
    else if constexpr (KIND == XN_STRIP_LOOSE) {
#pragma unroll
        for (int j = 0; j < XN_STRIP_WIDTH; j++)
            if (exists && j < live)
                ((float *)to)[j] = v[j];
    } else if (exists)
        xn_strip_store_any(a.epilogue, index, a.vector_out, live, v);
}

/* The output of filter o by the definition (epilogue.cuh), whose window has its first tap at (y, x)
 * of the plane that begins at element `first`. A leaf, so that callers keep their registers. */
static __device__ __noinline__ float xn_strip_output_again(const xn_strip_args &a, int32_t o,
                                                           int64_t first, int32_t y, int32_t x) {
    const xn_conv &c = a.conv;
    const auto value = [&](int32_t i, int32_t j, bool *inside) {
        const int32_t in_y = y + i * c.dilation_h, in_x = x + j * c.dilation_w;
        *inside = (uint32_t)in_y < (uint32_t)c.height && (uint32_t)in_x < (uint32_t)c.width;
        return *inside ? xn_few_element(a, first + (int64_t)in_y * c.width + in_x) : 0.0f;
    };
    const auto size = [&](int32_t i, int32_t j) {
        bool inside;
        return fabsf(value(i, j, &inside));
    };
    int32_t dot = 0;
#pragma unroll 1
    for (int32_t t = 0; t < c.kernel_h * c.kernel_w; t++) {
        bool inside;
        const float v = value(t / c.kernel_w, t % c.kernel_w, &inside);
        const int32_t sign = !inside ? c.pad_value : xn_sign_bit(v) ? 1 : -1;
        dot += __ldg(a.weights + o * a.weight_words + t / 32) >> t % 32 & 1u ? sign : -sign;
    }
    const float box = c.epilogue.k ? xn_box_of(c.kernel_h, c.kernel_w, size) : 1.0f;
    return xn_value_or_again(a.epilogue, xn_filter_of(a.epilogue, o), o, (float)dot, box,
                             [&] { return xn_box_of<double>(c.kernel_h, c.kernel_w, size); });
}

/* Outputs by the definition: rows out_y .. of the phase. */
__device__ __forceinline__ void xn_strip_again(const xn_strip_args &a, int32_t plane, int32_t out_x,
                                               int32_t out_y, int32_t rows, int32_t live,
                                               const xn_strip_phase &phase) {
    const xn_conv &c = a.conv;
    const int32_t o = plane % c.groups;
    const int64_t out_first = plane * a.out_plane;
#pragma unroll 1
    for (int32_t e = 0; e < rows * live; e++) {
        const int32_t y = phase.out_first + phase.step * (out_y + e / live), x = out_x + e % live;
        const float v =
            xn_strip_output_again(a, o, plane * a.in_plane, y - c.pad_top, x - c.pad_left);
        xn_store_reals(a.epilogue, out_first + (int64_t)y * c.out_width + x, {v});
    }
}

/* ---- where a thread works ---- */

/* All rows, without dilation. */
__device__ __forceinline__ xn_strip_phase xn_strip_whole(const xn_strip_args &a) {
    return {1, 0, a.conv.height, -a.conv.pad_top, 0, a.conv.out_height};
}

/* The rows of outputs that are `phase` modulo the dilation, and of the input that they read. */
__device__ __forceinline__ xn_strip_phase xn_strip_phase_of(const xn_strip_args &a, int32_t phase) {
    const xn_conv &c = a.conv;
    const int32_t d = c.dilation_h, up = (c.pad_top + d - 1) / d; /* no division of negatives */
    const int32_t at = phase - c.pad_top + up * d;
    const int32_t first = at % d;
    return {d,           first, (c.height - first + d - 1) / d,
            at / d - up, phase, (c.out_height - phase + d - 1) / d};
}

/* Where in the launch a block is: x holds tiles across, and planes beyond what z takes; y the
 * tiles down. */
struct xn_strip_block {
    int32_t tile_x, tile_y, plane;
};

__device__ __forceinline__ xn_strip_block xn_strip_find_block(const xn_strip_args &a) {
    int32_t x = (int32_t)blockIdx.x;
    xn_strip_block b = {x, (int32_t)blockIdx.y, (int32_t)blockIdx.z};
    if ((int32_t)gridDim.x == a.tiles_x)
        return b;
    b.tile_x = x % a.tiles_x;
    b.plane += x / a.tiles_x * (int32_t)gridDim.z;
    return b;
}

__device__ __forceinline__ xn_strip_place xn_strip_find(const xn_strip_args &a,
                                                        const xn_strip_block &b, int32_t strip_rows,
                                                        int32_t left, bool vectors) {
    xn_strip_place p;
    p.lanes = 1 << a.lanes_log2;
    const int32_t lane = (int32_t)threadIdx.x & (p.lanes - 1);
    const int32_t segment = (int32_t)threadIdx.x >> a.lanes_log2;
    const int32_t right = segment & ((1 << a.across_log2) - 1);
    const int32_t below = segment >> a.across_log2 & ((1 << a.down_log2) - 1);
    const int32_t width = a.conv.width;
    p.stack = segment >> (a.across_log2 + a.down_log2);
    p.plane = (b.plane << a.stack_log2) + p.stack;
    p.out_x = (((b.tile_x << a.across_log2) + right << a.lanes_log2) + lane) * XN_STRIP_WIDTH;
    p.out_y = ((b.tile_y << a.down_log2) + below) * strip_rows;
    p.in_x = p.out_x - a.conv.pad_left + left;
    p.live = min(a.conv.out_width - p.out_x, (int32_t)XN_STRIP_WIDTH);
    p.first = lane == 0;
    p.last = lane == p.lanes - 1;
    p.own = p.side = 0;
    const int32_t past = p.in_x + (p.first ? -1 : XN_STRIP_WIDTH);
    if (vectors) { /* aligned: all four or none */
        p.own = (uint32_t)p.in_x < (uint32_t)width;
        p.side = (p.first || p.last) && (uint32_t)past < (uint32_t)width;
    } else {
#pragma unroll
        for (int n = 0; n < XN_STRIP_WIDTH; n++) {
            if ((uint32_t)(p.in_x + n) < (uint32_t)width)
                p.own |= 1u << n;
            if ((p.first || p.last) && (uint32_t)(past + (p.first ? -n : n)) < (uint32_t)width)
                p.side |= 1u << n;
        }
    }
    if (p.plane >= a.planes)
        p.own = p.side = 0, p.live = 0;
    return p;
}

#endif
