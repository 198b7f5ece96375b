/* gemm_wide_plan.cu: which tile of gemm_wide.cu a problem gets, and where its data lies in shared
 * memory. Host code without a device. */
#include "gemm_wide.h"

enum {
    PIXELS = XN_CUDA_WIDE_PIXELS,
    RESIDENT_BYTES = 48 * 1024, /* the most that filters may keep of shared memory */
    BLOCK_BYTES = 1024,         /* what a block takes beside its own */
};

static const int32_t tile_filters[XN_CUDA_WIDE_TILES] = {128, 64, 32};
static const int32_t tile_blocks[XN_CUDA_WIDE_TILES] = {2, 3, 3}; /* that registers allow */

static int64_t round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* ---- border classes ---- */

/* The class of a range, a new one if there is none; -1 when there are too many. */
static int class_of(xn_cuda_axis *axis, int32_t first, int32_t last) {
    for (int32_t i = 0; i < axis->classes; i++)
        if (axis->range[i].first == first && axis->range[i].last == last)
            return i;
    if (axis->classes == XN_CUDA_WIDE_MAX_CLASSES)
        return -1;
    axis->range[axis->classes] = {(uint8_t)first, (uint8_t)last};
    return axis->classes++;
}

struct axis_conv {
    int32_t outputs, stride, pad, dilation, kernel, size;
};

/* From one end inwards, as far as taps are missing. */
static bool add_border(xn_cuda_axis *axis, const axis_conv &c, bool from_end, uint8_t *classes,
                       int32_t *count) {
    for (*count = 0; *count < c.outputs; (*count)++) {
        int32_t first, last;
        xn_valid_taps((from_end ? c.outputs - 1 - *count : *count) * c.stride - c.pad, c.dilation,
                      c.kernel, c.size, &first, &last);
        if (first == 0 && last == c.kernel)
            return true;
        const int cls = class_of(axis, first, last);
        if (cls < 0 || *count == XN_CUDA_WIDE_BORDER)
            return false;
        classes[*count] = (uint8_t)cls;
    }
    return true;
}

static bool make_axis(xn_cuda_axis *axis, const axis_conv &c) {
    return class_of(axis, 0, c.kernel) == 0 &&
           add_border(axis, c, false, axis->first, &axis->first_count) &&
           add_border(axis, c, true, axis->last, &axis->last_count);
}

static void make_pixel_classes(const xn_conv *c, xn_cuda_wide_shape *s) {
    const int32_t row = c->kernel_w + 1;
    s->classes = 0;
    for (int32_t v = 0; v < s->rows.classes; v++)
        for (int32_t h = 0; h < s->columns.classes; h++) {
            const xn_cuda_range y = s->rows.range[v], x = s->columns.range[h];
            xn_cuda_class *cls = &s->pixel_class[s->classes++];
            cls->high_last = (uint16_t)(y.last * row + x.last);
            cls->low_last = (uint16_t)(y.first * row + x.last);
            cls->high_first = (uint16_t)(y.last * row + x.first);
            cls->low_first = (uint16_t)(y.first * row + x.first);
            cls->inside = (y.last - y.first) * (x.last - x.first);
        }
}

/* ---- the raster ---- */

/* Rows (or columns) of the raster from image to image (or row to row), such that a window that
 * reaches past the end reads zeros: those below this image and above the next. */
static int64_t shared_pitch(int64_t outputs, int64_t span, int64_t before, int64_t size) {
    int64_t pitch = outputs;
    pitch = pitch > before + size ? pitch : before + size;
    return pitch > outputs + span - before ? pitch : outputs + span - before;
}

