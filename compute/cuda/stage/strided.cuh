/* strided.cuh: the kernel of strided.h, by mma.sync of bits and of fp16.
 *
 * A block has some filters for good, in shared memory, and two groups of 256 threads, which
 * take tiles in turn: rows of outputs of an image, whose pixels are numbered row by row. A warp has
 * 32 filters by 16 or 32 pixels at a time: first the products of bits, which become halves, then
 * those of the shortcut, in the order of real_pointwise.cu, then the outputs. Behind the last
 * products of a tile the group's next tile is copied to its place, while outputs are written and
 * the other group multiplies.
 *
 * Lane (g, q) = (lane / 4, lane % 4) has filters 4 g .. 4 g + 3 of its warp's 32, two of a tile of
 * 16 (rows g and g + 8), and of each tile of 8 pixels columns 2 q and 2 q + 1.
 *
 * dot = F + 4 popc(a and w) - 2 popc(a), where F is of the filter and of the pixel's place at the
 * border (layout.h: the identity), popc(a) of the pixel's window, which is the product with a row
 * of ones. Added to the bits of a large float, F + 4 popc(a and w) is a float already; less that
 * float and 2 popc(a) it is the dot. */
#ifndef XN_CUDA_STRIDED_CUH
#define XN_CUDA_STRIDED_CUH

#include "layout.h"
#include "real_value.cuh"
#include "stage_common.cuh"
#include "strided.h"

enum {
    STRIDED_GROUPS = 2,  /* of a block, each with a tile */
    STRIDED_GROUP = 256, /* threads */
    STRIDED_THREADS = STRIDED_GROUPS * STRIDED_GROUP,
    STRIDED_FLAT = 64,   /* pixels of a plane that is copied as it lies, at most */
    STRIDED_SIDE = 32,   /* filters of a warp */
    STRIDED_CLASSES = 9, /* places at the border: (top, middle, bottom) by (left, middle, right) */
    STRIDED_KINDS = 3,   /* of tiles: the first of an image, others, the last of several */
    /* Rows of the table, a value a filter: F of each place; then of the binary convolution and of
     * the shortcut. */
    STRIDED_FACTOR = STRIDED_CLASSES,
    STRIDED_BIAS,
    STRIDED_REAL_FACTOR,
    STRIDED_REAL_BIAS,
    STRIDED_SHIFT,
    STRIDED_TABLE_ROWS,
    STRIDED_FILTERS = 128,                        /* of a block, at most */
    STRIDED_TABLE_ROW = STRIDED_FILTERS * 4 + 32, /* bytes */
    STRIDED_START = 0x4B400000                    /* the bits of a large float, 3 * 2^22 */
};

struct strided_args {
    xn_cuda_strided_io io;
    int32_t height, width, out_height, out_width, out_channels, pad_value;
    int32_t words;                /* of a pixel written */
    int32_t filters, rows, bands; /* of a block; of a tile; tiles of an image */
    int32_t filters_log;          /* 2^filters_log is filters */
    int32_t tiles;
    int32_t half;         /* positions of a row's even columns, and of its odd ones */
    int32_t slots;        /* pixels of a tile, to whole warps */
    int32_t pixels_apart; /* from a warp's pixels of a tile to its next */
    int32_t unit;         /* bytes of a copy of pooled pixels: 16, or 8 */
    int32_t lanes_log;    /* 2^lanes_log lanes copy a channel */
    int32_t pixel_bytes;  /* from channel to channel of the pooled pixels: an odd number of 16 */
    bool rehearses;       /* few blocks: they wait long for the kernel ahead */
    bool flat; /* planes are no whole fours of pixels: a tile is an image, copied as it lies */
    xn_fast_divisor by_bands, by_width; /* out_width */
    /* Shared memory: from its start, and from the start of a group's part, which begin at grid. */
    uint32_t reals, table, windows, outs, grid, group_bytes, pooled;
};

