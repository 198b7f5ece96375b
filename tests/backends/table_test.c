/* The case table and the random cases on every target of this build that this machine has. */
#include "bk_run.h"

enum { RANDOM_CHUNKS = 6 };

typedef struct tally {
    const bk_target *target;
    int cases;
} tally;

static void check_one(const bk_case *c, void *context) {
    tally *t = context;
    bk_check(t->target, c);
    t->cases++;
}

/* One test for a section on a target: _i counts sections within targets. */
START_TEST(section) {
    const bk_section *s = &bk_sections[_i % bk_section_count];
    tally t = {bk_target_open(_i / bk_section_count), 0};
    if (!t.target)
        return;
    s->each(check_one, &t);
    ck_assert_msg(t.cases >= 20, "section %s has %d cases", s->name, t.cases);
}
END_TEST

static int random_cases(void) {
    const char *text = getenv("XNORD_TEST_RANDOM");
    int count = text ? atoi(text) : 300;
    return count > 0 ? count : 0;
}

/* Case i is the same whatever the count. */
START_TEST(random_problems) {
    const bk_target *target = bk_target_open(_i / RANDOM_CHUNKS);
    int count = random_cases();
    for (int i = _i % RANDOM_CHUNKS; target && i < count; i += RANDOM_CHUNKS) {
        bk_case c;
        bk_case_random(xn_test_seed() + (uint64_t)i, &c);
        bk_check(target, &c);
    }
}
END_TEST

/* One suite with a case of tests per target, so that a report names the backend. */
XN_SUITE(backends) {
    Suite *s = suite_create("backends");
    for (int target = 0; target < bk_target_count(); target++) {
        TCase *t = tcase_create(xn_backend_all()[target]->name);
        tcase_set_timeout(t, 600);
        tcase_add_loop_test(t, section, target * bk_section_count, (target + 1) * bk_section_count);
        tcase_add_loop_test(t, random_problems, target * RANDOM_CHUNKS,
                            (target + 1) * RANDOM_CHUNKS);
        suite_add_tcase(s, t);
    }
    return s;
}
