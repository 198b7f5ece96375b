/* The CPU's forms of weights, which are made when a plan first wants them: each mode's once however
 * many threads ask together, made later where memory was short, and right. */
#include "bk_run.h"

#include "xn_mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { ASKERS = 4, MODES = XN_MODE_FLOAT + 1 };

/* Allocations of all threads; those after the first `left` fail, negative: none. */
typedef struct allocations {
    atomic_int left, calls;
} allocations;

static bool count_allocation(void *context, size_t bytes) {
    allocations *a = context;
    (void)bytes;
    atomic_fetch_add(&a->calls, 1);
    return atomic_fetch_sub(&a->left, 1) != 0;
}

/* One set of weights, and a problem and a plan for each mode. */
typedef struct subject {
    const bk_target *target; /* NULL: this is no test of the CPU's */
    bk_case cases[MODES];
    bk_problem problems[MODES];
    xn_prepared *prepared; /* of problems[0], whose weights all have */
    xn_program *programs[MODES];
} subject;

static bool same_weights(const xn_weights *a, const xn_weights *b) {
    if (!a || !b)
        return false;
    size_t values = (size_t)a->out_channels * (size_t)a->group_channels * (size_t)a->kernel_h *
                    (size_t)a->kernel_w;
    return !memcmp(a->real, b->real, values * sizeof *a->real);
}

static void make_subject(int target, subject *s) {
    xn_error error = {0};
    s->target = bk_target_open(target);
    if (s->target && strcmp(s->target->backend->name, "cpu"))
        s->target = NULL;
    for (int mode = 0; s->target && mode < MODES; mode++) {
        bk_case *c = &s->cases[mode];
        *c = bk_geometry(1, 24, 5, 6, 21, 3, 3);
        c->params.mode = (xn_mode)mode;
        bk_problem_make(c, &s->problems[mode]);
        ck_assert_ptr_nonnull(s->problems[mode].weights);
        ck_assert(same_weights(s->problems[mode].weights, s->problems[0].weights));
        bk_expect_ok(s->target, &s->problems[mode], "plan",
                     bk_program_create(s->target, s->target->stream, &s->problems[mode].conv, 1,
                                       &s->programs[mode], &error),
                     &error);
    }
    if (s->target)
        s->prepared = bk_prepare(s->target, &s->problems[0]);
}

static void free_subject(subject *s) {
    for (int mode = 0; s->target && mode < MODES; mode++) {
        xn_program_free(s->programs[mode]);
        if (mode)
            bk_problem_free(&s->problems[mode]);
    }
    if (s->target) {
        s->target->backend->weights_free(s->prepared);
        bk_problem_free(&s->problems[0]);
    }
}

static void judge(const subject *s, int mode) {
    const bk_problem *p = &s->problems[mode];
    bk_expected *expected = bk_model(p);
    void *output = xn_mem_alloc(xn_conv_output_bytes(&p->conv));
    bk_batch batch;
    ck_assert_ptr_nonnull(output);
    bk_batch_make(s->target, p, &p->conv, 1, 1, &batch);
    ck_assert(bk_run_batch(s->target, &batch, &p->conv, s->prepared, output));
    bk_judge(s->target, p, output, 1, NULL, expected);
    bk_batch_free(&batch);
    xn_mem_free(output);
    xn_mem_free(expected);
}

/* One thread's share. Check's assertions are not for other threads: it records, main judges. */
typedef struct asker {
    const subject *subject;
    int mode;
    pthread_barrier_t *start;
    xn_status status;
    xn_error error;
} asker;

static void *ask(void *context) {
    asker *a = context;
    const subject *s = a->subject;
    (void)pthread_barrier_wait(a->start);
    a->status =
        xn_program_ready(s->programs[a->mode], (const xn_prepared *[]){s->prepared}, &a->error);
    return NULL;
}

static void ask_at_once(const subject *s, int mode) {
    pthread_barrier_t start;
    pthread_t threads[ASKERS];
    asker askers[ASKERS];
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, ASKERS), 0);
    for (int i = 0; i < ASKERS; i++) {
        askers[i] = (asker){.subject = s, .mode = mode, .start = &start};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (int i = 0; i < ASKERS; i++)
        pthread_join(threads[i], NULL);
    (void)pthread_barrier_destroy(&start);
    for (int i = 0; i < ASKERS; i++)
        bk_expect_ok(s->target, &s->problems[mode], "ready", askers[i].status, &askers[i].error);
}

START_TEST(made_once) {
    subject s = {0};
    make_subject(_i, &s);
    for (int mode = 0; s.target && mode < MODES; mode++)
        for (int again = 0; again < 2; again++) {
            allocations count = {-1, 0};
            xn_mem_set_hook(count_allocation, &count);
            ask_at_once(&s, mode);
            xn_mem_set_hook(NULL, NULL);
            ck_assert_int_eq(atomic_load(&count.calls) > 0, !again);
            judge(&s, mode);
        }
    free_subject(&s);
}
END_TEST

START_TEST(memory_was_short) {
    subject s = {0};
    make_subject(_i, &s);
    for (int mode = 0; s.target && mode < MODES; mode++) {
        allocations none = {0, 0};
        xn_error error = {0};
        xn_mem_set_hook(count_allocation, &none);
        xn_status status =
            xn_program_ready(s.programs[mode], (const xn_prepared *[]){s.prepared}, &error);
        xn_mem_set_hook(NULL, NULL);
        ck_assert_int_eq(status, XN_ERR_NO_MEMORY);
        ck_assert_str_eq(error.field, "weights");
        ck_assert_ptr_nonnull(strstr(error.message, "[21, 24, 3, 3]"));
        judge(&s, mode);
    }
    free_subject(&s);
}
END_TEST

XN_SUITE(backends_ready) {
    Suite *s = suite_create("backends_ready");
    TCase *t = xn_test_case(s, "ready", 0);
    tcase_add_loop_test(t, made_once, 0, bk_target_count());
    tcase_add_loop_test(t, memory_was_short, 0, bk_target_count());
    return s;
}
