/* fused_gemm.cuh: what a block of fused_gemm.cu has in shared memory before it multiplies: filters
 * and what they count over the taps inside, then the packed positions of its tile. */
#ifndef XN_CUDA_FUSED_GEMM_CUH
#define XN_CUDA_FUSED_GEMM_CUH

#include "epilogue.cuh"
#include "fused_gemm.h"
#include "layout.h"
#include "ptx.cuh"

#include <type_traits>

enum {
    ROWS = XN_CUDA_FUSED_ROWS,
    COLUMNS = XN_CUDA_FUSED_COLUMNS,
    MAX_THREADS = XN_CUDA_FUSED_WARPS * 32,
    OCTET = XN_OCTET, /* channels that a thread packs to a byte */
    PARTS = 8,        /* lanes that share an output's window */
    TAP = 1 << 20,    /* in a position's count: it is inside */
};

struct fused_args {
    xn_cuda_fused_shape shape;
    const void *input;
    const uint32_t *filters; /* layout.h: rows */
    const int32_t *prefix;
    xn_epilogue_args out;
};

/* Of a staged position: the mean of its channels' magnitudes; its set bits, and TAP where it is
 * inside the image. */
struct __align__(8) fused_info {
    float mean;
    int32_t count;
};

/* Of an output: the box of K, or 1, and its part of dot. */
struct __align__(8) fused_output {
    float box;
    int32_t part;
};

/* A unit of a filter: where its channels are from a position's first byte on, and the position. */
struct __align__(8) fused_unit {
    int32_t byte, position;
};

struct fused_block {
    int64_t image;
    int32_t group, filter; /* the first filter, of the group's */
    int32_t out_x, out_y, in_x, in_y;
    int32_t rank;       /* in the cluster */
    int32_t first, own; /* positions that it packs */
    char *filters, *positions;
    fused_unit *table;
    fused_info *info;
    uint32_t *inside; /* all ones where the position is inside the image */
    float *sums;      /* octet_sums, by own position */
    fused_output *outputs;
    uint32_t arrival; /* barrier for what the other blocks of the cluster pack; its address */
};

/* ---- clusters ---- */

__device__ __forceinline__ int32_t cluster_rank() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int32_t)rank;
#else
    return 0;
#endif
}

/* Blocks of a cluster meet: until then none is sure to be there, or has its barrier. */
__device__ __forceinline__ void cluster_arrive() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/* The same place of another block's shared memory. */
__device__ __forceinline__ uint32_t cluster_address(uint32_t own, int32_t rank) {
    uint32_t address = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
#endif
    return address;
}

/* Words to another block, whose barrier counts their bytes. */
template <int WORDS>
__device__ __forceinline__ void cluster_store(uint32_t address, uint32_t barrier,
                                              const uint32_t (&from)[WORDS]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if constexpr (WORDS == 4)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
                     " [%0], {%1,%2,%3,%4}, [%5];" ::"r"(address),
                     "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(barrier)
                     : "memory");
    else if constexpr (WORDS == 2)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32"
                     " [%0], {%1,%2}, [%3];" ::"r"(address),
                     "r"(from[0]), "r"(from[1]), "r"(barrier)
                     : "memory");
    else
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32"
                     " [%0], %1, [%2];" ::"r"(address),
                     "r"(from[0]), "r"(barrier)
                     : "memory");
#endif
}

