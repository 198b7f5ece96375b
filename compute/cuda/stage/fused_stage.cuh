/* fused_stage.cuh: the kernel of fused_stage.h, by mma.sync of bits.
 *
 * A block has a band of output rows of an image, and of the layers below as many rows more on each
 * side as there are layers above; or several whole images. Its pixels are numbered row by row; 16
 * of them are a unit. A warp has 32 filters of a unit at a time: M = filters, N = pixels, two tiles
 * each way. Which warp has which unit and filters is the same in every layer, so a thread's
 * residuals are its own, in shared memory in the order of its accumulators, and no barrier guards
 * them. Bits meet in shared memory, where each pixel has its words and each row of pixels a border;
 * a layer reads one of two such grids and writes the other.
 *
 * The blocks of a cluster have the same pixels and share the filters. Each has grids of its own,
 * and writes its bits to those of all. With 512 channels a warp's filters lie in shared memory; a
 * block that has all 512 brings them step by step through rings (stage_products.cuh).
 *
 * Lane (g, q) = (lane / 4, lane % 4) has filters 4 g .. 4 g + 3 of its warp's 32 and pixels
 * 4 q .. 4 q + 3 of the unit: row g of tile t is filter 4 g + 2 t, row g + 8 the next one, and
 * columns 2 q, 2 q + 1 of tile n are pixels 4 q + 2 n and the next one.
 *
 * dot = F + 4 popc(a and w) + 2 (K - popc(a)), where F is of the filter and of the pixel's place at
 * the border (layout.h), popc(a) of the pixel's window, and K 9 times the channels. Accumulators
 * start at the bits of a large float, 2^23, so they are floats already when the products are done.
 * One fma multiplies by 4 and adds 2 (K - popc(a)) - 2^25, which is a float, as it is even and not
 * below -2^25. */
#ifndef XN_CUDA_FUSED_STAGE_CUH
#define XN_CUDA_FUSED_STAGE_CUH

#include "stage_lane.cuh"
#include "stage_products.cuh"

/* ---- a block ---- */

template <int WORDS, typename Real>
struct stage_block {
    typedef stage_shape<WORDS> shape;
    enum { NEXT_VALUES = STAGE_THREADS * stage_values<Real>::VECTORS }; /* a warp's next unit's */
    const stage_args &a;
    char *shared;
    uint32_t *places; /* of a pixel: position, place at the border << 16, number of image << 20,
                       * STAGE_LEFT or STAGE_RIGHT; of what fills the last unit 1 << 31 */
    uint2 *windows;   /* what is added to its sums, a float, and from a table's start to its F */
    int64_t image;    /* the first */
    int32_t images;
    int32_t rank;        /* in the cluster */
    int32_t top, bottom; /* rows of an image that the block holds: [top, bottom) */
    int32_t from, to;    /* rows that it writes */
    int32_t filter_warp, pixel_warp;

    __device__ __forceinline__ stage_block(const stage_args &args, char *memory)
        : a(args), shared(memory) {
        const int32_t warp = (int32_t)(threadIdx.x / 32);
        const int32_t block = xn_divide((int32_t)blockIdx.x, a.by_cluster);
        const int32_t group = xn_divide(block, a.by_bands), number = block - group * a.bands;
        rank = (int32_t)blockIdx.x - block * a.io.cut.cluster;
        image = (int64_t)group * a.io.cut.images;
        images = (int32_t)min((int64_t)a.io.cut.images, a.images - image);
        places = (uint32_t *)(shared + a.places);
        windows = (uint2 *)(shared + a.windows);
        const stage_band band(a, a.io.layers, a.io.cut.band, number);
        from = band.from;
        to = band.to;
        top = band.top;
        bottom = band.bottom;
        pixel_warp = xn_divide(warp, a.by_filter_warps);
        filter_warp = warp - pixel_warp * a.filter_warps;
    }

    /* Images behind the first are whole, and so is that. */
    __device__ __forceinline__ int32_t pixels_to(int32_t row) const {
        return (row - top + (images - 1) * a.height) * a.width;
    }
    __device__ __forceinline__ int32_t pixels() const {
        return pixels_to(bottom);
    }
    __device__ __forceinline__ uint32_t grid_of(int32_t layer) const {
        return a.grid + (uint32_t)(layer & 1) * a.grid_bytes;
    }
    /* The filters of the block from its first on, and of its warp. */
    __device__ __forceinline__ int32_t filters() const {
        return a.filter_warps * 32;
    }
    __device__ __forceinline__ int32_t filter_warp_of_all() const {
        return rank * a.filter_warps + filter_warp;
    }
    /* Pixels of layer `layer` that the layers above need: [*begin, *end). */
    __device__ __forceinline__ void pixels_of(int32_t layer, int32_t *begin, int32_t *end) const {
        const int32_t more = a.io.layers - 1 - layer;
        *begin = (max(from - more, 0) - top) * a.width;
        *end = pixels_to(min(to + more, a.height));
    }

