/* What a real daemon says of its models, and loading and unloading them: metadata, configuration,
 * readiness, statistics, the repository; registered weights as models. */
#include "client/instance.h"
#include "nw_write.h"
#include "client/oip.h"
#include "xn_mem.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
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
    daemon_ = xt_daemon_start_shared(
        XT_FLAGS("--model-repository", repository, "--max-batch-images", "64"));
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
    xt_nets_free(nets, repository);
}

static void fetch(const char *method, const char *target, xt_response *response) {
    bool has_body = !strcmp(method, "POST");
    xt_fetch(daemon_, method, target, "", has_body ? "" : NULL, 0, response);
}

static int status_of(const char *method, const char *target) {
    xt_response response;
    fetch(method, target, &response);
    int status = response.status;
    if (status >= 400)
        xt_check_oip_error(&response, status, NULL, target);
    xt_response_free(&response);
    return status;
}

/* ---- documents ---- */

static void check_text(const char *json, const char *path, const char *expected) {
    ck_assert_msg(xt_json_is(json, path, expected), "%s is not %s: %s", path, expected, json);
}

/* The value at the path begins so; blanks do not count. */
static void check_value(const char *json, const char *path, const char *expected) {
    const char *at = xt_json_at(json, path), *want = expected;
    ck_assert_msg(at != NULL, "no %s: %s", path, json);
    while (*want) {
        while (*at == ' ')
            at++;
        ck_assert_msg(*at == *want, "%s is not %s: %s", path, expected, json);
        at++;
        want++;
    }
}

START_TEST(metadata) {
    static const char *const targets[] = {"/v2/models/plain", "/v2/models/plain/versions/1"};
    for (int i = 0; i < 2; i++) {
        char *json = xt_get(daemon_, targets[i]);
        ck_assert_msg(xt_json_valid(json), "%s", json);
        check_text(json, "name", "plain");
        check_value(json, "versions", "[\"1\"]");
        check_text(json, "platform", "xnord_network");
        check_text(json, "inputs.0.name", "input");
        check_text(json, "inputs.0.datatype", "FP32");
        check_value(json, "inputs.0.shape", "[-1,3,6,5]");
        check_text(json, "outputs.0.name", "logits");
        check_text(json, "outputs.0.datatype", "FP32");
        check_value(json, "outputs.0.shape", "[-1,10]");
        ck_assert(!xt_json_at(json, "inputs.1") && !xt_json_at(json, "outputs.1"));
        free(json);
    }
    char *json = xt_get(daemon_, "/v2/models/bytes");
    check_text(json, "inputs.0.datatype", "UINT8");
    check_value(json, "inputs.0.shape", "[-1,6,5,3]");
    check_text(json, "outputs.0.name", "out0");
    check_value(json, "outputs.0.shape", "[-1,8,6,5]");
    check_text(json, "outputs.1.name", "out1");
    check_value(json, "outputs.1.shape", "[-1,10]");
    free(json);
}
END_TEST

START_TEST(configuration) {
    char *json = xt_get(daemon_, "/v2/models/bytes/config");
    ck_assert_msg(xt_json_valid(json), "%s", json);
    check_text(json, "name", "bytes");
    ck_assert_ptr_nonnull(xt_json_at(json, "platform"));
    ck_assert_ptr_nonnull(xt_json_at(json, "backend"));
    ck_assert_double_eq(xt_json_number(json, "max_batch_size"), XT_NET_MAX_BATCH);
    check_text(json, "input.0.name", "input");
    check_text(json, "input.0.data_type", "TYPE_UINT8");
    check_value(json, "input.0.dims", "[6,5,3]");
    check_text(json, "input.0.format", "FORMAT_NHWC");
    check_text(json, "output.1.name", "out1");
    check_text(json, "output.1.data_type", "TYPE_FP32");
    check_value(json, "output.1.dims", "[10]");
    ck_assert_ptr_null(xt_json_at(json, "output.1.label_filename"));
    free(json);
    json = xt_get(daemon_, "/v2/models/plain/versions/1/config");
    check_text(json, "input.0.format", "FORMAT_NCHW");
    check_text(json, "output.0.label_filename", "classes.txt");
    free(json);
}
END_TEST

