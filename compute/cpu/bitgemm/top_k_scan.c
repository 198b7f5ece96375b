/* top_k_scan.c: a part of the rows for some queries; see top_k.h. */
#include "rows.h"
#include "top_k.h"

#include <math.h>
#include <string.h>

enum { FEW = 5 /* queries for which counting row by row is cheaper than turning rows to lanes */ };

/* Rows of a part that are taken together, as lanes, and the queries. */
typedef struct block {
    const xn_cpu_top_k_job *j;
    int thread;
    int32_t row, rows;   /* the first, and how many */
    int32_t first, last; /* queries */
} block;

static const uint32_t *row_at(const block *b, int32_t row) {
    return b->j->run->prepared->weights->bits + (size_t)row * (size_t)b->j->state->words;
}

static const uint32_t *query_at(const block *b, int32_t query) {
    return b->j->asked.bits + (size_t)query * (size_t)b->j->state->words;
}

static int32_t bits_of(const block *b) {
    return b->j->plan->step.conv.channels;
}

static void push(const block *b, int32_t query, uint32_t rank, int32_t row) {
    xn_cpu_best_push(xn_cpu_top_k_heap(b->j, b->thread, query),
                     (int32_t)b->j->plan->step.attributes.k, xn_cpu_ranked_at(rank, row));
}

/* ---- by values ---- */

float xn_cpu_top_k_value(const xn_cpu_epilogue *e, int32_t row, int32_t dot, float factor,
                         float bias) {
    const xn_epilogue *what = &e->conv->epilogue;
    float v = (float)dot * factor + bias;
    if (!isfinite(v))
        v = xn_cpu_value_again(e->conv, e->weights, row, (double)dot);
    if (what->activation == XN_ACTIVATION_PRELU)
        return v >= 0 ? v : e->weights->slope[xn_weights_value_at(e->weights, row)] * v;
    if (what->activation == XN_ACTIVATION_CLIP)
        return v < what->low ? what->low : v > what->high ? what->high : v;
    return v;
}

static void take_values(const block *b, int32_t query, const float *values) {
    const xn_cpu_ranked *heap = xn_cpu_top_k_heap(b->j, b->thread, query);
    const bool largest = b->j->plan->step.attributes.largest;
    for (int32_t x = 0; x < b->rows; x++) {
        const uint32_t rank = xn_cpu_rank_of(values[x], largest);
        if (rank <= heap[0] >> 32)
            push(b, query, rank, b->row + x);
    }
}

/* The input itself. */
static void take_inputs(const block *b) {
    const xn_plan *plan = b->j->plan;
    const xn_conv *conv = &plan->step.conv;
    float *values = xn_cpu_top_k_own(b->j, b->thread, XN_CPU_TOP_K_VALUES);
    const size_t size = xn_datatype_bytes((xn_datatype)conv->input_datatype);
    for (int32_t q = b->first; q < b->last; q++) {
        xn_cpu_to_fp32(plan->kernels, conv, b->j->images[q].input + (size_t)b->row * size, b->rows,
                       values);
        take_values(b, q, values);
    }
}

static void take_dots(const block *b, int32_t query, const int32_t *dots) {
    const xn_cpu_epilogue *e = &b->j->run->epilogue;
    const float *factors = xn_cpu_top_k_own(b->j, b->thread, XN_CPU_TOP_K_FACTORS);
    const float *biases = xn_cpu_top_k_own(b->j, b->thread, XN_CPU_TOP_K_BIASES);
    float *values = xn_cpu_top_k_own(b->j, b->thread, XN_CPU_TOP_K_VALUES);
    for (int32_t x = 0; x < b->rows; x++)
        values[x] = xn_cpu_top_k_value(e, b->row + x, dots[x], factors[x], biases[x]);
    take_values(b, query, values);
}

/* ---- by limits ---- */

/* The most bits that a row of the block may differ in from a query and still be among its best. A
 * row whose value is that of the worst comes after it unless its position is lower. */
static int32_t limit_of(const block *b, int32_t query) {
    const uint32_t *ranks = xn_cpu_top_k_shared(b->j, XN_CPU_TOP_K_RANKS);
    int32_t *limit = (int32_t *)xn_cpu_top_k_own(b->j, b->thread, XN_CPU_TOP_K_LIMITS) + query;
    const xn_cpu_ranked worst = xn_cpu_top_k_heap(b->j, b->thread, query)[0];
    int32_t most = *limit;
    while (most >= 0 && ranks[most] > worst >> 32)
        most--;
    *limit = most;
    while (most >= 0 && xn_cpu_ranked_at(ranks[most], b->row) > worst)
        most--;
    return most;
}

static void take_row(const block *b, int32_t query, int32_t x, int32_t differ) {
    const uint32_t *ranks = xn_cpu_top_k_shared(b->j, XN_CPU_TOP_K_RANKS);
    push(b, query, ranks[differ], b->row + x);
}

/* ---- few queries: row by row ---- */

static void scan_rows(const block *b) {
    const xn_cpu_top_k_job *j = b->j;
    int32_t *counts = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_DOTS);
    for (int32_t q = b->first; q < b->last; q++) {
        const int32_t most = j->by_limit ? limit_of(b, q) : 0;
        j->kernels->differ(row_at(b, b->row), j->state->words, b->rows, query_at(b, q), counts);
        for (int32_t x = 0; x < b->rows && j->by_limit; x++)
            if (counts[x] <= most)
                take_row(b, q, x, counts[x]);
        for (int32_t x = 0; x < b->rows && !j->by_limit; x++)
            counts[x] = bits_of(b) - 2 * counts[x];
        if (!j->by_limit)
            take_dots(b, q, counts);
    }
}