/* What follows from the words of a pixel, and from the tiles of 8 pixels of a warp. */
template <int WORDS, int TILES>
struct strided_shape {
    enum {
        CHANNELS = WORDS * 32,
        PIXELS = TILES * 8,
        STEPS = (9 * WORDS + 7) / 8, /* of 256 bits */
        REAL_STEPS = CHANNELS / 16,
        UNIT = WORDS == 2 ? 8 : 16,     /* bytes of a copy of bits */
        UNITS = WORDS * 4 / UNIT,       /* of a pixel */
        OPERANDS = STEPS * 2 * 32 * 16, /* bytes of 32 filters */
        REAL_BYTES = CHANNELS * 2,      /* of a filter of the shortcut */
        /* A warp's outputs: filters 4 g + i in block i, row g, so that neither the lanes that write
         * nor those that read meet in a bank. */
        OUT_ROW = PIXELS * 2 + 16,
        OUT_BLOCK = 8 * OUT_ROW + PIXELS * 2,
        OUT_BYTES = 4 * OUT_BLOCK
    };
};

/* Nibble j of lane (g, q) becomes nibble g of lane (j, q). */
__device__ __forceinline__ uint32_t strided_turned(uint32_t bits) {
    static constexpr uint32_t LOW[3] = {0x0f0f0f0fu, 0x00ff00ffu, 0x0000ffffu};
#pragma unroll
    for (int k = 0; k < 3; k++) {
        const bool upper = threadIdx.x >> (2 + k) & 1;
        const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, 4 << k);
        bits = upper ? (bits & ~LOW[k]) | (other >> (4 << k) & LOW[k])
                     : (bits & LOW[k]) | (other << (4 << k) & ~LOW[k]);
    }
    return bits;
}

/* A tile: rows [row, row + rows) of an image; kind: which of STRIDED_KINDS. */
struct strided_tile {
    int32_t image, row, rows, kind;
};

/* threadIdx.x, read where it is used: values that follow from it, kept in registers from tile to
 * tile, were spilled, and waits for them were a quarter of the time. */
__device__ __forceinline__ uint32_t strided_thread() {
    uint32_t v;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v));
    return v;
}

template <int WORDS, int TILES>
struct strided_block {
    typedef strided_shape<WORDS, TILES> shape;
    /* [tile of filters][tile of pixels][row g or g + 8, column] */
    typedef int32_t counts[2][TILES][4];
    typedef float reals[2][TILES][4];
    enum { WARPS = STRIDED_GROUP / 32 };
    const strided_args &a;
    char *shared;

    __device__ __forceinline__ strided_block(const strided_args &args, char *memory)
        : a(args), shared(memory) {
    }
    static __device__ __forceinline__ uint32_t own_lane() {
        return strided_thread() % 32;
    }
    static __device__ __forceinline__ uint32_t own_warp() {
        return strided_thread() / 32 % WARPS;
    }
    static __device__ __forceinline__ int32_t own_thread() {
        return (int32_t)strided_thread() % STRIDED_GROUP;
    }
    static __device__ __forceinline__ int32_t own_group() {
        return (int32_t)strided_thread() / STRIDED_GROUP;
    }
    /* The group's part of shared memory: the grid of bits, then the pooled pixels. */
    __device__ __forceinline__ char *own_memory() const {
        return shared + a.grid + own_group() * a.group_bytes;
    }
    /* A barrier of the group. */
    static __device__ __forceinline__ void meet() {
        asm volatile("bar.sync %0, %1;" ::"r"(own_group() + 1), "n"(STRIDED_GROUP + 0) : "memory");
    }
    /* The block's first filter; the warp's, of the block's; the warp's first pixel of a tile. */
    __device__ __forceinline__ int32_t first_filter() const {
        return (int32_t)blockIdx.x * a.filters;
    }
    __device__ __forceinline__ int32_t own_filter() const {
        return (int32_t)strided_thread() & (a.filters - STRIDED_SIDE);
    }
    __device__ __forceinline__ int32_t own_pixel() const {
        return (own_thread() >> a.filters_log) * shape::PIXELS;
    }

    /* The group's n-th tile. */
    static __device__ __forceinline__ int32_t number_of(int32_t turn) {
        return (int32_t)(blockIdx.y + gridDim.y * (turn * STRIDED_GROUPS + own_group()));
    }
    __device__ __forceinline__ strided_tile tile_of(int32_t number) const {
        strided_tile t;
        t.image = xn_divide(number, a.by_bands);
        const int32_t band = number - t.image * a.bands;
        t.row = band * a.rows;
        t.rows = min(a.rows, a.out_height - t.row);
        t.kind = band == 0 ? 0 : band < a.bands - 1 ? 1 : 2;
        return t;
    }

