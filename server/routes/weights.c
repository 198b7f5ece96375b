/* weights.c: /weights. Registering decodes a body, waits for devices, and for the disk where
 * weights are kept (--weights-dir), so it runs on a background thread while the connection is
 * suspended; deleting too where it waits for the disk; the rest is answered at once. */
#include "log.h"
#include "resources.h"
#include "weights_tensors.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

typedef struct weights_put {
    xn_background_task background; /* first */
    xn_weights_request parsed;
    bool created;
    xn_store_item item; /* as it was registered */
} weights_put;

static xn_store *store_of(const xn_context *ctx) {
    return xn_engine_store(ctx->service->engine);
}

static void append_item(xn_document *text, const xn_store_item *item) {
    xn_document_add(text, "{\"name\": ");
    xn_document_string(text, item->name);
    xn_document_add(text,
                    ", \"shape\": [%lld, %lld, %lld, %lld], \"datatype\": \"%s\", \"scale\": %s, "
                    "\"bias\": %s, \"hash\": \"%016llx\", \"bytes\": %zu, \"requests\": %lld}",
                    (long long)item->dims[0], (long long)item->dims[1], (long long)item->dims[2],
                    (long long)item->dims[3], xn_datatype_name(item->datatype),
                    item->has_scale ? "true" : "false", item->has_bias ? "true" : "false",
                    (unsigned long long)item->hash, item->host_bytes, (long long)item->requests);
}

static void respond_item(xn_context *ctx, int http_status, const xn_store_item *item) {
    xn_document text = {0};
    append_item(&text, item);
    xn_context_json(ctx, http_status, &text);
}

static void weights_list(xn_context *ctx) {
    xn_store_item *items = NULL;
    size_t count = 0;
    xn_error error;
    xn_document text = {0};
    if (xn_store_list(store_of(ctx), &items, &count, &error)) {
        xn_context_fail(ctx, &error);
        return;
    }
    xn_document_add(&text, "{\"weights\": [");
    for (size_t i = 0; i < count; i++) {
        if (i)
            xn_document_add(&text, ", ");
        append_item(&text, &items[i]);
    }
    xn_document_add(&text, "]}");
    xn_mem_free(items);
    xn_context_json(ctx, 200, &text);
}

static void weights_show(xn_context *ctx) {
    xn_store_item item;
    xn_error error;
    if (xn_store_item_get(store_of(ctx), ctx->name, &item, &error))
        xn_context_fail(ctx, &error);
    else
        respond_item(ctx, 200, &item);
}

const xn_resource xn_weights_list_resource = {.complete = weights_list};
const xn_resource xn_weights_show_resource = {.complete = weights_show};

/* ---- PUT ---- */

static xn_status store(weights_put *put, const xn_weights_tensors *t, xn_error *error) {
    const xn_context *ctx = put->background.ctx;
    xn_weights_dir *dir = ctx->service->weights_dir;
    if (dir)
        return xn_weights_dir_put(dir, ctx->name, t->weights, t->scale, t->bias, &put->created,
                                  &put->item, error);
    return xn_store_put(store_of(ctx), ctx->name, t->weights, t->scale, t->bias, &put->created,
                        &put->item, error);
}

static xn_status run_put(xn_background_task *task, xn_error *error) {
    weights_put *put = (weights_put *)task;
    xn_context *ctx = task->ctx;
    const xn_proto_limits limits = {ctx->service->config->max_elements};
    const xn_weights_request *p = &put->parsed;
    xn_proto_body body;
    xn_status status = xn_context_body(ctx, &body, error);
    if (!status)
        status = xn_proto_parse_weights(&body, &limits, &put->parsed, error);
    if (!status)
        status =
            xn_ticket_grow(&ctx->ticket, p->weights.bytes + p->scale.bytes + p->bias.bytes, error);
    if (status)
        return status;
    xn_weights_tensors tensors;
    status = xn_weights_tensors_read(&p->weights, &p->scale, &p->bias, &tensors, error);
    if (!status)
        status = store(put, &tensors, error);
    xn_weights_tensors_free(&tensors);
    return status;
}

static bool note_parameter(void *context, const char *key, const char *value) {
    (void)value;
    *(const char **)context = key;
    return false;
}

static void put_headers(xn_context *ctx) {
    const char *parameter = NULL;
    xn_request_query(ctx->request, note_parameter, &parameter);
    if (parameter) {
        xn_context_refuse(ctx, 400, XN_REJECT_MALFORMED, "bad_request", "query",
                          "query parameter \"%.64s\": weights are registered without parameters; "
                          "give them to /conv",
                          parameter);
        return;
    }
    if (xn_context_accept_body(ctx, false))
        xn_context_receive(ctx);
}

static void put_complete(xn_context *ctx) {
    xn_context_run(ctx, ctx->service->background_pool, sizeof(weights_put), run_put);
}

static void put_answer(xn_context *ctx) {
    const weights_put *put = (const weights_put *)ctx->of.background;
    if (put->background.error.status) {
        xn_context_fail(ctx, &put->background.error);
        return;
    }
    xn_log(XN_LOG_INFO, xn_request_id(ctx->request), "weights \"%s\" %s", ctx->name,
           put->created ? "registered" : "replaced");
    respond_item(ctx, put->created ? 201 : 200, &put->item);
}

const xn_resource xn_weights_put_resource = {
    .headers = put_headers, .complete = put_complete, .answer = put_answer};

/* ---- DELETE: at once, or on a background thread where a file goes with the name ---- */

static xn_status run_delete(xn_background_task *task, xn_error *error) {
    const xn_context *ctx = task->ctx;
    return xn_weights_dir_delete(ctx->service->weights_dir, ctx->name, error);
}

/* error: NULL where they were deleted. */
static void answer_deleted(xn_context *ctx, const xn_error *error) {
    if (error) {
        xn_context_fail(ctx, error);
        return;
    }
    xn_log(XN_LOG_INFO, xn_request_id(ctx->request), "weights \"%s\" deleted", ctx->name);
    xn_request_respond_empty(ctx->request, 204);
}

static void delete_complete(xn_context *ctx) {
    xn_error error;
    if (!ctx->service->weights_dir)
        answer_deleted(ctx, xn_store_delete(store_of(ctx), ctx->name, &error) ? &error : NULL);
    else if (xn_context_admit(ctx, 0, &error)) /* which bounds the tasks of the background pool */
        xn_context_fail(ctx, &error);
    else
        xn_context_run(ctx, ctx->service->background_pool, sizeof(xn_background_task), run_delete);
}

static void delete_answer(xn_context *ctx) {
    const xn_error *error = &ctx->of.background->error;
    answer_deleted(ctx, error->status ? error : NULL);
}

const xn_resource xn_weights_delete_resource = {.complete = delete_complete,
                                                .answer = delete_answer};
