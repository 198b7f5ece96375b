/* bk_case.c: from a case to its data. */
#include "bk_case.h"

#include "xn_mem.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bk_case bk_case_default(void) {
    bk_case c = {.images = 1,
                 .channels = 1,
                 .height = 5,
                 .width = 6,
                 .out_channels = 1,
                 .kernel_h = 3,
                 .kernel_w = 3,
                 .items = 1};
    xn_conv_params_default(&c.params);
    return c;
}

bk_case bk_geometry(int64_t images, int64_t channels, int64_t height, int64_t width,
                    int64_t out_channels, int64_t kernel_h, int64_t kernel_w) {
    bk_case c = bk_case_default();
    c.images = images;
    c.channels = channels;
    c.height = height;
    c.width = width;
    c.out_channels = out_channels;
    c.kernel_h = kernel_h;
    c.kernel_w = kernel_w;
    return c;
}

void bk_pad(bk_case *c, int64_t top, int64_t left, int64_t bottom, int64_t right) {
    c->params.padding[0] = top;
    c->params.padding[1] = left;
    c->params.padding[2] = bottom;
    c->params.padding[3] = right;
}

void bk_case_describe(const bk_case *c, char text[BK_TEXT]) {
    const xn_conv_params *p = &c->params;
    char padding[100];
    snprintf(padding, sizeof padding, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, p->padding[0],
             p->padding[1], p->padding[2], p->padding[3]);
    if (p->padding_kind != XN_PADDING_EXPLICIT)
        snprintf(padding, sizeof padding, "%s",
                 p->padding_kind == XN_PADDING_SAME ? "same" : "valid");
    snprintf(text, BK_TEXT,
             "%s scaling %s to %s, input [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
             "] %s fill %d, weights [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
             "] %s fill %d, groups %" PRId64 ", stride %" PRId64 ",%" PRId64 ", dilation %" PRId64
             ",%" PRId64 ", padding %s of %d,%s%s channel fill %d, items %d, spare %d, "
             "seed %" PRIu64,
             xn_mode_name(p->mode), xn_scaling_name(p->scaling),
             xn_datatype_name(p->output_datatype), c->images, c->channels, c->height, c->width,
             xn_datatype_name(c->input_datatype), (int)c->input_fill, c->out_channels,
             c->channels / p->groups, c->kernel_h, c->kernel_w,
             xn_datatype_name(c->weights_datatype), (int)c->weights_fill, p->groups, p->stride[0],
             p->stride[1], p->dilation[0], p->dilation[1], padding, p->pad_value,
             c->scale ? " scale," : "", c->bias ? " bias," : "", (int)c->channel_fill, c->items,
             c->spare, c->seed);
}

/* The largest finite and the least positive value of a real datatype. */
static float largest_of(xn_datatype datatype) {
    if (datatype == XN_FP16)
        return 65504;
    return datatype == XN_BF16 ? 0x1.fep127f : FLT_MAX;
}

static float least_of(xn_datatype datatype) {
    if (datatype == XN_FP16)
        return 0x1p-24f;
    return datatype == XN_BF16 ? 0x1p-133f : 0x1p-149f;
}

static float draw(xn_rng *rng, bk_fill fill, xn_datatype datatype) {
    uint64_t pick = xn_rng_below(rng, 16);
    float sign = pick & 1 ? -1.0f : 1.0f;
    switch (fill) {
    case BK_TIES:
        return pick < 6 ? sign * 0.0f : (float)(int)(xn_rng_below(rng, 5)) - 2;
    case BK_EQUAL:
        return 0.1f;
    case BK_MINUS:
        return -0.1f;
    case BK_ZERO:
        return 0.0f;
    case BK_NEGATIVE_ZERO:
        return -0.0f;
    case BK_NAN:
        return pick < 2 ? sign * NAN : xn_rng_float(rng);
    case BK_INFINITY:
        return pick < 2 ? sign * INFINITY : xn_rng_float(rng);
    case BK_HUGE:
        return sign * largest_of(datatype);
    case BK_DENORMAL:
        return sign * least_of(datatype) * (float)xn_rng_below(rng, 50);
    case BK_MIXED:
        return ldexpf(xn_rng_float(rng), (int)xn_rng_below(rng, 80) - 40);
    case BK_EXTREME:
        return pick == 0   ? NAN
               : pick == 1 ? INFINITY
               : pick < 9  ? sign * largest_of(datatype)
                           : xn_rng_float(rng);
    case BK_RANDOM:
    case BK_FILLS:
        break;
    }
    return xn_rng_float(rng);
}

static uint8_t draw_byte(xn_rng *rng, bk_fill fill, xn_datatype datatype) {
    static const uint8_t truths[4] = {0, 0, 1, 255};
    uint64_t random = xn_rng_next(rng);
    if (fill == BK_ZERO || fill == BK_EQUAL)
        return fill == BK_EQUAL;
    return datatype == XN_BOOL ? truths[random >> 40 & 3] : (uint8_t)(random >> 40);
}

