/* shm.c: /v2/systemsharedmemory: regions that clients register (--allow-client-shm), and
 * /v2/cudasharedmemory, which clients ask to be cleared although there is none. */
#include "resources.h"
#include "xn_mem.h"

#define MOST_BYTES 65536 /* of a body */

static const char *region_of(const xn_context *ctx) {
    return ctx->name[0] ? ctx->name : NULL;
}

static void respond_list(xn_context *ctx, const xn_region_item *items, size_t count) {
    xn_document text = {0};
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
    xn_document_add(&text, "]");
    xn_context_json(ctx, 200, &text);
}

static void respond_unknown(xn_context *ctx) {
    xn_error error;
    xn_fail(&error, XN_ERR_NOT_FOUND, "name", "there is no region \"%s\"", ctx->name);
    xn_context_fail(ctx, &error);
}

static void show_status(xn_context *ctx) {
    xn_shared_memory *shared = ctx->service->shared;
    xn_region_item *items = NULL;
    size_t count = 0;
    xn_error error;
    if (shared &&
        xn_shared_memory_list(shared, ctx->key, region_of(ctx), &items, &count, &error) != XN_OK) {
        xn_context_fail(ctx, &error);
        return;
    }
    if (region_of(ctx) && !count)
        respond_unknown(ctx);
    else
        respond_list(ctx, items, count);
    xn_mem_free(items);
}

static void unregister_region(xn_context *ctx) {
    if (ctx->service->shared)
        xn_shared_memory_remove(ctx->service->shared, ctx->key, region_of(ctx));
    xn_request_respond_empty(ctx->request, 200);
}

static void register_headers(xn_context *ctx) {
    xn_error error;
    if (ctx->service->shared) {
        xn_context_accept_document(ctx, MOST_BYTES);
        return;
    }
    xn_fail(&error, XN_ERR_UNSUPPORTED, NULL,
            "clients may not register shared memory here; --allow-client-shm allows it");
    xn_context_fail(ctx, &error);
}

static void register_region(xn_context *ctx) {
    xn_proto_body body;
    xn_shm_request request;
    xn_error error;
    if (xn_context_body(ctx, &body, &error) ||
        xn_oip_parse_shm(body.bytes, body.length, &request, &error) ||
        xn_shared_memory_add(ctx->service->shared, ctx->key, ctx->name, &request, &error))
        xn_context_fail(ctx, &error);
    else
        xn_request_respond_empty(ctx->request, 200);
}

static void unregister_no_region(xn_context *ctx) {
    xn_request_respond_empty(ctx->request, 200);
}

static void show_no_regions(xn_context *ctx) {
    if (region_of(ctx))
        respond_unknown(ctx);
    else
        respond_list(ctx, NULL, 0);
}

const xn_resource xn_shm_status_resource = {.complete = show_status};
const xn_resource xn_shm_unregister_resource = {.complete = unregister_region};
const xn_resource xn_shm_register_resource = {.headers = register_headers,
                                              .complete = register_region};
const xn_resource xn_cuda_shm_status_resource = {.complete = show_no_regions};
const xn_resource xn_cuda_shm_unregister_resource = {.complete = unregister_no_region};
