/* conv.c: POST /conv. Decode on the HTTP thread, compute on a worker while the connection is
 * parked, encode on the HTTP thread when it wakes; what grows with a large body or answer is done
 * by the loader instead. Everything is validated before memory that depends on the request's
 * content is taken. */
#include "clock.h"
#include "log.h"
#include "resources.h"
#include "weights_given.h"
#include "xn_mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MAX_QUERY 32
#define INLINE_BYTES ((size_t)256 << 10) /* so much is decoded or written on an HTTP thread */
#define OWNER_BYTES 64 /* in front of an output's headroom: how it is given back */

/* Lives in the first bytes of an output buffer or of a JSON text, which outlive the exchange: the
 * HTTP library gives a sent body back last. */
typedef struct {
    xn_buffers *buffers; /* of an output */
    xn_loader *loader;   /* of a long text, in pages of its own */
    size_t bytes;
} output_owner;

typedef struct xn_conv_exchange {
    xn_task task; /* first: the loader hands it back */
    xn_exchange *exchange;
    bool understood;  /* parsed, resolved, its output counted */
    atomic_bool gone; /* the client, while the loader decodes */
    xn_conv_request parsed;
    xn_job job;
    xn_asset *asset;
    void *input; /* values that could not stay in the body; from the pool, or NULL */
    size_t input_bytes;
    unsigned char *output; /* owner, headroom, tensor; NULL once the response owns it */
    size_t output_bytes;
    int64_t decode_ns;
} conv_exchange;

static void release_output(void *context) {
    output_owner *owner = context;
    xn_buffers_put(owner->buffers, owner, owner->bytes);
}

static void release_text(void *context) {
    output_owner *owner = context;
    if (owner->loader)
        xn_unmap_later(owner, owner->bytes, owner->loader);
    else
        xn_mem_free(owner);
}

static xn_buffers *buffers_of(const conv_exchange *conv) {
    return xn_engine_buffers(conv->exchange->service->engine);
}

/* ---- decoding ---- */

typedef struct {
    xn_proto_query pairs[MAX_QUERY];
    size_t count;
    bool too_many;
} query;

static bool add_query(void *context, const char *key, const char *value) {
    query *q = context;
    if (q->count == MAX_QUERY) {
        q->too_many = true;
        return false;
    }
    q->pairs[q->count++] = (xn_proto_query){key, value ? value : ""};
    return true;
}

static xn_status parse(conv_exchange *conv, xn_error *error) {
    const xn_proto_limits limits = {conv->exchange->service->config->max_elements};
    query q = {.count = 0};
    xn_proto_body body;
    xn_request_query(conv->exchange->request, add_query, &q);
    if (q.too_many)
        return xn_fail(error, XN_ERR_MALFORMED, "query",
                       "the query string has more than %d parameters", MAX_QUERY);
    xn_exchange_body(conv->exchange, &body);
    return xn_proto_parse_conv(&body, q.pairs, q.count, &limits, &conv->parsed, error);
}

static xn_status shape_of_inline(const xn_conv_request *parsed, xn_weights_shape *out,
                                 xn_error *error) {
    const xn_shape *shape = &parsed->weights.shape;
    char text[160];
    if (shape->rank != 4) {
        xn_shape_format(shape, text, sizeof text);
        return xn_fail(error, XN_ERR_GEOMETRY, "weights.shape",
                       "weights.shape is %s; it must be [O, C/groups, KH, KW]", text);
    }
    memcpy(out->dims, shape->dims, sizeof out->dims);
    out->datatype = parsed->weights.datatype;
    return XN_OK;
}

/* The shape of the weights and, for registered ones, the asset: enough to judge the geometry. */
static xn_status look_up(conv_exchange *conv, xn_weights_shape *shape, xn_error *error) {
    const xn_conv_request *parsed = &conv->parsed;
    xn_status status;
    memset(shape, 0, sizeof *shape);
    if (parsed->weights_name[0]) {
        status = xn_store_get(xn_engine_store(conv->exchange->service->engine),
                              parsed->weights_name, &conv->asset, error);
        if (status)
            return status;
        xn_weights_shape_of(xn_asset_weights(conv->asset), shape);
    } else if ((status = shape_of_inline(parsed, shape, error))) {
        return status;
    }
    shape->has_scale |= parsed->scale.present;
    shape->has_bias |= parsed->bias.present;
    return XN_OK;
}

