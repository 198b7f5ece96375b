/* fused_stage.cuh: the kernel of fused_stage.h, by mma.sync of bits.
 *
 * A block has a band of output rows of an image, and of the layers below as many rows more on each
 * side as there are layers above. Its pixels are numbered row by row; 16 of them are a unit. A warp
 * has 32 filters of a unit at a time: M = filters, N = pixels, two tiles each way. Which warp has
 * which unit and filters is the same in every layer, so a thread's residuals are its own, in shared
 * memory in the order of its accumulators, and no barrier guards them. Bits meet in shared memory,
 * where each pixel has its words and each row of pixels a border; a layer reads one of two such
 * grids and writes the other.
 *
 * Lane (g, q) = (lane / 4, lane % 4) has filters 4 g .. 4 g + 3 of its warp's 32 and pixels
 * 4 q .. 4 q + 3 of the unit: row g of tile t is filter 4 g + 2 t, row g + 8 the next one, and
 * columns 2 q, 2 q + 1 of tile n are pixels 4 q + 2 n and the next one.
 *
 * dot = F + 4 popc(a and w) - 2 popc(a), where F is of the filter and of the pixel's place at the
 * border (layout.h: the identity), popc(a) of the pixel's window. Accumulators start at the bits of
 * a large float less half of popc(a), rounded up, so they are floats already when the products are
 * done; what the rounding took is in a second copy of F. */
#ifndef XN_CUDA_FUSED_STAGE_CUH
#define XN_CUDA_FUSED_STAGE_CUH

#include "epilogue.cuh"
#include "stage_products.cuh"

/* ---- the lane's 4 filters by 4 pixels ---- */

template <typename Real>
struct stage_values {
    enum { VECTORS = 16 * (int)sizeof(Real) / 16 };
    uint4 v[VECTORS];

    __device__ __forceinline__ float at(int filter, int pixel) const {
        const int n = filter * 4 + pixel;
        const uint32_t *words = (const uint32_t *)v;
        if constexpr (sizeof(Real) == 4)
            return __uint_as_float(words[n]);
        const __half2 pair = *(const __half2 *)&words[n / 2];
        return n % 2 ? __high2float(pair) : __low2float(pair);
    }
    __device__ __forceinline__ void set(int filter, const float (&y)[4]) {
        uint32_t *words = (uint32_t *)v + filter * (int)sizeof(Real);
        if constexpr (sizeof(Real) == 4) {
#pragma unroll
            for (int p = 0; p < 4; p++)
                words[p] = __float_as_uint(y[p]);
        } else {
            words[0] = xn_fp16_pair(y[0], y[1]);
            words[1] = xn_fp16_pair(y[2], y[3]);
        }
    }
};

/* Bit f of byte p of the result is the sign of filter f of pixel p. y: [filter][pixel]. u is -0 or
 * less where y + shift is at least 0; NaN has no sign here. */
__device__ __forceinline__ uint32_t stage_signs(const float (&y)[4][4], const float (&shift)[4]) {
    uint32_t of[4];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        of[p] = 0;
#pragma unroll
        for (int f = 3; f >= 0; f--) {
            const float u = __fadd_rd(-y[f][p], -shift[f]);
            of[p] = __funnelshift_l(__float_as_uint(u), of[p], 1);
        }
    }
    const uint32_t low = __byte_perm(of[0], of[1], 0x1140);
    return __byte_perm(low, __byte_perm(of[2], of[3], 0x1140), 0x5410);
}

/* Of the signs of the 8 lanes with the same q: lane g gets those of lanes 4 (g / 4) and the three
 * behind it, 16 filters, of pixel 2 (g % 2) + g / 2 % 2. */
struct stage_exchange {
    uint32_t shift, select;

