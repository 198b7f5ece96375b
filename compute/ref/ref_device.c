/* ref.c: the oracle. The formulas of xn_conv.h, read aloud: plain loops in the order of the
 * equation, double wherever a value is real, one thread, no packing (it never looks at
 * xn_weights.bits or xn_weights.alpha), every tap tested against the image on its own. It shares
 * with the other backends only the definition of sign. Slow by design: for tests, and for
 * `--backend ref` when someone doubts an answer. */
#include "xn_arith.h"
#include "xn_backends.h"
#include "xn_mem.h"
#include "xn_program.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct xn_device {
    int ordinal;
};

struct xn_prepared {
    int32_t out_channels, group_channels, kernel_h, kernel_w;
    float *real;
    double *factor; /* [O]: scale where given, else alpha */
    double *bias;   /* [O]: 0 where not given */
};

struct xn_stream {
    xn_device *device;
    int64_t started_ns; /* the run under way */
    void *arena;
    size_t arena_bytes;
};

struct xn_plan {
    xn_conv conv;
    int64_t max_images;
    float *image; /* one input image as fp32 */
};

/* ---- device ---- */

static xn_status ref_device_count(int *count, xn_error *error) {
    (void)error;
    *count = 1;
    return XN_OK;
}

static xn_status ref_device_open(int ordinal, xn_device **out, xn_error *error) {
    if (ordinal != 0)
        return xn_fail(error, XN_ERR_NO_DEVICE, "devices",
                       "device %d of backend ref; it has only device 0", ordinal);
    xn_device *device = xn_mem_zalloc(1, sizeof *device);
    if (!device)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for backend ref");
    *out = device;
    return XN_OK;
}

static void ref_device_close(xn_device *device) {
    xn_mem_free(device);
}

static void ref_device_info(const xn_device *device, xn_device_info *out) {
    (void)device;
    *out = (xn_device_info){.compute_units = 1};
    snprintf(out->id, sizeof out->id, "ref");
    snprintf(out->description, sizeof out->description, "naive reference, double, one thread");
}

static void *ref_host_alloc(xn_device *device, size_t bytes) {
    (void)device;
    return xn_mem_alloc(bytes);
}

static void ref_host_free(xn_device *device, void *memory) {
    (void)device;
    xn_mem_free(memory);
}

/* ---- weights ---- */

static void ref_weights_free(xn_prepared *prepared) {
    if (!prepared)
        return;
    xn_mem_free(prepared->bias);
    xn_mem_free(prepared->factor);
    xn_mem_free(prepared->real);
    xn_mem_free(prepared);
}

static double mean_magnitude(const float *filter, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs((double)filter[i]);
    return sum / (double)count;
}

static xn_status ref_weights_prepare(xn_device *device, const xn_weights *weights,
                                     xn_prepared **out, xn_error *error) {
    (void)device;
    int64_t filter = (int64_t)weights->group_channels * weights->kernel_h * weights->kernel_w;
    size_t channels = (size_t)weights->out_channels, elements = channels * (size_t)filter;
    xn_prepared *p = xn_mem_zalloc(1, sizeof *p);
    if (!p)
        goto no_memory;
    p->out_channels = weights->out_channels;
    p->group_channels = weights->group_channels;
    p->kernel_h = weights->kernel_h;
    p->kernel_w = weights->kernel_w;
    p->real = xn_mem_alloc(elements * sizeof *p->real);
    p->factor = xn_mem_zalloc(channels, sizeof *p->factor);
    p->bias = xn_mem_zalloc(channels, sizeof *p->bias);
    if (!p->real || !p->factor || !p->bias)
        goto no_memory;
    memcpy(p->real, weights->real, elements * sizeof *p->real);
    for (size_t o = 0; o < channels; o++) {
        p->factor[o] = weights->scale ? (double)weights->scale[o]
                                      : mean_magnitude(p->real + (int64_t)o * filter, filter);
        p->bias[o] = weights->bias ? (double)weights->bias[o] : 0;
    }
    *out = p;
    return XN_OK;
no_memory:
    ref_weights_free(p);
    return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for %zu weights on ref",
                   elements);
}

/* ---- streams and plans ---- */