    /* Both grids hold the border, and beyond the image pad_value. */
    __device__ __forceinline__ void clear() const {
        const uint32_t fill = a.pad_value > 0 ? 0xffffffffu : 0u;
        uint4 *grid = (uint4 *)(shared + a.grid);
#pragma unroll 1
        for (uint32_t n = threadIdx.x; n < a.grid_bytes / 8; n += STAGE_THREADS)
            grid[n] = make_uint4(fill, fill, fill, fill);
    }

    /* A warp has rows. What fills the last unit has one place, behind the grids' rows. It reads
     * what lies behind. */
    __device__ __forceinline__ void number_pixels() const {
        const int32_t all = pixels(), lane = (int32_t)(threadIdx.x % 32);
        const int32_t units = (all + STAGE_UNIT - 1) / STAGE_UNIT;
#pragma unroll 1
        for (int32_t row = (int32_t)(threadIdx.x / 32); row * a.width < all;
             row += STAGE_THREADS / 32) {
            const int32_t number = xn_divide(row, a.by_height);
            const int32_t y = top + row - number * a.height;
            const int32_t down = y == 0 ? 0 : y == a.height - 1 ? 2 : 1;
            const uint32_t of_row = (uint32_t)((row + number + 1) * a.pitch + 1) |
                                    (uint32_t)(number << 4 | (a.pad_value ? 4 : down * 3)) << 16;
#pragma unroll 1
            for (int32_t x = lane; x < a.width; x += 32) {
                const uint32_t across = x == 0 ? 0 : x == a.width - 1 ? 2 : 1;
                places[row * a.width + x] = of_row + x + (a.pad_value ? 0 : across << 16) +
                                            (across == 0   ? STAGE_LEFT
                                             : across == 2 ? STAGE_RIGHT
                                                           : 0);
            }
        }
        if (all + (int32_t)threadIdx.x < units * STAGE_UNIT)
            places[all + threadIdx.x] = (uint32_t)(a.grid_rows * a.pitch + 1) | 1u << 31;
    }

    /* Starts copying the input's bits, of the block's rows and one more on each side. */
    __device__ __forceinline__ void copy_bits() const {
        enum { CHUNKS = WORDS < 4 ? 1 : WORDS / 4, BYTES = WORDS * 4 / CHUNKS };
        const int32_t first = max(top - 1, 0), last = min(bottom + 1, a.height);
        const char *bits =
            (const char *)a.io.bits + (image * a.height + first) * a.width * (CHUNKS * BYTES);
        const uint32_t grid = xn_shared_address(shared) + grid_of(0);
        const int32_t all = (last - first + (images - 1) * a.height) * a.width;
#pragma unroll 1
        for (uint32_t n = threadIdx.x; n < (uint32_t)(all * CHUNKS); n += STAGE_THREADS) {
            const int32_t pixel = (int32_t)(n / CHUNKS);
            const int32_t row = xn_divide(pixel, a.by_width), x = pixel - row * a.width;
            const int32_t grid_row = first + row - top + xn_divide(row, a.by_height) + 1;
            const uint32_t position = (uint32_t)(grid_row * a.pitch + x + 1);
            xn_copy_async_at<BYTES>(grid + (stage_byte<WORDS>(position) ^ n % CHUNKS * 16u),
                                    bits + n * BYTES, true);
        }
        xn_copy_commit();
    }