/* WORDS of aligned memory. */
template <int WORDS>
__device__ __forceinline__ void load_words(const void *from, uint32_t (&to)[WORDS]) {
    if constexpr (WORDS == 4) {
        const uint4 v = *(const uint4 *)from;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else if constexpr (WORDS == 2) {
        const uint2 v = *(const uint2 *)from;
        to[0] = v.x, to[1] = v.y;
    } else {
        to[0] = *(const uint32_t *)from;
    }
}

/* ---- before the kernel ahead has ended ---- */

/* Brings the arguments into the constant cache, all lines at once, where each would else be waited
 * for when it is first used. Loads that nobody needs would be left out, so they go to `scratch`, 64
 * bytes. */
__device__ __forceinline__ void touch_arguments(const fused_args &a, void *scratch) {
    constexpr uint32_t LINE = 64, LINES = (sizeof(fused_args) + LINE - 1) / LINE;
    static_assert(LINES <= 16, "a word of each line");
    if (threadIdx.x < LINES)
        ((uint32_t *)scratch)[threadIdx.x] = ((const uint32_t *)&a)[threadIdx.x * LINE / 4];
}

__device__ __forceinline__ fused_block find_block(const fused_args &a, char *memory,
                                                  uint32_t arrival) {
    const xn_cuda_fused_shape &s = a.shape;
    const xn_conv &c = s.conv;
    fused_block b;
    /* splits of the filters run fastest, then columns, rows, groups, images */
    const int32_t tile = xn_divide((int32_t)blockIdx.x, s.by_splits);
    const int32_t down = xn_divide(tile, s.by_tiles_x), plane = xn_divide(down, s.by_tiles_y);
    const int32_t image = xn_divide(plane, s.by_groups);
    b.filter = ((int32_t)blockIdx.x - tile * s.splits) * s.cut.row_tiles * ROWS;
    b.out_x = (tile - down * s.tiles_x) * s.cut.tile_w;
    b.out_y = (down - plane * s.tiles_y) * s.cut.tile_h;
    b.in_x = b.out_x * c.stride_w - c.pad_left;
    b.in_y = b.out_y * c.stride_h - c.pad_top;
    b.group = plane - image * c.groups;
    b.image = image;
    b.rank = s.cut.cluster > 1 ? cluster_rank() : 0;
    b.first = min(b.rank * s.share, s.positions);
    b.own = min(s.share, s.positions - b.first);
    b.filters = memory;
    b.positions = memory + s.positions_at;
    b.table = (fused_unit *)(memory + s.table_at);
    b.info = (fused_info *)(memory + s.info_at);
    b.inside = (uint32_t *)(memory + s.inside_at);
    b.sums = (float *)(memory + s.sums_at);
    b.outputs = (fused_output *)(memory + s.outputs_at);
    b.arrival = arrival;
    return b;
}

/* Starts to copy the filters, as far as there are some: rows past the last are the last. */
__device__ __forceinline__ void copy_filters(const fused_args &a, const fused_block &b) {
    const xn_cuda_fused_shape &s = a.shape;
    const int32_t pieces = s.filter_bytes / 16, whole = s.row_words / 4;
    const int32_t last = s.conv.group_out_channels - 1;
    const uint32_t *filters =
        a.filters + (int64_t)b.group * s.conv.group_out_channels * s.row_words;
#pragma unroll 2
    for (int32_t e = threadIdx.x; e < s.cut.row_tiles * ROWS * pieces; e += blockDim.x) {
        const int32_t f = xn_divide(e, s.by_pieces), p = e - f * pieces;
        const uint32_t *from = filters + (int64_t)min(b.filter + f, last) * s.row_words + p * 4;
        xn_copy_async<16>(b.filters + f * s.filter_pitch + p * 16, from, p < whole);
    }
    xn_copy_commit();
}

/* Where a filter's units are read; past the last one somewhere. */
__device__ __forceinline__ void make_table(const fused_args &a, const fused_block &b) {
    const xn_cuda_fused_shape &s = a.shape;
    const int32_t entries = (s.steps + 1) * (s.unit_words == 1 ? 8 : 4);
    for (int32_t u = threadIdx.x; u < entries; u += blockDim.x) {
        fused_unit unit = {0, 0};
        if (u < s.units) {
            const int32_t tap = xn_divide(u, s.by_tap_units), i = xn_divide(tap, s.by_kernel_w);
            const int32_t j = tap - i * s.conv.kernel_w;
            unit.position = i * s.rows.per_tap * s.columns.count + j * s.columns.per_tap;
            unit.byte = (unit.position * s.tap_words + (u - tap * s.tap_units) * s.unit_words) * 4;
        }
        b.table[u] = unit;
    }
}

/* Which pixel of the image's plane a position is; -1: outside. */
__device__ __forceinline__ int32_t pixel_of(const fused_args &a, const fused_block &b,
                                            int32_t position) {
    const xn_cuda_fused_shape &s = a.shape;
    const int32_t row = xn_divide(position, s.by_columns);
    const int32_t y = b.in_y + row * s.rows.step;
    const int32_t x = b.in_x + (position - row * s.columns.count) * s.columns.step;
    const bool inside =
        (uint32_t)y < (uint32_t)s.conv.height && (uint32_t)x < (uint32_t)s.conv.width;
    return inside ? y * s.conv.width + x : -1;
}

__device__ __forceinline__ void mark_inside(const fused_args &a, const fused_block &b) {
    for (int32_t p = threadIdx.x; p < a.shape.positions; p += blockDim.x)
        b.inside[p] = pixel_of(a, b, p) >= 0 ? 0xffffffffu : 0u;
}

/* Bytes that no channel is in. */
__device__ __forceinline__ void clear_own(const fused_args &a, const fused_block &b) {
    const int32_t words = a.shape.tap_words;
    uint32_t *to = (uint32_t *)b.positions + b.first * words;
    if (a.shape.octets < words * 4)
        for (int32_t w = threadIdx.x; w < b.own * words; w += blockDim.x)
            to[w] = 0;
}

/* ---- inputs ---- */

/* Of the group's channels of the image. */
__device__ __forceinline__ int64_t first_element(const fused_args &a, const fused_block &b) {
    const xn_conv &c = a.shape.conv;
    return (b.image * c.channels + (int64_t)b.group * c.group_channels) * c.height * c.width;
}

/* 8 elements `step` apart; where there are fewer, `count`, the last one again. */
template <class T>
struct fused_input {
    const T *data;
    template <bool FULL>
    __device__ __forceinline__ void read(int64_t index, int32_t step, int32_t count,
                                         float (&v)[OCTET]) const {
        const T *from = data + index;
#pragma unroll
        for (int n = 0; n < OCTET; n++) {
            v[n] = xn_to_fp32(*from);
            if (FULL || n + 1 < count)
                from += step;
        }
    }
};

struct fused_any_input {
    const void *data;
    int32_t datatype;
    template <bool FULL>
    __device__ __forceinline__ void read(int64_t index, int32_t step, int32_t count,
                                         float (&v)[OCTET]) const {
        xn_with_other_input(data, datatype, [&](auto *from) {
            fused_input<std::remove_cv_t<std::remove_pointer_t<decltype(from)>>>{from}
                .template read<FULL>(index, step, count, v);
        });
    }
};

/* Octet and position that a thread packs; own < 0: none. */
struct fused_task {
    int32_t octet, own, count;
    bool inside;
};

/* The place of an octet's sums: lanes side by side have words, of four octets, side by side. */
__device__ __forceinline__ float *octet_sums(const fused_args &a, const fused_block &b,
                                             int32_t octet) {
    return b.sums + ((octet & 3) * a.shape.tap_words + (octet >> 2)) * a.shape.share;
}

/* Its bits as a byte, and the sum of its magnitudes. */
template <bool FULL>
__device__ __forceinline__ void pack_octet(const fused_args &a, const fused_block &b,
                                           const fused_task &task, float (&v)[OCTET]) {
    const xn_cuda_fused_shape &s = a.shape;
    uint32_t bits = 0;
#pragma unroll
    for (int n = 0; n < OCTET; n++)
        if ((FULL || n < task.count) && v[n] >= 0.0f) /* xn_sign_bit */
            bits |= 1u << n;
    b.positions[(b.first + task.own) * s.tap_words * 4 + task.octet] =
        (char)(task.inside ? bits : 0u);
    if (!a.out.what.k)
        return;
    if (!FULL)
#pragma unroll
        for (int n = 0; n < OCTET; n++)
            v[n] = n < task.count ? v[n] : 0.0f;
    octet_sums(a, b, task.octet)[task.own] = task.inside ? xn_octet_sum(v) : 0.0f;
}

/* The positions that this block packs: a thread has one, of 8 channels, and COUNT of those at a
 * time. Outside the image it reads the plane's first pixel, for nothing. */
template <int COUNT, bool FULL, class Input>
__device__ __forceinline__ void pack_tasks(const fused_args &a, const fused_block &b,
                                           const Input &input) {
    const xn_cuda_fused_shape &s = a.shape;
    const int32_t plane = s.conv.height * s.conv.width, tasks = s.octets * s.share;
    const int64_t image = first_element(a, b);
#pragma unroll 1
    for (int32_t from = threadIdx.x; from < tasks; from += blockDim.x * COUNT) {
        float v[COUNT][OCTET];
        fused_task task[COUNT];
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            const int32_t at = min(from + n * (int32_t)blockDim.x, tasks - 1);
            task[n].octet = xn_divide(at, s.by_share);
            const int32_t own = at - task[n].octet * s.share;
            const bool live = own < b.own && (n == 0 || from + n * (int32_t)blockDim.x < tasks);
            const int32_t pixel = live ? pixel_of(a, b, b.first + own) : -1;
            task[n].own = live ? own : -1;
            task[n].inside = pixel >= 0;
            task[n].count = s.conv.group_channels - task[n].octet * OCTET;
            input.template read<FULL>(image + (int64_t)task[n].octet * OCTET * plane +
                                          max(pixel, 0),
                                      plane, task[n].count, v[n]);
        }
#pragma unroll
        for (int n = 0; n < COUNT; n++)
            if (task[n].own >= 0)
                pack_octet<FULL>(a, b, task[n], v[n]);
    }
}

