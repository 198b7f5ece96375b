#include "nw_model.h"

#include "nw_net.h"
#include "xn_test.h"

#include <math.h>
#include <string.h>

static const double rounding = 0x1p-23;  /* of what is stored as fp32, with some to spare */
static const double half_step = 0x1p-25; /* by which fp16 rounds subnormal values */

/* The run under way. */
typedef struct run {
    const xn_graph_params *params;
    nw_answer *answer;
    nw_value input;
    double unit;
    /* of the layer under way: */
    double unit_here;
    bool half; /* its values are stored as fp16 */
} run;

static nw_value new_value(int64_t channels, int64_t height, int64_t width) {
    const size_t count = (size_t)(channels * height * width);
    nw_value v = {channels, height, width, NULL, NULL, NULL};
    v.value = calloc(count, sizeof(double));
    v.error = calloc(count, sizeof(double));
    v.magnitude = calloc(count, sizeof(double));
    ck_assert(v.value && v.error && v.magnitude);
    return v;
}

static void free_value(nw_value *v) {
    free(v->value);
    free(v->error);
    free(v->magnitude);
}

static int64_t elements(const nw_value *v) {
    return v->channels * v->height * v->width;
}

/* Of a value that is stored as fp32. */
static double stored_error(double value) {
    return isfinite(value) && (double)(float)value != value ? rounding * fabs(value) : 0;
}

/* A finished element: the rounding of this layer, and of storing it, is added to what its inputs'
 * errors come to. */
static void put(const run *r, nw_value *out, int64_t at, double value, double error,
                double magnitude) {
    if (!(magnitude >= fabs(value)))
        magnitude = fabs(value);
    out->value[at] = value;
    out->magnitude[at] = magnitude;
    /* What a run has there may be larger by the error, and rounds accordingly. */
    out->error[at] =
        error + (r->unit_here > 0 ? r->unit_here * (magnitude + error) : 0) + stored_error(value);
    if (!r->half)
        return;
    out->error[at] += half_step;
    if (fabs(value) + out->error[at] >= 65520) /* from there on fp16 rounds to infinity */
        out->error[at] = INFINITY;
}

static double number(const xn_tensor *tensor, int64_t index) {
    return tensor ? (double)((const float *)tensor->data)[tensor->elements > 1 ? index : 0] : NAN;
}

static double sign(double x) {
    return x >= 0 ? 1 : -1;
}

/* ---- windows ---- */

typedef struct window {
    int64_t kernel[2], stride[2], dilation[2], before[2];
} window;

static window window_of(const xn_layer *l, int64_t kernel_h, int64_t kernel_w, const nw_value *in,
                        const nw_value *out) {
    window w = {.kernel = {kernel_h, kernel_w}};
    const int64_t sizes[2] = {in->height, in->width}, outs[2] = {out->height, out->width};
    for (int i = 0; i < 2; i++) {
        w.stride[i] = l->window.stride[i] ? l->window.stride[i] : w.kernel[i];
        w.dilation[i] = l->window.dilation[i];
        if (l->window.padding_kind == XN_PADDING_EXPLICIT)
            w.before[i] = l->window.padding[i];
        int64_t total =
            (outs[i] - 1) * w.stride[i] + w.dilation[i] * (w.kernel[i] - 1) + 1 - sizes[i];
        if (l->window.padding_kind == XN_PADDING_SAME)
            w.before[i] = total > 0 ? total / 2 : 0;
        if (l->global)
            w.before[i] = 0;
    }
    return w;
}

/* The element of channel c under tap (i, j) of output (y, x), or -1 outside. */
static int64_t under(const window *w, const nw_value *in, int64_t c, int64_t y, int64_t x,
                     int64_t i, int64_t j) {
    const int64_t row = y * w->stride[0] - w->before[0] + i * w->dilation[0];
    const int64_t column = x * w->stride[1] - w->before[1] + j * w->dilation[1];
    if (row < 0 || row >= in->height || column < 0 || column >= in->width)
        return -1;
    return (c * in->height + row) * in->width + column;
}

