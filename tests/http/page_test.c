/* The page of a real daemon: its files, their headers, what browsers keep of them and what they may
 * do; which of it needs a key. What the page does, a browser tests: tests/page. */
#include "client/wire.h"
#include "coding.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KEY "a-key-0123456789abcdef"
enum { PAGE_BYTES = 60 * 1024, MOST = 1 << 20 };

static xt_daemon *daemon_;

static void start(void) {
    daemon_ = xt_daemon_start_shared(XT_NO_FLAGS);
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
}

static const struct {
    const char *path, *type, *begin;
    bool page; /* loaded by the page at / */
} files[] = {
    {"/", "text/html; charset=utf-8", "<!doctype html>", true},
    {"/docs", "text/html; charset=utf-8", "<!doctype html>", false},
    {"/page.css", "text/css; charset=utf-8", ":root", true},
    {"/page.js", "text/javascript; charset=utf-8", "", true},
    {"/docs.css", "text/css; charset=utf-8", "", false},
    {"/docs.js", "text/javascript; charset=utf-8", "", false},
    {"/icon.svg", "image/svg+xml", "<svg", true},
    {"/openapi.yaml", "application/yaml", "openapi: 3.1", false},
};
#define COUNT ((int)(sizeof files / sizeof *files))

static void fetch(const char *path, const char *headers, xt_response *response) {
    xt_fetch(daemon_, "GET", path, headers, NULL, 0, response);
}

static void check_policy(const xt_response *response) {
    static const struct {
        const char *name, *value;
    } wanted[] = {{"X-Content-Type-Options", "nosniff"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cache-Control", "no-cache"},
                  {"Vary", "Accept-Encoding"}};
    static const char *const clauses[] = {"default-src 'none';", "script-src 'self';",
                                          "style-src 'self';",   "frame-ancestors 'none';",
                                          "base-uri 'none';",    "form-action 'none';"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const char *value = XT_HEADER(response, wanted[i].name);
        ck_assert_msg(value && !strcmp(value, wanted[i].value), "%s: %s", wanted[i].name,
                      response->head);
    }
    const char *policy = XT_HEADER(response, "Content-Security-Policy");
    ck_assert_msg(policy && !strstr(policy, "unsafe"), "%s", response->head);
    for (size_t i = 0; i < sizeof clauses / sizeof *clauses; i++)
        ck_assert_msg(strstr(policy, clauses[i]) != NULL, "no %s in %s", clauses[i], policy);
}

START_TEST(served) {
    xt_response response;
    fetch(files[_i].path, "", &response);
    ck_assert_int_eq(response.status, 200);
    ck_assert_str_eq(XT_HEADER(&response, "Content-Type"), files[_i].type);
    ck_assert_ptr_null(XT_HEADER(&response, "Content-Encoding"));
    ck_assert_msg(!strncmp(response.body, files[_i].begin, strlen(files[_i].begin)), "%.80s",
                  response.body);
    ck_assert_uint_gt(response.length, 100);
    check_policy(&response);
    xt_response_free(&response);
}
END_TEST

/* All of it loads at once, and what it loads is here: nothing of another origin is named. */
START_TEST(small_and_alone) {
    xt_response response;
    size_t bytes = 0;
    for (int i = 0; i < COUNT; i++) {
        if (!files[i].page)
            continue;
        fetch(files[i].path, "", &response);
        bytes += response.length;
        const char *elsewhere = strstr(response.body, "src=\"http");
        ck_assert_msg(!elsewhere, "%s: %.80s", files[i].path, elsewhere);
        elsewhere = strstr(response.body, "href=\"http");
        ck_assert_msg(!elsewhere, "%s: %.80s", files[i].path, elsewhere);
        ck_assert_ptr_null(strstr(response.body, "style=\""));
        ck_assert_ptr_null(strstr(response.body, "innerHTML"));
        xt_response_free(&response);
    }
    ck_assert_msg(bytes < PAGE_BYTES, "the page has %zu bytes", bytes);
}
END_TEST

static xn_status any_number(void *context, size_t bytes, xn_error *error) {
    (void)context, (void)bytes, (void)error;
    return XN_OK;
}

START_TEST(coded_where_asked_for) {
    static const char *const asked[] = {"gzip", "gzip, deflate, br, zstd", "br;q=1, gzip;q=0.5"};
    static const char *const not_asked[] = {"identity", "br", "gzip;q=0", "deflate"};
    xt_response plain, coded;
    xn_error error;
    char header[100], tag[64];
    size_t length = 0;
    fetch(files[_i].path, "", &plain);
    snprintf(tag, sizeof tag, "%s", XT_HEADER(&plain, "ETag"));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char *decoded = malloc(MOST);
        snprintf(header, sizeof header, "Accept-Encoding: %s\r\n", asked[i]);
        fetch(files[_i].path, header, &coded);
        ck_assert_str_eq(XT_HEADER(&coded, "Content-Encoding"), "gzip");
        ck_assert_str_ne(XT_HEADER(&coded, "ETag"), tag);
        ck_assert_uint_lt(coded.length, plain.length);
        ck_assert_int_eq(xn_coding_decode(XN_CODING_GZIP, coded.body, coded.length, decoded, MOST,
                                          "", any_number, NULL, &length, &error),
                         XN_OK);
        ck_assert_uint_eq(length, plain.length);
        ck_assert_mem_eq(decoded, plain.body, length);
        check_policy(&coded);
        xt_response_free(&coded);
        free(decoded);
    }
    for (size_t i = 0; i < sizeof not_asked / sizeof *not_asked; i++) {
        snprintf(header, sizeof header, "Accept-Encoding: %s\r\n", not_asked[i]);
        fetch(files[_i].path, header, &coded);
        ck_assert_ptr_null(XT_HEADER(&coded, "Content-Encoding"));
        ck_assert_uint_eq(coded.length, plain.length);
        xt_response_free(&coded);
    }
    xt_response_free(&plain);
}
END_TEST

