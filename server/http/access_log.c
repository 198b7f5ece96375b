/* access_log.c: see access_log.h. What a client sent is escaped: it cannot forge a line or a
 * field. */
#include "access_log.h"

#include "address.h"
#include "clock.h"
#include "log.h"

#include <string.h>

/* Behind the path, which may be cut: numbers, an id of 128 bytes, each escaped to six, a trace. */
#define TAIL_BYTES 1024

static void put_line(xn_line *l, bool json, const xn_request *request, int status, bool delivered,
                     const char *client, double ms) {
    const char *method = xn_request_method(request), *path = xn_request_path(request);
    const char *id = xn_request_id(request), *trace = xn_request_trace(request)->trace_id;
    xn_line_text(l, json ? "{\"time\": \"" : "");
    xn_line_time(l);
    xn_line_print(
        l, json ? "\", \"level\": \"access\", \"client\": \"%s\", \"method\": \"" : " access %s \"",
        client);
    xn_line_escaped(l, method, strnlen(method, 64), json, json ? "\"" : " \"");
    xn_line_text(l, json ? "\", \"path\": \"" : " ");
    xn_line_escaped(l, path, strlen(path), json, "\"");
    xn_line_text(l, xn_line_rest(l) ? "..." : "");
    xn_line_print(l,
                  json ? "\", \"status\": %d, \"bytes_in\": %zu, \"bytes_out\": %zu, \"ms\": %.3f, "
                       : "\" %d in=%zu out=%zu ms=%.3f id=",
                  status, xn_request_bytes_in(request), xn_request_bytes_out(request), ms);
    if (json)
        xn_line_print(l, "\"delivered\": %s, \"id\": \"", status && delivered ? "true" : "false");
    xn_line_escaped(l, id, strlen(id), json, json ? "\"" : " =\"");
    if (trace[0])
        xn_line_print(l, json ? "\", \"trace_id\": \"%s" : " trace=%s", trace);
    xn_line_text(l, json ? "\"}" : status && !delivered ? " cut" : "");
    xn_line_text(l, "\n");
}

void xn_access_log(xn_access_format format, const xn_request *request, int status, bool delivered) {
    char client[XN_ADDRESS_MAX];
    xn_line l;
    double ms = (double)(xn_now_ns() - xn_request_started_ns(request)) / (double)XN_NS_PER_MS;
    if (format == XN_ACCESS_OFF)
        return;
    xn_address_text(xn_request_client(request), client);
    xn_line_begin(&l, TAIL_BYTES);
    put_line(&l, format == XN_ACCESS_JSON, request, status, delivered, client, ms);
    xn_log_line(&l);
}
