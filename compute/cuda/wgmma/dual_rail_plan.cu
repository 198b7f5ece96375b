/* dual_rail_plan.cu: which parts dual_rail.cu makes of a problem, and where its data lies in
 * shared memory. Host code without a device. */
#include "dual_rail.h"
#include "wgmma_plan.h"

enum {
    TILE = XN_WGMMA_FILTERS,
    CONSUMERS = XN_CUDA_DUAL_RAIL_CONSUMERS,
    MOST_BOX = XN_CUDA_DUAL_RAIL_MOST_BOX,
    TWO_BLOCKS = 113 * 1024, /* bytes of shared memory, so that a multiprocessor has two */
    LONGEST = 1 << 10,       /* lines of input and output, and what a window spans */
    MOST_TAPS = 127,         /* along an axis */
    MOST_BITS = 0x7ffe,      /* of a filter: a count and what is added to it have 16 bits */
    IN_TURN_CYCLES = 600,    /* of a job's matrix instructions */
};

#define VARIANT(positions) positions,
static const int32_t variants[XN_CUDA_DUAL_RAIL_VARIANTS] = {
    XN_CUDA_DUAL_RAIL_EACH_VARIANT(VARIANT)};

/* ---- parts ---- */

/* What follows from images and rows of a part. False where it does not fit. Images of a band share
 * the zeros between them, and lines those beside them; behind the last line they are a gap. */
static bool make_parts(const xn_conv *c, int64_t images, xn_cuda_dual_rail_shape *s) {
    const int32_t span = (int32_t)xn_cuda_span_h(c);
    s->band_images = s->whole ? s->parts * s->images : 1;
    s->band_rows = s->whole ? c->out_height : s->parts * s->rows;
    s->lines = s->whole ? (int32_t)xn_wgmma_shared_lines(c) : s->band_rows + span;
    s->image_pitch = s->lines * s->pitch;
    s->part_step = s->whole ? s->images * s->image_pitch : s->rows * s->pitch;
    s->plane = s->band_images * s->image_pitch;
    s->gap = c->pad_left + (s->whole ? std::max(c->out_height + span - s->lines, 0) * s->pitch : 0);
    const int64_t own = (s->whole ? s->images - 1 : 0) * (int64_t)s->image_pitch +
                        (s->rows - 1) * s->pitch + c->out_width;
    s->row_bands = s->whole ? 1 : (int32_t)xn_quotient_up(c->out_height, s->band_rows);
    const int64_t bands = s->whole ? xn_quotient_up(images, s->band_images) : images * s->row_bands;
    s->bands = (int32_t)std::min<int64_t>(bands, INT32_MAX);
    /* of a pair of chunks the second one is never before the first, in the next plane either */
    const bool ordered = s->units == 1 || c->kernel_h * c->kernel_w % 2 == 0 ||
                         s->plane >= span * s->pitch + xn_cuda_span_w(c);
    return ordered && own <= s->positions && s->lines <= MOST_BOX && s->band_images <= MOST_BOX &&
           (int64_t)s->units * s->plane * 16 <= XN_CUDA_WGMMA_SHARED_BYTES &&
           bands <= INT32_MAX / 16;
}

/* ---- shared memory ---- */

static bool make_layout(const xn_conv *c, xn_cuda_dual_rail_shape *s) {
    int64_t total = 0, buffer = 0;
    xn_place_shared(&buffer, ((int64_t)s->units * s->plane + s->gap) * 16);
    s->buffer_bytes = (int32_t)buffer;
    s->stage_bytes = 8 * (s->positions * 2 + 16);
    xn_place_shared(&total, (int64_t)TILE * 32 * s->pairs);
    s->inside_at = xn_place_shared(&total, c->out_height + c->out_width);
    s->outside_at = xn_place_shared(&total, CONSUMERS * 2 * 4 * XN_CUDA_DUAL_RAIL_OCTETS * 4);
    s->stage_at = xn_place_shared(&total, CONSUMERS * s->stage_bytes);
    s->buffers_at = xn_place_shared(&total, s->depth * buffer);
    /* The last positions of a job may be past the last plane, and so may their windows. Twice, for
     * compute-sanitizer takes operands that overlap for ones that do not. */
    total += (2 * s->positions + xn_cuda_span_h(c) * s->pitch + xn_cuda_span_w(c)) * 16;
    return xn_wgmma_has_room(total, s);
}

/* ---- which shape ---- */

/* Blocks of the next kernel start early where two have room and one is there. */
static xn_wgmma_terms terms_of(const xn_cuda_dual_rail_shape *s, int64_t blocks,
                               int multiprocessors) {
    const double bands = (double)xn_quotient_up(s->bands, s->pixel_blocks), jobs = bands * s->parts;
    const double sharing = (double)xn_quotient_up(blocks, multiprocessors);
    const double rounds = (double)xn_quotient_up((int64_t)jobs, CONSUMERS);
    const double products = s->pairs * std::max(s->positions / 2 * 1.05, 58.0) + 60;
    const double writer = 1100 + s->positions * 5;
    const bool early = sharing < 2 && s->bytes <= TWO_BLOCKS;
    const double begin = 1500 + TILE * 32.0 * s->pairs / 20 + 200;
    xn_wgmma_terms t = {};
    t.start = 2000 + (early ? 0 : begin) + s->buffer_bytes / 10.0 + (sharing - 1) * writer;
    t.matrix = sharing * jobs * products;
    t.chain = rounds * (products + writer);
    return t;
}

