/* access_log.c: see access_log.h. What a client sent is escaped: it cannot forge a line or a
 * field. */
#include "access_log.h"

#include "address.h"
#include "clock.h"
#include "log.h"

#include <string.h>

/* Behind the path, which may be cut: numbers, an id of 128 bytes, each escaped to six, a trace. */
#define TAIL_BYTES 1024

static void put_text_line(xn_line *l, const xn_request *request, int status, bool delivered,
                          const char *client, double ms) {
    const char *path = xn_request_path(request), *id = xn_request_id(request);
    const char *trace = xn_request_trace(request)->trace_id;
    xn_line_time(l);
    xn_line_print(l, " access %s \"", client);
    xn_line_escaped(l, xn_request_method(request), strnlen(xn_request_method(request), 64), false,
                    " \"");
    xn_line_text(l, " ");
    xn_line_escaped(l, path, strlen(path), false, "\"");
    bool cut = xn_line_rest(l);
    xn_line_print(l, "%s\" %d in=%zu out=%zu ms=%.3f id=", cut ? "..." : "", status,
                  xn_request_bytes_in(request), xn_request_bytes_out(request), ms);
    xn_line_escaped(l, id, strlen(id), false, " =\"");
    if (trace[0])
        xn_line_print(l, " trace=%s", trace);
    xn_line_text(l, status && !delivered ? " cut\n" : "\n");
}

static void put_json_line(xn_line *l, const xn_request *request, int status, bool delivered,
                          const char *client, double ms) {
    const char *path = xn_request_path(request), *id = xn_request_id(request);
    const char *trace = xn_request_trace(request)->trace_id;
    xn_line_text(l, "{\"time\": \"");
    xn_line_time(l);
    xn_line_print(l, "\", \"level\": \"access\", \"client\": \"%s\", \"method\": \"", client);
    xn_line_escaped(l, xn_request_method(request), strnlen(xn_request_method(request), 64), true,
                    "\"");
    xn_line_text(l, "\", \"path\": \"");
    xn_line_escaped(l, path, strlen(path), true, "\"");
    bool cut = xn_line_rest(l);
    xn_line_print(l,
                  "%s\", \"status\": %d, \"bytes_in\": %zu, \"bytes_out\": %zu, \"ms\": %.3f, "
                  "\"delivered\": %s, \"id\": \"",
                  cut ? "..." : "", status, xn_request_bytes_in(request),
                  xn_request_bytes_out(request), ms, status && delivered ? "true" : "false");
    xn_line_escaped(l, id, strlen(id), true, "\"");
    if (trace[0])
        xn_line_print(l, "\", \"trace_id\": \"%s", trace);
    xn_line_text(l, "\"}\n");
}

void xn_access_log(xn_access_format format, const xn_request *request, int status, bool delivered) {
    char client[XN_ADDRESS_MAX];
    xn_line l;
    double ms = (double)(xn_now_ns() - xn_request_started_ns(request)) / (double)XN_NS_PER_MS;
    if (format == XN_ACCESS_OFF)
        return;
    xn_address_text(xn_request_client(request), client);
    xn_line_begin(&l, TAIL_BYTES);
    (format == XN_ACCESS_JSON ? put_json_line : put_text_line)(&l, request, status, delivered,
                                                               client, ms);
    xn_log_line(&l);
}
