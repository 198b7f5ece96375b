/* depthwise.cu: groups of one channel and one filter, 3 x 3, 5 x 5 or 7 x 7, with any stride and
 * dilation and rows of any length: the depth-wise layers that the strips of sliding_window.cuh,
 * which want rows of whole vectors and unit steps, do not do well.
 *
 * Planes lie one after the other in memory, and so do the rows of one. A block takes several whole
 * planes, or a band of rows of one: one run of the input, which it copies to shared memory in
 * vectors whatever the row's length, and one run of the output, which it collects there and
 * writes in vectors. In between a thread has a column and walks down it. Of each input row that
 * its windows touch it makes
 *
 *   sum      of |x| over the row's KW taps; K is the sum of KH of these
 *   signs    KW bits, and as many that say which taps are inside
 *
 * and keeps those of the last KH rows, so with stride 1 a row is read once a column. With dilation
 * d the rows of a window are d apart: a walk takes every d-th output row (in general d / gcd(d,
 * stride)-th) and goes ADVANCE = stride / gcd window rows further each time.
 *     dot = taps - 2 popc((signs xor filter) and inside)
 *
 * Rows of up to SHORT_ROW columns, with unit steps, go another way (`narrow`). A thread first has a
 * staged row: it puts the row's signs into one word and, in place of the row, the sums of |x| over
 * the taps of each column, which share what neighbours have in common. The walks then read one sum
 * and one word an output, instead of KW elements.
 *
 * Bound by instructions; about 25 an output of 3 x 3. */
#include "depthwise.cuh"
#include "depthwise_narrow.cuh"

enum {
    SHARED_LIMIT = 64 << 10, /* what every chip of 7.5 and later can give a block */
    OUTPUTS_MOST = 8192,     /* of a block in rows, */
    COLLECTED_MOST = 4096,   /* of one that collects them, */
    OUTPUTS_LEAST = 256,     /* and of one when there are few */
    BLOCKS_WANTED = 4,       /* a multiprocessor's, */
    BLOCKS_NARROW = 3,       /* with short rows, */
    ROWS_LEAST = 4,          /* which bands of fewer rows are not worth */
    MAX_PLANES = 1 << 30,
};

/* ---- a column ---- */

/* Where a column's taps are. Those outside the image are all the zero before the run. */
template <int KW>
struct depthwise_column {
    const float *tap[KW]; /* of row 0 of the image, which need not be staged */
    int32_t pitch[KW];    /* elements from row to row, 0 outside */
    uint32_t inside;      /* bit j: tap j counts */
    uint32_t signs;       /* bit j: tap j may be +1; off where pad_value is -1 */
};

template <int KW>
__device__ __forceinline__ depthwise_column<KW> find_column(const depthwise_args &a, int32_t in_x,
                                                            const float *row, const float *zero) {
    constexpr uint32_t ALL = (1u << KW) - 1u;
    depthwise_column<KW> c;
    uint32_t inside = 0;
#pragma unroll
    for (int j = 0; j < KW; j++) {
        const int32_t x = in_x + j * a.conv.dilation_w;
        const bool is_inside = (uint32_t)x < (uint32_t)a.conv.width;
        c.tap[j] = is_inside ? row + x : zero;
        c.pitch[j] = is_inside ? a.conv.width : 0;
        inside |= is_inside ? 1u << j : 0u;
    }
    c.inside = a.conv.pad_value ? ALL : inside;
    c.signs = a.conv.pad_value < 0 ? inside : ALL;
    return c;
}

/* One row of taps to the window; row y of the image. */
template <int KW, int KH>
__device__ __forceinline__ void push_row(const depthwise_args &a,
                                         const depthwise_column<KW> &column, int32_t y,
                                         depthwise_window<KW, KH> *w) {
    constexpr uint32_t ALL = (1u << KW) - 1u;
    float sum = 0.0f;
    uint32_t signs = a.conv.pad_value > 0 ? ALL : 0u, inside = a.conv.pad_value ? ALL : 0u;
    if ((uint32_t)y < (uint32_t)a.conv.height) {
        float v[KW];
#pragma unroll
        for (int j = 0; j < KW; j++)
            v[j] = column.tap[j][y * column.pitch[j]];
        signs = 0;
#pragma unroll
        for (int j = 0; j < KW; j++)
            if (v[j] >= 0.0f) /* xn_sign_bit */
                signs |= 1u << j;
        sum = xn_fours<KW>([&](int j) { return fabsf(v[j]); });
        signs &= column.signs;
        inside = column.inside;
    }
#pragma unroll
    for (int i = 0; i < KH - 1; i++)
        w->sums[i] = w->sums[i + 1];
    w->sums[KH - 1] = sum;
    depthwise_window<KW, KH>::push(w->signs, signs);
    depthwise_window<KW, KH>::push(w->inside, inside);
}

