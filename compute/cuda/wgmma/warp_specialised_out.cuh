/* warp_specialised_out.cuh: from the counts of a job, 64 filters by N positions in the registers of
 * a warpgroup, to outputs. A warp has 16 filters: thread 4g + t has filters g and g + 8 (h = 0, 1),
 * of every 8 positions the pair 2t and 2t + 1: position 8j + 2t + e in counts[4j + 2h + e].
 *
 * A warp puts the counts into its part of a stage in shared memory, 16 bits each, those of outputs
 * only, one after the other, all or 8 filters at a time. From there a thread has some neighbouring
 * pixels, with all that belongs to them in registers, and goes through the filters, some at a time.
 */
#ifndef XN_CUDA_WARP_SPECIALISED_OUT_CUH
#define XN_CUDA_WARP_SPECIALISED_OUT_CUH

#include "warp_specialised.cuh"

#include <type_traits>

#if XN_HAS_WGMMA

/* What a block has of its filters. */
struct specialised_table {
    char *rows; /* [class][filter]: float */
    specialised_constants constants;
};

__device__ __forceinline__ specialised_table table_of(const specialised_args &a, char *memory) {
    return {memory + a.shape.table_at, specialised_constants::at(memory + a.shape.constants_at)};
}

/* ---- counts into the stage ---- */

/* Stores that happen only when `valid`, without a branch. */
__device__ __forceinline__ void stage_4_if(uint32_t to, uint32_t v, bool valid) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.shared.u32 [%0], %1; }" ::"r"(to),
                 "r"(v), "r"((uint32_t)valid)
                 : "memory");
}
__device__ __forceinline__ void stage_2_if(uint32_t to, int32_t v, bool valid) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.shared.u16 [%0], %1; }" ::"r"(to),
                 "h"((uint16_t)v), "r"((uint32_t)valid)
                 : "memory");
}

/* EVEN: outputs of a line begin at even numbers and are even in number. */
template <int N, bool EVEN>
__device__ __forceinline__ void put_pairs(const specialised_args &a, const char *stage,
                                          const int32_t (&counts)[N / 2]) {
    const xn_cuda_specialised_shape &s = a.shape;
    const int32_t lane = threadIdx.x % 32, column = lane % 4 * 2;
    const uint32_t to = xn_shared_address(stage) + (uint32_t)(lane / 4 * s.stage_row + column * 2);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const uint32_t at = to + (uint32_t)s.octet_at[j];
        const bool live = column < s.octet_live[j], both = column + 1 < s.octet_live[j];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int32_t *count = counts + 4 * j + 2 * h;
            const uint32_t row = at + (uint32_t)(h * 8 * s.stage_row);
            if (EVEN) {
                stage_4_if(row, xn_permute((uint32_t)count[0], (uint32_t)count[1], 0x5410), live);
            } else {
                stage_2_if(row, count[0], live);
                stage_2_if(row + 2, count[1], both);
            }
        }
    }
}

/* Where a line's outputs are whole groups of 8. What is no output goes
 * behind the row. */
template <int N>
__device__ __forceinline__ void put_octets(const specialised_args &a, const char *stage,
                                           const int32_t (&counts)[N / 2]) {
    const xn_cuda_specialised_shape &s = a.shape;
    const int32_t lane = threadIdx.x % 32;
    const uint32_t to = xn_shared_address(stage) + (uint32_t)(lane % 16 * s.stage_row);
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        const int32_t at = lane < 16 ? s.octet_at[j] : s.octet_at[j + 1];
        uint32_t v[4];
#pragma unroll
        for (int n = 0; n < 4; n++)
            v[n] = xn_permute((uint32_t)counts[4 * j + 2 * n], (uint32_t)counts[4 * j + 2 * n + 1],
                              0x5410);
        xn_store_matrices(to + (uint32_t)at, v);
    }
}

template <int N>
__device__ __forceinline__ void put_counts(const specialised_args &a, const char *stage,
                                           const int32_t (&counts)[N / 2]) {
    if (a.conv.out_width % 8 == 0)
        put_octets<N>(a, stage, counts);
    else if (a.conv.out_width % 2 == 0)
        put_pairs<N, true>(a, stage, counts);
    else
        put_pairs<N, false>(a, stage, counts);
}

