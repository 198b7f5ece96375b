/* log_test.c: what reaches fd 2. Each test puts a pipe or a file in its place; the original is
 * put back by capture_end, so that the runner can still report. */
#include "log.h"
#include "xn_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int saved_stderr = -1, capture_fd = -1;
static char captured[1 << 20];

static void capture_begin(void) {
    char path[] = "/tmp/xnord-log-XXXXXX";
    capture_fd = mkstemp(path);
    ck_assert_int_ge(capture_fd, 0);
    unlink(path);
    ck_assert_int_eq(fcntl(capture_fd, F_SETFL, O_APPEND), 0);
    saved_stderr = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(capture_fd, STDERR_FILENO), 0);
}

static const char *capture_end(void) {
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    ssize_t length = pread(capture_fd, captured, sizeof captured - 1, 0);
    close(capture_fd);
    captured[length > 0 ? length : 0] = 0;
    return captured;
}

/* "2026-11-21T02:45:01.123Z" */
static bool is_timestamp(const char *at) {
    for (const char *p = "dddd-dd-ddTdd:dd:dd.dddZ"; *p; p++, at++)
        if (*p == 'd' ? *at < '0' || *at > '9' : *at != *p)
            return false;
    return true;
}

/* The line after its timestamp. */
static const char *log_one(xn_log_format format, const char *id, const char *message) {
    xn_log_init(format, XN_LOG_DEBUG);
    capture_begin();
    xn_log(XN_LOG_INFO, id, "%s", message);
    const char *line = capture_end();
    size_t before = format == XN_LOG_JSON ? strlen("{\"time\": \"") : 0;
    ck_assert_msg(is_timestamp(line + before), "%s", line);
    return line + before + 24;
}

static const struct {
    const char *id, *message, *text, *json;
} lines[] = {
    {NULL, "ready", " info  ready\n", "\", \"level\": \"info\", \"message\": \"ready\"}\n"},
    {"r-1", "done", " info  done id=r-1\n",
     "\", \"level\": \"info\", \"message\": \"done\", \"id\": \"r-1\"}\n"},
    {NULL, "", " info  \n", "\", \"level\": \"info\", \"message\": \"\"}\n"},
    {NULL, "a\nb\r\tc", " info  a\\nb\\r\\tc\n",
     "\", \"level\": \"info\", \"message\": \"a\\nb\\r\\tc\"}\n"},
    {NULL, "say \"x\\y\"", " info  say \"x\\\\y\"\n",
     "\", \"level\": \"info\", \"message\": \"say \\\"x\\\\y\\\"\"}\n"},
    {NULL, "\x1b[31mred\x7f", " info  \\u001b[31mred\\u007f\n",
     "\", \"level\": \"info\", \"message\": \"\\u001b[31mred\\u007f\"}\n"},
    {NULL, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
     " info  caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n",
     "\", \"level\": \"info\", \"message\": \"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"}\n"},
    /* a lone byte, an overlong '/', a surrogate, one past U+10FFFF, a sequence cut short */
    {NULL, "\xff", " info  \\xff\n", "\", \"level\": \"info\", \"message\": \"\\\\xff\"}\n"},
    {NULL, "\xc0\xaf", " info  \\xc0\\xaf\n",
     "\", \"level\": \"info\", \"message\": \"\\\\xc0\\\\xaf\"}\n"},
    {NULL, "\xed\xa0\x80", " info  \\xed\\xa0\\x80\n",
     "\", \"level\": \"info\", \"message\": \"\\\\xed\\\\xa0\\\\x80\"}\n"},
    {NULL, "\xf4\x90\x80\x80", " info  \\xf4\\x90\\x80\\x80\n",
     "\", \"level\": \"info\", \"message\": \"\\\\xf4\\\\x90\\\\x80\\\\x80\"}\n"},
    {NULL, "x\xe2\x82", " info  x\\xe2\\x82\n",
     "\", \"level\": \"info\", \"message\": \"x\\\\xe2\\\\x82\"}\n"},
    /* C1 controls, line separators, direction overrides */
    {NULL, "\xc2\x85\xe2\x80\xa8\xe2\x80\xae", " info  \\u0085\\u2028\\u202e\n",
     "\", \"level\": \"info\", \"message\": \"\\u0085\\u2028\\u202e\"}\n"},
    {"a b=\"c\"\n", "x", " info  x id=a\\u0020b\\u003d\\u0022c\\u0022\\n\n",
     "\", \"level\": \"info\", \"message\": \"x\", \"id\": \"a b=\\u0022c\\u0022\\n\"}\n"},
};