    __device__ __forceinline__ stage_exchange() {
        const uint32_t odd = threadIdx.x / 4 % 2, upper = threadIdx.x / 8 % 2;
        const uint32_t own = 2 * odd + upper, other = own + 4;
        shift = odd * 4;
        select = upper ? other | own << 4 : own | other << 4;
    }
    __device__ __forceinline__ uint32_t operator()(uint32_t signs) const {
        signs <<= shift;
        signs |= __shfl_xor_sync(0xffffffffu, signs, 4);
        return __byte_perm(signs, __shfl_xor_sync(0xffffffffu, signs, 8), select) & 0xffffu;
    }
};

/* ---- a block ---- */

template <int WORDS, typename Real>
struct stage_block {
    typedef stage_shape<WORDS> shape;
    const stage_args &a;
    char *shared;
    uint32_t *places; /* of a pixel: its position, and its place at the border << 16 */
    uint2 *windows;   /* where its sums start, and the bytes from a table's start to its row of F */
    int32_t image, top, bottom; /* rows that the block holds: [top, bottom) */
    int32_t from, to;           /* rows that it writes */
    int32_t filter_warp, pixel_warp;

    __device__ __forceinline__ stage_block(const stage_args &args, char *memory)
        : a(args), shared(memory) {
        const int32_t warp = (int32_t)threadIdx.x / 32;
        const int32_t number = (int32_t)blockIdx.x % a.bands, more = a.io.layers - 1;
        image = (int32_t)blockIdx.x / a.bands;
        places = (uint32_t *)(shared + a.places);
        windows = (uint2 *)(shared + a.windows);
        from = number * a.band;
        to = min(from + a.band, a.height);
        top = max(from - more, 0) / a.align * a.align;
        bottom = min(to + more, a.height);
        filter_warp = warp % shape::FILTER_WARPS;
        pixel_warp = warp / shape::FILTER_WARPS;
    }

    __device__ __forceinline__ int32_t pixels() const {
        return (bottom - top) * a.width;
    }
    /* Those of whole units. */
    __device__ __forceinline__ int32_t places_used() const {
        return (pixels() + STAGE_UNIT - 1) / STAGE_UNIT * STAGE_UNIT;
    }
    __device__ __forceinline__ uint32_t grid_of(int32_t layer) const {
        return a.grid + (uint32_t)(layer & 1) * a.grid_bytes;
    }
    __device__ __forceinline__ uint32_t *popcounts_of(int32_t layer) const {
        return (uint32_t *)(shared + a.popcounts + (uint32_t)(layer & 1) * a.popcounts_bytes);
    }
    /* Pixels of layer `layer` that the layers above need: of rows [first, last). */
    __device__ __forceinline__ void rows_of(int32_t layer, int32_t *first, int32_t *last) const {
        const int32_t more = a.io.layers - 1 - layer;
        *first = max(from - more, 0) - top;
        *last = min(to + more, a.height) - top;
    }

    /* Both grids hold the border, and beyond the image pad_value. */
    __device__ __forceinline__ void clear() const {
        const uint32_t fill = a.pad_value > 0 ? 0xffffffffu : 0u;
        uint4 *grid = (uint4 *)(shared + a.grid);
        for (uint32_t n = threadIdx.x; n < a.grid_bytes / 8; n += (int32_t)shape::THREADS)
            grid[n] = make_uint4(fill, fill, fill, fill);
        uint32_t *counts = popcounts_of(0);
        for (uint32_t n = threadIdx.x; n < a.popcounts_bytes / 2; n += (int32_t)shape::THREADS)
            counts[n] = fill ? shape::CHANNELS : 0;
    }

    /* Past the last pixel lie places of their own, behind the grids' rows, for what fills a unit.
     */
    __device__ __forceinline__ void number_pixels() const {
        for (int32_t i = (int32_t)threadIdx.x; i < places_used(); i += (int32_t)shape::THREADS) {
            const int32_t row = i < pixels() ? i / a.width : a.rows + 1;
            const int32_t x = i < pixels() ? i - row * a.width : i - pixels(), y = top + row;
            const int32_t across = x == 0 ? 0 : x == a.width - 1 ? 2 : 1;
            const int32_t down = y == 0 ? 0 : y == a.height - 1 ? 2 : 1;
            const int32_t place = a.pad_value ? 4 : down * 3 + across;
            places[i] = (uint32_t)((row + 1) * a.pitch + x + 1) | (uint32_t)place << 16;
        }
    }

