/* rows.h: padded rows of an image, in an order in which every tap reads contiguously (rows.c). */
#ifndef XN_CPU_ROWS_H
#define XN_CPU_ROWS_H

#include "index.h"
#include "kernels.h"

/* Columns start, start + stride_w, ... of the image, count of them, stored from `offset` of a row;
 * those outside the image hold the pad value. */
typedef struct xn_cpu_segment {
    int32_t start, count;
    int64_t offset; /* elements */
} xn_cpu_segment;

/* A padded row, rearranged: output x of tap column j reads element column[j] + x. */
typedef struct xn_cpu_rows {
    xn_cpu_segment *segments; /* owned */
    int64_t *column;          /* [KW], owned */
    int32_t segment_count;
    int64_t pitch; /* elements of a row */
} xn_cpu_rows;

xn_status xn_cpu_rows_create(const xn_conv *conv, xn_cpu_rows *out, xn_error *error);
void xn_cpu_rows_free(xn_cpu_rows *rows); /* NULL-safe */

/* The part of a segment that lies inside the image: elements [*first, *last) of it. */
static inline void xn_cpu_segment_inside(const xn_conv *conv, const xn_cpu_segment *segment,
                                         int32_t *first, int32_t *last) {
    xn_cpu_valid_outputs(segment->start, conv->stride_w, conv->width, segment->count, first, last);
}

/* A row of an image, as fp32, as such a padded row. */
void xn_cpu_rows_copy(const xn_cpu_kernels *kernels, const xn_conv *conv, const xn_cpu_rows *rows,
                      const float *row, float *to);

/* Input elements as fp32. */
void xn_cpu_to_fp32(const xn_cpu_kernels *kernels, const xn_conv *conv, const void *src,
                    int32_t count, float *dst);
/* Row y of channel c of an image as fp32: in place where it is fp32 already, else converted into
 * temp [W]. */
const float *xn_cpu_row_fp32(const xn_cpu_kernels *kernels, const xn_conv *conv,
                             const unsigned char *input, int32_t c, int32_t y, float *temp);

#endif
