/* The queue and the deadlines: order, groups, leaving; small cases, and both against naive models
 * with random operations. No threads, no clock. */
#include "deadlines.h"
#include "queue.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <string.h>

/* Assets are only compared by the queue. */
static char asset_memory[8];
static xn_asset *asset(int i) {
    return (xn_asset *)(void *)&asset_memory[i];
}

static void job_init(xn_job *job, int which, int height, int64_t images, int64_t submitted) {
    *job = (xn_job){.asset = asset(which),
                    .images = images,
                    .submitted_ns = submitted,
                    .deadline_ns = INT64_MAX};
    job->problem.conv.height = height;
    xn_problem_of_conv(&job->problem.conv, &job->problem);
}

static xn_queue *queue_new(int64_t max_images, int64_t delay) {
    xn_batch_policy policy = {max_images, delay};
    xn_queue *queue = NULL;
    ck_assert_int_eq(xn_queue_create(&policy, 100, &queue, NULL), XN_OK);
    return queue;
}

static void push(xn_queue *queue, xn_job *job) {
    ck_assert_int_eq(xn_queue_push(queue, job, NULL), XN_OK);
}

/* Takes a batch and checks that it is these jobs in this order; NULL ends the list. */
static void expect_batch(xn_queue *queue, bool draining, int64_t now, xn_job *const *jobs) {
    size_t count = 0, expected = 0;
    xn_job *job = xn_queue_take(queue, draining, now, &count);
    for (; jobs[expected]; expected++, job = job->next)
        ck_assert_ptr_eq(job, jobs[expected]);
    ck_assert_ptr_null(job);
    ck_assert_uint_eq(count, expected);
}
#define BATCH(...) ((xn_job *const[]){__VA_ARGS__, NULL})

START_TEST(groups_by_asset_and_problem) {
    xn_queue *queue = queue_new(10, 0);
    xn_job a1, b1, a2, other, a3;
    job_init(&a1, 0, 5, 1, 1);
    job_init(&b1, 1, 5, 1, 2);
    job_init(&a2, 0, 5, 2, 3);
    job_init(&other, 0, 6, 1, 4);
    job_init(&a3, 0, 5, 3, 5);
    push(queue, &a1);
    push(queue, &b1);
    push(queue, &a2);
    push(queue, &other);
    push(queue, &a3);
    ck_assert_int_eq(xn_queue_count(queue), 5);
    expect_batch(queue, false, 10, BATCH(&a1, &a2, &a3));
    expect_batch(queue, false, 10, BATCH(&b1));
    expect_batch(queue, false, 10, BATCH(&other));
    ck_assert_int_eq(xn_queue_wait_ns(queue, false, 10), XN_QUEUE_EMPTY);
    size_t count;
    ck_assert_ptr_null(xn_queue_take(queue, false, 10, &count));
    xn_queue_free(queue);
}
END_TEST

START_TEST(most_images) {
    xn_queue *queue = queue_new(4, 0);
    xn_job jobs[5];
    const int64_t images[5] = {3, 1, 1, 9, 1};
    for (int i = 0; i < 5; i++) {
        job_init(&jobs[i], 0, 5, images[i], i);
        push(queue, &jobs[i]);
    }
    expect_batch(queue, false, 10, BATCH(&jobs[0], &jobs[1]));
    expect_batch(queue, false, 10, BATCH(&jobs[2])); /* 9 does not join */
    expect_batch(queue, false, 10, BATCH(&jobs[3])); /* alone */
    expect_batch(queue, false, 10, BATCH(&jobs[4]));
    xn_queue_free(queue);
}
END_TEST

