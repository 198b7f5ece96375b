/* POST /conv on a real daemon: every form of request and answer over a table of cases, each output
 * element held against the naive oracle. */
#include "client/wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static xt_daemon *daemon_;

static void start(void) {
    daemon_ = xt_daemon_start_shared(XT_NO_FLAGS);
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
}

/* clang-format off */
static const xt_case cases[] = {
    {"one channel, 3x3", 1, 1, 16, 16, 1, 3, 3, .padding = {1, 1, 1, 1}},
    {"one channel, wide", 1, 1, 5, 67, 1, 3, 3, .padding_name = "same"},
    {"no padding, 3 to 5 channels", 2, 3, 9, 7, 5, 3, 3, .groups = 1},
    {"1x1", 3, 4, 5, 6, 7, 1, 1, .groups = 1},
    {"1x5 and 5x1 rows", 1, 2, 8, 9, 3, 1, 5, .padding = {0, 2, 0, 2}},
    {"37 channels: a tail", 1, 37, 6, 5, 4, 3, 3, .padding = {1, 1, 1, 1}},
    {"64 channels", 1, 64, 7, 7, 8, 3, 3, .padding = {1, 1, 1, 1}},
    {"33 channels in 3 groups", 2, 33, 5, 6, 6, 3, 3, .groups = 3, .padding = {1, 1, 1, 1}},
    {"depthwise", 1, 6, 8, 8, 6, 3, 3, .groups = 6, .padding_name = "same"},
    {"asymmetric padding", 1, 2, 6, 6, 3, 3, 3, .padding = {1, 2, 0, 3}},
    {"stride and dilation", 1, 3, 11, 12, 2, 3, 2, .stride = {2, 1}, .dilation = {1, 3}},
    {"stride over the kernel", 1, 2, 13, 13, 2, 2, 2, .stride = {4, 5}, .padding_name = "valid"},
    {"same with stride 2", 1, 3, 8, 9, 2, 3, 3, .stride = {2, 2}, .padding_name = "same"},
    {"same, even kernel", 1, 1, 7, 6, 1, 4, 2, .padding_name = "same"},
    {"kernel over the image", 1, 1, 3, 2, 2, 5, 5, .padding = {2, 2, 2, 2}},
    {"border of ones, exact", 2, 5, 5, 6, 3, 3, 3, .padding = {1, 1, 1, 1}, .pad_value = 1,
     .scaling = "none", .output_datatype = "INT32"},
    {"border of minus ones, exact", 1, 35, 5, 5, 3, 3, 3, .padding = {2, 1, 1, 2},
     .pad_value = -1, .scaling = "none", .output_datatype = "INT32"},
    {"border of zeros, exact", 1, 35, 5, 5, 3, 3, 3, .padding = {2, 1, 1, 2}, .scaling = "none",
     .output_datatype = "INT32"},
    {"border of ones, scaled", 1, 2, 6, 6, 2, 3, 3, .padding = {1, 1, 1, 1}, .pad_value = 1},
    {"scaling alpha", 1, 3, 7, 7, 4, 3, 3, .scaling = "alpha", .bias = true},
    {"scale and bias", 2, 3, 7, 7, 4, 3, 3, .padding_name = "same", .scale = true, .bias = true},
    {"scaling none and bias", 1, 3, 7, 7, 4, 3, 3, .scaling = "none", .bias = true},
    {"bwn", 2, 3, 7, 7, 4, 3, 3, .padding_name = "same", .mode = "bwn"},
    {"bwn, grouped, border of ones", 1, 4, 6, 6, 4, 3, 3, .groups = 2, .mode = "bwn",
     .padding = {1, 1, 1, 1}, .pad_value = 1, .scaling = "alpha", .bias = true},
    {"bwn, no factor", 1, 2, 6, 6, 2, 3, 3, .mode = "bwn", .scaling = "none"},
    {"float", 2, 3, 7, 7, 4, 3, 3, .padding_name = "same", .mode = "float"},
    {"float, scaled", 1, 4, 7, 7, 4, 3, 3, .groups = 2, .mode = "float", .stride = {2, 2},
     .dilation = {2, 2}, .scale = true, .bias = true},
    {"bwn in fp16", 2, 16, 7, 7, 8, 3, 3, .padding_name = "same", .mode = "bwn",
     .precision = "fp16"},
    {"float in tf32", 2, 16, 7, 7, 8, 3, 3, .padding_name = "same", .mode = "float",
     .precision = "tf32"},
    {"precision without effect", 1, 3, 7, 7, 4, 3, 3, .precision = "fp16"},
    {"binary16 output", 1, 3, 7, 7, 4, 3, 3, .output_datatype = "FP16"},
    {"binary16 input and weights", 1, 3, 6, 7, 4, 3, 3, .datatype = "FP16",
     .weights_datatype = "FP16"},
    {"bfloat16 input and weights", 1, 3, 6, 7, 4, 3, 3, .datatype = "BF16",
     .weights_datatype = "BF16"},
    {"int8 input and weights", 1, 3, 6, 7, 4, 3, 3, .datatype = "INT8",
     .weights_datatype = "INT8"},
    {"uint8 input", 1, 3, 6, 7, 4, 3, 3, .datatype = "UINT8", .mode = "bwn"},
    {"uint8 input and weights", 1, 3, 6, 7, 4, 3, 3, .datatype = "UINT8",
     .weights_datatype = "UINT8", .mode = "float"},
    {"bool input", 1, 40, 6, 7, 4, 3, 3, .datatype = "BOOL", .padding_name = "same"},
    {"bool input and weights", 2, 6, 6, 7, 4, 3, 3, .datatype = "BOOL", .weights_datatype = "BOOL",
     .groups = 2, .padding_name = "same", .scaling = "none", .output_datatype = "INT32"},
    {"bool of bwn", 1, 6, 6, 7, 4, 3, 3, .datatype = "BOOL", .weights_datatype = "BOOL",
     .mode = "bwn"},
    {"bool of float", 1, 6, 6, 7, 4, 3, 3, .datatype = "BOOL", .weights_datatype = "BOOL",
     .mode = "float"},
    {"a batch of five", 5, 2, 4, 4, 2, 3, 3, .padding_name = "same"},
};
/* clang-format on */
enum { CASES = sizeof cases / sizeof *cases };