    /* The input's bits, of the block's rows and one more on each side, and how many are set. */
    __device__ __forceinline__ void load_bits() const {
        const int32_t first = max(top - 1, 0), last = min(bottom + 1, a.height);
        const uint2 *words =
            (const uint2 *)(a.io.bits + ((int64_t)image * a.height + first) * a.width * WORDS);
        uint32_t *counts = popcounts_of(1); /* of the layer before the first */
        const int32_t all = (last - first) * a.width;
        for (int32_t n = (int32_t)threadIdx.x; n < all; n += (int32_t)shape::THREADS) {
            const int32_t row = n / a.width, x = n - row * a.width;
            const uint32_t position = (uint32_t)((first + row - top + 1) * a.pitch + x + 1);
            uint32_t set = 0;
#pragma unroll
            for (int pair = 0; pair < WORDS / 2; pair++) {
                const uint2 v = __ldg(words + n * (WORDS / 2) + pair);
                *(uint2 *)(shared + grid_of(0) + stage_word_at<WORDS>(position, 2u * pair)) = v;
                set += (uint32_t)(__popc(v.x) + __popc(v.y));
            }
            counts[position] = set;
        }
    }

    /* The last step before a layer: of each of its pixels the bits set in the window, halved.
     * Clears what the layer counts. */
    __device__ __forceinline__ void sum_windows(int32_t layer) const {
        const uint32_t *counts = popcounts_of(layer + 1);
        uint32_t *own = popcounts_of(layer);
        for (int32_t i = (int32_t)threadIdx.x; i < places_used(); i += (int32_t)shape::THREADS) {
            const uint32_t place = places[i], at = place & 0xffffu;
            const uint32_t *up = counts + at - a.pitch - 1, *mid = up + a.pitch;
            const uint32_t *low = mid + a.pitch;
            const uint32_t set =
                (up[0] + up[1] + up[2]) + (mid[0] + mid[1] + mid[2]) + (low[0] + low[1] + low[2]);
            windows[i] = make_uint2(STAGE_START - (set + 1) / 2,
                                    ((place >> 16) * 2 + (set & 1)) * shape::TABLE_BYTES);
            own[at] = 0;
        }
    }

    __device__ __forceinline__ float *table_of(int32_t layer) const {
        return (float *)(shared + a.table + (uint32_t)(layer % shape::TABLES) * a.table_bytes);
    }

    /* A layer's table. F comes from the numbers of set bits up to each tap. -0 as a shift becomes
     * +0, so that a sum with it is never -0 but of two that are. */
    __device__ __forceinline__ void fill_table(int32_t layer) const {
        const xn_cuda_stage_layer &l = a.io.layer[layer];
        const int32_t filter = (int32_t)threadIdx.x;
        if (filter >= shape::CHANNELS)
            return;
        int32_t prefix[16];
#pragma unroll
        for (int n = 0; n < 16; n++)
            prefix[n] = __ldg(l.prefix + n * shape::CHANNELS + filter);
        float *to_filter = table_of(layer) + filter;
        to_filter[STAGE_FACTOR * shape::TABLE_BYTES / 4] = xn_factor_of(l.factor, filter);
        to_filter[STAGE_BIAS * shape::TABLE_BYTES / 4] = xn_bias_of(l.bias, filter);
        to_filter[STAGE_SHIFT * shape::TABLE_BYTES / 4] = xn_bias_of(l.shift, filter) + 0.0f;
#pragma unroll
        for (int place = 0; place < STAGE_CLASSES; place++) {
            const int i0 = place / 3 == 0, i1 = place / 3 == 2 ? 2 : 3;
            const int j0 = place % 3 == 0, j1 = place % 3 == 2 ? 2 : 3;
            const int32_t set = prefix[i1 * 4 + j1] - prefix[i0 * 4 + j1] - prefix[i1 * 4 + j0] +
                                prefix[i0 * 4 + j0];
            const int32_t dot = shape::CHANNELS * (i1 - i0) * (j1 - j0) - 2 * set;
            to_filter[2 * place * shape::TABLE_BYTES / 4] = (float)dot;
            to_filter[(2 * place + 1) * shape::TABLE_BYTES / 4] = (float)(dot + 2);
        }
    }

