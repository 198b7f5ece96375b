/* The engine's threads as functions of a state and the time (loop.h): called without threads, on a
 * clock of the test's. */
#include "clock.h"
#include "endings.h"
#include "queue.h"
#include "xn_test.h"

static int64_t now_ns;

static int64_t clock_now(void) {
    return now_ns;
}

static int ended;

static void count(xn_job *job) {
    ck_assert_ptr_null(xn_lock_held);
    ck_assert_int_eq(job->finished_ns, now_ns);
    ended++;
}

static void fatal(void *context) {
    ck_assert_ptr_null(xn_lock_held);
    ++*(int *)context;
}

typedef struct bench {
    xn_lock lock;
    xn_metrics *metrics;
    xn_endings endings;
    xn_queue *queue;
} bench;

static void setup(bench *t) {
    const char *id = "ref";
    const xn_batch_policy policy = {4, 0};
    ended = 0;
    now_ns = 1000;
    xn_clock_set(clock_now);
    xn_lock_init(&t->lock);
    xn_endings_init(&t->endings, &t->lock);
    ck_assert_int_eq(xn_metrics_create(&id, 1, "1", "ref", &t->metrics, NULL), XN_OK);
    t->endings.metrics = t->metrics;
    ck_assert_int_eq(xn_queue_create(&policy, 10, &t->queue, NULL), XN_OK);
    xn_lock_take(&t->lock);
}

static void teardown(bench *t) {
    xn_lock_drop(&t->lock);
    xn_queue_free(t->queue);
    xn_metrics_free(t->metrics);
    xn_endings_destroy(&t->endings);
    xn_lock_destroy(&t->lock);
    xn_clock_set(NULL);
}

static void submit(bench *t, xn_job *job, int64_t deadline_ns) {
    *job = (xn_job){.images = 1, .deadline_ns = deadline_ns, .submitted_ns = now_ns, .done = count};
    job->state = XN_JOB_QUEUED;
    ck_assert_int_eq(xn_queue_push(t->queue, job, NULL), XN_OK);
    xn_endings_watch_locked(&t->endings, job);
}

/* It says when to be called again: never too late for the earliest deadline. */
START_TEST(watcher_by_steps) {
    bench t;
    xn_job jobs[3];
    int fatals = 0;
    setup(&t);
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_IDLE);
    submit(&t, &jobs[0], 5000);
    submit(&t, &jobs[1], 3000);
    submit(&t, &jobs[2], INT64_MAX);
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), 3000);
    now_ns = 2999;
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), 3000);
    now_ns = 3000;
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_AGAIN);
    ck_assert(ended == 1 && jobs[1].status == XN_ERR_DEADLINE && xn_queue_count(t.queue) == 2);
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), 5000);
    xn_endings_end_locked(&t.endings, &jobs[0], XN_ERR_CANCELLED, "");
    ck_assert_int_eq(ended, 1); /* done comes from a step alone */
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_AGAIN);
    ck_assert_int_eq(ended, 2);
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_IDLE);
    xn_endings_fail_locked(&t.endings);
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_IDLE); /* no callback yet */
    t.endings.on_fatal = fatal;
    t.endings.on_fatal_context = &fatals;
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_AGAIN);
    ck_assert_int_eq(fatals, 1);
    t.endings.closed = true;
    xn_endings_end_locked(&t.endings, &jobs[2], XN_ERR_DRAINING, "");
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_AGAIN);
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_END);
    ck_assert(ended == 3 && fatals == 1);
    teardown(&t);
}
END_TEST

/* At the end of a run: one job is to be told so, one was answered at its deadline. */
START_TEST(late_jobs) {
    bench t;
    xn_job jobs[2], *both[2] = {&jobs[0], &jobs[1]}, *late;
    size_t taken;
    setup(&t);
    submit(&t, &jobs[0], 2000);
    submit(&t, &jobs[1], 4000);
    ck_assert_ptr_eq(xn_queue_take(t.queue, false, now_ns, &taken), &jobs[0]);
    ck_assert_uint_eq(taken, 2);
    jobs[0].state = jobs[1].state = XN_JOB_RUNNING;
    now_ns = 2000;
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_AGAIN);
    ck_assert(ended == 1 && jobs[0].in_use && jobs[0].state == XN_JOB_ANSWERED);
    xn_lock_drop(&t.lock);
    ck_assert_uint_eq(xn_endings_settle(&t.endings, both, 2, &late), 1);
    xn_lock_take(&t.lock);
    ck_assert(both[0] == &jobs[1] && late == &jobs[0] && !late->next);
    ck_assert_int_eq(xn_endings_step(&t.endings, now_ns), XN_STEP_IDLE);
    teardown(&t);
}
END_TEST

XN_SUITE(engine_steps) {
    Suite *s = suite_create("engine_steps");
    TCase *t = tcase_create("watcher");
    tcase_add_test(t, watcher_by_steps);
    tcase_add_test(t, late_jobs);
    suite_add_tcase(s, t);
    return s;
}
