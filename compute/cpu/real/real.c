/* real.c: modes bwn and float as a blocked matrix product, for any geometry.
 *
 * The outputs of all images of a wave are numbered one after another, and cut into panels of up to
 * three vectors of lanes, so that rows of 7 fill them like rows of 224. A unit of work is a panel
 * with up to MOST_TILES tiles of filters. For each part of the terms (terms.h) it packs the panel,
 * [terms of the part][lanes], which stays in L1 while all tiles of filters pass over it; each adds
 * the part's products, in registers, to the unit's sums, which stay in L2. What a pixel has at a
 * tap is so copied once a panel, and used by every filter: with 64 filters one copy for 64
 * multiplications. Which pieces of image rows make up a panel row depends on the tap only, and is
 * found once for all channels (find_moves). */
#include "real.h"

#include "bits.h"
#include "parallel.h"
#include "xn_mem.h"

#include <string.h>

enum {
    MOST_TILES = 64,
    MOST_RUN = 16,
    MOST_FLOATS_IN_IMAGE = 1 << 20, /* of an image that is not packed: packing fetches ahead */
    /* every lane may begin a piece, and a piece ends a move early */
    MOST_PIECES = XN_CPU_REAL_LANES,
    MOST_MOVES = 2 * XN_CPU_REAL_LANES,
};

static void destroy(void *state) {
    xn_cpu_real_state *s = state;
    if (!s)
        return;
    xn_cpu_source_free(s);
    xn_mem_free(s);
}

/* A tile's signs are a byte of each pixel, where groups begin with a tile. */
static bool writes_bits(const xn_step *step) {
    return step->conv.groups == 1 || step->conv.group_out_channels % XN_CPU_REAL_FILTERS == 0;
}

static xn_status create(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->step.conv;
    const size_t panel = (size_t)XN_CPU_REAL_TAPS * XN_CPU_REAL_LANES;
    const size_t tile = (size_t)XN_CPU_REAL_FILTERS * XN_CPU_REAL_LANES;
    xn_cpu_sizer shared = {0}, slice = {0};
    xn_cpu_real_state *state = xn_cpu_state_create(plan, sizeof *state, error);
    if (!state)
        return XN_ERR_NO_MEMORY;
    state->conv = xn_cpu_source_flat(conv);
    state->reading = xn_cpu_real_reading(&state->conv, plan->path_kernels);
    xn_status status = xn_cpu_source_create(plan->max_images, state, &shared, &slice, error);
    if (status)
        return status;
    state->tiles = (int32_t)xn_cpu_min(MOST_TILES, xn_cpu_real_tiles(conv->out_channels));
    const size_t sums = (size_t)state->tiles * tile;
    state->offsets[XN_CPU_REAL_PANEL] = xn_cpu_take(&slice, panel, sizeof(float));
    state->offsets[XN_CPU_REAL_SUMS] = xn_cpu_take(&slice, sums, sizeof(float));
    state->offsets[XN_CPU_REAL_REST] = xn_cpu_take(&slice, sums, sizeof(float));
    state->offsets[XN_CPU_REAL_VALUES] = xn_cpu_take(&slice, XN_CPU_REAL_LANES, sizeof(float));
    state->offsets[XN_CPU_REAL_WORDS] = xn_cpu_take(&slice, XN_CPU_REAL_LANES, sizeof(uint32_t));
    state->bytes = conv->epilogue.bits && writes_bits(&plan->step);
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    return xn_cpu_real_ready(prepared, (xn_mode)plan->step.conv.mode, error);
}

/* One wave. */
typedef struct job {
    xn_cpu_source source;
    const xn_cpu_real_kernels *kernels;
    const float *weights;
    int32_t part_terms, parts;
    int64_t outputs;         /* lanes: of all images */
    int64_t vectors, panels; /* vectors of lanes; panels differ by one vector at most, */
    int32_t tail;            /* but for the last one of so many pixels, if any */
    int64_t run;             /* panels of a unit, one after another */
    int64_t runs;
    int64_t splits; /* units of a run and group: of tiles */
    bool stream;    /* outputs go past the caches */
} job;

/* Neighbours in an output row. */
typedef struct piece {
    int64_t slot;
    int32_t y, x, to, count;
} piece;

