/* parallel.c: units of work over OpenMP's threads.
 *
 * A caller works through its units itself; helper threads join if they can and take units too.
 * Nobody waits for a helper that has not joined: when the units are gone the region is closed, and
 * only those who are still in one are waited for. That is what a barrier cannot do, and why units
 * are not an OpenMP loop: its region ends when every thread of the team has come, and a thread that
 * gets no core, on a machine busy with other processes, comes a scheduler's time slice or four
 * later (measured: compute/cpu/README.md).
 *
 * So the helpers are an OpenMP team that is held open: a thread of ours, the leader, opens one
 * parallel region, whose members, itself among them, wait for work of ours until the pool ends.
 * There is one pool in a process, whatever the number of callers, so that workers that run side by
 * side share the cores instead of each having a team; it grows by further teams. Without OpenMP a
 * team is its leader. Who waits, helper or caller, spins for a short while, because the next region
 * mostly follows at once, and then sleeps.
 *
 * Neighbouring units go to one thread as far as that goes: what it wrote in one region, such as
 * packed rows, it then reads in the next, and repeated runs find their outputs in its own cache.
 * So units are shared out in ranges, and a thread whose range is done takes from the others'.
 *
 * Helpers wake each other, two each, so that with many of them no one pays for all the wake-ups. */
#include "cpu.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { SPIN_NS = 50000, WAKES = 2, PAUSES = 32, MOST_RANGES = 8, LEAST_RANGE = 4 };
#ifdef _OPENMP
enum { MOST_MEMBERS = XN_CPU_MAX_THREADS };
#else
enum { MOST_MEMBERS = 1 };
#endif

/* Units that one thread begins with; others take from it when theirs are gone. */
typedef struct range {
    _Alignas(XN_CPU_LINE) atomic_llong next; /* the first unit that nobody has taken */
    int64_t end;
} range;

/* One call of xn_cpu_for; lives on its caller's stack, from open to the end of its last helper. */
typedef struct region {
    xn_cpu_task task;
    void *context;
    range ranges[MOST_RANGES];
    int range_count;
    atomic_int inside; /* helpers that joined and have not left; changed under the mutex, and the
                        * last that a helper touches of a region */
    /* under the mutex: */
    int wanted, joined; /* helpers: at most, and so far */
    int processor;      /* the caller's, when it opened; -1: unknown */
    struct region *following;
} region;

/* Lives on its own stack. */
typedef struct helper {
    pthread_t thread;
    cpu_set_t all; /* the processors it was given */
    bool may_move;
    int processor; /* where it fell asleep */
    struct helper *following;
} helper;

typedef struct team {
    pthread_t leader;
    int first, members; /* helpers first .. first + members - 1 */
    bool pinned;
    atomic_int numbered; /* members that know their number */
} team;

static struct {
    pthread_mutex_t life; /* guards these; held while threads begin and end; taken before mutex */
    int users;            /* devices open */
    int helpers;          /* members of all teams */
    int team_count;
    team teams[XN_CPU_MAX_THREADS];

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t work;   /* a region has opened, or stopping */
    pthread_cond_t left;   /* a region's last helper has left it */
    region *open;          /* regions that helpers may still join, oldest first */
    atomic_uint opened;    /* how many were, ever: what spinning helpers watch */
    int spinning, asleep;  /* helpers without a region */
    helper *sleepers;
    int leaving; /* callers asleep until their helpers have left */
    bool stopping;
} pool = {.life = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .left = PTHREAD_COND_INITIALIZER};

int64_t xn_cpu_now_ns(void) {
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
    for (int i = 0; i < r->range_count; i++) {
        range *from = &r->ranges[(thread + i) % r->range_count];
        /* looked at first: who only looks leaves the line with the others */
        while (atomic_load_explicit(&from->next, memory_order_relaxed) < from->end) {
            int64_t unit = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
            if (unit >= from->end)
                break;
            r->task(r->context, unit, thread);
        }
    }
}

/* ---- helpers ---- */

/* A helper on its caller's processor only takes time from it, and while others idle the system may
 * leave it there for milliseconds. So it moves and stays off that one, until a caller is where it
 * is again: by itself when it finds so, and by the caller, before it is woken, when it slept there.
 */
