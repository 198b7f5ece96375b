/* bk_step.c: see bk_step.h. */
#include "bk_step.h"

#include "xn_mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GUARD = 64, PARTS = 5 };

static int below(xn_rng *rng, int n) {
    return (int)xn_rng_below(rng, (uint64_t)n);
}

void *bk_take(size_t bytes) {
    void *memory = xn_mem_zalloc(bytes ? bytes : 1, 1);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

void bk_step_of_case(const bk_case *c, bk_step *out) {
    static const xn_conv_limits limits = {INT32_MAX, INT32_MAX, INT64_MAX};
    const xn_shape input = {4, {c->images, c->channels, c->height, c->width}};
    const xn_weights_shape weights = {
        .dims = {c->out_channels, c->channels / c->params.groups, c->kernel_h, c->kernel_w}};
    xn_conv conv;
    xn_error error = {0};
    *out = (bk_step){.exact = true, .seed = c->seed};
    ck_assert_msg(!xn_conv_resolve(&c->params, c->input_datatype, &input, &weights, &limits, &conv,
                                   &out->images, &error),
                  "%s", error.message);
    xn_step_of_conv(&conv, &out->step);
}

/* ---- its data ---- */

void bk_fill_quarters(xn_rng *rng, bool special, int32_t datatype, size_t bytes, void *to) {
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f};
    const size_t count = bytes / xn_datatype_bytes((xn_datatype)datatype);
    for (size_t i = 0; i < count; i++) {
        float v = (float)(below(rng, 33) - 16) * 0.25f;
        if (special && below(rng, 8) == 0)
            v = specials[below(rng, 5)];
        if (datatype == XN_FP32)
            ((float *)to)[i] = v;
        else if (datatype == XN_FP16)
            ((uint16_t *)to)[i] = xn_fp32_to_fp16(v);
        else if (datatype == XN_BF16)
            ((uint16_t *)to)[i] = xn_fp32_to_bf16(v);
        else
            ((uint8_t *)to)[i] = (uint8_t)(below(rng, 9) - (datatype == XN_INT8 ? 4 : 0));
    }
}

/* Spare bits and words are 0: bits of the channels alone are drawn. */
static void fill_bits(xn_rng *rng, const xn_step *s, int64_t images, unsigned char *to) {
    const xn_conv *v = &s->conv;
    const bool words = s->input_layout == XN_LAYOUT_WORDS;
    const int32_t groups = words ? v->groups : 1, share = v->channels / groups;
    const size_t pitch = words
                             ? (size_t)((share + 31) / 32 <= 2 ? (share + 31) / 32
                                                               : ((share + 31) / 32 + 3) / 4 * 4) *
                                   4
                             : (size_t)(v->channels + 7) / 8;
    const int64_t places = images * groups * v->height * v->width;
    for (int64_t at = 0; at < places; at++, to += pitch)
        for (int32_t c = 0; c < share; c++)
            to[c / 8] |= (unsigned char)(below(rng, 2) << c % 8);
}

static const xn_tensor *channel_values(xn_rng *rng, int32_t count, bool scale, xn_tensor *t) {
    static const float scales[] = {0.5f, -2.0f, 4.0f, -0.25f, 0.0f, 1.0f, -1.0f};
    float *values = bk_take((size_t)count * sizeof *values);
    for (int32_t i = 0; i < count; i++)
        values[i] = scale ? scales[below(rng, 7)] : (float)(below(rng, 25) - 12) * 0.25f;
    *t = (xn_tensor){.datatype = XN_FP32,
                     .shape = {1, {count}},
                     .elements = count,
                     .bytes = (size_t)count * sizeof *values,
                     .data = values};
    return t;
}

void bk_step_weigh(xn_rng *rng, bool all, bool signs, bk_step *s) {
    const xn_conv *v = &s->step.conv;
    const xn_epilogue *e = &v->epilogue;
    const bool kernel =
        s->step.kind == XN_STEP_CONV || (s->step.kind == XN_STEP_TOP_K && v->mode == XN_MODE_XNOR);
    xn_tensor tensors[PARTS];
    xn_weights_parts parts = {0};
    xn_error error = {0};
    memset(tensors, 0, sizeof tensors);
    if (all || e->factor || s->step.least)
        parts.scale = channel_values(rng, v->out_channels, true, &tensors[1]);
    if (all || e->bias)
        parts.bias = channel_values(rng, v->out_channels, false, &tensors[2]);
    if (all || e->activation == XN_ACTIVATION_PRELU)
        parts.slope = channel_values(rng, v->out_channels, true, &tensors[3]);
    if (all || e->shift)
        parts.shift = channel_values(rng, v->out_channels, false, &tensors[4]);
    if (kernel) {
        const int64_t filter = (int64_t)v->group_channels * v->kernel_h * v->kernel_w;
        const int32_t count = (int32_t)(v->out_channels * filter);
        parts.weights = channel_values(rng, count, true, &tensors[0]);
        for (int32_t i = 0; i < count && signs; i++)
            ((float *)(uintptr_t)tensors[0].data)[i] = below(rng, 2) ? 1.0f : -1.0f;
        tensors[0].shape =
            (xn_shape){4, {v->out_channels, v->group_channels, v->kernel_h, v->kernel_w}};
    }
    if (kernel || parts.scale || parts.bias || parts.slope || parts.shift)
        ck_assert_msg(xn_weights_create_parts(&parts, &s->weights, &error) == XN_OK, "%s",
                      error.message);
    for (int i = 0; i < PARTS; i++)
        xn_mem_free((void *)(uintptr_t)tensors[i].data);
}

