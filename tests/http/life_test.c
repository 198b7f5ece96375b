/* What a running daemon does when it is told to: signals of all kinds, keys, certificates and the
 * log file read or opened anew by SIGHUP, with connections and requests that go on meanwhile. */
#include "client/tls.h"
#include "client/wire.h"
#include "nw_write.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_ONE "first-key-0123456789abcdef"
#define KEY_TWO "second-key-0123456789abcdef"
#define BEARER(key) "Authorization: Bearer " key "\r\n"

static int status_on(xt_conn *conn, const char *target, const char *headers) {
    xt_response response = {0};
    xt_result result = xt_request(conn, "GET", target, headers, NULL, 0, &response);
    int status = result == XT_GOT ? response.status : -(int)result;
    xt_response_free(&response);
    return status;
}

static void write_file(const char *path, const char *content) {
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(content, file) >= 0 && !fclose(file));
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

/* SIGHUP, and until the log holds the text once more than before. */
static void reload(const xt_daemon *d, const char *until) {
    char *log = xt_daemon_log(d);
    int before = count_of(log, until), now = before;
    free(log);
    kill(d->pid, SIGHUP);
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; now == before && xt_now_ms() < end;) {
        xt_nap();
        log = xt_daemon_log(d);
        now = count_of(log, until);
        free(log);
    }
    ck_assert_msg(now > before, "no '%s' in the log after SIGHUP", until);
}

/* ---- signals ---- */

START_TEST(other_signals_do_nothing) {
    static const int signals[] = {SIGUSR1,  SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,
                                  SIGPIPE,  SIGXFSZ, SIGPWR,  SIGSTKFLT, SIGTTIN, SIGTTOU,
                                  SIGWINCH, SIGURG,  SIGCHLD, SIGCONT};
    xt_conn conn;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu"));
    ck_assert(xt_connect(&conn, d));
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        kill(d->pid, signals[i]);
        ck_assert_msg(status_on(&conn, "/v2/health/ready", "") == 200, "after signal %d",
                      signals[i]);
    }
    for (int i = 0; i < 3; i++) {
        kill(d->pid, (const int[]){SIGRTMIN, SIGRTMIN + 7, SIGRTMAX}[i]);
        ck_assert_int_eq(status_on(&conn, "/v2/health/ready", ""), 200);
    }
    xt_disconnect(&conn);
    char *log = xt_daemon_log(d);
    ck_assert_msg(!strstr(log, "draining") && !strstr(log, "SIGHUP"), "%s", log);
    free(log);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- keys ---- */

static const char body[] = "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": "
                           "[2]}, \"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", "
                           "\"data\": [3]}}";