typedef struct unit {
    const job *j;
    unsigned char *slice;
    int32_t group;
    int32_t first_tile, tiles;
    int32_t first, last; /* filters */
    int32_t lanes, pitch;
    bool whole; /* all lanes are outputs, and of one image */
    piece pieces[MOST_PIECES];
    int32_t piece_count;
    xn_cpu_move moves[MOST_MOVES];
    int32_t move_count;
} unit;

static float *slice_floats(const unit *u, int which) {
    return (float *)(void *)(u->slice + u->j->source.state->offsets[which]);
}

/* ---- panels ---- */

/* Of outputs from `output` on. */
static void find_pieces(unit *u, int64_t output) {
    const xn_conv *conv = u->j->source.conv;
    int64_t image = (int64_t)conv->out_height * conv->out_width;
    int64_t slot = output / image, at = output % image;
    int32_t y = (int32_t)(at / conv->out_width), x = (int32_t)(at % conv->out_width);
    u->piece_count = 0;
    for (int32_t to = 0; to < u->lanes;) {
        int32_t count = (int32_t)xn_cpu_min(u->lanes - to, conv->out_width - x);
        u->pieces[u->piece_count++] = (piece){slot, y, x, to, count};
        to += count;
        x = 0;
        if (++y == conv->out_height) {
            y = 0;
            slot++;
        }
    }
    u->whole = u->lanes == u->pitch && u->pieces[0].slot == u->pieces[u->piece_count - 1].slot;
}

/* Of vectors [first, last) where these do not cross rows: a piece each. */
static void find_vectors(unit *u, int64_t first, int64_t last) {
    const xn_conv *conv = u->j->source.conv;
    const int32_t lanes = u->j->kernels->lanes;
    const int64_t row = xn_cpu_div_up(conv->out_width, lanes), image = row * conv->out_height;
    bool whole = first / image == (last - 1) / image;
    u->piece_count = 0;
    for (int64_t v = first; v < last; v++) {
        const int32_t y = (int32_t)(v % image / row), x = (int32_t)(v % row) * lanes;
        const int32_t count = (int32_t)xn_cpu_min(lanes, conv->out_width - x);
        u->pieces[u->piece_count++] = (piece){v / image, y, x, (int32_t)(v - first) * lanes, count};
        whole = whole && count == lanes;
    }
    u->whole = whole;
}

/* The columns that lanes [first, last) of a move read, as bits. */
static uint32_t bits_between(int64_t first, int64_t last, int32_t stride) {
    first = xn_cpu_max(first, 0);
    last = xn_cpu_min(last, XN_CPU_MOVE_LANES);
    if (first >= last)
        return 0;
    return (uint32_t)((UINT64_C(1) << ((last - 1) * stride + 1)) - (UINT64_C(1) << first * stride));
}

/* The moves of tap (i, k) for channel `c`. Copied rows have their borders in them. */
static void find_moves(unit *u, int32_t i, int32_t k, int32_t c) {
    const xn_cpu_source *source = &u->j->source;
    const xn_conv *conv = source->conv;
    const int32_t stride = xn_cpu_source_stride(source);
    int64_t column = source->state->rows.column[k];
    int32_t first = 0, last = conv->out_width;
    if (source->state->reading == XN_CPU_READ_IMAGE)
        xn_cpu_valid_outputs(column, stride, conv->width, conv->out_width, &first, &last);
    u->move_count = 0;
    for (int32_t p = 0; p < u->piece_count; p++) {
        const piece *at = &u->pieces[p];
        int64_t y = (int64_t)at->y * conv->stride_h - conv->pad_top + (int64_t)i * conv->dilation_h;
        bool inside = y >= 0 && y < conv->height;
        const float *row = xn_cpu_source_row(source, at->slot, c, inside ? (int32_t)y : 0);
        for (int32_t done = 0; done < at->count; done += XN_CPU_MOVE_LANES) {
            int64_t x = at->x + done;
            uint32_t bits =
                inside ? bits_between(first - x, xn_cpu_min(last - x, at->count - done), stride)
                       : 0;
            u->moves[u->move_count++] =
                (xn_cpu_move){bits ? row + (x * stride + column) : row, at->to + done, bits};
        }
    }
}

