/* The command line of the real binary, and starts that must fail with a clear word. What settings
 * mean, whichever of their sources they come from, is in tests/unit/config_test.c. */
#include "client/wire.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

START_TEST(version) {
    xt_buffer out = {0};
    ck_assert_int_eq(xt_run(XT_FLAGS("--version"), NULL, &out, NULL), 0);
    ck_assert_str_eq(out.data, "xnord " XN_VERSION "\n");
    xt_buffer_free(&out);
}
END_TEST

/* What the printing is made of: tests/unit/config_test.c. */
START_TEST(help_and_the_configuration_are_printed) {
    xt_buffer help = {0}, config = {0};
    ck_assert_int_eq(xt_run(XT_FLAGS("--help"), NULL, &help, NULL), 0);
    ck_assert_msg(strstr(help.data, "--check-config") != NULL, "%s", help.data);
    ck_assert_int_eq(xt_run(XT_FLAGS("--check-config", "--max-weights=7"),
                            XT_FLAGS("XNORD_QUEUE_DEPTH=12"), &config, NULL),
                     0);
    ck_assert_msg(strstr(config.data, "queue-depth = 12") && strstr(config.data, "weights = 7"),
                  "%s", config.data);
    xt_buffer_free(&help);
    xt_buffer_free(&config);
}
END_TEST

/* The instruction sets of the CPU: of each, that it is taken by name, in --list-devices and as the
 * label of /metrics, or refused with the names of those that there are. */
START_TEST(the_instruction_set_is_named_or_refused) {
    static const char *const sets[] = {"amx",  "avx512-vpopcnt", "avx512",
                                       "avx2", "neon",           "portable"};
    xt_buffer out = {0}, err = {0};
    char label[80];
    int status = xt_run(XT_FLAGS("--list-devices", "--cpu-isa", sets[_i]), NULL, &out, NULL);
    ck_assert_int_eq(status, 0);
    const char *line = strstr(out.data, "cpu ");
    bool here = line && strstr(line, sets[_i]);
    if (here) {
        xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--cpu-isa", sets[_i]));
        char *page = xt_get(d, "/metrics");
        snprintf(label, sizeof label, "{device=\"cpu\",instruction_set=\"%s\"} 1", sets[_i]);
        ck_assert_msg(strstr(page, label) != NULL, "no %s", label);
        free(page);
        ck_assert_int_eq(xt_daemon_stop(d), 0);
    } else {
        ck_assert_str_ne(sets[_i], "portable");
        status = xt_run(XT_FLAGS("--backend", "cpu", "--port", "0", "--cpu-isa", sets[_i]), NULL,
                        NULL, &err);
        ck_assert_int_eq(status, 1);
        ck_assert_msg(strstr(err.data, "--cpu-isa") && strstr(err.data, sets[_i]) &&
                          strstr(err.data, "portable"),
                      "%s", err.data);
    }
    xt_buffer_free(&out);
    xt_buffer_free(&err);
}
END_TEST

