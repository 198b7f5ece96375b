/* xn_picture.h: encoded pictures, JPEG and PNG, as the values of a network's input: decoded, turned
 * upright, resized, cropped, as Pillow and torchvision define these (MODELS.md, PROTOCOL.md).
 *
 * Two steps, so that memory is counted before any is taken. Inspecting reads the file's headers by
 * code of ours, takes no memory, and refuses what is too large or of a kind that is not read.
 * Reading runs the decoder, which gets no more memory than was said. A decoder's error is a status;
 * none of its jumps leaves the file that calls it.
 *
 * What reading does: the file's samples become 8 bits and grey, RGB or CMYK; these become the
 * model's channels (alpha is dropped); EXIF's orientation is applied; the shorter side becomes
 * rule->resize and the other one keeps the aspect, rounded down; rule->height x rule->width are cut
 * out of the middle. Rows pass through one by one where they can: a picture is kept as a whole only
 * where it is turned by a quarter or interlaced.
 *
 * All functions are reentrant. Errors name `field` ("inputs[0].data[2]", "body"). */
#ifndef XN_PICTURE_H
#define XN_PICTURE_H

#include "xn_graph.h"
#include "xn_proto.h"

#define XN_PICTURE_MAX_SIDE 65500 /* pixels of a side: what the JPEG library can */
#define XN_PICTURE_MAX_RESIZE 16384
#define XN_PICTURE_CHANNELS 3 /* of an input that takes pictures: 1 or 3 */

typedef enum { XN_PICTURE_BILINEAR, XN_PICTURE_BICUBIC } xn_picture_filter;

/* How a picture becomes an input: `picture` of config.json, and what the input is. */
typedef struct xn_picture_rule {
    int channels; /* 1: grey; 3: RGB; 0: the input takes no pictures */
    int64_t height, width;
    xn_datatype datatype; /* UINT8: 0 to 255; FP32, FP16: (value / 255 - mean) / std */
    xn_image_layout layout;
    int64_t resize; /* the shorter side before the crop; at least height and width */
    xn_picture_filter filter;
    bool fast; /* JPEG may be decoded at 1/2, 1/4 or 1/8, if no side gets smaller than needed */
    double mean[XN_PICTURE_CHANNELS], std[XN_PICTURE_CHANNELS];
} xn_picture_rule;

/* The rule where the configuration has none: shorter side to the input's longer side, bilinear. */
void xn_picture_rule_default(xn_datatype datatype, xn_image_layout layout, const xn_shape *image,
                             xn_picture_rule *out);
size_t xn_picture_input_bytes(const xn_picture_rule *rule); /* of one picture's values */

/* A file whose headers were read. Borrows its bytes. */
typedef struct xn_picture {
    const uint8_t *bytes;
    size_t length;
    const struct xn_picture_format *format;
    int64_t width, height; /* as stored */
    int orientation;       /* EXIF's: 1 to 8 */
    size_t decoder_bytes;  /* the most that the decoder takes */
} xn_picture;

/* Whether bytes begin as a file of one of the formats does; no JSON does. */
bool xn_picture_begins(const void *bytes, size_t length);
/* "image/jpeg" */
bool xn_picture_is_type(const char *content_type);

/* XN_ERR_MALFORMED: neither format, cut short, or of a kind that is not read; XN_ERR_LIMIT
 * "max-picture-pixels". Time is linear in the number of segments. */
xn_status xn_picture_inspect(const void *bytes, size_t length, int64_t max_pixels,
                             const char *field, xn_picture *out, xn_error *error);

/* The most memory that reading takes beside the destination, the decoder's included. */
size_t xn_picture_memory(const xn_picture *picture, const xn_picture_rule *rule);

/* Asked between rows: what it answers ends the reading. */
typedef struct xn_picture_watch {
    xn_status (*check)(void *context, xn_error *error);
    void *context;
} xn_picture_watch;

/* Writes the values (xn_picture_input_bytes, aligned to an element). watch: may be NULL.
 * XN_ERR_MALFORMED with the decoder's reason, XN_ERR_NO_MEMORY, what the watch answers. */
xn_status xn_picture_read(const xn_picture *picture, const xn_picture_rule *rule, const char *field,
                          const xn_picture_watch *watch, void *destination, xn_error *error);

#endif