/* Terms [first, last) of the panel. */
static void pack_part(unit *u, int32_t first, int32_t last, float *panel) {
    const xn_cpu_source *source = &u->j->source;
    const xn_conv *conv = source->conv;
    const int32_t channels = conv->group_channels;
    for (int32_t term = first; term < last;) {
        int32_t tap = term / channels, c = term % channels;
        int32_t rows = (int32_t)xn_cpu_min(channels - c, last - term);
        find_moves(u, tap / conv->kernel_w, tap % conv->kernel_w, u->group * channels + c);
        u->j->kernels->pack(u->moves, u->move_count, xn_cpu_source_stride(source),
                            xn_cpu_source_next(source), rows, (float)conv->pad_value, panel,
                            u->pitch);
        panel += (int64_t)rows * u->pitch;
        term += rows;
    }
}

/* ---- outputs ---- */

/* Values of piece `at` of filter o that are not finite, again. */
static void make_again(const unit *u, const piece *at, int32_t o, float *v) {
    const xn_cpu_source *source = &u->j->source;
    xn_cpu_real_again(source->conv, source->run->prepared, source->images[at->slot].input, o, at->y,
                      at->x, at->count, slice_floats(u, XN_CPU_SOURCE_TEMP), v);
}

/* Outputs (y, x..) of filter o, which are values. */
static float *values_at(const unit *u, const piece *at, int32_t o) {
    const xn_conv *conv = u->j->source.conv;
    const size_t row = (size_t)o * (size_t)conv->out_height + (size_t)at->y;
    return (float *)(void *)u->j->source.images[at->slot].output + row * (size_t)conv->out_width +
           at->x;
}

/* The pieces of one image from piece p on, which lie one after another in its output. */
static int32_t count_together(const unit *u, int32_t *p) {
    const piece *first = &u->pieces[*p];
    int32_t count = 0;
    for (; *p < u->piece_count && u->pieces[*p].slot == first->slot &&
           u->pieces[*p].to == first->to + count;
         ++*p)
        count += u->pieces[*p].count;
    return count;
}

/* The filters of a tile that are the unit's. */
typedef struct tile {
    int32_t number; /* of the unit's */
    int32_t base;   /* its first filter */
    int32_t first, last;
} tile;

static tile tile_of(const unit *u, int32_t number) {
    const int32_t base = (u->first_tile + number) * XN_CPU_REAL_FILTERS;
    return (tile){number, base, (int32_t)xn_cpu_max(base, u->first),
                  (int32_t)xn_cpu_min((int64_t)base + XN_CPU_REAL_FILTERS, u->last)};
}

/* Whether the last part of the terms makes outputs of its sums: where all lanes are outputs, which
 * are values and stay in the caches. */
static bool makes_values(const unit *u) {
    return u->whole && !u->j->stream && xn_cpu_is_plain(&u->j->source.conv->epilogue);
}

/* To their place. */
static xn_cpu_values values_of(const unit *u, const tile *t) {
    const xn_cpu_epilogue *epilogue = &u->j->source.run->epilogue;
    const xn_conv *conv = u->j->source.conv;
    return (xn_cpu_values){.factor = epilogue->factor + t->first,
                           .bias = epilogue->bias + t->first,
                           .to = values_at(u, u->pieces, t->first),
                           .pitch = (int64_t)conv->out_height * conv->out_width,
                           .first = t->first - t->base,
                           .count = t->last - t->first};
}

/* Sums of filter o of the pieces [p, end), of one image, one value not finite, and all after it. */
static void write_again(const unit *u, int32_t o, int32_t p, int32_t end, int32_t count,
                        const float *sums, const xn_cpu_place *place) {
    const xn_cpu_epilogue *epilogue = &u->j->source.run->epilogue;
    float *v = slice_floats(u, XN_CPU_REAL_VALUES);
    const int32_t first = u->pieces[p].to;
    xn_cpu_make_values(epilogue, o, XN_CPU_SUMS, sums, NULL, count, v);
    for (; p < end; p++)
        make_again(u, &u->pieces[p], o, v + (u->pieces[p].to - first));
    xn_cpu_finish(epilogue, o, 1, v, 0, count, place);
}

