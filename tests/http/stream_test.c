/* Bodies as streams: requests of many sizes behind one another on a connection, cut into pieces
 * anywhere, also across the end of a body and the next request line. Each answer must be the body
 * that was sent: mode float with one weight of 1 is the identity. */
#include "client/client.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { REQUESTS = 12, ROUNDS = 6, LARGEST = 600 << 10, SLACK = 1024 };

static xt_daemon *daemon_;

static void put_identity(void) {
    static const char weight[] =
        "{\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}}";
    xt_expect(daemon_, "PUT", "/weights/one", "Content-Type: application/json\r\n", weight, 201);
}

static void setup(void) {
    daemon_ = xt_daemon_start_shared(XT_NO_FLAGS);
    put_identity();
}

static void teardown(void) {
    xt_daemon_stop_shared(daemon_);
}

/* ---- a stream of requests ---- */

typedef struct stream {
    xt_buffer bytes;
    size_t body[REQUESTS], length[REQUESTS]; /* where each body is */
    int count;
} stream;

static size_t random_length(xn_rng *rng) {
    static const size_t edges[] = {4, 4096, 16 << 10, 32 << 10, 64 << 10, 256 << 10};
    if (xn_rng_below(rng, 3) == 0)
        return edges[xn_rng_below(rng, sizeof edges / sizeof *edges)] + 4 * xn_rng_below(rng, 3);
    size_t most = xn_rng_below(rng, 2) ? LARGEST : 20 << 10;
    return 4 * (1 + xn_rng_below(rng, most / 4));
}

static void add_request(stream *s, xn_rng *rng) {
    static const char target[] = "/conv?weights=one&mode=float&scaling=none&shape=1,1,1,";
    size_t length = random_length(rng);
    xt_print(&s->bytes,
             "POST %s%zu HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\n"
             "Content-Length: %zu\r\n\r\n",
             target, length / 4, length);
    s->body[s->count] = s->bytes.length;
    s->length[s->count++] = length;
    for (size_t i = 0; i < length; i += 4) {
        float value = (float)xn_rng_below(rng, 1 << 20);
        xt_append(&s->bytes, &value, 4);
    }
}

static size_t random_piece(xn_rng *rng, size_t left) {
    static const size_t most[] = {3, 300, 5000, 40000, 300000};
    size_t piece = 1 + xn_rng_below(rng, most[xn_rng_below(rng, sizeof most / sizeof *most)]);
    return piece < left ? piece : left;
}

/* What is sent may be more than is read meanwhile: a thread of its own sends it. */
typedef struct sender {
    const stream *stream;
    xt_conn *conn;
    xn_rng rng;
    bool ok;
} sender;

static void *send_pieces(void *context) {
    sender *self = context;
    const xt_buffer *bytes = &self->stream->bytes;
    self->ok = true;
    for (size_t at = 0; at < bytes->length && self->ok;) {
        size_t piece = random_piece(&self->rng, bytes->length - at);
        self->ok = xt_send(self->conn, bytes->data + at, piece);
        at += piece;
        if (xn_rng_below(&self->rng, 50) == 0)
            poll(NULL, 0, 1);
    }
    return NULL;
}

static void expect_answers(xt_conn *conn, const stream *s, uint64_t seed) {
    for (int i = 0; i < s->count; i++) {
        xt_response response;
        xt_result got = xt_receive(conn, false, false, &response);
        ck_assert_msg(got == XT_GOT && response.status == 200, "seed %llu, request %d: %s, %d",
                      (unsigned long long)seed, i, xt_result_name(got),
                      got == XT_GOT ? response.status : 0);
        ck_assert_msg(response.length == s->length[i] &&
                          !memcmp(response.body, s->bytes.data + s->body[i], s->length[i]),
                      "seed %llu, request %d of %zu bytes: other bytes", (unsigned long long)seed,
                      i, s->length[i]);
        xt_response_free(&response);
    }
}

static void run_stream(uint64_t seed) {
    xn_rng rng = {seed};
    stream s = {.count = 0};
    xt_conn conn;
    pthread_t thread;
    for (int i = 0; i < REQUESTS; i++)
        add_request(&s, &rng);
    ck_assert(xt_connect(&conn, daemon_));
    sender out = {.stream = &s, .conn = &conn, .rng = rng};
    ck_assert_int_eq(pthread_create(&thread, NULL, send_pieces, &out), 0);
    expect_answers(&conn, &s, seed);
    pthread_join(thread, NULL);
    ck_assert(out.ok);
    xt_disconnect(&conn);
    xt_buffer_free(&s.bytes);
}

START_TEST(bodies_behind_one_another) {
    for (uint64_t i = 0; i < ROUNDS; i++)
        run_stream(xn_test_seed() + (uint64_t)_i * ROUNDS + i);
}
END_TEST

/* ---- bodies that end early ---- */

/* ---- who serves a connection ---- */

enum { THREADS = 4, CONNECTIONS = 40 };

/* How often each of the library's threads has slept so far; how many threads there are. */
static int count_sleeps(const xt_daemon *d, long sleeps[THREADS]) {
    char path[300], line[128];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)d->pid);
    DIR *tasks = opendir(path);
    ck_assert_ptr_nonnull(tasks);
    for (struct dirent *task; (task = readdir(tasks)) && found < THREADS;) {
        bool library = false;
        snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)d->pid, task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            library = library || !strncmp(line, "Name:\tMHD-worker", 16);
            if (library && sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps[found]) == 1)
                found++;
        }
        if (status)
            fclose(status);
    }
    closedir(tasks);
    return found;
}

static void ask_all(xt_conn conns[CONNECTIONS]) {
    for (int i = 0; i < CONNECTIONS; i++) {
        xt_response response;
        ck_assert_int_eq(xt_request(&conns[i], "GET", "/v2/health/live", "", NULL, 0, &response),
                         XT_GOT);
        ck_assert_int_eq(response.status, 200);
        xt_response_free(&response);
    }
}

/* Clients that connect at once are served by all threads, a part by each. */
START_TEST(threads_share_connections) {
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--http-threads", "4"));
    xt_conn conns[CONNECTIONS];
    long before[THREADS], after[THREADS];
    for (int i = 0; i < CONNECTIONS; i++)
        ck_assert(xt_connect(&conns[i], d));
    ask_all(conns);
    ck_assert_int_eq(count_sleeps(d, before), THREADS);
    for (int round = 0; round < 10; round++)
        ask_all(conns);
    ck_assert_int_eq(count_sleeps(d, after), THREADS);
    for (int i = 0; i < THREADS; i++) /* about 100 requests each */
        ck_assert_msg(after[i] - before[i] >= 20, "thread %d of %d: %ld sleeps", i, THREADS,
                      after[i] - before[i]);
    for (int i = 0; i < CONNECTIONS; i++)
        xt_disconnect(&conns[i]);
    ck_assert(xt_metric_becomes(d, "xnord_connections", 1));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

XN_SUITE(http_stream) {
    Suite *s = suite_create("http_stream");
    TCase *t = tcase_create("stream");
    tcase_set_timeout(t, 180);
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, bodies_behind_one_another, 0, 4);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    TCase *threads = tcase_create("threads");
    tcase_set_timeout(threads, 120);
    tcase_add_checked_fixture(threads, NULL, xt_reap);
    tcase_add_test(threads, threads_share_connections);
    suite_add_tcase(s, threads);
    return s;
}
