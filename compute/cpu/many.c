/* many.c: mode xnor for many channels: signs as bits, 32 channels to a word, popcount.
 *
 * Phase 1 packs the images: planes[group][word][y][x], the channels' order of xn_weights.h, bits
 * past C/groups 0; beside it, for K, A[group][y][x] = mean |I|. Channel rows are read in chunks
 * that stay in L1, and each input element is read once. Packed input is only put in that order.
 * It also makes, for every filter, the table of what dot starts from in each border class.
 *
 * Phase 2, with scaling xnor: K from A, a plane of each image and group.
 *
 * Phase 3, for some lanes (many.h) and filters: the patches of the lanes, a copy in L1 that knows
 * of geometry so that nothing after it does; then differ = popc(patch xor filter). Outside the
 * image patches are 0, where they differ from filter o in popc(o outside) places. So
 *
 *     dot = start[o][class] - 2 * differ
 *
 *     pad  0   start = C/groups * taps inside + 2 popc(o outside)
 *     pad  1   start = C/groups * (taps inside - taps outside) + 4 popc(o outside)
 *     pad -1   start = C/groups * taps
 *
 * Packed output, bit = dot >= threshold, compares differ with (start - threshold) / 2 instead.
 *
 * Planes have no padding, so memory does not depend on it: this path takes every geometry. */
#include "many.h"
#include "cpu.h"
#include "xn_arith.h"

#include <assert.h>
#include <string.h>

enum {
    PLANES,     /* shared: uint32 [wave][G][words][H*W] */
    MEANS,      /* shared: float [wave][G][H*W], with scaling xnor */
    KS,         /* shared: float [wave][G][OH*OW], with scaling xnor */
    STARTS,     /* shared: int32 [O][map.pitch]; of packed output, limits */
    MAGNITUDES, /* float [CHUNK]: sum of |I| over up to 32 channels */
    SUMS,       /* double [CHUNK]: over all */
    REALS,      /* float [32][CHUNK]: input that is not fp32 */
    VERTICAL,   /* double [W] */
    ACROSS,     /* double [OW] */
    PATCHES,    /* uint32 [words][pitch] */
    ARRANGED,   /* the same as the kernels read it, if they arrange it */
    COLUMNS,    /* uint32 [lanes of a vector][words]: patches of lanes counted one by one */
    KINDS,      /* int32 [pitch]: class of each lane */
    DIFFERS,    /* uint32 [BLOCK][pitch] */
    DOTS,       /* int32 [pitch], or the words of packed output */
    GATHERED,   /* bytes [BLOCK][OH*OW], where chunks may be whole images */
};

enum {
    CHUNK = 512, /* pixels packed at a time */
    WORD_CHANNELS = 32,
    WAVE_BYTES = 32 << 20,  /* packed images held at a time, if more than one */
    BLOCK = 32,             /* filters of a unit are a multiple: a word of packed output */
    ROWS = 8,               /* filters between two epilogues of outputs that are not gathered: */
                            /* stores then go out evenly, while others are counted */
    LEAD = 16,              /* words before the planes: kernels read that far */
    COLUMN_STEPS = 13,      /* what a filter's column takes beside its words, in vectors of them */
    SLACK_LANES = 16,       /* after a row of patches: kernels write past the end of a piece */
    PATCH_BYTES = 20 << 10, /* of the patches at a time, unless that were below */
    LEAST_LANES = 64,       /* which is enough to amortise reading the filters */
    MOST_LANES = 256,
    MOST_WHOLE = 256,       /* outputs of the whole images of a unit */
    START_FILTERS = 64,     /* of a unit of phase 1 */
    K_ROWS = 16,            /* of a unit of phase 2 */
    STREAM_BYTES = 4 << 20, /* output of a run from which on it does not pass through the cache */
    LINE = 64,
};

static size_t plane_of(const xn_conv *conv) {
    return (size_t)conv->height * (size_t)conv->width;
}

static size_t out_plane_of(const xn_conv *conv) {
    return (size_t)conv->out_height * (size_t)conv->out_width;
}

static bool has_k(const xn_conv *conv) {
    return conv->scaling == XN_SCALING_XNOR;
}

