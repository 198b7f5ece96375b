/* admission.c: see admission.h. */
#include "admission.h"

#include "clock.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>

struct xn_admission {
    int64_t max_depth, max_bytes;
    xn_metrics *metrics;
    pthread_mutex_t mutex; /* guards all below; a leaf */
    pthread_cond_t idle;   /* depth came to 0 */
    int64_t depth, bytes;
    xn_status closed; /* XN_OK while open */
    xn_rate rate;
};

/* ---- the rate ---- */

#define RATE_TAU_S 5.0 /* an event this old weighs 1/e */
#define RATE_MIN_WINDOW_S 0.01

static double seconds_between(int64_t from_ns, int64_t to_ns) {
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0.0;
}

static double decayed(const xn_rate *rate, int64_t now_ns) {
    return rate->weight * exp(-seconds_between(rate->at_ns, now_ns) / RATE_TAU_S);
}

void xn_rate_add(xn_rate *rate, int64_t events, int64_t now_ns) {
    if (!rate->first_ns)
        rate->first_ns = now_ns;
    rate->weight = decayed(rate, now_ns) + (double)events;
    if (now_ns > rate->at_ns)
        rate->at_ns = now_ns;
}

/* A constant rate r since first_ns has the weight r * tau * (1 - exp(-elapsed / tau)). */
double xn_rate_per_second(const xn_rate *rate, int64_t now_ns) {
    if (!rate->first_ns)
        return 0.0;
    double elapsed_s = seconds_between(rate->first_ns, now_ns);
    double window_s = RATE_TAU_S * -expm1(-elapsed_s / RATE_TAU_S);
    return decayed(rate, now_ns) / fmax(window_s, RATE_MIN_WINDOW_S);
}

int xn_rate_retry_after(double per_second, int64_t waiting) {
    enum { MAX_S = 60 };
    if (waiting < 1)
        return 1;
    double seconds = ceil((double)waiting / per_second); /* infinite at rate 0 */
    if (!(seconds < MAX_S))
        return MAX_S;
    return seconds < 1.0 ? 1 : (int)seconds;
}

/* ---- the gate ---- */

xn_status xn_admission_create(int64_t depth, int64_t bytes, xn_metrics *metrics, xn_admission **out,
                              xn_error *error) {
    xn_admission *admission = xn_mem_zalloc(1, sizeof *admission);
    if (!admission)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the admission counters");
    admission->max_depth = depth;
    admission->max_bytes = bytes;
    admission->metrics = metrics;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&admission->mutex, NULL);
    pthread_cond_init(&admission->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = admission;
    return XN_OK;
}

void xn_admission_free(xn_admission *admission) {
    if (!admission)
        return;
    pthread_cond_destroy(&admission->idle);
    pthread_mutex_destroy(&admission->mutex);
    xn_mem_free(admission);
}

/* Over max_bytes by itself: waiting would never help. */
static xn_status check_possible(const xn_admission *admission, size_t bytes, xn_error *error) {
    if (bytes <= (size_t)admission->max_bytes)
        return XN_OK;
    return xn_fail_limit(error, "queue-bytes", NULL,
                         "the request needs %zu bytes at once; --queue-bytes allows %lld for all "
                         "requests together",
                         bytes, (long long)admission->max_bytes);
}

static xn_status check_room_locked(const xn_admission *admission, size_t bytes, xn_error *error) {
    if ((int64_t)bytes <= admission->max_bytes - admission->bytes)
        return XN_OK;
    return xn_fail(error, XN_ERR_BUSY, NULL,
                   "%zu bytes more would exceed --queue-bytes %lld, of which %lld are in use; try "
                   "again later",
                   bytes, (long long)admission->max_bytes, (long long)admission->bytes);
}

static xn_status check_open_locked(const xn_admission *admission, xn_error *error) {
    if (admission->closed == XN_ERR_DEVICE_LOST)
        return xn_fail(error, XN_ERR_DEVICE_LOST, NULL,
                       "the device was lost; the service is about to restart");
    if (admission->closed != XN_OK)
        return xn_fail(error, admission->closed, NULL, "the service is shutting down");
    if (admission->depth >= admission->max_depth)
        return xn_fail(error, XN_ERR_BUSY, NULL,
                       "%lld requests are waiting or running; --queue-depth is %lld; try again "
                       "later",
                       (long long)admission->depth, (long long)admission->max_depth);
    return XN_OK;
}

static void add_locked(xn_admission *admission, int64_t requests, int64_t bytes) {
    admission->depth += requests;
    admission->bytes += bytes;
    assert(admission->depth >= 0 && admission->bytes >= 0);
    xn_metrics_gauge_set(admission->metrics, XN_GAUGE_INFLIGHT, admission->depth);
    xn_metrics_gauge_set(admission->metrics, XN_GAUGE_INFLIGHT_BYTES, admission->bytes);
}

xn_status xn_admission_enter(xn_admission *admission, size_t bytes, xn_error *error) {
    xn_status status = check_possible(admission, bytes, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&admission->mutex);
    status = check_open_locked(admission, error);
    if (status == XN_OK)
        status = check_room_locked(admission, bytes, error);
    if (status == XN_OK)
        add_locked(admission, 1, (int64_t)bytes);
    pthread_mutex_unlock(&admission->mutex);
    return status;
}

xn_status xn_admission_grow(xn_admission *admission, size_t bytes, xn_error *error) {
    xn_status status = check_possible(admission, bytes, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&admission->mutex);
    status = check_room_locked(admission, bytes, error);
    if (status == XN_OK)
        add_locked(admission, 0, (int64_t)bytes);
    pthread_mutex_unlock(&admission->mutex);
    return status;
}

void xn_admission_leave(xn_admission *admission, size_t bytes) {
    pthread_mutex_lock(&admission->mutex);
    add_locked(admission, -1, -(int64_t)bytes);
    if (admission->depth == 0)
        pthread_cond_broadcast(&admission->idle);
    pthread_mutex_unlock(&admission->mutex);
}

void xn_admission_close(xn_admission *admission, xn_status status) {
    pthread_mutex_lock(&admission->mutex);
    if (admission->closed != XN_ERR_DEVICE_LOST)
        admission->closed = status;
    pthread_mutex_unlock(&admission->mutex);
}

bool xn_admission_wait_idle(xn_admission *admission, int64_t deadline_ns) {
    struct timespec until = xn_timespec(deadline_ns);
    pthread_mutex_lock(&admission->mutex);
    int rc = 0;
    while (admission->depth > 0 && rc == 0)
        rc = pthread_cond_timedwait(&admission->idle, &admission->mutex, &until);
    bool idle = admission->depth == 0;
    pthread_mutex_unlock(&admission->mutex);
    return idle;
}

void xn_admission_finished(xn_admission *admission, int64_t jobs, int64_t now_ns) {
    pthread_mutex_lock(&admission->mutex);
    xn_rate_add(&admission->rate, jobs, now_ns);
    pthread_mutex_unlock(&admission->mutex);
}

int xn_admission_retry_after(xn_admission *admission, int64_t now_ns) {
    pthread_mutex_lock(&admission->mutex);
    double per_second = xn_rate_per_second(&admission->rate, now_ns);
    int64_t waiting = admission->depth;
    bool known = admission->rate.first_ns != 0;
    pthread_mutex_unlock(&admission->mutex);
    return known ? xn_rate_retry_after(per_second, waiting) : 1;
}
