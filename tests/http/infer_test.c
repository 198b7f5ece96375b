/* POST /v2/models/{model}/infer on a real daemon: networks in every form of request and answer, bit
 * by bit what ref gives; requests as clients of the protocol send them; what is refused. */
#include "client/oip.h"

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

/* With the version in the path, whatever comes in whatever pieces. */
START_TEST(bodies_in_pieces) {
    xn_rng rng = {xn_test_seed() + 5};
    batch b = make_batch(_i, 2, 99);
    xt_infer how = {.in = XT_IN_BINARY};
    xt_buffer body, all = {0};
    xt_infer_body(&how, b.net, b.images, b.count, &body);
    xt_print(&all,
             "POST /v2/models/%s/versions/1/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n"
             "Inference-Header-Content-Length: %zu\r\n\r\n",
             xt_net_names[_i], body.length, how.header_length);
    xt_append(&all, body.data, body.length);
    for (int round = 0; round < 5; round++) {
        xt_conn conn;
        xt_response response;
        ck_assert(xt_connect(&conn, daemon_));
        for (size_t at = 0, piece; at < all.length; at += piece) {
            piece = 1 + (size_t)xn_rng_below(&rng, round ? 400 : 90);
            piece = piece < all.length - at ? piece : all.length - at;
            ck_assert(xt_send(&conn, all.data + at, piece));
        }
        ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
        check_all(&b, &response);
        xt_response_free(&response);
        xt_disconnect(&conn);
    }
    xt_buffer_free(&body);
    xt_buffer_free(&all);
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

/* The best n of a row, as "value:index:label". */
static void check_classes(const batch *b, int64_t image, int best, const char *const got[]) {
    static const char *const labels[] = {"zero", "one", "two",   "three", "",
                                         "five", NULL,  "seven", "eight", NULL};
    const float *row = b->expected + image * b->per_image;
    double last = HUGE_VAL;
    bool seen[CLASSES] = {false};
    for (int i = 0; i < best; i++) {
        char *end;
        double value = strtod(got[i], &end);
        long index = strtol(end + 1, &end, 10);
        ck_assert_msg(*got[i] && index >= 0 && index < CLASSES && !seen[index], "%s", got[i]);
        seen[index] = true;
        ck_assert_msg(fabs(value - (double)row[index]) < 1e-5 && value <= last, "%s", got[i]);
        last = value;
        if (labels[index] && !*labels[index])
            ck_assert_msg(!*end, "%s", got[i]);
        else if (labels[index])
            ck_assert_msg(*end == ':' && !strcmp(end + 1, labels[index]), "%s", got[i]);
    }
    for (int i = 0; i < CLASSES; i++)
        ck_assert_msg(seen[i] || (double)row[i] <= last + 1e-5, "class %d is missing", i);
}

static int read_classes_json(const xt_output *out, char *texts[], int most) {
    char path[16];
    int count = 0;
    for (; count < most; count++) {
        snprintf(path, sizeof path, "%d", count);
        if (!(texts[count] = xt_json_string(out->text, path)))
            break;
    }
    return count;
}

static int read_classes_binary(const xt_output *out, char *texts[], int most) {
    int count = 0;
    for (size_t at = 0; at + 4 <= out->bytes && count < most; count++) {
        uint32_t length;
        memcpy(&length, out->values + at, 4);
        ck_assert_uint_le(at + 4 + length, out->bytes);
        texts[count] = strndup((const char *)out->values + at + 4, length);
        at += 4 + length;
    }
    return count;
}

START_TEST(classes) {
    static const int bests[] = {1, 3, CLASSES, 1000};
    batch b = make_batch(XT_NET_PLAIN, 3, 13);
    for (int round = 0; round < 8; round++) {
        char rest[200], *texts[64];
        int best = bests[round / 2] < CLASSES ? bests[round / 2] : CLASSES;
        snprintf(rest, sizeof rest,
                 ", \"outputs\": [{\"name\": \"logits\", \"parameters\": {\"classification\": %d, "
                 "\"binary_data\": %s}}]",
                 bests[round / 2], round % 2 ? "true" : "false");
        xt_infer how = {.in = XT_IN_BINARY, .rest = rest};
        xt_response response;
        xt_output out;
        ask(&b, &how, &response);
        ck_assert_msg(response.status == 200, "%s", response.body);
        xt_output_read(&response, 0, &out);
        ck_assert_str_eq(out.datatype, "BYTES");
        ck_assert(out.rank == 2 && out.shape[0] == 3 && out.shape[1] == best);
        int count =
            round % 2 ? read_classes_binary(&out, texts, 64) : read_classes_json(&out, texts, 64);
        ck_assert_int_eq(count, 3 * best);
        for (int64_t i = 0; i < 3; i++)
            check_classes(&b, i, best, (const char *const *)&texts[i * best]);
        for (int i = 0; i < count; i++)
            free(texts[i]);
        xt_output_free(&out);
        xt_response_free(&response);
    }
    free_batch(&b);
}
END_TEST

/* ---- as clients send it ---- */

static void check_json_request(const batch *b, const char *headers, const char *before,
                               const char *behind, bool header_length) {
    xt_infer how = {.in = XT_IN_JSON};
    xt_buffer json, body = {0};
    xt_response response;
    char all[400];
    xt_infer_body(&how, b->net, b->images, b->count, &json);
    xt_print(&body, "{%s%.*s%s}", before, (int)json.length - 2, json.data + 1, behind);
    snprintf(all, sizeof all, header_length ? "%sInference-Header-Content-Length: %zu\r\n" : "%s",
             headers, body.length);
    xt_fetch(daemon_, "POST", "/v2/models/plain/infer", all, body.data, body.length, &response);
    ck_assert_msg(response.status == 200, "%s%s...%s: %s", headers, before, behind, response.body);
    check_all(b, &response);
    char *id = xt_json_string(response.body, "id");
    ck_assert_msg(!id, "%s", response.body);
    ck_assert(xt_json_is(response.body, "model_name", "plain"));
    ck_assert(xt_json_is(response.body, "model_version", "1"));
    xt_response_free(&response);
    xt_buffer_free(&json);
    xt_buffer_free(&body);
}

START_TEST(requests_of_clients) {
    batch b = make_batch(XT_NET_PLAIN, 2, 17);
    /* tritonclient: no Content-Type, no Accept */
    check_json_request(&b, "", "", "", false);
    /* perf_analyzer */
    check_json_request(&b, "Content-Type: application/json\r\n", "\"id\": \"\", ", "", true);
    /* KServe's client */
    check_json_request(&b, "Content-Type: application/json\r\nAccept: */*\r\n",
                       "\"model_name\": \"plain\", ", "", false);
    check_json_request(&b, "Content-Type: application/json; charset=utf-8\r\n", "",
                       ", \"parameters\": {\"timeout\": 5000000, \"priority\": 1, \"sequence_id\": "
                       "0, \"mine\": \"x\"}",
                       false);
    check_json_request(&b, "Content-Type: application/x-www-form-urlencoded\r\n", "", "", false);
    check_json_request(&b, "Accept: text/html\r\n", "",
                       ", \"outputs\": [{\"name\": \"logits\", \"parameters\": {\"binary_data\": "
                       "false}}]",
                       false);
    free_batch(&b);
}
END_TEST

/* ---- refusals ---- */

typedef struct {
    const char *target, *headers, *body;
    int status;
    const char *part;
} refusal;

#define PLAIN "/v2/models/plain/infer"
#define IN(shape, datatype, data)                                                                  \
    "{\"inputs\": [{\"name\": \"input\", \"shape\": " shape ", \"datatype\": \"" datatype          \
    "\", " data "}]}"
#define FEW "\"data\": [1, 2]"
#define BINARY(bytes) "\"parameters\": {\"binary_data_size\": " bytes "}"

/* clang-format off */
static const refusal refusals[] = {
    {"/v2/models/nothing/infer", "", "{}", 404, "nothing"},
    {"/v2/models/plain/versions/2/infer", "", "{}", 404, NULL},
    {"/v2/models/plain/versions/x/infer", "", "{}", 400, "version"},
    {"/v2/models/../infer", "", "{}", 400, "name"},
    {"/v2/models/a%2fb/infer", "", "{}", 404, NULL},
    {"/v2/models/a%20b/infer", "", "{}", 400, "name"},
    {PLAIN, "", "", 400, NULL},
    {PLAIN, "", "{", 400, NULL},
    {PLAIN, "", "[]", 400, NULL},
    {PLAIN, "", "{}", 400, "inputs"},
    {PLAIN, "", "{\"inputs\": []}", 400, "inputs"},
    {PLAIN, "", IN("[1, 3, 6, 5]", "FP32", FEW), 400, "input"},
    {PLAIN, "", IN("[1, 2]", "FP32", FEW), 400, "[-1, 3, 6, 5]"},
    {PLAIN, "", IN("[2]", "FP32", FEW), 400, "[-1, 3, 6, 5]"},
    {PLAIN, "", IN("[0, 3, 6, 5]", "FP32", FEW), 400, "shape"},
    {PLAIN, "", IN("[-1, 3, 6, 5]", "FP32", FEW), 400, "shape"},
    {PLAIN, "", IN("[3000000000, 3000000000, 6, 5]", "FP32", FEW), 413, "max-elements"},
    {PLAIN, "", IN("[2]", "UINT8", FEW), 400, "datatype UINT8; the model takes FP32"},
    {PLAIN, "", IN("[2]", "FP64", FEW), 400, "FP64"},
    {PLAIN, "", IN("[2]", "FP32", FEW ", " BINARY("8")), 400, NULL},
    {PLAIN, "", IN("[2]", "FP32", "\"data\": [1, \"x\"]"), 400, NULL},
    {PLAIN, "", IN("[2]", "FP32", "\"parameters\": {}"), 400, NULL},
    {PLAIN, "Inference-Header-Content-Length: 400\r\n", "{}", 400, "Inference-Header"},
    {PLAIN, "Inference-Header-Content-Length: x\r\n", "{}", 400, "Inference-Header"},
    {PLAIN, "Inference-Header-Content-Length: 0\r\n", "abc", 400, "360"},
    {PLAIN, "Inference-Header-Content-Length: 2\r\n", "{}abc", 400, NULL},
    {PLAIN, "Content-Type: text/plain\r\n", "{}", 415, "text/plain"},
    {PLAIN, "Content-Type: application/vnd.safetensors\r\n", "{}", 415, NULL},
    {PLAIN, "Content-Encoding: br\r\n", "{}", 415, "br"},
    {PLAIN, "Content-Encoding: gzip, gzip\r\n", "{}", 415, NULL},
    {PLAIN, "Content-Encoding: gzip\r\n", "{}", 400, "gzip"},
    {PLAIN, "Content-Encoding: deflate\r\n", "{}", 400, "deflate"},
    {"/v2/models/bytes/infer", "", IN("[2]", "FP32", FEW), 400, "the model takes UINT8"},
};
/* clang-format on */

START_TEST(refused) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        xt_response response;
        xt_fetch(daemon_, "POST", r->target, r->headers, r->body, strlen(r->body), &response);
        xt_check_oip_error(&response, r->status, r->part, r->body);
        xt_response_free(&response);
    }
}
END_TEST

