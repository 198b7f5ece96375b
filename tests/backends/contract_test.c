/* The contract of xn_backend.h beside the numbers: devices, plans used again and side by side,
 * streams on several threads, and every host allocation failed in turn. What threads a stream has
 * changes no bit: cpu_invariance_test.c. */
#include "bk_run.h"

#include "countdown.h"
#include "xn_mem.h"

#include <pthread.h>
#include <string.h>

START_TEST(registry_finds_what_it_lists) {
    static const char *const order[] = {"cuda", "cpu", "ref"};
    int last = -1;
    for (const xn_backend *const *b = xn_backend_all(); *b; b++) {
        int place = 0;
        while (place < 3 && strcmp(order[place], (*b)->name))
            place++;
        ck_assert_msg(place < 3 && place > last, "%s is out of order", (*b)->name);
        last = place;
        ck_assert_ptr_eq(xn_backend_find((*b)->name), *b);
    }
    ck_assert_ptr_nonnull(xn_backend_find("cpu"));
    ck_assert_ptr_nonnull(xn_backend_find("ref"));
    ck_assert_ptr_null(xn_backend_find("auto"));
    ck_assert_ptr_null(xn_backend_find(""));
    ck_assert_ptr_null(xn_backend_find("CPU"));
}
END_TEST

START_TEST(devices) {
    const bk_target *t = bk_target_open(_i);
    if (!t)
        return;
    const xn_backend *b = t->backend;
    xn_device_info info;
    xn_device *device = NULL, *none = NULL;
    xn_error error = {0};
    int count = 0;
    ck_assert_int_eq(b->device_count(&count, &error), XN_OK);
    for (int ordinal = 0; ordinal < count; ordinal++) {
        ck_assert_msg(b->device_open(ordinal, &device, &error) == XN_OK, "%s", error.message);
        memset(&info, 0x7f, sizeof info);
        b->device_info(device, &info);
        ck_assert_uint_lt(strnlen(info.id, sizeof info.id), sizeof info.id);
        ck_assert_int_eq(strncmp(info.id, b->name, strlen(b->name)), 0);
        ck_assert_uint_gt(strnlen(info.description, sizeof info.description), 0);
        ck_assert_int_ge(info.compute_units, 1);
        ck_assert_msg(b->device_canary(device, &error) == XN_OK, "%s: %s", info.id, error.message);
        b->device_close(device);
    }
    int wrong[] = {count, -1, 1000000};
    for (int i = 0; i < 3; i++) {
        error = (xn_error){0};
        ck_assert_int_ne(b->device_open(wrong[i], &none, &error), XN_OK);
        ck_assert_ptr_null(none);
        ck_assert_str_ne(error.message, "");
    }
}
END_TEST

START_TEST(host_memory_and_null) {
    const bk_target *t = bk_target_open(_i);
    if (!t)
        return;
    const xn_backend *b = t->backend;
    for (size_t bytes = 1; bytes < 100000; bytes = bytes * 3 + 1) {
        void *memory = b->host_alloc(t->device, bytes);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % XN_MEM_ALIGNMENT, 0);
        memset(memory, 1, bytes);
        b->host_free(t->device, memory);
    }
    b->host_free(t->device, NULL);
    b->plan_free(NULL);
    b->weights_free(NULL);
    b->stream_free(NULL);
    b->device_close(NULL);
}
END_TEST

/* The paths of a device have names of their own, a stream is held to one of them or not made, and
 * of the problems every plan is of that path or refused. That each path runs is table_test.c's. */
START_TEST(paths_have_names) {
    const bk_target *t = bk_target_open(_i), *at = NULL;
    if (!t)
        return;
    xn_stream_options options = {.path = "no such path"};
    xn_stream *none = NULL;
    xn_error error = {0};
    ck_assert_int_eq(t->backend->stream_create(t->device, &options, &none, &error),
                     XN_ERR_UNSUPPORTED);
    ck_assert_ptr_null(none);
    ck_assert_ptr_nonnull(strstr(error.message, "no such path"));
    for (int path = 0; (at = bk_target_forced(t, path)); path++) {
        ck_assert_str_ne(at->path, "");
        for (int other = 0; other < path; other++)
            ck_assert_str_ne(at->path, bk_target_forced(t, other)->path);
    }
    ck_assert(!t->backend->device_path == !bk_target_forced(t, 0));
    ck_assert(!t->backend->device_path == !t->backend->plan_path);
}
END_TEST

