/* threads.h: how the daemon starts threads and waits with a deadline. */
#ifndef XN_THREADS_H
#define XN_THREADS_H

#include "xn_status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A thread of that name (15 characters at most) with all signals blocked: they are for the main
 * thread. XN_ERR_NO_MEMORY where the system gives none. */
xn_status xn_thread_start(pthread_t *thread, const char *name, void *(*body)(void *),
                          void *argument, xn_error *error);
/* Adaptive: a thread that finds the mutex locked spins briefly before it blocks. For a mutex that
 * every request locks for a fraction of a microsecond: blocking would cost ten times as much. */
void xn_mutex_init_adaptive(pthread_mutex_t *mutex);
/* A condition variable whose timed waits use xn_now_ns's clock. */
void xn_cond_init(pthread_cond_t *cond);
/* Waits for the condition, at most until that time; INT64_MAX: without end. False: the time is
 * over.
 */
bool xn_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_ns);

#endif