template <class Input>
__device__ __forceinline__ void pack_own(const fused_args &a, const fused_block &b,
                                         const Input &input) {
    const int32_t tasks = a.shape.octets * a.shape.share, threads = (int32_t)blockDim.x;
    if (a.shape.conv.group_channels % OCTET)
        pack_tasks<1, false>(a, b, input);
    else if (tasks <= threads)
        pack_tasks<1, true>(a, b, input);
    else if (tasks <= 2 * threads)
        pack_tasks<2, true>(a, b, input);
    else if (tasks <= 3 * threads)
        pack_tasks<3, true>(a, b, input);
    else
        pack_tasks<4, true>(a, b, input);
}

/* The mean of the channels from element `at` on again, where fp32 does not hold the sum. */
__device__ __noinline__ float mean_again(const fused_args &a, int64_t at) {
    const xn_conv &c = a.shape.conv;
    const int32_t plane = c.height * c.width;
    double sum = 0.0;
#pragma unroll 1
    for (int32_t n = 0; n < c.group_channels; n++, at += plane)
        xn_with_input(a.input, c.input_datatype,
                      [&](auto *input) { sum += fabs((double)xn_to_fp32(input[at])); });
    return xn_mean_again(sum, 1.0 / c.group_channels);
}

/* The sum of a word's channels, fours of its octets (epilogue.cuh). */
__device__ __forceinline__ float word_sum(const fused_args &a, const fused_block &b, int32_t word,
                                          int32_t own) {
    float octet[4];
#pragma unroll
    for (int n = 0; n < 4; n++)
        octet[n] = word * 4 + n < a.shape.octets ? octet_sums(a, b, word * 4 + n)[own] : 0.0f;
    return (octet[0] + octet[1]) + (octet[2] + octet[3]);
}

