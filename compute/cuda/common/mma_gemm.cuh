/* mma_gemm.cuh: the skeleton of an implicit GEMM by mma.sync, for sm_80 and later:
 *
 *   C[filter, pixel] = sum over k of filters[filter][k] * pixels[window of pixel][k]
 *
 * for one group: M = its filters, N = the output pixels of all images, K = taps times channels,
 * tap-major. What is multiplied is fp16, tf32 or bits: each instruction takes 16 filters by 32
 * bytes and 8 pixels by 32 bytes, with the same bytes in the same registers. A stage of the
 * pipeline has 128 bytes of every filter and pixel of the tile; windows are never written out, each
 * stage copies what is under the filters' 128 bytes. Copies run ahead of the matrix instructions;
 * one barrier a step.
 *
 * A kernel is a Form, a struct of types and static functions:
 *
 *   args             an xn_mma_args, or derived from it
 *   tile             an xn_mma_tile
 *   sum              of products: float or int32_t
 *   UNIT             bytes that one copy moves: 16, 8 or 4; a tap has a.tap_units of them
 *   WHOLE            a filter's bytes are whole steps; else whole parts of 32
 *   VECTOR           neighbours that a thread stores where it may: 4 or 1
 *   HELD             threads keep the windows that they copy in registers
 *   TURNED           of pixels a stage has 32 bytes of each part, pixels side by side, in the order
 *                    of xn_mma_turned_at
 *   filter, pixel, window      what the tile has of each in shared memory, made by
 *                    filter_of(a, o), pixel_of(a, group, p) and window_of(a, group, p)
 *   tap              a unit of a tap, tap_of(a, i, j, unit), and where it is in a window:
 *                    source(a, window, tap, &exists)
 *   multiply(acc, a, b)             the matrix instruction
 *   value(a, filter, o, pixel, sum)     v of epilogue.cuh
 *   raw(a)           where no values go, but sums as raw_of(a, filter, o, pixel, sum); or NULL */
#ifndef XN_CUDA_MMA_GEMM_CUH
#define XN_CUDA_MMA_GEMM_CUH

#include "epilogue.cuh"

enum { XN_MMA_STEP_BYTES = 128, XN_MMA_PART_BYTES = 32 };

struct xn_mma_args {
    xn_conv conv;
    xn_epilogue_args out;
    const char *pixels, *filters;
    int64_t row_bytes;   /* from filter to filter */
    int32_t pixel_count; /* images * OH * OW */
    int32_t plane;       /* outputs of a filter and image */
    int32_t tap_units, steps;
    int32_t tiles_m, tiles_n;
    bool vectors; /* residuals can be loaded as outputs are stored */
};

/* What depends on the tile alone. */
static inline void xn_mma_cut(xn_mma_args *a, int64_t images, int32_t filters, int32_t pixels) {
    const xn_conv &c = a->conv;
    a->plane = c.out_height * c.out_width;
    a->pixel_count = (int32_t)(images * a->plane);
    a->steps = (int32_t)((a->row_bytes - 1) / XN_MMA_STEP_BYTES + 1);
    a->tiles_m = (c.group_out_channels - 1) / filters + 1;
    a->tiles_n = (a->pixel_count - 1) / pixels + 1;
    a->vectors = xn_residual_has_vectors(a->out, 4);
}

static inline int64_t xn_mma_blocks(const xn_conv *c, int64_t images, int32_t filters,
                                    int32_t pixels) {
    return ((int64_t)(c->group_out_channels - 1) / filters + 1) *
           ((images * c->out_height * c->out_width - 1) / pixels + 1) * c->groups;
}

/* A block of BM filters by BN pixels, WM by WN a warp. The stages of the pipeline, and in the same
 * place, once it has run, up to 32 filters of every warp's sums: rows 8 longer than they need be,
 * so that neighbouring ones begin in other banks. */
