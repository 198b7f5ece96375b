/* threads.h: how the daemon starts threads and waits with a deadline. */
#ifndef XN_THREADS_H
#define XN_THREADS_H

#include "xn_status.h"

#include <pthread.h>

/* A thread of that name (15 characters at most) with all signals blocked: they are for the main
 * thread. XN_ERR_NO_MEMORY where the system gives none. */
xn_status xn_thread_start(pthread_t *thread, const char *name, void *(*body)(void *),
                          void *argument, xn_error *error);
/* For a mutex that every request takes, each time for a fraction of a microsecond: who finds it
 * taken looks again for a moment before he sleeps, which would cost ten times as much. */
void xn_mutex_init_adaptive(pthread_mutex_t *mutex);
/* A condition whose timed waits go by the clock of clock.h. */
void xn_cond_init(pthread_cond_t *cond);

#endif