static xn_status resolve(conv_exchange *conv, xn_error *error) {
    const xn_config *config = conv->exchange->service->config;
    const xn_conv_limits limits = {config->max_elements, config->max_output_bytes,
                                   config->max_operations};
    const xn_tensor_ref *input = &conv->parsed.input;
    xn_weights_shape shape;
    xn_conv resolved;
    xn_status status = look_up(conv, &shape, error);
    if (!status)
        status = xn_conv_resolve(&conv->parsed.params, input->datatype, &input->shape, &shape,
                                 &limits, &resolved, &conv->job.images, error);
    if (!status)
        xn_problem_of_conv(&resolved, &conv->job.problem);
    return status;
}

/* The asset of inline weights, or of registered ones with the request's own scale and bias. */
static xn_status intern(conv_exchange *conv, xn_error *error) {
    const xn_conv_request *p = &conv->parsed;
    xn_weights_given given;
    xn_asset *base = conv->asset, *made = NULL;
    if (base && !p->scale.present && !p->bias.present)
        return XN_OK;
    xn_status status = xn_weights_given_take(&p->weights, &p->scale, &p->bias, &given, error);
    if (!status)
        status = xn_store_intern(xn_engine_store(conv->exchange->service->engine), base,
                                 given.weights, given.scale, given.bias, &made, error);
    if (!status) {
        xn_asset_release(base);
        conv->asset = made;
        /* Up to 12 times the body's bytes, or a copy of registered weights for a few of scale. They
         * are counted even if they were recognised: the cache may let go of them first. */
        status = xn_ticket_grow(&conv->exchange->ticket, xn_asset_weights(made)->host_bytes, error);
    }
    xn_weights_given_free(&given);
    return status;
}

/* The input where the backend can read it: in the body if it lies aligned, else in a buffer. */
static xn_status place_input(conv_exchange *conv, xn_error *error) {
    const xn_tensor_ref *input = &conv->parsed.input;
    conv->job.input = input->data;
    if (xn_proto_tensor_in_place(input))
        return XN_OK;
    xn_status status =
        xn_ticket_grow(&conv->exchange->ticket, xn_buffers_size(input->bytes), error);
    if (status)
        return status;
    conv->input = xn_buffers_get(buffers_of(conv), input->bytes);
    if (!conv->input)
        return xn_fail(error, XN_ERR_NO_MEMORY, "input", "no memory for an input of %zu bytes",
                       input->bytes);
    conv->input_bytes = input->bytes;
    conv->job.input = conv->input;
    return xn_proto_tensor_read(input, "input", conv->input, error);
}

static void describe(const conv_exchange *conv, xn_answer *out) {
    const xn_job *job = &conv->job;
    const xn_conv *resolved = &job->problem.conv;
    *out = (xn_answer){
        .id = xn_request_id(conv->exchange->request),
        .backend = "",
        .precision = job->precision,
        .batch_requests = job->batch_requests,
        .batch_images = job->batch_images,
        .datatype = (xn_datatype)resolved->epilogue.datatype,
        .shape = {4,
                  {job->images, resolved->out_channels, resolved->out_height, resolved->out_width}},
        .output_bytes = (size_t)job->images * xn_problem_output_bytes(&job->problem)};
    if (job->device >= 0)
        out->backend = xn_engine_device_id(conv->exchange->service->engine, job->device);
}

static bool text_bound(const xn_answer *answer, size_t *bytes) {
    return xn_proto_json_answer_bound(answer, bytes) && xn_add_size(*bytes, OWNER_BYTES, bytes);
}

/* The output, and the text of a JSON answer: counted before anything is taken. */
static xn_status count_output(conv_exchange *conv, xn_error *error) {
    xn_answer answer;
    size_t text = 0;
    conv->job.device = -1;
    describe(conv, &answer);
    if (xn_form_is_text(conv->exchange->answer_form) && answer.datatype == XN_BITS)
        return xn_fail(error, XN_ERR_MALFORMED, "output_datatype",
                       "output_datatype is BITS, whose values are packed bytes and no JSON; send "
                       "Accept: %s or %s",
                       xn_form_media_type(XN_FORM_OIP_BINARY),
                       xn_form_media_type(XN_FORM_SAFETENSORS));
    if (xn_form_is_text(conv->exchange->answer_form) && !text_bound(&answer, &text))
        return xn_fail_limit(error, "max-output-bytes", "output",
                             "an output of %zu bytes is too large to be written as JSON",
                             answer.output_bytes);
    conv->output_bytes = OWNER_BYTES + XN_PROTO_HEADROOM_BYTES + answer.output_bytes;
    return xn_ticket_grow(&conv->exchange->ticket, xn_buffers_size(conv->output_bytes) + text,
                          error);
}

