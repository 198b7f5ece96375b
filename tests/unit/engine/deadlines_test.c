/* The heap of deadlines against a plain list: jobs come and go at random, from anywhere in it. */
#include "deadlines.h"
#include "xn_test.h"

enum { JOBS = 400, RESERVED = 10 };

/* The earliest of those that are in. */
static int64_t earliest(const xn_job *jobs, const bool *in) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < JOBS; i++)
        if (in[i] && jobs[i].deadline_ns < least)
            least = jobs[i].deadline_ns;
    return least;
}

static void check(const xn_deadlines *d, const xn_job *jobs, const bool *in, size_t count) {
    const xn_job *first = xn_deadlines_first(d);
    ck_assert_uint_eq(d->count, count);
    ck_assert_int_eq(!first, !count);
    if (first)
        ck_assert_int_eq(first->deadline_ns, earliest(jobs, in));
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_eq(d->heap[i]->deadline_slot, i);
        ck_assert_int_le(d->heap[i ? (i - 1) / 2 : 0]->deadline_ns, d->heap[i]->deadline_ns);
    }
}

/* _i: few deadlines, so that many are equal, or any. */
START_TEST(against_a_list) {
    static xn_job jobs[JOBS];
    bool in[JOBS] = {false}, reserved[JOBS];
    int reserved_count = 0;
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    xn_deadlines d;
    size_t count = 0;
    xn_deadlines_init(&d);
    ck_assert_int_eq(xn_deadlines_reserve(&d, RESERVED, NULL), XN_OK);
    ck_assert_ptr_null(xn_deadlines_first(&d));
    for (int step = 0; step < 20000; step++) {
        int at = (int)xn_rng_below(&rng, JOBS);
        /* It grows and shrinks in turn, to nothing and over the first capacity. */
        bool add = xn_rng_below(&rng, 100) < (step / 2500 % 2 ? 20u : 80u);
        if (add && !in[at]) {
            jobs[at].deadline_ns = (int64_t)xn_rng_below(&rng, _i ? 10 : 1000000);
            reserved[at] = reserved_count < RESERVED && xn_rng_below(&rng, 2);
            reserved_count += reserved[at];
            if (reserved[at])
                xn_deadlines_add_reserved(&d, &jobs[at]);
            else
                ck_assert_int_eq(xn_deadlines_add(&d, &jobs[at], NULL), XN_OK);
            in[at] = true;
            count++;
        } else if (!add && in[at]) {
            xn_deadlines_remove(&d, &jobs[at]);
            reserved_count -= reserved[at];
            in[at] = false;
            count--;
        }
        if (step % 16 == 0)
            check(&d, jobs, in, count);
    }
    for (xn_job *first; (first = xn_deadlines_first(&d)); count--) { /* in order */
        ck_assert_int_eq(first->deadline_ns, earliest(jobs, in));
        in[first - jobs] = false;
        xn_deadlines_remove(&d, first);
    }
    ck_assert_uint_eq(count, 0);
    xn_deadlines_clear(&d);
}
END_TEST

XN_SUITE(deadlines) {
    Suite *s = suite_create("deadlines");
    TCase *t = tcase_create("heap");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, against_a_list, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
