/* weights.c: kernel weights, validated and prepared once: real values, bits, alpha. */
#include "pack.h"
#include "xn_mem.h"
#include "xn_planes.h"
#include "xn_weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static xn_status check_tensor(const xn_tensor *tensor, const char *name, int rank,
                              const char *layout, xn_error *error) {
    char path[40];
    xn_status status = xn_tensor_check(tensor, name, rank == 4, INT64_MAX, error);
    if (status || tensor->shape.rank == rank)
        return status;
    snprintf(path, sizeof path, "%s.shape", name);
    return xn_fail(error, XN_ERR_GEOMETRY, path, "%s has %d dimensions; it must be %s", path,
                   tensor->shape.rank, layout);
}

static xn_status check_count(const xn_shape *shape, const char *name, xn_error *error) {
    char path[40];
    if (shape->dims[0] <= INT32_MAX)
        return XN_OK;
    snprintf(path, sizeof path, "%s.shape", name);
    return xn_fail(error, XN_ERR_GEOMETRY, path, "%s[0] is %" PRId64 "; it must be at most %d",
                   path, shape->dims[0], INT32_MAX);
}

/* like: the part whose first dimension out_channels is. */
static xn_status check_channels(const xn_tensor *tensor, const char *name, const char *like,
                                int64_t out_channels, xn_error *error) {
    char path[40];
    if (!tensor)
        return XN_OK;
    xn_status status = check_tensor(tensor, name, 1, "[O], one value per output channel", error);
    if (status || tensor->elements == out_channels)
        return status;
    snprintf(path, sizeof path, "%s.shape", name);
    return xn_fail(error, XN_ERR_GEOMETRY, path,
                   "%s[0] is %" PRId64 "; %s.shape[0] is %" PRId64 ", so it must be that too", path,
                   tensor->elements, like, out_channels);
}

/* The values of parts that come one for each output channel, in the order of xn_weights_parts. */
enum { CHANNEL_PARTS = 4 };
static const char *const channel_names[CHANNEL_PARTS] = {"scale", "bias", "slope", "shift"};

static const xn_tensor *channel_part(const xn_weights_parts *parts, int i) {
    const xn_tensor *const all[CHANNEL_PARTS] = {parts->scale, parts->bias, parts->slope,
                                                 parts->shift};
    return all[i];
}

/* The part that says how many output channels there are: the kernel, or the first there is. */
static const xn_tensor *leading_part(const xn_weights_parts *parts, const char **name) {
    *name = "weights";
    if (parts->weights)
        return parts->weights;
    for (int i = 0; i < CHANNEL_PARTS; i++) {
        *name = channel_names[i];
        if (channel_part(parts, i))
            return channel_part(parts, i);
    }
    return NULL;
}

static xn_status check_parts(const xn_weights_parts *parts, xn_error *error) {
    const char *name;
    const xn_tensor *leading = leading_part(parts, &name);
    if (!leading)
        return xn_fail(error, XN_ERR_MALFORMED, "weights",
                       "no tensor is given; give weights, scale, bias, slope or shift");
    xn_status status =
        parts->weights ? check_tensor(leading, name, 4, "[O, C/groups, KH, KW]", error)
                       : check_tensor(leading, name, 1, "[O], one value per output channel", error);
    if (!status)
        status = parts->weights ? xn_conv_check_filter(leading->shape.dims, error)
                                : check_count(&leading->shape, name, error);
    for (int i = 0; i < CHANNEL_PARTS && !status; i++)
        status = check_channels(channel_part(parts, i), channel_names[i], name,
                                parts->broadcast ? 1 : leading->shape.dims[0], error);
    return status;
}

/* The values of a scale, bias, slope or shift; NULL with true where there is none. */
static bool grab_values(const xn_tensor *tensor, float **values) {
    if (!tensor)
        return true;
    *values = xn_mem_zalloc((size_t)tensor->elements, sizeof **values);
    if (*values)
        xn_tensor_to_fp32(tensor->datatype, tensor->data, *values, tensor->elements);
    return *values != NULL;
}

/* Of weights, where BOOL is a sign. */
static float *grab_weights(const xn_tensor *tensor) {
    float *values = xn_mem_zalloc((size_t)tensor->elements, sizeof *values);
    if (values)
        xn_tensor_to_signed_fp32(tensor->datatype, tensor->data, values, tensor->elements);
    return values;
}

/* Eq. 6: summed in double, where the sum of fewer than 2^31 fp32 magnitudes cannot overflow. */
static float mean_magnitude(const float *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs((double)values[i]);
    return (float)(sum / (double)count);
}

static int64_t filter_size(const xn_weights *w) {
    return (int64_t)w->group_channels * w->kernel_h * w->kernel_w;
}

