/* filter_stationary_plan.cu: which tile of filter_stationary.cu a problem gets, and where its data
 * lies in shared memory. Host code without a device.
 *
 * Its model (terms_of): what the busiest multiprocessor has to multiply and to issue, what its
 * slowest worker has to do one after the other, and what is left of the beginning. */
#include "filter_stationary.h"
#include "wgmma_plan.h"

enum {
    SUB = XN_CUDA_STATIONARY_PIXELS,
    BLOCK_BYTES = 1024 + 128, /* what a block takes beside its dynamic shared memory */
    MULTIPROCESSOR_BYTES = 228 * 1024,
    /* More than half a multiprocessor's: next to blocks of the kernel that packs real input a block
     * would take registers that they need, only to wait for them. */
    ALONE_BYTES = 116 * 1024,
    IN_TURN_CYCLES = 500,      /* of a subtile's matrix instructions */
    MULTIPROCESSOR_BLOCKS = 4, /* of 16 barriers each: their numbers are computed */
};

/* ---- the raster ---- */

static bool can_slide(const xn_conv *c) {
    return c->stride_h == 1 && c->stride_w == 1 && c->kernel_w > 1 &&
           xn_packed_words(c->group_channels) % 8 == 0;
}

/* The raster for tiles of that many subtiles; with slide only where can_slide. */
static bool make_raster(const xn_conv *c, int64_t images, int32_t tile_pixels, bool slide,
                        xn_cuda_raster *r) {
    const int32_t tap_words = xn_packed_words(c->group_channels);
    const int64_t span_h = xn_cuda_span_h(c);
    const int64_t span_w = xn_cuda_span_w(c);
    const int64_t pixels = (int64_t)tile_pixels * SUB, own = c->kernel_h * pixels;
    int64_t width = c->out_width, rows = c->out_height, span = 0;
    *r = {};
    r->slide = slide;
    if (slide) {
        width = xn_wgmma_shared_pitch(width, span_w, c->pad_left, c->width);
        span = span_w;
    }
    span += span_h * width;
    r->overlap = slide || (c->stride_h == 1 && c->kernel_h > 1 && span < own - pixels);
    if (r->overlap)
        rows = xn_wgmma_shared_lines(c);
    const int64_t slots = r->overlap ? pixels + span : own;
    int64_t pitch = rows * width;
    if (!slide && (int64_t)c->out_height * width % 4 == 0)
        pitch = xn_round_up(pitch, 8);
    const int64_t positions = (images - 1) * pitch + (int64_t)c->out_height * width;
    if (slots > 1 << 14 || pitch > INT32_MAX / 2 || positions > INT32_MAX / 2 - slots - SUB)
        return false;
    r->row_taps = slide ? 1 : c->kernel_w;
    r->planes = (r->row_taps * tap_words + 3) / 4;
    r->span = (int32_t)(r->overlap ? span : 0);
    r->slots = (int32_t)slots;
    r->plane = r->slots | 1;
    r->row_step = r->overlap ? (int32_t)(c->dilation_h * width) : (int32_t)pixels;
    r->column_step = slide ? c->dilation_w : 0;
    r->width = (int32_t)width;
    r->image_pitch = (int32_t)pitch;
    r->subtiles = (int32_t)xn_quotient_up(positions, SUB);
    return true;
}

/* Positions from a tile's first to those of a chunk. */
static int64_t chunk_offset(const xn_conv *c, const xn_cuda_stationary_shape *s, int32_t chunk) {
    const xn_cuda_raster *r = &s->raster;
    if (s->tap_words % 8) {
        const int32_t column = chunk / c->kernel_h, i = chunk % c->kernel_h;
        return (int64_t)column * r->plane + (int64_t)i * r->row_step;
    }
    const int32_t units = s->tap_words / 4, tap = chunk / units, unit = chunk % units;
    const int32_t i = tap / c->kernel_w, j = tap % c->kernel_w;
    const int32_t plane = r->slide ? unit : j * units + unit;
    return (int64_t)plane * r->plane + (int64_t)i * r->row_step + (int64_t)j * r->column_step;
}

/* ---- shared memory ---- */

