/* infer.c: POST /v2/models/{model}/infer: a network or registered weights, as clients of the Open
 * Inference Protocol ask for it. */
#include "clock.h"
#include "infer_io.h"
#include "infer_pictures.h"
#include "inference.h"
#include "recent.h"
#include "resources.h"
#include "xn_mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODED_BYTES ((size_t)1024) /* smaller answers are not coded */
/* Larger outputs are sorted into classes in the background: a value may take a microsecond. */
#define CLASSIFIED_BYTES ((size_t)64 << 10)

typedef struct {
    xn_inference work; /* first: pointers to it are cast back */
    xn_served_model model;
    xn_infer_io io;
    bool counted;                 /* as a success */
    xn_shared_loan input, output; /* where they are used in place */
} infer_work;

/* ---- decoding ---- */

/* For xn_oip_memory: memory of the request. What exceeds the connection's own room is counted. */
static xn_status take(void *context, size_t bytes, void **out, xn_error *error) {
    xn_context *ctx = context;
    const bool counted = bytes > xn_request_room(ctx->request);
    xn_status status = counted ? xn_ticket_grow(&ctx->ticket, bytes, error) : XN_OK;
    *out = status ? NULL : xn_request_alloc(ctx->request, bytes);
    if (!status && !*out)
        status =
            xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the request; try again later");
    return status;
}

/* The same for a request that the connection may cache (recent.h). */
typedef struct parsing {
    xn_context *ctx;
    xn_proto_body body;
} parsing;

static xn_status take_cached(void *context, size_t bytes, void **out, xn_error *error) {
    const parsing *p = context;
    *out = xn_recent_take_infer(xn_request_connection_data(p->ctx->request), &p->body, bytes);
    return *out ? XN_OK : take(p->ctx, bytes, out, error);
}

/* What the Content-Type says, and where that is what curl sends without thinking, the first bytes.
 */
static bool is_picture(const xn_context *ctx, const xn_proto_body *body) {
    return ctx->form == XN_FORM_RAW ||
           (!body->has_header_length && xn_picture_begins(body->bytes, body->length));
}

static xn_status parse(infer_work *infer, xn_error *error) {
    parsing p = {.ctx = infer->work.ctx};
    const xn_proto_limits limits = {p.ctx->service->config->max_elements};
    const xn_oip_memory memory = {take_cached, &p};
    void **data = xn_request_connection_data(p.ctx->request);
    xn_status status = xn_context_body(p.ctx, &p.body, error);
    if (status || xn_recent_find_infer(*data, &p.body, &infer->io.parsed))
        return status;
    if (is_picture(p.ctx, &p.body))
        return xn_oip_parse_picture(&p.body, &(xn_oip_memory){take, p.ctx}, &infer->io.parsed,
                                    error);
    status = xn_oip_parse_infer(&p.body, &limits, &memory, &infer->io.parsed, error);
    if (!status)
        xn_recent_keep_infer(*data, &p.body, &infer->io.parsed);
    return status;
}

/* ---- the answer's form ---- */

typedef struct wished_classes {
    const char *value;
    bool given;
} wished_classes;

static bool find_classes(void *context, const char *key, const char *value) {
    wished_classes *wish = context;
    if (strcmp(key, "classes") != 0)
        return true;
    *wish = (wished_classes){value ? value : "", true};
    return false;
}

/* ?classes=5 */
static xn_status read_classes(infer_work *infer, xn_error *error) {
    wished_classes wish = {0};
    infer->io.classes = -1;
    xn_request_query(infer->work.ctx->request, find_classes, &wish);
    if (!wish.given)
        return XN_OK;
    const size_t digits = strspn(wish.value, "0123456789");
    if (digits < 1 || digits > 9 || wish.value[digits])
        return xn_fail(error, XN_ERR_MALFORMED, "classes",
                       "classes is \"%.40s\"; it takes a number of classes, 0 to 999999999",
                       wish.value);
    infer->io.classes = strtol(wish.value, NULL, 10);
    return XN_OK;
}

