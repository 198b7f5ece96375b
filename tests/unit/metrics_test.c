/* metrics_test.c: the page, read by a small strict parser of the text format 0.0.4, and the
 * values on it. */
#include "metrics.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SAMPLES_MAX 1000
#define FAMILIES_MAX 64

typedef struct sample {
    char series[160]; /* name and labels as written */
    char name[64];
    double value;
    int family;
} sample;

static struct parsed {
    sample samples[SAMPLES_MAX];
    int count, family_count;
    struct {
        char name[64], type[16];
    } families[FAMILIES_MAX];
} parsed;

static size_t name_length(const char *at) {
    size_t n = 0;
    while (isalpha((unsigned char)at[n]) || at[n] == '_' || at[n] == ':' ||
           (n && isdigit((unsigned char)at[n])))
        n++;
    return n;
}

/* {a="b",c="d\"e"} to its end. */
static const char *skip_labels(const char *at) {
    if (*at != '{')
        return at;
    at++;
    while (*at != '}') {
        size_t n = name_length(at);
        ck_assert_msg(n && at[n] == '=' && at[n + 1] == '"', "bad label at: %.60s", at);
        for (at += n + 2; *at != '"'; at++) {
            ck_assert_msg(*at && *at != '\n', "open label value");
            if (*at == '\\') {
                at++;
                ck_assert_msg(*at == '\\' || *at == '"' || *at == 'n', "bad escape");
            }
        }
        if (at[1] == '}')
            return at + 2;
        ck_assert_msg(at[1] == ',', "bad labels at: %.60s", at);
        at += 2;
    }
    return at + 1;
}

static bool belongs(const char *name, int family) {
    const char *of = parsed.families[family].name;
    size_t n = strlen(of);
    if (strncmp(name, of, n))
        return false;
    if (strcmp(parsed.families[family].type, "histogram"))
        return !name[n];
    return !strcmp(name + n, "_bucket") || !strcmp(name + n, "_sum") || !strcmp(name + n, "_count");
}

static void parse_sample(const char *line) {
    ck_assert_int_lt(parsed.count, SAMPLES_MAX);
    sample *s = &parsed.samples[parsed.count++];
    size_t n = name_length(line);
    ck_assert_msg(n && n < sizeof s->name, "bad name: %.60s", line);
    memcpy(s->name, line, n);
    s->name[n] = 0;
    const char *end = skip_labels(line + n);
    ck_assert_uint_lt((size_t)(end - line), sizeof s->series);
    memcpy(s->series, line, (size_t)(end - line));
    s->series[end - line] = 0;
    ck_assert_msg(*end == ' ', "no value: %.80s", line);
    char *rest = NULL;
    s->value = strtod(end + 1, &rest);
    ck_assert_msg(rest > end + 1 && *rest == '\n', "bad value: %.80s", line);
    s->family = parsed.family_count - 1;
    ck_assert_msg(s->family >= 0 && belongs(s->name, s->family), "%s stands under another family",
                  s->name);
    for (int i = 0; i + 1 < parsed.count; i++)
        ck_assert_msg(strcmp(parsed.samples[i].series, s->series), "%s twice", s->series);
}

static void parse_type(const char *line, const char *helped) {
    char name[64], type[16];
    ck_assert_int_eq(sscanf(line, "# TYPE %63s %15s", name, type), 2);
    ck_assert_str_eq(name, helped);
    ck_assert_int_lt(parsed.family_count, FAMILIES_MAX);
    for (int i = 0; i < parsed.family_count; i++)
        ck_assert_msg(strcmp(parsed.families[i].name, name), "family %s twice", name);
    bool total = strlen(name) > 6 && !strcmp(name + strlen(name) - 6, "_total");
    if (!strcmp(type, "counter"))
        ck_assert_msg(total, "counter %s does not end in _total", name);
    else
        ck_assert_msg(!total && (!strcmp(type, "gauge") || !strcmp(type, "histogram")), "%s", name);
    strcpy(parsed.families[parsed.family_count].type, type);
    strcpy(parsed.families[parsed.family_count++].name, name);
}

