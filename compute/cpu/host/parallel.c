/* parallel.c: units of work over OpenMP's threads.
 *
 * A caller works through its units itself; helper threads join if they can and take units too.
 * Nobody waits for a helper that has not joined: when the units are gone the region is closed, and
 * only those who are still in one are waited for. That is what a barrier cannot do, and why units
 * are not an OpenMP loop: its region ends when every thread of the team has come, and a thread that
 * gets no core, on a machine busy with other processes, comes a scheduler's time slice or four
 * later (measured: compute/cpu/NOTES.md).
 *
 * So the helpers are an OpenMP team that is held open: a thread of ours, the leader, opens one
 * parallel region, whose members, itself among them, wait for work of ours until the pool ends.
 * There is one pool in a process, whatever the number of callers, so that workers that run side by
 * side share the cores instead of each having a team; it grows by further teams. Without OpenMP,
 * and with clang's, a team is its leader. Who waits, helper or caller, spins for a short while,
 * because the next region mostly follows at once, and then sleeps.
 *
 * Neighbouring units go to one thread as far as that goes: what it wrote in one region, such as
 * packed rows, it then reads in the next, and repeated runs find their outputs in its own cache.
 * So units are shared out in ranges, and a thread whose range is done takes from the others'. And
 * helpers have slots of their own in a region, as far as there are slots: that is their number, by
 * which they have their range and their scratch. Who has none there lets the others go first.
 *
 * Nobody who is awake takes a lock. A region is one of a few places that are never freed, so who
 * looks at one too late finds no slots, or those of the next region, which it may take as well. A
 * slot is a bit, taken by whoever clears it; the region is read only after that, until the one
 * addition that leaves it. The caller, when the units are gone, clears the bits that are left,
 * knows from their number how many helpers came, and waits until so many have left.
 *
 * The mutex is for those who sleep, each on a semaphore of its own: signalling a condition variable
 * may wait for waiters signalled before to wake up. Helpers wake each other, a few each, so that
 * with many of them no one pays for all the wake-ups. */
#include "parallel.h"

#include "index.h"

#include <execinfo.h>
#if XN_CPU_OPENMP_TEAMS
#include <omp.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum {
    LINE = 64,       /* bytes of a line of the caches */
    SPIN_LOOKS = 32, /* between two looks at the clock */
    WAKES = 4,
    REGIONS = 64, /* at a time; more callers than that work alone */
    BACK_OFF_LOOKS =
        16, /* looks at open regions before a slot is taken that another helper has first */
    SLOT_BITS = 64,
    SLOT_WORDS = XN_CPU_MAX_THREADS / SLOT_BITS,
    MOST_RANGES = 16
};
enum { MOST_MEMBERS = XN_CPU_OPENMP_TEAMS ? XN_CPU_MAX_THREADS : 1 };

/* Units that one thread begins with; others take from it when theirs are gone. */
typedef struct range {
    _Alignas(LINE) atomic_llong next; /* the first unit that nobody has taken */
    int64_t end;
} range;

/* One call of xn_cpu_for. */
typedef struct region {
    _Alignas(LINE) atomic_int processor; /* the caller's, when it opened; -1: unknown */
    atomic_int wanted; /* slots given; helpers first .. first + wanted - 1 have one of their own */
    atomic_int first;
    _Atomic uint64_t slots[SLOT_WORDS]; /* those that are free */
    _Alignas(LINE) atomic_int left;     /* helpers that have; the last they touch of it */
    /* The caller's to write, before it gives slots and after all who took one have left: */
    _Alignas(LINE) xn_cpu_task task;
    void *context;
    int range_count;
    range ranges[MOST_RANGES];
} region;

typedef struct helper {
    pthread_t thread;
    int index;
    cpu_set_t all; /* the processors it was given */
    bool may_move;
    int processor; /* where it fell asleep */
    sem_t called;  /* out of sleep */
} helper;

