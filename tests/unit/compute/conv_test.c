/* Resolving parameters and shapes: every result field, every refusal with its field and text,
 * every limit at its edge, and sizes chosen to overflow where arithmetic is not checked. */
#include "xn_problem.h"
#include "xn_test.h"

#include <string.h>

typedef struct problem {
    xn_conv_params params;
    xn_datatype datatype;
    xn_shape input;
    xn_weights_shape weights;
    xn_conv_limits limits;
} problem;

/* 2 images of 4 channels, 9 x 10; 6 filters of 3 x 3. */
static problem base(void) {
    problem p = {
        .datatype = XN_FP32,
        .input = {4, {2, 4, 9, 10}},
        .weights = {.dims = {6, 4, 3, 3}},
        .limits = {.max_elements = INT64_MAX,
                   .max_output_bytes = INT64_MAX,
                   .max_operations = INT64_MAX},
    };
    xn_conv_params_default(&p.params);
    return p;
}

static xn_status resolve(const problem *p, xn_conv *conv, int64_t *images, xn_error *error) {
    return xn_conv_resolve(&p->params, p->datatype, &p->input, &p->weights, &p->limits, conv,
                           images, error);
}

static bool equal(const xn_conv *a, const xn_conv *b) {
    xn_problem first, second;
    xn_problem_of_conv(a, &first);
    xn_problem_of_conv(b, &second);
    return xn_problem_equal(&first, &second);
}

static uint64_t hash_of(const xn_conv *conv) {
    xn_problem whole;
    xn_problem_of_conv(conv, &whole);
    return whole.hash;
}

START_TEST(defaults) {
    xn_conv_params p;
    memset(&p, 0xff, sizeof p);
    xn_conv_params_default(&p);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(p.stride[i], 1);
        ck_assert_int_eq(p.dilation[i], 1);
    }
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(p.padding[i], 0);
    ck_assert_int_eq(p.padding_kind, XN_PADDING_EXPLICIT);
    ck_assert_int_eq(p.groups, 1);
    ck_assert_int_eq(p.pad_value, 0);
    ck_assert_int_eq(p.scaling, XN_SCALING_XNOR);
    ck_assert_int_eq(p.mode, XN_MODE_XNOR);
    ck_assert_int_eq(p.output_datatype, XN_FP32);
}
END_TEST

START_TEST(names) {
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(xn_name_find(xn_mode_name((xn_mode)i), xn_mode_names), i);
        ck_assert_int_eq(xn_name_find(xn_scaling_name((xn_scaling)i), xn_scaling_names), i);
        ck_assert_int_eq(xn_name_find(xn_precision_name((xn_precision)i), xn_precision_names), i);
    }
    ck_assert_int_eq(xn_name_find("xnor", xn_mode_names), XN_MODE_XNOR);
    ck_assert_int_eq(xn_name_find("bwn", xn_mode_names), XN_MODE_BWN);
    ck_assert_int_eq(xn_name_find("alpha", xn_scaling_names), XN_SCALING_ALPHA);
    ck_assert_int_eq(xn_name_find("fp16", xn_precision_names), XN_PRECISION_FP16);
    ck_assert_int_eq(xn_name_find("XNOR", xn_mode_names), -1);
    ck_assert_int_eq(xn_name_find("", xn_mode_names), -1);
    ck_assert_str_eq(xn_mode_name((xn_mode)9), "unknown");
}
END_TEST

