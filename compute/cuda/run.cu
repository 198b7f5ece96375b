/* run.cu: a batch on its stream: copies up, kernels, copies down, with an event after each stage.
 * Everything is put on the stream at once, and the thread waits for the last event only, so that
 * the stages of different streams overlap. Allocates nothing. */
#include "xn_cuda.h"

#include <math.h>

/* One direction of a batch's transfer. */
struct transfer {
    const xn_plan *plan;
    const xn_batch_item *items;
    size_t count;
    bool up;
};

static char *host_of(const struct transfer *t, size_t i) {
    return (char *)(t->up ? const_cast<void *>(t->items[i].input) : t->items[i].output);
}

static size_t bytes_of(const struct transfer *t, size_t i) {
    return (size_t)t->items[i].images * (t->up ? t->plan->input_bytes : t->plan->output_bytes);
}

static cudaError_t copy(const struct transfer *t, char *device, char *host, size_t bytes) {
    return cudaMemcpyAsync(t->up ? device : host, t->up ? host : device, bytes,
                           t->up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                           t->plan->stream->stream);
}

/* Items first..last, which are neighbours in host memory. They may still be of two allocations,
 * which a single copy may not span: then one by one. */
static cudaError_t copy_span(const struct transfer *t, size_t first, size_t last, char *device,
                             size_t bytes) {
    cudaError_t e = copy(t, device, host_of(t, first), bytes);
    if (e != cudaErrorInvalidValue || first == last)
        return e;
    (void)cudaGetLastError();
    for (e = cudaSuccess; first <= last && e == cudaSuccess; first++) {
        e = copy(t, device, host_of(t, first), bytes_of(t, first));
        device += bytes_of(t, first);
    }
    return e;
}

/* Every item's part, neighbours together. */
static xn_status copy_items(const struct transfer *t, xn_error *error) {
    char *device = t->plan->stream->workspace + (t->up ? t->plan->input : t->plan->output);
    for (size_t first = 0, next; first < t->count; first = next) {
        size_t bytes = bytes_of(t, first);
        for (next = first + 1; next < t->count && host_of(t, next) == host_of(t, first) + bytes;
             next++)
            bytes += bytes_of(t, next);
        xn_status status =
            xn_cuda_check(copy_span(t, first, next - 1, device, bytes),
                          t->up ? "uploading a batch" : "downloading a batch", error);
        if (status)
            return status;
        device += bytes;
    }
    return XN_OK;
}

/* What the specification multiplies by: nothing, the given scale, or alpha (mode float has none).
 */
static xn_cuda_epilogue_args epilogue_of(const xn_plan *plan, const xn_prepared *prepared) {
    const xn_conv *c = &plan->conv;
    xn_cuda_epilogue_args e;
    e.factor = c->scaling == XN_SCALING_NONE ? NULL
               : c->has_scale                ? prepared->scale
               : c->mode == XN_MODE_FLOAT    ? NULL
                                             : prepared->alpha;
    e.bias = c->has_bias ? prepared->bias : NULL;
    e.output = plan->stream->workspace + plan->output;
    return e;
}

/* The two paths over packed bits. */
static cudaError_t launch_packed(const xn_plan *plan, const xn_prepared *prepared, int64_t images,
                                 const xn_cuda_epilogue_args *epilogue) {
    const xn_conv *c = &plan->conv;
    char *base = plan->stream->workspace;
    cudaStream_t stream = plan->stream->stream;
    const bool gemm = plan->path == XN_CUDA_GEMM;
    uint32_t *bits = (uint32_t *)(base + plan->bits);
    int32_t *popc = gemm ? (int32_t *)(base + plan->popc) : NULL;
    int32_t *pixel_part = gemm ? (int32_t *)(base + plan->pixel_part) : NULL;
    float *mean = plan->want_k ? (float *)(base + plan->mean) : NULL;
    float *k = plan->want_k ? (float *)(base + plan->k) : NULL;
    cudaError_t e = xn_cuda_pack_launch(c, images, base + plan->input, bits, popc, mean, stream);
    if (e == cudaSuccess && (popc || mean))
        e = xn_cuda_box_launch(c, images, popc, mean, pixel_part, k, stream);
    if (e != cudaSuccess)
        return e;
    xn_cuda_bit_args args = {bits, prepared->rows, prepared->prefix, pixel_part, k};
    if (gemm)
        return xn_cuda_gemm_launch(c, images, plan->stream->device->multiprocessors, &args,
                                   epilogue, stream);
    return xn_cuda_direct_launch(c, images, &args, epilogue, stream);
}

