/* model_stats.h: what inference requests count of a model, as the statistics of the Open Inference
 * Protocol have it: in images and nanoseconds. */
#ifndef XN_MODEL_STATS_H
#define XN_MODEL_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* One request. */
typedef struct xn_model_sample {
    bool success; /* else total_ns alone counts */
    int64_t images, total_ns, queue_ns, input_ns, infer_ns, output_ns;
    int64_t batch_requests; /* of its launch */
    /* Of the cache of answers; after a hit there are no stages. */
    bool cache_asked, cache_hit;
    int64_t cache_ns;
} xn_model_sample;

typedef struct xn_model_duration {
    uint64_t count, ns;
} xn_model_duration;

typedef struct xn_model_stats {
    int64_t last_inference_ms; /* since the epoch; 0: none yet */
    uint64_t inference_count;  /* images that were computed */
    uint64_t execution_count;  /* launches */
    xn_model_duration success, fail, queue, compute_input, compute_infer, compute_output;
    xn_model_duration cache_hit, cache_miss;
} xn_model_stats;

/* Reference-counted. A request is counted in one step, so a snapshot is consistent. Thread-safe. */
typedef struct xn_model_counters xn_model_counters;

xn_model_counters *xn_model_counters_create(void); /* NULL without memory */
void xn_model_counters_retain(xn_model_counters *counters);
void xn_model_counters_release(xn_model_counters *counters); /* NULL-safe */
void xn_model_counters_add(xn_model_counters *counters, const xn_model_sample *sample);
void xn_model_counters_read(xn_model_counters *counters, xn_model_stats *out);

#endif