static xn_status ref_stream_create(xn_device *device, const xn_stream_options *options,
                                   xn_stream **out, xn_error *error) {
    if (options && options->path)
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "ref has no kernel path \"%s\"",
                       options->path);
    xn_stream *stream = xn_mem_zalloc(1, sizeof *stream);
    if (!stream)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a stream of ref");
    stream->device = device;
    *out = stream;
    return XN_OK;
}

static void ref_stream_free(xn_stream *stream) {
    if (stream)
        xn_mem_free(stream->arena);
    xn_mem_free(stream);
}

static xn_status ref_arena_reserve(xn_stream *stream, size_t bytes, xn_error *error) {
    if (bytes <= stream->arena_bytes)
        return XN_OK;
    void *arena = xn_mem_alloc(bytes);
    if (!arena)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for tensors of %zu bytes", bytes);
    xn_mem_free(stream->arena);
    stream->arena = arena;
    stream->arena_bytes = bytes;
    return XN_OK;
}

static void *ref_arena(const xn_stream *stream, size_t bytes) {
    return bytes <= stream->arena_bytes ? stream->arena : NULL;
}

static void ref_plan_free(xn_plan *plan) {
    if (!plan)
        return;
    xn_mem_free(plan->image);
    xn_mem_free(plan);
}

static xn_status ref_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                                 xn_plan **out, xn_error *error) {
    (void)stream;
    const xn_conv *conv = &step->conv;
    size_t elements = (size_t)xn_conv_input_elements(conv);
    xn_plan *plan = xn_mem_zalloc(1, sizeof *plan);
    if (!plan)
        goto no_memory;
    plan->conv = *conv;
    plan->max_images = max_images;
    plan->image = xn_mem_alloc(elements * sizeof *plan->image);
    if (!plan->image)
        goto no_memory;
    *out = plan;
    return XN_OK;
no_memory:
    ref_plan_free(plan);
    return xn_fail(error, XN_ERR_NO_MEMORY, "input", "no memory for an image of %zu elements",
                   elements);
}

/* ---- the convolution ---- */

/* One output position: its group and the input coordinates of its tap (0, 0). */
typedef struct place {
    const xn_conv *conv;
    const xn_prepared *weights;
    const float *image;
    int32_t group;
    int64_t top, left;
} place;

/* The input value under tap (i, j) of the group's channel c; false outside the image. */
static bool tap_value(const place *p, int32_t c, int32_t i, int32_t j, float *value) {
    const xn_conv *v = p->conv;
    int64_t y = p->top + (int64_t)i * v->dilation_h, x = p->left + (int64_t)j * v->dilation_w;
    if (y < 0 || y >= v->height || x < 0 || x >= v->width)
        return false;
    int64_t channel = (int64_t)p->group * v->group_channels + c;
    *value = p->image[(channel * v->height + y) * v->width + x];
    return true;
}

static float weight_at(const place *p, int32_t o, int32_t c, int32_t i, int32_t j) {
    const xn_prepared *w = p->weights;
    int64_t channel = (int64_t)o * w->group_channels + c;
    return w->real[(channel * w->kernel_h + i) * w->kernel_w + j];
}

static int32_t sign_of(float value) {
    return xn_sign_bit(value) ? 1 : -1;
}

static int32_t dot_at(const place *p, int32_t o) {
    int32_t dot = 0;
    for (int32_t c = 0; c < p->conv->group_channels; c++) {
        for (int32_t i = 0; i < p->conv->kernel_h; i++) {
            for (int32_t j = 0; j < p->conv->kernel_w; j++) {
                float value;
                bool inside = tap_value(p, c, i, j, &value);
                int32_t a = inside ? sign_of(value) : p->conv->pad_value;
                dot += a * sign_of(weight_at(p, o, c, i, j));
            }
        }
    }
    return dot;
}

/* I conv W, or I conv sign(W). A 0 outside adds nothing, even to a weight that is NaN. */
static double real_conv_at(const place *p, int32_t o, bool binary_weights) {
    double sum = 0;
    for (int32_t c = 0; c < p->conv->group_channels; c++) {
        for (int32_t i = 0; i < p->conv->kernel_h; i++) {
            for (int32_t j = 0; j < p->conv->kernel_w; j++) {
                float value, weight = weight_at(p, o, c, i, j);
                if (!tap_value(p, c, i, j, &value)) {
                    if (p->conv->pad_value == 0)
                        continue;
                    value = (float)p->conv->pad_value;
                }
                sum += (double)value * (binary_weights ? (double)sign_of(weight) : (double)weight);
            }
        }
    }
    return sum;
}

