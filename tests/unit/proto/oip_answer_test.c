/* Answers of inference requests: literal ones, the longest ones, classification against a sort of
 * everything. Random ones are read back by tests/fuzz/oip.c, whose corpus is among the tests. */
#include "proto_bodies.h"
#include "xn_mem.h"
#include "xn_oip.h"
#include "xn_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* In a block of exactly the bound, terminated behind it for the tests. */
typedef struct written {
    char *text;
    size_t length, header, bound;
} written;

static written write_answer(const xn_oip_answer *answer) {
    written out = {0};
    ck_assert(xn_oip_answer_bound(answer, &out.bound));
    char *exact = malloc(out.bound);
    ck_assert_ptr_nonnull(exact);
    out.header = 12345;
    out.length = xn_oip_answer_write(answer, exact, &out.header);
    ck_assert_uint_gt(out.length, 0);
    ck_assert_uint_le(out.length, out.bound);
    out.text = malloc(out.length + 1);
    ck_assert_ptr_nonnull(out.text);
    memcpy(out.text, exact, out.length);
    out.text[out.length] = 0;
    free(exact);
    return out;
}

static const xn_oip_answer plain = {.id = "",
                                    .model_name = "digits",
                                    .model_version = "1",
                                    .backend = "cpu",
                                    .precision = XN_PRECISION_FP32,
                                    .batch_requests = 1,
                                    .batch_images = 2,
                                    .timing = {12345, 2500, 3000, 0, 7250, 0, 1125, 3780, 30000}};
#define PARAMETERS                                                                                 \
    "\"parameters\":{\"backend\":\"cpu\",\"precision\":\"fp32\",\"batch_requests\":1,"             \
    "\"batch_images\":2,\"receive_ns\":12345,\"decode_ns\":2500,\"queue_ns\":3000,"                \
    "\"upload_ns\":0,\"compute_ns\":7250,\"download_ns\":0,\"encode_ns\":1125,\"other_ns\":3780,"  \
    "\"total_ns\":30000}"
#define BEGIN "{\"model_name\":\"digits\",\"model_version\":\"1\"," PARAMETERS ",\"outputs\":["

static xn_oip_answer answer_of(const xn_oip_result *results, int count) {
    xn_oip_answer answer = plain;
    answer.results = results;
    answer.result_count = count;
    return answer;
}

static const float six[] = {0.5f, -1, 0.25f, 3, 3, -0.0f};

static xn_oip_result result_of(const char *name) {
    return (xn_oip_result){.name = name,
                           .datatype = XN_FP32,
                           .shape = {2, {2, 3}},
                           .values = six,
                           .bytes = sizeof six};
}

static void check_text(const xn_oip_answer *answer, const char *expected) {
    written out = write_answer(answer);
    ck_assert_str_eq(out.text, expected);
    ck_assert_uint_eq(out.header, 0);
    free(out.text);
}

/* ---- literal answers ---- */

START_TEST(json_answers) {
    static const char *const labels[] = {"cat", "a \"dog\"", ""};
    static const xn_oip_shared shared = {true, "out\"put", 64, 100};
    xn_oip_result results[3] = {result_of("logits"), result_of("classes"), result_of("shared")};
    xn_oip_answer answer = answer_of(results, 1);
    check_text(&answer, BEGIN "{\"name\":\"logits\",\"datatype\":\"FP32\",\"shape\":[2,3],"
                              "\"data\":[0.5,-1,0.25,3,3,-0.0]}]}\n");
    answer.id = "r\"1";
    answer.result_count = 3;
    results[1].classification = 2;
    results[1].labels = labels;
    results[1].label_count = 3;
    results[1].longest_label = 7;
    results[2].shared = &shared;
    results[2].binary = true; /* means nothing: the values are elsewhere */
    check_text(&answer,
               "{\"id\":\"r\\\"1\",\"model_name\":\"digits\",\"model_version\":\"1\"," PARAMETERS
               ",\"outputs\":[{\"name\":\"logits\",\"datatype\":\"FP32\",\"shape\":[2,3],"
               "\"data\":[0.5,-1,0.25,3,3,-0.0]},{\"name\":\"classes\",\"datatype\":\"BYTES\","
               "\"shape\":[2,2],\"data\":[\"0.500000:0:cat\",\"0.250000:2\",\"3.000000:0:cat\","
               "\"3.000000:1:a \\\"dog\\\"\"]},{\"name\":\"shared\",\"datatype\":\"FP32\","
               "\"shape\":[2,3]}]}\n");
}
END_TEST