START_TEST(every_field_is_filled) {
    problem p = base();
    xn_conv conv, again;
    int64_t images = 0;
    xn_error error;
    p.datatype = XN_BF16;
    p.input = (xn_shape){4, {7, 8, 20, 31}};
    p.weights = (xn_weights_shape){{12, 4, 2, 5}, XN_UINT8, true, true};
    p.params = (xn_conv_params){.stride = {2, 3},
                                .dilation = {4, 2},
                                .padding = {1, 2, 3, 4},
                                .groups = 2,
                                .pad_value = -1,
                                .scaling = XN_SCALING_ALPHA,
                                .mode = XN_MODE_BWN,
                                .output_datatype = XN_FP16,
                                .precision = XN_PRECISION_TF32};
    memset(&conv, 0xaa, sizeof conv);
    memset(&again, 0x55, sizeof again);
    ck_assert_msg(resolve(&p, &conv, &images, &error) == XN_OK, "%s", error.message);
    const xn_conv expected = {
        .channels = 8,
        .height = 20,
        .width = 31,
        .out_channels = 12,
        .kernel_h = 2,
        .kernel_w = 5,
        .out_height = (20 + 1 + 3 - 4 * 1 - 1) / 2 + 1,
        .out_width = (31 + 2 + 4 - 2 * 4 - 1) / 3 + 1,
        .groups = 2,
        .group_channels = 4,
        .group_out_channels = 6,
        .stride_h = 2,
        .stride_w = 3,
        .dilation_h = 4,
        .dilation_w = 2,
        .pad_top = 1,
        .pad_left = 2,
        .pad_bottom = 3,
        .pad_right = 4,
        .pad_value = -1,
        .mode = XN_MODE_BWN,
        .input_datatype = XN_BF16,
        .epilogue = {.factor = XN_FACTOR_SCALE, .bias = 1, .datatype = XN_FP16},
        .precision = XN_PRECISION_TF32};
    ck_assert_int_eq(memcmp(&conv, &expected, sizeof conv), 0);
    ck_assert_int_eq(images, 7);
    ck_assert_int_eq(conv.out_height, 10);
    ck_assert_int_eq(conv.out_width, 10);
    ck_assert_int_eq(xn_conv_input_elements(&conv), 8 * 20 * 31);
    ck_assert_uint_eq(xn_conv_input_bytes(&conv), 8 * 20 * 31 * 2);
    ck_assert_int_eq(xn_conv_output_elements(&conv), 12 * 10 * 10);
    ck_assert_uint_eq(xn_conv_output_bytes(&conv), 12 * 10 * 10 * 2);
    ck_assert_int_eq(xn_conv_operations(&conv), 12 * 10 * 10 * 4 * 2 * 5);
    ck_assert_int_eq(resolve(&p, &again, &images, NULL), XN_OK);
    ck_assert(equal(&conv, &again));
    ck_assert_uint_eq(hash_of(&conv), hash_of(&again));
}
END_TEST

/* ---- geometry ---- */

