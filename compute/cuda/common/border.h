/* border.h: which taps of a window lie inside the image. Along an axis outputs fall into a few
 * classes, by the range of taps inside; a pixel's class is that of its row and that of its column.
 * What the taps inside have in common is then a table of few entries (layout.h: filter part). */
#ifndef XN_CUDA_BORDER_H
#define XN_CUDA_BORDER_H

#include "xn_conv.h"

enum {
    XN_CUDA_BORDER = 16,            /* outputs at an end of an axis that may miss taps */
    XN_CUDA_BORDER_MAX_CLASSES = 8, /* distinct ranges of taps inside, an axis */
};

/* Taps [first, last) inside the image. */
typedef struct xn_cuda_range {
    uint8_t first, last;
} xn_cuda_range;

/* The classes of one axis: the distinct ranges; class 0 is that of all taps. `first` and `last` are
 * the classes of as many outputs at either end, the rest is class 0. */
typedef struct xn_cuda_axis {
    int32_t classes, first_count, last_count;
    xn_cuda_range range[XN_CUDA_BORDER_MAX_CLASSES];
    uint8_t first[XN_CUDA_BORDER], last[XN_CUDA_BORDER];
} xn_cuda_axis;

/* A pair of ranges: rows of prefix at its four corners, signs + - - +, and taps inside. */
typedef struct xn_cuda_class {
    uint16_t high_last, low_last, high_first, low_first;
    int32_t inside;
} xn_cuda_class;

typedef struct xn_cuda_borders {
    xn_cuda_axis rows, columns;
    int32_t classes; /* of pixels: a class of rows and one of columns, which runs fastest */
    xn_cuda_class pixel_class[XN_CUDA_BORDER_MAX_CLASSES * XN_CUDA_BORDER_MAX_CLASSES];
} xn_cuda_borders;

/* False where there are too many of anything. */
bool xn_cuda_borders_make(const xn_conv *conv, xn_cuda_borders *out);

#endif