static void post_and_match(xt_conn *conn, const xt_problem *problem, xt_form form, xt_form answer,
                           const xt_options *options) {
    xt_message message;
    xt_response response;
    char error[512] = "";
    xt_encode(problem, form, options, &message);
    xt_result result = xt_post(conn, &message, &response);
    ck_assert_msg(result == XT_GOT, "%s, %s: got %s", problem->what.name, xt_form_type(form),
                  xt_result_name(result));
    bool ok = xt_response_matches(&response, answer, problem, options->id, error, sizeof error);
    ck_assert_msg(ok, "%s, %s to %s, seed %llu: %s", problem->what.name, xt_form_type(form),
                  xt_form_type(answer), (unsigned long long)xn_test_seed(), error);
    xt_message_free(&message);
    xt_response_free(&response);
}

START_TEST(every_form_gives_the_oracles_answer) {
    xt_problem problem;
    xt_conn conn;
    ck_assert(xt_connect(&conn, daemon_));
    xt_problem_make(&problem, &cases[_i], xn_test_seed() + (uint64_t)_i);
    for (int form = 0; form < XT_FORMS; form++) {
        char id[32];
        snprintf(id, sizeof id, "case-%d-%d", _i, form);
        xt_options options = {.id = id, .nested = _i % 2, .in_file = _i % 2};
        post_and_match(&conn, &problem, (xt_form)form, (xt_form)form, &options);
        for (int answer = 0; answer < XT_FORMS; answer++) {
            options.accept = xt_form_type((xt_form)answer);
            post_and_match(&conn, &problem, (xt_form)form, (xt_form)answer, &options);
        }
    }
    xt_disconnect(&conn);
    xt_problem_free(&problem);
}
END_TEST

/* ---- identity and timing ---- */