    /* ---- filters, for good ---- */

    /* 16 bytes of a filter of the shortcut: those of filters 4 apart are in different banks. */
    static __device__ __forceinline__ uint32_t real_at(int32_t filter, int32_t chunk) {
        return filter * shape::REAL_BYTES + ((chunk ^ (filter >> 2 & 7)) << 4);
    }

    __device__ __forceinline__ void load_filters() const {
        const int32_t first = first_filter();
        const uint32_t to = xn_shared_address(shared);
        const char *bits = (const char *)a.io.filters + (int64_t)first / 32 * shape::OPERANDS;
        const char *reals = (const char *)a.io.reals + (int64_t)first * shape::REAL_BYTES;
        for (int32_t n = (int32_t)threadIdx.x; n < a.filters / 32 * shape::OPERANDS / 16;
             n += STRIDED_THREADS)
            xn_copy_async_at<16>(to + n * 16, bits + n * 16, true);
        for (int32_t n = (int32_t)threadIdx.x; n < a.filters * (shape::REAL_BYTES / 16);
             n += STRIDED_THREADS)
            xn_copy_async_at<16>(
                to + a.reals + real_at(n / (shape::REAL_BYTES / 16), n % (shape::REAL_BYTES / 16)),
                reals + n * 16, true);
    }

    __device__ __forceinline__ float &table_at(int32_t row, int32_t filter) const {
        return *(float *)(shared + a.table + row * STRIDED_TABLE_ROW + filter * 4);
    }

    /* F comes from the numbers of set bits up to each tap. -0 as a shift becomes +0, so that a sum
     * with it is never -0 but of two that are. Whether fp32 does not hold a filter's factor. */
    __device__ __forceinline__ bool fill_table() const {
        const int32_t first = first_filter();
        bool again = false;
        for (int32_t n = (int32_t)threadIdx.x; n < a.filters; n += STRIDED_THREADS) {
            const int32_t o = first + n;
            int32_t prefix[16];
#pragma unroll
            for (int tap = 0; tap < 16; tap++)
                prefix[tap] = __ldg(a.io.prefix + tap * a.out_channels + o);
#pragma unroll
            for (int place = 0; place < STRIDED_CLASSES; place++) {
                const int i0 = place / 3 == 0, i1 = place / 3 == 2 ? 2 : 3;
                const int j0 = place % 3 == 0, j1 = place % 3 == 2 ? 2 : 3;
                const int32_t set = prefix[i1 * 4 + j1] - prefix[i0 * 4 + j1] -
                                    prefix[i1 * 4 + j0] + prefix[i0 * 4 + j0];
                const int32_t k = shape::CHANNELS * (i1 - i0) * (j1 - j0);
                table_at(place, n) = __int_as_float(STRIDED_START + k - 2 * set);
            }
            const xn_filter f = xn_filter_with_exponent(a.io.out, a.io.exponent, o);
            table_at(STRIDED_FACTOR, n) = xn_factor_of(a.io.factor, o);
            table_at(STRIDED_BIAS, n) = xn_bias_of(a.io.bias, o);
            table_at(STRIDED_REAL_FACTOR, n) = f.factor;
            table_at(STRIDED_REAL_BIAS, n) = f.bias;
            table_at(STRIDED_SHIFT, n) = xn_bias_of(a.io.out.shift, o) + 0.0f;
            again |= !isfinite(f.factor);
        }
        return again;
    }

    /* ---- a tile's inputs ---- */

    /* Bits lie row by row, a row's even columns (from the one before the first on) ahead of the odd
     * ones: neighbouring outputs read neighbouring positions. A unit of a position is 16 bytes, or
     * 8; of two the order changes, so that 8 positions are in different banks. */
    static __device__ __forceinline__ uint32_t unit_at(uint32_t position, uint32_t unit) {
        if (WORDS == 8)
            return (position * 2 + (unit ^ (position >> 2 & 1))) * 16;
        return position * shape::UNIT;
    }
    /* From a window's first position to a tap's, of 9. */
    __device__ __forceinline__ uint32_t tap_offset(uint32_t tap) const {
        const uint32_t i = tap * 11 >> 5, j = tap - i * 3; /* tap / 3, tap % 3 */
        return (i * 2 + j % 2) * a.half + j / 2;
    }

