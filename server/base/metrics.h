/* metrics.h: what /metrics shows, in Prometheus text format 0.0.4. Closed label sets: every label
 * value comes from an enumeration here or from the fixed list of devices given at creation, so a
 * client cannot grow the output. Updates are atomic adds; safe from any thread. Base units:
 * seconds and bytes. */
#ifndef XN_METRICS_H
#define XN_METRICS_H

#include "xn_status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct xn_metrics xn_metrics;
struct xn_document;

typedef enum {
    XN_ROUTE_CONV,
    XN_ROUTE_WEIGHTS,
    XN_ROUTE_INFER,
    XN_ROUTE_MODELS,
    XN_ROUTE_REPOSITORY,
    XN_ROUTE_SHM,
    XN_ROUTE_HEALTH,
    XN_ROUTE_METRICS,
    XN_ROUTE_META,
    XN_ROUTE_OPENAPI,
    XN_ROUTE_PAGE,
    XN_ROUTE_OTHER,
    XN_ROUTE_COUNT
} xn_route_label; /* label values: the names in lower case */

typedef enum {
    XN_REJECT_QUEUE_FULL,
    XN_REJECT_DRAINING,
    XN_REJECT_UNAUTHORIZED,
    XN_REJECT_TOO_LARGE,
    XN_REJECT_MALFORMED,
    XN_REJECT_GEOMETRY,
    XN_REJECT_FRAMING,
    XN_REJECT_DEADLINE,
    XN_REJECT_DEVICE,
    XN_REJECT_CLIENT_GONE,
    XN_REJECT_NO_MEMORY,
    XN_REJECT_OTHER,
    XN_REJECT_COUNT
} xn_reject_reason; /* label values: the names in lower case */

typedef enum {
    XN_STAGE_RECEIVE,
    XN_STAGE_DECODE,
    XN_STAGE_QUEUE,
    XN_STAGE_UPLOAD,
    XN_STAGE_COMPUTE,
    XN_STAGE_DOWNLOAD,
    XN_STAGE_ENCODE,
    XN_STAGE_TOTAL,
    XN_STAGE_COUNT
} xn_stage;

typedef enum {
    XN_CLOSE_HEADER_TIMEOUT,
    XN_CLOSE_BODY_TIMEOUT,
    XN_CLOSE_SEND_TIMEOUT,
    XN_CLOSE_IDLE_TIMEOUT,
    XN_CLOSE_CLIENT_GONE,
    XN_CLOSE_COUNT
} xn_close_reason;

typedef enum {
    XN_GAUGE_QUEUE_DEPTH,            /* xnord_queue_depth: waiting for a worker */
    XN_GAUGE_QUEUE_OLDEST_NS,        /* xnord_queue_oldest_seconds: set before a page is shown */
    XN_GAUGE_INFLIGHT,               /* xnord_inflight_requests: accepted and not yet answered */
    XN_GAUGE_INFLIGHT_BYTES,         /* xnord_inflight_bytes */
    XN_GAUGE_CONNECTIONS,            /* xnord_connections */
    XN_GAUGE_CONNECTIONS_BYTES,      /* xnord_connections_bytes: what their headers may take */
    XN_GAUGE_PROGRAMS_BYTES,         /* xnord_programs_bytes: what workers keep to run with */
    XN_GAUGE_WEIGHTS,                /* xnord_weights: registered */
    XN_GAUGE_WEIGHTS_BYTES,          /* xnord_weights_bytes */
    XN_GAUGE_WEIGHTS_CACHE_BYTES,    /* xnord_weights_cache_bytes: inline ones */
    XN_GAUGE_WEIGHTS_DIR_SKIPPED,    /* xnord_weights_dir_skipped_files: of no use */
    XN_GAUGE_RESPONSE_CACHE_ENTRIES, /* xnord_response_cache_entries */
    XN_GAUGE_RESPONSE_CACHE_BYTES,   /* xnord_response_cache_bytes */
    XN_GAUGE_READY,                  /* xnord_ready: 0 or 1 */
    XN_GAUGE_COUNT
} xn_gauge;

