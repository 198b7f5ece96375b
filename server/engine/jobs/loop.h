/* loop.h: a thread that does nothing but step. What it does is a function of a state and the time;
 * so a test or a simulator can call the same function without the thread. */
#ifndef XN_LOOP_H
#define XN_LOOP_H

#include "lock.h"
#include "xn_status.h"

/* What a step returns: one of these, or the time at which it wants to be called again. */
#define XN_STEP_AGAIN INT64_MIN     /* it did something: call it again at once */
#define XN_STEP_END (INT64_MIN + 1) /* never call it again */
#define XN_STEP_IDLE INT64_MAX      /* it has nothing to do until it is woken */

/* Called with the loop's lock held; it may drop the lock while it works. */
typedef int64_t xn_loop_step(void *state, int64_t now_ns);

typedef struct xn_loop {
    xn_lock *lock;
    pthread_cond_t *wake; /* guarded by lock: what the thread sleeps on; a step may change it */
    xn_loop_step *step;
    void *state;
    int64_t until_ns; /* guarded by lock: when the thread wakes by itself; INT64_MIN: it is awake */
    pthread_t thread;
    bool started;
} xn_loop;

/* Starts the thread; name: 15 characters at most. All but the name is borrowed. */
xn_status xn_loop_start(xn_loop *loop, const char *name, xn_lock *lock, pthread_cond_t *wake,
                        xn_loop_step *step, void *state, xn_error *error);
/* Waits for the thread's end, if it was started. Idempotent. */
void xn_loop_join(xn_loop *loop);
/* Wakes the thread if it sleeps until later than that. Lock held. */
void xn_loop_wake_by_locked(const xn_loop *loop, int64_t time_ns);

#endif