template <int BM, int BN, int WM, int WN, int STAGE_COUNT>
struct xn_mma_tile {
    static constexpr int FILTERS = BM, PIXELS = BN, WARP_FILTERS = WM, WARP_PIXELS = WN;
    static constexpr int STAGES = STAGE_COUNT;
    static constexpr int WARPS = BM / WM * (BN / WN), THREADS = WARPS * 32;
    static constexpr int TURNED = WM < 32 ? WM : 32, PITCH = WN + 8;
    static constexpr uint32_t PIXELS_AT = BM * XN_MMA_STEP_BYTES;
    static constexpr uint32_t STAGE_BYTES = (BM + BN) * XN_MMA_STEP_BYTES;

    /* The first filter and pixel of a warp. */
    static __device__ __forceinline__ int32_t filter_of(int32_t warp) {
        return warp % (BM / WM) * WM;
    }
    static __device__ __forceinline__ int32_t pixel_of(int32_t warp) {
        return warp / (BM / WM) * WN;
    }
};

template <class Form>
struct xn_mma_shared {
    typedef typename Form::tile tile;
    typename Form::filter filters[tile::FILTERS];
    typename Form::window windows[tile::PIXELS];
    typename Form::pixel pixels[tile::PIXELS];
    union {
        alignas(1024) char stages[tile::STAGES][tile::STAGE_BYTES];
        typename Form::sum sums[tile::WARPS][tile::TURNED * tile::PITCH];
    };

    /* What a block of so many steps has of it: no more stages than it fills. */
    static size_t bytes_of(int32_t steps) {
        const xn_mma_shared *all = NULL;
        const int32_t count = steps < tile::STAGES ? steps : tile::STAGES;
        const size_t used = (size_t)count * tile::STAGE_BYTES;
        return sizeof *all - sizeof all->stages +
               (used > sizeof all->sums ? used : sizeof all->sums);
    }
};

/* The sums of a warp; thread 4g + t has of filters 16m + g (h = 0) and 16m + 8 + g (h = 1) the
 * pixels 8n + 2t + e in [m][n][2h + e]. */
template <class Form>
using xn_mma_sums =
    typename Form::sum[Form::tile::WARP_FILTERS / 16][Form::tile::WARP_PIXELS / 8][4];

/* One tile's place. */
struct xn_mma_place {
    int32_t group, m0, p0;
};

/* Where 16 bytes of a row are: rows of 128 bytes, the 8 chunks of each in an order of its own, so
 * that the same chunk of 8 neighbouring rows lies in 8 different places modulo 128 bytes and is
 * read without bank conflicts. */
__device__ __forceinline__ uint32_t xn_mma_at(int32_t row, int32_t chunk) {
    return (uint32_t)(row * XN_MMA_STEP_BYTES + ((chunk ^ (row & 7)) << 4));
}

/* Where 16 bytes of a channel of fp16 are where pixels lie side by side, PIXELS of them: the same 8
 * pixels of 8 neighbouring channels lie in 8 different places modulo 128 bytes. */
template <int PIXELS>
__device__ __forceinline__ uint32_t xn_mma_turned_at(int32_t channel, int32_t chunk) {
    return (uint32_t)(channel * PIXELS * 2 + ((chunk ^ (channel & 7)) << 4));
}

/* ---- copying a step into shared memory ---- */

/* What one thread copies of the filters: 16 bytes of every ROW_STRIDE-th. */
template <class Form>
struct xn_mma_filter_loader {
    static constexpr int ROW_STRIDE = Form::tile::THREADS / 8;
    const char *from;
    int32_t live; /* filters from this thread's first on */
    int32_t left; /* bytes of a filter from here on */
    uint32_t to;

    __device__ __forceinline__ void start(const xn_mma_args &a, const xn_mma_place &at) {
        const int32_t row = (int32_t)threadIdx.x / 8, chunk = (int32_t)threadIdx.x % 8;
        const int64_t filter = (int64_t)at.group * a.conv.group_out_channels + at.m0 + row;
        const int32_t byte = chunk * 16;
        live = a.conv.group_out_channels - at.m0 - row;
        left = (int32_t)(a.row_bytes - byte);
        from = a.filters + filter * a.row_bytes + byte;
        to = xn_mma_at(row, chunk);
    }
    __device__ __forceinline__ void copy(const xn_mma_args &a, uint32_t stage) {
        if (Form::WHOLE || left > 0)
#pragma unroll
            for (int r = 0; r < Form::tile::FILTERS / ROW_STRIDE; r++)
                xn_copy_async_at<16>(stage + to + r * ROW_STRIDE * XN_MMA_STEP_BYTES,
                                     from + r * ROW_STRIDE * a.row_bytes, r * ROW_STRIDE < live);
        from += XN_MMA_STEP_BYTES;
        left -= XN_MMA_STEP_BYTES;
    }
};

