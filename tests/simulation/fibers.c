/* fibers.c: see fibers.h. A mutex is the number of its owner, kept in the pthread_mutex_t itself;
 * 0, which all of a mutex's initialisers give, is free. A condition has no state: who waits for it
 * is found among the fibers. */
#include "fibers.h"

#include "clock.h"
#include "lock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

/* A function that the linker takes for the one of that name, and that one itself. */
#define INSTEAD(type, name, ...)                                                                   \
    type of_##name(__VA_ARGS__) __asm__("__wrap_" #name);                                          \
    type of_##name(__VA_ARGS__)
extern int64_t real_xn_mem_held(void) __asm__("__real_xn_mem_held");

enum { MOST_FIBERS = 512, STACK_BYTES = 256 << 10 };

typedef enum { FREE, READY, LOCKING, WAITING, SLEEPING, JOINING, ENDED } fiber_state;

typedef struct fiber {
    fiber_state state;
    ucontext_t context;
    void *stack; /* kept when the fiber has ended, for the next of its number */
    char name[24];
    const void *waits_for; /* a mutex, a condition, the fiber to join */
    int64_t until_ns;      /* of WAITING and SLEEPING; INT64_MAX: never */
    bool timed_out, detached;
    int locks_held;
    const xn_lock *engine_lock; /* the thread's xn_lock_held */
    int64_t foreign_bytes;      /* see of_xn_mem_held */
    void *(*body)(void *argument);
    void (*detached_body)(void *argument);
    void *argument, *result;
} fiber;

static struct {
    fibers_options options;
    fiber fibers[MOST_FIBERS];
    int used, current;
    int ready[MOST_FIBERS], ready_count;
    int locks_held; /* by all */
    const void *uncounted;
    int64_t now_ns;
    uint64_t steps;
} sim;

static fiber *self(void) {
    return &sim.fibers[sim.current];
}

static bool drawn(unsigned percent) {
    return percent && xn_rng_below(sim.options.rng, 100) < percent;
}

static void make_ready(fiber *f) {
    f->state = READY;
    f->waits_for = NULL;
    f->until_ns = INT64_MAX;
    sim.ready[sim.ready_count++] = (int)(f - sim.fibers);
}

/* ---- which one runs ---- */

/* Time is up for those that are due first. Returns false where none is due ever. */
static bool advance(void) {
    int64_t first_ns = INT64_MAX;
    for (int i = 0; i < sim.used; i++) {
        const fiber *f = &sim.fibers[i];
        if ((f->state == WAITING || f->state == SLEEPING) && f->until_ns < first_ns)
            first_ns = f->until_ns;
    }
    if (first_ns == INT64_MAX)
        return false;
    if (first_ns > sim.now_ns) {
        sim.options.resting();
        sim.now_ns = first_ns;
    }
    for (int i = 0; i < sim.used; i++) {
        fiber *f = &sim.fibers[i];
        const bool waits = f->state == WAITING || f->state == SLEEPING;
        if (waits && f->until_ns <= sim.now_ns) {
            f->timed_out = true;
            make_ready(f);
        } else if (f->state == WAITING && drawn(sim.options.spurious_percent)) {
            make_ready(f);
        }
    }
    return true;
}

/* The running fiber goes on when it is chosen again; one that is to be is in `ready`. */
static void choose_next(void) {
    fiber *from = self();
    if (!sim.locks_held && sim.options.between)
        sim.options.between();
    sim.steps++;
    sim.now_ns += FIBERS_STEP_NS;
    if (!sim.ready_count && !advance())
        sim.options.deadlock();
    if (!sim.ready_count)
        abort();
    const int at = (int)xn_rng_below(sim.options.rng, (uint64_t)sim.ready_count);
    const int next = sim.ready[at];
    sim.ready[at] = sim.ready[--sim.ready_count];
    fiber *to = &sim.fibers[next];
    if (to == from)
        return;
    const int64_t held = real_xn_mem_held();
    from->foreign_bytes -= held;
    to->foreign_bytes += held;
    from->engine_lock = xn_lock_held;
    xn_lock_held = to->engine_lock;
    sim.current = next;
    swapcontext(&from->context, &to->context);
}

