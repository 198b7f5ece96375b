/* stress.c: see stress.h. */
#include "stress.h"

#include <dirent.h>
#include <string.h>
#include <time.h>

long st_number(const char *environment, long otherwise) {
    const char *text = getenv(environment);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static long descriptors_of(const xt_daemon *daemon) {
    char path[64];
    long count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)daemon->pid);
    DIR *folder = opendir(path);
    if (!folder)
        return -1;
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

st_usage st_usage_of(const xt_daemon *daemon) {
    char *page = xt_get(daemon, "/metrics");
    st_usage usage = {.requests = xt_sample(page, "xnord_inflight_requests"),
                      .bytes = xt_sample(page, "xnord_inflight_bytes"),
                      .queued = xt_sample(page, "xnord_queue_depth"),
                      .connections = xt_sample(page, "xnord_connections")};
    free(page);
    usage.rss_kb = xt_daemon_memory_kb(daemon, "VmRSS");
    usage.threads = xt_daemon_memory_kb(daemon, "Threads");
    usage.descriptors = descriptors_of(daemon);
    return usage;
}

static void check_answered(const xt_daemon *daemon, const char *what) {
    static const xt_case small = {"small", 1, 3, 6, 7, 4, 3, 3, .padding_name = "same"};
    xt_problem problem;
    xt_message message;
    xt_response response;
    char error[512] = "";
    xt_problem_make(&problem, &small, xn_test_seed());
    xt_encode(&problem, XT_OIP, &(xt_options){0}, &message);
    xt_fetch(daemon, "POST", message.target.data, message.headers.data, message.body.data,
             message.body.length, &response);
    ck_assert_msg(xt_response_matches(&response, XT_OIP, &problem, NULL, error, sizeof error),
                  "after %s: %s", what, error);
    xt_response_free(&response);
    xt_message_free(&message);
    xt_problem_free(&problem);
}

st_usage st_settle(const xt_daemon *daemon, const char *what) {
    static const char *const gauges[] = {"xnord_inflight_requests", "xnord_inflight_bytes",
                                         "xnord_queue_depth"};
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++)
        ck_assert_msg(xt_metric_becomes(daemon, gauges[i], 0), "after %s: %s is %g", what,
                      gauges[i], xt_metric(daemon, gauges[i]));
    ck_assert_msg(xt_metric_becomes(daemon, "xnord_connections", 1),
                  "after %s: %g connections are open", what,
                  xt_metric(daemon, "xnord_connections"));
    check_answered(daemon, what);
    return st_usage_of(daemon);
}

void st_print_usage(const char *what, const st_usage *usage) {
    printf("%-34s rss %7.1f MiB, %3ld descriptors, %2ld threads; in flight %g, %g bytes, queued "
           "%g, connections %g\n",
           what, (double)usage->rss_kb / 1024, usage->descriptors, usage->threads, usage->requests,
           usage->bytes, usage->queued, usage->connections);
    fflush(stdout);
}

/* ---- latencies ---- */

double st_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

void st_times_add(st_times *times, double ms) {
    if (times->count == times->size) {
        times->size = times->size ? times->size * 2 : 1024;
        times->ms = realloc(times->ms, times->size * sizeof *times->ms);
        ck_assert_ptr_nonnull(times->ms);
    }
    times->ms[times->count++] = ms;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double st_quantile(st_times *times, double share) {
    if (!times->count)
        return 0;
    qsort(times->ms, times->count, sizeof *times->ms, compare);
    return times->ms[(size_t)(share * (double)(times->count - 1))];
}

void st_times_free(st_times *times) {
    free(times->ms);
    *times = (st_times){0};
}

void st_large_answer(xt_buffer *out, int side) {
    xt_buffer body = {0};
    xt_print(&body,
             "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}, "
             "\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}, "
             "\"padding\": %d}",
             side);
    xt_print(out,
             "POST /conv HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Accept: application/octet-stream\r\nContent-Length: %zu\r\n\r\n%s",
             body.length, body.data);
    xt_buffer_free(&body);
}