/* To out, or where outputs are not collected, to the output from element out_first on. */
template <int KW, int KH, int ADVANCE>
__device__ __forceinline__ void walk(const depthwise_args &a, const depthwise_block &b,
                                     const depthwise_place &p, int32_t plane, const float *image,
                                     const float *zero, const depthwise_filter<KW, KH> &filter,
                                     float *out, int64_t out_first, bool *finite) {
    constexpr int CARRY = ADVANCE < KH ? KH - ADVANCE : 0;
    const depthwise_column<KW> column =
        find_column<KW>(a, p.x * a.conv.stride_w - a.conv.pad_left, image, zero);
    depthwise_window<KW, KH> w = {};
    int32_t y = (b.out_y + p.row) * a.conv.stride_h - a.conv.pad_top; /* the window's first row */
#pragma unroll
    for (int i = 0; i < CARRY; i++)
        push_row<KW, KH>(a, column, y + i * a.conv.dilation_h, &w);
    int32_t at = p.row * a.conv.out_width + p.x;
    for (int32_t row = p.row; row < p.end; row += a.apart) {
#pragma unroll
        for (int i = CARRY; i < KH; i++)
            push_row<KW, KH>(a, column, y + i * a.conv.dilation_h, &w);
        const float value = output_of<KW, KH>(a, w, filter, finite);
        if (!a.direct)
            out[at] = value;
        else
            xn_few_store(a.epilogue, out_first + at, false, 1, {value});
        at += a.apart * a.conv.out_width;
        y += a.apart * a.conv.stride_h;
    }
}

/* ---- the kernel ---- */

/* ADVANCE: window rows from one output of a walk to the next; KH stands for that many and more. */
template <int KW, int KH, int ADVANCE>
__global__ void __launch_bounds__(MAX_THREADS, KW > 5 ? 3 : 4)
    depthwise_kernel(const __grid_constant__ depthwise_args a) {
    extern __shared__ __align__(16) float shared[];
    const depthwise_filter<KW, KH> *filters =
        (const depthwise_filter<KW, KH> *)(shared + a.info_at);
    const depthwise_block b = find_block(a, KH);
    const float *in = stage_block<KW, KH>(a, b, shared);
    const int64_t out_first = first_output(a, b);
    float *out = shared + a.out_at + (out_first & 3);
    bool finite = true;
    each_walk(a, b, [&](int32_t plane, const depthwise_place &p) {
        walk<KW, KH, ADVANCE>(a, b, p, plane, in + (plane * b.in_rows - b.in_y) * a.conv.width,
                              shared, filters[plane], out + plane * b.out_rows * a.conv.out_width,
                              out_first, &finite);
    });
    if (!finite)
        walks_again(a, out, out_first);
    if (a.direct) /* of one plane */
        return;
    __syncthreads();
    write_run(a.epilogue, out_first, b.planes * b.out_rows * a.conv.out_width, shared + a.out_at);
}

/* ---- the cut ---- */

typedef void (*depthwise_function)(const depthwise_args);

#define KERNELS(K)                                                                                 \
    {K, 0, narrow_kernel<K>}, {K, 1, depthwise_kernel<K, K, 1>},                                   \
        {K, 2, depthwise_kernel<K, K, 2>}, {                                                       \
        K, K, depthwise_kernel<K, K, K>                                                            \
    }
static const struct {
    int32_t kernel, advance; /* 0: rows are short */
    depthwise_function function;
} kernels[] = {KERNELS(3), KERNELS(5), KERNELS(7)};

static int32_t gcd(int32_t a, int32_t b) {
    return b ? gcd(b, a % b) : a;
}

static int32_t apart_of(const xn_conv *c) {
    return c->dilation_h / gcd(c->dilation_h, c->stride_h);
}

/* Threads read whole rows side by side: multiples of 8 columns would meet in few banks. */
static bool is_narrow(const xn_conv *c) {
    return c->stride_h == 1 && c->stride_w == 1 && c->dilation_h == 1 && c->dilation_w == 1 &&
           c->width <= SHORT_ROW && c->width % 8 && c->out_width == c->width &&
           c->pad_left == c->kernel_w / 2;
}

