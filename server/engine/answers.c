/* answers.c: see answers.h. */
#include "answers.h"

#include "clock.h"
#include "lock.h"

#include <string.h>

#define SLOW_BYTES ((size_t)1 << 20) /* hashed, compared and copied in some 100 us */

/* One answer takes at most the limit over this. */
#define ANSWERS_MIN 8

/* What an output is a function of besides the convolution and the input. All of it is set, so it
 * can be hashed. Each API key is a tenant of its own, and tenants share no answers. Backends round
 * differently, so each pool has answers of its own. */
typedef struct key_head {
    uint64_t asset, tenant, pool, network;
} key_head;

/* What is stored of an output besides its bytes. */
typedef struct origin {
    int64_t device, precision;
} origin;

xn_status xn_answers_create(xn_services *services, int64_t limit_bytes, xn_error *error) {
    const xn_cache_options options = {.limit_bytes = (size_t)limit_bytes,
                                      .entry_bytes_max = (size_t)limit_bytes / ANSWERS_MIN,
                                      .metrics = services->metrics,
                                      .bytes = XN_GAUGE_RESPONSE_CACHE_BYTES,
                                      .counts_entries = true,
                                      .entries = XN_GAUGE_RESPONSE_CACHE_ENTRIES,
                                      .evictions = XN_COUNTER_RESPONSE_CACHE_EVICTIONS};
    if (limit_bytes == 0)
        return XN_OK;
    xn_status status = xn_cache_create(&options, &services->answers, error);
    if (status == XN_OK)
        xn_store_set_responses(services->store, services->answers);
    return status;
}

bool xn_answers_are_slow(const xn_services *services, size_t bytes) {
    return services->answers && bytes > SLOW_BYTES;
}

/* The asset is known by its address: its answers go when it does. *head must live as long as what
 * is returned. */
static xn_content key_of(const xn_job *job, key_head *head) {
    const xn_problem *problem = &job->problem;
    *head = (key_head){(uint64_t)(uintptr_t)job->asset, job->tenant, (uint64_t)job->pool,
                       problem->serial};
    return (xn_content){{{head, sizeof *head},
                         {&problem->conv, sizeof problem->conv},
                         {job->input, (size_t)job->images * xn_problem_input_bytes(problem)}},
                        3};
}

static size_t output_bytes(const xn_job *job) {
    return (size_t)job->images * xn_problem_output_bytes(&job->problem);
}

static void finish(const xn_services *services, xn_job *job, const origin *from, int64_t now_ns) {
    job->status = XN_OK;
    job->device = (int)from->device;
    job->precision = (xn_precision)from->precision;
    job->batch_requests = job->batch_images = 0;
    job->times = (xn_run_times){0};
    job->submitted_ns = job->started_ns = job->finished_ns = now_ns;
    xn_asset_count_requests(job->asset, 1);
    xn_admission_finished(services->admission, 1, now_ns);
}

static xn_lookup look_up(const xn_services *services, xn_job *job, origin *from) {
    key_head head;
    const xn_content key = key_of(job, &head);
    const size_t bytes = output_bytes(job);
    if (!xn_cache_fits(services->answers, &key, sizeof *from + bytes)) {
        xn_metrics_add(services->metrics, XN_COUNTER_RESPONSE_CACHE_BYPASSED, 1);
        return XN_LOOKUP_BYPASS;
    }
    job->lookup_pool = job->pool;
    xn_cache_entry *entry = xn_cache_find(services->answers, &key, &job->ticket);
    xn_metrics_add(services->metrics,
                   entry ? XN_COUNTER_RESPONSE_CACHE_HITS : XN_COUNTER_RESPONSE_CACHE_MISSES, 1);
    if (!entry)
        return XN_LOOKUP_MISS;
    const origin *value = xn_cache_value(entry);
    *from = *value;
    memcpy(job->output, value + 1, bytes);
    xn_cache_release(services->answers, entry);
    return XN_LOOKUP_HIT;
}

bool xn_answers_lookup(const xn_services *services, xn_job *job) {
    origin from = {0};
    if (!services->answers)
        return false;
    xn_lock_assert_none();
    const int64_t began_ns = xn_now_ns();
    job->lookup = look_up(services, job, &from);
    const int64_t now_ns = xn_now_ns();
    job->cache_ns = now_ns - began_ns;
    if (job->lookup != XN_LOOKUP_HIT)
        return false;
    finish(services, job, &from, now_ns);
    return true;
}

void xn_answers_insert(const xn_services *services, xn_job *job) {
    if (job->lookup != XN_LOOKUP_MISS || job->status != XN_OK || job->pool != job->lookup_pool)
        return;
    key_head head;
    xn_lock_assert_none();
    const int64_t began_ns = xn_now_ns();
    const xn_content key = key_of(job, &head);
    const origin from = {job->device, job->precision};
    const xn_content value = {{{&from, sizeof from}, {job->output, output_bytes(job)}}, 2};
    if (!xn_cache_insert(services->answers, &key, &job->ticket, &value, 0,
                         xn_asset_responses(job->asset)))
        return;
    xn_metrics_add(services->metrics, XN_COUNTER_RESPONSE_CACHE_INSERTIONS, 1);
    job->lookup = XN_LOOKUP_STORED;
    job->cache_ns += xn_now_ns() - began_ns;
}