/* Means and counts of the positions that this block has packed, to all blocks of the cluster. As
 * many lanes share one as there are to spare. */
__device__ __forceinline__ void sum_own(const fused_args &a, const fused_block &b) {
    const xn_cuda_fused_shape &s = a.shape;
    const int32_t sharers = s.sharers, shift = __ffs(sharers) - 1;
    const int32_t part = (int32_t)threadIdx.x & (sharers - 1);
#pragma unroll 1
    for (int32_t first = 0; first < b.own; first += (int32_t)blockDim.x >> shift) {
        const int32_t own = first + ((int32_t)threadIdx.x >> shift), position = b.first + own;
        const uint32_t *words = (const uint32_t *)b.positions + position * s.tap_words;
        float sum = 0.0f; /* fours of words: quads of lanes, one after the other */
        int32_t count = 0;
#pragma unroll 1
        for (int32_t round = 0; round < s.tap_words; round += sharers) {
            const int32_t word = round + part;
            float four = 0.0f;
            int32_t set = 0;
            if (own < b.own && word < s.tap_words) {
                set = __popc(words[word]);
                if (a.out.what.k)
                    four = word_sum(a, b, word, own);
            }
#pragma unroll
            for (int n = 1; n < 4; n *= 2) {
                four += __shfl_xor_sync(0xffffffffu, four, n);
                set += __shfl_xor_sync(0xffffffffu, set, n);
            }
#pragma unroll 2
            for (int32_t n = 0; n < sharers && round + n < s.tap_words; n += 4) {
                sum += __shfl_sync(0xffffffffu, four, n, sharers);
                count += __shfl_sync(0xffffffffu, set, n, sharers);
            }
        }
        if (own >= b.own)
            continue;
        float mean = xn_mean(sum, s.channel_reciprocal);
        if (isinf(sum))
            mean = mean_again(a, first_element(a, b) + pixel_of(a, b, position));
        count += b.inside[position] & TAP;
        if (part == 0)
            b.info[position] = {mean, count};
        const uint32_t info[2] = {__float_as_uint(mean), (uint32_t)count};
#pragma unroll 1
        for (int32_t to = part; to < s.cut.cluster; to += sharers)
            if (to != b.rank)
                cluster_store<2>(cluster_address(xn_shared_address(b.info + position), to),
                                 cluster_address(b.arrival, to), info);
    }
}

