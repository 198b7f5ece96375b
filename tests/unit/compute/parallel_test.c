/* parallel_test.c: units over threads: how many threads work is worth, and that every unit runs
 * once, whoever comes, whatever the numbers, also where several callers share the helpers. */
#include "parallel.h"
#include "xn_test.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if XN_CPU_OPENMP_TEAMS
#include <omp.h>
#else
static int omp_get_level(void) {
    return 1;
}
#endif

START_TEST(threads_by_work) {
    static const struct {
        double ns;
        int most, threads, awake; /* awake: when the caller's last work has just ended */
    } cases[] = {
        {0, 64, 1, 1},    {9e3, 64, 1, 1},   {10e3, 64, 1, 2},         {40e3, 64, 1, 8},
        {41e3, 64, 4, 8}, {9e3, 2, 1, 1},    {10e3, 2, 1, 2},          {59e3, 2, 1, 2},
        {60e3, 2, 2, 2},  {100e3, 1, 1, 1},  {99e3, 64, 9, 19},        {160e3, 2, 2, 2},
        {400e3, 8, 8, 8}, {3e6, 64, 64, 64}, {1e18, 1024, 1024, 1024},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double ns = cases[i].ns;
        ck_assert_int_eq(xn_cpu_threads_worth(ns, 1000000, cases[i].most), cases[i].threads);
        ck_assert_int_eq(xn_cpu_threads_worth(ns, 1000, cases[i].most), cases[i].awake);
    }
}
END_TEST

/* At least one whatever the work, and with more of it never fewer. */
START_TEST(threads_of_any_work) {
    enum { STEPS = 1050 }; /* up to a second */
    static const int64_t idle_ns[] = {0, 1000, 1000000};
    for (int most = 1; most <= 200; most++)
        for (size_t i = 0; i < sizeof idle_ns / sizeof *idle_ns; i++) {
            int before = 1;
            for (int step = 0; step < STEPS; step++) {
                const double ns = pow(1.02, step);
                const int threads = xn_cpu_threads_worth(ns, idle_ns[i], most);
                ck_assert_msg(threads >= before && threads <= most,
                              "%g ns, idle for %lld: %d threads of %d, %d for less", ns,
                              (long long)idle_ns[i], threads, most, before);
                before = threads;
            }
        }
}
END_TEST

enum { MOST_UNITS = 1000, MOST_THREADS = 130 };

typedef struct tally {
    atomic_int runs[MOST_UNITS];
    atomic_int threads[MOST_THREADS]; /* units by thread number */
    atomic_int inside[MOST_THREADS];  /* of a number, at a time */
    atomic_int strangers;             /* units of helpers that are not OpenMP's threads */
    int plain; /* helpers that came when the pool grew: threads of their own */
    int most;
    bool gather; /* units wait until `most` of them run at the same time */
    atomic_int here;
} tally;

static void count_unit(void *context, int64_t unit, int thread) {
    tally *t = context;
    ck_assert_int_lt(thread, t->most);
    ck_assert_int_eq(atomic_fetch_add(&t->inside[thread], 1), 0); /* a number is one thread */
    atomic_fetch_add(&t->runs[unit], 1);
    atomic_fetch_add(&t->threads[thread], 1);
    atomic_fetch_add(&t->here, 1);
    atomic_fetch_add(&t->strangers, thread > 0 && omp_get_level() != 1);
    while (t->gather && atomic_load(&t->here) < t->most)
        sched_yield();
    atomic_fetch_sub(&t->inside[thread], 1);
}

static void expect_each_once(const tally *t, int units) {
    for (int i = 0; i < MOST_UNITS; i++)
        ck_assert_int_eq(atomic_load(&t->runs[i]), i < units);
    ck_assert_int_le(atomic_load(&t->strangers), t->plain);
}

/* 1 to 130 threads asked for, with fewer helpers than that, as many, and none. */
START_TEST(every_unit_runs_once) {
    static const int threads[] = {1, 2, 3, 8, 65, 130}, units[] = {0, 1, 2, 7, 64, 1000};
    static const int helpers[] = {0, 1, 7};
    xn_cpu_threads_open();
    xn_cpu_threads_start(helpers[_i], _i == 1);
    for (int repeat = 0; repeat < 20; repeat++)
        for (size_t a = 0; a < sizeof threads / sizeof *threads; a++)
            for (size_t b = 0; b < sizeof units / sizeof *units; b++) {
                tally t = {.most = threads[a]};
                xn_cpu_for(threads[a], units[b], count_unit, &t);
                expect_each_once(&t, units[b]);
            }
    xn_cpu_threads_close();
}
END_TEST

