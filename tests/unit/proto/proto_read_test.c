/* Reading a tensor's values from JSON text: datatypes, nesting, counts, every kind of error. */
#include "proto_bodies.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>

static xn_status read_text(xn_datatype datatype, const xn_shape *shape, const char *text, void *out,
                           xn_error *error) {
    proto_bytes copy = proto_bytes_of(text, strlen(text));
    xn_tensor_ref ref = {.present = true, .datatype = datatype, .shape = *shape, .elements = 1};
    for (int i = 0; i < shape->rank; i++)
        ref.elements *= shape->dims[i];
    ref.bytes = (size_t)ref.elements * xn_datatype_bytes(datatype);
    ref.text = (const char *)copy.bytes;
    ref.text_length = copy.length;
    /* exactly ref.bytes of room */
    void *room = malloc(ref.bytes);
    ck_assert_ptr_nonnull(room);
    xn_status status = xn_proto_tensor_read(&ref, "input", room, error);
    if (!status)
        memcpy(out, room, ref.bytes);
    free(room);
    proto_bytes_free(&copy);
    return status;
}

START_TEST(reads_datatypes) {
    static const struct {
        xn_datatype datatype;
        const char *text;
        const char *bytes;
    } cases[] = {
        {XN_FP32, "[1,-2]", "\x00\x00\x80\x3f\x00\x00\x00\xc0"},
        {XN_FP32, "[ -0.0 ,\n1e-45 ]", "\x00\x00\x00\x80\x01\x00\x00\x00"},
        {XN_FP16, "[1,-65504]", "\x00\x3c\xff\xfb"},
        {XN_FP16, "[5.9604644775390625e-8,-0]", "\x01\x00\x00\x80"},
        {XN_FP16, "[1.00048828125,1.00048828126]", "\x00\x3c\x01\x3c"},
        {XN_BF16, "[1,-3.0]", "\x80\x3f\x40\xc0"},
        {XN_INT8, "[-128,127]", "\x80\x7f"},
        {XN_INT8, "[-0,0]", "\0\0"},
        {XN_UINT8, "[0,255]", "\x00\xff"},
        {XN_BOOL, "[true,false]", "\x01\x00"},
        {XN_BOOL, "[0,1]", "\x00\x01"},
    };
    const xn_shape shape = {1, {2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char out[8];
        xn_error error = {0};
        xn_status status = read_text(cases[i].datatype, &shape, cases[i].text, out, &error);
        ck_assert_msg(!status, "%s: %s", cases[i].text, error.message);
        ck_assert_msg(!memcmp(out, cases[i].bytes, 2 * xn_datatype_bytes(cases[i].datatype)), "%s",
                      cases[i].text);
    }
}
END_TEST

START_TEST(reads_nesting) {
    static const struct {
        xn_shape shape;
        const char *text;
    } good[] = {
        {{1, {6}}, "[0,1,2,3,4,5]"},
        {{2, {2, 3}}, "[[0,1,2],[3,4,5]]"},
        {{2, {6, 1}}, "[[0],[1],[2],[3],[4],[5]]"},
        {{2, {2, 3}}, "[0,1,2,3,4,5]"},
        {{3, {1, 2, 3}}, "[[[0,1,2],[3,4,5]]]"},
        {{3, {3, 1, 2}}, "[[[0,1]],[[2,3]],[[4,5]]]"},
        {{3, {3, 2, 1}}, "[ [ [0] , [1] ] , [[2],[3]],\n[[4],[5]] ]"},
        {{4, {1, 2, 1, 3}}, "[[[[0,1,2]],[[3,4,5]]]]"},
        {{4, {3, 1, 2, 1}}, "[[[[0],[1]]],[[[2],[3]]],[[[4],[5]]]]"},
        {{6, {1, 1, 2, 1, 1, 3}}, "[[[[[[0,1,2]]],[[[3,4,5]]]]]]"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int8_t out[6];
        xn_error error = {0};
        xn_status status = read_text(XN_INT8, &good[i].shape, good[i].text, out, &error);
        ck_assert_msg(!status, "%s: %s", good[i].text, error.message);
        for (int k = 0; k < 6; k++)
            ck_assert_msg(out[k] == k, "%s: [%d] is %d", good[i].text, k, out[k]);
    }
}
END_TEST

START_TEST(refuses_values) {
    static const struct {
        xn_datatype datatype;
        const char *text, *fragment;
    } cases[] = {
        {XN_FP32, "[1,NaN]", "input.data[1] is \"NaN\", which is no JSON number"},
        {XN_FP32, "[1,null]", "input.data[1] is \"null\""},
        {XN_FP32, "[1,true]", "input.data[1] is \"true\""},
        {XN_FP32, "[1,\"2\"]", "input.data[1] is \""},
        {XN_FP32, "[1,1e39]", "input.data[1] is 1e39, which is out of the range of FP32"},
        {XN_FP32, "[1,\xff]", "input.data[1] is \"?\""},
        {XN_FP32, "[,1]", "has ',' after 0 values where a value"},
        {XN_FP32, "[1,]", "has ']' after 1 values where a value"},
        {XN_FP32, "[1,", "has the end after 1 values where a value"},
        {XN_FP32, "[1 2]", "has '2' after 1 values where ','"},
        {XN_FP32, "[1;2]", "has ';' after 1 values where ','"},
        {XN_FP32, "[1x,2]", "has 'x' after 1 values where ','"},
        {XN_FP32, "[1,2x]", "has 'x' after 2 values where ']'"},
        {XN_FP32, "[1,2", "has the end after 2 values where ']'"},
        {XN_FP32, "", "has the end after 0 values where '['"},
        {XN_FP32, "1,2]", "has '1' after 0 values where '['"},
        {XN_FP32, "[1,2]]", "goes on after its last value"},
        {XN_FP32, "[1,2] ", "goes on after its last value"},
        {XN_FP32, "[1]", "has ']' after 1 values where ',' was expected; it takes 2 values"},
        {XN_FP32, "[1,2,3]", "has ',' after 2 values where ']' was expected; it takes 2 values"},
        {XN_FP32, "[[1],[2]]", "has '[' after 0 values where a value"},
        {XN_FP32, "[[1,2]]", "nested as shape [2]"},
        {XN_FP16, "[1,70000]", "is 70000, which is out of the range of FP16"},
        {XN_BF16, "[1,1e40]", "is 1e40, which is out of the range of BF16"},
        {XN_INT8, "[1,128]", "is 128; INT8 takes an integer from -128 to 127"},
        {XN_INT8, "[-129,1]", "is -129; INT8 takes an integer from -128 to 127"},
        {XN_INT8, "[1.0,1]", "is 1.0; INT8 takes an integer"},
        {XN_INT8, "[1e2,1]", "is 1e2; INT8 takes an integer"},
        {XN_INT8, "[1,99999999999999999999999999]", "INT8 takes an integer"},
        {XN_INT8, "[1,18446744073709551617]", "INT8 takes an integer"},
        {XN_INT8, "[1,true]", "input.data[1] is \"true\""},
        {XN_UINT8, "[1,256]", "is 256; UINT8 takes an integer from 0 to 255"},
        {XN_UINT8, "[-1,1]", "is -1; UINT8 takes an integer from 0 to 255"},
        {XN_BOOL, "[0,2]", "is 2; BOOL takes true, false, 0 or 1"},
        {XN_BOOL, "[0,-1]", "is -1; BOOL takes true, false, 0 or 1"},
        {XN_BOOL, "[0,1.0]", "is 1.0; BOOL takes true, false, 0 or 1"},
        {XN_BOOL, "[0,tru]", "input.data[1] is \"tru\""},
        {XN_BOOL, "[0,fals", "input.data[1] is \"fals\""},
        {XN_BOOL, "[0,truex]", "has 'x' after 2 values where ']'"},
    };
    const xn_shape shape = {1, {2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char out[8];
        xn_error error = {0};
        xn_status status = read_text(cases[i].datatype, &shape, cases[i].text, out, &error);
        proto_expect_error(status, &error, cases[i].text, "input.data", cases[i].fragment);
    }
}
END_TEST

START_TEST(refuses_wrong_nesting) {
    static const char *const texts[] = {
        "[[0,1],[2,3],[4,5]]",   "[[0,1,2],[3,4,5]",      "[[0,1,2],3,4,5]",
        "[[0,1,2],[3,4,5],[6]]", "[[0,1,2,3],[4,5]]",     "[[[0,1,2],[3,4,5]]]",
        "[[0,1,2] [3,4,5]]",     "[[0,1,2],,[3,4,5]]",    "[[0,1,2]]",
        "[[0,1,2],[]]",          "[[],[3,4,5]]",          "[[]]",
        "[0,1,2,[3,4,5]]",       "[[[[[[[[0,1,2]]]]]]]]", "[]",
        "[[0,1,2],[3,4,5],]",    "[0,1,2],[3,4,5]",       "[[0,1,2],[3,4,5]}",
    };
    const xn_shape shape = {2, {2, 3}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int8_t out[6];
        xn_error error = {0};
        proto_expect_error(read_text(XN_INT8, &shape, texts[i], out, &error), &error, texts[i],
                           "input.data", "input.data");
    }
}
END_TEST

/* Random floats of a random nesting come back as they were. */
START_TEST(reads_random_tensors) {
    xn_rng rng = {xn_test_seed()};
    for (int round = 0; round < 300; round++) {
        xn_shape shape = {.rank = 1 + (int)xn_rng_below(&rng, 4)};
        size_t count = 1;
        for (int i = 0; i < shape.rank; i++) {
            shape.dims[i] = 1 + (int64_t)xn_rng_below(&rng, 5);
            count *= (size_t)shape.dims[i];
        }
        static float values[625], back[625];
        static char text[625 * 40];
        size_t length = 0;
        for (size_t i = 0; i < count; i++) {
            values[i] = xn_rng_float(&rng) * (i % 3 ? 1.0f : 1e-20f);
            size_t stride = 1;
            for (int d = shape.rank - 1; d >= 0; d--) { /* brackets that open here */
                stride *= (size_t)shape.dims[d];
                if (i % stride == 0)
                    text[length++] = '[';
            }
            length +=
                (size_t)sprintf(text + length, round % 2 ? "%.9g" : " %.17g\n", (double)values[i]);
            stride = 1;
            for (int d = shape.rank - 1; d >= 0; d--) {
                stride *= (size_t)shape.dims[d];
                if ((i + 1) % stride == 0)
                    text[length++] = ']';
            }
            text[length++] = i + 1 < count ? ',' : 0;
        }
        xn_error error = {0};
        xn_status status = read_text(XN_FP32, &shape, text, back, &error);
        ck_assert_msg(!status, "%s (seed %llu, round %d)", error.message,
                      (unsigned long long)xn_test_seed(), round);
        ck_assert_msg(!memcmp(values, back, count * sizeof *values), "seed %llu, round %d",
                      (unsigned long long)xn_test_seed(), round);
    }
}
END_TEST

XN_SUITE(proto_read) {
    Suite *s = suite_create("proto_read");
    TCase *t = xn_test_case(s, "values", 120);
    tcase_add_test(t, reads_datatypes);
    tcase_add_test(t, reads_nesting);
    tcase_add_test(t, refuses_values);
    tcase_add_test(t, refuses_wrong_nesting);
    tcase_add_test(t, reads_random_tensors);
    return s;
}
