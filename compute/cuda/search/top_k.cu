/* top_k.cu: which kernels a top_k is, and their launches; the kernel that chooses the best of
 * values, of blocks' lists, or of tiles of rows. */
#include "scan.cuh"
#include "top_k.h"

#include <algorithm>
#include <cmath>

enum {
    MOST_QUERIES = 256,      /* that share a pass over the rows, no more than SCAN_THREADS */
    QUERIES_BYTES = 1 << 25, /* of those, unless they are SCAN_COLUMNS */
    SAMPLE_STRIDE = 8,       /* at least, from a tile of rows of the sample to the next; */
    LEAST_TILES = 2,         /* of these are there for each of the k, or there is no sample */
    STEPS_MOST = 8,          /* of rows that registers hold, and the sizes below it */
    STEPS_MIDDLE = 2,
    SELECT_THREADS = 512,
    AT_ONCE = 8 /* keys that a thread reads side by side */
};

/* ---- the best of what lies in memory ---- */

typedef enum { FROM_REALS, FROM_LISTS, FROM_TILES } select_from;

struct select_args {
    xn_epilogue_args e;
    const void *from;
    int64_t count, pitch; /* of a query: candidates; elements from one to the next */
    int32_t query_count, room, k, datatype;
    bool largest;
    float *output;        /* k values and positions; */
    int64_t output_pitch; /* elements */
    int32_t *least;       /* of tiles: the k-th best x */
};

template <select_from FROM>
__device__ __forceinline__ uint64_t select_key(const select_args &a, int64_t at) {
    const int64_t i = blockIdx.x * a.pitch + at;
    if (at >= a.count)
        return XN_NO_KEY;
    if (FROM == FROM_TILES) {
        const int32_t x = ((const int32_t *)a.from)[i];
        return (uint64_t)(~(uint32_t)x ^ 0x80000000u) << 32 | (uint32_t)at;
    }
    if (FROM == FROM_LISTS)
        return ((const uint64_t *)a.from)[i];
    const float acc = a.datatype == XN_FP16 ? __half2float(((const __half *)a.from)[i])
                                            : ((const float *)a.from)[i];
    return xn_key_of(a.e, at, acc, a.largest);
}

/* A block chooses those of a query. The k-th least of its threads' least ranks is a bound that few
 * keys but the k best reach: those go to a list, and a thread counts how many are better than one
 * of them. With fewer threads than k any key reaches it. */
template <select_from FROM>
__global__ void __launch_bounds__(SELECT_THREADS)
    select_kernel(const __grid_constant__ select_args a) {
    extern __shared__ uint64_t select_keys[];
    __shared__ uint64_t last;
    __shared__ int32_t taken;
    const xn_lists lists = {select_keys, &last, &taken, a.room, a.k};
    uint32_t least = UINT32_MAX, bound = 0;
    xn_let_next_kernel_start();
    lists.clear(1);
    xn_wait_for_previous_kernel();
    for (int64_t i = threadIdx.x; i < a.count; i += AT_ONCE * SELECT_THREADS)
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++)
            least = min(least, (uint32_t)(select_key<FROM>(a, i + n * SELECT_THREADS) >> 32));
#pragma unroll 1
    for (uint32_t bit = 1u << 31; bit; bit /= 2)
        if (__syncthreads_count(least < (bound | bit)) < a.k)
            bound |= bit;
    const bool any = __any_sync(XN_ALL_LANES, least <= bound);
    for (int64_t i = 0; any && i < a.count; i += SELECT_THREADS) {
        const uint64_t key = least <= bound ? select_key<FROM>(a, i + threadIdx.x) : XN_NO_KEY;
        lists.put(0, key, key >> 32 <= bound && lists.takes(0, key));
    }
    __syncthreads();
    float *to = a.output + blockIdx.x * a.output_pitch;
    for (int32_t i = (int32_t)threadIdx.x; i < taken; i += SELECT_THREADS) {
        const uint64_t key = select_keys[i];
        int32_t better = 0;
        for (int32_t n = 0; n < taken; n++)
            better += select_keys[n] < key;
        if (FROM == FROM_TILES && better == a.k - 1)
            a.least[blockIdx.x] = (int32_t)(~(uint32_t)(key >> 32) ^ 0x80000000u);
        if (FROM == FROM_TILES || better >= a.k)
            continue;
        to[better] = xn_rank_value((uint32_t)(key >> 32), a.largest);
        to[a.k + better] = __int_as_float((int32_t)(uint32_t)key);
    }
}

static cudaError_t choose(void (*kernel)(const select_args), const select_args &a, bool overlapped,
                          cudaStream_t stream) {
    return xn_cuda_launch_with(kernel, dim3((unsigned)a.query_count), SELECT_THREADS,
                               (size_t)a.room * sizeof(uint64_t), overlapped, stream, a);
}

