/* status.c: filling errors, and the names of outcomes. */
#include "xn_status.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const names[XN_STATUS_COUNT] = {
    [XN_OK] = "ok",
    [XN_ERR_MALFORMED] = "malformed",
    [XN_ERR_UNSUPPORTED] = "unsupported",
    [XN_ERR_GEOMETRY] = "geometry",
    [XN_ERR_LIMIT] = "limit",
    [XN_ERR_NOT_FOUND] = "not_found",
    [XN_ERR_NO_MEMORY] = "no_memory",
    [XN_ERR_DEVICE_MEMORY] = "device_memory",
    [XN_ERR_DEVICE_LOST] = "device_lost",
    [XN_ERR_NO_DEVICE] = "no_device",
    [XN_ERR_BUSY] = "busy",
    [XN_ERR_DEADLINE] = "deadline",
    [XN_ERR_CANCELLED] = "cancelled",
    [XN_ERR_DRAINING] = "draining",
    [XN_ERR_LOADING] = "loading",
    [XN_ERR_IO] = "io",
    [XN_ERR_INTERNAL] = "internal",
};

const char *xn_status_name(xn_status status) {
    return (unsigned)status < XN_STATUS_COUNT ? names[status] : "unknown";
}

/* The message may be formatted from the error's own strings, so everything is formatted before
 * anything is written. */
static void fill(xn_error *error, xn_status status, const char *limit, const char *field,
                 const char *format, va_list args) __attribute__((format(printf, 5, 0)));
static void fill(xn_error *error, xn_status status, const char *limit, const char *field,
                 const char *format, va_list args) {
    xn_error made = {.status = status};
    vsnprintf(made.message, sizeof made.message, format, args);
    snprintf(made.field, sizeof made.field, "%s", field ? field : "");
    snprintf(made.limit, sizeof made.limit, "%s", limit ? limit : "");
    *error = made;
}

xn_status xn_fail(xn_error *error, xn_status status, const char *field, const char *format, ...) {
    if (error) {
        va_list args;
        va_start(args, format);
        fill(error, status, NULL, field, format, args);
        va_end(args);
    }
    return status;
}

xn_status xn_fail_limit(xn_error *error, const char *limit, const char *field, const char *format,
                        ...) {
    if (error) {
        va_list args;
        va_start(args, format);
        fill(error, XN_ERR_LIMIT, limit, field, format, args);
        va_end(args);
    }
    return XN_ERR_LIMIT;
}
