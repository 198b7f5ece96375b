/* lookup.h: what the files of the path lookup share.
 *
 *   lookup.c          plans and runs
 *   lookup_unit.c     a unit of work: from rows of an image to rows of outputs
 *   lookup_weights.c  what it wants of the weights
 *   lookup_kernels.h  its kernels */
#ifndef XN_CPU_LOOKUP_H
#define XN_CPU_LOOKUP_H

#include "lookup_kernels.h"
#include "path.h"
#include "rows.h"

/* Filters of at most so many channels and taps in all. */
#define XN_CPU_LOOKUP_CHANNELS 32
#define XN_CPU_LOOKUP_FILTER 8192

/* A kernel row's taps, channel by channel, go into `planes` patterns. */
typedef struct xn_cpu_lookup_weights {
    int32_t planes;
    uint8_t *tables; /* [O][KH][planes][XN_CPU_TABLE_BYTES] */
    /* [O][KH + 1][KW]: the sum of the weights of all channels in the kernel rows above i. */
    int32_t *above;
} xn_cpu_lookup_weights;

extern const xn_cpu_form xn_cpu_lookup_form;

/* The arrays of a thread's slice. */
enum {
    XN_CPU_LOOKUP_PLANES, /* uint8 [ring][planes][strip] */
    XN_CPU_LOOKUP_PAD,    /* uint8 [strip]: a row outside the image */
    XN_CPU_LOOKUP_SIGNS, /* uint8 [C/G][pitch]: of one input row, before they are joined to patterns
                          */
    XN_CPU_LOOKUP_MAGNITUDES, /* float [pitch]: sum over the channels of |I|, of one input row */
    XN_CPU_LOOKUP_SUMS, /* float [ring][strip]: the same under the kernel's columns, of each output
                         */
    XN_CPU_LOOKUP_ZERO, /* float [strip]: the sums of a row outside the image */
    XN_CPU_LOOKUP_TAPS, /* const uint8 *[KH][planes]: where output 0 reads each plane */
    XN_CPU_LOOKUP_POINTERS, /* const void *[max(KH, KW, C/G * KW)] */
    XN_CPU_LOOKUP_SLOTS,  /* int32 [KH]: the ring's slot of each tap row that is inside the image */
    XN_CPU_LOOKUP_FIRST,  /* int8 or int16 [strip]: what an output starts from */
    XN_CPU_LOOKUP_K,      /* float [strip]: K's sums */
    XN_CPU_LOOKUP_ACC,    /* int32 [strip] */
    XN_CPU_LOOKUP_VALUES, /* float [strip], where the output is not the values */
    XN_CPU_LOOKUP_TEMP,   /* float [W]: an input row as fp32 */
    XN_CPU_LOOKUP_GATHER, /* float [strip + KW*distance]: one segment of it */
    XN_CPU_LOOKUP_VERTICAL, /* double [W], for */
    XN_CPU_LOOKUP_EXACT,    /* double [OW]: K in double */
    XN_CPU_LOOKUP_BLOCKS,   /* of a tile (lookup_kernels.h) */
    XN_CPU_LOOKUP_ARRAYS
};

/* A plan's. */
typedef struct xn_cpu_lookup_state {
    xn_cpu_rows rows; /* of a strip */
    int32_t ring;     /* input rows a thread keeps, a slot each */
    int32_t strip;    /* most output columns of a unit */
    size_t offset[XN_CPU_LOOKUP_ARRAYS];
} xn_cpu_lookup_state;

/* A kernel row's taps are joined 4 to a plane. */
static inline int64_t xn_cpu_lookup_plane_count(const xn_conv *conv) {
    return xn_cpu_div_up((int64_t)conv->group_channels * conv->kernel_w, XN_CPU_PATTERN_TAPS);
}

static inline int64_t xn_cpu_lookup_strip_pitch(const xn_cpu_lookup_state *state) {
    return xn_cpu_div_up(state->strip, XN_CPU_ALIGNMENT) * XN_CPU_ALIGNMENT;
}

/* Whether tiles (lookup_kernels.h) can have all of its outputs. */
bool xn_cpu_lookup_has_tiles(const xn_conv *conv, const xn_cpu_lookup_kernels *lookup);

/* ---- lookup_unit.c ---- */

/* What a unit works with. */
typedef struct xn_cpu_lookup_unit {
    const xn_cpu_kernels *common;
    const xn_cpu_lookup_kernels *kernels;
    const xn_conv *conv;
    const xn_cpu_lookup_state *state;
    const xn_cpu_epilogue *epilogue;
    const xn_prepared *prepared;
    const xn_cpu_lookup_weights *weights;
    const xn_cpu_image *image;
    unsigned char *slice;
    int32_t group, x0, n; /* the strip: outputs x0 .. x0 + n */
    int64_t plane_count, strip_pitch;
    bool with_k, stream;
    int32_t first_of[4]; /* what XN_CPU_LOOKUP_FIRST holds: filter, i0, i1, bytes of an element */
} xn_cpu_lookup_unit;

/* Output rows [y0, y1) of the strip. */
void xn_cpu_lookup_do_unit(xn_cpu_lookup_unit *unit, int32_t y0, int32_t y1);

#endif