static void parse(const char *page) {
    char helped[64] = "";
    memset(&parsed, 0, sizeof parsed);
    for (const char *line = page; *line; line = strchr(line, '\n') + 1) {
        ck_assert_msg(strchr(line, '\n') != NULL, "the last line has no end");
        if (!strncmp(line, "# HELP ", 7))
            ck_assert_int_eq(sscanf(line, "# HELP %63s", helped), 1);
        else if (*line == '#')
            parse_type(line, helped);
        else
            parse_sample(line);
    }
}

static const sample *find(const char *series) {
    for (int i = 0; i < parsed.count; i++)
        if (!strcmp(parsed.samples[i].series, series))
            return &parsed.samples[i];
    return NULL;
}

static double value_of(const char *series) {
    const sample *s = find(series);
    ck_assert_msg(s != NULL, "no %s", series);
    return s->value;
}

/* Every histogram: bounds that grow, counts that do not fall, +Inf equal to _count. */
static void check_histograms(void) {
    double bound = -INFINITY, count = 0;
    int histograms = 0;
    for (int i = 0; i < parsed.count; i++) {
        const sample *s = &parsed.samples[i];
        if (strcmp(parsed.families[s->family].type, "histogram"))
            continue;
        const char *le = strstr(s->series, "le=\"");
        if (le) {
            double next = strtod(le + 4, NULL);
            ck_assert_msg(next > bound && s->value >= count, "%s", s->series);
            bound = next;
            count = s->value;
        } else if (strstr(s->series, "_count")) {
            ck_assert_msg(isinf(bound), "%s without +Inf", s->series);
            ck_assert_msg(s->value == count, "%s differs from +Inf", s->series);
            bound = -INFINITY;
            count = 0;
            histograms++;
        }
    }
    ck_assert_int_eq(histograms, XN_STAGE_COUNT + 2);
}

static void render(const xn_metrics *metrics) {
    size_t length = 0;
    char *page = xn_metrics_render(metrics, &length);
    ck_assert_ptr_nonnull(page);
    ck_assert_uint_eq(strlen(page), length);
    parse(page);
    check_histograms();
    xn_mem_free(page);
}

static xn_metrics *make(void) {
    static const char *const ids[] = {"cuda:0", "cpu"};
    xn_metrics *metrics = NULL;
    xn_error error = {0};
    ck_assert_int_eq(xn_metrics_create(ids, 2, "0.1.0", "cuda", &metrics, &error), XN_OK);
    return metrics;
}

START_TEST(fresh_page_has_every_series_at_zero) {
    xn_metrics *metrics = make();
    render(metrics);
    ck_assert_int_eq(parsed.count, XN_ROUTE_COUNT * 25 + XN_REJECT_COUNT + XN_CLOSE_COUNT +
                                       XN_STAGE_COUNT * (19 + 3) + 2 * (11 + 3) + 2 * 6 +
                                       XN_GAUGE_COUNT + XN_COUNTER_COUNT + 5);
    for (int i = 0; i < parsed.count; i++) {
        const sample *s = &parsed.samples[i];
        if (strncmp(s->name, "process_", 8) && strcmp(s->name, "xnord_build_info") &&
            strcmp(s->name, "xnord_device_info"))
            ck_assert_msg(s->value == 0, "%s is %g", s->series, s->value);
    }
    ck_assert(value_of("xnord_build_info{version=\"0.1.0\",backend=\"cuda\"}") == 1);
    xn_metrics_free(metrics);
    xn_metrics_free(NULL);
}
END_TEST

START_TEST(process_values_are_plausible) {
    struct timespec now;
    xn_metrics *metrics = make();
    render(metrics);
    clock_gettime(CLOCK_REALTIME, &now);
    double start = value_of("process_start_time_seconds");
    ck_assert_msg(start > (double)now.tv_sec - 86400 && start <= (double)now.tv_sec + 1, "%f",
                  start);
    ck_assert(value_of("process_resident_memory_bytes") > 100 * 1024);
    ck_assert(value_of("process_cpu_seconds_total") >= 0);
    double fds = value_of("process_open_fds");
    int open_fds = 0;
    for (int fd = 0; fd < 4096; fd++)
        open_fds += fcntl(fd, F_GETFD) >= 0;
    ck_assert_int_eq((int)fds, open_fds);
    FILE *more = fopen("/dev/null", "r");
    render(metrics);
    ck_assert(value_of("process_open_fds") == fds + 1);
    fclose(more);
    xn_metrics_free(metrics);
}
END_TEST