static bool make_raster(const xn_conv *c, int64_t images, xn_cuda_wide_shape *s) {
    const int64_t span_h = (int64_t)(c->kernel_h - 1) * c->dilation_h;
    const int64_t span_w = (int64_t)(c->kernel_w - 1) * c->dilation_w;
    const int64_t own = (int64_t)c->kernel_h * PIXELS;
    int64_t width = c->out_width, rows = c->out_height, span = 0;
    s->overlap = c->stride_h == 1 && c->kernel_h > 1 && span_h * width < own - PIXELS;
    s->slide = s->overlap && c->stride_w == 1 && c->kernel_w > 1 && s->tap_words % 8 == 0;
    if (s->slide) {
        width = shared_pitch(width, span_w, c->pad_left, c->width);
        span = span_w;
    }
    if (s->overlap)
        rows = shared_pitch(rows, span_h, c->pad_top, c->height);
    const int64_t slots = s->overlap ? PIXELS + span_h * width + span : own;
    int64_t pitch = rows * width;
    if (!s->slide && c->out_height * width % 4 == 0)
        pitch = round_up(pitch, 4);
    const int64_t positions = (images - 1) * pitch + (int64_t)c->out_height * width;
    if (slots > 1 << 16 || pitch > INT32_MAX / 2 || positions > INT32_MAX / 2 - slots - PIXELS)
        return false;
    s->row_taps = s->slide ? 1 : c->kernel_w;
    s->planes = (s->row_taps * s->tap_words + 3) / 4;
    s->slots = (int32_t)slots;
    s->plane = s->slots | 1;
    s->row_step = s->overlap ? (int32_t)(c->dilation_h * width) : PIXELS;
    s->column_step = s->slide ? c->dilation_w : 0;
    s->width = (int32_t)width;
    s->image_pitch = (int32_t)pitch;
    s->tiles = (int32_t)((positions + PIXELS - 1) / PIXELS);
    return true;
}

/* ---- shared memory ---- */

static int32_t place(int64_t *total, int64_t bytes) {
    int64_t at = *total;
    *total += round_up(bytes, 128);
    return (int32_t)at;
}

static int64_t place_all(xn_cuda_wide_shape *s, int32_t buffers) {
    const int64_t filters = s->tile_filters;
    const int64_t stage = XN_CUDA_WIDE_STAGE_CHUNKS * filters * 16;
    const int64_t classes = s->classes;
    int64_t total = 0;
    s->buffers = buffers;
    s->zeros_at = (int32_t)round_up((int64_t)s->planes * s->plane * 16, 128);
    s->buffer_bytes = s->zeros_at + (s->chunks % XN_CUDA_WIDE_STAGE_CHUNKS ? PIXELS * 16 : 0);
    place(&total, (int64_t)buffers * s->buffer_bytes);
    s->filters_at = place(&total, s->ring * stage);
    s->turn_at = place(&total, s->packed ? 0 : 2 * 16 * XN_CUDA_WIDE_TURN_PITCH * 4);
    s->table_at = place(&total, classes * (filters + 4) * 4);
    s->constants_at = place(&total, filters * 2 * 4 + s->stages * 8 + classes * 4);
    s->pixels_at = place(&total, PIXELS * (8 + 4 + 4 + 4) + (int64_t)s->slots * 4);
    s->bytes = (int32_t)(total < INT32_MAX ? total : INT32_MAX);
    return total;
}

/* The ring takes what is left when as many blocks run on a multiprocessor as registers allow, or
 * fewer where that is not enough for a ring. */
static bool make_layout(xn_cuda_wide_shape *s, int32_t buffers) {
    const int64_t stage = XN_CUDA_WIDE_STAGE_CHUNKS * (int64_t)s->tile_filters * 16;
    const int32_t most =
        s->resident || s->stages < XN_CUDA_WIDE_MAX_STAGES ? s->stages : XN_CUDA_WIDE_MAX_STAGES;
    const int32_t least =
        s->resident || most < XN_CUDA_WIDE_MIN_RING ? most : XN_CUDA_WIDE_MIN_RING;
    s->ring = 0;
    const int64_t rest = place_all(s, buffers);
    for (int32_t blocks = tile_blocks[s->tile]; blocks > 0; blocks--) {
        const int64_t room =
            (XN_CUDA_WIDE_SHARED_BYTES + BLOCK_BYTES) / blocks - BLOCK_BYTES - rest;
        if (room >= least * stage) {
            s->ring = (int32_t)(room / stage < most ? room / stage : most);
            return place_all(s, buffers) <= XN_CUDA_WIDE_SHARED_BYTES;
        }
    }
    return false;
}

static int32_t blocks_at_once(const xn_cuda_wide_shape *s, int multiprocessors) {
    int32_t fit = (XN_CUDA_WIDE_SHARED_BYTES + BLOCK_BYTES) / (s->bytes + BLOCK_BYTES);
    return multiprocessors * (fit < tile_blocks[s->tile] ? fit : tile_blocks[s->tile]);
}

