/* Runs every registered suite in one runner, a line each as they end; the last line is its totals.
 *   xnord-tests [--list] [SUITE ...]
 * environment: XNORD_TEST_SEED, XNORD_TEST_LOG (output.h), XNORD_TEST_SKIP (suites to leave out,
 * apart by spaces), CK_RUN_SUITE, CK_FORK, XNORD_BIN */
#include "xn_test.h"

#include "output.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static xn_test_suite *suites;

void xn_test_register(xn_test_suite *suite) {
    xn_test_suite **at = &suites;
    while (*at && strcmp((*at)->name, suite->name) < 0)
        at = &(*at)->next;
    suite->next = *at;
    *at = suite;
}

TCase *xn_test_case_create(const char *name) {
    TCase *t = (tcase_create)(name);
    tcase_add_checked_fixture(t, xn_output_test_begins, xn_output_test_passed);
    return t;
}

TCase *xn_test_case(Suite *suite, const char *name, double seconds) {
    TCase *t = xn_test_case_create(name);
    if (seconds > 0)
        tcase_set_timeout(t, seconds);
    suite_add_tcase(suite, t);
    return t;
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

static bool is_listed(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = list; at && (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static bool wanted(const char *name, int argc, char **argv) {
    const char *only = getenv("CK_RUN_SUITE");
    if ((only && strcmp(only, name) != 0) || is_listed(getenv("XNORD_TEST_SKIP"), name))
        return false;
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

/* The wanted suites, in one runner; NULL: none is. */
static SRunner *create_runner(int argc, char **argv, int *count) {
    SRunner *runner = NULL;
    *count = 0;
    for (const xn_test_suite *s = suites; s; s = s->next) {
        if (!wanted(s->name, argc, argv))
            continue;
        Suite *suite = s->make();
        if (runner)
            srunner_add_suite(runner, suite);
        else
            runner = srunner_create(suite);
        ++*count;
    }
    return runner;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A suite's name stands there while it runs, then how it went. In a pipe, whose reader takes whole
 * lines, the name has one of its own. */
static void run_suite(SRunner *runner, const char *name, int number, int count) {
    const int width = count > 99 ? 3 : 2;
    int run = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    double start = seconds();
    printf("[%*d/%d] %-18s", width, number, count, name);
    if (!isatty(STDOUT_FILENO))
        printf(" ...\n[%*d/%d] %-18s", width, number, count, name);
    fflush(stdout);
    xn_output_redirect();
    srunner_run(runner, name, NULL, CK_SILENT);
    xn_output_restore();
    run = srunner_ntests_run(runner) - run;
    failed = srunner_ntests_failed(runner) - failed;
    printf(" %5d passed", run - failed);
    if (failed)
        printf(", %d FAILED", failed);
    printf(", %.1f s\n", seconds() - start);
    if (failed)
        xn_output_show(name);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--list"))
        return list();
    int count, number = 0;
    SRunner *runner = create_runner(argc, argv, &count);
    if (!runner) {
        fprintf(stderr, "xnord-tests: no such suite; --list shows them\n");
        return 2;
    }
    if (!xn_output_open())
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %llu\n", (unsigned long long)xn_test_seed());
    for (const xn_test_suite *s = suites; s; s = s->next)
        if (wanted(s->name, argc, argv))
            run_suite(runner, s->name, ++number, count);
    srunner_print(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    printf("%d passed, %d failed\n", run - failed, failed);
    return failed || !run ? 1 : 0;
}