    /* Of each kind of tile and each pixel the window's first position, and << 16 the bytes from a
     * table's start to its row of F. Past the last pixel it is the last one's. */
    __device__ __forceinline__ void number_windows() const {
        uint32_t *windows = (uint32_t *)(shared + a.windows);
        for (int32_t n = (int32_t)threadIdx.x; n < a.slots * STRIDED_KINDS; n += STRIDED_THREADS) {
            const int32_t kind = n / a.slots, band = kind == 2 ? a.bands - 1 : kind;
            const int32_t rows = min(a.rows, a.out_height - band * a.rows);
            const int32_t pixel = min(n - kind * a.slots, rows * a.out_width - 1);
            const int32_t row = xn_divide(max(pixel, 0), a.by_width);
            const int32_t x = max(pixel, 0) - row * a.out_width, y = band * a.rows + row;
            const int32_t down = y == 0 ? 0 : 2 * y + 1 >= a.height ? 2 : 1;
            const int32_t across = x == 0 ? 0 : 2 * x + 1 >= a.width ? 2 : 1;
            windows[n] = (uint32_t)(row * 4 * a.half + x) |
                         (a.pad_value ? 4 : down * 3 + across) * STRIDED_TABLE_ROW << 16;
        }
    }

    __device__ __forceinline__ void fill_unit(char *grid, uint32_t position, uint32_t unit) const {
        const uint32_t fill = a.pad_value > 0 ? 0xffffffffu : 0u;
        if (WORDS == 2)
            *(uint2 *)(grid + unit_at(position, unit)) = make_uint2(fill, fill);
        else
            *(uint4 *)(grid + unit_at(position, unit)) = make_uint4(fill, fill, fill, fill);
    }

    /* Columns beyond the image. */
    __device__ __forceinline__ void fill_columns() const {
        for (int32_t n = own_thread(); n < (2 * a.rows + 1) * shape::UNITS; n += STRIDED_GROUP) {
            const uint32_t position = n / shape::UNITS * 2 * a.half, unit = n % shape::UNITS;
            fill_unit(own_memory(), position, unit);
            if (a.width % 2)
                fill_unit(own_memory(), position + (a.width + 1) / 2, unit);
        }
    }

    /* A warp has every n-th row, a lane every 32nd unit of them. */
    __device__ __forceinline__ void copy_bits(const strided_tile &t, char *grid) const {
        const uint32_t lane = own_lane();
        const uint32_t warp = own_warp();
        const int32_t row_units = a.width * shape::UNITS, above = 2 * t.row - 1;
        for (int32_t n = lane; n < row_units; n += 32) {
            const int32_t x = n / shape::UNITS + 1, unit = n % shape::UNITS;
            uint32_t position = x % 2 * a.half + x / 2 + warp * 2 * a.half;
            const char *from =
                (const char *)a.io.bits +
                (((int64_t)t.image * a.height + above + (int32_t)warp) * row_units + n) *
                    shape::UNIT;
            for (int32_t row = warp; row < 2 * t.rows + 1; row += WARPS) {
                if ((uint32_t)(above + row) >= (uint32_t)a.height)
                    fill_unit(grid, position, unit);
                else
                    xn_copy_async_at<shape::UNIT>(xn_shared_address(grid + unit_at(position, unit)),
                                                  from, true);
                position += WARPS * 2 * a.half;
                from += WARPS * row_units * shape::UNIT;
            }
        }
    }

