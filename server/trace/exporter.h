/* exporter.h: sends spans to an OpenTelemetry collector: a queue of fixed size, and one thread that
 * posts what is in it, in batches. No request waits for it: where the queue is full, because the
 * collector is slow or away, spans are dropped. Each span counts once, in xnord_spans_sent_total
 * when the collector has taken it (2xx), else in xnord_spans_dropped_total.
 *
 * A batch that the collector cannot take now (no connection, 429, 502, 503, 504) is sent again, up
 * to 5 times in all, after what Retry-After says or 1, 2, 4, 8 s; one that it refuses is dropped.
 */
#ifndef XN_EXPORTER_H
#define XN_EXPORTER_H

#include "metrics.h"
#include "otlp_target.h"
#include "span.h"

typedef struct xn_exporter xn_exporter;

#define XN_EXPORTER_QUEUE 2048 /* requests, each with its stages: 2.3 MB */
#define XN_EXPORTER_BATCH 256

/* Starts the thread. metrics outlives the exporter. */
xn_status xn_exporter_create(const xn_otlp_target *target, xn_metrics *metrics, xn_exporter **out,
                             xn_error *error);
/* Copies a span into the queue, or drops it. Any thread; never waits for the network. */
void xn_exporter_add(xn_exporter *exporter, const xn_span *span);

/* No more is added. What is in the queue is sent without further tries: the first failure drops the
 * rest, and so does the deadline. */
void xn_exporter_stop(xn_exporter *exporter, int64_t deadline_ns);
/* Whether that is done; waits for it until until_ns. It is so soon after the deadline, unless the
 * system still resolves the host's name. */
#define XN_EXPORTER_END_NS INT64_C(500000000)
bool xn_exporter_ended(xn_exporter *exporter, int64_t until_ns);
/* NULL-safe. After stop. One that has not ended keeps its memory, and no longer uses the metrics.
 */
void xn_exporter_free(xn_exporter *exporter);

#endif
