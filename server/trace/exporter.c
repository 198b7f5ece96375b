/* exporter.c: see exporter.h. The queue is a ring: requests add behind what is in it, and the
 * thread reads what is in front without the mutex, which only it takes away. */
#include "exporter.h"

#include "clock.h"
#include "log.h"
#include "otlp_json.h"
#include "otlp_post.h"
#include "threads.h"
#include "xn_mem.h"

#include <stdio.h>
#include <unistd.h>

#define BATCH_DELAY_NS XN_NS_PER_S
#define POST_NS (10 * XN_NS_PER_S)
enum { MOST_TRIES = 5, MOST_RETRY_AFTER_S = 60 };

struct xn_exporter {
    xn_otlp_target target;
    xn_otlp_resource resource;
    pthread_t thread;
    atomic_int_least64_t stop_ns; /* INT64_MAX: serving; else how long what is left may take */
    bool failing;                 /* the thread's: the last try failed, and the log says so */
    pthread_mutex_t mutex;        /* guards: */
    pthread_cond_t changed;
    xn_metrics *metrics; /* NULL: it may be gone */
    bool ended;
    int first, count; /* of the ring */
    xn_span spans[XN_EXPORTER_QUEUE];
};

static bool stops(const xn_exporter *e) {
    return atomic_load(&e->stop_ns) != INT64_MAX;
}

void xn_exporter_add(xn_exporter *e, const xn_span *span) {
    pthread_mutex_lock(&e->mutex);
    const bool fits = e->count < XN_EXPORTER_QUEUE;
    if (fits)
        e->spans[(e->first + e->count++) % XN_EXPORTER_QUEUE] = *span;
    const bool wakes = fits && (e->count == 1 || e->count == XN_EXPORTER_BATCH);
    pthread_mutex_unlock(&e->mutex);
    if (wakes)
        pthread_cond_broadcast(&e->changed);
    if (!fits)
        xn_metrics_add(e->metrics, XN_COUNTER_SPANS_DROPPED, 1 + span->stage_count);
}

/* ---- the thread ---- */

/* Waits until a batch is full, or its first span has waited a second; how many spans it has. 0: the
 * queue is empty, and no more come. */
static int wait_for_batch(xn_exporter *e) {
    pthread_mutex_lock(&e->mutex);
    while (!e->count && !stops(e))
        xn_cond_wait_until(&e->changed, &e->mutex, INT64_MAX);
    const int64_t until_ns = xn_now_ns() + BATCH_DELAY_NS;
    while (e->count < XN_EXPORTER_BATCH && !stops(e) &&
           xn_cond_wait_until(&e->changed, &e->mutex, until_ns))
        ;
    const int count = e->count < XN_EXPORTER_BATCH ? e->count : XN_EXPORTER_BATCH;
    pthread_mutex_unlock(&e->mutex);
    return count;
}

static void end_batch(xn_exporter *e, int count, bool taken) {
    int64_t spans = count;
    for (int i = 0; i < count; i++)
        spans += e->spans[(e->first + i) % XN_EXPORTER_QUEUE].stage_count;
    pthread_mutex_lock(&e->mutex);
    e->first = (e->first + count) % XN_EXPORTER_QUEUE;
    e->count -= count;
    if (e->metrics)
        xn_metrics_add(e->metrics, taken ? XN_COUNTER_SPANS_SENT : XN_COUNTER_SPANS_DROPPED, spans);
    pthread_mutex_unlock(&e->mutex);
}

static void pause_for(xn_exporter *e, int64_t ns) {
    const int64_t until_ns = xn_now_ns() + ns;
    pthread_mutex_lock(&e->mutex);
    while (!stops(e) && xn_cond_wait_until(&e->changed, &e->mutex, until_ns))
        ;
    pthread_mutex_unlock(&e->mutex);
}

