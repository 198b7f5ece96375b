/* The small documents of a real daemon: health, server metadata, metrics, the OpenAPI file; and
 * what every route says to methods and paths that it does not have. */
#include "client/wire.h"

#include <math.h>
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

static void post_one(const xt_problem *problem) {
    xt_message message;
    xt_response response;
    char error[512] = "";
    xt_encode(problem, XT_OIP, &(xt_options){0}, &message);
    xt_fetch(daemon_, "POST", message.target.data, message.headers.data, message.body.data,
             message.body.length, &response);
    ck_assert_msg(xt_response_matches(&response, XT_OIP, problem, NULL, error, sizeof error), "%s",
                  error);
    xt_message_free(&message);
    xt_response_free(&response);
}

/* ---- documents ---- */

START_TEST(health) {
    char *live = xt_get(daemon_, "/v2/health/live");
    ck_assert_msg(xt_json_valid(live), "%s", live);
    free(live);
    char *ready = xt_get(daemon_, "/v2/health/ready");
    ck_assert_msg(xt_json_valid(ready), "%s", ready);
    const char *yes = xt_json_at(ready, "ready");
    ck_assert_msg(yes && !strncmp(yes, "true", 4), "%s", ready);
    char *backend = xt_json_string(ready, "backend");
    ck_assert_msg(backend && *backend, "%s", ready);
    ck_assert_ptr_nonnull(xt_json_at(ready, "devices"));
    free(backend);
    free(ready);
}
END_TEST

START_TEST(server_metadata) {
    char *text = xt_get(daemon_, "/v2"), *version = xt_json_string(text, "version");
    ck_assert_msg(xt_json_valid(text), "%s", text);
    ck_assert(xt_json_is(text, "name", "xnord"));
    ck_assert_str_eq(version, XN_VERSION);
    ck_assert_msg(strstr(text, "binary_tensor_data") != NULL, "%s", text);
    ck_assert_double_eq(xt_json_number(text, "limits.queue_depth"), 1024);
    ck_assert_double_eq(xt_json_number(text, "limits.max_image_bytes"),
                        xt_json_number(text, "limits.queue_bytes") / 4);
    free(version);
    free(text);
}
END_TEST

/* Readiness, the answers and the metrics name the same backend. */
START_TEST(one_backend_everywhere) {
    xt_problem problem;
    xt_message message;
    xt_response response;
    char *ready = xt_get(daemon_, "/v2/health/ready"), *page = xt_get(daemon_, "/metrics");
    char *primary = xt_json_string(ready, "backend"), label[64];
    snprintf(label, sizeof label, "backend=\"%s\"", primary);
    ck_assert_msg(strstr(page, label) != NULL, "no %s in the metrics", label);
    xt_problem_make(&problem, &small, xn_test_seed());
    xt_encode(&problem, XT_JSON, &(xt_options){0}, &message);
    xt_fetch(daemon_, "POST", message.target.data, message.headers.data, message.body.data,
             message.body.length, &response);
    char *backend = xt_json_string(response.body, "backend");
    ck_assert_msg(backend && !strncmp(backend, primary, strlen(primary)), "%s", response.body);
    char *log = xt_daemon_log(daemon_);
    ck_assert_msg(strstr(log, primary) != NULL, "the log does not name %s", primary);
    free(log);
    free(backend);
    free(primary);
    free(page);
    free(ready);
    xt_message_free(&message);
    xt_response_free(&response);
    xt_problem_free(&problem);
}
END_TEST

/* ---- metrics ---- */

static bool name_character(char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
           (!first && c >= '0' && c <= '9');
}

/* Checks one line of the text format 0.0.4; *name gets the length of the sample's name. */
static void check_line(const char *line, size_t length, size_t *name) {
    char text[512];
    ck_assert_msg(length < sizeof text, "a line of %zu characters", length);
    memcpy(text, line, length);
    text[length] = 0;
    size_t at = 0;
    while (name_character(text[at], at == 0))
        at++;
    *name = at;
    ck_assert_msg(at > 0, "no name: %s", text);
    if (text[at] == '{') {
        do {
            at++;
            size_t begin = at;
            while (name_character(text[at], at == begin))
                at++;
            ck_assert_msg(at > begin && text[at] == '=' && text[at + 1] == '"', "labels: %s", text);
            at += 2;
            while (text[at] && text[at] != '"')
                at += text[at] == '\\' ? 2 : 1;
            at++;
        } while (text[at] == ',');
        ck_assert_msg(text[at] == '}', "labels: %s", text);
        at++;
    }
    ck_assert_msg(text[at] == ' ', "no value: %s", text);
    char *end;
    double value = strtod(text + at + 1, &end);
    ck_assert_msg(end > text + at + 1 && !*end && value >= 0, "value: %s", text);
}

