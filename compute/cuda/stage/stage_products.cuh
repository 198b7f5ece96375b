/* stage_products.cuh: the products of fused_stage.cuh: its arguments, how a pixel's words lie in a
 * grid, a warp's filters as operands, and sums of up to 32 filters by 16 pixels from both. */
#ifndef XN_CUDA_STAGE_PRODUCTS_CUH
#define XN_CUDA_STAGE_PRODUCTS_CUH

#include "fused_stage.h"
#include "layout.h"
#include "ptx.cuh"

enum {
    STAGE_THREADS = 512,
    STAGE_UNIT = 16,
    /* Rows of a layer's table, a value a filter: F of each place at the border; then factor, bias,
     * shift. */
    STAGE_FACTOR = XN_CUDA_STAGE_VALUES,
    STAGE_BIAS,
    STAGE_SHIFT,
    STAGE_TABLE_ROWS,
    STAGE_WIDE_BYTES = 18432, /* 32 filters of 512 channels */
    STAGE_STEP_BYTES = 1024,  /* of these, a step's */
    STAGE_RING = 3,           /* steps of a ring, of the 18 */
    STAGE_RING_UNITS = 4,     /* the most that a step is used for */
    STAGE_AHEAD = 3,          /* units whose residuals are on their way */
    STAGE_START = 0x4B000000  /* sums: 2^23 as a float */
};
enum : uint32_t { STAGE_LEFT = 1u << 24, STAGE_RIGHT = 1u << 25 }; /* pixels at these borders */
enum : uint32_t { STAGE_AWAY = 0xCC000000 }; /* -4 times that; 1 less takes 2 less away */

struct stage_args {
    xn_cuda_stage_io io;
    int64_t images;
    int32_t height, width, pad_value;
    int32_t bands, rows; /* rows: the most of an image that a block holds */
    int32_t extra;       /* rows that the first of many bands has more, as it has none above */
    int32_t pitch;       /* positions from row to row of a grid */
    int32_t grid_rows;   /* with the borders */
    int32_t align;       /* rows: blocks begin at multiples of it */
    bool rehearses;      /* one image, and few blocks */
    bool single;         /* planes are no whole fours of pixels: reals are copied one by one */
    int32_t filter_warps, pixel_warps; /* of a block */
    int32_t layers_beside; /* of 512 channels: layers whose filters are in shared memory, 1 or 2 */
    int32_t table_row;     /* bytes; two rows next to each other share no bank */
    xn_fast_divisor by_cluster, by_bands, by_filter_warps, by_height, by_width, by_pooled;
    /* Shared memory, from its start. */
    uint32_t grid, grid_bytes, places, windows, table;
    uint32_t filters, barriers;
};

/* Rows of a band: those that it writes, and with what the layers below need. */
struct stage_band {
    int32_t from, to, top, bottom;

    __host__ __device__ __forceinline__ stage_band(const stage_args &a, int32_t layers,
                                                   int32_t rows, int32_t number) {
        from = number ? number * rows + a.extra : 0;
        to = (number + 1) * rows + a.extra;
        to = to < a.height ? to : a.height;
        top = from > layers - 1 ? (from - layers + 1) & -a.align : 0;
        bottom = to + layers - 1 < a.height ? to + layers - 1 : a.height;
    }
};

/* What follows from the words of a pixel. A chunk is 16 bytes of them. */
template <int WORDS>
struct stage_shape {
    enum {
        CHANNELS = WORDS * 32,
        CHUNKS = WORDS / 4, /* 0 below 128 channels */
        STEPS = WORDS == 2   ? 2
                : WORDS == 4 ? 4
                             : 9 * WORDS / 8, /* of 256 bits */
        TAIL = WORDS < 8,                     /* and one of 128 */
        ROW_WORDS = (STEPS + TAIL) * XN_CUDA_STEP_WORDS
    };
};

/* Where a chunk lies, so that the 8 rows of a matrix are in different banks: their pixels are
 * 0, 1, 4, 5, 8, 9, 12, 13 of a unit, which may go on in the next row. A row's pitch is a multiple
 * of 16, which saves addresses; of 512 channels one that takes less memory and leaves few
 * conflicts. */
template <int WORDS>
__device__ __forceinline__ uint32_t stage_chunk(uint32_t chunk) {
    if (WORDS == 4)
        return chunk ^ (chunk >> 2 & 2);
    if (WORDS == 16)
        return chunk ^ (chunk >> 4 & 3);
    return chunk ^ (chunk >> 3 & 1) ^ (chunk >> 2 & 4);
}

/* The byte of a position's word 0. That of any word differs in the bits of word * 4. */
template <int WORDS>
__device__ __forceinline__ uint32_t stage_byte(uint32_t position) {
    if (WORDS == 2)
        return position * 8;
    return stage_chunk<WORDS>(position * stage_shape<WORDS>::CHUNKS) * 16;
}