static unsigned char *drawn(xn_rng *rng, bool special, int32_t tensor, int32_t datatype,
                            size_t bytes) {
    unsigned char *memory = bk_take(bytes);
    if (tensor != XN_NO_TENSOR)
        bk_fill_quarters(rng, special, datatype, bytes, memory);
    return memory;
}

void bk_step_fill(xn_rng *rng, bool special, bk_step *s) {
    const xn_step *step = &s->step;
    const size_t images = (size_t)s->images;
    const bool is_bits = step->conv.input_datatype == XN_BITS;
    xn_mem_free(s->input);
    xn_mem_free(s->second);
    xn_mem_free(s->residual);
    s->input = drawn(rng, special, is_bits ? XN_NO_TENSOR : step->input, step->conv.input_datatype,
                     images * xn_step_input_bytes(step));
    if (is_bits)
        fill_bits(rng, step, s->images, s->input);
    s->second =
        drawn(rng, false, step->second, step->second_datatype, images * xn_step_second_bytes(step));
    s->residual = drawn(rng, false, step->residual, step->residual_datatype,
                        images * xn_step_residual_bytes(step));
}

void bk_step_free(bk_step *s) {
    for (int i = 0; i < BK_BACKENDS; i++)
        if (s->prepared[i])
            xn_backend_all()[i]->weights_free(s->prepared[i]);
    xn_mem_free(s->input);
    xn_mem_free(s->second);
    xn_mem_free(s->residual);
    xn_weights_free(s->weights);
}

/* ---- running ---- */

static unsigned char *guarded(size_t bytes) {
    unsigned char *memory = bk_take(bytes + GUARD);
    memset(memory, BK_POISON, bytes + GUARD);
    return memory;
}

void bk_written_free(bk_written *w) {
    xn_mem_free(w->real);
    xn_mem_free(w->bits);
}

static void expect_guard(const unsigned char *memory, size_t bytes) {
    for (size_t i = bytes; i < bytes + GUARD; i++)
        ck_assert_int_eq(memory[i], BK_POISON);
}

/* Images [first, first + count) of the subject. */
static void run_plan(const bk_target *t, const bk_step *s, xn_plan *plan,
                     const xn_prepared *weights, int64_t first, int64_t count,
                     const bk_written *to) {
    const xn_backend *b = t->backend;
    const xn_step *step = &s->step;
    const xn_batch_item item = {.images = count};
    const xn_batch batch = {.items = &item, .count = 1, .images = count};
    const size_t n = (size_t)first;
    xn_error error = {0};
    xn_run_times times;
    xn_step_io io = {.input = s->input + n * xn_step_input_bytes(step), .batch = &batch};
    if (step->second != XN_NO_TENSOR)
        io.second = s->second + n * xn_step_second_bytes(step);
    if (step->residual != XN_NO_TENSOR)
        io.residual = s->residual + n * xn_step_residual_bytes(step);
    if (step->output != XN_NO_TENSOR)
        io.output = to->real + n * xn_step_output_bytes(step);
    if (step->bits != XN_NO_TENSOR)
        io.bits = to->bits + n * xn_step_bits_bytes(step);
    ck_assert_int_eq(b->begin(t->stream, &batch, NULL, &error), XN_OK);
    ck_assert_int_eq(b->enqueue(plan, weights, &io, &error), XN_OK);
    ck_assert_int_eq(b->end(t->stream, &batch, NULL, &times, &error), XN_OK);
}

static const xn_prepared *prepare(const bk_target *t, bk_step *s) {
    xn_error error = {0};
    xn_prepared **prepared = &s->prepared[t->number];
    if (s->weights && !*prepared)
        ck_assert_int_eq(t->backend->weights_prepare(t->device, s->weights, prepared, &error),
                         XN_OK);
    return *prepared;
}

