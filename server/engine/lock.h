/* lock.h: the locks of the engine, and their rules.
 *
 *   engine->lock   jobs' states, queues, deadlines, pools, devices, callers' streams, the canary
 *   buffers->lock  the buffer pool: its free lists and counts
 *
 * 1. A thread holds at most one of these at a time. xn_lock_take asserts it.
 * 2. No lock is held across a device run, a canary, an allocation of pinned memory, a copy or a
 *    comparison of tensors, a callback (`done`, `released`, on_fatal) or a reclaim. What does these
 *    asserts it (xn_lock_assert_none).
 * 3. Under engine->lock only the admission's mutex may be taken, which is a leaf. The store's
 * locks, the caches' and the buffer pool's are not taken under it, nor it under them.
 * 4. A caller may hold locks of its own in submit and cancel, because `done` comes without any lock
 *    of the engine.
 * 5. A function whose name ends in _locked needs engine->lock. One that ends in _drop_lock needs it
 *    too and gives it up for a while: what the lock guards may have changed when it returns.
 * 6. A condition may be signalled with or without its lock. A wait sits in a loop that looks at
 *    what it waits for.
 * 7. Two values are atomic, because threads without the lock read them: device->up and
 *    pools->primary. Both are written with the lock.
 *
 * A thread remembers the one lock that it holds, so an assert is one comparison and no atomic
 * operation. */
#ifndef XN_ENGINE_LOCK_H
#define XN_ENGINE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct xn_lock {
    pthread_mutex_t mutex;
} xn_lock;

extern _Thread_local const xn_lock *xn_lock_held; /* by the calling thread; or NULL */

void xn_lock_init(xn_lock *lock);
void xn_lock_destroy(xn_lock *lock);

static inline void xn_lock_assert_none(void) {
    assert(!xn_lock_held);
}

static inline void xn_lock_assert_mine(const xn_lock *lock) {
    assert(xn_lock_held == lock);
    (void)lock;
}

static inline void xn_lock_take(xn_lock *lock) {
    xn_lock_assert_none();
    pthread_mutex_lock(&lock->mutex);
    xn_lock_held = lock;
}

static inline void xn_lock_drop(xn_lock *lock) {
    xn_lock_assert_mine(lock);
    xn_lock_held = 0;
    pthread_mutex_unlock(&lock->mutex);
}

/* Waits for the condition, without the lock meanwhile, at most until that time; INT64_MAX: without
 * end. It may return early. */
void xn_lock_wait(xn_lock *lock, pthread_cond_t *cond, int64_t until_ns);

#endif
