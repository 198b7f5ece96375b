#include "cu_step.h"

#include "xn_arith.h"

#include <check.h>
#include <math.h>
#include <string.h>

enum { MOST_CHANNELS = 140 };

static int32_t below(xn_rng *rng, int32_t n) {
    return (int32_t)xn_rng_below(rng, (uint64_t)n);
}

static bool rounds(int32_t kind) { /* values that are not the same in another order or precision */
    return kind == XN_STEP_AVG_POOL || kind == XN_STEP_SIGMOID || kind == XN_STEP_SOFTMAX;
}

static float value_of(xn_rng *rng) {
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f};
    if (below(rng, 40) == 0)
        return specials[below(rng, 4)];
    return (float)(below(rng, 33) - 16) * 0.25f;
}

static void put(std::vector<char> *to, size_t at, xn_datatype datatype, float v) {
    if (datatype == XN_FP32) {
        memcpy(&(*to)[at * 4], &v, 4);
    } else if (datatype == XN_FP16 || datatype == XN_BF16) {
        uint32_t bits;
        memcpy(&bits, &v, 4);
        const uint16_t half = datatype == XN_FP16 ? xn_fp32_to_fp16(v) : (uint16_t)(bits >> 16);
        memcpy(&(*to)[at * 2], &half, 2);
    } else {
        (*to)[at] = (char)(isfinite(v) ? (int)(v * 4) : 3);
    }
}

std::vector<char> cu_random_reals(xn_rng *rng, xn_datatype datatype, size_t bytes) {
    std::vector<char> all(bytes);
    for (size_t i = 0; i < bytes / xn_datatype_bytes(datatype); i++)
        put(&all, i, datatype, value_of(rng));
    return all;
}

/* Bits of one group whose spare ones are 0. */
static std::vector<char> bits(xn_rng *rng, const xn_conv *c, bool bytes, int64_t images) {
    const int64_t pixels = images * c->height * c->width;
    const size_t each =
        bytes ? (size_t)(c->channels + 7) / 8 : (size_t)xn_packed_words(c->channels) * 4;
    std::vector<char> all((size_t)pixels * each);
    for (int64_t p = 0; p < pixels; p++)
        for (int32_t i = 0; i < c->channels; i++)
            all[(size_t)p * each + (size_t)i / 8] |= (char)(below(rng, 2) << i % 8);
    return all;
}

static xn_view view_of(xn_rng *rng, int64_t elements) {
    xn_view v = {};
    if (below(rng, 3))
        return v;
    const int32_t unit = below(rng, 2) ? 4 : 1;
    v.offset = below(rng, 9) * unit;
    v.pitch = (int32_t)elements + v.offset + below(rng, 9) * unit;
    return v;
}

static void make_pool(xn_rng *rng, xn_conv *c) {
    if (below(rng, 4) == 0) { /* all of an image */
        c->kernel_h = c->height;
        c->kernel_w = c->width;
        c->out_height = c->out_width = 1;
        return;
    }
    if (below(rng, 3) == 0) { /* as networks have them */
        c->height = c->width = 8 * (1 + below(rng, 2));
        c->kernel_h = c->kernel_w = 2 + below(rng, 2);
        c->pad_top = c->pad_left = c->kernel_w - 2;
        c->stride_h = c->stride_w = 2;
        c->out_height = c->out_width = c->width / 2;
        return;
    }
    c->kernel_h = 1 + below(rng, 4 < c->height ? 4 : c->height);
    c->kernel_w = 1 + below(rng, 4 < c->width ? 4 : c->width);
    c->pad_top = below(rng, c->kernel_h);
    c->pad_bottom = below(rng, c->kernel_h);
    c->pad_left = below(rng, c->kernel_w);
    c->pad_right = below(rng, c->kernel_w);
    c->stride_h = 1 + below(rng, 3);
    c->stride_w = 1 + below(rng, 3);
    c->out_height = (c->height + c->pad_top + c->pad_bottom - c->kernel_h) / c->stride_h + 1;
    c->out_width = (c->width + c->pad_left + c->pad_right - c->kernel_w) / c->stride_w + 1;
}

