/* sliding_window_rows.cuh: what the kernels for few channels do with a row of the image: where a
 * thread works, loads, neighbours' columns, sums of |x|, patterns of signs, tables of taps, K,
 * stores. The file sliding_window.cuh tells how it fits together. */
#ifndef XN_CUDA_SLIDING_WINDOW_ROWS_CUH
#define XN_CUDA_SLIDING_WINDOW_ROWS_CUH

#include "element.cuh"
#include "launch.cuh"
#include "layout.h"
#include "ptx.cuh"
#include "sliding_window.h"

#define XN_STRIP_WIDTH 4         /* outputs of a thread, side by side */
#define XN_STRIP_MAX_THREADS 256 /* of a block */
#define XN_STRIP_MAX_KERNEL 7    /* of either axis */
#define XN_STRIP_MAX_TAPS 255    /* counts are bytes */
/* What a kernel reads and writes: any datatypes, any alignment; or fp32, fp16 in and out with rows
 * that start at multiples of 4 elements, K wanted, no pad_value -1. */
#define XN_STRIP_ANY 0
#define XN_STRIP_FP32 1
#define XN_STRIP_FP16 2
#define XN_STRIP_LOOSE 3         /* fp32 with K as well, but any alignment, one element at a time */
#define XN_STRIP_BATCH 4         /* rows a thread of kind ANY has in flight */
#define XN_STRIP_ALL 0x77777777u /* every column of a pattern */
#define XN_STRIP_LARGE 0x1p64f   /* sums of |x| up to here cannot overflow, */
#define XN_STRIP_MAX_FACTOR 0x1p48f /* with factors up to here, */
#define XN_STRIP_MIN_FACTOR 0x1p-100f
#define XN_STRIP_MAX_BIAS 0x1p120f /* and biases up to here */

struct xn_strip_args {
    const void *input;
    const uint32_t *patches;
    const float *factor, *bias;
    xn_output out;
    int32_t channels, filters, groups; /* of a group; groups */
    int32_t height, width, out_height, out_width;
    int32_t kernel_h, pad_top, pad_left, pad_value;
    int32_t
        dilation_h; /* 1, but in sliding_window_single.cuh, where the planes below are of phases */
    int32_t datatype, want_k;
    int32_t vector_in, vector_out; /* rows may be read, written 4 elements at a time */
    int32_t patch_words;
    float reciprocal;                                       /* of the terms of K, or 1 */
    int32_t lanes_log2, across_log2, down_log2, stack_log2; /* of a block, see xn_cuda_sliding */
    int32_t chunks, tiles_x, splits, span, planes;
    int64_t in_plane, out_plane; /* elements of a group's input and output */
};

/* Columns left and right of an output's own; elements loaded past a segment's ends (kinds FP32 and
 * FP16 load a vector when it is several); words of a pattern; tables of a row of taps. D: columns
 * from tap to tap; 2 is for 3 taps. */
