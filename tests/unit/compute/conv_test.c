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

#define EDIT(name_, ...)                                                                           \
    static void name_(problem *p) {                                                                \
        __VA_ARGS__;                                                                               \
    }
EDIT(stride_0, p->params.stride[1] = 0)
EDIT(stride_negative, p->params.stride[0] = -3)
EDIT(stride_huge, p->params.stride[0] = (int64_t)1 << 31)
EDIT(dilation_0, p->params.dilation[0] = 0)
EDIT(dilation_huge, p->params.dilation[1] = INT64_MAX)
EDIT(dilation_wide, p->params.dilation[1] = 1 << 30)
EDIT(padding_negative, p->params.padding[3] = -1)
EDIT(padding_huge, p->params.padding[2] = (int64_t)1 << 40)
EDIT(padding_sum, p->params.padding[0] = INT32_MAX; p->params.stride[0] = INT32_MAX)
EDIT(padding_same_sum, p->params.padding_kind = XN_PADDING_SAME;
     p->params.dilation[0] = (1 << 30) - 1; p->input.dims[2] = 4)
EDIT(padding_kind, p->params.padding_kind = (xn_padding_kind)7)
EDIT(groups_0, p->params.groups = 0)
EDIT(groups_negative, p->params.groups = INT64_MIN)
EDIT(groups_huge, p->params.groups = (int64_t)1 << 32)
EDIT(groups_input, p->params.groups = 3; p->weights.dims[1] = 1)
EDIT(groups_output, p->params.groups = 4; p->weights.dims[1] = 1)
EDIT(pad_value_2, p->params.pad_value = 2)
EDIT(pad_value_negative, p->params.pad_value = -2)
EDIT(scaling_odd, p->params.scaling = (xn_scaling)3)
EDIT(mode_odd, p->params.mode = (xn_mode)-1)
EDIT(precision_odd, p->params.precision = (xn_precision)3)
EDIT(input_int32, p->datatype = XN_INT32)
EDIT(input_odd, p->datatype = XN_DATATYPE_COUNT)
EDIT(bits_values, p->datatype = XN_BITS; p->params.mode = XN_MODE_FLOAT)
EDIT(bits_scaled, p->datatype = XN_BITS; p->params.scaling = XN_SCALING_XNOR)
EDIT(input_uint8, p->datatype = XN_UINT8)
EDIT(weights_uint8, p->weights.datatype = XN_UINT8)
EDIT(output_bf16, p->params.output_datatype = XN_BF16)
EDIT(output_odd, p->params.output_datatype = (xn_datatype)-2)
EDIT(int32_scaled, p->params.output_datatype = XN_INT32)
EDIT(int32_alpha, p->params.output_datatype = XN_INT32; p->params.scaling = XN_SCALING_ALPHA)
EDIT(int32_bwn, p->params.output_datatype = XN_INT32; p->params.scaling = XN_SCALING_NONE;
     p->params.mode = XN_MODE_BWN)
EDIT(int32_bias, p->params.output_datatype = XN_INT32; p->params.scaling = XN_SCALING_NONE;
     p->weights.has_bias = true)
EDIT(scale_none, p->params.scaling = XN_SCALING_NONE; p->weights.has_scale = true)
EDIT(scale_none_float, p->params.scaling = XN_SCALING_NONE; p->params.mode = XN_MODE_FLOAT;
     p->weights.has_scale = true)
EDIT(input_rank, p->input.rank = 3)
EDIT(input_rank_5, p->input.rank = 5; p->input.dims[4] = 1)
EDIT(input_zero, p->input.dims[0] = 0)
EDIT(input_negative, p->input.dims[3] = -10)
EDIT(input_wide, p->input.dims[3] = (int64_t)1 << 31)
EDIT(weights_zero, p->weights.dims[3] = 0)
EDIT(weights_many, p->weights.dims[0] = (int64_t)1 << 31)
EDIT(weights_channels, p->weights.dims[1] = 3)
EDIT(weights_depthwise, p->params.groups = 2)
EDIT(weights_filter, p->input.dims[1] = p->weights.dims[1] = 1 << 20; p->weights.dims[2] = 1 << 11)
EDIT(kernel_tall, p->weights.dims[2] = 10)
EDIT(kernel_dilated, p->params.dilation[1] = 5; p->params.padding[1] = 0)
EDIT(input_overflow, p->input.dims[0] = INT64_MAX)
EDIT(weights_overflow,
     p->weights.dims[0] = p->weights.dims[1] = p->weights.dims[2] = p->weights.dims[3] = INT32_MAX)