START_TEST(readiness) {
    ck_assert_int_eq(status_of("GET", "/v2/models/plain/ready"), 200);
    ck_assert_int_eq(status_of("GET", "/v2/models/plain/versions/1/ready"), 200);
    ck_assert_int_eq(status_of("GET", "/v2/models/plain/versions/9/ready"), 404);
    ck_assert_int_eq(status_of("GET", "/v2/models/nothing/ready"), 404);
    ck_assert_int_eq(status_of("HEAD", "/v2/models/plain/ready"), 200);
}
END_TEST

START_TEST(server_extensions) {
    static const char *const have[] = {"binary_tensor_data", "classification", "statistics",
                                       "model_configuration", "model_repository"};
    char *json = xt_get(daemon_, "/v2");
    const char *extensions = xt_json_at(json, "extensions");
    for (size_t i = 0; i < sizeof have / sizeof *have; i++)
        ck_assert_msg(strstr(extensions, have[i]) != NULL, "%s", json);
    free(json);
}
END_TEST

START_TEST(unknown_paths_and_methods) {
    static const struct {
        const char *method, *target, *allow;
        int status;
    } table[] = {
        {"GET", "/v2/models", NULL, 404},
        {"GET", "/v2/models/", NULL, 404},
        {"GET", "/v2/models/nothing", NULL, 404},
        {"GET", "/v2/models/nothing/config", NULL, 404},
        {"GET", "/v2/models/nothing/stats", NULL, 404},
        {"GET", "/v2/models/plain/versions/2", NULL, 404},
        {"GET", "/v2/models/plain/versions/", NULL, 404},
        {"GET", "/v2/models/plain/versions/1/", NULL, 404},
        {"GET", "/v2/models/plain/versions/one", NULL, 400},
        {"GET", "/v2/models/plain/versions/11111111111111111111111111", NULL, 400},
        {"GET", "/v2/models/plain/nothing", NULL, 404},
        {"GET", "/v2/models/..", NULL, 400},
        {"GET", "/v2/models/%2e%2e/ready", NULL, 400},
        {"GET", "/v2/models/a%5cb", NULL, 400},
        {"GET", "/v2/repository", NULL, 404},
        {"GET", "/v2/repository/index", "POST, OPTIONS", 405},
        {"GET", "/v2/models/plain/infer", "POST, OPTIONS", 405},
        {"POST", "/v2/models/plain", "GET, HEAD, OPTIONS", 405},
        {"DELETE", "/v2/models/plain/config", "GET, HEAD, OPTIONS", 405},
        {"PUT", "/v2/repository/models/plain/load", "POST, OPTIONS", 405},
        {"GET", "/v2/systemsharedmemory/region/x/register", "POST, OPTIONS", 405},
        {"POST", "/v2/systemsharedmemory/status", "GET, HEAD, OPTIONS", 405},
        {"GET", "/v2/logging", NULL, 501},
        {"POST", "/v2/trace/setting", NULL, 501},
        {"GET", "/v2/models/plain/trace/setting", NULL, 501},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        xt_response response;
        fetch(table[i].method, table[i].target, &response);
        xt_check_oip_error(&response, table[i].status, NULL, table[i].target);
        const char *allow = XT_HEADER(&response, "Allow");
        ck_assert_msg(!table[i].allow || (allow && !strcmp(allow, table[i].allow)), "%s",
                      response.head);
        xt_response_free(&response);
    }
    xt_response response;
    fetch("OPTIONS", "/v2/models/plain/versions/1/infer", &response);
    ck_assert_int_eq(response.status, 204);
    ck_assert_str_eq(XT_HEADER(&response, "Allow"), "POST, OPTIONS");
    xt_response_free(&response);
}
END_TEST