START_TEST(made_ids_differ) {
    xt_problem problem;
    xt_response response;
    char made[2][64];
    xt_problem_make(&problem, &cases[0], xn_test_seed());
    for (int i = 0; i < 2; i++) {
        xt_conv(daemon_, &problem, XT_JSON, &(xt_options){0}, &response);
        ck_assert_ptr_nonnull(xt_header(&response, "X-Request-Id", made[i], sizeof made[i]));
        ck_assert(xt_json_is(response.body, "id", made[i]));
        xt_response_free(&response);
    }
    ck_assert_str_ne(made[0], made[1]);
    xt_problem_free(&problem);
}
END_TEST

/* Milliseconds of one metric of the Server-Timing header, or NAN. */
static double server_timing(const char *header, const char *name) {
    size_t length = strlen(name);
    for (const char *at = header; at; at = strchr(at, ',')) {
        at += strspn(at, ", ");
        if (!strncmp(at, name, length) && !strncmp(at + length, ";dur=", 5))
            return strtod(at + length + 5, NULL);
    }
    return NAN;
}

START_TEST(timing_adds_up) {
    xt_problem problem;
    xt_response response;
    xt_answer answer;
    char error[512] = "", header[512];
    xt_problem_make(&problem, &cases[6], xn_test_seed());
    for (int form = 0; form < XT_FORMS; form++) {
        xt_conv(daemon_, &problem, (xt_form)form, &(xt_options){0}, &response);
        ck_assert_msg(xt_answer_read(&response, (xt_form)form, &answer, error, sizeof error), "%s",
                      error);
        ck_assert_ptr_nonnull(xt_header(&response, "Server-Timing", header, sizeof header));
        double sum = 0;
        for (int i = 0; i < XT_STAGES; i++) {
            double ms = server_timing(header, xt_stage_names[i]);
            ck_assert_msg(fabs(ms * 1000 - answer.timing_us[i]) <= 1.01,
                          "%s is %g us in the answer, %g ms in Server-Timing: %s",
                          xt_stage_names[i], answer.timing_us[i], ms, header);
            ck_assert_msg(answer.timing_us[i] >= 0 || i == XT_OTHER, "%s is %g us",
                          xt_stage_names[i], answer.timing_us[i]);
            sum += i == XT_TOTAL ? 0 : answer.timing_us[i];
        }
        ck_assert_msg(fabs(sum - answer.timing_us[XT_TOTAL]) <= XT_STAGES,
                      "the stages sum to %g us, the total is %g us: %s", sum,
                      answer.timing_us[XT_TOTAL], header);
        ck_assert_msg(answer.timing_us[XT_COMPUTE] > 0, "compute took no time: %s", header);
        xt_answer_free(&answer);
        xt_response_free(&response);
    }
    xt_problem_free(&problem);
}
END_TEST

START_TEST(a_lone_request_is_a_batch_of_one) {
    xt_problem problem;
    xt_response response;
    xt_answer answer;
    char error[512] = "";
    xt_problem_make(&problem, &cases[CASES - 1], xn_test_seed());
    xt_conv(daemon_, &problem, XT_OIP, &(xt_options){0}, &response);
    ck_assert_msg(xt_answer_read(&response, XT_OIP, &answer, error, sizeof error), "%s", error);
    ck_assert_double_eq(answer.batch_requests, 1);
    ck_assert_double_eq(answer.batch_images, 5);
    xt_answer_free(&answer);
    xt_response_free(&response);
    xt_problem_free(&problem);
}
END_TEST

/* ---- the backend parameter ---- */