static void own_output(conv_exchange *conv, void *memory) {
    conv->output = memory;
    if (!memory)
        return;
    *(output_owner *)memory =
        (output_owner){.buffers = buffers_of(conv), .bytes = conv->output_bytes};
    conv->job.output = conv->output + OWNER_BYTES + XN_PROTO_HEADROOM_BYTES;
}

static xn_status place_output(conv_exchange *conv, xn_error *error) {
    if (!conv->output)
        own_output(conv, xn_buffers_get(buffers_of(conv), conv->output_bytes));
    if (!conv->output)
        return xn_fail(error, XN_ERR_NO_MEMORY, "output", "no memory for an output of %zu bytes",
                       conv->output_bytes);
    return XN_OK;
}

static xn_status set_deadline(conv_exchange *conv, xn_error *error) {
    const xn_config *config = conv->exchange->service->config;
    int64_t timeout = conv->parsed.timeout_ms < 0 ? config->timeout_ms : conv->parsed.timeout_ms;
    if (timeout > config->max_timeout_ms)
        return xn_fail(error, XN_ERR_MALFORMED, "timeout_ms",
                       "timeout_ms is %lld; at most %lld (set by --max-timeout-ms)",
                       (long long)timeout, (long long)config->max_timeout_ms);
    conv->job.deadline_ns =
        xn_request_received_ns(conv->exchange->request) + timeout * XN_NS_PER_MS;
    return XN_OK;
}

/* What the request wants: refused here if it cannot be, with nothing taken yet. */
static xn_status understand(conv_exchange *conv, xn_error *error) {
    xn_job *job = &conv->job;
    xn_status status = parse(conv, error);
    if (status)
        return status;
    if (conv->parsed.id[0])
        xn_request_set_id(conv->exchange->request, conv->parsed.id);
    if ((status = set_deadline(conv, error)) ||
        (status = xn_engine_pool(conv->exchange->service->engine, conv->parsed.backend, &job->pool,
                                 error)) ||
        (status = resolve(conv, error)) || (status = count_output(conv, error)))
        return status;
    job->any_pool = !strcmp(conv->parsed.backend, "auto");
    conv->understood = true;
    return XN_OK;
}

/* From the body to a job that can be submitted; goes on where an earlier call of part of it ended.
 */
static xn_status prepare(conv_exchange *conv, xn_error *error) {
    xn_job *job = &conv->job;
    xn_status status = conv->understood ? XN_OK : understand(conv, error);
    if (status || (status = place_output(conv, error)) || (status = place_input(conv, error)) ||
        (status = intern(conv, error)))
        return status;
    job->asset = conv->asset;
    job->id = xn_request_id(conv->exchange->request);
    return XN_OK;
}

/* Whether parsing takes time that grows with the body: text is read number by number, and values
 * that lie where no element may are moved. */
static bool parsing_is_long(const xn_exchange *exchange) {
    const xn_proto_body body = xn_exchange_received(exchange);
    return body.length > INLINE_BYTES &&
           (xn_proto_prefix_bytes(&body) > INLINE_BYTES || xn_exchange_must_move(&body));
}

/* The same of the rest; takes the output's buffer if that is quick. */
static bool preparing_is_long(conv_exchange *conv) {
    const xn_conv_request *p = &conv->parsed;
    bool own = conv->asset && (p->scale.present || p->bias.present);
    if (p->weights.bytes > INLINE_BYTES ||
        (own && xn_asset_weights(conv->asset)->host_bytes > INLINE_BYTES) ||
        (!xn_proto_tensor_in_place(&p->input) && p->input.bytes > INLINE_BYTES))
        return true;
    own_output(conv, xn_buffers_get_quick(buffers_of(conv), conv->output_bytes));
    return !conv->output;
}

static void conv_answer(xn_exchange *exchange);

static void encode_on_loader(xn_task *task) {
    conv_exchange *conv = (conv_exchange *)task;
    conv_answer(conv->exchange);
    xn_request_unpark(conv->exchange->request);
}