static depthwise_function find_kernel(const xn_conv *c) {
    const int32_t advance = is_narrow(c) ? 0 : c->stride_h / gcd(c->dilation_h, c->stride_h);
    for (const auto &k : kernels)
        if (k.kernel == c->kernel_h && (k.advance == advance || k.advance == k.kernel))
            return k.function;
    return NULL;
}

static bool takes(const xn_conv *c) {
    return xn_few_takes(c) && c->group_channels == 1 && c->group_out_channels == 1 &&
           c->kernel_h == c->kernel_w && find_kernel(c) && c->out_width > 1 &&
           c->out_width < 1 << 14 && (int64_t)c->height * c->width <= INT32_MAX / 4 &&
           (int64_t)c->out_height * c->out_width <= INT32_MAX / 4 &&
           (int64_t)c->height + c->pad_top + c->pad_bottom <= 1 << 29 &&
           (int64_t)c->width + c->pad_left + c->pad_right <= 1 << 29;
}

static int64_t bands_of(const xn_conv *c, const xn_cuda_depthwise_cut *cut) {
    return xn_few_up(c->out_height, cut->band);
}

static int64_t blocks_of(const xn_conv *c, int64_t images, const xn_cuda_depthwise_cut *cut) {
    return xn_few_up(images * c->groups, cut->planes) * bands_of(c, cut);
}

static bool is_direct(const xn_conv *c, const xn_cuda_depthwise_cut *cut) {
    return cut->planes == 1 && c->out_width >= 2 * 32;
}

/* Words of shared memory: the input run, the filters, the output run, the signs of short rows. */
static int64_t shared_words(const xn_conv *c, const xn_cuda_depthwise_cut *cut, int64_t *info_at,
                            int64_t *out_at, int64_t *rows_at) {
    int64_t rows = c->height;
    if (bands_of(c, cut) > 1) {
        rows = (int64_t)(cut->band - 1) * c->stride_h + (c->kernel_h - 1) * c->dilation_h + 1;
        rows = rows < c->height ? rows : c->height;
    }
    *info_at = 4 + (cut->planes * rows * c->width + 3 + 3) / 4 * 4;
    *out_at = *info_at + cut->planes * (int64_t)sizeof(depthwise_filter<7, 7>) / 4;
    *rows_at =
        *out_at +
        (is_direct(c, cut) ? 0 : (cut->planes * (int64_t)cut->band * c->out_width + 3 + 3) / 4 * 4);
    return *rows_at + (is_narrow(c) ? cut->planes * rows : 0);
}

bool xn_cuda_depthwise_fits(const xn_conv *c, int64_t images, const xn_cuda_depthwise_cut *cut) {
    int64_t info_at, out_at, rows_at;
    return takes(c) && cut->planes >= 1 && cut->band >= 1 && cut->rows >= 1 &&
           cut->planes <= 1024 && cut->rows <= c->out_height && cut->threads >= 32 &&
           cut->threads <= MAX_THREADS && cut->threads % 32 == 0 &&
           (cut->planes == 1 || cut->band >= c->out_height) && cut->band <= c->out_height &&
           images * c->groups <= MAX_PLANES && blocks_of(c, images, cut) <= INT32_MAX &&
           shared_words(c, cut, &info_at, &out_at, &rows_at) * 4 <= SHARED_LIMIT;
}

/* As many outputs a block as `most`: whole planes, or rows of one. */
static void choose_run(const xn_conv *c, int64_t images, int64_t most, xn_cuda_depthwise_cut *cut) {
    const int64_t plane = (int64_t)c->out_height * c->out_width, all = images * c->groups;
    cut->planes = 1;
    cut->band = c->out_height;
    if (plane * 2 <= most) {
        int64_t planes = most / plane < all ? most / plane : all;
        if (planes * c->out_width > MAX_THREADS) /* a thread a column, in one round */
            planes = MAX_THREADS / c->out_width > 1 ? MAX_THREADS / c->out_width : 1;
        cut->planes = (int32_t)planes;
    } else if (plane > most) {
        const int64_t rows = most / c->out_width < 1 ? 1 : most / c->out_width;
        const int64_t bands = (c->out_height - 1) / rows + 1;
        cut->band = (int32_t)((c->out_height - 1) / bands + 1);
    }
}