bool bk_step_run(const bk_target *t, bk_step *s, int64_t batch, bk_written *out) {
    const xn_backend *b = t->backend;
    const size_t images = (size_t)s->images;
    xn_plan *plan = NULL;
    xn_error error = {0};
    xn_status status = b->plan_create(t->stream, &s->step, batch, &plan, &error);
    if (status == XN_ERR_UNSUPPORTED && t->path)
        return false;
    ck_assert_msg(status == XN_OK, "%s: %s", t->name, error.message);
    const xn_prepared *prepared = prepare(t, s);
    if (prepared && b->weights_ready)
        ck_assert_int_eq(b->weights_ready(prepared, plan, &error), XN_OK);
    *out = (bk_written){.real_bytes = images * xn_step_output_bytes(&s->step),
                        .bits_bytes = images * xn_step_bits_bytes(&s->step)};
    out->real = guarded(out->real_bytes);
    out->bits = guarded(out->bits_bytes);
    for (int64_t n = 0; n < s->images; n += batch)
        run_plan(t, s, plan, prepared, n, s->images - n < batch ? s->images - n : batch, out);
    expect_guard(out->real, out->real_bytes);
    expect_guard(out->bits, out->bits_bytes);
    b->plan_free(plan);
    return true;
}

/* ---- judging ---- */

static void describe(const bk_step *s, char text[BK_TEXT]) {
    const xn_step *p = &s->step;
    const xn_conv *v = &p->conv;
    const xn_epilogue *e = &v->epilogue;
    snprintf(
        text, BK_TEXT,
        "seed %" PRIu64 ": %s of %d images [%d, %d, %d] %s layout %d, view %d of %d, to %d "
        "channels, %dx%d stride %d,%d pad %d,%d,%d,%d groups %d mode %d least %d; factor %d "
        "k %d bias %d residual %d activation %d to %s bits %d shift %d layout %d, view %d of %d",
        s->seed, xn_step_kind_name((xn_step_kind)p->kind), (int)s->images, v->channels, v->height,
        v->width, xn_datatype_name((xn_datatype)v->input_datatype), p->input_layout,
        p->input_view.offset, p->input_view.pitch, v->out_channels, v->kernel_h, v->kernel_w,
        v->stride_h, v->stride_w, v->pad_top, v->pad_left, v->pad_bottom, v->pad_right, v->groups,
        v->mode, p->least, e->factor, e->k, e->bias, e->residual, e->activation,
        xn_datatype_name((xn_datatype)e->datatype), e->bits, e->shift, p->bits_layout,
        p->output_view.offset, p->output_view.pitch);
}

/* How far a value may be: 2^-20 of what sigmoid and softmax give, at most 1, and 2^-17 of a mean,
 * times a factor of at most 4; as fp16 rounds. */
static bool is_near(const bk_step *s, double got, double right) {
    const bool half = s->step.conv.epilogue.datatype == XN_FP16;
    const double slack = s->step.kind == XN_STEP_AVG_POOL ? 0x1p-15 : 0x1p-18;
    if (got == right || (isnan(got) && isnan(right)))
        return true;
    return !s->exact && fabs(got - right) <= slack + fabs(right) * (half ? 0x1p-10 : 0x1p-22);
}

/* Elements that differ, of the whole tensor: what is not the step's is poison in both. */
static size_t real_differences(const bk_step *s, const bk_written *got, const bk_written *right) {
    const xn_datatype datatype = (xn_datatype)s->step.conv.epilogue.datatype;
    size_t wrong = 0;
    if (s->step.output == XN_NO_TENSOR)
        return 0;
    const int64_t count = (int64_t)(right->real_bytes / xn_datatype_bytes(datatype));
    for (int64_t i = 0; i < count; i++)
        wrong += !is_near(s, bk_value(datatype, got->real, i), bk_value(datatype, right->real, i));
    return wrong;
}

/* Signs of sigmoids may turn where they are next to 0. */
static size_t bit_differences(const bk_step *s, const bk_written *got, const bk_written *right) {
    size_t wrong = 0;
    for (size_t i = 0; i < right->bits_bytes; i++)
        wrong += (size_t)__builtin_popcount((unsigned)(got->bits[i] ^ right->bits[i]));
    return s->exact || wrong * 100 > right->bits_bytes ? wrong : 0;
}

void bk_step_expect(const char *whose, const bk_step *s, const bk_written *got,
                    const bk_written *right) {
    const size_t wrong = real_differences(s, got, right) + bit_differences(s, got, right);
    char text[BK_TEXT];
    describe(s, text);
    ck_assert_msg(!wrong, "%s: %zu values and bits differ: %s; run seed %" PRIu64, whose, wrong,
                  text, xn_test_seed());
}