static void keep_off(helper *h, int processor) {
    cpu_set_t others = h->all;
    CPU_CLR(processor, &others);
    h->may_move =
        CPU_COUNT(&others) > 0 && !pthread_setaffinity_np(h->thread, sizeof others, &others);
}

static bool is_in_the_way(const helper *h, int there, int processor) {
    return h->may_move && processor >= 0 && there == processor;
}

static void clear_processor_locked(int processor) {
    for (helper *h = pool.sleepers; h; h = h->following)
        if (is_in_the_way(h, h->processor, processor)) {
            keep_off(h, processor);
            h->processor = -1;
        }
}

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
static void idle_locked(helper *h) {
    unsigned seen = atomic_load(&pool.opened);
    pool.spinning++;
    pthread_mutex_unlock(&pool.mutex);
    int64_t end = xn_cpu_now_ns() + SPIN_NS;
    while (atomic_load_explicit(&pool.opened, memory_order_relaxed) == seen &&
           xn_cpu_now_ns() < end)
        relax();
    pthread_mutex_lock(&pool.mutex);
    pool.spinning--;
    if (pool.open || pool.stopping)
        return;
    h->processor = sched_getcpu();
    h->following = pool.sleepers;
    pool.sleepers = h;
    pool.asleep++;
    pthread_cond_wait(&pool.work, &pool.mutex);
    pool.asleep--;
    helper **at = &pool.sleepers;
    while (*at != h)
        at = &(*at)->following;
    *at = h->following;
}

