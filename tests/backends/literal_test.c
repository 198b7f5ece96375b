/* The oracle of the oracle: convolutions small enough to work out by hand, with what the formulas
 * of xn_conv.h give written out as numbers. Every target must give them; ref to the last bit. */
#include "bk_run.h"

#include "xn_mem.h"

#include <math.h>
#include <string.h>

typedef struct literal {
    const char *name;
    int64_t input[4], weights[4]; /* shapes */
    const void *values;           /* of the input; the rest is fp32 */
    const float *kernel, *scale, *bias;
    xn_datatype datatype, output;
    xn_mode mode;
    xn_scaling scaling;
    int64_t stride[2], dilation[2], padding[4], groups;
    int pad_value;
    int count;
    double expected[16];
} literal;

#define F(...) ((const float[]){__VA_ARGS__})

static const uint16_t halves[] = {0x3c00, 0xc000, 0x8000, 0x7bff}; /* 1, -2, -0, 65504 */
static const uint16_t brains[] = {0x3f80, 0xc000, 0x8000, 0x4049}; /* 1, -2, -0, 3.140625 */
static const int8_t ints[] = {-128, 127, 0, -1};
static const uint8_t bytes[] = {0, 1, 200, 255};

#define STEP .stride = {1, 1}, .dilation = {1, 1}, .groups = 1
#define INT32_DOT .output = XN_INT32, .scaling = XN_SCALING_NONE
#define NINE(v) v, v, v, v, v, v, v, v, v
#define FOUR_BY_NINE(v) NINE(v), NINE(v), NINE(v), NINE(v)
#define SIXTEEN(v) v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v