/* A name longer than any. */
START_TEST(long_names) {
    char target[400];
    for (size_t length = 126; length < 132; length++) {
        snprintf(target, sizeof target, "/v2/models/%0*d/ready", (int)length, 0);
        ck_assert_int_eq(status_of("GET", target), length <= 128 ? 404 : 400);
    }
}
END_TEST

/* ---- statistics ---- */

static double stat_of(const char *model, const char *member) {
    char target[200], path[200];
    snprintf(target, sizeof target, "/v2/models/%s/stats", model);
    snprintf(path, sizeof path, "model_stats.0.%s", member);
    char *json = xt_get(daemon_, target);
    ck_assert_msg(xt_json_valid(json) && xt_json_is(json, "model_stats.0.name", model), "%s", json);
    double value = xt_json_number(json, path);
    ck_assert_msg(!isnan(value), "no %s: %s", path, json);
    free(json);
    return value;
}

static int infer(const char *model, int kind, int64_t count, xt_response *response) {
    xn_rng rng = {xn_test_seed() + (uint64_t)count};
    void *images = xt_net_images(&nets[kind], &rng, count);
    xt_infer how = {.in = XT_IN_BINARY};
    xt_ask(daemon_, model, &how, &nets[kind], images, count, response);
    free(images);
    return response->status;
}

static int infer_status(const char *model, int kind, int64_t count) {
    xt_response response;
    int status = infer(model, kind, count, &response);
    xt_response_free(&response);
    return status;
}

START_TEST(statistics) {
    static const char *const equal[] = {"success", "queue", "compute_input", "compute_infer",
                                        "compute_output"};
    char path[64];
    double before = stat_of("plain", "inference_stats.success.count");
    double images = stat_of("plain", "inference_count");
    double failures = stat_of("plain", "inference_stats.fail.count");
    for (int i = 1; i <= 5; i++)
        ck_assert_int_eq(infer_status("plain", XT_NET_PLAIN, i), 200);
    ck_assert_int_eq(infer_status("plain", XT_NET_PLAIN, XT_NET_MAX_BATCH + 1), 400);
    ck_assert_int_eq(infer_status("plain", XT_NET_BYTES, 1), 400);
    ck_assert_double_eq(stat_of("plain", "inference_count"), images + 15);
    ck_assert_double_eq(stat_of("plain", "execution_count"), before + 5);
    ck_assert_double_eq(stat_of("plain", "inference_stats.fail.count"), failures + 2);
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++) {
        snprintf(path, sizeof path, "inference_stats.%s.count", equal[i]);
        ck_assert_double_eq(stat_of("plain", path), before + 5);
        snprintf(path, sizeof path, "inference_stats.%s.ns", equal[i]);
        ck_assert_double_ge(stat_of("plain", path), 0);
    }
    ck_assert_double_gt(stat_of("plain", "inference_stats.success.ns"), 0);
    ck_assert_double_gt(stat_of("plain", "last_inference"), 1.6e12);
    ck_assert_double_eq(stat_of("plain", "inference_stats.cache_hit.count"), 0);
    ck_assert_double_eq(stat_of("plain", "inference_stats.cache_miss.ns"), 0);
    char *all = xt_get(daemon_, "/v2/models/stats");
    ck_assert_msg(xt_json_valid(all), "%s", all);
    ck_assert(strstr(all, "\"plain\"") && strstr(all, "\"bytes\"") &&
              strstr(all, "\"version\": \"1\""));
    free(all);
}
END_TEST

/* ---- registered weights ---- */

static void put_weights(const char *name, int64_t channels) {
    char target[100];
    xt_buffer body = {0};
    xt_response response;
    snprintf(target, sizeof target, "/weights/%s", name);
    xt_print(&body,
             "{\"weights\": {\"shape\": [2, %lld, 3, 3], \"datatype\": \"FP32\", \"data\": [",
             (long long)channels);
    for (int i = 0; i < 18 * channels; i++)
        xt_print(&body, "%s%d", i ? ", " : "", i % 5 - 2);
    xt_print(&body, "]}}");
    xt_fetch(daemon_, "PUT", target, "Content-Type: application/json\r\n", body.data, body.length,
             &response);
    ck_assert_msg(response.status == 200 || response.status == 201, "%s", response.body);
    xt_response_free(&response);
    xt_buffer_free(&body);
}