    /* Of the pooled pixels some lanes have a channel, each a unit of neighbouring pixels. */
    __device__ __forceinline__ void copy_pooled(const strided_tile &t, char *to) const {
        const int32_t plane = a.out_height * a.out_width;
        const __half *from =
            (const __half *)a.io.pooled + (int64_t)t.image * shape::CHANNELS * plane;
        if (a.flat) {
            for (int32_t n = own_thread(); n < shape::CHANNELS * plane / 8; n += STRIDED_GROUP)
                xn_copy_async_at<16>(xn_shared_address(to) + n * 16, from + n * 8, true);
            return;
        }
        const int32_t first = own_thread() >> a.lanes_log, apart = STRIDED_GROUP >> a.lanes_log;
        const int32_t end = t.rows * a.out_width * 2;
        for (int32_t byte = (own_thread() & ((1 << a.lanes_log) - 1)) * a.unit; byte < end;
             byte += a.unit << a.lanes_log) {
            uint32_t at = xn_shared_address(to) + first * a.pixel_bytes + byte;
            const __half *own = from + t.row * a.out_width + first * plane + byte / 2;
#pragma unroll 2
            for (int32_t channel = first; channel < shape::CHANNELS; channel += apart) {
                if (a.unit == 16)
                    xn_copy_async_at<16>(at, own, true);
                else
                    xn_copy_async_at<8>(at, own, true);
                at += apart * a.pixel_bytes;
                own += apart * plane;
            }
        }
    }

    /* From an image as it lies, where a channel begins at any even byte, to channels apart, in
     * place: 8 lanes a channel. */
    __device__ __forceinline__ void turn_pooled(char *pooled) const {
        enum { APART = STRIDED_GROUP / 8 };
        const int32_t plane = a.out_height * a.out_width, chunk = own_lane() % 8;
        uint4 word[shape::CHANNELS / APART];
#pragma unroll
        for (int n = 0; n < shape::CHANNELS / APART; n++) {
            const int32_t byte = (own_thread() / 8 + n * APART) * plane * 2 + chunk * 16;
            const uint32_t *from = (const uint32_t *)(pooled + byte / 4 * 4);
            const int32_t shift = byte % 4 * 8;
            word[n] = make_uint4(
                __funnelshift_r(from[0], from[1], shift), __funnelshift_r(from[1], from[2], shift),
                __funnelshift_r(from[2], from[3], shift), __funnelshift_r(from[3], from[4], shift));
        }
        meet();
#pragma unroll
        for (int n = 0; n < shape::CHANNELS / APART; n++)
            if (chunk * 8 < plane)
                *(uint4 *)(pooled + (own_thread() / 8 + n * APART) * a.pixel_bytes + chunk * 16) =
                    word[n];
        meet();
    }

    __device__ __forceinline__ void copy(int32_t turn) const {
        const int32_t number = number_of(turn);
        if (number < a.tiles) {
            const strided_tile t = tile_of(number);
            copy_bits(t, own_memory());
            copy_pooled(t, own_memory() + a.pooled);
        }
        xn_copy_commit();
    }

    /* ---- a warp's 32 filters by some pixels ---- */

