/* Every allocation failed in turn. The whole server runs inside the test, on the CPU backend and a
 * socket of its own, so that one hook reaches the HTTP layer, the parser, the store, the engine,
 * the plans and the encoder, in whatever thread they allocate.
 *
 * A failed allocation may cost the request (503, or a close when not even that could be said) or
 * nothing (a cache that stays empty), but never a wrong answer, a wrong blame (4xx), a leak of what
 * was admitted, or the next request. AddressSanitizer sees the leaks of memory. */
#include "fault.h"
#include "http/client/instance.h"
#include "http/client/oip.h"

#include <stdio.h>
#include <string.h>

#define MOST_ALLOCATIONS 2000 /* far over what any request makes: an endless loop ends here */

static xt_fault fault;
static xt_instance server;

/* repository: "" for no models. cache_bytes: of answers. */
static xn_status try_start(const char *repository, int64_t cache_bytes, xn_error *error) {
    xn_engine *engine = NULL;
    xt_instance_init(&server);
    strcpy(server.config.backend, repository[0] ? "ref" : "cpu");
    strcpy(server.config.model_repository, repository);
    server.config.response_cache_bytes = cache_bytes;
    server.config.workers = 2;
    server.config.threads = 2;
    xn_status status = xn_engine_create(&server.config, &engine, error);
    return status ? status : xt_instance_start(&server, engine, error);
}

static void start(const char *repository, int64_t cache_bytes) {
    xn_error error = {0};
    xn_mem_set_hook(xt_fault_hook, &fault);
    ck_assert_msg(!try_start(repository, cache_bytes, &error), "%s", error.message);
}

static void stop(void) {
    xt_instance_stop(&server);
    xn_mem_set_hook(NULL, NULL);
}

/* ---- requests ---- */

typedef struct action {
    const char *name, *method, *target, *headers;
    const char *body;
    size_t length;
    int expected; /* the status without faults */
    /* of a /conv request, whose answer is held against the oracle */
    const xt_problem *problem;
    xt_form form;
} action;

/* NULL, or what is wrong with the outcome. */
static const char *judge(const action *a, xt_result result, const xt_response *response,
                         long failed, char *text, size_t size) {
    if (result == XT_CLOSED && failed)
        return NULL;
    if (result != XT_GOT) {
        snprintf(text, size, "got %s", xt_result_name(result));
        return text;
    }
    if (response->status == a->expected) {
        if (a->problem && !xt_response_matches(response, a->form, a->problem, NULL, text, size))
            return text;
        return NULL;
    }
    snprintf(text, size, "status %d: %.300s", response->status, response->body);
    const char *error = xt_json_at(response->body, "error");
    bool in_words = error && *error == '"'; /* of the Open Inference Protocol */
    if (!failed || response->status != 503 ||
        !(in_words || xt_json_is(response->body, "error.code", "unavailable")))
        return text;
    return NULL;
}

/* Nothing stays counted once the exchange is over. */
static void check_quiet(const action *a, long n) {
    xn_metrics *metrics = xn_engine_metrics(server.service.engine);
    int64_t deadline = xt_now_ms() + XT_PATIENCE_MS;
    while ((xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT) ||
            xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES) ||
            xn_metrics_gauge(metrics, XN_GAUGE_QUEUE_DEPTH)) &&
           xt_now_ms() < deadline)
        xt_nap();
    ck_assert_msg(xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT) == 0 &&
                      xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES) == 0 &&
                      xn_metrics_gauge(metrics, XN_GAUGE_QUEUE_DEPTH) == 0,
                  "%s, allocation %ld failed: %lld requests and %lld bytes are still counted",
                  a->name, n, (long long)xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT),
                  (long long)xn_metrics_gauge(metrics, XN_GAUGE_INFLIGHT_BYTES));
}

/* One request with that allocation failing; returns how many failed. */
static long run_once(const action *a, long n, bool for_good) {
    xt_conn conn;
    xt_response response;
    char text[512] = "";
    xt_fault_arm(&fault, n, for_good);
    ck_assert_msg(xt_connect(&conn, &server.address), "cannot connect");
    xt_result result =
        xt_request(&conn, a->method, a->target, a->headers, a->body, a->length, &response);
    long failed = xt_fault_disarm(&fault);
    const char *wrong = judge(a, result, &response, failed, text, sizeof text);
    ck_assert_msg(!wrong, "%s, allocation %ld failed%s: %s", a->name, n,
                  for_good ? " and all after it" : "", wrong);
    xt_response_free(&response);
    xt_disconnect(&conn);
    check_quiet(a, n);
    return failed;
}