void cu_step_geometry(xn_rng *rng, xn_step *s) {
    xn_conv *c = &s->conv;
    c->channels = 1 + below(rng, below(rng, 3) ? 40 : MOST_CHANNELS);
    c->height = 1 + below(rng, 8);
    c->width = 1 + below(rng, below(rng, 2) ? 8 : 13);
    c->out_channels = c->group_channels = c->group_out_channels = c->channels;
    c->out_height = c->height;
    c->out_width = c->width;
    c->groups = c->kernel_h = c->kernel_w = 1;
    c->stride_h = c->stride_w = c->dilation_h = c->dilation_w = 1;
    c->mode = XN_MODE_FLOAT;
    if (s->kind == XN_STEP_MAX_POOL || s->kind == XN_STEP_AVG_POOL)
        make_pool(rng, c);
}

static void make_input(xn_rng *rng, xn_step *s) {
    static const xn_datatype any[] = {XN_FP32, XN_FP16, XN_BF16, XN_INT8, XN_UINT8, XN_BOOL};
    const bool own = s->kind == XN_STEP_MAP || s->kind == XN_STEP_MUL ||
                     s->kind == XN_STEP_SIGMOID || s->kind == XN_STEP_QUANTIZE;
    const bool may_be_bits = s->kind == XN_STEP_MAP || s->kind == XN_STEP_MAX_POOL;
    s->conv.input_datatype = any[below(rng, below(rng, 3) ? 2 : own ? 6 : 2)];
    if (may_be_bits && below(rng, 3) == 0) {
        s->conv.input_datatype = XN_BITS;
        s->input_layout = below(rng, 2) ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES;
    } else {
        s->input_layout = s->kind == XN_STEP_MAP && below(rng, 4) == 0 ? XN_LAYOUT_NHWC : 0;
        s->input_view = view_of(rng, xn_conv_input_elements(&s->conv));
    }
}

/* Where the rounding of one operation is part of another's input, fp32 and double must agree on
 * what is stored: only reals and their bits, of numbers that both hold exactly. */
static void make_epilogue(xn_rng *rng, xn_step *s) {
    xn_epilogue *e = &s->conv.epilogue;
    e->bits = below(rng, 2);
    e->datatype = e->bits && !rounds(s->kind) && below(rng, 2) ? XN_BITS
                  : below(rng, 3)                              ? XN_FP32
                                                               : XN_FP16;
    e->shift = e->bits && below(rng, 2);
    if (below(rng, 3)) {
        e->factor = below(rng, 2) ? XN_FACTOR_SCALE : XN_FACTOR_NONE;
        e->bias = below(rng, 2);
        e->residual = below(rng, 2);
        e->activation = below(rng, 3);
    }
    if (s->kind == XN_STEP_MAX_POOL && below(rng, 3) == 0) { /* bits and nothing else */
        *e = xn_epilogue{};
        e->datatype = XN_BITS;
        e->bits = 1;
    }
    if (e->activation == XN_ACTIVATION_CLIP) {
        e->low = -1.5f;
        e->high = 2.0f;
    }
    s->output = e->datatype == XN_BITS ? XN_NO_TENSOR : 1;
    s->bits = e->bits ? 2 : XN_NO_TENSOR;
    s->residual = e->residual ? 3 : XN_NO_TENSOR;
    s->bits_layout = e->bits ? below(rng, 2) ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES : 0;
    const int64_t outputs = xn_conv_output_elements(&s->conv);
    if (s->output != XN_NO_TENSOR)
        s->output_view = view_of(rng, outputs);
    if (e->residual) {
        s->residual_datatype = e->datatype == XN_FP16 ? XN_FP16 : XN_FP32;
        s->residual_view = view_of(rng, outputs);
    }
}

static xn_tensor values(const std::vector<float> &all) {
    xn_tensor t = {};
    t.datatype = XN_FP32;
    t.shape.rank = 1;
    t.shape.dims[0] = t.elements = (int64_t)all.size();
    t.bytes = all.size() * sizeof(float);
    t.data = all.data();
    return t;
}

