/* Inference requests: those that clients send, byte for byte as recorded, and wrong ones. */
#include "proto_bodies.h"
#include "xn_mem.h"
#include "xn_oip.h"
#include "xn_test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const xn_proto_limits limits = {PROTO_TEST_MAX_ELEMENTS};
static xn_infer_request request;

/* header_length -1: there is no such header. */
static xn_status parse(const void *bytes, size_t length, long header_length, proto_bytes *copy,
                       xn_error *error) {
    *copy = proto_bytes_of(bytes, length);
    const xn_proto_body body = {.form = XN_FORM_JSON,
                                .bytes = copy->bytes,
                                .length = copy->length,
                                .has_header_length = header_length >= 0,
                                .header_length = header_length >= 0 ? (size_t)header_length : 0};
    memset(&request, 0xa5, sizeof request); /* what is not written is no zero by chance */
    return xn_oip_parse_infer(&body, &limits, &proto_memory, &request, error);
}

static proto_bytes parse_good(const void *bytes, size_t length, long header_length) {
    xn_error error = {0};
    proto_bytes copy;
    xn_status status = parse(bytes, length, header_length, &copy, &error);
    ck_assert_msg(!status, "%s: %.*s", error.message, (int)length, (const char *)bytes);
    return copy;
}

static void check_values(const xn_oip_input *input, const void *expected, size_t bytes) {
    unsigned char values[64];
    xn_error error = {0};
    ck_assert_uint_eq(input->tensor.bytes, bytes);
    ck_assert(bytes <= sizeof values);
    ck_assert_msg(!xn_proto_tensor_read(&input->tensor, input->name, values, &error), "%s",
                  error.message);
    ck_assert(!memcmp(values, expected, bytes));
}

/* ---- recorded requests ---- */

#define VALUES "\x00\x00\x80?\x00\x00\x00\xc0\x00\x00\x00?\x00\x00\x80@"
static const float values[] = {1, -2, 0.5f, 4};

#define BINARY_INPUT                                                                               \
    "{\"name\":\"input\",\"shape\":[2,2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_"     \
    "size\":16}}"
#define JSON_INPUT                                                                                 \
    "{\"name\":\"input\",\"shape\":[2,2],\"datatype\":\"FP32\",\"data\":[1.0,-2.0,0.5,4.0]}"

/* A string literal with bytes of any value. */
#define BODY(text) (text), sizeof(text) - 1

static void check_input(void) {
    const xn_oip_input *input = &request.inputs[0];
    ck_assert_int_eq(request.input_count, 1);
    ck_assert_str_eq(input->name, "input");
    ck_assert(input->tensor.present && !input->raw && !input->shared.present);
    ck_assert_int_eq(input->tensor.datatype, XN_FP32);
    ck_assert(input->tensor.shape.rank == 2 && input->tensor.shape.dims[0] == 2);
    ck_assert_int_eq(input->tensor.elements, 4);
    check_values(input, values, sizeof values);
}

static void check_plain(void) { /* no parameter was given but those of outputs */
    ck_assert_str_eq(request.id, "");
    ck_assert(request.timeout_us == -1 && request.timeout_ms == -1 && !request.conv_given);
    ck_assert_str_eq(request.backend, "auto");
    xn_conv_params params;
    xn_conv_params_default(&params);
    ck_assert(proto_params_equal(&request.conv, &params));
}

START_TEST(tritonclient_binary) {
    proto_bytes body = parse_good(
        BODY("{\"inputs\":[" BINARY_INPUT "],\"parameters\":{\"binary_data_output\":true}}" VALUES),
        139);
    check_input();
    check_plain();
    ck_assert_ptr_eq(request.inputs[0].tensor.data, body.bytes + 139);
    ck_assert(request.binary && request.output_count == 0);
    proto_bytes_free(&body);

    body = parse_good(BODY("{\"inputs\":[" BINARY_INPUT "],\"outputs\":[{\"name\":\"logits\","
                           "\"parameters\":{\"binary_data\":true}},{\"name\":\"features\","
                           "\"parameters\":{\"binary_data\":false}}]}" VALUES),
                      217);
    check_input();
    check_plain();
    ck_assert(!request.binary && request.output_count == 2);
    ck_assert_str_eq(request.outputs[0].name, "logits");
    ck_assert_str_eq(request.outputs[1].name, "features");
    ck_assert(request.outputs[0].binary && !request.outputs[1].binary);
    ck_assert(request.outputs[0].classification == 0 && !request.outputs[0].shared.present);
    proto_bytes_free(&body);
}
END_TEST