/* Eq. 10: the mean over the kernel's box of A, itself the mean over the group's channels of |I|;
 * outside counts 0, the divisors stay. */
static double k_at(const place *p) {
    const xn_conv *v = p->conv;
    double box = 0;
    for (int32_t i = 0; i < v->kernel_h; i++) {
        for (int32_t j = 0; j < v->kernel_w; j++) {
            double sum = 0;
            for (int32_t c = 0; c < v->group_channels; c++) {
                float value;
                if (tap_value(p, c, i, j, &value))
                    sum += fabs((double)value);
            }
            box += sum / v->group_channels;
        }
    }
    return box / ((double)v->kernel_h * v->kernel_w);
}

/* k is what k_at gives; it is not asked for where scaling does not use it. */
static double value_at(const place *p, int32_t o, double k) {
    const xn_conv *v = p->conv;
    double factor = p->weights->factor[o], bias = p->weights->bias[o];
    double acc =
        v->mode == XN_MODE_XNOR ? dot_at(p, o) : real_conv_at(p, o, v->mode == XN_MODE_BWN);
    if (v->epilogue.factor != XN_FACTOR_NONE)
        acc *= factor;
    return (v->epilogue.k ? acc * k : acc) + bias;
}

static void store(const place *p, int32_t o, double k, void *output, int64_t at) {
    switch ((xn_datatype)p->conv->epilogue.datatype) {
    case XN_INT32:
        ((int32_t *)output)[at] = dot_at(p, o);
        return;
    case XN_FP16:
        ((uint16_t *)output)[at] = xn_fp32_to_fp16((float)value_at(p, o, k));
        return;
    default:
        ((float *)output)[at] = (float)value_at(p, o, k);
    }
}

static void convolve_image(const xn_plan *plan, const xn_prepared *weights, void *output) {
    const xn_conv *v = &plan->conv;
    place p = {.conv = v, .weights = weights, .image = plan->image};
    for (p.group = 0; p.group < v->groups; p.group++) {
        for (int32_t y = 0; y < v->out_height; y++) {
            for (int32_t x = 0; x < v->out_width; x++) {
                p.top = (int64_t)y * v->stride_h - v->pad_top;
                p.left = (int64_t)x * v->stride_w - v->pad_left;
                double k = v->epilogue.k ? k_at(&p) : 1;
                for (int32_t i = 0; i < v->group_out_channels; i++) {
                    int32_t o = p.group * v->group_out_channels + i;
                    store(&p, o, k, output, ((int64_t)o * v->out_height + y) * v->out_width + x);
                }
            }
        }
    }
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static xn_status ref_begin(xn_stream *stream, const xn_batch *batch, void *input, xn_error *error) {
    (void)batch, (void)input, (void)error;
    stream->started_ns = now_ns();
    return XN_OK;
}

static void convolve_images(const xn_plan *plan, const xn_prepared *prepared, const void *input,
                            void *output, int64_t images) {
    const xn_conv *v = &plan->conv;
    const char *from = input;
    char *to = output;
    for (int64_t n = 0; n < images; n++) {
        xn_conv_input_to_fp32(v, from, plan->image, xn_conv_input_elements(v));
        convolve_image(plan, prepared, to);
        from += xn_conv_input_bytes(v);
        to += xn_conv_output_bytes(v);
    }
}

static xn_status ref_enqueue(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                             xn_error *error) {
    const xn_conv *v = &plan->conv;
    const xn_batch *batch = io->batch;
    (void)error;
    assert(prepared->out_channels == v->out_channels && prepared->kernel_h == v->kernel_h);
    assert(prepared->group_channels == v->group_channels && prepared->kernel_w == v->kernel_w);
    int64_t before = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const xn_batch_item *item = &batch->items[i];
        const char *input = io->input;
        char *output = io->output;
        convolve_images(plan, prepared,
                        input ? input + (size_t)before * xn_conv_input_bytes(v) : item->input,
                        output ? output + (size_t)before * xn_conv_output_bytes(v) : item->output,
                        item->images);
        before += item->images;
    }
    return XN_OK;
}

