/* The queue and its heap: what is shared fairly, and both against naive models with random
 * operations. No threads, no clock. */
#include "heap.h"
#include "queue.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Assets are only compared by the queue. */
static char asset_memory[16];
static xn_asset *asset(int i) {
    return (xn_asset *)(void *)&asset_memory[i];
}

static void job_init(xn_job *job, int which, int height, int64_t images, int64_t submitted) {
    *job = (xn_job){.asset = asset(which),
                    .images = images,
                    .submitted_ns = submitted,
                    .deadline_ns = INT64_MAX};
    job->problem.conv.height = height; /* 15 us of work an image, for each row */
    job->problem.conv.width = 100;
    job->problem.conv.channels = 1000;
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

/* ---- fairness ---- */

static uint64_t work_of(const xn_job *job, int64_t images) {
    return xn_queue_work_ns(&job->problem, images);
}

/* Two assets that always have jobs share the work equally, whatever their jobs' sizes, and a third
 * that comes back with a job as soon as it was served gets no more. */
START_TEST(work_is_shared) {
    enum { JOBS = 40, ASSETS = 3, TAKES = 30000 };
    static xn_job jobs[ASSETS][JOBS];
    const int heights[ASSETS] = {5, 3000, 40};
    const int64_t images[ASSETS] = {1, 3, 7};
    double work[ASSETS] = {0}, most = 0;
    xn_queue *queue = queue_new(8, 0);
    int64_t now = 0;
    for (int a = 0; a < ASSETS; a++)
        for (int i = 0; i < (a == 2 ? 1 : JOBS); i++) {
            job_init(&jobs[a][i], a, heights[a], images[a], now++);
            push(queue, &jobs[a][i]);
        }
    for (int t = 0; t < TAKES; t++) {
        size_t count = 0;
        int64_t taken = 0;
        xn_job *batch = xn_queue_take(queue, false, now++, &count), *next;
        int a = batch->asset == asset(0) ? 0 : batch->asset == asset(1) ? 1 : 2;
        for (xn_job *job = batch; job; job = job->next)
            taken += job->images;
        double ns = (double)work_of(batch, taken);
        work[a] += ns;
        most = ns > most ? ns : most;
        for (xn_job *job = batch; job; job = next) {
            next = job->next;
            job->submitted_ns = now++;
            push(queue, job);
        }
    }
    for (int a = 1; a < ASSETS; a++) /* the heaviest batch is about 1/1000 of all */
        ck_assert_msg(work[a] - work[0] < 2 * most && work[0] - work[a] < 2 * most, "%.0f and %.0f",
                      work[0], work[a]);
    xn_queue_free(queue);
}
END_TEST

/* Ever new assets, several at a time, do not keep an old one from its turn; what the queue
 * remembers of them stays small. */
START_TEST(new_assets_do_not_starve_old_ones) {
    enum { OTHERS = 6, TAKES = 40000, OLD = 300 };
    static xn_job old[OLD], young[OTHERS];
    static char identities[TAKES + OTHERS];
    xn_queue *queue = queue_new(4, 0);
    xn_rng rng = {xn_test_seed()};
    int64_t now = 0, since = 0, longest = 0;
    int next_young = 0;
    double old_work = 0, young_work = 0;
    const int64_t held = xn_mem_held();
    for (int i = 0; i < OLD; i++) {
        job_init(&old[i], 0, 5, 1, now++);
        push(queue, &old[i]);
    }
    for (int i = 0; i < OTHERS; i++) {
        job_init(&young[i], 0, 5, 1, now++);
        young[i].asset = (xn_asset *)(void *)&identities[next_young++];
        push(queue, &young[i]);
    }
    for (int t = 0; t < TAKES; t++) {
        size_t count = 0;
        xn_job *batch = xn_queue_take(queue, false, now++, &count), *next;
        bool is_old = batch->asset == asset(0);
        int64_t images = 0;
        for (const xn_job *job = batch; job; job = job->next)
            images += job->images;
        *(is_old ? &old_work : &young_work) += (double)work_of(batch, images);
        since = is_old ? 0 : since + 1;
        longest = since > longest ? since : longest;
        for (xn_job *job = batch; job; job = next) {
            next = job->next;
            if (is_old) {
                job->submitted_ns = now++;
            } else {
                job_init(job, 0, xn_rng_below(&rng, 8) ? 5 : 3000,
                         1 + (int64_t)xn_rng_below(&rng, 6), now++);
                job->asset = (xn_asset *)(void *)&identities[next_young++];
            }
            push(queue, job);
        }
    }
    ck_assert_int_lt(longest, 8 * OTHERS);
    ck_assert_double_gt(old_work * 3 * (OTHERS + 1), young_work); /* a fair share: once */
    ck_assert_int_lt(xn_mem_held() - held, 512 * (XN_QUEUE_RESTING + 10 * OTHERS));
    xn_queue_free(queue);
}
END_TEST

/* One at a time, the queue empty in between: nothing is piled up either. */
START_TEST(lone_new_assets_are_forgotten) {
    enum { JOBS = 20000 };
    static char identities[JOBS];
    xn_job job;
    size_t count;
    xn_queue *queue = queue_new(4, 0);
    const int64_t held = xn_mem_held();
    for (int i = 0; i < JOBS; i++) {
        job_init(&job, 0, 5, 1, i);
        job.asset = (xn_asset *)(void *)&identities[i];
        push(queue, &job);
        ck_assert_ptr_eq(xn_queue_take(queue, false, i, &count), &job);
    }
    ck_assert_int_lt(xn_mem_held() - held, 10000);
    xn_queue_free(queue);
}
END_TEST

/* Virtual times may pass the end of their range. */
START_TEST(virtual_times_wrap_around) {
    xn_job a, b;
    xn_queue *queue = queue_new(1, 0);
    int turns[2] = {0};
    job_init(&a, 0, 5, INT64_MAX, 1);
    job_init(&b, 1, 5, INT64_MAX, 2);
    ck_assert_uint_ge(work_of(&a, INT64_MAX), UINT64_C(1) << 58);
    push(queue, &a);
    push(queue, &b);
    for (int i = 0; i < 400; i++) {
        size_t count = 0;
        xn_job *job = xn_queue_take(queue, false, 1000, &count);
        turns[job == &b]++;
        push(queue, job);
        int ahead = turns[0] - turns[1];
        ck_assert(ahead >= -1 && ahead <= 1);
    }
    xn_queue_free(queue);
}
END_TEST

/* ---- waits ---- */

/* What random operations below do not reach. */
static const struct {
    const char *what;
    xn_batch_policy policy;
    int64_t oldest, now, wait;
} extremes[] = {
    {"a job from the future has not waited", {8, 50}, 200, 100, 50},
    {"negative delay: none", {8, -1}, 100, 100, 0},
    {"longest delay", {8, INT64_MAX}, 0, 1, INT64_MAX - 1},
    {"ages that overflow are due", {8, INT64_MAX}, INT64_MIN, INT64_MAX, 0},
};

START_TEST(extreme_waits) {
    const int64_t wait =
        xn_batch_wait_ns(&extremes[_i].policy, 1, extremes[_i].oldest, false, extremes[_i].now);
    ck_assert_msg(wait == extremes[_i].wait, "%s: waits %lld", extremes[_i].what, (long long)wait);
}
END_TEST

/* ---- against a naive model ---- */

enum { MODEL_JOBS = 64, MODEL_STEPS = 20000, MODEL_ASSETS = 3, MODEL_HEIGHTS = 3 };

/* The rules of queue.h, by looking at everything each time. */
typedef struct model {
    xn_job jobs[MODEL_JOBS];
    bool queued[MODEL_JOBS];
    uint64_t arrival[MODEL_JOBS], arrivals;
    xn_batch_policy policy;
    bool draining; /* the take that comes */
    bool due[MODEL_ASSETS][MODEL_HEIGHTS];
    uint64_t vtime[MODEL_ASSETS], start, middle;
    bool known[MODEL_ASSETS], fresh[MODEL_ASSETS]; /* known: with a time of its own */
} model;

typedef struct model_group {
    int asset, height, oldest; /* oldest -1: it has no job */
    int64_t images;
    bool urgent, ready;
} model_group;

static int asset_of(const xn_job *job) {
    return (int)((char *)(void *)job->asset - asset_memory);
}

static bool model_before(const model *m, int a, int b) {
    return m->jobs[a].submitted_ns != m->jobs[b].submitted_ns
               ? m->jobs[a].submitted_ns < m->jobs[b].submitted_ns
               : m->arrival[a] < m->arrival[b];
}

static bool model_in(const model *m, int i, int which, int height) {
    return m->queued[i] && asset_of(&m->jobs[i]) == which &&
           m->jobs[i].problem.conv.height == height;
}

static model_group model_group_of(const model *m, int which, int height) {
    model_group g = {which, height, -1, 0, false, false};
    for (int i = 0; i < MODEL_JOBS; i++) {
        if (!model_in(m, i, which, height))
            continue;
        g.images += m->jobs[i].images;
        g.urgent =
            g.urgent || m->jobs[i].deadline_ns - m->jobs[i].submitted_ns <= m->policy.delay_ns;
        if (g.oldest < 0 || model_before(m, i, g.oldest))
            g.oldest = i;
    }
    g.ready = g.oldest >= 0 && (m->due[which][height] || g.urgent || m->policy.delay_ns <= 0 ||
                                g.images >= m->policy.max_images);
    return g;
}

/* The asset's ready group with the oldest job; without one its oldest is -1. */
static model_group model_ready_group(const model *m, int which) {
    model_group best = {which, 0, -1, 0, false, false};
    for (int h = 0; h < MODEL_HEIGHTS; h++) {
        model_group g = model_group_of(m, which, h);
        if (g.ready && (best.oldest < 0 || model_before(m, g.oldest, best.oldest)))
            best = g;
    }
    return best;
}

static bool model_active(const model *m, int which) {
    return model_ready_group(m, which).oldest >= 0;
}

static bool model_has_jobs(const model *m, int which) {
    for (int i = 0; i < MODEL_JOBS; i++)
        if (m->queued[i] && asset_of(&m->jobs[i]) == which)
            return true;
    return false;
}

static uint64_t model_least_but(const model *m, int but) {
    bool any = false;
    uint64_t least = m->middle;
    for (int a = 0; a < MODEL_ASSETS; a++)
        if (a != but && model_active(m, a) && (!any || m->vtime[a] < least)) {
            least = m->vtime[a];
            any = true;
        }
    return least;
}

/* After a change of one asset's jobs, which was active before it or not. */
static void model_settle(model *m, int which, bool was_active) {
    if (model_active(m, which) && !was_active) {
        uint64_t start = model_least_but(m, which);
        if (m->fresh[which] && m->middle > start) {
            const xn_job *job = &m->jobs[model_ready_group(m, which).oldest];
            uint64_t half = work_of(job, job->images) / 2, passed = m->middle - start;
            start += passed < half ? passed : half;
        }
        if (!m->known[which] || m->vtime[which] < start)
            m->vtime[which] = start;
        m->known[which] = true;
        m->fresh[which] = false;
    }
    for (int a = 0; a < MODEL_ASSETS; a++) /* debts that are over are forgotten */
        if (!model_has_jobs(m, a)) {
            m->fresh[a] = true;
            m->known[a] = m->known[a] && m->vtime[a] > m->start;
        }
}

static void model_push(model *m, int i) {
    int which = asset_of(&m->jobs[i]), height = m->jobs[i].problem.conv.height;
    bool was = model_active(m, which);
    m->queued[i] = true;
    m->arrival[i] = m->arrivals++;
    if (model_group_of(m, which, height).oldest == i)
        m->due[which][height] = false;
    model_settle(m, which, was);
}

static void model_remove(model *m, int i) {
    int which = asset_of(&m->jobs[i]), height = m->jobs[i].problem.conv.height;
    bool was = model_active(m, which);
    if (model_group_of(m, which, height).oldest == i)
        m->due[which][height] = false;
    m->queued[i] = false;
    model_settle(m, which, was);
}

/* How long a group that has a job still waits for others. */
static int64_t model_group_wait(const model *m, const model_group *g, int64_t now) {
    const int64_t left_ns = m->jobs[g->oldest].submitted_ns + m->policy.delay_ns - now;
    return g->ready || g->urgent || g->images >= m->policy.max_images || left_ns < 0 ? 0 : left_ns;
}

static int64_t model_wait(const model *m, int64_t now) {
    int64_t least = XN_QUEUE_EMPTY;
    for (int a = 0; a < MODEL_ASSETS; a++)
        for (int h = 0; h < MODEL_HEIGHTS; h++) {
            const model_group g = model_group_of(m, a, h);
            if (g.oldest >= 0 && model_group_wait(m, &g, now) < least)
                least = model_group_wait(m, &g, now);
        }
    return least;
}

static bool model_has_waited(const model *m, const model_group *g, int64_t now) {
    return g->oldest >= 0 && (m->draining || model_group_wait(m, g, now) == 0);
}

/* The oldest first, as they become due. */
static void model_end_waits(model *m, int64_t now) {
    for (;;) {
        model_group first = {.oldest = -1};
        for (int a = 0; a < MODEL_ASSETS; a++)
            for (int h = 0; h < MODEL_HEIGHTS; h++) {
                model_group g = model_group_of(m, a, h);
                if (!g.ready && model_has_waited(m, &g, now) &&
                    (first.oldest < 0 || model_before(m, g.oldest, first.oldest)))
                    first = g;
            }
        if (first.oldest < 0)
            return;
        bool was = model_active(m, first.asset);
        m->due[first.asset][first.height] = true;
        model_settle(m, first.asset, was);
    }
}

/* The asset whose turn it is, or -1. */
static int model_turn(const model *m) {
    int best = -1;
    for (int a = 0; a < MODEL_ASSETS; a++) {
        if (!model_active(m, a))
            continue;
        if (best < 0 || m->vtime[a] < m->vtime[best] ||
            (m->vtime[a] == m->vtime[best] &&
             model_before(m, model_ready_group(m, a).oldest, model_ready_group(m, best).oldest)))
            best = a;
    }
    return best;
}

/* Checks that the batch is what the rules say, job by job, and forgets it. */
static void model_take(model *m, const xn_job *batch, size_t count, int64_t now,
                       const char *where) {
    model_end_waits(m, now);
    int which = model_turn(m);
    ck_assert_msg((which < 0) == !batch, "%s: a batch, or none", where);
    if (which < 0)
        return;
    model_group g = model_ready_group(m, which);
    const xn_problem problem = m->jobs[g.oldest].problem;
    int64_t images = 0;
    size_t taken = 0;
    for (int i = g.oldest; i >= 0; i = model_group_of(m, g.asset, g.height).oldest) {
        if (taken && m->jobs[i].images > m->policy.max_images - images)
            break;
        ck_assert_msg(batch == &m->jobs[i], "%s: another job", where);
        images += m->jobs[i].images;
        m->queued[i] = false;
        batch = batch->next;
        taken++;
    }
    ck_assert_msg(!batch && taken == count, "%s: %zu jobs instead of %zu", where, count, taken);
    uint64_t work = xn_queue_work_ns(&problem, images), middle = m->vtime[which] + work / 2;
    m->start = m->vtime[which];
    m->middle = middle > m->middle ? middle : m->middle;
    m->vtime[which] += work;
    m->due[g.asset][g.height] = false;
    model_group left = model_group_of(m, g.asset, g.height);
    m->due[g.asset][g.height] = model_has_waited(m, &left, now);
    model_settle(m, which, true);
}

START_TEST(random_operations) {
    static model m;
    uint64_t seed = xn_test_seed() + (uint64_t)_i;
    xn_rng rng = {seed};
    memset(&m, 0, sizeof m);
    memset(m.fresh, true, sizeof m.fresh);
    m.policy = (xn_batch_policy){1 + (int64_t)xn_rng_below(&rng, 12),
                                 (int64_t)xn_rng_below(&rng, 2) * 200};
    /* Few jobs at a time, so that assets come and go, or many. */
    const int busy = _i % 2 ? MODEL_JOBS : 6;
    xn_queue *queue = queue_new(m.policy.max_images, m.policy.delay_ns);
    int64_t now = 0;
    for (int step = 0; step < MODEL_STEPS; step++) {
        int i = (int)xn_rng_below(&rng, (uint64_t)busy);
        char where[64];
        snprintf(where, sizeof where, "seed %llu step %d", (unsigned long long)seed, step);
        now += (int64_t)xn_rng_below(&rng, 10);
        switch (xn_rng_below(&rng, 4)) {
        case 0:
            if (m.queued[i]) {
                xn_queue_remove(queue, &m.jobs[i]);
                model_remove(&m, i);
            }
            break;
        case 1: {
            size_t count = 0;
            m.draining = !xn_rng_below(&rng, 10);
            xn_job *batch = xn_queue_take(queue, m.draining, now, &count);
            model_take(&m, batch, count, now, where);
            break;
        }
        default:
            if (m.queued[i])
                break;
            int64_t late = xn_rng_below(&rng, 20) ? 0 : (int64_t)xn_rng_below(&rng, 300);
            job_init(&m.jobs[i], (int)xn_rng_below(&rng, MODEL_ASSETS),
                     (int)xn_rng_below(&rng, MODEL_HEIGHTS), 1 + (int64_t)xn_rng_below(&rng, 5),
                     now > late ? now - late : now);
            if (!xn_rng_below(&rng, 10))
                m.jobs[i].deadline_ns = now + (int64_t)xn_rng_below(&rng, 400);
            push(queue, &m.jobs[i]);
            model_push(&m, i);
        }
        const xn_job *any = xn_queue_any(queue);
        ck_assert(any ? m.queued[any - m.jobs] : !xn_queue_count(queue));
        int64_t oldest_ns = XN_QUEUE_EMPTY;
        for (size_t k = 0; k < sizeof m.jobs / sizeof *m.jobs; k++)
            if (m.queued[k] && m.jobs[k].submitted_ns < oldest_ns)
                oldest_ns = m.jobs[k].submitted_ns;
        ck_assert_int_eq(xn_queue_oldest_ns(queue), oldest_ns);
        ck_assert_int_eq(xn_queue_wait_ns(queue, false, now), model_wait(&m, now));
    }
    xn_queue_free(queue);
}
END_TEST

/* ---- the heap ---- */

typedef struct thing {
    xn_heap_node node;
    uint64_t key;
    bool in;
} thing;

static bool thing_before(const xn_heap_node *a, const xn_heap_node *b) {
    return ((const thing *)(const void *)a)->key < ((const thing *)(const void *)b)->key;
}

START_TEST(heap_random) {
    enum { THINGS = 300, STEPS = 30000 };
    static thing things[THINGS];
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    xn_heap heap = {.before = thing_before};
    memset(things, 0, sizeof things);
    for (int step = 0; step < STEPS; step++) {
        thing *t = &things[xn_rng_below(&rng, THINGS)];
        if (xn_rng_below(&rng, 4) == 0 && heap.first)
            t = (thing *)(void *)heap.first;
        if (t->in) {
            xn_heap_remove(&heap, &t->node);
        } else {
            t->key = xn_rng_below(&rng, 50) << 32 | (uint64_t)step;
            xn_heap_push(&heap, &t->node);
        }
        t->in = !t->in;
        const thing *least = NULL;
        for (int k = 0; k < THINGS; k++)
            if (things[k].in && (!least || things[k].key < least->key))
                least = &things[k];
        ck_assert_ptr_eq(heap.first, least ? &least->node : NULL);
    }
}
END_TEST

XN_SUITE(queue) {
    Suite *s = suite_create("queue");
    TCase *t = tcase_create("queue");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, work_is_shared);
    tcase_add_test(t, new_assets_do_not_starve_old_ones);
    tcase_add_test(t, lone_new_assets_are_forgotten);
    tcase_add_test(t, virtual_times_wrap_around);
    tcase_add_loop_test(t, extreme_waits, 0, sizeof extremes / sizeof *extremes);
    tcase_add_loop_test(t, random_operations, 0, 8);
    tcase_add_loop_test(t, heap_random, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
