/* The oracle of the oracle: convolutions small enough to work out by hand, with what the formulas
 * of xn_conv.h give written out as numbers. Every target must give them; ref to the last bit. */
#include "bk_run.h"

#include "xn_mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A case is a line:
 *
 *   name | input's shape: values | weights' shape: values | options | outputs
 *
 * n*v are n times the value v. Options: in and out (datatypes), mode, scaling, stride, dilation,
 * padding, pad_value, groups, scale, bias. */
static const char *const literals[] = {
    "checkerboard | 1x1x3x3: 1 -2 3 -4 5 -6 7 -8 9 | 1x1x2x2: 0.5 -0.5 -0.5 0.5 |  | 6 -8 -12 14",
    "signs of inputs | 1x1x1x6: 0 -0 nan -1 inf -inf | 1x1x1x1: 7 | out=INT32 scaling=none | 1 1 "
    "-1 -1 1 -1",
    "signs of weights | 1x1x1x1: 3 | 6x1x1x1: 0 -0 nan -1 inf -inf | out=INT32 scaling=none | 1 1 "
    "-1 -1 1 -1",
    "border of 0 | 1x1x1x1: 2 | 1x1x3x3: 4*1 -1 4*1 | out=INT32 scaling=none padding=1,1,1,1 | -1",
    "border of 1 | 1x1x1x1: 2 | 1x1x3x3: 4*1 -1 4*1 | out=INT32 scaling=none padding=1,1,1,1 "
    "pad_value=1 | 7",
    "border of -1 | 1x1x1x1: 2 | 1x1x3x3: 4*1 -1 4*1 | out=INT32 scaling=none padding=1,1,1,1 "
    "pad_value=-1 | -9",
    "K ignores pad_value and divides by the whole kernel | 1x1x1x1: 18 | 1x1x3x3: 4*1 -1 4*1 | "
    "padding=1,1,1,1 pad_value=1 | 14",
    "sides of the padding | 1x1x1x1: 5 | 1x1x1x1: 2 | mode=float padding=1,2,0,1 | 6*0 10 0",
    "stride and dilation | 1x1x1x6: 1 2 3 4 5 6 | 1x1x1x2: 1 10 | mode=float stride=1,2 "
    "dilation=1,2 padding=0,1,0,0 | 20 42 64",
    "stride and dilation over -1 | 1x1x1x6: 1 2 3 4 5 6 | 1x1x1x2: 1 10 | mode=float stride=1,2 "
    "dilation=1,2 padding=0,1,0,0 pad_value=-1 | 19 42 64",
    "rows stride | 1x1x6x1: 1 2 3 4 5 6 | 1x1x2x1: 1 10 | mode=float stride=3,1 dilation=2,1 | 31 "
    "64",
    "no flip: cross-correlation | 1x1x2x2: 1 2 3 4 | 1x1x2x2: 1 10 100 1000 | mode=float | 4321",
    "bwn | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | mode=bwn | 5",
    "bwn, scaling none | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | mode=bwn scaling=none | 2.5",
    "bwn, scale and bias | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | mode=bwn scale=3 bias=1 | 8.5",
    "float | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | mode=float | 3.5",
    "float, scale and bias | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | mode=float scale=2 bias=1 | 8",
    "float, bias | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | mode=float scaling=none bias=1 | 4.5",
    "xnor, scale and bias | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | scale=10 bias=100 | 125",
    "alpha | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | scaling=alpha | 4",
    "none with bias | 1x2x1x1: 0.5 -2 | 1x2x1x1: 3 -1 | scaling=none bias=0.25 | 2.25",
    "groups, float | 1x4x1x1: 1 2 3 4 | 2x2x1x1: 10 100 20 200 | mode=float groups=2 | 210 860",
    "groups have each their K | 1x4x1x1: 1 2 3 4 | 2x2x1x1: 10 100 -10 -100 | groups=2 | 165 -385",
    "images, filters, places in order | 2x1x1x2: 1 2 3 4 | 2x1x1x1: 10 -100 | mode=float | 10 20 "
    "-100 -200 30 40 -300 -400",
    "0 outside times NaN is nothing | 1x1x1x1: 1 | 1x1x1x3: nan 2 inf | mode=float "
    "padding=0,1,0,1 | 2",
    "1 outside times infinity | 1x1x1x1: 1 | 1x1x1x2: 2 inf | mode=float padding=0,0,0,1 "
    "pad_value=1 | inf",
    "NaN and infinity through K only where the box sees them | 1x1x1x5: inf 1 3 nan 1 | 1x1x1x2: "
    "1 1 |  | inf 4 nan nan",
    "a dot of 0 times infinity | 1x1x1x2: inf 1 | 1x1x1x2: 1 -1 |  | nan",
    "bias NaN and infinity | 1x1x1x1: 1 | 3x1x1x1: 3*1 | bias=nan,inf,-inf | nan inf -inf",
    "alpha 0 | 1x1x1x2: 5 -5 | 1x1x1x1: -0 |  | 0 0",
    "mean of values whose sum passes fp32 | 1x2x1x1: 3e38 3e38 | 1x2x1x1: 0.5 0.5 |  | "
    "0x1.c363ccp+127",
    "fp16 output | 1x1x1x5: 0.333333333 65519 65520 -1e9 1e-8 | 1x1x1x1: 1 | out=FP16 mode=float "
    "| 0x1.554p-2 65504 inf -inf 0",
    "fp16 input | 1x1x1x4: 1 -2 -0 65504 | 1x1x1x1: 1 | in=FP16 mode=float | 1 -2 0 65504",
    "fp16 signs | 1x1x1x4: 1 -2 -0 65504 | 1x1x1x1: 1 | in=FP16 out=INT32 scaling=none | 1 -1 1 1",
    "bf16 input | 1x1x1x4: 1 -2 -0 3.140625 | 1x1x1x1: 1 | in=BF16 mode=float | 1 -2 0 3.140625",
    "int8 input | 1x1x1x4: -128 127 0 -1 | 1x1x1x1: 2 | in=INT8 | -256 254 0 -2",
    "uint8 input | 1x1x1x4: 0 1 200 255 | 1x1x1x1: 2 | in=UINT8 mode=bwn | 0 2 400 510",
    "bool input: a sign of magnitude 1 | 1x1x1x4: 0 1 200 255 | 1x1x1x1: -2 | in=BOOL | 2 3*-2",
    "bool input of bwn: 0 or 1 | 1x1x1x4: 0 1 200 255 | 1x1x1x1: -2 | in=BOOL mode=bwn | 0 3*-2",
    "bool input of float: 0 or 1 | 1x1x1x4: 0 1 200 255 | 1x1x1x1: -2 | in=BOOL mode=float | 0 "
    "3*-2",
    "one output a row, of a stride past its end | 1x1x3x2: 1 -2 3 -4 -5 6 | 1x1x1x1: 1 | "
    "out=INT32 scaling=none stride=1,2 | 1 1 -1",
    "bool signs | 1x1x1x4: 0 1 200 255 | 1x1x1x1: 1 | in=BOOL out=INT32 scaling=none | -1 3*1",
    /* The ends of FP32's range: what overflows on the way to an output that does not. */
    "dot * alpha overflows, K brings it back | 1x1x6x6: 36*0x1p-20 | 1x1x3x3: 9*0x1p126 |  | "
    "16*0x9p106",
    "dot * alpha overflows, K brings it back, in FP16 | 1x1x6x6: 36*0x1p-121 | 1x1x3x3: 9*0x1p126 "
    "| out=FP16 | 16*288",
    "dot * scale overflows, K brings it back | 1x4x1x2: -0x1p-30 -0x1p-31 -0x1p-30 -0x1p-31 "
    "-0x1p-30 -0x1p-31 -0x1p-30 -0x1p-31 | 3x4x1x1: 4*1 4*-1 3*1 -1 | "
    "scale=0x1p127,0x1p126,0x1p127 | -0x1p99 -0x1p98 0x1p98 0x1p97 -0x1p98 -0x1p97",
    "dot * alpha * K overflows, the bias brings it back | 1x1x6x6: 36*0x1p28 | 1x1x3x3: 0x1p100 "
    "-0x1p100 0x1p100 -0x1p100 0x1p100 -0x1p100 0x1p100 -0x1p100 0x1p100 | bias=-0x1p127 | "
    "16*0x1p127",
    "dot * alpha overflows, the bias brings it back | 1x4x1x1: 4*1 | 2x4x1x1: 4*0x1p126 "
    "4*-0x1p126 | scaling=alpha bias=-0x1p127,0x1p127 | 0x1p127 -0x1p127",
    "dot * alpha overflows, the bias brings it back, too large for FP16 | 1x4x1x1: 4*1 | 2x4x1x1: "
    "4*0x1p126 4*-0x1p126 | out=FP16 scaling=alpha bias=-0x1.fffffep127,0x1.fffffep127 | inf -inf",
    "bwn: sum * alpha overflows, the bias brings it back | 1x1x6x6: 36*0x1p100 | 1x1x3x3: 0x1p28 "
    "-0x1p28 0x1p28 -0x1p28 0x1p28 -0x1p28 0x1p28 -0x1p28 0x1p28 | mode=bwn bias=-0x1p127 | "
    "16*0x1p127",
    "float: sum * scale overflows, the bias brings it back | 1x2x1x2: 0x1p50 0x1p49 0x1p50 0x1p49 "
    "| 2x2x1x1: 0x1p50 0x1p50 -0x1p50 -0x1p50 | mode=float scale=0x1p27,0x1p27 "
    "bias=-0x1p127,0x1p127 | 0x1p127 0 -0x1p127 0",
    "float: a sum overflows on the way | 1x3x1x1: 0x1p127 0x1p127 -0x1p127 | 1x3x1x1: 3*1 | "
    "mode=float | 0x1p127",
    "an infinite bias | 1x1x1x1: 2 | 2x1x1x1: 1 1 | bias=inf,-inf | inf -inf",
};
enum { LITERALS = sizeof literals / sizeof *literals, VALUES = 64, LINE = 512 };