START_TEST(lines_in_both_formats) {
    ck_assert_str_eq(log_one(XN_LOG_TEXT, lines[_i].id, lines[_i].message), lines[_i].text);
    const char *json = log_one(XN_LOG_JSON, lines[_i].id, lines[_i].message);
    const char *want = lines[_i].json;
    /* A quote may be written in either of JSON's two ways. */
    for (; *json && *want; json++, want++) {
        if (json[0] == '\\' && json[1] == 'u' && !strncmp(json, "\\u0022", 6) && want[0] == '\\' &&
            want[1] == '"') {
            json += 5;
            want += 1;
            continue;
        }
        ck_assert_msg(*json == *want, "at: %s\nwant: %s", json, want);
    }
    ck_assert_int_eq(*json, *want);
}
END_TEST

START_TEST(levels) {
    static const char *const names[] = {" debug ", " info  ", " warn  ", " error "};
    for (int least = XN_LOG_DEBUG; least <= XN_LOG_ERROR; least++) {
        xn_log_init(XN_LOG_TEXT, (xn_log_level)least);
        capture_begin();
        for (int level = XN_LOG_DEBUG; level <= XN_LOG_ERROR; level++)
            xn_log((xn_log_level)level, NULL, "n%d", level);
        const char *out = capture_end();
        for (int level = XN_LOG_DEBUG; level <= XN_LOG_ERROR; level++) {
            ck_assert_int_eq(xn_log_enabled((xn_log_level)level), level >= least);
            ck_assert_int_eq(strstr(out, names[level]) != NULL, level >= least);
        }
    }
}
END_TEST

START_TEST(errno_survives) {
    xn_log_init(XN_LOG_TEXT, XN_LOG_INFO);
    capture_begin();
    errno = ENOENT;
    xn_log(XN_LOG_WARN, NULL, "%s", "open failed");
    int after = errno;
    const char *out = capture_end();
    ck_assert_int_eq(after, ENOENT);
    ck_assert_ptr_nonnull(strstr(out, "open failed\n"));
}
END_TEST

/* Printable ASCII or valid UTF-8 without controls, in one line; in JSON the grammar of strings. */
static void check_line(const char *line, size_t length, bool json) {
    ck_assert_uint_gt(length, 0);
    ck_assert_uint_le(length, 4096);
    ck_assert_int_eq(line[length - 1], '\n');
    bool inside = false;
    int quotes = 0;
    for (size_t i = 0; i + 1 < length; i++) {
        unsigned char c = (unsigned char)line[i];
        ck_assert_msg(c >= 0x20 && c != 0x7f, "byte %02x at %zu", c, i);
        if (c >= 0x80) {
            int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
            ck_assert_msg(c >= 0xc2 && c <= 0xf4, "byte %02x at %zu", c, i);
            for (; more; more--)
                ck_assert_msg((line[++i] & 0xc0) == 0x80, "broken UTF-8 at %zu", i);
        } else if (json && inside && c == '\\') {
            c = (unsigned char)line[++i];
            ck_assert_msg(strchr("\"\\nrtu", c) != NULL, "escape \\%c at %zu", c, i);
            for (int hex = 0; c == 'u' && hex < 4; hex++)
                ck_assert_ptr_nonnull(strchr("0123456789abcdef", line[++i]));
        } else if (json && c == '"') {
            inside = !inside;
            quotes++;
        }
    }
    if (json) {
        ck_assert(!inside);
        ck_assert_int_eq(quotes, 16);
        ck_assert_int_eq(line[length - 2], '}');
    }
}