typedef struct team {
    pthread_t leader;
    int first, members; /* helpers first .. first + members - 1 */
    atomic_int came;    /* members that there are: OpenMP may give fewer than it was asked for */
    bool pinned;
    bool openmp;         /* else the leader is its only member */
    atomic_int numbered; /* members that know their number */
    sem_t there;         /* once for each of them */
} team;

static struct {
    pthread_mutex_t life; /* guards these; held while threads begin and end; taken before mutex */
    int users;            /* devices open */
    int helpers;          /* members of all teams */
    int team_count;
    team teams[XN_CPU_MAX_THREADS];

    region regions[REGIONS];
    _Alignas(LINE) _Atomic uint64_t open; /* a bit for each that may have slots */
    atomic_bool stopping;
    _Alignas(LINE) _Atomic uint64_t used; /* a bit for each that has a caller */
    atomic_int demand;                    /* helpers that all of them want */

    /* Changed under the mutex, but read without: */
    _Alignas(LINE) atomic_int awake, asleep; /* helpers; one called is awake */
    atomic_int waiting;                      /* callers asleep until their helpers left */

    pthread_mutex_t mutex;          /* guards this: */
    uint64_t parked[SLOT_WORDS];    /* a bit for each helper that nobody has called yet */
    pthread_cond_t left;            /* a region's helper has left it */
    helper all[XN_CPU_MAX_THREADS]; /* by index; where it sleeps, under the mutex, else its own */
} pool = {.life = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .left = PTHREAD_COND_INITIALIZER};

int64_t xn_cpu_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Of a region in its place. */
static uint64_t bit_of(const region *r) {
    return (uint64_t)1 << (r - pool.regions);
}

