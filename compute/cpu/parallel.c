/* parallel.c: units of work over threads.
 *
 * A caller works through its units itself; helper threads join if they can and take units too.
 * Nobody waits for a helper that has not joined: when the units are gone the region is closed, and
 * only those who are still in one are waited for. That is what a barrier cannot do, and why this is
 * not an OpenMP loop: its region ends when every thread of the team has come, and a thread that
 * gets no core, on a machine busy with other processes, comes a scheduler's time slice or four
 * later (measured: compute/cpu/README.md).
 *
 * There is one pool of helpers in a process, whatever the number of callers, so that workers that
 * run side by side share the cores instead of each having a team. Who waits, helper or caller,
 * spins for a short while, because the next region mostly follows at once, and then sleeps.
 *
 * Helpers wake each other, two each, so that with many of them no one pays for all the wake-ups. */
#include "cpu.h"
#include "xn_cpus.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { SPIN_NS = 50000, WAKES = 2, PAUSES = 32 };

/* One call of xn_cpu_for; lives on its caller's stack, from open to the end of its last helper. */
typedef struct region {
    xn_cpu_task task;
    void *context;
    int64_t units;
    atomic_llong next; /* the first unit that nobody has taken */
    atomic_int inside; /* helpers that joined and have not left; changed under the mutex, and the
                        * last that a helper touches of a region */
    /* under the mutex: */
    int wanted, joined; /* helpers: at most, and so far */
    struct region *following;
} region;