/* ---- conv ---- */

typedef struct sums {
    double value, error, magnitude;
} sums;

/* x as a factor of a product: its sign in mode xnor. */
static void factor_of(run *r, const xn_layer *l, const nw_value *in, int64_t at, double *value,
                      double *error) {
    *value = at < 0 ? (double)l->window.pad_value : in->value[at];
    *error = at < 0 ? 0 : in->error[at];
    if (l->window.mode != XN_MODE_XNOR || at < 0)
        return;
    r->answer->signs++;
    bool doubtful = *error > 0 && fabs(*value) <= *error;
    r->answer->doubtful += doubtful;
    *value = sign(*value);
    *error = doubtful ? 2 : 0;
}

static sums dot(run *r, const xn_layer *l, const window *w, const nw_value *in, int64_t o,
                int64_t y, int64_t x, int64_t share, int64_t first) {
    sums s = {0, 0, 0};
    for (int64_t c = 0; c < share; c++) {
        for (int64_t i = 0; i < w->kernel[0]; i++) {
            for (int64_t j = 0; j < w->kernel[1]; j++) {
                const int64_t tap = ((o * share + c) * w->kernel[0] + i) * w->kernel[1] + j;
                double weight = number(l->weight, tap), value, error;
                if (l->window.mode != XN_MODE_FLOAT)
                    weight = sign(weight);
                factor_of(r, l, in, under(w, in, first + c, y, x, i, j), &value, &error);
                s.value += weight * value;
                s.error += fabs(weight) * error;
                s.magnitude += fabs(weight * value);
            }
        }
    }
    if (l->window.mode == XN_MODE_XNOR)
        s.magnitude = fabs(s.value);
    return s;
}

static sums k_of(const window *w, const nw_value *in, int64_t y, int64_t x, int64_t share,
                 int64_t first) {
    sums s = {0, 0, 0};
    for (int64_t c = 0; c < share; c++) {
        for (int64_t i = 0; i < w->kernel[0]; i++) {
            for (int64_t j = 0; j < w->kernel[1]; j++) {
                const int64_t at = under(w, in, first + c, y, x, i, j);
                s.value += at < 0 ? 0 : fabs(in->value[at]);
                s.error += at < 0 ? 0 : in->error[at];
            }
        }
    }
    const double count = (double)(share * w->kernel[0] * w->kernel[1]);
    return (sums){s.value / count, s.error / count + rounding * s.value / count, 0};
}

static void scale_and_shift(const xn_layer *l, int64_t c, sums *s) {
    if (l->scale) {
        const double scale = number(l->scale, c);
        *s = (sums){s->value * scale, s->error * fabs(scale), s->magnitude * fabs(scale)};
    }
    if (l->bias) {
        s->value += number(l->bias, c);
        s->magnitude += fabs(number(l->bias, c));
    }
}

static void conv(run *r, const xn_layer *l, const nw_value *in, nw_value *out) {
    const bool dense = l->weight->shape.rank == 2;
    const window w = window_of(l, dense ? 1 : l->weight->shape.dims[2],
                               dense ? 1 : l->weight->shape.dims[3], in, out);
    const int64_t share = in->channels / l->window.groups;
    int64_t at = 0;
    for (int64_t o = 0; o < out->channels; o++) {
        const int64_t first = o / (out->channels / l->window.groups) * share;
        for (int64_t y = 0; y < out->height; y++) {
            for (int64_t x = 0; x < out->width; x++, at++) {
                sums s = dot(r, l, &w, in, o, y, x, share, first);
                if (l->attributes.k_map) {
                    const sums k = k_of(&w, in, y, x, share, first);
                    s.error = s.error * (k.value + k.error) + fabs(s.value) * k.error;
                    s.value *= k.value;
                    s.magnitude = fabs(s.value);
                }
                scale_and_shift(l, o, &s);
                put(r, out, at, s.value, s.error, s.magnitude);
            }
        }
    }
}