START_TEST(requests_by_route_and_code) {
    static const int codes[] = {200, 201, 204, 304, 400, 401, 404, 405, 406, 408, 411,
                                413, 415, 417, 422, 429, 431, 500, 501, 503, 504};
    static const char *const routes[] = {"conv",       "weights", "infer",  "models",
                                         "repository", "shm",     "health", "metrics",
                                         "meta",       "openapi", "page",   "other"};
    xn_metrics *metrics = make();
    for (int r = 0; r < XN_ROUTE_COUNT; r++) {
        for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++)
            for (size_t n = 0; n < c + (size_t)r + 1; n++)
                xn_metrics_request(metrics, (xn_route_label)r, codes[c]);
        xn_metrics_request(metrics, (xn_route_label)r, 418);
        xn_metrics_request(metrics, (xn_route_label)r, -1);
    }
    render(metrics);
    for (int r = 0; r < XN_ROUTE_COUNT; r++) {
        char series[100];
        for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
            snprintf(series, sizeof series, "xnord_requests_total{route=\"%s\",code=\"%d\"}",
                     routes[r], codes[c]);
            ck_assert_msg(value_of(series) == (double)(c + (size_t)r + 1), "%s", series);
        }
        snprintf(series, sizeof series, "xnord_requests_total{route=\"%s\",code=\"other\"}",
                 routes[r]);
        ck_assert(value_of(series) == 2);
    }
    xn_metrics_free(metrics);
}
END_TEST

START_TEST(reasons_gauges_and_counters) {
    static const char *const rejects[] = {"queue_full", "draining",    "unauthorized", "too_large",
                                          "malformed",  "geometry",    "framing",      "deadline",
                                          "device",     "client_gone", "no_memory",    "other"};
    static const char *const closes[] = {"header_timeout", "body_timeout", "send_timeout",
                                         "idle_timeout", "client_gone"};
    static const char *const gauges[] = {"xnord_queue_depth",
                                         "xnord_queue_oldest_seconds",
                                         "xnord_inflight_requests",
                                         "xnord_inflight_bytes",
                                         "xnord_connections",
                                         "xnord_connections_bytes",
                                         "xnord_programs_bytes",
                                         "xnord_weights",
                                         "xnord_weights_bytes",
                                         "xnord_weights_cache_bytes",
                                         "xnord_weights_dir_skipped_files",
                                         "xnord_response_cache_entries",
                                         "xnord_response_cache_bytes",
                                         "xnord_ready"};
    static const char *const counters[] = {"xnord_weights_cache_hits_total",
                                           "xnord_weights_cache_misses_total",
                                           "xnord_weights_dir_loads_total",
                                           "xnord_weights_dir_errors_total",
                                           "xnord_response_cache_hits_total",
                                           "xnord_response_cache_misses_total",
                                           "xnord_response_cache_bypassed_total",
                                           "xnord_response_cache_insertions_total",
                                           "xnord_response_cache_evictions_total",
                                           "xnord_spans_sent_total",
                                           "xnord_spans_dropped_total",
                                           "xnord_received_body_bytes_total",
                                           "xnord_sent_body_bytes_total"};
    xn_metrics *metrics = make();
    char series[100];
    for (int i = 0; i < XN_REJECT_COUNT; i++)
        for (int n = 0; n <= i; n++)
            xn_metrics_rejected(metrics, (xn_reject_reason)i);
    for (int i = 0; i < XN_CLOSE_COUNT; i++)
        for (int n = 0; n <= i; n++)
            xn_metrics_closed(metrics, (xn_close_reason)i);
    for (int i = 0; i < XN_GAUGE_COUNT; i++) {
        xn_metrics_gauge_set(metrics, (xn_gauge)i, 100 * i);
        xn_metrics_gauge_add(metrics, (xn_gauge)i, 7);
        xn_metrics_gauge_add(metrics, (xn_gauge)i, -9);
        ck_assert_int_eq(xn_metrics_gauge(metrics, (xn_gauge)i), 100 * i - 2);
    }
    for (int i = 0; i < XN_COUNTER_COUNT; i++) {
        xn_metrics_add(metrics, (xn_counter)i, INT64_C(9007199254740000) + i);
        xn_metrics_add(metrics, (xn_counter)i, -5); /* a counter never falls */
    }
    render(metrics);
    for (int i = 0; i < XN_REJECT_COUNT; i++) {
        snprintf(series, sizeof series, "xnord_rejected_requests_total{reason=\"%s\"}", rejects[i]);
        ck_assert(value_of(series) == i + 1);
    }
    for (int i = 0; i < XN_CLOSE_COUNT; i++) {
        snprintf(series, sizeof series, "xnord_connections_closed_total{reason=\"%s\"}", closes[i]);
        ck_assert(value_of(series) == i + 1);
    }
    for (int i = 0; i < XN_GAUGE_COUNT; i++)
        ck_assert(value_of(gauges[i]) == (strstr(gauges[i], "_seconds") ? 98e-9 : 100 * i - 2));
    for (int i = 0; i < XN_COUNTER_COUNT; i++)
        ck_assert(value_of(counters[i]) == 9007199254740000.0 + i);
    xn_metrics_free(metrics);
}
END_TEST

