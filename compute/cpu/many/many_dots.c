/* many_dots.c: phase 3 of the path for many channels (many.c): some lanes and filters at a time,
 * from planes of bits to outputs: patches, differences, epilogue. */
#include "many_job.h"
#include "xn_arith.h"

#include <string.h>

enum {
    COLUMN_STEPS = 13, /* what a filter's column takes beside its words, in vectors of them */
};

/* A unit: some lanes and filters, on one thread. */
typedef struct unit_of_work {
    const xn_cpu_many_job *j;
    int64_t first;          /* lane, of all of the wave */
    int32_t lanes, columns; /* of which the last so many are counted one by one */
    uint32_t *patches, *apart, *differs;
    unsigned char *gathered;
    void *arranged;
    int32_t *kinds, *dots;
} unit_of_work;

/* Lanes of one image: [lane, lane + count) of the unit are its outputs from `pixel` on. */
typedef struct image_part {
    int64_t slot;
    size_t pixel;
    int32_t lane, count;
} image_part;

/* For walking the parts of a unit from part = {0} on. */
static bool next_part(const unit_of_work *u, image_part *part) {
    int32_t lane = part->lane + part->count;
    size_t plane = u->j->out_plane;
    if (lane >= u->lanes)
        return false;
    if (lane == 0)
        *part = (image_part){.slot = u->first / (int64_t)plane,
                             .pixel = (size_t)(u->first % (int64_t)plane)};
    else
        *part = (image_part){.slot = part->slot + 1, .lane = lane};
    part->count = (int32_t)xn_cpu_min(u->lanes - lane, (int64_t)(plane - part->pixel));
    return true;
}

/* For walking the pieces of a part from {.lane = part.lane} on. */
static bool next_piece(const xn_cpu_many_job *j, const image_part *part, xn_cpu_piece *piece) {
    int32_t lane = piece->lane + piece->count, width = j->conv->out_width;
    if (lane >= part->lane + part->count)
        return false;
    if (piece->count == 0)
        *piece = (xn_cpu_piece){.lane = lane,
                                .y = (int32_t)(part->pixel / (size_t)width),
                                .x = (int32_t)(part->pixel % (size_t)width)};
    else
        *piece = (xn_cpu_piece){.lane = lane, .y = piece->y + 1};
    piece->count = (int32_t)xn_cpu_min(part->lane + part->count - lane, width - piece->x);
    return true;
}

static void make_kinds(unit_of_work *u) {
    const xn_cpu_map *map = u->j->map;
    image_part part = {0};
    memset(u->kinds, 0, (size_t)u->j->pitch * sizeof *u->kinds);
    if (map->classes == 1)
        return;
    while (next_part(u, &part)) {
        xn_cpu_piece piece = {.lane = part.lane};
        while (next_piece(u->j, &part, &piece)) {
            int32_t row = map->row_kind[piece.y] * map->column_kinds;
            for (int32_t x = 0; x < piece.count; x++)
                u->kinds[piece.lane + x] = row + map->column_kind[piece.x + x];
        }
    }
}

/* A vector of which few lanes are there is not counted as one. */
static int32_t columns_of(const xn_cpu_many_job *j, int32_t lanes) {
    int32_t left = lanes % j->kernels->tile_lanes;
    int32_t steps = (int32_t)xn_cpu_div_up(j->shape.words, XN_CPU_COLUMN_WORDS) + COLUMN_STEPS;
    return j->kernels->differ_column && left * steps < j->shape.words ? left : 0;
}

/* Words of a column, as it lies apart. */
static size_t column_words(const xn_cpu_many_job *j) {
    return (size_t)xn_cpu_div_up(j->shape.words, XN_CPU_COLUMN_WORDS) * XN_CPU_COLUMN_WORDS;
}

static void set_columns_apart(const unit_of_work *u) {
    const xn_cpu_many_job *j = u->j;
    size_t words = (size_t)j->shape.words, padded = column_words(j);
    const uint32_t *from = u->patches + u->lanes - u->columns;
    uint32_t *to = u->apart;
    for (int32_t c = 0; c < u->columns; c++, to += padded) {
        for (size_t k = 0; k < words; k++)
            to[k] = from[k * (size_t)j->pitch + (size_t)c];
        for (size_t k = words; k < padded; k++)
            to[k] = 0;
    }
}

static void make_patches(unit_of_work *u, int32_t group) {
    const xn_cpu_many_job *j = u->j;
    image_part part = {0};
    while (next_part(u, &part)) {
        xn_cpu_piece piece = {.lane = part.lane};
        const uint32_t *planes = xn_cpu_many_planes(j, part.slot, group);
        while (next_piece(j, &part, &piece))
            j->kernels->patch(j->conv, j->map, &j->shape, planes, &piece, j->pitch, u->patches);
    }
    if (j->kernels->arrange)
        j->kernels->arrange(u->patches, j->shape.words, j->pitch,
                            (int32_t)xn_cpu_div_up(u->lanes, j->kernels->tile_lanes) *
                                j->kernels->tile_lanes,
                            u->arranged);
    set_columns_apart(u);
}