/* ---- outputs ---- */

/* V counts of a filter, each as the float 2^24 + 2 count; high: COUNT_FLOAT. */
template <int V>
__device__ __forceinline__ void load_counts(const char *from, uint32_t high, uint32_t (&to)[V]) {
    if constexpr (V == 1) {
        to[0] = xn_permute(*(const uint16_t *)from, high, 0x5410);
    } else {
        uint32_t v[V / 2];
        xn_load_words<V / 2>((const uint32_t *)from, v);
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            to[2 * i] = xn_permute(v[i], high, 0x5410);
            to[2 * i + 1] = xn_permute(v[i], high, 0x5432);
        }
    }
}

/* What an output is in memory. */
template <int OUT>
using specialised_output = std::conditional_t<OUT == XN_FP16, __half, float>;

/* What a thread has of its pixels. Where there are 8 they are of one line, and only the first and
 * the last may be at a border (warp_specialised_plan.cu), so there are three rows of the table. */
template <int V>
struct specialised_pixels {
    enum { ROWS = V == 8 ? 3 : V };
    int32_t row[ROWS];
    float part[V], box[V];

    static __device__ __forceinline__ constexpr int row_of(int v) {
        return V < 8 ? v : v == 0 ? 0 : v < V - 1 ? 1 : 2;
    }
};

/* Filters at once: what registers allow. */
template <int V, specialised_kind REST>
constexpr int filters_at_once = V > 1 && REST != PLAIN ? 2 : 4;

/* What half of dot, as a float, and an entry of the table make together. */
__device__ __forceinline__ float dot_of(uint32_t count, float part, float entry) {
    return fmaf(__uint_as_float(count) + part, 2.0f, entry);
}

/* What follows the value for V pixels of a thread: the residuals of the next F filters, which are
 * loaded while those before are worked on; the bits of the warp's 16 filters so far, two pixels a
 * word. */
template <int OUT, int V, int F>
struct specialised_rest {
    typedef specialised_output<OUT> memory;
    typedef xn_residual_run<OUT == XN_FP16, V> residual;
    const memory *from; /* the residual of the filters after the next */
    residual next[F];
    uint32_t bits[(V + 1) / 2];

    /* live: filters that there are, from the next on. */
    __device__ __forceinline__ void load(const specialised_args &a, int64_t plane, int32_t live) {
        if (!a.out.what.residual)
            return;
#pragma unroll
        for (int f = 0; f < F; f++, from += plane)
            next[f].load(from, f < live);
    }
    /* y of filter o, which is number n of the warp's. */
    template <bool ACTIVATED>
    __device__ __forceinline__ void finish(const specialised_args &a, int32_t o, int32_t n,
                                           const residual &beside, float (&value)[V]) {
        if (a.out.what.residual)
#pragma unroll
            for (int v = 0; v < V; v++)
                value[v] += beside.at(v);
        if (ACTIVATED) {
            const xn_activation_of_filter activate(a.out, o);
#pragma unroll
            for (int v = 0; v < V; v++)
                value[v] = activate(value[v]);
        }
        if (!a.out.what.bits)
            return;
        const float shift = a.out.what.shift ? xn_read_only(a.out.shift + o) : 0.0f;
#pragma unroll
        for (int v = 0; v < V; v++)
            bits[v / 2] |= xn_sign_bit(value[v] + shift) << (n + v % 2 * 16);
    }
};

/* F filters from m on, number `n` of the warp's and the next, of which `live` are to be written, of
 * V pixels. `to` moves on. */
