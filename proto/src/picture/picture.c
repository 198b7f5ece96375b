/* picture.c: a picture from its file to the input's values; see xn_picture.h. */
#include "xn_mem.h"
#include "xn_picture_inside.h"

#include <string.h>

static const xn_picture_format *const formats[] = {&xn_picture_jpeg, &xn_picture_png};
enum { FORMATS = sizeof formats / sizeof *formats };

const xn_picture_format xn_picture_jpeg = {.name = "JPEG",
                                           .media_type = "image/jpeg",
                                           .magic = "\xff\xd8\xff",
                                           .magic_length = 3,
                                           .scales = true,
                                           .inspect = xn_jpeg_inspect,
                                           .decode = xn_jpeg_decode};
const xn_picture_format xn_picture_png = {.name = "PNG",
                                          .media_type = "image/png",
                                          .magic = "\x89PNG\r\n\x1a\n",
                                          .magic_length = 8,
                                          .inspect = xn_png_inspect,
                                          .decode = xn_png_decode};

xn_status xn_picture_fail(const char *field, const char *format, const char *what,
                          xn_error *error) {
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s is a %s that %s", field, format, what);
}

/* ---- the rule ---- */

size_t xn_picture_input_bytes(const xn_picture_rule *rule) {
    return (size_t)rule->height * (size_t)rule->width * (size_t)rule->channels *
           xn_datatype_bytes(rule->datatype);
}

void xn_picture_rule_default(xn_datatype datatype, xn_image_layout layout, const xn_shape *image,
                             xn_picture_rule *out) {
    const bool last = layout == XN_IMAGE_NHWC;
    *out = (xn_picture_rule){.datatype = datatype,
                             .layout = layout,
                             .filter = XN_PICTURE_BILINEAR,
                             .mean = {0, 0, 0},
                             .std = {1, 1, 1}};
    if (image->rank != 3)
        return;
    const int64_t channels = image->dims[last ? 2 : 0];
    out->height = image->dims[last ? 0 : 1];
    out->width = image->dims[last ? 1 : 2];
    out->resize = out->height > out->width ? out->height : out->width;
    if ((channels == 1 || channels == 3) && out->height >= 1 && out->width >= 1 &&
        out->resize <= XN_PICTURE_MAX_RESIZE)
        out->channels = (int)channels;
}

/* ---- headers ---- */

static const xn_picture_format *format_of(const void *bytes, size_t length) {
    for (int i = 0; i < FORMATS; i++)
        if (length >= formats[i]->magic_length &&
            !memcmp(bytes, formats[i]->magic, formats[i]->magic_length))
            return formats[i];
    return NULL;
}

bool xn_picture_begins(const void *bytes, size_t length) {
    return format_of(bytes, length) != NULL;
}

bool xn_picture_is_type(const char *content_type) {
    bool is = false;
    for (int i = 0; i < FORMATS; i++)
        is = is || xn_form_is_type(content_type, formats[i]->media_type);
    return is;
}

static xn_status check_size(const xn_picture *picture, int64_t max_pixels, const char *field,
                            xn_error *error) {
    const long long width = picture->width, height = picture->height;
    if (width < 1 || height < 1)
        return xn_fail(error, XN_ERR_MALFORMED, field, "%s is a %s of %lld x %lld pixels", field,
                       picture->format->name, width, height);
    if (width > XN_PICTURE_MAX_SIDE || height > XN_PICTURE_MAX_SIDE)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s is a %s of %lld x %lld pixels; a side may have %d", field,
                       picture->format->name, width, height, XN_PICTURE_MAX_SIDE);
    if (width * height > max_pixels)
        return xn_fail_limit(error, "max-picture-pixels", field,
                             "%s is a %s of %lld x %lld pixels; at most %lld pixels are taken",
                             field, picture->format->name, width, height, (long long)max_pixels);
    return XN_OK;
}

xn_status xn_picture_inspect(const void *bytes, size_t length, int64_t max_pixels,
                             const char *field, xn_picture *out, xn_error *error) {
    xn_picture picture = {
        .bytes = bytes, .length = length, .format = format_of(bytes, length), .orientation = 1};
    if (!picture.format)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s is neither JPEG nor PNG, by its first bytes; convert it to one of them",
                       field);
    xn_status status = picture.format->inspect(bytes, length, field, &picture, error);
    if (!status)
        status = check_size(&picture, max_pixels, field, error);
    if (!status)
        *out = picture;
    return status;
}

