/* bitgemm_dots.c: phase 3 of the path bitgemm (bitgemm.c): some lanes and filters at a
 * time, from planes of bits to outputs: patches, differences, epilogue. */
#include "bitgemm_job.h"
#include "bits.h"
#include "kmap.h"

#include <string.h>

/* A unit: some lanes and filters, on one thread. */
typedef struct unit_of_work {
    const xn_cpu_bitgemm_job *j;
    int64_t first; /* lane, of all of the wave */
    int32_t lanes;
    int thread;
    uint32_t *patches, *words;
    unsigned char *gathered;
    void *arranged;
    int32_t *kinds, *dots;
    float *values;
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
static bool next_piece(const xn_cpu_bitgemm_job *j, const image_part *part, xn_cpu_piece *piece) {
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

static void make_patches(unit_of_work *u, int32_t group) {
    const xn_cpu_bitgemm_job *j = u->j;
    image_part part = {0};
    xn_cpu_piece *pieces = xn_cpu_bitgemm_own(j, u->thread, XN_CPU_BITGEMM_PIECES);
    int32_t count = 0;
    while (next_part(u, &part)) {
        xn_cpu_piece piece = {.lane = part.lane};
        for (; next_piece(j, &part, &piece); count++) {
            pieces[count] = piece;
            pieces[count].planes = xn_cpu_bitgemm_planes(j, part.slot, group);
        }
    }
    j->kernels->patch(j->conv, j->map, &j->shape, pieces, count, j->pitch, u->patches);
    if (j->kernels->arrange)
        j->kernels->arrange(u->patches, j->shape.words, j->pitch,
                            (int32_t)xn_cpu_div_up(u->lanes, j->kernels->tile_lanes) *
                                j->kernels->tile_lanes,
                            u->arranged);
}

/* Where the outputs of a part and a filter go. */
static unsigned char *output_of(const xn_cpu_bitgemm_job *j, const image_part *part, int32_t o) {
    return j->images[part->slot].output +
           ((size_t)o * j->out_plane + part->pixel) * j->output_bytes;
}

/* How a part's outputs reach memory where they are too many for the cache. Rows that start with a
 * line go past it. Whole images, whose rows follow one another, are gathered first, so that only
 * their ends share lines. The rest is fetched, see below. */
static bool is_streamed(const xn_cpu_bitgemm_job *j, const unsigned char *to) {
    return j->stream && (uintptr_t)to % XN_CPU_LINE == 0;
}

static bool is_gathered(const xn_cpu_bitgemm_job *j, const image_part *part) {
    return j->gather && (size_t)part->count == j->out_plane;
}

/* Fetches the lines that a block's outputs will go to while its differences are counted: rows are
 * short and a plane apart, which the hardware does not foresee. */
static void fetch_outputs(const unit_of_work *u, int32_t first, int32_t last) {
    const xn_cpu_bitgemm_job *j = u->j;
    image_part part = {0};
    while (j->stream && next_part(u, &part))
        for (int32_t o = first; o < last && !is_gathered(j, &part); o++) {
            const unsigned char *to = output_of(j, &part, o);
            size_t size = (size_t)part.count * j->output_bytes;
            for (size_t at = 0; !is_streamed(j, to) && at < size; at += XN_CPU_LINE)
                __builtin_prefetch(to + at, 1);
        }
}

/* Dots of a unit for filters [o, o + filters) of the group whose patches there are; to: of them. */
static void count_filters(const unit_of_work *u, int32_t o, int32_t filters,
                          const xn_cpu_dots *to) {
    const xn_cpu_bitgemm_job *j = u->j;
    const int32_t tile = j->kernels->tile_lanes;
    const xn_cpu_lanes lanes = {.arranged = u->arranged,
                                .kind = u->kinds,
                                .map = j->map,
                                .pitch = j->pitch,
                                .count = (u->lanes + tile - 1) / tile * tile};
    j->kernels->dots(&lanes, j->weights, o, filters, to);
}

/* What is left of `to` after some filters. */
static xn_cpu_dots after(const xn_cpu_bitgemm_job *j, const xn_cpu_dots *to, int32_t filters) {
    xn_cpu_dots rest = *to;
    rest.start += (size_t)filters * (size_t)j->map->pitch;
    rest.dot += (size_t)filters * to->pitch;
    if (to->words)
        rest.least += filters;
    rest.bit += filters;
    return rest;
}

/* Dots of filters [first, last); `group` is the one whose patches there are. */
static void count_block(unit_of_work *u, int32_t first, int32_t last, int32_t *group,
                        const xn_cpu_dots *to) {
    const xn_cpu_bitgemm_job *j = u->j;
    for (int32_t o = first; o < last;) {
        int32_t own = o / j->conv->group_out_channels;
        int32_t end = (int32_t)xn_cpu_min(last, ((int64_t)own + 1) * j->conv->group_out_channels);
        const xn_cpu_dots rest = after(j, to, o - first);
        if (own != *group)
            make_patches(u, own);
        *group = own;
        count_filters(u, o, end - o, &rest);
        o = end;
    }
}

/* Whether dots go straight to where they belong: they are the output, of one image, and end with a
 * vector, or need not. */
static bool is_direct(const unit_of_work *u) {
    const xn_cpu_bitgemm_job *j = u->j;
    const xn_epilogue *e = &j->conv->epilogue;
    return j->kernels->direct && xn_cpu_is_dots(e) && !e->bits && !j->gather &&
           u->lanes % j->kernels->tile_lanes == 0 &&
           u->first % (int64_t)j->out_plane + u->lanes <= (int64_t)j->out_plane;
}

/* ---- epilogue ---- */

static float *k_of(const unit_of_work *u, const image_part *part, int32_t o) {
    const int32_t group = o / u->j->conv->group_out_channels;
    return u->j->conv->epilogue.k ? xn_cpu_bitgemm_k(u->j, part->slot, group) + part->pixel : NULL;
}

/* K in double of a part's outputs, where it comes of a short box. */
static const double *exact_of(const unit_of_work *u, const image_part *part, int32_t o) {
    const xn_cpu_bitgemm_job *j = u->j;
    double *exact = xn_cpu_bitgemm_own(j, u->thread, XN_CPU_BITGEMM_EXACT);
    double *row = xn_cpu_bitgemm_own(j, u->thread, XN_CPU_BITGEMM_ACROSS);
    xn_cpu_piece piece = {.lane = part->lane};
    if (!j->conv->epilogue.k || !xn_cpu_k_is_short(j->conv))
        return NULL;
    while (next_piece(j, part, &piece)) {
        xn_cpu_k_row_exact(j->plan->kernels, j->conv, j->images[part->slot].input,
                           o / j->conv->group_out_channels, piece.y,
                           xn_cpu_bitgemm_own(j, u->thread, XN_CPU_BITGEMM_TEMP),
                           xn_cpu_bitgemm_own(j, u->thread, XN_CPU_BITGEMM_VERTICAL), row);
        memcpy(exact + (piece.lane - part->lane), row + piece.x,
               (size_t)piece.count * sizeof *exact);
    }
    return exact;
}

/* Where what becomes of filter o's dots goes, reals to `to`. */
static xn_cpu_place place_of(const unit_of_work *u, const image_part *part, int32_t o,
                             int32_t first, void *to) {
    const xn_cpu_bitgemm_job *j = u->j;
    xn_cpu_place place = xn_cpu_place_of(j->conv, &j->images[part->slot], o, part->pixel);
    place.real = to;
    if (j->conv->epilogue.bits) {
        place.words = u->words + part->lane;
        place.bit = (uint32_t)1 << (o - first);
    }
    return place;
}

/* Outputs of filter o of a part; to: where the reals go. */
static void emit_row(const unit_of_work *u, const image_part *part, int32_t o, int32_t first,
                     const int32_t *dot, bool stream, void *to) {
    const xn_cpu_bitgemm_job *j = u->j;
    const xn_epilogue *e = &j->conv->epilogue;
    const xn_cpu_epilogue *epilogue = &j->run->epilogue;
    if (to && xn_cpu_is_dots(e) && !e->bits) {
        const size_t bytes = (size_t)part->count * sizeof *dot;
        if (stream)
            j->plan->kernels->copy(dot, bytes, to);
        else
            memcpy(to, dot, bytes);
        return;
    }
    xn_cpu_place place = place_of(u, part, o, first, to);
    place.past_caches = stream;
    if (xn_cpu_is_dots(e)) {
        xn_cpu_finish_dots(epilogue, o, dot, part->count, &place);
        return;
    }
    const float *k = k_of(u, part, o);
    if (xn_cpu_finish_acc(epilogue, o, 1, XN_CPU_DOTS, dot, 0, k, part->count, &place))
        return;
    xn_cpu_make_values(epilogue, o, XN_CPU_DOTS, dot, k, part->count, u->values);
    xn_cpu_values_again(epilogue, o, dot, k, exact_of(u, part, o), part->count, u->values);
    xn_cpu_finish(epilogue, o, 1, u->values, 0, part->count, &place);
}

/* All rows at once, where there is no K and what they are made of is finite. */
static bool emit_rows(const unit_of_work *u, const image_part *part, int32_t first, int32_t last,
                      bool gathered, void *to) {
    const xn_cpu_bitgemm_job *j = u->j;
    if (j->conv->epilogue.k || xn_cpu_is_dots(&j->conv->epilogue))
        return false;
    xn_cpu_place place = place_of(u, part, first, first, to);
    place.past_caches =
        is_streamed(j, to) && !gathered && j->out_plane * j->output_bytes % XN_CPU_LINE == 0;
    return xn_cpu_finish_acc(&j->run->epilogue, first, last - first, XN_CPU_DOTS,
                             u->dots + part->lane, (size_t)j->pitch, NULL, part->count, &place);
}

static void emit_part(const unit_of_work *u, const image_part *part, int32_t first, int32_t last) {
    const xn_cpu_bitgemm_job *j = u->j;
    unsigned char *to = j->output_bytes ? output_of(j, part, first) : NULL, *row = to;
    const bool gathered = is_gathered(j, part);
    if (gathered) /* at the same place in its line */
        row = u->gathered + (uintptr_t)to % XN_CPU_LINE;
    unsigned char *from = row;
    const int32_t *dot = u->dots + part->lane;
    if (emit_rows(u, part, first, last, gathered, row)) {
        row += (size_t)(last - first) * j->out_plane * j->output_bytes;
        first = last;
    }
    for (int32_t o = first; o < last; o++, dot += j->pitch) {
        emit_row(u, part, o, first, dot, is_streamed(j, row) && !gathered, row);
        if (row)
            row += j->out_plane * j->output_bytes;
    }
    if (gathered)
        j->plan->kernels->copy(from, (size_t)(row - from), to);
}

/* Word first / 32 of every lane's pixel. */
static void write_words(const unit_of_work *u, int32_t first, uint32_t flip) {
    const xn_cpu_bitgemm_job *j = u->j;
    const int32_t layout = j->plan->step.bits_layout, channels = j->conv->out_channels;
    const size_t pitch = xn_cpu_bits_pitch(layout, channels);
    image_part part = {0};
    while (next_part(u, &part))
        xn_cpu_bits_write(layout, channels, first / XN_CPU_BITGEMM_BLOCK, u->words + part.lane,
                          flip, part.count, j->images[part.slot].bits + part.pixel * pitch);
}

static void emit_block(const unit_of_work *u, int32_t first, int32_t last) {
    const xn_cpu_bitgemm_job *j = u->j;
    image_part part = {0};
    if (j->conv->epilogue.bits)
        memset(u->words, 0, (size_t)u->j->pitch * sizeof *u->words);
    while (next_part(u, &part))
        emit_part(u, &part, first, last);
    if (j->conv->epilogue.bits)
        write_words(u, first, 0);
}

/* Outputs of filters [first, last) that are dots. */
static void run_direct(unit_of_work *u, int32_t first, int32_t last, int32_t *group) {
    const xn_cpu_bitgemm_job *j = u->j;
    const size_t row = j->out_plane * sizeof(int32_t);
    image_part part = {0};
    next_part(u, &part);
    unsigned char *to = output_of(j, &part, first);
    const bool stream = is_streamed(j, to) && row % XN_CPU_LINE == 0;
    const xn_cpu_dots dots = {.start = xn_cpu_bitgemm_starts(j, first),
                              .dot = (int32_t *)(void *)to,
                              .pitch = j->out_plane,
                              .stream = stream};
    if (!stream)
        fetch_outputs(u, first, last);
    count_block(u, first, last, group, &dots);
}

static void run_block(unit_of_work *u, int32_t first, int32_t last, int32_t *group) {
    const xn_cpu_bitgemm_job *j = u->j;
    xn_cpu_dots dots = {
        .start = xn_cpu_bitgemm_starts(j, first), .dot = u->dots, .pitch = (size_t)j->pitch};
    fetch_outputs(u, first, last);
    if (j->thresholds) {
        dots.words = u->words;
        dots.least = j->thresholds->least + first;
        memset(u->words, 0, (size_t)u->j->pitch * sizeof *u->words);
    }
    count_block(u, first, last, group, &dots);
    if (j->thresholds)
        write_words(u, first,
                    j->thresholds->flip[first / XN_CPU_BITGEMM_BLOCK] &
                        UINT32_MAX >> (XN_CPU_BITGEMM_BLOCK - (last - first)));
    else
        emit_block(u, first, last);
}

void xn_cpu_bitgemm_dots(void *context, int64_t unit, int thread) {
    const xn_cpu_bitgemm_job *j = context;
    int64_t blocks = xn_cpu_div_up(j->conv->out_channels, XN_CPU_BITGEMM_BLOCK),
            split = unit / j->chunks;
    int32_t group = -1;
    unit_of_work u = {.j = j, .first = unit % j->chunks * j->lanes, .thread = thread};
    u.lanes = (int32_t)xn_cpu_min(j->lanes, j->count * (int64_t)j->out_plane - u.first);
    u.patches = xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_PATCHES);
    u.arranged = j->kernels->word_bytes > 4 ? xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_ARRANGED)
                                            : u.patches;
    u.kinds = xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_KINDS);
    u.dots = xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_DOTS);
    u.values = xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_VALUES);
    u.words = xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_WORDS);
    u.gathered = xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_GATHERED);
    make_kinds(&u);
    const bool direct = is_direct(&u);
    int32_t o = (int32_t)(blocks * split / j->splits) * XN_CPU_BITGEMM_BLOCK;
    int32_t end = (int32_t)xn_cpu_min(blocks * (split + 1) / j->splits * XN_CPU_BITGEMM_BLOCK,
                                      j->conv->out_channels);
    for (int32_t last; o < end; o = last) {
        last = (int32_t)xn_cpu_min(o + (int64_t)j->block, end);
        if (direct)
            run_direct(&u, o, last, &group);
        else
            run_block(&u, o, last, &group);
    }
    if (j->stream)
        j->plan->kernels->flush();
}