template <int KW, int D = 1>
struct xn_strip_window {
    static_assert(D == 1 || (D == 2 && KW == 3), "sums and patterns of these alone");
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

template <int KW, int D = 1>
struct xn_strip_raw {
    uint32_t own[XN_STRIP_WIDTH], side[xn_strip_window<KW, D>::SIDE];
};

/* ---- loading ---- */

template <class T>
__device__ __forceinline__ void xn_strip_load_elements(const T *from, uint32_t columns,
                                                       uint32_t *raw) {
#pragma unroll
    for (int n = 0; n < XN_STRIP_WIDTH; n++)
        if (columns >> n & 1)
            raw[n] = __ldg(from + n);
}

/* Loads stay raw until they are used, so that many are in flight. Zeros outside the image. */
template <int KW, class T, class Vector>
__device__ __forceinline__ void xn_strip_load_row(const T *row, const xn_strip_place &p,
                                                  bool vector, xn_strip_raw<KW> *raw) {
    const T *from = row + p.in_x;
    if (!vector) {
        xn_strip_load_elements(from, p.own, raw->own);
    } else if (p.own) {
        const Vector v = __ldg((const Vector *)from);
        memcpy(raw->own, &v, sizeof v);
    }
#pragma unroll
    for (int n = 0; n < xn_strip_window<KW>::LEFT; n++)
        if (p.side >> n & 1)
            raw->side[n] = __ldg(from + (p.first ? -1 - n : XN_STRIP_WIDTH + n));
}

/* Rows y .. y + ROWS - 1 of the channel that starts at element `first`, in vectors, no branches.
 * CHECK: rows may be outside. */
template <int KW, int ROWS, int KIND, bool CHECK>
__device__ __forceinline__ void xn_strip_load_hot(const xn_strip_args &a, int64_t first,
                                                  const xn_strip_place &p, int32_t y,
                                                  xn_strip_raw<KW> *raw) {
    constexpr int BYTES = KIND == XN_STRIP_FP32 ? 4 : 2, SIDE = xn_strip_window<KW>::SIDE;
    const int64_t pitch = (int64_t)a.width * BYTES;
    const char *own = (const char *)a.input + (first + (int64_t)y * a.width + p.in_x) * BYTES;
    const char *side = own + (p.first ? -SIDE : XN_STRIP_WIDTH) * BYTES;
#pragma unroll
    for (int r = 0; r < ROWS; r++, own += pitch, side += pitch) {
        const bool inside = !CHECK || (uint32_t)(y + r) < (uint32_t)a.height;
        const bool own_inside = inside && p.own, side_inside = inside && p.side;
        raw[r] = {};
        if (KIND == XN_STRIP_FP32)
            xn_load_16_if(raw[r].own, own, own_inside);
        else
            xn_load_8_if(raw[r].own, own, own_inside);
        if (xn_strip_window<KW>::LEFT == 0)
            continue;
        if (SIDE * BYTES == 16)
            xn_load_16_if(raw[r].side, side, side_inside);
        else if (SIDE * BYTES == 8)
            xn_load_8_if(raw[r].side, side, side_inside);
        else if (SIDE * BYTES == 4)
            xn_load_4_if(raw[r].side, side, side_inside);
        else
            xn_load_2_if(raw[r].side, side, side_inside);
    }
}

/* Bytes of BOOL as the INT8 of their signs: what is outside the image stays 0. */
__device__ __forceinline__ uint32_t xn_strip_bool_bytes(uint32_t word) {
    const uint32_t is_true = ((word & 0x7f7f7f7fu) + 0x7f7f7f7fu | word) >> 7 & 0x01010101u;
    return 0xffffffffu - is_true * 0xfeu;
}

template <int KW>
__device__ __forceinline__ void xn_strip_bool_signs(const xn_strip_place &p, bool vector,
                                                    xn_strip_raw<KW> *raw) {
    if (vector && p.own)
        raw->own[0] = xn_strip_bool_bytes(raw->own[0]);
#pragma unroll
    for (int n = 0; n < XN_STRIP_WIDTH; n++)
        if (!vector && p.own >> n & 1)
            raw->own[n] = xn_strip_bool_bytes(raw->own[n]) & 0xffu;
#pragma unroll
    for (int n = 0; n < xn_strip_window<KW>::LEFT; n++)
        if (p.side >> n & 1)
            raw->side[n] = xn_strip_bool_bytes(raw->side[n]) & 0xffu;
}

template <int KW, int ROWS>
__device__ __forceinline__ void xn_strip_load_any(const xn_strip_args &a, int64_t first,
                                                  const xn_strip_place &p, int32_t y, int32_t rows,
                                                  xn_strip_raw<KW> *raw) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        raw[r] = {};
        if (r >= rows || (uint32_t)(y + r) >= (uint32_t)a.height)
            continue;
        const int64_t at = first + (int32_t)((y + r) * a.width);
        if (a.datatype == XN_FP32)
            xn_strip_load_row<KW, uint32_t, uint4>((const uint32_t *)a.input + at, p, a.vector_in,
                                                   &raw[r]);
        else if (a.datatype == XN_FP16 || a.datatype == XN_BF16)
            xn_strip_load_row<KW, uint16_t, uint2>((const uint16_t *)a.input + at, p, a.vector_in,
                                                   &raw[r]);
        else
            xn_strip_load_row<KW, uint8_t, uint32_t>((const uint8_t *)a.input + at, p, a.vector_in,
                                                     &raw[r]);
        if (a.datatype == XN_BOOL)
            xn_strip_bool_signs<KW>(p, a.vector_in, &raw[r]);
    }
}

