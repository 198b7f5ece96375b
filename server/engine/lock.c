/* lock.c: see lock.h. */
#include "lock.h"

#include "threads.h"

_Thread_local const xn_lock *xn_lock_held;

void xn_lock_init(xn_lock *lock) {
    xn_mutex_init_adaptive(&lock->mutex);
}

void xn_lock_destroy(xn_lock *lock) {
    pthread_mutex_destroy(&lock->mutex);
}

void xn_lock_wait(xn_lock *lock, pthread_cond_t *cond, int64_t until_ns) {
    xn_lock_assert_mine(lock);
    (void)xn_cond_wait_until(cond, &lock->mutex, until_ns);
}