/* ---- many: rows as lanes ---- */

static xn_cpu_lanes lanes_of(const block *b) {
    const xn_cpu_top_k_job *j = b->j;
    const xn_cpu_top_k_state *state = j->state;
    const int32_t tile = j->kernels->tile_lanes;
    void *arranged = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_ARRANGED);
    j->kernels->turn(row_at(b, b->row), state->words, b->rows, state->pitch, arranged);
    return (xn_cpu_lanes){.arranged = arranged,
                          .kind = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_KINDS),
                          .map = state->map,
                          .pitch = state->pitch,
                          .count = (int32_t)xn_cpu_div_up(b->rows, tile) * tile};
}

/* words[x] bit i: row x may be among the best of query first + i. */
static void take_words(const block *b, int32_t first, const uint32_t *words) {
    for (int32_t x = 0; x < b->rows; x++)
        for (uint32_t left = words[x]; left; left &= left - 1) {
            const int32_t query = first + __builtin_ctz(left);
            int32_t differ;
            b->j->kernels->differ(row_at(b, b->row + x), b->j->state->words, 1, query_at(b, query),
                                  &differ);
            take_row(b, query, x, differ);
        }
}

static void scan_lanes(const block *b, const xn_cpu_lanes *lanes, int32_t first, int32_t count) {
    const xn_cpu_top_k_job *j = b->j;
    const size_t pitch = (size_t)j->state->pitch;
    int32_t least[XN_CPU_MOST_FILTERS], *dots = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_DOTS);
    uint32_t *words = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_WORDS);
    const xn_cpu_dots to = {.start = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_STARTS),
                            .dot = dots,
                            .pitch = pitch,
                            .words = j->by_limit ? words : NULL,
                            .least = least};
    for (int32_t i = 0; i < count && j->by_limit; i++)
        least[i] = bits_of(b) - 2 * limit_of(b, first + i);
    if (j->by_limit)
        memset(words, 0, pitch * sizeof *words);
    j->kernels->dots(lanes, &j->asked, first, count, &to);
    if (j->by_limit)
        take_words(b, first, words);
    for (int32_t i = 0; i < count && !j->by_limit; i++)
        take_dots(b, first + i, dots + (size_t)i * pitch);
}

static void scan_block(const block *b) {
    const xn_cpu_top_k_job *j = b->j;
    if (!j->state->words) {
        take_inputs(b);
        return;
    }
    if (!j->by_limit)
        xn_cpu_epilogue_fill(&j->plan->step.conv, j->run->prepared->weights, b->row,
                             b->row + b->rows, xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_FACTORS),
                             xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_BIASES));
    if (b->last - b->first <= FEW) {
        scan_rows(b);
        return;
    }
    const xn_cpu_lanes lanes = lanes_of(b);
    for (int32_t q = b->first; q < b->last; q += XN_CPU_MOST_FILTERS)
        scan_lanes(b, &lanes, q, (int32_t)xn_cpu_min(XN_CPU_MOST_FILTERS, b->last - q));
}

/* ---- a unit ---- */

static void begin_thread(const xn_cpu_top_k_job *j, int thread) {
    bool *started = (bool *)xn_cpu_top_k_shared(j, XN_CPU_TOP_K_STARTED) + thread;
    int32_t *limits = xn_cpu_top_k_own(j, thread, XN_CPU_TOP_K_LIMITS);
    int32_t *starts = xn_cpu_top_k_own(j, thread, XN_CPU_TOP_K_STARTS);
    if (*started)
        return;
    for (int32_t q = 0; q < j->queries; q++) {
        xn_cpu_best_begin(xn_cpu_top_k_heap(j, thread, q), (int32_t)j->plan->step.attributes.k);
        limits[q] = j->plan->step.conv.channels;
    }
    for (int32_t i = 0; j->state->map && i < XN_CPU_MOST_FILTERS * j->state->map->pitch; i++)
        starts[i] = j->plan->step.conv.channels;
    memset(xn_cpu_top_k_own(j, thread, XN_CPU_TOP_K_KINDS), 0,
           (size_t)j->state->pitch * sizeof(int32_t));
    *started = true;
}

void xn_cpu_top_k_scan(void *job, int64_t unit, int thread) {
    const xn_cpu_top_k_job *j = job;
    const int64_t rows = j->plan->step.conv.out_channels;
    const int64_t begin = unit % j->parts * XN_CPU_TOP_K_PART;
    const int64_t end = xn_cpu_min(rows, begin + XN_CPU_TOP_K_PART);
    block b = {.j = j, .thread = thread, .first = (int32_t)(unit / j->parts) * j->share};
    b.last = (int32_t)xn_cpu_min(j->queries, (int64_t)b.first + j->share);
    begin_thread(j, thread);
    for (int64_t row = begin; row < end; row += j->state->lanes) {
        b.row = (int32_t)row;
        b.rows = (int32_t)xn_cpu_min(j->state->lanes, end - row);
        scan_block(&b);
    }
}