static void fail_each(const action *a) {
    for (int for_good = 0; for_good < 2; for_good++) {
        long n = 0;
        while (run_once(a, n, for_good)) {
            ck_assert_msg(++n < MOST_ALLOCATIONS, "%s never ends", a->name);
            run_once(a, MOST_ALLOCATIONS, false); /* the next request is served as ever */
        }
        ck_assert_msg(n > 0, "%s allocates nothing: the hook is not called", a->name);
    }
}

static const xt_case affine = {"fault",       2,           5, 6, 7, 4, 3, 3, .padding_name = "same",
                               .scale = true, .bias = true};

static action conv_action(const char *name, const xt_problem *problem, xt_form answer,
                          const xt_message *message) {
    return (action){.name = name,
                    .method = "POST",
                    .target = message->target.data,
                    .headers = message->headers.data,
                    .body = message->body.data,
                    .length = message->body.length,
                    .expected = 200,
                    .problem = problem,
                    .form = answer};
}

static void register_weights(const xt_problem *problem) {
    xt_message message;
    xt_encode_weights(problem, XT_SAFETENSORS, &message);
    action put = {.name = "weights",
                  .method = "PUT",
                  .target = "/weights/known",
                  .headers = message.headers.data,
                  .body = message.body.data,
                  .length = message.body.length,
                  .expected = 201};
    run_once(&put, MOST_ALLOCATIONS, false);
    xt_message_free(&message);
}

/* One /conv of that case, form and answer; by registered weights or inline. */
static void fail_each_conv(const xt_case *what, xt_form form, xt_form answer, bool named) {
    char name[96];
    xt_problem problem;
    xt_message message;
    xt_options options = {.weights_name = named ? "known" : NULL, .accept = xt_form_type(answer)};
    xt_problem_make(&problem, what, xn_test_seed() + (uint64_t)form);
    if (named)
        register_weights(&problem);
    xt_encode(&problem, form, &options, &message);
    snprintf(name, sizeof name, "%s to %s%s", xt_form_type(form), xt_form_type(answer),
             named ? ", named weights" : "");
    action a = conv_action(name, &problem, answer, &message);
    run_once(&a, MOST_ALLOCATIONS, false);
    fail_each(&a);
    xt_message_free(&message);
    xt_problem_free(&problem);
}

/* Form of the request, form of the answer, weights by name or inline: the loop's index. */
START_TEST(conv_survives_every_failed_allocation) {
    start("", 0);
    fail_each_conv(&affine, (xt_form)(_i % XT_FORMS), (xt_form)(_i / XT_FORMS % XT_FORMS),
                   _i / (XT_FORMS * XT_FORMS));
    stop();
}
END_TEST

/* Packed bits with spare ones, which are copied, in form raw; an answer that needs no run. */
START_TEST(raw_bits_and_recalled_answers_survive) {
    xt_case bits = affine;
    bits.datatype = bits.output_datatype = "BITS";
    bits.scaling = "alpha";
    start("", _i ? 1 << 20 : 0);
    if (_i)
        fail_each_conv(&affine, XT_OIP, XT_OIP, true);
    else
        fail_each_conv(&bits, XT_RAW, XT_RAW, true);
    stop();
}
END_TEST

/* A problem that the server has not seen: new weights, a new geometry and so a new plan each time,
 * where the loop above mostly meets caches. With a cache of answers too, which they all go into. */
START_TEST(new_problems_survive) {
    start("", _i ? 1 << 20 : 0);
    long n = 0, failed = 1;
    for (int round = 0; failed && n < MOST_ALLOCATIONS; round++, n++) {
        xt_problem problem;
        xt_message message;
        xt_case what = affine;
        what.w = 8 + round;
        what.mode = round % 3 == 1 ? "bwn" : round % 3 == 2 ? "float" : "xnor";
        xt_problem_make(&problem, &what, xn_test_seed() + (uint64_t)round);
        xt_encode(&problem, XT_OIP, &(xt_options){0}, &message);
        action a = conv_action("a new problem", &problem, XT_OIP, &message);
        failed = run_once(&a, n, false);
        xt_message_free(&message);
        xt_problem_free(&problem);
    }
    ck_assert_msg(n > 5 && n < MOST_ALLOCATIONS, "%ld allocations", n);
    xn_metrics *metrics = xn_engine_metrics(server.service.engine);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_RESPONSE_CACHE_ENTRIES) > 0, _i);
    stop();
}
END_TEST