/* From sums of the pieces [p, end), of one image. */
static void write_image(const unit *u, int32_t p, int32_t end, int32_t count, const tile *t) {
    const xn_cpu_source *source = &u->j->source;
    const xn_step *step = &source->run->plan->step;
    const piece *at = &u->pieces[p];
    const xn_cpu_image *image = &source->images[at->slot];
    const size_t pixel = (size_t)at->y * (size_t)source->conv->out_width + (size_t)at->x;
    const float *sums = slice_floats(u, XN_CPU_REAL_SUMS) + at->to +
                        ((int64_t)t->number * XN_CPU_REAL_FILTERS + t->first - t->base) * u->pitch;
    uint32_t *words = (uint32_t *)(void *)slice_floats(u, XN_CPU_REAL_WORDS);
    const int32_t channels = source->conv->out_channels, rows = t->last - t->first;
    xn_cpu_place place = xn_cpu_place_of(source->conv, image, t->first, pixel);
    place.past_caches = u->j->stream && (uintptr_t)place.real % XN_CPU_LINE == 0 &&
                        place.pitch * sizeof(float) % XN_CPU_LINE == 0;
    place.words = source->state->bytes ? words : NULL;
    place.bit = 1;
    memset(words, 0, (size_t)count * sizeof *words);
    if (!xn_cpu_finish_acc(&source->run->epilogue, t->first, rows, XN_CPU_SUMS, sums,
                           (size_t)u->pitch, NULL, count, &place))
        for (int32_t o = t->first; o < t->last; o++, sums += u->pitch) {
            xn_cpu_place row = xn_cpu_place_of(source->conv, image, o, pixel);
            row.words = place.words;
            row.bit = 1u << (o - t->first);
            write_again(u, o, p, end, count, sums, &row);
        }
    if (source->state->bytes)
        xn_cpu_bits_write_bytes(
            step->bits_layout, channels, t->first / XN_CPU_REAL_FILTERS, words, count,
            image->bits + pixel * xn_cpu_bits_pitch(step->bits_layout, channels));
}

/* A tile whose sums are complete; or its outputs, `finite` or not, have been made of them. */
static void write_tile(const unit *u, const tile *t, bool finite) {
    for (int32_t o = t->first; makes_values(u) && !finite && o < t->last; o++)
        for (int32_t p = 0; p < u->piece_count; p++)
            make_again(u, &u->pieces[p], o, values_at(u, &u->pieces[p], o));
    for (int32_t p = 0, end = 0; !makes_values(u) && p < u->piece_count; p = end) {
        const int32_t count = count_together(u, &end);
        write_image(u, p, end, count, t);
    }
}

/* ---- units ---- */

/* A part of the terms, [first, first + terms). */
typedef struct part {
    int32_t number, first, terms;
    bool last;
} part;

static part part_at(const unit *u, int32_t number) {
    const int32_t all = u->j->source.run->prepared->filter, most = u->j->part_terms;
    const int32_t first = number * most;
    return (part){number, first, (int32_t)xn_cpu_min(most, all - first), number + 1 == u->j->parts};
}

static const float *weights_of(const unit *u, int32_t number, const part *p) {
    return xn_cpu_real_part(u->j->source.run->prepared, u->j->weights, u->first_tile + number,
                            p->first, p->terms);
}

/* With the last part a tile is written as soon as it is complete: memory takes its outputs while
 * the next one is multiplied. */
static void do_part(const unit *u, const xn_cpu_pixels *pixels, int32_t number, const part *p) {
    const job *j = u->j;
    const tile t = tile_of(u, number);
    const int64_t at = (int64_t)number * XN_CPU_REAL_FILTERS * u->pitch;
    xn_cpu_values values;
    const bool made = p->last && makes_values(u);
    if (made)
        values = values_of(u, &t);
    const bool finite =
        j->kernels->multiply(pixels, p->terms, weights_of(u, number, p), p->number,
                             slice_floats(u, XN_CPU_REAL_SUMS) + at,
                             slice_floats(u, XN_CPU_REAL_REST) + at, made ? &values : NULL);
    if (p->last)
        write_tile(u, &t, finite);
}