START_TEST(keys_are_reloaded) {
    char path[64];
    xt_conn one, two, half;
    xt_response response;
    xt_buffer head = {0};
    xt_make_file(path, sizeof path, KEY_ONE "\n");
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--api-keys-file", path));
    ck_assert(xt_connect(&one, d) && xt_connect(&two, d) && xt_connect(&half, d));
    ck_assert_int_eq(status_on(&one, "/v2", BEARER(KEY_ONE)), 200);
    ck_assert_int_eq(status_on(&two, "/v2", BEARER(KEY_TWO)), 401);
    xt_print(&head,
             "POST /conv HTTP/1.1\r\nHost: a\r\n%sContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             BEARER(KEY_ONE), sizeof body - 1);
    ck_assert(xt_send(&half, head.data, head.length) && xt_send(&half, body, 5));
    char *page;
    do {
        xt_fetch(d, "GET", "/metrics", BEARER(KEY_ONE), NULL, 0, &response);
        page = strstr(response.body, "\nxnord_inflight_requests 1");
        xt_response_free(&response);
    } while (!page);
    write_file(path, KEY_TWO "\n");
    reload(d, "api-keys-file was read anew");
    ck_assert_int_eq(status_on(&one, "/v2", BEARER(KEY_ONE)), 401);
    ck_assert_int_eq(status_on(&two, "/v2", BEARER(KEY_TWO)), 200);
    /* What was let in goes on. */
    ck_assert(xt_send(&half, body + 5, sizeof body - 1 - 5));
    ck_assert_int_eq(xt_receive(&half, false, false, &response), XT_GOT);
    ck_assert_int_eq(response.status, 200);
    xt_response_free(&response);
    /* A file that cannot be used leaves the keys of before. */
    write_file(path, "short\n");
    reload(d, "api-keys-file stays as it was");
    ck_assert_int_eq(status_on(&two, "/v2", BEARER(KEY_TWO)), 200);
    unlink(path);
    reload(d, "api-keys-file stays as it was");
    ck_assert_int_eq(status_on(&two, "/v2", BEARER(KEY_TWO)), 200);
    char *log = xt_daemon_log(d);
    ck_assert_msg(strstr(log, "No such file") && !strstr(log, "key-0123"), "%s", log);
    free(log);
    xt_disconnect(&one);
    xt_disconnect(&two);
    xt_disconnect(&half);
    xt_buffer_free(&head);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- certificates ---- */

typedef struct files {
    char cert[64], key[64];
    unsigned char digest[32];
} files;

static void make_files(files *f) {
    xt_make_file(f->cert, sizeof f->cert, "");
    xt_make_file(f->key, sizeof f->key, "");
    xt_make_certificate(f->cert, f->key);
    xt_certificate_digest(f->cert, f->digest);
}

static void drop_files(const files *f) {
    unlink(f->cert);
    unlink(f->key);
}

static void copy(const char *from, const char *to) {
    char text[8192] = "";
    FILE *file = fopen(from, "r");
    ck_assert(file && fread(text, 1, sizeof text - 1, file) > 0 && !fclose(file));
    write_file(to, text);
}

static void expect_certificate(const xt_daemon *d, const unsigned char digest[32],
                               const char *what) {
    xt_tls tls;
    ck_assert_msg(xt_tls_connect(&tls, d->port, NULL), "%s: no handshake", what);
    ck_assert_msg(!memcmp(tls.peer, digest, 32), "%s: another certificate", what);
    ck_assert_msg(xt_tls_get(&tls, "/v2/health/live") == 200, "%s: no answer", what);
    xt_tls_close(&tls);
}

START_TEST(certificates_are_reloaded) {
    files first, second;
    xt_tls before;
    make_files(&first);
    make_files(&second);
    unsigned char first_digest[32];
    memcpy(first_digest, first.digest, sizeof first_digest);
    xt_daemon *d = xt_daemon_launch(
        XT_FLAGS("--backend", "cpu", "--tls-cert", first.cert, "--tls-key", first.key));
    ck_assert(xt_tls_connect(&before, d->port, NULL));
    ck_assert(!memcmp(before.peer, first_digest, 32));
    ck_assert_int_eq(xt_tls_get(&before, "/v2/health/live"), 200);
    copy(second.cert, first.cert);
    copy(second.key, first.key);
    reload(d, "the certificate was read anew");
    expect_certificate(d, second.digest, "after the reload");
    ck_assert_int_eq(xt_tls_get(&before, "/v2/health/live"), 200); /* not dropped */
    /* A key of another certificate, and a file that is none: all stays. */
    xt_make_certificate(NULL, first.key);
    reload(d, "is not the key of the certificate");
    expect_certificate(d, second.digest, "after a mismatch");
    write_file(first.cert, "nothing\n");
    reload(d, "is no PEM certificate");
    expect_certificate(d, second.digest, "after a bad file");
    ck_assert_int_eq(xt_tls_get(&before, "/v2/health/live"), 200);
    xt_tls_close(&before);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    drop_files(&first);
    drop_files(&second);
}
END_TEST

/* Requests go through, and nobody who speaks no TLS gets an answer or holds anything up. */
START_TEST(tls_and_nothing_else) {
    files f;
    xt_tls tls;
    xt_conn plain, silent;
    xt_buffer request = {0};
    char answer[4096];
    make_files(&f);
    xt_daemon *d = xt_daemon_launch(XT_FLAGS("--backend", "cpu", "--tls-cert", f.cert, "--tls-key",
                                             f.key, "--header-timeout-ms", "1000"));
    ck_assert(xt_connect(&silent, d)); /* shakes no hands; its time passes while the others talk */
    ck_assert(d->tls && xt_tls_connect(&tls, d->port, NULL));
    xt_print(&request,
             "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             sizeof body - 1, body);
    ck_assert_int_eq(xt_tls_ask(&tls, request.data, answer, sizeof answer), 200);
    ck_assert_msg(strstr(answer, "\"data\":[6]") != NULL, "%s", answer);
    xt_tls_close(&tls);
    ck_assert(xt_connect(&plain, d));
    ck_assert(xt_send_text(&plain, "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"));
    ck_assert(xt_closed_within(&plain, XT_PATIENCE_MS));
    ck_assert_msg(!plain.in.length || strncmp(plain.in.data, "HTTP/1.1 2", 10), "%s",
                  plain.in.data);
    ck_assert(xt_closed_within(&silent, XT_PATIENCE_MS));
    expect_certificate(d, f.digest, "behind them");
    xt_disconnect(&plain);
    xt_disconnect(&silent);
    xt_buffer_free(&request);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    drop_files(&f);
}
END_TEST

typedef struct shaker {
    pthread_t thread;
    int port, done, failed;
} shaker;

enum { HANDSHAKES = 60, RELOADS = 60 };

static void *shake_hands(void *context) {
    shaker *s = context;
    for (; s->done < HANDSHAKES; s->done++) {
        xt_tls tls;
        bool well = xt_tls_connect(&tls, s->port, NULL);
        s->failed += !well || xt_tls_get(&tls, "/v2/health/live") != 200;
        xt_tls_close(&tls);
    }
    return NULL;
}

START_TEST(handshakes_during_reloads) {
    files f;
    shaker shakers[3] = {{0}};
    make_files(&f);
    xt_daemon *d =
        xt_daemon_launch(XT_FLAGS("--backend", "cpu", "--tls-cert", f.cert, "--tls-key", f.key));
    for (int i = 0; i < 3; i++) {
        shakers[i].port = d->port;
        ck_assert_int_eq(pthread_create(&shakers[i].thread, NULL, shake_hands, &shakers[i]), 0);
    }
    for (int i = 0; i < RELOADS; i++)
        reload(d, "the certificate was read anew");
    for (int i = 0; i < 3; i++) {
        pthread_join(shakers[i].thread, NULL);
        ck_assert_int_eq(shakers[i].failed, 0);
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    drop_files(&f);
}
END_TEST

#define ONLY(version) "NORMAL:-VERS-ALL:+VERS-" version

static const struct {
    const char *ciphers; /* NULL: not given */
    const char *client;
    bool spoken;
} versions[] = {
    {NULL, ONLY("TLS1.0"), false},
    {NULL, ONLY("TLS1.1"), false},
    {NULL, ONLY("TLS1.2"), true},
    {NULL, ONLY("TLS1.3"), true},
    {"NORMAL:-VERS-TLS1.3", ONLY("TLS1.3"), false},
    {"NORMAL:-VERS-TLS1.3", ONLY("TLS1.2"), true},
    {"NORMAL:+VERS-TLS1.1:+VERS-TLS1.0", ONLY("TLS1.1"), false},
    {NULL, ONLY("TLS1.2") ":-CIPHER-ALL:+AES-128-CBC:+AES-256-CBC", false},
    {"NORMAL:+AES-128-CBC", ONLY("TLS1.2") ":-CIPHER-ALL:+AES-128-CBC", false},
    {"NORMAL:-CIPHER-ALL:+AES-256-GCM", "NORMAL:-CIPHER-ALL:+AES-128-GCM", false},
};

START_TEST(versions_and_ciphers) {
    files f;
    xt_tls tls;
    const char *flag = versions[_i].ciphers ? "--tls-ciphers" : NULL;
    make_files(&f);
    xt_daemon *d = xt_daemon_launch(XT_FLAGS("--backend", "cpu", "--tls-cert", f.cert, "--tls-key",
                                             f.key, flag, versions[_i].ciphers));
    bool spoken = xt_tls_connect(&tls, d->port, versions[_i].client);
    ck_assert_msg(spoken == versions[_i].spoken, "daemon %s, client %s: %d",
                  versions[_i].ciphers ? versions[_i].ciphers : "by default", versions[_i].client,
                  spoken);
    xt_tls_close(&tls);
    expect_certificate(d, f.digest, "any client");
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    drop_files(&f);
}
END_TEST

/* ---- the log file ---- */

static bool exists(const char *path) {
    struct stat info;
    return !stat(path, &info);
}

START_TEST(log_file_is_opened_anew) {
    char path[64], aside[70], moved[70];
    xt_conn conn;
    xt_make_file(path, sizeof path, "a line of before\n");
    snprintf(aside, sizeof aside, "%s.1", path);
    snprintf(moved, sizeof moved, "%s.2", path);
    xt_daemon *d =
        xt_daemon_start(XT_FLAGS("--backend", "cpu", "--log-file", path, "--access-log", "text"));
    ck_assert(xt_connect(&conn, d));
    ck_assert_int_eq(status_on(&conn, "/v2", "X-Request-Id: before\r\n"), 200);
    ck_assert(xt_daemon_log_wait(d, "id=before"));
    ck_assert(!rename(path, aside));
    kill(d->pid, SIGHUP);
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; !exists(path) && xt_now_ms() < end;)
        xt_nap();
    ck_assert(xt_daemon_log_wait(d, "the log goes on here"));
    ck_assert_int_eq(status_on(&conn, "/v2", "X-Request-Id: after\r\n"), 200);
    ck_assert(xt_daemon_log_wait(d, "id=after"));
    char *log = xt_daemon_log(d);
    ck_assert_msg(!strstr(log, "id=before"), "%s", log);
    free(log);
    /* A folder in its place cannot be written to: the log goes on where it is. */
    ck_assert(!rename(path, moved) && !mkdir(path, 0700));
    snprintf(d->log_file, sizeof d->log_file, "%s", moved);
    reload(d, "the log stays where it was");
    ck_assert_int_eq(status_on(&conn, "/v2", "X-Request-Id: last\r\n"), 200);
    ck_assert(xt_daemon_log_wait(d, "id=last"));
    xt_disconnect(&conn);
    snprintf(d->log_file, sizeof d->log_file, "%s", aside);
    log = xt_daemon_log(d);
    ck_assert_msg(!strncmp(log, "a line of before\n", 17) && strstr(log, "id=before") &&
                      !strstr(log, "id=after"),
                  "%s", log);
    free(log);
    d->log_file[0] = 0; /* nothing of all that was on stderr */
    log = xt_daemon_log(d);
    ck_assert_str_eq(log, "");
    free(log);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    rmdir(path);
    unlink(aside);
    unlink(moved);
}
END_TEST

/* ---- models ---- */

/* A model of one convolution, in that folder of the repository. */
static void make_model(const char *repository, const char *name) {
    char folder[100];
    nw_net *net = nw_create(1, 2, 2);
    xn_layer *layer = nw_add(net, XN_OP_CONV, "c", NULL);
    layer->window.mode = XN_MODE_FLOAT;
    layer->weight = nw_tensor(net, (float[]){1, 2, 3, 4}, 1, 1, 2, 2);
    snprintf(folder, sizeof folder, "%s/%s", repository, name);
    ck_assert(!mkdir(folder, 0777));
    nw_write_folder(net, NULL, folder);
    nw_free(net);
}

static void break_model(const char *repository, const char *name) {
    char path[120];
    snprintf(path, sizeof path, "%s/%s/config.json", repository, name);
    write_file(path, "{");
}

static void remove_folder(const char *folder) {
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(models_are_read_anew) {
    char repository[] = "/tmp/xnord-life-XXXXXX", named[80], folder[60];
    xt_conn conn;
    ck_assert_ptr_nonnull(mkdtemp(repository));
    make_model(repository, "a");
    make_model(repository, "broken");
    break_model(repository, "broken");
    snprintf(folder, sizeof folder, "%s/a", repository);
    snprintf(named, sizeof named, "again=%s", folder);
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu", "--model-repository", repository,
                                            "--model", named, "--grace-ms", "5000"));
    ck_assert(xt_metric_becomes(d, "xnord_ready", 1)); /* once all were tried */
    ck_assert(xt_metric(d, "xnord_models") == 2);
    ck_assert(xt_metric(d, "xnord_model_ready{model=\"again\",version=\"1\"}") == 1);
    ck_assert(xt_daemon_log_wait(d, "model \"broken\" cannot be loaded: config.json: "));
    ck_assert(xt_connect(&conn, d));
    make_model(repository, "b");
    reload(d, "model \"b\" version 1 loaded");
    ck_assert(xt_metric_becomes(d, "xnord_models", 3));
    remove_folder(folder);
    reload(d, "model \"a\" version 1 unloaded: its folder is gone");
    ck_assert(xt_metric_becomes(d, "xnord_models", 2)); /* --model still names it: it serves on */
    ck_assert(xt_metric(d, "xnord_model_ready{model=\"a\",version=\"1\"}") == 0);
    ck_assert(xt_metric(d, "xnord_ready") == 1);
    for (int i = 0; i < 20; i++) /* however many at once */
        kill(d->pid, SIGHUP);
    ck_assert_int_eq(status_on(&conn, "/v2/health/ready", ""), 200);
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    remove_folder(repository);
}
END_TEST

XN_SUITE(http_life) {
    Suite *s = suite_create("http_life");
    TCase *t = tcase_create("life");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, other_signals_do_nothing);
    tcase_add_test(t, keys_are_reloaded);
    tcase_add_test(t, certificates_are_reloaded);
    tcase_add_test(t, tls_and_nothing_else);
    tcase_add_test(t, handshakes_during_reloads);
    tcase_add_loop_test(t, versions_and_ciphers, 0, sizeof versions / sizeof *versions);
    tcase_add_test(t, log_file_is_opened_anew);
    tcase_add_test(t, models_are_read_anew);
    suite_add_tcase(s, t);
    return s;
}