/* What one thread copies of the pixels: one unit of every ROW_STRIDE-th window. tap (i, j) and
 * channel of the unit advance by UNITS a step: a mixed-radix addition with two carries. */
template <class Form>
struct xn_mma_pixel_loader {
    static constexpr int UNIT = Form::UNIT, UNITS = XN_MMA_STEP_BYTES / UNIT;
    static constexpr int ROW_STRIDE = Form::tile::THREADS / UNITS;
    static constexpr int ROWS = Form::tile::PIXELS / ROW_STRIDE;
    static_assert(ROW_STRIDE % 8 == 0 || ROW_STRIDE == 4, "the order of a row's chunks");
    typename Form::window held[Form::HELD ? ROWS : 1];
    int32_t i, j, channel; /* in units */
    int32_t step_i, step_j, step_channel;
    uint32_t to;

    __device__ __forceinline__ void start(const xn_mma_args &a,
                                          const typename Form::window *windows) {
        const int32_t row = (int32_t)threadIdx.x / UNITS, unit = (int32_t)threadIdx.x % UNITS;
        const int32_t row_units = a.conv.kernel_w * a.tap_units;
        if (Form::HELD)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                held[Form::HELD ? r : 0] = windows[row + r * ROW_STRIDE];
        i = unit / row_units;
        j = unit % row_units / a.tap_units;
        channel = unit % row_units % a.tap_units;
        step_i = UNITS / row_units;
        step_j = UNITS % row_units / a.tap_units;
        step_channel = UNITS % row_units % a.tap_units;
        to = xn_mma_at(row, unit * UNIT / 16) + unit * UNIT % 16;
    }

    __device__ __forceinline__ void copy(const typename Form::args &a,
                                         const typename Form::window *windows, uint32_t stage) {
        const int32_t row = (int32_t)threadIdx.x / UNITS;
        const typename Form::tap tap = Form::tap_of(a, i, j, channel);
        /* Past a filter's taps its own bits are zeros: of others anything may lie there. */
        if (Form::WHOLE || tap.exists)
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                /* rows 4 apart, of the tile with the fewest threads, differ in that bit */
                const uint32_t at = ROW_STRIDE % 8 ? to ^ (uint32_t)(r % 2) << 6 : to;
                bool exists;
                const char *from = Form::source(
                    a, Form::HELD ? held[Form::HELD ? r : 0] : windows[row + r * ROW_STRIDE], tap,
                    &exists);
                xn_copy_async_at<UNIT>(stage + at + r * ROW_STRIDE * XN_MMA_STEP_BYTES, from,
                                       exists);
            }
        channel += step_channel;
        const int32_t next_tap = channel >= a.tap_units;
        channel -= next_tap ? a.tap_units : 0;
        j += step_j + next_tap;
        const int32_t next_row = j >= a.conv.kernel_w;
        j -= next_row ? a.conv.kernel_w : 0;
        i += step_i + next_row;
    }
};

/* ---- a step of matrix instructions ---- */

