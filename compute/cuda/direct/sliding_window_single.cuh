/* sliding_window_single.cuh: the strip kernel (sliding_window.cuh) where a group is one channel and
 * one filter, as in the single-channel images this path is for and in depth-wise layers. The
 * filter's tables stay in registers, so nothing is shared and no thread waits for another but in
 * shuffles; addresses move on by the pitch from row to row.
 *
 * Dilation: rows of one remainder of it are an image of their own, and a strip is of one of these.
 * Columns 2 apart need no other threads than those of a window of 5, and as many instructions as
 * neighbours. */
#ifndef XN_CUDA_SLIDING_WINDOW_SINGLE_CUH
#define XN_CUDA_SLIDING_WINDOW_SINGLE_CUH

#include "sliding_window_rows.cuh"

/* From counted bytes to dot * factor. Up to 15 taps the tables hold 4 (taps - 2 differ + taps) a
 * part, so that the sum is 4 (dot + taps) < 128: placed below the exponent of 32 it is the float
 * 32 + taps + dot, and one fused operation takes the rest away; its rounding is 41/2 units in the
 * last place of a dot of 1, 2.5e-6. */
template <int KW, int KH>
struct xn_single_filter {
    static constexpr bool SMALL = KH * KW <= 15;
    static constexpr float OFFSET = 32.0f + KH * KW;
    uint2 tables[KH][xn_strip_window<KW>::TABLES];
    float factor, bias; /* factor divided by what K's sums must be */
    float offset;       /* OFFSET * factor */
    bool extreme;

    __device__ __forceinline__ uint2 make_table(uint32_t negative, int32_t taps) const {
        uint2 t = xn_strip_table(negative, taps);
        if (SMALL) { /* bytes d to 8 (taps - d); none borrows */
            t.x = (uint32_t)taps * 0x08080808u - t.x * 8u;
            t.y = (uint32_t)taps * 0x08080808u - t.y * 8u;
        }
        return t;
    }

    __device__ __forceinline__ float product(uint32_t counts, int j) const {
        if (SMALL)
            return fmaf(place(counts, j), factor, -offset);
        return fmaf(xn_strip_count(counts, j), -2.0f, (float)(KH * KW) + 0x1p16f) * factor;
    }

    /* Of the mean of two dots: exact, since it may be 0. */
    __device__ __forceinline__ float product(uint32_t counts, uint32_t others, int j) const {
        if (SMALL)
            return (place(counts, j) + place(others, j) - 2.0f * OFFSET) * (factor * 0.5f);
        return ((float)(KH * KW) + 0x1p16f - xn_strip_count(counts, j) -
                xn_strip_count(others, j)) *
               factor;
    }

    static __device__ __forceinline__ float place(uint32_t counts, int j) {
        return __uint_as_float(xn_permute(counts, 0x42000000u, 0x7044u | (uint32_t)j << 8));
    }
};

/* What the filter is made from. It is read before the rows: after them its loads would be issued
 * only when the rows have arrived. */
template <int KW, int KH>
struct xn_single_weights {
    static constexpr int WORDS = (KH * KW + 31) / 32;
    uint32_t words[WORDS];
    float factor, bias;

    __device__ __forceinline__ void load(const xn_strip_args &a, int32_t o) {
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            words[w] = xn_load_4(a.patches + (int64_t)o * a.patch_words + w);
        factor = a.factor ? __uint_as_float(xn_load_4(a.factor + o)) : 1.0f;
        bias = a.bias ? __uint_as_float(xn_load_4(a.bias + o)) : 0.0f;
    }

    __device__ __forceinline__ xn_single_filter<KW, KH> make(float reciprocal) const {
        xn_single_filter<KW, KH> filter;
        filter.bias = bias;
        filter.factor = factor * reciprocal;
        filter.offset = filter.factor * filter.OFFSET;
        filter.extreme = xn_strip_extreme(factor, bias);
#pragma unroll
        for (int i = 0; i < KH; i++)
#pragma unroll
            for (int part = 0; part < xn_strip_window<KW>::TABLES; part++) {
                const int at = i * KW + part * 3, word = at / 32;
                const uint32_t next = word + 1 < WORDS ? words[word + 1 < WORDS ? word + 1 : 0] : 0;
                filter.tables[i][part] =
                    filter.make_table(~__funnelshift_r(words[word], next, at % 32),
                                      KW - part * 3 < 3 ? KW - part * 3 : 3);
            }
        return filter;
    }
};

