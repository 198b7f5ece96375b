/* top_k.c: plans and runs of steps of kind top_k; see top_k.h. */
#include "top_k.h"

#include "bits.h"
#include "parallel.h"
#include "xn_mem.h"

#include <assert.h>
#include <string.h>

enum {
    LEAST_LANES = 64,       /* a multiple of all kernels' tiles */
    MOST_LANES = 256,       /* rows at a time */
    PATCH_BYTES = 32 << 10, /* of them, unless they are fewer than LEAST_LANES */
    SLACK_LANES = 64,       /* behind the last: kernels write whole vectors */
    GROUP = 256,            /* queries at a time, and least: */
    LEAST_GROUP = XN_CPU_MOST_FILTERS,
    GROUP_BYTES = 1 << 20, /* of a thread's lists, unless it is that */
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
    const size_t words = (size_t)state->words, group = (size_t)state->group;
    const size_t pairs = words ? (group / XN_CPU_PAIR_FILTERS + 1) * xn_cpu_pairs(state->words) : 0;
    const bool nibbles = gemm->layout == XN_CPU_BITGEMM_NIBBLES;
    const bool by_pairs = gemm->layout == XN_CPU_BITGEMM_PAIRS;
    const bool ranked = plan->step.conv.channels <= MOST_RANKED;
    state->offset[XN_CPU_TOP_K_QUERIES] = xn_cpu_take(sizer, words * group, sizeof(uint32_t));
    state->offset[XN_CPU_TOP_K_NIBBLES] =
        xn_cpu_take(sizer, nibbles ? words * group : 0, XN_CPU_WORD_NIBBLES);
    state->offset[XN_CPU_TOP_K_PAIRS] =
        xn_cpu_take(sizer, by_pairs ? pairs : 0, sizeof(xn_cpu_pair));
    state->offset[XN_CPU_TOP_K_RANKS] = xn_cpu_take(
        sizer, words && ranked ? (size_t)plan->step.conv.channels + 1 : 0, sizeof(uint32_t));
    state->offset[XN_CPU_TOP_K_STARTED] =
        xn_cpu_take(sizer, (size_t)plan->stream->device->threads, sizeof(bool));
}

static void take_slice(const xn_plan *plan, xn_cpu_top_k_state *state, xn_cpu_sizer *sizer) {
    const xn_cpu_bitgemm_kernels *gemm = plan->path_kernels;
    const size_t words = (size_t)state->words, pitch = (size_t)state->pitch;
    const size_t lanes = (size_t)state->lanes, group = (size_t)state->group;
    const size_t starts = state->map ? XN_CPU_MOST_FILTERS * (size_t)state->map->pitch : 0;
    state->offset[XN_CPU_TOP_K_HEAPS] =
        xn_cpu_take(sizer, group * (size_t)plan->step.attributes.k, sizeof(xn_cpu_ranked));
    state->offset[XN_CPU_TOP_K_LIMITS] = xn_cpu_take(sizer, group, sizeof(int32_t));
    state->offset[XN_CPU_TOP_K_ARRANGED] =
        xn_cpu_take(sizer, words * pitch, (size_t)gemm->word_bytes);
    state->offset[XN_CPU_TOP_K_KINDS] = xn_cpu_take(sizer, pitch, sizeof(int32_t));
    state->offset[XN_CPU_TOP_K_STARTS] = xn_cpu_take(sizer, starts, sizeof(int32_t));
    state->offset[XN_CPU_TOP_K_DOTS] =
        xn_cpu_take(sizer, words ? XN_CPU_MOST_FILTERS * pitch : 0, sizeof(int32_t));
    state->offset[XN_CPU_TOP_K_WORDS] = xn_cpu_take(sizer, pitch, sizeof(uint32_t));
    state->offset[XN_CPU_TOP_K_FACTORS] = xn_cpu_take(sizer, lanes, sizeof(float));
    state->offset[XN_CPU_TOP_K_BIASES] = xn_cpu_take(sizer, lanes, sizeof(float));
    state->offset[XN_CPU_TOP_K_VALUES] = xn_cpu_take(sizer, lanes, sizeof(float));
}

/* Rows at a time, as lanes, and the queries of a group. */
static void set_sizes(const xn_plan *plan, xn_cpu_top_k_state *state) {
    const xn_step *step = &plan->step;
    const int64_t k_bytes = step->attributes.k * (int64_t)sizeof(xn_cpu_ranked);
    const int64_t queries = xn_cpu_div_up(plan->max_images, LEAST_GROUP) * LEAST_GROUP;
    int64_t lanes = MOST_LANES, group = GROUP_BYTES / k_bytes / LEAST_GROUP * LEAST_GROUP;
    state->words = has_weights(step) ? (int32_t)xn_cpu_div_up(step->conv.channels, 32) : 0;
    if (state->words)
        lanes = PATCH_BYTES / ((int64_t)state->words * 4) / LEAST_LANES * LEAST_LANES;
    state->lanes = (int32_t)xn_cpu_max(LEAST_LANES, xn_cpu_min(MOST_LANES, lanes));
    state->pitch = state->lanes + SLACK_LANES;
    group = xn_cpu_max(LEAST_GROUP, xn_cpu_min(GROUP, group));
    state->group = (int32_t)xn_cpu_min(group, queries);
}

static void destroy(void *state) {
    xn_cpu_top_k_state *s = state;
    if (s)
        xn_cpu_map_free(s->map);
    xn_mem_free(s);
}

static xn_status create(xn_plan *plan, xn_error *error) {
    xn_cpu_sizer shared = {0}, slice = {0};
    xn_cpu_top_k_state *state = xn_cpu_state_create(plan, sizeof *state, error);
    if (!state)
        return XN_ERR_NO_MEMORY;
    set_sizes(plan, state);
    if (state->words && !(state->map = xn_cpu_map_create(&plan->step.conv)))
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a top_k");
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

static void read_queries(xn_cpu_top_k_job *j) {
    const xn_cpu_bitgemm_layout layout = j->kernels->layout;
    uint32_t *bits = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_QUERIES);
    j->asked = (xn_cpu_bitgemm_weights){.bits = bits, .words = j->state->words};
    if (layout == XN_CPU_BITGEMM_NIBBLES)
        j->asked.nibbles = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_NIBBLES);
    if (layout == XN_CPU_BITGEMM_PAIRS)
        j->asked.pairs = xn_cpu_top_k_shared(j, XN_CPU_TOP_K_PAIRS);
    for (int32_t q = 0; q < j->queries; q++)
        read_query(j, q, bits + (size_t)q * (size_t)j->state->words);
    xn_cpu_bitgemm_arrange_filters(&j->asked, j->queries);
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
        j->share = (int32_t)xn_cpu_min(j->queries, j->state->words ? XN_CPU_MOST_FILTERS : 1);
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

const xn_cpu_path xn_cpu_top_k = {
    .kernels = XN_CPU_PATH_KERNELS(bitgemm, vpopcnt, vpopcnt),
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .run = run_images,
};
