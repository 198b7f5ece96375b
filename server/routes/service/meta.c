/* meta.c: the small documents: health, what the server is and allows, metrics. */
#include "resources.h"
#include "xn_mem.h"

#include <stdio.h>

static void show_live(xn_context *ctx) {
    static char body[] = "{\"live\": true}\n";
    xn_request_respond(ctx->request, 200, "application/json", body, sizeof body - 1, NULL, NULL);
}

static void append_devices(xn_document *text, const xn_engine *engine) {
    xn_document_add(text, "[");
    for (int i = 0; i < xn_engine_device_count(engine); i++) {
        xn_device_info info;
        xn_engine_device_info(engine, i, &info);
        xn_document_add(text, "%s{\"id\": ", i ? ", " : "");
        xn_document_string(text, info.id);
        xn_document_add(text, ", \"description\": ");
        xn_document_string(text, info.description);
        xn_document_add(text, ", \"memory_bytes\": %llu}", (unsigned long long)info.memory_bytes);
    }
    xn_document_add(text, "]");
}

static void show_ready(xn_context *ctx) {
    xn_engine *engine = ctx->service->engine;
    xn_engine_health health;
    xn_document text = {0};
    xn_engine_health_get(engine, &health);
    xn_document_add(&text, "{\"ready\": %s, \"backend\": ", health.ready ? "true" : "false");
    xn_document_string(&text, health.backend);
    xn_document_add(&text, ", \"draining\": %s, \"reason\": ", health.draining ? "true" : "false");
    xn_document_string(&text, health.reason);
    xn_document_add(&text, ", \"devices\": ");
    append_devices(&text, engine);
    xn_document_add(&text, "}");
    xn_context_json(ctx, health.ready ? 200 : 503, &text);
}

static void show_server(xn_context *ctx) {
    const xn_config *c = ctx->service->config;
    xn_engine *engine = ctx->service->engine;
    xn_engine_health health;
    xn_document text = {0};
    xn_engine_health_get(engine, &health);
    xn_document_add(&text,
                    "{\"name\": \"xnord\", \"version\": \"%s\", \"extensions\": "
                    "[\"binary_tensor_data\", \"classification\", \"model_configuration\", "
                    "\"model_repository\", \"statistics\"%s], \"backend\": ",
                    XN_VERSION, ctx->service->shared ? ", \"system_shared_memory\"" : "");
    xn_document_string(&text, health.backend);
    xn_document_add(&text, ", \"devices\": ");
    append_devices(&text, engine);
    xn_document_add(
        &text,
        ", \"limits\": {\"max_body_bytes\": %lld, \"max_elements\": %lld, "
        "\"max_output_bytes\": %lld, \"max_operations\": %lld, \"queue_depth\": %lld, "
        "\"queue_bytes\": %lld, \"max_image_bytes\": %lld, "
        "\"max_picture_pixels\": %lld, \"timeout_ms\": %lld, \"max_timeout_ms\": %lld, "
        "\"max_batch_images\": %lld}}",
        (long long)c->max_body_bytes, (long long)c->max_elements, (long long)c->max_output_bytes,
        (long long)c->max_operations, (long long)c->queue_depth, (long long)c->queue_bytes,
        (long long)xn_config_image_bytes(c), (long long)c->max_picture_pixels,
        (long long)c->timeout_ms, (long long)c->max_timeout_ms, (long long)c->max_batch_images);
    xn_context_json(ctx, 200, &text);
}

static void show_metrics(xn_context *ctx) {
    size_t length = 0;
    xn_engine *engine = ctx->service->engine;
    xn_metrics_gauge_set(xn_engine_metrics(engine), XN_GAUGE_QUEUE_OLDEST_NS,
                         xn_engine_oldest_wait_ns(engine));
    char *text = xn_metrics_render(xn_engine_metrics(engine), &length);
    if (!text) {
        xn_context_fail_memory(ctx);
        return;
    }
    xn_request_respond(ctx->request, 200, "text/plain; version=0.0.4; charset=utf-8", text, length,
                       xn_mem_free, text);
}

static void refuse_unsupported(xn_context *ctx) {
    xn_context_refuse(ctx, 501, XN_REJECT_OTHER, "not_implemented", "path",
                      "%.100s is not supported by this server", xn_request_path(ctx->request));
}

const xn_resource xn_unsupported_resource = {.complete = refuse_unsupported};
const xn_resource xn_live_resource = {.complete = show_live};
const xn_resource xn_ready_resource = {.complete = show_ready};
const xn_resource xn_server_resource = {.complete = show_server};
const xn_resource xn_metrics_resource = {.complete = show_metrics};