START_TEST(only_served_backends_are_taken) {
    static const char *const names[] = {"cpu", "cuda", "ref"};
    xt_problem problem;
    xt_response response;
    char *ready = xt_get(daemon_, "/v2/health/ready");
    const char *devices = xt_json_at(ready, "devices");
    ck_assert_ptr_nonnull(devices);
    xt_problem_make(&problem, &cases[0], xn_test_seed());
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof id, "\"id\": \"%s", names[i]);
        bool served = strstr(devices, id) != NULL;
        xt_conv(daemon_, &problem, XT_JSON, &(xt_options){.backend = names[i]}, &response);
        if (served) {
            ck_assert_int_eq(response.status, 200);
            char *backend = xt_json_string(response.body, "backend");
            ck_assert_msg(backend && !strncmp(backend, names[i], strlen(names[i])),
                          "asked for %s, served by %s", names[i], backend ? backend : "nothing");
            free(backend);
        } else {
            char *primary = xt_json_string(ready, "backend");
            xt_check_error(&response, 422, "backend", primary, names[i]);
            free(primary);
        }
        xt_response_free(&response);
    }
    xt_conv(daemon_, &problem, XT_JSON, &(xt_options){.backend = "auto"}, &response);
    ck_assert_int_eq(response.status, 200);
    xt_response_free(&response);
    xt_conv(daemon_, &problem, XT_JSON, &(xt_options){.backend = "tpu"}, &response);
    xt_check_error(&response, 400, "backend", "tpu", "an unknown backend");
    xt_response_free(&response);
    xt_problem_free(&problem);
    free(ready);
}
END_TEST

/* In every form: on the CPU, and for mode xnor, fp32 whatever is asked for. */
START_TEST(precision_is_stated) {
    static const char *const asked[] = {NULL, "fp32", "tf32", "fp16"};
    xt_case what = {"stated", 1, 16, 6, 6, 8, 3, 3, .groups = 1};
    for (int i = 0; i < 4 * 2 * XT_FORMS; i++) {
        xt_form form = (xt_form)(i / 8);
        xt_problem problem;
        xt_response response;
        xt_answer answer;
        char error[512] = "";
        what.precision = asked[i % 4];
        what.mode = i % 8 < 4 ? "bwn" : "xnor";
        xt_problem_make(&problem, &what, xn_test_seed());
        xt_conv(daemon_, &problem, form, &(xt_options){0}, &response);
        ck_assert_msg(xt_answer_read(&response, form, &answer, error, sizeof error), "%s", error);
        bool may = i % 8 < 4 && i % 4 && !strncmp(answer.backend, "cuda", 4);
        ck_assert_msg(!strcmp(answer.precision, "fp32") ||
                          (may && !strcmp(answer.precision, what.precision)),
                      "mode %s on %s, asked for %s: %s", what.mode, answer.backend,
                      what.precision ? what.precision : "nothing", answer.precision);
        xt_answer_free(&answer);
        xt_response_free(&response);
        xt_problem_free(&problem);
    }
}
END_TEST

/* ---- the form raw, and packed bits ---- */

START_TEST(raw_asks_and_answers) {
    static const xt_case what = {
        "raw",         2,           3, 9, 11, 4, 3, 3, .padding_name = "same", .datatype = "FP16",
        .scale = true, .bias = true};
    xt_problem problem;
    xt_conn conn;
    xt_problem_make(&problem, &what, xn_test_seed());
    xt_put_weights(daemon_, "raw", &problem, XT_OIP);
    ck_assert(xt_connect(&conn, daemon_));
    const xt_options options = {.weights_name = "raw", .id = "raw-1"};
    post_and_match(&conn, &problem, XT_RAW, XT_RAW, &options);
    xt_options other = options;
    for (int answer = 0; answer < XT_FORMS; answer++) {
        other.accept = xt_form_type((xt_form)answer);
        post_and_match(&conn, &problem, XT_RAW, answer == XT_OIP ? XT_RAW : (xt_form)answer,
                       &other);
    }
    other.accept = "*/*";
    post_and_match(&conn, &problem, XT_RAW, XT_RAW, &other);
    xt_disconnect(&conn);
    xt_problem_free(&problem);
}
END_TEST

