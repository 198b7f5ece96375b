/* step_test.c: random steps of every kind, datatype, layout, part of a tensor and epilogue, on
 * every backend that has all kinds, against ref. Values are small multiples of 1/4, factors powers
 * of 2 and means those of a power of 2 of values, so that all kinds but sigmoid and softmax are
 * exact and equal; NaN, infinities and zeros of both signs are among the inputs. What a step does
 * not write stays as it was. Outputs are the same bit by bit on one thread and on several, and of
 * an image alone. */
#include "bk_run.h"

#include "xn_mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 800, PARTS = 2, IMAGES = 3, GUARD = 64, POISON = 0xa5, LARGE_EVERY = 40 };

typedef struct subject {
    xn_step step;
    bool exact, special;
    int64_t images;
    xn_weights *weights; /* or NULL */
    unsigned char *input, *second, *residual;
    uint64_t seed;
} subject;

static int below(xn_rng *rng, int n) {
    return (int)xn_rng_below(rng, (uint64_t)n);
}

static void *take(size_t bytes) {
    void *memory = xn_mem_zalloc(bytes ? bytes : 1, 1);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

/* ---- a random step ---- */

static int32_t outputs(int32_t size, int32_t before, int32_t after, int32_t kernel, int32_t stride,
                       int32_t dilation) {
    return (size + before + after - dilation * (kernel - 1) - 1) / stride + 1;
}

/* Kernels of pools have a power of 2 of taps, and means no padding, so that they are exact. */
static void set_window(xn_rng *rng, xn_step *s) {
    static const int32_t kernels[] = {1, 2, 4};
    xn_conv *v = &s->conv;
    const bool mean = s->kind == XN_STEP_AVG_POOL;
    v->kernel_h = mean ? kernels[below(rng, 3)] : 1 + below(rng, 3);
    v->kernel_w = mean ? kernels[below(rng, 3)] : 1 + below(rng, 3);
    if (s->kind != XN_STEP_CONV && v->height * v->width <= 64 && below(rng, 6) == 0 && !mean)
        v->kernel_h = v->height, v->kernel_w = v->width;
    v->stride_h = 1 + below(rng, 3);
    v->stride_w = 1 + below(rng, 3);
    v->dilation_h = 1 + (below(rng, 4) == 0);
    v->dilation_w = 1 + (below(rng, 4) == 0);
    s->count_padding = mean && below(rng, 2);
    if (v->dilation_h * (v->kernel_h - 1) >= v->height)
        v->kernel_h = v->dilation_h = 1;
    if (v->dilation_w * (v->kernel_w - 1) >= v->width)
        v->kernel_w = v->dilation_w = 1;
    if ((!mean || s->count_padding) && v->kernel_h > 1)
        v->pad_top = below(rng, v->kernel_h), v->pad_bottom = below(rng, v->kernel_h);
    if ((!mean || s->count_padding) && v->kernel_w > 1)
        v->pad_left = below(rng, v->kernel_w), v->pad_right = below(rng, v->kernel_w);
    v->out_height =
        outputs(v->height, v->pad_top, v->pad_bottom, v->kernel_h, v->stride_h, v->dilation_h);
    v->out_width =
        outputs(v->width, v->pad_left, v->pad_right, v->kernel_w, v->stride_w, v->dilation_w);
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

static void set_epilogue(xn_rng *rng, xn_step *s) {
    static const xn_datatype stored[] = {XN_FP32, XN_FP32, XN_FP16, XN_BITS};
    xn_epilogue *e = &s->conv.epilogue;
    e->factor = !s->least && below(rng, 2) ? XN_FACTOR_SCALE : XN_FACTOR_NONE;
    e->bias = below(rng, 2);
    e->residual = below(rng, 2);
    e->activation = below(rng, 3);
    if (e->activation == XN_ACTIVATION_CLIP)
        e->low = -2.25f, e->high = 3.5f;
    e->datatype = (int32_t)stored[below(rng, 4)];
    e->bits = e->datatype == XN_BITS || below(rng, 3) == 0;
    e->shift = e->bits && below(rng, 2);
    if (below(rng, 6) == 0) /* nothing but the kind */
        *e = (xn_epilogue){.datatype = e->datatype, .bits = e->bits};
    s->residual = e->residual ? 2 : XN_NO_TENSOR;
    if (e->residual)
        s->residual_datatype =
            e->datatype != XN_BITS ? e->datatype : (int32_t)stored[1 + below(rng, 2)];
    s->output = e->datatype == XN_BITS ? XN_NO_TENSOR : 3;
    s->bits = e->bits ? 4 : XN_NO_TENSOR;
    s->bits_layout = e->bits && below(rng, 2) ? XN_LAYOUT_WORDS : XN_LAYOUT_BYTES;
}

static xn_view part_of(xn_rng *rng, int64_t elements) {
    const int32_t before = below(rng, 40), after = below(rng, 40);
    if (below(rng, 2) || before + after == 0)
        return (xn_view){0, 0};
    return (xn_view){before, before + (int32_t)elements + after};
}

static xn_step random_step(xn_rng *rng, xn_step_kind kind, bool large) {
    static const xn_datatype gates[] = {XN_FP32, XN_FP16, XN_INT8};
    xn_step s;
    memset(&s, 0, sizeof s);
    s.kind = (int32_t)kind;
    s.second = XN_NO_TENSOR;
    set_shape(rng, &s, large);
    set_input(rng, &s);
    s.least = kind == XN_STEP_MAX_POOL && below(rng, 3) == 0;
    set_epilogue(rng, &s);
    if (kind == XN_STEP_MUL) {
        s.second = 1;
        s.second_datatype = (int32_t)gates[below(rng, 3)];
        s.second_view = part_of(rng, s.conv.channels);
    }
    if (kind == XN_STEP_QUANTIZE)
        s.quantum = 0.5f, s.low = (float)-below(rng, 6), s.high = (float)below(rng, 6);
    if (s.conv.input_datatype != XN_BITS && s.input_layout != XN_LAYOUT_NHWC)
        s.input_view = part_of(rng, xn_conv_input_elements(&s.conv));
    if (s.output != XN_NO_TENSOR)
        s.output_view = part_of(rng, xn_conv_output_elements(&s.conv));
    if (s.residual != XN_NO_TENSOR)
        s.residual_view = part_of(rng, xn_conv_output_elements(&s.conv));
    return s;
}

/* ---- its data ---- */

static void fill_real(xn_rng *rng, bool special, int32_t datatype, size_t bytes, void *to) {
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
            ((uint8_t *)to)[i] = (uint8_t)below(rng, 4);
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
    float *values = take((size_t)count * sizeof *values);
    for (int32_t i = 0; i < count; i++)
        values[i] = scale ? scales[below(rng, 7)] : (float)(below(rng, 25) - 12) * 0.25f;
    *t = (xn_tensor){.datatype = XN_FP32,
                     .shape = {1, {count}},
                     .elements = count,
                     .bytes = (size_t)count * sizeof *values,
                     .data = values};
    return t;
}

static void make_weights(xn_rng *rng, subject *s) {
    const xn_conv *v = &s->step.conv;
    const xn_epilogue *e = &v->epilogue;
    const bool kernel = s->step.kind == XN_STEP_CONV;
    xn_tensor tensors[5];
    xn_weights_parts parts = {NULL, NULL, NULL, NULL, NULL};
    xn_error error = {0};
    memset(tensors, 0, sizeof tensors);
    if (e->factor || s->step.least)
        parts.scale = channel_values(rng, v->out_channels, true, &tensors[1]);
    if (e->bias)
        parts.bias = channel_values(rng, v->out_channels, false, &tensors[2]);
    if (e->activation == XN_ACTIVATION_PRELU)
        parts.slope = channel_values(rng, v->out_channels, true, &tensors[3]);
    if (e->shift)
        parts.shift = channel_values(rng, v->out_channels, false, &tensors[4]);
    if (kernel) {
        const int64_t filter = (int64_t)v->group_channels * v->kernel_h * v->kernel_w;
        parts.weights = channel_values(rng, (int32_t)(v->out_channels * filter), true, &tensors[0]);
        tensors[0].shape =
            (xn_shape){4, {v->out_channels, v->group_channels, v->kernel_h, v->kernel_w}};
    }
    if (kernel || parts.scale || parts.bias || parts.slope || parts.shift)
        ck_assert_msg(xn_weights_create_parts(&parts, &s->weights, &error) == XN_OK, "%s",
                      error.message);
    for (int i = 0; i < 5; i++)
        xn_mem_free((void *)tensors[i].data);
}

static void make_subject(xn_step_kind kind, uint64_t seed, bool large, subject *s) {
    xn_rng rng = {seed};
    *s = (subject){.seed = seed, .images = 1 + below(&rng, IMAGES)};
    s->step = random_step(&rng, kind, large);
    s->exact = kind != XN_STEP_SIGMOID && kind != XN_STEP_SOFTMAX;
    /* what a convolution makes of them, other tests ask */
    s->special = kind != XN_STEP_CONV && below(&rng, 3) == 0;
    const xn_step *step = &s->step;
    const size_t images = (size_t)s->images;
    const size_t in = images * xn_step_input_bytes(step);
    s->input = take(in);
    if (step->conv.input_datatype == XN_BITS)
        fill_bits(&rng, step, s->images, s->input);
    else
        fill_real(&rng, s->special, step->conv.input_datatype, in, s->input);
    s->second = take(images * xn_step_second_bytes(step));
    if (step->second != XN_NO_TENSOR)
        fill_real(&rng, false, step->second_datatype, images * xn_step_second_bytes(step),
                  s->second);
    s->residual = take(images * xn_step_residual_bytes(step));
    if (step->residual != XN_NO_TENSOR)
        fill_real(&rng, false, step->residual_datatype, images * xn_step_residual_bytes(step),
                  s->residual);
    make_weights(&rng, s);
}

static void free_subject(subject *s) {
    xn_mem_free(s->input);
    xn_mem_free(s->second);
    xn_mem_free(s->residual);
    xn_weights_free(s->weights);
}

/* ---- running ---- */

typedef struct written {
    unsigned char *real, *bits; /* with a guard behind each */
    size_t real_bytes, bits_bytes;
} written;

static unsigned char *guarded(size_t bytes) {
    unsigned char *memory = take(bytes + GUARD);
    memset(memory, POISON, bytes + GUARD);
    return memory;
}

static void free_written(written *w) {
    xn_mem_free(w->real);
    xn_mem_free(w->bits);
}

static void expect_guard(const unsigned char *memory, size_t bytes) {
    for (size_t i = bytes; i < bytes + GUARD; i++)
        ck_assert_int_eq(memory[i], POISON);
}

/* Images [first, first + count) of the subject. */
static void run_plan(const bk_target *t, const subject *s, xn_plan *plan,
                     const xn_prepared *weights, int64_t first, int64_t count, const written *to) {
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

/* In batches of so many images; false where the path cannot run it. */
static bool run_step(const bk_target *t, const subject *s, int64_t batch, written *out) {
    const xn_backend *b = t->backend;
    const size_t images = (size_t)s->images;
    xn_plan *plan = NULL;
    xn_prepared *prepared = NULL;
    xn_error error = {0};
    xn_status status = b->plan_create(t->stream, &s->step, batch, &plan, &error);
    if (status == XN_ERR_UNSUPPORTED && t->path)
        return false;
    ck_assert_msg(status == XN_OK, "%s: %s", t->name, error.message);
    if (s->weights)
        ck_assert_int_eq(b->weights_prepare(t->device, s->weights, &prepared, &error), XN_OK);
    if (s->weights && b->weights_ready)
        ck_assert_int_eq(b->weights_ready(prepared, plan, &error), XN_OK);
    *out = (written){.real_bytes = images * xn_step_output_bytes(&s->step),
                     .bits_bytes = images * xn_step_bits_bytes(&s->step)};
    out->real = guarded(out->real_bytes);
    out->bits = guarded(out->bits_bytes);
    for (int64_t n = 0; n < s->images; n += batch)
        run_plan(t, s, plan, prepared, n, s->images - n < batch ? s->images - n : batch, out);
    expect_guard(out->real, out->real_bytes);
    expect_guard(out->bits, out->bits_bytes);
    b->weights_free(prepared);
    b->plan_free(plan);
    return true;
}

/* ---- judging ---- */

static void describe(const subject *s, char text[BK_TEXT]) {
    const xn_step *p = &s->step;
    const xn_conv *v = &p->conv;
    const xn_epilogue *e = &v->epilogue;
    snprintf(text, BK_TEXT,
             "seed %" PRIu64 ": %s of %d images [%d, %d, %d] %s layout %d, view %d of %d, to %d "
             "channels, %dx%d stride %d,%d pad %d,%d,%d,%d groups %d mode %d least %d; factor %d "
             "bias %d residual %d activation %d to %s bits %d shift %d layout %d, view %d of %d",
             s->seed, xn_step_kind_name((xn_step_kind)p->kind), (int)s->images, v->channels,
             v->height, v->width, xn_datatype_name((xn_datatype)v->input_datatype), p->input_layout,
             p->input_view.offset, p->input_view.pitch, v->out_channels, v->kernel_h, v->kernel_w,
             v->stride_h, v->stride_w, v->pad_top, v->pad_left, v->pad_bottom, v->pad_right,
             v->groups, v->mode, p->least, e->factor, e->bias, e->residual, e->activation,
             xn_datatype_name((xn_datatype)e->datatype), e->bits, e->shift, p->bits_layout,
             p->output_view.offset, p->output_view.pitch);
}

static double real_at(int32_t datatype, const unsigned char *from, size_t i) {
    float value;
    const size_t size = xn_datatype_bytes((xn_datatype)datatype);
    xn_tensor_to_fp32((xn_datatype)datatype, from + i * size, &value, 1);
    return (double)value;
}

/* How far a value may be: 2^-21 of what sigmoid and softmax give, at most 1, times a factor of at
 * most 4; as fp16 rounds. */
static bool is_near(const subject *s, double got, double right) {
    const bool half = s->step.conv.epilogue.datatype == XN_FP16;
    if (got == right || (isnan(got) && isnan(right)))
        return true;
    return !s->exact && fabs(got - right) <= 0x1p-19 + fabs(right) * (half ? 0x1p-10 : 0x1p-22);
}

/* Elements that differ, of the whole tensor: what is not the step's is poison in both. */
static size_t real_differences(const subject *s, const written *got, const written *right) {
    const int32_t datatype = s->step.conv.epilogue.datatype;
    size_t wrong = 0;
    if (s->step.output == XN_NO_TENSOR)
        return 0;
    const size_t size = xn_datatype_bytes((xn_datatype)datatype);
    for (size_t i = 0; i < right->real_bytes / size; i++)
        wrong += !is_near(s, real_at(datatype, got->real, i), real_at(datatype, right->real, i));
    return wrong;
}

/* Signs of sigmoids may turn where they are next to 0. */
static size_t bit_differences(const subject *s, const written *got, const written *right) {
    size_t wrong = 0;
    for (size_t i = 0; i < right->bits_bytes; i++)
        wrong += (size_t)__builtin_popcount((unsigned)(got->bits[i] ^ right->bits[i]));
    return s->exact || wrong * 100 > right->bits_bytes ? wrong : 0;
}

static bool same_bits(const written *a, const written *b) {
    return !memcmp(a->real, b->real, a->real_bytes) && !memcmp(a->bits, b->bits, a->bits_bytes);
}

static void set_threads(const bk_target *t, int threads) {
    if (t->backend->stream_set_threads)
        t->backend->stream_set_threads(t->stream, threads);
}

static void check_target(const bk_target *t, const subject *s, const written *right) {
    written got, again;
    char text[BK_TEXT];
    set_threads(t, 1);
    if (!run_step(t, s, s->images, &got))
        return;
    describe(s, text);
    const size_t reals = real_differences(s, &got, right), bits = bit_differences(s, &got, right);
    ck_assert_msg(!reals && !bits, "%s: %zu values and %zu bits differ: %s", t->name, reals, bits,
                  text);
    set_threads(t, 3);
    for (int64_t batch = s->images; batch > 0; batch = batch > 1 ? 1 : 0) {
        ck_assert(run_step(t, s, batch, &again));
        ck_assert_msg(same_bits(&got, &again), "%s: other bits in batches of %d on 3 threads: %s",
                      t->name, (int)batch, text);
        free_written(&again);
    }
    free_written(&got);
}

/* Other kinds have one way on each instruction set: a path of each set is enough for those. */
static bool is_wanted(const bk_target *forced, const subject *s, int number) {
    const bool all = s->step.kind == XN_STEP_CONV || strcmp(forced->backend->name, "cpu") != 0 ||
                     !strncmp(forced->path, "real/", 5);
    return all && number % 4 == 0;
}

static void check_subject(const subject *s, int number) {
    const bk_target *ref = bk_target_ref(), *forced;
    written right;
    ck_assert(run_step(ref, s, s->images, &right));
    for (int i = 0; i < bk_target_count(); i++) {
        const xn_backend *b = xn_backend_all()[i];
        const bk_target *t = NULL;
        if (!strcmp(b->name, "ref") || !b->in_place || !b->parts ||
            !(b->kinds >> s->step.kind & 1) || !(t = bk_target_open(i)))
            continue;
        check_target(t, s, &right);
        for (int path = 0; (forced = bk_target_forced(t, path)); path++)
            if (is_wanted(forced, s, number))
                check_target(forced, s, &right);
    }
    free_written(&right);
}

START_TEST(random_steps) {
    const xn_step_kind kind = (xn_step_kind)(_i / PARTS);
    for (int n = _i % PARTS; n < STEPS; n += PARTS * bk_every()) {
        subject s;
        const uint64_t seed = xn_test_seed() + (uint64_t)kind * 1000003 + (uint64_t)n * 7919;
        make_subject(kind, seed, n % LARGE_EVERY == 0, &s);
        check_subject(&s, n / PARTS);
        free_subject(&s);
    }
}
END_TEST

XN_SUITE(backends_steps) {
    Suite *s = suite_create("backends_steps");
    TCase *t = tcase_create("steps");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, random_steps, 0, XN_STEP_STEM * PARTS);
    suite_add_tcase(s, t);
    return s;
}
