/* top_k.c: plans and runs of steps of kind top_k; see top_k.h. */
#include "top_k.h"

#include "bits.h"
#include "parallel.h"
#include "xn_mem.h"

#include <assert.h>
#include <string.h>

enum {
    MOST_ROWS = 256,       /* at a time, */
    LEAST_ROWS = 32,       /* a multiple of all kernels' tiles */
    BLOCK_BYTES = 8 << 10, /* of them, unless they are LEAST_ROWS */
    GROUP = 256,           /* queries at a time, unless */
    GROUP_BYTES = 1 << 20, /* of a thread's lists are fewer */
    MOST_RANKED = 1 << 20, /* bits of a row whose values are ranked before the run */
};

static bool has_weights(const xn_step *step) {
    return step->conv.mode == XN_MODE_XNOR;
}

static bool fits(const xn_step *step) {
    const xn_conv *v = &step->conv;
    const xn_epilogue *e = &v->epilogue;
    if (step->kind != XN_STEP_TOP_K || v->height != 1 || v->width != 1 || e->datatype != XN_FP32 ||
        e->bits || e->residual)
        return false;
    if (has_weights(step))
        return v->input_datatype == XN_BITS && v->groups == 1 && v->kernel_h == 1 &&
               v->kernel_w == 1;
    return (v->input_datatype == XN_FP32 || v->input_datatype == XN_FP16) && xn_cpu_is_plain(e) &&
           e->factor == XN_FACTOR_NONE && !e->bias;
}

/* Of a query: counting, or reading the rows; of values, reading them. */
static double cost_ns(const xn_step *step, const void *kernels) {
    const xn_cpu_bitgemm_kernels *gemm = kernels;
    const double rows = step->conv.out_channels, words = xn_cpu_div_up(step->conv.channels, 32);
    return has_weights(step) ? rows * (1 + words * gemm->step_ns / 16) : rows;
}

/* ---- the plan ---- */

static void take_shared(const xn_plan *plan, xn_cpu_top_k_state *state, xn_cpu_sizer *sizer) {
    const xn_cpu_bitgemm_kernels *gemm = plan->path_kernels;
    const size_t words = (size_t)state->words * (size_t)state->group;
    const bool ranked = words && plan->step.conv.channels <= MOST_RANKED;
    state->offset[XN_CPU_TOP_K_QUERIES] = xn_cpu_take(sizer, words, sizeof(uint32_t));
    state->offset[XN_CPU_TOP_K_LANES] = xn_cpu_take(sizer, words, (size_t)gemm->word_bytes);
    state->offset[XN_CPU_TOP_K_RANKS] =
        xn_cpu_take(sizer, ranked ? (size_t)plan->step.conv.channels + 1 : 0, sizeof(uint32_t));
    state->offset[XN_CPU_TOP_K_STARTED] =
        xn_cpu_take(sizer, (size_t)plan->stream->device->threads, sizeof(bool));
}

static void take_slice(const xn_plan *plan, xn_cpu_top_k_state *state, xn_cpu_sizer *sizer) {
    const xn_cpu_bitgemm_kernels *gemm = plan->path_kernels;
    const size_t block = (size_t)state->block, group = (size_t)state->group;
    const size_t counts = state->words ? block * (size_t)gemm->query_lanes : 0;
    state->offset[XN_CPU_TOP_K_HEAPS] =
        xn_cpu_take(sizer, group * (size_t)plan->step.attributes.k, sizeof(xn_cpu_ranked));
    state->offset[XN_CPU_TOP_K_LIMITS] = xn_cpu_take(sizer, group, sizeof(int32_t));
    state->offset[XN_CPU_TOP_K_COUNTS] = xn_cpu_take(sizer, counts, sizeof(int32_t));
    state->offset[XN_CPU_TOP_K_NEAR] = xn_cpu_take(sizer, block, sizeof(int32_t));
    state->offset[XN_CPU_TOP_K_FACTORS] = xn_cpu_take(sizer, block, sizeof(float));
    state->offset[XN_CPU_TOP_K_BIASES] = xn_cpu_take(sizer, block, sizeof(float));
    state->offset[XN_CPU_TOP_K_VALUES] = xn_cpu_take(sizer, block, sizeof(float));
}