/* Before JSON only where Accept prefers it. Other requests than pictures say in themselves whether
 * the answer is binary. */
static void read_accept(infer_work *infer) {
    const char *accept = xn_request_header(infer->work.ctx->request, "Accept");
    const int json = accept ? xn_form_weight(accept, "application/json") : 0;
    xn_infer_request *parsed = &infer->io.parsed;
    infer->io.lines = accept && xn_form_weight(accept, "text/plain") > json;
    if (accept && parsed->inputs[0].pictures && parsed->inputs[0].raw)
        parsed->binary = xn_form_weight(accept, "application/octet-stream") > json;
}

static void describe(const infer_work *infer, xn_oip_answer *out) {
    const xn_job *job = &infer->work.job;
    *out = (xn_oip_answer){.id = infer->io.parsed.id,
                           .model_name = infer->model.name,
                           .model_version = infer->model.version,
                           .backend = xn_inference_backend(&infer->work),
                           .precision = job->precision,
                           .batch_requests = job->batch_requests,
                           .batch_images = job->batch_images,
                           .cached = job->lookup == XN_LOOKUP_HIT,
                           .result_count = infer->io.result_count,
                           .results = infer->io.results};
}

/* The most bytes that writing the answer takes, whatever device runs it. */
static bool bound_text(const infer_work *infer, size_t *bytes) {
    xn_oip_answer answer;
    describe(infer, &answer);
    answer.backend = "cuda:0123456789"; /* longer than any name of a device */
    return infer->io.lines ? xn_oip_lines_bound(&answer, bytes)
                           : xn_oip_answer_bound(&answer, bytes);
}

/* Whether the answer is the values of one output, as the program leaves them: then they leave from
 * there, and the header goes in front of them. */
static bool leaves_in_place(const infer_work *infer) {
    const xn_infer_io *io = &infer->io;
    xn_oip_result *result = &infer->io.results[0];
    size_t header = 0;
    if (io->result_count != 1 || io->scattered || !result->binary || result->classification ||
        result->shared || infer->work.ctx->answer_coding != XN_CODING_IDENTITY)
        return false;
    result->apart = true;
    result->apart = bound_text(infer, &header) && header <= XN_PROTO_HEADROOM_BYTES;
    return result->apart;
}

/* Whether the output is the values of one result, which go to shared memory. */
static bool lands_in_place(const xn_infer_io *io) {
    const xn_oip_result *result = &io->results[0];
    return io->result_count == 1 && !io->scattered && result->shared &&
           result->bytes == (size_t)io->images * io->image_bytes;
}

/* tensor: what is there. */
static bool borrow(const infer_work *infer, const xn_oip_shared *range, xn_tensor_ref tensor,
                   xn_shared_loan *out) {
    const xn_context *ctx = infer->work.ctx;
    if (!xn_shared_memory_borrow(ctx->service->shared, ctx->key, range, tensor.bytes, out))
        return false;
    tensor.data = out->memory;
    const bool in_place = xn_proto_tensor_in_place(&tensor);
    if (!in_place)
        xn_shared_memory_give_back(out);
    return in_place;
}

static bool borrow_input(infer_work *infer) {
    const xn_oip_input *input = infer->io.input;
    return input->shared.present && borrow(infer, &input->shared, input->tensor, &infer->input);
}

static bool borrow_output(infer_work *infer) {
    const xn_oip_result *result = &infer->io.results[0];
    const xn_tensor_ref tensor = {
        .datatype = result->datatype, .shape = result->shape, .bytes = result->bytes};
    return lands_in_place(&infer->io) && borrow(infer, result->shared, tensor, &infer->output);
}

/* Shared memory that the devices reach is not copied. The job then is theirs alone. */
static void borrow_shared(infer_work *infer) {
    const xn_service *service = infer->work.ctx->service;
    xn_job *job = &infer->work.job;
    if (!service->shared || !xn_engine_uses_pinned(service->engine, job->pool))
        return;
    const bool in = borrow_input(infer), out = borrow_output(infer);
    job->any_pool = job->any_pool && !in && !out;
}