/* Where the outputs of a part and a filter go. */
static unsigned char *output_of(const xn_cpu_many_job *j, const image_part *part, int32_t o) {
    return j->images[part->slot].output +
           ((size_t)o * j->out_plane + part->pixel) * j->output_bytes;
}

/* How a part's outputs reach memory where they are too many for the cache. Rows that start with a
 * line go past it. Whole images, whose rows follow one another, are gathered first, so that only
 * their ends share lines. The rest is fetched, see below. */
static bool is_streamed(const xn_cpu_many_job *j, const unsigned char *to) {
    return j->stream && (uintptr_t)to % XN_CPU_LINE == 0;
}

static bool is_gathered(const xn_cpu_many_job *j, const image_part *part) {
    return j->gather && (size_t)part->count == j->out_plane;
}

/* Fetches the lines that a block's outputs will go to while its differences are counted: rows are
 * short and a plane apart, which the hardware does not foresee. */
static void fetch_outputs(const unit_of_work *u, int32_t first, int32_t last) {
    const xn_cpu_many_job *j = u->j;
    image_part part = {0};
    while (j->stream && next_part(u, &part))
        for (int32_t o = first; o < last && !is_gathered(j, &part); o++) {
            const unsigned char *to = output_of(j, &part, o);
            size_t size = (size_t)part.count * j->output_bytes;
            for (size_t at = 0; !is_streamed(j, to) && at < size; at += XN_CPU_LINE)
                __builtin_prefetch(to + at, 1);
        }
}

/* differs[f][lane] of a unit for filters [o, o + filters) of the group whose patches there are. */
static void count_filters(const unit_of_work *u, int32_t o, int32_t filters, uint32_t *differs) {
    const xn_cpu_many_job *j = u->j;
    const xn_prepared *p = j->run->prepared;
    int32_t tile = j->kernels->tile_lanes, words = j->shape.words, lane = u->lanes - u->columns;
    size_t first = (size_t)o * (size_t)words;
    j->kernels->differ(j->kernels->arrange ? u->arranged : u->patches, words, j->pitch,
                       (lane + tile - 1) / tile * tile, p->bits + first,
                       p->nibbles + first * XN_CPU_WORD_NIBBLES, filters, differs);
    for (int32_t c = 0; c < u->columns; c++)
        j->kernels->differ_column(u->apart + (size_t)c * column_words(j), words, j->pitch,
                                  p->bits + first, filters, differs + lane + c);
}

/* differs[o - first][lane] for filters [first, last); `group` is the one whose patches there are.
 */
static void count_block(unit_of_work *u, int32_t first, int32_t last, int32_t *group) {
    const xn_cpu_many_job *j = u->j;
    for (int32_t o = first; o < last;) {
        int32_t own = o / j->conv->group_out_channels;
        int32_t end = (int32_t)xn_cpu_min(last, ((int64_t)own + 1) * j->conv->group_out_channels);
        if (own != *group)
            make_patches(u, own);
        *group = own;
        count_filters(u, o, end - o, u->differs + (size_t)(o - first) * (size_t)j->pitch);
        o = end;
    }
}

/* Outputs of filters o .. o + d->filters - 1 of a part; only INT32 takes several at a time. */
static void emit_rows(const unit_of_work *u, const image_part *part, int32_t o,
                      const xn_cpu_epilogue *epilogue, const xn_cpu_differences *d, bool stream,
                      void *to) {
    const xn_cpu_many_job *j = u->j;
    const xn_conv *conv = j->conv;
    if (conv->epilogue.datatype == XN_INT32) {
        j->kernels->dots(d, stream, j->out_plane, to);
        return;
    }
    const float *k = xn_cpu_many_has_k(conv)
                         ? xn_cpu_many_k(j, part->slot, o / conv->group_out_channels) + part->pixel
                         : NULL;
    if (epilogue->datatype == XN_FP32 && xn_cpu_fits_fp32(epilogue, k != NULL)) {
        j->kernels->reals(d->differ, d->start, d->kind, j->map->classes, k, epilogue->factor,
                          epilogue->bias, part->count, stream, to);
    } else {
        j->kernels->dots(d, false, 0, u->dots);
        xn_cpu_emit_i32(j->plan->kernels, epilogue, u->dots, k, part->count, to);
    }
}

/* Filters whose rows of a part go out alike, by one call. */
static int32_t filters_at_once(const xn_cpu_many_job *j, int32_t filters) {
    bool alike = !j->stream || j->gather || j->out_plane * j->output_bytes % XN_CPU_LINE == 0;
    return j->conv->epilogue.datatype == XN_INT32 && alike ? filters : 1;
}

