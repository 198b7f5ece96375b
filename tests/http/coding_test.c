/* Coded bodies on a real daemon: requests in gzip and deflate, answers where they are asked for,
 * and bodies that become too much. */
#include "client/oip.h"
#include "coding.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT = 4 << 20 };

static xt_daemon *daemon_;
static char repository[256];
static xt_net net;

static void start(void) {
    xt_folder_make(repository, sizeof repository);
    xt_net_make(&net, XT_NET_BYTES, xn_test_seed());
    xt_net_write(&net, repository, "bytes");
    daemon_ = xt_daemon_start_shared(XT_FLAGS("--model-repository", repository, "--max-body-bytes",
                                              "4M", "--queue-bytes", "64M"));
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
    xt_net_free(&net);
    xt_folder_remove(repository);
}

static xt_buffer code(xn_coding coding, const xt_buffer *body) {
    size_t room = body->length + body->length / 8 + 1000, length = 0;
    xt_buffer out = {malloc(room), 0, room};
    ck_assert(xn_coding_encode(coding, body->data, body->length, out.data, room, &length));
    out.length = length;
    return out;
}

static const struct {
    xn_coding coding;
    const char *header;
} codings[] = {{XN_CODING_GZIP, "Content-Encoding: gzip\r\n"},
               {XN_CODING_DEFLATE, "Content-Encoding: Deflate\r\n"}};

static void code_message(int i, xt_message *message) {
    xt_buffer plain = message->body;
    message->body = code(codings[i].coding, &plain);
    xt_buffer_free(&plain);
}

enum { FEATURES = 8 * 6 * 5, ALL = FEATURES + 10 };

static void check_both(const xt_response *response, const float *expected, int64_t images) {
    xt_check_output(response, 0, "out0", expected, images, ALL, 0, FEATURES);
    xt_check_output(response, 1, "out1", expected, images, ALL, FEATURES, ALL);
}

/* The header's length counts decoded bytes. */
START_TEST(coded_requests) {
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    void *images = xt_net_images(&net, &rng, 5);
    float *expected = xt_net_expect(&net, images, 5);
    for (int in = XT_IN_JSON; in <= XT_IN_BINARY; in++) {
        xt_infer how = {.in = (xt_in)in, .headers = codings[_i].header};
        xt_buffer body, coded;
        xt_conn conn;
        xt_response response;
        xt_infer_body(&how, &net, images, 5, &body);
        coded = code(codings[_i].coding, &body);
        ck_assert(xt_connect(&conn, daemon_));
        ck_assert_int_eq(xt_infer_send(&conn, "bytes", &how, &coded, &response), XT_GOT);
        check_both(&response, expected, 5);
        ck_assert_ptr_null(XT_HEADER(&response, "Content-Encoding"));
        xt_response_free(&response);
        xt_disconnect(&conn);
        xt_buffer_free(&body);
        xt_buffer_free(&coded);
    }
    free(images);
    free(expected);
}
END_TEST

static void send_coded(const char *headers, const xt_buffer *coded, xt_response *response) {
    xt_fetch(daemon_, "POST", "/v2/models/bytes/infer", headers, coded->data, coded->length,
             response);
}

static void refused(const char *headers, const xt_buffer *coded, int status, const char *part) {
    xt_response response;
    send_coded(headers, coded, &response);
    xt_check_oip_error(&response, status, part, headers);
    xt_response_free(&response);
}

START_TEST(wrong_coded_requests) {
    xt_buffer body = {0}, coded;
    char headers[200];
    xt_print(&body, "{\"inputs\": []}");
    coded = code(codings[_i].coding, &body);
    refused(codings[_i].header, &coded, 400, "inputs"); /* of its contents */
    snprintf(headers, sizeof headers, "%sInference-Header-Content-Length: %zu\r\n",
             codings[_i].header, body.length + 1);
    refused(headers, &coded, 400, "Inference-Header-Content-Length");
    refused(codings[!_i].header, &coded, 400, "Content-Encoding");
    xt_append(&coded, "x", 1);
    refused(codings[_i].header, &coded, 400, "behind");
    for (coded.length -= 2; coded.length; coded.length--) {
        refused(codings[_i].header, &coded, 400, "middle");
    }
    xt_buffer_free(&body);
    xt_buffer_free(&coded);
}
END_TEST