static xn_cpu_patch patch_of(const xn_conv *conv) {
    return xn_cpu_patch_of(conv->group_channels, conv->kernel_h, conv->kernel_w);
}

/* ---- the plan ---- */

/* Images of a unit whose outputs are gathered; 0: none. */
static int32_t whole_of(const xn_conv *conv) {
    size_t bytes = out_plane_of(conv) * xn_datatype_bytes((xn_datatype)conv->output_datatype);
    return bytes % LINE ? (int32_t)(MOST_WHOLE / out_plane_of(conv)) : 0;
}

static void take_shared(xn_plan *plan, xn_cpu_sizer *sizer) {
    const xn_conv *conv = &plan->conv;
    size_t wave = (size_t)plan->wave, groups = wave * (size_t)conv->groups, starts;
    size_t words = (size_t)patch_of(conv).tap_words;
    bool with_k = has_k(conv);
    if (!xn_mul_size((size_t)conv->out_channels, (size_t)plan->map->pitch, &starts))
        sizer->failed = true;
    plan->offset[PLANES] =
        LEAD * sizeof(uint32_t) +
        xn_cpu_take(sizer, LEAD + groups * words * plane_of(conv), sizeof(uint32_t));
    plan->offset[MEANS] = xn_cpu_take(sizer, with_k ? groups * plane_of(conv) : 0, sizeof(float));
    plan->offset[KS] = xn_cpu_take(sizer, with_k ? groups * out_plane_of(conv) : 0, sizeof(float));
    plan->offset[STARTS] = xn_cpu_take(sizer, starts, sizeof(int32_t));
}

static void take_slice(xn_plan *plan, xn_cpu_sizer *sizer) {
    const xn_conv *conv = &plan->conv;
    size_t pitch = (size_t)plan->lanes + SLACK_LANES, words = (size_t)patch_of(conv).words;
    size_t column = 0, apart = 0;
    if (!xn_mul_size(words, pitch, &column) ||
        !xn_mul_size(words + XN_CPU_COLUMN_WORDS, SLACK_LANES, &apart))
        sizer->failed = true;
    plan->offset[MAGNITUDES] = xn_cpu_take(sizer, CHUNK, sizeof(float));
    plan->offset[SUMS] = xn_cpu_take(sizer, CHUNK, sizeof(double));
    plan->offset[REALS] = xn_cpu_take(sizer, WORD_CHANNELS * CHUNK, sizeof(float));
    plan->offset[VERTICAL] = xn_cpu_take(sizer, (size_t)conv->width, sizeof(double));
    plan->offset[ACROSS] = xn_cpu_take(sizer, (size_t)conv->out_width, sizeof(double));
    plan->offset[PATCHES] = xn_cpu_take(sizer, column, sizeof(uint32_t));
    plan->offset[ARRANGED] =
        xn_cpu_take(sizer, plan->many->arrange ? column : 0, (size_t)plan->many->word_bytes);
    plan->offset[COLUMNS] =
        xn_cpu_take(sizer, plan->many->differ_column ? apart : 0, sizeof(uint32_t));
    plan->offset[KINDS] = xn_cpu_take(sizer, pitch, sizeof(int32_t));
    plan->offset[DIFFERS] = xn_cpu_take(sizer, BLOCK * pitch, sizeof(uint32_t));
    plan->offset[DOTS] = xn_cpu_take(sizer, pitch, sizeof(int32_t));
    plan->offset[GATHERED] =
        xn_cpu_take(sizer, whole_of(conv) ? LINE + BLOCK * out_plane_of(conv) : 0, sizeof(float));
}

/* Lanes of a unit: so many that reading the filters is paid for, so few that the patches stay in
 * L1, and not many more than there are. */
static int32_t lanes_of(const xn_plan *plan) {
    int64_t tile = xn_cpu_max(plan->many->tile_lanes, SLACK_LANES);
    int64_t there = (int64_t)out_plane_of(&plan->conv) * plan->wave;
    int64_t lanes = PATCH_BYTES / ((int64_t)patch_of(&plan->conv).words * 4);
    lanes = xn_cpu_max(LEAST_LANES, xn_cpu_min(MOST_LANES, lanes / LEAST_LANES * LEAST_LANES));
    return (int32_t)xn_cpu_min(lanes, xn_cpu_div_up(there, tile) * tile);
}

