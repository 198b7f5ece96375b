/* framing_matrix.h: the cases of framing_matrix.c: heads of requests and what must come of each,
 * in tables (framing_rows.c), and in products of a field and a fault (framing_matrix.c). */
#ifndef XT_FRAMING_MATRIX_H
#define XT_FRAMING_MATRIX_H

#include "http/client/wire.h"

typedef enum {
    XT_ANSWERED, /* with that status, and a request behind it on the connection with its own */
    XT_LAST,     /* answered with that status; then the connection closes */
    XT_REFUSED,  /* an error object of that status, or the library's own page with that or 400; then
                    the connection closes */
    XT_DROPPED   /* a close without an answer */
} xt_outcome;

typedef struct xt_verdict {
    xt_outcome outcome;
    int status;
} xt_verdict;

typedef struct xt_row {
    const char *name, *bytes;
    size_t length;
    xt_verdict verdict;
    /* Where the two generations of the library differ: the verdict with 0.9, and why. */
    xt_verdict before;
    const char *why;
} xt_row;

/* Rows for a daemon open to all, and for one with the key XT_MATRIX_KEY. */
#define XT_MATRIX_KEY "matrix-key-0123456789abcdef"
extern const xt_row xt_framing_rows[], xt_framing_keyed_rows[];
extern const int xt_framing_row_count, xt_framing_keyed_row_count;

#endif
