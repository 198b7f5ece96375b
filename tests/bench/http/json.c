/* json.c: `bench-http json`: reading a tensor from a JSON body, as the daemon does it
 * (xn_proto_parse_conv and xn_proto_tensor_read), beside json_loadb on the same body, in one run.
 * Each side of each body runs in a process of its own, so that its peak memory is its own. Memory
 * is what the process took beyond the body itself, by its peak resident size; the daemon's bound is
 * the tensor and 16 MiB. Exits 1 when a value is wrong, the ratio is under 10 or the memory over
 * the bound. */
#include "../clock.h"
#include "http.h"
#include "xn_proto.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)
#define MAX_RUNS 1000

typedef struct body {
    const char *name, *note;
    char *text;
    size_t length;
    float *expected;
    int64_t values;
} body;

typedef struct result {
    double mb_per_s, low, high; /* median, slowest and fastest run; 10^6 bytes */
    double peak_mib;
    int ok;
} result;

static double now_s(void) {
    return 1e-9 * (double)xn_bench_now_ns();
}

/* ---- bodies ---- */

typedef struct style {
    const char *name, *note;
    int row; /* values in an innermost array; 0: flat */
} style;

static const style styles[] = {
    {"float32", "9 digits, as a float32 prints", 0},
    {"float64", "17 digits, as Python writes doubles", 0},
    {"nested", "9 digits, nested in rows of 224", 224},
    {"pixels", "integers 0 to 255", 0},
    {"pretty", "6 digits, one a line, indented", 0},
};
#define STYLES (int)(sizeof styles / sizeof *styles)

static double random_unit(uint64_t *state) { /* splitmix64; uniform in [-1, 1) */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)(int64_t)(z ^ (z >> 31)) / 9223372036854775808.0;
}

static int write_value(int index, double unit, char *text, float *expected) {
    char number[40];
    switch (index) {
    case 1:
        *expected = (float)unit;
        return sprintf(text, "%.17g", unit);
    case 3:
        *expected = (float)(int)(fabs(unit) * 256);
        return sprintf(text, "%d", (int)*expected);
    case 4:
        snprintf(number, sizeof number, "%.6f", unit);
        *expected = strtof(number, NULL);
        return sprintf(text, "\n            %s", number);
    default:
        *expected = (float)unit;
        return sprintf(text, "%.9g", (double)*expected);
    }
}

static body make_body(int index, int64_t values) {
    const style *s = &styles[index];
    int64_t row = s->row ? s->row : values;
    values -= values % row;
    body b = {.name = s->name, .note = s->note, .values = values};
    b.text = bench_take((size_t)values * 40 + 1000);
    b.expected = bench_take((size_t)values * sizeof *b.expected);
    uint64_t state = 20200728;
    size_t n = (size_t)sprintf(b.text,
                               "{\"weights\": \"edge\", \"input\": {\"shape\": [1, 1, %lld, %lld], "
                               "\"datatype\": \"FP32\", \"data\": [%s",
                               (long long)(values / row), (long long)row, s->row ? "[[[" : "");
    for (int64_t i = 0; i < values; i++) {
        if (i)
            n += (size_t)sprintf(b.text + n, i % row ? "," : "],[");
        n += (size_t)write_value(index, random_unit(&state), b.text + n, &b.expected[i]);
    }
    n += (size_t)sprintf(b.text + n, "%s]}}", s->row ? "]]]" : "");
    b.length = n;
    return b;
}

/* ---- the two sides ---- */

static int run_xnord(const body *b, float *values) {
    const xn_proto_limits limits = {INT64_C(1) << 40};
    xn_proto_body in = {.form = XN_FORM_JSON, .bytes = b->text, .length = b->length};
    xn_conv_request request;
    xn_error error;
    if (xn_proto_parse_conv(&in, NULL, 0, &limits, &request, &error) ||
        xn_proto_tensor_read(&request.input, "input", values, &error)) {
        fprintf(stderr, "bench-http json: %s\n", error.message);
        return 0;
    }
    return 1;
}

static int run_jansson(const body *b) {
    json_error_t error;
    json_t *root = json_loadb(b->text, b->length, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fprintf(stderr, "bench-http json: %s\n", error.text);
    json_decref(root);
    return root != NULL;
}

static double resident_mib(void) {
    long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &total, &resident) != 2)
        xn_bench_fail("/proc/self/statm", "cannot be read");
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / MIB;
}