/* filters: the warp's; column: its first pixel; parts: of the step, that filters have. */
template <class Form>
__device__ __forceinline__ void xn_mma_multiply(uint32_t filters, uint32_t pixels, int32_t column,
                                                int32_t parts, xn_mma_sums<Form> &acc) {
    constexpr int M = Form::tile::WARP_FILTERS / 16, N = Form::tile::WARP_PIXELS / 16;
    const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < XN_MMA_STEP_BYTES / XN_MMA_PART_BYTES; k++) {
        if (!Form::WHOLE && k >= parts)
            break;
        uint32_t a[M][4], b[N][4];
        const uint32_t from_a = filters + xn_mma_at(lane & 15, k * 2 + (lane >> 4));
        const uint32_t from_b =
            pixels + xn_mma_at(column + (lane & 7) + (lane >> 4) * 8, k * 2 + (lane >> 3 & 1));
#pragma unroll
        for (int m = 0; m < M; m++)
            xn_load_matrices(a[m], from_a + m * 16 * XN_MMA_STEP_BYTES);
#pragma unroll
        for (int n = 0; n < N; n++)
            if constexpr (Form::TURNED)
                xn_load_matrices_turned(
                    b[n], pixels + xn_mma_turned_at<Form::tile::PIXELS>(
                                       k * 16 + (lane & 15), column / 8 + n * 2 + (lane >> 4)));
            else
                xn_load_matrices(b[n], from_b + n * 16 * XN_MMA_STEP_BYTES);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                Form::multiply(acc[m][n * 2], a[m], b[n]);
                Form::multiply(acc[m][n * 2 + 1], a[m], b[n] + 2);
            }
    }
}

/* ---- from sums to outputs ---- */

/* V neighbouring outputs of filter o, of the tile's pixels from `pixels` on; residual: theirs.
 * Where bits are wanted the outputs take the place of the sums. */
template <class Form, int V>
__device__ __forceinline__ void
xn_mma_store(const typename Form::args &a, const typename Form::filter &f, int32_t o, int64_t index,
             const typename Form::pixel (&pixels)[V], const xn_residual_vector<V> &residual,
             typename Form::sum *at) {
    typename Form::sum sums[V];
    float v[V];
    xn_load_words(at, sums);
    if (Form::raw(a)) {
#pragma unroll
        for (int n = 0; n < V; n++)
            sums[n] = Form::raw_of(a, f, o, pixels[n], sums[n]);
        xn_store(Form::raw(a) + index, sums);
        return;
    }
#pragma unroll
    for (int n = 0; n < V; n++)
        v[n] = Form::value(a, f, o, pixels[n], sums[n]);
    xn_finish_vector(a.out, o, index, residual, v);
    if (a.out.what.bits)
#pragma unroll
        for (int n = 0; n < V; n++)
            ((float *)at)[n] = v[n];
}

/* The bits of 16 filters from o on: a lane has a pixel of `outputs`, where rows of shared memory
 * are filters. */
template <class Form>
__device__ __forceinline__ void xn_mma_store_bits(const typename Form::args &a,
                                                  const xn_mma_place &at, int32_t o, int32_t live,
                                                  const float *outputs) {
    constexpr int WN = Form::tile::WARP_PIXELS;
    const bool halves = xn_has_half_words(a.conv);
    for (int32_t n = (int32_t)threadIdx.x % 32; n < WN && at.p0 + n < a.pixel_count; n += 32) {
        uint32_t bits = 0;
#pragma unroll
        for (int32_t row = 0; row < 16; row++)
            if (row < live)
                bits |= xn_output_bit(a.out, o + row, outputs[row * Form::tile::PITCH + n]) << row;
        if (!halves)
            xn_add_bits(a.out, a.conv.out_channels, at.p0 + n, o, bits);
        else if (live > 0)
            xn_store_half_word(a.out, a.conv.out_channels, at.p0 + n, o, bits);
    }
}

