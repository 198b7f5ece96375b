/* Models of a real daemon where tables do not do (exchanges/models.txt): registered weights give
 * what /conv gives, a model comes with the request that loads it, small loads pass large ones. */
#include "http/client/instance.h"
#include "http/client/oip.h"
#include "nw_write.h"
#include "xn_mem.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static xt_daemon *daemon_;
static char repository[256];
static xt_net nets[XT_NETS];

static void start(void) {
    xt_nets_make(nets, repository, sizeof repository);
    daemon_ = xt_daemon_start_shared(XT_FLAGS("--model-repository", repository));
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
    xt_nets_free(nets, repository);
}

static void ask(const char *method, const char *target, const char *body, int status,
                xt_response *response) {
    const char *type = target[1] == 'v' ? "" : "Content-Type: application/json\r\n";
    xt_fetch(daemon_, method, target, type, body, strlen(body), response);
    ck_assert_msg(response->status == status, "%s: %d %s", target, response->status,
                  response->body);
}

/* ---- registered weights ---- */

/* Values of "data" in an answer, up to the bracket. */
static const char *data_of(const char *json, const char *path, size_t *length) {
    const char *data = xt_json_at(json, path);
    ck_assert_msg(data != NULL, "no %s: %s", path, json);
    *length = strcspn(data, "]");
    return data;
}

START_TEST(weights_answer_as_models) {
#define IMAGE                                                                                      \
    "\"shape\": [1, 1, 4, 4], \"datatype\": \"FP32\", \"data\": [1, -2, 3, -4, 5, -6, 7, -8, 9, "  \
    "10, "                                                                                         \
    "11, -12, 13, 14, -15, 16]"
    static const char *const parameters[] = {
        "\"padding\": 1, \"scaling\": \"none\"",
        "\"mode\": \"bwn\", \"stride\": [2, 1], \"padding\": \"valid\"",
        "\"scaling\": \"none\", \"output_datatype\": \"INT32\""};
    char body[600];
    xt_response here, there;
    ask("PUT", "/weights/edge",
        "{\"weights\": {\"shape\": [2, 1, 2, 2], \"datatype\": \"FP32\", \"data\": [-2, -1, 0, 1, "
        "2, "
        "-2, 1, 3]}}",
        201, &here);
    xt_response_free(&here);
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        size_t length, other;
        snprintf(body, sizeof body,
                 "{\"inputs\": [{\"name\": \"input\", " IMAGE "}], \"parameters\": {%s}}",
                 parameters[i]);
        ask("POST", "/v2/models/edge/infer", body, 200, &here);
        snprintf(body, sizeof body, "{\"input\": {" IMAGE "}, \"weights\": \"edge\", %s}",
                 parameters[i]);
        ask("POST", "/conv", body, 200, &there);
        const char *mine = data_of(here.body, "outputs.0.data", &length);
        const char *theirs = data_of(there.body, "output.data", &other);
        ck_assert_msg(length == other && !memcmp(mine, theirs, length), "%s\n%s", here.body,
                      there.body);
        xt_response_free(&here);
        xt_response_free(&there);
    }
    char *stats = xt_get(daemon_, "/v2/models/edge/stats");
    ck_assert_double_eq(xt_json_number(stats, "model_stats.0.inference_stats.success.count"), 3);
    free(stats);
}
END_TEST

/* ---- by request ---- */

static void append_escaped(xt_buffer *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (text[i] == '"' || text[i] == '\\')
            xt_print(out, "\\%c", text[i]);
        else if (text[i] == '\n')
            xt_print(out, "\\n");
        else
            xt_append(out, text + i, 1);
}

static void append_base64(xt_buffer *out, const unsigned char *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        unsigned word = (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                        (left > 2 ? bytes[i + 2] : 0);
        char four[4] = {digits[word >> 18], digits[word >> 12 & 63],
                        left > 1 ? digits[word >> 6 & 63] : '=',
                        left > 2 ? digits[word & 63] : '='};
        xt_append(out, four, 4);
    }
}

/* A model that only the request has; then one with another configuration. */
START_TEST(load_from_the_request) {
    nw_files files;
    xt_buffer body = {0};
    nw_write(nets[XT_NET_BYTES].net, NULL, &files);
    xt_print(&body, "{\"parameters\": {\"config\": \"");
    append_escaped(&body, files.config, files.config_length);
    xt_print(&body, "\", \"file:model.safetensors\": \"");
    append_base64(&body, files.tensors, files.tensors_length);
    xt_print(&body, "\"}}");
    xt_response response;
    ask("POST", "/v2/repository/models/sent/load", body.data, 200, &response);
    ck_assert_uint_eq(response.length, 0);
    xt_response_free(&response);
    xn_rng rng = {xn_test_seed()};
    void *images = xt_net_images(&nets[XT_NET_BYTES], &rng, 2);
    float *expected = xt_net_expect(&nets[XT_NET_BYTES], images, 2);
    xt_infer how = {.in = XT_IN_BINARY};
    xt_ask(daemon_, "sent", &how, &nets[XT_NET_BYTES], images, 2, &response);
    xt_check_output(&response, 1, "out1", expected, 2, 250, 240, 250);
    xt_response_free(&response);
    free(images);
    free(expected);
    body.data[body.length - 6] = '!'; /* no base64 */
    ask("POST", "/v2/repository/models/sent/load", body.data, 400, &response);
    xt_response_free(&response);
    xt_buffer_free(&body);
    nw_files_free(&files);
}
END_TEST

