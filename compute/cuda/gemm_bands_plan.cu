/* gemm_bands_plan.cu: which bands gemm_bands.cu makes of a problem, and where its data lies in
 * shared memory. Host code without a device. Every shape that fits is given a time by a small model
 * (cost_of), whose figures only have to order the shapes. */
#include "gemm_bands.h"
#include "gemm_plan.h"

#include <algorithm>

enum {
    GROUP = XN_CUDA_BANDS_GROUP,
    TILE = XN_CUDA_BANDS_FILTERS,
    IN_TURN_CYCLES = 600, /* of a job's matrix instructions */
    MOST_ROWS = 3,        /* choices of a band's height */
};

static const int32_t variant_positions[XN_CUDA_BANDS_VARIANTS] = {240, 224, 128, 64};
static const int32_t variant_consumers[XN_CUDA_BANDS_VARIANTS] = {2, 2, 3, 4};

/* ---- bands ---- */

/* Rows (or columns) from image to image (or row to row), such that a window that reaches past the
 * end reads zeros: those below this image and above the next. */
static int64_t shared_pitch(int64_t outputs, int64_t span, int64_t before, int64_t size) {
    return std::max<int64_t>(std::max<int64_t>(outputs, before + size), outputs + span - before);
}

/* What follows from images, rows and columns of a band. False where it does not fit. */
static bool make_band(const xn_conv *c, int64_t images, xn_cuda_bands_shape *s) {
    const int64_t span_h = (int64_t)(c->kernel_h - 1) * c->dilation_h;
    const int64_t span_w = (int64_t)(c->kernel_w - 1) * c->dilation_w;
    const bool all_columns = s->columns == c->out_width;
    int64_t width = all_columns ? shared_pitch(c->out_width, span_w, c->pad_left, c->width)
                                : s->columns + span_w;
    /* the first tap of a row lies after the last of the row above, as make_pairs needs it */
    width = std::max<int64_t>(width, xn_quotient_up(span_w, c->dilation_h));
    const int64_t rows = s->images > 1 ? shared_pitch(c->out_height, span_h, c->pad_top, c->height)
                                       : s->rows + span_h + 1;
    const int64_t own = (s->images - 1) * rows * width + (s->rows - 1) * width + s->columns;
    const int64_t span = span_h * width + span_w;
    if (own > s->positions || span + s->positions >= 1 << 14)
        return false;
    s->row_bands = (int32_t)xn_quotient_up(c->out_height, s->rows);
    s->column_bands = (int32_t)xn_quotient_up(c->out_width, s->columns);
    const int64_t bands = xn_quotient_up(images, s->images) * s->row_bands * s->column_bands;
    if (bands > INT32_MAX / 4)
        return false;
    s->bands = (int32_t)bands;
    s->width = (int32_t)width;
    s->image_rows = (int32_t)rows;
    s->image_pitch = (int32_t)(rows * width);
    s->extent = (int32_t)own;
    s->slots = (int32_t)(own + span);
    s->plane = (int32_t)(s->positions + span) | 1;
    s->row_step = (int32_t)(c->dilation_h * width);
    s->column_step = c->dilation_w;
    return true;
}

/* ---- shared memory ---- */

static bool make_layout(xn_cuda_bands_shape *s) {
    const int64_t filters = s->block_tiles * TILE, classes = s->borders.classes;
    int64_t total = 0, buffer = 0;
    s->stage_bytes = 2 * s->positions * 8;
    s->table_pitch = (int32_t)filters + 8;
    xn_place_shared(&buffer, (int64_t)s->units * s->plane * 16);
    if (buffer > XN_CUDA_BANDS_SHARED_BYTES)
        return false;
    s->buffer_bytes = (int32_t)buffer;
    s->record_bytes = (int32_t)xn_round_up(s->positions * 12, 128);
    xn_place_shared(&total, filters * 32 * s->pairs);
    s->buffers_at = xn_place_shared(&total, s->depth * buffer);
    s->records_at = xn_place_shared(&total, s->depth * s->record_bytes);
    s->counts_at = xn_place_shared(&total, (int64_t)s->plane * 4);
    s->table_at = xn_place_shared(&total, 2 * classes * s->table_pitch * 4);
    s->flips_at = xn_place_shared(&total, filters / 8);
    s->stage_at = xn_place_shared(&total, s->consumers * (int64_t)s->stage_bytes);
    s->bytes = (int32_t)(total < INT32_MAX ? total : INT32_MAX);
    return total <= XN_CUDA_BANDS_SHARED_BYTES;
}