/* Turns a warp's sums, so that neighbouring lanes store neighbouring outputs, V a lane. */
template <class Form, int V>
__device__ __forceinline__ void
xn_mma_write(const typename Form::args &a, const xn_mma_place &at,
             const typename Form::filter *filters, const typename Form::pixel *pixels,
             typename Form::sum *sums, const xn_mma_sums<Form> &acc) {
    typedef typename Form::tile tile;
    constexpr int WM = tile::WARP_FILTERS, WN = tile::WARP_PIXELS, PITCH = tile::PITCH;
    constexpr int LANES = WN / V < 32 ? WN / V : 32; /* a row of sums */
    constexpr int COLUMNS = WN / V / LANES, ROWS = 32 / LANES;
    constexpr int BATCH = COLUMNS > 1 ? 4 : 16 / ROWS < 8 ? 16 / ROWS : 8; /* rows, of a lane */
    const xn_conv &c = a.conv;
    const int32_t lane = (int32_t)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int32_t o = at.group * c.group_out_channels + at.m0;
    typename Form::pixel own[COLUMNS][V];
    int64_t index[COLUMNS]; /* of the tile's first filter; -1 past the last pixel */
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        const int32_t first = (lane % LANES + n * LANES) * V, p = at.p0 + first;
        const int64_t plane = (int64_t)(p / a.plane) * c.out_channels + o;
        index[n] = p < a.pixel_count ? plane * a.plane + p % a.plane : -1;
#pragma unroll
        for (int v = 0; v < V; v++)
            own[n][v] = pixels[first + v];
    }
    const int32_t live = c.group_out_channels - at.m0;
#pragma unroll
    for (int turned = 0; turned < WM; turned += tile::TURNED) {
#pragma unroll
        for (int m = 0; m < tile::TURNED; m += 16)
#pragma unroll
            for (int n = 0; n < WN / 8; n++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const auto &four = acc[(turned + m) / 16][n];
                    const typename Form::sum pair[2] = {four[h * 2], four[h * 2 + 1]};
                    xn_store(&sums[(m + g + h * 8) * PITCH + n * 8 + t * 2], pair);
                }
        __syncwarp();
#pragma unroll 1
        for (int32_t first = lane / LANES; first < tile::TURNED; first += BATCH * ROWS) {
            xn_residual_vector<V> residual[BATCH][COLUMNS];
#pragma unroll
            for (int r = 0; r < BATCH && a.out.what.residual; r++)
#pragma unroll
                for (int n = 0; n < COLUMNS; n++) {
                    const int32_t m = turned + first + r * ROWS;
                    residual[r][n].load(a.out, index[n] + (int64_t)m * a.plane,
                                        m < live && index[n] >= 0);
                }
#pragma unroll
            for (int r = 0; r < BATCH; r++)
#pragma unroll
                for (int n = 0; n < COLUMNS; n++) {
                    const int32_t row = first + r * ROWS, m = turned + row;
                    if (m < live && index[n] >= 0)
                        xn_mma_store<Form, V>(a, filters[m], o + m, index[n] + (int64_t)m * a.plane,
                                              own[n], residual[r][n],
                                              &sums[row * PITCH + (lane % LANES + n * LANES) * V]);
                }
        }
        __syncwarp();
        if (a.out.what.bits)
#pragma unroll 1
            for (int m = 0; m < tile::TURNED; m += 16)
                xn_mma_store_bits<Form>(a, at, o + turned + m, live - turned - m,
                                        (const float *)sums + m * PITCH);
        __syncwarp();
    }
}

/* ---- a block ---- */

/* What all kernels do with a block: its tile, and what its threads copy. */
template <class Form>
struct xn_mma_block {
    typedef typename Form::tile tile;
    xn_mma_place at;
    int32_t steps;
    uint32_t base; /* of the stages */
    int32_t parts; /* of filters, from the next step to multiply on */
    xn_mma_filter_loader<Form> filters;
    xn_mma_pixel_loader<Form> pixels;

