/* op_args.cu: a step as its kernel takes it. Host code without a device. */
#include "op.h"

/* Elements from image to image. */
static int64_t pitch_of(const xn_view *view, int64_t whole) {
    return view->pitch ? view->pitch : whole;
}

void *xn_cuda_part_at(const void *tensor, const xn_view *view, int32_t datatype) {
    char *whole = (char *)const_cast<void *>(tensor);
    if (!whole || datatype == XN_BITS)
        return whole;
    return whole + (size_t)view->offset * xn_datatype_bytes((xn_datatype)datatype);
}

static void set_geometry(xn_op_args *a, const xn_conv *c, int64_t images) {
    a->channels = c->out_channels;
    a->in_plane = (int64_t)c->height * c->width;
    a->plane = (int64_t)c->out_height * c->out_width;
    a->pixels = images * a->plane;
    a->height = c->height;
    a->width = c->width;
    a->out_height = c->out_height;
    a->out_width = c->out_width;
    a->kernel_h = c->kernel_h;
    a->kernel_w = c->kernel_w;
    a->stride_h = c->stride_h;
    a->stride_w = c->stride_w;
    a->dilation_h = c->dilation_h;
    a->dilation_w = c->dilation_w;
    a->pad_top = c->pad_top;
    a->pad_left = c->pad_left;
}

static int64_t ceil_div(int64_t n, int64_t by) {
    return (n - 1) / by + 1;
}

/* 32 channels a tile; words past the last channel are written too. */
static int64_t word_tiles(const xn_op_args *a) {
    return a->e.what.bits && !a->to_bytes ? a->out_unit : ceil_div(a->channels, 32);
}

static void set_output(xn_op_args *a, const xn_step *step, const xn_epilogue_args *epilogue) {
    const xn_conv *c = &step->conv;
    const int64_t outputs = c->out_channels * a->plane;
    a->e = *epilogue;
    a->e.what = c->epilogue;
    a->e.unit = 1.0f;
    a->output_pitch = outputs + epilogue->output_gap;
    a->residual_pitch = outputs + epilogue->residual_gap;
    a->to_bytes = step->bits_layout == XN_LAYOUT_BYTES;
    if (c->epilogue.bits)
        a->out_unit =
            a->to_bytes ? (c->out_channels - 1) / 8 + 1 : xn_packed_words(c->out_channels);
    const int64_t words = word_tiles(a);
    a->words_log = words > 2 ? 2 : words > 1;
    a->groups = xn_fast_divisor_of((int32_t)ceil_div(words, INT64_C(1) << a->words_log));
    a->plane_of = xn_fast_divisor_of(a->plane <= INT32_MAX ? (int32_t)a->plane : 1);
}

static void set_lanes(xn_op_args *a) {
    const int64_t each = ceil_div(a->out_height, XN_OP_ROWS) * a->out_width;
    if (a->pixels > INT32_MAX / XN_OP_ROWS)
        return;
    a->lanes = (int32_t)(a->pixels / a->plane * each);
    a->lanes_of = xn_fast_divisor_of((int32_t)each);
    a->tiles_of = xn_fast_divisor_of((int32_t)ceil_div(a->lanes, 32));
    a->width_of = xn_fast_divisor_of(a->out_width);
}

xn_op_args xn_op_args_of(const xn_step *step, int64_t images, const xn_op_inputs *in,
                         const xn_epilogue_args *epilogue) {
    const xn_conv *c = &step->conv;
    xn_op_args a = {};
    a.kind = step->kind;
    set_geometry(&a, c, images);
    set_output(&a, step, epilogue);
    a.linear = c->epilogue.factor != XN_FACTOR_NONE || c->epilogue.bias;
    a.datatype = c->input_datatype;
    a.layout = step->input_layout;
    a.in_unit =
        a.layout == XN_LAYOUT_BYTES ? (c->channels - 1) / 8 + 1 : xn_packed_words(c->channels);
    a.input = xn_cuda_part_at(in->input, &step->input_view, c->input_datatype);
    a.input_pitch = pitch_of(&step->input_view, c->channels * a.in_plane);
    a.second = xn_cuda_part_at(in->second, &step->second_view, step->second_datatype);
    a.second_pitch = pitch_of(&step->second_view, c->channels);
    a.second_datatype = step->second_datatype;
    a.stats = in->stats;
    a.turned = step->least ? in->scale : NULL;
    a.attributes = step->attributes;
    set_lanes(&a);
    return a;
}

xn_op_args xn_op_finish_args_of(const xn_step *step, int64_t images, const void *v,
                                const xn_epilogue_args *epilogue) {
    const xn_conv *c = &step->conv;
    xn_op_args a = {};
    a.kind = XN_STEP_MAP;
    set_geometry(&a, c, images);
    set_output(&a, step, epilogue);
    a.datatype = c->epilogue.datatype == XN_INT32 ? XN_INT32 : XN_FP32;
    a.input = v;
    a.in_plane = a.plane;
    a.input_pitch = c->out_channels * a.plane;
    return a;
}

/* ---- which body ---- */

enum { ENOUGH_BLOCKS = 256 }; /* for the multiprocessors that there are */

/* V neighbours of each image and channel are whole vectors of their datatype. */
static bool vectors(const void *memory, int64_t pitch, int32_t datatype, int32_t v) {
    const size_t bytes = (size_t)v * xn_datatype_bytes((xn_datatype)datatype);
    return (uintptr_t)memory % (bytes < 16 ? bytes : 16) == 0 && pitch % v == 0;
}