/* ---- plans ---- */

/* Two problems on different code: few channels and many. */
static bk_case usual_case(int which, int64_t images) {
    bk_case c =
        which ? bk_geometry(images, 70, 6, 7, 5, 3, 3) : bk_geometry(images, 1, 13, 37, 3, 3, 3);
    bk_pad(&c, 1, 1, 1, 1);
    c.scale = c.bias = true;
    c.seed = 99 + (uint64_t)which;
    return c;
}

/* A problem that is ready on a target, and what comes of it. */
typedef struct subject {
    const bk_target *target;
    bk_case c;
    bk_problem problem;
    xn_prepared *prepared;
    bk_expected *expected;
    void *output; /* of all its images */
} subject;

static void make_subject(const bk_target *t, const bk_case *c, subject *s) {
    *s = (subject){.target = t, .c = *c};
    bk_problem_make(&s->c, &s->problem);
    s->prepared = bk_prepare(t, &s->problem);
    s->expected = bk_model(&s->problem);
    s->output = xn_mem_alloc((size_t)s->problem.images * xn_conv_output_bytes(&s->problem.conv));
    ck_assert_ptr_nonnull(s->output);
}

static void free_subject(subject *s) {
    xn_mem_free(s->output);
    xn_mem_free(s->expected);
    s->target->backend->weights_free(s->prepared);
    bk_problem_free(&s->problem);
}

static xn_program *program_for(const subject *s, int64_t images) {
    xn_program *made = NULL;
    xn_error error = {0};
    bk_expect_ok(
        s->target, &s->problem, "plan",
        bk_program_create(s->target, s->target->stream, &s->problem.conv, images, &made, &error),
        &error);
    return made;
}

/* Runs the first `images` images in `items` items, and judges them by the model. */
static void run_and_judge(const subject *s, xn_program *program, int64_t images, int items) {
    const xn_prepared *const prepared[] = {s->prepared};
    const bk_problem *p = &s->problem;
    bk_batch batch;
    xn_error error = {0};
    xn_run_times times;
    bk_expect_ok(s->target, p, "ready", xn_program_ready(program, prepared, &error), &error);
    bk_batch_make(s->target, p, &p->conv, images, items, &batch);
    bk_batch_poison(&batch, &p->conv);
    bk_expect_ok(s->target, p, "run",
                 xn_program_run(program, prepared, batch.items, batch.count, &times, &error),
                 &error);
    bk_batch_collect(&batch, &p->conv, s->output);
    bk_batch_free(&batch);
    bk_judge(s->target, p, s->output, images, NULL, s->expected);
}

/* One plan for five images serves any number up to five, in any split, with any weights of its
 * shape: nothing of one run is left in the next. */
START_TEST(one_plan_many_runs) {
    static const struct {
        int64_t images;
        int items;
    } runs[] = {{5, 1}, {1, 1}, {3, 2}, {2, 2}, {5, 5}, {4, 3}, {1, 1}, {5, 2}};
    const bk_target *t = bk_target_open(_i / 2);
    if (!t)
        return;
    bk_case c = usual_case(_i % 2, 5);
    subject subjects[2];
    make_subject(t, &c, &subjects[0]);
    c.seed += 1000;
    make_subject(t, &c, &subjects[1]);
    ck_assert(!memcmp(&subjects[0].problem.conv, &subjects[1].problem.conv, sizeof(xn_conv)));
    xn_program *program = program_for(&subjects[0], 5);
    for (size_t i = 0; i < 2 * sizeof runs / sizeof *runs; i++)
        run_and_judge(&subjects[(i / 2 + i) % 2], program, runs[i / 2].images, runs[i / 2].items);
    xn_program_free(program);
    free_subject(&subjects[0]);
    free_subject(&subjects[1]);
}
END_TEST

/* Plans of one stream live side by side: making a larger one moves the shared workspace, and the
 * smaller ones made before, and after freeing others, must still find theirs. */
