/* output.c: the file is a row of sections, one a test: a line, what was written, and a line that it
 * passed, with its name, which libcheck has only now. A test that fails, crashes or takes too long
 * never gets to the last. */
#include "output.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEGINS "==== a test\n"
#define PASSED "==== passed: "
#define LINES_SHOWN 40 /* of one section */

static int file = -1, saved_out = -1, saved_err = -1;
static off_t suite_start;

const char *xn_output_path(void) {
    const char *path = getenv("XNORD_TEST_LOG");
    return path && *path ? path : NULL;
}

bool xn_output_open(void) {
    const char *path = xn_output_path();
    if (!path)
        return true;
    file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    saved_out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    saved_err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (file < 0 || saved_out < 0 || saved_err < 0)
        fprintf(stderr, "xnord-tests: XNORD_TEST_LOG names %s: %s\n", path, strerror(errno));
    return file >= 0 && saved_out >= 0 && saved_err >= 0;
}

void xn_output_redirect(void) {
    if (file < 0)
        return;
    fflush(stdout);
    suite_start = lseek(file, 0, SEEK_END);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
}

void xn_output_restore(void) {
    if (file < 0)
        return;
    fflush(stdout);
    dup2(saved_out, STDOUT_FILENO);
    dup2(saved_err, STDERR_FILENO);
}

void xn_output_test_begins(void) {
    if (xn_output_path())
        dprintf(STDERR_FILENO, BEGINS);
}

void xn_output_test_passed(void) {
    fflush(stdout);
    if (xn_output_path())
        dprintf(STDERR_FILENO, PASSED "%s\n", tcase_name());
}

/* What was written since the last redirect; the caller frees it. */
static char *read_suite(void) {
    struct stat info;
    if (fstat(file, &info) || info.st_size <= suite_start)
        return NULL;
    size_t size = (size_t)(info.st_size - suite_start), have = 0;
    char *text = malloc(size + 1);
    while (text && have < size) {
        ssize_t n = pread(file, text + have, size - have, suite_start + (off_t)have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    if (text)
        text[have] = 0;
    return text;
}

static void show_last_lines(const char *from, const char *to) {
    const char *at = to;
    for (int lines = 0; at > from; at--)
        if (at[-1] == '\n' && ++lines > LINES_SHOWN)
            break;
    if (at > from)
        puts("     ... (more of it in the file)");
    fwrite(at, 1, (size_t)(to - at), stdout);
}

/* Of the section from `at`: its end, and whether its test passed. */
static const char *section_end(const char *at, bool *passed) {
    *passed = false;
    for (const char *line = strchr(at, '\n'); line; line = strchr(line, '\n')) {
        line++;
        if (!strncmp(line, PASSED, strlen(PASSED))) {
            *passed = true;
            line += strcspn(line, "\n");
            return line + (*line == '\n');
        }
        if (!strncmp(line, BEGINS, strlen(BEGINS)))
            return line;
    }
    return at + strlen(at);
}

void xn_output_show(const char *suite) {
    char *text = file < 0 ? NULL : read_suite();
    bool passed, shown = false;
    if (!text)
        return;
    printf("---- what %s wrote (all of it: %s)\n", suite, xn_output_path());
    for (const char *at = text, *end; *at; at = end) {
        end = section_end(at, &passed);
        if (!passed)
            show_last_lines(at, end);
        shown |= !passed;
    }
    if (!shown)
        show_last_lines(text, text + strlen(text));
    free(text);
}