/* turned: bytes an output that is turned in shared memory, or 0. */
static bool make_layout(xn_cuda_stationary_shape *s, int32_t turned) {
    const xn_cuda_raster *r = &s->raster;
    const int64_t filters = s->block_filters, classes = s->borders.classes;
    const int64_t pixels = s->tile_pixels * SUB;
    int64_t own = 0, total = 0, positions = 0;
    s->table_pitch = (int32_t)filters + 4;
    xn_place_shared(&positions, (int64_t)r->planes * r->plane * 16);
    s->means_at = xn_place_shared(&positions, s->means ? (int64_t)r->row_taps * r->slots * 4 : 0);
    if (positions > XN_CUDA_WGMMA_SHARED_BYTES)
        return false;
    s->buffer_bytes = (int32_t)positions;
    xn_place_shared(&own, s->buffers * positions);
    s->counts_at = xn_place_shared(&own, (int64_t)r->slots * 4);
    s->pixels_at = xn_place_shared(&own, pixels * 16);
    s->k_at = xn_place_shared(&own, s->packed ? 0 : pixels * 4);
    s->turn_at =
        xn_place_shared(&own, turned ? XN_CUDA_STATIONARY_TURN_COLUMNS * (SUB * turned + 16) : 0);
    s->worker_bytes = (int32_t)own;
    xn_place_shared(&total, filters * 32 * s->pairs);
    s->table_at = xn_place_shared(&total, (s->packed ? 2 : 1) * classes * s->table_pitch * 4);
    s->constants_at = xn_place_shared(&total, filters * 8 + classes * 4 + 12);
    s->workers_at = xn_place_shared(&total, s->workers * own);
    return xn_wgmma_has_room(total, s);
}

static int32_t blocks_at_once(const xn_cuda_stationary_shape *s) {
    const int32_t memory = MULTIPROCESSOR_BYTES / (s->bytes + BLOCK_BYTES);
    const int32_t warpgroups =
        xn_stationary_workers(s->variant, s->packed) * xn_stationary_blocks(s->variant, s->packed);
    return std::min(std::min(memory, warpgroups / s->workers), (int32_t)MULTIPROCESSOR_BLOCKS);
}

/* ---- which shape ---- */

/* Instructions of a warp: for the outputs of a subtile and a filter tile, and for a tile. */
static double unit_instructions(const xn_conv *c, const xn_cuda_stationary_shape *s) {
    const bool vectors = s->raster.width == c->out_width;
    const double each = s->packed                          ? 2.2
                        : c->epilogue.datatype == XN_INT32 ? 5
                        : c->epilogue.datatype == XN_FP32  ? 8
                        : vectors                          ? 7
                                                           : 12;
    return 60 + 8 * s->pairs + each * s->tile_filters / 2;
}

static double tile_instructions(const xn_conv *c, const xn_cuda_stationary_shape *s) {
    const xn_cuda_raster *r = &s->raster;
    const double rounds = r->slots / 128.0, taps = c->kernel_h * c->kernel_w;
    const double copies = r->row_taps * (double)xn_quotient_up(s->tap_words, 4);
    const double pixel = 60 + 4 * (r->slide ? taps : c->kernel_h) + (s->means ? 4 * taps : 0);
    return 60 + rounds * (60 + 7 * copies + (s->means ? 4 * r->row_taps : 0) + 13 * r->planes) +
           xn_quotient_up(s->tile_pixels, 2) * pixel;
}

static xn_wgmma_terms terms_of(const xn_conv *c, const xn_cuda_stationary_shape *s,
                               int multiprocessors) {
    const double latency = 6, gather = 1200, start = 1800, fill_rate = 20;
    const int64_t blocks = (int64_t)s->pixel_blocks * s->filter_blocks * c->groups;
    const double here = (double)xn_quotient_up(blocks, multiprocessors); /* a multiprocessor's */
    const double most =
        (double)xn_quotient_up(s->raster.subtiles, (int64_t)s->pixel_blocks * s->workers);
    const double subtiles = (double)xn_quotient_up(s->raster.subtiles, s->pixel_blocks);
    const double tiles = (double)xn_quotient_up((int64_t)most, s->tile_pixels);
    const double instruction = std::max(s->tile_filters / 2, 20 + s->tile_filters / 4);
    const double unit = unit_instructions(c, s), tile = tile_instructions(c, s);
    const double entries = (double)s->borders.classes * s->block_filters;
    const double setup = 250 + 40 * entries / (s->workers * XN_WGMMA_GROUP);
    const double share = (double)s->raster.subtiles / ((double)s->pixel_blocks * s->workers);
    const double shared_tiles = std::max(share / s->tile_pixels, 1.0);
    const int32_t at_once = blocks_at_once(s) * s->workers; /* warps a scheduler */
    const double ipc = at_once < 6 ? 0.12 * at_once : 0.7;
    const double waves =
        (double)xn_quotient_up(blocks, (int64_t)multiprocessors * blocks_at_once(s));
    const double fill = here * s->block_filters * 32.0 * s->pairs / fill_rate;
    const double last = latency * (tile + unit);
    const double small = 1 + 0.25 * s->variant + 0.04 * (s->block_tiles - 1); /* not explained */
    xn_wgmma_terms t;
    t.start = small * (start + latency * setup + fill / 2);
    t.matrix = small * (here * subtiles * s->block_tiles * s->pairs * instruction + last);
    t.issue = here * s->workers * (share * s->block_tiles * unit + shared_tiles * tile + setup);
    t.issue = small * (t.issue / ipc + last);
    t.memory = small * (fill + last);
    t.chain = small * waves *
              (most * s->block_tiles * (s->pairs * instruction + latency * unit) +
               tiles * (latency * tile + (s->buffers == 1 ? gather : 0)));
    return t;
}