    /* The last step before a layer: what is added for the bits set in each pixel's window. A lane
     * has a chunk of a pixel's column; the columns beside are those of its neighbours, so a warp
     * has two pixels more than it makes windows for. -0 as a shift becomes +0, so that a sum with
     * it is never -0 but of two that are. */
    __device__ __forceinline__ void sum_windows(int32_t layer) const {
        enum { CHUNKS = WORDS < 4 ? 1 : WORDS / 4, OF_CHUNK = WORDS / CHUNKS };
        enum { MADE = 32 / CHUNKS - 2, WARPS = STAGE_THREADS / 32 };
        const int32_t chunk = (int32_t)threadIdx.x % CHUNKS;
        const int32_t pixel = (int32_t)(threadIdx.x % 32) / CHUNKS - 1;
        const char *grid = shared + grid_of(layer);
        float *shift = (float *)(shared + table_of(layer) + STAGE_SHIFT * a.table_row);
        const uint32_t beyond = a.pad_value > 0 ? 3 * OF_CHUNK * 32 : 0; /* a column's bits */
        int32_t begin, end;
        pixels_of(layer, &begin, &end);
        begin = begin / STAGE_UNIT * STAGE_UNIT;
        end = (end + STAGE_UNIT - 1) / STAGE_UNIT * STAGE_UNIT;
        if ((int32_t)threadIdx.x < filters())
            shift[threadIdx.x] += 0.0f;
#pragma unroll 1
        for (int32_t n = begin + (int32_t)(threadIdx.x / 32) * MADE; n < end; n += WARPS * MADE) {
            const int32_t own = n + pixel;
            const uint32_t place = places[min(max(own, 0), pixels() - 1)];
            uint32_t words[3][OF_CHUNK], set = 0;
#pragma unroll
            for (int row = 0; row < 3; row++) {
                const uint32_t at = (place & 0xffffu) + (row - 1) * a.pitch;
                const char *from = grid + (stage_byte<WORDS>(at) ^ chunk * 16u);
                memcpy(words[row], __builtin_assume_aligned(from, OF_CHUNK * 4), sizeof words[0]);
            }
#pragma unroll
            for (int word = 0; word < OF_CHUNK; word++) {
                const stage_adder column(words[0][word], words[1][word], words[2][word]);
                set += (uint32_t)(__popc(column.ones) + 2 * __popc(column.twos));
            }
            const uint32_t left = __shfl_up_sync(0xffffffffu, set, CHUNKS);
            const uint32_t right = __shfl_down_sync(0xffffffffu, set, CHUNKS);
            set += (place & STAGE_LEFT ? beyond : left) + (place & STAGE_RIGHT ? beyond : right);
#pragma unroll
            for (int lanes = 1; lanes < CHUNKS; lanes *= 2)
                set += __shfl_xor_sync(0xffffffffu, set, lanes);
            if (chunk == 0 && (uint32_t)pixel < (uint32_t)MADE && own < end)
                windows[own] = make_uint2(STAGE_AWAY - 9 * shape::CHANNELS + set,
                                          (place >> 16 & 15) * a.table_row);
        }
    }

    /* Where blocks of a cluster count what they get of a layer. A block has all of it only when no
     * other reads what the next layer overwrites, since bits are sent when products are made. */
    __device__ __forceinline__ uint32_t barrier_of(int32_t layer) const {
        return xn_shared_address(shared) + a.barriers + (uint32_t)(layer & 1) * 8;
    }
    __device__ __forceinline__ void start_barriers() const {
        if (threadIdx.x == 0) {
            xn_mbarrier_init(barrier_of(0), 1);
            xn_mbarrier_init(barrier_of(1), 1);
            xn_mbarrier_init_fence();
        }
    }
    __device__ __forceinline__ void expect_bits(int32_t layer) const {
        int32_t begin, end;
        pixels_of(layer, &begin, &end);
        end = min((end + STAGE_UNIT - 1) / STAGE_UNIT * STAGE_UNIT, pixels());
        begin = begin / STAGE_UNIT * STAGE_UNIT;
        if (threadIdx.x == 0 && a.io.cut.cluster > 1)
            xn_mbarrier_expect(barrier_of(layer), (uint32_t)((end - begin) * WORDS * 4));
    }
    __device__ __forceinline__ void wait_for_bits(int32_t layer) const {
        if (a.io.cut.cluster > 1)
            xn_mbarrier_wait(barrier_of(layer), (uint32_t)layer / 2 & 1);
        else
            __syncthreads();
    }

    __device__ __forceinline__ uint32_t table_of(int32_t layer) const {
        return a.table + (uint32_t)layer * STAGE_TABLE_ROWS * a.table_row;
    }

    /* Starts copying all layers' tables: of the filters' F, then what comes with the step. */
    __device__ __forceinline__ void copy_tables() const {
        const int32_t first = xn_divide((int32_t)(threadIdx.x / 8), a.by_filter_warps);
        const int32_t column = (int32_t)threadIdx.x * 4 - first * filters();
#pragma unroll 1
        for (int32_t n = first; n < a.io.layers * STAGE_TABLE_ROWS; n += a.pixel_warps * 4) {
            const xn_cuda_stage_layer &l = a.io.layer[n / STAGE_TABLE_ROWS];
            const int32_t row = n % STAGE_TABLE_ROWS;
            const float *values =
                row < STAGE_FACTOR
                    ? (const float *)l.filters + shape::CHANNELS * (shape::ROW_WORDS + row)
                : row == STAGE_FACTOR ? l.factor
                : row == STAGE_BIAS   ? l.bias
                                      : l.shift;
            const float other = row == STAGE_FACTOR ? 1.0f : 0.0f;
            float *to_row = (float *)(shared + a.table + n * a.table_row);
            if (values)
                xn_copy_async<16>(to_row + column, values + rank * filters() + column, true);
            else
                *(float4 *)(to_row + column) = make_float4(other, other, other, other);
        }
        xn_copy_commit();
    }