static result measure(const body *b, int jansson, int runs) {
    static double seconds[MAX_RUNS];
    double before = resident_mib();
    float *values = jansson ? NULL : bench_take((size_t)b->values * sizeof *values);
    result r = {.ok = 1};
    for (int i = 0; i < runs && r.ok; i++) {
        double start = now_s();
        r.ok = jansson ? run_jansson(b) : run_xnord(b, values);
        seconds[i] = now_s() - start;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    r.peak_mib = (double)usage.ru_maxrss / 1024 - before;
    if (r.ok && values)
        r.ok = !memcmp(values, b->expected, (size_t)b->values * sizeof *values);
    free(values);
    const xn_stats stats = xn_stats_of(seconds, runs);
    const double mb = (double)b->length / 1e6;
    r.mb_per_s = mb / stats.median;
    r.low = mb / stats.p99; /* of so few, the slowest */
    r.high = mb / stats.least;
    return r;
}

/* In a child process. */
static result measure_apart(const body *b, int jansson, int runs) {
    int ends[2], status = 0;
    result r = {.ok = 0};
    if (pipe(ends))
        xn_bench_fail("json", "pipe failed");
    pid_t child = fork();
    if (child < 0)
        xn_bench_fail("json", "fork failed");
    if (child == 0) {
        r = measure(b, jansson, runs);
        _exit(write(ends[1], &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &r, sizeof r) != (ssize_t)sizeof r)
        r.ok = 0;
    close(ends[0]);
    if (waitpid(child, &status, 0) != child || status != 0)
        r.ok = 0;
    return r;
}

/* ---- report ---- */

static const xn_column columns[] = {
    {"body", "body", 8, XN_TEXT},
    {"body_bytes", "bytes", 9, 0},
    {"values", NULL, 0, 0},
    {"tensor_mib", "tensor MiB", 10, 1},
    {"xnord_mb_per_s", "xnord MB/s", 10, 0},
    {"xnord_low", "slowest", 7, 0},
    {"xnord_high", "fastest", 7, 0},
    {"xnord_peak_mib", "peak MiB", 8, 1},
    {"jansson_mb_per_s", "Jansson MB/s", 12, 1},
    {"jansson_low", "slowest", 7, 1},
    {"jansson_high", "fastest", 7, 1},
    {"jansson_peak_mib", "peak MiB", 8, 1},
    {"ratio", "faster", 6, 1},
    {"verdict", "", 6, XN_TEXT},
    {"note", NULL, 0, XN_TEXT},
};

static int report(xn_report *r, const body *b, const result *ours, const result *theirs) {
    const double ratio = ours->mb_per_s / theirs->mb_per_s;
    const double tensor = (double)b->values * sizeof(float) / MIB;
    const int right = ours->ok && theirs->ok;
    const int good = right && ratio >= 10 && ours->peak_mib <= tensor + 16;
    xn_report_row(r, XN_T(b->name), XN_N(b->length), XN_N(b->values), XN_N(tensor),
                  XN_N(ours->mb_per_s), XN_N(ours->low), XN_N(ours->high), XN_N(ours->peak_mib),
                  XN_N(theirs->mb_per_s), XN_N(theirs->low), XN_N(theirs->high),
                  XN_N(theirs->peak_mib), XN_N(ratio),
                  XN_T(!right ? "WRONG"
                       : good ? ""
                              : "MISSED"),
                  XN_T(b->note));
    return good;
}

int bench_json(const bench_options *o) {
    const int64_t values = o->values < 1000 ? 1000 : o->values;
    const int runs = o->runs < 5 ? 5 : o->runs > MAX_RUNS ? MAX_RUNS : o->runs;
    int all_good = 1;
    xn_report r;
    xn_report_open(&r, o->json);
    printf("reading %lld numbers of a JSON tensor; memory beyond the body; MB = 10^6 bytes\n",
           (long long)values);
    xn_report_table(&r, columns, XN_COUNT(columns));
    for (int i = 0; i < STYLES; i++) {
        xn_report_doing(&r, i + 1, STYLES, styles[i].name);
        body b = make_body(i, values);
        const result ours = measure_apart(&b, 0, runs), theirs = measure_apart(&b, 1, runs / 5);
        all_good &= report(&r, &b, &ours, &theirs);
        free(b.text);
        free(b.expected);
    }
    for (int i = 0; i < STYLES; i++)
        printf("%s%s: %s", i ? "; " : "", styles[i].name, styles[i].note);
    putchar('\n');
    xn_report_close(&r);
    return all_good ? 0 : 1;
}