/* Values of "data" in an answer, up to the bracket. */
static const char *data_of(const char *json, const char *path, size_t *length) {
    const char *data = xt_json_at(json, path);
    ck_assert_msg(data != NULL, "no %s: %s", path, json);
    *length = strcspn(data, "]");
    return data;
}

START_TEST(weights_answer_as_models) {
    static const char *const parameters[][2] = {
        {"", ""},
        {", \"parameters\": {\"padding\": 1, \"scaling\": \"none\"}",
         ", \"padding\": 1, \"scaling\": \"none\""},
        {", \"parameters\": {\"mode\": \"bwn\", \"stride\": [2, 1], \"padding\": \"valid\"}",
         ", \"mode\": \"bwn\", \"stride\": [2, 1], \"padding\": \"valid\""},
        {", \"parameters\": {\"scaling\": \"none\", \"output_datatype\": \"INT32\"}",
         ", \"scaling\": \"none\", \"output_datatype\": \"INT32\""}};
    static const char input[] = "[1, -2, 3, -4, 5, -6, 7, -8, 9, 10, 11, -12, 13, 14, -15, 16]";
    put_weights("edge", 1);
    char *json = xt_get(daemon_, "/v2/models/edge");
    check_value(json, "inputs.0.shape", "[-1,1,-1,-1]");
    check_value(json, "outputs.0.shape", "[-1,2,-1,-1]");
    check_text(json, "inputs.0.name", "input");
    check_text(json, "outputs.0.name", "output");
    free(json);
    json = xt_get(daemon_, "/v2/models/edge/config");
    ck_assert_double_eq(xt_json_number(json, "max_batch_size"), 64);
    free(json);
    ck_assert_int_eq(status_of("GET", "/v2/models/edge/ready"), 200);
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        char body[600];
        xt_response here, there;
        size_t length, other;
        snprintf(body, sizeof body,
                 "{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 1, 4, 4], \"datatype\": "
                 "\"FP32\", \"data\": %s}]%s}",
                 input, parameters[i][0]);
        xt_fetch(daemon_, "POST", "/v2/models/edge/infer", "", body, strlen(body), &here);
        ck_assert_msg(here.status == 200, "%s", here.body);
        snprintf(body, sizeof body,
                 "{\"input\": {\"shape\": [1, 1, 4, 4], \"datatype\": \"FP32\", \"data\": %s}, "
                 "\"weights\": \"edge\"%s}",
                 input, parameters[i][1]);
        xt_fetch(daemon_, "POST", "/conv", "Content-Type: application/json\r\n", body, strlen(body),
                 &there);
        ck_assert_msg(there.status == 200, "%s", there.body);
        const char *mine = data_of(here.body, "outputs.0.data", &length);
        const char *theirs = data_of(there.body, "output.data", &other);
        ck_assert_msg(length == other && !memcmp(mine, theirs, length), "%s\n%s", here.body,
                      there.body);
        xt_response_free(&here);
        xt_response_free(&there);
    }
    ck_assert_double_eq(stat_of("edge", "inference_stats.success.count"), 4);
    json = xt_get(daemon_, "/v2/models/stats");
    ck_assert_ptr_nonnull(strstr(json, "\"edge\""));
    free(json);
    ck_assert_int_eq(status_of("GET", "/v2/models/edge/versions/2"), 404);
    xt_response response;
    xt_fetch(daemon_, "POST", "/v2/models/edge/infer", "Inference-Header-Content-Length: 0\r\n",
             "abcd", 4, &response);
    xt_check_oip_error(&response, 400, "raw", "raw");
    xt_response_free(&response);
}
END_TEST