/* Rows y .. y + ROWS - 1 of the channel that starts at element `first`, of which `rows` matter. */
template <int KW, int ROWS, int KIND>
__device__ __forceinline__ void xn_strip_load(const xn_strip_args &a, int64_t first,
                                              const xn_strip_place &p, int32_t y, int32_t rows,
                                              xn_strip_raw<KW> *raw) {
    if constexpr (KIND != XN_STRIP_ANY) {
        if (y >= 0 && y + ROWS <= a.height)
            xn_strip_load_hot<KW, ROWS, KIND, false>(a, first, p, y, raw);
        else
            xn_strip_load_hot<KW, ROWS, KIND, true>(a, first, p, y, raw);
    } else {
        xn_strip_load_any<KW, ROWS>(a, first, p, y, rows, raw);
    }
}

/* ---- from raw elements to floats ---- */

__device__ __forceinline__ float xn_strip_float(int32_t datatype, uint32_t element) {
    switch (datatype) {
    case XN_FP32:
        return __uint_as_float(element);
    case XN_FP16:
        return __half2float(__ushort_as_half((unsigned short)element));
    case XN_BF16:
        return __uint_as_float(element << 16);
    default: /* XN_INT8, and XN_BOOL as it was loaded */
        return (float)(int8_t)element;
    }
}

/* Element n of a packed or, when it was loaded alone, unpacked row. */
__device__ __forceinline__ uint32_t xn_strip_element(const uint32_t *words, int n, int32_t bytes) {
    return bytes == 4   ? words[n]
           : bytes == 2 ? words[n / 2] >> n % 2 * 16 & 0xffffu
                        : words[n / 4] >> n % 4 * 8 & 0xffu;
}

/* A row of one datatype. PACKED: own elements were read as a vector, and so were the sides where
 * SIDES says so; those lie as in memory, others nearest first. */
template <int KW, int DATATYPE, bool PACKED, bool SIDES, int D = 1>
__device__ __forceinline__ void xn_strip_convert(const xn_strip_raw<KW, D> &raw, bool first,
                                                 float *own, float *side) {
    typedef xn_strip_window<KW, D> window;
    constexpr int BYTES = DATATYPE == XN_FP32                          ? 4
                          : DATATYPE == XN_FP16 || DATATYPE == XN_BF16 ? 2
                                                                       : 1;
#pragma unroll
    for (int n = 0; n < XN_STRIP_WIDTH; n++)
        own[n] = xn_strip_float(DATATYPE, xn_strip_element(raw.own, n, PACKED ? BYTES : 4));
#pragma unroll
    for (int n = 0; n < window::LEFT; n++) {
        uint32_t element = raw.side[n];
        if (SIDES)
            element = first ? xn_strip_element(raw.side, window::SIDE - 1 - n, BYTES)
                            : xn_strip_element(raw.side, n, BYTES);
        side[n] = xn_strip_float(DATATYPE, element);
    }
}

/* One branch a row, on what is the same for all. */
template <int KW>
__device__ __forceinline__ void xn_strip_convert_any(const xn_strip_args &a,
                                                     const xn_strip_raw<KW> &raw, bool first,
                                                     float *own, float *side) {
    if (a.datatype == XN_FP32)
        xn_strip_convert<KW, XN_FP32, false, false>(raw, first, own, side);
    else if (a.datatype == XN_FP16 && a.vector_in)
        xn_strip_convert<KW, XN_FP16, true, false>(raw, first, own, side);
    else if (a.datatype == XN_FP16)
        xn_strip_convert<KW, XN_FP16, false, false>(raw, first, own, side);
    else if (a.datatype == XN_BF16 && a.vector_in)
        xn_strip_convert<KW, XN_BF16, true, false>(raw, first, own, side);
    else if (a.datatype == XN_BF16)
        xn_strip_convert<KW, XN_BF16, false, false>(raw, first, own, side);
    else if (a.vector_in)
        xn_strip_convert<KW, XN_INT8, true, false>(raw, first, own, side);
    else
        xn_strip_convert<KW, XN_INT8, false, false>(raw, first, own, side);
}