START_TEST(binary_answers) {
    static const char *const labels[] = {"cat", "dog", NULL};
    static const char classes[] = "\x0e\0\0\0"
                                  "0.500000:0:cat"
                                  "\x0a\0\0\0"
                                  "0.250000:2"
                                  "\x0e\0\0\0"
                                  "3.000000:0:cat"
                                  "\x0e\0\0\0"
                                  "3.000000:1:dog";
    static const char header[] =
        BEGIN "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[2,3],\"parameters\":{"
              "\"binary_data_size\":24}},{\"name\":\"b\",\"datatype\":\"BYTES\",\"shape\":[2,2],"
              "\"parameters\":{\"binary_data_size\":                  68}},{\"name\":\"c\","
              "\"datatype\":\"FP32\",\"shape\":[2,3],\"data\":[0.5,-1,0.25,3,3,-0.0]}]}";
    xn_oip_result results[3] = {result_of("a"), result_of("b"), result_of("c")};
    xn_oip_answer answer = answer_of(results, 3);
    results[0].binary = results[1].binary = true;
    results[1].classification = 2;
    results[1].labels = labels;
    results[1].label_count = 2;
    results[1].longest_label = 3;
    written out = write_answer(&answer);
    const size_t length = sizeof header - 1, bytes = sizeof classes - 1;
    ck_assert_uint_eq(out.header, (length + 7) / 8 * 8);
    ck_assert_msg(!memcmp(out.text, header, length), "%.*s", (int)out.header, out.text);
    ck_assert_uint_eq(strspn(out.text + length, " "), out.header - length);
    ck_assert_uint_eq(out.length, out.header + sizeof six + bytes);
    ck_assert(!memcmp(out.text + out.header, six, sizeof six));
    ck_assert(!memcmp(out.text + out.header + sizeof six, classes, bytes));
    free(out.text);
}
END_TEST

START_TEST(bounds_that_are_none) {
    size_t bound;
    xn_oip_result result = result_of("y");
    xn_oip_answer answer = answer_of(&result, 1);
    result.datatype = XN_BITS; /* no numbers in JSON, and no order */
    ck_assert(!xn_oip_answer_bound(&answer, &bound));
    result.binary = true;
    ck_assert(xn_oip_answer_bound(&answer, &bound));
    result.classification = 1;
    ck_assert(!xn_oip_answer_bound(&answer, &bound));
    result = result_of("y");
    result.bytes = SIZE_MAX / 4 * 4;
    ck_assert(!xn_oip_answer_bound(&answer, &bound));
    result.binary = true;
    ck_assert(!xn_oip_answer_bound(&answer, &bound));
    answer.result_count = XN_OIP_MAX_OUTPUTS + 1;
    ck_assert(!xn_oip_answer_bound(&answer, &bound));
}
END_TEST

/* ---- PROTOCOL.md ---- */

static void check_documented_request(const proto_bytes *bytes, size_t header) {
    static const float input[] = {1, -2, -3, 4};
    xn_infer_request request;
    const xn_proto_limits limits = {1000};
    const xn_proto_body body = {.bytes = bytes->bytes,
                                .length = bytes->length,
                                .has_header_length = true,
                                .header_length = header};
    float values[4];
    xn_error error = {0};
    ck_assert_msg(!xn_oip_parse_infer(&body, &limits, &proto_memory, &request, &error), "%s",
                  error.message);
    ck_assert_str_eq(request.inputs[0].name, "input");
    ck_assert_uint_eq(request.inputs[0].tensor.bytes, sizeof values);
    ck_assert(!xn_proto_tensor_read(&request.inputs[0].tensor, "input", values, &error));
    ck_assert(!memcmp(values, input, sizeof input));
}