/* A line when it begins to fail, and one when it works again. */
static void log_change(xn_exporter *e, const xn_otlp_answer *answer, bool taken) {
    char status[32];
    snprintf(status, sizeof status, "it answers %d", answer->status);
    if (taken && e->failing)
        xn_log(XN_LOG_INFO, NULL, "spans: the collector %s takes them again", e->target.authority);
    else if (!taken && !e->failing)
        xn_log(
            XN_LOG_WARN, NULL,
            "spans: the collector %s takes none: %s; what does not fit into the queue is dropped",
            e->target.authority, answer->status ? status : answer->why);
    e->failing = !taken;
}

static bool may_try_again(int status) {
    return !status || status == 429 || status == 502 || status == 503 || status == 504;
}

static int64_t pause_ns(const xn_otlp_answer *answer, int tries) {
    int64_t seconds = INT64_C(1) << (tries - 1);
    if (answer->retry_after_s >= 0)
        seconds = answer->retry_after_s;
    return (seconds < MOST_RETRY_AFTER_S ? seconds : MOST_RETRY_AFTER_S) * XN_NS_PER_S;
}

static bool deliver(xn_exporter *e, const char *body, size_t length) {
    xn_otlp_answer answer = {.status = 0};
    for (int tries = 1;; tries++) {
        xn_otlp_post(&e->target, body, length, xn_now_ns() + POST_NS, &e->stop_ns, &answer);
        const bool taken = answer.status / 100 == 2;
        log_change(e, &answer, taken);
        if (taken || !may_try_again(answer.status) || tries == MOST_TRIES || stops(e))
            return taken;
        pause_for(e, pause_ns(&answer, tries));
    }
}

/* The spans stay where they are meanwhile. */
static bool send_batch(xn_exporter *e, int count) {
    size_t length;
    char *body = xn_otlp_json(&e->resource, e->spans, e->first, count, XN_EXPORTER_QUEUE, &length);
    const bool taken = body && deliver(e, body, length);
    xn_mem_free(body);
    return taken;
}

static void *run(void *context) {
    xn_exporter *e = context;
    bool given_up = false;
    for (int count; (count = wait_for_batch(e)) > 0;) {
        const bool taken = !given_up && send_batch(e, count);
        end_batch(e, count, taken);
        given_up = !taken && stops(e);
    }
    pthread_mutex_lock(&e->mutex);
    e->ended = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}

/* ---- its life ---- */

static void release(xn_exporter *e) {
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->mutex);
    xn_mem_free(e);
}

xn_status xn_exporter_create(const xn_otlp_target *target, xn_metrics *metrics, xn_exporter **out,
                             xn_error *error) {
    xn_exporter *e = xn_mem_zalloc(1, sizeof *e);
    if (!e)
        return xn_fail(error, XN_ERR_NO_MEMORY, "otlp-endpoint", "no memory for a queue of spans");
    e->target = *target;
    e->metrics = metrics;
    snprintf(e->resource.version, sizeof e->resource.version, "%s", XN_VERSION);
    gethostname(e->resource.host_name, sizeof e->resource.host_name - 1);
    xn_trace_make_id(e->resource.instance_id, 16);
    atomic_init(&e->stop_ns, INT64_MAX);
    xn_mutex_init_adaptive(&e->mutex);
    xn_cond_init(&e->changed);
    xn_status status = xn_thread_start(&e->thread, "xnord-spans", run, e, error);
    if (status)
        release(e);
    else
        *out = e;
    return status;
}

void xn_exporter_stop(xn_exporter *e, int64_t deadline_ns) {
    pthread_mutex_lock(&e->mutex);
    atomic_store(&e->stop_ns, deadline_ns);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
}

bool xn_exporter_ended(xn_exporter *e, int64_t until_ns) {
    pthread_mutex_lock(&e->mutex);
    while (!e->ended && xn_cond_wait_until(&e->changed, &e->mutex, until_ns))
        ;
    const bool ended = e->ended;
    pthread_mutex_unlock(&e->mutex);
    return ended;
}

void xn_exporter_free(xn_exporter *e) {
    if (!e)
        return;
    pthread_mutex_lock(&e->mutex);
    e->metrics = NULL;
    const bool ended = e->ended;
    pthread_mutex_unlock(&e->mutex);
    if (!ended)
        return;
    pthread_join(e->thread, NULL);
    release(e);
}
