/* problem.c: see problem.h. */
#include "problem.h"

#include "xn_mem.h"

#include <string.h>

/* Name, mode, input, output, scaling, precision; whether input and output are packed bits. */
const xn_bench_kind xn_bench_kinds[XN_BENCH_KINDS] = {
    {"fp32", XN_MODE_XNOR, XN_FP32, XN_FP32, XN_SCALING_XNOR, XN_PRECISION_FP32, false, false},
    {"int32", XN_MODE_XNOR, XN_FP32, XN_INT32, XN_SCALING_NONE, XN_PRECISION_FP32, false, false},
    {"packed-fp16", XN_MODE_XNOR, XN_FP32, XN_FP16, XN_SCALING_ALPHA, XN_PRECISION_FP32, true,
     false},
    {"fp32-alpha", XN_MODE_XNOR, XN_FP32, XN_FP32, XN_SCALING_ALPHA, XN_PRECISION_FP32, false,
     false},
    {"fp16", XN_MODE_XNOR, XN_FP16, XN_FP16, XN_SCALING_XNOR, XN_PRECISION_FP32, false, false},
    {"packed-int32", XN_MODE_XNOR, XN_FP32, XN_INT32, XN_SCALING_NONE, XN_PRECISION_FP32, true,
     false},
    {"packed", XN_MODE_XNOR, XN_FP32, XN_INT32, XN_SCALING_NONE, XN_PRECISION_FP32, true, true},
    {"int8-fp16-alpha", XN_MODE_XNOR, XN_INT8, XN_FP16, XN_SCALING_ALPHA, XN_PRECISION_FP32, false,
     false},
    {"float", XN_MODE_FLOAT, XN_FP32, XN_FP32, XN_SCALING_XNOR, XN_PRECISION_FP32, false, false},
    {"float-fp16", XN_MODE_FLOAT, XN_FP16, XN_FP16, XN_SCALING_XNOR, XN_PRECISION_FP16, false,
     false},
    {"float-by-fp16", XN_MODE_FLOAT, XN_FP32, XN_FP32, XN_SCALING_XNOR, XN_PRECISION_FP16, false,
     false},
    {"float-by-tf32", XN_MODE_FLOAT, XN_FP32, XN_FP32, XN_SCALING_XNOR, XN_PRECISION_TF32, false,
     false},
    {"bwn", XN_MODE_BWN, XN_FP32, XN_FP32, XN_SCALING_XNOR, XN_PRECISION_FP32, false, false},
    {"bwn-fp16", XN_MODE_BWN, XN_FP16, XN_FP16, XN_SCALING_XNOR, XN_PRECISION_FP16, false, false},
};

void *xn_bench_take(size_t count, size_t bytes) {
    void *memory = xn_mem_zalloc(count, bytes);
    if (!memory)
        xn_bench_fail("data", "no memory");
    return memory;
}

void xn_bench_name(const xn_bench_shape *s, char name[XN_BENCH_NAME]) {
    const struct {
        const char *letter;
        int64_t value, usual;
    } rest[] = {{"o", s->filters, s->channels},
                {"k", s->kernel, 3},
                {"s", s->stride, 1},
                {"d", s->dilation, 1},
                {"g", s->groups, 1}};
    size_t n = (size_t)snprintf(name, XN_BENCH_NAME, "%lldx%lldx%lld", (long long)s->images,
                                (long long)s->channels, (long long)s->side);
    for (int i = 0; i < XN_COUNT(rest); i++)
        if (rest[i].value != rest[i].usual && n < XN_BENCH_NAME)
            n += (size_t)snprintf(name + n, XN_BENCH_NAME - n, " %s%lld", rest[i].letter,
                                  (long long)rest[i].value);
}

xn_conv xn_bench_resolve_rows(const xn_bench_shape *s, int64_t rows, int64_t bottom,
                              const xn_bench_kind *kind) {
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    const xn_shape input = {4, {s->images, s->channels, rows, s->side}};
    const xn_weights_shape weights = {
        {s->filters, s->channels / s->groups, s->kernel, s->kernel}, XN_FP32, false, false};
    xn_conv_params params;
    xn_conv conv;
    xn_error error;
    int64_t images;
    xn_conv_params_default(&params);
    params.padding[0] = params.padding[1] = params.padding[3] = s->padding;
    params.padding[2] = bottom;
    params.stride[0] = params.stride[1] = s->stride;
    params.dilation[0] = params.dilation[1] = s->dilation;
    params.groups = s->groups;
    params.mode = kind->mode;
    params.scaling = kind->scaling;
    params.precision = kind->precision;
    params.output_datatype = kind->output;
    if (xn_conv_resolve(&params, kind->input, &input, &weights, &limits, &conv, &images, &error))
        xn_bench_fail("problem", error.message);
    return conv;
}

xn_conv xn_bench_resolve(const xn_bench_shape *s, const xn_bench_kind *kind) {
    return xn_bench_resolve_rows(s, s->side, s->padding, kind);
}

int64_t xn_bench_weight_count(const xn_bench_shape *s) {
    return s->filters * (s->channels / s->groups) * s->kernel * s->kernel;
}

xn_weights *xn_bench_weights(const xn_bench_shape *s, const float *real) {
    return xn_bench_bit_weights(s, real, NULL, NULL);
}

static xn_tensor channels_of(const xn_bench_shape *s, const float *values) {
    return (xn_tensor){.datatype = XN_FP32,
                       .shape = {1, {s->filters}},
                       .elements = s->filters,
                       .bytes = (size_t)s->filters * sizeof(float),
                       .data = values};
}

xn_weights *xn_bench_bit_weights(const xn_bench_shape *s, const float *real, const float *scale,
                                 const float *shift) {
    const int64_t count = xn_bench_weight_count(s);
    const xn_tensor tensor = {
        .datatype = XN_FP32,
        .shape = {4, {s->filters, s->channels / s->groups, s->kernel, s->kernel}},
        .elements = count,
        .bytes = (size_t)count * sizeof(float),
        .data = real};
    const xn_tensor scales = channels_of(s, scale), shifts = channels_of(s, shift);
    const xn_weights_parts parts = {
        .weights = &tensor, .scale = scale ? &scales : NULL, .shift = shift ? &shifts : NULL};
    xn_weights *weights = NULL;
    xn_error error;
    if (xn_weights_create_parts(&parts, &weights, &error))
        xn_bench_fail("weights", error.message);
    return weights;
}

double xn_bench_operations(const xn_conv *conv, int64_t images) {
    return 2.0 * (double)(images * xn_conv_operations(conv));
}