START_TEST(tritonclient_everything) {
    proto_bytes body = parse_good(
        BODY("{\"id\":\"r1\",\"inputs\":[" BINARY_INPUT "],\"outputs\":[{\"name\":\"logits\","
             "\"parameters\":{\"classification\":3,\"binary_data\":true}}],\"parameters\":{"
             "\"sequence_id\":7,\"sequence_start\":true,\"sequence_end\":false,\"priority\":1,"
             "\"timeout\":5000,\"stride\":\"1,1\",\"mine\":true}}" VALUES),
        320);
    check_input();
    ck_assert_str_eq(request.id, "r1");
    ck_assert_int_eq(request.timeout_us, 5000);
    ck_assert_int_eq(request.timeout_ms, -1);
    ck_assert(request.conv_given && request.conv.stride[0] == 1 && !request.binary);
    ck_assert_int_eq(request.outputs[0].classification, 3);
    ck_assert(request.outputs[0].binary);
    proto_bytes_free(&body);
}
END_TEST

START_TEST(tritonclient_json) {
    static const char plain[] =
        "{\"inputs\":[" JSON_INPUT "],\"outputs\":[{\"name\":\"logits\",\"parameters\":{"
        "\"binary_data\":false}}]}";
    /* with the header as long as the body, as perf_analyzer has it, and without it */
    for (int with = 0; with < 2; with++) {
        proto_bytes body = parse_good(BODY(plain), with ? (long)sizeof plain - 1 : -1);
        check_input();
        check_plain();
        ck_assert_ptr_null(request.inputs[0].tensor.data);
        ck_assert(request.output_count == 1 && !request.outputs[0].binary);
        proto_bytes_free(&body);
    }
    proto_bytes body =
        parse_good(BODY("{\"inputs\":[{\"name\":\"input\",\"shape\":[2,2],\"datatype\":\"FP16\","
                        "\"data\":[1.0,-2.0,0.5,4.0]}],\"parameters\":{\"binary_data_output\":"
                        "true}}"),
                   -1);
    check_values(&request.inputs[0], "\0\x3c\0\xc0\0\x38\0\x44", 8);
    ck_assert(request.binary);
    proto_bytes_free(&body);
}
END_TEST

START_TEST(tritonclient_shared_memory) {
    proto_bytes body = parse_good(
        BODY("{\"inputs\":[{\"name\":\"input\",\"shape\":[2,2],\"datatype\":\"FP32\","
             "\"parameters\":{\"shared_memory_region\":\"in_region\",\"shared_memory_byte_size\":"
             "16,\"shared_memory_offset\":8}}],\"outputs\":[{\"name\":\"logits\",\"parameters\":{"
             "\"binary_data\":false,\"shared_memory_region\":\"out_region\","
             "\"shared_memory_byte_size\":40}}]}"),
        -1);
    const xn_oip_input *input = &request.inputs[0];
    ck_assert(input->shared.present && !input->tensor.data && !input->tensor.text);
    ck_assert_str_eq(input->shared.region, "in_region");
    ck_assert(input->shared.bytes == 16 && input->shared.offset == 8);
    ck_assert_uint_eq(input->tensor.bytes, 16);
    const xn_oip_output *output = &request.outputs[0];
    ck_assert(output->shared.present && output->shared.bytes == 40 && output->shared.offset == 0);
    ck_assert_str_eq(output->shared.region, "out_region");
    proto_bytes_free(&body);
}
END_TEST

START_TEST(perf_analyzer_requests) {
    static const char json[] = "{\"id\":\"\",\"inputs\":[" JSON_INPUT "]}";
    proto_bytes body = parse_good(BODY(json), sizeof json - 1);
    check_input();
    check_plain();
    ck_assert(!request.binary && request.output_count == 0);
    proto_bytes_free(&body);

    static const char header[] = "{\"id\":\"\",\"inputs\":[{\"name\":\"input\",\"shape\":[1,2,2],"
                                 "\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":16}}],"
                                 "\"outputs\":[{\"name\":\"logits\",\"parameters\":{\"binary_data\""
                                 ":true}}]}";
    proto_bytes joined = proto_bytes_join(header, sizeof header - 1, VALUES, 16);
    body = parse_good(joined.bytes, joined.length, sizeof header - 1);
    check_plain();
    check_values(&request.inputs[0], values, sizeof values);
    proto_bytes_free(&body);
    proto_bytes_free(&joined);
}
END_TEST

/* The client of KServe names the model in the body; one of pydantic writes null for what is not
 * given. */