template <int KW, int KIND, int D>
__device__ __forceinline__ void xn_strip_floats(const xn_strip_args &a,
                                                const xn_strip_raw<KW, D> &raw, bool first,
                                                float *own, float *side) {
    constexpr bool SIDES = xn_strip_window<KW, D>::SIDE > 1;
    if constexpr (KIND == XN_STRIP_ANY)
        xn_strip_convert_any<KW>(a, raw, first, own, side);
    else if constexpr (KIND == XN_STRIP_FP32)
        xn_strip_convert<KW, XN_FP32, true, SIDES, D>(raw, first, own, side);
    else if constexpr (KIND == XN_STRIP_FP16)
        xn_strip_convert<KW, XN_FP16, true, SIDES, D>(raw, first, own, side);
    else
        xn_strip_convert<KW, XN_FP32, false, false, D>(raw, first, own, side);
}

/* The columns of the 4 windows: 4 own ones between LEFT and RIGHT of the neighbours. All lanes of
 * the warp. */
template <int KW, int D>
__device__ __forceinline__ void xn_strip_columns(const xn_strip_place &p, const float *own,
                                                 const float *side, float *columns) {
    typedef xn_strip_window<KW, D> window;
#pragma unroll
    for (int n = 0; n < XN_STRIP_WIDTH; n++)
        columns[window::LEFT + n] = own[n];
#pragma unroll
    for (int n = 0; n < window::LEFT; n++) {
        const float v = __shfl_up_sync(0xffffffffu, own[XN_STRIP_WIDTH - 1 - n], 1, p.lanes);
        columns[window::LEFT - 1 - n] = p.first ? side[n] : v;
    }
#pragma unroll
    for (int n = 0; n < window::RIGHT; n++) {
        const float v = __shfl_down_sync(0xffffffffu, own[n], 1, p.lanes);
        columns[window::LEFT + XN_STRIP_WIDTH + n] = p.last ? side[n] : v;
    }
}

/* ---- a row's sums and pattern ---- */

/* Four sliding sums of KW magnitudes; neighbours share what they have in common. */
template <int KW, int D>
__device__ __forceinline__ void xn_strip_sums(const float *columns, float *h) {
    if constexpr (D == 2) { /* outputs j and j + 2 share a pair */
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float pair = fabsf(columns[j + 2]) + fabsf(columns[j + 4]);
            h[j] = pair + fabsf(columns[j]);
            h[j + 2] = pair + fabsf(columns[j + 6]);
        }
    } else if constexpr (KW < 4) {
        float pair[XN_STRIP_WIDTH];
#pragma unroll
        for (int j = 0; j < XN_STRIP_WIDTH; j++) {
            /* 3 columns: a pair that two outputs share, and one more */
            const int at = KW == 3 ? j / 2 * 2 + 1 : j;
            pair[j] = fabsf(columns[at]);
            if (KW > 1)
                pair[j] += fabsf(columns[at + 1]);
            h[j] = KW < 3 ? pair[j] : pair[j] + fabsf(columns[j % 2 ? j + 2 : j]);
        }
    } else {
        float common = fabsf(columns[3]); /* of all 4 windows: columns 3 .. KW - 1 */
#pragma unroll
        for (int n = 4; n < KW; n++)
            common += fabsf(columns[n]);
        const float l1 = fabsf(columns[2]), l2 = l1 + fabsf(columns[1]);
        const float r1 = fabsf(columns[KW]), r2 = r1 + fabsf(columns[KW + 1]);
        h[0] = common + (l2 + fabsf(columns[0]));
        h[1] = common + l2 + r1;
        h[2] = common + l1 + r2;
        h[3] = common + (r2 + fabsf(columns[KW + 2]));
    }
}

/* One bit a column, 4 apart: column n at bit 4 n of the low word and on into the high one. sign(n)
 * has the column's sign in its highest bit; what else it has is masked away. */
template <int COLUMNS, class Sign>
__device__ __forceinline__ void xn_strip_spread(Sign sign, uint32_t *low, uint32_t *high) {
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int n = COLUMNS - 1; n >= 0; n--)
        words[n / 8] = __funnelshift_l(sign(n), words[n / 8], n % 8 ? 4 : 1);
    *low = words[0] & 0x11111111u;
    *high = words[1] & 0x11111111u;
}

/* Nibble n: columns n, n + D, n + 2 D. The second word, for 7 columns, has nibbles 6 .. 9, of which
 * the tables read the first column only. */