/* One axis at a time; the other is 1 x 1. out 0: refused. */
static const struct axis_case {
    xn_padding_kind kind;
    int64_t size, kernel, stride, dilation, before, after; /* before, after: in for explicit */
    int32_t out, pad_before, pad_after, stride_out, dilation_out;
} axes[] = {
    {XN_PADDING_EXPLICIT, 5, 3, 1, 1, 0, 0, 3, 0, 0, 1, 1},
    {XN_PADDING_EXPLICIT, 5, 3, 1, 1, 1, 1, 5, 1, 1, 1, 1},
    {XN_PADDING_EXPLICIT, 5, 3, 2, 1, 1, 0, 2, 1, 0, 2, 1},
    {XN_PADDING_EXPLICIT, 5, 3, 2, 1, 0, 1, 2, 0, 1, 2, 1},
    {XN_PADDING_EXPLICIT, 5, 3, 2, 1, 1, 1, 3, 1, 1, 2, 1},
    {XN_PADDING_EXPLICIT, 7, 3, 1, 3, 0, 0, 1, 0, 0, 1, 3},
    {XN_PADDING_EXPLICIT, 6, 3, 1, 3, 0, 0, 0, 0, 0, 0, 0},
    {XN_PADDING_EXPLICIT, 6, 3, 1, 3, 0, 1, 1, 0, 1, 1, 3},
    {XN_PADDING_EXPLICIT, 1, 7, 1, 1, 3, 3, 1, 3, 3, 1, 1},
    {XN_PADDING_EXPLICIT, 1, 7, 1, 1, 3, 2, 0, 0, 0, 0, 0},
    {XN_PADDING_EXPLICIT, 1, 1, 1, 1, 5, 4, 10, 5, 4, 1, 1},
    {XN_PADDING_EXPLICIT, 9, 2, 7, 1, 0, 0, 2, 0, 0, 7, 1},
    /* without effect, so made 1: stride to one output, dilation of one tap */
    {XN_PADDING_EXPLICIT, 8, 2, 7, 1, 0, 0, 1, 0, 0, 1, 1},
    {XN_PADDING_EXPLICIT, 5, 1, 1, 9, 0, 0, 5, 0, 0, 1, 1},
    {XN_PADDING_EXPLICIT, 5, 1, INT32_MAX, INT32_MAX, 0, 0, 1, 0, 0, 1, 1},
    {XN_PADDING_EXPLICIT, 1, 2, 1, INT32_MAX - 2, INT32_MAX - 2, 0, 1, INT32_MAX - 2, 0, 1,
     INT32_MAX - 2},
    {XN_PADDING_EXPLICIT, 2, 1, INT32_MAX - 1, 1, INT32_MAX - 2, 0, 2, INT32_MAX - 2, 0,
     INT32_MAX - 1, 1},
    {XN_PADDING_VALID, 5, 3, 1, 1, 0, 0, 3, 0, 0, 1, 1},
    {XN_PADDING_VALID, 5, 5, 1, 1, 0, 0, 1, 0, 0, 1, 1},
    {XN_PADDING_VALID, 5, 6, 1, 1, 0, 0, 0, 0, 0, 0, 0},
    {XN_PADDING_SAME, 5, 3, 1, 1, 0, 0, 5, 1, 1, 1, 1},
    {XN_PADDING_SAME, 5, 4, 1, 1, 0, 0, 5, 1, 2, 1, 1},
    {XN_PADDING_SAME, 5, 2, 1, 1, 0, 0, 5, 0, 1, 1, 1},
    {XN_PADDING_SAME, 5, 1, 1, 1, 0, 0, 5, 0, 0, 1, 1},
    {XN_PADDING_SAME, 5, 4, 1, 3, 0, 0, 5, 4, 5, 1, 3},
    {XN_PADDING_SAME, 1, 7, 1, 1, 0, 0, 1, 3, 3, 1, 1},
    {XN_PADDING_SAME, 5, 3, 2, 1, 0, 0, 3, 1, 1, 2, 1},
    {XN_PADDING_SAME, 6, 3, 2, 1, 0, 0, 3, 0, 1, 2, 1},
    {XN_PADDING_SAME, 7, 2, 3, 1, 0, 0, 3, 0, 1, 3, 1},
    {XN_PADDING_SAME, 6, 1, 3, 1, 0, 0, 2, 0, 0, 3, 1}, /* total would be negative */
    {XN_PADDING_SAME, 7, 3, 5, 2, 0, 0, 2, 1, 2, 5, 2},
    {XN_PADDING_SAME, 3, 3, 5, 1, 0, 0, 1, 0, 0, 1, 1},
};
enum { AXES = sizeof axes / sizeof *axes };

static problem axis_problem(const struct axis_case *a, int horizontal) {
    problem p = base();
    p.input = (xn_shape){4, {1, 1, 1, 1}};
    p.weights = (xn_weights_shape){.dims = {1, 1, 1, 1}};
    p.input.dims[2 + horizontal] = a->size;
    p.weights.dims[2 + horizontal] = a->kernel;
    p.params.stride[horizontal] = a->stride;
    p.params.dilation[horizontal] = a->dilation;
    p.params.padding_kind = a->kind;
    p.params.padding[horizontal] = a->before;
    p.params.padding[2 + horizontal] = a->after;
    return p;
}

START_TEST(one_axis) {
    const struct axis_case *a = &axes[_i / 2];
    int horizontal = _i % 2;
    problem p = axis_problem(a, horizontal);
    xn_conv v;
    int64_t images;
    xn_error error = {0};
    xn_status status = resolve(&p, &v, &images, &error);
    if (a->out == 0) {
        ck_assert_int_eq(status, XN_ERR_GEOMETRY);
        ck_assert_str_eq(error.field, "weights.shape");
        ck_assert_ptr_nonnull(
            strstr(error.message, horizontal ? "weights.shape[3]" : "weights.shape[2]"));
        return;
    }
    ck_assert_msg(status == XN_OK, "case %d: %s", _i, error.message);
    int32_t got[5] = {v.out_height, v.pad_top, v.pad_bottom, v.stride_h, v.dilation_h};
    int32_t other[5] = {v.out_width, v.pad_left, v.pad_right, v.stride_w, v.dilation_w};
    int32_t expected[5] = {a->out, a->pad_before, a->pad_after, a->stride_out, a->dilation_out};
    int32_t plain[5] = {1, 0, 0, 1, 1};
    for (int i = 0; i < 5; i++) {
        ck_assert_msg((horizontal ? other : got)[i] == expected[i],
                      "case %d value %d is %d, not %d", _i, i, (horizontal ? other : got)[i],
                      expected[i]);
        ck_assert_int_eq((horizontal ? got : other)[i], plain[i]);
    }
}
END_TEST