START_TEST(kserve_requests) {
    proto_bytes body = parse_good(
        BODY("{\"id\": \"3d0c8e2e-33a1-4e75-9d8a-0f4fbb2c4c11\", \"model_name\": \"digits\", "
             "\"inputs\": [{\"name\": \"input\", \"shape\": [2, 2], \"datatype\": \"FP32\", "
             "\"data\": [[1.0, -2.0], [0.5, 4.0]]}]}"),
        -1);
    check_input();
    ck_assert_str_eq(request.id, "3d0c8e2e-33a1-4e75-9d8a-0f4fbb2c4c11");
    proto_bytes_free(&body);

    body = parse_good(
        BODY("{\"id\": null, \"model_version\": \"1\", \"parameters\": null, \"outputs\": null, "
             "\"inputs\": [{\"name\": \"input\", \"shape\": [2, 2], \"datatype\": \"FP32\", "
             "\"parameters\": {\"content_type\": \"np\", \"binary_data_size\": null}, "
             "\"data\": [1, -2, 0.5, 4]}]}"),
        -1);
    check_input();
    check_plain();
    ck_assert(!request.binary && request.output_count == 0);
    proto_bytes_free(&body);
}
END_TEST

START_TEST(raw_request) {
    proto_bytes body = parse_good(BODY(VALUES), 0);
    const xn_oip_input *input = &request.inputs[0];
    check_plain();
    ck_assert(request.input_count == 1 && request.output_count == 0 && request.binary);
    ck_assert(input->raw && !input->shared.present && input->tensor.present);
    ck_assert_ptr_eq(input->tensor.data, body.bytes);
    ck_assert(input->tensor.bytes == 16 && input->tensor.shape.rank == 0);
    ck_assert_str_eq(input->name, "");
    proto_bytes_free(&body);
}
END_TEST

/* ---- several inputs ---- */

START_TEST(inputs_in_order) {
    static const char header[] =
        "{\"inputs\":[{\"datatype\":\"INT8\",\"parameters\":{\"binary_data_size\":3},\"shape\":[3],"
        "\"name\":\"a\"},{\"name\":\"b\",\"shape\":[1,2],\"datatype\":\"FP16\",\"d\\u0061ta\":"
        "[[1,2]]},{\"name\":\"c\",\"shape\":[1],\"datatype\":\"BF16\",\"parameters\":{"
        "\"binary_data_size\":2}},{\"name\":\"d\",\"shape\":[2,1,1,1,1,1,1,2],\"datatype\":"
        "\"BOOL\",\"data\":[[[[[[[[true,false]]]]]]],[[[[[[[0,1]]]]]]]]},"
        "{\"name\":\"e\",\"shape\":[1,8,1,1],\"datatype\":\"BITS\",\"parameters\":{"
        "\"binary_data_size\":1}}]}";
    proto_bytes joined = proto_bytes_join(header, sizeof header - 1, "\x01\x02\x03\x80\x3f\x55", 6);
    proto_bytes body = parse_good(joined.bytes, joined.length, sizeof header - 1);
    ck_assert_int_eq(request.input_count, 5);
    check_values(&request.inputs[0], "\x01\x02\x03", 3);
    check_values(&request.inputs[1], "\0\x3c\0\x40", 4);
    check_values(&request.inputs[2], "\x80\x3f", 2);
    check_values(&request.inputs[3], "\x01\0\0\x01", 4);
    check_values(&request.inputs[4], "\x55", 1);
    proto_bytes_free(&body);
    proto_bytes_free(&joined);
}
END_TEST

/* ---- parameters ---- */

#define WITH(parameters) "{\"inputs\":[" JSON_INPUT "],\"parameters\":{" parameters "}}"

START_TEST(parameters_of_conv) {
    static const char *const bodies[] = {
        WITH("\"stride\":[1,2],\"padding\":\"same\",\"dilation\":2,\"groups\":3,\"pad_value\":-1,"
             "\"scaling\":\"alpha\",\"mode\":\"bwn\",\"precision\":\"tf32\",\"output_datatype\":"
             "\"FP16\",\"backend\":\"cpu\",\"timeout_ms\":20"),
        WITH("\"stride\":\"1,2\",\"padding\":\"same\",\"dilation\":\"2\",\"groups\":\"3\","
             "\"pad_value\":\"-1\",\"scaling\":\"alpha\",\"mode\":\"bwn\",\"precision\":\"tf32\","
             "\"output_datatype\":\"FP16\",\"backend\":\"cpu\",\"timeout_ms\":\"20\""),
    };
    for (int i = 0; i < 2; i++) {
        proto_bytes body = parse_good(bodies[i], strlen(bodies[i]), -1);
        const xn_conv_params *conv = &request.conv;
        ck_assert(conv->stride[0] == 1 && conv->stride[1] == 2 && conv->dilation[0] == 2);
        ck_assert(conv->padding_kind == XN_PADDING_SAME && conv->groups == 3);
        ck_assert(conv->pad_value == -1 && conv->scaling == XN_SCALING_ALPHA);
        ck_assert(conv->mode == XN_MODE_BWN && conv->precision == XN_PRECISION_TF32);
        ck_assert(conv->output_datatype == XN_FP16 && request.conv_given);
        ck_assert_str_eq(request.backend, "cpu");
        ck_assert_int_eq(request.timeout_ms, 20);
        proto_bytes_free(&body);
    }
    proto_bytes body = parse_good(BODY(WITH("\"padding\":\"0,1,2,3\"")), -1);
    ck_assert(request.conv.padding[0] == 0 && request.conv.padding[3] == 3);
    proto_bytes_free(&body);
}
END_TEST

