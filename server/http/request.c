/* request.c: what the handler sees of a request; see http.h. */
#include "http_internal.h"

#include <stdio.h>
#include <string.h>

void xn_request_make_id(xn_http *http, char *id, size_t size) {
    uint64_t n = atomic_fetch_add_explicit(&http->next_id, 1, memory_order_relaxed);
    snprintf(id, size, "%08llx-%08llx", (unsigned long long)(http->id_salt & 0xffffffffu),
             (unsigned long long)n);
}

const char *xn_request_method(const xn_request *request) {
    return request->method;
}
const char *xn_request_path(const xn_request *request) {
    return request->path;
}
const struct sockaddr *xn_request_client(const xn_request *request) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info ? info->client_addr : NULL;
}
size_t xn_request_bytes_in(const xn_request *request) {
    return request->received;
}
size_t xn_request_bytes_out(const xn_request *request) {
    bool sent = request->stage == XN_REQUEST_RESPONDING && strcmp(request->method, "HEAD") != 0;
    return sent ? request->response_length : 0;
}
const char *xn_request_header(const xn_request *request, const char *name) {
    return xn_library_header(request->connection, name);
}
bool xn_request_has_length(const xn_request *request) {
    return request->has_length;
}
size_t xn_request_length(const xn_request *request) {
    return request->length;
}
int64_t xn_request_started_ns(const xn_request *request) {
    return request->started_ns;
}
int64_t xn_request_received_ns(const xn_request *request) {
    return request->received_ns;
}
const char *xn_request_id(const xn_request *request) {
    return request->id;
}
void xn_request_set_id(xn_request *request, const char *id) {
    if (!request->id_from_header)
        snprintf(request->id, sizeof request->id, "%s", id);
}
void xn_request_set_user(xn_request *request, void *user) {
    request->user = user;
}
void *xn_request_user(const xn_request *request) {
    return request->user;
}
void xn_request_receive(xn_request *request, void *buffer, size_t allowed) {
    request->body = buffer;
    request->allowed = allowed;
}
xn_client *xn_request_address_share(const xn_request *request) {
    return request->conn->address;
}

typedef struct {
    bool (*visit)(void *context, const char *key, const char *value);
    void *context;
} query_visit;

static enum MHD_Result visit_query(void *context, enum MHD_ValueKind kind, const char *key,
                                   const char *value) {
    query_visit *visit = context;
    (void)kind;
    return visit->visit(visit->context, key, value) ? MHD_YES : MHD_NO;
}

void xn_request_query(const xn_request *request,
                      bool (*visit)(void *context, const char *key, const char *value),
                      void *context) {
    query_visit state = {visit, context};
    MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, visit_query, &state);
}