/* The definitions by counting: outputs are the places where the whole kernel fits the padded
 * image; "same" gives ceil(size / stride) of them with the least padding that does. */
START_TEST(geometry_by_counting) {
    for (int64_t size = 1; size <= 9; size++) {
        for (int64_t kernel = 1; kernel <= 5; kernel++) {
            for (int64_t stride = 1; stride <= 4; stride++) {
                for (int64_t dilation = 1; dilation <= 3; dilation++) {
                    struct axis_case a = {
                        XN_PADDING_SAME, size, kernel, stride, dilation, 0, 0, 0, 0, 0, 0, 0};
                    problem p = axis_problem(&a, 1);
                    xn_conv v;
                    int64_t images, fits = 0;
                    ck_assert_int_eq(resolve(&p, &v, &images, NULL), XN_OK);
                    int64_t total = v.pad_left + v.pad_right, extent = dilation * (kernel - 1) + 1;
                    for (int64_t x = 0; x + extent <= size + total; x += stride)
                        fits++;
                    ck_assert_int_eq(v.out_width, fits);
                    ck_assert_int_eq(v.out_width, (size + stride - 1) / stride);
                    ck_assert(v.pad_right - v.pad_left == 0 || v.pad_right - v.pad_left == 1);
                    if (total > 0) /* one less and the last output would not fit */
                        ck_assert_int_gt((fits - 1) * stride + extent, size + total - 1);
                }
            }
        }
    }
}
END_TEST

/* ---- refusals ---- */

static void expect_refused(const problem *p, const char *edit, xn_status expected,
                           const char *field, const char *limit, const char *text) {
    xn_error error = {0};
    xn_conv conv, untouched;
    int64_t images = -9;
    memset(&conv, 0x5a, sizeof conv);
    untouched = conv;
    xn_status status = resolve(p, &conv, &images, &error);
    ck_assert_msg(status == expected && error.status == status, "%s: %s, \"%s\"", edit,
                  xn_status_name(status), error.message);
    ck_assert_msg(!strcmp(error.field, field), "%s: field \"%s\"", edit, error.field);
    ck_assert_msg(!strcmp(error.limit, limit), "%s: limit \"%s\"", edit, error.limit);
    ck_assert_msg(strstr(error.message, text) != NULL, "%s: \"%s\"", edit, error.message);
    ck_assert_uint_lt(strlen(error.message), sizeof error.message - 1);
    ck_assert(equal(&conv, &untouched));
    ck_assert_int_eq(images, -9);
    ck_assert_int_eq(resolve(p, &conv, &images, NULL), status);
}

