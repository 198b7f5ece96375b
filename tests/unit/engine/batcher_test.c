/* The batching decision, as a table. */
#include "queue.h"
#include "xn_test.h"

static const struct {
    const char *what;
    xn_batch_policy policy;
    int64_t images, oldest;
    bool draining;
    int64_t now, wait;
} cases[] = {
    {"no delay: at once", {8, 0}, 1, 100, 0, 100, 0},
    {"young group waits the whole delay", {8, 50}, 1, 100, 0, 100, 50},
    {"half the delay is left", {8, 50}, 1, 100, 0, 125, 25},
    {"one nanosecond is left", {8, 50}, 7, 100, 0, 149, 1},
    {"due", {8, 50}, 1, 100, 0, 150, 0},
    {"overdue", {8, 50}, 1, 100, 0, 1000, 0},
    {"full", {8, 50}, 8, 100, 0, 100, 0},
    {"more than full", {8, 50}, 9, 100, 0, 100, 0},
    {"one image is a full batch", {1, 50}, 1, 100, 0, 100, 0},
    {"draining does not wait", {8, 50}, 1, 100, 1, 100, 0},
    {"a job from the future has not waited", {8, 50}, 1, 200, 0, 100, 50},
    {"negative delay: none", {8, -1}, 1, 100, 0, 100, 0},
    {"longest delay", {8, INT64_MAX}, 1, 0, 0, 1, INT64_MAX - 1},
    {"ages that overflow are due", {8, INT64_MAX}, 1, INT64_MIN, 0, INT64_MAX, 0},
};

START_TEST(table) {
    int64_t wait = xn_batch_wait_ns(&cases[_i].policy, cases[_i].images, cases[_i].oldest,
                                    cases[_i].draining, cases[_i].now);
    ck_assert_msg(wait == cases[_i].wait, "%s: waits %lld instead of %lld", cases[_i].what,
                  (long long)wait, (long long)cases[_i].wait);
}
END_TEST

XN_SUITE(batcher) {
    Suite *s = suite_create("batcher");
    TCase *t = tcase_create("table");
    tcase_add_loop_test(t, table, 0, sizeof cases / sizeof *cases);
    suite_add_tcase(s, t);
    return s;
}