/* ---- pools ---- */

static void pool(run *r, const xn_layer *l, const nw_value *in, nw_value *out) {
    const bool max = l->op == XN_OP_MAX_POOL;
    const window w = window_of(l, l->global ? in->height : l->kernel[0],
                               l->global ? in->width : l->kernel[1], in, out);
    int64_t at = 0;
    for (int64_t c = 0; c < out->channels; c++) {
        for (int64_t y = 0; y < out->height; y++) {
            for (int64_t x = 0; x < out->width; x++, at++) {
                double best = -INFINITY, sum = 0, worst = 0, errors = 0, magnitude = 0;
                int64_t count = 0;
                for (int64_t tap = 0; tap < w.kernel[0] * w.kernel[1]; tap++) {
                    const int64_t from =
                        under(&w, in, c, y, x, tap / w.kernel[1], tap % w.kernel[1]);
                    if (from < 0)
                        continue;
                    count++;
                    best = in->value[from] > best ? in->value[from] : best;
                    worst = fmax(worst, in->error[from]);
                    magnitude = fmax(magnitude, in->magnitude[from]);
                    sum += in->value[from];
                    errors += in->error[from];
                }
                ck_assert_int_gt(count, 0);
                if (l->attributes.count_padding)
                    count = w.kernel[0] * w.kernel[1];
                put(r, out, at, max ? best : sum / (double)count,
                    max ? worst : errors / (double)count, magnitude);
            }
        }
    }
}

/* ---- element by element ---- */

static double quantized(const xn_layer *l, double x) {
    double level = rint(x / (double)l->attributes.quantum);
    level = level < (double)l->attributes.low ? (double)l->attributes.low : level;
    level = level > (double)l->attributes.high ? (double)l->attributes.high : level;
    return level * (double)l->attributes.quantum;
}

static void put_sign(run *r, const xn_layer *l, const nw_value *in, int64_t c, int64_t at,
                     nw_value *out) {
    const double shift = l->shift ? number(l->shift, c) : 0;
    const double x = in->value[at] + shift;
    double error = in->error[at];
    if (r->unit > 0)
        error += r->unit * (in->magnitude[at] + fabs(shift));
    const bool doubtful = error > 0 && fabs(x) <= error;
    r->answer->signs++;
    r->answer->doubtful += doubtful;
    out->value[at] = sign(x);
    out->error[at] = doubtful ? 2 : 0;
    out->magnitude[at] = 1;
}

static void put_clipped(run *r, const xn_layer *l, const nw_value *in, int64_t at, nw_value *out) {
    const double x = in->value[at], e = in->error[at];
    const double low = (double)l->attributes.low, high = (double)l->attributes.high;
    const bool beyond = x < low - e || x > high + e;
    put(r, out, at,
        x < low    ? low
        : x > high ? high
                   : x,
        beyond ? 0 : e, beyond ? 0 : in->magnitude[at]);
}

static void put_quantized(run *r, const xn_layer *l, const nw_value *in, int64_t at,
                          nw_value *out) {
    const double x = in->value[at], y = quantized(l, x);
    const double reach = in->error[at] + (r->unit > 0 ? rounding * fabs(x) : 0);
    const double error = fmax(fabs(quantized(l, x + reach) - y), fabs(quantized(l, x - reach) - y));
    put(r, out, at, y, error, fabs(y));
}

