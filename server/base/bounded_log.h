/* bounded_log.h: a rate limit for log lines that clients cause: `most` lines of one kind a second.
 * The rest is counted, and one line reports the count after that second. */
#ifndef XN_BOUNDED_LOG_H
#define XN_BOUNDED_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct xn_bounded_log {
    const char *what;     /* names the kind in the line that reports the count: "refused keys" */
    int64_t most;         /* lines a second */
    pthread_mutex_t lock; /* guards what follows */
    int64_t since_ns, written, kept_back;
} xn_bounded_log;

#define XN_BOUNDED_LOG(what, most)                                                                 \
    { what, most, PTHREAD_MUTEX_INITIALIZER, 0, 0, 0 }

/* Whether a line may be written now; otherwise it is counted. */
bool xn_bounded_log_may(xn_bounded_log *log, int64_t now_ns);
/* Logs the count, if there is one and its second is over. Called periodically. */
void xn_bounded_log_tick(xn_bounded_log *log, int64_t now_ns);

#endif