/* Every sample belongs to the family announced by the # TYPE before it. */
static void check_page(const char *page) {
    char family[128] = "";
    for (const char *line = page; *line;) {
        size_t length = strcspn(line, "\n"), name = 0;
        ck_assert_msg(line[length] == '\n', "the last line has no end");
        if (!strncmp(line, "# TYPE ", 7)) {
            snprintf(family, sizeof family, "%.*s", (int)strcspn(line + 7, " "), line + 7);
            ck_assert_msg(!strncmp(line + 7 + strlen(family), " counter", 8) ||
                              !strncmp(line + 7 + strlen(family), " gauge", 6) ||
                              !strncmp(line + 7 + strlen(family), " histogram", 10),
                          "%.100s", line);
        } else if (*line != '#') {
            check_line(line, length, &name);
            ck_assert_msg(family[0] && !strncmp(line, family, strlen(family)),
                          "%.*s is not of the family %s", (int)name, line, family);
        }
        line += length + 1;
    }
}

/* Buckets rise to +Inf, which equals the count. */
static void check_histogram(const char *page, const char *name, const char *labels) {
    char prefix[160], sample[200];
    double last = -1, below = -HUGE_VAL, infinite = NAN;
    snprintf(prefix, sizeof prefix, "%s_bucket{%s%sle=\"", name, labels, *labels ? "," : "");
    for (const char *at = page; (at = strstr(at, prefix)); at++) {
        char *end;
        double bound = strtod(at + strlen(prefix), &end), count = strtod(end + 2, NULL);
        ck_assert_msg(bound > below && count >= last, "%s: buckets do not rise: %.80s", name, at);
        below = bound;
        last = count;
        infinite = isinf(bound) ? count : infinite;
    }
    snprintf(sample, sizeof sample, *labels ? "%s_count{%s}" : "%s_count%s", name, labels);
    double count = xt_sample(page, sample);
    ck_assert_msg(count > 0 && infinite >= count && infinite <= count,
                  "%s: +Inf is %g, the count %g", sample, infinite, count);
    snprintf(sample, sizeof sample, *labels ? "%s_sum{%s}" : "%s_sum%s", name, labels);
    ck_assert_msg(xt_sample(page, sample) >= 0, "no %s", sample);
}

START_TEST(metrics_are_prometheus_text) {
    static const char *const stages[] = {"receive", "decode",   "queue",  "upload",
                                         "compute", "download", "encode", "total"};
    static const char *const gauges[] = {"xnord_queue_depth",
                                         "xnord_inflight_requests",
                                         "xnord_inflight_bytes",
                                         "xnord_connections",
                                         "xnord_weights",
                                         "xnord_weights_bytes",
                                         "xnord_ready",
                                         "xnord_weights_cache_bytes",
                                         "xnord_response_cache_entries",
                                         "xnord_response_cache_bytes"};
    xt_problem problem;
    xt_response response;
    char labels[64];
    xt_problem_make(&problem, &small, xn_test_seed());
    post_one(&problem);
    ck_assert(xt_metric_reaches(daemon_, "xnord_batch_images_count", 1));
    xt_fetch(daemon_, "GET", "/metrics", "", NULL, 0, &response);
    ck_assert_int_eq(response.status, 200);
    ck_assert_msg(strstr(XT_HEADER(&response, "Content-Type"), "version=0.0.4") != NULL, "%s",
                  response.head);
    check_page(response.body);
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++)
        ck_assert_msg(!isnan(xt_sample(response.body, gauges[i])), "no %s", gauges[i]);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        snprintf(labels, sizeof labels, "stage=\"%s\"", stages[i]);
        check_histogram(response.body, "xnord_stage_seconds", labels);
    }
    check_histogram(response.body, "xnord_batch_requests", "");
    check_histogram(response.body, "xnord_batch_images", "");
    ck_assert_double_eq(xt_sample(response.body, "xnord_ready"), 1);
    xt_response_free(&response);
    xt_problem_free(&problem);
}
END_TEST

START_TEST(metrics_count_requests) {
    const char *ok = "xnord_requests_total{route=\"conv\",code=\"200\"}";
    xt_problem problem;
    xt_response response;
    xt_problem_make(&problem, &small, xn_test_seed());
    post_one(&problem);
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0)); /* it is counted */
    double before = xt_metric(daemon_, ok);
    double received = xt_metric(daemon_, "xnord_received_body_bytes_total");
    double malformed = xt_metric(daemon_, "xnord_rejected_requests_total{reason=\"malformed\"}");
    for (int i = 0; i < 3; i++)
        post_one(&problem);
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