/* All routes take them: /conv in each form, and weights. */
START_TEST(coded_convolutions) {
    static const xt_case what = {"coded", 2, 3, 9, 7, 5, 3, 3, .padding_name = "same"};
    xt_options options = {.extra_headers = codings[_i].header};
    xn_rng rng = {xn_test_seed()};
    xt_problem problem;
    xt_message message;
    xt_response response;
    xt_conn conn;
    char error[512] = "";
    ck_assert(xt_connect(&conn, daemon_));
    xt_problem_make(&problem, &what, xn_test_seed());
    for (int form = XT_JSON; form <= XT_RAW; form++) {
        if (form != XT_RAW) {
            xt_encode_weights(&problem, (xt_form)form, &message);
            xt_print(&message.headers, "%s", codings[_i].header);
            code_message(_i, &message);
            ck_assert_int_eq(xt_put(&conn, "/weights/coded", &message, &response), XT_GOT);
            ck_assert_msg(response.status / 100 == 2, "%s", response.body);
            xt_response_free(&response);
            xt_message_free(&message);
        }
        options.weights_name = form == XT_RAW ? "coded" : NULL;
        xt_encode(&problem, (xt_form)form, &options, &message);
        code_message(_i, &message);
        for (int chunked = 0; chunked < 2; chunked++) {
            xt_conn own;
            ck_assert(xt_connect(&own, daemon_));
            ck_assert_int_eq(chunked ? xt_post_chunked(&own, &message, &rng, &response)
                                     : xt_post(&own, &message, &response),
                             XT_GOT);
            ck_assert_msg(
                xt_response_matches(&response, (xt_form)form, &problem, NULL, error, sizeof error),
                "%s: %s", xt_form_type((xt_form)form), error);
            xt_response_free(&response);
            xt_disconnect(&own);
        }
        xt_message_free(&message);
    }
    xt_disconnect(&conn);
    xt_problem_free(&problem);
}
END_TEST

/* A chunked body ends where it may be no longer: that of a document, and that of all others. */
START_TEST(chunked_bodies_that_are_too_much) {
    static const struct {
        const char *target;
        size_t most;
        const char *limit;
    } table[] = {{"/v2/models/bytes/infer", LIMIT, "--max-body-bytes"},
                 {"/v2/repository/models/new/load", LIMIT, "--max-body-bytes"},
                 {"/v2/repository/index", 65536, "65536"}};
    xn_rng rng = {xn_test_seed()};
    for (int i = 0; i < 6; i++) {
        const bool over = i % 2;
        xt_message message = {0};
        xt_response response;
        xt_conn conn;
        xt_print(&message.target, "%s", table[i / 2].target);
        xt_print(&message.headers, "Content-Type: application/json\r\n");
        for (size_t n = 0; n < table[i / 2].most + over; n++)
            xt_append(&message.body, " ", 1);
        ck_assert(xt_connect(&conn, daemon_));
        ck_assert_int_eq(xt_post_chunked(&conn, &message, &rng, &response), XT_GOT);
        if (over)
            xt_check_oip_error(&response, 413, table[i / 2].limit, table[i / 2].target);
        else
            ck_assert_msg(response.status == 400 || response.status == 200, "%s", response.body);
        xt_response_free(&response);
        xt_disconnect(&conn);
        xt_message_free(&message);
    }
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_bytes", 0));
}
END_TEST

/* Also those that take small documents, small once they are decoded. */
START_TEST(coded_documents) {
    xt_buffer body = {0}, coded;
    xt_response response;
    xt_print(&body, "{\"ready\": true");
    for (int i = 0; i < 2; i++) {
        for (int blanks = 0; blanks < (i ? 70000 : 1); blanks++)
            xt_append(&body, " ", 1);
        xt_print(&body, "}");
        coded = code(codings[_i].coding, &body);
        xt_fetch(daemon_, "POST", "/v2/repository/index", codings[_i].header, coded.data,
                 coded.length, &response);
        if (i)
            xt_check_oip_error(&response, 413, "65536", "a large document");
        else
            ck_assert_msg(response.status == 200, "%s", response.body);
        xt_response_free(&response);
        xt_buffer_free(&coded);
        body.length--;
    }
    xt_buffer_free(&body);
}
END_TEST