/* Rows of a block and queries of a group. */
static void set_sizes(const xn_plan *plan, xn_cpu_top_k_state *state) {
    const xn_step *step = &plan->step;
    const xn_cpu_bitgemm_kernels *gemm = plan->path_kernels;
    const int64_t lanes = gemm->query_lanes;
    const int64_t k_bytes = step->attributes.k * (int64_t)sizeof(xn_cpu_ranked);
    const int64_t queries = xn_cpu_div_up(xn_cpu_min(GROUP, plan->max_images), lanes) * lanes;
    int64_t rows = MOST_ROWS;
    state->words = has_weights(step) ? (int32_t)xn_cpu_div_up(step->conv.channels, 32) : 0;
    if (state->words)
        rows = BLOCK_BYTES / ((int64_t)state->words * 4) / LEAST_ROWS * LEAST_ROWS;
    state->block = (int32_t)xn_cpu_max(LEAST_ROWS, xn_cpu_min(MOST_ROWS, rows));
    state->group =
        (int32_t)xn_cpu_max(lanes, xn_cpu_min(queries, GROUP_BYTES / k_bytes / lanes * lanes));
}

static xn_status create(xn_plan *plan, xn_error *error) {
    xn_cpu_sizer shared = {0}, slice = {0};
    xn_cpu_top_k_state *state = xn_cpu_state_create(plan, sizeof *state, error);
    if (!state)
        return XN_ERR_NO_MEMORY;
    set_sizes(plan, state);
    take_shared(plan, state, &shared);
    take_slice(plan, state, &slice);
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

/* ---- what weights are ---- */

/* A bool: xn_weights_is_uniform. */
static void *make_form(const xn_prepared *p, int variant) {
    bool *same = xn_mem_zalloc(1, sizeof *same);
    (void)variant;
    if (same)
        *same = xn_weights_is_uniform(p->weights);
    return same;
}

static const xn_cpu_form form = {
    .slot = XN_CPU_FORM_TOP_K, .what = "the epilogue", .make = make_form, .free = xn_mem_free};

static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    return has_weights(&plan->step) ? xn_cpu_form_ready(prepared, &form, 0, error) : XN_OK;
}

/* ---- a run ---- */

/* Ranks of the values by bits that differ, the best first. False where they turn. */
static bool rank_values(xn_cpu_top_k_job *j) {
    const xn_cpu_epilogue *e = &j->run->epilogue;
    const xn_step *step = &j->plan->step;
    const int32_t bits = step->conv.channels;
    uint32_t *ranks = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_RANKS);
    bool rises = true, falls = true;
    float factor, bias;
    xn_cpu_epilogue_fill(&step->conv, e->weights, 0, 1, &factor, &bias);
    for (int32_t d = 0; d <= bits; d++) {
        ranks[d] = xn_cpu_rank_of(xn_cpu_top_k_value(e, 0, bits - 2 * d, factor, bias),
                                  step->attributes.largest);
        rises = rises && (d == 0 || ranks[d] >= ranks[d - 1]);
        falls = falls && (d == 0 || ranks[d] <= ranks[d - 1]);
    }
    j->reversed = falls && !rises;
    for (int32_t d = 0; j->reversed && d < bits - d; d++) {
        const uint32_t other = ranks[bits - d];
        ranks[bits - d] = ranks[d];
        ranks[d] = other;
    }
    return rises || falls;
}

/* Worth it where there are more rows than values. */
static bool find_limits(xn_cpu_top_k_job *j) {
    const xn_conv *conv = &j->plan->step.conv;
    return conv->channels <= MOST_RANKED && conv->out_channels > conv->channels &&
           *(const bool *)xn_cpu_form_of(j->run->prepared, &form, 0) && rank_values(j);
}

