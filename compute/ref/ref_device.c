/* ref_device.c: the oracle's device, weights and stream, and its table. */
#include "ref.h"

#include "xn_backends.h"
#include "xn_mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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
    xn_mem_free(prepared->shift);
    xn_mem_free(prepared->slope);
    xn_mem_free(prepared->bias);
    xn_mem_free(prepared->scale);
    xn_mem_free(prepared->alpha);
    xn_mem_free(prepared->real);
    xn_mem_free(prepared);
}

static double mean_magnitude(const float *filter, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs((double)filter[i]);
    return sum / (double)count;
}

/* False where there is no memory; NULL with true where there are no values. */
static bool widen(const xn_weights *weights, const float *values, double **out) {
    if (!values)
        return true;
    *out = xn_mem_alloc((size_t)weights->out_channels * sizeof **out);
    for (int32_t o = 0; *out && o < weights->out_channels; o++)
        (*out)[o] = (double)values[xn_weights_value_at(weights, o)];
    return *out != NULL;
}

static bool copy_kernel(const xn_weights *weights, xn_prepared *p) {
    const int64_t filter = (int64_t)weights->group_channels * weights->kernel_h * weights->kernel_w;
    const size_t channels = (size_t)weights->out_channels;
    const size_t bytes = channels * (size_t)filter * sizeof *p->real;
    p->packed = weights;
    if (!weights->real)
        return true;
    p->real = xn_mem_alloc(bytes);
    p->alpha = xn_mem_alloc(channels * sizeof *p->alpha);
    if (!p->real || !p->alpha)
        return false;
    memcpy(p->real, weights->real, bytes);
    for (size_t o = 0; o < channels; o++)
        p->alpha[o] = mean_magnitude(p->real + (int64_t)o * filter, filter);
    return true;
}

static xn_status ref_weights_prepare(xn_device *device, const xn_weights *weights,
                                     xn_prepared **out, xn_error *error) {
    (void)device;
    const int32_t channels = weights->out_channels;
    xn_prepared *p = xn_mem_zalloc(1, sizeof *p);
    if (p) {
        p->out_channels = channels;
        p->group_channels = weights->group_channels;
        p->kernel_h = weights->kernel_h;
        p->kernel_w = weights->kernel_w;
        p->planes = weights->planes;
    }
    if (!p || !copy_kernel(weights, p) || !widen(weights, weights->scale, &p->scale) ||
        !widen(weights, weights->bias, &p->bias) || !widen(weights, weights->slope, &p->slope) ||
        !widen(weights, weights->shift, &p->shift)) {
        ref_weights_free(p);
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                       "no memory for weights of %d channels on ref", channels);
    }
    *out = p;
    return XN_OK;
}

/* ---- streams ---- */

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
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL, "no memory for tensors of %zu bytes",
                       bytes);
    xn_mem_free(stream->arena);
    stream->arena = arena;
    stream->arena_bytes = bytes;
    return XN_OK;
}

static void *ref_arena(const xn_stream *stream, size_t bytes) {
    return bytes <= stream->arena_bytes ? stream->arena : NULL;
}

static void ref_stream_trim(xn_stream *stream) {
    xn_mem_free(stream->arena);
    stream->arena = NULL;
    stream->arena_bytes = 0;
}

/* ---- a run ---- */

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

static xn_status ref_end(xn_stream *stream, const xn_batch *batch, const void *output,
                         xn_run_times *times, xn_error *error) {
    (void)batch, (void)output, (void)error;
    *times = (xn_run_times){.compute_ns = now_ns() - stream->started_ns};
    return XN_OK;
}

static void ref_abandon(xn_stream *stream) {
    (void)stream; /* nothing is ever under way */
}

static xn_status ref_device_canary(xn_device *device, xn_error *error) {
    return xn_ref_canary(&xn_backend_ref, device, error);
}

const xn_backend xn_backend_ref = {
    .name = "ref",
    .kinds = (1u << XN_STEP_KIND_COUNT) - 1,
    .parts = true,
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
    .plan_create = xn_ref_plan_create,
    .plan_free = xn_ref_plan_free,
    .arena_reserve = ref_arena_reserve,
    .arena = ref_arena,
    .stream_trim = ref_stream_trim,
    .in_place = true,
    .begin = ref_begin,
    .enqueue = xn_ref_enqueue,
    .end = ref_end,
    .abandon = ref_abandon,
};
