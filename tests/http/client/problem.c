/* problem.c: random tensors and the naive convolution of the specification, in double, written
 * from the formulas of design section 1 and nothing else: the oracle of the black-box tests. */
#include "wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void *must(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

/* ---- tensors ---- */

size_t xt_datatype_bytes(const char *datatype) {
    if (!strcmp(datatype, "FP32") || !strcmp(datatype, "INT32"))
        return 4;
    return !strcmp(datatype, "FP16") || !strcmp(datatype, "BF16") ? 2 : 1;
}

double xt_half_value(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value;
    if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    else if (exponent)
        value = ldexp(1024 + fraction, exponent - 25);
    else
        value = ldexp(fraction, -24);
    return bits >> 15 ? -value : value;
}

static double float_value(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return (double)value;
}

/* A random element of that datatype: its bytes, and the value they stand for. Floats lie between
 * 2^-4 and 4 in size, with a zero of either sign now and then. */
static double random_element(xn_rng *rng, const char *datatype, unsigned char *raw) {
    uint64_t r = xn_rng_next(rng);
    bool zero = r % 61 == 0;
    if (!strcmp(datatype, "FP32")) {
        uint32_t exponent = 123 + (uint32_t)(r >> 40) % 6;
        uint32_t bits = (zero ? 0 : exponent << 23 | (r >> 8 & 0x7fffff)) | (r >> 60 & 1) << 31;
        memcpy(raw, &bits, 4);
        return float_value(bits);
    }
    if (!strcmp(datatype, "FP16")) {
        uint32_t exponent = 11 + (uint32_t)(r >> 40) % 6;
        uint16_t bits =
            (uint16_t)((zero ? 0 : exponent << 10 | (r >> 8 & 1023)) | (r >> 60 & 1) << 15);
        memcpy(raw, &bits, 2);
        return xt_half_value(bits);
    }
    if (!strcmp(datatype, "BF16")) {
        uint32_t exponent = 123 + (uint32_t)(r >> 40) % 6;
        uint16_t bits =
            (uint16_t)((zero ? 0 : exponent << 7 | (r >> 8 & 127)) | (r >> 60 & 1) << 15);
        memcpy(raw, &bits, 2);
        return float_value((uint32_t)bits << 16);
    }
    *raw = (unsigned char)(!strcmp(datatype, "BOOL") ? r & 1 : r >> 8);
    return !strcmp(datatype, "INT8") ? (double)(int8_t)*raw : (double)*raw;
}

/* Signs: [N][H][W][ceil(C/8)] random bytes, and the values that they stand for. */
static xt_tensor random_bits(xn_rng *rng, xt_tensor t) {
    const int64_t channels = t.dims[1], plane = t.dims[2] * t.dims[3];
    const int64_t pixel = (channels + 7) / 8;
    t.bytes = (size_t)(t.dims[0] * plane * pixel);
    t.raw = must(t.bytes, 1);
    t.values = must((size_t)t.count, sizeof *t.values);
    for (size_t i = 0; i < t.bytes; i++)
        t.raw[i] = (unsigned char)(xn_rng_next(rng) >> 24);
    for (int64_t i = 0; i < t.count; i++) {
        const int64_t n = i / (channels * plane), c = i / plane % channels, at = i % plane;
        t.values[i] = t.raw[(n * plane + at) * pixel + c / 8] >> c % 8 & 1 ? 1 : -1;
    }
    return t;
}

xt_tensor xt_tensor_random(xn_rng *rng, const char *datatype, int rank, const int64_t *dims) {
    xt_tensor t = {.datatype = datatype, .rank = rank, .count = 1};
    for (int i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        t.count *= dims[i];
    }
    if (!strcmp(datatype, "BITS"))
        return random_bits(rng, t);
    size_t size = xt_datatype_bytes(datatype);
    t.bytes = (size_t)t.count * size;
    t.raw = must(t.bytes, 1);
    t.values = must((size_t)t.count, sizeof *t.values);
    for (int64_t i = 0; i < t.count; i++)
        t.values[i] = random_element(rng, datatype, t.raw + (size_t)i * size);
    return t;
}

void xt_tensor_free(xt_tensor *tensor) {
    free(tensor->values);
    free(tensor->raw);
    *tensor = (xt_tensor){0};
}

/* ---- the convolution ---- */

typedef struct geometry {
    int64_t groups, group_channels, group_outputs;
    int64_t stride[2], dilation[2];
    int64_t before[2], after[2];
    int64_t out[2];
} geometry;

static int64_t or_one(int64_t value) {
    return value ? value : 1;
}

static geometry resolve(const xt_case *c) {
    geometry g = {.groups = or_one(c->groups)};
    const int64_t size[2] = {c->h, c->w}, kernel[2] = {c->kh, c->kw};
    g.group_channels = c->c / g.groups;
    g.group_outputs = c->o / g.groups;
    for (int axis = 0; axis < 2; axis++) {
        int64_t stride = g.stride[axis] = or_one(c->stride[axis]);
        int64_t dilation = g.dilation[axis] = or_one(c->dilation[axis]);
        int64_t extent = dilation * (kernel[axis] - 1) + 1;
        g.before[axis] = c->padding[axis];
        g.after[axis] = c->padding[axis + 2];
        if (c->padding_name && !strcmp(c->padding_name, "same")) {
            int64_t out = (size[axis] + stride - 1) / stride;
            int64_t total = (out - 1) * stride + extent - size[axis];
            total = total > 0 ? total : 0;
            g.before[axis] = total / 2;
            g.after[axis] = total - total / 2;
        }
        g.out[axis] = (size[axis] + g.before[axis] + g.after[axis] - extent) / stride + 1;
    }
    return g;
}