typedef enum {
    XN_COUNTER_CACHE_HITS,                /* xnord_weights_cache_hits_total */
    XN_COUNTER_CACHE_MISSES,              /* xnord_weights_cache_misses_total */
    XN_COUNTER_WEIGHTS_DIR_LOADS,         /* xnord_weights_dir_loads_total */
    XN_COUNTER_WEIGHTS_DIR_ERRORS,        /* xnord_weights_dir_errors_total */
    XN_COUNTER_RESPONSE_CACHE_HITS,       /* xnord_response_cache_hits_total */
    XN_COUNTER_RESPONSE_CACHE_MISSES,     /* xnord_response_cache_misses_total */
    XN_COUNTER_RESPONSE_CACHE_BYPASSED,   /* xnord_response_cache_bypassed_total */
    XN_COUNTER_RESPONSE_CACHE_INSERTIONS, /* xnord_response_cache_insertions_total */
    XN_COUNTER_RESPONSE_CACHE_EVICTIONS,  /* xnord_response_cache_evictions_total */
    XN_COUNTER_SPANS_SENT,                /* xnord_spans_sent_total */
    XN_COUNTER_SPANS_DROPPED,             /* xnord_spans_dropped_total */
    XN_COUNTER_RECEIVED_BYTES,
    XN_COUNTER_SENT_BYTES, /* xnord_{received,sent}_body_bytes_total */
    XN_COUNTER_COUNT
} xn_counter;

/* device_ids: "cuda:0", "cpu", ... copied. primary: the backend that "auto" means. */
xn_status xn_metrics_create(const char *const *device_ids, int device_count, const char *version,
                            const char *primary_backend, xn_metrics **out, xn_error *error);
void xn_metrics_free(xn_metrics *metrics);

void xn_metrics_request(xn_metrics *metrics, xn_route_label route, int http_status);
void xn_metrics_rejected(xn_metrics *metrics, xn_reject_reason reason);
void xn_metrics_closed(xn_metrics *metrics, xn_close_reason reason);
void xn_metrics_stage(xn_metrics *metrics, xn_stage stage, int64_t ns); /* histogram */
void xn_metrics_batch(xn_metrics *metrics, int device, int64_t requests, int64_t images,
                      int64_t busy_ns); /* batch-size histograms and per-device counters */
void xn_metrics_device_error(xn_metrics *metrics, int device);
void xn_metrics_device_up(xn_metrics *metrics, int device, int up);
/* Once, before others use the metrics: xnord_device_info's label. */
void xn_metrics_device_isa(xn_metrics *metrics, int device, const char *instruction_set);
void xn_metrics_gauge_add(xn_metrics *metrics, xn_gauge gauge, int64_t delta);
void xn_metrics_gauge_set(xn_metrics *metrics, xn_gauge gauge, int64_t value);
int64_t xn_metrics_gauge(const xn_metrics *metrics, xn_gauge gauge);
void xn_metrics_add(xn_metrics *metrics, xn_counter counter, int64_t amount);

/* What else belongs on the page: add is called whenever it is rendered, with the context. Set while
 * nothing renders; NULL: nothing. */
typedef void xn_metrics_add_fn(void *context, struct xn_document *page);
void xn_metrics_set_more(xn_metrics *metrics, xn_metrics_add_fn *add, void *context);

/* The two lines in front of a family's series; type: "counter", "gauge", "histogram". */
void xn_metrics_family(struct xn_document *page, const char *name, const char *type,
                       const char *help);
/* As the page writes numbers: nanoseconds as seconds, exactly and without zeros at the end, and
 * plain counts. Both return text. */
#define XN_METRICS_NUMBER_MAX 40
const char *xn_metrics_seconds(uint64_t ns, char text[XN_METRICS_NUMBER_MAX]);
const char *xn_metrics_count(uint64_t value, char text[XN_METRICS_NUMBER_MAX]);

/* The whole page into fresh memory (xn_mem_free); NULL without memory. */
char *xn_metrics_render(const xn_metrics *metrics, size_t *length);

#endif
