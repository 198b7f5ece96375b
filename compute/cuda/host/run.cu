/* run.cu: a batch on its stream. Small ones are kernels alone (zero_copy.h). Else copies up,
 * kernels, copies down, with an event after each stage: everything is put on the stream at once,
 * and wait is for the last event only, so that the stages of different streams overlap. Allocates
 * nothing. */
#include "xn_cuda.h"

#include <math.h>

/* One direction of a batch's transfer. */
struct transfer {
    const xn_stream *stream;
    const xn_batch *batch;
    bool up;
};

static char *host_of(const struct transfer *t, size_t i) {
    const xn_batch_item *item = &t->batch->items[i];
    return (char *)(t->up ? const_cast<void *>(item->input) : item->output);
}

static size_t bytes_of(const struct transfer *t, size_t i) {
    return (size_t)t->batch->items[i].images *
           (t->up ? t->batch->input_bytes : t->batch->output_bytes);
}

static cudaError_t copy(const struct transfer *t, char *device, char *host, size_t bytes) {
    return cudaMemcpyAsync(t->up ? device : host, t->up ? host : device, bytes,
                           t->up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                           t->stream->stream);
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
static xn_status copy_items(const struct transfer *t, char *device, xn_error *error) {
    for (size_t first = 0, next; first < t->batch->count; first = next) {
        size_t bytes = bytes_of(t, first);
        for (next = first + 1;
             next < t->batch->count && host_of(t, next) == host_of(t, first) + bytes; next++)
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

static xn_status record(cudaEvent_t event, const xn_stream *stream, xn_error *error) {
    return xn_cuda_check(cudaEventRecord(event, stream->stream), "recording an event", error);
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
    if (status == XN_OK)
        *times = t;
    return status;
}

xn_status xn_cuda_begin(xn_stream *s, const xn_batch *batch, void *input, xn_error *error) {
    const struct transfer up = {s, batch, true};
    xn_status status = xn_cuda_device_use(s->device, error);
    if (status == XN_OK)
        status = record(s->start, s, error);
    if (status == XN_OK)
        status = copy_items(&up, (char *)input, error);
    return status == XN_OK ? record(s->uploaded, s, error) : status;
}

xn_status xn_cuda_enqueue_step(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                               xn_error *error) {
    const xn_stream *s = plan->stream;
    if (s->workspace_bytes < plan->workspace_bytes)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "GPU %d has no room left for this plan's workspace of %zu bytes",
                       s->device->ordinal, plan->workspace_bytes);
    if (!xn_cuda_weights_have(prepared, xn_cuda_plan_wants(plan, prepared)))
        return xn_fail(error, XN_ERR_INTERNAL, NULL,
                       "a plan is run with weights that were not made ready for it");
    return xn_cuda_check(xn_cuda_enqueue(plan, prepared, io->batch->images, io, s->stream),
                         "launching kernels", error);
}

xn_status xn_cuda_end(xn_stream *s, const xn_batch *batch, const void *output, xn_run_times *times,
                      xn_error *error) {
    const struct transfer down = {s, batch, false};
    (void)times;
    s->by_zero_copy = false;
    xn_status status = record(s->computed, s, error);
    if (status == XN_OK)
        status = copy_items(&down, (char *)const_cast<void *>(output), error);
    return status == XN_OK ? record(s->done, s, error) : status;
}

static xn_status run_by_copies(xn_stream *s, const xn_run *run, xn_recordings *recordings,
                               xn_run_times *times, xn_error *error) {
    xn_status status = xn_cuda_begin(s, run->batch, run->input, error);
    if (status == XN_OK)
        status = xn_cuda_enqueue_run(s, run, false, recordings, error);
    return status == XN_OK ? xn_cuda_end(s, run->batch, run->output, times, error) : status;
}

xn_status xn_cuda_run_batch(xn_stream *s, const xn_run *run, xn_recordings *recordings,
                            xn_run_times *times, xn_error *error) {
    if (!xn_zero_copy_take(s->zero_copy, run->batch))
        return run_by_copies(s, run, recordings, times, error);
    s->by_zero_copy = true;
    s->recorded = false;
    xn_status status = xn_cuda_device_use(s->device, error);
    return status == XN_OK ? xn_cuda_enqueue_run(s, run, true, recordings, error) : status;
}

xn_status xn_cuda_wait(xn_stream *s, const xn_batch *, int64_t until_ns, xn_run_times *times,
                       xn_error *error) {
    xn_status status = xn_cuda_device_use(s->device, error); /* another thread may go on with it */
    if (status != XN_OK)
        return status;
    if (!s->by_zero_copy) {
        status = xn_cuda_stream_wait(s, until_ns, error);
        return status == XN_OK ? read_times(s, times, error) : status;
    }
    status = xn_cuda_stream_wait_zero_copy(s, until_ns, error);
    if (status == XN_OK)
        xn_zero_copy_end(s->zero_copy, times);
    return status;
}

void xn_cuda_abandon(xn_stream *s) {
    (void)cudaStreamSynchronize(s->stream); /* copies under way use the caller's memory */
}