START_TEST(weights_and_documents_survive) {
    xt_problem problem;
    xt_message messages[XT_FORMS];
    start("", 0);
    xt_problem_make(&problem, &affine, xn_test_seed());
    register_weights(&problem);
    for (int form = 0; form < XT_FORMS; form++) {
        xt_encode_weights(&problem, (xt_form)form, &messages[form]);
        action put = {.name = xt_form_type((xt_form)form),
                      .method = "PUT",
                      .target = "/weights/known",
                      .headers = messages[form].headers.data,
                      .body = messages[form].body.data,
                      .length = messages[form].body.length,
                      .expected = 200};
        fail_each(&put);
        xt_message_free(&messages[form]);
    }
    static const action gets[] = {
        {"list", "GET", "/weights", "", NULL, 0, 200, NULL, XT_JSON},
        {"item", "GET", "/weights/known", "", NULL, 0, 200, NULL, XT_JSON},
        {"metrics", "GET", "/metrics", "", NULL, 0, 200, NULL, XT_JSON},
        {"server", "GET", "/v2", "", NULL, 0, 200, NULL, XT_JSON},
        {"ready", "GET", "/v2/health/ready", "", NULL, 0, 200, NULL, XT_JSON},
        {"openapi", "GET", "/openapi.yaml", "", NULL, 0, 200, NULL, XT_JSON},
        {"page", "GET", "/", "Accept-Encoding: gzip\r\n", NULL, 0, 200, NULL, XT_JSON},
        {"nothing", "GET", "/nothing", "", NULL, 0, 404, NULL, XT_JSON},
        {"bad body", "POST", "/conv", "Content-Type: application/json\r\n", "{\"input\": 1}", 12,
         400, NULL, XT_JSON},
    };
    for (size_t g = 0; g < sizeof gets / sizeof *gets; g++)
        fail_each(&gets[g]);
    stop();
    xt_problem_free(&problem);
}
END_TEST

/* ---- models ---- */

static action infer_action(const char *name, const xt_buffer *body, const char *headers) {
    return (action){.name = name,
                    .method = "POST",
                    .target = "/v2/models/net/infer",
                    .headers = headers,
                    .body = body->data,
                    .length = body->length,
                    .expected = 200};
}

static void fail_each_infer(const xt_net *net) {
    static const char *const codings[] = {"", "Accept-Encoding: gzip\r\n"};
    xn_rng rng = {xn_test_seed()};
    void *images = xt_net_images(net, &rng, 2);
    for (int in = XT_IN_JSON; in <= XT_IN_BINARY; in++)
        for (int c = 0; c < 2; c++) {
            xt_infer how = {.in = (xt_in)in,
                            .rest = c ? ", \"parameters\": {\"binary_data_output\": true}" : NULL};
            xt_buffer body;
            char headers[200];
            xt_infer_body(&how, net, images, 2, &body);
            snprintf(headers, sizeof headers, "%sInference-Header-Content-Length: %zu\r\n",
                     codings[c], how.header_length);
            action a = infer_action(c ? "coded answers" : "inference", &body, headers);
            fail_each(&a);
            xt_buffer_free(&body);
        }
    free(images);
}

static void fail_each_coded(const xt_net *net) {
    xn_rng rng = {xn_test_seed()};
    void *images = xt_net_images(net, &rng, 2);
    xt_infer how = {.in = XT_IN_JSON};
    xt_buffer body, coded = {0};
    xt_infer_body(&how, net, images, 2, &body);
    coded.data = malloc(body.length);
    ck_assert(xn_coding_encode(XN_CODING_GZIP, body.data, body.length, coded.data, body.length,
                               &coded.length));
    action a = infer_action("a coded request", &coded, "Content-Encoding: gzip\r\n");
    fail_each(&a);
    xt_buffer_free(&coded);
    xt_buffer_free(&body);
    free(images);
}