/* The output, and unless that is the answer: values gathered from it, and the answer's text, which
 * holds them once more. */
static xn_status count_output(infer_work *infer, xn_error *error) {
    const xn_infer_io *io = &infer->io;
    const size_t bytes = (size_t)io->images * io->image_bytes;
    size_t text, more = xn_infer_io_gather_bytes(io) + 2 * XN_INFERENCE_TEXT_BYTES;
    infer->work.job.device = -1;
    if (infer->output.memory)
        return xn_inference_borrow_output(&infer->work, infer->output.memory, more, error);
    if (leaves_in_place(infer))
        return xn_inference_count_output(&infer->work, bytes, 0, error);
    if (!bound_text(infer, &text) || !xn_add_size(more, text, &more))
        return xn_fail_limit(error, "max-output-bytes", "outputs",
                             "outputs of %zu bytes are too large to be written as asked for",
                             bytes);
    return xn_inference_count_output(&infer->work, bytes, more, error);
}

static xn_status set_deadline(xn_inference *work, const xn_infer_request *parsed, xn_error *error) {
    if (parsed->timeout_us >= 0)
        return xn_inference_set_deadline(work, parsed->timeout_us, XN_NS_PER_US, "timeout", error);
    return xn_inference_set_deadline(work, parsed->timeout_ms, XN_NS_PER_MS, "timeout_ms", error);
}

static xn_status understand(xn_inference *work, xn_error *error) {
    infer_work *infer = (infer_work *)work;
    xn_context *ctx = work->ctx;
    const xn_oip_memory memory = {take, ctx};
    xn_status status =
        xn_served_model_get(ctx->service, ctx->name, ctx->version, &infer->model, error);
    if (status || (status = parse(infer, error)))
        return status;
    const xn_infer_request *parsed = &infer->io.parsed;
    infer->io.owner = ctx->key;
    read_accept(infer);
    if (xn_proto_id_valid(parsed->id))
        xn_request_set_id(ctx->request, parsed->id);
    if ((status = read_classes(infer, error)) || (status = set_deadline(work, parsed, error)) ||
        (status = xn_inference_set_pool(work, parsed->backend, error)) ||
        (status = xn_infer_io_resolve(&infer->io, &infer->model, ctx->service, &memory,
                                      &work->job.problem, error)))
        return status;
    work->job.images = infer->io.images;
    borrow_shared(infer);
    return count_output(infer, error);
}

/* A copy: what the client changes from now on does not matter. */
static xn_status take_shared(xn_inference *work, const xn_oip_input *input, xn_error *error) {
    xn_shared_memory *shared = work->ctx->service->shared;
    xn_tensor_ref copy = input->tensor;
    xn_status status = xn_inference_take_input(work, copy.bytes, error);
    if (!status)
        status = xn_shared_memory_read(shared, work->ctx->key, &input->shared, input->name,
                                       work->input, copy.bytes, error);
    copy.data = work->input;
    return status ? status : xn_proto_tensor_read(&copy, input->name, work->input, error);
}

static xn_status prepare(xn_inference *work, xn_error *error) {
    const infer_work *infer = (const infer_work *)work;
    const xn_oip_input *input = infer->io.input;
    work->asset = infer->model.network ? infer->model.network->asset : infer->model.weights;
    xn_asset_retain(work->asset);
    work->job.input = infer->input.memory;
    if (work->job.input)
        return XN_OK;
    if (input->pictures)
        return xn_infer_pictures_take(work, &infer->io, &infer->model.network->picture, error);
    if (input->shared.present)
        return take_shared(work, input, error);
    return xn_inference_place_input(work, &input->tensor, input->name, error);
}

static bool preparing_is_long(const xn_inference *work) {
    const infer_work *infer = (const infer_work *)work;
    const xn_oip_input *input = infer->io.input;
    if (input->pictures)
        return true;
    bool moved = !infer->input.memory &&
                 (input->shared.present || !xn_proto_tensor_in_place(&input->tensor));
    return moved && input->tensor.bytes > XN_INFERENCE_INLINE_BYTES;
}