/* OpenMP may give fewer threads than it is asked for: the daemon takes what comes. */
START_TEST(fewer_openmp_threads_than_asked_for) {
    static const char *const variables[][2] = {
        {"OMP_THREAD_LIMIT", "1"}, {"OMP_THREAD_LIMIT", "2"}, {"OMP_DYNAMIC", "true"}};
    setenv(variables[_i][0], variables[_i][1], 1);
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--threads", "4"));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

static const struct {
    const char *flags[6];
    const char *variable;
    const char *words[3]; /* all must be in the message */
} refusals[] = {
    {{"--bogus"}, NULL, {"--bogus"}},
    {{"--allowed-hosts", "a.example,b:80"}, NULL, {"--allowed-hosts", "\"b:80\"", "port"}},
    {{"--allowed-origins", "https://a.example/"}, NULL, {"--allowed-origins", "path"}},
    {{"--allowed-origins", "a.example"}, NULL, {"--allowed-origins", "https://"}},
    {{"--config", "/nonexistent/file"}, NULL, {"--config names /nonexistent/file"}},
    {{NULL}, "XNORD_CONFIG=/nonexistent/file", {"XNORD_CONFIG names /nonexistent/file"}},
    {{NULL}, "XNORD_QUEUE_DEPTH=many", {"XNORD_QUEUE_DEPTH", "many"}},
};

START_TEST(bad_settings_are_named) {
    const char *flags[8] = {NULL};
    xt_buffer out = {0}, err = {0};
    for (int i = 0; i < 6 && refusals[_i].flags[i]; i++)
        flags[i] = refusals[_i].flags[i];
    const char *const environment[] = {refusals[_i].variable, NULL};
    int status = xt_run(flags, environment, &out, &err);
    ck_assert_msg(status != 0 && status < 1000, "exit %d", status);
    for (int i = 0; i < 3 && refusals[_i].words[i]; i++)
        ck_assert_msg(strstr(err.data, refusals[_i].words[i]) != NULL, "'%s' lacks '%s'", err.data,
                      refusals[_i].words[i]);
    xt_buffer_free(&out);
    xt_buffer_free(&err);
}
END_TEST

/* A function of libc or of the HTTP library that the program exports would stand in for the real
 * one in every library. */
START_TEST(no_function_is_exported) {
    const char *binary = getenv("XNORD_BIN");
    xt_buffer out = {0}, err = {0};
    int status =
        xt_run_program(XT_FLAGS("nm", "-D", "--defined-only", binary ? binary : "build/xnord"),
                       NULL, NULL, &out, &err);
    ck_assert_msg(!status, "nm: exit %d: %s", status, err.data);
    xt_append(&out, "\n", 1); /* of some linkers there is nothing at all */
    for (char *line = out.data, *rest = NULL; (line = strtok_r(line, "\n", &rest)); line = NULL) {
        char kind = 0;
        ck_assert_int_eq(sscanf(line, "%*x %c", &kind), 1);
        ck_assert_msg(strchr("BDRVbdrv", kind), "a function is exported: %s", line);
    }
    xt_buffer_free(&out);
    xt_buffer_free(&err);
}
END_TEST

START_TEST(a_port_in_use_is_an_error) {
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu"));
    char port[16];
    xt_buffer err = {0};
    snprintf(port, sizeof port, "%d", d->port);
    int status = xt_run(XT_FLAGS("--backend", "cpu", "--port", port), NULL, NULL, &err);
    ck_assert_msg(status == 1, "exit %d: %s", status, err.data);
    ck_assert_msg(strstr(err.data, port) && strstr(err.data, "in use"), "%s", err.data);
    xt_buffer_free(&err);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- start-up lines and logs ---- */

START_TEST(start_up_lines) {
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu"));
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d", d->port);
    ck_assert(xt_daemon_log_wait(d, "curl"));
    char *log = xt_daemon_log(d);
    const char *const words[] = {url, "backend cpu", "curl", "device cpu", XN_VERSION};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_msg(strstr(log, words[i]) != NULL, "no '%s' in: %s", words[i], log);
    free(log);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

XN_SUITE(http_flags) {
    Suite *s = suite_create("http_flags");
    TCase *t = tcase_create("flags");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, version);
    tcase_add_test(t, help_and_the_configuration_are_printed);
    tcase_add_loop_test(t, the_instruction_set_is_named_or_refused, 0, 6);
    tcase_add_loop_test(t, fewer_openmp_threads_than_asked_for, 0, 3);
    tcase_add_loop_test(t, bad_settings_are_named, 0, (int)(sizeof refusals / sizeof *refusals));
    tcase_add_test(t, no_function_is_exported);
    tcase_add_test(t, a_port_in_use_is_an_error);
    tcase_add_test(t, start_up_lines);
    suite_add_tcase(s, t);
    return s;
}