static struct {
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t work;   /* a region has opened, or stopping */
    pthread_cond_t left;   /* a region's last helper has left it */
    region *open;          /* regions that helpers may still join, oldest first */
    atomic_uint opened;    /* how many were, ever: what spinning helpers watch */
    int spinning, asleep;  /* helpers without a region */
    int leaving;           /* callers asleep until their helpers have left */
    int users;             /* devices open */
    int count;             /* helpers running */
    bool stopping;
    pthread_t threads[XN_CPU_MAX_THREADS];
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .left = PTHREAD_COND_INITIALIZER};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void relax(void) {
    for (int i = 0; i < PAUSES; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

static void work(region *r, int thread) {
    for (;;) {
        int64_t unit = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
        if (unit >= r->units)
            return;
        r->task(r->context, unit, thread);
    }
}

/* ---- helpers ---- */

static void close_locked(const region *r) {
    for (region **at = &pool.open; *at; at = &(*at)->following)
        if (*at == r) {
            *at = r->following;
            return;
        }
}

/* How many sleepers to wake for the helpers that the open regions want and no spinner will be. */
static int wakes_locked(void) {
    int wanted = 0;
    for (const region *r = pool.open; r && wanted < XN_CPU_MAX_THREADS; r = r->following)
        wanted += r->wanted - r->joined;
    wanted -= pool.spinning;
    wanted = wanted < pool.asleep ? wanted : pool.asleep;
    return wanted < WAKES ? wanted : WAKES;
}

static void wake(int count) {
    for (int i = 0; i < count; i++)
        pthread_cond_signal(&pool.work);
}

/* Returns with the mutex held again when there may be a region to join. */
static void idle_locked(void) {
    unsigned seen = atomic_load(&pool.opened);
    pool.spinning++;
    pthread_mutex_unlock(&pool.mutex);
    int64_t end = now_ns() + SPIN_NS;
    while (atomic_load_explicit(&pool.opened, memory_order_relaxed) == seen && now_ns() < end)
        relax();
    pthread_mutex_lock(&pool.mutex);
    pool.spinning--;
    if (pool.open || pool.stopping)
        return;
    pool.asleep++;
    pthread_cond_wait(&pool.work, &pool.mutex);
    pool.asleep--;
}

static void *helper_main(void *argument) {
    (void)argument;
    pthread_mutex_lock(&pool.mutex);
    while (!pool.stopping) {
        region *r = pool.open;
        if (!r) {
            idle_locked();
            continue;
        }
        int thread = ++r->joined;
        if (r->joined == r->wanted)
            close_locked(r);
        atomic_fetch_add(&r->inside, 1);
        int wakes = wakes_locked();
        pthread_mutex_unlock(&pool.mutex);
        wake(wakes);
        work(r, thread);
        pthread_mutex_lock(&pool.mutex);
        if (atomic_fetch_sub(&r->inside, 1) == 1 && pool.leaving)
            pthread_cond_broadcast(&pool.left);
    }
    pthread_mutex_unlock(&pool.mutex);
    return NULL;
}

/* ---- callers ---- */

static void wait_for_helpers(region *r) {
    int64_t end = now_ns() + SPIN_NS;
    while (atomic_load(&r->inside)) {
        if (now_ns() < end) {
            relax();
            continue;
        }
        pthread_mutex_lock(&pool.mutex);
        pool.leaving++;
        while (atomic_load(&r->inside))
            pthread_cond_wait(&pool.left, &pool.mutex);
        pool.leaving--;
        pthread_mutex_unlock(&pool.mutex);
    }
}

void xn_cpu_for(int threads, int64_t units, xn_cpu_task task, void *context) {
    if (threads > units)
        threads = (int)units;
    if (threads <= 1) {
        for (int64_t unit = 0; unit < units; unit++)
            task(context, unit, 0);
        return;
    }
    region r = {.task = task, .context = context, .units = units, .wanted = threads - 1};
    pthread_mutex_lock(&pool.mutex);
    region **last = &pool.open;
    while (*last)
        last = &(*last)->following;
    *last = &r;
    atomic_fetch_add(&pool.opened, 1);
    int wakes = wakes_locked();
    pthread_mutex_unlock(&pool.mutex);
    wake(wakes);
    work(&r, 0);
    pthread_mutex_lock(&pool.mutex);
    close_locked(&r);
    pthread_mutex_unlock(&pool.mutex);
    wait_for_helpers(&r);
}

int xn_cpu_threads_worth(double work_ns, int most) {
    /* Waking a thread costs several microseconds and takes some tens until it runs. */
    const double thread_ns = 40e3, alone_ns = 100e3;
    double worth = work_ns < alone_ns ? 1 : work_ns / thread_ns;
    return worth < most ? (int)worth : most;
}

/* ---- life ---- */

/* Helper i stays on the processor after the i-th that the process may use, counted around: the
 * callers' own threads float, and find the one that is left. */
static void pin(pthread_t thread, int index) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || !CPU_COUNT(&all))
        return;
    int skip = (index + 1) % CPU_COUNT(&all), cpu = 0;
    for (; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && skip-- == 0)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

void xn_cpu_threads_start(int helpers, bool pinned) {
    sigset_t all, before;
    sigfillset(&all); /* signals are for the application's own threads */
    if (helpers > XN_CPU_MAX_THREADS)
        helpers = XN_CPU_MAX_THREADS;
    pthread_mutex_lock(&pool.mutex);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.count < helpers) {
        pthread_t *thread = &pool.threads[pool.count];
        if (pthread_create(thread, NULL, helper_main, NULL))
            break; /* the callers do without */
        pthread_setname_np(*thread, "xn-cpu");
        if (pinned)
            pin(*thread, pool.count);
        pool.count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&pool.mutex);
}

void xn_cpu_threads_open(void) {
    pthread_mutex_lock(&pool.mutex);
    pool.users++;
    pthread_mutex_unlock(&pool.mutex);
}

void xn_cpu_threads_close(void) {
    pthread_mutex_lock(&pool.mutex);
    int count = --pool.users ? 0 : pool.count;
    pool.stopping = count > 0;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
    for (int i = 0; i < count; i++)
        pthread_join(pool.threads[i], NULL);
    pthread_mutex_lock(&pool.mutex);
    if (count > 0) {
        pool.count = 0;
        pool.stopping = false;
    }
    pthread_mutex_unlock(&pool.mutex);
}