START_TEST(bombs) {
    xt_buffer body = {calloc(1, LIMIT + 1), LIMIT + 1, LIMIT + 1}, coded;
    memset(body.data, ' ', body.length);
    coded = code(codings[_i].coding, &body);
    ck_assert_uint_lt(coded.length, body.length / 100);
    long before = xt_daemon_memory_kb(daemon_, "VmHWM");
    for (int i = 0; i < 5; i++) {
        refused(codings[_i].header, &coded, 413, "max-body-bytes");
    }
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_bytes", 0));
    if (!XN_TEST_SANITIZED)
        ck_assert_int_lt(xt_daemon_memory_kb(daemon_, "VmHWM"), before + 3 * (LIMIT >> 10));
    body.length = LIMIT; /* as much as may be, and no JSON */
    xt_buffer_free(&coded);
    coded = code(codings[_i].coding, &body);
    refused(codings[_i].header, &coded, 400, NULL);
    xt_buffer_free(&body);
    xt_buffer_free(&coded);
}
END_TEST

/* What a body becomes counts like a body that comes so: many of them are refused, not held. */
START_TEST(decoded_bytes_count) {
    xt_response response;
    xt_daemon *small =
        xt_daemon_start(XT_FLAGS("--model-repository", repository, "--queue-bytes", "4M",
                                 "--max-connections", "32", "--max-body-bytes", "64M"));
    xt_buffer body = {calloc(1, 16 << 20), 16 << 20, 16 << 20}, coded;
    memset(body.data, ' ', body.length);
    coded = code(XN_CODING_GZIP, &body);
    xt_fetch(small, "POST", "/v2/models/bytes/infer", codings[0].header, coded.data, coded.length,
             &response);
    ck_assert_msg(response.status == 429 || response.status == 413, "%d: %s", response.status,
                  response.body);
    xt_check_oip_error(&response, response.status, "bytes", "too much");
    xt_response_free(&response);
    ck_assert(xt_metric_becomes(small, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(small), 0);
    xt_buffer_free(&body);
    xt_buffer_free(&coded);
}
END_TEST

/* Those that are refused have left before the next ones are decoded. */
START_TEST(many_bombs_hold_no_more_than_one) {
    enum { COUNT = 100, MOST = 24 << 20 };
    xt_conn conns[COUNT];
    xt_response response;
    xt_daemon *small = xt_daemon_start(XT_FLAGS("--model-repository", repository, "--queue-bytes",
                                                "32M", "--max-bytes-per-client", "32M",
                                                "--max-active", "1000", "--max-body-bytes", "64M"));
    xt_buffer body = {calloc(1, MOST), MOST, MOST}, coded;
    char head[256];
    memset(body.data, ' ', body.length);
    coded = code(XN_CODING_GZIP, &body);
    long before = xt_daemon_memory_kb(small, "VmHWM");
    snprintf(head, sizeof head,
             "POST /v2/models/bytes/infer HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n",
             codings[0].header, coded.length);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            ck_assert(xt_connect(&conns[i], small) && xt_send_text(&conns[i], head) &&
                      xt_send(&conns[i], coded.data, coded.length));
        }
        for (int i = 0; i < COUNT; i++) {
            ck_assert_int_eq(xt_receive(&conns[i], false, false, &response), XT_GOT);
            ck_assert_msg(response.status == 429 || response.status == 400, "%d: %s",
                          response.status, response.body);
            xt_response_free(&response);
            xt_disconnect(&conns[i]);
        }
    }
    if (!XN_TEST_SANITIZED)
        ck_assert_int_lt(xt_daemon_memory_kb(small, "VmHWM"), before + 3 * (MOST >> 10));
    ck_assert(xt_metric_becomes(small, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(small), 0);
    xt_buffer_free(&body);
    xt_buffer_free(&coded);
}
END_TEST

/* ---- answers ---- */

static xn_status grown(void *context, size_t bytes, xn_error *why) {
    (void)context, (void)bytes, (void)why;
    return XN_OK;
}