/* ---- answering ---- */

static bool is_classified(const xn_infer_io *io) {
    bool any = false;
    for (int i = 0; i < io->result_count; i++)
        any = any || io->results[i].classification;
    return any;
}

static bool answering_is_long(const xn_inference *work) {
    const xn_infer_io *io = &((const infer_work *)work)->io;
    if (io->results[0].apart)
        return false;
    if (work->ctx->answer_coding != XN_CODING_IDENTITY)
        return work->output_bytes > CODED_BYTES;
    return work->output_bytes > (is_classified(io) ? CLASSIFIED_BYTES : XN_INFERENCE_INLINE_BYTES);
}

static xn_status put_shared(const infer_work *infer, xn_error *error) {
    const xn_context *ctx = infer->work.ctx;
    const xn_infer_io *io = &infer->io;
    const bool there = infer->output.memory != NULL;
    xn_status status = XN_OK;
    for (int i = 0; i < io->result_count && !there && !status; i++) {
        const xn_oip_result *result = &io->results[i];
        if (result->shared)
            status = xn_shared_memory_write(ctx->service->shared, ctx->key, result->shared,
                                            result->name, result->values, result->bytes, error);
    }
    return status;
}

/* The answer's text and its length; NULL where there is no memory. */
static char *write_answer(infer_work *infer, int64_t encode_started_ns, size_t *length,
                          size_t *header_length) {
    xn_oip_answer answer;
    size_t bound;
    describe(infer, &answer);
    xn_inference_time_stages(&infer->work, encode_started_ns, &answer.timing);
    char *text = bound_text(infer, &bound) ? xn_inference_take_text(&infer->work, bound) : NULL;
    if (text && infer->io.lines)
        *length = xn_oip_lines_write(&answer, text);
    else if (text)
        *length = xn_oip_answer_write(&answer, text, header_length);
    return text;
}

/* The text coded, where the client asked for that and it is smaller so. */
static char *code(xn_inference *work, char *text, size_t *length) {
    const xn_coding coding = work->ctx->answer_coding;
    xn_error ignored;
    size_t coded;
    if (coding == XN_CODING_IDENTITY || *length <= CODED_BYTES ||
        xn_ticket_grow(&work->ctx->ticket, *length + XN_INFERENCE_TEXT_BYTES, &ignored))
        return text;
    char *out = xn_inference_take_text(work, *length);
    if (!out || !xn_coding_encode(coding, text, *length, out, *length - 1, &coded)) {
        xn_inference_drop_text(out);
        return text;
    }
    xn_inference_drop_text(text);
    xn_request_add_header(work->ctx->request, "Content-Encoding", xn_coding_name(coding));
    xn_request_add_header(work->ctx->request, "Vary", "Accept-Encoding");
    *length = coded;
    return out;
}

static void count_success(infer_work *infer, const xn_timing *t) {
    const xn_inference *work = &infer->work;
    infer->counted = true;
    xn_model_counters_add(infer->model.counters,
                          &(xn_model_sample){.success = true,
                                             .images = work->job.images,
                                             .total_ns = t->total_ns - t->receive_ns,
                                             .queue_ns = t->queue_ns,
                                             .input_ns = t->decode_ns + t->upload_ns,
                                             .infer_ns = t->compute_ns,
                                             .output_ns = t->download_ns + t->encode_ns,
                                             .batch_requests = work->job.batch_requests,
                                             .cache_asked = work->job.lookup > XN_LOOKUP_BYPASS,
                                             .cache_hit = work->job.lookup == XN_LOOKUP_HIT,
                                             .cache_ns = work->job.cache_ns});
}