START_TEST(stage_histograms) {
    xn_metrics *metrics = make();
    static const int64_t ns[] = {-5, 0, 10000, 10001, 25000, 1000000, 10000000000, 10000000001};
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++)
        xn_metrics_stage(metrics, XN_STAGE_COMPUTE, ns[i]);
    render(metrics);
#define BUCKET(le) value_of("xnord_stage_seconds_bucket{stage=\"compute\",le=\"" le "\"}")
    ck_assert(BUCKET("0.00001") == 3); /* bounds are inclusive */
    ck_assert(BUCKET("0.000025") == 5);
    ck_assert(BUCKET("0.0005") == 5);
    ck_assert(BUCKET("0.001") == 6);
    ck_assert(BUCKET("5") == 6);
    ck_assert(BUCKET("10") == 7);
    ck_assert(BUCKET("+Inf") == 8);
    double sum = value_of("xnord_stage_seconds_sum{stage=\"compute\"}");
    ck_assert_msg(fabs(sum - 20.001045002) < 1e-12, "%.12f", sum);
    ck_assert(value_of("xnord_stage_seconds_count{stage=\"compute\"}") == 8);
    ck_assert(value_of("xnord_stage_seconds_count{stage=\"total\"}") == 0);
#undef BUCKET
    xn_metrics_free(metrics);
}
END_TEST

START_TEST(batches_and_devices) {
    xn_metrics *metrics = make();
    xn_metrics_batch(metrics, 0, 1, 64, 1500000);
    xn_metrics_batch(metrics, 0, 3, 2000, 1000000000);
    xn_metrics_batch(metrics, 1, 1024, 1024, 1);
    xn_metrics_device_error(metrics, 1);
    xn_metrics_device_isa(metrics, 1, "avx2");
    xn_metrics_device_up(metrics, 0, 1);
    xn_metrics_device_up(metrics, 1, 1);
    xn_metrics_device_up(metrics, 1, 0);
    render(metrics);
    ck_assert(value_of("xnord_batch_requests_bucket{le=\"1\"}") == 1);
    ck_assert(value_of("xnord_batch_requests_bucket{le=\"2\"}") == 1);
    ck_assert(value_of("xnord_batch_requests_bucket{le=\"4\"}") == 2);
    ck_assert(value_of("xnord_batch_requests_bucket{le=\"1024\"}") == 3);
    ck_assert(value_of("xnord_batch_requests_sum") == 1028);
    ck_assert(value_of("xnord_batch_images_bucket{le=\"32\"}") == 0);
    ck_assert(value_of("xnord_batch_images_bucket{le=\"64\"}") == 1);
    ck_assert(value_of("xnord_batch_images_bucket{le=\"1024\"}") == 2);
    ck_assert(value_of("xnord_batch_images_count") == 3);
    ck_assert(value_of("xnord_batch_images_sum") == 3088);
    ck_assert(value_of("xnord_device_batches_total{device=\"cuda:0\"}") == 2);
    ck_assert(value_of("xnord_device_batches_total{device=\"cpu\"}") == 1);
    ck_assert(value_of("xnord_device_images_total{device=\"cuda:0\"}") == 2064);
    ck_assert(value_of("xnord_device_busy_seconds_total{device=\"cuda:0\"}") == 1.0015);
    ck_assert(value_of("xnord_device_busy_seconds_total{device=\"cpu\"}") == 1e-9);
    ck_assert(value_of("xnord_device_errors_total{device=\"cuda:0\"}") == 0);
    ck_assert(value_of("xnord_device_errors_total{device=\"cpu\"}") == 1);
    ck_assert(value_of("xnord_device_info{device=\"cuda:0\",instruction_set=\"\"}") == 1);
    ck_assert(value_of("xnord_device_info{device=\"cpu\",instruction_set=\"avx2\"}") == 1);
    ck_assert(value_of("xnord_device_up{device=\"cuda:0\"}") == 1);
    ck_assert(value_of("xnord_device_up{device=\"cpu\"}") == 0);
    xn_metrics_free(metrics);
}
END_TEST