/* Bodies whose length only their end tells. */
START_TEST(chunked_bodies) {
    static const xt_case table[] = {
        {"chunked", 2, 3, 9, 7, 5, 3, 3, .padding_name = "same"},
        {"chunked, larger", 1, 1, 256, 256, 2, 3, 3, .padding_name = "same"}};
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    xt_problem problem;
    xt_message message;
    xt_response response;
    xt_conn conn;
    char error[512] = "";
    xt_problem_make(&problem, &table[_i], xn_test_seed());
    xt_put_weights(daemon_, "chunked", &problem, XT_OIP);
    for (int form = XT_JSON; form <= XT_RAW; form++) {
        const xt_options options = {.weights_name = form == XT_RAW ? "chunked" : NULL};
        xt_encode(&problem, (xt_form)form, &options, &message);
        for (int wrong = 0; wrong < 2; wrong++) {
            message.body.length -= (size_t)wrong; /* the last byte is missing */
            ck_assert(xt_connect(&conn, daemon_));
            ck_assert_int_eq(xt_post_chunked(&conn, &message, &rng, &response), XT_GOT);
            if (wrong)
                xt_check_error(&response, 400, NULL, NULL, xt_form_type((xt_form)form));
            else
                ck_assert_msg(xt_response_matches(&response, (xt_form)form, &problem, NULL, error,
                                                  sizeof error),
                              "%s: %s", xt_form_type((xt_form)form), error);
            xt_response_free(&response);
            xt_disconnect(&conn);
        }
        xt_message_free(&message);
    }
    xt_problem_free(&problem);
}
END_TEST

/* Two layers, the second on the signs of the first: through FP32, and through BITS. */
START_TEST(bits_chain_layers) {
    /* clang-format off */
    static const xt_case one = {"first", 2, 5, 8, 7, 43, 3, 3, .padding_name = "same",
                                .scaling = "alpha", .bias = true, .output_datatype = "BITS"};
    static const xt_case two = {"second", 2, 43, 8, 7, 6, 3, 3, .padding_name = "same",
                                .pad_value = 1, .scaling = "none", .datatype = "BITS",
                                .output_datatype = "INT32"};
    /* clang-format on */
    static const xt_form answers[] = {XT_OIP, XT_SAFETENSORS};
    xt_problem first, second;
    xt_conn conn;
    char error[512] = "";
    ck_assert(xt_connect(&conn, daemon_));
    for (size_t f = 0; f < sizeof answers / sizeof *answers; f++) {
        xt_message message;
        xt_response response;
        xt_answer answer;
        const xt_form form = answers[f];
        xt_problem_make(&first, &one, xn_test_seed() + f);
        xt_problem_make(&second, &two, xn_test_seed() + 10 + f);
        xt_encode(&first, form, &(xt_options){0}, &message);
        ck_assert_int_eq(xt_post(&conn, &message, &response), XT_GOT);
        ck_assert_msg(xt_response_matches(&response, form, &first, NULL, error, sizeof error), "%s",
                      error);
        ck_assert(xt_answer_read(&response, form, &answer, error, sizeof error));
        /* what came back is what goes on, byte for byte */
        memcpy(second.input.values, answer.values, (size_t)answer.count * sizeof(double));
        memcpy(second.input.raw, response.body + response.length - second.input.bytes,
               second.input.bytes);
        xt_problem_solve(&second);
        post_and_match(&conn, &second, form, form, &(xt_options){0});
        xt_answer_free(&answer);
        xt_response_free(&response);
        xt_message_free(&message);
        xt_problem_free(&first);
        xt_problem_free(&second);
    }
    xt_disconnect(&conn);
}
END_TEST

XN_SUITE(http_conv) {
    Suite *s = suite_create("http_conv");
    TCase *t = tcase_create("conv");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_loop_test(t, every_form_gives_the_oracles_answer, 0, CASES);
    tcase_add_test(t, made_ids_differ);
    tcase_add_test(t, timing_adds_up);
    tcase_add_test(t, a_lone_request_is_a_batch_of_one);
    tcase_add_test(t, only_served_backends_are_taken);
    tcase_add_test(t, precision_is_stated);
    tcase_add_test(t, raw_asks_and_answers);
    tcase_add_loop_test(t, chunked_bodies, 0, 2);
    tcase_add_test(t, bits_chain_layers);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    return s;
}