/* Where the next rows come from. */
template <int KW, int KIND, int D>
struct xn_single_source {
    typedef xn_strip_window<KW, D> window;
    static constexpr int BYTES = KIND == XN_STRIP_FP16 ? 2 : 4;
    static constexpr int SIDE = window::SIDE;
    const char *own, *side;
    int64_t start, pitch;
    int32_t y, height;

    __device__ __forceinline__ void begin(const xn_strip_args &a, const xn_strip_place &p,
                                          const xn_strip_phase &phase) {
        y = p.out_y + phase.above;
        height = phase.height;
        start = p.plane * a.in_plane + (int64_t)phase.first * a.width;
        pitch = (int64_t)a.width * phase.step * BYTES;
        own = (const char *)a.input + y * pitch + (start + p.in_x) * BYTES;
        side = own + (p.first ? KIND == XN_STRIP_LOOSE ? -1 : -SIDE : XN_STRIP_WIDTH) * BYTES;
    }

    static __device__ __forceinline__ void load_own(uint32_t *to, const char *from, bool valid) {
        if (KIND == XN_STRIP_FP32)
            xn_load_16_if(to, from, valid);
        else
            xn_load_8_if(to, from, valid);
    }

    static __device__ __forceinline__ void load_side(uint32_t *to, const char *from, bool valid) {
        if (window::LEFT == 0)
            return;
        if (SIDE * BYTES == 16)
            xn_load_16_if(to, from, valid);
        else if (SIDE * BYTES == 8)
            xn_load_8_if(to, from, valid);
        else if (SIDE * BYTES == 4)
            xn_load_4_if(to, from, valid);
        else
            xn_load_2_if(to, from, valid);
    }

    /* raw is zero or of earlier rows: it stays zero where there is nothing to load. */
    template <int ROWS>
    __device__ __forceinline__ void next(const xn_strip_args &a, const xn_strip_place &p,
                                         xn_strip_raw<KW, D> *raw) {
        if constexpr (KIND == XN_STRIP_ANY) {
            xn_strip_load_any<KW, ROWS>(a, start, p, y, ROWS, raw);
        } else if constexpr (KIND == XN_STRIP_LOOSE) {
#pragma unroll
            for (int r = 0; r < ROWS; r++, own += pitch, side += pitch) {
                const bool inside = (uint32_t)(y + r) < (uint32_t)height;
                raw[r] = {};
#pragma unroll
                for (int n = 0; n < XN_STRIP_WIDTH; n++)
                    xn_load_4_if(&raw[r].own[n], own + n * BYTES, inside && (p.own >> n & 1));
#pragma unroll
                for (int n = 0; n < window::LEFT; n++)
                    xn_load_4_if(&raw[r].side[n], side + (p.first ? -n : n) * BYTES,
                                 inside && (p.side >> n & 1));
            }
        } else if (y >= 0 && y + ROWS <= height) {
#pragma unroll
            for (int r = 0; r < ROWS; r++, own += pitch, side += pitch) {
                load_own(raw[r].own, own, p.own);
                load_side(raw[r].side, side, p.side);
            }
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; r++, own += pitch, side += pitch) {
                const bool inside = (uint32_t)(y + r) < (uint32_t)height;
                raw[r] = {};
                load_own(raw[r].own, own, inside && p.own);
                load_side(raw[r].side, side, inside && p.side);
            }
        }
        y += ROWS;
    }
};

/* The same rows by way of shared memory, where far more can be on their way than in registers: a
 * ring of DEPTH chunks of rows, of which each thread reads only what it copied itself, so that
 * nobody waits for another. In front of the ring are the KH - 1 rows above the first chunk. */
template <int KW, int KH, int ROWS, int KIND, int DEPTH>
struct xn_single_ring {
    static constexpr int BYTES = KIND == XN_STRIP_FP32 ? 4 : 2;
    static constexpr int OWN = XN_STRIP_WIDTH * BYTES;
    /* The copies are of 4 bytes at least: one float, or 4 halves. */
    static constexpr int SIDE =
        KIND == XN_STRIP_FP32 && xn_strip_window<KW>::LEFT == 1 ? 4 : XN_STRIP_WIDTH * BYTES;
    static constexpr int SLOTS = DEPTH * ROWS + KH - 1, SLOT_BYTES = OWN + SIDE;
    static_assert(xn_strip_window<KW>::SIDE == 1, "a wider window needs the sides turned");
    const char *own, *side; /* of row y, to be copied next */
    char *to_own, *to_side; /* this thread's slot 0 */
    int64_t pitch;
    int32_t y, copied, taken; /* chunks modulo DEPTH */