/* Decoded in the background; answered as JSON and as lines. */
static void fail_each_picture(void) {
    static const char *const files[] = {"tests/pictures/jpg/turned6.jpg",
                                        "tests/pictures/png/interlaced.png"};
    static const char *const accepts[] = {"", "Accept: text/plain\r\n"};
    for (int i = 0; i < 4; i++) {
        char bytes[16384];
        FILE *in = fopen(files[i / 2], "rb");
        ck_assert_msg(in != NULL, "%s is missing", files[i / 2]);
        xt_buffer body = {.data = bytes, .length = fread(bytes, 1, sizeof bytes, in)};
        fclose(in);
        action a = infer_action(files[i / 2], &body, accepts[i % 2]);
        fail_each(&a);
    }
}

START_TEST(models_survive) {
    static const action actions[] = {
        {"metadata", "GET", "/v2/models/net", "", NULL, 0, 200, NULL, XT_JSON},
        {"config", "GET", "/v2/models/net/config", "", NULL, 0, 200, NULL, XT_JSON},
        {"model ready", "GET", "/v2/models/net/ready", "", NULL, 0, 200, NULL, XT_JSON},
        {"stats", "GET", "/v2/models/net/stats", "", NULL, 0, 200, NULL, XT_JSON},
        {"all stats", "GET", "/v2/models/stats", "", NULL, 0, 200, NULL, XT_JSON},
        {"unknown", "GET", "/v2/models/nothing", "", NULL, 0, 404, NULL, XT_JSON},
        {"index", "POST", "/v2/repository/index", "", "{}", 2, 200, NULL, XT_JSON},
        {"load", "POST", "/v2/repository/models/net/load", "", "{}", 2, 200, NULL, XT_JSON},
        {"bad infer", "POST", "/v2/models/net/infer", "", "{}", 2, 400, NULL, XT_JSON},
        {"shared memory", "GET", "/v2/systemsharedmemory/status", "", NULL, 0, 200, NULL, XT_JSON},
    };
    char repository[200];
    xt_net net;
    xt_folder_make(repository, sizeof repository);
    xt_net_make(&net, XT_NET_BYTES, xn_test_seed());
    xt_net_write(&net, repository, "net");
    start(repository, 0);
    for (size_t a = 0; a < sizeof actions / sizeof *actions; a++)
        fail_each(&actions[a]);
    fail_each_infer(&net);
    fail_each_coded(&net);
    fail_each_picture();
    stop();
    xt_net_free(&net);
    xt_folder_remove(repository);
}
END_TEST

/* ---- the start ---- */

START_TEST(start_up_survives_every_failed_allocation) {
    xn_mem_set_hook(xt_fault_hook, &fault);
    long n = 0, failed = 1;
    for (; failed && n < MOST_ALLOCATIONS; n++) {
        xn_error error = {0};
        xt_fault_arm(&fault, n, false);
        xn_status status = try_start("", 0, &error);
        failed = xt_fault_disarm(&fault);
        ck_assert_msg(status == XN_OK || (failed && error.status == status && error.message[0]),
                      "allocation %ld failed: status %s, message '%s'", n, xn_status_name(status),
                      error.message);
        if (status == XN_OK) { /* whatever it lacks, it serves */
            char *live = xt_get(&server.address, "/v2/health/live");
            free(live);
        }
        xt_instance_stop(&server);
    }
    ck_assert_msg(n > 10 && n < MOST_ALLOCATIONS, "%ld allocations", n);
    xn_mem_set_hook(NULL, NULL);
}
END_TEST

XN_SUITE(fault_server) {
    Suite *s = suite_create("fault_server");
    TCase *t = tcase_create("fault");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, conv_survives_every_failed_allocation, 0, 2 * XT_FORMS * XT_FORMS);
    tcase_add_loop_test(t, raw_bits_and_recalled_answers_survive, 0, 2);
    tcase_add_loop_test(t, new_problems_survive, 0, 2);
    tcase_add_test(t, weights_and_documents_survive);
    tcase_add_test(t, models_survive);
    tcase_add_test(t, start_up_survives_every_failed_allocation);
    suite_add_tcase(s, t);
    return s;
}