/* Measured (README.md): beside the counting, a word of a patch takes 0.2 ns a pixel and 6 ns a row,
 * the rest of a pixel of input 0.6 ns, K 0.8 ns. Filters are counted 4 at a time. */
static double image_ns(const xn_conv *conv, const xn_cpu_set *set, bool packed_input) {
    const xn_cpu_patch shape = patch_of(conv);
    const double groups = conv->groups, rows = groups * conv->out_height;
    const double pixels = groups * (double)out_plane_of(conv);
    const double taps = (double)conv->kernel_h * conv->kernel_w;
    const double counted = set->many->step_ns * shape.words * (conv->group_out_channels + 3) / 16;
    const double packed = 0.04 * (double)xn_conv_input_elements(conv) +
                          0.6 * groups * (double)plane_of(conv) + (has_k(conv) ? 0.8 * pixels : 0);
    return counted * pixels + taps * (0.2 * shape.tap_words * pixels + 6 * rows) +
           0.1 * (double)xn_conv_output_elements(conv) + (packed_input ? 0 : packed);
}

static xn_status layout(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    size_t words = (size_t)patch_of(conv).tap_words + has_k(conv);
    /* fits: not above 8 bytes an element of input, 4 of output */
    size_t image_bytes =
        (size_t)conv->groups * 4 * (plane_of(conv) * words + has_k(conv) * out_plane_of(conv));
    plan->wave =
        (int32_t)xn_cpu_min(plan->max_images, xn_cpu_max(1, (int64_t)(WAVE_BYTES / image_bytes)));
    plan->map = xn_cpu_map_create(conv);
    if (!plan->map)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a convolution");
    plan->lanes = lanes_of(plan);
    if (!plan->packed_output)
        plan->lanes = (int32_t)xn_cpu_max(
            plan->lanes,
            xn_cpu_div_up((int64_t)out_plane_of(conv) * whole_of(conv) + 1, LEAST_LANES) *
                LEAST_LANES);
    xn_cpu_sizer shared = {0}, slice = {0};
    take_shared(plan, &shared);
    take_slice(plan, &slice);
    if (shared.failed || slice.failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->shared_bytes = shared.bytes;
    plan->thread_bytes = slice.bytes;
    return XN_OK;
}

/* ---- a wave: images [first, first + count) of the plan, in slots 0.. of the shared arrays ---- */

typedef struct job {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_conv *conv;
    const xn_cpu_map *map;
    const xn_cpu_many_kernels *kernels;
    const xn_cpu_image *images;
    xn_cpu_patch shape;
    int64_t count;           /* of the wave */
    int64_t plane_chunks;    /* phase 1: of a plane */
    int64_t k_bands;         /* phase 2: of rows */
    int64_t chunks, splits;  /* phase 3: of lanes, and of filters */
    int32_t lanes, pitch;    /* of a chunk */
    int32_t block;           /* filters between two epilogues */
    size_t plane, out_plane; /* pixels */
    size_t output_bytes;     /* of an element */
    bool stream;             /* outputs are too many for the cache */
    bool gather;             /* and chunks are whole images */
} job;

static void *shared_array(const job *j, int array) {
    return xn_cpu_shared(j->plan) + j->plan->offset[array];
}

static void *own_array(const job *j, int thread, int array) {
    return xn_cpu_slice(j->plan, thread) + j->plan->offset[array];
}

static uint32_t *planes_of(const job *j, int64_t slot, int32_t group) {
    return (uint32_t *)shared_array(j, PLANES) +
           (size_t)(slot * j->conv->groups + group) * j->plane * (size_t)j->shape.tap_words;
}

static float *means_of(const job *j, int64_t slot, int32_t group) {
    return (float *)shared_array(j, MEANS) + (size_t)(slot * j->conv->groups + group) * j->plane;
}

static float *k_of(const job *j, int64_t slot, int32_t group) {
    return (float *)shared_array(j, KS) + (size_t)(slot * j->conv->groups + group) * j->out_plane;
}

/* Of one filter, an entry a class. */
static int32_t *starts_of(const job *j, int32_t o) {
    return (int32_t *)shared_array(j, STARTS) + (size_t)o * (size_t)j->map->pitch;
}

/* ---- phase 1 ---- */

/* n pixels from `pixel` on of `channels` channels from c on, as fp32 with *stride between them. */
static const float *source(const job *j, const xn_cpu_image *image, int32_t c, int32_t channels,
                           size_t pixel, int32_t n, float *reals, int64_t *stride) {
    xn_datatype datatype = (xn_datatype)j->conv->input_datatype;
    size_t plane = j->plane, bytes = xn_datatype_bytes(datatype);
    const unsigned char *from = image->input + ((size_t)c * plane + pixel) * bytes;
    if (datatype == XN_FP32) {
        *stride = (int64_t)plane;
        return (const float *)(const void *)from;
    }
    for (int32_t k = 0; k < channels; k++)
        xn_cpu_to_fp32(j->plan->kernels, datatype, from + (size_t)k * plane * bytes, n,
                       reals + k * CHUNK);
    *stride = CHUNK;
    return reals;
}

/* 32 magnitudes in fp32 are within 31 * 2^-24 < 2e-6, words of them are added in double. Where
 * fp32 overflows, or meets Inf or NaN, the word's channels are added in double one by one. */
static void add_word(const job *j, const float *src, int64_t stride, int32_t channels, int32_t n,
                     const float *magnitudes, double *sums) {
    const xn_cpu_kernels *kernels = j->plan->kernels;
    if (kernels->all_finite(magnitudes, n)) {
        kernels->add_magnitude(magnitudes, n, sums);
        return;
    }
    for (int32_t c = 0; c < channels; c++)
        kernels->add_magnitude(src + c * stride, n, sums);
}

static void pack_reals(const job *j, int64_t slot, int32_t group, size_t pixel, int32_t n,
                       int thread) {
    const xn_conv *conv = j->conv;
    bool with_k = has_k(conv);
    float *magnitudes = with_k ? own_array(j, thread, MAGNITUDES) : NULL;
    double *sums = own_array(j, thread, SUMS);
    uint32_t *to = planes_of(j, slot, group) + pixel;
    memset(sums, 0, CHUNK * sizeof *sums);
    for (int32_t word = 0; word < j->shape.tap_words; word++, to += j->plane) {
        int32_t c = word * WORD_CHANNELS;
        int32_t channels = (int32_t)xn_cpu_min(WORD_CHANNELS, conv->group_channels - c);
        int64_t stride;
        const float *src = source(j, &j->images[slot], group * conv->group_channels + c, channels,
                                  pixel, n, own_array(j, thread, REALS), &stride);
        j->kernels->pack(src, stride, channels, n, to, magnitudes);
        if (with_k)
            add_word(j, src, stride, channels, n, magnitudes, sums);
    }
    float *means = means_of(j, slot, group) + pixel;
    for (int32_t x = 0; with_k && x < n; x++)
        means[x] = (float)(sums[x] / conv->group_channels);
}

/* From [pixel][packed words] to planes. */
static void spread_bits(const job *j, int64_t slot, int32_t group, size_t pixel, int32_t n) {
    size_t step = (size_t)xn_packed_words(j->conv->group_channels);
    const uint32_t *bits = (const uint32_t *)(const void *)j->images[slot].input +
                           ((size_t)group * j->plane + pixel) * step;
    uint32_t *to = planes_of(j, slot, group) + pixel;
    for (int32_t word = 0; word < j->shape.tap_words; word++, to += j->plane, bits++)
        for (int32_t x = 0; x < n; x++)
            to[x] = bits[(size_t)x * step];
}

/* Packed output: from where dot starts to the most that may differ. */
static void make_limits(const job *j, int32_t o) {
    int32_t *limit = starts_of(j, o);
    for (int32_t c = 0; c < j->map->classes; c++) {
        int64_t room = (int64_t)limit[c] - j->run->threshold[o];
        limit[c] = room < 0 ? -1 : (int32_t)xn_cpu_min(room / 2, INT32_MAX);
    }
}

static void make_starts(const job *j, int32_t first, int32_t end) {
    const xn_conv *conv = j->conv;
    size_t prefix = (size_t)(conv->kernel_h + 1) * (size_t)(conv->kernel_w + 1);
    j->kernels->starts(j->map, j->run->prepared->prefix + (size_t)first * prefix, end - first,
                       starts_of(j, first));
    for (int32_t o = first; j->plan->packed_output && o < end; o++)
        make_limits(j, o);
}

static void pack_task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    int64_t packs = j->count * conv->groups * j->plane_chunks;
    if (unit >= packs) {
        int32_t o = (int32_t)(unit - packs) * START_FILTERS;
        make_starts(j, o, (int32_t)xn_cpu_min((int64_t)o + START_FILTERS, conv->out_channels));
        return;
    }
    size_t pixel = (size_t)(unit % j->plane_chunks) * CHUNK;
    int32_t n = (int32_t)xn_cpu_min(CHUNK, (int64_t)(j->plane - pixel));
    int64_t slot = unit / j->plane_chunks / conv->groups;
    int32_t group = (int32_t)(unit / j->plane_chunks % conv->groups);
    if (j->plan->packed_input)
        spread_bits(j, slot, group, pixel, n);
    else
        pack_reals(j, slot, group, pixel, n, thread);
}