    /* The thread's own 64 or 32 bytes of a unit. */
    __device__ __forceinline__ uint4 *own_values(int32_t unit) const {
        const int32_t warp = unit * a.filter_warps + filter_warp;
        return (uint4 *)shared + warp * (stage_values<Real>::VECTORS * 32) + threadIdx.x % 32;
    }
    /* The same of any four filters and the four pixels that a pixel is one of. */
    __device__ __forceinline__ const uint4 *values_of_four(uint32_t four, uint32_t pixel) const {
        const uint32_t warp = pixel / STAGE_UNIT * a.filter_warps + four / 8;
        return (const uint4 *)shared + warp * (stage_values<Real>::VECTORS * 32) + four % 8 * 4 +
               pixel % STAGE_UNIT / 4;
    }
    /* Element 0 of a filter, of the block's first, and of its first pixel. */
    __device__ __forceinline__ int64_t element_of(int32_t filter) const {
        return (image * shape::CHANNELS + rank * filters() + filter) * (a.height * a.width) +
               top * a.width;
    }
    /* From an element of the first image's to that of a pixel in its own. */
    __device__ __forceinline__ int32_t to_image_of(int32_t pixel) const {
        return a.io.cut.images == 1 ? 0
                                    : (int32_t)(places[pixel] >> 20 & 15) * (shape::CHANNELS - 1) *
                                          a.height * a.width;
    }
    /* The residuals of the lane's first filter, from the block's first pixel on. */
    __device__ __forceinline__ const Real *own_residuals() const {
        return (const Real *)a.io.residual +
               element_of(filter_warp * 32 + (int32_t)(threadIdx.x % 32 / 4) * 4);
    }

    /* Starts copying the residuals of a unit to the thread's values of it. */
    __device__ __forceinline__ void copy_residuals(const Real *own, uint4 *values, int32_t unit,
                                                   int32_t units_end) const {
        if (unit < units_end && !a.single) {
            const int32_t pixel = unit * STAGE_UNIT + (int32_t)(threadIdx.x % 4) * 4;
            const uint32_t at = xn_shared_address(values);
            const Real *residual = own + (pixel + to_image_of(pixel));
            if (pixel < pixels())
#pragma unroll
                for (int f = 0; f < 4; f++, residual += a.height * a.width) {
                    const int bytes = f * 4 * (int)sizeof(Real);
                    xn_copy_async_at<4 * (int)sizeof(Real)>(at + bytes / 16 * 512 + bytes % 16,
                                                            residual, true);
                }
        }
        xn_copy_commit();
    }

    /* The place of a value of the block's filter 0 .. 3 and a pixel. */
    __device__ __forceinline__ Real *values_of(uint32_t pixel) const {
        return (Real *)shared +
               (pixel / STAGE_UNIT * a.filter_warps * stage_values<Real>::VECTORS * 32 +
                pixel % STAGE_UNIT / 4) *
                   (16 / (int32_t)sizeof(Real)) +
               pixel % 4;
    }
    /* From there to that of any filter. */
    static __device__ __forceinline__ uint32_t to_filter(uint32_t filter) {
        enum { EACH = 16 / (int)sizeof(Real) };
        const uint32_t n = filter % 4 * 4;
        return (filter / 32 * stage_values<Real>::VECTORS * 32 + filter % 32 / 4 * 4) * EACH +
               n / EACH * 32 * EACH + n % EACH;
    }

    /* Where value n of the block's pixels of rows [first, last) lies, in the order of memory: of an
     * image, from the block's first element and from values_of(0) on. */
    struct value_at {
        int32_t element;
        Real *value;
    };
    __device__ __forceinline__ value_at place_of(int32_t first, int32_t all, int32_t number,
                                                 int32_t n) const {
        const int32_t plane = a.height * a.width, filter = n / all;
        const int32_t pixel = (first - top) * a.width + n - filter * all;
        return {filter * plane + pixel, values_of(number * plane + pixel) + to_filter(filter)};
    }