static const literal literals[] = {
    {"checkerboard",
     {1, 1, 3, 3},
     {1, 1, 2, 2},
     F(1, -2, 3, -4, 5, -6, 7, -8, 9),
     F(0.5f, -0.5f, -0.5f, 0.5f),
     STEP,
     .count = 4,
     .expected = {6, -8, -12, 14}},
    {"signs of inputs",
     {1, 1, 1, 6},
     {1, 1, 1, 1},
     F(0, -0.0f, NAN, -1, INFINITY, -INFINITY),
     F(7),
     STEP,
     INT32_DOT,
     .count = 6,
     .expected = {1, 1, -1, -1, 1, -1}},
    {"signs of weights",
     {1, 1, 1, 1},
     {6, 1, 1, 1},
     F(3),
     F(0, -0.0f, NAN, -1, INFINITY, -INFINITY),
     STEP,
     INT32_DOT,
     .count = 6,
     .expected = {1, 1, -1, -1, 1, -1}},
    {"border of 0",
     {1, 1, 1, 1},
     {1, 1, 3, 3},
     F(2),
     F(1, 1, 1, 1, -1, 1, 1, 1, 1),
     STEP,
     INT32_DOT,
     .padding = {1, 1, 1, 1},
     .count = 1,
     .expected = {-1}},
    {"border of 1",
     {1, 1, 1, 1},
     {1, 1, 3, 3},
     F(2),
     F(1, 1, 1, 1, -1, 1, 1, 1, 1),
     STEP,
     INT32_DOT,
     .padding = {1, 1, 1, 1},
     .pad_value = 1,
     .count = 1,
     .expected = {7}},
    {"border of -1",
     {1, 1, 1, 1},
     {1, 1, 3, 3},
     F(2),
     F(1, 1, 1, 1, -1, 1, 1, 1, 1),
     STEP,
     INT32_DOT,
     .padding = {1, 1, 1, 1},
     .pad_value = -1,
     .count = 1,
     .expected = {-9}},
    {"K ignores pad_value and divides by the whole kernel",
     {1, 1, 1, 1},
     {1, 1, 3, 3},
     F(18),
     F(1, 1, 1, 1, -1, 1, 1, 1, 1),
     STEP,
     .padding = {1, 1, 1, 1},
     .pad_value = 1,
     .count = 1,
     .expected = {7 * 2}},
    {"sides of the padding",
     {1, 1, 1, 1},
     {1, 1, 1, 1},
     F(5),
     F(2),
     STEP,
     .mode = XN_MODE_FLOAT,
     .padding = {1, 2, 0, 1},
     .count = 8,
     .expected = {0, 0, 0, 0, 0, 0, 10, 0}},
    {"stride and dilation",
     {1, 1, 1, 6},
     {1, 1, 1, 2},
     F(1, 2, 3, 4, 5, 6),
     F(1, 10),
     .groups = 1,
     .stride = {1, 2},
     .dilation = {1, 2},
     .mode = XN_MODE_FLOAT,
     .padding = {0, 1, 0, 0},
     .count = 3,
     .expected = {20, 42, 64}},
    {"stride and dilation over -1",
     {1, 1, 1, 6},
     {1, 1, 1, 2},
     F(1, 2, 3, 4, 5, 6),
     F(1, 10),
     .groups = 1,
     .stride = {1, 2},
     .dilation = {1, 2},
     .mode = XN_MODE_FLOAT,
     .padding = {0, 1, 0, 0},
     .pad_value = -1,
     .count = 3,
     .expected = {19, 42, 64}},
    {"rows stride",
     {1, 1, 6, 1},
     {1, 1, 2, 1},
     F(1, 2, 3, 4, 5, 6),
     F(1, 10),
     .groups = 1,
     .stride = {3, 1},
     .dilation = {2, 1},
     .mode = XN_MODE_FLOAT,
     .count = 2,
     .expected = {31, 64}},
    {"no flip: cross-correlation",
     {1, 1, 2, 2},
     {1, 1, 2, 2},
     F(1, 2, 3, 4),
     F(1, 10, 100, 1000),
     STEP,
     .mode = XN_MODE_FLOAT,
     .count = 1,
     .expected = {4321}},
    {"bwn",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     STEP,
     .mode = XN_MODE_BWN,
     .count = 1,
     .expected = {5}},
    {"bwn, scaling none",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     STEP,
     .mode = XN_MODE_BWN,
     .scaling = XN_SCALING_NONE,
     .count = 1,
     .expected = {2.5}},
    {"bwn, scale and bias",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     F(3),
     F(1),
     STEP,
     .mode = XN_MODE_BWN,
     .count = 1,
     .expected = {8.5}},
    {"float",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     STEP,
     .mode = XN_MODE_FLOAT,
     .count = 1,
     .expected = {3.5}},
    {"float, scale and bias",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     F(2),
     F(1),
     STEP,
     .mode = XN_MODE_FLOAT,
     .count = 1,
     .expected = {8}},
    {"float, bias",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     NULL,
     F(1),
     STEP,
     .mode = XN_MODE_FLOAT,
     .scaling = XN_SCALING_NONE,
     .count = 1,
     .expected = {4.5}},
    {"xnor, scale and bias",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     F(10),
     F(100),
     STEP,
     .count = 1,
     .expected = {2 * 10 * 1.25 + 100}},
    {"alpha",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     STEP,
     .scaling = XN_SCALING_ALPHA,
     .count = 1,
     .expected = {2 * 2}},
    {"none with bias",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(0.5f, -2),
     F(3, -1),
     NULL,
     F(0.25f),
     STEP,
     .scaling = XN_SCALING_NONE,
     .count = 1,
     .expected = {2.25}},
    {"groups, float",
     {1, 4, 1, 1},
     {2, 2, 1, 1},
     F(1, 2, 3, 4),
     F(10, 100, 20, 200),
     .stride = {1, 1},
     .dilation = {1, 1},
     .groups = 2,
     .mode = XN_MODE_FLOAT,
     .count = 2,
     .expected = {210, 860}},
    {"groups have each their K",
     {1, 4, 1, 1},
     {2, 2, 1, 1},
     F(1, 2, 3, 4),
     F(10, 100, -10, -100),
     .stride = {1, 1},
     .dilation = {1, 1},
     .groups = 2,
     .count = 2,
     .expected = {165, -385}},
    {"images, filters, places in order",
     {2, 1, 1, 2},
     {2, 1, 1, 1},
     F(1, 2, 3, 4),
     F(10, -100),
     STEP,
     .mode = XN_MODE_FLOAT,
     .count = 8,
     .expected = {10, 20, -100, -200, 30, 40, -300, -400}},
    {"0 outside times NaN is nothing",
     {1, 1, 1, 1},
     {1, 1, 1, 3},
     F(1),
     F(NAN, 2, INFINITY),
     STEP,
     .mode = XN_MODE_FLOAT,
     .padding = {0, 1, 0, 1},
     .count = 1,
     .expected = {2}},
    {"1 outside times infinity",
     {1, 1, 1, 1},
     {1, 1, 1, 2},
     F(1),
     F(2, INFINITY),
     STEP,
     .mode = XN_MODE_FLOAT,
     .padding = {0, 0, 0, 1},
     .pad_value = 1,
     .count = 1,
     .expected = {INFINITY}},
    {"NaN and infinity through K only where the box sees them",
     {1, 1, 1, 5},
     {1, 1, 1, 2},
     F(INFINITY, 1, 3, NAN, 1),
     F(1, 1),
     STEP,
     .count = 4,
     .expected = {INFINITY, 4, NAN, NAN}},
    {"a dot of 0 times infinity",
     {1, 1, 1, 2},
     {1, 1, 1, 2},
     F(INFINITY, 1),
     F(1, -1),
     STEP,
     .count = 1,
     .expected = {NAN}},
    {"bias NaN and infinity",
     {1, 1, 1, 1},
     {3, 1, 1, 1},
     F(1),
     F(1, 1, 1),
     NULL,
     F(NAN, INFINITY, -INFINITY),
     STEP,
     .count = 3,
     .expected = {NAN, INFINITY, -INFINITY}},
    {"alpha 0",
     {1, 1, 1, 2},
     {1, 1, 1, 1},
     F(5, -5),
     F(-0.0f),
     STEP,
     .count = 2,
     .expected = {0, 0}},
    {"mean of values whose sum passes fp32",
     {1, 2, 1, 1},
     {1, 2, 1, 1},
     F(3e38f, 3e38f),
     F(0.5f, 0.5f),
     STEP,
     .count = 1,
     .expected = {(double)3e38f}},
    {"fp16 output",
     {1, 1, 1, 5},
     {1, 1, 1, 1},
     F(0.333333333f, 65519, 65520, -1e9f, 1e-8f),
     F(1),
     STEP,
     .mode = XN_MODE_FLOAT,
     .output = XN_FP16,
     .count = 5,
     .expected = {0x1.554p-2, 65504, INFINITY, -INFINITY, 0}},
    {"fp16 input",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     halves,
     F(1),
     STEP,
     .datatype = XN_FP16,
     .mode = XN_MODE_FLOAT,
     .count = 4,
     .expected = {1, -2, 0, 65504}},
    {"fp16 signs",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     halves,
     F(1),
     STEP,
     INT32_DOT,
     .datatype = XN_FP16,
     .count = 4,
     .expected = {1, -1, 1, 1}},
    {"bf16 input",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     brains,
     F(1),
     STEP,
     .datatype = XN_BF16,
     .mode = XN_MODE_FLOAT,
     .count = 4,
     .expected = {1, -2, 0, 3.140625}},
    {"int8 input",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     ints,
     F(2),
     STEP,
     .datatype = XN_INT8,
     .count = 4,
     .expected = {-256, 254, 0, -2}},
    {"uint8 input",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     bytes,
     F(2),
     STEP,
     .datatype = XN_UINT8,
     .mode = XN_MODE_BWN,
     .count = 4,
     .expected = {0, 2, 400, 510}},
    {"bool input: a sign of magnitude 1",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     bytes,
     F(-2),
     STEP,
     .datatype = XN_BOOL,
     .count = 4,
     .expected = {2, -2, -2, -2}},
    {"bool input of bwn: 0 or 1",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     bytes,
     F(-2),
     STEP,
     .datatype = XN_BOOL,
     .mode = XN_MODE_BWN,
     .count = 4,
     .expected = {0, -2, -2, -2}},
    {"bool input of float: 0 or 1",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     bytes,
     F(-2),
     STEP,
     .datatype = XN_BOOL,
     .mode = XN_MODE_FLOAT,
     .count = 4,
     .expected = {0, -2, -2, -2}},
    {"one output a row, of a stride past its end",
     {1, 1, 3, 2},
     {1, 1, 1, 1},
     F(1, -2, 3, -4, -5, 6),
     F(1),
     INT32_DOT,
     .stride = {1, 2},
     .dilation = {1, 1},
     .groups = 1,
     .count = 3,
     .expected = {1, 1, -1}},
    {"bool signs",
     {1, 1, 1, 4},
     {1, 1, 1, 1},
     bytes,
     F(1),
     STEP,
     INT32_DOT,
     .datatype = XN_BOOL,
     .count = 4,
     .expected = {-1, 1, 1, 1}},
    /* The ends of FP32's range: what overflows on the way to an output that does not. */
    {"dot * alpha overflows, K brings it back",
     {1, 1, 6, 6},
     {1, 1, 3, 3},
     F(FOUR_BY_NINE(0x1p-20f)),
     F(NINE(0x1p126f)),
     STEP,
     .count = 16,
     .expected = {SIXTEEN(9 * 0x1p106)}},
    {"dot * alpha overflows, K brings it back, in FP16",
     {1, 1, 6, 6},
     {1, 1, 3, 3},
     F(FOUR_BY_NINE(0x1p-121f)),
     F(NINE(0x1p126f)),
     STEP,
     .output = XN_FP16,
     .count = 16,
     .expected = {SIXTEEN(288)}},
    {"dot * scale overflows, K brings it back",
     {1, 4, 1, 2},
     {3, 4, 1, 1},
     F(-0x1p-30f, -0x1p-31f, -0x1p-30f, -0x1p-31f, -0x1p-30f, -0x1p-31f, -0x1p-30f, -0x1p-31f),
     F(1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, -1),
     STEP,
     .scale = F(0x1p127f, 0x1p126f, 0x1p127f),
     .count = 6,
     .expected = {-0x1p99, -0x1p98, 0x1p98, 0x1p97, -0x1p98, -0x1p97}},
    {"dot * alpha * K overflows, the bias brings it back",
     {1, 1, 6, 6},
     {1, 1, 3, 3},
     F(FOUR_BY_NINE(0x1p28f)),
     F(0x1p100f, -0x1p100f, 0x1p100f, -0x1p100f, 0x1p100f, -0x1p100f, 0x1p100f, -0x1p100f,
       0x1p100f),
     STEP,
     .bias = F(-0x1p127f),
     .count = 16,
     .expected = {SIXTEEN(0x1p127)}},
    {"dot * alpha overflows, the bias brings it back",
     {1, 4, 1, 1},
     {2, 4, 1, 1},
     F(1, 1, 1, 1),
     F(0x1p126f, 0x1p126f, 0x1p126f, 0x1p126f, -0x1p126f, -0x1p126f, -0x1p126f, -0x1p126f),
     STEP,
     .scaling = XN_SCALING_ALPHA,
     .bias = F(-0x1p127f, 0x1p127f),
     .count = 2,
     .expected = {0x1p127, -0x1p127}},
    {"dot * alpha overflows, the bias brings it back, too large for FP16",
     {1, 4, 1, 1},
     {2, 4, 1, 1},
     F(1, 1, 1, 1),
     F(0x1p126f, 0x1p126f, 0x1p126f, 0x1p126f, -0x1p126f, -0x1p126f, -0x1p126f, -0x1p126f),
     STEP,
     .output = XN_FP16,
     .scaling = XN_SCALING_ALPHA,
     .bias = F(-0x1.fffffep127f, 0x1.fffffep127f),
     .count = 2,
     .expected = {INFINITY, -INFINITY}},
    {"bwn: sum * alpha overflows, the bias brings it back",
     {1, 1, 6, 6},
     {1, 1, 3, 3},
     F(FOUR_BY_NINE(0x1p100f)),
     F(0x1p28f, -0x1p28f, 0x1p28f, -0x1p28f, 0x1p28f, -0x1p28f, 0x1p28f, -0x1p28f, 0x1p28f),
     STEP,
     .mode = XN_MODE_BWN,
     .bias = F(-0x1p127f),
     .count = 16,
     .expected = {SIXTEEN(0x1p127)}},
    {"float: sum * scale overflows, the bias brings it back",
     {1, 2, 1, 2},
     {2, 2, 1, 1},
     F(0x1p50f, 0x1p49f, 0x1p50f, 0x1p49f),
     F(0x1p50f, 0x1p50f, -0x1p50f, -0x1p50f),
     STEP,
     .mode = XN_MODE_FLOAT,
     .scale = F(0x1p27f, 0x1p27f),
     .bias = F(-0x1p127f, 0x1p127f),
     .count = 4,
     .expected = {0x1p127, 0, -0x1p127, 0}},
    {"float: a sum overflows on the way",
     {1, 3, 1, 1},
     {1, 3, 1, 1},
     F(0x1p127f, 0x1p127f, -0x1p127f),
     F(1, 1, 1),
     STEP,
     .mode = XN_MODE_FLOAT,
     .count = 1,
     .expected = {0x1p127}},
    {"an infinite bias",
     {1, 1, 1, 1},
     {2, 1, 1, 1},
     F(2),
     F(1, 1),
     STEP,
     .bias = F(INFINITY, -INFINITY),
     .count = 2,
     .expected = {INFINITY, -INFINITY}},
};
enum { LITERALS = sizeof literals / sizeof *literals };