static double sign(double value) {
    return value >= 0 ? 1 : -1;
}

/* What a value counts as: BOOL is a sign as weights and as input of mode xnor, else 0 or 1. */
static double counted(const xt_tensor *tensor, int64_t at, bool sign_of_bool) {
    double value = tensor->values[at];
    return sign_of_bool && !strcmp(tensor->datatype, "BOOL") && value == 0 ? -1 : value;
}

typedef struct sums {
    double dot;   /* xnor: of signs; bwn, float: of products */
    double terms; /* of |products| */
    double k;     /* Eq. 10 */
} sums;

/* One output element's sums over the taps. */
static sums accumulate(const xt_problem *p, const geometry *g, const char *mode, int64_t n,
                       int64_t o, int64_t y, int64_t x) {
    const xt_case *c = &p->what;
    sums s = {0};
    int64_t first = o / g->group_outputs * g->group_channels;
    for (int64_t ch = 0; ch < g->group_channels; ch++)
        for (int64_t i = 0; i < c->kh; i++)
            for (int64_t j = 0; j < c->kw; j++) {
                int64_t row = y * g->stride[0] - g->before[0] + i * g->dilation[0];
                int64_t col = x * g->stride[1] - g->before[1] + j * g->dilation[1];
                bool inside = row >= 0 && row < c->h && col >= 0 && col < c->w;
                if (!inside && c->pad_value == 0)
                    continue;
                double w = counted(&p->weights,
                                   ((o * g->group_channels + ch) * c->kh + i) * c->kw + j, true);
                double v = c->pad_value;
                if (inside)
                    v = counted(&p->input, ((n * c->c + first + ch) * c->h + row) * c->w + col,
                                !strcmp(mode, "xnor"));
                if (inside)
                    s.k += fabs(v);
                double a = !strcmp(mode, "xnor") ? sign(v) : v;
                double b = !strcmp(mode, "float") ? w : sign(w);
                s.dot += a * b;
                s.terms += fabs(a * b);
            }
    s.k /= (double)(g->group_channels * c->kh * c->kw);
    return s;
}

/* The factor per output channel: scale, alpha or 1. */
static double factor(const xt_problem *p, const geometry *g, const char *mode, const char *scaling,
                     int64_t o) {
    if (!strcmp(scaling, "none"))
        return 1;
    if (p->scale.values)
        return p->scale.values[o];
    if (!strcmp(mode, "float"))
        return 1;
    int64_t taps = g->group_channels * p->what.kh * p->what.kw;
    double sum = 0;
    for (int64_t i = 0; i < taps; i++)
        sum += fabs(counted(&p->weights, o * taps + i, true));
    return sum / (double)taps;
}

void xt_problem_solve(xt_problem *p) {
    const xt_case *c = &p->what;
    const char *mode = c->mode ? c->mode : "xnor", *scaling = c->scaling ? c->scaling : "xnor";
    geometry g = resolve(c);
    memcpy(p->shape, (int64_t[4]){c->n, c->o, g.out[0], g.out[1]}, sizeof p->shape);
    p->count = c->n * c->o * g.out[0] * g.out[1];
    free(p->expected);
    free(p->magnitude);
    p->expected = must((size_t)p->count, sizeof *p->expected);
    p->magnitude = must((size_t)p->count, sizeof *p->magnitude);
    bool with_k = !strcmp(mode, "xnor") && !strcmp(scaling, "xnor");
    int64_t at = 0;
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t o = 0; o < c->o; o++) {
            double f = factor(p, &g, mode, scaling, o);
            double bias = p->bias.values ? p->bias.values[o] : 0;
            for (int64_t y = 0; y < g.out[0]; y++)
                for (int64_t x = 0; x < g.out[1]; x++, at++) {
                    sums s = accumulate(p, &g, mode, n, o, y, x);
                    double k = with_k ? s.k : 1;
                    double terms = !strcmp(mode, "xnor") ? fabs(s.dot) : s.terms;
                    p->expected[at] = s.dot * f * k + bias;
                    p->magnitude[at] = terms * fabs(f) * k + fabs(bias);
                }
        }
}

void xt_problem_make(xt_problem *problem, const xt_case *what, uint64_t seed) {
    xn_rng rng = {seed};
    const int64_t input[4] = {what->n, what->c, what->h, what->w};
    const int64_t weights[4] = {what->o, what->c / or_one(what->groups), what->kh, what->kw};
    *problem = (xt_problem){.what = *what};
    problem->input = xt_tensor_random(&rng, what->datatype ? what->datatype : "FP32", 4, input);
    problem->weights = xt_tensor_random(
        &rng, what->weights_datatype ? what->weights_datatype : "FP32", 4, weights);
    if (what->scale)
        problem->scale = xt_tensor_random(&rng, "FP32", 1, &what->o);
    if (what->bias)
        problem->bias = xt_tensor_random(&rng, "FP32", 1, &what->o);
    xt_problem_solve(problem);
}

void xt_problem_free(xt_problem *problem) {
    xt_tensor_free(&problem->input);
    xt_tensor_free(&problem->weights);
    xt_tensor_free(&problem->scale);
    xt_tensor_free(&problem->bias);
    free(problem->expected);
    free(problem->magnitude);
    *problem = (xt_problem){0};
}