    /* Sums of bits, and of bits set in windows: `set` is of all rows alike. operands: the warp's;
     * grid: a shared address; windows: of the warp's first pixel. */
    __device__ __forceinline__ void multiply_bits(uint32_t lane, const char *operands,
                                                  uint32_t grid, const uint32_t *windows,
                                                  counts &sums, int32_t (&set)[TILES][4]) const {
        const uint32_t q = lane % 4, second = lane / 8 % 2;
        /* Of 2 words the lane's column of each tile of pixels; else the column whose address it
         * gives, of two tiles at a time. */
        enum { AT = WORDS == 2 ? TILES : TILES / 2 };
        uint32_t at[AT];
#pragma unroll
        for (int n = 0; n < AT; n++)
            at[n] = windows[WORDS == 2 ? n * 8 + lane / 4 : n * 16 + lane / 16 * 8 + lane % 8] &
                    0xffffu;
#pragma unroll
        for (int s = 0; s < shape::STEPS; s++) {
            uint32_t w[2][4], b[TILES][2];
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const uint4 v = *(const uint4 *)(operands + (s * 2 + t) * 512 + lane * 16);
                w[t][0] = v.x;
                w[t][1] = v.y;
                w[t][2] = v.z;
                w[t][3] = v.w;
            }
            if constexpr (WORDS == 2) {
                const uint32_t tap = s == 2 ? 8 : 4 * s + q;
                const uint32_t off = grid + tap_offset(tap) * 8;
#pragma unroll
                for (int n = 0; n < TILES; n++)
                    if (s < 2) {
                        asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                                     : "=r"(b[n][0]), "=r"(b[n][1])
                                     : "r"(at[n] * 8 + off)
                                     : "memory");
                    } else {
                        asm volatile("ld.shared.u32 %0, [%1];"
                                     : "=r"(b[n][0])
                                     : "r"(at[n] * 8 + off + q % 2 * 4)
                                     : "memory");
                        b[n][1] = 0;
                    }
            } else {
                const uint32_t tap = WORDS == 8 ? s : min(2u * s + second, 8u);
                const uint32_t off = tap_offset(tap);
#pragma unroll
                for (int n = 0; n < TILES / 2; n++) {
                    uint32_t four[4];
                    xn_load_matrices(four, grid + unit_at(at[n] + off, second));
                    b[2 * n][0] = four[0];
                    b[2 * n][1] = four[1];
                    b[2 * n + 1][0] = four[2];
                    b[2 * n + 1][1] = four[3];
                }
            }
            /* Past the last tap filters are zeros, and so are these ones. */
            const bool tail = s == shape::STEPS - 1 && WORDS < 8;
            const uint32_t low = tail && WORDS == 2 && q > 1 ? 0u : 0xffffffffu;
            const uint32_t high = tail ? 0u : 0xffffffffu;
            const uint32_t ones[4] = {low, low, high, high};
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                xn_mma_and_popc(sums[0][n], w[0], b[n]);
                xn_mma_and_popc(sums[1][n], w[1], b[n]);
                xn_mma_and_popc(set[n], ones, b[n]);
            }
        }
    }

    /* Sums of the shortcut. */
    __device__ __forceinline__ void multiply_reals(uint32_t lane, int32_t filter, uint32_t pooled,
                                                   int32_t pixel, reals &sums) const {
        const int32_t row = filter + lane % 8 * 4 + lane / 8 % 2;
        const uint32_t from = xn_shared_address(shared) + a.reals + real_at(row, lane / 16);
        uint32_t pixels = pooled + lane % 16 * a.pixel_bytes + pixel * 2 + lane / 16 * 16;
#pragma unroll
        for (int k = 0; k < shape::REAL_STEPS; k++) {
            uint32_t w[2][4], b[TILES / 2][4];
            const uint32_t at = (from ^ k % 4 * 32) + k / 4 * 128;
            xn_load_matrices(w[0], at);
            xn_load_matrices(w[1], at + 2 * shape::REAL_BYTES);
#pragma unroll
            for (int n = 0; n < TILES / 2; n++)
                xn_load_matrices_turned(b[n], pixels + n * 32);
            pixels += 16 * a.pixel_bytes;
#pragma unroll
            for (int t = 0; t < 2; t++)
#pragma unroll
                for (int n = 0; n < TILES; n++)
                    xn_mma_real<true>(sums[t][n], w[t], b[n / 2] + n % 2 * 2);
        }
    }

    /* The outputs of the binary convolution, in halves: of filter 4 g + i, tile n, two pixels. */
    __device__ __forceinline__ void halve(uint32_t lane, const char *own, const uint32_t *windows,
                                          const counts &sums, const int32_t (&set)[TILES][4],
                                          uint32_t (&halves)[4][TILES]) const {
        const stage_four factor = stage_row_of(own, STRIDED_FACTOR * STRIDED_TABLE_ROW);
        const stage_four bias = stage_row_of(own, STRIDED_BIAS * STRIDED_TABLE_ROW);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const uint2 two = *(const uint2 *)(windows + n * 8 + lane % 4 * 2);
            const stage_four low = stage_row_of(own, two.x >> 16),
                             high = stage_row_of(own, two.y >> 16);
            const float less[2] = {__int_as_float(STRIDED_START + 2 * set[n][0]),
                                   __int_as_float(STRIDED_START + 2 * set[n][1])};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int32_t *sum = &sums[i / 2][n][i % 2 * 2];
                const float dot = __int_as_float(sum[0] * 4 + __float_as_int(low.of[i])) - less[0];
                const float next =
                    __int_as_float(sum[1] * 4 + __float_as_int(high.of[i])) - less[1];
                halves[i][n] = xn_fp16_pair(fmaf(dot, factor.of[i], bias.of[i]),
                                            fmaf(next, factor.of[i], bias.of[i]));
            }
        }
    }

    /* Outputs: halves take the place of those of the binary convolution. Nibble 2 n + e of the
     * result is the bits of pixel e of tile n. */
    __device__ __forceinline__ uint32_t finish(const char *own, int32_t filter, bool again,
                                               reals &sums, uint32_t (&halves)[4][TILES]) const {
        const stage_four factor = stage_row_of(own, STRIDED_REAL_FACTOR * STRIDED_TABLE_ROW);
        const stage_four bias = stage_row_of(own, STRIDED_REAL_BIAS * STRIDED_TABLE_ROW);
        const stage_four shift = stage_row_of(own, STRIDED_SHIFT * STRIDED_TABLE_ROW);
        uint32_t bits = 0;
        if (again) { /* by copies in local memory, so that no register is held for it */
            float copy[TILES * 8];
#pragma unroll
            for (int n = 0; n < TILES * 8; n++)
                copy[n] = sums[n / (TILES * 4)][n / 4 % TILES][n % 4];
#pragma unroll 1
            for (int n = 0; n < TILES * 8; n++) {
                const int32_t o = filter + n / (TILES * 4) * 2 + n % 4 / 2;
                const xn_filter f = xn_filter_with_exponent(a.io.out, a.io.exponent, o);
                copy[n] = xn_sum_value(a.io.out, a.io.exponent, f, o, copy[n]);
            }
#pragma unroll
            for (int n = 0; n < TILES * 8; n++)
                sums[n / (TILES * 4)][n / 4 % TILES][n % 4] = copy[n];
        } else {
#pragma unroll
            for (int n = 0; n < TILES * 8; n++) {
                const int t = n / (TILES * 4), i = t * 2 + n % 4 / 2;
                float &sum = sums[t][n / 4 % TILES][n % 4];
                sum = fmaf(sum, factor.of[i], bias.of[i]);
            }
        }
#pragma unroll
        for (int n = TILES - 1; n >= 0; n--)
#pragma unroll
            for (int e = 1; e >= 0; e--)
#pragma unroll
                for (int i = 3; i >= 0; i--) {
                    float &y = sums[i / 2][n][i % 2 * 2 + e];
                    const __half2 pair = *(const __half2 *)&halves[i][n];
                    y += e ? __high2float(pair) : __low2float(pair);
                    bits = stage_add_sign(bits, y, shift.of[i]);
                }
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                halves[i][n] =
                    xn_fp16_pair(sums[i / 2][n][i % 2 * 2], sums[i / 2][n][i % 2 * 2 + 1]);
        return bits;
    }

    static __device__ __forceinline__ uint32_t out_at(uint32_t filter, uint32_t pixel) {
        return filter % 4 * shape::OUT_BLOCK + filter / 4 * shape::OUT_ROW + pixel * 2;
    }

    /* Turns outputs so that neighbouring lanes store neighbouring pixels. first_pixel: the warp's,
     * of the image; left: pixels of the tile from there on. */
    __device__ __forceinline__ void store_reals(uint32_t lane, int32_t filter,
                                                const uint32_t (&halves)[4][TILES], int32_t image,
                                                int32_t first_pixel, int32_t left) const {
        enum { FOURS = shape::PIXELS / 4, ROWS = 32 / FOURS, HALF_ROWS = 32 / shape::PIXELS };
        const int32_t plane = a.out_height * a.out_width;
        char *out = shared + a.outs + strided_thread() / 32 * shape::OUT_BYTES;
        char *own = out + lane / 4 * shape::OUT_ROW + lane % 4 * 4;
        __half *to = (__half *)a.io.out.output +
                     ((int64_t)image * a.out_channels + filter) * plane + first_pixel;
        __syncwarp(); /* the outputs before have left */
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(uint32_t *)(own + i * shape::OUT_BLOCK + n * 16) = halves[i][n];
        __syncwarp();
        if (a.flat) {
            const int32_t pixel = lane % shape::PIXELS;
            const char *from = out + out_at(lane / shape::PIXELS, pixel);
            to += lane / shape::PIXELS * plane + pixel;
#pragma unroll
            for (int r = 0; r < STRIDED_SIDE; r += HALF_ROWS, to += HALF_ROWS * plane) {
                const __half v = *(const __half *)(from + out_at(r, 0));
                if (pixel < left)
                    *to = v;
            }
            return;
        }
        const int32_t four = lane % FOURS;
        const char *from = out + out_at(lane / FOURS, four * 4);
        to += lane / FOURS * plane + four * 4;
#pragma unroll
        for (int r = 0; r < STRIDED_SIDE; r += ROWS, to += ROWS * plane) {
            const uint2 v = *(const uint2 *)(from + out_at(r, 0));
            if (four * 4 < left)
                *(uint2 *)to = v;
        }
    }

    __device__ __forceinline__ void store_bits(uint32_t lane, int32_t filter, uint32_t bits,
                                               int32_t image, int32_t first_pixel,
                                               int32_t left) const {
        const int32_t g = lane / 4, pixel = g / 2 * 8 + lane % 4 * 2 + g % 2;
        const int64_t plane = a.out_height * a.out_width;
        uint32_t *to = a.io.out.bits + (image * plane + first_pixel) * a.words + filter / 32;
        bits = strided_turned(bits);
        if (pixel < min(left, (int32_t)shape::PIXELS))
            to[pixel * a.words] = bits;
    }

    /* The values of the lane's filters in the table. */
    __device__ __forceinline__ const char *own_table(uint32_t lane) const {
        return shared + a.table + (own_filter() + lane / 4 * 4) * 4;
    }

    /* The group's tile, or one without outputs. */
    __device__ __forceinline__ void run(int32_t turn, bool again) const {
        const strided_tile t = tile_of(number_of(max(turn, 0)));
        const int32_t pixels = t.rows * a.out_width;
#pragma unroll 1
        for (int32_t of_group = 0; of_group < pixels; of_group += a.pixels_apart) {
            const int32_t p = of_group + own_pixel();
            uint32_t halves[4][TILES];
            reals real = {};
            if (p < pixels) {
                const uint32_t lane = own_lane(), grid = xn_shared_address(own_memory());
                const int32_t filter = own_filter();
                const uint32_t *windows =
                    (const uint32_t *)(shared + a.windows) + t.kind * a.slots + p;
                counts sums = {};
                int32_t set[TILES][4] = {};
                multiply_bits(lane, shared + filter / 32 * shape::OPERANDS, grid, windows, sums,
                              set);
                halve(lane, own_table(lane), windows, sums, set, halves);
                multiply_reals(lane, filter, grid + a.pooled, p, real);
            }
            if (of_group + a.pixels_apart >= pixels) {
                meet(); /* the tile has been multiplied */
                if (turn >= 0)
                    copy(turn + 1);
            }
            if (p < pixels) {
                const uint32_t lane = own_lane();
                const int32_t filter = first_filter() + own_filter(), at = t.row * a.out_width + p;
                const int32_t left = turn < 0 ? 0 : pixels - p;
                const uint32_t bits =
                    finish(own_table(lane), filter + lane / 4 * 4, again, real, halves);
                if (a.io.out.output)
                    store_reals(lane, filter, halves, t.image, at, left);
                if (a.io.out.bits)
                    store_bits(lane, filter, bits, t.image, at, left);
            }
        }
    }
};

template <int WORDS, int TILES>
__global__ void __launch_bounds__(STRIDED_THREADS, 1)
    strided_kernel(const __grid_constant__ strided_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(128) char strided_memory[];
    const strided_block<WORDS, TILES> block(a, strided_memory);
    xn_let_next_kernel_start();
    block.load_filters();
    block.fill_columns();
    block.number_windows();
    const bool again = __syncthreads_or(block.fill_table());
    /* A tile ahead of the first brings the code: without it one image takes half as long again. */
#pragma unroll 1
    for (int32_t turn = a.rehearses ? -1 : 0;; turn++) {
        if (turn == 0) {
            xn_wait_for_previous_kernel();
            block.copy(0);
            xn_copy_wait<0>();
            __syncthreads();
        }
        if (turn >= 0 && block.number_of(turn) >= a.tiles)
            break;
        if (a.flat)
            block.turn_pooled(block.own_memory() + a.pooled);
        block.run(turn, again);
        xn_copy_wait<0>();
        block.meet(); /* the next tile is here for all */
    }
#else
    (void)a;
    __trap();
#endif
}

#endif