typedef struct numbers {
    double value[VALUES];
    int count;
} numbers;

typedef struct literal {
    char text[LINE];
    const char *name;
    int64_t input[4], weights[4]; /* shapes */
    numbers values, kernel, scale, bias, expected;
    xn_datatype datatype;
    xn_conv_params params;
} literal;

/* ---- reading a case ---- */

static numbers numbers_of(const char *text) {
    numbers n = {.count = 0};
    char *end;
    for (text += strspn(text, " ,"); *text; text = end + strspn(end, " ,")) {
        double value = strtod(text, &end);
        int times = 1;
        if (*end == '*') {
            times = (int)value;
            value = strtod(end + 1, &end);
        }
        ck_assert_msg(strchr(" ,", *end) && n.count + times <= VALUES, "\"%s\"", text);
        while (times--)
            n.value[n.count++] = value;
    }
    return n;
}

/* "1x1x3x3: 1 2 ...". */
static numbers tensor_of(char *text, int64_t shape[4]) {
    char *colon = strchr(text, ':');
    long long d[4];
    ck_assert_int_eq(sscanf(text, "%lldx%lldx%lldx%lld", &d[0], &d[1], &d[2], &d[3]), 4);
    for (int i = 0; i < 4; i++)
        shape[i] = d[i];
    return numbers_of(colon + 1);
}

