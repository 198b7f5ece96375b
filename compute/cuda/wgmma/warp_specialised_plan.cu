/* warp_specialised_plan.cu: which bands warp_specialised.cu makes of a problem, and where its data
 * lies in shared memory: all shapes that may serve are laid out and given a time by a small model,
 * and the cheapest is taken. Host code without a device.
 *
 * The model has four terms, in cycles of the busiest multiprocessor; a launch takes start and the
 * largest of the others. Instructions of a warp are counted in the kernel's machine code, what one
 * takes is measured; good to about a quarter, which orders the shapes. */
#include "epilogue.cuh"
#include "warp_specialised.h"

#include <algorithm>
#include <math.h>

enum {
    TILE = XN_WGMMA_FILTERS,
    LONGEST = 1 << 9,       /* lines and columns of input or output, and what a window spans */
    MOST_BITS = UINT16_MAX, /* of a filter: counts are kept in 16 bits */
    IN_TURN_CYCLES = 600,   /* of a job's matrix instructions */
};

#define VARIANT(positions, multipliers, writers) {positions, multipliers, writers},
static const int32_t variants[XN_CUDA_SPECIALISED_VARIANTS][3] = {
    XN_CUDA_SPECIALISED_EACH_VARIANT(VARIANT)};

static int64_t round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

static int64_t quotient_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit;
}

/* ---- bands ---- */

static void make_octets(const xn_conv *c, const xn_cuda_padded *l, xn_cuda_specialised_shape *s) {
    for (int32_t octet = 0; octet < XN_CUDA_SPECIALISED_OCTETS; octet++) {
        const int32_t at = octet * 8, image = at / s->image_pitch, rest = at % s->image_pitch;
        const int32_t line = rest / l->pitch, column = rest % l->pitch;
        const int64_t live = std::min<int64_t>(8, c->out_width - column);
        const bool inside = at < s->positions && image < s->images && line < s->rows && live > 0;
        s->octet_live[octet] = inside ? (int32_t)live : 0;
        s->octet_at[octet] =
            (inside ? (image * s->rows + line) * c->out_width + column : s->pixels) * 2;
    }
}

/* Outputs that are 16 bytes: 8 are of one line, and none but the first and the last of them at a
 * border. */
static int32_t vector_of(const xn_conv *c, const xn_cuda_specialised_shape *s) {
    const int64_t outputs = (int64_t)c->out_height * c->out_width;
    const int64_t together = outputs | (int64_t)s->rows * c->out_width;
    const bool inner = c->out_width % 8 == 0 && s->borders.columns.first_count <= 1 &&
                       s->borders.columns.last_count <= 1;
    return inner && together % 8 == 0 && xn_wgmma_is_fp16(c) ? 8 : together % 4 == 0 ? 4 : 1;
}

/* What follows from images and rows of a band. False where it does not fit. */
static bool make_band(const xn_conv *c, const xn_cuda_padded *l, int64_t images,
                      xn_cuda_specialised_shape *s) {
    const xn_cuda_padded_axis rows = xn_cuda_padded_rows(c), columns = xn_cuda_padded_columns(c);
    const int64_t lines = s->images > 1 ? rows.apart : s->rows + rows.span;
    const int64_t last = (s->images - 1) * lines * l->pitch;
    const int64_t own = last + (s->rows - 1) * l->pitch + c->out_width;
    const int64_t span = (int64_t)rows.span * l->pitch + l->first + columns.span;
    if (own > s->positions || s->positions + span >= 1 << 14)
        return false;
    /* What lies before lead comes with the image ahead (copy_band), where it must be zeros too:
     * also those of the taps to the right. */
    const int32_t right = l->tap_words < 4 ? (4 / l->tap_words - 1) * l->step >> l->odd_w : 0;
    if (s->images > 1 && l->lead > 0 && right > 0 &&
        (rows.before == 0 || lines * l->pitch + l->lead + right > l->phase))
        return false;
    s->row_bands = (int32_t)quotient_up(c->out_height, s->rows);
    const int64_t bands = quotient_up(images, s->images) * s->row_bands;
    s->bands = (int32_t)std::min<int64_t>(bands, INT32_MAX);
    s->pixels = s->images * s->rows * c->out_width;
    s->image_pitch = (int32_t)(lines * l->pitch);
    s->copied = (s->rows + rows.span) * l->pitch + l->lead;
    /* bulk copies of 4 bytes a position begin at 16 */
    s->phase = (int32_t)round_up(std::max<int64_t>(last + s->copied, s->positions + span), 4);
    s->plane = l->phases * s->phase | 1;
    s->first_tap = l->first;
    for (int32_t n = 0; n < 2; n++) {
        s->row_at[n] = xn_cuda_padded_tap(c, l, n + 1, 0, s->phase);
        s->column_at[n] = xn_cuda_padded_tap(c, l, 0, n + 1, s->phase);
    }
    s->vector = vector_of(c, s);
    make_octets(c, l, s);
    return bands <= INT32_MAX / 4;
}