EDIT(output_overflow, p->input.dims[0] = (int64_t)1 << 40;
     p->input.dims[1] = p->weights.dims[1] = 1; p->weights.dims[0] = INT32_MAX)
EDIT(operations_overflow, p->input = ((xn_shape){4, {1 << 30, 1, 1, 1}});
     p->params.padding[0] = p->params.padding[1] = 1 << 14;
     p->weights = ((xn_weights_shape){.dims = {1 << 2, 1, 1 << 10, 1 << 10}}))

static const struct {
    const char *name;
    void (*edit)(problem *);
    xn_status status;
    const char *field, *limit, *text;
} refusals[] = {
    {"stride_0", stride_0, XN_ERR_MALFORMED, "stride", "", "stride[1] is 0; it must be from 1"},
    {"stride_negative", stride_negative, XN_ERR_MALFORMED, "stride", "", "stride[0] is -3"},
    {"stride_huge", stride_huge, XN_ERR_MALFORMED, "stride", "", "to 2147483647"},
    {"dilation_0", dilation_0, XN_ERR_MALFORMED, "dilation", "", "dilation[0] is 0"},
    {"dilation_huge", dilation_huge, XN_ERR_MALFORMED, "dilation", "", "9223372036854775807"},
    {"dilation_wide", dilation_wide, XN_ERR_GEOMETRY, "dilation", "", "width of 3 over 2147483649"},
    {"padding_negative", padding_negative, XN_ERR_MALFORMED, "padding", "", "padding[3] is -1"},
    {"padding_huge", padding_huge, XN_ERR_MALFORMED, "padding", "", "padding[2] is 1099511627776"},
    {"padding_sum", padding_sum, XN_ERR_GEOMETRY, "padding", "", "height 2147483656"},
    {"padding_same_sum", padding_same_sum, XN_ERR_GEOMETRY, "padding", "", "height 2147483650"},
    {"padding_kind", padding_kind, XN_ERR_MALFORMED, "padding", "", "\"same\" or \"valid\""},
    {"groups_0", groups_0, XN_ERR_MALFORMED, "groups", "", "groups is 0"},
    {"groups_negative", groups_negative, XN_ERR_MALFORMED, "groups", "", "groups is -922"},
    {"groups_huge", groups_huge, XN_ERR_MALFORMED, "groups", "", "groups is 4294967296"},
    {"groups_input", groups_input, XN_ERR_GEOMETRY, "groups", "", "input has 4 channels"},
    {"groups_output", groups_output, XN_ERR_GEOMETRY, "groups", "", "weights have 6 output"},
    {"pad_value_2", pad_value_2, XN_ERR_MALFORMED, "pad_value", "", "2; it must be -1, 0 or 1"},
    {"pad_value_negative", pad_value_negative, XN_ERR_MALFORMED, "pad_value", "", "is -2"},
    {"scaling_odd", scaling_odd, XN_ERR_MALFORMED, "scaling", "", "expected \"xnor\""},
    {"mode_odd", mode_odd, XN_ERR_MALFORMED, "mode", "", "expected \"xnor\""},
    {"precision_odd", precision_odd, XN_ERR_MALFORMED, "precision", "", "expected \"fp32\""},
    {"input_int32", input_int32, XN_ERR_MALFORMED, "input.datatype", "", "INT32; expected FP32"},
    {"input_odd", input_odd, XN_ERR_MALFORMED, "input.datatype", "", "expected FP32"},
    {"bits_values", bits_values, XN_ERR_GEOMETRY, "input.datatype", "", "choose mode \"xnor\""},
    {"bits_scaled", bits_scaled, XN_ERR_GEOMETRY, "scaling", "", "choose scaling \"alpha\""},
    {"input_uint8", input_uint8, XN_ERR_GEOMETRY, "input.datatype", "",
     "send INT8 of 1 and -1, BOOL"},
    {"weights_uint8", weights_uint8, XN_ERR_GEOMETRY, "weights.datatype", "", "negative values"},
    {"output_bf16", output_bf16, XN_ERR_MALFORMED, "output_datatype", "", "BF16; expected FP32"},
    {"output_odd", output_odd, XN_ERR_MALFORMED, "output_datatype", "", "expected FP32"},
    {"int32_scaled", int32_scaled, XN_ERR_MALFORMED, "output_datatype", "", "scaling is \"xnor\""},
    {"int32_alpha", int32_alpha, XN_ERR_MALFORMED, "output_datatype", "", "scaling is \"alpha\""},
    {"int32_bwn", int32_bwn, XN_ERR_MALFORMED, "output_datatype", "", "mode is \"bwn\""},
    {"int32_bias", int32_bias, XN_ERR_MALFORMED, "bias", "", "bias is given, or registered with"},
    {"scale_none", scale_none, XN_ERR_MALFORMED, "scale", "", "scaling is \"none\""},
    {"scale_none_float", scale_none_float, XN_ERR_MALFORMED, "scale", "", "scale is given"},
    {"input_rank", input_rank, XN_ERR_GEOMETRY, "input.shape", "", "3 dimensions; it must be [N"},
    {"input_rank_5", input_rank_5, XN_ERR_GEOMETRY, "input.shape", "", "5 dimensions"},
    {"input_zero", input_zero, XN_ERR_MALFORMED, "input.shape", "", "input.shape[0] is 0"},
    {"input_negative", input_negative, XN_ERR_MALFORMED, "input.shape", "", "shape[3] is -10"},
    {"input_wide", input_wide, XN_ERR_GEOMETRY, "input.shape", "", "[3] is 2147483648"},
    {"weights_zero", weights_zero, XN_ERR_MALFORMED, "weights.shape", "", "shape[3] is 0"},
    {"weights_many", weights_many, XN_ERR_GEOMETRY, "weights.shape", "", "[0] is 2147483648"},
    {"weights_channels", weights_channels, XN_ERR_GEOMETRY, "weights.shape", "",
     "weights.shape[1] is 3; input has 4 channels and groups is 1, so it must be 4"},
    {"weights_depthwise", weights_depthwise, XN_ERR_GEOMETRY, "weights.shape", "", "must be 2"},
    {"weights_filter", weights_filter, XN_ERR_GEOMETRY, "weights.shape", "", "1048576 x 2048 x 3"},
    {"kernel_tall", kernel_tall, XN_ERR_GEOMETRY, "weights.shape", "",
     "weights.shape[2] is 10, with dilation 1 a kernel over 10 rows; input height 9 plus padding 0 "
     "is only 9"},
    {"kernel_dilated", kernel_dilated, XN_ERR_GEOMETRY, "weights.shape", "", "11 columns"},
    {"input_overflow", input_overflow, XN_ERR_LIMIT, "input.shape", "max-elements", "elements"},
    {"weights_overflow", weights_overflow, XN_ERR_LIMIT, "weights.shape", "max-elements", ""},
    {"output_overflow", output_overflow, XN_ERR_LIMIT, "output.shape", "max-elements", "[10995"},
    {"operations_overflow", operations_overflow, XN_ERR_LIMIT, "input.shape", "max-operations",
     "1048576 operations each"},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

START_TEST(refused) {
    problem p = base();
    xn_error error = {0};
    xn_conv conv, untouched;
    int64_t images = -9;
    memset(&conv, 0x5a, sizeof conv);
    untouched = conv;
    refusals[_i].edit(&p);
    xn_status status = resolve(&p, &conv, &images, &error);
    ck_assert_msg(status == refusals[_i].status && error.status == status, "%s: %s, \"%s\"",
                  refusals[_i].name, xn_status_name(status), error.message);
    ck_assert_msg(!strcmp(error.field, refusals[_i].field), "%s: field \"%s\"", refusals[_i].name,
                  error.field);
    ck_assert_msg(!strcmp(error.limit, refusals[_i].limit), "%s: limit \"%s\"", refusals[_i].name,
                  error.limit);
    ck_assert_msg(strstr(error.message, refusals[_i].text) != NULL, "%s: \"%s\"", refusals[_i].name,
                  error.message);
    ck_assert_uint_lt(strlen(error.message), sizeof error.message - 1);
    ck_assert(equal(&conv, &untouched));
    ck_assert_int_eq(images, -9);
    ck_assert_int_eq(resolve(&p, &conv, &images, NULL), status);
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
    TCase *t = tcase_create("conv");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, defaults);
    tcase_add_test(t, names);
    tcase_add_test(t, every_field_is_filled);
    tcase_add_loop_test(t, one_axis, 0, 2 * AXES);
    tcase_add_test(t, geometry_by_counting);
    tcase_add_loop_test(t, refused, 0, REFUSALS);
    tcase_add_test(t, accepted_nearby);
    tcase_add_test(t, limits_hold_at_their_edge);
    tcase_add_test(t, equality_and_hash_see_every_field);
    suite_add_tcase(s, t);
    return s;
}
