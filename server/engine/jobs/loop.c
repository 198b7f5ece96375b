/* loop.c: see loop.h. */
#include "loop.h"

#include "clock.h"
#include "threads.h"

static void *run(void *argument) {
    xn_loop *loop = argument;
    int64_t next_ns;
    xn_lock_take(loop->lock);
    while ((next_ns = loop->step(loop->state, xn_now_ns())) != XN_STEP_END) {
        if (next_ns == XN_STEP_AGAIN)
            continue;
        loop->until_ns = next_ns;
        xn_lock_wait(loop->lock, loop->wake, next_ns);
        loop->until_ns = INT64_MIN;
    }
    xn_lock_drop(loop->lock);
    return NULL;
}

xn_status xn_loop_start(xn_loop *loop, const char *name, xn_lock *lock, pthread_cond_t *wake,
                        xn_loop_step *step, void *state, xn_error *error) {
    *loop =
        (xn_loop){.lock = lock, .wake = wake, .step = step, .state = state, .until_ns = INT64_MIN};
    const xn_status status = xn_thread_start(&loop->thread, name, run, loop, error);
    loop->started = status == XN_OK;
    return status;
}

void xn_loop_join(xn_loop *loop) {
    if (loop->started)
        pthread_join(loop->thread, NULL);
    loop->started = false;
}

void xn_loop_wake_by_locked(const xn_loop *loop, int64_t time_ns) {
    if (time_ns < loop->until_ns)
        pthread_cond_signal(loop->wake);
}