START_TEST(a_network_comes_before_weights) {
    put_weights("plain", 3);
    char *json = xt_get(daemon_, "/v2/models/plain");
    check_text(json, "platform", "xnord_network");
    free(json);
    ck_assert_int_eq(status_of("GET", "/v2/models/plain/versions/2"), 404);
    json = xt_get(daemon_, "/v2/models/stats");
    const char *first = strstr(json, "\"plain\"");
    ck_assert(first && !strstr(first + 1, "\"plain\""));
    free(json);
}
END_TEST

/* ---- the repository ---- */

static void index_state(const char *body, const char *name, char *state, size_t size) {
    xt_response response;
    char path[40];
    snprintf(state, size, "absent");
    xt_fetch(daemon_, "POST", "/v2/repository/index", "", body, strlen(body), &response);
    ck_assert_msg(response.status == 200 && xt_json_valid(response.body), "%s", response.body);
    for (int i = 0; i < 100; i++) {
        snprintf(path, sizeof path, "%d.name", i);
        if (!xt_json_is(response.body, path, name))
            continue;
        snprintf(path, sizeof path, "%d.state", i);
        char *text = xt_json_string(response.body, path);
        ck_assert_ptr_nonnull(text);
        snprintf(state, size, "%s", text);
        free(text);
    }
    xt_response_free(&response);
}

static void check_state(const char *body, const char *name, const char *expected) {
    char state[32];
    index_state(body, name, state, sizeof state);
    ck_assert_msg(!strcmp(state, expected), "%s is %s, expected %s", name, state, expected);
}

static int post(const char *target, const char *body, const char *part) {
    xt_response response;
    xt_fetch(daemon_, "POST", target, "", body, strlen(body), &response);
    int status = response.status;
    if (status != 200)
        xt_check_oip_error(&response, status, part, target);
    else
        ck_assert_msg(!response.length, "%s", response.body);
    xt_response_free(&response);
    return status;
}

/* A page that somebody has open must not reach what is served here. */
START_TEST(foreign_pages_change_nothing) {
    static const struct {
        const char *target, *headers;
        int status;
    } rows[] = {
        {"/v2/repository/models/bytes/unload", "Origin: http://elsewhere.example\r\n", 403},
        {"/v2/repository/models/bytes/unload", "Origin: null\r\n", 403},
        {"/v2/repository/models/bytes/load", "Origin: https://127.0.0.1:1\r\n", 403},
        {"/v2/systemsharedmemory/unregister", "Origin: http://elsewhere.example\r\n", 403},
        {"/v2/systemsharedmemory/region/a/register", "Origin: http://elsewhere.example\r\n", 403},
        {"/v2/repository/index", "Origin: http://elsewhere.example\r\n", 403},
        {"/v2/repository/models/bytes/load", "Origin: https://xnord.test\r\n", 200}, /* its Host */
        {"/v2/repository/models/bytes/load", "", 200},
    };
    xt_response response;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        xt_fetch(daemon_, "POST", rows[i].target, rows[i].headers, "{}", 2, &response);
        ck_assert_msg(response.status == rows[i].status, "%s %s: %d", rows[i].target,
                      rows[i].headers, response.status);
        if (response.status >= 400)
            xt_check_oip_error(&response, 403, "origin", rows[i].target);
        xt_response_free(&response);
    }
    check_state("", "bytes", "READY");
}
END_TEST