/* Powers of two of both signs, and quarters. */
static void make_weights(xn_rng *rng, cu_step_case *c) {
    static const float scales[] = {0.5f, 1.0f, 2.0f, -1.0f, -0.5f, 0.0f};
    const size_t channels = (size_t)c->step.conv.out_channels;
    const xn_epilogue *e = &c->step.conv.epilogue;
    std::vector<float> scale(channels), rest[3];
    for (float &v : scale)
        v = scales[below(rng, 6)];
    for (std::vector<float> &all : rest)
        for (size_t i = 0; i < channels; i++)
            all.push_back((float)(below(rng, 17) - 8) * 0.25f);
    const xn_tensor tensors[4] = {values(scale), values(rest[0]), values(rest[1]), values(rest[2])};
    xn_weights_parts parts = {};
    parts.scale = e->factor == XN_FACTOR_SCALE || c->step.least ? &tensors[0] : NULL;
    parts.bias = e->bias ? &tensors[1] : NULL;
    parts.slope = e->activation == XN_ACTIVATION_PRELU ? &tensors[2] : NULL;
    parts.shift = e->shift ? &tensors[3] : NULL;
    c->weights = NULL;
    c->step.weights = XN_NO_WEIGHTS;
    if (!parts.scale && !parts.bias && !parts.slope && !parts.shift)
        return;
    c->step.weights = 0;
    ck_assert_int_eq(xn_weights_create_parts(&parts, &c->weights, NULL), XN_OK);
}

static void make_case(xn_rng *rng, cu_step_case *c) {
    xn_step *s = &c->step;
    memset(s, 0, sizeof *s);
    s->kind = XN_STEP_MAX_POOL + below(rng, XN_STEP_STEM - XN_STEP_MAX_POOL);
    s->second = XN_NO_TENSOR;
    c->images = 1 + below(rng, 4);
    cu_step_geometry(rng, s);
    make_input(rng, s);
    make_epilogue(rng, s);
    if (s->kind == XN_STEP_MUL) {
        s->second = 4;
        s->second_datatype = below(rng, 2) ? XN_FP16 : XN_FP32;
        s->second_view = view_of(rng, s->conv.channels);
        c->second = cu_random_reals(rng, (xn_datatype)s->second_datatype,
                                    xn_step_second_bytes(s) * (size_t)c->images);
    }
    if (s->kind == XN_STEP_QUANTIZE) {
        s->attributes.quantum = 0.5f;
        s->attributes.low = -4;
        s->attributes.high = 3;
    }
    s->least = s->kind == XN_STEP_MAX_POOL && below(rng, 2);
    s->attributes.count_padding = s->kind == XN_STEP_AVG_POOL && below(rng, 2);
    make_weights(rng, c);
    c->input = s->conv.input_datatype == XN_BITS
                   ? bits(rng, &s->conv, s->input_layout == XN_LAYOUT_BYTES, c->images)
                   : cu_random_reals(rng, (xn_datatype)s->conv.input_datatype,
                                     xn_step_input_bytes(s) * (size_t)c->images);
    if (s->residual != XN_NO_TENSOR)
        c->residual = cu_random_reals(rng, (xn_datatype)s->residual_datatype,
                                      xn_step_residual_bytes(s) * (size_t)c->images);
}

