/* What clients see when devices fail: the HTTP server over the fake backend, which loses devices,
 * runs out of memory, fails and takes its time when a test says so. Threads meet on semaphores: a
 * gated run holds its worker until the test lets it go. */
#include "client/instance.h"
#include "client/wire.h"
#include "unit/engine/engine_bench.h"

#include <stdio.h>
#include <string.h>

/* ---- the server ---- */

static xt_instance server;
static sem_t fatal; /* posted by the call that ends the process */

static void on_fatal(void *context) {
    sem_post(context);
}

/* No HTTP thread runs jobs, so that who is held is a worker. */
static void begin(void) {
    fake_reset();
    xt_instance_init(&server);
    server.config.inline_us = 0;
    sem_init(&fatal, 0, 0);
}

/* One GPU with one worker, the cpu beside it. */
static void start(void) {
    xn_error error = {0};
    xn_engine *engine = fake_engine_pair(&server.config, 1);
    xn_engine_on_fatal(engine, on_fatal, &fatal);
    ck_assert_msg(xt_instance_start(&server, engine, &error) == XN_OK, "%s", error.message);
}

static void end(void) {
    xn_engine *engine = server.service.engine;
    xn_metrics *metrics = xn_engine_metrics(engine);
    xn_engine_drain(engine);
    ck_assert(xn_engine_wait_idle(engine, xn_now_ns() + XT_PATIENCE_MS * XN_NS_PER_MS));
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT), 0);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES), 0);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_QUEUE_DEPTH), 0);
    xt_instance_stop(&server);
    fake_expect_all_freed();
    ck_assert_int_ne(sem_trywait(&fatal), 0); /* called no more than a test has waited for */
}

/* ---- requests ---- */

/* A request on its way: `images` images of the value 3, one weight. */
typedef struct call {
    xt_conn conn;
    int images;
    double weight;
} call;

static const char conv_body[] =
    "{\"input\": {\"shape\": [%d,1,1,1], \"datatype\": \"FP32\", \"data\": [3%s]}, \"weights\": "
    "{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [%g]}, \"mode\": \"float\"%s}";

/* more: further members of the JSON object, with their commas. */
static xt_buffer call_body(const call *c, const char *more) {
    char values[64] = "";
    xt_buffer body = {0};
    ck_assert_int_le(c->images, 16);
    for (int i = 1; i < c->images; i++)
        strcat(values, ",3");
    xt_print(&body, conv_body, c->images, values, c->weight, more);
    return body;
}

