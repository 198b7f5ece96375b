/* lock.c: see lock.h. */
#include "lock.h"

#include "clock.h"
#include "threads.h"

_Thread_local const xn_lock *xn_lock_held;

void xn_lock_init(xn_lock *lock) {
    xn_mutex_init_adaptive(&lock->mutex);
}

void xn_lock_destroy(xn_lock *lock) {
    pthread_mutex_destroy(&lock->mutex);
}

void xn_lock_wait(xn_lock *lock, pthread_cond_t *cond, int64_t until_ns) {
    const struct timespec until = xn_timespec(until_ns);
    xn_lock_assert_mine(lock);
    if (until_ns == INT64_MAX)
        pthread_cond_wait(cond, &lock->mutex);
    else
        pthread_cond_timedwait(cond, &lock->mutex, &until);
}
