/* Bearer keys, TLS, and what web pages may do, on a real daemon. */
#include "client/wire.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KEY_ONE "first-key-0123456789abcdef"
#define KEY_TWO "second-key/with+signs==.~_-"
#define WRONG "wrong-key-0123456789abcdef"

static int status_with(xt_daemon *d, const char *target, const char *authorization,
                       xt_response *response) {
    xt_buffer headers = {0};
    if (authorization)
        xt_print(&headers, "Authorization: %s\r\n", authorization);
    xt_fetch(d, "GET", target, headers.data ? headers.data : "", NULL, 0, response);
    xt_buffer_free(&headers);
    return response->status;
}

static void check_refused(xt_daemon *d, const char *target, const char *authorization) {
    xt_response response;
    status_with(d, target, authorization, &response);
    xt_check_error(&response, 401, NULL, NULL, authorization ? authorization : "no key");
    const char *challenge = XT_HEADER(&response, "WWW-Authenticate");
    ck_assert_msg(challenge && !strncmp(challenge, "Bearer", 6), "%s", response.head);
    ck_assert_ptr_null(strstr(response.body, "key-0123"));
    xt_response_free(&response);
}

START_TEST(keys) {
    static const char *const wrong[] = {
        NULL,
        "",
        "Bearer",
        "Bearer ",
        KEY_ONE,
        "Basic " KEY_ONE,
        "Bearer " WRONG,
        "Bearer first-key-0123456789abcde",
        "Bearer " KEY_ONE "x",
        "Bearer " KEY_ONE " " KEY_TWO,
        "Bearer FIRST-KEY-0123456789ABCDEF",
        "Bearerfirst-key-0123456789abcdef",
        "Bearer # a comment that is no key",
    };
    static const char *const guarded[] = {"/v2", "/metrics", "/weights", "/openapi.yaml"};
    char path[64];
    xt_response response;
    xt_make_file(path, sizeof path,
                 "# a comment that is no key\n\n" KEY_ONE "\n  \n" KEY_TWO "\r\n");
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--api-keys-file", path, "--log-level", "debug"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_refused(d, "/v2", wrong[i]);
    for (size_t i = 0; i < sizeof guarded / sizeof *guarded; i++) {
        check_refused(d, guarded[i], NULL);
        ck_assert_int_eq(status_with(d, guarded[i], "Bearer " KEY_ONE, &response), 200);
        xt_response_free(&response);
        ck_assert_int_eq(status_with(d, guarded[i], "bearer " KEY_TWO, &response), 200);
        xt_response_free(&response);
    }
    /* Health needs none. */
    ck_assert_int_eq(status_with(d, "/v2/health/live", NULL, &response), 200);
    xt_response_free(&response);
    ck_assert_int_eq(status_with(d, "/v2/health/ready", "Bearer " WRONG, &response), 200);
    xt_response_free(&response);
    /* Refused before the body is looked at. */
    xt_fetch(d, "POST", "/conv", "Content-Type: application/json\r\n", "{", 1, &response);
    xt_check_error(&response, 401, NULL, NULL, "POST without a key");
    xt_response_free(&response);
    xt_fetch(d, "PUT", "/weights/a",
             "Content-Type: application/json\r\nAuthorization: Bearer " WRONG "\r\n", "{", 1,
             &response);
    xt_check_error(&response, 401, NULL, NULL, "PUT with a wrong key");
    xt_response_free(&response);
    ck_assert_int_eq(status_with(d, "/metrics", "Bearer " KEY_ONE, &response), 200);
    ck_assert_double_ge(
        xt_sample(response.body, "xnord_rejected_requests_total{reason=\"unauthorized\"}"), 15);
    xt_response_free(&response);
    /* No key, right or wrong, is ever in the log. */
    char *log = xt_daemon_log(d);
    ck_assert_ptr_null(strstr(log, "key-0123456789"));
    ck_assert_ptr_null(strstr(log, "second-key"));
    free(log);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    unlink(path);
}
END_TEST

