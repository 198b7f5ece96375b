/* problem.h: the problems of the benchmarks: square images and kernels, and what is read and
 * written. */
#ifndef XN_BENCH_PROBLEM_H
#define XN_BENCH_PROBLEM_H

#include "../report.h"
#include "xn_backend.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xn_bench_shape {
    int64_t images, channels, side, filters, kernel, stride, padding, dilation, groups;
} xn_bench_shape;

/* What is read and written, and how it is computed. */
typedef struct xn_bench_kind {
    const char *name;
    xn_mode mode;
    xn_datatype input, output;
    xn_scaling scaling;
    xn_precision precision;
    bool packed_input, packed_output;
} xn_bench_kind;

/* Those that the code names are the first of the table. */
enum { XN_BENCH_FP32, XN_BENCH_DOTS, XN_BENCH_KINDS = 14 };
extern const xn_bench_kind xn_bench_kinds[XN_BENCH_KINDS];

/* Zero-filled. */
void *xn_bench_take(size_t count, size_t bytes);

enum { XN_BENCH_NAME = 64 };
/* "64x256x14", and behind it what is not as in a 3x3 layer: "o64 k1 s2 d2 g32". */
void xn_bench_name(const xn_bench_shape *shape, char name[XN_BENCH_NAME]);

/* rows: of an image, of which the shape's side are the columns; bottom: the padding below them. */
xn_conv xn_bench_resolve_rows(const xn_bench_shape *shape, int64_t rows, int64_t bottom,
                              const xn_bench_kind *kind);
xn_conv xn_bench_resolve(const xn_bench_shape *shape, const xn_bench_kind *kind);

int64_t xn_bench_weight_count(const xn_bench_shape *shape);
xn_weights *xn_bench_weights(const xn_bench_shape *shape, const float *real);
/* The same with a scale and a shift for each filter; NULL: none. */
xn_weights *xn_bench_bit_weights(const xn_bench_shape *shape, const float *real, const float *scale,
                                 const float *shift);
/* Operations of all images, 2 a tap. */
double xn_bench_operations(const xn_conv *conv, int64_t images);

#ifdef __cplusplus
}
#endif
#endif
