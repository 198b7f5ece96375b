/* inference.c: see inference.h. */
#include "inference.h"

#include "clock.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

#define OWNER_BYTES XN_INFERENCE_TEXT_BYTES /* in front of what outlives the request */

/* Lives in the first bytes of an output buffer or of a text: the HTTP library gives a sent body
 * back last. */
typedef struct {
    xn_buffers *buffers;  /* of an output */
    xn_thread_pool *pool; /* of a long text, in pages of its own */
    size_t bytes;
} owner;

_Static_assert(sizeof(owner) <= OWNER_BYTES, "in front of a text");

xn_buffers *xn_inference_buffers(const xn_inference *work) {
    return xn_engine_buffers(work->ctx->service->engine);
}

/* ---- output ---- */

static void release_output(void *context) {
    owner *of = context;
    xn_buffers_put(of->buffers, of, of->bytes);
}

xn_status xn_inference_count_output(xn_inference *work, size_t bytes, size_t more,
                                    xn_error *error) {
    size_t all;
    work->job.device = -1;
    if (!xn_add_size(bytes, OWNER_BYTES + XN_PROTO_HEADROOM_BYTES, &work->output_bytes) ||
        !xn_add_size(xn_buffers_size(work->output_bytes), more, &all))
        return xn_fail_limit(error, "max-output-bytes", "output",
                             "an answer with an output of %zu bytes is too large", bytes);
    return xn_ticket_grow(&work->ctx->ticket, all, error);
}

xn_status xn_inference_borrow_output(xn_inference *work, void *memory, size_t more,
                                     xn_error *error) {
    work->job.device = -1;
    work->job.output = memory;
    return xn_ticket_grow(&work->ctx->ticket, more, error);
}

static void own_output(xn_inference *work, void *memory) {
    work->output = memory;
    if (!memory)
        return;
    *(owner *)memory = (owner){.buffers = xn_inference_buffers(work), .bytes = work->output_bytes};
    work->job.output = work->output + OWNER_BYTES + XN_PROTO_HEADROOM_BYTES;
}

static xn_status place_output(xn_inference *work, xn_error *error) {
    if (!work->job.output)
        own_output(work, xn_buffers_get(xn_inference_buffers(work), work->output_bytes));
    if (!work->job.output)
        return xn_fail(error, XN_ERR_NO_MEMORY, "output", "no memory for an output of %zu bytes",
                       work->output_bytes);
    return XN_OK;
}

/* ---- input ---- */

xn_status xn_inference_take_input(xn_inference *work, size_t bytes, xn_error *error) {
    xn_status status = xn_ticket_grow(&work->ctx->ticket, xn_buffers_size(bytes), error);
    if (status)
        return status;
    work->input = xn_buffers_get(xn_inference_buffers(work), bytes);
    if (!work->input)
        return xn_fail(error, XN_ERR_NO_MEMORY, "input", "no memory for an input of %zu bytes",
                       bytes);
    work->input_bytes = bytes;
    work->job.input = work->input;
    return XN_OK;
}

xn_status xn_inference_place_input(xn_inference *work, const xn_tensor_ref *input,
                                   const char *field, xn_error *error) {
    work->job.input = input->data;
    if (xn_proto_tensor_in_place(input))
        return XN_OK;
    xn_status status = xn_inference_take_input(work, input->bytes, error);
    return status ? status : xn_proto_tensor_read(input, field, work->input, error);
}

/* ---- from the body to a job ---- */

/* Whether parsing the body takes time that grows with it: a coded one is decoded, text is read
 * number by number, and values that are not aligned are moved. */
static bool parsing_is_long(const xn_context *ctx) {
    const xn_proto_body body = xn_context_received(ctx);
    return ctx->coding != XN_CODING_IDENTITY ||
           (body.length > XN_INFERENCE_INLINE_BYTES &&
            (xn_proto_prefix_bytes(&body) > XN_INFERENCE_INLINE_BYTES ||
             xn_context_must_move(&body)));
}

xn_status xn_inference_set_deadline(xn_inference *work, int64_t timeout, int64_t unit_ns,
                                    const char *field, xn_error *error) {
    const xn_config *config = work->ctx->service->config;
    const int64_t most = config->max_timeout_ms * XN_NS_PER_MS / unit_ns;
    if (timeout > most)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s is %lld; at most %lld (set by --max-timeout-ms)", field,
                       (long long)timeout, (long long)most);
    work->job.deadline_ns = xn_request_received_ns(work->ctx->request) +
                            (timeout < 0 ? config->timeout_ms * XN_NS_PER_MS : timeout * unit_ns);
    return XN_OK;
}

