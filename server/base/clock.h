/* clock.h: the clocks of the daemon: a monotonic one for all that lasts, and the time of day. */
#ifndef XN_CLOCK_H
#define XN_CLOCK_H

#include <stdint.h>
#include <time.h>

#define XN_NS_PER_US INT64_C(1000)
#define XN_NS_PER_MS INT64_C(1000000)
#define XN_NS_PER_S INT64_C(1000000000)

/* CLOCK_MONOTONIC, or what xn_clock_set gave. */
int64_t xn_now_ns(void);
/* The same some milliseconds ago, for a fraction of what it costs: for what is judged in parts of a
 * second. */
int64_t xn_now_coarse_ns(void);

/* For tests and simulators: both of the above are `now` from here on; NULL: the system's again.
 * While no other thread runs. */
void xn_clock_set(int64_t (*now)(void));

static inline int64_t xn_wall_ns(void) { /* the time of day, since 1970 in UTC */
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * XN_NS_PER_S + t.tv_nsec;
}

static inline struct timespec xn_timespec(int64_t ns) { /* for timed waits on that clock */
    struct timespec t = {ns > 0 ? ns / XN_NS_PER_S : 0, ns > 0 ? ns % XN_NS_PER_S : 0};
    return t;
}

#endif