/* ---- which shape ---- */

/* Cycles a launch adds to a chain of them. */
static double cost_of(const xn_cuda_bands_shape *s) {
    const double most = (double)xn_quotient_up(s->bands, s->pixel_blocks),
                 jobs = most * s->block_tiles;
    const double instruction = std::max<int64_t>(s->positions / 2, 16 + s->positions / 4);
    const double matrix = s->pairs * instruction;
    const double out = 150 + 4.0 * s->extent / 2; /* instructions of a warp */
    const double gather = 300 + s->slots / 128.0 * (60 + s->units * (8 + 30) + 20);
    const double fill = s->block_tiles * TILE * 32.0 * s->pairs / 20;
    const double turns = (double)xn_quotient_up((int64_t)jobs, s->consumers);
    double busy = jobs * matrix;
    busy = busy > turns * (matrix + 2 * out) ? busy : turns * (matrix + 2 * out);
    busy = busy > (jobs * out + most * gather) * 1.4 ? busy : (jobs * out + most * gather) * 1.4;
    busy = busy > fill ? busy : fill;
    const double start = 1500 + 10 * (double)s->borders.classes * s->block_tiles;
    return start + fill / 2 + gather + busy;
}

struct bands_choice {
    const xn_conv *conv;
    int multiprocessors;
    double cost; /* of *best */
    xn_cuda_bands_shape *best;
    bool found;
};

/* As many blocks as multiprocessors, but not more than there are bands. */
static bool make_grid(const bands_choice *choice, xn_cuda_bands_shape *s) {
    const int64_t others = (int64_t)s->filter_blocks * choice->conv->groups;
    const int64_t blocks = std::min<int64_t>(choice->multiprocessors / others, s->bands);
    s->pixel_blocks = (int32_t)std::max<int64_t>(blocks, 1);
    return s->filter_blocks <= UINT16_MAX && choice->conv->groups <= UINT16_MAX;
}

/* A shape that has its bands and filter tiles: one or more bands at a time in shared memory. */
static void try_memory(bands_choice *choice, xn_cuda_bands_shape *s) {
    if (!make_grid(choice, s))
        return;
    const int64_t most = xn_quotient_up(s->bands, s->pixel_blocks);
    const int32_t deepest = (int32_t)std::min<int64_t>(most, XN_CUDA_BANDS_MAX_DEPTH);
    const int32_t least = (int32_t)std::min<int64_t>(most, 2);
    for (s->depth = deepest; s->depth >= least; s->depth--) {
        if (!make_layout(s))
            continue;
        s->in_turn = s->consumers == 2 && s->pairs * s->positions / 2 >= IN_TURN_CYCLES;
        const double cost = cost_of(s);
        if (!choice->found || cost < choice->cost) {
            choice->found = true;
            choice->cost = cost;
            *choice->best = *s;
        }
        return;
    }
}

static void try_tiles(bands_choice *choice, xn_cuda_bands_shape *s) {
    /* packed output also writes the words that only pad */
    const int64_t filters = choice->conv->groups == 1 ? (int64_t)s->packed_words * 32
                                                      : choice->conv->group_out_channels;
    const int64_t tiles = xn_quotient_up(filters, TILE);
    for (s->block_tiles = 1; s->block_tiles <= XN_CUDA_BANDS_MAX_TILES; s->block_tiles *= 2)
        if (tiles % s->block_tiles == 0) {
            s->filter_blocks = (int32_t)(tiles / s->block_tiles);
            try_memory(choice, s);
        }
}

static void try_band(bands_choice *choice, int64_t images, xn_cuda_bands_shape *s) {
    if (s->rows >= 1 && s->columns >= 1 && make_band(choice->conv, images, s))
        try_tiles(choice, s);
}

/* The most rows that fit, as many in every band of an image, and half of those. */
static void try_rows(bands_choice *choice, int64_t images, xn_cuda_bands_shape *s) {
    const xn_conv *c = choice->conv;
    int32_t height[MOST_ROWS];
    s->images = 1;
    s->columns = c->out_width;
    for (s->rows = (int32_t)std::min<int64_t>(c->out_height, s->positions); s->rows > 1; s->rows--)
        if (make_band(c, images, s))
            break;
    height[0] = s->rows;
    height[1] = (int32_t)xn_quotient_up(c->out_height, xn_quotient_up(c->out_height, s->rows));
    height[2] = (int32_t)xn_quotient_up(height[1], 2);
    for (int i = 0; i < MOST_ROWS; i++) {
        s->rows = height[i];
        try_band(choice, images, s);
    }
}