START_TEST(labels_are_escaped_and_bounded) {
    static const char *const ids[] = {"a\"b\\c\nd", "0123456789012345678901234567890123456789"};
    xn_metrics *metrics = NULL;
    xn_error error = {0};
    ck_assert_int_eq(xn_metrics_create(ids, 2, "1\"", "x", &metrics, &error), XN_OK);
    render(metrics);
    value_of("xnord_device_up{device=\"a\\\"b\\\\c\\nd\"}");
    value_of("xnord_device_up{device=\"0123456789012345678901234567890\"}");
    value_of("xnord_build_info{version=\"1\\\"\",backend=\"x\"}");
    xn_metrics_free(metrics);
    ck_assert_int_eq(xn_metrics_create(NULL, 0, "1", "x", &metrics, &error), XN_OK);
    render(metrics);
    xn_metrics_free(metrics);
}
END_TEST

/* So many devices that the page must grow. */
START_TEST(page_grows) {
    const char *ids[64];
    char names[64][24], series[64];
    xn_metrics *metrics = NULL;
    xn_error error = {0};
    for (int i = 0; i < 64; i++) {
        snprintf(names[i], sizeof names[i], "cuda:%d", i);
        ids[i] = names[i];
    }
    ck_assert_int_eq(xn_metrics_create(ids, 64, "1", "cuda", &metrics, &error), XN_OK);
    for (int i = 0; i < 64; i++)
        xn_metrics_batch(metrics, i, 1, i + 1, 1);
    render(metrics);
    for (int i = 0; i < 64; i++) {
        snprintf(series, sizeof series, "xnord_device_images_total{device=\"cuda:%d\"}", i);
        ck_assert(value_of(series) == i + 1);
    }
    xn_metrics_free(metrics);
}
END_TEST

START_TEST(no_memory) {
    const char *ids[64];
    for (int i = 0; i < 64; i++)
        ids[i] = "cuda:00000";
    xn_metrics *metrics = NULL;
    xn_error error = {0};
    size_t length = 77;
    atomic_int number = 0; /* of the allocation that fails */
    xn_mem_set_hook(xn_test_count_down, &number);
    ck_assert_int_eq(xn_metrics_create(ids, 64, "1", "x", &metrics, &error), XN_ERR_NO_MEMORY);
    ck_assert_ptr_null(metrics);
    atomic_store(&number, -1);
    ck_assert_int_eq(xn_metrics_create(ids, 64, "1", "x", &metrics, &error), XN_OK);
    int allocations = 0;
    for (int fail = 0;; fail++) {
        atomic_store(&number, fail);
        char *page = xn_metrics_render(metrics, &length);
        if (page) {
            allocations = fail;
            xn_mem_free(page);
            break;
        }
        ck_assert_uint_eq(length, 77);
    }
    xn_mem_set_hook(NULL, NULL);
    ck_assert_int_ge(allocations, 2); /* the first page, and one that has grown */
    xn_metrics_free(metrics);
}
END_TEST

#define THREADS 8
#define EVENTS 20000 /* of all threads together */