START_TEST(bad_key_files) {
    static const struct {
        const char *content, *secret;
    } table[] = {
        {"", NULL},
        {"# only a comment\n\n", NULL},
        {"tooshort-secret\n", "tooshort-secret"},
        {KEY_ONE "\nspace inside a key\n", "space inside"},
    };
    xt_buffer err = {0};
    int status =
        xt_run(XT_FLAGS("--backend", "cpu", "--port", "0", "--api-keys-file", "/nonexistent/keys"),
               NULL, NULL, &err);
    ck_assert_msg(status != 0 && status < 1000 && strstr(err.data, "/nonexistent/keys"),
                  "exit %d: %s", status, err.data);
    xt_buffer_free(&err);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char path[64];
        xt_make_file(path, sizeof path, table[i].content);
        status = xt_run(XT_FLAGS("--backend", "cpu", "--port", "0", "--api-keys-file", path), NULL,
                        NULL, &err);
        unlink(path);
        ck_assert_msg(status != 0 && status < 1000 && strstr(err.data, path), "'%s': exit %d: %s",
                      table[i].content, status, err.data);
        ck_assert_msg(!table[i].secret || !strstr(err.data, table[i].secret),
                      "the message shows the key: %s", err.data);
        xt_buffer_free(&err);
    }
}
END_TEST

/* ---- TLS, spoken by the openssl program ---- */

static bool make_certificate(const char *cert, const char *key) {
    int status = xt_run_program(XT_FLAGS("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                                         "-keyout", key, "-out", cert, "-subj", "/CN=localhost",
                                         "-days", "2"),
                                NULL, NULL, NULL, NULL);
    return status == 0;
}

/* One request over TLS; the whole response as text. */
static void tls_exchange(int port, const char *request, xt_buffer *out) {
    char address[32];
    xt_buffer err = {0};
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    int status = xt_run_program(
        XT_FLAGS("openssl", "s_client", "-connect", address, "-quiet", "-servername", "localhost"),
        NULL, request, out, &err);
    ck_assert_msg(status >= 0 && out->data, "openssl s_client: exit %d: %s", status, err.data);
    xt_buffer_free(&err);
}

