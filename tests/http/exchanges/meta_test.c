/* The small documents of a real daemon where a table does not do (meta.txt): that they agree with
 * each other, with what is counted, and with the routes there are. */
#include "http/client/wire.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static xt_daemon *daemon_;

static void start(void) {
    daemon_ = xt_daemon_start_shared(XT_NO_FLAGS);
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
}

static const xt_case small = {"small", 1, 3, 6, 7, 4, 3, 3, .padding_name = "same"};

/* Readiness, the answers and the metrics name the same backend. */
START_TEST(one_backend_everywhere) {
    xt_problem problem;
    xt_response response;
    char *ready = xt_get(daemon_, "/v2/health/ready"), *page = xt_get(daemon_, "/metrics");
    char *primary = xt_json_string(ready, "backend"), label[64];
    snprintf(label, sizeof label, "backend=\"%s\"", primary);
    ck_assert_msg(strstr(page, label) != NULL, "no %s in the metrics", label);
    xt_problem_make(&problem, &small, xn_test_seed());
    xt_conv(daemon_, &problem, XT_JSON, &(xt_options){0}, &response);
    char *backend = xt_json_string(response.body, "backend");
    ck_assert_msg(backend && !strncmp(backend, primary, strlen(primary)), "%s", response.body);
    char *log = xt_daemon_log(daemon_);
    ck_assert_msg(strstr(log, primary) != NULL, "the log does not name %s", primary);
    free(log);
    free(backend);
    free(primary);
    free(page);
    free(ready);
    xt_response_free(&response);
    xt_problem_free(&problem);
}
END_TEST

/* ---- metrics ---- */

/* Each stage of a request, and its launch. */
START_TEST(a_request_is_seen_in_all_its_stages) {
    static const char *const stages[] = {"receive", "decode",   "queue",  "upload",
                                         "compute", "download", "encode", "total"};
    char sample[80];
    xt_problem problem;
    xt_problem_make(&problem, &small, xn_test_seed());
    xt_conv_check(daemon_, &problem, XT_OIP, XT_OIP, &(xt_options){0});
    ck_assert(xt_metric_reaches(daemon_, "xnord_batch_images_count", 1));
    ck_assert(xt_metric_reaches(daemon_, "xnord_batch_requests_count", 1));
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        snprintf(sample, sizeof sample, "xnord_stage_seconds_count{stage=\"%s\"}", stages[i]);
        ck_assert_msg(xt_metric_reaches(daemon_, sample, 1), "no %s", sample);
    }
    char *server = xt_get(daemon_, "/v2");
    ck_assert(xt_json_is(server, "version", XN_VERSION));
    free(server);
    xt_problem_free(&problem);
}
END_TEST

START_TEST(metrics_count_requests) {
    const char *ok = "xnord_requests_total{route=\"conv\",code=\"200\"}";
    xt_problem problem;
    xt_response response;
    xt_problem_make(&problem, &small, xn_test_seed());
    xt_conv_check(daemon_, &problem, XT_OIP, XT_OIP, &(xt_options){0});
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0)); /* it is counted */
    double before = xt_metric(daemon_, ok);
    double received = xt_metric(daemon_, "xnord_received_body_bytes_total");
    double malformed = xt_metric(daemon_, "xnord_rejected_requests_total{reason=\"malformed\"}");
    for (int i = 0; i < 3; i++)
        xt_conv_check(daemon_, &problem, XT_OIP, XT_OIP, &(xt_options){0});
    /* A sent answer is counted a moment after its last byte left. */
    ck_assert(xt_metric_becomes(daemon_, ok, before + 3));
    ck_assert(xt_metric(daemon_, "xnord_received_body_bytes_total") >= received + 3 * 500);
    xt_fetch(daemon_, "POST", "/conv", "Content-Type: application/json\r\n", "{", 1, &response);
    xt_check_error(&response, 400, NULL, NULL, "half an object");
    xt_response_free(&response);
    ck_assert(xt_metric_becomes(daemon_, "xnord_rejected_requests_total{reason=\"malformed\"}",
                                malformed + 1));
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_bytes", 0));
    xt_problem_free(&problem);
}
END_TEST

/* ---- OpenAPI ---- */

/* The path with a name for each of its parameters. */
static void fill_path(const char *path, char *target, size_t size) {
    size_t length = 0;
    while (*path) {
        const size_t plain = strcspn(path, "{"), parameter = strcspn(path + plain, "}");
        length += (size_t)snprintf(target + length, size - length, "%.*s%s", (int)plain, path,
                                   path[plain] ? "openapi-test" : "");
        ck_assert_uint_lt(length, size);
        path += plain + parameter + (path[plain] != 0);
    }
}

/* Every path of the file is asked with every method it lists; none may be unknown. 501 is of one
 * that is known and not switched on. */
static void try_route(const char *path, const char *method, int *tried) {
    xt_response response;
    char target[128], upper[16] = "";
    fill_path(path, target, sizeof target);
    for (size_t i = 0; method[i]; i++)
        upper[i] = (char)(method[i] - 'a' + 'A');
    xt_fetch(daemon_, upper, target, "", NULL, 0, &response);
    bool known =
        response.status != 405 && (response.status != 404 || strstr(response.body, "openapi-test"));
    ck_assert_msg(known, "%s %s is in the file, but answers %d: %s", upper, target, response.status,
                  response.body);
    xt_response_free(&response);
    ++*tried;
}

START_TEST(openapi_is_true) {
    static const char *const methods[] = {"get", "put", "post", "delete"};
    xt_response response;
    char line[256], path[128] = "";
    int tried = 0;
    bool in_paths = false;
    xt_fetch(daemon_, "GET", "/openapi.yaml", "", NULL, 0, &response);
    ck_assert_int_eq(response.status, 200);
    ck_assert_msg(strstr(response.body, "\n  version: " XN_VERSION "\n") != NULL,
                  "openapi.yaml is not of version " XN_VERSION);
    ck_assert_msg(strstr(response.body, "openapi: 3.1") != NULL ||
                      strstr(response.body, "openapi: \"3.1") != NULL,
                  "%.80s", response.body);
    for (const char *at = response.body; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (line[0] && line[0] != ' ' && line[0] != '#')
            in_paths = !strncmp(line, "paths:", 6);
        if (!in_paths)
            continue;
        if (!strncmp(line, "  /", 3))
            snprintf(path, sizeof path, "%.*s", (int)strcspn(line + 2, ":"), line + 2);
        for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
            if (!strncmp(line, "    ", 4) && !strncmp(line + 4, methods[i], strlen(methods[i])) &&
                line[4 + strlen(methods[i])] == ':')
                try_route(path, methods[i], &tried);
    }
    ck_assert_int_ge(tried, 30); /* conv, weights (1 + 3), v2, 2 of health, models, ... */
    xt_response_free(&response);
}
END_TEST

XN_SUITE(http_meta) {
    Suite *s = suite_create("http_meta");
    TCase *t = tcase_create("meta");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_test(t, one_backend_everywhere);
    tcase_add_test(t, a_request_is_seen_in_all_its_stages);
    tcase_add_test(t, metrics_count_requests);
    tcase_add_test(t, openapi_is_true);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    return s;
}
