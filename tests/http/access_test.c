/* The access log: a line for every request, whatever became of it, that no client can forge; and
 * the lines about keys that were refused. */
#include "client/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY "right-key-0123456789abcdef"
#define WRONG "wrong-key-0123456789abcdef"

static const char conv[] = "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": "
                           "[2]}, \"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", "
                           "\"data\": [3]}}";
#define CONV_LENGTH (sizeof conv - 1)

/* The line of the access log with that mark, waited for; free(). Ids that the daemon makes are of
 * hexadecimal digits: a mark has others. */
static char *line_of(const xt_daemon *d, const char *mark) {
    ck_assert_msg(xt_daemon_log_wait(d, mark), "no line with '%s'", mark);
    char *log = xt_daemon_log(d), *found = NULL;
    for (char *line = log, *rest = NULL; (line = strtok_r(line, "\n", &rest)); line = NULL)
        if (!found && strstr(line, mark))
            found = strdup(line);
    free(log);
    ck_assert(found != NULL);
    return found;
}

static int port_of(const xt_conn *conn) {
    struct sockaddr_in own = {.sin_port = 0};
    socklen_t length = sizeof own;
    ck_assert(!getsockname(conn->fd, (struct sockaddr *)&own, &length));
    return ntohs(own.sin_port);
}