/* How many blocks share the pixels: as many as run at once, but not more than there is work. */
static bool make_grid(const xn_conv *c, int multiprocessors, xn_cuda_stationary_shape *s) {
    const int64_t others = (int64_t)s->filter_blocks * c->groups;
    const int64_t room = (int64_t)multiprocessors * blocks_at_once(s) / others;
    const int64_t work = xn_quotient_up(s->raster.subtiles, s->workers);
    s->pixel_blocks = (int32_t)std::max<int64_t>(std::min(room, work), 1);
    return s->filter_blocks <= UINT16_MAX && c->groups <= UINT16_MAX;
}

struct stationary_choice : xn_wgmma_choice<xn_cuda_stationary_shape> {
    const xn_conv *conv;
    int multiprocessors;
};

/* All numbers of workers and buffers of a shape that has its tiles and raster. */
static void try_workers(stationary_choice *choice, xn_cuda_stationary_shape *s) {
    const xn_conv *c = choice->conv;
    const bool fp16 = c->epilogue.datatype == XN_FP16 && xn_is_plain(c->epilogue);
    const int32_t turned = s->packed ? 0 : fp16 ? 2 : 4;
    for (s->workers = 1; s->workers <= xn_stationary_workers(s->variant, s->packed); s->workers++)
        for (s->buffers = 1; s->buffers <= 2; s->buffers++) {
            if (!make_layout(s, turned) || !make_grid(c, choice->multiprocessors, s))
                break;
            choice->consider(s, terms_of(c, s, choice->multiprocessors));
        }
}

static void try_tiles(stationary_choice *choice, xn_cuda_stationary_shape *s) {
    const xn_conv *c = choice->conv;
    /* packed output also writes the words that only pad */
    const int64_t filters =
        s->packed && c->groups == 1 ? (int64_t)s->packed_words * 32 : c->group_out_channels;
    for (s->variant = 0; s->variant < XN_CUDA_STATIONARY_TILES; s->variant++) {
        s->tile_filters = xn_stationary_filters(s->variant);
        const int32_t tiles = (int32_t)xn_quotient_up(filters, s->tile_filters);
        if (s->variant < XN_CUDA_STATIONARY_TILES - 1 && filters <= s->tile_filters / 2)
            continue;
        for (s->block_tiles = 1; s->block_tiles <= 4; s->block_tiles *= 2)
            if (tiles % s->block_tiles == 0) {
                s->block_filters = s->block_tiles * s->tile_filters;
                s->filter_blocks = tiles / s->block_tiles;
                try_workers(choice, s);
            }
    }
}

static bool is_possible(const xn_conv *c, int64_t images, bool packed) {
    if (!xn_wgmma_can(c, packed) || images > INT32_MAX / 4)
        return false;
    if (packed && c->groups > 1 && xn_packed_words(c->out_channels) * 32 != c->out_channels)
        return false; /* nobody would write the words that only pad a pixel */
    return images * c->groups * c->height * c->width <= INT32_MAX / 2; /* numbered in 32 bits */
}

bool xn_cuda_stationary_plan(const xn_conv *c, int64_t images, int multiprocessors, bool packed,
                             xn_cuda_stationary_shape *out) {
    xn_cuda_stationary_shape s = {};
    stationary_choice choice = {{out, false}, c, multiprocessors};
    s.packed = packed;
    s.means = c->epilogue.k;
    s.tap_words = xn_packed_words(c->group_channels);
    s.packed_words = xn_packed_words(c->out_channels);
    if (!is_possible(c, images, packed) || !xn_cuda_borders_make(c, &s.borders) ||
        !xn_wgmma_set_chunks(xn_cuda_row_chunks(c->group_channels, c->kernel_w) * c->kernel_h,
                             XN_WGMMA_MAX_PIECES, &s))
        return false;
    for (s.tile_pixels = 1; s.tile_pixels <= 4; s.tile_pixels *= 2)
        for (int slide = 0; slide <= can_slide(c); slide++)
            if (make_raster(c, images, s.tile_pixels, slide, &s.raster))
                try_tiles(&choice, &s);
    if (!choice.found)
        return false;
    if (out->means && out->pixel_blocks * out->filter_blocks * c->groups <= multiprocessors)
        out->bytes = std::max(out->bytes, (int32_t)ALONE_BYTES);
    out->in_turn = out->workers > 1 && out->pairs * out->tile_filters / 2 >= IN_TURN_CYCLES &&
                   out->raster.subtiles * out->block_tiles >= 2 * out->pixel_blocks * out->workers;
    xn_wgmma_make_pairs(out, [&](int32_t chunk) { return chunk_offset(c, out, chunk); });
    return true;
}
