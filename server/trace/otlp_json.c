/* otlp_json.c: see otlp_json.h. */
#include "otlp_json.h"

#include "clock.h"
#include "document.h"
#include "xn_mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };
/* Of a span: that it is sampled, and where its parent is. */
enum { FLAG_SAMPLED = 1, FLAG_KNOWN_REMOTE = 0x100, FLAG_REMOTE = 0x200 };

void xn_span_set_path(xn_span *span, const char *path) {
    size_t n = 0;
    for (; *path; path++) {
        const unsigned char c = (unsigned char)*path;
        const bool plain = c > ' ' && c < 0x7f && !strchr("?#%", c);
        if (n + (plain ? 1 : 3) >= sizeof span->path)
            break;
        n += (size_t)snprintf(span->path + n, sizeof span->path - n, plain ? "%c" : "%%%02X", c);
    }
    span->path[n] = '\0';
}

void xn_span_add_stage(xn_span *span, const char *name, int64_t started_ns, int64_t ns) {
    if (ns > 0 && span->stage_count < XN_SPAN_STAGES)
        span->stages[span->stage_count++] = (xn_span_stage){name, started_ns, started_ns + ns};
}

/* ---- attributes ---- */

static void add_text(xn_document *out, const char *comma, const char *key, const char *value) {
    xn_document_add(out, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":", comma, key);
    xn_document_string(out, value);
    xn_document_add(out, "}}");
}

static void add_number(xn_document *out, const char *key, int64_t value) {
    xn_document_add(out, ",{\"key\":\"%s\",\"value\":{\"intValue\":\"%lld\"}}", key,
                    (long long)value);
}

/* "name:80", "[::1]:80", "name": what is in front of the port, without brackets. */
static void add_address(xn_document *out, const char *address_key, const char *port_key,
                        const char *text) {
    const bool v6 = *text == '[';
    char address[128];
    snprintf(address, sizeof address, "%s", text + v6);
    char *end = address + strcspn(address, v6 ? "]" : ":"), *port = end + (v6 && *end);
    port = *port == ':' ? port + 1 : NULL;
    *end = '\0';
    add_text(out, ",", address_key, address);
    if (port && *port && strlen(port) <= 5 && port[strspn(port, "0123456789")] == '\0')
        add_number(out, port_key, atoi(port));
}

static const char *known_method(const char *method) {
    static const char *const all[] = {"GET",     "HEAD",    "POST",  "PUT",  "DELETE",
                                      "CONNECT", "OPTIONS", "TRACE", "PATCH"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(method, all[i]))
            return method;
    return "_OTHER";
}

static void add_status(xn_document *out, const xn_span *span) {
    char status[16];
    if (span->status)
        add_number(out, "http.response.status_code", span->status);
    snprintf(status, sizeof status, "%d", span->status);
    if (span->status >= 500 || !span->status)
        add_text(out, ",", "error.type", span->status ? status : "client_gone");
}

static void add_attributes(xn_document *out, const xn_span *span) {
    const char *method = known_method(span->method);
    xn_document_add(out, ",\"attributes\":[");
    add_text(out, "", "http.request.method", method);
    if (strcmp(method, span->method) != 0)
        add_text(out, ",", "http.request.method_original", span->method);
    add_text(out, ",", "url.scheme", span->https ? "https" : "http");
    add_text(out, ",", "url.path", span->path);
    if (span->route[0])
        add_text(out, ",", "http.route", span->route);
    add_status(out, span);
    if (span->host[0])
        add_address(out, "server.address", "server.port", span->host);
    if (strcmp(span->client, "-") != 0)
        add_address(out, "client.address", "client.port", span->client);
    add_text(out, ",", "xnord.request.id", span->id);
    xn_document_add(out, "]");
}

static void add_batch(xn_document *out, const xn_span *span) {
    xn_document_add(out, ",\"attributes\":[");
    add_text(out, "", "xnord.device", span->device);
    add_number(out, "xnord.batch.requests", span->batch_requests);
    add_number(out, "xnord.batch.images", span->batch_images);
    xn_document_add(out, "]");
}

/* ---- spans ---- */

static int64_t time_of_day(const xn_span *span, int64_t ns) {
    return span->wall_ns - (span->ended_ns - ns);
}

/* All of a span but its attributes and its end. */
static void begin_span(xn_document *out, const xn_span *span, const char *id, const char *parent,
                       int kind, int64_t started_ns, int64_t ended_ns) {
    xn_document_add(out, "{\"traceId\":\"%s\",\"spanId\":\"%s\"", span->trace.trace_id, id);
    if (*parent)
        xn_document_add(out, ",\"parentSpanId\":\"%s\"", parent);
    xn_document_add(out, ",\"kind\":%d,\"startTimeUnixNano\":\"%lld\"", kind,
                    (long long)time_of_day(span, started_ns));
    xn_document_add(out, ",\"endTimeUnixNano\":\"%lld\"", (long long)time_of_day(span, ended_ns));
    const bool remote = kind == KIND_SERVER && *parent;
    xn_document_add(out, ",\"flags\":%d,\"name\":",
                    FLAG_SAMPLED | FLAG_KNOWN_REMOTE | (remote ? FLAG_REMOTE : 0));
}

static void add_request(xn_document *out, const xn_span *span) {
    const char *method = known_method(span->method);
    char name[sizeof span->method + sizeof span->route + 1];
    begin_span(out, span, span->trace.span_id, span->trace.parent_id, KIND_SERVER, span->started_ns,
               span->ended_ns);
    snprintf(name, sizeof name, "%s%s%s", *method == '_' ? "HTTP" : method,
             span->route[0] ? " " : "", span->route);
    xn_document_string(out, name);
    add_attributes(out, span);
    if (span->status >= 500 || !span->status)
        xn_document_add(out, ",\"status\":{\"code\":%d}", STATUS_ERROR);
    xn_document_add(out, "}");
}

static void add_stage(xn_document *out, const xn_span *span, const xn_span_stage *stage) {
    char id[17];
    out->failed = !xn_trace_make_id(id, 8) || out->failed;
    xn_document_add(out, ",");
    begin_span(out, span, id, span->trace.span_id, KIND_INTERNAL, stage->started_ns,
               stage->ended_ns);
    xn_document_string(out, stage->name);
    if (!strcmp(stage->name, "compute"))
        add_batch(out, span);
    xn_document_add(out, "}");
}

char *xn_otlp_json(const xn_otlp_resource *resource, const xn_span *spans, int first, int count,
                   int size, size_t *length) {
    xn_document out = {0};
    xn_document_add(&out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    add_text(&out, "", "service.name", "xnord");
    add_text(&out, ",", "service.version", resource->version);
    add_text(&out, ",", "service.instance.id", resource->instance_id);
    add_text(&out, ",", "host.name", resource->host_name);
    xn_document_add(&out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"xnord\"},\"spans\":[");
    for (int i = 0; i < count; i++) {
        const xn_span *span = &spans[(first + i) % size];
        xn_document_add(&out, "%s", i ? "," : "");
        add_request(&out, span);
        for (int s = 0; s < span->stage_count; s++)
            add_stage(&out, span, &span->stages[s]);
    }
    xn_document_add(&out, "]}]}]}");
    return xn_document_take(&out, length);
}
