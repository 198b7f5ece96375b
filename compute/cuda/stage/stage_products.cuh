/* stage_products.cuh: the products of fused_stage.cuh: its arguments, how a pixel's words lie in a
 * grid, a warp's filters as operands, and sums of up to 32 filters by 16 pixels from both. */
#ifndef XN_CUDA_STAGE_PRODUCTS_CUH
#define XN_CUDA_STAGE_PRODUCTS_CUH

#include "fused_stage.h"
#include "layout.h"
#include "ptx.cuh"

enum {
    STAGE_UNIT = 16,
    STAGE_CLASSES = 9, /* places at the border: (top, middle, bottom) by (left, middle, right) */
    /* Rows of a layer's table, a value a filter: F of each place, twice; then factor, bias, shift.
     */
    STAGE_FACTOR = 2 * STAGE_CLASSES,
    STAGE_BIAS,
    STAGE_SHIFT,
    STAGE_TABLE_ROWS,
    STAGE_WIDE_UNITS = 4, /* that a warp has at a time of 512 channels */
    STAGE_AHEAD = 3,      /* units whose residuals are on their way */
    STAGE_START = 0x4B000000 + 16384
};

struct stage_args {
    xn_cuda_stage_io io;
    int32_t height, width, pad_value;
    int32_t band, bands, rows; /* rows: the most that a block holds */
    int32_t pitch;             /* positions from row to row of a grid */
    int32_t units;             /* of a block, at most */
    int32_t align;             /* rows: blocks begin at multiples of it */
    bool single; /* planes are no whole fours of pixels: reals are copied one by one */
    /* Shared memory, from its start. */
    uint32_t grid, grid_bytes, popcounts, popcounts_bytes, places, windows, table, table_bytes;
};

/* What follows from the words of a pixel. A chunk is 16 bytes of them. */
template <int WORDS>
struct stage_shape {
    enum {
        CHANNELS = WORDS * 32,
        THREADS = WORDS == 2 ? 640 : 512,
        FILTER_WARPS = CHANNELS / 32,
        PIXEL_WARPS = THREADS / 32 / FILTER_WARPS,
        CHUNKS = WORDS / 4, /* 0 below 128 channels */
        STEPS = WORDS == 2   ? 2
                : WORDS == 4 ? 4
                             : 9 * WORDS / 8, /* of 256 bits */
        TAIL = WORDS < 8,                     /* and one of 128 */
        TABLES = WORDS == 16 ? 1 : 2,         /* that a block holds */
        TABLE_BYTES = CHANNELS * 4 + 32       /* of a row: two next to each other share no bank */
    };
};

/* Where a chunk lies, so that the 8 rows of a matrix are in different banks: their pixels are
 * 0, 1, 4, 5, 8, 9, 12, 13 of a unit. A row's pitch is a multiple of the period. */
template <int WORDS>
__device__ __forceinline__ uint32_t stage_chunk(uint32_t chunk) {
    if (WORDS == 4)
        return chunk ^ (chunk >> 2 & 2);
    if (WORDS == 16)
        return chunk ^ (chunk >> 4 & 3);
    return chunk ^ (chunk >> 3 & 1) ^ (chunk >> 2 & 4);
}

/* The byte of a word of a position. */
template <int WORDS>
__device__ __forceinline__ uint32_t stage_word_at(uint32_t position, uint32_t word) {
    if (WORDS == 2)
        return position * 8 + word * 4;
    return stage_chunk<WORDS>(position * stage_shape<WORDS>::CHUNKS + word / 4) * 16 + word % 4 * 4;
}

/* ---- products ---- */

/* d = c + popc(a and b); c: of the two columns. */
__device__ __forceinline__ void stage_mma_first(int32_t (&d)[4], const uint32_t *a,
                                                const uint32_t *b, const int32_t *c) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%10,%11};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
                   "r"(c[1]));
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

/* A warp's filters: operands A of each step. */
template <int WORDS>
struct stage_filters {
    typedef stage_shape<WORDS> shape;
    uint32_t a[shape::STEPS][2][4];
    uint32_t tail[2][2];