START_TEST(tls) {
    char cert[64], key[64];
    xt_make_file(cert, sizeof cert, "");
    xt_make_file(key, sizeof key, "");
    if (!make_certificate(cert, key)) {
        printf("http_auth: TLS is not tested: the openssl program is missing or fails\n");
        unlink(cert);
        unlink(key);
        return;
    }
    static const char body[] =
        "{\"input\": {\"shape\": [1,1,1,2], \"datatype\": \"FP32\", \"data\": [2,-3]}, "
        "\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [-5]}, "
        "\"mode\": \"float\"}";
    xt_buffer request = {0}, out = {0};
    xt_daemon *d = xt_daemon_launch(
        XT_FLAGS("--tls-cert", cert, "--tls-key", key, "--header-timeout-ms", "4000"));
    ck_assert(d->tls);
    xt_conn silent; /* shakes no hands; its time passes while the others talk */
    ck_assert(xt_connect(&silent, d));
    xt_print(&request,
             "POST /conv HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: "
             "application/json\r\nContent-Length: %zu\r\n\r\n%s",
             sizeof body - 1, body);
    tls_exchange(d->port, request.data, &out);
    ck_assert_msg(strstr(out.data, "HTTP/1.1 200") && strstr(out.data, "[-10,15]"), "%s", out.data);
    xt_buffer_free(&out);
    xt_buffer_free(&request);
    /* A client without TLS gets no answer, and the daemon goes on. */
    xt_conn conn;
    ck_assert(xt_connect(&conn, d));
    ck_assert(xt_send_text(&conn, "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"));
    ck_assert(xt_closed_within(&conn, XT_PATIENCE_MS));
    ck_assert_msg(!conn.in.length || strncmp(conn.in.data, "HTTP/1.1 2", 10), "%s", conn.in.data);
    xt_disconnect(&conn);
    tls_exchange(d->port, "GET /v2/health/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                 &out);
    ck_assert_msg(strstr(out.data, "HTTP/1.1 200") != NULL, "%s", out.data);
    xt_buffer_free(&out);
    ck_assert(xt_closed_within(&silent, XT_PATIENCE_MS));
    xt_disconnect(&silent);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    unlink(cert);
    unlink(key);
}
END_TEST

START_TEST(bad_certificates) {
    char path[64];
    xt_buffer err = {0};
    xt_make_file(path, sizeof path, "this is no certificate\n");
    int status =
        xt_run(XT_FLAGS("--backend", "cpu", "--port", "0", "--tls-cert", path, "--tls-key", path),
               NULL, NULL, &err);
    unlink(path);
    ck_assert_msg(status == 1, "exit %d: %s", status, err.data);
    ck_assert_msg(strstr(err.data, "certificate") != NULL, "%s", err.data);
    xt_buffer_free(&err);
    status = xt_run(XT_FLAGS("--backend", "cpu", "--port", "0", "--tls-cert", "/nonexistent/c",
                             "--tls-key", "/nonexistent/k"),
                    NULL, NULL, &err);
    ck_assert_msg(status == 1 && strstr(err.data, "/nonexistent/c"), "exit %d: %s", status,
                  err.data);
    xt_buffer_free(&err);
}
END_TEST

/* ---- pages in a browser ---- */

#define EVIL "Origin: http://evil.example\r\n"
#define FRIEND "Origin: https://friend.example\r\n"

static void check_page_row(const xt_daemon *d, const char *method, const char *target,
                           const char *headers, int status) {
    xt_conn conn;
    xt_buffer head = {0};
    xt_response response;
    bool body = !strcmp(method, "POST") || !strcmp(method, "PUT");
    xt_print(&head, "%s %s HTTP/1.1\r\n%s%s\r\n%s", method, target, headers,
             body ? "Content-Length: 2\r\n" : "", body ? "{}" : "");
    ck_assert(xt_connect(&conn, d) && xt_send(&conn, head.data, head.length));
    ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
    ck_assert_msg(response.status == status, "%s: %d, expected %d: %s", head.data, response.status,
                  status, response.body);
    const char *sniff = XT_HEADER(&response, "X-Content-Type-Options");
    ck_assert_msg(sniff && !strcmp(sniff, "nosniff"), "%s: %s", head.data, response.head);
    ck_assert(xt_header_count(&response, "X-Content-Type-Options") == 1);
    xt_response_free(&response);
    xt_disconnect(&conn);
    xt_buffer_free(&head);
}

/* A page whose own name was made to resolve to the daemon's address, and one of another site. */
START_TEST(foreign_pages) {
    static const struct {
        const char *method, *target, *headers;
        int status;
    } rows[] = {
        {"GET", "/v2", "Host: evil.example\r\n", 421},
        {"GET", "/v2", "Host: evil.example:8080\r\n", 421},
        {"GET", "/metrics", "Host: localhost.evil.example\r\n", 421},
        {"GET", "/", "Host: 127.0.0.1.evil.example\r\n", 421},
        {"GET", "/v2/health/live", "Host: 1.2.3\r\n", 421},
        {"POST", "/v2/repository/index", "Host: evil.example\r\n" EVIL, 421},
        {"DELETE", "/weights/a", "Host: evil.example\r\n" EVIL, 421},
        {"GET", "/v2", "Host: localhost:1\r\n", 200},
        {"GET", "/v2", "Host: LocalHost.\r\n", 200},
        {"GET", "/v2", "Host: 127.0.0.1:8080\r\n", 200},
        {"GET", "/v2", "Host: 192.0.2.7\r\n", 200},
        {"GET", "/v2", "Host: [::1]:8080\r\n", 200},
        {"GET", "/v2", "Host: XNORD.test:80\r\n", 200},
        {"GET", "/", "Host: localhost\r\n", 200},
        {"GET", "/metrics", "Host: localhost\r\n", 200},
        {"GET", "/none", "Host: localhost\r\n", 404},
        {"GET", "/v2", "Host: localhost\r\n" EVIL, 200}, /* which the page may not read */
        {"POST", "/conv", "Host: localhost\r\n" EVIL, 403},
        {"PUT", "/weights/a", "Host: localhost\r\n" EVIL, 403},
        {"DELETE", "/weights/a", "Host: localhost\r\n" EVIL, 403},
        {"DELETE", "/weights/a", "Host: localhost\r\nOrigin: null\r\n", 403},
        {"POST", "/v2/repository/models/a/load", "Host: localhost\r\n" EVIL, 403},
        {"DELETE", "/weights/a", "Host: localhost:80\r\nOrigin: http://localhost:81\r\n", 403},
        {"DELETE", "/weights/a", "Host: localhost:80\r\nOrigin: http://localhost:80\r\n", 404},
        {"DELETE", "/weights/a", "Host: localhost\r\n", 404},
        {"DELETE", "/weights/a", "Host: localhost\r\n" FRIEND, 404},
        {"POST", "/conv", "Host: localhost\r\n" FRIEND, 415},
        {"OPTIONS", "/conv", "Host: localhost\r\n" EVIL, 204},
        {"GET", "/v2", "Host: localhost\r\n" FRIEND EVIL, 400},
    };
    char machine[256] = "", own[300];
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--allowed-hosts", "xnord.test",
                                            "--allowed-origins", "https://friend.example"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_page_row(d, rows[i].method, rows[i].target, rows[i].headers, rows[i].status);
    ck_assert(!gethostname(machine, sizeof machine - 1));
    snprintf(own, sizeof own, "Host: %s:8080\r\n", machine);
    check_page_row(d, "GET", "/v2", own, 200);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* What matters needs a key there. */
START_TEST(any_host_with_keys) {
    char path[64];
    xt_make_file(path, sizeof path, KEY_ONE "\n");
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--backend", "cpu", "--api-keys-file", path, "--allowed-hosts", "xnord.test"));
    check_page_row(d, "GET", "/v2", "Host: lb.example\r\n", 401);
    check_page_row(d, "GET", "/v2", "Host: lb.example\r\nAuthorization: Bearer " KEY_ONE "\r\n",
                   200);
    check_page_row(d, "DELETE", "/weights/a",
                   "Host: lb.example\r\n" EVIL "Authorization: Bearer " KEY_ONE "\r\n", 403);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    unlink(path);
}
END_TEST

static bool header_is(const xt_response *response, const char *name, const char *value) {
    const char *found = XT_HEADER(response, name);
    return value ? found && !strcmp(found, value) : !found;
}

START_TEST(allowed_origins) {
    static const char preflight[] = "Access-Control-Request-Method: POST\r\n"
                                    "Access-Control-Request-Headers: content-type\r\n";
    static const struct {
        const char *allowed, *origin, *answered;
    } rows[] = {
        {"https://friend.example,http://localhost:3000", "https://friend.example",
         "https://friend.example"},
        {"https://friend.example,http://localhost:3000", "http://localhost:3000",
         "http://localhost:3000"},
        {"https://friend.example", "http://friend.example", NULL},
        {"https://friend.example", "https://friend.example:444", NULL},
        {"*", "https://anybody.example", "https://anybody.example"},
    };
    char path[64], headers[400];
    xt_response response;
    xt_make_file(path, sizeof path, KEY_ONE "\n");
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--api-keys-file", path,
                                            "--allowed-origins", rows[_i].allowed));
    snprintf(headers, sizeof headers, "Origin: %s\r\n%s", rows[_i].origin, preflight);
    xt_fetch(d, "OPTIONS", "/conv", headers, NULL, 0, &response); /* browsers send no key here */
    ck_assert_int_eq(response.status, rows[_i].answered ? 204 : 401);
    ck_assert_msg(header_is(&response, "Access-Control-Allow-Origin", rows[_i].answered) &&
                      header_is(&response, "Vary", "Origin"),
                  "%s", response.head);
    const char *methods = XT_HEADER(&response, "Access-Control-Allow-Methods");
    const char *allowed = XT_HEADER(&response, "Access-Control-Allow-Headers");
    ck_assert((methods && strstr(methods, "DELETE")) == (rows[_i].answered != NULL));
    ck_assert((allowed && strstr(allowed, "Authorization")) == (rows[_i].answered != NULL));
    xt_response_free(&response);
    /* The request itself, and an error that the page may read too. */
    snprintf(headers, sizeof headers,
             "Origin: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer " KEY_ONE
             "\r\n",
             rows[_i].origin);
    xt_fetch(d, "POST", "/conv", headers, "{", 1, &response);
    ck_assert_int_eq(response.status, rows[_i].answered ? 400 : 403);
    ck_assert(header_is(&response, "Access-Control-Allow-Origin", rows[_i].answered));
    const char *exposed = XT_HEADER(&response, "Access-Control-Expose-Headers");
    ck_assert((exposed && strstr(exposed, "Output-Shape")) == (rows[_i].answered != NULL));
    xt_response_free(&response);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    unlink(path);
}
END_TEST

XN_SUITE(http_auth) {
    Suite *s = suite_create("http_auth");
    TCase *t = tcase_create("auth");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, keys);
    tcase_add_test(t, bad_key_files);
    tcase_add_test(t, tls);
    tcase_add_test(t, bad_certificates);
    tcase_add_test(t, foreign_pages);
    tcase_add_test(t, any_host_with_keys);
    tcase_add_loop_test(t, allowed_origins, 0, 5);
    suite_add_tcase(s, t);
    return s;
}
