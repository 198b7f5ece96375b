/* Weights as files: written and read back, and every way of being torn. */
#include "proto_bodies.h"
#include "xn_mem.h"
#include "xn_test.h"
#include "xn_weights_file.h"

#include <string.h>

static const xn_proto_limits limits = {PROTO_TEST_MAX_ELEMENTS};

static const xn_datatype datatypes[] = {XN_FP32, XN_FP16, XN_BF16, XN_INT8, XN_UINT8, XN_BOOL};
enum { DATATYPES = sizeof datatypes / sizeof *datatypes, VALUES = 3 * 5 * 7 };

static unsigned char random_bytes[3][VALUES * 4];

static xn_tensor tensor_of(xn_datatype datatype, xn_shape shape, const void *data) {
    xn_tensor t = {.datatype = datatype, .shape = shape, .data = data};
    ck_assert_int_eq(xn_shape_elements(&shape, datatype, VALUES, "t", &t.elements, &t.bytes, NULL),
                     XN_OK);
    return t;
}

static proto_bytes file_of(const xn_tensor *weights, const xn_tensor *scale,
                           const xn_tensor *bias) {
    static unsigned char text[XN_WEIGHTS_FILE_HEAD_BYTES + sizeof random_bytes];
    const xn_tensor *const tensors[] = {weights, scale, bias};
    xn_weights_file_head head;
    xn_weights_file_begin(weights, scale, bias, &head);
    ck_assert_uint_eq(head.length % 64, 0);
    memcpy(text, head.bytes, head.length);
    size_t length = head.length;
    for (int i = 0; i < 3; i++)
        if (tensors[i]) {
            memcpy(text + length, tensors[i]->data, tensors[i]->bytes);
            length += tensors[i]->bytes;
        }
    return proto_bytes_of(text, length);
}

static void expect_tensor(const xn_tensor_ref *ref, const xn_tensor *tensor) {
    ck_assert_int_eq(ref->present, tensor != NULL);
    if (!tensor)
        return;
    ck_assert_int_eq(ref->datatype, tensor->datatype);
    ck_assert_int_eq(ref->shape.rank, tensor->shape.rank);
    ck_assert(!memcmp(ref->shape.dims, tensor->shape.dims, sizeof ref->shape.dims));
    ck_assert_uint_eq(ref->bytes, tensor->bytes);
    ck_assert(!memcmp(ref->data, tensor->data, tensor->bytes));
}

static void fill_random(void) {
    xn_rng rng = {xn_test_seed()};
    for (size_t i = 0; i < sizeof random_bytes; i++)
        random_bytes[i / sizeof *random_bytes][i % sizeof *random_bytes] =
            (unsigned char)xn_rng_next(&rng);
}

/* Every datatype, with and without scale and bias, and what odd sizes do to alignment. */
START_TEST(reads_back_what_was_written) {
    fill_random();
    for (int d = 0; d < DATATYPES * DATATYPES * 4; d++) {
        xn_datatype of_weights = datatypes[d % DATATYPES];
        xn_datatype of_scale = datatypes[d / DATATYPES % DATATYPES];
        int with = d / (DATATYPES * DATATYPES);
        xn_tensor weights = tensor_of(of_weights, (xn_shape){4, {3, 1, 5, 7}}, random_bytes[0]);
        xn_tensor scale = tensor_of(of_scale, (xn_shape){1, {3}}, random_bytes[1]);
        xn_tensor bias = tensor_of(of_weights, (xn_shape){1, {3}}, random_bytes[2]);
        xn_weights_request r;
        xn_error error = {0};
        proto_bytes file = file_of(&weights, with & 1 ? &scale : NULL, with & 2 ? &bias : NULL);
        xn_status status = xn_weights_file_parse(file.bytes, file.length, &limits, &r, &error);
        ck_assert_msg(status == XN_OK, "%s", error.message);
        expect_tensor(&r.weights, &weights);
        expect_tensor(&r.scale, with & 1 ? &scale : NULL);
        expect_tensor(&r.bias, with & 2 ? &bias : NULL);
        /* And it is a body that a PUT takes. */
        xn_proto_body body = {
            .form = XN_FORM_SAFETENSORS, .bytes = file.bytes, .length = file.length};
        ck_assert_int_eq(xn_proto_parse_weights(&body, &limits, &r, &error), XN_OK);
        proto_bytes_free(&file);
    }
}
END_TEST

/* The format is for good: these bytes were written by the first version of it, and the checksum is
 * that of CRC-64/XZ, computed elsewhere. */