    __device__ __forceinline__ void begin(const xn_strip_args &a, const xn_strip_place &p,
                                          char *shared) {
        y = p.out_y - a.pad_top;
        pitch = (int64_t)a.width * BYTES;
        own =
            (const char *)a.input + (p.plane * a.in_plane + (int64_t)y * a.width + p.in_x) * BYTES;
        side = own + (p.first ? -SIDE : OWN);
        to_own = shared + threadIdx.x * OWN;
        to_side = shared + SLOTS * blockDim.x * OWN + threadIdx.x * SIDE;
        copied = taken = 0;
    }

    template <int COUNT>
    __device__ __forceinline__ void copy(const xn_strip_args &a, const xn_strip_place &p,
                                         int32_t slot) {
        const uint32_t own_bytes = p.own ? OWN : 0, side_bytes = p.side ? SIDE : 0;
        const bool all = y >= 0 && y + COUNT <= a.height;
#pragma unroll
        for (int r = 0; r < COUNT; r++, own += pitch, side += pitch) {
            const bool inside = all || (uint32_t)(y + r) < (uint32_t)a.height;
            xn_copy_ahead<OWN>(to_own + (slot + r) * blockDim.x * OWN, own, inside ? own_bytes : 0);
            if (p.first || p.last)
                xn_copy_ahead<SIDE>(to_side + (slot + r) * blockDim.x * SIDE, side,
                                    inside ? side_bytes : 0);
        }
        y += COUNT;
    }

    /* Rows COUNT from slot on into registers. */
    template <int COUNT>
    __device__ __forceinline__ void take(const xn_strip_place &p, int32_t slot,
                                         xn_strip_raw<KW> *raw) const {
#pragma unroll
        for (int r = 0; r < COUNT; r++) {
            const char *own_at = to_own + (slot + r) * blockDim.x * OWN;
            const char *side_at = to_side + (slot + r) * blockDim.x * SIDE;
            if (KIND == XN_STRIP_FP32) {
                const uint4 v = *(const uint4 *)own_at;
                memcpy(raw[r].own, &v, sizeof v);
                raw[r].side[0] = *(const uint32_t *)side_at;
            } else {
                const uint2 v = *(const uint2 *)own_at;
                memcpy(raw[r].own, &v, sizeof v);
                /* the nearest half of the 4: the last on the left, the first on the right */
                raw[r].side[0] = *(const uint16_t *)(side_at + (p.first ? 6 : 0));
            }
        }
    }

    __device__ __forceinline__ void copy_first(const xn_strip_args &a, const xn_strip_place &p) {
        copy<ROWS + KH - 1>(a, p, 0);
        xn_copy_commit();
        copied = DEPTH > 1 ? 1 : 0;
#pragma unroll
        for (int chunk = 1; chunk < DEPTH; chunk++)
            copy_next(a, p, chunk < a.chunks);
    }
    __device__ __forceinline__ void copy_next(const xn_strip_args &a, const xn_strip_place &p,
                                              bool more) {
        if (more)
            copy<ROWS>(a, p, KH - 1 + copied * ROWS);
        xn_copy_commit();
        copied = copied + 1 == DEPTH ? 0 : copied + 1;
    }
    __device__ __forceinline__ void take_first(const xn_strip_place &p, xn_strip_raw<KW> *raw) {
        xn_copy_wait<DEPTH - 1>();
        take<ROWS + KH - 1>(p, 0, raw);
        taken = DEPTH > 1 ? 1 : 0;
    }
    __device__ __forceinline__ void take_next(const xn_strip_place &p, xn_strip_raw<KW> *raw) {
        xn_copy_wait<DEPTH - 1>();
        take<ROWS>(p, KH - 1 + taken * ROWS, raw);
        taken = taken + 1 == DEPTH ? 0 : taken + 1;
    }
};

struct xn_single_no_ring {};
template <int KW, int KH, int ROWS, int KIND, int DEPTH>
struct xn_single_ring_of {
    typedef xn_single_ring<KW, KH, ROWS, KIND, DEPTH> type;
};
template <int KW, int KH, int ROWS, int KIND>
struct xn_single_ring_of<KW, KH, ROWS, KIND, 0> {
    typedef xn_single_no_ring type;
};

