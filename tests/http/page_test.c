/* The page of a real daemon: what its files name, how they are coded, what browsers keep of them
 * and what they may do. Types, methods and keys: exchanges/meta.txt and auth.txt. What the page
 * does, a browser tests: tests/page. */
#include "client/wire.h"
#include "coding.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_BYTES = 24 * 1024 /* as browsers get it, in gzip */, MOST = 1 << 20 };

static xt_daemon *daemon_;

static void start(void) {
    daemon_ = xt_daemon_start_shared(XT_NO_FLAGS);
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
}

static const struct {
    const char *path;
    bool page; /* loaded by the page at / */
} files[] = {
    {"/", true},          {"/docs", false},    {"/page.css", true}, {"/page.js", true},
    {"/docs.css", false}, {"/docs.js", false}, {"/icon.svg", true}, {"/openapi.yaml", false},
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

/* All of it loads at once, and what it loads is here: nothing of another origin is named. */
START_TEST(small_and_alone) {
    xt_response response;
    size_t bytes = 0;
    for (int i = 0; i < COUNT; i++) {
        if (!files[i].page)
            continue;
        fetch(files[i].path, "Accept-Encoding: gzip\r\n", &response);
        bytes += response.length;
        xt_response_free(&response);
        fetch(files[i].path, "", &response);
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
    check_policy(&plain);
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

XN_SUITE(http_page) {
    Suite *s = suite_create("http_page");
    TCase *t = tcase_create("page");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_test(t, small_and_alone);
    tcase_add_loop_test(t, coded_where_asked_for, 0, COUNT);
    tcase_add_loop_test(t, kept_copies_are_asked_about, 0, COUNT);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    return s;
}