/* A client cannot grow the page: unknown paths and ids leave its length of lines alone. */
START_TEST(metrics_have_closed_labels) {
    xt_response response;
    char target[64];
    for (int i = 0; i < 20; i++) {
        snprintf(target, sizeof target, "/made-up-%d", i);
        xt_fetch(daemon_, "GET", target, "", NULL, 0, &response);
        ck_assert_int_eq(response.status, 404);
        xt_response_free(&response);
    }
    char *page = xt_get(daemon_, "/metrics");
    ck_assert_ptr_null(strstr(page, "made-up"));
    free(page);
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

/* ---- methods and paths ---- */

static const struct {
    const char *path, *allow;
    bool get;
} routes[] = {
    {"/conv", "POST", false},         {"/weights", "GET", true},         {"/v2", "GET", true},
    {"/v2/health/live", "GET", true}, {"/v2/health/ready", "GET", true}, {"/metrics", "GET", true},
    {"/openapi.yaml", "GET", true},
};

START_TEST(head_is_get_without_its_body) {
    xt_conn conn;
    xt_response get, head;
    ck_assert(xt_connect(&conn, daemon_));
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!routes[i].get)
            continue;
        const char *path = routes[i].path;
        ck_assert_int_eq(xt_request(&conn, "GET", path, "", NULL, 0, &get), XT_GOT);
        ck_assert_int_eq(xt_request(&conn, "HEAD", path, "", NULL, 0, &head), XT_GOT);
        ck_assert_msg(get.status == 200 && head.status == 200, "%s: GET %d, HEAD %d", path,
                      get.status, head.status);
        ck_assert_str_eq(XT_HEADER(&get, "Content-Type"), XT_HEADER(&head, "Content-Type"));
        ck_assert_ptr_nonnull(XT_HEADER(&head, "Content-Length"));
        ck_assert_uint_eq(conn.in.length, 0);
        xt_response_free(&get);
        xt_response_free(&head);
    }
    /* and the connection is still in step */
    ck_assert_int_eq(xt_request(&conn, "GET", "/v2", "", NULL, 0, &get), XT_GOT);
    ck_assert_int_eq(get.status, 200);
    xt_response_free(&get);
    xt_disconnect(&conn);
}
END_TEST

START_TEST(options_and_wrong_methods_name_what_is_allowed) {
    static const char *const wrong[] = {"PATCH", "TRACE", "BREW", "DELETE"};
    xt_response response;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        xt_fetch(daemon_, "OPTIONS", routes[i].path, "", NULL, 0, &response);
        ck_assert_int_eq(response.status, 204);
        ck_assert_msg(strstr(XT_HEADER(&response, "Allow"), routes[i].allow) != NULL, "%s",
                      response.head);
        xt_response_free(&response);
        for (size_t m = 0; m < sizeof wrong / sizeof *wrong; m++) {
            xt_fetch(daemon_, wrong[m], routes[i].path, "", NULL, 0, &response);
            xt_check_error(&response, 405, NULL, wrong[m], routes[i].path);
            const char *allow = XT_HEADER(&response, "Allow");
            ck_assert_msg(allow && strstr(allow, routes[i].allow), "%s", response.head);
            xt_response_free(&response);
        }
        xt_fetch(daemon_, routes[i].get ? "POST" : "GET", routes[i].path, "", NULL, 0, &response);
        xt_check_error(&response, 405, NULL, NULL, routes[i].path);
        xt_response_free(&response);
    }
    xt_fetch(daemon_, "POST", "/weights/a", "", "", 0, &response);
    xt_check_error(&response, 405, NULL, NULL, "POST /weights/a");
    ck_assert_ptr_nonnull(strstr(XT_HEADER(&response, "Allow"), "PUT"));
    xt_response_free(&response);
}
END_TEST

START_TEST(unknown_paths) {
    static const char *const paths[] = {
        "/index.html", "/conv/",          "/CONV",          "/v2/",     "/v2/model", "/weight",
        "/metrics/x",  "/openapi.json.x", "/../etc/passwd", "/conv%2f", "//conv",    "/%63onvx"};
    xt_response response;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        xt_fetch(daemon_, "GET", paths[i], "", NULL, 0, &response);
        xt_check_error(&response, 404, NULL, NULL, paths[i]);
        xt_response_free(&response);
    }
}
END_TEST

XN_SUITE(http_meta) {
    Suite *s = suite_create("http_meta");
    TCase *t = tcase_create("meta");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_test(t, health);
    tcase_add_test(t, server_metadata);
    tcase_add_test(t, one_backend_everywhere);
    tcase_add_test(t, metrics_are_prometheus_text);
    tcase_add_test(t, metrics_count_requests);
    tcase_add_test(t, metrics_have_closed_labels);
    tcase_add_test(t, openapi_is_true);
    tcase_add_test(t, head_is_get_without_its_body);
    tcase_add_test(t, options_and_wrong_methods_name_what_is_allowed);
    tcase_add_test(t, unknown_paths);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    return s;
}