/* A chunk begins with a unit of a tap, or with the first of its taps. Their order (layout.h) is
 * such that the second of a pair is never before the first. Where their number is odd the filters
 * have a chunk of zeros, whatever the positions hold. */
static void make_pairs(const xn_conv *c, const xn_cuda_padded *l, xn_cuda_specialised_shape *s) {
    const int32_t taps = l->tap_words < 4 ? 4 / l->tap_words : 1; /* of a chunk */
    int32_t offset[2 * XN_WGMMA_MAX_PAIRS];                       /* of chunks, in positions */
    for (int32_t unit = 0; unit < l->units; unit++)
        for (int32_t i = 0; i < c->kernel_h; i++)
            for (int32_t j = 0; j < c->kernel_w; j += taps)
                offset[xn_cuda_padded_chunk(i, j, unit * 4, l->tap_words, c->kernel_h, c->kernel_w,
                                            l->phases_h, l->phases_w)] =
                    s->first_tap + unit * s->plane + xn_cuda_padded_tap(c, l, i, j, s->phase);
    for (int32_t pair = 0; pair < s->pairs; pair++) {
        const int32_t first = offset[2 * pair];
        const int32_t second = 2 * pair + 1 < s->chunks ? offset[2 * pair + 1] : first;
        s->pair_low[pair] = (uint32_t)first | (uint32_t)(second - first) << 16;
    }
}

/* ---- shared memory ---- */

/* Where the next `bytes` of it begin. */
static int32_t place(int64_t *total, int64_t bytes) {
    const int64_t at = *total;
    *total += round_up(bytes, 128);
    return (int32_t)at;
}

static bool make_layout(xn_cuda_specialised_shape *s) {
    int64_t total = 0, buffer = 0;
    /* what a warp writes at once, of 8 filters, lies in different banks */
    s->stage_row = (int32_t)round_up(s->pixels * 2, 16) + 16; /* put_octets writes behind it */
    while (s->stage_row / 4 % 8 != 4)
        s->stage_row += 8;
    s->table_pitch = TILE + 4;
    place(&buffer, (int64_t)s->units * s->plane * 16);
    s->counts_at = place(&buffer, (int64_t)s->plane * 4);
    s->means_at = place(&buffer, s->means ? (int64_t)s->plane * 4 : 0);
    if (buffer > XN_CUDA_WGMMA_SHARED_BYTES)
        return false;
    s->buffer_bytes = (int32_t)buffer;
    s->record_bytes = (int32_t)round_up(s->pixels + 4, 4) * 12;
    place(&total, (int64_t)TILE * 32 * s->pairs);
    s->buffers_at = place(&total, s->depth * buffer);
    s->records_at = place(&total, 2 * s->writers * (int64_t)s->record_bytes);
    s->table_at = place(&total, (int64_t)s->borders.classes * s->table_pitch * 4);
    s->constants_at = place(&total, TILE * 8 + 8);
    s->stage_at = place(&total, s->writers * TILE * (int64_t)s->stage_row);
    s->bytes = (int32_t)std::min<int64_t>(total, INT32_MAX);
    return total <= XN_CUDA_WGMMA_SHARED_BYTES;
}

/* ---- which shape ---- */

/* What a launch takes. */
static double cycles_of(const xn_conv *c, const xn_cuda_padded *l,
                        const xn_cuda_specialised_shape *s) {
    const double jobs = (double)quotient_up(s->bands, s->pixel_blocks);
    const double rounds = (double)quotient_up((int64_t)jobs, s->writers);
    const double products = s->pairs * s->positions / 2 * 1.15;
    const double whole = products + 300 + s->positions / 8 * 36.0; /* with the way to the stage */
    const double filters = s->vector == 8 ? 4 * 224 : s->vector == 4 ? 4 * 133 : 4 * 60;
    const double passes = (double)quotient_up(s->pixels, 32 * s->vector);
    const double records = (double)quotient_up(s->pixels, XN_WGMMA_GROUP) * 90;
    const double writer = 5 * (250 + records + passes * (100 + filters));
    const double bytes = c->epilogue.datatype == XN_BITS   ? 0.125
                         : c->epilogue.datatype == XN_FP16 ? 2
                                                           : 4;
    /* a single phase's lines come beside the outputs */
    const double copied = (l->phases - 1.0) * s->images * s->copied * s->units * 16;
    /* before the first product and after the last output; products; filters and outputs; what one
     * warpgroup does one after the other */
    const double start = 3000 + TILE * 32.0 * s->pairs / 20 / 2;
    const double matrix = jobs * std::max(whole / s->multipliers, products) + writer;
    const double memory = jobs * (TILE * s->pixels * bytes + copied) / 18;
    const double chain = rounds * writer + whole;
    return start + std::max({matrix, memory, chain});
}