static void help(helper *h) {
    pthread_mutex_lock(&pool.mutex);
    while (!pool.stopping) {
        region *r = pool.open;
        if (!r) {
            idle_locked(h);
            continue;
        }
        int processor = r->processor;
        if (is_in_the_way(h, sched_getcpu(), processor)) {
            pthread_mutex_unlock(&pool.mutex);
            keep_off(h, processor);
            pthread_mutex_lock(&pool.mutex);
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
}

/* ---- callers ---- */

static void wait_for_helpers(region *r) {
    int64_t end = xn_cpu_now_ns() + SPIN_NS;
    while (atomic_load(&r->inside)) {
        if (xn_cpu_now_ns() < end) {
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

/* Units are of different size, so where a range would be of fewer than a few of them, who is done
 * takes the next one: 5 panels of 14x14 took a sixth longer in two ranges. Ranges were measured
 * with 2 threads; with 16 in 8 ranges all of bench-conv took a fifth longer than without them on
 * another machine, so more threads than MOST_RANGES have one. */
static void share_out(region *r, int threads, int64_t units) {
    int64_t first = 0, most = units / LEAST_RANGE;
    int ranges = threads > MOST_RANGES ? 1 : threads;
    if (ranges > most)
        ranges = most > 1 ? (int)most : 1;
    for (int i = 0; i < ranges; i++) {
        int64_t end = first + (units - first) / (ranges - i);
        atomic_init(&r->ranges[i].next, first);
        r->ranges[i].end = end;
        first = end;
    }
    r->range_count = ranges;
}

void xn_cpu_for(int threads, int64_t units, xn_cpu_task task, void *context) {
    if (threads > units)
        threads = (int)units;
    if (threads <= 1) {
        for (int64_t unit = 0; unit < units; unit++)
            task(context, unit, 0);
        return;
    }
    region r = {.task = task, .context = context, .wanted = threads - 1};
    r.processor = sched_getcpu();
    share_out(&r, threads, units);
    pthread_mutex_lock(&pool.mutex);
    region **last = &pool.open;
    while (*last)
        last = &(*last)->following;
    *last = &r;
    atomic_fetch_add(&pool.opened, 1);
    int wakes = wakes_locked();
    if (wakes)
        clear_processor_locked(r.processor);
    pthread_mutex_unlock(&pool.mutex);
    wake(wakes);
    work(&r, 0);
    pthread_mutex_lock(&pool.mutex);
    close_locked(&r);
    pthread_mutex_unlock(&pool.mutex);
    wait_for_helpers(&r);
}

int xn_cpu_threads_worth(double work_ns, int64_t idle_ns, int most) {
    /* Helpers that still spin join at once. Those asleep take 20 us to come, 60 from a core that
     * slept too, and cost the caller several (README.md has the figures). */
    bool awake = idle_ns < SPIN_NS;
    double thread_ns = awake ? 20e3 : 30e3, alone_ns = 2 * thread_ns;
    double worth = work_ns < alone_ns ? 1 : work_ns / thread_ns;
    return worth < most ? (int)worth : most;
}

/* ---- life ---- */

/* Helper i stays on the processor after the i-th that the process may use, counted around: the
 * callers' own threads float, and find the one that is left. */
static void pin(int index) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || !CPU_COUNT(&all))
        return;
    int skip = (index + 1) % CPU_COUNT(&all), cpu = 0;
    for (; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && skip-- == 0)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *lead(void *argument) {
    team *t = argument;
#pragma omp parallel num_threads(t->members)
    {
        int index = t->first + atomic_fetch_add(&t->numbered, 1);
        pthread_setname_np(pthread_self(), "xn-cpu");
        helper h = {.thread = pthread_self()};
        if (t->pinned)
            pin(index);
        else
            h.may_move = !sched_getaffinity(0, sizeof h.all, &h.all);
        help(&h);
    }
    return NULL;
}

static void *pass(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* How many threads the system gives, of so many: libgomp ends the process when it cannot have the
 * members of a team, so they are tried out. Those threads are gone when this returns, and what they
 * took is there for others. */
static int threads_to_be_had(int most) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[XN_CPU_MAX_THREADS];
    int count = 0;
    pthread_mutex_lock(&gate); /* they are all there before the first of them ends */
    while (count < most && !pthread_create(&threads[count], NULL, pass, &gate))
        count++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return count;
}

static bool add_team_life_locked(int members, bool pinned) {
    team *t = &pool.teams[pool.team_count];
    if (members < 1)
        return false;
    *t = (team){.first = pool.helpers, .members = members, .pinned = pinned};
    if (pthread_create(&t->leader, NULL, lead, t))
        return false;
    pool.helpers += members;
    pool.team_count++;
    return true;
}

void xn_cpu_threads_start(int helpers, bool pinned) {
    sigset_t all, before;
    sigfillset(&all); /* signals are for the application's own threads */
    if (helpers > XN_CPU_MAX_THREADS)
        helpers = XN_CPU_MAX_THREADS;
    pthread_mutex_lock(&pool.life);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int missing = helpers - pool.helpers;
    if (missing > 0)
        missing = threads_to_be_had(missing); /* the callers do without the others */
    while (missing > 0) {
        int members = missing < MOST_MEMBERS ? missing : MOST_MEMBERS;
        if (!add_team_life_locked(members, pinned))
            break;
        missing -= members;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&pool.life);
}

/* A forked child has none of the helpers; it can start its own, and what it runs before is run by
 * its callers alone. */
static void before_fork(void) {
    pthread_mutex_lock(&pool.life);
    pthread_mutex_lock(&pool.mutex);
}

static void after_fork(void) {
    pthread_mutex_unlock(&pool.mutex);
    pthread_mutex_unlock(&pool.life);
}

static void after_fork_in_child(void) {
    pool.helpers = pool.team_count = 0;
    pool.open = NULL; /* their callers are not here either */
    pool.spinning = pool.asleep = pool.leaving = 0;
    pool.sleepers = NULL;
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.left, NULL);
    after_fork();
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

void xn_cpu_threads_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&pool.life);
    pool.users++;
    pthread_mutex_unlock(&pool.life);
}

static void stop_life_locked(bool stopping) {
    pthread_mutex_lock(&pool.mutex);
    pool.stopping = stopping;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
}

void xn_cpu_threads_close(void) {
    pthread_mutex_lock(&pool.life);
    if (--pool.users == 0) {
        stop_life_locked(true);
        for (int i = 0; i < pool.team_count; i++)
            pthread_join(pool.teams[i].leader, NULL);
        pool.helpers = pool.team_count = 0;
        stop_life_locked(false);
    }
    pthread_mutex_unlock(&pool.life);
}