xn_status xn_inference_set_pool(xn_inference *work, const char *backend, xn_error *error) {
    work->job.any_pool = !strcmp(backend, "auto");
    return xn_engine_pool(work->ctx->service->engine, backend, &work->job.pool, error);
}

static xn_status understand(xn_inference *work, xn_error *error) {
    xn_status status = work->kind->understand(work, error);
    work->understood = !status;
    return status;
}

/* From the body to a job that can be submitted; goes on where an earlier call of part of it ended.
 */
static xn_status prepare(xn_inference *work, xn_error *error) {
    xn_status status = work->understood ? XN_OK : understand(work, error);
    if (status || (status = place_output(work, error)) ||
        (status = work->kind->prepare(work, error)))
        return status;
    work->job.asset = work->asset;
    work->job.id = xn_request_id(work->ctx->request);
    work->job.tenant = work->ctx->key;
    return XN_OK;
}

/* Whether looking the answer up, or keeping it, takes time. */
static bool lookup_is_long(const xn_inference *work) {
    const xn_job *job = &work->job;
    return xn_engine_cache_is_slow(work->ctx->service->engine,
                                   (size_t)job->images * xn_problem_input_bytes(&job->problem) +
                                       work->output_bytes);
}

/* The same of the rest; takes the output's buffer if that is quick. */
static bool preparing_is_long(xn_inference *work) {
    if (work->kind->preparing_is_long(work) || lookup_is_long(work))
        return true;
    if (!work->job.output)
        own_output(work, xn_buffers_get_quick(xn_inference_buffers(work), work->output_bytes));
    return !work->job.output;
}

static void encode_in_background(xn_task *task) {
    xn_inference *work = (xn_inference *)task;
    xn_inference_answer(work->ctx);
    xn_request_resume(work->ctx->request);
}

static bool answering_is_long(const xn_inference *work) {
    return work->kind->answering_is_long(work) ||
           (work->job.lookup == XN_LOOKUP_MISS && lookup_is_long(work));
}

static void release(xn_inference *work) {
    if (work->kind->finished)
        work->kind->finished(work);
    if (work->input)
        xn_buffers_put(xn_inference_buffers(work), work->input, work->input_bytes);
    if (work->output)
        xn_buffers_put(xn_inference_buffers(work), work->output, work->output_bytes);
    xn_asset_release(work->asset);
}

/* Of a job in use: of the request and the run, the one that ends last frees all. */
static void release_half(xn_inference *work) {
    xn_context *ctx = work->ctx;
    if (!atomic_exchange(&work->half, true))
        return;
    release(work);
    xn_context_release(ctx);
    xn_request_release(ctx->request);
}

static void job_released(xn_job *job) {
    release_half(job->context);
}

static void job_done(xn_job *job) {
    xn_inference *work = job->context;
    if (job->in_use) {
        work->ctx->in_use = true;
        xn_request_retain(work->ctx->request);
    }
    if (job->status || !answering_is_long(work)) {
        xn_request_resume(work->ctx->request);
        return;
    }
    work->task.run = encode_in_background;
    xn_thread_pool_submit(work->ctx->service->background_pool, &work->task);
}

static bool look_up(xn_inference *work) {
    return xn_engine_cache_lookup(work->ctx->service->engine, &work->job);
}

/* The request is suspended: the job may be done before submit returns. */
static void submit(xn_inference *work) {
    xn_error error;
    xn_job *job = &work->job;
    job->done = job_done;
    job->released = job_released;
    job->context = work;
    if (job->lookup == XN_LOOKUP_HIT) {
        job_done(job);
        return;
    }
    if (xn_engine_submit(work->ctx->service->engine, job, &error)) {
        job->status = error.status;
        job->error = error;
        xn_request_resume(work->ctx->request);
    }
}

/* Small work is over before another thread would have seen it. */
static bool runs_here(xn_inference *work) {
    return !answering_is_long(work) && xn_engine_try_run(work->ctx->service->engine, &work->job);
}

static void decode_in_background(xn_task *task) {
    xn_inference *work = (xn_inference *)task;
    xn_request *request = work->ctx->request;
    xn_error error;
    int64_t started_ns = xn_now_ns();
    if (atomic_load(&work->gone)) {
        work->job.status = XN_ERR_CANCELLED;
        xn_request_resume(request);
    } else if (prepare(work, &error)) {
        xn_context_fail(work->ctx, &error);
        xn_request_resume(request);
    } else {
        work->decode_ns += xn_now_ns() - started_ns;
        look_up(work);
        submit(work);
    }
}

