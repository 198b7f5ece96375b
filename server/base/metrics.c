/* metrics.c: counters, gauges and histograms as plain atomics, and the page that shows them.
 *
 * Updates are relaxed atomic adds: each value is exact, and related values may be one event apart
 * on a page. A histogram must be consistent in itself, so its count is not stored: it is the sum of
 * the buckets as read for the page, which is what +Inf shows. Buckets are stored separately and
 * made cumulative on the page.
 *
 * A request adds to some thirty values, whose cache lines all processors would want at once. So all
 * but gauges are in shards, by the processor that counts, and a page shows their sums. Each event
 * is added to one shard only: sums are exact and never fall.
 *
 * Tables of names stand next to the enumerations of metrics.h; every series is on every page, at
 * zero if need be, so that rates and alerts see the first event too. */
#include "metrics.h"

#include "clock.h"
#include "document.h"
#include "file.h"
#include "xn_mem.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const route_names[] = {"conv",       "weights", "infer",  "models",
                                          "repository", "shm",     "health", "metrics",
                                          "meta",       "openapi", "page",   "other"};
static const char *const reject_names[] = {"queue_full", "draining",    "unauthorized", "too_large",
                                           "malformed",  "geometry",    "framing",      "deadline",
                                           "device",     "client_gone", "no_memory",    "other"};
static const char *const stage_names[] = {"receive", "decode",   "queue",  "upload",
                                          "compute", "download", "encode", "total"};
static const char *const close_names[] = {"header_timeout", "body_timeout", "send_timeout",
                                          "idle_timeout", "client_gone"};
static const struct {
    const char *name, *help;
} gauges[] =
    {
        {"xnord_queue_depth", "Requests waiting for a worker."},
        {"xnord_queue_oldest_seconds", "How long the oldest of them has waited."},
        {"xnord_inflight_requests", "Requests accepted and not yet answered."},
        {"xnord_inflight_bytes", "Bodies, weights and outputs of the requests in flight."},
        {"xnord_connections", "Open connections."},
        {"xnord_connections_bytes", "Memory for the headers of open connections."},
        {"xnord_programs_bytes",
         "Host memory that workers run with: tensors between layers, scratch, plans."},
        {"xnord_weights", "Registered weights, by number."},
        {"xnord_weights_bytes", "Host memory of registered weights."},
        {"xnord_weights_cache_bytes", "Host memory of inline weights kept to be recognised."},
        {"xnord_weights_dir_skipped_files", "Files of --weights-dir that cannot be used."},
        {"xnord_response_cache_entries", "Answers kept."},
        {"xnord_response_cache_bytes", "Host memory of the cache of answers, inputs included."},
        {"xnord_ready", "Whether /v2/health/ready says yes."},
},
  counters[] = {
      {"xnord_weights_cache_hits_total", "Inline weights that were recognised."},
      {"xnord_weights_cache_misses_total", "Inline weights that were new."},
      {"xnord_weights_dir_loads_total", "Weights read from files of --weights-dir."},
      {"xnord_weights_dir_errors_total", "Files of --weights-dir not read, written or removed."},
      {"xnord_response_cache_hits_total", "Requests answered from the cache of answers."},
      {"xnord_response_cache_misses_total", "Requests that it had no answer for."},
      {"xnord_response_cache_bypassed_total", "Requests too large for it."},
      {"xnord_response_cache_insertions_total", "Answers taken in."},
      {"xnord_response_cache_evictions_total",
       "Answers given up for others or for lack of memory."},
      {"xnord_spans_sent_total", "Spans that the collector of --otlp-endpoint has taken."},
      {"xnord_spans_dropped_total",
       "Spans not sent: the collector was slow, away or refused them."},
      {"xnord_received_body_bytes_total", "Bytes of request bodies."},
      {"xnord_sent_body_bytes_total", "Bytes of response bodies."},
};

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])
_Static_assert(COUNT_OF(route_names) == XN_ROUTE_COUNT, "a name for each route");
_Static_assert(COUNT_OF(reject_names) == XN_REJECT_COUNT, "a name for each reason");
_Static_assert(COUNT_OF(stage_names) == XN_STAGE_COUNT, "a name for each stage");
_Static_assert(COUNT_OF(close_names) == XN_CLOSE_COUNT, "a name for each reason");
_Static_assert(COUNT_OF(gauges) == XN_GAUGE_COUNT, "a name for each gauge");
_Static_assert(COUNT_OF(counters) == XN_COUNTER_COUNT, "a name for each counter");

