/* model_stats.c: see model_stats.h. */
#include "model_stats.h"

#include "clock.h"
#include "threads.h"
#include "xn_mem.h"

#include <stdatomic.h>

struct xn_model_counters {
    atomic_int references;
    pthread_mutex_t mutex; /* guards all below; a leaf */
    xn_model_stats stats;
    double executions; /* each request counts its share of the launch */
};

xn_model_counters *xn_model_counters_create(void) {
    xn_model_counters *counters = xn_mem_zalloc(1, sizeof *counters);
    if (!counters)
        return NULL;
    atomic_init(&counters->references, 1);
    xn_mutex_init_adaptive(&counters->mutex);
    return counters;
}

void xn_model_counters_retain(xn_model_counters *counters) {
    atomic_fetch_add_explicit(&counters->references, 1, memory_order_relaxed);
}

void xn_model_counters_release(xn_model_counters *counters) {
    if (!counters || atomic_fetch_sub_explicit(&counters->references, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&counters->mutex);
    xn_mem_free(counters);
}

static void count(xn_model_duration *duration, int64_t ns) {
    duration->count++;
    duration->ns += ns > 0 ? (uint64_t)ns : 0;
}

static void count_success(xn_model_counters *counters, const xn_model_sample *sample) {
    xn_model_stats *s = &counters->stats;
    s->last_inference_ms = xn_wall_ns() / XN_NS_PER_MS;
    count(&s->success, sample->total_ns);
    count(&s->queue, sample->queue_ns);
    if (sample->cache_asked)
        count(sample->cache_hit ? &s->cache_hit : &s->cache_miss, sample->cache_ns);
    if (sample->cache_hit)
        return;
    s->inference_count += (uint64_t)sample->images;
    counters->executions += 1.0 / (double)(sample->batch_requests > 0 ? sample->batch_requests : 1);
    count(&s->compute_input, sample->input_ns);
    count(&s->compute_infer, sample->infer_ns);
    count(&s->compute_output, sample->output_ns);
}

void xn_model_counters_add(xn_model_counters *counters, const xn_model_sample *sample) {
    pthread_mutex_lock(&counters->mutex);
    if (sample->success)
        count_success(counters, sample);
    else
        count(&counters->stats.fail, sample->total_ns);
    pthread_mutex_unlock(&counters->mutex);
}

void xn_model_counters_read(xn_model_counters *counters, xn_model_stats *out) {
    pthread_mutex_lock(&counters->mutex);
    *out = counters->stats;
    out->execution_count = (uint64_t)(counters->executions + 0.5);
    pthread_mutex_unlock(&counters->mutex);
}
