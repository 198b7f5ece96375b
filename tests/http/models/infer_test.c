/* POST /v2/models/{model}/infer on a real daemon: networks in every form of request and answer, bit
 * by bit what ref gives. What is refused: exchanges/infer.txt. */
#include "http/client/oip.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
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

enum { FEATURES = 8 * 6 * 5, CLASSES = 10 };

/* A request's images and what is to come of them. */
typedef struct {
    const xt_net *net;
    int64_t count, per_image; /* images; values of all outputs of one */
    void *images;
    float *expected;
} batch;

static batch make_batch(int kind, int64_t count, uint64_t salt) {
    xn_rng rng = {xn_test_seed() + salt};
    batch b = {.net = &nets[kind], .count = count};
    b.images = xt_net_images(b.net, &rng, count);
    b.expected = xt_net_expect(b.net, b.images, count);
    b.per_image = kind == XT_NET_PLAIN ? CLASSES : FEATURES + CLASSES;
    return b;
}

static void free_batch(batch *b) {
    free(b->images);
    free(b->expected);
}

static void ask(const batch *b, xt_infer *how, xt_response *response) {
    xt_ask(daemon_, xt_net_names[b->net->kind], how, b->net, b->images, b->count, response);
}

/* All outputs, in order. */
static void check_all(const batch *b, const xt_response *response) {
    if (b->net->kind == XT_NET_PLAIN) {
        xt_check_output(response, 0, "logits", b->expected, b->count, b->per_image, 0, CLASSES);
        return;
    }
    xt_check_output(response, 0, "out0", b->expected, b->count, b->per_image, 0, FEATURES);
    xt_check_output(response, 1, "out1", b->expected, b->count, b->per_image, FEATURES,
                    FEATURES + CLASSES);
}

static bool is_binary(const xt_response *response) {
    const char *type = XT_HEADER(response, "Content-Type");
    bool header = XT_HEADER(response, "Inference-Header-Content-Length") != NULL;
    ck_assert_str_eq(type, header ? "application/octet-stream" : "application/json");
    return header;
}

/* ---- forms ---- */

static const int64_t batches[] = {1, 2, 5, XT_NET_MAX_BATCH};
enum { BATCHES = sizeof batches / sizeof *batches };

START_TEST(every_form_gives_what_ref_gives) {
    static const char *const rests[] = {NULL, ", \"parameters\": {\"binary_data_output\": true}",
                                        ", \"parameters\": {\"binary_data_output\": false}"};
    batch b = make_batch(_i % XT_NETS, batches[_i / XT_NETS], (uint64_t)_i);
    for (int in = XT_IN_JSON; in <= XT_IN_BINARY; in++)
        for (int out = 0; out < 3; out++) {
            xt_infer how = {.in = (xt_in)in, .rest = rests[out], .id = "an id"};
            xt_response response;
            ask(&b, &how, &response);
            check_all(&b, &response);
            ck_assert_int_eq(is_binary(&response), out == 1);
            ck_assert_str_eq(XT_HEADER(&response, "X-Request-Id"), "an id");
            xt_response_free(&response);
        }
    free_batch(&b);
}
END_TEST

/* An answer has the id of its own request, in its text too, whatever the last one's was. */
START_TEST(ids_are_echoed) {
    static const char *const ids[] = {"question 7", "q", NULL};
    static const char *const rests[] = {NULL, ", \"parameters\": {\"binary_data_output\": true}"};
    batch b = make_batch(_i, 1, 4);
    xt_conn conn;
    ck_assert(xt_connect(&conn, daemon_));
    for (int k = 0; k < 3 * 2 * 2; k++) {
        const char *id = ids[k % 3];
        xt_infer how = {
            .in = k / 6 ? XT_IN_BINARY : XT_IN_JSON, .rest = rests[k / 3 % 2], .id = id};
        xt_buffer body;
        xt_response response;
        xt_infer_body(&how, b.net, b.images, b.count, &body);
        ck_assert_int_eq(xt_infer_send(&conn, xt_net_names[_i], &how, &body, &response), XT_GOT);
        ck_assert_msg(response.status == 200, "%s", response.body);
        if (id)
            ck_assert_msg(xt_json_is(response.body, "id", id), "%s: %s", id, response.body);
        else
            ck_assert_ptr_null(xt_json_at(response.body, "id"));
        xt_response_free(&response);
        xt_buffer_free(&body);
    }
    xt_disconnect(&conn);
    free_batch(&b);
}
END_TEST

