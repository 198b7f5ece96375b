/* parallel.h: units of work over the threads of the process. One pool of helper threads serves all
 * streams; a caller works through its units itself, and helpers join as they come. */
#ifndef XN_CPU_PARALLEL_H
#define XN_CPU_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

/* Whether helper threads are members of OpenMP teams (parallel.c). Not with clang's library: it
 * fails its own assertions when a thread that led a team ends and another leads one. */
#if defined(_OPENMP) && !defined(__clang__)
#define XN_CPU_OPENMP_TEAMS 1
#else
#define XN_CPU_OPENMP_TEAMS 0
#endif

#define XN_CPU_MAX_THREADS 1024
#define XN_CPU_SPIN_NS 50000 /* a thread without work looks for more for so long, then sleeps */

/* Calls task(context, unit, thread) for every unit of [0, units), by the calling thread (number 0)
 * and at most threads - 1 of the pool's helpers; returns when all are done. Any thread, but not
 * from within a task. One thread or unit: no other thread is asked. */
typedef void (*xn_cpu_task)(void *context, int64_t unit, int thread);
void xn_cpu_for(int threads, int64_t units, xn_cpu_task task, void *context);
/* Of a clock that only moves on. */
int64_t xn_cpu_now_ns(void);
/* How many threads, 1 .. most, work of about so many nanoseconds is worth, when its caller's last
 * work ended idle_ns ago. Pure. */
int xn_cpu_threads_worth(double work_ns, int64_t idle_ns, int most);

/* The pool of helpers lives while a device is open. start adds what is missing to so many of them,
 * pinned to a processor each or not; with fewer, or none, regions are done by fewer threads. */
void xn_cpu_threads_open(void);
void xn_cpu_threads_close(void);
void xn_cpu_threads_start(int helpers, bool pinned);

#endif