/* Where a whole panel of a part is in the image, of which packing makes no other rows. */
static bool lies_in_image(const unit *u) {
    const xn_cpu_source *source = &u->j->source;
    const xn_conv *conv = source->conv;
    const int64_t floats = (int64_t)conv->group_channels * conv->width;
    return u->whole && source->state->reading == XN_CPU_READ_IMAGE && conv->kernel_h == 1 &&
           conv->kernel_w == 1 && conv->height == 1 && conv->out_height == 1 &&
           conv->out_width == conv->width && conv->stride_w == 1 && !conv->pad_top &&
           !conv->pad_left && floats <= MOST_FLOATS_IN_IMAGE;
}

static void pixels_of(unit *u, const part *p, xn_cpu_pixels *out) {
    const xn_cpu_source *source = &u->j->source;
    const int32_t lanes = u->j->kernels->lanes;
    const float *from = slice_floats(u, XN_CPU_REAL_PANEL);
    out->vectors = u->pitch / lanes;
    out->offset = NULL;
    if (lies_in_image(u)) {
        const int32_t channel = u->group * source->conv->group_channels + p->first;
        from = xn_cpu_source_row(source, u->pieces->slot, channel, 0) + u->pieces->x;
        out->next = xn_cpu_source_next(source);
    } else {
        pack_part(u, p->first, p->first + p->terms, slice_floats(u, XN_CPU_REAL_PANEL));
        out->next = u->pitch;
    }
    for (int32_t v = 0; v < out->vectors; v++)
        out->from[v] = from + v * lanes;
}

static void do_packed(unit *u) {
    for (int32_t n = 0; n < u->j->parts; n++) {
        const part p = part_at(u, n);
        xn_cpu_pixels pixels;
        pixels_of(u, &p, &pixels);
        for (int32_t t = 0; t < u->tiles; t++)
            do_part(u, &pixels, t, &p);
    }
}

/* The last pixels, of all tiles. */
static void do_tail(unit *u) {
    for (int32_t n = 0; n < u->j->parts; n++) {
        const part p = part_at(u, n);
        xn_cpu_pixels pixels;
        pixels_of(u, &p, &pixels);
        u->j->kernels->multiply_tail(&pixels, u->lanes, p.terms, weights_of(u, 0, &p),
                                     (int64_t)p.terms * XN_CPU_REAL_FILTERS, u->tiles, n, p.last,
                                     slice_floats(u, XN_CPU_REAL_SUMS),
                                     slice_floats(u, XN_CPU_REAL_REST));
    }
    for (int32_t number = 0; number < u->tiles; number++) {
        const tile t = tile_of(u, number);
        write_tile(u, &t, true);
    }
}

static void do_in_place(const unit *u) {
    const xn_cpu_source *source = &u->j->source;
    const xn_cpu_real_state *state = source->state;
    const int32_t channel = u->group * source->conv->group_channels;
    xn_cpu_pixels pixels = {.vectors = u->piece_count};
    for (int32_t p = 0; p < u->piece_count; p++) {
        const piece *at = &u->pieces[p];
        const int32_t y = at->y * source->conv->stride_h - state->top;
        pixels.from[p] = xn_cpu_source_row(source, at->slot, channel, y) + at->x;
    }
    for (int32_t t = 0; t < u->tiles; t++)
        for (int32_t n = 0; n < u->j->parts; n++) {
            const part p = part_at(u, n);
            pixels.offset = state->offset + p.first;
            do_part(u, &pixels, t, &p);
        }
}

static void do_panel(unit *u, int64_t panel) {
    const job *j = u->j;
    const int64_t lanes = j->kernels->lanes, full = j->panels - (j->tail > 0);
    const bool tail = panel == full;
    const int64_t first = tail ? j->vectors : j->vectors * panel / full;
    const int64_t last = tail ? first + 1 : j->vectors * (panel + 1) / full;
    u->pitch = (int32_t)((last - first) * lanes);
    if (j->source.state->reading == XN_CPU_READ_IN_PLACE) {
        find_vectors(u, first, last);
        do_in_place(u);
        return;
    }
    u->lanes = (int32_t)xn_cpu_min(u->pitch, j->outputs - first * lanes);
    find_pieces(u, first * lanes);
    if (tail)
        do_tail(u);
    else
        do_packed(u);
}