/* The base, edited so, is refused with that status, field and limit, and a text that holds that. */
#define REFUSED(status, field, limit, text, ...)                                                   \
    do {                                                                                           \
        problem edited = base(), *p = &edited;                                                     \
        __VA_ARGS__;                                                                               \
        expect_refused(p, #__VA_ARGS__, status, field, limit, text);                               \
    } while (0)
#define MALFORMED(field, text, ...) REFUSED(XN_ERR_MALFORMED, field, "", text, __VA_ARGS__)
#define GEOMETRY(field, text, ...) REFUSED(XN_ERR_GEOMETRY, field, "", text, __VA_ARGS__)
#define OVER_LIMIT(limit, field, text, ...) REFUSED(XN_ERR_LIMIT, field, limit, text, __VA_ARGS__)

START_TEST(parameters_that_are_refused) {
    MALFORMED("stride", "stride[1] is 0; it must be from 1", p->params.stride[1] = 0);
    MALFORMED("stride", "stride[0] is -3", p->params.stride[0] = -3);
    MALFORMED("stride", "to 2147483647", p->params.stride[0] = (int64_t)1 << 31);
    MALFORMED("dilation", "dilation[0] is 0", p->params.dilation[0] = 0);
    MALFORMED("dilation", "9223372036854775807", p->params.dilation[1] = INT64_MAX);
    GEOMETRY("dilation", "width of 3 over 2147483649", p->params.dilation[1] = 1 << 30);
    MALFORMED("padding", "padding[3] is -1", p->params.padding[3] = -1);
    MALFORMED("padding", "padding[2] is 1099511627776", p->params.padding[2] = (int64_t)1 << 40);
    GEOMETRY("padding", "height 2147483656", p->params.padding[0] = INT32_MAX;
             p->params.stride[0] = INT32_MAX);
    GEOMETRY("padding", "height 2147483650", p->params.padding_kind = XN_PADDING_SAME;
             p->params.dilation[0] = (1 << 30) - 1; p->input.dims[2] = 4);
    MALFORMED("padding", "\"same\" or \"valid\"", p->params.padding_kind = (xn_padding_kind)7);
    MALFORMED("groups", "groups is 0", p->params.groups = 0);
    MALFORMED("groups", "groups is -922", p->params.groups = INT64_MIN);
    MALFORMED("groups", "groups is 4294967296", p->params.groups = (int64_t)1 << 32);
    GEOMETRY("groups", "input has 4 channels", p->params.groups = 3; p->weights.dims[1] = 1);
    GEOMETRY("groups", "weights have 6 output", p->params.groups = 4; p->weights.dims[1] = 1);
    MALFORMED("pad_value", "2; it must be -1, 0 or 1", p->params.pad_value = 2);
    MALFORMED("pad_value", "is -2", p->params.pad_value = -2);
    MALFORMED("scaling", "expected \"xnor\"", p->params.scaling = (xn_scaling)3);
    MALFORMED("mode", "expected \"xnor\"", p->params.mode = (xn_mode)-1);
    MALFORMED("precision", "expected \"fp32\"", p->params.precision = (xn_precision)3);
}
END_TEST

START_TEST(datatypes_that_are_refused) {
    MALFORMED("input.datatype", "INT32; expected FP32", p->datatype = XN_INT32);
    MALFORMED("input.datatype", "expected FP32", p->datatype = XN_DATATYPE_COUNT);
    GEOMETRY("input.datatype", "choose mode \"xnor\"", p->datatype = XN_BITS;
             p->params.mode = XN_MODE_FLOAT);
    GEOMETRY("scaling", "choose scaling \"alpha\"", p->datatype = XN_BITS;
             p->params.scaling = XN_SCALING_XNOR);
    GEOMETRY("input.datatype", "send INT8 of 1 and -1, BOOL", p->datatype = XN_UINT8);
    GEOMETRY("weights.datatype", "negative values", p->weights.datatype = XN_UINT8);
    MALFORMED("output_datatype", "BF16; expected FP32", p->params.output_datatype = XN_BF16);
    MALFORMED("output_datatype", "expected FP32", p->params.output_datatype = (xn_datatype)-2);
    MALFORMED("output_datatype", "scaling is \"xnor\"", p->params.output_datatype = XN_INT32);
    MALFORMED("output_datatype", "scaling is \"alpha\"", p->params.output_datatype = XN_INT32;
              p->params.scaling = XN_SCALING_ALPHA);
    MALFORMED("output_datatype", "mode is \"bwn\"", p->params.output_datatype = XN_INT32;
              p->params.scaling = XN_SCALING_NONE; p->params.mode = XN_MODE_BWN);
    MALFORMED("bias", "bias is given, or registered with", p->params.output_datatype = XN_INT32;
              p->params.scaling = XN_SCALING_NONE; p->weights.has_bias = true);
    MALFORMED("scale", "scaling is \"none\"", p->params.scaling = XN_SCALING_NONE;
              p->weights.has_scale = true);
    MALFORMED("scale", "scale is given", p->params.scaling = XN_SCALING_NONE;
              p->params.mode = XN_MODE_FLOAT; p->weights.has_scale = true);
}
END_TEST

START_TEST(shapes_that_are_refused) {
    GEOMETRY("input.shape", "3 dimensions; it must be [N", p->input.rank = 3);
    GEOMETRY("input.shape", "5 dimensions", p->input.rank = 5; p->input.dims[4] = 1);
    MALFORMED("input.shape", "input.shape[0] is 0", p->input.dims[0] = 0);
    MALFORMED("input.shape", "shape[3] is -10", p->input.dims[3] = -10);
    GEOMETRY("input.shape", "[3] is 2147483648", p->input.dims[3] = (int64_t)1 << 31);
    MALFORMED("weights.shape", "shape[3] is 0", p->weights.dims[3] = 0);
    GEOMETRY("weights.shape", "[0] is 2147483648", p->weights.dims[0] = (int64_t)1 << 31);
    GEOMETRY("weights.shape",
             "weights.shape[1] is 3; input has 4 channels and groups is 1, so it must be 4",
             p->weights.dims[1] = 3);
    GEOMETRY("weights.shape", "must be 2", p->params.groups = 2);
    GEOMETRY("weights.shape", "1048576 x 2048 x 3", p->input.dims[1] = p->weights.dims[1] = 1 << 20;
             p->weights.dims[2] = 1 << 11);
    GEOMETRY("weights.shape",
             "weights.shape[2] is 10, with dilation 1 a kernel over 10 rows; input height 9 plus "
             "padding 0 is only 9",
             p->weights.dims[2] = 10);
    GEOMETRY("weights.shape", "11 columns", p->params.dilation[1] = 5; p->params.padding[1] = 0);
    OVER_LIMIT("max-elements", "input.shape", "elements", p->input.dims[0] = INT64_MAX);
    OVER_LIMIT("max-elements", "weights.shape", "",
               p->weights.dims[0] = p->weights.dims[1] = p->weights.dims[2] = p->weights.dims[3] =
                   INT32_MAX);
    OVER_LIMIT("max-elements", "output.shape", "[10995", p->input.dims[0] = (int64_t)1 << 40;
               p->input.dims[1] = p->weights.dims[1] = 1; p->weights.dims[0] = INT32_MAX);
    OVER_LIMIT("max-operations", "input.shape", "1048576 operations each",
               p->input = ((xn_shape){4, {1 << 30, 1, 1, 1}});
               p->params.padding[0] = p->params.padding[1] = 1 << 14;
               p->weights = ((xn_weights_shape){.dims = {1 << 2, 1, 1 << 10, 1 << 10}}));
}
END_TEST

/* What is refused only in company is fine alone. */
START_TEST(accepted_nearby) {
    problem p = base();
    xn_conv conv;
    int64_t images;
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), XN_OK);
    p.params.scaling = XN_SCALING_NONE;
    p.weights.has_bias = true;
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), XN_OK);
    p.weights.has_bias = false;
    p.params.output_datatype = XN_INT32;
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), XN_OK);
    p = base();
    p.datatype = p.weights.datatype = XN_BOOL;
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), XN_OK);
    p.datatype = p.weights.datatype = XN_UINT8;
    p.params.mode = XN_MODE_BWN;
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), XN_OK);
    p.params.mode = XN_MODE_FLOAT;
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), XN_OK);
    p = base();
    p.params.padding_kind = XN_PADDING_VALID;
    p.params.padding[0] = -5; /* not read */
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), XN_OK);
    ck_assert_int_eq(conv.pad_top, 0);
}
END_TEST