static bool lies_as_bits(const xn_weights *w, const xn_tensor *weights) {
    return w->group_channels % 32 == 0 && (uintptr_t)weights->data % sizeof *w->bits == 0;
}

static bool make_bits(xn_weights *w, int64_t pixels) {
    int64_t words;
    w->own_bits = xn_mul_i64(pixels, w->words, &words)
                      ? xn_mem_zalloc((size_t)words, sizeof *w->own_bits)
                      : NULL;
    w->bits = w->own_bits;
    return w->bits;
}

static bool fill_kernel(xn_weights *w, const xn_weights_parts *parts) {
    const xn_tensor *weights = parts->weights;
    const int64_t taps = (int64_t)w->kernel_h * w->kernel_w, filter = filter_size(w);
    const int64_t pixels = w->out_channels * taps; /* no more than the filters' values: they fit */
    if (weights->datatype == XN_BITS && parts->stays && lies_as_bits(w, weights)) {
        w->bits = weights->data;
        return true;
    }
    if (!make_bits(w, pixels))
        return false;
    if (weights->datatype == XN_BITS) {
        xn_pack_words_of_bytes(weights->data, pixels, w->group_channels, w->own_bits);
        return true;
    }
    w->real = grab_weights(weights);
    w->alpha = xn_mem_zalloc((size_t)w->out_channels, sizeof *w->alpha);
    if (!w->real || !w->alpha)
        return false;
    xn_pack_weights(w->real, w->out_channels, w->group_channels, taps, w->own_bits);
    for (int32_t o = 0; o < w->out_channels; o++)
        w->alpha[o] = mean_magnitude(w->real + o * filter, filter);
    return true;
}

static bool fill(xn_weights *w, const xn_weights_parts *parts) {
    return (!parts->weights || fill_kernel(w, parts)) && grab_values(parts->scale, &w->scale) &&
           grab_values(parts->bias, &w->bias) && grab_values(parts->slope, &w->slope) &&
           grab_values(parts->shift, &w->shift);
}

static void set_shape(xn_weights *w, const xn_weights_parts *parts) {
    const char *name;
    const xn_tensor *leading = leading_part(parts, &name);
    const int64_t *dims = leading->shape.dims;
    w->out_channels = (int32_t)dims[0];
    w->datatype = leading->datatype;
    w->broadcast = parts->broadcast;
    if (!parts->weights)
        return;
    w->group_channels = (int32_t)dims[1];
    w->kernel_h = (int32_t)dims[2];
    w->kernel_w = (int32_t)dims[3];
    w->words = xn_pack_words(w->group_channels);
}

xn_status xn_weights_create_parts(const xn_weights_parts *parts, xn_weights **out,
                                  xn_error *error) {
    xn_status status = check_parts(parts, error);
    if (status)
        return status;
    const int64_t before = xn_mem_held();
    xn_weights *w = xn_mem_zalloc(1, sizeof *w);
    if (w)
        set_shape(w, parts);
    if (!w || !fill(w, parts)) {
        xn_weights_free(w);
        const char *name;
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                       "no memory for weights of %" PRId64 " elements",
                       leading_part(parts, &name)->elements);
    }
    w->host_bytes = (size_t)(xn_mem_held() - before);
    *out = w;
    return XN_OK;
}

xn_status xn_weights_create(const xn_tensor *weights, const xn_tensor *scale, const xn_tensor *bias,
                            xn_weights **out, xn_error *error) {
    const xn_weights_parts parts = {.weights = weights, .scale = scale, .bias = bias};
    return xn_weights_create_parts(&parts, out, error);
}

void xn_weights_free(xn_weights *weights) {
    if (!weights)
        return;
    xn_planes_free(weights->planes);
    xn_mem_free(weights->shift);
    xn_mem_free(weights->slope);
    xn_mem_free(weights->bias);
    xn_mem_free(weights->scale);
    xn_mem_free(weights->alpha);
    xn_mem_free(weights->own_bits);
    xn_mem_free(weights->real);
    xn_mem_free(weights);
}

void xn_weights_shape_of(const xn_weights *weights, xn_weights_shape *out) {
    *out = (xn_weights_shape){
        .dims = {weights->out_channels, weights->group_channels, weights->kernel_h,
                 weights->kernel_w},
        .datatype = weights->datatype,
        .has_scale = weights->scale != NULL,
        .has_bias = weights->bias != NULL,
    };
}

static bool all_equal(const float *values, int32_t count) {
    return !values || count < 2 ||
           !memcmp(values, values + 1, (size_t)(count - 1) * sizeof *values);
}

bool xn_weights_is_uniform(const xn_weights *weights) {
    const int32_t values = weights->broadcast ? 1 : weights->out_channels;
    return all_equal(weights->scale, values) && all_equal(weights->bias, values) &&
           all_equal(weights->slope, values);
}
