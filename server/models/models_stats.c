/* models_stats.c: what requests count of models, as /metrics shows it. */
#include "models_internal.h"

#include "metrics.h"

#include <stdio.h>
#include <string.h>

typedef struct row {
    char name[XN_PROTO_MAX_NAME + 1], version[24];
    xn_model_counters *counters; /* a reference */
    xn_model_stats stats;
    bool ready;
} row;

static void take_row(const char *name, const xn_model_slot *slot, row *out) {
    snprintf(out->name, sizeof out->name, "%s", name);
    memcpy(out->version, slot->version, sizeof out->version);
    out->ready = slot->serving != NULL;
    out->counters = slot->counters;
    xn_model_counters_retain(out->counters);
}

/* The versions that were ever served; NULL without memory. */
static row *take_rows(xn_models *models, size_t *count, size_t *serving, int64_t *bytes) {
    *count = *serving = 0;
    pthread_mutex_lock(&models->mutex);
    *bytes = 0;
    size_t slots = 0;
    for (size_t i = 0; i < models->entries.count; i++)
        slots += (size_t)((const xn_model_entry *)models->entries.items[i])->slot_count;
    row *rows = xn_mem_zalloc(slots, sizeof *rows);
    for (size_t i = 0; rows && i < models->entries.count; i++) {
        const xn_model_entry *entry = models->entries.items[i];
        *serving += xn_model_serving_locked(entry) != NULL;
        for (int k = 0; k < entry->slot_count; k++) {
            const xn_model_slot *slot = &entry->slots[k];
            *bytes += slot->serving ? (int64_t)slot->serving->host_bytes : 0;
            if (slot->counters)
                take_row(entry->name, slot, &rows[(*count)++]);
        }
    }
    pthread_mutex_unlock(&models->mutex);
    return rows;
}

typedef uint64_t value_of(const row *r);
static uint64_t requests_of(const row *r) {
    return r->stats.success.count + r->stats.fail.count;
}
static uint64_t failures_of(const row *r) {
    return r->stats.fail.count;
}
static uint64_t images_of(const row *r) {
    return r->stats.inference_count;
}
static uint64_t launches_of(const row *r) {
    return r->stats.execution_count;
}
static uint64_t queue_ns_of(const row *r) {
    return r->stats.queue.ns;
}
static uint64_t compute_ns_of(const row *r) {
    return r->stats.compute_input.ns + r->stats.compute_infer.ns + r->stats.compute_output.ns;
}

static const struct {
    const char *name, *help;
    value_of *value;
    bool ns;
} counters[] = {
    {"xnord_model_requests_total", "Inference requests answered.", requests_of, false},
    {"xnord_model_failures_total", "Inference requests answered with an error.", failures_of,
     false},
    {"xnord_model_images_total", "Images computed for requests that succeeded.", images_of, false},
    {"xnord_model_executions_total", "Launches that they shared.", launches_of, false},
    {"xnord_model_queue_seconds_total", "Time that they waited for a worker.", queue_ns_of, true},
    {"xnord_model_compute_seconds_total", "Time of their launches, with transfers, a request each.",
     compute_ns_of, true},
};

/* Names are such as need no escape. */
static void add_value(xn_document *page, const char *name, const row *r, const char *value) {
    xn_document_add(page, "%s{model=\"%s\",version=\"%s\"} %s\n", name, r->name, r->version, value);
}

static void add_rows(xn_document *page, const row *rows, size_t count) {
    char text[XN_METRICS_NUMBER_MAX];
    for (size_t c = 0; c < sizeof counters / sizeof *counters; c++) {
        xn_metrics_family(page, counters[c].name, "counter", counters[c].help);
        for (size_t i = 0; i < count; i++) {
            uint64_t value = counters[c].value(&rows[i]);
            add_value(page, counters[c].name, &rows[i],
                      counters[c].ns ? xn_metrics_seconds(value, text)
                                     : xn_metrics_count(value, text));
        }
    }
    xn_metrics_family(page, "xnord_model_ready", "gauge", "Whether the model is served.");
    for (size_t i = 0; i < count; i++)
        add_value(page, "xnord_model_ready", &rows[i], rows[i].ready ? "1" : "0");
}

void xn_models_metrics(void *context, xn_document *page) {
    xn_models *models = context;
    size_t count, serving;
    int64_t bytes;
    row *rows = take_rows(models, &count, &serving, &bytes);
    for (size_t i = 0; i < count; i++) {
        xn_model_counters_read(rows[i].counters, &rows[i].stats);
        xn_model_counters_release(rows[i].counters);
    }
    if (!rows) {
        page->failed = true;
        return;
    }
    xn_metrics_family(page, "xnord_models", "gauge", "Models that are served.");
    xn_document_add(page, "xnord_models %zu\n", serving);
    xn_metrics_family(page, "xnord_models_bytes", "gauge",
                      "Host memory of the models that are served.");
    xn_document_add(page, "xnord_models_bytes %lld\n", (long long)bytes);
    add_rows(page, rows, count);
    xn_mem_free(rows);
}
