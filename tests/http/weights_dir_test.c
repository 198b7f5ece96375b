/* --weights-dir on real daemons: killed in the middle of PUTs and started again, folders in the
 * place of files, SIGHUP. All else is in tests/unit/weights_dir_test.c. */
#include "client/wire.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/xnord-weights-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void) {
    char path[400];
    DIR *stream = opendir(folder);
    for (const struct dirent *e; stream && (e = readdir(stream));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            unlink(path);
    }
    if (stream)
        closedir(stream);
    rmdir(folder);
    xt_reap();
}

static xt_daemon *start_over_folder(void) {
    return xt_daemon_start(XT_FLAGS("--weights-dir", folder, "--weights-poll-ms", "200"));
}

/* ---- one change of a name, and what it must lead to ---- */

enum { HASH = 17 };

/* A body of one to some thousand values that no other version has. */
static void make_body(xt_buffer *body, int version) {
    int values = version % 10 == 9 ? 6000 : 4;
    xt_print(body, "{\"weights\": {\"shape\": [%d, 1, 1, 1], \"datatype\": \"FP32\", \"data\": [%d",
             values, version);
    for (int i = 1; i < values; i++)
        xt_print(body, ",%d", i % 7 - 3);
    xt_print(body, "]}}");
}

static xt_result put_version(xt_conn *conn, const char *name, int version, xt_response *response) {
    char target[64];
    xt_buffer body = {0};
    make_body(&body, version);
    snprintf(target, sizeof target, "/weights/%s", name);
    xt_result result = xt_request(conn, "PUT", target, "Content-Type: application/json\r\n",
                                  body.data, body.length, response);
    xt_buffer_free(&body);
    return result;
}

static xt_result delete_name(xt_conn *conn, const char *name, xt_response *response) {
    char target[64];
    snprintf(target, sizeof target, "/weights/%s", name);
    return xt_request(conn, "DELETE", target, "", NULL, 0, response);
}

static void copy_hash(const char *json, char hash[HASH]) {
    char *text = xt_json_string(json, "hash");
    snprintf(hash, HASH, "%s", text ? text : "?");
    free(text);
}

/* The hash that the daemon has under the name; "" where there is none. */
static void get_hash(const xt_daemon *daemon, const char *name, char hash[HASH]) {
    char target[64];
    xt_response response;
    snprintf(target, sizeof target, "/weights/%s", name);
    xt_fetch(daemon, "GET", target, "", NULL, 0, &response);
    ck_assert_msg(response.status == 200 || response.status == 404, "GET %s: %d", target,
                  response.status);
    hash[0] = 0;
    if (response.status == 200)
        copy_hash(response.body, hash);
    xt_response_free(&response);
}

/* ---- killed in the middle ---- */

enum { WRITERS = 4, NAMES = 40, CHANGES = 250 }; /* together 1,000 */

typedef struct known {
    char hash[HASH]; /* as answered; "" deleted or never there */
    int pending;     /* a change was sent and not answered: its version, -1: a DELETE, 0: none */
} known;

typedef struct writer {
    pthread_t thread;
    const xt_daemon *daemon;
    atomic_int *answered;
    int index, version;
    uint64_t seed;
    known names[NAMES];
    char error[200];
} writer;

static void name_for(const writer *w, int which, char name[32]) {
    snprintf(name, 32, "w%d-%d", w->index, which);
}

/* False when the daemon is gone. */
static bool change(writer *w, xt_conn *conn, xn_rng *rng) {
    char name[32];
    int which = (int)xn_rng_below(rng, NAMES);
    known *k = &w->names[which];
    xt_response response = {0};
    bool deletes = xn_rng_below(rng, 8) == 0;
    name_for(w, which, name);
    w->version += WRITERS;
    k->pending = deletes ? -1 : w->version;
    xt_result result = deletes ? delete_name(conn, name, &response)
                               : put_version(conn, name, w->version, &response);
    if (result != XT_GOT)
        return false;
    int right = deletes ? (k->hash[0] ? 204 : 404) : (k->hash[0] ? 200 : 201);
    if (response.status != right)
        snprintf(w->error, sizeof w->error, "%s %s: %d instead of %d: %.100s",
                 deletes ? "DELETE" : "PUT", name, response.status, right, response.body);
    k->hash[0] = 0;
    if (!deletes)
        copy_hash(response.body, k->hash);
    k->pending = 0;
    xt_response_free(&response);
    atomic_fetch_add(w->answered, 1);
    return !w->error[0];
}

static void *writer_main(void *context) {
    writer *w = context;
    xn_rng rng = {w->seed};
    xt_conn conn;
    bool on = xt_connect(&conn, w->daemon);
    for (int i = 0; on && i < CHANGES; i++)
        on = change(w, &conn, &rng);
    xt_disconnect(&conn);
    return NULL;
}

