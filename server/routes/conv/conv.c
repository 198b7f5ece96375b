/* conv.c: POST /conv: what makes a job of a request in any of its forms, and an answer of a job. */
#include "clock.h"
#include "inference.h"
#include "recent.h"
#include "resources.h"
#include "weights_tensors.h"
#include "xn_mem.h"

#include <string.h>

#define MAX_QUERY 32

typedef struct {
    xn_inference work; /* first: pointers to it are cast back */
    xn_conv_request parsed;
} conv_work;

static xn_store *store_of(const xn_inference *work) {
    return xn_engine_store(work->ctx->service->engine);
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

static xn_status read_query(const xn_context *ctx, query *q, xn_error *error) {
    q->count = 0;
    q->too_many = false;
    xn_request_query(ctx->request, add_query, q);
    return q->too_many ? xn_fail(error, XN_ERR_MALFORMED, "query",
                                 "the query string has more than %d parameters", MAX_QUERY)
                       : XN_OK;
}

static xn_status parse(conv_work *conv, xn_error *error) {
    xn_context *ctx = conv->work.ctx;
    const xn_proto_limits limits = {ctx->service->config->max_elements};
    void **data = xn_request_connection_data(ctx->request);
    query q;
    xn_proto_body body;
    xn_status status = read_query(ctx, &q, error);
    if (status || (status = xn_context_body(ctx, &body, error)))
        return status;
    if (!q.count && xn_recent_find(*data, &body, &conv->parsed))
        return XN_OK;
    status = xn_proto_parse_conv(&body, q.pairs, q.count, &limits, &conv->parsed, error);
    if (!status && !q.count)
        xn_recent_keep(data, &body, &conv->parsed);
    return status;
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
static xn_status look_up(conv_work *conv, xn_weights_shape *shape, xn_error *error) {
    const xn_conv_request *parsed = &conv->parsed;
    xn_status status;
    memset(shape, 0, sizeof *shape);
    if (parsed->weights_name[0]) {
        status =
            xn_store_get(store_of(&conv->work), parsed->weights_name, &conv->work.asset, error);
        if (status)
            return status;
        xn_weights_shape_of(xn_asset_weights(conv->work.asset), shape);
    } else if ((status = shape_of_inline(parsed, shape, error))) {
        return status;
    }
    shape->has_scale |= parsed->scale.present;
    shape->has_bias |= parsed->bias.present;
    return XN_OK;
}

static xn_status resolve(conv_work *conv, xn_error *error) {
    const xn_config *config = conv->work.ctx->service->config;
    const xn_conv_limits limits = {config->max_elements, config->max_output_bytes,
                                   config->max_operations};
    const xn_tensor_ref *input = &conv->parsed.input;
    xn_weights_shape shape;
    xn_conv resolved;
    xn_status status = look_up(conv, &shape, error);
    if (!status)
        status = xn_conv_resolve(&conv->parsed.params, input->datatype, &input->shape, &shape,
                                 &limits, &resolved, &conv->work.job.images, error);
    if (!status)
        xn_problem_of_conv(&resolved, &conv->work.job.problem);
    return status;
}

/* The asset of inline weights, or of registered ones with the request's own scale and bias. */
static xn_status intern(conv_work *conv, xn_error *error) {
    const xn_conv_request *p = &conv->parsed;
    xn_weights_tensors tensors;
    xn_asset *base = conv->work.asset, *made = NULL;
    if (base && !p->scale.present && !p->bias.present)
        return XN_OK;
    xn_status status = xn_weights_tensors_read(&p->weights, &p->scale, &p->bias, &tensors, error);
    if (!status)
        status = xn_store_intern(store_of(&conv->work), base, tensors.weights, tensors.scale,
                                 tensors.bias, &made, error);
    if (!status) {
        xn_asset_release(base);
        conv->work.asset = made;
        /* Up to 12 times the body's bytes, or a copy of registered weights for a few of scale. They
         * are counted even if they were recognised: the cache may let go of them first. */
        status = xn_ticket_grow(&conv->work.ctx->ticket, xn_asset_held_bytes(made), error);
    }
    xn_weights_tensors_free(&tensors);
    return status;
}

static void describe(const conv_work *conv, xn_answer *out) {
    const xn_job *job = &conv->work.job;
    const xn_conv *resolved = &job->problem.conv;
    *out = (xn_answer){
        .id = xn_request_id(conv->work.ctx->request),
        .backend = xn_inference_backend(&conv->work),
        .precision = job->precision,
        .batch_requests = job->batch_requests,
        .batch_images = job->batch_images,
        .cached = job->lookup == XN_LOOKUP_HIT,
        .datatype = (xn_datatype)resolved->epilogue.datatype,
        .shape = {4,
                  {job->images, resolved->out_channels, resolved->out_height, resolved->out_width}},
        .output_bytes = (size_t)job->images * xn_problem_output_bytes(&job->problem)};
}

/* The output, and the text of a JSON answer: counted before anything is taken. */
static xn_status count_output(conv_work *conv, xn_error *error) {
    const bool is_text = xn_form_is_text(conv->work.ctx->answer_form);
    xn_answer answer;
    size_t text = 0;
    conv->work.job.device = -1;
    describe(conv, &answer);
    if (is_text && answer.datatype == XN_BITS)
        return xn_fail(error, XN_ERR_MALFORMED, "output_datatype",
                       "output_datatype is BITS, whose values are packed bytes and no JSON; send "
                       "Accept: %s or %s",
                       xn_form_media_type(XN_FORM_OIP_BINARY),
                       xn_form_media_type(XN_FORM_SAFETENSORS));
    if (is_text && (!xn_proto_json_answer_bound(&answer, &text) ||
                    !xn_add_size(text, XN_INFERENCE_TEXT_BYTES, &text)))
        return xn_fail_limit(error, "max-output-bytes", "output",
                             "an output of %zu bytes is too large to be written as JSON",
                             answer.output_bytes);
    return xn_inference_count_output(&conv->work, answer.output_bytes, text, error);
}

static xn_status understand(xn_inference *work, xn_error *error) {
    conv_work *conv = (conv_work *)work;
    xn_status status = parse(conv, error);
    if (status)
        return status;
    if (conv->parsed.id[0])
        xn_request_set_id(work->ctx->request, conv->parsed.id);
    if ((status = xn_inference_set_deadline(work, conv->parsed.timeout_ms, XN_NS_PER_MS,
                                            "timeout_ms", error)) ||
        (status = xn_inference_set_pool(work, conv->parsed.backend, error)) ||
        (status = resolve(conv, error)))
        return status;
    return count_output(conv, error);
}

static xn_status prepare(xn_inference *work, xn_error *error) {
    conv_work *conv = (conv_work *)work;
    xn_status status = xn_inference_place_input(work, &conv->parsed.input, "input", error);
    return status ? status : intern(conv, error);
}

static bool preparing_is_long(const xn_inference *work) {
    const xn_conv_request *p = &((const conv_work *)work)->parsed;
    bool own = work->asset && (p->scale.present || p->bias.present);
    return p->weights.bytes > XN_INFERENCE_INLINE_BYTES ||
           (own && xn_asset_weights(work->asset)->host_bytes > XN_INFERENCE_INLINE_BYTES) ||
           (!xn_proto_tensor_in_place(&p->input) && p->input.bytes > XN_INFERENCE_INLINE_BYTES);
}

static bool answering_is_long(const xn_inference *work) {
    return xn_form_is_text(work->ctx->answer_form) &&
           work->output_bytes > XN_INFERENCE_INLINE_BYTES;
}

/* ---- answering ---- */

static void answer_binary(xn_inference *work, xn_answer *answer, int64_t encode_started_ns) {
    xn_request *request = work->ctx->request;
    xn_form form = work->ctx->answer_form;
    xn_proto_header headers[XN_PROTO_HEADERS];
    size_t header_length = 0;
    unsigned char *tensor = work->job.output;
    xn_inference_time_stages(work, encode_started_ns, &answer->timing);
    unsigned char *body = xn_proto_write_binary_answer(form, answer, tensor, &header_length);
    size_t length = (size_t)(tensor - body) + answer->output_bytes;
    const int count = xn_proto_answer_headers(form, answer, header_length, headers);
    for (int i = 0; i < count; i++)
        xn_request_add_header(request, headers[i].name, headers[i].value);
    xn_inference_tell_timing(work, &answer->timing);
    xn_inference_respond_output(work, xn_form_media_type(form), body, length);
}

static void answer_json(xn_inference *work, xn_answer *answer, int64_t encode_started_ns) {
    size_t bound = 0;
    bool known = xn_proto_json_answer_bound(answer, &bound);
    char *text = known ? xn_inference_take_text(work, bound) : NULL;
    if (!text) {
        xn_context_fail_memory(work->ctx);
        return;
    }
    size_t length = xn_proto_json_answer_begin(answer, work->job.output, text);
    xn_inference_time_stages(work, encode_started_ns, &answer->timing);
    length = xn_proto_json_answer_end(answer, text, length);
    xn_inference_tell_timing(work, &answer->timing);
    xn_inference_respond_text(work, "application/json", text, length);
}

static void answer(xn_inference *work, int64_t encode_started_ns) {
    xn_answer answer;
    describe((const conv_work *)work, &answer);
    if (xn_form_is_text(work->ctx->answer_form))
        answer_json(work, &answer, encode_started_ns);
    else
        answer_binary(work, &answer, encode_started_ns);
}

static const xn_inference_kind kind = {.understand = understand,
                                       .preparing_is_long = preparing_is_long,
                                       .prepare = prepare,
                                       .answering_is_long = answering_is_long,
                                       .answer = answer};

/* All of a raw request but the bytes stands in its query: what is wrong with that, or with their
 * number, is refused before they come. */
static xn_status check_raw(const xn_context *ctx, xn_error *error) {
    const xn_proto_limits limits = {ctx->service->config->max_elements};
    const xn_proto_body body = {.form = XN_FORM_RAW, .length = xn_request_length(ctx->request)};
    xn_conv_request ignored;
    query q;
    if (ctx->form != XN_FORM_RAW || ctx->coding != XN_CODING_IDENTITY ||
        body.length == XN_HTTP_UNKNOWN_LENGTH)
        return XN_OK;
    xn_status status = read_query(ctx, &q, error);
    return status ? status : xn_proto_parse_conv(&body, q.pairs, q.count, &limits, &ignored, error);
}

static void conv_headers(xn_context *ctx) {
    xn_error error;
    if (!xn_context_accept_body(ctx, true))
        return;
    if (check_raw(ctx, &error))
        xn_context_fail(ctx, &error);
    else
        xn_context_receive(ctx);
}

static void conv_complete(xn_context *ctx) {
    xn_inference_start(ctx, &kind, sizeof(conv_work));
}

const xn_resource xn_conv_resource = {.headers = conv_headers,
                                      .complete = conv_complete,
                                      .answer = xn_inference_answer,
                                      .gone = xn_inference_gone,
                                      .finished = xn_inference_finished};