/* The statuses with a series of their own, in order; all others count as "other". */
static const int status_codes[] = {200, 201, 204, 304, 400, 401, 403, 404, 405, 406, 408, 411,
                                   413, 414, 415, 417, 421, 422, 429, 431, 500, 501, 503, 504};
#define CODE_COUNT (COUNT_OF(status_codes) + 1)

/* Upper bounds, inclusive, as Prometheus means "le". */
static const int64_t stage_bounds_ns[] = {
    10000,     25000,       50000,      100000,     250000,     500000,    1000000,
    2500000,   5000000,     10000000,   25000000,   50000000,   100000000, 250000000,
    500000000, XN_NS_PER_S, 2500000000, 5000000000, 10000000000};
static const int64_t size_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

typedef struct histogram {
    atomic_uint_fast64_t buckets[COUNT_OF(stage_bounds_ns) + 1];
    atomic_uint_fast64_t sum;
} histogram;

/* Made of atomic_uint_fast64_t alone: add_up. */
typedef struct events {
    _Alignas(XN_MEM_ALIGNMENT) atomic_uint_fast64_t requests[XN_ROUTE_COUNT][CODE_COUNT];
    atomic_uint_fast64_t rejected[XN_REJECT_COUNT];
    atomic_uint_fast64_t closed[XN_CLOSE_COUNT];
    atomic_uint_fast64_t counters[XN_COUNTER_COUNT];
    histogram stages[XN_STAGE_COUNT], batch_requests, batch_images;
} events;

typedef struct device_events {
    _Alignas(XN_MEM_ALIGNMENT) atomic_uint_fast64_t batches, images, busy_ns, errors;
} device_events;

/* Some 4 KiB each, so 130 KiB, and 2 KiB for each device. */
#define SHARDS 32

typedef struct device {
    _Alignas(XN_MEM_ALIGNMENT) char id[32];
    char instruction_set[32];
    atomic_int up;
    device_events shards[SHARDS];
} device;

/* Each on a cache line of its own: threads that change different ones do not wait for each other.
 */
typedef struct gauge_value {
    _Alignas(XN_MEM_ALIGNMENT) atomic_int_fast64_t value;
} gauge_value;

struct xn_metrics {
    events shards[SHARDS];
    gauge_value gauges[XN_GAUGE_COUNT];
    char version[32], backend[16];
    double start_time_s;
    xn_metrics_add_fn *more; /* set before others use the metrics */
    void *more_context;
    int device_count;
    device devices[];
};

_Static_assert(sizeof(events) % sizeof(atomic_uint_fast64_t) == 0, "whole values");
_Static_assert(COUNT_OF(size_bounds) <= COUNT_OF(stage_bounds_ns), "both fit a histogram");

/* ---- updates ---- */

static void bump(atomic_uint_fast64_t *value, int64_t amount) {
    atomic_fetch_add_explicit(value, amount > 0 ? (uint64_t)amount : 0, memory_order_relaxed);
}