START_TEST(chunked_bodies) {
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    batch b = make_batch(_i, 5, 31);
    for (int in = XT_IN_JSON; in <= XT_IN_BINARY; in++)
        for (int over = 0; over < 2; over++) { /* the header's length is more than there is */
            xt_infer how = {.in = (xt_in)in};
            xt_message message = {0};
            xt_response response;
            xt_conn conn;
            xt_infer_body(&how, b.net, b.images, b.count, &message.body);
            xt_print(&message.target, "/v2/models/%s/infer", xt_net_names[_i]);
            xt_print(&message.headers, "Inference-Header-Content-Length: %zu\r\n",
                     over ? message.body.length + 1
                          : (how.header_length ? how.header_length : message.body.length));
            ck_assert(xt_connect(&conn, daemon_));
            ck_assert_int_eq(xt_post_chunked(&conn, &message, &rng, &response), XT_GOT);
            if (over)
                xt_check_oip_error(&response, 400, "Inference-Header-Content-Length", "over");
            else
                check_all(&b, &response);
            xt_response_free(&response);
            xt_disconnect(&conn);
            xt_message_free(&message);
        }
    free_batch(&b);
}
END_TEST

START_TEST(raw_bodies) {
    batch b = make_batch(_i, 1, 77);
    xt_infer how = {.in = XT_IN_RAW};
    xt_response response;
    ask(&b, &how, &response);
    check_all(&b, &response);
    ck_assert(is_binary(&response));
    xt_response_free(&response);
    free_batch(&b);
}
END_TEST

/* ---- outputs ---- */

START_TEST(listed_outputs) {
    batch b = make_batch(XT_NET_BYTES, 3, 11);
    xt_response response;
    /* Each by itself: one that does not say so is JSON, whatever binary_data_output says. */
    xt_infer how = {.in = XT_IN_BINARY,
                    .rest = ", \"outputs\": [{\"name\": \"out1\"}, {\"name\": \"out0\", "
                            "\"parameters\": {\"binary_data\": true}}], \"parameters\": "
                            "{\"binary_data_output\": true}"};
    ask(&b, &how, &response);
    xt_check_output(&response, 0, "out1", b.expected, b.count, b.per_image, FEATURES,
                    FEATURES + CLASSES);
    xt_check_output(&response, 1, "out0", b.expected, b.count, b.per_image, 0, FEATURES);
    xt_output out;
    xt_output_read(&response, 0, &out);
    ck_assert(!out.binary && is_binary(&response));
    xt_output_free(&out);
    xt_response_free(&response);
    how.rest = ", \"outputs\": [{\"name\": \"out1\", \"parameters\": {\"binary_data\": true}}]";
    ask(&b, &how, &response);
    xt_check_output(&response, 0, "out1", b.expected, b.count, b.per_image, FEATURES,
                    FEATURES + CLASSES);
    ck_assert_ptr_null(strstr(response.body, "out0"));
    xt_response_free(&response);
    free_batch(&b);
}
END_TEST

/* ---- what is left ---- */

START_TEST(nothing_is_left) {
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_bytes", 0));
    ck_assert(xt_metric(daemon_, "xnord_requests_total{route=\"infer\",code=\"200\"}") > 0);
}
END_TEST

XN_SUITE(http_infer) {
    Suite *suite = suite_create("http_infer");
    TCase *tcase = tcase_create("infer");
    tcase_add_unchecked_fixture(tcase, start, stop);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_form_gives_what_ref_gives, 0, XT_NETS * BATCHES);
    tcase_add_loop_test(tcase, ids_are_echoed, 0, XT_NETS);
    tcase_add_loop_test(tcase, chunked_bodies, 0, XT_NETS);
    tcase_add_loop_test(tcase, raw_bodies, 0, XT_NETS);
    tcase_add_test(tcase, listed_outputs);
    tcase_add_test(tcase, nothing_is_left);
    suite_add_tcase(suite, tcase);
    xt_add_stopped_case(suite);
    return suite;
}
