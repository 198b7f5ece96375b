/* model_stats.c: see model_stats.h. A request counts in one shard, by the processor that counts it;
 * a snapshot is the sum of all. */
#include "model_stats.h"

#include "clock.h"
#include "cpu_shard.h"
#include "xn_mem.h"

#include <pthread.h>
#include <stdatomic.h>

#define SHARDS 16

typedef struct shard {
    _Alignas(XN_MEM_ALIGNMENT) pthread_mutex_t mutex; /* guards all below; a leaf */
    xn_model_stats stats;
    double executions; /* each request counts its share of the launch */
} shard;

struct xn_model_counters {
    atomic_int references;
    shard shards[SHARDS];
};

xn_model_counters *xn_model_counters_create(void) {
    xn_model_counters *counters = xn_mem_zalloc(1, sizeof *counters);
    if (!counters)
        return NULL;
    atomic_init(&counters->references, 1);
    for (int i = 0; i < SHARDS; i++)
        pthread_mutex_init(&counters->shards[i].mutex, NULL);
    return counters;
}

void xn_model_counters_retain(xn_model_counters *counters) {
    atomic_fetch_add_explicit(&counters->references, 1, memory_order_relaxed);
}

void xn_model_counters_release(xn_model_counters *counters) {
    if (!counters || atomic_fetch_sub_explicit(&counters->references, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < SHARDS; i++)
        pthread_mutex_destroy(&counters->shards[i].mutex);
    xn_mem_free(counters);
}

static void count(xn_model_duration *duration, int64_t ns) {
    duration->count++;
    duration->ns += ns > 0 ? (uint64_t)ns : 0;
}

static void count_success(shard *own, const xn_model_sample *sample) {
    xn_model_stats *s = &own->stats;
    s->last_inference_ms = xn_wall_ns() / XN_NS_PER_MS;
    count(&s->success, sample->total_ns);
    count(&s->queue, sample->queue_ns);
    if (sample->cache_asked)
        count(sample->cache_hit ? &s->cache_hit : &s->cache_miss, sample->cache_ns);
    if (sample->cache_hit)
        return;
    s->inference_count += (uint64_t)sample->images;
    own->executions += 1.0 / (double)(sample->batch_requests > 0 ? sample->batch_requests : 1);
    count(&s->compute_input, sample->input_ns);
    count(&s->compute_infer, sample->infer_ns);
    count(&s->compute_output, sample->output_ns);
}

void xn_model_counters_add(xn_model_counters *counters, const xn_model_sample *sample) {
    shard *own = &counters->shards[xn_cpu_shard(SHARDS)];
    pthread_mutex_lock(&own->mutex);
    if (sample->success)
        count_success(own, sample);
    else
        count(&own->stats.fail, sample->total_ns);
    pthread_mutex_unlock(&own->mutex);
}

static void add_duration(xn_model_duration *to, const xn_model_duration *more) {
    to->count += more->count;
    to->ns += more->ns;
}

static void add_stats(xn_model_stats *to, const xn_model_stats *more) {
    if (more->last_inference_ms > to->last_inference_ms)
        to->last_inference_ms = more->last_inference_ms;
    to->inference_count += more->inference_count;
    add_duration(&to->success, &more->success);
    add_duration(&to->fail, &more->fail);
    add_duration(&to->queue, &more->queue);
    add_duration(&to->compute_input, &more->compute_input);
    add_duration(&to->compute_infer, &more->compute_infer);
    add_duration(&to->compute_output, &more->compute_output);
    add_duration(&to->cache_hit, &more->cache_hit);
    add_duration(&to->cache_miss, &more->cache_miss);
}

void xn_model_counters_read(xn_model_counters *counters, xn_model_stats *out) {
    double executions = 0;
    *out = (xn_model_stats){0};
    for (int i = 0; i < SHARDS; i++) {
        shard *s = &counters->shards[i];
        pthread_mutex_lock(&s->mutex);
        add_stats(out, &s->stats);
        executions += s->executions;
        pthread_mutex_unlock(&s->mutex);
    }
    out->execution_count = (uint64_t)(executions + 0.5);
}