static void emit_part(const unit_of_work *u, const image_part *part, int32_t first, int32_t last,
                      const xn_cpu_epilogue *epilogues) {
    const xn_cpu_many_job *j = u->j;
    unsigned char *to = output_of(j, part, first), *row = to;
    bool gathered = is_gathered(j, part);
    if (gathered) /* at the same place in its line */
        row = u->gathered + (uintptr_t)to % XN_CPU_LINE;
    unsigned char *from = row;
    xn_cpu_differences d = {.differ = u->differs + part->lane,
                            .kind = u->kinds + part->lane,
                            .map = j->map,
                            .differ_pitch = (size_t)j->pitch,
                            .filters = filters_at_once(j, last - first),
                            .n = part->count};
    for (int32_t o = first; o < last; o += d.filters) {
        d.start = xn_cpu_many_starts(j, o);
        emit_rows(u, part, o, &epilogues[o - first], &d, is_streamed(j, row) && !gathered, row);
        d.differ += (size_t)d.filters * d.differ_pitch;
        row += (size_t)d.filters * j->out_plane * j->output_bytes;
    }
    if (gathered)
        j->kernels->copy(from, (size_t)(row - from), to);
}

static void emit_block(const unit_of_work *u, int32_t first, int32_t last) {
    const xn_conv *conv = u->j->conv;
    xn_cpu_epilogue epilogues[XN_CPU_MANY_BLOCK] = {0}; /* dots need none */
    image_part part = {0};
    for (int32_t o = first; o < last && conv->epilogue.datatype != XN_INT32; o++)
        xn_cpu_epilogue_of(conv, u->j->run->prepared, o, &epilogues[o - first]);
    while (next_part(u, &part))
        emit_part(u, &part, first, last, epilogues);
}

/* Word first / 32 of every lane's pixel. The words that round a pixel up to a multiple of 4 are
 * written with the last one. */
static void emit_bits(const unit_of_work *u, int32_t first, int32_t last) {
    const xn_cpu_many_job *j = u->j;
    size_t words = (size_t)xn_packed_words(j->conv->out_channels),
           word = (size_t)first / XN_CPU_MANY_BLOCK;
    size_t end = last == j->conv->out_channels ? words : word + 1;
    uint32_t flip =
        j->run->flip ? j->run->flip[word] & 0xffffffffu >> (XN_CPU_MANY_BLOCK - (last - first)) : 0;
    image_part part = {0};
    j->kernels->bits(u->differs, j->pitch, xn_cpu_many_starts(j, first), j->map->pitch, u->kinds,
                     j->map->classes, last - first, u->lanes, (uint32_t *)u->dots);
    while (next_part(u, &part)) {
        uint32_t *to = (uint32_t *)(void *)j->images[part.slot].output + part.pixel * words;
        const int32_t *from = u->dots + part.lane;
        for (int32_t x = 0; x < part.count; x++)
            to[word + (size_t)x * words] = (uint32_t)from[x] ^ flip;
        for (size_t w = word + 1; w < end; w++)
            for (int32_t x = 0; x < part.count; x++)
                to[w + (size_t)x * words] = 0;
    }
}

/* Stores past the cache are weakly ordered: they must be done before another thread reads. */
static void fence(bool streamed) {
#if defined(__x86_64__)
    if (streamed)
        __builtin_ia32_sfence();
#else
    (void)streamed;
#endif
}

void xn_cpu_many_dots(void *context, int64_t unit, int thread) {
    const xn_cpu_many_job *j = context;
    int64_t blocks = xn_cpu_div_up(j->conv->out_channels, XN_CPU_MANY_BLOCK),
            split = unit / j->chunks;
    int32_t group = -1;
    unit_of_work u = {.j = j, .first = unit % j->chunks * j->lanes};
    u.lanes = (int32_t)xn_cpu_min(j->lanes, j->count * (int64_t)j->out_plane - u.first);
    u.columns = columns_of(j, u.lanes);
    u.patches = xn_cpu_many_own(j, thread, XN_CPU_MANY_PATCHES);
    u.apart = xn_cpu_many_own(j, thread, XN_CPU_MANY_COLUMNS);
    u.arranged = xn_cpu_many_own(j, thread, XN_CPU_MANY_ARRANGED);
    u.differs = xn_cpu_many_own(j, thread, XN_CPU_MANY_DIFFERS);
    u.kinds = xn_cpu_many_own(j, thread, XN_CPU_MANY_KINDS);
    u.dots = xn_cpu_many_own(j, thread, XN_CPU_MANY_DOTS);
    u.gathered = xn_cpu_many_own(j, thread, XN_CPU_MANY_GATHERED);
    make_kinds(&u);
    int32_t o = (int32_t)(blocks * split / j->splits) * XN_CPU_MANY_BLOCK;
    int32_t end = (int32_t)xn_cpu_min(blocks * (split + 1) / j->splits * XN_CPU_MANY_BLOCK,
                                      j->conv->out_channels);
    for (int32_t last; o < end; o = last) {
        last = (int32_t)xn_cpu_min(o + (int64_t)j->block, end);
        if (!j->plan->packed_output)
            fetch_outputs(&u, o, last);
        count_block(&u, o, last, &group);
        if (j->plan->packed_output)
            emit_bits(&u, o, last);
        else
            emit_block(&u, o, last);
    }
    fence(j->stream);
}