/* ---- how a dense layer is cut ---- */

typedef void (*scan_function)(const scan_args);

struct cut {
    scan_function kernel;
    int32_t tile_rows, steps, room;
    int32_t most_queries;            /* of a pass, */
    int32_t most_tile;               /* and of a block */
    int32_t tile_queries, columns;   /* of a block of a pass; */
    int32_t tiles, blocks;           /* of queries; that share the rows */
    int64_t row_tiles, sample_tiles; /* of rows; 0 without a sample */
    size_t shared_bytes;
};

static int32_t round_up(int64_t n, int32_t unit) {
    return (int32_t)((n - 1) / unit + 1) * unit;
}

/* A power of 2. */
static int32_t room_of(const xn_step *step) {
    int32_t room = 32;
    while (room < 2 * step->attributes.k)
        room *= 2;
    return room;
}

static void set_kernel(const xn_step *step, cut *c) {
    const int32_t steps = (step->conv.channels - 1) / (SCAN_WORDS * 32) + 1;
    const bool wide = steps > STEPS_MOST / 2;
    c->steps = steps;
    c->tile_rows = 32;
    if (steps == 1) {
        c->kernel = scan_kernel<4, 1, false>;
    } else if (steps == STEPS_MIDDLE) {
        c->kernel = scan_kernel<4, 2, false>;
    } else {
        c->steps = round_up(steps, STEPS_MOST / 2);
        c->tile_rows = 16;
        c->kernel = wide ? scan_kernel<2, 4, true> : scan_kernel<2, 4, false>;
    }
}

static bool is_wide(const cut *c) {
    return c->steps > STEPS_MOST / 2;
}

static cut cut_of(const xn_step *step, const xn_cuda_chip *chip) {
    cut c = {};
    set_kernel(step, &c);
    c.room = room_of(step);
    c.row_tiles = (step->conv.out_channels - 1) / c.tile_rows + 1;
    const size_t column = scan_column_bytes(c.steps, is_wide(&c));
    const size_t query = scan_query_bytes(c.room), shared = (size_t)chip->shared_bytes;
    const size_t columns = shared / (column + SCAN_COLUMNS * query);
    c.most_tile = columns ? (int32_t)columns * SCAN_COLUMNS : (int32_t)((shared - column) / query);
    c.most_tile = std::min<int32_t>(c.most_tile, MOST_QUERIES);
    const int64_t fit = QUERIES_BYTES / ((int64_t)c.steps * SCAN_WORDS * 4);
    c.most_queries = (int32_t)std::max<int64_t>(SCAN_COLUMNS, std::min<int64_t>(fit, MOST_QUERIES));
    return c;
}

/* Of a pass. Fewer queries a block where the rows alone are not enough for all multiprocessors. */
static void set_pass(cut *c, int32_t queries, const xn_cuda_chip *chip) {
    const int64_t shares = (c->row_tiles - 1) / SCAN_WARPS + 1;
    c->tile_queries = std::min(queries, c->most_tile);
    while (c->tile_queries > SCAN_COLUMNS &&
           ((queries - 1) / c->tile_queries + 1) * shares < chip->multiprocessors)
        c->tile_queries = round_up(c->tile_queries / 2, SCAN_COLUMNS);
    c->columns = (c->tile_queries - 1) / SCAN_COLUMNS + 1;
    c->tiles = (queries - 1) / c->tile_queries + 1;
    c->blocks = (int32_t)std::min<int64_t>(shares, std::max(1, chip->multiprocessors / c->tiles));
    c->shared_bytes = (size_t)c->tile_queries * scan_query_bytes(c->room) +
                      (size_t)c->columns * scan_column_bytes(c->steps, is_wide(c));
}

/* Whole tiles alone: rows that there are not are no candidates. No more than warps, which take as
 * long for one. */
static int64_t sample_of(const xn_step *step, const cut *c, const xn_cuda_chip *chip) {
    const int64_t tiles = std::min<int64_t>(step->conv.out_channels / c->tile_rows / SAMPLE_STRIDE,
                                            (int64_t)chip->multiprocessors * SCAN_WARPS);
    return tiles >= LEAST_TILES * step->attributes.k ? tiles : 0;
}