START_TEST(random_bytes_make_one_wellformed_line) {
    xn_rng rng = {xn_test_seed()};
    static char message[6000];
    char id[300];
    for (int round = 0; round < 600; round++) {
        bool json = round & 1, wide = round & 2;
        size_t n = xn_rng_below(&rng, round % 3 ? 200 : sizeof message);
        for (size_t i = 0; i < n; i++)
            message[i] = (char)(1 + xn_rng_below(&rng, wide ? 255 : 40));
        message[n] = 0;
        n = xn_rng_below(&rng, sizeof id);
        for (size_t i = 0; i < n; i++)
            id[i] = (char)(1 + xn_rng_below(&rng, 255));
        id[n] = 0;
        xn_log_init(json ? XN_LOG_JSON : XN_LOG_TEXT, XN_LOG_INFO);
        capture_begin();
        xn_log(XN_LOG_ERROR, id, "%s", message);
        const char *out = capture_end();
        ck_assert_msg(strlen(out) > 0 && strchr(out, '\n') == out + strlen(out) - 1,
                      "seed %llu round %d", (unsigned long long)xn_test_seed(), round);
        check_line(out, strlen(out), json);
    }
}
END_TEST

START_TEST(long_messages_are_cut_whole) {
    static char message[9001];
    for (int json = 0; json < 2; json++)
        for (size_t shift = 0; shift < 4; shift++) {
            memset(message, 'a', shift);
            for (size_t i = shift; i + 4 < sizeof message; i += 3)
                memcpy(message + i, "\xe2\x82\xac", 4);
            const char *out = log_one(json ? XN_LOG_JSON : XN_LOG_TEXT, "the-id", message);
            check_line(captured, strlen(captured), json);
            ck_assert_ptr_nonnull(
                strstr(out, json ? "...\", \"id\": \"the-id\"}\n" : "... id=the-id\n"));
            ck_assert_uint_gt(strlen(captured), 3000);
        }
}
END_TEST

#define THREADS 8
#define LINES 200

static void *log_many(void *argument) {
    int thread = (int)(intptr_t)argument;
    char pad[300];
    memset(pad, 'a' + thread, sizeof pad - 1);
    pad[sizeof pad - 1] = 0;
    for (int i = 0; i < LINES; i++)
        xn_log(XN_LOG_INFO, NULL, "%d:%d:%s.", thread, i, pad);
    return NULL;
}