/* As many units as threads, none of which ends before all have begun. */
static void expect_all_join(int threads, int plain) {
    tally t = {.most = threads, .plain = plain, .gather = true};
    xn_cpu_for(threads, threads, count_unit, &t);
    expect_each_once(&t, threads);
    for (int i = 0; i < threads; i++)
        ck_assert_int_eq(atomic_load(&t.threads[i]), 1);
}

/* Helpers do come, also when the pool grows, and from sleep. */
START_TEST(helpers_join) {
    static const int threads[] = {2, 8, 65, MOST_THREADS};
    xn_cpu_threads_open();
    xn_cpu_threads_start(threads[_i] / 2, false);
    expect_all_join(threads[_i] / 2 + 1, 0);
    xn_cpu_threads_start(threads[_i] - 1, true);
    expect_all_join(threads[_i], threads[_i] - 1 - threads[_i] / 2);
    usleep(5000);
    expect_all_join(threads[_i], threads[_i] - 1 - threads[_i] / 2);
    xn_cpu_threads_close();
}
END_TEST

/* The helpers are 3 all the same, so callers mostly do their units themselves. */
static void *call_many(void *unused) {
    (void)unused;
    for (int repeat = 0; repeat < 300; repeat++) {
        tally t = {.most = 4};
        int units = 2 + repeat % 40;
        xn_cpu_for(4, units, count_unit, &t);
        expect_each_once(&t, units);
    }
    return NULL;
}

START_TEST(callers_share_the_helpers) {
    pthread_t callers[6];
    xn_cpu_threads_open();
    xn_cpu_threads_start(3, false);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(pthread_create(&callers[i], NULL, call_many, NULL), 0);
    for (int i = 0; i < 6; i++)
        pthread_join(callers[i], NULL);
    xn_cpu_threads_close();
}
END_TEST

/* More callers at a time than the pool has places for regions: the others work alone. A caller has
 * a unit at least, and none ends before as many are under way as there are callers. */
enum { CROWD = 70 };

static void meet(void *context, int64_t unit, int thread) {
    tally *t = context;
    atomic_fetch_add(&t->runs[unit], 1);
    atomic_fetch_add(&t->strangers, thread > 1);
    atomic_fetch_add(&t->here, 1);
    while (atomic_load(&t->here) < t->most)
        sched_yield();
}

static void *call_in_a_crowd(void *shared) {
    xn_cpu_for(2, 2, meet, shared);
    return NULL;
}

START_TEST(a_crowd_of_callers) {
    tally t = {.most = CROWD};
    pthread_t callers[CROWD];
    xn_cpu_threads_open();
    xn_cpu_threads_start(3, false);
    for (int i = 0; i < CROWD; i++)
        ck_assert_int_eq(pthread_create(&callers[i], NULL, call_in_a_crowd, &t), 0);
    for (int i = 0; i < CROWD; i++)
        pthread_join(callers[i], NULL);
    xn_cpu_threads_close();
    for (int unit = 0; unit < 2; unit++)
        ck_assert_int_eq(atomic_load(&t.runs[unit]), CROWD);
    ck_assert_int_eq(atomic_load(&t.strangers), 0);
}
END_TEST

/* Which processors the units of the caller and of the helper ran on. */
typedef struct places {
    tally counts;
    atomic_int processor[2];
} places;

static void note_place(void *context, int64_t unit, int thread) {
    places *p = context;
    count_unit(&p->counts, unit, thread);
    atomic_store(&p->processor[thread], sched_getcpu());
}

static void stay_on(const cpu_set_t *set) {
    ck_assert_int_eq(sched_setaffinity(0, sizeof *set, set), 0);
}