cu_step_outputs cu_step_run_by(const xn_backend *b, const cu_step_case *c, const xn_step *step) {
    const xn_stream_options options = {};
    xn_device *device;
    xn_stream *stream;
    xn_plan *plan = NULL;
    xn_prepared *prepared = NULL;
    xn_error error = {};
    cu_step_outputs out;
    out.reals.assign(xn_step_output_bytes(step) * (size_t)c->images, CU_POISON);
    out.bits.assign(xn_step_bits_bytes(step) * (size_t)c->images, CU_POISON);
    const xn_batch_item item = {c->input.data(), NULL, c->images};
    const xn_batch batch = {&item, 1, c->images, 0, 0};
    const xn_step_io io = {c->input.data(), c->residual.data(), out.reals.data(), out.bits.data(),
                           &batch,          c->second.data()};
    ck_assert_int_eq(b->device_open(0, &device, NULL), XN_OK);
    ck_assert_int_eq(b->stream_create(device, &options, &stream, NULL), XN_OK);
    if (c->weights)
        ck_assert_int_eq(b->weights_prepare(device, c->weights, &prepared, NULL), XN_OK);
    const xn_status status = b->plan_create(stream, step, c->images, &plan, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    ck_assert_int_eq(b->enqueue(plan, prepared, &io, &error), XN_OK);
    b->plan_free(plan);
    if (prepared)
        b->weights_free(prepared);
    b->stream_free(stream);
    b->device_close(device);
    return out;
}

static bool close_to(double got, double want, double tolerance) {
    return got == want || (isnan(got) && isnan(want)) ||
           fabs(got - want) <= tolerance * (1 + fabs(want));
}

static void compare_reals(const cu_step_case *c, const cu_step_outputs &got,
                          const cu_step_outputs &want, uint64_t seed) {
    const xn_datatype datatype = (xn_datatype)c->step.conv.epilogue.datatype;
    const double tolerance = !rounds(c->step.kind) ? 0 : datatype == XN_FP16 ? 2e-3 : 1e-6;
    const size_t size = datatype == XN_BITS ? 1 : xn_datatype_bytes(datatype);
    for (size_t i = 0; i < want.reals.size() / size; i++) {
        float a, b;
        xn_tensor_to_fp32(datatype, &got.reals[i * size], &a, 1);
        xn_tensor_to_fp32(datatype, &want.reals[i * size], &b, 1);
        ck_assert_msg(close_to((double)a, (double)b, tolerance),
                      "seed %llu, %s: output %zu is %.9g, ref has %.9g", (unsigned long long)seed,
                      xn_step_kind_name((xn_step_kind)c->step.kind), i, (double)a, (double)b);
    }
}

/* Of a kind that rounds, whatever lies within that of 0 may have either bit. */
static bool is_doubtful(const cu_step_case *c, const std::vector<float> &y, size_t byte) {
    const xn_conv *v = &c->step.conv;
    const size_t each = c->step.bits_layout == XN_LAYOUT_BYTES
                            ? (size_t)(v->out_channels + 7) / 8
                            : (size_t)xn_packed_words(v->out_channels) * 4;
    const size_t plane = (size_t)v->out_height * (size_t)v->out_width;
    const size_t pixel = byte / each;
    for (size_t o = byte % each * 8; o < byte % each * 8 + 8 && o < (size_t)v->out_channels; o++) {
        const float shift = v->epilogue.shift ? c->weights->shift[o] : 0;
        const size_t at = (pixel / plane * (size_t)v->out_channels + o) * plane + pixel % plane;
        if (fabs((double)(y[at] + shift)) < 1e-4)
            return true;
    }
    return false;
}

static std::vector<float> values_of_ref(const cu_step_case *c) {
    xn_step plain = c->step;
    plain.conv.epilogue.datatype = XN_FP32;
    plain.output_view = xn_view{};
    const cu_step_outputs all = cu_step_run_by(&xn_backend_ref, c, &plain);
    std::vector<float> y(all.reals.size() / sizeof(float));
    memcpy(y.data(), all.reals.data(), all.reals.size());
    return y;
}

void cu_step_compare(const cu_step_case *c, const cu_step_outputs &got, uint64_t seed) {
    const cu_step_outputs want = cu_step_run_by(&xn_backend_ref, c, &c->step);
    std::vector<float> y;
    compare_reals(c, got, want, seed);
    if (rounds(c->step.kind) && got.bits != want.bits)
        y = values_of_ref(c);
    for (size_t i = 0; i < want.bits.size(); i++)
        ck_assert_msg(got.bits[i] == want.bits[i] || (!y.empty() && is_doubtful(c, y, i)),
                      "seed %llu, %s: byte %zu of bits is %02x, ref has %02x",
                      (unsigned long long)seed, xn_step_kind_name((xn_step_kind)c->step.kind), i,
                      (uint8_t)got.bits[i], (uint8_t)want.bits[i]);
}

void cu_step_check(uint64_t seed, cu_step_run run) {
    xn_rng rng = {seed};
    cu_step_case c;
    make_case(&rng, &c);
    cu_step_compare(&c, run(&c, &c.step), seed);
    xn_weights_free(c.weights);
}
