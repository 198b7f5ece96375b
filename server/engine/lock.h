/* lock.h: the locks of the engine, and their rules.
 *
 *   lock              owner                   guards
 *   engine->lock      engine                  the states of jobs, queues, deadlines, pools,
 * devices, caller-runs streams, canaries, readiness buffers->lock     buffer pool             its
 * free lists and counts shard->lock       one buffer shard        its stacks
 *
 * 1. A thread holds at most one of these at a time. xn_lock_take asserts it.
 * 2. No lock is held across a device run, a canary, an allocation of pinned memory, a copy or a
 *    comparison of tensors, a callback (`done`, `released`, on_fatal) or a reclaim. The functions
 *    that do these begin with xn_lock_assert_none.
 * 3. Under engine->lock two others may be taken, which are leaves: the admission's and, in log
 *    lines, none. The store's locks are never taken under engine->lock, nor it under them. The
 *    weights cache, the answer cache and the buffer pool are not entered with engine->lock held.
 * 4. A caller may hold locks of its own in submit and cancel, because `done` comes without any lock
 *    of the engine.
 * 5. A function that ends in _locked needs the lock of its owner, and asserts it where it is an
 *    entry of the owner's header. One that ends in _drop_lock needs it too, and gives it up for a
 *    while: what it guards may have changed when the function returns.
 * 6. Signals to a condition may be sent with or without its lock; a wait sits in a loop that looks
 *    at what it waits for. Atomics are for what a reader may see late: device->up, pools->primary.
 *
 * The asserts read one variable of the calling thread; they cost no atomic operation. */
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