START_TEST(plans_share_a_stream) {
    enum { PLANS = 5 };
    static const int64_t sizes[PLANS] = {4, 9, 40, 3, 25};
    const bk_target *t = bk_target_open(_i);
    if (!t)
        return;
    subject subjects[PLANS];
    xn_program *programs[PLANS];
    for (int k = 0; k < PLANS; k++) {
        bk_case c = usual_case(k % 2, 2);
        c.height = sizes[k];
        c.seed = (uint64_t)k;
        make_subject(t, &c, &subjects[k]);
        programs[k] = program_for(&subjects[k], 2);
        for (int j = 0; j <= k; j++)
            run_and_judge(&subjects[j], programs[j], 2, 1);
    }
    for (int k = 0; k < PLANS; k++) { /* freed in another order than made */
        int gone = (k * 3 + 2) % PLANS;
        xn_program_free(programs[gone]);
        programs[gone] = NULL;
        for (int j = 0; j < PLANS; j++)
            if (programs[j])
                run_and_judge(&subjects[j], programs[j], 2, 2);
    }
    for (int k = 0; k < PLANS; k++)
        free_subject(&subjects[k]);
}
END_TEST

/* ---- threads ---- */

enum { WORKERS = 3, ROUNDS = 6, WORKER_IMAGES = 3 };

/* One thread's share. Check's assertions are not for other threads: it records, main judges. */
typedef struct worker {
    const bk_target *target;
    const bk_problem *problem;
    const xn_prepared *prepared;
    bk_batch batch;
    char *outputs; /* of each round */
    size_t bytes;  /* of one round */
    xn_status status;
    xn_error error;
} worker;

static void *work(void *context) {
    worker *w = context;
    const xn_backend *b = w->target->backend;
    xn_stream_options options = {.threads = 2};
    xn_stream *stream = NULL;
    xn_program *program = NULL;
    xn_run_times times;
    w->status = b->stream_create(w->target->device, &options, &stream, &w->error);
    for (int round = 0; round < ROUNDS && !w->status; round++) {
        w->status = bk_program_create(w->target, stream, &w->problem->conv, WORKER_IMAGES, &program,
                                      &w->error);
        if (!w->status)
            w->status = xn_program_ready(program, (const xn_prepared *[]){w->prepared}, &w->error);
        if (!w->status)
            w->status = xn_program_run(program, (const xn_prepared *[]){w->prepared},
                                       w->batch.items, w->batch.count, &times, &w->error);
        char *to = w->outputs + (size_t)round * w->bytes;
        for (size_t i = 0; i < w->batch.count && !w->status; i++) {
            size_t bytes =
                (size_t)w->batch.items[i].images * xn_conv_output_bytes(&w->problem->conv);
            memcpy(to, w->batch.items[i].output, bytes);
            memset(w->batch.items[i].output, 0xee, bytes);
            to += bytes;
        }
        xn_program_free(program);
        program = NULL;
    }
    b->stream_free(stream);
    return NULL;
}

/* Streams run at once on one device, sharing prepared weights; a canary runs beside them. */
START_TEST(streams_at_once) {
    const bk_target *t = bk_target_open(_i / 2);
    if (!t)
        return;
    bk_case c = usual_case(_i % 2, WORKER_IMAGES);
    subject s;
    make_subject(t, &c, &s);
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    xn_error error = {0};
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.target = t, .problem = &s.problem, .prepared = s.prepared};
        workers[i].bytes = WORKER_IMAGES * xn_conv_output_bytes(&s.problem.conv);
        workers[i].outputs = xn_mem_zalloc(ROUNDS, workers[i].bytes);
        ck_assert_ptr_nonnull(workers[i].outputs);
        bk_batch_make(t, &s.problem, &s.problem.conv, WORKER_IMAGES, 1 + i, &workers[i].batch);
    }
    for (int i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    xn_status canary = t->backend->device_canary(t->device, &error);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_msg(canary == XN_OK, "canary: %s", error.message);
    for (int i = 0; i < WORKERS; i++) {
        bk_expect_ok(t, &s.problem, "worker", workers[i].status, &workers[i].error);
        for (int round = 0; round < ROUNDS; round++)
            bk_judge(t, &s.problem, workers[i].outputs + (size_t)round * workers[i].bytes,
                     WORKER_IMAGES, NULL, s.expected);
        bk_batch_free(&workers[i].batch);
        xn_mem_free(workers[i].outputs);
    }
    free_subject(&s);
}
END_TEST

/* ---- memory ---- */

typedef struct made {
    xn_prepared *prepared;
    xn_stream *stream;
    xn_program *program;
} made;