static void put_affine(run *r, const xn_layer *l, const nw_value *in, int64_t c, int64_t at,
                       nw_value *out) {
    sums s = {in->value[at], in->error[at], in->magnitude[at]};
    xn_layer each = *l;
    xn_tensor one[2];
    const xn_tensor *const given[2] = {l->scale, l->bias};
    float values[2];
    for (int i = 0; i < 2; i++) {
        if (!given[i])
            continue;
        values[i] = (float)number(given[i], given[i]->shape.rank == 3 ? at : c);
        one[i] = (xn_tensor){.elements = 1, .data = &values[i]};
        *(i ? &each.bias : &each.scale) = &one[i];
    }
    scale_and_shift(&each, 0, &s);
    put(r, out, at, s.value, s.error, s.magnitude);
}

static void element(run *r, const xn_layer *l, const nw_value *const *in, int count, int64_t at,
                    nw_value *out) {
    const int64_t c = at / (out->height * out->width);
    double x = in[0]->value[at], e = in[0]->error[at], m = in[0]->magnitude[at];
    switch (l->op) {
    case XN_OP_SIGN:
        put_sign(r, l, in[0], c, at, out);
        return;
    case XN_OP_QUANTIZE:
        put_quantized(r, l, in[0], at, out);
        return;
    case XN_OP_AFFINE:
        put_affine(r, l, in[0], c, at, out);
        return;
    case XN_OP_PRELU: {
        const double slope = l->slope ? number(l->slope, c) : (double)l->attributes.slope;
        const double here = x > e ? 1 : x < -e ? fabs(slope) : fmax(1, fabs(slope));
        put(r, out, at, x >= 0 ? x : slope * x, e * here, m * here);
        return;
    }
    case XN_OP_CLIP:
        put_clipped(r, l, in[0], at, out);
        return;
    case XN_OP_ADD:
        for (int i = 1; i < count; i++) {
            x += in[i]->value[at];
            e += in[i]->error[at];
            m += in[i]->magnitude[at];
            e += i + 1 < count ? stored_error(x) : 0; /* the sums on the way are stored too */
        }
        put(r, out, at, x, e, m);
        return;
    case XN_OP_MUL: {
        const nw_value *gate = in[count - 1];
        const double g = gate->value[c], ge = gate->error[c];
        put(r, out, at, x * g, fabs(x) * ge + fabs(g) * e + e * ge, fabs(x * g));
        return;
    }
    case XN_OP_SIGMOID:
        put(r, out, at, 1 / (1 + exp(-x)), e / 4 + rounding, 1);
        return;
    default: /* flatten */
        put(r, out, at, x, e, m);
    }
}

static void softmax(run *r, const nw_value *in, nw_value *out) {
    const int64_t pixels = in->height * in->width;
    for (int64_t p = 0; p < pixels; p++) {
        double most = -INFINITY, sum = 0, error = 0;
        for (int64_t c = 0; c < in->channels; c++) {
            most = fmax(most, in->value[c * pixels + p]);
            error = fmax(error, in->error[c * pixels + p]);
        }
        for (int64_t c = 0; c < in->channels; c++)
            sum += exp(in->value[c * pixels + p] - most);
        for (int64_t c = 0; c < in->channels; c++) {
            const double y = exp(in->value[c * pixels + p] - most) / sum;
            put(r, out, c * pixels + p, y, y * expm1(2 * error) + rounding, 1);
        }
    }
}

static void copy_channels(const nw_value *in, int64_t from, int64_t channels, nw_value *out,
                          int64_t to) {
    const int64_t pixels = in->height * in->width;
    const size_t bytes = (size_t)(channels * pixels) * sizeof(double);
    memcpy(out->value + to * pixels, in->value + from * pixels, bytes);
    memcpy(out->error + to * pixels, in->error + from * pixels, bytes);
    memcpy(out->magnitude + to * pixels, in->magnitude + from * pixels, bytes);
}