START_TEST(lines_of_threads_do_not_mix) {
    pthread_t threads[THREADS];
    int next[THREADS] = {0};
    static char want[512];
    xn_log_init(XN_LOG_TEXT, XN_LOG_INFO);
    capture_begin();
    for (intptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *line = (char *)capture_end();
    int count = 0;
    for (char *end; (end = strchr(line, '\n')); line = end + 1, count++) {
        *end = 0;
        int thread = line[31] - '0';
        ck_assert_int_ge(thread, 0);
        ck_assert_int_lt(thread, THREADS);
        char pad[300];
        memset(pad, 'a' + thread, sizeof pad - 1);
        pad[sizeof pad - 1] = 0;
        snprintf(want, sizeof want, " info  %d:%d:%s.", thread, next[thread]++, pad);
        ck_assert_str_eq(line + 24, want);
    }
    ck_assert_int_eq(count, THREADS * LINES);
}
END_TEST

/* A pipe that nobody reads: the lines that do not fit are dropped, the caller goes on, and once
 * there is room again a line tells how many are missing. */
START_TEST(unread_pipe_drops_lines_and_says_so) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(fcntl(ends[1], F_SETPIPE_SZ, 8192), 0);
    int saved = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    xn_log_init(XN_LOG_TEXT, XN_LOG_INFO);
    for (int i = 0; i < 50; i++)
        xn_log(XN_LOG_INFO, NULL, "%0200d", i); /* would block for ever if it could */
    ssize_t first = read(ends[0], captured, sizeof captured - 1);
    xn_log(XN_LOG_INFO, NULL, "back");
    ssize_t second = read(ends[0], captured + 16384, sizeof captured - 16384 - 1);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[0]);
    close(ends[1]);
    ck_assert_int_gt(first, 0);
    ck_assert_int_gt(second, 0);
    captured[first] = captured[16384 + second] = 0;
    int written = 0;
    unsigned long missing = 0;
    for (const char *at = captured; (at = strchr(at, '\n')); at++)
        written++;
    const char *told = strstr(captured + 16384, " warn  ");
    ck_assert_ptr_nonnull(told);
    ck_assert_int_eq(sscanf(told, " warn  %lu log lines were dropped", &missing), 1);
    ck_assert_int_eq(written + (int)missing, 50);
    ck_assert_ptr_nonnull(strstr(captured + 16384, "back\n"));
}
END_TEST

START_TEST(closed_stderr_is_no_failure) {
    int saved = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    xn_log_init(XN_LOG_TEXT, XN_LOG_INFO);
    for (int i = 0; i < 3; i++)
        xn_log(XN_LOG_ERROR, NULL, "nobody hears this");
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    close(saved);
    ck_assert_ptr_null(strstr(log_one(XN_LOG_TEXT, NULL, "x"), "dropped"));
}
END_TEST

/* The limit of a file's size is as a full disk: it takes the beginning of a line. Once there is
 * room the line is finished before the next. */
START_TEST(a_line_cut_by_a_full_disk_is_finished) {
    struct rlimit limit, former;
    ck_assert(!getrlimit(RLIMIT_FSIZE, &former));
    signal(SIGXFSZ, SIG_IGN);
    xn_log_init(XN_LOG_TEXT, XN_LOG_INFO);
    char path[] = "/tmp/xnord-full-XXXXXX", text[1024] = "";
    int fd = mkstemp(path);
    xn_error error;
    ck_assert(fd >= 0 && !xn_log_open(path, &error));
    limit = former;
    limit.rlim_cur = 60;
    ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
    xn_log(XN_LOG_INFO, NULL, "the first line, which is longer than the file may be");
    xn_log(XN_LOG_INFO, NULL, "lost");
    ck_assert(!setrlimit(RLIMIT_FSIZE, &former));
    xn_log(XN_LOG_INFO, NULL, "the last line");
    ck_assert_int_gt(pread(fd, text, sizeof text - 1, 0), 0);
    close(fd);
    unlink(path);
    int count = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, count++)
        ck_assert_msg(is_timestamp(line), "%s", text);
    ck_assert_msg(count == 3 && strstr(text, "than the file may be\n") &&
                      strstr(text, "1 log lines were dropped") && strstr(text, "the last line\n"),
                  "%s", text);
}
END_TEST

XN_SUITE(log) {
    Suite *s = suite_create("log");
    TCase *t = tcase_create("log");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, lines_in_both_formats, 0, sizeof lines / sizeof lines[0]);
    tcase_add_test(t, levels);
    tcase_add_test(t, errno_survives);
    tcase_add_test(t, random_bytes_make_one_wellformed_line);
    tcase_add_test(t, long_messages_are_cut_whole);
    tcase_add_test(t, lines_of_threads_do_not_mix);
    tcase_add_test(t, unread_pipe_drops_lines_and_says_so);
    tcase_add_test(t, closed_stderr_is_no_failure);
    tcase_add_test(t, a_line_cut_by_a_full_disk_is_finished);
    suite_add_tcase(s, t);
    return s;
}