void bk_fill_values(xn_rng *rng, bk_fill fill, xn_datatype datatype, void *out, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        switch (datatype) {
        case XN_FP32:
            ((float *)out)[i] = draw(rng, fill, datatype);
            break;
        case XN_FP16:
            ((uint16_t *)out)[i] = xn_fp32_to_fp16(draw(rng, fill, datatype));
            break;
        case XN_BF16:
            ((uint16_t *)out)[i] = xn_fp32_to_bf16(draw(rng, fill, datatype));
            break;
        default:
            ((uint8_t *)out)[i] = draw_byte(rng, fill, datatype);
        }
    }
}

void bk_read_input(xn_mode mode, xn_datatype datatype, const void *input, float *out,
                   int64_t count) {
    xn_tensor_to_fp32(datatype, input, out, count);
    for (int64_t i = 0; i < count && mode == XN_MODE_XNOR && datatype == XN_BOOL; i++)
        out[i] = out[i] == 0 ? -1.0f : 1.0f;
}

void bk_case_signed(bk_case *c) {
    if (c->params.mode != XN_MODE_XNOR)
        return;
    if (c->input_datatype == XN_UINT8)
        c->input_datatype = XN_BOOL;
    if (c->weights_datatype == XN_UINT8)
        c->weights_datatype = XN_BOOL;
}

static void *drawn(xn_rng *rng, bk_fill fill, xn_datatype datatype, int64_t count) {
    void *values = xn_mem_alloc((size_t)count * xn_datatype_bytes(datatype));
    ck_assert_ptr_nonnull(values);
    bk_fill_values(rng, fill, datatype, values, count);
    return values;
}

static xn_tensor tensor_of(xn_datatype datatype, xn_shape shape, const void *data) {
    xn_tensor t = {.datatype = datatype, .shape = shape, .elements = 1, .data = data};
    for (int i = 0; i < shape.rank; i++)
        t.elements *= shape.dims[i];
    t.bytes = (size_t)t.elements * xn_datatype_bytes(datatype);
    return t;
}

static xn_weights *make_weights(const bk_case *c, xn_rng *rng) {
    xn_shape shape = {4,
                      {c->out_channels, c->channels / c->params.groups, c->kernel_h, c->kernel_w}};
    xn_shape channel = {1, {c->out_channels}};
    int64_t elements = shape.dims[0] * shape.dims[1] * shape.dims[2] * shape.dims[3];
    void *values = drawn(rng, c->weights_fill, c->weights_datatype, elements);
    void *scale = drawn(rng, c->channel_fill, XN_FP32, c->out_channels);
    void *bias = drawn(rng, c->channel_fill, XN_FP32, c->out_channels);
    xn_tensor w = tensor_of(c->weights_datatype, shape, values);
    xn_tensor s = tensor_of(XN_FP32, channel, scale), b = tensor_of(XN_FP32, channel, bias);
    xn_weights *made = NULL;
    xn_error error = {0};
    xn_status status =
        xn_weights_create(&w, c->scale ? &s : NULL, c->bias ? &b : NULL, &made, &error);
    xn_mem_free(bias);
    xn_mem_free(scale);
    xn_mem_free(values);
    ck_assert_msg(status == XN_OK, "weights: %s", error.message);
    return made;
}

void bk_problem_make(const bk_case *c, bk_problem *out) {
    static const xn_conv_limits limits = {INT32_MAX, INT32_MAX, INT64_MAX};
    xn_rng rng = {c->seed};
    xn_shape input = {4, {c->images, c->channels, c->height, c->width}};
    int64_t elements = c->images * c->channels * c->height * c->width;
    xn_weights_shape shape;
    xn_error error = {0};
    char text[BK_TEXT];
    *out = (bk_problem){.c = c};
    out->weights = make_weights(c, &rng);
    out->input = drawn(&rng, c->input_fill, c->input_datatype, elements);
    out->real = xn_mem_alloc((size_t)elements * sizeof *out->real);
    ck_assert_ptr_nonnull(out->real);
    bk_read_input(c->params.mode, c->input_datatype, out->input, out->real, elements);
    xn_weights_shape_of(out->weights, &shape);
    if (xn_conv_resolve(&c->params, c->input_datatype, &input, &shape, &limits, &out->conv,
                        &out->images, &error)) {
        bk_case_describe(c, text);
        ck_abort_msg("the case does not resolve: %s: %s", text, error.message);
    }
}

void bk_problem_free(bk_problem *problem) {
    xn_mem_free(problem->real);
    xn_mem_free(problem->input);
    xn_weights_free(problem->weights);
}