/* Looks first, so as not to take the line from those who watch it. */
static void close_region(const region *r) {
    uint64_t bit = bit_of(r);
    if (atomic_load_explicit(&pool.open, memory_order_relaxed) & bit)
        atomic_fetch_and(&pool.open, ~bit);
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

/* How many parked to call for the slots that nobody awake will take: whoever is awake is in a
 * region, whose slots count, or looks for one. */
static int calls_worth(void) {
    int asleep = atomic_load(&pool.asleep);
    int missing = asleep > 0 ? atomic_load(&pool.demand) - atomic_load(&pool.awake) : 0;
    missing = missing < asleep ? missing : asleep;
    return missing < WAKES ? missing : WAKES;
}

/* Always the first: so the same few are called, and the others sleep on. */
static helper *take_parked_locked(void) {
    int word = 0;
    while (!pool.parked[word])
        word++;
    helper *h = &pool.all[word * SLOT_BITS + __builtin_ctzll(pool.parked[word])];
    pool.parked[word] &= pool.parked[word] - 1;
    return h;
}

/* processor: the caller's, that those who are called keep off; -1: they are not moved. */
static void wake_parked(int processor) {
    helper *called[WAKES];
    if (calls_worth() <= 0)
        return;
    pthread_mutex_lock(&pool.mutex);
    int calls = calls_worth();
    for (int i = 0; i < calls; i++) {
        called[i] = take_parked_locked();
        atomic_fetch_sub(&pool.asleep, 1);
        atomic_fetch_add(&pool.awake, 1);
    }
    pthread_mutex_unlock(&pool.mutex);
    for (int i = 0; i < calls; i++) { /* theirs is the caller's until they are called */
        if (is_in_the_way(called[i], called[i]->processor, processor))
            keep_off(called[i], processor);
        sem_post(&called[i]->called);
    }
}

/* A caller opens a region and then looks for parked, a helper is one and then looks for regions:
 * so at least one sees the other. */
static void park(helper *h) {
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_sub(&pool.awake, 1);
    atomic_fetch_add(&pool.asleep, 1);
    bool wanted = atomic_load(&pool.open) || atomic_load(&pool.stopping);
    if (wanted) {
        atomic_fetch_sub(&pool.asleep, 1);
        atomic_fetch_add(&pool.awake, 1);
    } else {
        h->processor = sched_getcpu();
        pool.parked[h->index / SLOT_BITS] |= (uint64_t)1 << h->index % SLOT_BITS;
    }
    pthread_mutex_unlock(&pool.mutex);
    while (!wanted && sem_wait(&h->called))
        ; /* a signal came */
}

static int words_of(int slots) {
    return (slots + SLOT_BITS - 1) / SLOT_BITS;
}

static bool has_slots(const region *r) {
    int words = words_of(atomic_load_explicit(&r->wanted, memory_order_relaxed));
    uint64_t free = 0;
    for (int i = 0; i < words; i++)
        free |= atomic_load_explicit(&r->slots[i], memory_order_relaxed);
    return free;
}

/* A slot, this one if it is free; -1: there is none. Who takes the last one closes the region. */
static int take_slot(region *r, int slot) {
    int words = words_of(atomic_load_explicit(&r->wanted, memory_order_relaxed));
    for (int i = 0; i < words; i++) {
        int word = (slot / SLOT_BITS + i) % words;
        uint64_t free = atomic_load_explicit(&r->slots[word], memory_order_relaxed);
        while (free) {
            bool own = word == slot / SLOT_BITS && free >> slot % SLOT_BITS & 1;
            int at = own ? slot % SLOT_BITS : __builtin_ctzll(free);
            uint64_t bit = (uint64_t)1 << at;
            free = atomic_fetch_and_explicit(&r->slots[word], ~bit, memory_order_acquire);
            if (!(free & bit))
                continue;
            if (free == bit && !has_slots(r))
                close_region(r);
            return word * SLOT_BITS + at;
        }
    }
    return -1;
}

/* Helpers begin to look at different places, so that they spread over the regions. */
static region *join(helper *h, bool backs_off, int *thread) {
    uint64_t open = atomic_load_explicit(&pool.open, memory_order_relaxed);
    int begin = h->index % REGIONS;
    for (uint64_t rest = open >> begin | open << (-begin & (REGIONS - 1)); rest; rest &= rest - 1) {
        region *r = &pool.regions[(begin + __builtin_ctzll(rest)) % REGIONS];
        int slot = h->index - atomic_load_explicit(&r->first, memory_order_relaxed);
        bool own = slot >= 0 && slot < atomic_load_explicit(&r->wanted, memory_order_relaxed);
        if (!has_slots(r) || (backs_off && !own))
            continue;
        int processor = atomic_load_explicit(&r->processor, memory_order_relaxed);
        if (is_in_the_way(h, sched_getcpu(), processor))
            keep_off(h, processor);
        wake_parked(-1); /* before it is one that the caller waits for */
        slot = take_slot(r, own ? slot : 0);
        if (slot >= 0) {
            *thread = slot + 1;
            return r;
        }
    }
    return NULL;
}

/* NULL: the pool ends. */
static region *wait_for_region(helper *h, int *thread) {
    int64_t end = xn_cpu_now_ns() + XN_CPU_SPIN_NS;
    int looks = 0; /* at open regions */
    while (!atomic_load(&pool.stopping)) {
        for (int i = 0; i < SPIN_LOOKS; i++, relax()) {
            if (!atomic_load_explicit(&pool.open, memory_order_relaxed)) {
                looks = 0;
                continue;
            }
            region *r = join(h, looks++ < BACK_OFF_LOOKS, thread);
            if (r)
                return r;
        }
        if (xn_cpu_now_ns() >= end) {
            park(h);
            end = xn_cpu_now_ns() + XN_CPU_SPIN_NS;
        }
    }
    return NULL;
}

static void help(helper *h) {
    int thread;
    atomic_fetch_add(&pool.awake, 1);
    for (region *r; (r = wait_for_region(h, &thread)) != NULL;) {
        work(r, thread);
        close_region(r); /* its units are gone */
        atomic_fetch_add(&r->left, 1);
        if (atomic_load(&pool.waiting)) {
            pthread_mutex_lock(&pool.mutex);
            pthread_cond_broadcast(&pool.left);
            pthread_mutex_unlock(&pool.mutex);
        }
    }
}

/* ---- callers ---- */

/* A place for a region; NULL where all have callers. */
static region *take_region(void) {
    uint64_t used = atomic_load_explicit(&pool.used, memory_order_relaxed);
    while (~used) {
        int free = __builtin_ctzll(~used);
        if (atomic_compare_exchange_weak(&pool.used, &used, used | (uint64_t)1 << free))
            return &pool.regions[free];
    }
    return NULL;
}

static void wait_for_helpers(region *r, int joined) {
    int64_t end = xn_cpu_now_ns() + XN_CPU_SPIN_NS;
    do {
        for (int i = 0; i < SPIN_LOOKS; i++, relax())
            if (atomic_load(&r->left) == joined)
                return;
    } while (xn_cpu_now_ns() < end);
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.waiting, 1);
    while (atomic_load(&r->left) != joined)
        pthread_cond_wait(&pool.left, &pool.mutex);
    atomic_fetch_sub(&pool.waiting, 1);
    pthread_mutex_unlock(&pool.mutex);
}