/* A caller that comes to where the helper is makes it go elsewhere. */
START_TEST(helpers_avoid_the_caller) {
    cpu_set_t all, two, one;
    int found[2], count = 0, together = 0;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&two);
    for (int i = 0; i < CPU_SETSIZE && count < 2; i++)
        if (CPU_ISSET(i, &all)) {
            found[count++] = i;
            CPU_SET(i, &two);
        }
    if (count < 2)
        return; /* nowhere to go */
    stay_on(&two);
    xn_cpu_threads_open();
    xn_cpu_threads_start(1, false);
    for (int repeat = 0; repeat < 100; repeat++) {
        places p = {.counts = {.most = 2, .gather = true}};
        CPU_ZERO(&one);
        CPU_SET(found[repeat / 5 % 2], &one);
        stay_on(&one);
        xn_cpu_for(2, 2, note_place, &p);
        together += atomic_load(&p.processor[0]) == atomic_load(&p.processor[1]);
    }
    stay_on(&all);
    xn_cpu_threads_close();
    ck_assert_int_le(together, 3); /* the system may move it in between, until it has moved once */
}
END_TEST

/* The pool ends with its last user and can begin again. */
START_TEST(the_pool_ends_and_begins) {
    for (int i = 0; i < 50; i++) {
        tally t = {.most = 3};
        xn_cpu_threads_open();
        xn_cpu_threads_open();
        xn_cpu_threads_start(2, false);
        xn_cpu_threads_close();
        xn_cpu_for(3, 30, count_unit, &t);
        expect_each_once(&t, 30);
        xn_cpu_threads_close();
    }
}
END_TEST

/* A forked child has no helpers, works without, and starts its own. */
START_TEST(a_child_begins_anew) {
    int status = 0;
    xn_cpu_threads_open();
    xn_cpu_threads_start(3, false);
    expect_all_join(4, 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        tally t = {.most = 4};
        xn_cpu_for(4, 100, count_unit, &t);
        bool alone = atomic_load(&t.threads[0]) == 100;
#ifndef __SANITIZE_THREAD__ /* which forbids it after such a fork */
        tally all = {.most = 6, .gather = true};
        xn_cpu_threads_start(5, false);
        xn_cpu_for(6, 6, count_unit, &all);
        alone = alone && atomic_load(&all.threads[5]) == 1;
#endif
        xn_cpu_threads_close();
        _exit(alone ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_all_join(4, 0); /* the parent's are as they were */
    xn_cpu_threads_close();
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* their own memory is huge */
static rlim_t address_space_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static int threads_of_process(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    ck_assert_ptr_nonnull(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* Where there is room for a few threads' stacks only, the pool is that small, and work is done. */
START_TEST(fewer_threads_than_asked) {
    struct rlimit before, tight;
    tally t = {.most = 64};
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
    ck_assert_int_eq(getrlimit(RLIMIT_STACK, &tight), 0);
    rlim_t stack = tight.rlim_cur == RLIM_INFINITY ? 2 << 20 : tight.rlim_cur;
    tight = before;
    tight.rlim_cur = address_space_bytes() + 4 * stack;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &tight), 0);
    xn_cpu_threads_open();
    xn_cpu_threads_start(63, false);
    for (int repeat = 0; repeat < 20; repeat++) {
        memset(&t, 0, sizeof t);
        t.most = 64;
        xn_cpu_for(64, 1000, count_unit, &t);
        expect_each_once(&t, 1000);
    }
    ck_assert_int_lt(threads_of_process(), 32);
    xn_cpu_threads_close();
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
}
END_TEST
#endif

XN_SUITE(parallel) {
    Suite *s = suite_create("parallel");
    TCase *t = xn_test_case(s, "units", 120);
    tcase_add_test(t, threads_by_work);
    tcase_add_test(t, threads_of_any_work);
    tcase_add_loop_test(t, every_unit_runs_once, 0, 3);
    tcase_add_loop_test(t, helpers_join, 0, 4);
    tcase_add_test(t, callers_share_the_helpers);
    tcase_add_test(t, a_crowd_of_callers);
    tcase_add_test(t, helpers_avoid_the_caller);
    tcase_add_test(t, the_pool_ends_and_begins);
    return s;
}

/* What an emulator of another processor lacks: forks of processes with threads, and limits. */
XN_SUITE(parallel_process) {
    Suite *s = suite_create("parallel_process");
    TCase *t = xn_test_case(s, "process", 120);
    tcase_add_test(t, a_child_begins_anew);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(t, fewer_threads_than_asked);
#endif
    return s;
}