/* ---- where everything lies ---- */

/* A picture by a rule: from stored rows to the crop, and a block of memory for what is between. */
typedef struct plan {
    int denominator;
    int64_t stored_width, stored_height; /* as decoded */
    bool turned;                         /* rows become columns */
    bool mirror_x, mirror_y;             /* of stored rows and columns */
    int64_t width, height;               /* upright */
    xn_axis_shape across, down;
    size_t across_bytes, down_bytes, down_taps, row_bytes, whole_bytes, crop_row_bytes;
} plan;

/* (size - crop) / 2, halves to even, as Python's round. */
static int64_t margin(int64_t size, int64_t crop) {
    const int64_t spare = size - crop, half = spare / 2;
    return spare % 2 ? half + half % 2 : half;
}

/* The sides after the resize; the shorter one is rule->resize. */
static void resized(int64_t width, int64_t height, int64_t resize, int64_t *new_width,
                    int64_t *new_height) {
    *new_width = width <= height ? resize : resize * width / height;
    *new_height = width <= height ? resize * height / width : resize;
}

static int64_t divide_up(int64_t value, int64_t by) {
    return (value + by - 1) / by;
}

/* The largest fraction at which both sides stay at least what they become. */
static int denominator_of(const xn_picture *picture, const plan *p, int64_t resize) {
    int64_t width, height;
    int denominator = 1;
    resized(p->width, p->height, resize, &width, &height);
    while (picture->format->scales && denominator < 8 &&
           divide_up(p->width, 2 * denominator) >= width &&
           divide_up(p->height, 2 * denominator) >= height)
        denominator *= 2;
    return denominator;
}

static void make_plan(const xn_picture *picture, const xn_picture_rule *rule, plan *p) {
    const int o = picture->orientation;
    int64_t new_width, new_height;
    *p = (plan){.turned = o >= 5,
                .mirror_x = o == 2 || o == 3 || o == 7 || o == 8,
                .mirror_y = o == 3 || o == 4 || o == 6 || o == 7};
    p->width = p->turned ? picture->height : picture->width;
    p->height = p->turned ? picture->width : picture->height;
    resized(p->width, p->height, rule->resize, &new_width, &new_height);
    p->denominator = rule->fast ? denominator_of(picture, p, rule->resize) : 1;
    p->stored_width = divide_up(picture->width, p->denominator);
    p->stored_height = divide_up(picture->height, p->denominator);
    p->width = divide_up(p->width, p->denominator);
    p->height = divide_up(p->height, p->denominator);
    p->across = (xn_axis_shape){p->width, new_width, margin(new_width, rule->width), rule->width};
    p->down =
        (xn_axis_shape){p->height, new_height, margin(new_height, rule->height), rule->height};
    p->across_bytes = xn_axis_bytes(&p->across, rule->filter);
    p->down_bytes = xn_axis_bytes(&p->down, rule->filter);
    p->down_taps = (size_t)xn_axis_taps(&p->down, rule->filter);
    p->row_bytes = (size_t)p->stored_width * (size_t)rule->channels;
    p->whole_bytes = p->turned ? p->row_bytes * (size_t)p->stored_height : 0;
    p->crop_row_bytes = (size_t)rule->width * (size_t)rule->channels;
}

/* How many rows resized across are kept: those of one output. Each lies there twice, so that any so
 * many in a row are one piece. */
static size_t ring_rows(const plan *p) {
    return p->down_taps;
}

/* One row more is for the result. Sides are limited: nothing here overflows. */
static size_t block_bytes(const plan *p) {
    return p->across_bytes + p->down_bytes + p->row_bytes + p->whole_bytes +
           (2 * ring_rows(p) + 1) * p->crop_row_bytes;
}

size_t xn_picture_memory(const xn_picture *picture, const xn_picture_rule *rule) {
    plan p;
    make_plan(picture, rule, &p);
    return block_bytes(&p) + picture->decoder_bytes;
}

/* ---- rows ---- */

typedef struct frame {
    plan plan;
    int channels;
    xn_axis across, down;
    xn_pixel_values values;
    void *destination;
    int64_t next;    /* output row: they are made in the order of their inputs */
    uint8_t *row;    /* one, in the model's channels */
    uint8_t *whole;  /* of a turned picture: all of it, upright */
    uint8_t *ring;   /* the last rows, resized across */
    uint8_t *result; /* one row of the crop */
} frame;