/* ---- products ---- */

/* d = STAGE_START + popc(a and b). */
__device__ __forceinline__ void stage_mma_first(int32_t (&d)[4], const uint32_t *a,
                                                const uint32_t *b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
                   "r"(STAGE_START));
#else
    __trap();
#endif
}

/* 128 bits: a[0] and a[1] are those of rows g and g + 8. */
__device__ __forceinline__ void stage_mma_half(int32_t (&d)[4], const uint32_t *a, uint32_t b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc "
                 "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
#else
    __trap();
#endif
}

__device__ __forceinline__ void stage_read(uint32_t (&to)[4], uint32_t address) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

/* A warp's filters: operands A of each step. */
template <int WORDS>
struct stage_filters {
    typedef stage_shape<WORDS> shape;
    uint32_t a[shape::STEPS][2][4];
    uint32_t tail[2][2];

    __device__ __forceinline__ stage_filters(const stage_args &, const char *) {
    }
    __device__ __forceinline__ void load(const stage_args &args, int32_t layer,
                                         int32_t filter_warp) {
        const uint4 *from = (const uint4 *)args.io.layer[layer].filters +
                            filter_warp * (shape::STEPS + shape::TAIL) * 64 + threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < 2 * shape::STEPS; n++) {
            const uint4 v = __ldg(from + n * 32);
            a[n / 2][n % 2][0] = v.x;
            a[n / 2][n % 2][1] = v.y;
            a[n / 2][n % 2][2] = v.z;
            a[n / 2][n % 2][3] = v.w;
        }
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const uint2 v = shape::TAIL ? __ldg((const uint2 *)(from + (2 * shape::STEPS + t) * 32))
                                        : make_uint2(0, 0);
            tail[t][0] = v.x;
            tail[t][1] = v.y;
        }
    }
};

/* 512 channels take more registers than a lane has. Their filters lie in shared memory, those of
 * the next layer beside them where there is room. */
template <>
struct stage_filters<16> {
    uint32_t bytes, from; /* of a layer's filters of the block; the first layer's */

    __device__ __forceinline__ stage_filters(const stage_args &a, const char *shared) {
        bytes = (uint32_t)a.filter_warps * STAGE_WIDE_BYTES;
        from = xn_shared_address(shared) + a.filters;
    }
    __device__ __forceinline__ uint32_t of(const stage_args &a, int32_t layer) const {
        return from + layer % a.layers_beside * bytes;
    }
    /* Starts copying; for all warps. */
    __device__ __forceinline__ void load(const stage_args &a, int32_t layer, int32_t rank) const {
        const char *filters = (const char *)a.io.layer[layer].filters + (int64_t)rank * bytes;
        const uint32_t to = of(a, layer);
#pragma unroll 4
        for (uint32_t n = threadIdx.x * 16; n < bytes; n += STAGE_THREADS * 16)
            xn_copy_async_at<16>(to + n, filters + n, true);
        xn_copy_commit();
    }
};

typedef int32_t stage_sums[2][2][4]; /* [tile of filters][tile of pixels][row g or g + 8, column] */

/* A value that is kept, not computed again where registers are few. */
__device__ __forceinline__ uint32_t stage_keep(uint32_t value) {
    asm("" : "+r"(value));
    return value;
}

/* grid: the shared address of the layer's input. places: of the unit, and the lane's first column
 * of 64 channels. taps: of 64 channels, from a pixel's place to the lane's tap of each step. */
template <int WORDS>
__device__ __forceinline__ void stage_multiply(const stage_args &a, const stage_filters<WORDS> &f,
                                               const uint32_t *places, uint32_t grid,
                                               const uint32_t (&taps)[3], stage_sums &sums) {
    typedef stage_shape<WORDS> shape;
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (WORDS == 2) {
        uint32_t b[2][5];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const uint32_t at = (places[2 * n] & 0xffffu) * 8;
#pragma unroll
            for (int s = 0; s < 2; s++)
                asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                             : "=r"(b[n][2 * s]), "=r"(b[n][2 * s + 1])
                             : "r"(at + taps[s])
                             : "memory");
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(b[n][4]) : "r"(at + taps[2]) : "memory");
        }