START_TEST(text_lines) {
    xt_conn conn = {.fd = -1};
    xt_response response;
    char expected[256];
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--access-log", "text"));
    ck_assert(xt_connect(&conn, d));
    xt_result got =
        xt_request(&conn, "POST", "/conv", "X-Request-Id: r1\r\nContent-Type: application/json\r\n",
                   conv, CONV_LENGTH, &response);
    ck_assert(got == XT_GOT && response.status == 200);
    char *line = line_of(d, "id=r1");
    snprintf(expected, sizeof expected,
             " access 127.0.0.1:%d \"POST /conv\" 200 in=%zu out=%zu ms=", port_of(&conn),
             CONV_LENGTH, response.length);
    ck_assert_msg(strstr(line, expected) != NULL, "'%s' lacks '%s'", line, expected);
    ck_assert(strtod(strstr(line, "ms=") + 3, NULL) > 0);
    xt_response_free(&response);
    free(line);
    ck_assert(
        xt_send_text(&conn, "HEAD /v2?secret=1 HTTP/1.1\r\nHost: a\r\nX-Request-Id: r2\r\n\r\n"));
    ck_assert_int_eq(xt_receive(&conn, true, false, &response), XT_GOT);
    xt_response_free(&response);
    line = line_of(d, "id=r2");
    ck_assert_msg(strstr(line, "\"HEAD /v2\" 200 in=0 out=0 ") != NULL, "%s", line);
    free(line);
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* Answered by nobody, refused before any route: all have their line. */
START_TEST(refused_and_broken_requests) {
    static const struct {
        const char *request, *mark, *expected;
    } cases[] = {
        {"GET /nowhere HTTP/1.1\r\nHost: a\r\nX-Request-Id: broken-1\r\n\r\n", "id=broken-1",
         "\"GET /nowhere\" 404 in=0 "},
        {"PATCH /conv HTTP/1.1\r\nHost: a\r\nX-Request-Id: broken-2\r\n\r\n", "id=broken-2",
         "\"PATCH /conv\" 405 in=0 "},
        {"POST /conv HTTP/1.1\r\nHost: a\r\nX-Request-Id: broken-3\r\nContent-Length: 1\r\n"
         "Content-Length: 1\r\n\r\nx",
         "id=broken-3", "\"POST /conv\" 400 in="},
        /* The library may refuse it before it hands over method and id. */
        {"POST /coded HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", " /coded\" ",
         " /coded\" "},
        {"POST /conv HTTP/1.1\r\nHost: a\r\nX-Request-Id: broken-5\r\nContent-Type: "
         "application/json\r\n"
         "Content-Length: 10\r\n\r\n{\"in",
         "id=broken-5", "\"POST /conv\" 0 in=4 out=0 "},
        {"GET /cut HTTP/1.1\r\nHost: a\r\nX-Requ", "\"- /cut\"", "\"- /cut\" 0 in=0 out=0 "},
    };
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--access-log", "text"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xt_conn conn;
        xt_response response = {0};
        ck_assert(xt_connect(&conn, d));
        ck_assert(xt_send_text(&conn, cases[i].request));
        if (!strstr(cases[i].expected, " 0 in="))
            ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
        xt_response_free(&response);
        xt_disconnect(&conn);
        char *line = line_of(d, cases[i].mark);
        ck_assert_msg(strstr(line, cases[i].expected) != NULL, "'%s' lacks '%s'", line,
                      cases[i].expected);
        free(line);
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* A path that would end the line, its field or the JSON string stays within it. */
START_TEST(json_lines_that_nobody_forges) {
    static const char *const paths[] = {
        "/a%22,%22status%22:200,%22x%22:%22",
        "/b%0A{%22time%22:%22now%22}",
        "/c%ff%fe%01%7f",
        "/d%e2%80%ae%5c%5c%22",
    };
    xt_response response;
    char id[40];
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--backend", "cpu", "--access-log", "json", "--log-format", "json"));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(id, sizeof id, "X-Request-Id: forged-%zu\r\n", i);
        xt_fetch(d, "GET", paths[i], id, NULL, 0, &response);
        ck_assert_int_eq(response.status, 404);
        snprintf(id, sizeof id, "\"forged-%zu\"", i);
        char *line = line_of(d, id);
        ck_assert_msg(xt_json_valid(line), "%s", line);
        ck_assert_msg(xt_json_number(line, "status") == 404 && xt_json_is(line, "method", "GET") &&
                          xt_json_number(line, "bytes_in") == 0 &&
                          xt_json_number(line, "bytes_out") == (double)response.length &&
                          xt_json_is(line, "level", "access") &&
                          strstr(line, "\"delivered\": true"),
                      "%s", line);
        xt_response_free(&response);
        free(line);
    }
    char *log = xt_daemon_log(d);
    for (char *line = log, *rest = NULL; (line = strtok_r(line, "\n", &rest)); line = NULL)
        ck_assert_msg(xt_json_valid(line) && xt_json_at(line, "time"), "%s", line);
    free(log);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

START_TEST(text_lines_that_nobody_forges) {
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--access-log", "text"));
    xt_fetch(d, "GET", "/x%22%20200%20in=0%0Aforged%1b[31m", "X-Request-Id: t1=2\r\n", NULL, 0,
             &response);
    xt_response_free(&response);
    char *line = line_of(d, "id=t1");
    ck_assert_msg(strstr(line, "\"GET /x\\u0022 200 in=0\\nforged\\u001b[31m\" 404 in=0 "), "%s",
                  line);
    ck_assert_msg(strstr(line, "id=t1\\u003d2") != NULL, "%s", line);
    free(line);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

START_TEST(off_by_default) {
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu"));
    xt_fetch(d, "GET", "/v2", "X-Request-Id: quiet\r\n", NULL, 0, &response);
    xt_response_free(&response);
    kill(d->pid, SIGTERM);
    ck_assert(xt_daemon_log_wait(d, "goodbye"));
    char *log = xt_daemon_log(d);
    ck_assert_msg(!strstr(log, "access") && !strstr(log, "quiet"), "%s", log);
    free(log);
    ck_assert_int_eq(xt_daemon_wait(d), 0);
}
END_TEST

/* ---- refused keys ---- */

static int status_of(xt_conn *conn, const char *method, const char *target, const char *headers,
                     xt_response *response) {
    xt_result got = xt_request(conn, method, target, headers, NULL, 0, response);
    return got == XT_GOT ? response->status : 0;
}

/* How many refusals a log tells of, in lines of their own and in counts. */
static int told_of(const char *log, int *lines) {
    int all = 0;
    *lines = 0;
    for (const char *at = log; (at = strstr(at, " key from 127.0.0.1:")); at++)
        ++*lines;
    for (const char *at = log; (at = strstr(at, " more requests with a wrong key")); at++) {
        const char *number = at;
        while (number > log && number[-1] >= '0' && number[-1] <= '9')
            number--;
        all += atoi(number);
    }
    return all + *lines;
}

START_TEST(refused_keys_are_logged_at_a_bounded_rate) {
    enum { COUNT = 300 };
    char path[64], expected[80];
    xt_conn conn = {.fd = -1};
    xt_response response;
    int lines = 0, told = 0;
    xt_make_file(path, sizeof path, KEY "\n");
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--api-keys-file", path));
    ck_assert(xt_connect(&conn, d));
    int64_t begin = xt_now_ms();
    for (int i = 0; i < COUNT; i++) {
        const char *headers = i ? "X-Request-Id: attempt\r\nAuthorization: Bearer " WRONG "\r\n"
                                : "X-Request-Id: attempt\r\n";
        ck_assert_int_eq(status_of(&conn, "GET", i % 2 ? "/v2" : "/no%0Away", headers, &response),
                         401);
        xt_response_free(&response);
    }
    int64_t seconds = (xt_now_ms() - begin) / 1000 + 2;
    char *log = NULL;
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; told < COUNT && xt_now_ms() < end;) {
        free(log);
        xt_nap();
        log = xt_daemon_log(d);
        told = told_of(log, &lines);
    }
    ck_assert_msg(told == COUNT && lines >= 10 && lines <= 10 * seconds, "%d told, %d lines: %s",
                  told, lines, log);
    snprintf(expected, sizeof expected, "no key from 127.0.0.1:%d: GET /no\\nway id=attempt",
             port_of(&conn));
    ck_assert_msg(strstr(log, expected) && strstr(log, "a wrong key from") &&
                      !strstr(log, "key-0123"),
                  "%s", log);
    free(log);
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    unlink(path);
}
END_TEST

/* It is one of the names that pages may use, whatever it is. */
START_TEST(the_machines_own_name) {
    char machine[256] = "", headers[300];
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu"));
    ck_assert(!gethostname(machine, sizeof machine - 1));
    snprintf(headers, sizeof headers, "GET /v2 HTTP/1.1\r\nHost: %s:8080\r\n\r\n", machine);
    xt_conn conn;
    ck_assert(xt_connect(&conn, d) && xt_send_text(&conn, headers));
    ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
    ck_assert_int_eq(response.status, 200);
    xt_response_free(&response);
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

XN_SUITE(http_access) {
    Suite *s = suite_create("http_access");
    TCase *t = tcase_create("access");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, text_lines);
    tcase_add_test(t, refused_and_broken_requests);
    tcase_add_test(t, json_lines_that_nobody_forges);
    tcase_add_test(t, text_lines_that_nobody_forges);
    tcase_add_test(t, off_by_default);
    tcase_add_test(t, the_machines_own_name);
    tcase_add_test(t, refused_keys_are_logged_at_a_bounded_rate);
    suite_add_tcase(s, t);
    return s;
}