void fibers_yield(void) {
    make_ready(self());
    choose_next();
}

static void maybe_yield(void) {
    if (drawn(sim.options.preempt_percent))
        fibers_yield();
}

static void block(fiber_state state, const void *waits_for, int64_t until_ns) {
    fiber *f = self();
    f->state = state;
    f->waits_for = waits_for;
    f->until_ns = until_ns;
    f->timed_out = false;
    choose_next();
}

void fibers_sleep(int64_t ns) {
    block(SLEEPING, NULL, sim.now_ns + ns);
}

/* ---- starting and ending ---- */

static void wake_all(fiber_state state, const void *waits_for) {
    for (int i = 0; i < sim.used; i++)
        if (sim.fibers[i].state == state && sim.fibers[i].waits_for == waits_for)
            make_ready(&sim.fibers[i]);
}

static void enter_fiber(void) {
    fiber *f = self();
    if (f->detached)
        f->detached_body(f->argument);
    else
        f->result = f->body(f->argument);
    f->state = f->detached ? FREE : ENDED;
    wake_all(JOINING, f);
    choose_next();
    abort(); /* it is chosen no more */
}

/* getcontext may return twice for all that the compiler knows: nothing lives across it here. */
static void make_context(fiber *f) {
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, enter_fiber, 0);
}

static fiber *start(const char *name, bool detached) {
    int i = 1;
    while (i < sim.used && sim.fibers[i].state != FREE)
        i++;
    if (i == MOST_FIBERS)
        abort();
    sim.used = i < sim.used ? sim.used : i + 1;
    fiber *f = &sim.fibers[i];
    void *stack = f->stack;
    if (!stack)
        stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED)
        abort();
    *f = (fiber){.stack = stack, .detached = detached};
    snprintf(f->name, sizeof f->name, "%s", name);
    make_context(f);
    make_ready(f);
    return f;
}

void fibers_start(const char *name, void (*body)(void *argument), void *argument) {
    fiber *f = start(name, true);
    f->detached_body = body;
    f->argument = argument;
}

void fibers_run(const fibers_options *options, void (*body)(void)) {
    sim.options = *options;
    sim.used = 1;
    sim.current = 0;
    sim.ready_count = 0;
    sim.locks_held = 0;
    sim.uncounted = NULL;
    sim.now_ns = INT64_C(1000000000000);
    sim.steps = 0;
    sim.fibers[0] = (fiber){.name = "main"};
    xn_clock_set(fibers_now);
    body();
    for (int i = 1; i < sim.used; i++)
        if (sim.fibers[i].state != FREE)
            sim.options.deadlock();
}

int64_t fibers_now(void) {
    return sim.now_ns;
}
int fibers_self(void) {
    return sim.current;
}
const char *fibers_name(void) {
    return self()->name;
}
int fibers_locks_held(void) {
    return self()->locks_held;
}
void fibers_uncount(const void *mutex) {
    sim.uncounted = mutex;
}
uint64_t fibers_steps(void) {
    return sim.steps;
}

int64_t fibers_memory(void) {
    return real_xn_mem_held();
}

void fibers_print(void) {
    static const char *const states[] = {"", "ready", "locks", "waits", "sleeps", "joins", "ended"};
    for (int i = 0; i < sim.used; i++)
        if (sim.fibers[i].state != FREE)
            printf("  fiber %3d %-16s %-6s holds %d locks\n", i, sim.fibers[i].name,
                   i == sim.current ? "runs" : states[sim.fibers[i].state],
                   sim.fibers[i].locks_held);
}

/* ---- pthread.h ---- */

INSTEAD(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes,
        void *(*body)(void *), void *argument) {
    (void)attributes;
    fiber *f = start("thread", false);
    f->body = body;
    f->argument = argument;
    *thread = (pthread_t)(f - sim.fibers);
    maybe_yield();
    return 0;
}

INSTEAD(int, pthread_setname_np, pthread_t thread, const char *name) {
    snprintf(sim.fibers[thread].name, sizeof sim.fibers[thread].name, "%s", name);
    return 0;
}