    /* All residuals where planes are no whole fours of pixels, a lane its own. */
    __device__ __forceinline__ void read_residuals() const {
        const int32_t plane = a.height * a.width, all = pixels();
        const Real *residual = own_residuals();
#pragma unroll 1
        for (int32_t unit = pixel_warp; unit * STAGE_UNIT < all; unit += a.pixel_warps) {
            Real v[4][4];
            uint4 *own = own_values(unit);
#pragma unroll
            for (int p = 0; p < 4; p++) {
                const int32_t pixel =
                    min(unit * STAGE_UNIT + (int32_t)(threadIdx.x % 4) * 4 + p, all - 1);
                const Real *from = residual + pixel + to_image_of(pixel);
#pragma unroll
                for (int f = 0; f < 4; f++)
                    v[f][p] = from[f * plane];
            }
#pragma unroll
            for (int n = 0; n < stage_values<Real>::VECTORS; n++)
                memcpy(&own[n * 32], (const char *)v + n * 16, 16);
        }
    }

    __device__ __forceinline__ void store_reals() const {
        const int32_t all = (to - from) * a.width, fours = a.single ? 1 : 4;
#pragma unroll 1
        for (int32_t number = 0; number < images; number++) {
            Real *output = (Real *)a.io.output + element_of(0) +
                           (int64_t)number * shape::CHANNELS * a.height * a.width;
#pragma unroll 1
            for (int32_t n = (int32_t)threadIdx.x * fours; n < filters() * all;
                 n += STAGE_THREADS * fours) {
                const value_at at = place_of(from, all, number, n);
                if (a.single)
                    output[at.element] = *at.value;
                else if constexpr (sizeof(Real) == 4)
                    *(uint4 *)(output + at.element) = *(const uint4 *)at.value;
                else
                    *(uint2 *)(output + at.element) = *(const uint2 *)at.value;
            }
        }
    }

    /* What a layer's loop over units takes. */
    struct layer_of_block {
        int32_t begin, end;                /* pixels that the layers above need */
        uint32_t pixel;                    /* of a unit: whose bits the lane stores */
        uint32_t next_grid, word, barrier; /* word: its byte */
        int32_t receivers;                 /* of the bits; 1: the block itself */
        const char *table, *factor;        /* of the lane's filters */
    };

    __device__ __forceinline__ layer_of_block layer_of(int32_t layer, bool rehearsal) const {
        const uint32_t lane = threadIdx.x % 32;
        layer_of_block l;
        pixels_of(layer, &l.begin, &l.end);
        l.receivers = (int32_t)stage_keep(
            rehearsal || layer == a.io.layers - 1 ? 1u : (uint32_t)a.io.cut.cluster);
        l.pixel = (lane & 4) / 2 + (lane & 8) / 8 + lane % 4 * 4;
        l.next_grid = stage_keep(xn_shared_address(shared) + grid_of(layer + 1));
        l.word = stage_keep((uint32_t)filter_warp_of_all() * 4);
        l.barrier = barrier_of(layer);
        l.table = shared + stage_keep(table_of(layer) + (filter_warp * 32 + lane / 4 * 4) * 4);
        l.factor = l.table + STAGE_FACTOR * a.table_row;
        return l;
    }