    /* A row of the table, at an offset in bytes from its start, of the lane's filters. */
    struct four {
        float of[4];
    };
    static __device__ __forceinline__ four row_of(const char *own, uint32_t bytes) {
        const float4 v = *(const float4 *)(own + bytes);
        return {{v.x, v.y, v.z, v.w}};
    }

    /* The thread's own 64 or 32 bytes of a unit. */
    __device__ __forceinline__ uint4 *own_values(int32_t unit) const {
        const int32_t warp = unit * shape::FILTER_WARPS + filter_warp;
        return (uint4 *)shared + warp * (stage_values<Real>::VECTORS * 32) + threadIdx.x % 32;
    }
    /* Element 0 of filter 0 of the thread's pixels of a unit. */
    __device__ __forceinline__ int64_t element_of(int32_t unit) const {
        const int32_t filter = filter_warp * 32 + (int32_t)threadIdx.x % 32 / 4 * 4;
        const int32_t plane = a.height * a.width;
        return ((int64_t)image * shape::CHANNELS + filter) * plane + top * a.width +
               unit * STAGE_UNIT + (int32_t)threadIdx.x % 4 * 4;
    }

    /* Starts copying the residuals of a unit. */
    __device__ __forceinline__ void copy_residuals(int32_t unit, int32_t units_end) const {
        if (unit < units_end && !a.single) {
            const Real *residual = (const Real *)a.io.residual + element_of(unit);
            const bool exists = unit * STAGE_UNIT + (int32_t)threadIdx.x % 4 * 4 < pixels();
            const uint32_t at = xn_shared_address(own_values(unit));
#pragma unroll
            for (int f = 0; f < 4; f++) {
                const int bytes = f * 4 * (int)sizeof(Real);
                xn_copy_async_at<4 * (int)sizeof(Real)>(
                    at + bytes / 16 * 512 + bytes % 16,
                    exists ? residual + (int64_t)f * a.height * a.width : residual, exists);
            }
        }
        xn_copy_commit();
    }

    /* The same where planes are no whole fours: read at once. */
    __device__ __forceinline__ void read_residuals(int32_t unit, stage_values<Real> &r) const {
        const Real *residual = (const Real *)a.io.residual + element_of(unit);
        const int32_t left = pixels() - unit * STAGE_UNIT - (int32_t)threadIdx.x % 4 * 4;
#pragma unroll
        for (int f = 0; f < 4; f++) {
            float four[4];
#pragma unroll
            for (int p = 0; p < 4; p++)
                four[p] =
                    p < left ? xn_to_fp32(residual[(int64_t)f * a.height * a.width + p]) : 0.0f;
            r.set(f, four);
        }
    }

