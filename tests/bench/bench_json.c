/* bench_json.c: reading a tensor from a JSON body, as the daemon does it (xn_proto_parse_conv and
 * xn_proto_tensor_read), beside json_loadb on the same body, in one run. Each side of each body
 * runs in a process of its own, so that its peak memory is its own.
 *   bench-json [--json FILE] [--values N] [--runs N]
 * Memory is what the process took beyond the body itself, by its peak resident size; the daemon's
 * bound is the tensor and 16 MiB. Exits 1 when a value is wrong, the ratio is under 10 or the
 * memory over the bound. */
#include "bench_clock.h"
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

static void fail(const char *what) {
    fprintf(stderr, "bench-json: %s\n", what);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory)
        fail("no memory");
    return memory;
}

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
    b.text = allocate((size_t)values * 40 + 1000);
    b.expected = allocate((size_t)values * sizeof *b.expected);
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
        fprintf(stderr, "bench-json: %s\n", error.message);
        return 0;
    }
    return 1;
}

static int run_jansson(const body *b) {
    json_error_t error;
    json_t *root = json_loadb(b->text, b->length, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fprintf(stderr, "bench-json: %s\n", error.text);
    json_decref(root);
    return root != NULL;
}

static double resident_mib(void) {
    long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &total, &resident) != 2)
        fail("/proc/self/statm cannot be read");
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / MIB;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static result measure(const body *b, int jansson, int runs) {
    static double seconds[MAX_RUNS];
    double before = resident_mib();
    float *values = jansson ? NULL : allocate((size_t)b->values * sizeof *values);
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
    qsort(seconds, (size_t)runs, sizeof *seconds, compare_doubles);
    double mb = (double)b->length / 1e6;
    r.mb_per_s = mb / seconds[runs / 2];
    r.low = mb / seconds[runs - 1];
    r.high = mb / seconds[0];
    return r;
}

/* In a child process. */
static result measure_apart(const body *b, int jansson, int runs) {
    int ends[2], status = 0;
    result r = {.ok = 0};
    if (pipe(ends))
        fail("pipe failed");
    pid_t child = fork();
    if (child < 0)
        fail("fork failed");
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

static int report(const body *b, const result *ours, const result *theirs, FILE *json, int first) {
    double ratio = ours->mb_per_s / theirs->mb_per_s;
    double tensor = (double)b->values * sizeof(float) / MIB;
    int good = ours->ok && theirs->ok && ratio >= 10 && ours->peak_mib <= tensor + 16;
    printf("%-8s %7.1f %8.1f | %7.0f (%5.0f ..%5.0f) %8.1f | %6.1f (%5.1f ..%5.1f) %8.1f | %6.1fx "
           "%s\n",
           b->name, (double)b->length / MIB, tensor, ours->mb_per_s, ours->low, ours->high,
           ours->peak_mib, theirs->mb_per_s, theirs->low, theirs->high, theirs->peak_mib, ratio,
           good ? "" : "MISSED");
    if (json)
        fprintf(json,
                "%s  {\"body\": \"%s\", \"note\": \"%s\", \"body_bytes\": %zu, \"values\": %lld, "
                "\"xnord_mb_per_s\": %.1f, \"xnord_low\": %.1f, \"xnord_high\": %.1f, "
                "\"xnord_peak_mib\": %.2f, \"jansson_mb_per_s\": %.2f, \"jansson_low\": %.2f, "
                "\"jansson_high\": %.2f, \"jansson_peak_mib\": %.2f, \"ratio\": %.2f, "
                "\"correct\": %s}",
                first ? "" : ",\n", b->name, b->note, b->length, (long long)b->values,
                ours->mb_per_s, ours->low, ours->high, ours->peak_mib, theirs->mb_per_s,
                theirs->low, theirs->high, theirs->peak_mib, ratio, ours->ok ? "true" : "false");
    return good;
}

int main(int argc, char **argv) {
    const char *path = NULL;
    int64_t values = 1000000;
    int runs = 15, all_good = 1;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--json") && *value)
            path = value;
        else if (!strcmp(argv[i], "--values") && atoll(value) >= 1000)
            values = atoll(value);
        else if (!strcmp(argv[i], "--runs") && atoi(value) >= 5 && atoi(value) <= MAX_RUNS)
            runs = atoi(value);
        else
            fail("usage: bench-json [--json FILE] [--values N >= 1000] [--runs 5 .. 1000]");
    }
    FILE *json = path ? fopen(path, "w") : NULL;
    if (path && !json)
        fail("the JSON file cannot be written");
    if (json)
        fputs("[\n", json);
    printf("reading %lld numbers of a JSON tensor; memory beyond the body; MB = 10^6 bytes\n\n"
           "%-8s %7s %8s | %-33s | %-32s |\n"
           "%-8s %7s %8s | %7s %-16s %8s | %6s %-16s %8s | ratio\n",
           (long long)values, "", "body", "tensor", "xnord", "json_loadb", "body", "MiB", "MiB",
           "MB/s", "(slow .. fast)", "peak MiB", "MB/s", "(slow .. fast)", "peak MiB");
    for (int i = 0; i < STYLES; i++) {
        body b = make_body(i, values);
        result ours = measure_apart(&b, 0, runs), theirs = measure_apart(&b, 1, runs / 5);
        all_good &= report(&b, &ours, &theirs, json, i == 0);
        fflush(stdout);
        free(b.text);
        free(b.expected);
    }
    for (int i = 0; i < STYLES; i++)
        printf("%s%s: %s", i ? "; " : "\n", styles[i].name, styles[i].note);
    printf("\n");
    if (json) {
        fputs("\n]\n", json);
        if (fclose(json))
            fail("the JSON file cannot be written");
    }
    return all_good ? 0 : 1;
}