template <int KW, int D, class Sign>
__device__ __forceinline__ void xn_strip_pattern(Sign sign, uint32_t *pattern) {
    uint32_t low, high;
    xn_strip_spread<xn_strip_window<KW, D>::COLUMNS>(sign, &low, &high);
    if (D == 2)
        pattern[0] = low | low >> 7 | low >> 14;
    else if (KW <= 3) /* 24 bits, which do not meet: one multiplication adds the three shifts */
        pattern[0] = low * 73u >> 6;
    else
        pattern[0] = low | __funnelshift_r(low, high, 3) | __funnelshift_r(low, high, 6);
    if constexpr (xn_strip_window<KW, D>::WORDS == 2)
        pattern[1] = __funnelshift_r(low, high, 24);
}

/* The columns outside the image as a pattern. */
template <int KW, int D = 1>
__device__ __forceinline__ void xn_strip_outside(const xn_strip_args &a, const xn_strip_place &p,
                                                 uint32_t *pattern) {
    const int32_t first = p.in_x - xn_strip_window<KW, D>::LEFT;
    xn_strip_pattern<KW, D>(
        [&](int n) { return (uint32_t)(first + n) < (uint32_t)a.width ? 0u : 0x80000000u; },
        pattern);
}

/* Raw row to sums and pattern. When K is wanted a NaN's sign has no effect: its windows are NaN. */
template <int KW, int KIND, int D = 1>
__device__ __forceinline__ void xn_strip_digest(const xn_strip_args &a, const xn_strip_place &p,
                                                const xn_strip_raw<KW, D> &raw, float *h,
                                                uint32_t *pattern) {
    typedef xn_strip_window<KW, D> window;
    float own[XN_STRIP_WIDTH], side[window::SIDE], columns[window::COLUMNS];
    xn_strip_floats<KW, KIND, D>(a, raw, p.first, own, side);
    if (KIND != XN_STRIP_ANY) { /* -0 to +0, so that the sign bit is the sign */
#pragma unroll
        for (int n = 0; n < XN_STRIP_WIDTH; n++)
            own[n] += 0.0f;
#pragma unroll
        for (int n = 0; n < window::LEFT; n++)
            side[n] += 0.0f;
    }
    xn_strip_columns<KW, D>(p, own, side, columns);
    xn_strip_pattern<KW, D>(
        [&](int n) {
            return KIND != XN_STRIP_ANY      ? __float_as_uint(columns[n])
                   : xn_sign_bit(columns[n]) ? 0u
                                             : 0x80000000u;
        },
        pattern);
    xn_strip_sums<KW, D>(columns, h);
}

/* ---- counting taps ---- */

/* The table of up to 3 taps: byte p is how many of them differ from the signs p. */
__device__ __forceinline__ uint2 xn_strip_table(uint32_t negative, int32_t taps) {
    const uint32_t low = taps == 1 ? 0x01000100u : 0x02010100u;
    const uint32_t high = taps == 3 ? 0x03020201u : low;
    const uint32_t flip = (negative & ((1u << taps) - 1u)) * 0x1111u;
    return make_uint2(xn_permute(low, high, 0x3210u ^ flip), xn_permute(low, high, 0x7654u ^ flip));
}

/* ---- outputs ---- */

/* Nibbles 3 part and on of a pattern, in the low bits. */
__device__ __forceinline__ uint32_t xn_strip_select(const uint32_t *pattern, int part) {
    return part == 2 ? pattern[1] : part == 1 ? pattern[0] >> 12 : pattern[0];
}

/* Byte j of the counts as a float: 2^15 + count, by placing it in the mantissa. */
__device__ __forceinline__ float xn_strip_count(uint32_t counts, int j) {
    return __uint_as_float(xn_permute(counts, 0x47000000u, 0x7404u | (uint32_t)j << 4));
}

__device__ __forceinline__ uint2 xn_strip_halves(const float *v) {
    uint32_t halves[XN_STRIP_WIDTH];
#pragma unroll
    for (int j = 0; j < XN_STRIP_WIDTH; j++)
        halves[j] = __half_as_ushort(__float2half_rn(v[j]));
    return make_uint2(halves[1] << 16 | halves[0], halves[3] << 16 | halves[2]);
}

