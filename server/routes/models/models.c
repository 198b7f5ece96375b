/* models.c: what is said of the models that are served: metadata, configuration, readiness and
 * statistics, as the Open Inference Protocol and its clients have them. */
#include "resources.h"
#include "served_model.h"
#include "xn_mem.h"

#include <string.h>

/* False: refused. */
static bool get(xn_context *ctx, xn_served_model *out) {
    xn_error error;
    if (!xn_served_model_get(ctx->service, ctx->name, ctx->version, out, &error))
        return true;
    xn_context_fail(ctx, &error);
    return false;
}

/* A document about the model of the path. */
static void respond_about(xn_context *ctx, void (*append)(xn_document *text, const xn_context *ctx,
                                                          const xn_served_model *model)) {
    xn_document text = {0};
    xn_served_model model;
    if (!get(ctx, &model))
        return;
    append(&text, ctx, &model);
    xn_served_model_release(&model);
    xn_context_json(ctx, 200, &text);
}

static void append_member(xn_document *text, const char *name, const char *value) {
    xn_document_add(text, "\"%s\": ", name);
    xn_document_text(text, value);
}

static void append_list(xn_document *text, const xn_shape *shape, const char *first) {
    xn_document_add(text, "[%s", first);
    for (int i = 0; i < shape->rank; i++)
        xn_document_add(text, "%s%lld", i || *first ? ", " : "", (long long)shape->dims[i]);
    xn_document_add(text, "]");
}

/* ---- metadata ---- */

static void append_end(xn_document *text, const xn_model_end *end) {
    xn_document_add(text, "{");
    append_member(text, "name", end->name);
    xn_document_add(text, ", \"datatype\": \"%s\", \"shape\": ", xn_datatype_name(end->datatype));
    append_list(text, &end->shape, "-1");
    xn_document_add(text, "}");
}

/* Those that serve; one that has just been unloaded is none of them. */
static void append_versions(xn_document *text, const xn_context *ctx,
                            const xn_served_model *model) {
    xn_model_versions versions = {0};
    if (model->network)
        xn_models_versions(ctx->service->models, model->name, &versions);
    if (!versions.count)
        xn_document_add(text, "\"%s\"", model->version);
    for (int i = 0; i < versions.count; i++)
        xn_document_add(text, "%s\"%s\"", i ? ", " : "", versions.names[i]);
}

static void append_metadata(xn_document *text, const xn_context *ctx,
                            const xn_served_model *model) {
    xn_document_add(text, "{");
    append_member(text, "name", model->name);
    xn_document_add(text, ", \"versions\": [");
    append_versions(text, ctx, model);
    xn_document_add(text, "], \"platform\": \"%s\", \"inputs\": [", model->platform);
    append_end(text, model->input);
    xn_document_add(text, "], \"outputs\": [");
    for (int i = 0; i < model->output_count; i++) {
        xn_document_add(text, "%s", i ? ", " : "");
        append_end(text, &model->outputs[i]);
    }
    xn_document_add(text, "]}");
}

static void show_model(xn_context *ctx) {
    respond_about(ctx, append_metadata);
}

static void show_ready(xn_context *ctx) {
    xn_engine_health health;
    xn_served_model model;
    xn_error error;
    if (!get(ctx, &model))
        return;
    xn_served_model_release(&model);
    xn_engine_health_get(ctx->service->engine, &health);
    if (health.ready) {
        xn_request_respond_empty(ctx->request, 200);
        return;
    }
    xn_fail(&error, XN_ERR_LOADING, "model", "the server is not ready: %s", health.reason);
    xn_context_fail(ctx, &error);
}

/* ---- configuration: of a model's, what clients read ---- */

static void append_config_end(xn_document *text, const xn_model_end *end) {
    append_member(text, "name", end->name);
    xn_document_add(text,
                    ", \"data_type\": \"TYPE_%s\", \"dims\": ", xn_datatype_name(end->datatype));
    append_list(text, &end->shape, "");
}

static void append_policy(xn_document *text, const xn_context *ctx) {
    const xn_version_policy *policy = &ctx->service->config->versions;
    if (policy->all)
        xn_document_add(text, "\"all\": {}");
    else if (policy->latest)
        xn_document_add(text, "\"latest\": {\"num_versions\": %d}", policy->latest);
    else
        xn_document_add(text, "\"specific\": {\"versions\": [");
    for (int i = 0; i < policy->count; i++)
        xn_document_add(text, "%s%s", i ? ", " : "", policy->listed[i]);
    if (policy->count)
        xn_document_add(text, "]}");
}

static void append_config(xn_document *text, const xn_context *ctx, const xn_served_model *model) {
    const xn_model_end *input = model->input;
    xn_document_add(text, "{");
    append_member(text, "name", model->name);
    xn_document_add(text, ", \"platform\": \"%s\", \"backend\": \"xnord\", \"version_policy\": {",
                    model->platform);
    append_policy(text, ctx);
    xn_document_add(text, "}, \"max_batch_size\": %lld, \"input\": [{",
                    (long long)model->max_batch_size);
    append_config_end(text, input);
    if (input->shape.rank == 3)
        xn_document_add(text, ", \"format\": \"FORMAT_%s\"",
                        model->layout == XN_IMAGE_NHWC ? "NHWC" : "NCHW");
    xn_document_add(text, "}], \"output\": [");
    for (int i = 0; i < model->output_count; i++) {
        const xn_model_end *output = &model->outputs[i];
        xn_document_add(text, "%s{", i ? ", " : "");
        append_config_end(text, output);
        if (output->labels) {
            xn_document_add(text, ", ");
            append_member(text, "label_filename", output->labels_file);
        }
        xn_document_add(text, "}");
    }
    xn_document_add(text,
                    "], \"dynamic_batching\": {\"preferred_batch_size\": [], "
                    "\"max_queue_delay_microseconds\": %lld}, \"model_transaction_policy\": "
                    "{\"decoupled\": false}}",
                    (long long)ctx->service->config->batch_delay_us);
}