static void decode_later(xn_inference *work) {
    work->task.run = decode_in_background;
    xn_request_suspend(work->ctx->request);
    xn_thread_pool_submit(work->ctx->service->background_pool, &work->task);
}

void xn_inference_start(xn_context *ctx, const xn_inference_kind *kind, size_t bytes) {
    xn_error error;
    xn_inference *work = xn_request_alloc(ctx->request, bytes);
    if (!work) {
        xn_context_fail_memory(ctx);
        return;
    }
    ctx->of.work = work;
    work->ctx = ctx;
    work->kind = kind;
    bool later = parsing_is_long(ctx);
    xn_status status = later ? XN_OK : understand(work, &error);
    if (!status && !later) {
        later = preparing_is_long(work);
        status = later ? XN_OK : prepare(work, &error);
    }
    if (status) {
        xn_context_fail(ctx, &error);
        return;
    }
    work->decode_ns = xn_now_ns() - xn_request_received_ns(ctx->request);
    if (later) {
        decode_later(work);
    } else if (look_up(work) ? !answering_is_long(work) : runs_here(work)) {
        xn_inference_answer(ctx);
    } else {
        xn_request_suspend(ctx->request);
        submit(work);
    }
}

/* ---- answering ---- */

const char *xn_inference_backend(const xn_inference *work) {
    return work->job.device < 0 ? ""
                                : xn_engine_device_id(work->ctx->service->engine, work->job.device);
}

void xn_inference_time_stages(const xn_inference *work, int64_t encode_started_ns, xn_timing *out) {
    const xn_request *request = work->ctx->request;
    const xn_job *job = &work->job;
    int64_t now = xn_now_ns(), started = xn_request_started_ns(request);
    *out = (xn_timing){.receive_ns = xn_request_received_ns(request) - started,
                       .decode_ns = work->decode_ns,
                       .queue_ns = job->started_ns - job->submitted_ns,
                       .upload_ns = job->times.upload_ns,
                       .compute_ns = job->times.compute_ns,
                       .download_ns = job->times.download_ns,
                       .encode_ns = now - encode_started_ns,
                       .total_ns = now - started};
    out->other_ns = out->total_ns - out->receive_ns - out->decode_ns - out->queue_ns -
                    out->upload_ns - out->compute_ns - out->download_ns - out->encode_ns;
}

static void observe(const xn_inference *work, const xn_timing *t) {
    xn_metrics *metrics = xn_engine_metrics(work->ctx->service->engine);
    xn_metrics_stage(metrics, XN_STAGE_RECEIVE, t->receive_ns);
    xn_metrics_stage(metrics, XN_STAGE_DECODE, t->decode_ns);
    if (work->job.lookup != XN_LOOKUP_HIT) { /* else there were no such stages */
        xn_metrics_stage(metrics, XN_STAGE_QUEUE, t->queue_ns);
        xn_metrics_stage(metrics, XN_STAGE_UPLOAD, t->upload_ns);
        xn_metrics_stage(metrics, XN_STAGE_COMPUTE, t->compute_ns);
        xn_metrics_stage(metrics, XN_STAGE_DOWNLOAD, t->download_ns);
    }
    xn_metrics_stage(metrics, XN_STAGE_ENCODE, t->encode_ns);
    xn_metrics_stage(metrics, XN_STAGE_TOTAL, t->total_ns);
}

/* RFC 9211 */
static const char *cache_status(const xn_inference *work) {
    switch (work->job.lookup) {
    case XN_LOOKUP_HIT:
        return "xnord; hit";
    case XN_LOOKUP_STORED:
        return "xnord; fwd=miss; stored";
    case XN_LOOKUP_MISS:
        return "xnord; fwd=miss";
    case XN_LOOKUP_BYPASS:
        return "xnord; fwd=bypass";
    default:
        return NULL;
    }
}

void xn_inference_tell_timing(const xn_inference *work, const xn_timing *timing) {
    char text[352];
    xn_proto_server_timing(timing, text, sizeof text);
    xn_request_add_header(work->ctx->request, "Server-Timing", text);
    if (cache_status(work))
        xn_request_add_header(work->ctx->request, "Cache-Status", cache_status(work));
    observe(work, timing);
}