/* ---- limits, each at its edge ---- */

START_TEST(limits_hold_at_their_edge) {
    enum { INPUT = 2 * 4 * 9 * 10, WEIGHTS = 6 * 4 * 9, OUTPUT = 2 * 6 * 7 * 8 };
    xn_conv conv;
    int64_t images;
    for (int off = -1; off <= 0; off++) {
        problem p = base();
        xn_error error = {0};
        p.limits.max_elements = INPUT + off;
        ck_assert_int_eq(resolve(&p, &conv, &images, &error), off ? XN_ERR_LIMIT : XN_OK);
        ck_assert_str_eq(error.field, off ? "input.shape" : "");

        p = base();
        p.input = (xn_shape){4, {1, 4, 3, 3}}; /* the weights are the largest */
        p.limits.max_elements = WEIGHTS + off;
        ck_assert_int_eq(resolve(&p, &conv, &images, &error), off ? XN_ERR_LIMIT : XN_OK);
        ck_assert_str_eq(error.field, off ? "weights.shape" : "");

        p = base();
        p.params.padding[0] = p.params.padding[2] = 50; /* the output is */
        p.limits.max_elements = 2 * 6 * 107 * 8 + off;
        ck_assert_int_eq(resolve(&p, &conv, &images, &error), off ? XN_ERR_LIMIT : XN_OK);
        ck_assert_str_eq(error.field, off ? "output.shape" : "");
        ck_assert_str_eq(error.limit, off ? "max-elements" : "");

        p = base();
        p.limits.max_output_bytes = OUTPUT * 4 + off;
        ck_assert_int_eq(resolve(&p, &conv, &images, &error), off ? XN_ERR_LIMIT : XN_OK);
        ck_assert_str_eq(error.limit, off ? "max-output-bytes" : "");
        p.limits.max_output_bytes = OUTPUT * 2 + off;
        p.params.output_datatype = XN_FP16;
        ck_assert_int_eq(resolve(&p, &conv, &images, &error), off ? XN_ERR_LIMIT : XN_OK);

        p = base();
        p.limits.max_operations = OUTPUT * 36 + off;
        ck_assert_int_eq(resolve(&p, &conv, &images, &error), off ? XN_ERR_LIMIT : XN_OK);
        ck_assert_str_eq(error.limit, off ? "max-operations" : "");
    }
}
END_TEST