/* Mode xnor, groups of whole words of filters, and nothing done to INT32 on the way. */
static bool is_possible(const xn_conv *c, int64_t images) {
    const int64_t longest = std::max({(int64_t)c->height, (int64_t)c->width, (int64_t)c->out_height,
                                      (int64_t)c->out_width, xn_cuda_span_h(c), xn_cuda_span_w(c),
                                      (int64_t)c->pad_top, (int64_t)c->pad_left});
    /* every phase has pixels, whose threads write its zeros (pack.cu) */
    const bool strides =
        c->stride_h <= 2 && c->stride_w <= 2 && c->height >= c->stride_h && c->width >= c->stride_w;
    if (c->mode != XN_MODE_XNOR || (c->groups > 1 && c->group_out_channels % 32) ||
        (c->epilogue.datatype == XN_INT32 && !xn_is_plain(c->epilogue)) || !strides ||
        longest > LONGEST || (int64_t)c->group_channels * c->kernel_h * c->kernel_w > MOST_BITS)
        return false;
    const xn_cuda_padded l = xn_cuda_padded_of(c);
    return images < INT32_MAX / 4 &&
           images * c->groups * l.units * l.plane < INT32_MAX / 16; /* numbered in 32 bits */
}

/* The blocks, and all depths of the pipeline: places in shared memory for bands. Barriers have one
 * bit for whose turn a place is: a writer, which takes every n-th band, may not be two of a place's
 * bands ahead, so there are at least n places; and a multiple of the multipliers, since one of them
 * may be behind the other. */
static void try_depths(const xn_conv *c, const xn_cuda_padded *l, int64_t blocks,
                       xn_cuda_specialised_shape *s, xn_cuda_specialised_shape *best) {
    const int64_t others = (int64_t)s->filter_blocks * c->groups;
    if (s->filter_blocks > UINT16_MAX || c->groups > UINT16_MAX)
        return;
    s->pixel_blocks = (int32_t)std::max<int64_t>(std::min<int64_t>(blocks / others, s->bands), 1);
    const int32_t most = (int32_t)quotient_up(s->bands, s->pixel_blocks);
    for (s->depth = std::min(most, (int32_t)XN_CUDA_SPECIALISED_MAX_DEPTH);
         s->depth >= std::min(most, s->writers); s->depth--) {
        if ((s->depth < most && s->depth % s->multipliers) || !make_layout(s))
            continue;
        s->cycles = cycles_of(c, l, s);
        if (!best->bands || s->cycles < best->cycles)
            *best = *s;
    }
}

/* Bands of all heights, then of whole images. */
static void try_bands(const xn_conv *c, const xn_cuda_padded *l, int64_t images, int64_t blocks,
                      xn_cuda_specialised_shape *s, xn_cuda_specialised_shape *best) {
    s->images = 1;
    for (s->rows = std::min(c->out_height, s->positions / l->pitch + 1); s->rows > 0; s->rows--)
        if (make_band(c, l, images, s))
            try_depths(c, l, blocks, s, best);
    s->rows = c->out_height;
    for (s->images = 1; s->images <= images && s->images <= s->positions; s->images++)
        if (make_band(c, l, images, s))
            try_depths(c, l, blocks, s, best);
}

bool xn_cuda_specialised_plan(const xn_conv *c, int64_t images, int multiprocessors,
                              xn_cuda_specialised_shape *out) {
    const int64_t chunks = xn_cuda_row_chunks(c->group_channels, c->kernel_w) * c->kernel_h;
    xn_cuda_specialised_shape s = {}, best = {};
    if (!is_possible(c, images) || !xn_cuda_borders_make(c, &s.borders) ||
        chunks > 2 * XN_WGMMA_MAX_PAIRS)
        return false;
    const xn_cuda_padded l = xn_cuda_padded_of(c);
    s.means = c->epilogue.k && c->epilogue.datatype != XN_INT32;
    s.units = l.units;
    s.chunks = (int32_t)chunks;
    s.pairs = (s.chunks + 1) / 2;
    s.filter_blocks = (int32_t)quotient_up(c->group_out_channels, TILE);
    for (s.variant = 0; s.variant < XN_CUDA_SPECIALISED_VARIANTS; s.variant++) {
        s.positions = variants[s.variant][0];
        s.multipliers = variants[s.variant][1];
        s.writers = variants[s.variant][2];
        s.in_turn = s.multipliers > 1 && s.pairs * s.positions / 2 >= IN_TURN_CYCLES;
        try_bands(c, &l, images, multiprocessors, &s, &best);
    }
    if (!best.bands)
        return false;
    make_pairs(c, &l, &best);
    *out = best;
    return true;
}