static void show_config(xn_context *ctx) {
    respond_about(ctx, append_config);
}

/* ---- statistics ---- */

static void append_duration(xn_document *text, const char *name, const xn_model_duration *d) {
    xn_document_add(text, "\"%s\": {\"count\": %llu, \"ns\": %llu}", name,
                    (unsigned long long)d->count, (unsigned long long)d->ns);
}

static void append_stats(xn_document *text, const char *name, const char *version,
                         const xn_model_stats *stats) {
    const struct {
        const char *name;
        xn_model_duration duration;
    } parts[] = {{"success", stats->success},
                 {"fail", stats->fail},
                 {"queue", stats->queue},
                 {"compute_input", stats->compute_input},
                 {"compute_infer", stats->compute_infer},
                 {"compute_output", stats->compute_output},
                 {"cache_hit", stats->cache_hit},
                 {"cache_miss", stats->cache_miss}};
    xn_document_add(text, "{");
    append_member(text, "name", name);
    xn_document_add(text,
                    ", \"version\": \"%s\", \"last_inference\": %lld, \"inference_count\": %llu, "
                    "\"execution_count\": %llu, \"inference_stats\": {",
                    version, (long long)stats->last_inference_ms,
                    (unsigned long long)stats->inference_count,
                    (unsigned long long)stats->execution_count);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        xn_document_add(text, "%s", i ? ", " : "");
        append_duration(text, parts[i].name, &parts[i].duration);
    }
    xn_document_add(text, "}, \"batch_stats\": []}");
}

static void append_served_stats(xn_document *text, const xn_served_model *model) {
    xn_model_stats stats;
    xn_model_counters_read(model->counters, &stats);
    append_stats(text, model->name, model->version, &stats);
}

static void append_one_stats(xn_document *text, const xn_context *ctx,
                             const xn_served_model *model) {
    (void)ctx;
    xn_document_add(text, "{\"model_stats\": [");
    append_served_stats(text, model);
    xn_document_add(text, "]}");
}

static void show_stats(xn_context *ctx) {
    respond_about(ctx, append_one_stats);
}

/* Of that name, if it is still served. */
static void append_named_stats(xn_document *text, const xn_context *ctx, const xn_model_item *item,
                               bool *any) {
    xn_served_model model;
    xn_error ignored;
    if (xn_served_model_get(ctx->service, item->name, item->version, &model, &ignored))
        return;
    xn_document_add(text, "%s", *any ? ", " : "");
    append_served_stats(text, &model);
    xn_served_model_release(&model);
    *any = true;
}

static xn_status append_models_stats(xn_document *text, const xn_context *ctx, bool *any,
                                     xn_error *error) {
    xn_model_item *items = NULL;
    size_t count = 0;
    xn_status status =
        ctx->service->models ? xn_models_list(ctx->service->models, &items, &count, error) : XN_OK;
    for (size_t i = 0; i < count; i++)
        if (items[i].state == XN_MODEL_READY)
            append_named_stats(text, ctx, &items[i], any);
    xn_mem_free(items);
    return status;
}

static xn_status append_weights_stats(xn_document *text, const xn_context *ctx, bool *any,
                                      xn_error *error) {
    xn_store_item *items = NULL;
    size_t count = 0;
    xn_status status = xn_store_list(xn_engine_store(ctx->service->engine), &items, &count, error);
    for (size_t i = 0; i < count; i++) {
        xn_served_model model;
        xn_error ignored;
        if (xn_served_model_get(ctx->service, items[i].name, "", &model, &ignored))
            continue;
        if (model.weights) { /* else a network has the name, and was there already */
            xn_document_add(text, "%s", *any ? ", " : "");
            append_served_stats(text, &model);
            *any = true;
        }
        xn_served_model_release(&model);
    }
    xn_mem_free(items);
    return status;
}

static void show_all_stats(xn_context *ctx) {
    xn_document text = {0};
    xn_error error;
    bool any = false;
    xn_document_add(&text, "{\"model_stats\": [");
    if (append_models_stats(&text, ctx, &any, &error) ||
        append_weights_stats(&text, ctx, &any, &error)) {
        size_t length;
        xn_mem_free(xn_document_take(&text, &length));
        xn_context_fail(ctx, &error);
        return;
    }
    xn_document_add(&text, "]}");
    xn_context_json(ctx, 200, &text);
}

const xn_resource xn_model_resource = {.complete = show_model};
const xn_resource xn_model_ready_resource = {.complete = show_ready};
const xn_resource xn_model_config_resource = {.complete = show_config};
const xn_resource xn_model_stats_resource = {.complete = show_stats};
const xn_resource xn_models_stats_resource = {.complete = show_all_stats};