START_TEST(rest_of_a_group_keeps_its_age) {
    xn_queue *queue = queue_new(2, 0);
    xn_job a1, a2, b, a3;
    job_init(&a1, 0, 5, 1, 1);
    job_init(&a2, 0, 5, 1, 2);
    job_init(&b, 1, 5, 1, 3);
    job_init(&a3, 0, 5, 1, 4);
    push(queue, &a1);
    push(queue, &a2);
    push(queue, &b);
    push(queue, &a3);
    expect_batch(queue, false, 10, BATCH(&a1, &a2));
    expect_batch(queue, false, 10, BATCH(&b)); /* older than what is left of the first group */
    expect_batch(queue, false, 10, BATCH(&a3));
    xn_queue_free(queue);
}
END_TEST

START_TEST(delay) {
    xn_queue *queue = queue_new(4, 100);
    xn_job a, b, c;
    job_init(&a, 0, 5, 1, 1000);
    job_init(&b, 1, 5, 3, 1010);
    job_init(&c, 1, 5, 1, 1020);
    push(queue, &a);
    push(queue, &b);
    ck_assert_int_eq(xn_queue_wait_ns(queue, false, 1020), 80);
    size_t count;
    ck_assert_ptr_null(xn_queue_take(queue, false, 1020, &count));
    push(queue, &c); /* fills the younger group: it need not wait */
    ck_assert_int_eq(xn_queue_wait_ns(queue, false, 1020), 0);
    expect_batch(queue, false, 1020, BATCH(&b, &c));
    ck_assert_int_eq(xn_queue_wait_ns(queue, false, 1099), 1);
    expect_batch(queue, false, 1100, BATCH(&a));
    push(queue, &a);
    expect_batch(queue, true, 1000, BATCH(&a)); /* draining */
    xn_queue_free(queue);
}
END_TEST

START_TEST(full_group_that_shrinks_waits_again) {
    xn_queue *queue = queue_new(2, 100);
    xn_job a, b;
    job_init(&a, 0, 5, 1, 0);
    job_init(&b, 0, 5, 1, 10);
    push(queue, &a);
    push(queue, &b);
    ck_assert_int_eq(xn_queue_wait_ns(queue, false, 20), 0);
    xn_queue_remove(queue, &a);
    ck_assert_int_eq(xn_queue_wait_ns(queue, false, 20), 90); /* b's own age counts */
    xn_queue_remove(queue, &b);
    ck_assert_int_eq(xn_queue_wait_ns(queue, false, 20), XN_QUEUE_EMPTY);
    xn_queue_free(queue);
}
END_TEST

START_TEST(near_deadline_does_not_wait_for_company) {
    xn_queue *queue = queue_new(8, 100);
    xn_job a, b, c;
    job_init(&a, 0, 5, 1, 0);
    job_init(&b, 1, 5, 1, 1);
    job_init(&c, 1, 5, 1, 2);
    c.deadline_ns = 60;
    push(queue, &a);
    push(queue, &b);
    push(queue, &c);
    expect_batch(queue, false, 2, BATCH(&b, &c));
    ck_assert_int_eq(xn_queue_wait_ns(queue, false, 2), 98);
    xn_queue_free(queue);
}
END_TEST

START_TEST(late_comer_takes_its_place) {
    xn_queue *queue = queue_new(8, 0);
    xn_job a, b, old;
    job_init(&a, 0, 5, 1, 10);
    job_init(&b, 1, 5, 1, 20);
    job_init(&old, 1, 5, 1, 5); /* moved from another pool */
    push(queue, &a);
    push(queue, &b);
    push(queue, &old);
    ck_assert_ptr_eq(xn_queue_oldest(queue), &old);
    expect_batch(queue, false, 30, BATCH(&old, &b));
    expect_batch(queue, false, 30, BATCH(&a));
    xn_queue_free(queue);
}
END_TEST

/* ---- against a naive model ---- */

enum { MODEL_JOBS = 64, MODEL_STEPS = 20000 };

typedef struct model {
    xn_job jobs[MODEL_JOBS];
    bool queued[MODEL_JOBS];
    xn_batch_policy policy;
} model;

static bool same_group(const xn_job *a, const xn_job *b) {
    return a->asset == b->asset && a->problem.conv.height == b->problem.conv.height;
}