__device__ __forceinline__ void xn_strip_store(const xn_strip_args &a, int64_t index, int32_t live,
                                               const float *v) {
    if (a.vector_out && live == XN_STRIP_WIDTH) {
        if (a.out.datatype == XN_FP32) {
            *(float4 *)((float *)a.out.data + index) = make_float4(v[0], v[1], v[2], v[3]);
        } else if (a.out.datatype == XN_INT32) {
            *(int4 *)((int32_t *)a.out.data + index) =
                make_int4((int32_t)v[0], (int32_t)v[1], (int32_t)v[2], (int32_t)v[3]);
        } else {
            *(uint2 *)((__half *)a.out.data + index) = xn_strip_halves(v);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < XN_STRIP_WIDTH; j++) {
        if (j >= live)
            break;
        if (a.out.datatype == XN_INT32)
            ((int32_t *)a.out.data)[index + j] = (int32_t)v[j];
        else
            xn_store_fp32(a.out, index + j, v[j]);
    }
}

/* K's sums of ROWS x 4 outputs. */
template <int KH, int ROWS>
__device__ __forceinline__ void xn_strip_box(const float (&h)[ROWS + KH - 1][XN_STRIP_WIDTH],
                                             int32_t kernel_h, float (&k)[ROWS][XN_STRIP_WIDTH]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < XN_STRIP_WIDTH; j++) {
            if (KH == 3) { /* two rows share a pair */
                const int pair = r / 2 * 2 + 1;
                k[r][j] = (h[pair][j] + h[pair + 1][j]) + h[r % 2 ? r + 2 : r][j];
            } else {
                k[r][j] = h[r][j];
#pragma unroll
                for (int i = 1; i < KH; i++)
                    if (i < kernel_h)
                        k[r][j] += h[r + i][j];
            }
        }
}

/* True when a sum may have overflowed, or may in the epilogue. Every row is in one of the windows
 * looked at, every column in the first or last of the 4, or in one of all (ALL). */
template <int KW, int KH, int ROWS, bool EXACT, bool ALL = (KW < 3)>
__device__ __forceinline__ bool xn_strip_large(const float (&k)[ROWS][XN_STRIP_WIDTH]) {
    bool large = false;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (!EXACT || r % KH == 0 || r == ROWS - 1) {
            const float total = ALL ? k[r][0] + k[r][1] + k[r][2] + k[r][3] : k[r][0] + k[r][3];
            large = large || !(total <= XN_STRIP_LARGE);
        }
    return large;
}

/* ---- what fp32 cannot do ---- */

/* True when the epilogue of tame sums may overflow, or its parts underflow. */
__device__ __forceinline__ bool xn_strip_extreme(float factor, float bias) {
    const float size = fabsf(factor);
    return !((size == 0.0f || size >= XN_STRIP_MIN_FACTOR) && size <= XN_STRIP_MAX_FACTOR &&
             fabsf(bias) <= XN_STRIP_MAX_BIAS);
}

/* Computes outputs again from the input, in double: rows out_y .. of the phase, of one filter. */
template <int KW>
__device__ __forceinline__ void
xn_strip_again(const xn_strip_args &a, int32_t plane, int32_t filter, int32_t out_x, int32_t out_y,
               int32_t rows, int32_t live, const xn_strip_phase &phase, int32_t dilation_w) {
    const int64_t o = plane % a.groups * a.filters + filter;
    const double factor = xn_factor_of(a.factor, o), bias = xn_bias_of(a.bias, o);
    const int64_t outputs = (int64_t)a.out_height * a.out_width;
    for (int32_t e = 0; e < rows * live; e++) {
        const int32_t row = out_y + e / live, x = out_x + e % live;
        const int32_t y = phase.out_first + phase.step * row;
        double sum = 0.0;
        int32_t dot = 0, bit = 0;
        for (int32_t c = 0; c < a.channels; c++)
            for (int32_t i = 0; i < a.kernel_h; i++)
                for (int32_t j = 0; j < KW; j++, bit++) {
                    const int32_t in_y = y - a.pad_top + i * phase.step;
                    const int32_t in_x = x - a.pad_left + j * dilation_w;
                    const uint32_t word = __ldg(a.patches + o * a.patch_words + bit / 32);
                    const int32_t weight = word >> bit % 32 & 1 ? 1 : -1;
                    if (in_y < 0 || in_y >= a.height || in_x < 0 || in_x >= a.width) {
                        dot += weight * a.pad_value;
                        continue;
                    }
                    const int64_t at =
                        plane * a.in_plane + ((int64_t)c * a.height + in_y) * a.width + in_x;
                    float v = 0.0f;
                    xn_with_input(a.input, a.datatype,
                                  [&](auto *input) { v = xn_to_fp32(input[at]); });
                    dot += xn_sign_bit(v) ? weight : -weight;
                    sum += fabs((double)v);
                }
        const double k = a.want_k ? sum / (a.channels * a.kernel_h * KW) : 1.0;
        const int64_t index = plane * a.out_plane + filter * outputs + (int64_t)y * a.out_width + x;
        xn_store_fp32(a.out, index, (float)((double)dot * factor * k + bias));
    }
}