static void job_done(xn_job *job) {
    conv_exchange *conv = job->context;
    bool text = xn_form_is_text(conv->exchange->answer_form) && !job->status;
    if (!text || conv->output_bytes <= INLINE_BYTES) {
        xn_request_unpark(conv->exchange->request);
        return;
    }
    conv->task.run = encode_on_loader;
    xn_loader_submit(conv->exchange->service->loader, &conv->task);
}

/* The request is parked: the job may be done before submit returns. */
static void submit(conv_exchange *conv) {
    xn_error error;
    xn_job *job = &conv->job;
    job->done = job_done;
    job->context = conv;
    if (xn_engine_submit(conv->exchange->service->engine, job, &error)) {
        job->status = error.status;
        job->error = error;
        xn_request_unpark(conv->exchange->request);
    }
}

static void decode_on_loader(xn_task *task) {
    conv_exchange *conv = (conv_exchange *)task;
    xn_request *request = conv->exchange->request;
    xn_error error;
    int64_t started_ns = xn_now_ns();
    if (atomic_load(&conv->gone)) {
        conv->job.status = XN_ERR_CANCELLED;
        xn_request_unpark(request);
    } else if (prepare(conv, &error)) {
        xn_exchange_fail(conv->exchange, &error);
        xn_request_unpark(request);
    } else {
        conv->decode_ns += xn_now_ns() - started_ns;
        submit(conv);
    }
}

static void decode_later(conv_exchange *conv) {
    conv->task.run = decode_on_loader;
    xn_request_park(conv->exchange->request);
    xn_loader_submit(conv->exchange->service->loader, &conv->task);
}

static void conv_headers(xn_exchange *exchange) {
    xn_exchange_accept_body(exchange, true);
}

static void conv_complete(xn_exchange *exchange) {
    xn_error error;
    conv_exchange *conv = xn_mem_zalloc(1, sizeof *conv);
    if (!conv) {
        xn_fail(&error, XN_ERR_NO_MEMORY, NULL, "no memory for the request; try again later");
        xn_exchange_fail(exchange, &error);
        return;
    }
    exchange->of.conv = conv;
    conv->exchange = exchange;
    bool later = parsing_is_long(exchange);
    xn_status status = later ? XN_OK : understand(conv, &error);
    if (!status && !later) {
        later = preparing_is_long(conv);
        status = later ? XN_OK : prepare(conv, &error);
    }
    if (status) {
        xn_exchange_fail(exchange, &error);
        return;
    }
    conv->decode_ns = xn_now_ns() - xn_request_received_ns(exchange->request);
    if (later) {
        decode_later(conv);
    } else {
        xn_request_park(exchange->request);
        submit(conv);
    }
}

/* ---- answering ---- */

static void time_stages(const conv_exchange *conv, int64_t encode_started_ns, xn_timing *out) {
    const xn_request *request = conv->exchange->request;
    const xn_job *job = &conv->job;
    int64_t now = xn_now_ns(), started = xn_request_started_ns(request);
    *out = (xn_timing){.receive_ns = xn_request_received_ns(request) - started,
                       .decode_ns = conv->decode_ns,
                       .queue_ns = job->started_ns - job->submitted_ns,
                       .upload_ns = job->times.upload_ns,
                       .compute_ns = job->times.compute_ns,
                       .download_ns = job->times.download_ns,
                       .encode_ns = now - encode_started_ns,
                       .total_ns = now - started};
    out->other_ns = out->total_ns - out->receive_ns - out->decode_ns - out->queue_ns -
                    out->upload_ns - out->compute_ns - out->download_ns - out->encode_ns;
}

static void observe(const conv_exchange *conv, const xn_timing *t) {
    xn_metrics *metrics = xn_engine_metrics(conv->exchange->service->engine);
    xn_metrics_stage(metrics, XN_STAGE_RECEIVE, t->receive_ns);
    xn_metrics_stage(metrics, XN_STAGE_DECODE, t->decode_ns);
    xn_metrics_stage(metrics, XN_STAGE_QUEUE, t->queue_ns);
    xn_metrics_stage(metrics, XN_STAGE_UPLOAD, t->upload_ns);
    xn_metrics_stage(metrics, XN_STAGE_COMPUTE, t->compute_ns);
    xn_metrics_stage(metrics, XN_STAGE_DOWNLOAD, t->download_ns);
    xn_metrics_stage(metrics, XN_STAGE_ENCODE, t->encode_ns);
    xn_metrics_stage(metrics, XN_STAGE_TOTAL, t->total_ns);
}