/* Bits of the positions that this block has packed to the other blocks. */
template <int UNIT>
__device__ __forceinline__ void send_own(const fused_args &a, const fused_block &b) {
    const int32_t units = b.own * a.shape.tap_units, cluster = a.shape.cut.cluster;
    const int32_t shift = __ffs(cluster) - 1;
    const char *from = b.positions + b.first * a.shape.tap_words * 4;
    for (int32_t e = threadIdx.x; e < units * cluster; e += blockDim.x) {
        const int32_t to = e & (cluster - 1), u = e >> shift;
        uint32_t words[UNIT];
        load_words(from + u * UNIT * 4, words);
        if (to != b.rank)
            cluster_store<UNIT>(cluster_address(xn_shared_address(from + u * UNIT * 4), to),
                                cluster_address(b.arrival, to), words);
    }
}

/* Bytes that other blocks write into this one's shared memory. */
__device__ __forceinline__ uint32_t bytes_from_others(const fused_args &a, const fused_block &b) {
    return (uint32_t)((a.shape.positions - b.own) * (a.shape.tap_words * 4 + 8));
}

/* ---- what depends on the output ---- */

__device__ __forceinline__ int32_t position_of_output(const fused_args &a, int32_t n) {
    const xn_cuda_fused_shape &s = a.shape;
    const int32_t y = xn_divide(n, s.by_tile_w), x = n - y * s.cut.tile_w;
    return y * s.rows.per_output * s.columns.count + x * s.columns.per_output;
}

/* Output n of filter o where fp32 has no finite value. */
__device__ __noinline__ float value_again(const fused_args &a, const fused_info *tile, int32_t n,
                                          int32_t o, int32_t dot, float box) {
    const xn_cuda_fused_shape &s = a.shape;
    const int32_t last = s.cut.tile_w * s.cut.tile_h - 1; /* outputs are rounded up */
    const fused_info *info = tile + position_of_output(a, min(n, last));
    const double again =
        isinf(box)
            ? xn_box_of<double>(
                  s.conv.kernel_h, s.conv.kernel_w,
                  [&](int32_t i, int32_t j) {
                      return info[i * s.rows.per_tap * s.columns.count + j * s.columns.per_tap]
                          .mean;
                  })
            : (double)box;
    return xn_value_again(a.out, o, dot, again);
}

/* The box and the pixel's part of dot (layout.h); PARTS lanes share a window, a row each. */
__device__ __forceinline__ void make_outputs(const fused_args &a, const fused_block &b) {
    const xn_cuda_fused_shape &s = a.shape;
    const xn_conv &c = s.conv;
    const int32_t part = (int32_t)threadIdx.x % PARTS, taps = c.kernel_h * c.kernel_w;
    const int32_t last = s.cut.tile_w * s.cut.tile_h - 1;
    const int32_t row_step = s.rows.per_tap * s.columns.count, step = s.columns.per_tap;
#pragma unroll 1
    for (int32_t first = 0; first < s.outputs; first += (int32_t)blockDim.x / PARTS) {
        const int32_t n = first + (int32_t)threadIdx.x / PARTS;
        const fused_info *info = b.info + position_of_output(a, min(n, last)) + part * row_step;
        float box = 0.0f;
        int32_t count = 0;
#pragma unroll 1
        for (int32_t top = 0; top < c.kernel_h; top += PARTS, info += PARTS * row_step) {
            float row = 0.0f;
            int32_t row_count = 0;
            const auto mean_at = [&](int32_t j) {
                const fused_info at = info[j * step];
                row_count += at.count;
                return at.mean;
            };
            const auto gather = [&](int32_t i) {
                box += __shfl_sync(0xffffffffu, row, i, PARTS);
                count += __shfl_sync(0xffffffffu, row_count, i, PARTS);
            };
            if (top + part < c.kernel_h)
                row = c.kernel_w == 3 ? xn_fours<3>(mean_at) : xn_fours_of(c.kernel_w, mean_at);
            if (c.kernel_h == 3) {
                gather(0), gather(1), gather(2);
                continue;
            }
#pragma unroll 1
            for (int32_t i = 0; i < PARTS && top + i < c.kernel_h; i++)
                gather(i);
        }
        if (part != 0 || n >= s.outputs)
            continue;
        const int32_t inside = count / TAP;
        b.outputs[n] = {
            a.out.what.k ? box : 1.0f,
            xn_cuda_pixel_part(c.pad_value, c.group_channels, inside, taps - inside, count % TAP)};
    }
}

#endif