static void decode_answer(xt_response *response, xn_coding coding) {
    const size_t room = 1 << 20;
    char *body = malloc(room + 1);
    size_t length = 0;
    xn_error error;
    xn_status status = xn_coding_decode(coding, response->body, response->length, body, room, "",
                                        grown, NULL, &length, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    free(response->body);
    body[length] = 0;
    response->body = body;
    response->length = length;
}

START_TEST(coded_answers) {
    static const struct {
        const char *accept, *coding;
        xn_coding kind;
    } table[] = {
        {"Accept-Encoding: gzip\r\n", "gzip", XN_CODING_GZIP},
        {"Accept-Encoding: deflate\r\n", "deflate", XN_CODING_DEFLATE},
        {"Accept-Encoding: br, gzip;q=0.5, deflate;q=0.7\r\n", "deflate", XN_CODING_DEFLATE},
        {"Accept-Encoding: identity\r\n", NULL, XN_CODING_IDENTITY},
        {"Accept-Encoding: *\r\n", NULL, XN_CODING_IDENTITY},
        {"", NULL, XN_CODING_IDENTITY}};
    xn_rng rng = {xn_test_seed()};
    void *images = xt_net_images(&net, &rng, 4);
    float *expected = xt_net_expect(&net, images, 4);
    for (size_t i = 0; i < 2 * sizeof table / sizeof *table; i++) {
        xt_response response;
        xt_infer how = {.in = XT_IN_BINARY, .headers = table[i / 2].accept};
        if (i % 2)
            how.rest = ", \"parameters\": {\"binary_data_output\": true}";
        xt_ask(daemon_, "bytes", &how, &net, images, 4, &response);
        ck_assert_msg(response.status == 200, "%s", response.body);
        const char *coding = XT_HEADER(&response, "Content-Encoding");
        if (table[i / 2].coding) {
            ck_assert_msg(coding && !strcmp(coding, table[i / 2].coding), "%s", response.head);
            ck_assert_ptr_nonnull(XT_HEADER(&response, "Vary"));
            decode_answer(&response, table[i / 2].kind);
        } else {
            ck_assert_msg(!coding, "%s", response.head);
        }
        check_both(&response, expected, 4);
        xt_response_free(&response);
    }
    free(images);
    free(expected);
}
END_TEST

START_TEST(small_answers_and_errors_are_not_coded) {
    xn_rng rng = {xn_test_seed()};
    void *images = xt_net_images(&net, &rng, 1);
    xt_response response;
    xt_infer how = {.in = XT_IN_BINARY,
                    .headers = "Accept-Encoding: gzip\r\n",
                    .rest = ", \"outputs\": [{\"name\": \"out1\"}]"};
    xt_ask(daemon_, "bytes", &how, &net, images, 1, &response);
    ck_assert_int_eq(response.status, 200);
    ck_assert_ptr_null(XT_HEADER(&response, "Content-Encoding"));
    xt_response_free(&response);
    xt_fetch(daemon_, "GET", "/v2/models/nothing", "Accept-Encoding: gzip\r\n", NULL, 0, &response);
    xt_check_oip_error(&response, 404, NULL, "nothing");
    xt_response_free(&response);
    free(images);
}
END_TEST

XN_SUITE(http_coding) {
    Suite *suite = suite_create("http_coding");
    TCase *tcase = tcase_create("coding");
    tcase_add_unchecked_fixture(tcase, start, stop);
    tcase_add_checked_fixture(tcase, NULL, xt_reap);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, coded_requests, 0, 2);
    tcase_add_loop_test(tcase, wrong_coded_requests, 0, 2);
    tcase_add_loop_test(tcase, coded_convolutions, 0, 2);
    tcase_add_test(tcase, chunked_bodies_that_are_too_much);
    tcase_add_loop_test(tcase, coded_documents, 0, 2);
    tcase_add_loop_test(tcase, bombs, 0, 2);
    tcase_add_test(tcase, decoded_bytes_count);
    tcase_add_test(tcase, many_bombs_hold_no_more_than_one);
    tcase_add_test(tcase, coded_answers);
    tcase_add_test(tcase, small_answers_and_errors_are_not_coded);
    suite_add_tcase(suite, tcase);
    xt_add_stopped_case(suite);
    return suite;
}
