/* Kernel weights: the normative bit layout, alpha, and what is refused. */
#include "countdown.h"
#include "xn_mem.h"
#include "xn_test.h"
#include "xn_weights.h"

#include <float.h>
#include <malloc.h>
#include <math.h>
#include <string.h>

static xn_tensor make_tensor(xn_datatype datatype, const void *data, int rank, int64_t a, int64_t b,
                             int64_t c, int64_t d) {
    xn_tensor t = {
        .datatype = datatype, .shape = {rank, {a, b, c, d}}, .elements = 1, .data = data};
    for (int i = 0; i < rank; i++)
        t.elements *= t.shape.dims[i];
    for (int i = rank; i < 4; i++)
        t.shape.dims[i] = 0;
    t.bytes = (size_t)t.elements * xn_datatype_bytes(datatype);
    return t;
}

static xn_weights *create(const xn_tensor *weights, const xn_tensor *scale, const xn_tensor *bias) {
    xn_weights *made = NULL;
    xn_error error;
    xn_status status = xn_weights_create(weights, scale, bias, &made, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    return made;
}

static const struct {
    int32_t out, channels, kernel_h, kernel_w;
} shapes[] = {
    {1, 1, 1, 1},   {3, 1, 3, 3},   {2, 2, 1, 5},   {1, 31, 2, 2}, {2, 32, 3, 1},
    {3, 33, 1, 1},  {1, 63, 3, 2},  {2, 64, 2, 3},  {1, 65, 3, 3}, {2, 127, 1, 2},
    {1, 128, 5, 5}, {2, 129, 2, 2}, {1, 513, 1, 3}, {64, 3, 7, 7},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Every bit of the layout, tails included, and alpha, from the real values by index. */
START_TEST(bits_and_alpha_follow_the_layout) {
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    int32_t out = shapes[_i].out, channels = shapes[_i].channels;
    int32_t kernel_h = shapes[_i].kernel_h, kernel_w = shapes[_i].kernel_w;
    int64_t filter = (int64_t)channels * kernel_h * kernel_w;
    float *values = xn_mem_alloc((size_t)(out * filter) * sizeof *values);
    for (int64_t i = 0; i < out * filter; i++) {
        static const float specials[] = {0.0f, -0.0f, NAN, -NAN, 0x1p-149f, -0x1p-149f};
        uint64_t pick = xn_rng_below(&rng, 40);
        values[i] = pick < 2 ? specials[pick] : xn_rng_float(&rng);
        if (_i % 2 && pick < 6)
            values[i] = specials[pick];
    }
    xn_tensor tensor = make_tensor(XN_FP32, values, 4, out, channels, kernel_h, kernel_w);
    xn_weights *w = create(&tensor, NULL, NULL);
    ck_assert_int_eq(w->words, (channels + 31) / 32);
    ck_assert_int_eq(memcmp(w->real, values, (size_t)(out * filter) * sizeof *values), 0);
    for (int32_t o = 0; o < out; o++) {
        double sum = 0;
        for (int32_t tap = 0; tap < kernel_h * kernel_w; tap++) {
            for (int32_t c = 0; c < w->words * 32; c++) {
                uint32_t word =
                    w->bits[((int64_t)o * kernel_h * kernel_w + tap) * w->words + c / 32];
                float value = c < channels
                                  ? values[o * filter + (int64_t)c * kernel_h * kernel_w + tap]
                                  : -1.0f;
                uint32_t expected = value >= 0;
                ck_assert_msg((word >> c % 32 & 1) == expected,
                              "filter %d channel %d tap %d of %a (seed %llu)", o, c, tap, value,
                              (unsigned long long)xn_test_seed());
                sum += c < channels ? fabs((double)value) : 0;
            }
        }
        double alpha = sum / (double)filter;
        if (isnan(alpha))
            ck_assert_float_nan(w->alpha[o]);
        else
            ck_assert_msg(fabs((double)w->alpha[o] - alpha) <= alpha * 0x1p-23, "alpha %a, not %a",
                          w->alpha[o], alpha);
    }
    ck_assert_uint_ge(w->host_bytes, (size_t)(out * filter) * 4);
    xn_weights_free(w);
    xn_mem_free(values);
}
END_TEST

START_TEST(alpha_is_summed_in_double) {
    enum { CHANNELS = 40000 };
    float *values = xn_mem_alloc(CHANNELS * sizeof *values);
    values[0] = 0x1p25f; /* in single precision the ones after it would vanish */
    for (int i = 1; i < CHANNELS; i++)
        values[i] = i % 2 ? 1.0f : -1.0f;
    xn_tensor tensor = make_tensor(XN_FP32, values, 4, 1, CHANNELS, 1, 1);
    xn_weights *w = create(&tensor, NULL, NULL);
    ck_assert_float_eq(w->alpha[0], (float)((0x1p25 + CHANNELS - 1) / CHANNELS));
    xn_weights_free(w);
    for (int i = 0; i < CHANNELS; i++)
        values[i] = -FLT_MAX; /* the sum is far beyond fp32, the mean is not */
    w = create(&tensor, NULL, NULL);
    ck_assert_float_eq(w->alpha[0], FLT_MAX);
    xn_weights_free(w);
    xn_mem_free(values);
}
END_TEST

START_TEST(special_values_of_alpha) {
    static const struct {
        float values[4], alpha;
    } cases[] = {{{0, -0.0f, 0, -0.0f}, 0},
                 {{1, -2, 3, -4}, 2.5f},
                 {{INFINITY, 1, -INFINITY, 0}, INFINITY},
                 {{0x1p-149f, -0x1p-149f, 0x1p-149f, 0x1p-149f}, 0x1p-149f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_tensor tensor = make_tensor(XN_FP32, cases[i].values, 4, 1, 1, 2, 2);
        xn_weights *w = create(&tensor, NULL, NULL);
        ck_assert_float_eq(w->alpha[0], cases[i].alpha);
        xn_weights_free(w);
    }
}
END_TEST

START_TEST(every_datatype_is_taken_exactly) {
    static const int8_t ints[4] = {-128, 0, 1, -1};
    static const uint8_t bytes[4] = {0, 1, 2, 255};
    static const uint16_t halves[4] = {0x3c00, 0x8000, 0xc000, 0x0001};
    static const uint16_t brains[4] = {0x3f80, 0x8000, 0xc000, 0xbf80};
    static const float floats[4] = {1, -2, 0x1p-149f, -0.0f};
    static const struct {
        xn_datatype datatype;
        const void *data;
        float real[4];
        uint32_t bits;
    } cases[] = {
        {XN_INT8, ints, {-128, 0, 1, -1}, 6},     {XN_UINT8, bytes, {0, 1, 2, 255}, 15},
        {XN_BOOL, bytes, {-1, 1, 1, 1}, 14},      {XN_FP16, halves, {1, -0.0f, -2, 0x1p-24f}, 11},
        {XN_BF16, brains, {1, -0.0f, -2, -1}, 3}, {XN_FP32, floats, {1, -2, 0x1p-149f, -0.0f}, 13},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_tensor tensor = make_tensor(cases[i].datatype, cases[i].data, 4, 1, 4, 1, 1);
        xn_tensor channel = make_tensor(cases[i].datatype, cases[i].data, 1, 1, 0, 0, 0);
        xn_weights *w = create(&tensor, &channel, &channel);
        ck_assert_int_eq(memcmp(w->real, cases[i].real, sizeof cases[i].real), 0);
        ck_assert_uint_eq(w->bits[0], cases[i].bits);
        ck_assert_int_eq(w->datatype, cases[i].datatype);
        /* as weights a BOOL is a sign, as scale and bias 0 or 1 */
        float first = cases[i].datatype == XN_BOOL ? 0 : cases[i].real[0];
        ck_assert_float_eq(w->scale[0], first);
        ck_assert_float_eq(w->bias[0], first);
        ck_assert(cases[i].datatype != XN_BOOL || w->alpha[0] == 1);
        xn_weights_free(w);
    }
}
END_TEST

START_TEST(shape_of_tells_what_is_there) {
    static const float values[12] = {1}, channels[2] = {3, 4};
    xn_tensor tensor = make_tensor(XN_FP32, values, 4, 2, 3, 1, 2);
    xn_tensor channel = make_tensor(XN_FP32, channels, 1, 2, 0, 0, 0);
    for (int i = 0; i < 4; i++) {
        xn_weights *w = create(&tensor, i & 1 ? &channel : NULL, i & 2 ? &channel : NULL);
        xn_weights_shape shape;
        xn_weights_shape_of(w, &shape);
        ck_assert_int_eq(shape.dims[0], 2);
        ck_assert_int_eq(shape.dims[1], 3);
        ck_assert_int_eq(shape.dims[2], 1);
        ck_assert_int_eq(shape.dims[3], 2);
        ck_assert_int_eq(shape.has_scale, i & 1);
        ck_assert_int_eq(shape.has_bias, i >> 1);
        xn_weights_free(w);
    }
    xn_weights_free(NULL);
}
END_TEST

/* ---- parts ---- */

START_TEST(every_part_is_kept_or_left_out) {
    static const float kernel[6] = {1, -2, 3, -4, 5, 6};
    static const float values[4][2] = {{1, -2}, {3, -4}, {5, -6}, {7, -8}};
    static const uint16_t half[2] = {0x3c00, 0xc000}; /* 1, -2 */
    xn_tensor tensor = make_tensor(XN_FP32, kernel, 4, 2, 3, 1, 1), channels[4];
    for (int i = 0; i < 4; i++)
        channels[i] = make_tensor(XN_FP32, values[i], 1, 2, 0, 0, 0);
    channels[0] = make_tensor(XN_FP16, half, 1, 2, 0, 0, 0);
    for (int which = 1; which < 32; which++) {
        const xn_weights_parts parts = {
            .weights = which & 16 ? &tensor : NULL,
            .scale = which & 1 ? &channels[0] : NULL,
            .bias = which & 2 ? &channels[1] : NULL,
            .slope = which & 4 ? &channels[2] : NULL,
            .shift = which & 8 ? &channels[3] : NULL,
        };
        xn_weights *w = NULL;
        ck_assert_int_eq(xn_weights_create_parts(&parts, &w, NULL), XN_OK);
        const float *const got[4] = {w->scale, w->bias, w->slope, w->shift};
        for (int i = 0; i < 4; i++) {
            ck_assert_int_eq(got[i] != NULL, which >> i & 1);
            for (int o = 0; o < 2 && got[i]; o++)
                ck_assert(got[i][o] == values[i][o]);
        }
        ck_assert_int_eq(w->out_channels, 2);
        ck_assert_int_eq(w->group_channels, which & 16 ? 3 : 0);
        ck_assert_int_eq(w->kernel_h, which & 16 ? 1 : 0);
        ck_assert(!w->real == !(which & 16) && !w->bits == !w->real && !w->alpha == !w->real);
        xn_weights_free(w);
    }
}
END_TEST

START_TEST(one_value_for_all_channels) {
    static const float kernel[6] = {1, -2, 3, -4, 5, 6}, values[2] = {7, 8};
    const xn_tensor tensor = make_tensor(XN_FP32, kernel, 4, 2, 3, 1, 1);
    const xn_tensor one = make_tensor(XN_FP32, values, 1, 1, 0, 0, 0);
    const xn_tensor two = make_tensor(XN_FP32, values, 1, 2, 0, 0, 0);
    xn_weights_parts parts = {.weights = &tensor, .scale = &one, .broadcast = true};
    xn_weights *w = NULL;
    ck_assert_int_eq(xn_weights_create_parts(&parts, &w, NULL), XN_OK);
    ck_assert(xn_weights_is_uniform(w) && w->out_channels == 2);
    ck_assert(w->scale[xn_weights_value_at(w, 1)] == 7);
    xn_weights_free(w);
    parts.bias = &two;
    ck_assert_int_eq(xn_weights_create_parts(&parts, &w, NULL), XN_ERR_GEOMETRY);
}
END_TEST

START_TEST(parts_that_do_not_fit_are_refused) {
    static const float values[64] = {0};
    const xn_tensor kernel = make_tensor(XN_FP32, values, 4, 2, 3, 2, 2);
    const xn_tensor two = make_tensor(XN_FP32, values, 1, 2, 0, 0, 0);
    const xn_tensor three = make_tensor(XN_FP32, values, 1, 3, 0, 0, 0);
    const xn_tensor square = make_tensor(XN_FP32, values, 2, 2, 1, 0, 0);
    const xn_tensor many = make_tensor(XN_BOOL, values, 1, (int64_t)1 << 31, 0, 0, 0);
    const struct {
        xn_weights_parts parts;
        xn_status status;
        const char *field, *text;
    } cases[] = {
        {{0}, XN_ERR_MALFORMED, "weights", "give weights, scale, bias, slope or shift"},
        {{.weights = &kernel, .slope = &three}, XN_ERR_GEOMETRY, "slope.shape", "weights.shape[0]"},
        {{.weights = &kernel, .shift = &three}, XN_ERR_GEOMETRY, "shift.shape", "weights.shape[0]"},
        {{.bias = &two, .shift = &three}, XN_ERR_GEOMETRY, "shift.shape", "bias.shape[0] is 2"},
        {{.slope = &square}, XN_ERR_GEOMETRY, "slope.shape", "2 dimensions; it must be [O]"},
        {{.shift = &many}, XN_ERR_GEOMETRY, "shift.shape", "at most 2147483647"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_weights *made = NULL;
        xn_error error = {0};
        ck_assert_int_eq(xn_weights_create_parts(&cases[i].parts, &made, &error), cases[i].status);
        ck_assert_str_eq(error.field, cases[i].field);
        ck_assert_msg(strstr(error.message, cases[i].text) != NULL, "case %zu: \"%s\"", i,
                      error.message);
        ck_assert_ptr_null(made);
    }
}
END_TEST

/* ---- refusals ---- */

START_TEST(bad_tensors_are_refused) {
    static const float values[64] = {0};
    const xn_tensor good = make_tensor(XN_FP32, values, 4, 2, 3, 2, 2);
    const xn_tensor channel = make_tensor(XN_FP32, values, 1, 2, 0, 0, 0);
    xn_tensor rank3 = make_tensor(XN_FP32, values, 3, 2, 3, 2, 0);
    xn_tensor zero = good, huge = good, filter = good, overflow = good, lies = good, odd = good;
    xn_tensor int32 = make_tensor(XN_INT32, values, 4, 2, 3, 2, 2);
    xn_tensor three = make_tensor(XN_FP32, values, 1, 3, 0, 0, 0);
    xn_tensor square = make_tensor(XN_FP32, values, 2, 2, 1, 0, 0);
    xn_tensor channel32 = make_tensor(XN_INT32, values, 1, 2, 0, 0, 0);
    zero.shape.dims[2] = 0;
    huge = make_tensor(XN_BOOL, values, 4, (int64_t)1 << 31, 1, 1, 1);
    filter = make_tensor(XN_BOOL, values, 4, 1, 1 << 11, 1 << 10, 1 << 10);
    overflow.shape = (xn_shape){4, {1 << 30, 1 << 30, 1 << 30, 1 << 30}};
    lies.elements = 23;
    odd.bytes = 95;
    const struct {
        const xn_tensor *weights, *scale, *bias;
        xn_status status;
        const char *field, *text;
    } cases[] = {
        {&rank3, NULL, NULL, XN_ERR_GEOMETRY, "weights.shape", "3 dimensions; it must be [O, C/"},
        {&zero, NULL, NULL, XN_ERR_MALFORMED, "weights.shape", "weights.shape[2] is 0"},
        {&huge, NULL, NULL, XN_ERR_GEOMETRY, "weights.shape", "weights.shape[0] is 2147483648"},
        {&filter, NULL, NULL, XN_ERR_GEOMETRY, "weights.shape", "2048 x 1024 x 1024"},
        {&overflow, NULL, NULL, XN_ERR_LIMIT, "weights.shape", "elements"},
        {&lies, NULL, NULL, XN_ERR_GEOMETRY, "weights.shape", "24 elements"},
        {&odd, NULL, NULL, XN_ERR_GEOMETRY, "weights.shape", "96 bytes"},
        {&int32, NULL, NULL, XN_ERR_MALFORMED, "weights.datatype", "INT32; expected FP32"},
        {&good, &three, NULL, XN_ERR_GEOMETRY, "scale.shape", "scale.shape[0] is 3"},
        {&good, NULL, &three, XN_ERR_GEOMETRY, "bias.shape", "weights.shape[0] is 2"},
        {&good, &channel, &three, XN_ERR_GEOMETRY, "bias.shape", "bias.shape[0] is 3"},
        {&good, &square, NULL, XN_ERR_GEOMETRY, "scale.shape", "2 dimensions; it must be [O]"},
        {&good, NULL, &channel32, XN_ERR_MALFORMED, "bias.datatype", "INT32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_weights *made = (xn_weights *)&good;
        xn_error error = {0};
        xn_status status =
            xn_weights_create(cases[i].weights, cases[i].scale, cases[i].bias, &made, &error);
        ck_assert_msg(status == cases[i].status, "case %zu: %s", i, xn_status_name(status));
        ck_assert_str_eq(error.field, cases[i].field);
        ck_assert_msg(strstr(error.message, cases[i].text) != NULL, "case %zu: \"%s\"", i,
                      error.message);
        ck_assert_ptr_eq(made, (const void *)&good);
        ck_assert_int_eq(
            xn_weights_create(cases[i].weights, cases[i].scale, cases[i].bias, &made, NULL),
            cases[i].status);
    }
}
END_TEST

/* BITS and the reals that they are the signs of make the same bits; those that stay, lie as bits
 * do and are aligned are not copied. */
START_TEST(packed_bits_are_taken_as_they_are) {
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    const int32_t out = shapes[_i].out, channels = shapes[_i].channels;
    const int32_t taps = shapes[_i].kernel_h * shapes[_i].kernel_w, each = (channels + 7) / 8;
    const size_t count = (size_t)out * (size_t)channels * (size_t)taps;
    const size_t bytes = (size_t)out * (size_t)taps * (size_t)each;
    float *values = xn_mem_alloc(count * sizeof *values);
    uint8_t *packed = xn_mem_zalloc(bytes + 1, 1);
    for (int64_t i = 0; i < (int64_t)count; i++) {
        const int64_t o = i / taps / channels, c = i / taps % channels, pixel = o * taps + i % taps;
        const bool set = xn_rng_below(&rng, 2);
        values[i] = set ? 1 : -1;
        packed[pixel * each + c / 8] |= (uint8_t)(set << c % 8);
    }
    const xn_tensor reals =
        make_tensor(XN_FP32, values, 4, out, channels, shapes[_i].kernel_h, shapes[_i].kernel_w);
    xn_tensor signs = reals;
    signs.datatype = XN_BITS;
    signs.bytes = bytes;
    xn_weights *w = create(&reals, NULL, NULL), *as_bits = NULL;
    for (int way = 0; way < 3; way++) { /* copied; used in place; not aligned */
        signs.data = memmove(packed + (way == 2), packed, bytes);
        const xn_weights_parts parts = {.weights = &signs, .stays = way > 0};
        ck_assert_int_eq(xn_weights_create_parts(&parts, &as_bits, NULL), XN_OK);
        ck_assert(
            !memcmp(w->bits, as_bits->bits, (size_t)(out * taps * w->words) * sizeof *w->bits));
        ck_assert_int_eq(as_bits->bits == signs.data, way == 1 && channels % 32 == 0);
        ck_assert(!as_bits->real && !as_bits->alpha);
        xn_weights_free(as_bits);
    }
    xn_weights_free(w);
    xn_mem_free(packed);
    xn_mem_free(values);
}
END_TEST

/* Fails allocation 0, 1, ... until creation succeeds; returns how many allocations it takes. */
static int fail_each_in_turn(const xn_tensor *weights, const xn_tensor *channel) {
    for (int fail = 0;; fail++) {
        xn_countdown c = {.left = fail};
        xn_weights *made = NULL;
        xn_error error = {0};
        xn_mem_set_hook(xn_countdown_hook, &c);
        const xn_weights_parts parts = {.weights = weights,
                                        .scale = channel,
                                        .bias = channel,
                                        .slope = channel,
                                        .shift = channel};
        xn_status status = xn_weights_create_parts(&parts, &made, &error);
        xn_mem_set_hook(NULL, NULL);
        if (status == XN_OK) {
            ck_assert_int_eq(c.calls, fail);
            xn_weights_free(made);
            return fail;
        }
        ck_assert_int_eq(status, XN_ERR_NO_MEMORY);
        ck_assert_int_eq(error.status, XN_ERR_NO_MEMORY);
        ck_assert_ptr_null(made);
        ck_assert_int_lt(fail, 100);
    }
}

/* Memory in use may not grow from round to round: a leak of any of the objects would. (The leak
 * sanitizer, under which mallinfo2 tells nothing, sees the same by itself.) */
START_TEST(every_allocation_failed_in_turn) {
    static float values[64 * 64];
    xn_tensor weights = make_tensor(XN_FP32, values, 4, 64, 64, 1, 1);
    xn_tensor channel = make_tensor(XN_FP32, values, 1, 64, 0, 0, 0);
    int allocations = 0;
    for (int round = 0; round < 10; round++)
        allocations = fail_each_in_turn(&weights, &channel);
    /* the object, real, bits, alpha, scale, bias, slope, shift */
    ck_assert_int_eq(allocations, 8);
    size_t before = mallinfo2().uordblks;
    for (int round = 0; round < 50; round++)
        fail_each_in_turn(&weights, &channel);
    size_t after = mallinfo2().uordblks;
    ck_assert_msg(after <= before + 64, "%zu bytes in use before, %zu after", before, after);
}
END_TEST

XN_SUITE(weights) {
    Suite *s = suite_create("weights");
    TCase *t = xn_test_case(s, "weights", 60);
    tcase_add_loop_test(t, bits_and_alpha_follow_the_layout, 0, SHAPES);
    tcase_add_test(t, alpha_is_summed_in_double);
    tcase_add_test(t, special_values_of_alpha);
    tcase_add_test(t, every_datatype_is_taken_exactly);
    tcase_add_test(t, shape_of_tells_what_is_there);
    tcase_add_test(t, every_part_is_kept_or_left_out);
    tcase_add_loop_test(t, packed_bits_are_taken_as_they_are, 0, SHAPES);
    tcase_add_test(t, one_value_for_all_channels);
    tcase_add_test(t, parts_that_do_not_fit_are_refused);
    tcase_add_test(t, bad_tensors_are_refused);
    tcase_add_test(t, every_allocation_failed_in_turn);
    return s;
}