static void check_kept(const char *path, const char *coding, const char *condition, int status) {
    xt_response response;
    char headers[300];
    snprintf(headers, sizeof headers, "Accept-Encoding: %s\r\nIf-None-Match: %s\r\n", coding,
             condition);
    fetch(path, headers, &response);
    ck_assert_msg(response.status == status, "%s, If-None-Match: %s: %d", path, condition,
                  response.status);
    ck_assert_ptr_nonnull(XT_HEADER(&response, "ETag"));
    check_policy(&response);
    ck_assert_uint_eq(response.length == 0, status == 304);
    xt_response_free(&response);
}

/* RFC 9110, section 13.1.2: weak comparison, lists, and the star. */
START_TEST(kept_copies_are_asked_about) {
    static const char *const codings[] = {"identity", "gzip"};
    xt_response response;
    char headers[100], tag[64], condition[200];
    for (size_t c = 0; c < sizeof codings / sizeof *codings; c++) {
        snprintf(headers, sizeof headers, "Accept-Encoding: %s\r\n", codings[c]);
        fetch(files[_i].path, headers, &response);
        snprintf(tag, sizeof tag, "%s", XT_HEADER(&response, "ETag"));
        ck_assert_msg(tag[0] == '"' && tag[strlen(tag) - 1] == '"', "%s", tag);
        xt_response_free(&response);
        check_kept(files[_i].path, codings[c], tag, 304);
        check_kept(files[_i].path, codings[c], "*", 304);
        snprintf(condition, sizeof condition, "\"another\", W/%s, \"third\"", tag);
        check_kept(files[_i].path, codings[c], condition, 304);
        snprintf(condition, sizeof condition, "\"x%s", tag + 1);
        check_kept(files[_i].path, codings[c], condition, 200);
        check_kept(files[_i].path, codings[c], "\"another\"", 200);
        check_kept(files[_i].path, codings[1 - c], tag, 200); /* a copy of the other coding */
    }
}
END_TEST

