/* Runs every registered suite in one runner; the last line is its totals.
 *   xnord-tests [--list] [SUITE ...]     environment: XNORD_TEST_SEED, CK_FORK, XNORD_BIN */
#include "xn_test.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static xn_test_suite *suites;

void xn_test_register(xn_test_suite *suite) {
    xn_test_suite **at = &suites;
    while (*at && strcmp((*at)->name, suite->name) < 0)
        at = &(*at)->next;
    suite->next = *at;
    *at = suite;
}

bool xn_test_count_down(void *countdown, size_t bytes) {
    (void)bytes;
    return atomic_fetch_sub((atomic_int *)countdown, 1) != 0;
}

void xn_test_mark(const char *file, int line) {
    enum { LAST = 8 };
    static _Thread_local struct {
        const char *file;
        int line;
    } last[LAST];
    static _Thread_local unsigned next;
    for (int i = 0; i < LAST; i++)
        if (last[i].line == line && last[i].file == file)
            return;
    last[next].file = file;
    last[next].line = line;
    next = (next + 1) % LAST;
    (_mark_point)(file, line);
}

uint64_t xn_test_seed(void) {
    const char *text = getenv("XNORD_TEST_SEED");
    return text ? strtoull(text, NULL, 0) : 20200728u;
}

static bool wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name))
            return true;
    return argc < 2;
}

static int list(void) {
    for (const xn_test_suite *s = suites; s; s = s->next)
        puts(s->name);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--list"))
        return list();
    SRunner *runner = NULL;
    for (const xn_test_suite *s = suites; s; s = s->next) {
        if (!wanted(s->name, argc, argv))
            continue;
        Suite *suite = s->make();
        if (runner)
            srunner_add_suite(runner, suite);
        else
            runner = srunner_create(suite);
    }
    if (!runner) {
        fprintf(stderr, "xnord-tests: no such suite; --list shows them\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %llu\n", (unsigned long long)xn_test_seed());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    printf("%d passed, %d failed\n", run - failed, failed);
    return failed || !run ? 1 : 0;
}