    /* Those of pixels [begin, end). */
    __device__ __forceinline__ void store_reals(int32_t unit, const stage_values<Real> &y,
                                                int32_t begin, int32_t end) const {
        Real *output = (Real *)a.io.output + element_of(unit);
        const uint32_t *words = (const uint32_t *)y.v;
        const int32_t pixel = unit * STAGE_UNIT + (int32_t)threadIdx.x % 4 * 4;
#pragma unroll
        for (int f = 0; f < 4; f++) {
            Real *at = output + (int64_t)f * a.height * a.width;
            if (a.single) {
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    const float value[1] = {y.at(f, p)};
                    if (pixel + p >= begin && pixel + p < end)
                        xn_store(at + p, value);
                }
            } else if (pixel >= begin && pixel < end) {
                if constexpr (sizeof(Real) == 4)
                    *(uint4 *)at = y.v[f];
                else
                    *(uint2 *)at = make_uint2(words[2 * f], words[2 * f + 1]);
            }
        }
    }

    /* 16 filters of a pixel to the layer's output. */
    __device__ __forceinline__ void store_bits(char *grid, uint32_t *counts, uint32_t place,
                                               uint32_t bits) const {
        const uint32_t position = place & 0xffffu;
        *(uint16_t *)(grid + stage_word_at<WORDS>(position, (uint32_t)filter_warp)) =
            (uint16_t)bits;
        atomicAdd(counts + position, (uint32_t)__popc(bits));
    }

    /* The values of a lane from its sums; r: its residuals, then the values. */
    __device__ __forceinline__ uint32_t finish(const stage_sums &sums, const uint32_t (&parts)[4],
                                               const char *own, stage_values<Real> &r) const {
        const four factor = row_of(own, STAGE_FACTOR * shape::TABLE_BYTES);
        const four bias = row_of(own, STAGE_BIAS * shape::TABLE_BYTES);
        float y[4][4];
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const four part = row_of(own, parts[p]);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int32_t sum = sums[n / 2][p / 2][n % 2 * 2 + p % 2];
                const float dot =
                    fmaf(__int_as_float(sum), 4.0f, -4.0f * (8388608.0f + 16384.0f)) + part.of[n];
                y[n][p] = fmaf(dot, factor.of[n], bias.of[n]) + r.at(n, p);
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++)
            r.set(n, y[n]);
        return stage_signs(y, row_of(own, STAGE_SHIFT * shape::TABLE_BYTES).of);
    }

    /* What a layer's loop over units takes. */
    struct layer_of_block {
        bool first, last, keeps;
        int32_t begin, end; /* pixels that the layers above need */
        uint32_t pixel;     /* of a unit: whose bits the lane stores */
        char *next_grid;
        uint32_t *counts;
        const char *table;
    };

    __device__ __forceinline__ layer_of_block layer_of(int32_t layer) const {
        const uint32_t lane = threadIdx.x % 32;
        layer_of_block l;
        int32_t first_row, last_row;
        rows_of(layer, &first_row, &last_row);
        l.first = layer == 0;
        l.last = layer == a.io.layers - 1;
        l.keeps = !l.last || a.io.pooled;
        l.begin = first_row * a.width;
        l.end = last_row * a.width;
        l.pixel = (lane & 4) / 2 + (lane & 8) / 8 + lane % 4 * 4;
        l.next_grid = shared + grid_of(layer + 1) + lane / 16 * 2;
        l.counts = popcounts_of(layer);
        l.table = (const char *)(table_of(layer) + filter_warp * 32 + lane / 4 * 4);
        return l;
    }

    /* From sums to memory. */
    __device__ __forceinline__ void finish_unit(const layer_of_block &l, int32_t unit,
                                                const stage_sums &sums, const uint32_t (&parts)[4],
                                                const uint32_t *place, uint4 *values,
                                                const stage_exchange &exchange) const {
        stage_values<Real> r;
        if (l.first && a.single) {
            read_residuals(unit, r);
        } else {
#pragma unroll
            for (int n = 0; n < stage_values<Real>::VECTORS; n++)
                r.v[n] = values[n * 32];
        }
        const uint32_t bits = exchange(finish(sums, parts, l.table, r));
        store_bits(l.next_grid, l.counts, place[l.pixel], bits);
        if (l.keeps)
#pragma unroll
            for (int n = 0; n < stage_values<Real>::VECTORS; n++)
                values[n * 32] = r.v[n];
        if (l.last && a.io.output)
            store_reals(unit, r, l.begin, l.end);
    }

    __device__ __forceinline__ void run_layer(int32_t layer, const stage_filters<WORDS> &f) const {
        const layer_of_block l = layer_of(layer);
        const uint32_t grid = xn_shared_address(shared) + grid_of(layer), q = threadIdx.x % 4;
        const stage_exchange exchange;
        const int32_t units_end = (l.end + STAGE_UNIT - 1) / STAGE_UNIT;
        int32_t unit = l.begin / STAGE_UNIT;
        unit += (pixel_warp - unit % shape::PIXEL_WARPS + shape::PIXEL_WARPS) % shape::PIXEL_WARPS;
        if (layer == 0)
#pragma unroll 1
            for (int n = 0; n < STAGE_AHEAD; n++)
                copy_residuals(unit + n * shape::PIXEL_WARPS, units_end);
        const uint32_t *place = places + unit * STAGE_UNIT;
        const uint4 *window = (const uint4 *)(windows + unit * STAGE_UNIT) + q * 2;
        uint4 *values = own_values(unit);
#pragma unroll 1
        for (; unit < units_end; unit += shape::PIXEL_WARPS) {
            const uint4 low = window[0], high = window[1];
            const int32_t start[4] = {(int32_t)low.x, (int32_t)low.z, (int32_t)high.x,
                                      (int32_t)high.z};
            const uint32_t parts[4] = {low.y, low.w, high.y, high.w};
            stage_sums sums;
            stage_multiply<WORDS>(a, f, place, grid, start, sums);
            if (layer == 0) {
                copy_residuals(unit + STAGE_AHEAD * shape::PIXEL_WARPS, units_end);
                xn_copy_wait<STAGE_AHEAD>();
            }
            finish_unit(l, unit, sums, parts, place, values, exchange);
            place += shape::PIXEL_WARPS * STAGE_UNIT;
            window += shape::PIXEL_WARPS * STAGE_UNIT / 2;
            values += shape::PIXEL_WARPS * shape::FILTER_WARPS * stage_values<Real>::VECTORS * 32;
        }
    }

    /* The same for 512 channels: all units of a few at a time, so that filters are read once for
     * them. */
    __device__ __forceinline__ void run_wide_layer(int32_t layer,
                                                   const stage_filters<16> &f) const {
        const layer_of_block l = layer_of(layer);
        const uint32_t grid = xn_shared_address(shared) + grid_of(layer), q = threadIdx.x % 4;
        const stage_exchange exchange;
        const int32_t units_end = (l.end + STAGE_UNIT - 1) / STAGE_UNIT;
#pragma unroll 1
        for (int32_t unit = l.begin / STAGE_UNIT; unit < units_end; unit += STAGE_WIDE_UNITS) {
            const uint32_t *place = places + unit * STAGE_UNIT;
            const uint2 *window = windows + unit * STAGE_UNIT + q * 4;
            const int32_t units = min(units_end - unit, (int32_t)STAGE_WIDE_UNITS);
            stage_sums sums[STAGE_WIDE_UNITS];
            if (layer == 0)
#pragma unroll 1
                for (int u = 0; u < units; u++)
                    copy_residuals(unit + u, units_end);
#pragma unroll
            for (int u = 0; u < STAGE_WIDE_UNITS; u++)
#pragma unroll
                for (int n = 0; n < 16; n++)
                    sums[u][n / 8][n / 4 % 2][n % 4] =
                        (int32_t)window[(u < units ? u : 0) * STAGE_UNIT + n / 4 % 2 * 2 + n % 2].x;
            stage_multiply_wide(a, f, place, grid, units, sums);
            xn_copy_wait<0>();
#pragma unroll
            for (int u = 0; u < STAGE_WIDE_UNITS; u++) {
                if (u >= units)
                    continue;
                const uint2 *own = window + u * STAGE_UNIT;
                const uint32_t parts[4] = {own[0].y, own[1].y, own[2].y, own[3].y};
                finish_unit(l, unit + u, sums[u], parts, place + u * STAGE_UNIT,
                            own_values(unit + u), exchange);
            }
        }
    }

    /* Of filters 0 .. 3, the first value of a pixel that has an even number. */
    __device__ __forceinline__ const Real *values_of(int32_t pixel) const {
        return (const Real *)shared +
               (pixel / STAGE_UNIT * shape::FILTER_WARPS * stage_values<Real>::VECTORS * 32 +
                pixel % STAGE_UNIT / 4) *
                   (16 / (int32_t)sizeof(Real)) +
               pixel % 4;
    }

    /* Means of 2 x 2 of the last layer's values, as the step avg_pool has them: sums in double,
     * rounded once. A thread has a pixel, and of its filters every `sharing`-th four. */
    __device__ __forceinline__ void store_pooled() const {
        enum { EACH = 16 / (int)sizeof(Real), FOURS = shape::CHANNELS / 4 };
        const int32_t width = a.width / 2, plane = a.height / 2 * width;
        const int32_t first = (from - top) * a.width, all = (to - from) / 2 * width;
        const int32_t sharing = max((int32_t)shape::THREADS / all, 1);
        Real *pooled = (Real *)a.io.pooled + (int64_t)image * shape::CHANNELS * plane +
                       (int64_t)(from / 2) * width;
        for (int32_t at = (int32_t)threadIdx.x; at < all * sharing; at += (int32_t)shape::THREADS) {
            const int32_t share = at / all, own = at - share * all, row = own / width;
            const int32_t pixel = first + row * 2 * a.width + (own - row * width) * 2;
            const Real *up = values_of(pixel), *low = values_of(pixel + a.width);
#pragma unroll 2
            for (int32_t four = share; four < FOURS; four += sharing) {
                const int32_t to_four =
                    (four / 8 * stage_values<Real>::VECTORS * 32 + four % 8 * 4) * EACH;
                Real *out = pooled + (int64_t)four * 4 * plane + own;
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const int32_t n_at = to_four + n * 4 / EACH * 32 * EACH + n * 4 % EACH;
                    const Real *x = up + n_at, *y = low + n_at;
                    const double sum = (double)xn_to_fp32(x[0]) + (double)xn_to_fp32(x[1]) +
                                       (double)xn_to_fp32(y[0]) + (double)xn_to_fp32(y[1]);
                    const float mean[1] = {(float)(sum * 0.25)};
                    xn_store(out + n * plane, mean);
                }
            }
        }
    }

    __device__ __forceinline__ void store_words() const {
        uint2 *to_words =
            (uint2 *)(a.io.words + ((int64_t)image * a.height + from) * a.width * WORDS);
        const int32_t pairs = WORDS / 2, all = (to - from) * a.width * pairs;
        for (int32_t n = (int32_t)threadIdx.x; n < all; n += (int32_t)shape::THREADS) {
            const int32_t pixel = (from - top) * a.width + n / pairs;
            const uint32_t at =
                stage_word_at<WORDS>(places[pixel] & 0xffffu, (uint32_t)(n % pairs) * 2);
            to_words[n] = *(const uint2 *)(shared + grid_of(a.io.layers) + at);
        }
    }
};

