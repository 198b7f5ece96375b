/* xn_status.h: the one set of outcomes every fallible function returns, and the text that goes
 * with a failure.
 *
 * Rule: a function that can fail on its input returns xn_status and takes an xn_error * last. On
 * failure it fills the error (when not NULL) with a code, the field at fault, and a message that
 * names the field, the value it got and the limit or the set of accepted values. On success it
 * leaves the error untouched. Out-parameters are written only on success. */
#ifndef XN_STATUS_H
#define XN_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    XN_OK = 0,
    XN_ERR_MALFORMED,     /* the request cannot be understood: syntax, types, unknown fields */
    XN_ERR_UNSUPPORTED,   /* understood, but this build or backend has no such thing */
    XN_ERR_GEOMETRY,      /* well-formed but impossible: shapes that do not fit together */
    XN_ERR_LIMIT,         /* over a configured limit; xn_error.limit names it */
    XN_ERR_NOT_FOUND,     /* no weights of that name */
    XN_ERR_NO_MEMORY,     /* host memory */
    XN_ERR_DEVICE_MEMORY, /* device memory; not sticky, the device stays usable */
    XN_ERR_DEVICE_LOST,   /* sticky device error: nothing on this device can work again */
    XN_ERR_NO_DEVICE,     /* the backend has no usable device */
    XN_ERR_BUSY,          /* queue full; try again later */
    XN_ERR_DEADLINE,      /* the deadline passed first */
    XN_ERR_CANCELLED,     /* the client hung up */
    XN_ERR_DRAINING,      /* the service is shutting down */
    XN_ERR_LOADING,       /* the service is starting and may know this later */
    XN_ERR_IO,            /* a file or a socket */
    XN_ERR_INTERNAL,      /* a bug */
    XN_STATUS_COUNT
} xn_status;

typedef struct xn_error {
    xn_status status;
    char field[64];    /* dotted path of the field at fault, e.g. "input.shape"; "" if none */
    char limit[40];    /* for XN_ERR_LIMIT: the limit's name as in its flag, "max-output-bytes" */
    char message[360]; /* one sentence: field, value got, limit, what to do */
} xn_error;

/* Fills *error (if not NULL) and returns status, so that callers write
 *     return xn_fail(error, XN_ERR_GEOMETRY, "stride", "stride[0] is %d; ...", stride);
 * Both strings are truncated to fit. field may be NULL. */
xn_status xn_fail(xn_error *error, xn_status status, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for XN_ERR_LIMIT, naming the limit. */
xn_status xn_fail_limit(xn_error *error, const char *limit, const char *field, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

/* A stable lower-case identifier, e.g. "device_lost". Never NULL. */
const char *xn_status_name(xn_status status);

#ifdef __cplusplus
}
#endif
#endif
