/* bk_check.c: cases asked of targets. To know what is right takes most of the time, so it is worked
 * out once for all targets and paths, a chunk of cases at a time on all cores; then the targets run
 * the chunk, case by case, path by path. */
#include "bk_run.h"

#include "xn_mem.h"

enum { CHUNK = 64 };

/* A case and what is right. */
typedef struct question {
    bk_problem problem;
    void *reference; /* ref's output, FP32 or INT32; NULL when ref alone is asked */
    bk_expected *expected;
} question;

/* On a stream of its own: questions are made by several threads. */
static void *reference_of(const bk_target *ref, const bk_problem *problem) {
    xn_conv wide = problem->conv; /* what ref gives before a narrower output rounds it */
    bk_target own = *ref;
    xn_stream_options options = {0};
    xn_error error = {0};
    if (wide.epilogue.datatype == XN_FP16)
        wide.epilogue.datatype = XN_FP32;
    void *reference = xn_mem_alloc((size_t)problem->images * xn_conv_output_bytes(&wide));
    xn_status status = ref->backend->stream_create(ref->device, &options, &own.stream, &error);
    ck_assert_msg(reference && status == XN_OK, "no memory for a reference");
    bk_run(&own, problem, &wide, reference);
    ref->backend->stream_free(own.stream);
    return reference;
}

static void make_question(const bk_case *c, const bk_target *ref, bool with_reference,
                          question *out) {
    *out = (question){0};
    bk_problem_make(c, &out->problem);
    if (with_reference)
        out->reference = reference_of(ref, &out->problem);
    out->expected = bk_model(&out->problem);
}

static void free_question(question *q) {
    xn_mem_free(q->expected);
    xn_mem_free(q->reference);
    bk_problem_free(&q->problem);
}

/* reference: NULL for ref itself. */
static void ask(const bk_target *target, const question *q, const void *reference) {
    const bk_problem *problem = &q->problem;
    const xn_conv *conv = &problem->conv;
    const bk_target *at = target;
    bk_batch batch;
    void *got = xn_mem_alloc((size_t)problem->images * xn_conv_output_bytes(conv));
    ck_assert_ptr_nonnull(got);
    xn_prepared *prepared = bk_prepare(target, problem);
    bk_batch_make(target, problem, conv, problem->images, problem->c->items, &batch);
    int path = 0;
    do {
        if (bk_run_batch(at, &batch, conv, prepared, got)) {
            bk_judge(at, problem, got, problem->images, reference, q->expected);
            bk_tally_add(at);
        }
        at = bk_target_forced(target, path++);
    } while (at);
    bk_batch_free(&batch);
    target->backend->weights_free(prepared);
    xn_mem_free(got);
}

void bk_check_all(const bk_target *const *targets, int target_count, const bk_case *cases,
                  int count) {
    const bk_target *ref = bk_target_ref();
    question questions[CHUNK];
    bool with_reference = false;
    for (int t = 0; t < target_count; t++)
        with_reference = with_reference || targets[t] != ref;
    for (int first = 0; first < count; first += CHUNK) {
        int size = count - first < CHUNK ? count - first : CHUNK;
#pragma omp parallel for schedule(dynamic)
        for (int i = 0; i < size; i++)
            make_question(&cases[first + i], ref, with_reference, &questions[i]);
        for (int i = 0; i < size; i++) {
            for (int t = 0; t < target_count; t++)
                ask(targets[t], &questions[i], targets[t] == ref ? NULL : questions[i].reference);
            free_question(&questions[i]);
        }
    }
}

void bk_check(const bk_target *target, const bk_case *cases, int count) {
    bk_check_all(&target, 1, cases, count);
}