/* With all bits turned, those that differ are those that did not. */
static void read_query(const xn_cpu_top_k_job *j, int32_t query, uint32_t *to) {
    const xn_step *step = &j->plan->step;
    const int32_t words = j->state->words, tail = step->conv.channels % 32;
    for (int32_t w = 0; w < words; w++) {
        xn_cpu_bits_read(&step->conv, step->input_layout, j->images[query].input, 0, w, 0, 1,
                         &to[w]);
        to[w] = j->reversed ? ~to[w] : to[w];
    }
    if (tail)
        to[words - 1] &= ((uint32_t)1 << tail) - 1;
}

static void read_queries(const xn_cpu_top_k_job *j) {
    const size_t words = (size_t)j->state->words, word_bytes = (size_t)j->kernels->word_bytes;
    uint32_t *queries = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_QUERIES);
    unsigned char *lanes = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_LANES);
    for (int32_t q = 0; q < j->queries; q++)
        read_query(j, q, queries + (size_t)q * words);
    for (int32_t q = 0; q < j->queries; q += j->kernels->query_lanes)
        j->kernels->lay_queries(queries + (size_t)q * words, j->state->words, j->queries - q,
                                lanes + (size_t)q * words * word_bytes);
}

/* The lists of all threads as the first one's, sorted, and from there to the output. */
static void merge(void *context, int64_t unit, int thread) {
    const xn_cpu_top_k_job *j = context;
    const xn_attributes *wanted = &j->plan->step.attributes;
    const bool *started = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_STARTED);
    const int32_t k = (int32_t)wanted->k;
    xn_cpu_ranked *best = NULL;
    (void)thread;
    for (int t = 0; t < j->run->threads; t++) {
        xn_cpu_ranked *heap = started[t] ? xn_cpu_top_k_heap(j, t, (int32_t)unit) : NULL;
        for (int32_t i = 0; heap && best && i < k; i++)
            xn_cpu_best_push(best, k, heap[i]);
        best = best ? best : heap;
    }
    assert(best); /* there is a unit, and who did it began its lists */
    xn_cpu_best_sort(best, k);
    float *values = (float *)(void *)j->images[unit].output;
    int32_t *positions = (int32_t *)(void *)(values + k);
    for (int32_t i = 0; i < k; i++) {
        values[i] = xn_cpu_rank_value((uint32_t)(best[i] >> 32), wanted->largest);
        positions[i] = (int32_t)(uint32_t)best[i];
    }
}

/* Where there are too few parts for the threads, units have some of the queries. */
static void run_group(xn_cpu_top_k_job *j) {
    const int threads = j->run->threads;
    memset(xn_cpu_top_k_shared(j, XN_CPU_TOP_K_STARTED), 0,
           (size_t)j->plan->stream->device->threads * sizeof(bool));
    if (j->state->words)
        read_queries(j);
    j->share = j->queries;
    if (threads > 1 && j->parts < 2 * threads)
        j->share = (int32_t)xn_cpu_min(j->queries, j->state->words ? j->kernels->query_lanes : 1);
    xn_cpu_for(threads, j->parts * xn_cpu_div_up(j->queries, j->share), xn_cpu_top_k_scan, j);
    xn_cpu_for(threads, j->queries, merge, j);
}

static void run_images(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count) {
    const xn_plan *plan = run->plan;
    const xn_cpu_top_k_state *state = plan->state;
    xn_cpu_top_k_job j = {.run = run, .plan = plan, .state = state, .kernels = plan->path_kernels};
    j.parts = xn_cpu_div_up(plan->step.conv.out_channels, XN_CPU_TOP_K_PART);
    j.by_limit = state->words && find_limits(&j);
    for (int64_t first = 0; first < count; first += state->group) {
        j.images = images + first;
        j.queries = (int32_t)xn_cpu_min(state->group, count - first);
        run_group(&j);
    }
}

/* With AVX-512 alone vectors of 64 queries are too long for most batches. */
const xn_cpu_path xn_cpu_top_k = {
    .kernels = XN_CPU_PATH_KERNELS(bitgemm, avx2, vpopcnt, vpopcnt),
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = xn_mem_free,
    .prepare = prepare,
    .run = run_images,
};
