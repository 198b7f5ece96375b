/* bk_step_random.c: see bk_step.h. */
#include "bk_step.h"

#include <string.h>

enum { IMAGES = 3 };

static int below(xn_rng *rng, int n) {
    return (int)xn_rng_below(rng, (uint64_t)n);
}

/* ---- a random step ---- */

static int32_t outputs(int32_t size, int32_t before, int32_t after, int32_t kernel, int32_t stride,
                       int32_t dilation) {
    return (size + before + after - dilation * (kernel - 1) - 1) / stride + 1;
}

/* Taps of a mean that is exact: a power of 2, all of the image or counted. */
static bool is_exact_mean(const xn_step *s) {
    const xn_conv *v = &s->conv;
    const int32_t taps = v->kernel_h * v->kernel_w;
    return !(taps & (taps - 1)) && (s->attributes.count_padding ||
                                    v->pad_top + v->pad_bottom + v->pad_left + v->pad_right == 0);
}

static void set_outputs(xn_conv *v) {
    v->out_height =
        outputs(v->height, v->pad_top, v->pad_bottom, v->kernel_h, v->stride_h, v->dilation_h);
    v->out_width =
        outputs(v->width, v->pad_left, v->pad_right, v->kernel_w, v->stride_w, v->dilation_w);
}

/* A pool as networks have them. */
static void set_usual_pool(xn_rng *rng, xn_conv *v) {
    v->height = v->width = 8 * (1 + below(rng, 2));
    v->kernel_h = v->kernel_w = 2 + below(rng, 2);
    v->pad_top = v->pad_left = v->kernel_w - 2;
    v->stride_h = v->stride_w = 2;
    set_outputs(v);
}

/* Half of the means have a power of 2 of taps and no padding, so that they are exact. */
static void set_window(xn_rng *rng, xn_step *s) {
    static const int32_t kernels[] = {1, 2, 4};
    xn_conv *v = &s->conv;
    const bool is_pool = s->kind != XN_STEP_CONV;
    const bool exact = s->kind == XN_STEP_AVG_POOL && below(rng, 2);
    s->attributes.count_padding = s->kind == XN_STEP_AVG_POOL && below(rng, 2);
    if (is_pool && !exact && below(rng, 4) == 0) {
        set_usual_pool(rng, v);
        return;
    }
    v->kernel_h = exact ? kernels[below(rng, 3)] : 1 + below(rng, 3);
    v->kernel_w = exact ? kernels[below(rng, 3)] : 1 + below(rng, 3);
    if (is_pool && v->height * v->width <= 64 && below(rng, 6) == 0 && !exact)
        v->kernel_h = v->height, v->kernel_w = v->width;
    v->stride_h = 1 + below(rng, 3);
    v->stride_w = 1 + below(rng, 3);
    v->dilation_h = 1 + (below(rng, 4) == 0);
    v->dilation_w = 1 + (below(rng, 4) == 0);
    if (v->dilation_h * (v->kernel_h - 1) >= v->height)
        v->kernel_h = v->dilation_h = 1;
    if (v->dilation_w * (v->kernel_w - 1) >= v->width)
        v->kernel_w = v->dilation_w = 1;
    if ((!exact || s->attributes.count_padding) && v->kernel_h > 1)
        v->pad_top = below(rng, v->kernel_h), v->pad_bottom = below(rng, v->kernel_h);
    if ((!exact || s->attributes.count_padding) && v->kernel_w > 1)
        v->pad_left = below(rng, v->kernel_w), v->pad_right = below(rng, v->kernel_w);
    set_outputs(v);
}

static void set_shape(xn_rng *rng, xn_step *s, bool large) {
    xn_conv *v = &s->conv;
    *v = (xn_conv){.channels = 1 + below(rng, below(rng, 3) ? 12 : 70),
                   .height = 1 + below(rng, large ? 60 : 12),
                   .width = 1 + below(rng, large           ? 200
                                           : below(rng, 4) ? 12
                                                           : 40),
                   .kernel_h = 1,
                   .kernel_w = 1,
                   .groups = 1,
                   .stride_h = 1,
                   .stride_w = 1,
                   .dilation_h = 1,
                   .dilation_w = 1,
                   .mode = XN_MODE_FLOAT};
    if (below(rng, 8) == 0)
        v->height = v->width = 1;
    v->out_height = v->height;
    v->out_width = v->width;
    if (s->kind == XN_STEP_CONV || s->kind == XN_STEP_MAX_POOL || s->kind == XN_STEP_AVG_POOL)
        set_window(rng, s);
    v->out_channels = s->kind == XN_STEP_CONV ? 1 + below(rng, 70) : v->channels;
    if (s->kind == XN_STEP_CONV && below(rng, 3) == 0 && v->channels % 2 == 0) {
        v->groups = below(rng, 2) ? 2 : v->channels;
        v->out_channels = v->groups * (1 + below(rng, 4));
    }
    v->group_channels = v->channels / v->groups;
    v->group_out_channels = v->out_channels / v->groups;
}

