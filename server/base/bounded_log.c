/* bounded_log.c: see bounded_log.h. */
#include "bounded_log.h"

#include "clock.h"
#include "log.h"

/* A second that is over: its count, and a new one begins. */
static int64_t turn_locked(xn_bounded_log *log, int64_t now_ns) {
    int64_t kept_back = log->kept_back;
    if (log->since_ns && now_ns - log->since_ns < XN_NS_PER_S)
        return 0;
    log->since_ns = now_ns;
    log->written = log->kept_back = 0;
    return kept_back;
}

static void report(const xn_bounded_log *log, int64_t kept_back) {
    if (kept_back)
        xn_log(XN_LOG_INFO, NULL, "%lld more %s that second, not written here",
               (long long)kept_back, log->what);
}

bool xn_bounded_log_may(xn_bounded_log *log, int64_t now_ns) {
    pthread_mutex_lock(&log->lock);
    int64_t kept_back = turn_locked(log, now_ns);
    bool may = log->written < log->most;
    log->written += may;
    log->kept_back += !may;
    pthread_mutex_unlock(&log->lock);
    report(log, kept_back);
    return may;
}

void xn_bounded_log_tick(xn_bounded_log *log, int64_t now_ns) {
    pthread_mutex_lock(&log->lock);
    int64_t kept_back = log->kept_back ? turn_locked(log, now_ns) : 0;
    pthread_mutex_unlock(&log->lock);
    report(log, kept_back);
}
