/* clock.h: the clocks of the daemon: a monotonic one for all that lasts, and the time of day. */
#ifndef XN_CLOCK_H
#define XN_CLOCK_H

#include <stdint.h>
#include <time.h>

#define XN_NS_PER_US INT64_C(1000)
#define XN_NS_PER_MS INT64_C(1000000)
#define XN_NS_PER_S INT64_C(1000000000)

static inline int64_t xn_now_ns(void) { /* CLOCK_MONOTONIC */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * XN_NS_PER_S + t.tv_nsec;
}

/* The same, up to a few milliseconds old, at a fraction of the cost. For deadlines of tenths of a
 * second and more. */
static inline int64_t xn_now_coarse_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * XN_NS_PER_S + t.tv_nsec;
}

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