/* Helpers that no other region has, if there are so many, are the first to come. */
static void open_region(region *r, int wanted) {
    int processor = sched_getcpu(), others = atomic_fetch_add(&pool.demand, wanted);
    bool enough = others + wanted <= atomic_load(&pool.awake) + atomic_load(&pool.asleep);
    atomic_store_explicit(&r->processor, processor, memory_order_relaxed);
    atomic_store_explicit(&r->wanted, wanted, memory_order_relaxed);
    atomic_store_explicit(&r->first, enough ? others : 0, memory_order_relaxed);
    atomic_store_explicit(&r->left, 0, memory_order_relaxed);
    for (int i = 0, rest = wanted; rest > 0; i++, rest -= SLOT_BITS)
        atomic_store_explicit(&r->slots[i],
                              rest < SLOT_BITS ? ((uint64_t)1 << rest) - 1 : UINT64_MAX,
                              memory_order_release);
    atomic_fetch_or(&pool.open, bit_of(r));
    wake_parked(processor);
}

static void end_region(region *r, int wanted) {
    int joined = wanted;
    close_region(r);
    for (int i = 0; i < words_of(wanted); i++)
        joined -= __builtin_popcountll(atomic_exchange(&r->slots[i], 0));
    wait_for_helpers(r, joined);
    atomic_fetch_sub(&pool.demand, wanted);
    atomic_fetch_and(&pool.used, ~bit_of(r));
}

/* Measured with up to 16 threads (NOTES.md); more have one range. */
static void share_out(region *r, int threads, int64_t units) {
    int64_t first = 0;
    int ranges = threads > MOST_RANGES ? 1 : threads;
    for (int i = 0; i < ranges; i++) {
        int64_t end = first + (units - first) / (ranges - i);
        atomic_init(&r->ranges[i].next, first);
        r->ranges[i].end = end;
        first = end;
    }
    r->range_count = ranges;
}

