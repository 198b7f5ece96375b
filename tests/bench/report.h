/* report.h: what both benchmark programs print and write: a table on stdout and, of the same rows,
 * an array of objects as JSON. A column is declared once and appears in both. */
#ifndef XN_BENCH_REPORT_H
#define XN_BENCH_REPORT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { XN_TEXT = -1 };

typedef struct xn_column {
    const char *key;   /* in the JSON; NULL: not there */
    const char *title; /* in the table; NULL: not there */
    int width;         /* texts stand on the left, numbers on the right */
    int decimals;      /* or XN_TEXT */
} xn_column;

/* A text or a number, as its column says. NAN: none, "-" in the table and null in the JSON. */
typedef union xn_cell {
    const char *text;
    double number;
} xn_cell;
#define XN_T(value)                                                                                \
    { .text = (value) }
#define XN_N(value)                                                                                \
    { .number = (double)(value) }

typedef struct xn_report {
    FILE *json; /* NULL: none */
    const char *path;
    int rows; /* in the JSON so far */
    const xn_column *columns;
    int count;
    int64_t said_ns; /* when something was printed last */
    bool doing;      /* a line of xn_report_doing stands there */
} xn_report;

/* Ends the program with that line on stderr. */
void xn_bench_fail(const char *what, const char *message) __attribute__((noreturn));

/* path: of the JSON file, whose folder is made; NULL: none. */
void xn_report_open(xn_report *report, const char *path);
void xn_report_close(xn_report *report);
/* A table from here on: prints its head. columns must live as long. */
void xn_report_table(xn_report *report, const xn_column *columns, int count);
void xn_report_cells(xn_report *report, const xn_cell *cells, int count);

/* xn_report_row(report, XN_T("64x56"), XN_N(us), ...): a cell a column. */
#define xn_report_row(report, ...)                                                                 \
    xn_report_cells(report, (const xn_cell[]){__VA_ARGS__},                                        \
                    (int)(sizeof((const xn_cell[]){__VA_ARGS__}) / sizeof(xn_cell)))
/* Says on stderr what the next rows are about to measure: the `number`th of `count` things, whose
 * count may be 0 where it is not known. On a terminal the line gives way to what comes next;
 * elsewhere only what comes two seconds after the last line is said. */
void xn_report_doing(xn_report *report, int number, int count, const char *what);
#define XN_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- samples ---- */

typedef struct xn_stats {
    double least, p10, median, mean, p90, p99, most;
    int samples;
} xn_stats;

/* Sorts them. Without samples all is 0. */
xn_stats xn_stats_of(double *samples, int count);

#ifdef __cplusplus
}
#endif
#endif