xn_cuda_top_k_room xn_cuda_top_k_take(const xn_step *step, const xn_cuda_chip *chip,
                                      xn_cuda_scratch *scratch) {
    xn_cuda_top_k_room room = {};
    if (step->kind != XN_STEP_TOP_K || step->conv.mode != XN_MODE_XNOR)
        return room;
    const cut c = cut_of(step, chip);
    const size_t queries = (size_t)std::min<int64_t>(scratch->images, c.most_queries);
    const size_t tile = std::min<size_t>((size_t)c.most_tile, queries);
    /* of the queries that columns have room for, more than half are there */
    const size_t columns =
        (c.most_tile < SCAN_COLUMNS ? SCAN_COLUMNS : 2) * (queries + SCAN_COLUMNS);
    const size_t lists = (size_t)chip->multiprocessors * tile + queries;
    room.queries = xn_cuda_take_bytes(scratch, columns * (size_t)c.steps * SCAN_WORDS * 4);
    room.set_bits = (int32_t *)xn_cuda_take_bytes(scratch, queries * sizeof(int32_t));
    room.least = (int32_t *)xn_cuda_take_bytes(scratch, queries * sizeof(int32_t));
    room.reached = (int32_t *)xn_cuda_take_bytes(scratch, queries * SCAN_LEVELS * sizeof(int32_t));
    room.greatest = (int32_t *)xn_cuda_take_bytes(
        scratch, queries * (size_t)sample_of(step, &c, chip) * sizeof(int32_t));
    room.lists = (uint64_t *)xn_cuda_take_bytes(scratch, lists * (size_t)c.room * sizeof(uint64_t));
    return room;
}

/* ---- launches ---- */

/* Whether the value is a function of the dot alone that never turns; *turned: it falls, where
 * greater ones are better, or rises. */
static bool is_by_dot(const xn_step *step, const xn_cuda_top_k_io *io, bool *turned) {
    const xn_epilogue *e = &step->conv.epilogue;
    const xn_weights *w = io->weights;
    const float factor = e->factor == XN_FACTOR_NONE ? 1.0f : w->scale ? w->scale[0] : 0.0f;
    const bool falls = e->activation == XN_ACTIVATION_PRELU && !(w->slope[0] >= 0.0f);
    *turned = (factor < 0.0f) == (step->attributes.largest != 0);
    return io->uniform && e->factor != XN_FACTOR_ALPHA && std::isfinite(factor) && !falls &&
           (!e->bias || std::isfinite(w->bias[0]));
}

static scan_args scan_args_of(const xn_step *step, const cut *c, const xn_cuda_top_k_room *room,
                              const xn_cuda_top_k_io *io, const xn_epilogue_args *epilogue) {
    const xn_conv *v = &step->conv;
    scan_args a = {};
    a.e = *epilogue;
    a.rows = io->rows;
    a.queries = (const uint4 *)room->queries;
    a.set_bits = room->set_bits;
    a.reached = room->reached;
    a.lists = room->lists;
    a.row_count = v->out_channels;
    a.words = (v->channels - 1) / 32 + 1;
    a.bits = v->channels;
    a.steps = c->steps;
    a.tiles = (int32_t)c->row_tiles;
    a.stride = 1;
    a.room = c->room;
    a.k = (int32_t)step->attributes.k;
    a.vectors = a.words % 4 == 0;
    a.by_dot = is_by_dot(step, io, &a.turned);
    a.turned = a.turned && a.by_dot;
    a.largest = step->attributes.largest;
    return a;
}

static cudaError_t arrange_queries(const scan_args *a, const cut *c, const void *input,
                                   int64_t pitch, bool overlapped, cudaStream_t stream) {
    scan_queries_args q = {};
    q.input = (const uint8_t *)input;
    q.queries = (uint32_t *)a->queries;
    q.set_bits = (int32_t *)a->set_bits;
    q.reached = a->reached;
    q.pitch = pitch;
    q.bits = a->bits;
    q.steps = a->steps;
    q.query_count = a->query_count;
    q.tile_queries = a->tile_queries;
    q.columns = a->columns;
    q.tiles = c->tiles;
    q.turned = a->turned;
    const int64_t warps = (int64_t)c->tiles * c->columns * SCAN_COLUMNS;
    return xn_cuda_launch_with(scan_queries_kernel, xn_cuda_grid(warps, XN_CUDA_THREADS / 32),
                               XN_CUDA_THREADS, 0, overlapped, stream, q);
}

static cudaError_t scan(const cut *c, const scan_args *a, bool overlapped, cudaStream_t stream) {
    const dim3 grid((unsigned)std::min(c->blocks, a->tiles), (unsigned)c->tiles);
    return xn_cuda_launch_with(c->kernel, grid, SCAN_THREADS, c->shared_bytes, overlapped, stream,
                               *a);
}

