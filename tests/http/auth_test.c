/* Bearer keys and TLS on a real daemon. */
#include "wire.h"

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

XN_SUITE(http_auth) {
    Suite *s = suite_create("http_auth");
    TCase *t = tcase_create("auth");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, keys);
    tcase_add_test(t, bad_key_files);
    tcase_add_test(t, tls);
    tcase_add_test(t, bad_certificates);
    suite_add_tcase(s, t);
    return s;
}