    /* Starts the copies of `ahead` steps, a group each. */
    __device__ __forceinline__ void start(const typename Form::args &a, xn_mma_shared<Form> &s,
                                          int ahead) {
        const int32_t number = (int32_t)blockIdx.x;
        at = {number / a.tiles_m / a.tiles_n, number % a.tiles_m * tile::FILTERS,
              number / a.tiles_m % a.tiles_n * tile::PIXELS};
        steps = a.steps;
        base = xn_shared_address(s.stages);
        parts = (int32_t)(a.row_bytes / XN_MMA_PART_BYTES);
        xn_let_next_kernel_start();
        describe(a, s);
        __syncthreads();
        filters.start(a, at);
        pixels.start(a, s.windows);
#pragma unroll
        for (int step = 0; step < ahead; step++)
            if (step < steps)
                filters.copy(a, base + step * tile::STAGE_BYTES);
        xn_wait_for_previous_kernel(); /* which wrote the pixels, but not the filters */
#pragma unroll
        for (int step = 0; step < ahead; step++) {
            if (step < steps)
                pixels.copy(a, s.windows, base + step * tile::STAGE_BYTES + tile::PIXELS_AT);
            xn_copy_commit();
        }
    }
    __device__ __forceinline__ void describe(const typename Form::args &a,
                                             xn_mma_shared<Form> &s) const {
        const int32_t last = a.conv.group_out_channels - 1;
        for (int32_t n = threadIdx.x; n < tile::PIXELS; n += tile::THREADS) {
            const int32_t p = min(at.p0 + n, a.pixel_count - 1);
            s.windows[n] = Form::window_of(a, at.group, p);
            s.pixels[n] = Form::pixel_of(a, at.group, p);
        }
        for (int32_t m = threadIdx.x; m < tile::FILTERS; m += tile::THREADS)
            s.filters[m] = Form::filter_of(a, (int64_t)at.group * a.conv.group_out_channels +
                                                  min(at.m0 + m, last));
    }
    /* Those of one more step, if there is one. */
    __device__ __forceinline__ void copy(const typename Form::args &a, xn_mma_shared<Form> &s,
                                         int32_t step, uint32_t stage) {
        if (step < steps) {
            filters.copy(a, stage);
            pixels.copy(a, s.windows, stage + tile::PIXELS_AT);
        }
        xn_copy_commit();
    }
    __device__ __forceinline__ uint32_t next(uint32_t stage) const {
        return stage == base + (tile::STAGES - 1) * tile::STAGE_BYTES ? base
                                                                      : stage + tile::STAGE_BYTES;
    }
    /* When no thread reads the stages any more, whose place the sums take. */
    __device__ __forceinline__ void finish(const typename Form::args &a, xn_mma_shared<Form> &s,
                                           const xn_mma_sums<Form> &acc) const {
        const int32_t warp = (int32_t)threadIdx.x / 32;
        const int32_t m = tile::filter_of(warp), n = tile::pixel_of(warp);
        const xn_mma_place part = {at.group, at.m0 + m, at.p0 + n};
        if (Form::VECTOR > 1 && a.plane % Form::VECTOR == 0 && a.vectors)
            xn_mma_write<Form, Form::VECTOR>(a, part, s.filters + m, s.pixels + n, s.sums[warp],
                                             acc);
        else
            xn_mma_write<Form, 1>(a, part, s.filters + m, s.pixels + n, s.sums[warp], acc);
    }
};

template <class Form, int MIN_BLOCKS>
__global__ void __launch_bounds__(Form::tile::THREADS, MIN_BLOCKS)
    xn_mma_kernel(const __grid_constant__ typename Form::args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    typedef typename Form::tile tile;
    extern __shared__ __align__(1024) char memory[];
    xn_mma_shared<Form> &s = *(xn_mma_shared<Form> *)memory;
    constexpr int AHEAD = tile::STAGES - 1;
    const int32_t warp = (int32_t)threadIdx.x / 32;
    const uint32_t filters = tile::filter_of(warp) * XN_MMA_STEP_BYTES;
    xn_mma_block<Form> block;
    block.start(a, s, AHEAD);
    xn_mma_sums<Form> acc = {};
    uint32_t reading = block.base, writing = block.base + AHEAD * tile::STAGE_BYTES;
    for (int32_t step = 0; step < block.steps; step++) {
        xn_copy_wait<AHEAD - 1>();
        __syncthreads(); /* this step has arrived for all; the stage refilled next is read no more
                          */
        block.copy(a, s, step + AHEAD, writing);
        xn_mma_multiply<Form>(reading + filters, reading + tile::PIXELS_AT, tile::pixel_of(warp),
                              block.parts, acc);
        block.parts -= XN_MMA_STEP_BYTES / XN_MMA_PART_BYTES;
        writing = reading;
        reading = block.next(reading);
    }
    __syncthreads();
    block.finish(a, s, acc);
#else
    (void)a;
    __trap();
#endif
}

#endif
