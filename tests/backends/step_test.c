/* step_test.c: random steps of every kind, datatype, layout, part of a tensor and epilogue, on
 * every backend that has all kinds, against ref. Values are small multiples of 1/4, factors powers
 * of 2 and half of the means those of a power of 2 of values, so that all kinds but sigmoid and
 * softmax are exact and equal; NaN, infinities and zeros of both signs are among the inputs. What a
 * step does not write stays as it was. Outputs are the same bit by bit on one thread and on
 * several, and of an image alone. */
#include "bk_step.h"

#include <inttypes.h>
#include <string.h>

enum { STEPS = 800, PARTS = 2, LARGE_EVERY = 40 };

static bool same_bits(const bk_written *a, const bk_written *b) {
    return !memcmp(a->real, b->real, a->real_bytes) && !memcmp(a->bits, b->bits, a->bits_bytes);
}

static void set_threads(const bk_target *t, int threads) {
    if (t->backend->stream_set_threads)
        t->backend->stream_set_threads(t->stream, threads);
}

static void check_target(const bk_target *t, bk_step *s, const bk_written *right) {
    bk_written got, again;
    set_threads(t, 1);
    if (!bk_step_run(t, s, s->images, &got))
        return;
    bk_step_expect(t->name, s, &got, right);
    set_threads(t, 3);
    for (int64_t batch = s->images; batch > 0; batch = batch > 1 ? 1 : 0) {
        ck_assert(bk_step_run(t, s, batch, &again));
        ck_assert_msg(same_bits(&got, &again),
                      "%s: other bits in batches of %d on 3 threads: seed %" PRIu64, t->name,
                      (int)batch, s->seed);
        bk_written_free(&again);
    }
    bk_written_free(&got);
}

/* Other kinds have one way on each instruction set: a path of each set is enough for those. */
static bool is_wanted(const bk_target *forced, bk_step *s, int number) {
    const bool all = s->step.kind == XN_STEP_CONV || strcmp(forced->backend->name, "cpu") != 0 ||
                     !strncmp(forced->path, "real/", 5);
    return all && number % 4 == 0;
}

static void check_subject(bk_step *s, int number) {
    const bk_target *ref = bk_target_ref(), *forced;
    bk_written right;
    ck_assert(bk_step_run(ref, s, s->images, &right));
    for (int i = 0; i < bk_target_count(); i++) {
        const xn_backend *b = xn_backend_all()[i];
        const bk_target *t = NULL;
        if (!strcmp(b->name, "ref") || !b->in_place || !b->parts ||
            !(b->kinds >> s->step.kind & 1) || !(t = bk_target_open(i)))
            continue;
        check_target(t, s, &right);
        for (int path = 0; (forced = bk_target_forced(t, path)); path++)
            if (is_wanted(forced, s, number))
                check_target(forced, s, &right);
    }
    bk_written_free(&right);
}

START_TEST(random_steps) {
    static const xn_step_kind kinds[] = {XN_STEP_CONV,     XN_STEP_MAX_POOL, XN_STEP_AVG_POOL,
                                         XN_STEP_MAP,      XN_STEP_MUL,      XN_STEP_SIGMOID,
                                         XN_STEP_QUANTIZE, XN_STEP_SOFTMAX,  XN_STEP_TOP_K};
    const xn_step_kind kind = kinds[_i / PARTS];
    for (int n = _i % PARTS; n < STEPS; n += PARTS * bk_every()) {
        bk_step s;
        const uint64_t seed = xn_test_seed() + (uint64_t)kind * 1000003 + (uint64_t)n * 7919;
        bk_step_random(kind, seed, n % LARGE_EVERY == 0, &s);
        check_subject(&s, n / PARTS);
        bk_step_free(&s);
    }
}
END_TEST

XN_SUITE(backends_steps) {
    Suite *s = suite_create("backends_steps");
    TCase *t = xn_test_case(s, "steps", 300);
    tcase_add_loop_test(t, random_steps, 0, (XN_STEP_STEM + 1) * PARTS);
    return s;
}