    /* 32 filters of a pixel to the layer's output, by two lanes. */
    __device__ __forceinline__ void store_bits(const layer_of_block &l, uint32_t place,
                                               uint32_t bits) const {
        const uint32_t to = l.next_grid + (stage_byte<WORDS>(place & 0xffffu) ^ l.word);
        const int32_t half = (int32_t)(threadIdx.x % 32 / 16);
        if (l.receivers > 1 && (int32_t)place >= 0)
#pragma unroll 1
            for (int n = half; n < l.receivers; n += 2)
                stage_store_to(to, n, l.barrier - to, bits);
        else if (half == 0)
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(bits) : "memory");
    }

    /* Of a layer, of the lane's filters. */
    struct numbers {
        stage_four factor, bias, shift;
    };
    __device__ __forceinline__ numbers numbers_of(const layer_of_block &l) const {
        return {stage_row_of(l.factor, 0), stage_row_of(l.factor, a.table_row),
                stage_row_of(l.factor, 2 * a.table_row)};
    }

    /* The values of a lane from its sums; r: its residuals, then the values. */
    __device__ __forceinline__ uint32_t finish(const layer_of_block &l, const numbers &with,
                                               const stage_sums &sums, const uint4 (&window)[2],
                                               stage_values<Real> &r) const {
        float y[4][4];
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const uint4 w = window[p / 2];
            const stage_four part = stage_row_of(l.table, p % 2 ? w.w : w.y);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int32_t sum = sums[n / 2][p / 2][n % 2 * 2 + p % 2];
                const float dot =
                    fmaf(__int_as_float(sum), 4.0f, __uint_as_float(p % 2 ? w.z : w.x)) +
                    part.of[n];
                y[n][p] = fmaf(dot, with.factor.of[n], with.bias.of[n]) + r.at(n, p);
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++)
            r.set(n, y[n]);
        return stage_signs(y, with.shift.of);
    }

    /* From sums to memory. */
    __device__ __forceinline__ void finish_unit(const layer_of_block &l, const numbers &with,
                                                const stage_sums &sums, const uint4 (&window)[2],
                                                uint32_t place, uint4 *values,
                                                const stage_exchange &exchange) const {
        stage_values<Real> r;
        r.load(values);
        store_bits(l, place, exchange(finish(l, with, sums, window, r)));
#pragma unroll
        for (int n = 0; n < stage_values<Real>::VECTORS; n++)
            values[n * 32] = r.v[n];
    }

    /* The warp's first unit of a layer. */
    __device__ __forceinline__ int32_t first_unit(const layer_of_block &l) const {
        const int32_t unit = l.begin / STAGE_UNIT;
        return unit + ((pixel_warp - unit) & (a.pixel_warps - 1));
    }
    __device__ __forceinline__ bool has_units(int32_t layer) const {
        const layer_of_block l = layer_of(layer, false);
        return first_unit(l) * STAGE_UNIT < l.end;
    }

    /* The first residuals of the first layer, of 512 channels all. */
    __device__ __forceinline__ void start_residuals() const {
        const layer_of_block l = layer_of(0, false);
        const int32_t units_end = (l.end + STAGE_UNIT - 1) / STAGE_UNIT;
        if (a.single)
            read_residuals();
        else
#pragma unroll 1
            for (int n = 0; n < STAGE_AHEAD || (WORDS == 16 && n < units_end); n++)
                copy_residuals(own_residuals(), own_values(first_unit(l)) + n * NEXT_VALUES,
                               first_unit(l) + n * a.pixel_warps, units_end);
    }

    /* Waits for the kernel ahead and for the input's bits. */
    __device__ __forceinline__ void begin() const {
        stage_arrive(a.io.cut.cluster);
        xn_wait_for_previous_kernel();
        copy_bits();
        start_residuals();
        if (WORDS == 16 || a.single)
            xn_copy_wait<0>();
        else
            xn_copy_wait<STAGE_AHEAD>();
        __syncthreads();
        stage_wait(a.io.cut.cluster);
    }

    __device__ __forceinline__ void run_layer(int32_t layer, bool rehearsal,
                                              const stage_filters<WORDS> &f) const {
        const layer_of_block l = layer_of(layer, rehearsal);
        const uint32_t grid = xn_shared_address(shared) + grid_of(layer), q = threadIdx.x % 4;
        const stage_exchange exchange;
        const int32_t units_end = (l.end + STAGE_UNIT - 1) / STAGE_UNIT, apart = a.pixel_warps;
        const uint32_t g = threadIdx.x % 32 / 4, column = WORDS == 2 ? g / 2 * 4 + g % 2 : 0;
        int32_t unit = first_unit(l);
        const uint32_t *place = places + unit * STAGE_UNIT + column;
        const uint32_t to_stored = stage_keep((l.pixel - column) * 4);
        const uint4 *window = (const uint4 *)(windows + unit * STAGE_UNIT) + q * 2;
        uint4 *values = own_values(unit);
        const Real *residual = own_residuals();
        const numbers of_layer = numbers_of(l);
        uint32_t taps[3];
#pragma unroll
        for (uint32_t s = 0; s < 3; s++) {
            const uint32_t tap = s == 2 ? 8 : 4 * s + q;
            taps[s] = stage_keep(grid + (s == 2 ? q % 2 * 4 : 0) +
                                 ((tap / 3 - 1) * a.pitch + tap % 3 - 1) * 8);
        }
#pragma unroll 1
        for (; unit < units_end; unit += apart) {
            const uint4 of_unit[2] = {window[0], window[1]};
            stage_sums sums;
            stage_multiply<WORDS>(a, f, place, grid, taps, sums);
            if (layer == 0 && !rehearsal) {
                copy_residuals(residual, values + STAGE_AHEAD * NEXT_VALUES,
                               unit + STAGE_AHEAD * apart, units_end);
                xn_copy_wait<STAGE_AHEAD>();
            }
            finish_unit(l, WORDS < 8 ? of_layer : numbers_of(l), sums, of_unit,
                        *(const uint32_t *)((const char *)place + to_stored), values, exchange);
            place += apart * STAGE_UNIT;
            window += apart * STAGE_UNIT / 2;
            values += NEXT_VALUES;
        }
    }

    /* The lane's ring of all filters, whose first steps `start_ring` copies. */
    __device__ __forceinline__ stage_ring ring_of(int32_t layer) const {
        const int32_t lane = (int32_t)(threadIdx.x % 32) * 16,
                      from = filter_warp * STAGE_WIDE_BYTES;
        const char *filters = (const char *)a.io.layer[layer].filters + from + lane;
        const uint32_t own = a.filters + filter_warp * STAGE_RING * STAGE_STEP_BYTES + lane;
        return {xn_shared_address(shared) + own, filters,
                layer + 1 == a.io.layers
                    ? NULL
                    : (const char *)a.io.layer[layer + 1].filters + from + lane};
    }
    __device__ __forceinline__ void start_ring() const {
        const stage_ring ring = ring_of(0);
        for (int slot = 0; slot < STAGE_RING; slot++)
            ring.fill(slot, ring.layer + slot * STAGE_STEP_BYTES);
    }
    __device__ __forceinline__ stage_resident resident_of(int32_t layer,
                                                          const stage_filters<16> &f) const {
        return {f.of(a, layer) + filter_warp * STAGE_WIDE_BYTES + threadIdx.x % 32 * 16};
    }

    /* The same for 512 channels, UNITS units at a time. */
    template <int UNITS, typename Filters>
    __device__ __forceinline__ void run_wide_layer(int32_t layer, bool rehearsal,
                                                   const Filters &filters) const {
        const layer_of_block l = layer_of(layer, rehearsal);
        const uint32_t grid = xn_shared_address(shared) + grid_of(layer), q = threadIdx.x % 4;
        const stage_exchange exchange;
        const int32_t units_end = (l.end + STAGE_UNIT - 1) / STAGE_UNIT, apart = a.pixel_warps;
#pragma unroll 1
        for (int32_t unit = first_unit(l); unit < units_end; unit += UNITS * apart) {
            const int32_t last = (units_end - 1 - unit) / apart;
            const uint32_t *place = places + unit * STAGE_UNIT;
            const uint4 *window = (const uint4 *)(windows + unit * STAGE_UNIT) + q * 2;
            stage_sums sums[UNITS];
            if (UNITS > 2 || last > 0)
                stage_multiply_wide<UNITS>(a, filters, place, apart * STAGE_UNIT, last, grid, sums);
            else
                stage_multiply_wide<1>(a, filters, place, apart * STAGE_UNIT, last, grid, sums);
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                const uint4 *at = window + u * apart * (STAGE_UNIT / 2);
                if (u <= last) {
                    const uint4 of_unit[2] = {at[0], at[1]};
                    finish_unit(l, numbers_of(l), sums[u], of_unit,
                                place[u * apart * STAGE_UNIT + l.pixel],
                                own_values(unit + u * apart), exchange);
                }
            }
        }
    }

    /* Means of 2 x 2 of the last layer's values, as the step avg_pool has them. A lane has a pixel
     * of 4 filters, and 16 lanes pixels next to each other. */
    __device__ __forceinline__ void store_pooled() const {
        const int32_t width = a.width / 2, plane = a.height / 2 * width;
        const int32_t first = (from - top) * a.width, all = (pixels_to(to) - first) / 4;
        const int32_t end = (all + 15) / 16 * a.filter_warps * 8;
        Real *pooled = (Real *)a.io.pooled + (image * shape::CHANNELS + rank * filters()) * plane +
                       from / 2 * width;
#pragma unroll 1
        for (int32_t n = (int32_t)(threadIdx.x / 16); n < end; n += STAGE_THREADS / 16) {
            const int32_t sixteen = xn_divide(n / 8, a.by_filter_warps);
            const int32_t four = n - sixteen * a.filter_warps * 8;
            const int32_t own = sixteen * 16 + (int32_t)(threadIdx.x % 16);
            const int32_t row = xn_divide(own, a.by_pooled),
                          pixel = first + row * a.width + own * 2;
            Real *to_own = pooled + own + four * 4 * plane +
                           xn_divide(row * 2, a.by_height) * (shape::CHANNELS - 1) * plane;
            if (own < all) {
                stage_values<Real> up, low;
                up.load(values_of_four(four, pixel));
                low.load(values_of_four(four, pixel + a.width));
                up.turn(pixel % 4 != 0);
                low.turn((pixel + a.width) % 4 != 0);
                Real means[4];
                stage_means(means, up, low);
#pragma unroll
                for (int f = 0; f < 4; f++)
                    to_own[f * plane] = means[f];
            }
        }
    }

    /* Means of whole planes, by 8 neighbouring threads each, in the order of ops/op.cuh. A thread's
     * pixels are 8 apart, so each second one is of the next unit. */
    __device__ __forceinline__ void store_means() const {
        const int32_t plane = a.height * a.width, share = (int32_t)(threadIdx.x % 8);
        const int32_t to_unit =
            a.filter_warps * stage_values<Real>::VECTORS * 512 / (int32_t)sizeof(Real);
#pragma unroll 1
        for (int32_t n = (int32_t)(threadIdx.x / 8); n < images * filters();
             n += STAGE_THREADS / 8) {
            const int32_t number = xn_divide(n / 32, a.by_filter_warps);
            const int32_t filter = n - number * filters(), first = number * plane + share;
            const Real *even = values_of(first) + to_filter(filter);
            const Real *odd = values_of(first + 8) + to_filter(filter);
            double sum = 0.0;
#pragma unroll 4
            for (int32_t pixel = share; pixel < plane;
                 pixel += 16, even += to_unit, odd += to_unit) {
                sum += (double)xn_to_fp32(*even);
                if (pixel + 8 < plane)
                    sum += (double)xn_to_fp32(*odd);
            }
#pragma unroll
            for (int half = 4; half; half /= 2)
                sum += __shfl_down_sync(0xffffffffu, sum, half, 8);
            const float mean[1] = {(float)(sum / (double)plane)};
            if (share == 0)
                xn_store((Real *)a.io.pooled + (image + number) * shape::CHANNELS +
                             rank * filters() + filter,
                         mean);
        }
    }

    /* Of the block's filters. */
    __device__ __forceinline__ void store_words() const {
        const int32_t first = (from - top) * a.width, own = a.filter_warps;
        uint32_t *to_words = a.io.words + (image * a.height + from) * a.width * WORDS + rank * own;
        const int32_t all = (pixels_to(to) - first) * own;
#pragma unroll 1
        for (int32_t n = (int32_t)threadIdx.x; n < all; n += STAGE_THREADS) {
            const int32_t pixel = xn_divide(n, a.by_filter_warps), word = n - pixel * own;
            const uint32_t at = stage_byte<WORDS>(places[first + pixel] & 0xffffu) ^
                                (uint32_t)(rank * own + word) * 4;
            to_words[pixel * WORDS + word] =
                *(const uint32_t *)(shared + grid_of(a.io.layers) + at);
        }
    }
};