static int model_oldest(const model *m) {
    int oldest = -1;
    for (int i = 0; i < MODEL_JOBS; i++)
        if (m->queued[i] && (oldest < 0 || m->jobs[i].submitted_ns < m->jobs[oldest].submitted_ns))
            oldest = i;
    return oldest;
}

/* Whether the job's group is ready, and its oldest job. */
static bool model_ready(const model *m, const xn_job *job, int64_t now) {
    int64_t images = 0, oldest = INT64_MAX;
    for (int i = 0; i < MODEL_JOBS; i++)
        if (m->queued[i] && same_group(&m->jobs[i], job)) {
            images += m->jobs[i].images;
            if (m->jobs[i].submitted_ns < oldest)
                oldest = m->jobs[i].submitted_ns;
        }
    return images >= m->policy.max_images || now - oldest >= m->policy.delay_ns;
}

/* Checks that the batch taken is right, and forgets it. */
static void model_check_take(model *m, const xn_job *batch, size_t count, int64_t now,
                             uint64_t seed, int step) {
    int oldest = model_oldest(m);
    bool any = false;
    for (int i = 0; i < MODEL_JOBS; i++)
        any = any || (m->queued[i] && model_ready(m, &m->jobs[i], now));
    ck_assert_msg(any == (batch != NULL), "seed %llu step %d", (unsigned long long)seed, step);
    if (!batch)
        return;
    if (model_ready(m, &m->jobs[oldest], now))
        ck_assert_msg(same_group(batch, &m->jobs[oldest]), "seed %llu step %d: not the oldest",
                      (unsigned long long)seed, step);
    ck_assert(model_ready(m, batch, now));
    int64_t images = 0, last = INT64_MIN;
    xn_job key = *batch;
    size_t n = 0;
    for (const xn_job *j = batch; j; j = j->next, n++) {
        ck_assert(same_group(j, &key) && j->submitted_ns > last && m->queued[j - m->jobs]);
        last = j->submitted_ns;
        images += j->images;
        m->queued[j - m->jobs] = false;
    }
    ck_assert_uint_eq(n, count);
    ck_assert(images <= m->policy.max_images || n == 1);
    int64_t next = INT64_MAX, next_images = 0;
    for (int i = 0; i < MODEL_JOBS; i++)
        if (m->queued[i] && same_group(&m->jobs[i], &key)) {
            ck_assert(m->jobs[i].submitted_ns > last); /* nothing older was left behind */
            if (m->jobs[i].submitted_ns < next) {
                next = m->jobs[i].submitted_ns;
                next_images = m->jobs[i].images;
            }
        }
    if (next_images) /* and the next one really had no room */
        ck_assert(images + next_images > m->policy.max_images);
}

START_TEST(random_operations) {
    static model m;
    uint64_t seed = xn_test_seed() + (uint64_t)_i;
    xn_rng rng = {seed};
    memset(&m, 0, sizeof m);
    m.policy = (xn_batch_policy){1 + (int64_t)xn_rng_below(&rng, 12),
                                 (int64_t)xn_rng_below(&rng, 2) * 200};
    xn_queue *queue = queue_new(m.policy.max_images, m.policy.delay_ns);
    int64_t now = 0;
    for (int step = 0; step < MODEL_STEPS; step++) {
        int i = (int)xn_rng_below(&rng, MODEL_JOBS);
        now += 1 + (int64_t)xn_rng_below(&rng, 10);
        switch (xn_rng_below(&rng, 4)) {
        case 0:
            if (m.queued[i]) {
                xn_queue_remove(queue, &m.jobs[i]);
                m.queued[i] = false;
            }
            break;
        case 1: {
            size_t count = 0;
            xn_job *batch = xn_queue_take(queue, false, now, &count);
            model_check_take(&m, batch, count, now, seed, step);
            break;
        }
        default:
            if (!m.queued[i]) {
                job_init(&m.jobs[i], (int)xn_rng_below(&rng, 3), (int)xn_rng_below(&rng, 3),
                         1 + (int64_t)xn_rng_below(&rng, 5), now);
                push(queue, &m.jobs[i]);
                m.queued[i] = true;
            }
        }
        int oldest = model_oldest(&m);
        ck_assert_ptr_eq(xn_queue_oldest(queue), oldest < 0 ? NULL : &m.jobs[oldest]);
    }
    xn_queue_free(queue);
}
END_TEST