/* ---- loads side by side, in this process ---- */

enum { HELD_BYTES = 123457 };
static sem_t held, release;

static bool hold_large(void *context, size_t bytes) {
    (void)context;
    if (bytes == HELD_BYTES) {
        sem_post(&held);
        sem_wait(&release);
    }
    return true;
}

START_TEST(a_small_load_passes_a_large_one) {
    char folder[256], tensors[300];
    xt_instance server;
    xt_conn large;
    xt_response response;
    xn_engine *engine = NULL;
    xn_error error = {0};
    xt_instance_init(&server);
    xt_folder_make(folder, sizeof folder);
    strcpy(server.config.model_repository, folder);
    strcpy(server.config.backend, "ref");
    sem_init(&held, 0, 0);
    sem_init(&release, 0, 0);
    xn_mem_set_hook(hold_large, NULL); /* while there is one thread */
    ck_assert_int_eq(xn_engine_create(&server.config, &engine, &error), XN_OK);
    ck_assert_msg(!xt_instance_start(&server, engine, &error), "%s", error.message);
    xt_net_write(&nets[XT_NET_PLAIN], folder, "small");
    xt_net_write(&nets[XT_NET_PLAIN], folder, "large");
    snprintf(tensors, sizeof tensors, "%s/large/model.safetensors", folder);
    ck_assert_int_eq(truncate(tensors, HELD_BYTES), 0);
    ck_assert(xt_connect(&large, &server.address));
    ck_assert(xt_send_text(&large, "POST /v2/repository/models/large/load HTTP/1.1\r\n"
                                   "Host: localhost\r\nContent-Length: 2\r\n\r\n{}"));
    sem_wait(&held);
    xt_fetch(&server.address, "POST", "/v2/repository/index", "", "{}", 2, &response);
    ck_assert_msg(strstr(response.body, "\"large\", \"state\": \"LOADING\"") != NULL, "%s",
                  response.body);
    xt_response_free(&response);
    xt_fetch(&server.address, "POST", "/v2/repository/models/small/load", "", "{}", 2, &response);
    ck_assert_int_eq(response.status, 200);
    xt_response_free(&response);
    sem_post(&release);
    ck_assert_int_eq(xt_receive(&large, false, false, &response), XT_GOT);
    xt_check_oip_error(&response, 400, "model.safetensors", "load");
    xt_response_free(&response);
    xt_disconnect(&large);
    xt_instance_stop(&server);
    xn_mem_set_hook(NULL, NULL);
    xt_folder_remove(folder);
}
END_TEST

/* ---- warm before ready ---- */

/* Ready, and loaded by a request, come after runs of 1, 8 and 16 images, or after none. */
START_TEST(ready_when_warm) {
    xt_response response;
    xt_daemon *d =
        xt_daemon_start(XT_FLAGS("--model-repository", repository, "--warmup", _i ? "off" : "on"));
    const double runs = _i ? 0 : 3 * XT_NETS, images = _i ? 0 : 25 * XT_NETS;
    ck_assert_double_eq(xt_metric(d, "xnord_batch_images_count"), runs);
    ck_assert_double_eq(xt_metric(d, "xnord_batch_images_sum"), images);
    xt_fetch(d, "POST", "/v2/repository/models/plain/load", "", "{}", 2, &response);
    ck_assert_msg(response.status == 200, "%s", response.body);
    xt_response_free(&response);
    ck_assert_double_eq(xt_metric(d, "xnord_batch_images_count"), runs + (_i ? 0 : 3));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 0)); /* behind the answer */
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- versions ---- */

enum { CLIENTS = 4, RELOADS = 24 };

typedef struct asking {
    const xt_daemon *daemon;
    atomic_bool over;
    atomic_int answers, failures;
    char failure[300];
} asking;