/* Blocks a filter tile: one a tile of pixels, or where filters stay resident, as many as run at
 * once, each with as many tiles as the next. */
static bool make_workers(const xn_conv *c, xn_cuda_wide_shape *s, int multiprocessors) {
    s->workers = s->tiles;
    if (!make_layout(s, 1))
        return false;
    if (!s->resident)
        return true;
    xn_cuda_wide_shape twice = *s;
    if (!make_layout(&twice, 2))
        return true;
    int64_t workers =
        blocks_at_once(&twice, multiprocessors) / ((int64_t)s->filter_tiles * c->groups);
    if (workers < 1)
        workers = 1;
    if (workers >= s->tiles)
        return true;
    *s = twice;
    const int64_t rounds = (s->tiles + workers - 1) / workers;
    s->workers = (int32_t)((s->tiles + rounds - 1) / rounds);
    return true;
}

static bool make_tile(const xn_conv *c, int64_t images, int multiprocessors, int tile,
                      xn_cuda_wide_shape *s) {
    s->tile = tile;
    s->tile_filters = tile_filters[tile];
    /* packed output also writes the words that only pad */
    const int64_t filters =
        s->packed && c->groups == 1 ? (int64_t)s->packed_words * 32 : c->group_out_channels;
    s->filter_tiles = (int32_t)((filters - 1) / s->tile_filters + 1);
    s->stages = (s->chunks - 1) / XN_CUDA_WIDE_STAGE_CHUNKS + 1;
    s->resident =
        s->stages <= XN_CUDA_WIDE_MAX_STAGES &&
        (int64_t)s->stages * XN_CUDA_WIDE_STAGE_CHUNKS * s->tile_filters * 16 <= RESIDENT_BYTES;
    (void)images;
    return make_workers(c, s, multiprocessors) &&
           (int64_t)s->workers * s->filter_tiles * c->groups <= INT32_MAX;
}

bool xn_cuda_wide_plan(const xn_conv *c, int64_t images, int multiprocessors, bool packed,
                       xn_cuda_wide_shape *out) {
    xn_cuda_wide_shape s = {};
    s.packed = packed;
    s.tap_words = xn_cuda_tap_words(c->group_channels);
    s.packed_words = xn_cuda_tap_words(c->out_channels);
    const int64_t chunks = xn_cuda_row_chunks(c->group_channels, c->kernel_w) * c->kernel_h;
    if (c->mode != XN_MODE_XNOR || c->kernel_h >= UINT8_MAX || c->kernel_w >= UINT8_MAX ||
        (c->groups > 1 && c->group_out_channels % 32) || chunks > 1 << 16 || images > INT32_MAX / 4)
        return false;
    if (packed && c->groups > 1 && s.packed_words * 32 != c->out_channels)
        return false; /* nobody would write the words that only pad a pixel */
    s.chunks = (int32_t)chunks;
    if (!make_raster(c, images, &s) ||
        !make_axis(&s.rows, {c->out_height, c->stride_h, c->pad_top, c->dilation_h, c->kernel_h,
                             c->height}) ||
        !make_axis(&s.columns,
                   {c->out_width, c->stride_w, c->pad_left, c->dilation_w, c->kernel_w, c->width}))
        return false;
    make_pixel_classes(c, &s);
    bool found = false;
    for (int tile = 0; tile < XN_CUDA_WIDE_TILES; tile++) {
        xn_cuda_wide_shape candidate = s;
        const bool last = tile == XN_CUDA_WIDE_TILES - 1;
        if (!last && c->group_out_channels <= tile_filters[tile] / 2)
            continue;
        if (!make_tile(c, images, multiprocessors, tile, &candidate))
            continue;
        *out = candidate;
        found = true;
        if ((int64_t)candidate.tiles * candidate.filter_tiles * c->groups >= multiprocessors)
            break;
    }
    return found;
}

bool xn_cuda_wide_fits(const xn_conv *conv, int64_t images, bool packed) {
    xn_cuda_wide_shape shape;
    return xn_cuda_wide_plan(conv, images, 1, packed, &shape);
}
