/* weights.c: /weights. Registering decodes a body, waits for devices, and for the disk where
 * weights are kept (--weights-dir), so it runs on a background thread while the connection is
 * suspended; deleting too where it waits for the disk; the rest is answered at once. */
#include "document.h"
#include "log.h"
#include "resources.h"
#include "weights_tensors.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

typedef struct xn_weights_task {
    xn_task task; /* first: the task pointer is cast back */
    xn_context *ctx;
    xn_weights_request parsed;
    xn_error error; /* status XN_OK when registered */
    bool created;
    xn_store_item item; /* as it was registered */
} weights_task;

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
    size_t length = 0;
    append_item(&text, item);
    xn_document_add(&text, "\n");
    char *body = xn_document_take(&text, &length);
    xn_context_json(ctx, http_status, body, length);
}

static void weights_list(xn_context *ctx) {
    xn_store_item *items = NULL;
    size_t count = 0, length = 0;
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
    xn_document_add(&text, "]}\n");
    xn_mem_free(items);
    char *body = xn_document_take(&text, &length);
    xn_context_json(ctx, 200, body, length);
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

static xn_status store(weights_task *w, const xn_weights_tensors *tensors, xn_error *error) {
    xn_weights_dir *dir = w->ctx->service->weights_dir;
    const char *name = w->ctx->name;
    if (dir)
        return xn_weights_dir_put(dir, name, tensors->weights, tensors->scale, tensors->bias,
                                  &w->created, &w->item, error);
    return xn_store_put(store_of(w->ctx), name, tensors->weights, tensors->scale, tensors->bias,
                        &w->created, &w->item, error);
}

static xn_status put(weights_task *w, xn_error *error) {
    const xn_proto_limits limits = {w->ctx->service->config->max_elements};
    const xn_weights_request *p = &w->parsed;
    xn_proto_body body;
    xn_status status = xn_context_body(w->ctx, &body, error);
    if (!status)
        status = xn_proto_parse_weights(&body, &limits, &w->parsed, error);
    if (!status)
        status = xn_ticket_grow(&w->ctx->ticket, p->weights.bytes + p->scale.bytes + p->bias.bytes,
                                error);
    if (status)
        return status;
    xn_weights_tensors tensors;
    status = xn_weights_tensors_read(&p->weights, &p->scale, &p->bias, &tensors, error);
    if (!status)
        status = store(w, &tensors, error);
    xn_weights_tensors_free(&tensors);
    return status;
}

static void run_put(xn_task *task) {
    weights_task *w = (weights_task *)task;
    xn_error error = {.status = XN_OK};
    if (!put(w, &error))
        error.status = XN_OK;
    w->error = error;
    xn_request_resume(w->ctx->request);
}

static bool note_parameter(void *context, const char *key, const char *value) {
    (void)value;
    *(const char **)context = key;
    return false;
}

static void put_headers(xn_context *ctx) {
    const char *parameter = NULL;
    char message[160];
    xn_request_query(ctx->request, note_parameter, &parameter);
    if (parameter) {
        snprintf(message, sizeof message,
                 "query parameter \"%.64s\": weights are registered without parameters; give them "
                 "to /conv",
                 parameter);
        xn_context_refuse(ctx, 400, XN_REJECT_MALFORMED, "bad_request", "query", message);
        return;
    }
    if (xn_context_accept_body(ctx, false))
        xn_context_receive(ctx);
}

/* NULL: there was no memory, and that is answered. */
static weights_task *begin(xn_context *ctx) {
    weights_task *w = xn_mem_zalloc(1, sizeof *w);
    if (!w) {
        xn_error error;
        xn_fail(&error, XN_ERR_NO_MEMORY, NULL, "no memory for the request; try again later");
        xn_context_fail(ctx, &error);
        return NULL;
    }
    ctx->of.weights = w;
    w->ctx = ctx;
    return w;
}

static void run_in_background(weights_task *w, void (*run)(xn_task *task)) {
    w->task.run = run;
    xn_request_suspend(w->ctx->request);
    xn_thread_pool_submit(w->ctx->service->background_pool, &w->task);
}

static void put_complete(xn_context *ctx) {
    weights_task *w = begin(ctx);
    if (!w)
        return;
    run_in_background(w, run_put);
}

static void put_answer(xn_context *ctx) {
    const weights_task *w = ctx->of.weights;
    if (w->error.status) {
        xn_context_fail(ctx, &w->error);
        return;
    }
    xn_log(XN_LOG_INFO, xn_request_id(ctx->request), "weights \"%s\" %s", ctx->name,
           w->created ? "registered" : "replaced");
    respond_item(ctx, w->created ? 201 : 200, &w->item);
}

static void finished(xn_context *ctx) {
    xn_mem_free(ctx->of.weights);
}

const xn_resource xn_weights_put_resource = {
    .headers = put_headers, .complete = put_complete, .answer = put_answer, .finished = finished};

/* ---- DELETE: at once, or on a background thread where a file goes with the name ---- */

static void respond_deleted(xn_context *ctx) {
    static char nothing[1];
    xn_log(XN_LOG_INFO, xn_request_id(ctx->request), "weights \"%s\" deleted", ctx->name);
    xn_request_respond(ctx->request, 204, NULL, nothing, 0, NULL, NULL);
}

static void run_delete(xn_task *task) {
    weights_task *w = (weights_task *)task;
    xn_error error = {.status = XN_OK};
    if (!xn_weights_dir_delete(w->ctx->service->weights_dir, w->ctx->name, &error))
        error.status = XN_OK;
    w->error = error;
    xn_request_resume(w->ctx->request);
}

static void delete_complete(xn_context *ctx) {
    xn_error error;
    if (!ctx->service->weights_dir) {
        if (xn_store_delete(store_of(ctx), ctx->name, &error))
            xn_context_fail(ctx, &error);
        else
            respond_deleted(ctx);
        return;
    }
    weights_task *w = begin(ctx);
    if (!w)
        return;
    if (xn_context_admit(ctx, 0, &error)) { /* which bounds the tasks of the background pool */
        xn_context_fail(ctx, &error);
        return;
    }
    run_in_background(w, run_delete);
}

static void delete_answer(xn_context *ctx) {
    const weights_task *w = ctx->of.weights;
    if (w->error.status)
        xn_context_fail(ctx, &w->error);
    else
        respond_deleted(ctx);
}

const xn_resource xn_weights_delete_resource = {
    .complete = delete_complete, .answer = delete_answer, .finished = finished};