/* Every name has what was answered last, or what was under way when the daemon was killed. */
static void check_survivors(const xt_daemon *daemon, writer *w) {
    for (int i = 0; i < NAMES; i++) {
        known *k = &w->names[i];
        char name[32], found[HASH], expected[HASH] = "";
        name_for(w, i, name);
        get_hash(daemon, name, found);
        if (k->pending && strcmp(found, k->hash) != 0) {
            if (k->pending > 0) { /* its hash is learnt from the daemon */
                xt_conn conn;
                xt_response response;
                ck_assert(xt_connect(&conn, daemon));
                ck_assert_int_eq(put_version(&conn, "learn", k->pending, &response), XT_GOT);
                copy_hash(response.body, expected);
                xt_response_free(&response);
                xt_disconnect(&conn);
            }
            snprintf(k->hash, sizeof k->hash, "%s", expected);
        }
        ck_assert_msg(!strcmp(found, k->hash), "%s has '%s', but '%s' was answered (under way: %d)",
                      name, found, k->hash, k->pending);
        k->pending = 0;
    }
}

START_TEST(kill_9_loses_nothing_that_was_answered) {
    enum { ROUNDS = 6 };
    static writer writers[WRITERS];
    xn_rng rng = {xn_test_seed() + 9};
    make_folder();
    memset(writers, 0, sizeof writers);
    for (int round = 0; round < ROUNDS; round++) {
        atomic_int answered = 0;
        xt_daemon *d = start_over_folder();
        for (int i = 0; i < WRITERS; i++)
            check_survivors(d, &writers[i]); /* of the round before */
        int enough = 1 + (int)xn_rng_below(&rng, WRITERS * CHANGES - 100);
        for (int i = 0; i < WRITERS; i++) {
            writer *w = &writers[i];
            w->index = i;
            w->daemon = d;
            w->answered = &answered;
            w->seed = xn_rng_next(&rng);
            w->version += round ? 0 : i + 1;
            ck_assert_int_eq(pthread_create(&w->thread, NULL, writer_main, w), 0);
        }
        for (int64_t end = xt_now_ms() + XT_PATIENCE_MS;
             atomic_load(&answered) < enough && xt_now_ms() < end;)
            xt_nap();
        kill(d->pid, SIGKILL);
        for (int i = 0; i < WRITERS; i++) {
            pthread_join(writers[i].thread, NULL);
            ck_assert_msg(!writers[i].error[0], "%s", writers[i].error);
        }
        ck_assert_int_ge(atomic_load(&answered), enough);
        ck_assert_int_eq(xt_daemon_wait(d), 1000 + SIGKILL);
    }
    xt_daemon *d = start_over_folder();
    for (int i = 0; i < WRITERS; i++)
        check_survivors(d, &writers[i]);
    ck_assert_double_eq(xt_metric(d, "xnord_weights_dir_skipped_files"), 0);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- what goes wrong ---- */

/* A folder in the place of a file is the operator's to remove: no defect of the daemon. Links show
 * in the log, and SIGHUP has a daemon that does not poll look. */
START_TEST(folders_links_and_sighup) {
    char path[128], outside[128], hash[HASH];
    xt_conn conn;
    xt_response response;
    make_folder();
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/leaves.safetensors", folder);
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--weights-dir", folder, "--weights-poll-ms", "0"));
    ck_assert(xt_daemon_log_wait(d, "leaves.safetensors skipped: it is a link that leaves"));
    ck_assert_double_eq(xt_metric(d, "xnord_weights_dir_skipped_files"), 2);
    ck_assert(xt_connect(&conn, d));
    ck_assert_int_eq(put_version(&conn, "w", 1, &response), XT_GOT);
    xt_check_error(&response, 422, "name", "is a folder", "PUT over a folder");
    xt_response_free(&response);
    ck_assert_int_eq(put_version(&conn, "v", 1, &response), XT_GOT);
    xt_response_free(&response);
    snprintf(path, sizeof path, "%s/v.safetensors", folder);
    snprintf(outside, sizeof outside, "%s/copy.safetensors", folder);
    ck_assert_int_eq(link(path, outside), 0);
    get_hash(d, "copy", hash);
    ck_assert_str_eq(hash, "");
    ck_assert_int_eq(kill(d->pid, SIGHUP), 0);
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; !hash[0] && xt_now_ms() < end; xt_nap())
        get_hash(d, "copy", hash);
    ck_assert_str_ne(hash, "");
    static const int deleted[] = {204, 404};
    for (int i = 0; i < 2; i++) { /* with its file */
        ck_assert_int_eq(delete_name(&conn, "v", &response), XT_GOT);
        ck_assert_int_eq(response.status, deleted[i]);
        xt_response_free(&response);
        ck_assert_int_ne(access(path, F_OK), 0);
    }
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

XN_SUITE(http_weights_dir) {
    Suite *s = suite_create("http_weights_dir");
    TCase *t = tcase_create("weights_dir");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, NULL, remove_folder);
    tcase_add_test(t, kill_9_loses_nothing_that_was_answered);
    tcase_add_test(t, folders_links_and_sighup);
    suite_add_tcase(s, t);
    return s;
}