static void add_timing_header(const conv_exchange *conv, const xn_timing *timing) {
    char text[352];
    xn_proto_server_timing(timing, text, sizeof text);
    xn_request_add_header(conv->exchange->request, "Server-Timing", text);
    observe(conv, timing);
}

static void answer_binary(conv_exchange *conv, xn_answer *answer, int64_t encode_started_ns) {
    xn_request *request = conv->exchange->request;
    xn_form form = conv->exchange->answer_form;
    xn_proto_header headers[XN_PROTO_HEADERS];
    size_t header_length = 0;
    unsigned char *tensor = conv->job.output;
    time_stages(conv, encode_started_ns, &answer->timing);
    unsigned char *body = xn_proto_write_binary_answer(form, answer, tensor, &header_length);
    size_t length = (size_t)(tensor - body) + answer->output_bytes;
    const int count = xn_proto_answer_headers(form, answer, header_length, headers);
    for (int i = 0; i < count; i++)
        xn_request_add_header(request, headers[i].name, headers[i].value);
    add_timing_header(conv, &answer->timing);
    xn_request_respond(request, 200, xn_form_media_type(form), body, length, release_output,
                       conv->output);
    conv->output = NULL;
}

static void answer_json(conv_exchange *conv, xn_answer *answer, int64_t encode_started_ns) {
    xn_exchange *exchange = conv->exchange;
    size_t bound = 0;
    output_owner *owner = NULL;
    bool known = text_bound(answer, &bound), pages = bound > INLINE_BYTES;
    if (known) /* the bound is generous: pages that are not written take no memory */
        owner = pages ? xn_mem_map(bound) : xn_mem_alloc(bound);
    if (!owner) {
        xn_exchange_json(exchange, 200, NULL, 0);
        return;
    }
    *owner = (output_owner){.loader = pages ? exchange->service->loader : NULL, .bytes = bound};
    char *text = (char *)owner + OWNER_BYTES;
    size_t length = xn_proto_json_answer_begin(answer, conv->job.output, text);
    time_stages(conv, encode_started_ns, &answer->timing);
    length = xn_proto_json_answer_end(answer, text, length);
    add_timing_header(conv, &answer->timing);
    xn_request_respond(exchange->request, 200, "application/json", text, length, release_text,
                       owner);
}

static void conv_answer(xn_exchange *exchange) {
    conv_exchange *conv = exchange->of.conv;
    const xn_job *job = &conv->job;
    int64_t encode_started_ns = xn_now_ns();
    xn_answer answer;
    xn_error error = job->error;
    if (!job->status && encode_started_ns > job->deadline_ns)
        xn_fail(
            &error, XN_ERR_DEADLINE, "timeout_ms",
            "the deadline passed during the computation, %lld ms after the request was complete",
            (long long)((encode_started_ns - xn_request_received_ns(exchange->request)) /
                        XN_NS_PER_MS));
    else if (!job->status)
        error.status = XN_OK;
    else
        error.status = job->status;
    if (error.status) {
        xn_exchange_fail(exchange, &error);
        return;
    }
    describe(conv, &answer);
    if (xn_form_is_text(exchange->answer_form))
        answer_json(conv, &answer, encode_started_ns);
    else
        answer_binary(conv, &answer, encode_started_ns);
}

static void conv_gone(xn_exchange *exchange) {
    atomic_store(&exchange->of.conv->gone, true);
    xn_engine_cancel(exchange->service->engine, &exchange->of.conv->job, XN_ERR_CANCELLED);
}

static void conv_finished(xn_exchange *exchange) {
    conv_exchange *conv = exchange->of.conv;
    if (!conv)
        return;
    /* Here and not in answer: the library may find the socket shut before it would ask for one. */
    if (conv->job.status == XN_ERR_CANCELLED)
        xn_metrics_rejected(xn_engine_metrics(exchange->service->engine), XN_REJECT_CLIENT_GONE);
    if (conv->input)
        xn_buffers_put(buffers_of(conv), conv->input, conv->input_bytes);
    if (conv->output)
        xn_buffers_put(buffers_of(conv), conv->output, conv->output_bytes);
    xn_asset_release(conv->asset);
    xn_mem_free(conv);
}

const xn_resource xn_conv_resource = {.headers = conv_headers,
                                      .complete = conv_complete,
                                      .answer = conv_answer,
                                      .gone = conv_gone,
                                      .finished = conv_finished};