static void unit_task(void *context, int64_t number, int thread) {
    const job *j = context;
    const xn_conv *conv = j->source.conv;
    unit u = {.j = j, .slice = xn_cpu_slice(j->source.run->plan, thread)};
    int64_t split = number % j->splits, rest = number / j->splits;
    int64_t panel = rest % j->runs * j->run, end = xn_cpu_min(panel + j->run, j->panels);
    u.group = (int32_t)(rest / j->runs);
    u.first = u.group * conv->group_out_channels;
    u.last = u.first + conv->group_out_channels;
    int64_t at = u.first / XN_CPU_REAL_FILTERS;
    int64_t tiles = xn_cpu_div_up(u.last, XN_CPU_REAL_FILTERS) - at;
    u.first_tile = (int32_t)(at + tiles * split / j->splits);
    u.tiles = (int32_t)(at + tiles * (split + 1) / j->splits) - u.first_tile;
    if (u.tiles == 0)
        return;
    for (; panel < end; panel++)
        do_panel(&u, panel);
    if (j->stream)
        j->source.run->plan->kernels->flush();
}

/* Units: runs of panels, so that what a thread reads of a channel is contiguous. Tiles of a panel
 * are split among threads only where there are too few panels, since every split packs it. */
static void split_wave(job *j) {
    const xn_conv *conv = j->source.conv;
    int64_t threads = j->source.run->threads, whole = j->panels * conv->groups;
    /* a group may lie across one tile more than it fills */
    int64_t tiles = xn_cpu_real_tiles(conv->group_out_channels) + (conv->groups > 1);
    int64_t wanted = threads > 1 ? xn_cpu_div_up(2 * threads, whole) : 1;
    j->splits = xn_cpu_max(xn_cpu_div_up(tiles, j->source.state->tiles), xn_cpu_min(wanted, tiles));
    j->run = xn_cpu_max(1, xn_cpu_min(MOST_RUN, whole / (8 * threads)));
    j->runs = xn_cpu_div_up(j->panels, j->run);
}

/* The panels of a wave. */
static void count_panels(job *j) {
    const xn_conv *conv = j->source.conv;
    const int32_t lanes = j->kernels->lanes;
    j->outputs = j->source.count * conv->out_height * conv->out_width;
    if (j->source.state->reading == XN_CPU_READ_IN_PLACE) {
        j->vectors = j->source.count * conv->out_height * xn_cpu_div_up(conv->out_width, lanes);
        j->tail = 0;
    } else {
        j->tail = xn_cpu_real_tail(j->outputs, lanes);
        j->vectors = (j->outputs - j->tail + lanes - 1) / lanes;
    }
    j->panels = (j->vectors + j->kernels->most - 1) / j->kernels->most + (j->tail > 0);
}

static void run_images(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count) {
    const xn_plan *plan = run->plan;
    const xn_cpu_real_state *state = plan->state;
    const xn_conv *conv = &state->conv;
    job j = {.source = {.run = run, .state = state, .conv = conv},
             .kernels = plan->path_kernels,
             .weights = xn_cpu_real_weights(run->prepared, (xn_mode)conv->mode)};
    j.part_terms = xn_cpu_part_terms(run->prepared->filter);
    j.parts = (int32_t)xn_cpu_div_up(run->prepared->filter, j.part_terms);
    j.stream = (size_t)count * xn_conv_output_bytes(conv) >= XN_CPU_REAL_STREAM_BYTES;
    for (int64_t first = 0; first < count; first += state->wave) {
        j.source.images = images + first;
        j.source.count = xn_cpu_min(state->wave, count - first);
        count_panels(&j);
        split_wave(&j);
        xn_cpu_source_fill(&j.source);
        xn_cpu_for(run->threads, j.runs * conv->groups * j.splits, unit_task, &j);
    }
}

static bool fits(const xn_step *step) {
    return step->conv.mode != XN_MODE_XNOR;
}

const xn_cpu_path xn_cpu_real = {
    .kernels = XN_CPU_PATH_KERNELS(real, avx512, avx512, avx512),
    .fits = fits,
    .cost_ns = xn_cpu_real_cost_ns,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .writes_bits = writes_bits,
    .run = run_images,
};