static cudaError_t launch(const xn_plan *plan, const xn_prepared *prepared, int64_t images) {
    const xn_cuda_epilogue_args epilogue = epilogue_of(plan, prepared);
    const void *input = plan->stream->workspace + plan->input;
    switch (plan->path) {
    case XN_CUDA_FEW:
        return xn_cuda_few_launch(&plan->conv, images, plan->stream->device->multiprocessors, input,
                                  prepared->patches, &epilogue, plan->stream->stream);
    case XN_CUDA_REAL:
        return xn_cuda_real_launch(&plan->conv, images, input, prepared->real, &epilogue,
                                   plan->stream->stream);
    default:
        return launch_packed(plan, prepared, images, &epilogue);
    }
}

static xn_status record(cudaEvent_t event, const xn_stream *stream, xn_error *error) {
    return xn_cuda_check(cudaEventRecord(event, stream->stream), "recording an event", error);
}

static xn_status enqueue(const xn_plan *plan, const xn_prepared *prepared,
                         const xn_batch_item *items, size_t count, int64_t images,
                         xn_error *error) {
    const xn_stream *s = plan->stream;
    const struct transfer up = {plan, items, count, true}, down = {plan, items, count, false};
    xn_status status = record(s->start, s, error);
    if (status == XN_OK)
        status = copy_items(&up, error);
    if (status == XN_OK)
        status = record(s->uploaded, s, error);
    if (status == XN_OK)
        status = xn_cuda_check(launch(plan, prepared, images), "launching kernels", error);
    if (status == XN_OK)
        status = record(s->computed, s, error);
    if (status == XN_OK)
        status = copy_items(&down, error);
    if (status == XN_OK)
        status = record(s->done, s, error);
    return status;
}

static xn_status elapsed(cudaEvent_t from, cudaEvent_t to, int64_t *ns, xn_error *error) {
    float ms = 0.0f;
    xn_status status =
        xn_cuda_check(cudaEventElapsedTime(&ms, from, to), "reading an event", error);
    *ns = (int64_t)llround((double)ms * 1e6);
    return status;
}

static xn_status read_times(const xn_stream *s, xn_run_times *times, xn_error *error) {
    xn_run_times t = {};
    xn_status status = elapsed(s->start, s->uploaded, &t.upload_ns, error);
    if (status == XN_OK)
        status = elapsed(s->uploaded, s->computed, &t.compute_ns, error);
    if (status == XN_OK)
        status = elapsed(s->computed, s->done, &t.download_ns, error);
    if (status == XN_OK && times)
        *times = t;
    return status;
}

xn_status xn_cuda_run(xn_plan *plan, const xn_prepared *prepared, const xn_batch_item *items,
                      size_t count, xn_run_times *times, xn_error *error) {
    xn_stream *s = plan->stream;
    int64_t images = 0;
    for (size_t i = 0; i < count; i++)
        images += items[i].images;
    if (images < 1 || images > plan->max_images)
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "a batch of %lld images on a plan for %lld",
                       (long long)images, (long long)plan->max_images);
    if (s->workspace_bytes < plan->workspace_bytes)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "GPU %d has no room left for this plan's workspace of %zu bytes",
                       s->device->ordinal, plan->workspace_bytes);
    xn_status status = xn_cuda_device_use(s->device, error);
    if (status)
        return status;
    status = enqueue(plan, prepared, items, count, images, error);
    if (status == XN_OK)
        status = xn_cuda_stream_wait(s, error);
    else
        (void)cudaStreamSynchronize(s->stream); /* copies under way use the caller's memory */
    if (status == XN_OK)
        status = read_times(s, times, error);
    return status;
}