static void count_event(xn_metrics *metrics, uint64_t number) {
    xn_rng rng = {xn_test_seed() + number};
    const int64_t amount = (int64_t)xn_rng_below(&rng, 1 << 20);
    switch (xn_rng_below(&rng, 7)) {
    case 0:
        xn_metrics_request(metrics, (xn_route_label)xn_rng_below(&rng, XN_ROUTE_COUNT),
                           200 + (int)xn_rng_below(&rng, 310));
        break;
    case 1:
        xn_metrics_rejected(metrics, (xn_reject_reason)xn_rng_below(&rng, XN_REJECT_COUNT));
        break;
    case 2:
        xn_metrics_closed(metrics, (xn_close_reason)xn_rng_below(&rng, XN_CLOSE_COUNT));
        break;
    case 3:
        xn_metrics_stage(metrics, (xn_stage)xn_rng_below(&rng, XN_STAGE_COUNT),
                         amount << xn_rng_below(&rng, 15));
        break;
    case 4:
        xn_metrics_batch(metrics, (int)xn_rng_below(&rng, 2), amount & 63, amount & 4095, amount);
        break;
    case 5:
        xn_metrics_device_error(metrics, (int)xn_rng_below(&rng, 2));
        break;
    default:
        xn_metrics_add(metrics, (xn_counter)xn_rng_below(&rng, XN_COUNTER_COUNT), amount);
        xn_metrics_gauge_add(metrics, (xn_gauge)xn_rng_below(&rng, XN_GAUGE_COUNT),
                             amount - (1 << 19));
    }
}

/* To the next processor that this thread may use; where that is not allowed it stays. */
static void move_on(const cpu_set_t *allowed, unsigned turn) {
    cpu_set_t one;
    int left = (int)(turn % (unsigned)CPU_COUNT(allowed));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed) && left-- == 0)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

typedef struct counting {
    xn_metrics *metrics;
    unsigned thread;
    cpu_set_t allowed;
} counting;

static void *count_share(void *argument) {
    const counting *own = argument;
    for (unsigned i = own->thread, turn = own->thread; i < EVENTS; i += THREADS) {
        if (i / THREADS % 50 == 0)
            move_on(&own->allowed, turn++);
        count_event(own->metrics, i);
    }
    return NULL;
}

/* Up to what says of the process. */
static char *page_of_events(const xn_metrics *metrics) {
    size_t length = 0;
    char *page = xn_metrics_render(metrics, &length);
    ck_assert_ptr_nonnull(page);
    char *process = strstr(page, "# HELP process_");
    ck_assert_ptr_nonnull(process);
    *process = 0;
    return page;
}

/* Pages are longer than what libcheck takes to tell. */
static void expect_same_lines(const char *found, const char *expected) {
    while (*expected) {
        const size_t length = strcspn(expected, "\n") + 1;
        ck_assert_msg(!strncmp(found, expected, length), "%.*s is wanted, not %.*s",
                      (int)length - 1, expected, (int)strcspn(found, "\n"), found);
        found += length;
        expected += length;
    }
    ck_assert_msg(!*found, "a line too many: %.80s", found);
}

/* The same events are the same page, on any thread and processor. Those
 * that are rendered meanwhile are well-formed, and no count falls. */
START_TEST(threads_on_all_processors_make_the_same_page) {
    xn_metrics *alone = make(), *together = make();
    pthread_t threads[THREADS];
    counting counters[THREADS];
    for (unsigned i = 0; i < EVENTS; i++)
        count_event(alone, i);
    for (unsigned i = 0; i < THREADS; i++) {
        counters[i] = (counting){.metrics = together, .thread = i};
        ck_assert_int_eq(sched_getaffinity(0, sizeof counters[i].allowed, &counters[i].allowed), 0);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, count_share, &counters[i]), 0);
    }
    double before = 0;
    for (int i = 0; i < 30; i++) {
        render(together);
        const double now = value_of("xnord_stage_seconds_count{stage=\"total\"}");
        ck_assert(now >= before);
        before = now;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *expected = page_of_events(alone), *found = page_of_events(together);
    expect_same_lines(found, expected);
    xn_mem_free(expected);
    xn_mem_free(found);
    render(together);
    xn_metrics_free(alone);
    xn_metrics_free(together);
}
END_TEST

XN_SUITE(metrics) {
    Suite *s = suite_create("metrics");
    TCase *t = tcase_create("metrics");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, fresh_page_has_every_series_at_zero);
    tcase_add_test(t, process_values_are_plausible);
    tcase_add_test(t, requests_by_route_and_code);
    tcase_add_test(t, reasons_gauges_and_counters);
    tcase_add_test(t, stage_histograms);
    tcase_add_test(t, batches_and_devices);
    tcase_add_test(t, labels_are_escaped_and_bounded);
    tcase_add_test(t, page_grows);
    tcase_add_test(t, no_memory);
    tcase_add_test(t, threads_on_all_processors_make_the_same_page);
    suite_add_tcase(s, t);
    return s;
}
