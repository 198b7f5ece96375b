/* The case table and the random cases on every backend of this build that this machine has a device
 * for, on each by the plan's own choice of path and by every path in turn. */
#include "bk_run.h"

#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

enum { RANDOM_CHUNKS = 6, USUAL_RANDOM = 300 };

typedef struct case_list {
    bk_case *cases;
    int count, room;
} case_list;

static void add(const bk_case *c, void *context) {
    case_list *list = context;
    if (list->count == list->room) {
        int room = list->room ? 2 * list->room : 256;
        bk_case *cases = xn_mem_zalloc((size_t)room, sizeof *cases);
        ck_assert_ptr_nonnull(cases);
        for (int i = 0; i < list->count; i++)
            cases[i] = list->cases[i];
        xn_mem_free(list->cases);
        list->cases = cases;
        list->room = room;
    }
    list->cases[list->count++] = *c;
}

/* The targets that there are a device for, of the backends that `only` takes; how many. */
static int open_targets(const char *only, const bk_target *targets[BK_BACKENDS]) {
    int count = 0;
    for (int i = 0; i < bk_target_count(); i++) {
        const bk_target *target = bk_target_open(i);
        if (target && (!only || !strcmp(only, target->backend->name)))
            targets[count++] = target;
    }
    return count;
}

START_TEST(section) {
    const bk_section *s = &bk_sections[_i];
    const bk_target *targets[BK_BACKENDS];
    const int target_count = open_targets(s->only, targets);
    case_list list = {0};
    if (!target_count)
        return;
    s->each(add, &list);
    ck_assert_msg(list.count >= 20, "section %s has %d cases", s->name, list.count);
    int chosen = 0;
    for (int i = 0; i < list.count; i += bk_every())
        list.cases[chosen++] = list.cases[i];
    bk_check_all(targets, target_count, list.cases, chosen);
    xn_mem_free(list.cases);
}
END_TEST

static int random_cases(void) {
    const char *text = getenv("XNORD_TEST_RANDOM");
    int count = text ? atoi(text) : USUAL_RANDOM;
    return count > 0 ? count : 0;
}

/* Case i is the same whatever the count: its seed is the run's plus i, so a case that failed is
 * case 0 of a run with the seed that the failure names. */
START_TEST(random_problems) {
    const bk_target *targets[BK_BACKENDS];
    const int target_count = open_targets(NULL, targets), count = random_cases();
    case_list list = {0};
    for (int i = _i; i < count; i += RANDOM_CHUNKS) {
        bk_case c;
        bk_case_random(xn_test_seed() + (uint64_t)i, &c);
        add(&c, &list);
    }
    bk_check_all(targets, target_count, list.cases, list.count);
    xn_mem_free(list.cases);
}
END_TEST

static void report(const bk_target *target) {
    const bk_target *at = NULL;
    printf("%s: %d cases", target->name, bk_tally_of(target));
    for (int path = 0; (at = bk_target_forced(target, path)); path++)
        printf("%s %s %d", path ? "," : "; by path", at->path, bk_tally_of(at));
    printf("\n");
}

/* The last test of a backend: a path that its device has and that no case took is not tested. */
START_TEST(every_path_ran) {
    const bk_target *target = bk_target_open(_i), *at = NULL;
    if (!target)
        return;
    report(target);
    for (int path = 0; (at = bk_target_forced(target, path)); path++)
        ck_assert_msg(bk_tally_of(at) > 0, "no case ran on %s", at->name);
}
END_TEST

START_TEST(random_report) {
    const bk_target *target = bk_target_open(_i);
    if (!target)
        return;
    report(target);
    ck_assert_int_eq(bk_tally_of(target), random_cases());
}
END_TEST

XN_SUITE(backends) {
    bk_tally_start();
    Suite *s = suite_create("backends");
    TCase *t = bk_tally_case(s, "table");
    tcase_add_loop_test(t, section, 0, bk_section_count);
    tcase_add_loop_test(t, every_path_ran, 0, bk_target_count());
    return s;
}

/* A suite of its own, to be run for longer: XNORD_TEST_RANDOM=10000 xnord-tests backends_random */
XN_SUITE(backends_random) {
    bk_tally_start();
    Suite *s = suite_create("backends_random");
    TCase *t = bk_tally_case(s, "random");
    tcase_add_loop_test(t, random_problems, 0, RANDOM_CHUNKS);
    tcase_add_loop_test(t, random_report, 0, bk_target_count());
    return s;
}