INSTEAD(int, pthread_join, pthread_t thread, void **result) {
    fiber *f = &sim.fibers[thread];
    while (f->state != ENDED)
        block(JOINING, f, INT64_MAX);
    if (result)
        *result = f->result;
    f->state = FREE;
    return 0;
}

INSTEAD(pthread_t, pthread_self, void) {
    return (pthread_t)sim.current;
}

static int *owner_of(pthread_mutex_t *mutex) {
    return (int *)(void *)mutex;
}

INSTEAD(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    (void)attributes;
    memset(mutex, 0, sizeof(pthread_mutex_t));
    return 0;
}

INSTEAD(int, pthread_mutex_destroy, pthread_mutex_t *mutex) {
    if (*owner_of(mutex))
        abort();
    return 0;
}

static void take(pthread_mutex_t *mutex) {
    while (*owner_of(mutex)) {
        if (*owner_of(mutex) == sim.current + 1)
            sim.options.deadlock(); /* it has it already */
        block(LOCKING, mutex, INT64_MAX);
    }
    *owner_of(mutex) = sim.current + 1;
    self()->locks_held += (const void *)mutex != sim.uncounted;
    sim.locks_held += (const void *)mutex != sim.uncounted;
}

static void give(pthread_mutex_t *mutex) {
    if (*owner_of(mutex) != sim.current + 1)
        abort();
    *owner_of(mutex) = 0;
    self()->locks_held -= (const void *)mutex != sim.uncounted;
    sim.locks_held -= (const void *)mutex != sim.uncounted;
    wake_all(LOCKING, mutex);
}

INSTEAD(int, pthread_mutex_lock, pthread_mutex_t *mutex) {
    maybe_yield();
    take(mutex);
    return 0;
}

INSTEAD(int, pthread_mutex_trylock, pthread_mutex_t *mutex) {
    maybe_yield();
    if (*owner_of(mutex))
        return EBUSY;
    take(mutex);
    return 0;
}

INSTEAD(int, pthread_mutex_unlock, pthread_mutex_t *mutex) {
    give(mutex);
    maybe_yield();
    return 0;
}

INSTEAD(int, pthread_cond_init, pthread_cond_t *cond, const pthread_condattr_t *attributes) {
    (void)attributes;
    memset(cond, 0, sizeof(pthread_cond_t));
    return 0;
}

INSTEAD(int, pthread_cond_destroy, pthread_cond_t *cond) {
    for (int i = 0; i < sim.used; i++)
        if (sim.fibers[i].state == WAITING && sim.fibers[i].waits_for == cond)
            abort();
    return 0;
}

static int wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_ns) {
    give(mutex);
    block(WAITING, cond, until_ns);
    const bool timed_out = self()->timed_out;
    take(mutex);
    return timed_out ? ETIMEDOUT : 0;
}

INSTEAD(int, pthread_cond_wait, pthread_cond_t *cond, pthread_mutex_t *mutex) {
    return wait_until(cond, mutex, INT64_MAX);
}

INSTEAD(int, pthread_cond_timedwait, pthread_cond_t *cond, pthread_mutex_t *mutex,
        const struct timespec *until) {
    return wait_until(cond, mutex, (int64_t)until->tv_sec * 1000000000 + until->tv_nsec);
}

INSTEAD(int, pthread_cond_signal, pthread_cond_t *cond) {
    fiber *waiting[MOST_FIBERS];
    uint64_t count = 0;
    for (int i = 0; i < sim.used; i++)
        if (sim.fibers[i].state == WAITING && sim.fibers[i].waits_for == cond)
            waiting[count++] = &sim.fibers[i];
    if (count)
        make_ready(waiting[xn_rng_below(sim.options.rng, count)]);
    maybe_yield();
    return 0;
}

INSTEAD(int, pthread_cond_broadcast, pthread_cond_t *cond) {
    wake_all(WAITING, cond);
    maybe_yield();
    return 0;
}

/* ---- xn_mem.h ---- */

/* What a thread holds is counted by thread, which all fibers share: a fiber's is what there is less
 * what others have allocated. */
INSTEAD(int64_t, xn_mem_held, void) {
    return real_xn_mem_held() - self()->foreign_bytes;
}