static void call_head(call *c, size_t length) {
    xt_buffer head = {0};
    xt_print(&head,
             "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             length);
    ck_assert(xt_connect(&c->conn, &server.address));
    ck_assert(xt_send(&c->conn, head.data, head.length));
    xt_buffer_free(&head);
}

static call call_send(int images, double weight, const char *more) {
    call c = {.images = images, .weight = weight};
    xt_buffer body = call_body(&c, more);
    call_head(&c, body.length);
    ck_assert(xt_send(&c.conn, body.data, body.length));
    xt_buffer_free(&body);
    return c;
}

/* Sends one and waits until a device runs it, where it stays until its gate is posted. */
static call call_hold(double weight, const char *more) {
    fake[FAKE_GPU].gated = true;
    call c = call_send(1, weight, more);
    fake_wait(&fake[FAKE_GPU].entered);
    fake[FAKE_GPU].gated = false;
    return c;
}

static void wait_queued(double requests) {
    ck_assert(xt_metric_becomes(&server.address, "xnord_queue_depth", requests));
    ck_assert_double_gt(xt_metric(&server.address, "xnord_queue_oldest_seconds"), 0);
}

static void take(call *c, xt_response *response) {
    xt_result result = xt_receive(&c->conn, false, false, response);
    ck_assert_msg(result == XT_GOT, "got %s", xt_result_name(result));
    xt_disconnect(&c->conn);
}

/* 200 from that backend, with the right values. */
static void expect_served(call *c, const char *backend) {
    xt_response response;
    xt_answer answer;
    char error[256] = "";
    take(c, &response);
    ck_assert_msg(response.status == 200, "%d %s", response.status, response.body);
    ck_assert_msg(xt_answer_read(&response, XT_JSON, &answer, error, sizeof error), "%s", error);
    ck_assert_str_eq(answer.backend, backend);
    ck_assert_int_eq(answer.count, c->images);
    for (int i = 0; i < c->images; i++)
        ck_assert_double_eq(answer.values[i], 3 * c->weight);
    xt_answer_free(&answer);
    xt_response_free(&response);
}

static void expect_error(call *c, int status, const char *field, const char *part,
                         const char *what) {
    xt_response response;
    take(c, &response);
    xt_check_error(&response, status, field, part, what);
    bool retry = XT_HEADER(&response, "Retry-After") != NULL;
    ck_assert_msg(retry == (status == 503), "%s: Retry-After %s", what,
                  retry ? "given" : "missing");
    xt_response_free(&response);
}

static void expect_rejected(const char *reason, double count) {
    char sample[96];
    snprintf(sample, sizeof sample, "xnord_rejected_requests_total{reason=\"%s\"}", reason);
    ck_assert_double_eq(xt_metric(&server.address, sample), count);
}

static void expect_get(const char *target, int status, const char *part) {
    xt_response response;
    xt_fetch(&server.address, "GET", target, "", NULL, 0, &response);
    ck_assert_msg(response.status == status, "%s: %d %s", target, response.status, response.body);
    ck_assert_msg(strstr(response.body, part), "%s: %s", target, response.body);
    ck_assert_msg(status != 503 || XT_HEADER(&response, "Retry-After"), "%s: no Retry-After",
                  target);
    xt_response_free(&response);
}

/* ---- lost ---- */

START_TEST(lost_with_policy_exit) {
    server.config.on_device_loss = XN_LOSS_EXIT;
    start();
    expect_get("/v2/health/ready", 200, "\"ready\": true");
    call running = call_hold(2, "");
    call queued = call_send(1, 5, "");
    wait_queued(1);
    fake[FAKE_GPU].lost[0] = true;
    sem_post(&fake[FAKE_GPU].gate);
    expect_error(&running, 503, NULL, "launch failure", "the request that ran");
    expect_error(&queued, 503, NULL, "cuda:0 was lost", "the one behind it");
    fake_wait(&fatal);
    expect_get("/v2/health/ready", 503, "cuda:0 was lost");
    expect_get("/v2/health/live", 200, "true");
    call after = call_send(1, 2, "");
    expect_error(&after, 503, NULL, "lost", "one that comes later");
    call cpu = call_send(1, 2, ", \"backend\": \"cpu\"");
    expect_error(&cpu, 503, NULL, "lost", "one for the cpu: the process is to end");
    expect_rejected("device", 4);
    ck_assert_double_eq(xt_metric(&server.address, "xnord_device_up{device=\"cuda:0\"}"), 0);
    ck_assert_double_eq(xt_metric(&server.address, "xnord_ready"), 0);
}
END_TEST

START_TEST(lost_with_policy_cpu) {
    server.config.on_device_loss = XN_LOSS_CPU;
    start();
    call running = call_hold(2, "");
    call any = call_send(2, 5, "");
    wait_queued(1);
    fake[FAKE_GPU].lost[0] = true;
    sem_post(&fake[FAKE_GPU].gate);
    expect_error(&running, 503, NULL, "launch failure", "the request that ran");
    expect_served(&any, "cpu");
    expect_get("/v2/health/ready", 200, "\"backend\": \"cpu\"");
    call never = call_send(1, 2, ", \"backend\": \"cuda\"");
    expect_error(&never, 503, "backend", "cuda", "one that asks for cuda later");
    expect_rejected("device", 2);
}
END_TEST

/* ---- failing ---- */

/* Out of memory even for one request alone: that one is refused, no other. */
START_TEST(device_memory) {
    start();
    fake[FAKE_GPU].run_memory = 3;
    call large = call_send(4, 2, "");
    expect_error(&large, 503, "input", "cuda:0 has not enough memory for this request (4 images)",
                 "more than the device holds");
    call small = call_send(3, 2, "");
    expect_served(&small, "cuda:0");
    fake[FAKE_GPU].run_memory = 0;
    fake[FAKE_GPU].prepare_failure = XN_ERR_DEVICE_MEMORY;
    call fresh = call_send(1, 9, "");
    expect_error(&fresh, 503, NULL, "cannot prepare", "no memory for the weights");
    fake[FAKE_GPU].prepare_failure = XN_OK;
    call again = call_send(1, 9, "");
    expect_served(&again, "cuda:0");
    expect_rejected("no_memory", 2);
    expect_get("/v2/health/ready", 200, "\"ready\": true");
}
END_TEST

/* Weights tell how many requests used them, however many of those shared a launch. */
START_TEST(all_of_a_batch_are_counted) {
    enum { REQUESTS = 5 };
    static const char weights[] =
        "{\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [5]}}";
    static const char body[] =
        "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [3]}, "
        "\"weights\": \"w\", \"mode\": \"float\"}";
    call calls[REQUESTS];
    start();
    xt_expect(&server.address, "PUT", "/weights/w", "Content-Type: application/json\r\n", weights,
              201);
    call first = call_hold(2, "");
    for (int i = 0; i < REQUESTS; i++) {
        calls[i] = (call){.images = 1, .weight = 5};
        call_head(&calls[i], sizeof body - 1);
        ck_assert(xt_send(&calls[i].conn, body, sizeof body - 1));
    }
    wait_queued(REQUESTS);
    sem_post(&fake[FAKE_GPU].gate);
    expect_served(&first, "cuda:0");
    for (int i = 0; i < REQUESTS; i++)
        expect_served(&calls[i], "cuda:0");
    ck_assert_uint_eq(fake_record_get(FAKE_GPU, 1).count, REQUESTS);
    expect_get("/weights/w", 200, "\"requests\": 5");
}
END_TEST

/* ---- slow ---- */

static void pass_time(int64_t ms) {
    for (int64_t end = xt_now_ms() + ms; xt_now_ms() < end;)
        xt_nap();
}

START_TEST(deadline_in_the_queue) {
    start();
    call held = call_hold(2, "");
    call waits = call_send(1, 5, ", \"timeout_ms\": 1");
    expect_error(&waits, 504, "timeout_ms", "in the queue", "while the worker is busy");
    sem_post(&fake[FAKE_GPU].gate);
    expect_served(&held, "cuda:0");
    ck_assert_int_eq(fake_record_count(FAKE_GPU), 1);
    expect_rejected("deadline", 1);
}
END_TEST

START_TEST(deadline_in_the_run) {
    enum { TIMEOUT_MS = 1500 }; /* and the run has begun before, on the slowest machine */
    char more[64];
    start();
    snprintf(more, sizeof more, ", \"timeout_ms\": %d", TIMEOUT_MS);
    call held = call_hold(2, more);
    pass_time(TIMEOUT_MS + 1);
    sem_post(&fake[FAKE_GPU].gate);
    expect_error(&held, 504, "timeout_ms", "during the computation", "a run over the deadline");
    expect_rejected("deadline", 1);
}
END_TEST

/* A deadline counts from the request's last byte: how long the body took to come is the client's
 * own affair, and has limits of its own. */
START_TEST(deadline_and_a_slow_body) {
    enum { TIMEOUT_MS = 1500, BODY_MS = 2000 };
    char more[64];
    call c = {.images = 1, .weight = 2};
    start();
    snprintf(more, sizeof more, ", \"timeout_ms\": %d", TIMEOUT_MS);
    xt_buffer body = call_body(&c, more);
    call_head(&c, body.length);
    ck_assert(xt_send(&c.conn, body.data, body.length - 1));
    pass_time(BODY_MS);
    ck_assert(xt_send(&c.conn, body.data + body.length - 1, 1));
    expect_served(&c, "cuda:0");
    xt_buffer_free(&body);
}
END_TEST

/* A device that hangs with what it runs, of HTTP threads and of workers: the daemon goes on to
 * answer, says so once a canary is out for long, and clients get 504 at their deadlines. What the
 * device may still write to is held until it has done. */
START_TEST(hung) {
    enum { CAUGHT = 6 };
    call calls[CAUGHT];
    server.config.inline_us = 100;
    server.config.canary_interval_ms = 5;
    start();
    for (int i = 0; i < 3; i++) { /* the first prepares the weights, by a worker */
        call c = call_send(1, 2, "");
        expect_served(&c, "cuda:0");
    }
    fake[FAKE_GPU].hung[0] = true;
    for (int i = 0; i < CAUGHT; i++)
        calls[i] = call_send(1, 2, ", \"timeout_ms\": 1000");
    expect_get("/v2/health/live", 200, "true");
    for (int i = 0; i < CAUGHT; i++)
        expect_error(&calls[i], 504, "timeout_ms", "the deadline passed", "one that is caught");
    xn_engine *engine = server.service.engine;
    xn_lock_take(&engine->lock);
    ck_assert_int_gt(engine->pools.devices[0].canary_since_ns, 0);
    engine->pools.devices[0].canary_since_ns -= 60 * XN_NS_PER_S;
    xn_lock_drop(&engine->lock);
    expect_get("/v2/health/live", 200, "true");
    expect_get("/v2/health/ready", 503, "cuda:0 has not answered its canary");
    ck_assert_double_ge(xt_metric(&server.address, "xnord_inflight_requests"), 2);
    ck_assert_double_gt(xt_metric(&server.address, "xnord_inflight_bytes"), 0);
    expect_rejected("deadline", CAUGHT);
    fake[FAKE_GPU].hung[0] = false;
    ck_assert(xt_metric_becomes(&server.address, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(&server.address, "xnord_ready", 1));
    call later = call_send(1, 2, "");
    expect_served(&later, "cuda:0");
}
END_TEST

/* Clients that hang up: what is queued never runs, what runs ends, and nobody else notices. */
START_TEST(hang_ups) {
    start();
    call running = call_hold(2, "");
    call queued = call_send(1, 5, "");
    call stays = call_send(1, 7, "");
    wait_queued(2);
    xt_reset(&queued.conn);
    wait_queued(1);
    xt_reset(&running.conn);
    sem_post(&fake[FAKE_GPU].gate);
    expect_served(&stays, "cuda:0");
    ck_assert(xt_metric_becomes(&server.address, "xnord_inflight_requests", 0));
    ck_assert_int_eq(fake_record_count(FAKE_GPU), 2);
    ck_assert_double_eq(fake_record_get(FAKE_GPU, 1).weight, 7);
    ck_assert(xt_metric_reaches(&server.address,
                                "xnord_rejected_requests_total{reason=\"client_gone\"}", 1));
}
END_TEST

/* ---- bodies that background threads decode, which are held by the test ---- */

enum {
    BACKGROUND_THREADS = 2, /* of an instance */
    LONG_BYTES = 300000     /* more than is parsed inline */
};

typedef struct held {
    xn_task task; /* first: the task pointer is cast back */
    sem_t entered, gate;
} held;

static void run_held(xn_task *task) {
    held *h = (held *)task;
    sem_post(&h->entered);
    fake_wait(&h->gate);
}

static void hold_background_threads(held threads[BACKGROUND_THREADS]) {
    for (int i = 0; i < BACKGROUND_THREADS; i++) {
        threads[i] = (held){.task.run = run_held};
        sem_init(&threads[i].entered, 0, 0);
        sem_init(&threads[i].gate, 0, 0);
        xn_thread_pool_submit(server.service.background_pool, &threads[i].task);
        fake_wait(&threads[i].entered);
    }
}

static void release_background_threads(held threads[BACKGROUND_THREADS]) {
    for (int i = 0; i < BACKGROUND_THREADS; i++)
        sem_post(&threads[i].gate);
}

/* Sends a long one whose body is whole, and waits for a background thread, when this returns. more:
 * behind the weights; it may be no JSON. */
static call send_long(const char *more) {
    call c = {.images = 1, .weight = 2};
    xt_buffer body = {0};
    xt_print(&body, "%*s", LONG_BYTES, " ");
    memcpy(body.data, "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [3",
           61);
    xt_print(&body,
             "]}, \"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [2]}, "
             "\"mode\": \"float\"%s}",
             more);
    call_head(&c, body.length);
    ck_assert(xt_send(&c.conn, body.data, body.length));
    ck_assert(
        xt_metric_reaches(&server.address, "xnord_received_body_bytes_total", (double)body.length));
    xt_buffer_free(&body);
    return c;
}

/* Waiting for a background thread counts, as decoding does. */
START_TEST(deadline_before_the_body_is_decoded) {
    enum { TIMEOUT_MS = 50 };
    held threads[BACKGROUND_THREADS];
    start();
    hold_background_threads(threads);
    call c = send_long(", \"timeout_ms\": 50");
    pass_time(2 * TIMEOUT_MS);
    release_background_threads(threads);
    expect_error(&c, 504, "timeout_ms", NULL, "a deadline that passed in the background pool");
}
END_TEST

/* What a client that is gone has sent is not even read: nobody would be told what is wrong. */
START_TEST(hang_up_before_the_body_is_decoded) {
    held threads[BACKGROUND_THREADS];
    start();
    hold_background_threads(threads);
    call c = send_long(", this is no JSON");
    xt_reset(&c.conn);
    ck_assert(xt_metric_becomes(&server.address,
                                "xnord_connections_closed_total{reason=\"client_gone\"}", 1));
    release_background_threads(threads);
    ck_assert(xt_metric_becomes(&server.address, "xnord_inflight_requests", 0));
    expect_rejected("client_gone", 1);
    expect_rejected("malformed", 0);
}
END_TEST

XN_SUITE(http_device) {
    Suite *s = suite_create("http_device");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, lost_with_policy_exit);
    tcase_add_test(t, lost_with_policy_cpu);
    tcase_add_test(t, device_memory);
    tcase_add_test(t, all_of_a_batch_are_counted);
    tcase_add_test(t, deadline_in_the_queue);
    tcase_add_test(t, deadline_in_the_run);
    tcase_add_test(t, deadline_and_a_slow_body);
    tcase_add_test(t, hung);
    tcase_add_test(t, deadline_before_the_body_is_decoded);
    tcase_add_test(t, hang_up_before_the_body_is_decoded);
    tcase_add_test(t, hang_ups);
    suite_add_tcase(s, t);
    return s;
}
