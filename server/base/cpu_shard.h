/* cpu_shard.h: which of several copies of something a thread uses, so that threads on different
 * processors write different cache lines. */
#ifndef XN_CPU_SHARD_H
#define XN_CPU_SHARD_H

#include <sched.h>

/* The index of one of `count` copies; count is a power of two. Two threads may get the same one,
 * and a thread may get another one at the next call, so copies still need a lock or atomics. */
static inline unsigned xn_cpu_shard(unsigned count) {
    const int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (unsigned)cpu & (count - 1);
}

#endif