    __device__ __forceinline__ void load(const xn_cuda_stage_layer &l, int32_t filter_warp) {
        const uint4 *from = (const uint4 *)l.filters +
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

/* 512 channels take more registers than a lane has: a step's operands are read when it is due. */
template <>
struct stage_filters<16> {
    const uint4 *from;

    __device__ __forceinline__ void load(const xn_cuda_stage_layer &l, int32_t filter_warp) {
        from =
            (const uint4 *)l.filters + filter_warp * stage_shape<16>::STEPS * 64 + threadIdx.x % 32;
    }
    /* Those of a step. */
    __device__ __forceinline__ void read(int32_t step, uint32_t (&a)[2][4]) const {
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const uint4 v = __ldg(from + step * 64 + t * 32);
            a[t][0] = v.x;
            a[t][1] = v.y;
            a[t][2] = v.z;
            a[t][3] = v.w;
        }
    }
};

typedef int32_t stage_sums[2][2][4]; /* [tile of filters][tile of pixels][row g or g + 8, column] */

/* grid: the shared address of the layer's input. start: of the lane's four pixels. */
template <int WORDS>
__device__ __forceinline__ void stage_multiply(const stage_args &a, const stage_filters<WORDS> &f,
                                               const uint32_t *places, uint32_t grid,
                                               const int32_t (&start)[4], stage_sums &sums) {
    typedef stage_shape<WORDS> shape;
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (WORDS == 2) {
        const uint32_t g = lane / 4, q = lane % 4, column = g / 2 * 4 + g % 2;
        const uint32_t first = a.pitch + 1;
        uint32_t at[2];
#pragma unroll
        for (int n = 0; n < 2; n++)
            at[n] = grid + ((places[column + 2 * n] & 0xffffu) - first) * 8;
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const uint32_t tap = 4 * s + q, off = (tap / 3 * a.pitch + tap % 3) * 8;
#pragma unroll
            for (int n = 0; n < 2; n++) {
                uint32_t b[2];
                asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                             : "=r"(b[0]), "=r"(b[1])
                             : "r"(at[n] + off)
                             : "memory");
#pragma unroll
                for (int t = 0; t < 2; t++)
                    if (s == 0)
                        stage_mma_first(sums[t][n], f.a[s][t], b, &start[2 * n]);
                    else
                        xn_mma_and_popc(sums[t][n], f.a[s][t], b);
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
            uint32_t b;
            asm volatile("ld.shared.u32 %0, [%1];"
                         : "=r"(b)
                         : "r"(at[n] + (2 * a.pitch + 2) * 8 + q % 2 * 4)
                         : "memory");
#pragma unroll
            for (int t = 0; t < 2; t++)
                stage_mma_half(sums[t][n], f.tail[t], b);
        }
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
            at[j] = grid + 16 * (WORDS == 4 ? stage_chunk<WORDS>(position + j)
                                            : stage_chunk<WORDS>((position + j) * 2 + second));
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
                        stage_mma_first(sums[t][tile], f.a[s][t], b + 2 * tile, &start[2 * tile]);
                    else if (s < shape::STEPS)
                        xn_mma_and_popc(sums[t][tile], f.a[s][t], b + 2 * tile);
                    else
                        stage_mma_half(sums[t][tile], f.tail[t], b[2 * tile]);
        }
    }
}

/* The same for 512 channels, of up to STAGE_WIDE_UNITS units from `places` on. */
__device__ __forceinline__ void stage_multiply_wide(const stage_args &a, const stage_filters<16> &f,
                                                    const uint32_t *places, uint32_t grid,
                                                    int32_t units,
                                                    stage_sums (&sums)[STAGE_WIDE_UNITS]) {
    const uint32_t lane = threadIdx.x % 32, n = lane % 8, second = lane / 8 % 2;
    const uint32_t column = n / 2 * 4 + n % 2 + lane / 16 * 2, row = a.pitch * 64;
    uint32_t at[STAGE_WIDE_UNITS][3], operands[2][2][4];
#pragma unroll
    for (int u = 0; u < STAGE_WIDE_UNITS; u++)
#pragma unroll
        for (int j = 0; j < 3; j++) {
            const uint32_t position =
                (places[(u < units ? u : 0) * STAGE_UNIT + column] & 0xffffu) - a.pitch - 1 + j;
            at[u][j] = grid + 16 * stage_chunk<16>(position * 4 + second);
        }
    f.read(0, operands[0]);
#pragma unroll 1
    for (int32_t i = 0; i < 3; i++)
#pragma unroll
        for (int s = 0; s < 6; s++) {
            const int32_t next = i * 6 + s + 1;
            if (next < 18)
                f.read(next, operands[(s + 1) % 2]);
#pragma unroll
            for (int u = 0; u < STAGE_WIDE_UNITS; u++) {
                uint32_t b[4];
                if (u >= units)
                    continue;
                /* The second half of a tap's chunks. */
                xn_load_matrices(b, (s % 2 ? at[u][s / 2] ^ 32 : at[u][s / 2]) + i * row);
#pragma unroll
                for (int tile = 0; tile < 2; tile++)
#pragma unroll
                    for (int t = 0; t < 2; t++)
                        xn_mma_and_popc(sums[u][t][tile], operands[s % 2][t], b + 2 * tile);
            }
        }
}

#endif