START_TEST(load_and_unload) {
    check_state("", "bytes", "READY");
    check_state("{\"ready\": true}", "bytes", "READY");
    ck_assert_int_eq(post("/v2/repository/models/bytes/unload", "{}", NULL), 200);
    check_state("{}", "bytes", "UNAVAILABLE");
    check_state("{\"ready\": true}", "bytes", "absent");
    int status = infer_status("bytes", XT_NET_BYTES, 1);
    ck_assert_msg(status == 400 || status == 404, "%d", status);
    status = status_of("GET", "/v2/models/bytes/ready");
    ck_assert_msg(status == 400 || status == 404, "%d", status);
    ck_assert_int_eq(post("/v2/repository/models/bytes/load", "{}", NULL), 200);
    check_state("", "bytes", "READY");
    ck_assert_int_eq(infer_status("bytes", XT_NET_BYTES, 1), 200);
    ck_assert_int_eq(post("/v2/repository/models/bytes/load", "", NULL), 200);
    ck_assert_int_eq(post("/v2/repository/models/nothing/load", "{}", "nothing"), 404);
    ck_assert_int_eq(post("/v2/repository/models/nothing/unload", "{}", "nothing"), 404);
    ck_assert_int_eq(post("/v2/repository/models/../load", "{}", "name"), 400);
    ck_assert_int_eq(post("/v2/repository/models/bytes/load", "[", NULL), 400);
    ck_assert_int_eq(post("/v2/repository/models/bytes/unload", "7", NULL), 400);
    ck_assert_int_eq(post("/v2/repository/index", "[]", NULL), 400);
    check_state("", "bytes", "READY");
}
END_TEST

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
    ck_assert_int_eq(post("/v2/repository/models/sent/load", body.data, NULL), 200);
    check_state("", "sent", "READY");
    xn_rng rng = {xn_test_seed()};
    void *images = xt_net_images(&nets[XT_NET_BYTES], &rng, 2);
    float *expected = xt_net_expect(&nets[XT_NET_BYTES], images, 2);
    xt_infer how = {.in = XT_IN_BINARY};
    xt_response response;
    xt_ask(daemon_, "sent", &how, &nets[XT_NET_BYTES], images, 2, &response);
    xt_check_output(&response, 1, "out1", expected, 2, 250, 240, 250);
    xt_response_free(&response);
    free(images);
    free(expected);
    ck_assert_int_eq(post("/v2/repository/models/sent/unload", "", NULL), 200);
    body.data[body.length - 6] = '!'; /* no base64 */
    ck_assert_int_eq(post("/v2/repository/models/sent/load", body.data, NULL), 400);
    xt_buffer_free(&body);
    nw_files_free(&files);
}
END_TEST

START_TEST(what_serves_stays_where_loading_fails) {
    ck_assert_int_eq(
        post("/v2/repository/models/plain/load", "{\"parameters\": {\"config\": \"{}\"}}", NULL),
        400);
    ck_assert_int_eq(infer_status("plain", XT_NET_PLAIN, 1), 200);
}
END_TEST

typedef struct {
    atomic_bool stop;
    atomic_int right, refused, wrong;
    void *images;
    float *expected;
} traffic;

static void *keep_asking(void *context) {
    traffic *t = context;
    while (!atomic_load(&t->stop)) {
        xt_infer how = {.in = XT_IN_BINARY,
                        .rest = ", \"outputs\": [{\"name\": \"out1\", \"parameters\": "
                                "{\"binary_data\": true}}]"};
        xt_buffer body;
        xt_conn conn;
        xt_response response = {0};
        xt_infer_body(&how, &nets[XT_NET_BYTES], t->images, 1, &body);
        bool got = xt_connect(&conn, daemon_) &&
                   xt_infer_send(&conn, "bytes", &how, &body, &response) == XT_GOT;
        if (got && response.status == 200 && response.length > 40 &&
            !memcmp(response.body + response.length - 40, t->expected + 240, 40))
            atomic_fetch_add(&t->right, 1);
        else if (got && (response.status == 400 || response.status == 404))
            atomic_fetch_add(&t->refused, 1);
        else
            atomic_fetch_add(&t->wrong, 1);
        xt_response_free(&response);
        xt_disconnect(&conn);
        xt_buffer_free(&body);
    }
    return NULL;
}