/* Requests without a pause, on one connection. */
static void *ask_on(void *argument) {
    asking *a = argument;
    xn_rng rng = {xn_test_seed()};
    xt_infer how = {.in = XT_IN_BINARY};
    xt_buffer body = {0};
    xt_conn conn;
    void *images = xt_net_images(&nets[XT_NET_PLAIN], &rng, 2);
    xt_infer_body(&how, &nets[XT_NET_PLAIN], images, 2, &body);
    bool open = xt_connect(&conn, a->daemon);
    while (open && !atomic_load(&a->over)) {
        xt_response response;
        if (xt_infer_send(&conn, "m", &how, &body, &response) == XT_GOT) {
            atomic_fetch_add(response.status == 200 ? &a->answers : &a->failures, 1);
            if (response.status != 200)
                snprintf(a->failure, sizeof a->failure, "%d %.200s", response.status,
                         response.body);
            xt_response_free(&response);
        } else {
            atomic_fetch_add(&a->failures, 1);
            open = false;
        }
    }
    xt_disconnect(&conn);
    xt_buffer_free(&body);
    free(images);
    return NULL;
}

/* A new version, the same one anew, and the one before it gone, under way of requests: none of them
 * fails, and each version that serves is reached by its number. */
START_TEST(reloads_fail_no_request) {
    char folder[256], model[300], version[16], from[600], to[600], index[2000];
    xt_response response;
    pthread_t threads[CLIENTS];
    asking a = {0};
    xt_folder_make(folder, sizeof folder);
    snprintf(model, sizeof model, "%s/m", folder);
    ck_assert_int_eq(mkdir(model, 0777), 0);
    xt_net_write(&nets[XT_NET_PLAIN], model, "1");
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--model-repository", folder, "--version-policy", _i ? "latest:2" : "latest:1"));
    a.daemon = d;
    for (int i = 0; i < CLIENTS; i++)
        ck_assert(!pthread_create(&threads[i], NULL, ask_on, &a));
    for (int i = 2; i < RELOADS; i++) {
        if (i % 3) { /* a version that comes in one piece */
            snprintf(version, sizeof version, ".%d", i);
            xt_net_write(&nets[XT_NET_PLAIN], model, version);
            snprintf(from, sizeof from, "%s/.%d", model, i);
            snprintf(to, sizeof to, "%s/%d", model, i);
            ck_assert_int_eq(rename(from, to), 0);
        }
        xt_fetch(d, "POST", "/v2/repository/models/m/load", "", "{}", 2, &response);
        ck_assert_msg(response.status == 200, "%s", response.body);
        xt_response_free(&response);
        const int before = atomic_load(&a.answers);
        while (atomic_load(&a.answers) < before + CLIENTS && !atomic_load(&a.failures))
            xt_nap();
    }
    atomic_store(&a.over, true);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_msg(!a.failures, "%d of %d: %s", a.failures, a.answers, a.failure);
    xt_fetch(d, "GET", "/v2/models/m", "", "", 0, &response); /* 23, 22 came; 21 and 18 did not */
    ck_assert_msg(strstr(response.body,
                         _i ? "\"versions\": [\"22\", \"23\"]" : "\"versions\": [\"23\"]") != NULL,
                  "%s", response.body);
    xt_response_free(&response);
    xt_fetch(d, "POST", "/v2/repository/index", "", "{}", 2, &response);
    snprintf(index, sizeof index, "%s", response.body);
    ck_assert_ptr_nonnull(strstr(index, "\"version\": \"23\", \"state\": \"READY\""));
    ck_assert_int_eq(strstr(index, "\"version\": \"22\", \"state\": \"READY\"") != NULL, _i);
    xt_response_free(&response);
    static const struct {
        const char *number;
        int status[2];
    } rows[] = {{"23", {200, 200}},    {"22", {404, 200}},  {"20", {404, 404}},
                {"023", {404, 404}},   {"0", {404, 404}},   {"9999999999999999999", {404, 404}},
                {"23x", {400, 400}},   {"-23", {400, 400}}, {"99999999999999999999", {400, 400}},
                {"%2e%2e", {400, 400}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(from, sizeof from, "/v2/models/m/versions/%s/ready", rows[i].number);
        xt_fetch(d, "GET", from, "", "", 0, &response);
        ck_assert_msg(response.status == rows[i].status[_i], "%s: %d %s", from, response.status,
                      response.body);
        xt_response_free(&response);
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    xt_folder_remove(folder);
}
END_TEST

XN_SUITE(http_models) {
    Suite *suite = suite_create("http_models");
    TCase *tcase = tcase_create("models");
    tcase_add_unchecked_fixture(tcase, start, stop);
    tcase_add_checked_fixture(tcase, NULL, xt_reap);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, weights_answer_as_models);
    tcase_add_test(tcase, load_from_the_request);
    tcase_add_test(tcase, a_small_load_passes_a_large_one);
    tcase_add_loop_test(tcase, ready_when_warm, 0, 2);
    tcase_add_loop_test(tcase, reloads_fail_no_request, 0, 2);
    suite_add_tcase(suite, tcase);
    xt_add_stopped_case(suite);
    return suite;
}