template <int WORDS, typename Real, bool RING>
__global__ void __launch_bounds__(STAGE_THREADS, 1)
    stage_kernel(const __grid_constant__ stage_args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ char stage_memory[];
    const stage_block<WORDS, Real> block(a, stage_memory);
    stage_filters<WORDS> filters(a, stage_memory);
    xn_let_next_kernel_start();
    block.copy_tables();
    if constexpr (RING)
        block.start_ring();
    else
        filters.load(a, 0, WORDS == 16 ? block.rank : block.filter_warp_of_all());
    block.clear();
    block.number_pixels();
    block.start_barriers();
    __syncthreads();
    /* The few blocks of one image wait long for the kernel ahead. They run a layer meanwhile, whose
     * bits stay in the block and whose values are overwritten: it brings the code. */
    if (RING)
        block.begin();
#pragma unroll 1
    for (int32_t turn = !RING && a.rehearses ? -1 : 0;; turn++) {
        const int32_t layer = RING ? turn : max(turn, 0);
        const bool rehearsal = !RING && turn < 0;
        if (!RING && turn == 0)
            block.begin();
        else if (!RING)
            xn_copy_wait<0>();
        if (rehearsal)
            __syncthreads();
        block.sum_windows(layer);
        __syncthreads();
        if (!rehearsal && layer + 1 < a.io.layers) {
            block.expect_bits(layer);
            if constexpr (WORDS == 16 && !RING)
                if (a.layers_beside > 1)
                    filters.load(a, layer + 1, block.rank);
        }
        if constexpr (RING)
            block.template run_wide_layer<STAGE_RING_UNITS>(layer, rehearsal, block.ring_of(layer));
        else if constexpr (WORDS == 16)
            block.template run_wide_layer<2>(layer, rehearsal, block.resident_of(layer, filters));
        else
            block.run_layer(layer, rehearsal, filters);
        if (rehearsal)
            continue;
        if (layer + 1 == a.io.layers)
            break;
        if (WORDS < 16 && block.has_units(layer + 1))
            filters.load(a, layer + 1, block.filter_warp_of_all());
        block.wait_for_bits(layer);
        if constexpr (WORDS == 16 && !RING)
            if (a.layers_beside == 1) {
                __syncthreads(); /* all warps have multiplied */
                filters.load(a, layer + 1, block.rank);
            }
    }
    __syncthreads();
    if (a.io.words)
        block.store_words();
    if (a.io.output)
        block.store_reals();
    if (a.io.pooled && a.io.whole)
        block.store_means();
    else if (a.io.pooled)
        block.store_pooled();
#else
    (void)a;
    __trap();
#endif
}

#endif