START_TEST(parameters_of_requests) {
    static const struct {
        const char *body;
        int64_t timeout_us, timeout_ms;
        bool binary, conv;
        const char *backend;
    } cases[] = {
        {WITH(""), -1, -1, false, false, "auto"},
        {WITH("\"timeout\":0"), -1, -1, false, false, "auto"},
        {WITH("\"timeout\":\"250\""), 250, -1, false, false, "auto"},
        {WITH("\"timeout\":9223372036854775807"), INT64_C(2147483647000), -1, false, false, "auto"},
        {WITH("\"timeout\":null,\"stride\":null"), -1, -1, false, false, "auto"},
        {WITH("\"backend\":\"ref\",\"timeout_ms\":7"), -1, 7, false, false, "ref"},
        {WITH("\"binary_data_output\":false"), -1, -1, false, false, "auto"},
        {WITH("\"binary_data_output\":true,\"mode\":\"xnor\""), -1, -1, true, true, "auto"},
        {WITH("\"id\":5,\"weights\":{},\"priority\":\"x\",\"sequence_id\":\"s\",\"tritons\":[]"),
         -1, -1, false, false, "auto"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        proto_bytes body = parse_good(cases[i].body, strlen(cases[i].body), -1);
        ck_assert_msg(
            request.timeout_us == cases[i].timeout_us &&
                request.timeout_ms == cases[i].timeout_ms && request.binary == cases[i].binary &&
                request.conv_given == cases[i].conv && !strcmp(request.backend, cases[i].backend),
            "%s", cases[i].body);
        proto_bytes_free(&body);
    }
}
END_TEST

/* ---- wrong requests ---- */

static xn_status parse_row(const xn_table_row *row, xn_error *error) {
    proto_bytes copy;
    const xn_status status = parse(row->fields[0].text, row->fields[0].length, -1, &copy, error);
    proto_bytes_free(&copy);
    return status;
}

START_TEST(refuses_what_is_wrong) {
    proto_refuse_all("infer.txt", parse_row);
}
END_TEST

/* Lengths at their limits: the longest that is taken, and one more. */
START_TEST(lengths_at_their_limits) {
    static const struct {
        const char *begin, *end, *field;
        size_t longest;
    } cases[] = {
        {"{\"id\":\"", "\",\"inputs\":[" JSON_INPUT "]}", "id", XN_PROTO_MAX_ID},
        {"{\"inputs\":[{\"name\":\"", "\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}]}",
         "inputs[0].name", XN_OIP_MAX_NAME},
        {"{\"inputs\":[" JSON_INPUT "],\"outputs\":[{\"name\":\"", "\"}]}", "outputs[0].name",
         XN_OIP_MAX_NAME},
        {"{\"inputs\":[" JSON_INPUT "],\"outputs\":[{\"name\":\"y\",\"parameters\":{"
         "\"shared_memory_byte_size\":1,\"shared_memory_region\":\"",
         "\"}}]}", "outputs[0].parameters.shared_memory_region", XN_OIP_MAX_REGION},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t more = 0; more < 2; more++) {
            char text[1024];
            xn_error error = {0};
            proto_bytes copy;
            int length = snprintf(text, sizeof text, "%s%0*d%s", cases[i].begin,
                                  (int)(cases[i].longest + more), 0, cases[i].end);
            xn_status status = parse(text, (size_t)length, -1, &copy, &error);
            if (more)
                proto_expect_error(status, &error, text, cases[i].field, "");
            else
                ck_assert_msg(!status, "%s", error.message);
            proto_bytes_free(&copy);
        }
}
END_TEST

START_TEST(refuses_lengths) {
    static const char header[] = "{\"inputs\":[" BINARY_INPUT "]}";
    const long length = sizeof header - 1;
    proto_bytes whole = proto_bytes_join(header, (size_t)length, VALUES "!", 17), copy;
    static const struct {
        long header, bytes;
        const char *field, *fragment;
    } cases[] = {
        {0, 17, "", "1 bytes are left at the end of the body"},
        {0, 15, "inputs[0].parameters.binary_data_size", "only 15 bytes of the body are left"},
        {0, 0, "inputs[0].parameters.binary_data_size", "only 0 bytes of the body are left"},
        {17, 16, "Inference-Header-Content-Length", "but the body has"},
        {-1, 16, "", "is not valid JSON"},
        {1, 16, "", "is not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_error error = {0};
        xn_status status = parse(whole.bytes, (size_t)(length + cases[i].bytes),
                                 length + cases[i].header, &copy, &error);
        proto_expect_error(status, &error, cases[i].fragment, cases[i].field, cases[i].fragment);
        proto_bytes_free(&copy);
    }
    xn_error error = {0};
    proto_expect_error(parse("", 0, 0, &copy, &error), &error, "raw", "", "the body is empty");
    proto_bytes_free(&copy);
    proto_bytes_free(&whole);
}
END_TEST

/* ---- every split, every allocation ---- */

static const char *const samples[] = {
    "{\"inputs\":[" BINARY_INPUT "],\"parameters\":{\"binary_data_output\":true}}",
    "{\"id\":\"r1\",\"inputs\":[" BINARY_INPUT "],\"outputs\":[{\"name\":\"logits\",\"parameters\":"
    "{\"classification\":3,\"binary_data\":true}}],\"parameters\":{\"timeout\":5000,\"stride\":"
    "\"1,1\",\"mine\":[true]}}",
    "{\"inputs\":[" JSON_INPUT ",{\"name\":\"b\",\"shape\":[4,4],\"datatype\":\"UINT8\","
    "\"parameters\":{\"binary_data_size\":16}}]}",
};

/* A whole request cut anywhere is refused, wherever the header is said to end. */
START_TEST(every_split) {
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const size_t header = strlen(samples[i]);
        proto_bytes whole = proto_bytes_join(samples[i], header, VALUES, 16), copy;
        for (size_t length = 0; length <= whole.length; length++)
            for (size_t said = 0; said < 3; said++) {
                const long at[] = {(long)header, (long)length, -1};
                xn_error error = {0};
                xn_status status = parse(whole.bytes, length, at[said], &copy, &error);
                const bool good = length == whole.length && at[said] == (long)header;
                if (!good && !(at[said] == 0 && length > 0)) {
                    ck_assert_int_eq(status, XN_ERR_MALFORMED);
                    ck_assert(error.message[0]);
                } else {
                    ck_assert_msg(!status, "%s", error.message);
                }
                proto_bytes_free(&copy);
            }
        proto_bytes_free(&whole);
    }
}
END_TEST

START_TEST(every_allocation_fails) {
    xn_proto_init();
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const size_t header = strlen(samples[i]);
        proto_bytes whole = proto_bytes_join(samples[i], header, VALUES, 16), copy;
        xn_status status = XN_ERR_NO_MEMORY;
        int n = 0;
        for (; status; n++) {
            atomic_int countdown = n;
            xn_error error = {0};
            xn_mem_set_hook(xn_test_count_down, &countdown);
            status = parse(whole.bytes, whole.length, (long)header, &copy, &error);
            xn_mem_set_hook(NULL, NULL);
            ck_assert_msg(!status || status == XN_ERR_NO_MEMORY, "%s", error.message);
            proto_bytes_free(&copy);
        }
        ck_assert_int_eq(n, 3); /* two blocks: the skeleton and the tree */
        proto_bytes_free(&whole);
    }
}
END_TEST

XN_SUITE(oip_request) {
    Suite *s = suite_create("oip_request");
    TCase *t = xn_test_case(s, "requests", 60);
    tcase_add_test(t, tritonclient_binary);
    tcase_add_test(t, tritonclient_everything);
    tcase_add_test(t, tritonclient_json);
    tcase_add_test(t, tritonclient_shared_memory);
    tcase_add_test(t, perf_analyzer_requests);
    tcase_add_test(t, kserve_requests);
    tcase_add_test(t, raw_request);
    tcase_add_test(t, inputs_in_order);
    tcase_add_test(t, parameters_of_conv);
    tcase_add_test(t, parameters_of_requests);
    tcase_add_test(t, refuses_what_is_wrong);
    tcase_add_test(t, lengths_at_their_limits);
    tcase_add_test(t, refuses_lengths);
    tcase_add_test(t, every_split);
    tcase_add_test(t, every_allocation_fails);
    return s;
}