/* ---- phase 2 ---- */

static void k_task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    int32_t y = (int32_t)(unit % j->k_bands) * K_ROWS;
    int32_t end = (int32_t)xn_cpu_min((int64_t)y + K_ROWS, conv->out_height);
    int32_t group = (int32_t)(unit / j->k_bands % conv->groups);
    int64_t slot = unit / j->k_bands / conv->groups;
    for (; y < end; y++)
        xn_cpu_k_row(j->plan->kernels, conv, means_of(j, slot, group), y,
                     own_array(j, thread, VERTICAL), own_array(j, thread, ACROSS),
                     k_of(j, slot, group) + (size_t)y * (size_t)conv->out_width);
}

/* ---- phase 3 ---- */

/* A unit: some lanes and filters, on one thread. */
typedef struct unit_of_work {
    const job *j;
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
static bool next_piece(const job *j, const image_part *part, xn_cpu_piece *piece) {
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
static int32_t columns_of(const job *j, int32_t lanes) {
    int32_t left = lanes % j->kernels->tile_lanes;
    int32_t steps = (int32_t)xn_cpu_div_up(j->shape.words, XN_CPU_COLUMN_WORDS) + COLUMN_STEPS;
    return j->kernels->differ_column && left * steps < j->shape.words ? left : 0;
}

/* Words of a column, as it lies apart. */
static size_t column_words(const job *j) {
    return (size_t)xn_cpu_div_up(j->shape.words, XN_CPU_COLUMN_WORDS) * XN_CPU_COLUMN_WORDS;
}

static void set_columns_apart(const unit_of_work *u) {
    const job *j = u->j;
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
    const job *j = u->j;
    image_part part = {0};
    while (next_part(u, &part)) {
        xn_cpu_piece piece = {.lane = part.lane};
        const uint32_t *planes = planes_of(j, part.slot, group);
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
static unsigned char *output_of(const job *j, const image_part *part, int32_t o) {
    return j->images[part->slot].output +
           ((size_t)o * j->out_plane + part->pixel) * j->output_bytes;
}

/* How a part's outputs reach memory where they are too many for the cache. Rows that start with a
 * line go past it. Whole images, whose rows follow one another, are gathered first, so that only
 * their ends share lines. The rest is fetched, see below. */
static bool is_streamed(const job *j, const unsigned char *to) {
    return j->stream && (uintptr_t)to % LINE == 0;
}

static bool is_gathered(const job *j, const image_part *part) {
    return j->gather && (size_t)part->count == j->out_plane;
}

/* Fetches the lines that a block's outputs will go to while its differences are counted: rows are
 * short and a plane apart, which the hardware does not foresee. */
static void fetch_outputs(const unit_of_work *u, int32_t first, int32_t last) {
    const job *j = u->j;
    image_part part = {0};
    while (j->stream && next_part(u, &part))
        for (int32_t o = first; o < last && !is_gathered(j, &part); o++) {
            const unsigned char *to = output_of(j, &part, o);
            size_t size = (size_t)part.count * j->output_bytes;
            for (size_t at = 0; !is_streamed(j, to) && at < size; at += LINE)
                __builtin_prefetch(to + at, 1);
        }
}

/* differs[f][lane] of a unit for filters [o, o + filters) of the group whose patches there are. */
static void count_filters(const unit_of_work *u, int32_t o, int32_t filters, uint32_t *differs) {
    const job *j = u->j;
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
    const job *j = u->j;
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
    const job *j = u->j;
    const xn_conv *conv = j->conv;
    if (conv->output_datatype == XN_INT32) {
        j->kernels->dots(d, stream, j->out_plane, to);
        return;
    }
    const float *k =
        has_k(conv) ? k_of(j, part->slot, o / conv->group_out_channels) + part->pixel : NULL;
    if (epilogue->datatype == XN_FP32 && !(epilogue->wide && k)) {
        j->kernels->reals(d->differ, d->start, d->kind, j->map->classes, k, epilogue->factor,
                          epilogue->bias, part->count, stream, to);
    } else {
        j->kernels->dots(d, false, 0, u->dots);
        xn_cpu_emit_i32(j->plan->kernels, epilogue, u->dots, k, part->count, to);
    }
}

/* Filters whose rows of a part go out alike, by one call. */
static int32_t filters_at_once(const job *j, int32_t filters) {
    bool alike = !j->stream || j->gather || j->out_plane * j->output_bytes % LINE == 0;
    return j->conv->output_datatype == XN_INT32 && alike ? filters : 1;
}

static void emit_part(const unit_of_work *u, const image_part *part, int32_t first, int32_t last,
                      const xn_cpu_epilogue *epilogues) {
    const job *j = u->j;
    unsigned char *to = output_of(j, part, first), *row = to;
    bool gathered = is_gathered(j, part);
    if (gathered) /* at the same place in its line */
        row = u->gathered + (uintptr_t)to % LINE;
    unsigned char *from = row;
    xn_cpu_differences d = {.differ = u->differs + part->lane,
                            .kind = u->kinds + part->lane,
                            .map = j->map,
                            .differ_pitch = (size_t)j->pitch,
                            .filters = filters_at_once(j, last - first),
                            .n = part->count};
    for (int32_t o = first; o < last; o += d.filters) {
        d.start = starts_of(j, o);
        emit_rows(u, part, o, &epilogues[o - first], &d, is_streamed(j, row) && !gathered, row);
        d.differ += (size_t)d.filters * d.differ_pitch;
        row += (size_t)d.filters * j->out_plane * j->output_bytes;
    }
    if (gathered)
        j->kernels->copy(from, (size_t)(row - from), to);
}

static void emit_block(const unit_of_work *u, int32_t first, int32_t last) {
    const xn_conv *conv = u->j->conv;
    xn_cpu_epilogue epilogues[BLOCK] = {0}; /* dots need none */
    image_part part = {0};
    for (int32_t o = first; o < last && conv->output_datatype != XN_INT32; o++)
        xn_cpu_epilogue_of(conv, u->j->run->prepared, o, &epilogues[o - first]);
    while (next_part(u, &part))
        emit_part(u, &part, first, last, epilogues);
}

/* Word first / 32 of every lane's pixel. The words that round a pixel up to a multiple of 4 are
 * written with the last one. */
static void emit_bits(const unit_of_work *u, int32_t first, int32_t last) {
    const job *j = u->j;
    size_t words = (size_t)xn_packed_words(j->conv->out_channels), word = (size_t)first / BLOCK;
    size_t end = last == j->conv->out_channels ? words : word + 1;
    uint32_t flip = j->run->flip ? j->run->flip[word] & 0xffffffffu >> (BLOCK - (last - first)) : 0;
    image_part part = {0};
    j->kernels->bits(u->differs, j->pitch, starts_of(j, first), j->map->pitch, u->kinds,
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

static void dots_task(void *context, int64_t unit, int thread) {
    const job *j = context;
    int64_t blocks = xn_cpu_div_up(j->conv->out_channels, BLOCK), split = unit / j->chunks;
    int32_t group = -1;
    unit_of_work u = {.j = j, .first = unit % j->chunks * j->lanes};
    u.lanes = (int32_t)xn_cpu_min(j->lanes, j->count * (int64_t)j->out_plane - u.first);
    u.columns = columns_of(j, u.lanes);
    u.patches = own_array(j, thread, PATCHES);
    u.apart = own_array(j, thread, COLUMNS);
    u.arranged = own_array(j, thread, ARRANGED);
    u.differs = own_array(j, thread, DIFFERS);
    u.kinds = own_array(j, thread, KINDS);
    u.dots = own_array(j, thread, DOTS);
    u.gathered = own_array(j, thread, GATHERED);
    make_kinds(&u);
    int32_t o = (int32_t)(blocks * split / j->splits) * BLOCK;
    int32_t end =
        (int32_t)xn_cpu_min(blocks * (split + 1) / j->splits * BLOCK, j->conv->out_channels);
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

static void start_wave(job *j, int64_t first, int64_t count) {
    int64_t lanes = count * (int64_t)j->out_plane;
    int64_t blocks = xn_cpu_div_up(j->conv->out_channels, BLOCK);
    j->images = j->plan->images + first;
    j->count = count;
    j->chunks = xn_cpu_div_up(lanes, j->lanes);
    /* Filters are split only where there are too few chunks: each split makes the patches anew. So
     * a lone chunk is split no more than threads need; several are of different size. */
    int64_t wanted = (j->chunks == 1 ? 1 : 4) * (int64_t)j->run->threads;
    if (j->run->threads == 1)
        wanted = 1;
    j->splits = xn_cpu_min(blocks, xn_cpu_div_up(wanted, j->chunks));
}

static void run_images(const xn_cpu_run *run, int64_t count) {
    const xn_plan *plan = run->plan;
    const xn_conv *conv = &plan->conv;
    job j = {.run = run, .plan = plan, .conv = conv, .map = plan->map, .kernels = plan->many};
    assert(!plan->packed_output || run->threshold);
    j.shape = patch_of(conv);
    j.plane = plane_of(conv);
    j.out_plane = out_plane_of(conv);
    j.pitch = plan->lanes + SLACK_LANES;
    j.plane_chunks = xn_cpu_div_up((int64_t)j.plane, CHUNK);
    j.k_bands = xn_cpu_div_up(conv->out_height, K_ROWS);
    j.output_bytes = xn_datatype_bytes((xn_datatype)conv->output_datatype);
    j.stream =
        !plan->packed_output && xn_conv_output_bytes(conv) * (size_t)count >= (size_t)STREAM_BYTES;
    j.gather = j.stream && whole_of(conv);
    j.block = j.gather || plan->packed_output ? BLOCK : ROWS;
    j.lanes = j.gather ? whole_of(conv) * (int32_t)j.out_plane : lanes_of(plan);
    assert(j.lanes > 0);
    for (int64_t first = 0; first < count; first += plan->wave) {
        start_wave(&j, first, xn_cpu_min(plan->wave, count - first));
        int64_t groups = j.count * conv->groups;
        int64_t starts = first ? 0 : xn_cpu_div_up(conv->out_channels, START_FILTERS);
        xn_cpu_for(run->threads, groups * j.plane_chunks + starts, pack_task, &j);
        if (has_k(conv))
            xn_cpu_for(run->threads, groups * j.k_bands, k_task, &j);
        xn_cpu_for(run->threads, j.chunks * j.splits, dots_task, &j);
    }
}

static bool fits(const xn_conv *conv) {
    return conv->mode == XN_MODE_XNOR;
}

const xn_cpu_path xn_cpu_many = {
    .fits = fits, .image_ns = image_ns, .layout = layout, .run = run_images};