/* All depths, of one block a multiprocessor and of two. */
static void try_memory(const xn_conv *c, int multiprocessors, xn_cuda_dual_rail_shape *s,
                       xn_wgmma_choice<xn_cuda_dual_rail_shape> *choice) {
    const int32_t step = CONSUMERS / s->parts;
    const int32_t most = std::min(2 * step + 2, (int32_t)XN_CUDA_DUAL_RAIL_MAX_DEPTH);
    for (int share = 1; share <= 2; share++)
        xn_wgmma_each_depth(c, share * multiprocessors, most, step, 1, s, [&]() {
            const int64_t blocks = (int64_t)s->pixel_blocks * s->filter_blocks * c->groups;
            if (make_layout(c, s) && (blocks <= multiprocessors || s->bytes <= TWO_BLOCKS))
                choice->consider(s, terms_of(s, blocks, multiprocessors));
        });
}

/* Taps outside the image count nothing, which stands for a pad_value of 0 where half a pixel's
 * channels are a whole number. */
static bool has_right_borders(const xn_conv *c) {
    const bool inside = c->pad_top == 0 && c->pad_left == 0 &&
                        c->out_height + xn_cuda_span_h(c) <= c->height &&
                        c->out_width + xn_cuda_span_w(c) <= c->width;
    return inside || c->pad_value == 0;
}

static bool is_possible(const xn_conv *c, int64_t images) {
    const int64_t bits = (int64_t)c->group_channels * c->kernel_h * c->kernel_w;
    const int64_t units = xn_cuda_dual_rail_of(c->group_channels).units;
    const int64_t plane = (int64_t)c->height * c->width;
    const int64_t outputs = (int64_t)c->out_height * c->out_width;
    if (!xn_wgmma_can(c, true) || c->group_channels % 2 || c->stride_h != 1 || c->stride_w != 1 ||
        bits > MOST_BITS || c->kernel_h > MOST_TAPS || c->kernel_w > MOST_TAPS ||
        units > MOST_BOX || !has_right_borders(c))
        return false;
    return c->height <= LONGEST && c->out_height <= LONGEST &&
           2 * xn_cuda_line_pitch(c) <= MOST_BOX && xn_cuda_span_h(c) <= LONGEST &&
           c->pad_top <= LONGEST && xn_quotient_up(c->group_out_channels, TILE) < UINT16_MAX &&
           c->groups <= UINT16_MAX && images * c->groups * plane * units < INT32_MAX / 4 &&
           images * outputs * (c->out_channels / 16 + 8) < INT32_MAX;
}

bool xn_cuda_dual_rail_plan(const xn_conv *c, int64_t images, int multiprocessors,
                            xn_cuda_dual_rail_shape *out) {
    xn_cuda_dual_rail_shape s = {};
    xn_wgmma_choice<xn_cuda_dual_rail_shape> choice = {out, false};
    if (!is_possible(c, images) ||
        !xn_wgmma_set_chunks(xn_cuda_dual_rail_chunks(c->group_channels, c->kernel_h, c->kernel_w),
                             1, &s))
        return false;
    s.units = xn_cuda_dual_rail_of(c->group_channels).units;
    s.block_filters = TILE;
    s.pitch = (int32_t)xn_cuda_line_pitch(c);
    s.full_first = c->pad_top;
    s.full_end = c->pad_top + c->height - (int32_t)xn_cuda_span_h(c);
    s.packed_words = xn_packed_words(c->out_channels);
    s.packed_units = xn_cuda_dual_rail_of(c->out_channels).units;
    /* words that only pad are written, too */
    s.filter_blocks =
        (int32_t)xn_quotient_up(c->groups == 1 ? s.packed_words * 32 : c->group_out_channels, TILE);
    for (s.variant = 0; s.variant < XN_CUDA_DUAL_RAIL_VARIANTS; s.variant++)
        for (s.parts = 1; s.parts <= CONSUMERS; s.parts++) {
            s.positions = variants[s.variant];
            s.in_turn = s.pairs * s.positions / 2 >= IN_TURN_CYCLES;
            xn_wgmma_each_band(c, images, s.pitch, &s, [&]() {
                if (make_parts(c, images, &s))
                    try_memory(c, multiprocessors, &s, &choice);
            });
        }
    if (choice.found)
        xn_wgmma_make_pairs(out, [&](int32_t chunk) {
            return xn_wgmma_unit_offset(c, chunk, out->plane, (int64_t)c->dilation_h * out->pitch,
                                        c->dilation_w);
        });
    return choice.found;
}