/* Rows come from the bottom. */
static bool is_upward(const plan *p) {
    return p->mirror_y && !p->turned;
}

static void begin(frame *f, const xn_picture_rule *rule, uint8_t *block) {
    const plan *p = &f->plan;
    xn_axis_make(&p->across, rule->filter, block, &f->across);
    xn_axis_make(&p->down, rule->filter, block + p->across_bytes, &f->down);
    xn_pixel_values_begin(rule, &f->values);
    f->next = is_upward(p) ? rule->height - 1 : 0;
    f->row = block + p->across_bytes + p->down_bytes;
    f->whole = f->row + p->row_bytes;
    f->ring = f->whole + p->whole_bytes;
    f->result = f->ring + 2 * ring_rows(p) * p->crop_row_bytes;
}

/* Whether the next output has all its inputs once row y is there. */
static bool is_complete(const frame *f, int64_t y) {
    if (f->next < 0 || f->next >= f->down.size)
        return false;
    const int64_t first = f->down.first[f->next];
    return is_upward(&f->plan) ? first >= y : first + f->down.count[f->next] - 1 <= y;
}

static void take_upright(frame *f, int64_t y, const uint8_t *row) {
    const size_t rows = ring_rows(&f->plan), bytes = f->plan.crop_row_bytes;
    if (y < f->down.from || y >= f->down.to)
        return;
    uint8_t *slot = f->ring + (size_t)y % rows * bytes;
    xn_resize_across(&f->across, row, f->channels, slot);
    memcpy(slot + rows * bytes, slot, bytes);
    for (; is_complete(f, y); f->next += is_upward(&f->plan) ? -1 : 1) {
        const size_t first = (size_t)f->down.first[f->next] % rows;
        xn_resize_down(&f->down, f->next, f->ring + first * bytes, bytes, f->result);
        xn_pixel_values_row(&f->values, f->next, f->result, f->destination);
    }
}

/* A stored row is column `x` of the upright picture. */
static void put_column(const frame *f, int64_t x, const uint8_t *row) {
    const size_t channels = (size_t)f->channels, pitch = (size_t)f->plan.width * channels;
    uint8_t *to = f->whole + (size_t)x * channels;
    for (int64_t y = 0; y < f->plan.stored_width; y++, to += pitch, row += channels)
        memcpy(to, row, channels);
}

static void take_row(void *context, int64_t y, const uint8_t *samples, xn_pixels kind) {
    frame *f = context;
    const plan *p = &f->plan;
    const int64_t at = p->mirror_y ? p->stored_height - 1 - y : y;
    if (!p->turned && (at < f->down.from || at >= f->down.to))
        return;
    if ((int)kind != f->channels || p->mirror_x) {
        xn_pixels_convert(samples, kind, p->stored_width, f->channels, p->mirror_x, f->row);
        samples = f->row;
    }
    if (p->turned)
        put_column(f, at, samples);
    else
        take_upright(f, at, samples);
}

xn_status xn_picture_read(const xn_picture *picture, const xn_picture_rule *rule, const char *field,
                          const xn_picture_watch *watch, void *destination, xn_error *error) {
    frame f = {.channels = rule->channels, .destination = destination};
    make_plan(picture, rule, &f.plan);
    uint8_t *block = xn_mem_alloc(block_bytes(&f.plan));
    if (!block)
        return xn_fail(error, XN_ERR_NO_MEMORY, field, "no memory for %s of %lld x %lld pixels",
                       field, (long long)picture->width, (long long)picture->height);
    begin(&f, rule, block);
    const xn_picture_sink sink = {.row = take_row,
                                  .context = &f,
                                  .width = f.plan.stored_width,
                                  .height = f.plan.stored_height,
                                  .denominator = f.plan.denominator,
                                  .watch = watch};
    xn_status status = picture->format->decode(picture, &sink, field, error);
    for (int64_t y = 0; f.plan.turned && !status && y < f.plan.height; y++)
        take_upright(&f, y, f.whole + (size_t)y * (size_t)f.plan.width * (size_t)f.channels);
    xn_mem_free(block);
    return status;
}
