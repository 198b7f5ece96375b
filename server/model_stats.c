/* model_stats.c: see model_stats.h. */
#include "model_stats.h"

#include <string.h>
#include <time.h>

void xn_model_counters_init(xn_model_counters *counters) {
    memset(counters, 0, sizeof *counters);
    pthread_mutex_init(&counters->mutex, NULL);
}

void xn_model_counters_destroy(xn_model_counters *counters) {
    pthread_mutex_destroy(&counters->mutex);
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void count(xn_model_duration *duration, int64_t ns) {
    duration->count++;
    duration->ns += ns > 0 ? (uint64_t)ns : 0;
}

static void count_success(xn_model_counters *counters, const xn_model_sample *sample) {
    xn_model_stats *s = &counters->stats;
    s->last_inference_ms = now_ms();
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