/* Header fields, timing and statistics of a success. Returns the media type. */
static const char *tell_success(infer_work *infer, size_t header_length,
                                int64_t encode_started_ns) {
    const xn_inference *work = &infer->work;
    xn_timing timing;
    char number[24];
    if (header_length) {
        snprintf(number, sizeof number, "%zu", header_length);
        xn_request_add_header(work->ctx->request, "Inference-Header-Content-Length", number);
    }
    xn_inference_time_stages(work, encode_started_ns, &timing);
    xn_inference_tell_timing(work, &timing);
    count_success(infer, &timing);
    if (infer->io.lines)
        return "text/plain; charset=utf-8";
    return header_length ? "application/octet-stream" : "application/json";
}

static void respond(infer_work *infer, char *text, size_t length, size_t header_length,
                    int64_t encode_started_ns) {
    xn_inference *work = &infer->work;
    text = code(work, text, &length);
    xn_inference_respond_text(work, tell_success(infer, header_length, encode_started_ns), text,
                              length);
}

/* The header right in front of the values; what lies there is not asked for. */
static void answer_in_place(infer_work *infer, int64_t encode_started_ns) {
    const xn_infer_io *io = &infer->io;
    _Alignas(8) char header[XN_PROTO_HEADROOM_BYTES];
    char *values = (char *)infer->work.job.output + io->offsets[0];
    xn_oip_answer answer;
    size_t length = 0;
    describe(infer, &answer);
    xn_inference_time_stages(&infer->work, encode_started_ns, &answer.timing);
    xn_oip_answer_write(&answer, header, &length);
    memcpy(values - length, header, length);
    xn_inference_respond_output(&infer->work, tell_success(infer, length, encode_started_ns),
                                values - length, length + io->results[0].bytes);
}

static void answer_written(infer_work *infer, int64_t encode_started_ns) {
    xn_inference *work = &infer->work;
    const size_t gathered = xn_infer_io_gather_bytes(&infer->io);
    char *room = gathered ? xn_inference_take_text(work, gathered) : NULL, *text = NULL;
    size_t length = 0, header_length = 0;
    xn_error error;
    xn_status status = XN_OK;
    if (!gathered || room) {
        xn_infer_io_set_values(&infer->io, work->job.output, (unsigned char *)room);
        status = put_shared(infer, &error);
        if (!status)
            text = write_answer(infer, encode_started_ns, &length, &header_length);
    }
    xn_inference_drop_text(room);
    if (status)
        xn_context_fail(work->ctx, &error);
    else if (text)
        respond(infer, text, length, header_length, encode_started_ns);
    else
        xn_context_fail_memory(work->ctx);
}

static void answer(xn_inference *work, int64_t encode_started_ns) {
    infer_work *infer = (infer_work *)work;
    if (infer->io.results[0].apart)
        answer_in_place(infer, encode_started_ns);
    else
        answer_written(infer, encode_started_ns);
}

static void infer_finished(xn_inference *work) {
    infer_work *infer = (infer_work *)work;
    const xn_model_sample failure = {.total_ns =
                                         xn_now_ns() - xn_request_received_ns(work->ctx->request)};
    if (!infer->counted && infer->model.counters)
        xn_model_counters_add(infer->model.counters, &failure);
    xn_shared_memory_give_back(&infer->input);
    xn_shared_memory_give_back(&infer->output);
    xn_served_model_release(&infer->model);
}

static const xn_inference_kind kind = {.understand = understand,
                                       .preparing_is_long = preparing_is_long,
                                       .prepare = prepare,
                                       .answering_is_long = answering_is_long,
                                       .answer = answer,
                                       .finished = infer_finished};

/* A name that nothing answers to is refused before its body is read. */
static void headers(xn_context *ctx) {
    xn_served_model model;
    xn_error error;
    if (xn_served_model_get(ctx->service, ctx->name, ctx->version, &model, &error)) {
        xn_context_fail(ctx, &error);
        return;
    }
    xn_served_model_release(&model);
    xn_context_accept_inference(ctx);
}

static void complete(xn_context *ctx) {
    xn_inference_start(ctx, &kind, sizeof(infer_work));
}

const xn_resource xn_infer_resource = {.headers = headers,
                                       .complete = complete,
                                       .answer = xn_inference_answer,
                                       .gone = xn_inference_gone,
                                       .finished = xn_inference_finished};