/* A datatype and layout that xn_step.h lets the kind have. */
static void set_input(xn_rng *rng, xn_step *s) {
    static const xn_datatype any[] = {XN_FP32, XN_FP16,  XN_BF16, XN_INT8,
                                      XN_BOOL, XN_UINT8, XN_FP32, XN_FP16};
    const bool may_be_bits =
        s->kind == XN_STEP_CONV || s->kind == XN_STEP_MAX_POOL || s->kind == XN_STEP_MAP;
    const bool may_be_any =
        s->kind != XN_STEP_MAX_POOL && s->kind != XN_STEP_AVG_POOL && s->kind != XN_STEP_SOFTMAX;
    s->conv.input_datatype = (int32_t)any[may_be_any ? below(rng, 8) : below(rng, 2)];
    if (s->kind == XN_STEP_CONV) {
        s->conv.mode = below(rng, 3);
        s->conv.pad_value = below(rng, 3) - 1;
        if (s->conv.mode == XN_MODE_XNOR && s->conv.input_datatype == XN_UINT8)
            s->conv.input_datatype = XN_INT8;
    }
    if (may_be_bits && below(rng, 3) == 0) {
        s->conv.input_datatype = XN_BITS;
        s->conv.mode = s->kind == XN_STEP_CONV ? XN_MODE_XNOR : XN_MODE_FLOAT;
        s->input_layout = below(rng, 3) ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES;
    } else if (s->kind == XN_STEP_MAP && below(rng, 4) == 0) {
        s->input_layout = XN_LAYOUT_NHWC;
    }
}

/* 1x1 kernels of fp16 for which fp16 will do. Those are exact, too. */
static void set_pointwise(xn_rng *rng, xn_step *s) {
    static const int32_t filters[] = {32, 64, 128, 256};
    xn_conv *v = &s->conv;
    v->kernel_h = v->kernel_w = v->stride_h = v->stride_w = v->dilation_h = v->dilation_w = 1;
    v->pad_top = v->pad_left = v->pad_bottom = v->pad_right = 0;
    v->out_height = v->height;
    v->out_width = v->width;
    v->groups = 1;
    v->group_channels = v->channels;
    v->out_channels = v->group_out_channels = filters[below(rng, 4)];
    v->mode = 1 + below(rng, 2);
    v->precision = XN_PRECISION_FP16;
    v->input_datatype = XN_FP16;
    s->input_layout = XN_LAYOUT_BYTES;
}

static void set_epilogue(xn_rng *rng, xn_step *s) {
    static const xn_datatype stored[] = {XN_FP32, XN_FP32, XN_FP16, XN_BITS};
    xn_epilogue *e = &s->conv.epilogue;
    e->factor = !s->least && below(rng, 2) ? XN_FACTOR_SCALE : XN_FACTOR_NONE;
    e->bias = below(rng, 2);
    e->residual = below(rng, 2);
    e->activation = below(rng, 3);
    if (e->activation == XN_ACTIVATION_CLIP)
        e->low = -2.25f, e->high = 3.5f;
    const bool may_be_bits = s->kind != XN_STEP_AVG_POOL || is_exact_mean(s);
    e->datatype = (int32_t)stored[below(rng, may_be_bits ? 4 : 3)];
    e->bits = e->datatype == XN_BITS || (may_be_bits && below(rng, 3) == 0);
    e->shift = e->bits && below(rng, 2);
    if (below(rng, 6) == 0) /* nothing but the kind */
        *e = (xn_epilogue){.datatype = e->datatype, .bits = e->bits};
    if (s->kind == XN_STEP_MAX_POOL && below(rng, 3) == 0)
        *e = (xn_epilogue){.datatype = XN_BITS, .bits = 1};
    s->residual = e->residual ? 2 : XN_NO_TENSOR;
    if (e->residual)
        s->residual_datatype =
            e->datatype != XN_BITS ? e->datatype : (int32_t)stored[1 + below(rng, 2)];
    s->output = e->datatype == XN_BITS ? XN_NO_TENSOR : 3;
    s->bits = e->bits ? 4 : XN_NO_TENSOR;
    s->bits_layout = e->bits && below(rng, 2) ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES;
}

static xn_view part_of(xn_rng *rng, int64_t elements) {
    const int32_t unit = below(rng, 2) ? 4 : 1; /* whole vectors, or any */
    const int32_t before = below(rng, 10) * unit, after = below(rng, 10) * unit;
    if (below(rng, 2) || before + after == 0)
        return (xn_view){0, 0};
    return (xn_view){before, before + (int32_t)elements + after};
}