/* On one connection, which must stay in step behind an answer without a body. */
START_TEST(head_and_methods) {
    static const char *const wrong[] = {"POST", "PUT", "DELETE", "PATCH"};
    const char *path = files[_i].path;
    xt_conn conn;
    xt_response get, other;
    char tag[64], headers[100];
    ck_assert(xt_connect(&conn, daemon_));
    ck_assert_int_eq(xt_request(&conn, "GET", path, "", NULL, 0, &get), XT_GOT);
    snprintf(tag, sizeof tag, "%s", XT_HEADER(&get, "ETag"));
    ck_assert_int_eq(xt_request(&conn, "HEAD", path, "", NULL, 0, &other), XT_GOT);
    ck_assert_int_eq(other.status, 200);
    ck_assert_str_eq(XT_HEADER(&other, "ETag"), tag);
    ck_assert_uint_eq(strtoull(XT_HEADER(&other, "Content-Length"), NULL, 10), get.length);
    ck_assert_uint_eq(conn.in.length, 0);
    xt_response_free(&other);
    snprintf(headers, sizeof headers, "If-None-Match: %s\r\n", tag);
    ck_assert_int_eq(xt_request(&conn, "HEAD", path, headers, NULL, 0, &other), XT_GOT);
    ck_assert_int_eq(other.status, 304);
    xt_response_free(&other);
    ck_assert_int_eq(xt_request(&conn, "OPTIONS", path, "", NULL, 0, &other), XT_GOT);
    ck_assert_int_eq(other.status, 204);
    ck_assert_str_eq(XT_HEADER(&other, "Allow"), "GET, HEAD, OPTIONS");
    xt_response_free(&other);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(xt_request(&conn, wrong[i], path, "", "", 0, &other), XT_GOT);
        xt_check_error(&other, 405, NULL, wrong[i], path);
        xt_response_free(&other);
    }
    xt_response_free(&get);
    xt_disconnect(&conn);
}
END_TEST

START_TEST(kept_copies_are_counted) {
    const char *series = "xnord_requests_total{route=\"page\",code=\"304\"}";
    xt_response response;
    double before = xt_metric(daemon_, series);
    fetch("/page.js", "If-None-Match: *\r\n", &response);
    xt_response_free(&response);
    ck_assert(xt_metric_becomes(daemon_, series, before + 1));
}
END_TEST

/* The page is public, the interface's description is not. */
START_TEST(without_a_key) {
    char path[64];
    xt_response response;
    xt_make_file(path, sizeof path, KEY "\n");
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--api-keys-file", path));
    for (int i = 0; i < COUNT; i++) {
        bool open = strcmp(files[i].path, "/openapi.yaml") != 0;
        xt_fetch(d, "GET", files[i].path, "", NULL, 0, &response);
        ck_assert_msg(response.status == (open ? 200 : 401), "%s: %d", files[i].path,
                      response.status);
        xt_response_free(&response);
        xt_expect(d, "GET", files[i].path, "Authorization: Bearer " KEY "\r\n", NULL, 200);
    }
    xt_expect(d, "GET", "/page.css.gz", "", NULL, 401);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    unlink(path);
}
END_TEST

XN_SUITE(http_page) {
    Suite *s = suite_create("http_page");
    TCase *t = tcase_create("page");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_loop_test(t, served, 0, COUNT);
    tcase_add_test(t, small_and_alone);
    tcase_add_loop_test(t, coded_where_asked_for, 0, COUNT);
    tcase_add_loop_test(t, kept_copies_are_asked_about, 0, COUNT);
    tcase_add_loop_test(t, head_and_methods, 0, COUNT);
    tcase_add_test(t, kept_copies_are_counted);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    TCase *keys = tcase_create("keys");
    tcase_set_timeout(keys, 120);
    tcase_add_checked_fixture(keys, NULL, xt_reap);
    tcase_add_test(keys, without_a_key);
    suite_add_tcase(s, keys);
    return s;
}
