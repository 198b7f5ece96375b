/* rows.h: what is measured: convolutions by the lines of files (shapes/), or drawn at random.
 *
 *   1,64x64x56 o128 k1 s2 d2 g32   fp32,packed-int32   cpu.peers=2 cuda.us=5    # a comment
 *
 * images x channels x side; behind that filters, kernel, stride, dilation and groups, where they
 * are not those of a dense 3x3 layer that keeps its channels; kinds by their names (problem.h;
 * none: fp32); and what is to be reached on a backend. Images and kinds may be lists: a row each.
 * Padding keeps the size at stride 1; there is none where patches do not overlap. */
#ifndef XN_BENCH_ROWS_H
#define XN_BENCH_ROWS_H

#include "bench.h"

enum { XN_BENCH_CPU, XN_BENCH_CUDA, XN_BENCH_BACKENDS };

/* What is to be reached; 0: nothing. */
typedef struct xn_target {
    double us, copies; /* at most; copies: times the copy */
    /* At least; peak: part of it; the others: times faster than the peer, filter2D, OpenVINO. */
    double tops, peak, peers, filters, openvino;
    double published_us; /* what the paper has */
} xn_target;

typedef struct xn_row {
    char name[2 * XN_BENCH_NAME]; /* the shape, and the kind */
    xn_bench_shape shape;
    const xn_bench_kind *kind;
    xn_target target[XN_BENCH_BACKENDS];
    double mean_us[XN_BENCH_BACKENDS]; /* measured by --of stage so far; 0: not yet */
} xn_row;

struct xn_rows {
    xn_row *all;
    int count;
};

/* As --shapes, --kind, --random and --seed say; `is_small`: random ones that a CPU computes in a
 * moment. */
xn_rows *xn_rows_make(const xn_bench_options *options, bool is_small);
void xn_rows_free(xn_rows *rows);
/* The next row from *at on that --only and --batch take; NULL past the last. */
xn_row *xn_rows_next(const xn_bench_session *s, int *at);

#endif