static xn_status make_all(const bk_target *t, const bk_problem *p, made *m, xn_error *error) {
    const xn_backend *b = t->backend;
    xn_stream_options options = {.threads = 1};
    *m = (made){0};
    xn_status status = b->weights_prepare(t->device, p->weights, &m->prepared, error);
    if (!status)
        status = b->stream_create(t->device, &options, &m->stream, error);
    if (!status)
        status = bk_program_create(t, m->stream, &p->conv, 2, &m->program, error);
    if (!status)
        status = xn_program_ready(m->program, (const xn_prepared *[]){m->prepared}, error);
    return status;
}

static void free_all(const bk_target *t, made *m) {
    xn_program_free(m->program);
    t->backend->stream_free(m->stream);
    t->backend->weights_free(m->prepared);
}

/* Whatever allocation fails, the answer is NO_MEMORY and the device still works after it. The
 * leak sanitizer watches what is left behind. */
START_TEST(every_allocation_failed_in_turn) {
    const bk_target *t = bk_target_open(_i / 6);
    int kind = _i % 6;
    if (!t)
        return;
    bk_case c = usual_case(kind % 2, 2);
    c.params.mode = (xn_mode)(kind / 2);
    subject s;
    make_subject(t, &c, &s);
    made m;
    int fail = 0;
    for (xn_status status = XN_ERR_NO_MEMORY; status != XN_OK; fail++) {
        xn_countdown count = {.left = fail};
        xn_error error = {0};
        xn_mem_set_hook(xn_countdown_hook, &count);
        status = make_all(t, &s.problem, &m, &error);
        xn_mem_set_hook(NULL, NULL);
        if (status != XN_OK) {
            ck_assert_msg(status == XN_ERR_NO_MEMORY, "allocation %d: %s: %s", fail,
                          xn_status_name(status), error.message);
            ck_assert_str_ne(error.message, "");
            ck_assert_int_lt(fail, 500);
            free_all(t, &m);
        }
    }
    ck_assert_msg(fail >= 3, "only %d allocations", fail);
    xn_prepared *own = s.prepared;
    s.prepared = m.prepared;
    run_and_judge(&s, m.program, 2, 2);
    s.prepared = own;
    free_all(t, &m);
    free_subject(&s);
}
END_TEST

/* A plan allocates everything: not even its first run asks for memory. */
START_TEST(runs_allocate_nothing) {
    const bk_target *t = bk_target_open(_i / 6);
    int kind = _i % 6;
    if (!t)
        return;
    bk_case c = usual_case(kind % 2, 3);
    c.params.mode = (xn_mode)(kind / 2);
    c.input_datatype = XN_FP16;
    subject s;
    make_subject(t, &c, &s);
    const xn_prepared *const prepared[] = {s.prepared};
    xn_program *program = program_for(&s, 3);
    xn_error why = {0};
    bk_expect_ok(t, &s.problem, "ready", xn_program_ready(program, prepared, &why), &why);
    bk_batch batch;
    bk_batch_make(t, &s.problem, &s.problem.conv, 3, 2, &batch);
    for (int round = 0; round < 2; round++) {
        xn_countdown count = {.left = -1};
        xn_error error = {0};
        xn_run_times times;
        xn_mem_set_hook(xn_countdown_hook, &count);
        xn_status status =
            xn_program_run(program, prepared, batch.items, batch.count, &times, &error);
        xn_mem_set_hook(NULL, NULL);
        bk_expect_ok(t, &s.problem, "run", status, &error);
        ck_assert_msg(count.calls == 0, "%s: run %d allocated %d times", t->name, round,
                      count.calls);
    }
    bk_batch_free(&batch);
    xn_program_free(program);
    free_subject(&s);
}
END_TEST

XN_SUITE(backends_contract) {
    Suite *s = suite_create("backends_contract");
    TCase *t = xn_test_case(s, "contract", 180);
    int targets = bk_target_count();
    tcase_add_test(t, registry_finds_what_it_lists);
    tcase_add_loop_test(t, devices, 0, targets);
    tcase_add_loop_test(t, host_memory_and_null, 0, targets);
    tcase_add_loop_test(t, paths_have_names, 0, targets);
    tcase_add_loop_test(t, one_plan_many_runs, 0, 2 * targets);
    tcase_add_loop_test(t, plans_share_a_stream, 0, targets);
    tcase_add_loop_test(t, streams_at_once, 0, 2 * targets);
    tcase_add_loop_test(t, every_allocation_failed_in_turn, 0, 6 * targets);
    tcase_add_loop_test(t, runs_allocate_nothing, 0, 6 * targets);
    return s;
}
