/* shapes.h: a shape on every path of a device that can run it. */
#ifndef XN_BENCH_SHAPES_H
#define XN_BENCH_SHAPES_H

#include "bench.h"

enum { XN_BENCH_PATHS = 48, XN_BENCH_TERMS = 600 /* characters */ };

/* The paths of a device, each with a stream that is held to it. */
typedef struct xn_path_list {
    int count;
    const char *names[XN_BENCH_PATHS];
    xn_stream *streams[XN_BENCH_PATHS];
} xn_path_list;

void xn_path_list_open(const xn_bench_session *s, xn_path_list *out);
void xn_path_list_close(const xn_bench_session *s, xn_path_list *paths);

typedef struct xn_shape_result {
    char name[2 * XN_BENCH_NAME];
    xn_stats us[XN_BENCH_PATHS];                /* samples 0: does not fit, or was not asked for */
    double cost_us[XN_BENCH_PATHS];             /* what the chooser thinks; NAN: it does not say */
    char terms[XN_BENCH_PATHS][XN_BENCH_TERMS]; /* what that is made of; "": likewise */
    int chosen, best;                           /* indices */
    double floor_us;                            /* what no path passes, */
    const char *floor_by;                       /* and what it is */
    int64_t wrong[XN_BENCH_PATHS];              /* outputs */
} xn_shape_result;

/* Of the kind that --kind names, or fp32 in and out with K and alpha: there, the outputs of all
 * paths are compared with each other first, dots exactly and fp32 to the sum of both tolerances,
 * and the first image with backend ref where that takes less than a moment. out->chosen is -1 where
 * the device cannot run it, or the path of --path. */
void xn_shape_measure(xn_bench_session *s, const xn_path_list *paths, const xn_bench_shape *shape,
                      xn_shape_result *out);

#endif