/* What the tables say of the 4 outputs whose windows start in this row, a byte each. TWICE: others
 * counts with what is outside the image as -1. */
template <int KW, int KH, bool TWICE>
__device__ __forceinline__ void
xn_single_differ(const xn_single_filter<KW, KH> &filter,
                 const uint32_t (*pattern)[xn_strip_window<KW>::WORDS], int32_t height,
                 const uint32_t *columns, int32_t in_y, uint32_t *counts, uint32_t *others) {
    typedef xn_strip_window<KW> window;
    *counts = *others = 0;
#pragma unroll
    for (int i = 0; i < KH; i++)
#pragma unroll
        for (int part = 0; part < window::TABLES; part++) {
            const uint2 t = filter.tables[i][part];
            const uint32_t select = xn_strip_select(pattern[i], part);
            *counts += xn_permute(t.x, t.y, select);
            if (TWICE) {
                const bool inside = (uint32_t)(in_y + i) < (uint32_t)height;
                *others += xn_permute(
                    t.x, t.y, select | (inside ? xn_strip_select(columns, part) : XN_STRIP_ALL));
            }
        }
}

/* ROWS rows of outputs, to `to`, of which rows_left exist. */
template <int KW, int KH, int ROWS, int KIND, bool TWICE>
__device__ __forceinline__ void
xn_single_outputs(const xn_strip_args &a, const xn_strip_place &p,
                  const xn_single_filter<KW, KH> &filter,
                  const uint32_t (*pattern)[xn_strip_window<KW>::WORDS], const uint32_t *columns,
                  const float (&k)[ROWS][XN_STRIP_WIDTH], const xn_strip_phase &phase, int32_t in_y,
                  int32_t rows_left, int64_t index) {
    constexpr int BYTES = KIND == XN_STRIP_FP16 ? 2 : 4;
    const int64_t pitch = (int64_t)a.out_width * phase.step;
    char *to = (char *)a.out.data + index * BYTES;
#pragma unroll
    for (int r = 0; r < ROWS; r++, to += pitch * BYTES) {
        uint32_t counts, others;
        xn_single_differ<KW, KH, TWICE>(filter, pattern + r, phase.height, columns, in_y + r,
                                        &counts, &others);
        float v[XN_STRIP_WIDTH];
#pragma unroll
        for (int j = 0; j < XN_STRIP_WIDTH; j++) {
            const float product =
                TWICE ? filter.product(counts, others, j) : filter.product(counts, j);
            v[j] = fmaf(product, k[r][j], filter.bias);
        }
        if (KIND == XN_STRIP_FP32)
            xn_store_16_if(to, make_float4(v[0], v[1], v[2], v[3]), r < rows_left);
        else if (KIND == XN_STRIP_FP16)
            xn_store_8_if(to, xn_strip_halves(v), r < rows_left);
        else if (KIND == XN_STRIP_LOOSE) {
#pragma unroll
            for (int j = 0; j < XN_STRIP_WIDTH; j++)
                if (r < rows_left && j < p.live)
                    ((float *)to)[j] = v[j];
        } else if (r < rows_left)
            xn_strip_store(a, index + r * pitch, p.live, v);
    }
}

/* DEPTH: chunks that are on their way while one is made; 0: one, in registers. D: columns from tap
 * to tap; with 2, rows have any dilation, and each phase of them is a plane of its own. */