/* Every answer is right or says that the model is not there. */
START_TEST(loading_beside_traffic) {
    enum { THREADS = 3, ROUNDS = 20 };
    pthread_t threads[THREADS];
    xn_rng rng = {xn_test_seed()};
    traffic t = {.images = xt_net_images(&nets[XT_NET_BYTES], &rng, 1)};
    t.expected = xt_net_expect(&nets[XT_NET_BYTES], t.images, 1);
    for (int i = 0; i < THREADS; i++)
        ck_assert(!pthread_create(&threads[i], NULL, keep_asking, &t));
    for (int i = 0; i < ROUNDS; i++) {
        ck_assert_int_eq(post("/v2/repository/models/bytes/load", "", NULL), 200);
        if (i % 2)
            ck_assert_int_eq(post("/v2/repository/models/bytes/unload", "", NULL), 200);
        xt_nap();
    }
    ck_assert_int_eq(post("/v2/repository/models/bytes/load", "", NULL), 200);
    int before = atomic_load(&t.right);
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS;
         atomic_load(&t.right) < before + 10 && xt_now_ms() < end;)
        xt_nap();
    atomic_store(&t.stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(atomic_load(&t.wrong), 0);
    ck_assert_int_ge(atomic_load(&t.right), before + 10);
    free(t.images);
    free(t.expected);
}
END_TEST

/* ---- keys ---- */

/* Any number of them, while models are loaded by requests too. */
START_TEST(scans_may_be_asked_for_at_any_time) {
    for (int i = 0; i < 50; i++) {
        kill(daemon_->pid, SIGHUP);
        if (i % 5 == 0)
            ck_assert_int_eq(status_of("POST", "/v2/repository/models/plain/load"), 200);
        usleep(2000);
    }
    ck_assert_int_eq(status_of("GET", "/v2/models/plain/ready"), 200);
    ck_assert_int_eq(status_of("POST", "/v2/repository/index"), 200);
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

START_TEST(models_need_a_key) {
    static const char *const open[] = {"/v2/health/live", "/v2/health/ready"};
    char file[64];
    xt_response response;
    xt_make_file(file, sizeof file, "0123456789abcdef0123456789abcdef\n");
    xt_daemon *closed = xt_daemon_launch(XT_FLAGS("--api-keys-file", file));
    xt_fetch(closed, "GET", "/v2/models/x/ready", "", NULL, 0, &response);
    xt_check_oip_error(&response, 401, "key", "ready");
    xt_response_free(&response);
    xt_fetch(closed, "POST", "/v2/models/x/infer", "", "{}", 2, &response);
    xt_check_oip_error(&response, 401, "key", "infer");
    xt_response_free(&response);
    xt_fetch(closed, "POST", "/v2/repository/index",
             "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n", "", 0, &response);
    ck_assert_int_eq(response.status, 200);
    xt_response_free(&response);
    for (size_t i = 0; i < 2; i++) {
        xt_fetch(closed, "GET", open[i], "", NULL, 0, &response);
        ck_assert_int_eq(response.status, 200);
        xt_response_free(&response);
    }
    ck_assert_int_eq(xt_daemon_stop(closed), 0);
    unlink(file);
}
END_TEST

XN_SUITE(http_models) {
    Suite *suite = suite_create("http_models");
    TCase *tcase = tcase_create("models");
    tcase_add_unchecked_fixture(tcase, start, stop);
    tcase_add_checked_fixture(tcase, NULL, xt_reap);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, metadata);
    tcase_add_test(tcase, configuration);
    tcase_add_test(tcase, readiness);
    tcase_add_test(tcase, server_extensions);
    tcase_add_test(tcase, unknown_paths_and_methods);
    tcase_add_test(tcase, long_names);
    tcase_add_test(tcase, statistics);
    tcase_add_test(tcase, weights_answer_as_models);
    tcase_add_test(tcase, a_network_comes_before_weights);
    tcase_add_test(tcase, foreign_pages_change_nothing);
    tcase_add_test(tcase, load_and_unload);
    tcase_add_test(tcase, load_from_the_request);
    tcase_add_test(tcase, what_serves_stays_where_loading_fails);
    tcase_add_test(tcase, loading_beside_traffic);
    tcase_add_test(tcase, scans_may_be_asked_for_at_any_time);
    tcase_add_test(tcase, a_small_load_passes_a_large_one);
    tcase_add_test(tcase, models_need_a_key);
    suite_add_tcase(suite, tcase);
    xt_add_stopped_case(suite);
    return suite;
}