#pragma unroll
        for (int s = 0; s < 3; s++)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int t = 0; t < 2; t++)
                    if (s == 0)
                        stage_mma_first(sums[t][n], f.a[s][t], b[n]);
                    else if (s == 1)
                        xn_mma_and_popc(sums[t][n], f.a[s][t], b[n] + 2);
                    else
                        stage_mma_half(sums[t][n], f.tail[t], b[n][4]);
    } else {
        /* Matrices of a load: tile of pixels lane / 16, and of that the words of two taps, or the
         * two chunks of one. */
        const uint32_t n = lane % 8, second = lane / 8 % 2;
        const uint32_t column = n / 2 * 4 + n % 2 + lane / 16 * 2;
        const uint32_t position = (places[column] & 0xffffu) - a.pitch - 1;
        const uint32_t row = a.pitch * WORDS * 4;
        uint32_t at[3];
#pragma unroll
        for (int j = 0; j < 3; j++)
            at[j] = (grid + stage_byte<WORDS>(position + j)) ^ (WORDS == 8 ? second * 16 : 0);
#pragma unroll
        for (int s = 0; s < shape::STEPS + shape::TAIL; s++) {
            uint32_t b[4];
            if (WORDS == 4) {
                const int tap = 2 * s, next = s == 4 ? 8 : 2 * s + 1;
                xn_load_matrices(b, second ? at[next % 3] + next / 3 * row
                                           : at[tap % 3] + tap / 3 * row);
            } else {
                xn_load_matrices(b, at[s % 3] + s / 3 * row);
            }
#pragma unroll
            for (int tile = 0; tile < 2; tile++)
#pragma unroll
                for (int t = 0; t < 2; t++)
                    if (s == 0)
                        stage_mma_first(sums[t][tile], f.a[s][t], b + 2 * tile);
                    else if (s < shape::STEPS)
                        xn_mma_and_popc(sums[t][tile], f.a[s][t], b + 2 * tile);
                    else
                        stage_mma_half(sums[t][tile], f.tail[t], b[2 * tile]);
        }
    }
}

/* A lane's operands of 512 channels: those of a layer in shared memory. */
struct stage_resident {
    uint32_t own;

    __device__ __forceinline__ void read(int step, uint32_t (&to)[2][4]) const {
        stage_read(to[0], own + step * STAGE_STEP_BYTES);
        stage_read(to[1], own + step * STAGE_STEP_BYTES + STAGE_STEP_BYTES / 2);
    }
    __device__ __forceinline__ void give_back(int) const {
    }
};

/* And those that a block with all filters copies step by step, each lane what it reads, to a ring
 * in shared memory. */
struct stage_ring {
    uint32_t own;
    const char *layer, *next; /* layers' filters; next: NULL behind the last */

    /* Starts copying. */
    __device__ __forceinline__ void fill(int slot, const char *from) const {
        if (from)
#pragma unroll
            for (int half = 0; half < STAGE_STEP_BYTES; half += STAGE_STEP_BYTES / 2)
                xn_copy_async_at<16>(own + slot * STAGE_STEP_BYTES + half, from + half, true);
        xn_copy_commit();
    }
    __device__ __forceinline__ void read(int step, uint32_t (&to)[2][4]) const {
        xn_copy_wait<STAGE_RING - 1>();
        stage_resident{own}.read(step % STAGE_RING, to);
    }
    __device__ __forceinline__ void give_back(int step) const {
        enum { STEPS = stage_shape<16>::STEPS };
        const int then = step + STAGE_RING;
        fill(step % STAGE_RING, then < STEPS ? layer + then * STAGE_STEP_BYTES
                                : next       ? next + (then - STEPS) * STAGE_STEP_BYTES
                                             : NULL);
    }
};

/* The same for 512 channels, of UNITS units, so that filters are read once for them. places: of the
 * first, and of each `apart` behind the one before, up to the `last`. */
template <int UNITS, typename Filters>
__device__ __forceinline__ void stage_multiply_wide(const stage_args &a, const Filters &filters,
                                                    const uint32_t *places, int32_t apart,
                                                    int32_t last, uint32_t grid, stage_sums *sums) {
    typedef stage_shape<16> shape;
    const uint32_t lane = threadIdx.x % 32, n = lane % 8, second = lane / 8 % 2;
    const uint32_t column = n / 2 * 4 + n % 2 + lane / 16 * 2;
    uint32_t position[UNITS], at[UNITS];
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        position[u] = (places[min(u, last) * apart + column] & 0xffffu) - a.pitch - 1;
#pragma unroll
    for (int s = 0; s < shape::STEPS; s++) {
        uint32_t w[2][4];
        filters.read(s, w);
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            uint32_t b[4];
            if (s % 2 == 0)
                at[u] = grid +
                        (stage_byte<16>(position[u] + s / 6 * a.pitch + s / 2 % 3) ^ second * 16);
            xn_load_matrices(b, at[u] ^ s % 2 * 32);
#pragma unroll
            for (int n = 0; n < 4; n++)
                if (s == 0)
                    stage_mma_first(sums[u][n % 2][n / 2], w[n % 2], b + n / 2 * 2);
                else
                    xn_mma_and_popc(sums[u][n % 2][n / 2], w[n % 2], b + n / 2 * 2);
        }
        filters.give_back(s);
    }
}

#endif