/* ---- equality and hash ---- */

/* Each int32 of the problem counts; what means the same is the same. */
START_TEST(equality_and_hash_see_every_field) {
    problem p = base();
    xn_conv conv, other;
    int64_t images;
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), XN_OK);
    for (size_t i = 0; i < sizeof conv / sizeof(int32_t); i++) {
        int32_t value;
        other = conv;
        memcpy(&value, (char *)&other + i * sizeof value, sizeof value);
        value ^= 1;
        memcpy((char *)&other + i * sizeof value, &value, sizeof value);
        ck_assert_msg(!equal(&conv, &other), "field %zu", i);
        ck_assert_msg(hash_of(&conv) != hash_of(&other), "field %zu", i);
    }
    problem same = base(), explicit = base();
    same.params.padding_kind = XN_PADDING_SAME;
    for (int i = 0; i < 4; i++)
        explicit.params.padding[i] = 1;
    same.input.dims[0] = 99; /* the number of images is no part of it */
    ck_assert_int_eq(resolve(&same, &conv, &images, NULL), XN_OK);
    ck_assert_int_eq(images, 99);
    ck_assert_int_eq(resolve(&explicit, &other, &images, NULL), XN_OK);
    ck_assert(equal(&conv, &other));
    ck_assert_uint_eq(hash_of(&conv), hash_of(&other));
    explicit.params.precision = XN_PRECISION_FP16; /* no part of mode xnor */
    ck_assert_int_eq(resolve(&explicit, &other, &images, NULL), XN_OK);
    ck_assert(equal(&conv, &other));
    explicit.params.mode = XN_MODE_BWN;
    ck_assert_int_eq(resolve(&explicit, &other, &images, NULL), XN_OK);
    ck_assert_int_eq(other.precision, XN_PRECISION_FP16);
}
END_TEST

XN_SUITE(conv) {
    Suite *s = suite_create("conv");
    TCase *t = xn_test_case(s, "conv", 60);
    tcase_add_test(t, defaults);
    tcase_add_test(t, names);
    tcase_add_test(t, every_field_is_filled);
    tcase_add_loop_test(t, one_axis, 0, 2 * AXES);
    tcase_add_test(t, geometry_by_counting);
    tcase_add_test(t, parameters_that_are_refused);
    tcase_add_test(t, datatypes_that_are_refused);
    tcase_add_test(t, shapes_that_are_refused);
    tcase_add_test(t, accepted_nearby);
    tcase_add_test(t, limits_hold_at_their_edge);
    tcase_add_test(t, equality_and_hash_see_every_field);
    return s;
}
