/* threads.c: see threads.h. */
#include "threads.h"

#include "clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

xn_status xn_thread_start(pthread_t *thread, const char *name, void *(*body)(void *),
                          void *argument, xn_error *error) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* a fault is taken where it happens (mapping.h) */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "cannot start thread %s: %s", name,
                       strerror(failed));
    pthread_setname_np(*thread, name);
    return XN_OK;
}

void xn_mutex_init_adaptive(pthread_mutex_t *mutex) {
    pthread_mutexattr_t adaptive;
    pthread_mutexattr_init(&adaptive);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(mutex, &adaptive);
    pthread_mutexattr_destroy(&adaptive);
}

void xn_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool xn_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_ns) {
    const struct timespec until = xn_timespec(until_ns);
    if (until_ns == INT64_MAX)
        return !pthread_cond_wait(cond, mutex);
    return pthread_cond_timedwait(cond, mutex, &until) != ETIMEDOUT;
}
