/* report.c: see report.h. */
#include "report.h"

#include "clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUIET_NS INT64_C(2000000000)

void xn_bench_fail(const char *what, const char *message) {
    fflush(stdout);
    fprintf(stderr, "bench: %s: %s\n", what, message);
    exit(1);
}

static void make_folder_of(const char *path) {
    char folder[4096];
    const char *end = strrchr(path, '/');
    if (!end || (size_t)(end - path) >= sizeof folder)
        return;
    memcpy(folder, path, (size_t)(end - path));
    folder[end - path] = '\0';
    mkdir(folder, 0777); /* where it fails, the file cannot be made either */
}

/* ---- what is under way ---- */

static void end_doing(xn_report *r) {
    if (r->doing)
        fputs("\r\033[K", stderr);
    r->doing = false;
    r->said_ns = xn_bench_now_ns();
}

void xn_report_doing(xn_report *r, int number, int count, const char *what) {
    const bool terminal = isatty(STDERR_FILENO) == 1;
    char of[24] = "";
    if (!terminal && xn_bench_now_ns() - r->said_ns < QUIET_NS)
        return;
    if (count)
        snprintf(of, sizeof of, "[%d/%d] ", number, count);
    end_doing(r);
    fprintf(stderr, "%s%s%s", of, what, terminal ? "" : "\n");
    fflush(stderr);
    r->doing = terminal;
}

void xn_report_open(xn_report *r, const char *path) {
    *r = (xn_report){.path = path, .said_ns = xn_bench_now_ns()};
    if (!path)
        return;
    make_folder_of(path);
    r->json = fopen(path, "w");
    if (!r->json)
        xn_bench_fail(path, strerror(errno));
    fputc('[', r->json);
}

void xn_report_close(xn_report *r) {
    end_doing(r);
    if (!r->json)
        return;
    fputs("\n]\n", r->json);
    if (fclose(r->json))
        xn_bench_fail(r->path, strerror(errno));
    printf("JSON: %s\n", r->path);
}

/* ---- the table ---- */

/* Of columns that are all without a title nothing is printed. */
static void end_line(const xn_report *r) {
    for (int i = 0; i < r->count; i++)
        if (r->columns[i].title) {
            putchar('\n');
            return;
        }
}

static void print_cell(const xn_column *c, const char *text) {
    if (c->title)
        printf(c->decimals == XN_TEXT ? "%-*s " : "%*s ", c->width, text);
}

static const char *number_text(const xn_column *c, double number, char *text, size_t size) {
    if (!isfinite(number))
        return "-";
    snprintf(text, size, "%.*f", c->decimals, number);
    return text;
}

void xn_report_table(xn_report *r, const xn_column *columns, int count) {
    end_doing(r);
    r->columns = columns;
    r->count = count;
    for (int i = 0; i < count; i++)
        print_cell(&columns[i], columns[i].title);
    end_line(r);
}

/* ---- the JSON ---- */

static void json_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if ((unsigned char)*text >= ' ')
            fputc(*text, out);
    }
    fputc('"', out);
}

static void json_row(xn_report *r, const xn_cell *cells) {
    const char *separator = "";
    fputs(r->rows++ ? ",\n {" : "\n {", r->json);
    for (int i = 0; i < r->count; i++) {
        const xn_column *c = &r->columns[i];
        if (!c->key)
            continue;
        fprintf(r->json, "%s\"%s\": ", separator, c->key);
        separator = ", ";
        if (c->decimals == XN_TEXT)
            json_text(r->json, cells[i].text);
        else if (isfinite(cells[i].number))
            fprintf(r->json, "%.*f", c->decimals ? c->decimals + 2 : 0, cells[i].number);
        else
            fputs("null", r->json);
    }
    fputc('}', r->json);
}

void xn_report_cells(xn_report *r, const xn_cell *cells, int count) {
    char text[64];
    if (count != r->count)
        xn_bench_fail("report", "a row has other columns than its table");
    end_doing(r);
    for (int i = 0; i < count; i++) {
        const xn_column *c = &r->columns[i];
        print_cell(c, c->decimals == XN_TEXT ? cells[i].text
                                             : number_text(c, cells[i].number, text, sizeof text));
    }
    end_line(r);
    fflush(stdout);
    if (r->json)
        json_row(r, cells);
}

/* ---- samples ---- */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

xn_stats xn_stats_of(double *samples, int count) {
    double sum = 0;
    if (!count)
        return (xn_stats){0};
    qsort(samples, (size_t)count, sizeof *samples, by_size);
    for (int i = 0; i < count; i++)
        sum += samples[i];
    return (xn_stats){.least = samples[0],
                      .p10 = samples[count / 10],
                      .median = samples[count / 2],
                      .mean = sum / count,
                      .p90 = samples[count - 1 - count / 10],
                      .p99 = samples[count - 1 - count / 100],
                      .most = samples[count - 1],
                      .samples = count};
}