static xn_datatype datatype_of(const char *name) {
    xn_datatype datatype = XN_FP32;
    while (strcmp(xn_datatype_name(datatype), name) != 0)
        datatype++;
    return datatype;
}

static void put(int64_t *to, const char *text) {
    const numbers n = numbers_of(text);
    for (int i = 0; i < n.count; i++)
        to[i] = (int64_t)n.value[i];
}

static void take_option(literal *l, const char *name, const char *value) {
    xn_conv_params *p = &l->params;
    if (!strcmp(name, "in"))
        l->datatype = datatype_of(value);
    else if (!strcmp(name, "out"))
        p->output_datatype = datatype_of(value);
    else if (!strcmp(name, "mode"))
        p->mode = (xn_mode)xn_name_find(value, xn_mode_names);
    else if (!strcmp(name, "scaling"))
        p->scaling = (xn_scaling)xn_name_find(value, xn_scaling_names);
    else if (!strcmp(name, "stride"))
        put(p->stride, value);
    else if (!strcmp(name, "dilation"))
        put(p->dilation, value);
    else if (!strcmp(name, "padding"))
        put(p->padding, value);
    else if (!strcmp(name, "groups"))
        put(&p->groups, value);
    else if (!strcmp(name, "pad_value"))
        p->pad_value = atoi(value);
    else if (!strcmp(name, "scale"))
        l->scale = numbers_of(value);
    else if (!strcmp(name, "bias"))
        l->bias = numbers_of(value);
    else
        ck_abort_msg("option %s", name);
}