template <int WORDS, typename Real>
__global__ void __launch_bounds__(stage_shape<WORDS>::THREADS, 1)
    stage_kernel(const __grid_constant__ stage_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ char stage_memory[];
    enum { SINGLE_TABLE = stage_shape<WORDS>::TABLES == 1 };
    const stage_block<WORDS, Real> block(a, stage_memory);
    stage_filters<WORDS> filters;
    xn_let_next_kernel_start();
    block.fill_table(0);
    filters.load(a.io.layer[0], block.filter_warp);
    block.clear();
    block.number_pixels();
    __syncthreads();
    xn_wait_for_previous_kernel();
    block.load_bits();
    __syncthreads();
    block.sum_windows(0);
    __syncthreads();
#pragma unroll 1
    for (int32_t layer = 0;; layer++) {
        if constexpr (WORDS == 16)
            block.run_wide_layer(layer, filters);
        else
            block.run_layer(layer, filters);
        if (layer + 1 == a.io.layers)
            break;
        if (!SINGLE_TABLE)
            block.fill_table(layer + 1);
        filters.load(a.io.layer[layer + 1], block.filter_warp);
        __syncthreads();
        if (SINGLE_TABLE)
            block.fill_table(layer + 1);
        block.sum_windows(layer + 1);
        __syncthreads();
    }
    __syncthreads();
    if (a.io.words)
        block.store_words();
    if (a.io.pooled)
        block.store_pooled();
#else
    (void)a;
    __trap();
#endif
}

#endif