static int64_t product(const int64_t dims[4]) {
    return dims[0] * dims[1] * dims[2] * dims[3];
}

static xn_tensor fp32_tensor(const float *values, int rank, const int64_t *dims) {
    xn_tensor t = {XN_FP32, {rank, {0}}, 1, 0, values};
    for (int i = 0; i < rank; i++)
        t.elements *= t.shape.dims[i] = dims[i];
    t.bytes = (size_t)t.elements * sizeof *values;
    return t;
}

/* As bk_problem_make, with the literal's own values. `c` only describes it. */
static void literal_problem(const literal *l, bk_case *c, bk_problem *out) {
    xn_tensor w = fp32_tensor(l->kernel, 4, l->weights);
    xn_tensor s = fp32_tensor(l->scale, 1, l->weights), b = fp32_tensor(l->bias, 1, l->weights);
    xn_shape input = {4, {l->input[0], l->input[1], l->input[2], l->input[3]}};
    xn_conv_limits limits = {INT32_MAX, INT32_MAX, INT32_MAX};
    xn_conv_params *p = &c->params;
    xn_weights_shape shape;
    xn_error error = {0};
    *c = bk_case_default();
    memcpy(p->stride, l->stride, sizeof p->stride);
    memcpy(p->dilation, l->dilation, sizeof p->dilation);
    memcpy(p->padding, l->padding, sizeof p->padding);
    p->groups = l->groups;
    p->pad_value = l->pad_value;
    p->mode = l->mode;
    p->scaling = l->scaling;
    p->output_datatype = l->output;
    *out = (bk_problem){.c = c};
    xn_status status =
        xn_weights_create(&w, l->scale ? &s : NULL, l->bias ? &b : NULL, &out->weights, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", l->name, error.message);
    xn_weights_shape_of(out->weights, &shape);
    status =
        xn_conv_resolve(p, l->datatype, &input, &shape, &limits, &out->conv, &out->images, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", l->name, error.message);
    size_t count = (size_t)product(l->input), size = xn_datatype_bytes(l->datatype);
    out->input = xn_mem_alloc(count * size);
    out->real = xn_mem_alloc(count * sizeof *out->real);
    ck_assert(out->input && out->real);
    memcpy(out->input, l->values, count * size);
    bk_read_input(l->mode, l->datatype, out->input, out->real, (int64_t)count);
}

static bool agrees(double got, double expected, double tolerance) {
    if (isnan(expected))
        return isnan(got);
    return got == expected || fabs(got - expected) <= tolerance * fabs(expected);
}

static void check_literal(const bk_target *target, const literal *l) {
    bk_case c;
    bk_problem problem;
    literal_problem(l, &c, &problem);
    int64_t count = problem.images * xn_conv_output_elements(&problem.conv);
    ck_assert_msg(count == l->count, "%s: %lld outputs", l->name, (long long)count);
    void *output = xn_mem_alloc((size_t)problem.images * xn_conv_output_bytes(&problem.conv));
    ck_assert_ptr_nonnull(output);
    if (!bk_run(target, &problem, &problem.conv, output)) {
        xn_mem_free(output);
        bk_problem_free(&problem);
        return;
    }
    double tolerance = target == bk_target_ref() || l->output == XN_INT32 ? 0 : 1e-6;
    bk_expected *model = bk_model(&problem);
    for (int64_t i = 0; i < count; i++) {
        double got = bk_value(l->output, output, i);
        ck_assert_msg(agrees(got, l->expected[i], tolerance),
                      "%s on %s: output %lld is %.9g, not %.9g", l->name, target->name,
                      (long long)i, got, l->expected[i]);
        if (l->output != XN_FP16) /* the model does not round */
            ck_assert_msg(agrees(model[i].value, l->expected[i], 1e-15),
                          "the model of %s: output %lld is %.17g, not %.17g", l->name, (long long)i,
                          model[i].value, l->expected[i]);
    }
    xn_mem_free(model);
    xn_mem_free(output);
    bk_problem_free(&problem);
}

START_TEST(by_hand) {
    const bk_target *target = bk_target_open(_i), *at = target;
    for (int path = 0; at; at = bk_target_forced(target, path++))
        for (int i = 0; i < LITERALS; i++)
            check_literal(at, &literals[i]);
}
END_TEST

/* The judge itself: what it must let pass and what it must refuse. */
START_TEST(the_judge_is_strict) {
    static const struct {
        xn_datatype datatype;
        double got, reference, tolerance;
        bool loose, right;
    } cases[] = {
        {XN_FP32, 1, 1, 0, false, true},
        {XN_FP32, 1.00001, 1, 1.1e-5, false, true},
        {XN_FP32, 1.00002, 1, 1e-5, false, false},
        {XN_FP32, 0.99998, 1, 1e-5, false, false},
        {XN_FP32, NAN, 1, 1e-5, false, false},
        {XN_FP32, INFINITY, 1, 1e-5, false, false},
        {XN_FP32, 1, NAN, 1e-5, false, false},
        {XN_FP32, NAN, NAN, 0, false, true},
        {XN_FP32, 1, INFINITY, 1e-5, false, false},
        {XN_FP32, -INFINITY, INFINITY, 1e-5, false, false},
        {XN_FP32, INFINITY, INFINITY, 0, false, true},
        {XN_FP32, NAN, INFINITY, 0, false, false},
        {XN_FP32, INFINITY, 1e38, 1e33, true, true},
        {XN_FP32, 2e38, 1e38, 1e33, true, false},
        {XN_FP32, 0, NAN, 0, true, false},
        {XN_INT32, 5, 5, 0, false, true},
        {XN_INT32, 7, 5, 100, true, false},
        {XN_INT32, 16777217, 16777216, 0, false, false},
        {XN_FP16, 1, 1.0004, 1e-5, false, true},
        {XN_FP16, 1.0009765625, 1.0004, 1e-5, false, false},
        {XN_FP16, 1.0009765625, 1.00048, 1e-5, false, true},
        {XN_FP16, INFINITY, 65519.9, 0.2, false, true},
        {XN_FP16, INFINITY, 65500, 0.6, false, false},
        {XN_FP16, 65504, 70000, 0.7, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(bk_is_right(cases[i].datatype, cases[i].got, cases[i].reference,
                                  cases[i].tolerance, cases[i].loose) == cases[i].right,
                      "case %zu", i);
}
END_TEST

XN_SUITE(backends_literal) {
    Suite *s = suite_create("backends_literal");
    TCase *t = tcase_create("literals");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_judge_is_strict);
    tcase_add_loop_test(t, by_hand, 0, bk_target_count());
    suite_add_tcase(s, t);
    return s;
}