/* Long walks read less twice; short ones give threads enough. */
static void choose_walks(const xn_conv *c, xn_cuda_depthwise_cut *cut) {
    const int64_t columns = (int64_t)cut->planes * c->out_width, apart = apart_of(c);
    const int64_t longest = (cut->band - 1) / apart + 1; /* rows of a walk */
    int64_t strips = MAX_THREADS / (columns * apart);
    strips = strips < 1 ? 1 : strips;
    cut->rows = (int32_t)((longest - 1) / strips + 1);
    const int64_t items = columns * apart * ((longest - 1) / cut->rows + 1);
    const int64_t rounds = (items - 1) / MAX_THREADS + 1, each = (items - 1) / rounds + 1;
    cut->threads = (int32_t)((each + 31) / 32 * 32);
}

bool xn_cuda_depthwise_choose(const xn_conv *c, int64_t images, int multiprocessors,
                              xn_cuda_depthwise_cut *out) {
    xn_cuda_depthwise_cut cut = {};
    bool found = false;
    if (!takes(c))
        return false;
    const int64_t wanted =
        (is_narrow(c) ? BLOCKS_NARROW : BLOCKS_WANTED) * (int64_t)multiprocessors;
    for (int64_t most = OUTPUTS_MOST; most >= OUTPUTS_LEAST; most /= 2) {
        choose_run(c, images, most, &cut);
        choose_walks(c, &cut);
        if (!xn_cuda_depthwise_fits(c, images, &cut) ||
            (!is_direct(c, &cut) && most > COLLECTED_MOST))
            continue;
        if (found && bands_of(c, &cut) > 1 && cut.band < ROWS_LEAST)
            break;
        found = true;
        *out = cut;
        if (blocks_of(c, images, &cut) >= wanted)
            break;
    }
    return found;
}

void xn_cuda_depthwise_terms(const xn_conv *c, int64_t images, int multiprocessors,
                             const xn_cuda_depthwise_cut *cut, double *terms) {
    int64_t info_at, out_at, rows_at;
    shared_words(c, cut, &info_at, &out_at, &rows_at);
    const double share =
        xn_few_share((double)blocks_of(c, images, cut), multiprocessors) * cut->planes;
    const double outputs = share * cut->band * c->out_width, staged = share * (double)info_at;
    const double window = c->kernel_h * (c->kernel_w + 2.0);
    terms[0] = 1;
    terms[1] = cut->rows + c->kernel_h; /* a thread's chain */
    terms[2] = staged / cut->planes;
    terms[3] = is_narrow(c) ? outputs : 0;
    terms[4] = is_narrow(c) ? outputs * c->kernel_h : 0;
    terms[5] = is_narrow(c) ? 0 : outputs;
    terms[6] = is_narrow(c) ? 0 : outputs * window / cut->rows;
    terms[7] = is_narrow(c) ? 0 : outputs * window;
}

cudaError_t xn_cuda_depthwise_launch(const xn_conv *c, int64_t images,
                                     const xn_cuda_depthwise_cut *cut, const xn_cuda_few_io *io,
                                     const xn_epilogue_args *epilogue, bool overlapped,
                                     cudaStream_t stream) {
    if (!xn_cuda_depthwise_fits(c, images, cut))
        return cudaErrorInvalidConfiguration;
    int64_t info_at, out_at, rows_at;
    const int64_t words = shared_words(c, cut, &info_at, &out_at, &rows_at);
    depthwise_args a = {};
    xn_few_set(&a, c, io, epilogue, true);
    a.planes = (int32_t)(images * c->groups);
    a.block_planes = cut->planes;
    a.band = cut->band;
    a.rows = cut->rows;
    a.bands = (int32_t)bands_of(c, cut);
    a.direct = is_direct(c, cut);
    a.apart = apart_of(c);
    a.strips = a.apart * (((cut->band - 1) / a.apart) / cut->rows + 1);
    a.by_out_width = xn_fast_divisor_of(c->out_width);
    a.info_at = (int32_t)info_at;
    a.out_at = (int32_t)out_at;
    a.rows_at = (int32_t)rows_at;
    return xn_cuda_launch_with(find_kernel(c), dim3((unsigned)blocks_of(c, images, cut)),
                               cut->threads, (size_t)words * 4, overlapped, stream, a);
}

cudaError_t xn_cuda_depthwise_load(void) {
    for (const auto &k : kernels) {
        cudaError_t e = xn_cuda_load(k.function);
        if (e == cudaSuccess)
            e = cudaFuncSetAttribute((const void *)k.function,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_LIMIT);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
