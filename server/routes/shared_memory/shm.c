/* shm.c: /v2/systemsharedmemory: regions that clients register (--allow-client-shm), and
 * /v2/cudasharedmemory, which clients ask to be cleared although there is none. */
#include "document.h"
#include "resources.h"
#include "xn_mem.h"

#define MOST_BYTES 65536 /* of a body */

static const char *region_of(const xn_exchange *exchange) {
    return exchange->name[0] ? exchange->name : NULL;
}

static void respond_list(xn_exchange *exchange, const xn_region_item *items, size_t count) {
    xn_document text = {0};
    size_t length = 0;
    xn_document_add(&text, "[");
    for (size_t i = 0; i < count; i++) {
        xn_document_add(&text, "%s{\"name\": ", i ? ", " : "");
        xn_document_string(&text, items[i].name);
        xn_document_add(&text, ", \"key\": ");
        xn_document_string(&text, items[i].region.key);
        xn_document_add(&text, ", \"offset\": %llu, \"byte_size\": %llu}",
                        (unsigned long long)items[i].region.offset,
                        (unsigned long long)items[i].region.byte_size);
    }
    xn_document_add(&text, "]\n");
    char *body = xn_document_take(&text, &length);
    xn_exchange_json(exchange, 200, body, length);
}

static void respond_unknown(xn_exchange *exchange) {
    xn_error error;
    xn_fail(&error, XN_ERR_NOT_FOUND, "name", "there is no region \"%s\"", exchange->name);
    xn_exchange_fail(exchange, &error);
}

static void show_status(xn_exchange *exchange) {
    xn_shared_memory *shared = exchange->service->shared;
    xn_region_item *items = NULL;
    size_t count = 0;
    xn_error error;
    if (shared && xn_shared_memory_list(shared, exchange->key, region_of(exchange), &items, &count,
                                        &error) != XN_OK) {
        xn_exchange_fail(exchange, &error);
        return;
    }
    if (region_of(exchange) && !count)
        respond_unknown(exchange);
    else
        respond_list(exchange, items, count);
    xn_mem_free(items);
}

static void respond_nothing(xn_exchange *exchange) {
    static char nothing[1];
    xn_request_respond(exchange->request, 200, NULL, nothing, 0, NULL, NULL);
}

static void unregister_region(xn_exchange *exchange) {
    if (exchange->service->shared)
        xn_shared_memory_remove(exchange->service->shared, exchange->key, region_of(exchange));
    respond_nothing(exchange);
}

static void register_headers(xn_exchange *exchange) {
    xn_error error;
    if (exchange->service->shared) {
        xn_exchange_accept_document(exchange, MOST_BYTES);
        return;
    }
    xn_fail(&error, XN_ERR_UNSUPPORTED, NULL,
            "clients may not register shared memory here; --allow-client-shm allows it");
    xn_exchange_fail(exchange, &error);
}

static void register_region(xn_exchange *exchange) {
    xn_proto_body body;
    xn_shm_request request;
    xn_error error;
    if (xn_exchange_body(exchange, &body, &error) ||
        xn_oip_parse_shm(body.bytes, body.length, &request, &error) ||
        xn_shared_memory_add(exchange->service->shared, exchange->key, exchange->name, &request,
                             &error))
        xn_exchange_fail(exchange, &error);
    else
        respond_nothing(exchange);
}

static void show_no_regions(xn_exchange *exchange) {
    if (region_of(exchange))
        respond_unknown(exchange);
    else
        respond_list(exchange, NULL, 0);
}

const xn_resource xn_shm_status_resource = {.complete = show_status};
const xn_resource xn_shm_unregister_resource = {.complete = unregister_region};
const xn_resource xn_shm_register_resource = {.headers = register_headers,
                                              .complete = register_region};
const xn_resource xn_cuda_shm_status_resource = {.complete = show_no_regions};
const xn_resource xn_cuda_shm_unregister_resource = {.complete = respond_nothing};