/* Wide images: columns of some rows. */
static void try_columns(bands_choice *choice, int64_t images, xn_cuda_bands_shape *s) {
    const xn_conv *c = choice->conv;
    const int64_t span_w = (int64_t)(c->kernel_w - 1) * c->dilation_w;
    s->images = 1;
    for (s->rows = 1; s->rows <= 8 && s->rows <= c->out_height; s->rows *= 2) {
        const int64_t most = (s->positions + span_w) / s->rows - span_w;
        if (most < 2 || most >= c->out_width)
            continue;
        const int64_t each = xn_quotient_up(c->out_width, xn_quotient_up(c->out_width, most));
        s->columns = (int32_t)std::min<int64_t>(xn_round_up(each, 2), most / 2 * 2);
        try_band(choice, images, s);
    }
}

static void try_images(bands_choice *choice, int64_t images, xn_cuda_bands_shape *s) {
    s->rows = choice->conv->out_height;
    s->columns = choice->conv->out_width;
    for (s->images = 2; s->images <= images && s->images <= s->positions; s->images++) {
        if (!make_band(choice->conv, images, s))
            break;
        try_band(choice, images, s);
    }
}

static bool is_possible(const xn_conv *c, int64_t images) {
    const int64_t chunks = xn_cuda_row_chunks(c->group_channels, c->kernel_w) * c->kernel_h;
    if (c->mode != XN_MODE_XNOR || (c->groups > 1 && c->group_out_channels % 32) ||
        c->stride_h != 1 || c->stride_w != 1 || chunks > 2 * XN_CUDA_BANDS_MAX_PAIRS)
        return false;
    if (images > INT32_MAX / 4 || images * c->groups * c->height * c->width > INT32_MAX / 2 ||
        images * c->out_height * c->out_width > INT32_MAX / 2)
        return false; /* pixels are numbered in 32 bits */
    /* nobody would write the words that only pad a pixel */
    return c->groups == 1 || xn_packed_words(c->out_channels) * 32 == c->out_channels;
}

bool xn_cuda_bands_plan(const xn_conv *c, int64_t images, int multiprocessors,
                        xn_cuda_bands_shape *out) {
    xn_cuda_bands_shape s = {};
    bands_choice choice = {c, multiprocessors, 0, out, false};
    if (!is_possible(c, images) || !xn_cuda_borders_make(c, &s.borders))
        return false;
    s.tap_words = xn_packed_words(c->group_channels);
    s.units = (s.tap_words + 3) / 4;
    s.packed_words = xn_packed_words(c->out_channels);
    s.chunks = (int32_t)xn_cuda_row_chunks(c->group_channels, c->kernel_w) * c->kernel_h;
    s.pairs = (s.chunks + 1) / 2;
    s.piece_pairs = (int32_t)xn_quotient_up(s.pairs, XN_CUDA_BANDS_MAX_PIECES);
    for (s.variant = 0; s.variant < XN_CUDA_BANDS_VARIANTS; s.variant++) {
        s.positions = variant_positions[s.variant];
        s.consumers = variant_consumers[s.variant];
        if (c->out_width <= s.positions)
            try_rows(&choice, images, &s);
        else
            try_columns(&choice, images, &s);
        try_images(&choice, images, &s);
    }
    if (choice.found)
        xn_gemm_make_pairs(out, [&](int32_t chunk) { return xn_gemm_chunk_offset(c, out, chunk); });
    return choice.found;
}

/* As measured (README.md): so little work that a job each multiprocessor does it, where this
 * kernel's chain is shorter. */
bool xn_cuda_bands_pays(const xn_conv *c, int64_t images, int multiprocessors) {
    const int64_t pixels = images * c->out_height * c->out_width;
    return xn_quotient_up(pixels, TILE) * xn_quotient_up(c->group_out_channels, TILE) * c->groups <=
           multiprocessors;
}

bool xn_cuda_bands_fits(const xn_conv *conv, int64_t images) {
    xn_cuda_bands_shape shape;
    return xn_cuda_bands_plan(conv, images, 1, &shape);
}