/* The bounds of a pass. */
static cudaError_t sample(const cut *c, scan_args *a, const xn_cuda_top_k_room *room,
                          bool overlapped, cudaStream_t stream) {
    scan_args some = *a;
    some.greatest = room->greatest;
    some.tiles = (int32_t)c->sample_tiles;
    some.stride = (int32_t)(a->row_count / c->tile_rows / c->sample_tiles);
    cudaError_t e = scan(c, &some, overlapped, stream);
    select_args s = {};
    s.from = some.greatest;
    s.count = s.pitch = c->sample_tiles;
    s.query_count = a->query_count;
    s.room = a->room;
    s.k = a->k;
    s.least = room->least;
    a->least = room->least;
    return e == cudaSuccess ? choose(select_kernel<FROM_TILES>, s, overlapped, stream) : e;
}

/* A pass over the rows for some queries. */
static cudaError_t run_pass(const cut *c, scan_args *a, const xn_cuda_top_k_room *room,
                            select_args *s, const void *input, int64_t pitch, bool overlapped,
                            cudaStream_t stream) {
    a->least = NULL;
    a->query_count = s->query_count;
    a->tile_queries = c->tile_queries;
    a->columns = c->columns;
    cudaError_t e = arrange_queries(a, c, input, pitch, overlapped, stream);
    if (e == cudaSuccess && c->sample_tiles && a->by_dot)
        e = sample(c, a, room, overlapped, stream);
    if (e == cudaSuccess)
        e = scan(c, a, overlapped, stream);
    s->from = a->lists;
    s->count = s->pitch = (int64_t)c->blocks * a->room;
    return e == cudaSuccess ? choose(select_kernel<FROM_LISTS>, *s, overlapped, stream) : e;
}

static cudaError_t run_dense(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                             const xn_cuda_top_k_room *room, const xn_cuda_top_k_io *io,
                             select_args *s, cudaStream_t stream) {
    const xn_conv *v = &step->conv;
    const int64_t pitch = step->input_layout == XN_LAYOUT_BYTES
                              ? xn_bits_pixel_bytes(v->channels)
                              : (int64_t)xn_packed_words(v->channels) * 4;
    cut c = cut_of(step, chip);
    scan_args a = scan_args_of(step, &c, room, io, &s->e);
    cudaError_t e = cudaSuccess;
    c.sample_tiles = sample_of(step, &c, chip);
    for (int64_t first = 0; first < images && e == cudaSuccess; first += s->query_count) {
        s->query_count = (int32_t)std::min<int64_t>(images - first, c.most_queries);
        set_pass(&c, s->query_count, chip);
        e = run_pass(&c, &a, room, s, (const char *)io->input + first * pitch, pitch,
                     chip->overlaps, stream);
        s->output += s->query_count * s->output_pitch;
    }
    return e;
}

/* Rows of reals. */
static cudaError_t run_plain(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                             const void *input, select_args *s, cudaStream_t stream) {
    const xn_conv *v = &step->conv;
    const xn_view *view = &step->input_view;
    s->datatype = v->input_datatype;
    s->count = v->channels;
    s->pitch = view->pitch ? view->pitch : v->channels;
    s->from = (const char *)input +
              (size_t)view->offset * xn_datatype_bytes((xn_datatype)v->input_datatype);
    s->query_count = (int32_t)images;
    return choose(select_kernel<FROM_REALS>, *s, chip->overlaps, stream);
}

cudaError_t xn_cuda_top_k_launch(const xn_step *step, int64_t images, const xn_cuda_chip *chip,
                                 const xn_cuda_top_k_room *room, const xn_cuda_top_k_io *io,
                                 const xn_epilogue_args *epilogue, cudaStream_t stream) {
    const xn_view *view = &step->output_view;
    select_args s = {};
    s.e = xn_epilogue_of(&step->conv, epilogue);
    s.room = room_of(step);
    s.k = (int32_t)step->attributes.k;
    s.largest = step->attributes.largest;
    s.output = (float *)io->output + view->offset;
    s.output_pitch = view->pitch ? view->pitch : 2 * step->attributes.k;
    return io->rows ? run_dense(step, images, chip, room, io, &s, stream)
                    : run_plain(step, images, chip, io->input, &s, stream);
}

cudaError_t xn_cuda_top_k_load(const xn_cuda_chip *chip) {
    static const scan_function kernels[] = {scan_kernel<4, 1, false>, scan_kernel<4, 2, false>,
                                            scan_kernel<2, 4, false>, scan_kernel<2, 4, true>};
    cudaError_t e = xn_cuda_load(scan_queries_kernel, select_kernel<FROM_REALS>,
                                 select_kernel<FROM_LISTS>, select_kernel<FROM_TILES>);
    for (scan_function kernel : kernels)
        if (e == cudaSuccess)
            e = xn_cuda_load_with(kernel, (size_t)chip->shared_bytes);
    return e;
}