START_TEST(deadlines_random) {
    enum { JOBS = 700, STEPS = 20000 };
    static xn_job jobs[JOBS];
    static bool in[JOBS];
    uint64_t seed = xn_test_seed() + (uint64_t)_i;
    xn_rng rng = {seed};
    memset(in, 0, sizeof in);
    xn_deadlines deadlines;
    xn_deadlines_init(&deadlines);
    ck_assert_ptr_null(xn_deadlines_first(&deadlines));
    for (int step = 0; step < STEPS; step++) {
        int i = (int)xn_rng_below(&rng, JOBS);
        if (in[i]) {
            xn_deadlines_remove(&deadlines, &jobs[i]);
        } else {
            jobs[i].deadline_ns = (int64_t)xn_rng_below(&rng, 1000);
            ck_assert_int_eq(xn_deadlines_add(&deadlines, &jobs[i], NULL), XN_OK);
        }
        in[i] = !in[i];
        if (step % 16)
            continue;
        int64_t earliest = INT64_MAX;
        for (int k = 0; k < JOBS; k++)
            if (in[k] && jobs[k].deadline_ns < earliest)
                earliest = jobs[k].deadline_ns;
        const xn_job *first = xn_deadlines_first(&deadlines);
        ck_assert_msg((first ? first->deadline_ns : INT64_MAX) == earliest, "seed %llu step %d",
                      (unsigned long long)seed, step);
    }
    xn_deadlines_clear(&deadlines);
}
END_TEST

/* ---- memory ---- */

static bool fail_at(void *context, size_t bytes) {
    (void)bytes;
    return (*(int *)context)-- != 0;
}

START_TEST(allocations_fail) {
    xn_job job;
    job_init(&job, 0, 5, 1, 1);
    job.deadline_ns = 1;
    for (int i = 0;; i++) {
        int countdown = i;
        xn_batch_policy policy = {4, 0};
        xn_queue *queue = NULL;
        xn_deadlines deadlines;
        xn_error error = {0};
        xn_deadlines_init(&deadlines);
        xn_mem_set_hook(fail_at, &countdown);
        xn_status status = xn_queue_create(&policy, 10, &queue, &error);
        if (status == XN_OK)
            status = xn_queue_push(queue, &job, &error);
        if (status == XN_OK)
            status = xn_deadlines_add(&deadlines, &job, &error);
        xn_mem_set_hook(NULL, NULL);
        xn_queue_free(queue);
        xn_deadlines_clear(&deadlines);
        if (status == XN_OK) {
            ck_assert_int_eq(i, 4); /* queue, table, group, heap */
            return;
        }
        ck_assert_int_eq(status, XN_ERR_NO_MEMORY);
        ck_assert_int_eq(error.status, XN_ERR_NO_MEMORY);
    }
}
END_TEST

XN_SUITE(queue) {
    Suite *s = suite_create("queue");
    TCase *t = tcase_create("queue");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, groups_by_asset_and_problem);
    tcase_add_test(t, most_images);
    tcase_add_test(t, rest_of_a_group_keeps_its_age);
    tcase_add_test(t, delay);
    tcase_add_test(t, full_group_that_shrinks_waits_again);
    tcase_add_test(t, near_deadline_does_not_wait_for_company);
    tcase_add_test(t, late_comer_takes_its_place);
    tcase_add_loop_test(t, random_operations, 0, 6);
    tcase_add_loop_test(t, deadlines_random, 0, 3);
    tcase_add_test(t, allocations_fail);
    suite_add_tcase(s, t);
    return s;
}