START_TEST(documented_examples) {
    static const float five = 5;
    char *text = proto_document_block("json infer-request");
    proto_bytes bytes = proto_bytes_of(text, strlen(text));
    check_documented_request(&bytes, bytes.length);
    proto_bytes_free(&bytes);
    free(text);
    bytes = proto_document_bytes("bytes infer-binary-request");
    check_documented_request(&bytes, 143);
    proto_bytes_free(&bytes);

    xn_oip_result result = {.name = "output",
                            .datatype = XN_FP32,
                            .shape = {4, {1, 1, 1, 1}},
                            .values = &five,
                            .bytes = sizeof five};
    xn_oip_answer answer = plain;
    answer.id = "example";
    answer.model_name = "edge";
    answer.batch_images = 1;
    answer.result_count = 1;
    answer.results = &result;
    text = proto_document_block("json infer-answer");
    written out = write_answer(&answer);
    ck_assert_uint_eq(out.length, strlen(text) + 1);
    ck_assert(!memcmp(out.text, text, out.length - 1));
    free(out.text);
    free(text);

    answer.id = "";
    result.binary = true;
    bytes = proto_document_bytes("bytes infer-binary-answer");
    out = write_answer(&answer);
    ck_assert_uint_eq(out.header, 384);
    ck_assert_uint_eq(out.length, bytes.length);
    ck_assert(!memcmp(out.text, bytes.bytes, bytes.length));
    free(out.text);
    proto_bytes_free(&bytes);
}
END_TEST

/* ---- classification ---- */

static const float *sorted_values;

static int by_value(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    const float u = sorted_values[x], v = sorted_values[y];
    if (isnan(u) != isnan(v))
        return isnan(u) ? 1 : -1;
    if (isnan(u) || u == v)
        return x - y;
    return u > v ? -1 : 1;
}

/* "%f:index" of the n best of a row, sorted by the library, with commas between them. */
static void expect_classes(const float *row, int classes, int n, char *text) {
    int order[64];
    for (int i = 0; i < classes; i++)
        order[i] = i;
    sorted_values = row;
    qsort(order, (size_t)classes, sizeof *order, by_value);
    for (int i = 0; i < n; i++) {
        float value = row[order[i]];
        text += isnan(value) ? sprintf(text, "\"nan:%d\",", order[i])
                             : sprintf(text, "\"%f:%d\",", (double)value, order[i]);
    }
    text[-1] = 0;
}

/* Few values, so that many are equal; infinities and NaN among them. */
START_TEST(best_classes) {
    static const float some[] = {0,         -0.0f, 1,       -1,       2.5f, INFINITY,
                                 -INFINITY, 1e-9f, 3.4e38f, -3.4e38f, NAN,  NAN};
    xn_rng rng = {xn_test_seed()};
    for (int round = 0; round < 2000; round++) {
        const int rows = 1 + (int)xn_rng_below(&rng, 3), classes = 1 + (int)xn_rng_below(&rng, 40);
        const int n = 1 + (int)xn_rng_below(&rng, 45), best = n < classes ? n : classes;
        float values[3 * 40];
        for (int i = 0; i < rows * classes; i++)
            values[i] = some[xn_rng_below(&rng, sizeof some / sizeof *some)];
        xn_oip_result result = {.name = "y",
                                .datatype = XN_FP32,
                                .shape = {3, {rows, 1, classes}},
                                .values = values,
                                .bytes = (size_t)(rows * classes) * sizeof *values,
                                .classification = n};
        xn_oip_answer answer = answer_of(&result, 1);
        written out = write_answer(&answer);
        char shape[40], row[4000];
        snprintf(shape, sizeof shape, "\"BYTES\",\"shape\":[%d,%d],\"data\":[", rows, best);
        const char *at = strstr(out.text, shape);
        ck_assert_msg(at, "%s is not in %s", shape, out.text);
        at += strlen(shape);
        for (int r = 0; r < rows; r++) {
            expect_classes(values + r * classes, classes, best, row);
            ck_assert_msg(!strncmp(at, row, strlen(row)), "round %d: %s instead of %s", round, at,
                          row);
            at += strlen(row) + 1;
        }
        free(out.text);
    }
}
END_TEST

START_TEST(classes_of_other_types) {
    static const uint16_t fp16[] = {0x3c00, 0x4000, 0x7e00}, bf16[] = {0x3f80, 0x4000, 0xffc0};
    static const int32_t int32[] = {-5, INT32_MAX, INT32_MIN};
    static const struct {
        xn_datatype datatype;
        const void *values;
        size_t bytes;
        const char *data;
    } cases[] = {
        {XN_FP16, fp16, 6, "[\"2.000000:1\",\"1.000000:0\",\"nan:2\"]"},
        {XN_BF16, bf16, 6, "[\"2.000000:1\",\"1.000000:0\",\"nan:2\"]"},
        {XN_INT32, int32, 12, "[\"2147483647.000000:1\",\"-5.000000:0\",\"-2147483648.000000:2\"]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_oip_result result = {.name = "y",
                                .datatype = cases[i].datatype,
                                .shape = {2, {1, 3}},
                                .values = cases[i].values,
                                .bytes = cases[i].bytes,
                                .classification = INT64_MAX};
        xn_oip_answer answer = answer_of(&result, 1);
        written out = write_answer(&answer);
        ck_assert_msg(strstr(out.text, cases[i].data), "%s", out.text);
        free(out.text);
    }
}
END_TEST