static void read_literal(const char *text, literal *l) {
    char *field[5], *rest, *word;
    *l = (literal){.datatype = XN_FP32};
    ck_assert_uint_lt(strlen(text), LINE);
    strcpy(l->text, text);
    for (int i = 0; i < 5; i++) {
        field[i] = i ? strchr(field[i - 1], '|') : l->text;
        ck_assert_msg(field[i] != NULL, "%s", text);
        if (i)
            *field[i]++ = '\0';
    }
    l->name = field[0];
    l->params = bk_case_default().params;
    l->values = tensor_of(field[1], l->input);
    l->kernel = tensor_of(field[2], l->weights);
    for (word = strtok_r(field[3], " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        ck_assert_msg(value != NULL, "%s", word);
        *value = '\0';
        take_option(l, word, value + 1);
    }
    l->expected = numbers_of(field[4]);
}

/* ---- running it ---- */

static void store(xn_datatype datatype, const numbers *from, void *to) {
    for (int i = 0; i < from->count; i++) {
        const float value = (float)from->value[i];
        if (datatype == XN_FP32)
            ((float *)to)[i] = value;
        else if (datatype == XN_FP16)
            ((uint16_t *)to)[i] = xn_fp32_to_fp16(value);
        else if (datatype == XN_BF16)
            ((uint16_t *)to)[i] = xn_fp32_to_bf16(value);
        else
            ((uint8_t *)to)[i] = (uint8_t)(int)value;
    }
}

/* values are the numbers as fp32. */
static xn_tensor fp32_tensor(const numbers *n, float values[VALUES], int rank,
                             const int64_t *dims) {
    xn_tensor t = {XN_FP32, {rank, {0}}, 1, 0, values};
    store(XN_FP32, n, values);
    for (int i = 0; i < rank; i++)
        t.elements *= t.shape.dims[i] = dims[i];
    t.bytes = (size_t)t.elements * sizeof *values;
    ck_assert(!rank || t.elements == n->count);
    return t;
}

/* As bk_problem_make, with the literal's own values. `c` only describes it. */
static void literal_problem(const literal *l, bk_case *c, bk_problem *out) {
    float kernel[VALUES], scale[VALUES], bias[VALUES];
    const bool has_scale = l->scale.count, has_bias = l->bias.count;
    xn_tensor w = fp32_tensor(&l->kernel, kernel, 4, l->weights);
    xn_tensor s = fp32_tensor(&l->scale, scale, has_scale, l->weights);
    xn_tensor b = fp32_tensor(&l->bias, bias, has_bias, l->weights);
    xn_shape input = {4, {l->input[0], l->input[1], l->input[2], l->input[3]}};
    xn_conv_limits limits = {INT32_MAX, INT32_MAX, INT32_MAX};
    xn_weights_shape shape;
    xn_error error = {0};
    *c = bk_case_default();
    c->params = l->params;
    *out = (bk_problem){.c = c};
    xn_status status =
        xn_weights_create(&w, has_scale ? &s : NULL, has_bias ? &b : NULL, &out->weights, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", l->name, error.message);
    xn_weights_shape_of(out->weights, &shape);
    status = xn_conv_resolve(&l->params, l->datatype, &input, &shape, &limits, &out->conv,
                             &out->images, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", l->name, error.message);
    const size_t count = (size_t)l->values.count, size = xn_datatype_bytes(l->datatype);
    ck_assert_int_eq(l->input[0] * l->input[1] * l->input[2] * l->input[3], l->values.count);
    out->input = xn_mem_alloc(count * size);
    out->real = xn_mem_alloc(count * sizeof *out->real);
    ck_assert(out->input && out->real);
    store(l->datatype, &l->values, out->input);
    bk_read_input(l->params.mode, l->datatype, out->input, out->real, (int64_t)count);
}

static bool agrees(double got, double expected, double tolerance) {
    if (isnan(expected))
        return isnan(got);
    return got == expected || fabs(got - expected) <= tolerance * fabs(expected);
}

static void check_literal(const bk_target *target, const literal *l) {
    const xn_datatype datatype = l->params.output_datatype;
    bk_case c;
    bk_problem problem;
    literal_problem(l, &c, &problem);
    int64_t count = problem.images * xn_conv_output_elements(&problem.conv);
    ck_assert_msg(count == l->expected.count, "%s: %lld outputs", l->name, (long long)count);
    void *output = xn_mem_alloc((size_t)problem.images * xn_conv_output_bytes(&problem.conv));
    ck_assert_ptr_nonnull(output);
    if (!bk_run(target, &problem, &problem.conv, output)) {
        xn_mem_free(output);
        bk_problem_free(&problem);
        return;
    }
    double tolerance = target == bk_target_ref() || datatype == XN_INT32 ? 0 : 1e-6;
    bk_expected *model = bk_model(&problem);
    for (int64_t i = 0; i < count; i++) {
        double got = bk_value(datatype, output, i);
        ck_assert_msg(agrees(got, l->expected.value[i], tolerance),
                      "%s on %s: output %lld is %.9g, not %.9g", l->name, target->name,
                      (long long)i, got, l->expected.value[i]);
        if (datatype != XN_FP16) /* the model does not round */
            ck_assert_msg(agrees(model[i].value, l->expected.value[i], 1e-15),
                          "the model of %s: output %lld is %.17g, not %.17g", l->name, (long long)i,
                          model[i].value, l->expected.value[i]);
    }
    xn_mem_free(model);
    xn_mem_free(output);
    bk_problem_free(&problem);
}

START_TEST(by_hand) {
    const bk_target *target = bk_target_open(_i), *at;
    literal l;
    for (int i = 0; target && i < LITERALS; i++) {
        read_literal(literals[i], &l);
        at = target;
        for (int path = 0; at; at = bk_target_forced(target, path++))
            check_literal(at, &l);
    }
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
    TCase *t = xn_test_case(s, "literals", 120);
    tcase_add_test(t, the_judge_is_strict);
    tcase_add_loop_test(t, by_hand, 0, bk_target_count());
    return s;
}