/* What is wrong with a request that is right but for one thing. */
START_TEST(refused_but_for_one_thing) {
    static const struct {
        xt_infer how;
        int64_t count;
        int status;
        const char *part;
    } table[] = {
        {{.in = XT_IN_JSON, .name = "images"}, 1, 400, "images"},
        {{.in = XT_IN_JSON, .shape = "[3, 6, 5]"}, 1, 400, "batch"},
        {{.in = XT_IN_JSON, .shape = "[1, 3, 5, 6]"}, 1, 400, "[-1, 3, 6, 5]"},
        {{.in = XT_IN_JSON, .shape = "[2, 3, 6, 5]"}, 1, 400, NULL},
        {{.in = XT_IN_BINARY, .shape = "[2, 3, 6, 5]"}, 1, 400, NULL},
        {{.in = XT_IN_BINARY}, XT_NET_MAX_BATCH + 1, 400, "at most 16"},
        {{.in = XT_IN_RAW}, 2, 400, "360"},
        {{.in = XT_IN_BINARY, .datatype = "FP16"}, 1, 400, NULL},
        {{.in = XT_IN_JSON, .rest = ", \"outputs\": [{\"name\": \"x\"}]"}, 1, 400, "x"},
        {{.in = XT_IN_JSON,
          .rest =
              ", \"outputs\": [{\"name\": \"logits\", \"parameters\": {\"classification\": -1}}]"},
         1,
         400,
         NULL},
        {{.in = XT_IN_JSON, .rest = ", \"parameters\": {\"triton_x\": 1}"}, 1, 400, "triton_"},
        {{.in = XT_IN_JSON, .rest = ", \"parameters\": {\"stride\": 2}"}, 1, 400, "network"},
        {{.in = XT_IN_JSON, .rest = ", \"parameters\": {\"timeout\": 400000000}"},
         1,
         400,
         "max-timeout-ms"},
        {{.in = XT_IN_JSON, .rest = ", \"parameters\": {\"timeout\": 1}"}, 1, 504, "deadline"},
        {{.in = XT_IN_JSON,
          .rest = ", \"outputs\": [{\"name\": \"logits\", \"parameters\": "
                  "{\"shared_memory_region\": \"r\", \"shared_memory_byte_size\": 40}}]"},
         1,
         501,
         "--allow-client-shm"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        batch b = make_batch(XT_NET_PLAIN, table[i].count, i);
        xt_infer how = table[i].how;
        xt_response response;
        char what[40];
        snprintf(what, sizeof what, "row %zu", i);
        ask(&b, &how, &response);
        xt_check_oip_error(&response, table[i].status, table[i].part, what);
        xt_response_free(&response);
        free_batch(&b);
    }
}
END_TEST

START_TEST(a_body_is_needed) {
    xt_conn conn;
    xt_response response;
    ck_assert(xt_connect(&conn, daemon_));
    ck_assert(xt_send_text(&conn, "POST " PLAIN " HTTP/1.1\r\nHost: x\r\n"
                                  "\r\n"));
    ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
    xt_check_oip_error(&response, 411, "Content-Length", "no body");
    xt_response_free(&response);
    xt_disconnect(&conn);
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
    tcase_add_loop_test(tcase, bodies_in_pieces, 0, XT_NETS);
    tcase_add_test(tcase, listed_outputs);
    tcase_add_test(tcase, classes);
    tcase_add_test(tcase, requests_of_clients);
    tcase_add_test(tcase, refused);
    tcase_add_test(tcase, refused_but_for_one_thing);
    tcase_add_test(tcase, a_body_is_needed);
    tcase_add_test(tcase, nothing_is_left);
    suite_add_tcase(suite, tcase);
    xt_add_stopped_case(suite);
    return suite;
}
