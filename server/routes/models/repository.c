/* repository.c: /v2/repository: what models there are, loading and unloading them. Loading reads
 * files and waits for devices: it has threads of its own, so that requests with large bodies do not
 * wait behind it. */
#include "log.h"
#include "resources.h"
#include "xn_mem.h"
#include "xn_oip.h"

#define SMALL_BODY_BYTES 65536

/* Takes a JSON body, if there is a repository to do something with. */
static void accept_document(xn_context *ctx, int64_t most) {
    xn_error error;
    if (ctx->service->models) {
        xn_context_accept_document(ctx, most);
        return;
    }
    xn_fail(&error, XN_ERR_UNSUPPORTED, NULL, "there is no repository of models here");
    xn_context_fail(ctx, &error);
}

/* ---- index ---- */

static void append_item(xn_document *text, const xn_model_item *item) {
    static const char *const states[] = {[XN_MODEL_READY] = "READY",
                                         [XN_MODEL_LOADING] = "LOADING",
                                         [XN_MODEL_UNAVAILABLE] = "UNAVAILABLE"};
    xn_document_add(text, "{\"name\": ");
    xn_document_text(text, item->name);
    if (item->version[0])
        xn_document_add(text, ", \"version\": \"%s\"", item->version);
    xn_document_add(text, ", \"state\": \"%s\", \"reason\": ", states[item->state]);
    xn_document_string(text, item->reason);
    xn_document_add(text, "}");
}

static void respond_index(xn_context *ctx, const xn_model_item *items, size_t count,
                          bool ready_only) {
    xn_document text = {0};
    bool any = false;
    xn_document_add(&text, "[");
    for (size_t i = 0; i < count; i++) {
        if (ready_only && items[i].state != XN_MODEL_READY)
            continue;
        xn_document_add(&text, "%s", any ? ", " : "");
        append_item(&text, &items[i]);
        any = true;
    }
    xn_document_add(&text, "]");
    xn_context_json(ctx, 200, &text);
}

static void index_headers(xn_context *ctx) {
    xn_context_accept_document(ctx, SMALL_BODY_BYTES);
}

static void index_complete(xn_context *ctx) {
    xn_proto_body body;
    xn_models *models = ctx->service->models;
    xn_model_item *items = NULL;
    size_t count = 0;
    bool ready_only = false;
    xn_error error;
    if (xn_context_body(ctx, &body, &error) ||
        xn_oip_parse_index(body.bytes, body.length, &ready_only, &error) ||
        (models && xn_models_list(models, &items, &count, &error)))
        xn_context_fail(ctx, &error);
    else
        respond_index(ctx, items, count, ready_only);
    xn_mem_free(items);
}

const xn_resource xn_index_resource = {.headers = index_headers, .complete = index_complete};

/* ---- load ---- */

/* The files of a request, decoded; their bytes are counted before they are taken. */
static xn_status decode_files(xn_context *ctx, const xn_load_request *request,
                              xn_model_file files[], xn_error *error) {
    for (int i = 0; i < request->file_count; i++) {
        const xn_oip_file *file = &request->files[i];
        void *bytes = NULL;
        xn_status status = xn_ticket_grow(&ctx->ticket, file->length / 4 * 3 + 3, error);
        if (!status)
            status = xn_base64_decode(file->base64, file->length, &bytes, &files[i].length, error);
        if (status)
            return status;
        files[i].path = file->path;
        files[i].bytes = bytes;
    }
    return XN_OK;
}

static xn_status load(xn_background_task *task, xn_error *error) {
    xn_context *ctx = task->ctx;
    xn_proto_body body;
    xn_load_request request = {0};
    xn_model_file files[XN_OIP_MAX_FILES] = {{0}};
    xn_status status = xn_context_body(ctx, &body, error);
    if (!status) /* the strings, and what reading JSON takes beside them */
        status = xn_ticket_grow(&ctx->ticket, body.length, error);
    if (!status)
        status = xn_oip_parse_load(body.bytes, body.length, &request, error);
    if (status)
        return status;
    status = decode_files(ctx, &request, files, error);
    if (!status)
        status = xn_models_load(ctx->service->models, ctx->name, request.config,
                                request.config_length, files, request.file_count, error);
    for (int i = 0; i < request.file_count; i++)
        xn_mem_free((void *)(uintptr_t)files[i].bytes);
    xn_load_request_free(&request);
    return status;
}

static void load_headers(xn_context *ctx) {
    accept_document(ctx, ctx->service->config->max_body_bytes);
}

static void load_complete(xn_context *ctx) {
    xn_context_run(ctx, ctx->service->model_pool, sizeof(xn_background_task), load);
}

static void answer_done(xn_context *ctx, const char *done) {
    const xn_error *error = &ctx->of.background->error;
    if (error->status) {
        xn_context_fail(ctx, error);
        return;
    }
    xn_log(XN_LOG_INFO, xn_request_id(ctx->request), "model \"%s\" %s on request", ctx->name, done);
    xn_request_respond_empty(ctx->request, 200);
}

static void load_answer(xn_context *ctx) {
    answer_done(ctx, "loaded");
}

const xn_resource xn_load_resource = {
    .headers = load_headers, .complete = load_complete, .answer = load_answer};

/* ---- unload ---- */

static xn_status unload(xn_background_task *task, xn_error *error) {
    xn_context *ctx = task->ctx;
    xn_proto_body body;
    xn_status status = xn_context_body(ctx, &body, error);
    if (!status)
        status = xn_oip_parse_unload(body.bytes, body.length, error);
    return status ? status : xn_models_unload(ctx->service->models, ctx->name, error);
}

static void unload_headers(xn_context *ctx) {
    accept_document(ctx, SMALL_BODY_BYTES);
}

static void unload_complete(xn_context *ctx) {
    xn_context_run(ctx, ctx->service->model_pool, sizeof(xn_background_task), unload);
}

static void unload_answer(xn_context *ctx) {
    answer_done(ctx, "unloaded");
}

const xn_resource xn_unload_resource = {
    .headers = unload_headers, .complete = unload_complete, .answer = unload_answer};