template <int OUT, int V, specialised_kind REST, int F>
__device__ __forceinline__ void
some_filters(const specialised_args &a, const specialised_table &t, int32_t m, int32_t o, int32_t n,
             int32_t live, const char *counts, const specialised_pixels<V> &p, int64_t plane,
             specialised_output<OUT> **to, specialised_rest<OUT, V, F> *rest) {
    constexpr int ROWS = specialised_pixels<V>::ROWS;
    float factor[F], bias[F], entry[ROWS][F];
    uint32_t count[F][V];
    typename specialised_rest<OUT, V, F>::residual beside[F];
    if constexpr (REST != PLAIN) {
#pragma unroll
        for (int f = 0; f < F; f++)
            beside[f] = rest->next[f];
        rest->load(a, plane, live - F);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        xn_load_words<F>((const float *)(t.rows + p.row[r]) + m, entry[r]);
    xn_load_words<F>(t.constants.factor + m, factor);
    xn_load_words<F>(t.constants.bias + m, bias);
    if (REST == PLAIN)
#pragma unroll
        for (int f = 0; f < F; f++)
            load_counts<V>(counts + f * a.shape.stage_row, a.count_high, count[f]);
#pragma unroll
    for (int f = 0; f < F; f++) {
        float value[V];
        if (REST != PLAIN) /* registers are short */
            load_counts<V>(counts + f * a.shape.stage_row, a.count_high, count[f]);
#pragma unroll
        for (int v = 0; v < V; v++)
            value[v] = xn_value(dot_of(count[f][v], p.part[v], entry[p.row_of(v)][f]), p.box[v],
                                {factor[f], bias[f]});
        if (OUT == XN_FP32 && REST == PLAIN && a.out.what.datatype == XN_INT32)
#pragma unroll
            for (int v = 0; v < V; v++)
                value[v] = __int_as_float((int32_t)value[v]);
        if constexpr (REST != PLAIN)
            rest->template finish<REST == ACTIVATED>(a, o + (f < live ? f : 0), n + f, beside[f],
                                                     value);
        xn_store_if(*to, value, f < live && (REST == PLAIN || a.out.what.datatype != XN_BITS));
        *to += plane;
    }
}

/* Where outputs go: a pixel of a band, among all images'. */
struct specialised_place {
    int32_t image;
    int64_t at; /* in its plane */
};

__device__ __forceinline__ specialised_place place_of(const specialised_args &a,
                                                      const specialised_band &band, int32_t pixel) {
    const int32_t image = a.shape.images > 1 ? xn_divide(pixel, a.image_pixels) : 0;
    return {band.image + image,
            (int64_t)band.y * a.conv.out_width + pixel - image * band.rows * a.conv.out_width};
}

/* The bits of 16 filters from o on, of 32 V pixels of a band from `first` on, by a warp: through
 * the row of the stage whose counts these pixels had, so that lanes store neighbours. */
template <int V>
__device__ __forceinline__ void store_bits(const specialised_args &a, const specialised_band &band,
                                           int32_t o, int32_t first, char *row,
                                           const uint32_t (&bits)[(V + 1) / 2]) {
    const int32_t lane = (int32_t)threadIdx.x % 32, own = first + lane * V;
    const int64_t plane = (int64_t)a.conv.out_height * a.conv.out_width;
    if (own < band.pixels) {
        if constexpr (V == 1)
            *(uint16_t *)(row + own * 2) = (uint16_t)bits[0];
        else
            xn_store_words(row + own * 2, bits);
    }
    __syncwarp();
#pragma unroll
    for (int v = 0; v < V; v++) {
        const int32_t pixel = first + v * 32 + lane;
        if (pixel < band.pixels) {
            const specialised_place p = place_of(a, band, pixel);
            xn_store_half_word(a.out, a.conv.out_channels, p.image * plane + p.at, o,
                               *(const uint16_t *)(row + pixel * 2));
        }
    }
}

/* Whether no product or sum of the epilogue can overflow at any of the warp's pixels. */
template <int V>
__device__ __forceinline__ bool cannot_overflow(const specialised_args &a,
                                                const specialised_table &t,
                                                const specialised_pixels<V> &p, bool live) {
    bool safe = true;
#pragma unroll
    for (int v = 0; v < V; v++)
        safe = safe && t.constants.cannot_overflow(a.conv, p.box[v]);
    return __all_sync(0xffffffffu, safe || !live);
}

/* A job's outputs from pixel `first` on, by one warp: 16 filters from m on, of the block. Ends
 * before 32 V pixels that write_any must do, whose first one it gives; else with what is no pixel.
 */
template <int OUT, int V, specialised_kind REST>
__device__ __forceinline__ int32_t write_fast(const specialised_args &a, const specialised_block &b,
                                              const specialised_table &t,
                                              const specialised_band &band,
                                              const specialised_records &records, char *stage,
                                              int32_t m, int32_t first) {
    typedef specialised_output<OUT> memory;
    constexpr int F = filters_at_once<V, REST>;
    const xn_conv &c = a.conv;
    const int64_t plane = (int64_t)c.out_height * c.out_width;
    const int32_t live = c.group_out_channels - b.m0 - m; /* filters */
    const int32_t end = REST == PLAIN ? 16 : min(live, 16);
    const int32_t o = b.group * c.group_out_channels + b.m0 + m;
#pragma unroll 1
    for (; first < band.pixels; first += 32 * V) {
        const int32_t pixel = first + (int32_t)threadIdx.x % 32 * V;
        const bool mine = pixel < band.pixels;
        const specialised_place at = place_of(a, band, pixel);
        const int64_t index = ((int64_t)at.image * c.out_channels + o) * plane + at.at;
        memory *to = (memory *)a.out.output + index;
        const char *counts = stage + pixel * 2;
        specialised_pixels<V> p = {};
        specialised_rest<OUT, V, F> rest = {};
        if (REST != PLAIN) {
            to += (int64_t)at.image * a.out.output_gap;
            rest.from =
                (const memory *)a.out.residual + index + (int64_t)at.image * a.out.residual_gap;
            rest.load(a, plane, mine ? end : 0);
        }
        if (mine) {
            xn_load_words<V>(records.parts() + pixel, p.part);
            if constexpr (V == 8) {
                p.row[0] = records.rows()[pixel];
                p.row[1] = records.rows()[pixel + 1];
                p.row[2] = records.rows()[pixel + V - 1];
            } else {
                xn_load_words<V>(records.rows() + pixel, p.row);
            }
            xn_load_words<V>(records.boxes() + pixel, p.box);
        }
        if (!cannot_overflow<V>(a, t, p, mine))
            break;
#pragma unroll 1
        for (int32_t f = 0; f < end && mine; f += F, counts += F * a.shape.stage_row)
            some_filters<OUT, V, REST, F>(a, t, m + f, o + f, f, (REST == PLAIN ? live : end) - f,
                                          counts, p, plane, &to, &rest);
        if (REST != PLAIN && a.out.what.bits && live > 0)
            store_bits<V>(a, band, o, first, stage, rest.bits);
    }
    return first;
}

/* Pixels [first, end) whatever the epilogue is, and where fp32 does not hold all of it. A lane has
 * a pixel and goes through the warp's filters. */
__device__ __forceinline__ void write_any(const specialised_args &a, const specialised_block &b,
                                          const specialised_table &t, const specialised_band &band,
                                          const specialised_records &records, const char *stage,
                                          int32_t m, int32_t first, int32_t end) {
    const xn_conv &c = a.conv;
    const int64_t plane = (int64_t)c.out_height * c.out_width;
    const int32_t live = min(c.group_out_channels - b.m0 - m, 16);
    const int32_t o = b.group * c.group_out_channels + b.m0 + m;
#pragma unroll 1
    for (int32_t pixel = first + (int32_t)threadIdx.x % 32; pixel < end; pixel += 32) {
        const int32_t line = xn_divide(pixel, a.out_width), x = pixel - line * c.out_width;
        const int32_t image = band.image + line / band.rows, y = band.y + line % band.rows;
        const float *means = a.io.means + ((int64_t)image * c.groups + b.group) * a.lines.plane +
                             y * a.lines.pitch + x + a.shape.first_tap;
        const auto again = [&]() {
            return xn_box_of<double>(c.kernel_h, c.kernel_w, [&](int32_t i, int32_t j) {
                return means[xn_cuda_padded_tap(&c, &a.lines, i, j, a.lines.phase)];
            });
        };
        const float *entry = (const float *)(t.rows + records.rows()[pixel]) + m;
        const int64_t at = y * c.out_width + x;
        uint32_t bits = 0;
#pragma unroll 1
        for (int32_t f = 0; f < live; f++) {
            uint32_t count[1];
            load_counts<1>(stage + f * a.shape.stage_row + pixel * 2, a.count_high, count);
            float v[1] = {xn_value_or_again(
                a.out, {t.constants.factor[m + f], t.constants.bias[m + f]}, o + f,
                dot_of(count[0], records.parts()[pixel], entry[f]), records.boxes()[pixel], again)};
            const int64_t index = ((int64_t)image * c.out_channels + o + f) * plane + at;
            bits |= xn_finish_and_store(a.out, o + f, index, v) << f;
        }
        if (a.out.what.bits && a.rest != ANY && live > 0)
            xn_store_half_word(a.out, c.out_channels, image * plane + at, o, bits);
        else if (a.out.what.bits)
            xn_add_bits(a.out, c.out_channels, image * plane + at, o, bits);
    }
}

/* Outputs in vectors of what they have in memory. */
template <int OUT, specialised_kind REST>
__device__ __forceinline__ int32_t write_vectors(const specialised_args &a,
                                                 const specialised_block &b,
                                                 const specialised_table &t,
                                                 const specialised_band &band,
                                                 const specialised_records &records, char *stage,
                                                 int32_t m, int32_t first) {
    constexpr int MOST = OUT == XN_FP16 ? 8 : 4;
    if (a.shape.vector == MOST)
        return write_fast<OUT, MOST, REST>(a, b, t, band, records, stage, m, first);
    if (MOST > 4 && a.shape.vector == 4)
        return write_fast<OUT, 4, REST>(a, b, t, band, records, stage, m, first);
    return write_fast<OUT, 1, REST>(a, b, t, band, records, stage, m, first);
}

/* A job's outputs, by one warp. */
template <int OUT, bool REST>
__device__ __forceinline__ void
write_outputs(const specialised_args &a, const specialised_block &b, const specialised_table &t,
              const specialised_band &band, const specialised_records &records, char *stage) {
    const int32_t m = (int32_t)threadIdx.x / 32 % 4 * 16;
#pragma unroll 1
    for (int32_t done = 0; done < band.pixels;) {
        if constexpr (!REST)
            done = write_vectors<OUT, PLAIN>(a, b, t, band, records, stage, m, done);
        else if (a.rest == BESIDE)
            done = write_vectors<OUT, BESIDE>(a, b, t, band, records, stage, m, done);
        else if (a.rest == ACTIVATED)
            done = write_vectors<OUT, ACTIVATED>(a, b, t, band, records, stage, m, done);
        if (done < band.pixels) {
            const int32_t first = done;
            done = min(first + 32 * a.shape.vector, band.pixels);
            write_any(a, b, t, band, records, stage, m, first, done);
        }
    }
}

/* Every WRITERS-th job, from the one of its number on. A band's records are made while it is
 * multiplied; the records of two bands, since a warp may be one ahead of the others. */
template <int OUT, bool REST, int WRITERS>
__device__ __forceinline__ void write_jobs(const specialised_args &a, const specialised_block &b,
                                           const specialised_table &t, int32_t mine) {
    const xn_cuda_specialised_shape &s = a.shape;
    const specialised_range bands = share_of(a);
    char *stage = stage_of(a, b, mine);
    const bool nine = a.conv.kernel_h == 3 && a.conv.kernel_w == 3;
    const specialised_own own = own_pixels(a);
    specialised_ring ring = {0, 0};
    uint32_t parity = 0;
    ring.skip(mine, s.depth);
#pragma unroll 1
    for (int32_t number = bands.next + mine; number < bands.end; number += WRITERS) {
        const char *buffer = b.memory + s.buffers_at + ring.place * s.buffer_bytes;
        const specialised_band band = band_of(a, number);
        const specialised_records records = records_of(a, b, 2 * mine + (int32_t)parity);
        xn_mbarrier_wait(xn_barrier_at(b.barriers, BAND_FULL + ring.place), ring.parity);
        if (nine)
            make_records<true>(a, band, own, buffer, records);
        else
            make_records<false>(a, band, own, buffer, records);
        xn_mbarrier_arrive(xn_barrier_at(b.barriers, BAND_FREE + ring.place));
        xn_named_barrier(GROUP_MEETS + mine, GROUP);
        xn_mbarrier_wait(xn_barrier_at(b.barriers, STAGE_FULL + mine), parity);
        if (REST && a.out.what.residual)
            xn_wait_for_previous_kernel(); /* which has ended: the band is here */
        write_outputs<OUT, REST>(a, b, t, band, records, stage);
        xn_mbarrier_arrive(xn_barrier_at(b.barriers, STAGE_FREE + mine));
        parity ^= 1;
#pragma unroll
        for (int n = 0; n < WRITERS; n++)
            ring.next(s.depth);
    }
}

#endif
#endif
