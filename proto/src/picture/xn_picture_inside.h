/* xn_picture_inside.h: what the files about pictures share: the table of formats, the rows that
 * decoders hand over, and resampling. */
#ifndef XN_PICTURE_INSIDE_H
#define XN_PICTURE_INSIDE_H

#include "xn_picture.h"

/* Samples of a decoded pixel, 8 bits each. CMYK lies inverted, as Adobe writes it. */
typedef enum { XN_PIXELS_GREY = 1, XN_PIXELS_RGB = 3, XN_PIXELS_CMYK = 4 } xn_pixels;

/* Where a decoder hands rows over: each once, from the top. */
typedef struct xn_picture_sink {
    void (*row)(void *context, int64_t y, const uint8_t *samples, xn_pixels kind);
    void *context;
    int64_t width, height; /* of the rows; smaller than the file's where `denominator` is not 1 */
    int denominator;       /* 1; of JPEG 2, 4 or 8 too */
    const xn_picture_watch *watch; /* or NULL */
} xn_picture_sink;

/* Whether decoding is still wanted. */
static inline xn_status xn_picture_ask(const xn_picture_sink *sink, xn_error *error) {
    return sink->watch ? sink->watch->check(sink->watch->context, error) : XN_OK;
}

typedef struct xn_picture_format {
    const char *name; /* "JPEG" */
    const char *media_type;
    const char *magic; /* the file's first bytes */
    size_t magic_length;
    bool scales; /* may be decoded at a fraction of its size */
    /* Sets what follows `format` in *out, but for checks of sizes. */
    xn_status (*inspect)(const uint8_t *bytes, size_t length, const char *field, xn_picture *out,
                         xn_error *error);
    xn_status (*decode)(const xn_picture *picture, const xn_picture_sink *sink, const char *field,
                        xn_error *error);
} xn_picture_format;

extern const xn_picture_format xn_picture_jpeg, xn_picture_png;

/* jpeg.c and png.c: the libraries. jpeg_header.c and png_header.c: no library. */
xn_status xn_jpeg_inspect(const uint8_t *bytes, size_t length, const char *field, xn_picture *out,
                          xn_error *error);
xn_status xn_jpeg_decode(const xn_picture *picture, const xn_picture_sink *sink, const char *field,
                         xn_error *error);
xn_status xn_png_inspect(const uint8_t *bytes, size_t length, const char *field, xn_picture *out,
                         xn_error *error);
xn_status xn_png_decode(const xn_picture *picture, const xn_picture_sink *sink, const char *field,
                        xn_error *error);

/* "<field> is a <format> that <what>" */
xn_status xn_picture_fail(const char *field, const char *format, const char *what, xn_error *error);

/* The orientation in a TIFF structure, the inside of an Exif block: 1 to 8; 1 where there is none.
 */
int xn_exif_orientation(const uint8_t *tiff, size_t length);

static inline uint32_t xn_big16(const uint8_t *at) {
    return (uint32_t)at[0] << 8 | at[1];
}
static inline uint32_t xn_big32(const uint8_t *at) {
    return xn_big16(at) << 16 | xn_big16(at + 2);
}

/* ---- pixels.c ---- */

/* A row of `width` pixels in the model's channels, by Pillow's rules for convert(). mirror: the
 * last pixel comes first. */
void xn_pixels_convert(const uint8_t *samples, xn_pixels kind, int64_t width, int channels,
                       bool mirror, uint8_t *out);

/* Bytes of pixels as the input's values: row y of the input. */
typedef struct xn_pixel_values {
    const xn_picture_rule *rule;
    float of[XN_PICTURE_CHANNELS][256]; /* what a byte becomes where it is no UINT8 */
} xn_pixel_values;
void xn_pixel_values_begin(const xn_picture_rule *rule, xn_pixel_values *out);
void xn_pixel_values_row(const xn_pixel_values *values, int64_t y, const uint8_t *pixels,
                         void *destination);

/* ---- resize.c ---- */

/* Resampling along one axis: output i is the sum of weights[i * taps + t] * input[first[i] + t],
 * t < count[i], rounded and clipped to a byte. Weights are integers of XN_RESIZE_BITS behind the
 * point. */
#define XN_RESIZE_BITS 22
#define XN_RESIZE_HALF (1 << (XN_RESIZE_BITS - 1))
/* Two taps' weights in two halves each: a product of 16 bits with a byte is what vector units do,
 * and the sum of both halves is exact. */
#define XN_RESIZE_PAIR_BITS 11
typedef struct xn_tap_pair {
    int16_t high[2], low[2];
} xn_tap_pair;
typedef struct xn_axis {
    int64_t size, in; /* outputs; inputs, needed or not */
    int64_t taps, pairs_per_output;
    int32_t *first, *count, *weights;
    xn_tap_pair *pairs;
    int32_t most;     /* the largest of count */
    int64_t from, to; /* inputs that are needed: from <= i < to */
} xn_axis;

/* An axis of `in` pixels becomes `out` pixels, of which `size` from `begin` on are made. */
typedef struct xn_axis_shape {
    int64_t in, out, begin, size;
} xn_axis_shape;

int64_t xn_axis_taps(const xn_axis_shape *shape, xn_picture_filter filter);
size_t xn_axis_bytes(const xn_axis_shape *shape, xn_picture_filter filter);
/* memory: xn_axis_bytes, aligned to 4; kept by *out. */
void xn_axis_make(const xn_axis_shape *shape, xn_picture_filter filter, void *memory, xn_axis *out);

/* One output, whose first input is at `inputs`, the next ones `step` bytes apart. */
void xn_resize_output(const xn_axis *axis, int64_t i, const uint8_t *inputs, size_t step,
                      uint8_t *out);

/* resize_sse2.c, resize_portable.c: the same bytes. */
/* A row: pixels of the whole picture's width -> axis->size pixels. */
void xn_resize_across(const xn_axis *axis, const uint8_t *pixels, int channels, uint8_t *out);
/* Output row i of `row_bytes`: rows are its inputs, one behind the other. */
void xn_resize_down(const xn_axis *axis, int64_t i, const uint8_t *rows, size_t row_bytes,
                    uint8_t *out);

#endif