/* Positions are values as exact as others. */
static void top_k(const xn_layer *l, const nw_value *in, nw_value *out) {
    const int64_t k = l->attributes.k;
    bool *taken = calloc((size_t)in->channels, sizeof *taken);
    ck_assert_ptr_nonnull(taken);
    for (int64_t i = 0; i < k; i++) {
        int64_t best = -1;
        for (int64_t c = 0; c < in->channels; c++) {
            const double x = in->value[c], y = best < 0 ? NAN : in->value[best];
            const bool better = l->attributes.largest ? x > y : x < y;
            if (!taken[c] && (best < 0 || better || (isnan(y) && !isnan(x))))
                best = c;
        }
        taken[best] = true;
        out->value[i] = in->value[best];
        out->error[i] = in->error[best];
        out->magnitude[i] = in->magnitude[best];
        out->value[k + i] = (double)best;
    }
    free(taken);
}

/* ---- layers ---- */

static const nw_value *find(const run *r, const char *name, int before) {
    for (int i = 0; i < before; i++)
        if (!strcmp(r->params->layers[i].name, name))
            return &r->answer->layers[i];
    ck_assert_str_eq(name, r->params->input_name);
    return &r->input;
}

static bool is_output(const xn_graph_params *params, int index) {
    for (int i = 0; i < params->output_count; i++)
        if (!strcmp(params->outputs[i], params->layers[index].name))
            return true;
    return !params->output_count && index == params->layer_count - 1;
}

static void layer(run *r, int index, nw_value *out) {
    const xn_layer *l = &r->params->layers[index];
    const bool half = r->params->precision == XN_PRECISION_FP16;
    /* With fp16 between layers an output is not rounded to it, but the weights it is made of are.
     */
    r->half = half && !is_output(r->params, index);
    r->unit_here = half && !r->half && l->op != XN_OP_CONV ? 2 * rounding : r->unit;
    const nw_value *in[XN_GRAPH_MAX_INPUTS] = {index ? &r->answer->layers[index - 1] : &r->input};
    int64_t channel = 0;
    for (int i = 0; i < l->input_count; i++)
        in[i] = find(r, l->inputs[i], index);
    switch (l->op) {
    case XN_OP_CONV:
        conv(r, l, in[0], out);
        return;
    case XN_OP_MAX_POOL:
    case XN_OP_AVG_POOL:
        pool(r, l, in[0], out);
        return;
    case XN_OP_CONCAT:
        for (int i = 0; i < l->input_count; channel += in[i++]->channels)
            copy_channels(in[i], 0, in[i]->channels, out, channel);
        return;
    case XN_OP_SLICE:
        copy_channels(in[0], l->attributes.from, l->attributes.to - l->attributes.from, out, 0);
        return;
    case XN_OP_SOFTMAX:
        softmax(r, in[0], out);
        return;
    case XN_OP_TOP_K:
        top_k(l, in[0], out);
        return;
    default:
        for (int64_t at = 0; at < elements(out); at++)
            element(r, l, in, l->input_count ? l->input_count : 1, at, out);
    }
}

void nw_model(const xn_graph_params *params, const xn_graph *graph, const float *input, double unit,
              nw_answer *out) {
    const xn_shape shape = nw_input_shape(params);
    run r = {.params = params, .answer = out, .unit = unit};
    r.input = new_value(shape.dims[0], shape.dims[1], shape.dims[2]);
    for (int64_t i = 0; i < elements(&r.input); i++) {
        r.input.value[i] = (double)input[i];
        r.input.magnitude[i] = fabs((double)input[i]);
    }
    *out = (nw_answer){.count = params->layer_count};
    out->layers = calloc((size_t)out->count, sizeof *out->layers);
    ck_assert_ptr_nonnull(out->layers);
    for (int i = 0; i < out->count; i++) {
        xn_shape s;
        ck_assert(xn_graph_layer_shape(graph, params->layers[i].name, &s));
        out->layers[i] = new_value(s.dims[0], s.dims[1], s.dims[2]);
        layer(&r, i, &out->layers[i]);
    }
    free_value(&r.input);
}

void nw_answer_free(nw_answer *answer) {
    for (int i = 0; i < answer->count; i++)
        free_value(&answer->layers[i]);
    free(answer->layers);
}
