/* weights.c: /weights. Registering decodes a body, waits for devices, and for the disk where
 * weights are kept (--weights-dir), so it runs on the loader while the connection is parked;
 * deleting too where it waits for the disk; the rest is answered at once. */
#include "document.h"
#include "log.h"
#include "resources.h"
#include "weights_given.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

typedef struct xn_weights_exchange {
    xn_task task; /* first: the loader hands it back */
    xn_exchange *exchange;
    xn_weights_request parsed;
    xn_error error; /* status XN_OK when registered */
    bool created;
    xn_store_item item; /* as it was registered */
} weights_exchange;

static xn_store *store_of(const xn_exchange *exchange) {
    return xn_engine_store(exchange->service->engine);
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

static void respond_item(xn_exchange *exchange, int http_status, const xn_store_item *item) {
    xn_document text = {0};
    size_t length = 0;
    append_item(&text, item);
    xn_document_add(&text, "\n");
    char *body = xn_document_take(&text, &length);
    xn_exchange_json(exchange, http_status, body, length);
}

static void weights_list(xn_exchange *exchange) {
    xn_store_item *items = NULL;
    size_t count = 0, length = 0;
    xn_error error;
    xn_document text = {0};
    if (xn_store_list(store_of(exchange), &items, &count, &error)) {
        xn_exchange_fail(exchange, &error);
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
    xn_exchange_json(exchange, 200, body, length);
}

static void weights_show(xn_exchange *exchange) {
    xn_store_item item;
    xn_error error;
    if (xn_store_item_get(store_of(exchange), exchange->name, &item, &error))
        xn_exchange_fail(exchange, &error);
    else
        respond_item(exchange, 200, &item);
}

const xn_resource xn_weights_list_resource = {.complete = weights_list};
const xn_resource xn_weights_show_resource = {.complete = weights_show};

/* ---- PUT ---- */

static xn_status store(weights_exchange *w, const xn_weights_given *given, xn_error *error) {
    xn_weights_dir *dir = w->exchange->service->weights_dir;
    const char *name = w->exchange->name;
    if (dir)
        return xn_weights_dir_put(dir, name, given->weights, given->scale, given->bias, &w->created,
                                  &w->item, error);
    return xn_store_put(store_of(w->exchange), name, given->weights, given->scale, given->bias,
                        &w->created, &w->item, error);
}

static xn_status put(weights_exchange *w, xn_error *error) {
    const xn_proto_limits limits = {w->exchange->service->config->max_elements};
    const xn_weights_request *p = &w->parsed;
    xn_proto_body body;
    xn_status status = xn_exchange_body(w->exchange, &body, error);
    if (!status)
        status = xn_proto_parse_weights(&body, &limits, &w->parsed, error);
    if (!status)
        status = xn_ticket_grow(&w->exchange->ticket,
                                p->weights.bytes + p->scale.bytes + p->bias.bytes, error);
    if (status)
        return status;
    xn_weights_given given;
    status = xn_weights_given_take(&p->weights, &p->scale, &p->bias, &given, error);
    if (!status)
        status = store(w, &given, error);
    xn_weights_given_free(&given);
    return status;
}

static void run_put(xn_task *task) {
    weights_exchange *w = (weights_exchange *)task;
    xn_error error = {.status = XN_OK};
    if (!put(w, &error))
        error.status = XN_OK;
    w->error = error;
    xn_request_unpark(w->exchange->request);
}

static bool note_parameter(void *context, const char *key, const char *value) {
    (void)value;
    *(const char **)context = key;
    return false;
}

static void put_headers(xn_exchange *exchange) {
    const char *parameter = NULL;
    char message[160];
    xn_request_query(exchange->request, note_parameter, &parameter);
    if (parameter) {
        snprintf(message, sizeof message,
                 "query parameter \"%.64s\": weights are registered without parameters; give them "
                 "to /conv",
                 parameter);
        xn_exchange_refuse(exchange, 400, XN_REJECT_MALFORMED, "bad_request", "query", message);
        return;
    }
    if (xn_exchange_accept_body(exchange, false))
        xn_exchange_receive(exchange);
}

/* NULL: there was no memory, and that is answered. */
static weights_exchange *begin(xn_exchange *exchange) {
    weights_exchange *w = xn_mem_zalloc(1, sizeof *w);
    if (!w) {
        xn_error error;
        xn_fail(&error, XN_ERR_NO_MEMORY, NULL, "no memory for the request; try again later");
        xn_exchange_fail(exchange, &error);
        return NULL;
    }
    exchange->of.weights = w;
    w->exchange = exchange;
    return w;
}

static void run_on_loader(weights_exchange *w, void (*run)(xn_task *task)) {
    w->task.run = run;
    xn_request_park(w->exchange->request);
    xn_loader_submit(w->exchange->service->loader, &w->task);
}

static void put_complete(xn_exchange *exchange) {
    weights_exchange *w = begin(exchange);
    if (!w)
        return;
    run_on_loader(w, run_put);
}

static void put_answer(xn_exchange *exchange) {
    const weights_exchange *w = exchange->of.weights;
    if (w->error.status) {
        xn_exchange_fail(exchange, &w->error);
        return;
    }
    xn_log(XN_LOG_INFO, xn_request_id(exchange->request), "weights \"%s\" %s", exchange->name,
           w->created ? "registered" : "replaced");
    respond_item(exchange, w->created ? 201 : 200, &w->item);
}

static void finished(xn_exchange *exchange) {
    xn_mem_free(exchange->of.weights);
}

const xn_resource xn_weights_put_resource = {
    .headers = put_headers, .complete = put_complete, .answer = put_answer, .finished = finished};

/* ---- DELETE: at once, or on the loader thread where a file goes with the name ---- */

static void respond_deleted(xn_exchange *exchange) {
    static char nothing[1];
    xn_log(XN_LOG_INFO, xn_request_id(exchange->request), "weights \"%s\" deleted", exchange->name);
    xn_request_respond(exchange->request, 204, NULL, nothing, 0, NULL, NULL);
}

static void run_delete(xn_task *task) {
    weights_exchange *w = (weights_exchange *)task;
    xn_error error = {.status = XN_OK};
    if (!xn_weights_dir_delete(w->exchange->service->weights_dir, w->exchange->name, &error))
        error.status = XN_OK;
    w->error = error;
    xn_request_unpark(w->exchange->request);
}

static void delete_complete(xn_exchange *exchange) {
    xn_error error;
    if (!exchange->service->weights_dir) {
        if (xn_store_delete(store_of(exchange), exchange->name, &error))
            xn_exchange_fail(exchange, &error);
        else
            respond_deleted(exchange);
        return;
    }
    weights_exchange *w = begin(exchange);
    if (!w)
        return;
    if (xn_exchange_admit(exchange, 0, &error)) { /* which bounds what the loader has */
        xn_exchange_fail(exchange, &error);
        return;
    }
    run_on_loader(w, run_delete);
}

static void delete_answer(xn_exchange *exchange) {
    const weights_exchange *w = exchange->of.weights;
    if (w->error.status)
        xn_exchange_fail(exchange, &w->error);
    else
        respond_deleted(exchange);
}

const xn_resource xn_weights_delete_resource = {
    .complete = delete_complete, .answer = delete_answer, .finished = finished};