/* Many classes, all of them asked for: sorted in the time of a sort. */
START_TEST(many_classes) {
    enum { CLASSES = 300000 };
    float *values = malloc(CLASSES * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int i = 0; i < CLASSES; i++)
        values[i] = (float)(i % 1000);
    xn_oip_result result = {.name = "y",
                            .datatype = XN_FP32,
                            .shape = {2, {1, CLASSES}},
                            .values = values,
                            .bytes = CLASSES * sizeof *values,
                            .binary = true,
                            .classification = CLASSES};
    xn_oip_answer answer = answer_of(&result, 1);
    written out = write_answer(&answer);
    ck_assert(!memcmp(out.text + out.header + 4, "999.000000:999", 14));
    free(out.text);
    free(values);
}
END_TEST

/* ---- sizes ---- */

/* The longest of everything fits the bound. */
START_TEST(longest_answers) {
    enum { LONG = 300 };
    char word[LONG + 1];
    memset(word, 1, LONG); /* \u0001, the longest that a byte can become */
    word[LONG] = 0;
    const char *labels[] = {word, word};
    const float lowest[] = {-3.40282347e38f, -1.17549435e-38f, -3.40282347e38f, -3.3e38f};
    const xn_oip_shared shared = {.present = true, .region = word, .offset = INT64_MAX};
    xn_oip_result results[XN_OIP_MAX_OUTPUTS];
    for (int i = 0; i < XN_OIP_MAX_OUTPUTS; i++) {
        results[i] = (xn_oip_result){.name = word,
                                     .datatype = XN_FP32,
                                     .shape = {8, {2, 2, 1, 1, 1, 1, 1, 1}},
                                     .values = lowest,
                                     .bytes = sizeof lowest,
                                     .binary = i % 8 >= 6,
                                     .labels = labels,
                                     .label_count = 2,
                                     .longest_label = LONG,
                                     .classification = i % 2 ? 2 : 0,
                                     .shared = i % 8 == 0 ? &shared : NULL};
    }
    xn_oip_answer answer = {.id = word,
                            .model_name = word,
                            .model_version = word,
                            .backend = word,
                            .batch_requests = INT64_MIN,
                            .batch_images = INT64_MIN,
                            .result_count = XN_OIP_MAX_OUTPUTS,
                            .results = results};
    int64_t *stages = (int64_t *)&answer.timing;
    for (size_t i = 0; i < sizeof answer.timing / sizeof *stages; i++)
        stages[i] = INT64_MIN;
    for (int count = 0; count <= XN_OIP_MAX_OUTPUTS; count++) {
        answer.result_count = count;
        written out = write_answer(&answer); /* asserts that nothing was left out */
        free(out.text);
    }
}
END_TEST

/* ---- errors ---- */

START_TEST(errors) {
    static const struct {
        const char *message, *text;
    } cases[] = {
        {"plain", "{\"error\":\"plain\"}\n"},
        {"a \"b\" \\ \n \xc3\xa9 \xff", "{\"error\":\"a \\\"b\\\" \\\\ \\u000a \xc3\xa9 "
                                        "\xef\xbf\xbd\"}\n"},
        {"", "{\"error\":\"\"}\n"},
        {NULL, "{\"error\":\"\"}\n"},
    };
    char text[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t length = xn_oip_write_error(cases[i].message, text, sizeof text);
        ck_assert_str_eq(text, cases[i].text);
        ck_assert_uint_eq(length, strlen(text));
    }
    ck_assert_uint_eq(xn_oip_write_error("m", NULL, 0), 0);
}
END_TEST

XN_SUITE(oip_answer) {
    Suite *s = suite_create("oip_answer");
    TCase *t = xn_test_case(s, "answers", 60);
    tcase_add_test(t, json_answers);
    tcase_add_test(t, binary_answers);
    tcase_add_test(t, bounds_that_are_none);
    tcase_add_test(t, documented_examples);
    tcase_add_test(t, best_classes);
    tcase_add_test(t, classes_of_other_types);
    tcase_add_test(t, many_classes);
    tcase_add_test(t, longest_answers);
    tcase_add_test(t, errors);
    return s;
}