/* Values of few kinds, so that many are equal, or any; rows of more than a part, or few. */
static xn_step random_top_k(xn_rng *rng, bool large) {
    const bool dense = below(rng, 3) > 0;
    xn_step s;
    memset(&s, 0, sizeof s);
    xn_conv *v = &s.conv;
    const int32_t bits = below(rng, 2) ? 1 + below(rng, 40) : 1 + below(rng, 700);
    const int32_t rows = 1 + below(rng, large ? 9000 : below(rng, 2) ? 60 : 900);
    *v = (xn_conv){.channels = dense ? bits : rows, .height = 1, .width = 1};
    v->out_channels = rows;
    v->kernel_h = v->kernel_w = v->out_height = v->out_width = v->groups = 1;
    v->stride_h = v->stride_w = v->dilation_h = v->dilation_w = 1;
    v->group_channels = v->channels;
    v->group_out_channels = v->out_channels;
    v->mode = dense ? XN_MODE_XNOR : XN_MODE_FLOAT;
    v->input_datatype = dense ? XN_BITS : below(rng, 2) ? XN_FP16 : XN_FP32;
    s.kind = XN_STEP_TOP_K;
    s.second = s.residual = s.bits = XN_NO_TENSOR;
    s.output = 3;
    s.input_layout = dense && below(rng, 2) ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES;
    if (dense) {
        v->epilogue.factor = below(rng, 2) ? XN_FACTOR_SCALE : XN_FACTOR_NONE;
        v->epilogue.bias = below(rng, 2);
        v->epilogue.activation = below(rng, 3);
        v->epilogue.low = -2.25f, v->epilogue.high = 3.5f;
    } else {
        s.input_view = part_of(rng, v->channels);
    }
    if (v->epilogue.activation != XN_ACTIVATION_CLIP)
        v->epilogue.low = v->epilogue.high = 0;
    s.attributes.k = 1 + below(rng, below(rng, 3) ? 12 : XN_TOP_K_MAX);
    s.attributes.k = s.attributes.k < rows ? s.attributes.k : below(rng, 2) ? rows : 1;
    s.attributes.k = s.attributes.k < XN_TOP_K_MAX ? s.attributes.k : XN_TOP_K_MAX;
    s.attributes.largest = below(rng, 2);
    s.output_view = part_of(rng, 2 * s.attributes.k);
    return s;
}

static xn_step random_step(xn_rng *rng, xn_step_kind kind, bool large) {
    static const xn_datatype gates[] = {XN_FP32, XN_FP16, XN_INT8, XN_UINT8};
    xn_step s;
    memset(&s, 0, sizeof s);
    s.kind = (int32_t)kind;
    s.second = XN_NO_TENSOR;
    set_shape(rng, &s, large);
    set_input(rng, &s);
    if (kind == XN_STEP_CONV && below(rng, 4) == 0)
        set_pointwise(rng, &s);
    s.least = kind == XN_STEP_MAX_POOL && below(rng, 3) == 0;
    set_epilogue(rng, &s);
    if (kind == XN_STEP_MUL) {
        s.second = 1;
        s.second_datatype = (int32_t)gates[below(rng, 4)];
        s.second_view = part_of(rng, s.conv.channels);
    }
    if (kind == XN_STEP_QUANTIZE)
        s.attributes.quantum = 0.5f, s.attributes.low = (float)-below(rng, 6),
        s.attributes.high = (float)below(rng, 6);
    if (s.conv.input_datatype != XN_BITS && s.input_layout != XN_LAYOUT_NHWC)
        s.input_view = part_of(rng, xn_conv_input_elements(&s.conv));
    if (s.output != XN_NO_TENSOR)
        s.output_view = part_of(rng, xn_conv_output_elements(&s.conv));
    if (s.residual != XN_NO_TENSOR)
        s.residual_view = part_of(rng, xn_conv_output_elements(&s.conv));
    return s;
}

/* ---- its data ---- */

/* One factor, bias and slope for all rows, as an index has them. */
static void make_rows_alike(xn_weights *w) {
    for (int32_t o = 1; o < w->out_channels; o++) {
        if (w->scale)
            w->scale[o] = w->scale[0];
        if (w->bias)
            w->bias[o] = w->bias[0];
        if (w->slope)
            w->slope[o] = w->slope[0];
    }
}

void bk_step_random(xn_step_kind kind, uint64_t seed, bool large, bk_step *s) {
    xn_rng rng = {seed};
    *s = (bk_step){.seed = seed, .images = 1 + below(&rng, IMAGES)};
    s->step = kind == XN_STEP_TOP_K ? random_top_k(&rng, large) : random_step(&rng, kind, large);
    if (kind == XN_STEP_TOP_K && below(&rng, 3) == 0)
        s->images = 1 + below(&rng, 70); /* queries */
    s->exact = kind == XN_STEP_AVG_POOL ? is_exact_mean(&s->step)
                                        : kind != XN_STEP_SIGMOID && kind != XN_STEP_SOFTMAX;
    /* what a convolution makes of them, other tests ask */
    bk_step_fill(&rng, kind != XN_STEP_CONV && below(&rng, 3) == 0, s);
    bk_step_weigh(&rng, false, false, s);
    if (kind == XN_STEP_TOP_K && s->weights && below(&rng, 2))
        make_rows_alike(s->weights);
}