/* ---- where a thread works ---- */

/* All rows, without dilation. */
__device__ __forceinline__ xn_strip_phase xn_strip_whole(const xn_strip_args &a) {
    return {1, 0, a.height, -a.pad_top, 0, a.out_height};
}

/* The rows of outputs that are `phase` modulo the dilation, and of the input that they read. */
__device__ __forceinline__ xn_strip_phase xn_strip_phase_of(const xn_strip_args &a, int32_t phase) {
    const int32_t d = a.dilation_h, up = (a.pad_top + d - 1) / d; /* no division of negatives */
    const int32_t at = phase - a.pad_top + up * d;
    const int32_t first = at % d;
    return {d,           first, (a.height - first + d - 1) / d,
            at / d - up, phase, (a.out_height - phase + d - 1) / d};
}

/* Where in the launch a block is: x holds tiles across, and where there are any, splits and planes
 * beyond what z takes; y the tiles down. */
struct xn_strip_block {
    int32_t tile_x, tile_y, split, plane;
};

__device__ __forceinline__ xn_strip_block xn_strip_find_block(const xn_strip_args &a) {
    int32_t x = (int32_t)blockIdx.x;
    xn_strip_block b = {x, (int32_t)blockIdx.y, 0, (int32_t)blockIdx.z};
    if ((int32_t)gridDim.x == a.tiles_x)
        return b;
    b.split = x % a.splits;
    x /= a.splits;
    b.tile_x = x % a.tiles_x;
    b.plane += x / a.tiles_x * (int32_t)gridDim.z;
    return b;
}

__device__ __forceinline__ xn_strip_place xn_strip_find(const xn_strip_args &a,
                                                        const xn_strip_block &b, int32_t strip_rows,
                                                        int32_t left, bool hot) {
    xn_strip_place p;
    p.lanes = 1 << a.lanes_log2;
    const int32_t lane = (int32_t)threadIdx.x & (p.lanes - 1);
    const int32_t segment = (int32_t)threadIdx.x >> a.lanes_log2;
    const int32_t right = segment & ((1 << a.across_log2) - 1);
    const int32_t below = segment >> a.across_log2 & ((1 << a.down_log2) - 1);
    p.stack = segment >> (a.across_log2 + a.down_log2);
    p.plane = (b.plane << a.stack_log2) + p.stack;
    p.out_x = (((b.tile_x << a.across_log2) + right << a.lanes_log2) + lane) * XN_STRIP_WIDTH;
    p.out_y = ((b.tile_y << a.down_log2) + below) * strip_rows;
    p.in_x = p.out_x - a.pad_left + left;
    p.live = min(a.out_width - p.out_x, (int32_t)XN_STRIP_WIDTH);
    p.first = lane == 0;
    p.last = lane == p.lanes - 1;
    const int32_t past = p.in_x + (p.first ? -1 : XN_STRIP_WIDTH);
    if (hot) { /* aligned: all four or none */
        p.own = (uint32_t)p.in_x < (uint32_t)a.width;
        p.side = (p.first || p.last) && (uint32_t)past < (uint32_t)a.width;
        if (p.plane >= a.planes)
            p.own = p.side = 0, p.live = 0;
        return p;
    }
    p.own = p.side = 0;
    if (p.plane >= a.planes) {
        p.live = 0;
        return p;
    }
#pragma unroll
    for (int n = 0; n < XN_STRIP_WIDTH; n++) {
        if ((uint32_t)(p.in_x + n) < (uint32_t)a.width)
            p.own |= 1u << n;
        if ((p.first || p.last) && (uint32_t)(past + (p.first ? -n : n)) < (uint32_t)a.width)
            p.side |= 1u << n;
    }
    return p;
}

#endif