template <int KW, int KH, int ROWS, int KIND, int DEPTH, int D>
__global__ void __launch_bounds__(XN_STRIP_MAX_THREADS, KW > 3 || ROWS > 4 ? 1 : 2)
    xn_single_kernel(const __grid_constant__ xn_strip_args a) {
    typedef xn_strip_window<KW, D> window;
    constexpr int IN_ROWS = ROWS + KH - 1, CARRY = KH - 1;
    const bool want_k = KIND != XN_STRIP_ANY || a.want_k;
    const xn_strip_block block = xn_strip_find_block(a);
    if (block.plane << a.stack_log2 >= a.planes)
        return;
    constexpr bool VECTORS = KIND == XN_STRIP_FP32 || KIND == XN_STRIP_FP16;
    xn_strip_place p = xn_strip_find(a, block, ROWS * a.chunks, window::LEFT, VECTORS);
    xn_strip_phase phase = xn_strip_whole(a);
    if (D > 1) {
        phase = xn_strip_phase_of(a, p.plane % a.dilation_h);
        p.plane /= a.dilation_h;
    }
    xn_single_weights<KW, KH> weights;
    weights.load(a, a.groups == 1 ? 0 : p.plane % a.groups);
    xn_wait_for_previous_kernel();
    xn_let_next_kernel_start();
    xn_strip_raw<KW, D> raw[IN_ROWS] = {};
    xn_single_source<KW, KIND, D> source;
    typename xn_single_ring_of<KW, KH, ROWS, KIND, DEPTH>::type ring;
    if constexpr (DEPTH > 0) {
        extern __shared__ uint32_t shared[];
        ring.begin(a, p, (char *)shared);
        ring.copy_first(a, p);
    } else {
        source.begin(a, p, phase);
        source.template next<IN_ROWS>(a, p, raw);
    }
    const xn_single_filter<KW, KH> filter = weights.make(a.reciprocal);

    int32_t in_y = p.out_y + phase.above;
    const int32_t leftmost = p.in_x - window::LEFT;
    const bool touches = leftmost < 0 || leftmost + window::COLUMNS > a.width || in_y < 0 ||
                         in_y + IN_ROWS + (a.chunks - 1) * ROWS > phase.height;
    const bool border = a.pad_value < 1 && __any_sync(0xffffffffu, touches && p.live > 0);
    uint32_t columns[window::WORDS] = {}; /* outside */
    if (border)
        xn_strip_outside<KW, D>(a, p, columns);

    float h[IN_ROWS][XN_STRIP_WIDTH];
    uint32_t pattern[IN_ROWS][window::WORDS];
    auto digest = [&](int from, int slot, int32_t y) {
        xn_strip_digest<KW, KIND, D>(a, p, raw[from], h[slot], pattern[slot]);
        if (KIND == XN_STRIP_ANY && border && a.pad_value < 0)
#pragma unroll
            for (int w = 0; w < window::WORDS; w++)
                pattern[slot][w] |=
                    (uint32_t)y < (uint32_t)phase.height ? columns[w] : XN_STRIP_ALL;
    };
    if constexpr (DEPTH > 0)
        ring.take_first(p, raw);
#pragma unroll
    for (int r = 0; r < IN_ROWS; r++)
        digest(r, r, in_y + r);

    bool large = false;
    int32_t rows_left = p.live > 0 ? phase.out_height - p.out_y : 0;
    int64_t index = p.plane * a.out_plane + p.out_x +
                    ((int64_t)p.out_y * phase.step + phase.out_first) * a.out_width;
    for (int32_t chunk = a.chunks;;) {
        const bool more = --chunk > 0;
        if constexpr (DEPTH > 0)
            ring.copy_next(a, p, chunk >= DEPTH);
        else if (more)
            source.template next<ROWS>(a, p, raw);
        float k[ROWS][XN_STRIP_WIDTH];
        xn_strip_box<KH, ROWS>(h, KH, k);
        large = large || xn_strip_large<KW, KH, ROWS, true, (KW < 3 || D > 1)>(k);
        if (!want_k)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int j = 0; j < XN_STRIP_WIDTH; j++)
                    k[r][j] = 1.0f;
        if (border && a.pad_value == 0)
            xn_single_outputs<KW, KH, ROWS, KIND, true>(a, p, filter, pattern, columns, k, phase,
                                                        in_y, rows_left, index);
        else
            xn_single_outputs<KW, KH, ROWS, KIND, false>(a, p, filter, pattern, columns, k, phase,
                                                         in_y, rows_left, index);
        if (!more)
            break;
        in_y += ROWS;
        rows_left -= ROWS;
        index += (int64_t)ROWS * phase.step * a.out_width;
#pragma unroll
        for (int r = 0; r < CARRY; r++) {
#pragma unroll
            for (int j = 0; j < XN_STRIP_WIDTH; j++)
                h[r][j] = h[r + ROWS][j];
#pragma unroll
            for (int w = 0; w < window::WORDS; w++)
                pattern[r][w] = pattern[r + ROWS][w];
        }
        if constexpr (DEPTH > 0)
            ring.take_next(p, raw);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            digest(r, CARRY + r, in_y + CARRY + r);
    }

    const int32_t made = p.live > 0 ? min(phase.out_height - p.out_y, ROWS * a.chunks) : 0;
    if ((filter.extreme || (large && want_k)) && made > 0 && a.out.datatype != XN_INT32)
        xn_strip_again<KW>(a, p.plane, 0, p.out_x, p.out_y, made, p.live, phase, D);
}

#endif