void xn_inference_respond_output(xn_inference *work, const char *type, void *body, size_t length) {
    xn_request_respond(work->ctx->request, 200, type, body, length, release_output, work->output);
    work->output = NULL;
}

static void release_text(void *context) {
    owner *of = context;
    if (of->pool)
        xn_unmap_later(of, of->bytes, of->pool);
    else
        xn_mem_free(of);
}

/* What is asked for may be far more than is written: pages that are not take no memory. */
char *xn_inference_take_text(const xn_inference *work, size_t bytes) {
    size_t all;
    if (!xn_add_size(bytes, OWNER_BYTES, &all))
        return NULL;
    bool pages = all > XN_INFERENCE_INLINE_BYTES;
    owner *of = pages ? xn_mem_map(all) : xn_mem_alloc(all);
    if (!of)
        return NULL;
    *of = (owner){.pool = pages ? work->ctx->service->background_pool : NULL, .bytes = all};
    return (char *)of + OWNER_BYTES;
}

void xn_inference_drop_text(char *text) {
    if (text)
        release_text(text - OWNER_BYTES);
}

void xn_inference_respond_text(const xn_inference *work, const char *type, char *text,
                               size_t length) {
    xn_request_respond(work->ctx->request, 200, type, text, length, release_text,
                       text - OWNER_BYTES);
}

/* How the job ended; past its deadline even success is none. */
static xn_status outcome(const xn_inference *work, int64_t now_ns, xn_error *error) {
    const xn_job *job = &work->job;
    if (job->status) {
        *error = job->error;
        return error->status = job->status;
    }
    if (now_ns <= job->deadline_ns)
        return XN_OK;
    return xn_fail(
        error, XN_ERR_DEADLINE, "timeout_ms",
        "the deadline passed during the computation, %lld ms after the request was complete",
        (long long)((now_ns - xn_request_received_ns(work->ctx->request)) / XN_NS_PER_MS));
}

void xn_inference_answer(xn_context *ctx) {
    xn_inference *work = ctx->of.work;
    xn_engine_cache_insert(ctx->service->engine, &work->job);
    xn_error error;
    work->encode_started_ns = xn_now_ns();
    if (outcome(work, work->encode_started_ns, &error))
        xn_context_fail(ctx, &error);
    else
        work->kind->answer(work, work->encode_started_ns);
    work->answered_ns = xn_now_ns();
}

void xn_inference_gone(xn_context *ctx) {
    xn_inference *work = ctx->of.work;
    atomic_store(&work->gone, true);
    xn_engine_cancel(ctx->service->engine, &work->job, XN_ERR_CANCELLED);
}

/* Decoding in the background has waited for its thread before, which is not told. */
static void tell_stages(const xn_inference *work, xn_span *span) {
    const xn_job *job = &work->job;
    const int64_t started_ns = xn_request_started_ns(work->ctx->request);
    const int64_t received_ns = xn_request_received_ns(work->ctx->request);
    const int64_t uploaded_ns = job->started_ns + job->times.upload_ns;
    const int64_t computed_ns = uploaded_ns + job->times.compute_ns;
    xn_span_add_stage(span, "receive", started_ns, received_ns - started_ns);
    xn_span_add_stage(span, "decode", received_ns, work->decode_ns);
    xn_span_add_stage(span, "queue", job->submitted_ns, job->started_ns - job->submitted_ns);
    xn_span_add_stage(span, "upload", job->started_ns, job->times.upload_ns);
    xn_span_add_stage(span, "compute", uploaded_ns, job->times.compute_ns);
    xn_span_add_stage(span, "download", computed_ns, job->times.download_ns);
    xn_span_add_stage(span, "encode", work->encode_started_ns,
                      work->answered_ns - work->encode_started_ns);
    snprintf(span->device, sizeof span->device, "%s", xn_inference_backend(work));
    span->batch_requests = job->batch_requests;
    span->batch_images = job->batch_images;
}

void xn_inference_finished(xn_context *ctx) {
    xn_inference *work = ctx->of.work;
    if (!work)
        return;
    if (ctx->span && !work->job.in_use)
        tell_stages(work, ctx->span);
    /* Here and not in answer: the library may find the socket shut before it would ask for one. */
    if (work->job.status == XN_ERR_CANCELLED)
        xn_metrics_rejected(xn_engine_metrics(ctx->service->engine), XN_REJECT_CLIENT_GONE);
    if (work->job.in_use)
        release_half(work);
    else
        release(work);
}