static xn_status ref_end(xn_stream *stream, const xn_batch *batch, const void *output,
                         xn_run_times *times, xn_error *error) {
    (void)batch, (void)output, (void)error;
    *times = (xn_run_times){.compute_ns = now_ns() - stream->started_ns};
    return XN_OK;
}

static void ref_abandon(xn_stream *stream) {
    (void)stream; /* nothing is ever under way */
}

/* ---- canary ---- */

/* A 3x3 checkerboard of signs under a 2x2 one: each dot is 4 or -4, alpha is 0.5, and K the mean
 * of four magnitudes. */
static xn_status run_canary(xn_device *device, const xn_conv *conv, const xn_weights *weights,
                            const float *input, float *output, xn_error *error) {
    xn_prepared *prepared = NULL;
    xn_stream *stream = NULL;
    xn_program *program = NULL;
    xn_problem problem;
    xn_stream_options options = {0};
    xn_batch_item item = {.input = input, .output = output, .images = 1};
    xn_problem_of_conv(conv, &problem);
    xn_status status = ref_weights_prepare(device, weights, &prepared, error);
    if (!status)
        status = ref_stream_create(device, &options, &stream, error);
    if (!status)
        status = xn_program_create(&xn_backend_ref, stream, &problem, 1, &program, error);
    if (!status)
        status = xn_program_run(program, (const xn_prepared *[]){prepared}, &item, 1, NULL, error);
    xn_program_free(program);
    ref_stream_free(stream);
    ref_weights_free(prepared);
    return status;
}

static xn_status ref_device_canary(xn_device *device, xn_error *error) {
    static const float input[9] = {1, -2, 3, -4, 5, -6, 7, -8, 9};
    static const float kernel[4] = {0.5f, -0.5f, -0.5f, 0.5f};
    static const float expected[4] = {6, -8, -12, 14};
    float output[4] = {0};
    xn_tensor tensor = {XN_FP32, {4, {1, 1, 2, 2}}, 4, sizeof kernel, kernel};
    xn_shape shape = {4, {1, 1, 3, 3}};
    xn_conv_limits limits = {INT32_MAX, INT32_MAX, INT32_MAX};
    xn_conv_params params;
    xn_weights_shape weights_shape;
    xn_weights *weights = NULL;
    xn_conv conv;
    int64_t images;
    xn_status status = xn_weights_create(&tensor, NULL, NULL, &weights, error);
    if (status)
        return status;
    xn_conv_params_default(&params);
    xn_weights_shape_of(weights, &weights_shape);
    status =
        xn_conv_resolve(&params, XN_FP32, &shape, &weights_shape, &limits, &conv, &images, error);
    if (!status)
        status = run_canary(device, &conv, weights, input, output, error);
    xn_weights_free(weights);
    if (status)
        return status;
    for (int i = 0; i < 4; i++)
        if (output[i] != expected[i])
            return xn_fail(error, XN_ERR_INTERNAL, NULL, "canary output[%d] is %g; expected %g", i,
                           (double)output[i], (double)expected[i]);
    return XN_OK;
}

const xn_backend xn_backend_ref = {
    .name = "ref",
    .device_count = ref_device_count,
    .device_open = ref_device_open,
    .device_close = ref_device_close,
    .device_info = ref_device_info,
    .device_canary = ref_device_canary,
    .host_alloc = ref_host_alloc,
    .host_free = ref_host_free,
    .weights_prepare = ref_weights_prepare,
    .weights_free = ref_weights_free,
    .stream_create = ref_stream_create,
    .stream_free = ref_stream_free,
    .stream_set_threads = NULL,
    .plan_create = ref_plan_create,
    .plan_free = ref_plan_free,
    .arena_reserve = ref_arena_reserve,
    .arena = ref_arena,
    .in_place = true,
    .begin = ref_begin,
    .enqueue = ref_enqueue,
    .end = ref_end,
    .abandon = ref_abandon,
};
