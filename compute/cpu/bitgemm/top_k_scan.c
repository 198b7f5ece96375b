/* top_k_scan.c: a part of the rows for some queries; see top_k.h. */
#include "rows.h"
#include "top_k.h"

#include <math.h>

/* Rows of a part that are taken together, and the queries. */
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
    const uint32_t *queries = xn_cpu_top_k_shared(b->j, XN_CPU_TOP_K_QUERIES);
    return queries + (size_t)query * (size_t)b->j->state->words;
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

/* counts: of the rows, one every `stride`. */
static void take_counts(const block *b, int32_t query, const int32_t *counts, int32_t stride) {
    const xn_cpu_epilogue *e = &b->j->run->epilogue;
    const int32_t bits = b->j->plan->step.conv.channels;
    const float *factors = xn_cpu_top_k_own(b->j, b->thread, XN_CPU_TOP_K_FACTORS);
    const float *biases = xn_cpu_top_k_own(b->j, b->thread, XN_CPU_TOP_K_BIASES);
    float *values = xn_cpu_top_k_own(b->j, b->thread, XN_CPU_TOP_K_VALUES);
    for (int32_t x = 0; x < b->rows; x++, counts += stride)
        values[x] = xn_cpu_top_k_value(e, b->row + x, bits - 2 * *counts, factors[x], biases[x]);
    take_values(b, query, values);
}

/* ---- by limits ---- */

/* The most bits that a row from `row` on may differ in from a query and still be among its best. A
 * row whose value is that of the worst comes after it unless its position is lower. */
static void find_limit(const xn_cpu_top_k_job *j, int thread, int32_t query, int64_t row) {
    const uint32_t *ranks = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_RANKS);
    int32_t *limits = xn_cpu_top_k_own(j, thread, XN_CPU_TOP_K_LIMITS), most = limits[query];
    const xn_cpu_ranked worst = xn_cpu_top_k_heap(j, thread, query)[0];
    const int32_t bits = j->plan->step.conv.channels;
    while (most < bits && xn_cpu_ranked_at(ranks[most + 1], (int32_t)row) < worst)
        most++;
    while (most >= 0 && xn_cpu_ranked_at(ranks[most], (int32_t)row) > worst)
        most--;
    limits[query] = most;
}

static void take_row(const block *b, int32_t query, int32_t x, int32_t differ) {
    const uint32_t *ranks = xn_cpu_top_k_shared(b->j, XN_CPU_TOP_K_RANKS);
    push(b, query, ranks[differ], b->row + x);
    find_limit(b->j, b->thread, query, (int64_t)b->row + x + 1);
}

/* ---- one by one, or as lanes ---- */

static void scan_query(const block *b, int32_t query) {
    const xn_cpu_top_k_job *j = b->j;
    const int32_t *most = (int32_t *)xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_LIMITS) + query;
    int32_t *counts = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_COUNTS);
    j->kernels->differ(row_at(b, b->row), j->state->words, b->rows, query_at(b, query), counts);
    for (int32_t x = 0; x < b->rows && j->by_limit; x++)
        if (counts[x] <= *most)
            take_row(b, query, x, counts[x]);
    if (!j->by_limit)
        take_counts(b, query, counts, 1);
}

static void scan_lanes(const block *b, int32_t first, int32_t count) {
    const xn_cpu_top_k_job *j = b->j;
    const int32_t lanes = j->kernels->query_lanes;
    const size_t query_bytes = (size_t)j->state->words * (size_t)j->kernels->word_bytes;
    const unsigned char *queries = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_LANES);
    const int32_t *most = (int32_t *)xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_LIMITS) + first;
    int32_t *counts = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_COUNTS);
    int32_t *near = xn_cpu_top_k_own(j, b->thread, XN_CPU_TOP_K_NEAR);
    const int32_t found =
        j->kernels->search(queries + (size_t)first * query_bytes, count, row_at(b, b->row),
                           j->state->words, b->rows, most, counts, near);
    for (int32_t n = 0; n < found; n++)
        for (int32_t i = 0; i < count; i++)
            if (counts[near[n] * lanes + i] <= most[i])
                take_row(b, first + i, near[n], counts[near[n] * lanes + i]);
    for (int32_t i = 0; i < count && !j->by_limit; i++)
        take_counts(b, first + i, counts + i, lanes);
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
    const int32_t lanes = j->kernels->query_lanes;
    for (int32_t q = b->first; q < b->last; q += lanes) {
        const int32_t count = (int32_t)xn_cpu_min(lanes, b->last - q);
        if (count > j->kernels->few_queries)
            scan_lanes(b, q, count);
        for (int32_t i = 0; i < count && count <= j->kernels->few_queries; i++)
            scan_query(b, q + i);
    }
}

/* ---- a unit ---- */

/* Lanes without a query, and all where values turn, have a limit that no row keeps. */
static void begin_thread(const xn_cpu_top_k_job *j, int thread) {
    bool *started = (bool *)xn_cpu_top_k_shared(j, XN_CPU_TOP_K_STARTED) + thread;
    int32_t *limits = xn_cpu_top_k_own(j, thread, XN_CPU_TOP_K_LIMITS);
    if (*started)
        return;
    for (int32_t q = 0; q < j->queries; q++)
        xn_cpu_best_begin(xn_cpu_top_k_heap(j, thread, q), (int32_t)j->plan->step.attributes.k);
    for (int32_t q = 0; q < j->state->group; q++)
        limits[q] = -1;
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
    for (int32_t q = b.first; q < b.last && j->by_limit; q++)
        find_limit(j, thread, q, begin);
    for (int64_t row = begin; row < end; row += j->state->block) {
        b.row = (int32_t)row;
        b.rows = (int32_t)xn_cpu_min(j->state->block, end - row);
        scan_block(&b);
    }
}