static uint64_t get(const atomic_uint_fast64_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void observe(histogram *h, const int64_t *bounds, size_t count, int64_t value) {
    size_t i = 0;
    while (i < count && value > bounds[i])
        i++;
    bump(&h->buckets[i], 1);
    bump(&h->sum, value);
}

/* By the processor that the thread runs on now: it may be another one at the next call. */
static unsigned own_index(void) {
    const int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (unsigned)cpu % SHARDS;
}

static events *own_shard(xn_metrics *metrics) {
    return &metrics->shards[own_index()];
}

void xn_metrics_request(xn_metrics *metrics, xn_route_label route, int http_status) {
    assert((unsigned)route < XN_ROUTE_COUNT);
    size_t i = 0;
    while (i < COUNT_OF(status_codes) && status_codes[i] != http_status)
        i++;
    bump(&own_shard(metrics)->requests[route][i], 1);
}

void xn_metrics_rejected(xn_metrics *metrics, xn_reject_reason reason) {
    assert((unsigned)reason < XN_REJECT_COUNT);
    bump(&own_shard(metrics)->rejected[reason], 1);
}

void xn_metrics_closed(xn_metrics *metrics, xn_close_reason reason) {
    assert((unsigned)reason < XN_CLOSE_COUNT);
    bump(&own_shard(metrics)->closed[reason], 1);
}

void xn_metrics_stage(xn_metrics *metrics, xn_stage stage, int64_t ns) {
    assert((unsigned)stage < XN_STAGE_COUNT);
    observe(&own_shard(metrics)->stages[stage], stage_bounds_ns, COUNT_OF(stage_bounds_ns), ns);
}

static device *device_at(xn_metrics *metrics, int index) {
    assert(index >= 0 && index < metrics->device_count);
    return &metrics->devices[index];
}

static device_events *own_device_shard(xn_metrics *metrics, int index) {
    return &device_at(metrics, index)->shards[own_index()];
}

void xn_metrics_batch(xn_metrics *metrics, int index, int64_t requests, int64_t images,
                      int64_t busy_ns) {
    events *e = own_shard(metrics);
    device_events *d = own_device_shard(metrics, index);
    observe(&e->batch_requests, size_bounds, COUNT_OF(size_bounds), requests);
    observe(&e->batch_images, size_bounds, COUNT_OF(size_bounds), images);
    bump(&d->batches, 1);
    bump(&d->images, images);
    bump(&d->busy_ns, busy_ns);
}

void xn_metrics_device_error(xn_metrics *metrics, int index) {
    bump(&own_device_shard(metrics, index)->errors, 1);
}

void xn_metrics_device_up(xn_metrics *metrics, int index, int up) {
    atomic_store_explicit(&device_at(metrics, index)->up, up != 0, memory_order_relaxed);
}

void xn_metrics_gauge_add(xn_metrics *metrics, xn_gauge gauge, int64_t delta) {
    assert((unsigned)gauge < XN_GAUGE_COUNT);
    atomic_fetch_add_explicit(&metrics->gauges[gauge].value, delta, memory_order_relaxed);
}

void xn_metrics_gauge_set(xn_metrics *metrics, xn_gauge gauge, int64_t value) {
    assert((unsigned)gauge < XN_GAUGE_COUNT);
    atomic_store_explicit(&metrics->gauges[gauge].value, value, memory_order_relaxed);
}

int64_t xn_metrics_gauge(const xn_metrics *metrics, xn_gauge gauge) {
    assert((unsigned)gauge < XN_GAUGE_COUNT);
    return atomic_load_explicit(&metrics->gauges[gauge].value, memory_order_relaxed);
}

void xn_metrics_add(xn_metrics *metrics, xn_counter counter, int64_t amount) {
    assert((unsigned)counter < XN_COUNTER_COUNT);
    bump(&own_shard(metrics)->counters[counter], amount);
}

/* ---- sums ---- */

/* The sum over all shards of the value at that offset in each. */
static uint64_t sum_of(const void *shards, size_t shard_bytes, size_t offset) {
    uint64_t sum = 0;
    for (int i = 0; i < SHARDS; i++, offset += shard_bytes)
        sum += get((const atomic_uint_fast64_t *)(const void *)((const char *)shards + offset));
    return sum;
}

static void add_up(const xn_metrics *metrics, events *out) {
    atomic_uint_fast64_t *values = (atomic_uint_fast64_t *)(void *)out;
    for (size_t i = 0; i < sizeof *out / sizeof *values; i++)
        atomic_init(&values[i], sum_of(metrics->shards, sizeof *out, i * sizeof *values));
}

/* ---- the process, from /proc ---- */

/* The start of a small file as text; false where there is no such file. */
static bool read_small(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = xn_file_fill(fd, text, size - 1, NULL);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

static double seconds(clockid_t clock) {
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Seconds since the epoch at which this process began: field 22 of stat(5), ticks since boot. The
 * second field is the program's name, which may hold spaces and parentheses. */
static double process_start_s(void) {
    char text[1024];
    double now = seconds(CLOCK_REALTIME);
    if (!read_small("/proc/self/stat", text, sizeof text))
        return now;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return now;
    double age = seconds(CLOCK_BOOTTIME) - strtod(at, NULL) / (double)sysconf(_SC_CLK_TCK);
    return age > 0 ? now - age : now;
}

/* Resident bytes, or 0 where that is not known. */
static uint64_t process_resident_bytes(void) {
    char text[128];
    if (!read_small("/proc/self/statm", text, sizeof text))
        return 0;
    const char *at = strchr(text, ' ');
    return at ? strtoull(at, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Open descriptors, or 0 where that is not known. */
static uint64_t process_open_fds(void) {
    uint64_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    if (!directory)
        return 0;
    for (const struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count - 1; /* the directory's own */
}

/* ---- the page ---- */

void xn_metrics_family(xn_document *p, const char *name, const char *type, const char *help) {
    xn_document_add(p, "# HELP %s %s\n", name, help);
    xn_document_add(p, "# TYPE %s %s\n", name, type);
}

static void simple(xn_document *p, const char *name, const char *type, const char *help,
                   double value) {
    xn_metrics_family(p, name, type, help);
    xn_document_add(p, "%s %.17g\n", name, value);
}

const char *xn_metrics_seconds(uint64_t ns, char text[XN_METRICS_NUMBER_MAX]) {
    int n =
        snprintf(text, XN_METRICS_NUMBER_MAX, "%llu.%09llu", (unsigned long long)(ns / XN_NS_PER_S),
                 (unsigned long long)(ns % XN_NS_PER_S));
    while (text[n - 1] == '0')
        n--;
    text[text[n - 1] == '.' ? n - 1 : n] = 0;
    return text;
}

const char *xn_metrics_count(uint64_t value, char text[XN_METRICS_NUMBER_MAX]) {
    snprintf(text, XN_METRICS_NUMBER_MAX, "%llu", (unsigned long long)value);
    return text;
}

/* label: "" or "stage=\"compute\",". Values are nanoseconds shown as seconds, or plain counts. */
static void add_histogram(xn_document *p, const char *name, const char *label, const histogram *h,
                          const int64_t *bounds, size_t count, bool ns) {
    const char *(*format)(uint64_t, char *) = ns ? xn_metrics_seconds : xn_metrics_count;
    uint64_t total = 0;
    char text[XN_METRICS_NUMBER_MAX], own[64] = "";
    for (size_t i = 0; i < count; i++) {
        total += get(&h->buckets[i]);
        xn_document_add(p, "%s_bucket{%sle=\"%s\"} %llu\n", name, label,
                        format((uint64_t)bounds[i], text), (unsigned long long)total);
    }
    total += get(&h->buckets[count]);
    xn_document_add(p, "%s_bucket{%sle=\"+Inf\"} %llu\n", name, label, (unsigned long long)total);
    if (*label)
        snprintf(own, sizeof own, "{%.*s}", (int)strlen(label) - 1, label);
    xn_document_add(p, "%s_sum%s %s\n", name, own, format(get(&h->sum), text));
    xn_document_add(p, "%s_count%s %llu\n", name, own, (unsigned long long)total);
}

static void add_requests(xn_document *p, const events *sums) {
    xn_metrics_family(p, "xnord_requests_total", "counter",
                      "Requests answered, by route and HTTP status.");
    for (int route = 0; route < XN_ROUTE_COUNT; route++)
        for (size_t i = 0; i < CODE_COUNT; i++) {
            char code[16] = "other";
            if (i < COUNT_OF(status_codes))
                snprintf(code, sizeof code, "%d", status_codes[i]);
            xn_document_add(p, "xnord_requests_total{route=\"%s\",code=\"%s\"} %llu\n",
                            route_names[route], code,
                            (unsigned long long)get(&sums->requests[route][i]));
        }
}

static void add_reasons(xn_document *p, const char *name, const char *help,
                        const char *const *reasons, size_t count,
                        const atomic_uint_fast64_t *values) {
    xn_metrics_family(p, name, "counter", help);
    for (size_t i = 0; i < count; i++)
        xn_document_add(p, "%s{reason=\"%s\"} %llu\n", name, reasons[i],
                        (unsigned long long)get(&values[i]));
}

static void add_histograms(xn_document *p, const events *sums) {
    const char *name = "xnord_stage_seconds";
    xn_metrics_family(p, name, "histogram", "Time of a request's stages.");
    for (int stage = 0; stage < XN_STAGE_COUNT; stage++) {
        char label[40];
        snprintf(label, sizeof label, "stage=\"%s\",", stage_names[stage]);
        add_histogram(p, name, label, &sums->stages[stage], stage_bounds_ns,
                      COUNT_OF(stage_bounds_ns), true);
    }
    xn_metrics_family(p, "xnord_batch_requests", "histogram", "Requests that shared a launch.");
    add_histogram(p, "xnord_batch_requests", "", &sums->batch_requests, size_bounds,
                  COUNT_OF(size_bounds), false);
    xn_metrics_family(p, "xnord_batch_images", "histogram", "Images that shared a launch.");
    add_histogram(p, "xnord_batch_images", "", &sums->batch_images, size_bounds,
                  COUNT_OF(size_bounds), false);
}

/* One family over all devices; member: the field's offset in device_events. */
static void add_device_counter(xn_document *p, const xn_metrics *metrics, const char *name,
                               const char *help, size_t member, bool ns) {
    char text[XN_METRICS_NUMBER_MAX];
    xn_metrics_family(p, name, "counter", help);
    for (int i = 0; i < metrics->device_count; i++) {
        const device *d = &metrics->devices[i];
        uint64_t value = sum_of(d->shards, sizeof *d->shards, member);
        xn_document_add(p, "%s{device=\"%s\"} %s\n", name, d->id,
                        ns ? xn_metrics_seconds(value, text) : xn_metrics_count(value, text));
    }
}

static void add_devices(xn_document *p, const xn_metrics *metrics) {
    add_device_counter(p, metrics, "xnord_device_batches_total", "Launches on the device.",
                       offsetof(device_events, batches), false);
    add_device_counter(p, metrics, "xnord_device_images_total", "Images computed on the device.",
                       offsetof(device_events, images), false);
    add_device_counter(p, metrics, "xnord_device_busy_seconds_total",
                       "Time batches took on the device, summed over its workers.",
                       offsetof(device_events, busy_ns), true);
    add_device_counter(p, metrics, "xnord_device_errors_total", "Batches the device failed.",
                       offsetof(device_events, errors), false);
    xn_metrics_family(p, "xnord_device_up", "gauge", "Whether the device is fit to serve.");
    for (int i = 0; i < metrics->device_count; i++)
        xn_document_add(p, "xnord_device_up{device=\"%s\"} %d\n", metrics->devices[i].id,
                        atomic_load_explicit(&metrics->devices[i].up, memory_order_relaxed));
    xn_metrics_family(
        p, "xnord_device_info", "gauge",
        "Always 1; the instruction set of the device's kernels, where it has several.");
    for (int i = 0; i < metrics->device_count; i++)
        xn_document_add(p, "xnord_device_info{device=\"%s\",instruction_set=\"%s\"} 1\n",
                        metrics->devices[i].id, metrics->devices[i].instruction_set);
}

static void add_process(xn_document *p, const xn_metrics *metrics) {
    uint64_t resident = process_resident_bytes(), fds = process_open_fds();
    xn_metrics_family(p, "xnord_build_info", "gauge",
                      "Always 1; version and primary backend as labels.");
    xn_document_add(p, "xnord_build_info{version=\"%s\",backend=\"%s\"} 1\n", metrics->version,
                    metrics->backend);
    simple(p, "process_start_time_seconds", "gauge", "Start of the process since the Unix epoch.",
           metrics->start_time_s);
    simple(p, "process_cpu_seconds_total", "counter", "User and system CPU time spent.",
           seconds(CLOCK_PROCESS_CPUTIME_ID));
    if (resident)
        simple(p, "process_resident_memory_bytes", "gauge", "Resident memory.", (double)resident);
    if (fds)
        simple(p, "process_open_fds", "gauge", "Open file descriptors.", (double)fds);
}

char *xn_metrics_render(const xn_metrics *metrics, size_t *length) {
    xn_document p = {0};
    events sums;
    char number[XN_METRICS_NUMBER_MAX];
    add_up(metrics, &sums);
    add_requests(&p, &sums);
    add_reasons(&p, "xnord_rejected_requests_total", "Requests refused, by reason.", reject_names,
                XN_REJECT_COUNT, sums.rejected);
    add_reasons(&p, "xnord_connections_closed_total", "Connections closed early, by reason.",
                close_names, XN_CLOSE_COUNT, sums.closed);
    add_histograms(&p, &sums);
    add_devices(&p, metrics);
    for (int i = 0; i < XN_GAUGE_COUNT; i++) {
        xn_metrics_family(&p, gauges[i].name, "gauge", gauges[i].help);
        const int64_t value = xn_metrics_gauge(metrics, (xn_gauge)i);
        if (i == XN_GAUGE_QUEUE_OLDEST_NS)
            xn_document_add(&p, "%s %s\n", gauges[i].name,
                            xn_metrics_seconds((uint64_t)value, number));
        else
            xn_document_add(&p, "%s %lld\n", gauges[i].name, (long long)value);
    }
    for (int i = 0; i < XN_COUNTER_COUNT; i++) {
        xn_metrics_family(&p, counters[i].name, "counter", counters[i].help);
        xn_document_add(&p, "%s %llu\n", counters[i].name,
                        (unsigned long long)get(&sums.counters[i]));
    }
    if (metrics->more)
        metrics->more(metrics->more_context, &p);
    add_process(&p, metrics);
    return xn_document_take(&p, length);
}

/* ---- life ---- */

/* Copies a label's value, escaped as the format requires and cut to fit. */
static void copy_label(const char *value, char *out, size_t size) {
    size_t n = 0;
    for (; *value; value++) {
        bool escape = *value == '"' || *value == '\\' || *value == '\n';
        if (n + 1 + escape >= size)
            break;
        if (escape)
            out[n++] = '\\';
        out[n++] = *value == '\n' ? 'n' : *value;
    }
    out[n] = 0;
}

xn_status xn_metrics_create(const char *const *device_ids, int device_count, const char *version,
                            const char *primary_backend, xn_metrics **out, xn_error *error) {
    size_t bytes = 0;
    assert(device_count >= 0);
    xn_metrics *metrics = NULL;
    if (xn_mul_size((size_t)device_count, sizeof(device), &bytes) &&
        xn_add_size(bytes, sizeof *metrics, &bytes))
        metrics = xn_mem_zalloc(1, bytes);
    if (!metrics)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the metrics of %d devices",
                       device_count);
    metrics->device_count = device_count;
    for (int i = 0; i < device_count; i++)
        copy_label(device_ids[i], metrics->devices[i].id, sizeof metrics->devices[i].id);
    copy_label(version, metrics->version, sizeof metrics->version);
    copy_label(primary_backend, metrics->backend, sizeof metrics->backend);
    metrics->start_time_s = process_start_s();
    *out = metrics;
    return XN_OK;
}

void xn_metrics_device_isa(xn_metrics *metrics, int index, const char *instruction_set) {
    device *d = device_at(metrics, index);
    copy_label(instruction_set, d->instruction_set, sizeof d->instruction_set);
}

void xn_metrics_set_more(xn_metrics *metrics, xn_metrics_add_fn *add, void *context) {
    metrics->more = add;
    metrics->more_context = context;
}

void xn_metrics_free(xn_metrics *metrics) {
    xn_mem_free(metrics);
}