START_TEST(the_format_is_fixed) {
    static const float values[2] = {1, -2};
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"xnord-weights-1 @CRC@\"},\"weights\":{\"dtype\":"
        "\"F32\",\"shape\":[2,1,1,1],\"data_offsets\":[0,8]}}";
    xn_tensor weights = tensor_of(XN_FP32, (xn_shape){4, {2, 1, 1, 1}}, values);
    proto_bytes file = file_of(&weights, NULL, NULL);
    ck_assert_uint_eq(file.length, 192 + 8);
    ck_assert_uint_eq(file.bytes[0], 192 - 8);
    const char *at = strstr(header, "@CRC@");
    size_t before = (size_t)(at - header), after = strlen(at + 5);
    ck_assert(!memcmp(file.bytes + 8, header, before));
    ck_assert(!memcmp(file.bytes + 8 + before, "2ab9c71611967716", 16));
    ck_assert(!memcmp(file.bytes + 8 + before + 16, at + 5, after));
    uint64_t checksum = 0;
    ck_assert_int_eq(xn_weights_file_mark(file.bytes, XN_WEIGHTS_FILE_MARK_BYTES, &checksum, NULL),
                     XN_OK);
    ck_assert_uint_eq(checksum, UINT64_C(0x2ab9c71611967716));
    proto_bytes_free(&file);
}
END_TEST

static void expect_torn(const unsigned char *bytes, size_t length, const char *what, size_t at) {
    xn_weights_request r;
    xn_error error = {0};
    proto_bytes copy = proto_bytes_of(bytes, length); /* exact: a sanitizer sees reads past it */
    xn_status status = xn_weights_file_parse(copy.bytes, copy.length, &limits, &r, &error);
    ck_assert_msg(status == XN_ERR_MALFORMED && error.message[0], "%s at %zu: %s", what, at,
                  xn_status_name(status));
    proto_bytes_free(&copy);
}

START_TEST(torn_and_altered_files_are_known) {
    fill_random();
    xn_tensor weights = tensor_of(XN_FP32, (xn_shape){4, {3, 5, 1, 1}}, random_bytes[0]);
    xn_tensor bias = tensor_of(XN_FP16, (xn_shape){1, {3}}, random_bytes[1]);
    proto_bytes file = file_of(&weights, NULL, &bias);
    unsigned char *copy = malloc(file.length + 100);
    ck_assert_ptr_nonnull(copy);
    for (size_t length = 0; length < file.length; length++)
        expect_torn(file.bytes, length, "cut", length);
    for (size_t i = 0; i < file.length * 8; i++) {
        memcpy(copy, file.bytes, file.length);
        copy[i / 8] ^= (unsigned char)(1u << (i % 8));
        expect_torn(copy, file.length, "bit flipped", i);
    }
    /* What a file system leaves of a write that power ended: zeros from some point on. */
    for (size_t from = 0; from < file.length; from++) {
        memcpy(copy, file.bytes, file.length);
        memset(copy + from, 0, file.length - from);
        if (memcmp(copy, file.bytes, file.length) != 0)
            expect_torn(copy, file.length, "zeros", from);
    }
    for (size_t more = 1; more <= 100; more++) {
        memcpy(copy, file.bytes, file.length);
        memset(copy + file.length, 0, more);
        expect_torn(copy, file.length + more, "continued", more);
    }
    free(copy);
    proto_bytes_free(&file);
}
END_TEST

START_TEST(foreign_files_are_told) {
    xn_error error = {0};
    uint64_t checksum;
    static const char newer[] =
        "........{\"__metadata__\":{\"format\":\"xnord-weights-2 0123456789abcdef\"},";
    static const char other[] = "........{\"__metadata__\":{\"format\":\"pt\"},\"weights\":{}}";
    ck_assert_int_eq(xn_weights_file_mark(newer, sizeof newer - 1, &checksum, &error),
                     XN_ERR_MALFORMED);
    ck_assert_msg(strstr(error.message, "version"), "%s", error.message);
    ck_assert_int_eq(xn_weights_file_mark(other, sizeof other - 1, &checksum, &error),
                     XN_ERR_MALFORMED);
    ck_assert_msg(strstr(error.message, "PUT it"), "%s", error.message);
}
END_TEST

/* What a PUT is refused for, a file is too, although its checksum is right. */
START_TEST(limits_hold_for_files) {
    fill_random();
    const xn_proto_limits few = {14};
    xn_weights_request r;
    xn_error error = {0};
    xn_tensor weights = tensor_of(XN_INT8, (xn_shape){4, {3, 5, 1, 1}}, random_bytes[0]);
    proto_bytes file = file_of(&weights, NULL, NULL);
    ck_assert_int_eq(xn_weights_file_parse(file.bytes, file.length, &few, &r, &error),
                     XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-elements");
    proto_bytes_free(&file);
}
END_TEST

XN_SUITE(proto_weights_file) {
    Suite *s = suite_create("proto_weights_file");
    TCase *t = xn_test_case(s, "weights_file", 60);
    tcase_add_test(t, reads_back_what_was_written);
    tcase_add_test(t, the_format_is_fixed);
    tcase_add_test(t, torn_and_altered_files_are_known);
    tcase_add_test(t, foreign_files_are_told);
    tcase_add_test(t, limits_hold_for_files);
    return s;
}