void xn_cpu_for(int threads, int64_t units, xn_cpu_task task, void *context) {
    threads = (int)xn_cpu_min(threads, xn_cpu_min(units, XN_CPU_MAX_THREADS));
    region *r = threads > 1 ? take_region() : NULL;
    if (!r) {
        for (int64_t unit = 0; unit < units; unit++)
            task(context, unit, 0);
        return;
    }
    r->task = task;
    r->context = context;
    share_out(r, threads, units);
    open_region(r, threads - 1);
    work(r, 0);
    end_region(r, threads - 1);
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

static void be_member(team *t, int came) {
    atomic_store(&t->came, came);
    int index = t->first + atomic_fetch_add(&t->numbered, 1);
    pthread_setname_np(pthread_self(), "xn-cpu");
    helper *h = &pool.all[index];
    *h = (helper){.thread = pthread_self(), .index = index};
    sem_init(&h->called, 0, 0);
    if (t->pinned)
        pin(index);
    else
        h->may_move = !sched_getaffinity(0, sizeof h->all, &h->all);
    for (int i = index == t->first ? came : t->members; i < t->members; i++)
        sem_post(&t->there); /* for those that do not come */
    sem_post(&t->there);
    help(h);
}

static void *lead(void *argument) {
    team *t = argument;
    if (!t->openmp) {
        be_member(t, 1);
        return NULL;
    }
#if XN_CPU_OPENMP_TEAMS
#pragma omp parallel num_threads(t->members)
    be_member(t, omp_get_num_threads());
#endif
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

/* libgomp ends the process when it has no memory for a team, and its threads end by pthread_exit,
 * which ends it too when there is no memory to load the unwinder. So a team is opened only where
 * the unwinder is there, and only as the first of the pool, when the program starts; helpers that
 * come later, on a machine that had not enough before, are threads of their own. */
static bool openmp_is_safe_life_locked(void) {
    void *here[1];
    return MOST_MEMBERS > 1 && pool.team_count == 0 && backtrace(here, 1) > 0; /* loads it */
}

static bool add_team_life_locked(int members, bool pinned, bool openmp) {
    team *t = &pool.teams[pool.team_count];
    *t = (team){.first = pool.helpers, .members = members, .pinned = pinned, .openmp = openmp};
    sem_init(&t->there, 0, 0);
    if (pthread_create(&t->leader, NULL, lead, t)) {
        sem_destroy(&t->there);
        return false;
    }
    for (int i = 0; i < members; i++) /* or libgomp has ended the process */
        while (sem_wait(&t->there))
            ;
    t->members = atomic_load(&t->came);
    pool.helpers += t->members;
    pool.team_count++;
    return true;
}

void xn_cpu_threads_start(int helpers, bool pinned) {
    sigset_t all, before;
    sigfillset(&all);        /* signals are for the application's own threads */
    sigdelset(&all, SIGBUS); /* but a fault is the thread's that reads a file cut short */
    if (helpers > XN_CPU_MAX_THREADS)
        helpers = XN_CPU_MAX_THREADS;
    pthread_mutex_lock(&pool.life);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int missing = helpers - pool.helpers;
    if (missing > 0)
        missing = threads_to_be_had(missing); /* the callers do without the others */
    while (missing > 0) {
        bool openmp = openmp_is_safe_life_locked();
        int members = openmp ? missing : 1;
        if (!add_team_life_locked(members, pinned, openmp))
            break;
        missing -= pool.teams[pool.team_count - 1].members;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&pool.life);
}

static void forget_helpers(void) {
    atomic_store(&pool.awake, 0);
    atomic_store(&pool.asleep, 0);
    for (int i = 0; i < SLOT_WORDS; i++)
        pool.parked[i] = 0;
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
    forget_helpers();
    atomic_store(&pool.open, 0); /* the regions' callers are not here either */
    atomic_store(&pool.used, 0);
    atomic_store(&pool.demand, 0);
    atomic_store(&pool.waiting, 0);
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

static void stop_life_locked(void) {
    pthread_mutex_lock(&pool.mutex);
    atomic_store(&pool.stopping, true);
    for (; atomic_load(&pool.asleep); atomic_fetch_sub(&pool.asleep, 1))
        sem_post(&take_parked_locked()->called);
    pthread_mutex_unlock(&pool.mutex);
    for (int i = 0; i < pool.team_count; i++) {
        pthread_join(pool.teams[i].leader, NULL);
        sem_destroy(&pool.teams[i].there);
    }
    for (int i = 0; i < pool.helpers; i++)
        sem_destroy(&pool.all[i].called);
    pool.helpers = pool.team_count = 0;
    forget_helpers();
    atomic_store(&pool.stopping, false);
}

void xn_cpu_threads_close(void) {
    pthread_mutex_lock(&pool.life);
    if (--pool.users == 0)
        stop_life_locked();
    pthread_mutex_unlock(&pool.life);
}
