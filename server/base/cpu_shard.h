/* cpu_shard.h: which of several copies of something a thread takes, so that threads on other
 * processors do not write the same cache lines. */
#ifndef XN_CPU_SHARD_H
#define XN_CPU_SHARD_H

#include <sched.h>

/* Of so many copies, a power of two: always one that is there. Threads may meet in it, and a thread
 * may come to another one at any time. */
static inline unsigned xn_cpu_shard(unsigned count) {
    const int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (unsigned)cpu & (count - 1);
}

#endif
