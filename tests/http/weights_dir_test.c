/* --weights-dir on real daemons: killed in the middle of PUTs, started again, several over one
 * folder, a folder that cannot be used, a disk that is full. tests/unit/weights_dir_test.c has what
 * needs a look inside. */
#include "client/wire.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
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

static int temporaries(void) {
    int count = 0;
    DIR *stream = opendir(folder);
    ck_assert_ptr_nonnull(stream);
    for (const struct dirent *e; (e = readdir(stream));)
        count += strstr(e->d_name, ".tmp") != NULL;
    closedir(stream);
    return count;
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

/* ---- what is kept computes the same ---- */

START_TEST(weights_of_every_datatype_compute_the_same_after_a_restart) {
    static const xt_case cases[] = {
        {"fp32", 1, 3, 6, 7, 4, 3, 3, .scale = true, .bias = true},
        {"fp16", 1, 3, 6, 7, 4, 3, 3, .weights_datatype = "FP16", .bias = true},
        {"bf16", 1, 3, 6, 7, 4, 3, 3, .weights_datatype = "BF16", .scale = true},
        {"int8", 1, 3, 6, 7, 4, 3, 3, .weights_datatype = "INT8"},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    xt_problem problems[CASES];
    xt_response response;
    make_folder();
    xt_daemon *d = start_over_folder();
    for (int i = 0; i < CASES; i++) {
        char target[32];
        xt_message message;
        snprintf(target, sizeof target, "/weights/%s", cases[i].name);
        xt_problem_make(&problems[i], &cases[i], xn_test_seed() + (uint64_t)i);
        xt_encode_weights(&problems[i], (xt_form)(i % XT_FORMS), &message);
        xt_fetch(d, "PUT", target, message.headers.data, message.body.data, message.body.length,
                 &response);
        ck_assert_int_eq(response.status, 201);
        xt_response_free(&response);
        xt_message_free(&message);
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    d = start_over_folder();
    for (int i = 0; i < CASES; i++) {
        char error[512] = "";
        xt_message message;
        xt_encode(&problems[i], XT_OIP, &(xt_options){.weights_name = cases[i].name}, &message);
        xt_fetch(d, "POST", message.target.data, message.headers.data, message.body.data,
                 message.body.length, &response);
        ck_assert_msg(
            xt_response_matches(&response, XT_OIP, &problems[i], NULL, error, sizeof error),
            "%s: %s", cases[i].name, error);
        xt_response_free(&response);
        xt_message_free(&message);
        xt_problem_free(&problems[i]);
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* A kept file is an ordinary safetensors file: it can be PUT to another daemon. */
START_TEST(a_kept_file_can_be_put) {
    char path[128], first[HASH], second[HASH];
    xt_conn conn;
    xt_response response;
    static char bytes[4096];
    make_folder();
    xt_daemon *d = start_over_folder();
    ck_assert(xt_connect(&conn, d));
    ck_assert_int_eq(put_version(&conn, "w", 3, &response), XT_GOT);
    copy_hash(response.body, first);
    xt_response_free(&response);
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    ck_assert_int_eq(xt_request(&conn, "PUT", "/weights/copy",
                                "Content-Type: application/vnd.safetensors\r\n", bytes, length,
                                &response),
                     XT_GOT);
    ck_assert_int_eq(response.status, 201);
    copy_hash(response.body, second);
    ck_assert_str_eq(first, second);
    xt_response_free(&response);
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- several daemons ---- */

enum { DAEMONS = 2, SHARED = 4, STEPS = 120 };

typedef struct rival {
    pthread_t thread;
    const xt_daemon *daemon;
    uint64_t seed;
    int first, wrong;
} rival;

static void *rival_main(void *context) {
    rival *r = context;
    xn_rng rng = {r->seed};
    xt_conn conn;
    bool on = xt_connect(&conn, r->daemon);
    for (int i = 0; on && i < STEPS; i++) {
        char name[32];
        xt_response response = {0};
        bool deletes = xn_rng_below(&rng, 4) == 0;
        snprintf(name, sizeof name, "shared-%d", (int)xn_rng_below(&rng, SHARED));
        on = (deletes ? delete_name(&conn, name, &response)
                      : put_version(&conn, name, r->first + i, &response)) == XT_GOT;
        r->wrong += deletes ? response.status != 204 && response.status != 404
                            : response.status != 200 && response.status != 201;
        xt_response_free(&response);
    }
    r->wrong += !on;
    xt_disconnect(&conn);
    return NULL;
}

/* What a daemon that has just read the folder lists is what is on disk. */
static void check_same(const xt_daemon *daemon, const xt_daemon *fresh, int which) {
    char name[32], want[HASH], found[HASH] = "?";
    snprintf(name, sizeof name, "shared-%d", which);
    get_hash(fresh, name, want);
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; xt_now_ms() < end; xt_nap()) {
        get_hash(daemon, name, found);
        if (!strcmp(found, want))
            return;
    }
    ck_abort_msg("%s: '%s' is listed, '%s' is on disk", name, found, want);
}

START_TEST(daemons_that_share_a_folder_agree) {
    rival rivals[2 * DAEMONS];
    xt_daemon *daemons[DAEMONS];
    make_folder();
    for (int i = 0; i < DAEMONS; i++)
        daemons[i] = start_over_folder();
    for (int i = 0; i < 2 * DAEMONS; i++) {
        rivals[i] = (rival){.daemon = daemons[i % DAEMONS],
                            .seed = xn_test_seed() + (uint64_t)i,
                            .first = 1 + i * STEPS};
        ck_assert_int_eq(pthread_create(&rivals[i].thread, NULL, rival_main, &rivals[i]), 0);
    }
    for (int i = 0; i < 2 * DAEMONS; i++) {
        pthread_join(rivals[i].thread, NULL);
        ck_assert_int_eq(rivals[i].wrong, 0);
    }
    xt_daemon *fresh = start_over_folder();
    for (int i = 0; i < DAEMONS; i++)
        for (int n = 0; n < SHARED; n++)
            check_same(daemons[i], fresh, n);
    /* And what one is told, the others do. */
    xt_conn conn;
    xt_response response;
    ck_assert(xt_connect(&conn, daemons[0]));
    ck_assert_int_eq(put_version(&conn, "shared-0", 9999, &response), XT_GOT);
    char hash[HASH], found[HASH] = "";
    copy_hash(response.body, hash);
    xt_response_free(&response);
    xt_disconnect(&conn);
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; strcmp(found, hash) && xt_now_ms() < end;)
        get_hash(daemons[1], "shared-0", found);
    ck_assert_str_eq(found, hash);
    ck_assert_int_eq(temporaries(), 0);
    for (int i = 0; i < DAEMONS; i++)
        ck_assert_int_eq(xt_daemon_stop(daemons[i]), 0);
    ck_assert_int_eq(xt_daemon_stop(fresh), 0);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(a_folder_that_cannot_be_used_is_an_error) {
    static const char *const bad[] = {"/nonexistent/weights", "/dev/null"};
    xt_buffer out = {0}, err = {0};
    int status = xt_run(XT_FLAGS("--backend", "cpu", "--port", "0", "--weights-dir", bad[_i]), NULL,
                        &out, &err);
    ck_assert_int_eq(status, 1);
    ck_assert_msg(strstr(err.data, "--weights-dir") && strstr(err.data, bad[_i]), "%s", err.data);
    xt_buffer_free(&out);
    xt_buffer_free(&err);
}
END_TEST

START_TEST(a_full_disk_is_an_error_of_that_put) {
    char before[HASH], after[HASH];
    xt_conn conn;
    xt_response response;
    make_folder();
    xt_daemon *d = start_over_folder();
    ck_assert(xt_connect(&conn, d));
    ck_assert_int_eq(put_version(&conn, "w", 1, &response), XT_GOT);
    ck_assert_int_eq(response.status, 201);
    xt_response_free(&response);
    get_hash(d, "w", before);
    struct rlimit limit, small;
    ck_assert_int_eq(prlimit(d->pid, RLIMIT_FSIZE, NULL, &limit), 0);
    small = limit;
    small.rlim_cur = 4096;
    ck_assert_int_eq(prlimit(d->pid, RLIMIT_FSIZE, &small, NULL), 0);
    ck_assert_int_eq(put_version(&conn, "w", 9, &response), XT_GOT); /* a large one */
    xt_check_error(&response, 503, "weights-dir", "File too large", "PUT over the limit");
    xt_response_free(&response);
    ck_assert_int_eq(prlimit(d->pid, RLIMIT_FSIZE, &limit, NULL), 0);
    get_hash(d, "w", after);
    ck_assert_str_eq(before, after);
    ck_assert_int_eq(temporaries(), 0);
    ck_assert_double_eq(xt_metric(d, "xnord_weights_dir_errors_total"), 1);
    ck_assert_int_eq(put_version(&conn, "w", 9, &response), XT_GOT);
    ck_assert_int_eq(response.status, 200);
    xt_response_free(&response);
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

START_TEST(skipped_files_are_in_the_log) {
    char path[128];
    make_folder();
    snprintf(path, sizeof path, "%s/odd.safetensors", folder);
    ck_assert_int_eq(mkfifo(path, 0666), 0);
    xt_daemon *d = start_over_folder();
    ck_assert(xt_daemon_log_wait(d, "odd.safetensors skipped: it is a FIFO"));
    ck_assert_double_eq(xt_metric(d, "xnord_weights_dir_skipped_files"), 1);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

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
    xt_disconnect(&conn);
    snprintf(path, sizeof path, "%s/v.safetensors", folder);
    snprintf(outside, sizeof outside, "%s/copy.safetensors", folder);
    ck_assert_int_eq(link(path, outside), 0);
    get_hash(d, "copy", hash);
    ck_assert_str_eq(hash, "");
    ck_assert_int_eq(kill(d->pid, SIGHUP), 0);
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; !hash[0] && xt_now_ms() < end; xt_nap())
        get_hash(d, "copy", hash);
    ck_assert_str_ne(hash, "");
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
    tcase_add_test(t, weights_of_every_datatype_compute_the_same_after_a_restart);
    tcase_add_test(t, a_kept_file_can_be_put);
    tcase_add_test(t, daemons_that_share_a_folder_agree);
    tcase_add_loop_test(t, a_folder_that_cannot_be_used_is_an_error, 0, 2);
    tcase_add_test(t, a_full_disk_is_an_error_of_that_put);
    tcase_add_test(t, skipped_files_are_in_the_log);
    tcase_add_test(t, folders_links_and_sighup);
    suite_add_tcase(s, t);
    return s;
}