static bool outputs_may_be(const xn_op_args *a, int32_t v) {
    const xn_epilogue *e = &a->e.what;
    return a->plane % v == 0 &&
           (e->datatype == XN_BITS || vectors(a->e.output, a->output_pitch, e->datatype, v)) &&
           (!e->residual ||
            vectors(a->e.residual, a->residual_pitch, a->e.residual_fp16 ? XN_FP16 : XN_FP32, v));
}

/* The input, the real output and the residual have one datatype. */
static bool reals_are_alike(const xn_op_args *a) {
    const xn_epilogue *e = &a->e.what;
    return (e->datatype == XN_BITS || e->datatype == a->datatype) &&
           (!e->residual || a->e.residual_fp16 == (a->datatype == XN_FP16));
}

static xn_op_body map_body_of(const xn_op_args *a) {
    const bool fp16 = a->datatype == XN_FP16;
    if ((!fp16 && a->datatype != XN_FP32) || a->layout == XN_LAYOUT_NHWC ||
        a->e.what.datatype == XN_INT32 || (fp16 && a->e.what.residual && !a->e.residual_fp16))
        return XN_OP_EACH;
    for (int32_t v = fp16 ? 8 : 4; v >= 4; v /= 2)
        if (vectors(a->input, a->input_pitch, a->datatype, v) && outputs_may_be(a, v))
            return v == 8 ? XN_OP_MAP_EIGHT : XN_OP_MAP_FOUR;
    return a->kind == XN_STEP_MAP && reals_are_alike(a) ? XN_OP_MAP_APART : XN_OP_EACH;
}

/* The window's bits are the output's. */
static bool bits_alone(const xn_op_args *a) {
    const xn_epilogue *e = &a->e.what;
    return a->datatype == XN_BITS && a->layout == XN_LAYOUT_WORDS && e->bits && !a->to_bytes &&
           e->datatype == XN_BITS && !a->linear && !e->residual &&
           e->activation == XN_ACTIVATION_NONE && !e->shift;
}

/* Pools that networks have, of whole planes: 2x2 without padding, and max-pools of 3x3. */
static bool has_columns(const xn_op_args *a) {
    const bool max = a->kind == XN_STEP_MAX_POOL;
    const int32_t k = a->kernel_w, s = a->stride_w;
    const bool inside = !a->pad_top && !a->pad_left && (a->out_height - 1) * s + k <= a->height &&
                        (a->out_width - 1) * s + k <= a->width;
    return (a->datatype == XN_FP32 || a->datatype == XN_FP16) && a->layout != XN_LAYOUT_NHWC &&
           reals_are_alike(a) && a->kernel_h == k && a->stride_h == s && a->dilation_h == 1 &&
           a->dilation_w == 1 && !a->turned && a->lanes && a->out_height >= XN_OP_ROWS &&
           a->in_plane <= INT32_MAX &&
           (k == 2 ? inside && (s == 2 || (s == 1 && max)) : k == 3 && s == 2 && max);
}

xn_op_body xn_op_few_of_many(const xn_op_args *a) {
    return a->e.what.datatype != XN_INT32 && outputs_may_be(a, 4) ? XN_OP_FEW_FOUR : XN_OP_FEW;
}

static xn_op_body pool_body_of(const xn_op_args *a) {
    if (a->kind == XN_STEP_MAX_POOL && bits_alone(a))
        return XN_OP_WORDS;
    if (a->plane == 1)
        return XN_OP_WHOLE;
    return has_columns(a) ? XN_OP_COLUMNS : XN_OP_WINDOW;
}

xn_op_body xn_op_body_of(const xn_op_args *a) {
    switch (a->kind) {
    case XN_STEP_MAX_POOL:
    case XN_STEP_AVG_POOL:
        return pool_body_of(a);
    case XN_STEP_SIGMOID:
    case XN_STEP_SOFTMAX:
        return XN_OP_CURVE;
    default:
        if (a->channels <= 4)
            return xn_op_blocks(a, XN_OP_FEW_FOUR) >= ENOUGH_BLOCKS ? xn_op_few_of_many(a)
                                                                    : XN_OP_FEW;
        return map_body_of(a);
    }
}

int64_t xn_op_blocks(const xn_op_args *a, xn_op_body body) {
    if (body == XN_OP_WORDS)
        return ceil_div(a->pixels * a->out_unit, XN_OP_THREADS);
    if (body == XN_OP_FEW || body == XN_OP_FEW_FOUR)
        return ceil_div(a->pixels, XN_OP_THREADS * (body == XN_OP_FEW ? 1 : 4));
    if (body == XN_OP_MAP_APART || body == XN_OP_MAP_FOUR || body == XN_OP_MAP_EIGHT) {
        const int64_t each =
            a->datatype == XN_FP16 || body == XN_OP_MAP_APART ? 32 : 16; /* outputs */
        return a->groups.divisor * ceil_div(a->pixels, XN_OP_THREADS * each / 32 >> a->words_log);
    }
    if (body == XN_OP_WHOLE)
        return word_tiles(a) * a->pixels;
    return word_tiles(a) * ceil_div(body == XN_OP_COLUMNS ? a->lanes : a->pixels, 32);
}

/* By the image alone, so that sums are in one order whatever the batch is. */
int32_t xn_op_stats_lanes(const xn_op_args *a) {
    return a->plane < 32 ? 1 : 32;
}

int64_t xn_op_stats_blocks(const xn_op_args *a) {
    return ceil_div(a->pixels, xn_op_stats_lanes(a));
}
