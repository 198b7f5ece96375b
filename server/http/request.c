/* request.c: what the handler sees of a request; see http.h. */
#include "http_internal.h"

#include "config.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

void xn_request_make_id(xn_http *http, char id[XN_PROTO_MAX_ID + 1]) {
    uint64_t n = atomic_fetch_add_explicit(&http->next_id, 1, memory_order_relaxed);
    snprintf(id, XN_PROTO_MAX_ID + 1, "%08x-%08llx", (unsigned)http->id_salt,
             (unsigned long long)n);
}

/* ---- memory ---- */

/* The request, then its room. What is kept with a connection counts for the rest of what it may
 * hold. */
#define ROOM_AT ((sizeof(xn_request) + XN_MEM_ALIGNMENT - 1) / XN_MEM_ALIGNMENT * XN_MEM_ALIGNMENT)
#define ROOM_BYTES ((size_t)2560)
_Static_assert(ROOM_AT + ROOM_BYTES <= 3 * XN_CONNECTION_REQUEST_BYTES / 4, "what it counts for");

struct xn_request_block {
    _Alignas(XN_MEM_ALIGNMENT) struct xn_request_block *next;
};

void *xn_request_memory(void) {
    return xn_mem_alloc(ROOM_AT + ROOM_BYTES);
}

void xn_request_memory_free(xn_request *request) {
    while (request->blocks) {
        struct xn_request_block *next = request->blocks->next;
        xn_mem_free(request->blocks);
        request->blocks = next;
    }
}

static void *take_block(xn_request *request, size_t bytes) {
    size_t total;
    struct xn_request_block *block =
        xn_add_size(sizeof *block, bytes, &total) ? xn_mem_zalloc(1, total) : NULL;
    if (!block)
        return NULL;
    block->next = request->blocks;
    request->blocks = block;
    return block + 1;
}

void *xn_request_alloc(xn_request *request, size_t bytes) {
    if (bytes > ROOM_BYTES - request->room_used)
        return take_block(request, bytes);
    void *memory = (char *)request + ROOM_AT + request->room_used;
    request->room_used += (bytes + XN_MEM_ALIGNMENT - 1) / XN_MEM_ALIGNMENT * XN_MEM_ALIGNMENT;
    if (request->room_used > ROOM_BYTES)
        request->room_used = ROOM_BYTES;
    return memset(memory, 0, bytes);
}

void xn_request_retain(xn_request *request) {
    request->close = true;
    request->retained_address = request->conn->address;
    request->conn->address = NULL;
    request->conn->memory = NULL;
}

void xn_request_release(xn_request *request) {
    xn_client_put(request->http->admission, request->retained_address);
    xn_request_memory_free(request);
    xn_mem_free(request);
}

size_t xn_request_room(const xn_request *request) {
    return ROOM_BYTES - request->room_used;
}

void **xn_request_connection_data(const xn_request *request) {
    return &request->conn->data;
}

/* ---- what it says ---- */

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
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}
bool xn_request_has_body(const xn_request *request) {
    return request->has_body;
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
    size_t length = strnlen(id, sizeof request->id - 1);
    if (request->id_from_header)
        return;
    memcpy(request->id, id, length);
    request->id[length] = '\0';
}
const xn_trace *xn_request_trace(const xn_request *request) {
    return &request->trace;
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
xn_client *xn_request_address_client(const xn_request *request) {
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
