/* fused_gemm_plan.cu: how fused_gemm.cu cuts a problem into blocks.
 * Host code without a device. */
#include "fused_gemm.h"
#include "layout.h"

#include <math.h>

enum {
    ROWS = XN_CUDA_FUSED_ROWS,
    COLUMNS = XN_CUDA_FUSED_COLUMNS,
    WARPS = XN_CUDA_FUSED_WARPS,
    MAX_CHANNELS = 1024, /* of a group: their magnitudes are summed in fp32, */
    MAX_TAPS = 256,      /* and the means of as many taps */
    MAX_POSITIONS = 1 << 14,
    MIN_SHARERS = 4,
    MAX_SHARERS = 32, /* of a warp */
    RESIDENT = 2,     /* blocks of a multiprocessor, as registers allow */
    MULTIPROCESSOR_BYTES = 227 * 1024,
};

static int32_t quotient_up(int64_t n, int64_t unit) {
    return (int32_t)((n + unit - 1) / unit);
}

static int32_t gcd(int32_t a, int32_t b) {
    while (b) {
        const int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The positions that `outputs` side by side read: no more than some tap does. */
static bool make_axis(int64_t outputs, int32_t kernel, int32_t stride, int32_t dilation,
                      xn_cuda_fused_axis *axis) {
    axis->step = kernel == 1 ? stride : outputs == 1 ? dilation : gcd(stride, dilation);
    axis->per_output = stride / axis->step;
    axis->per_tap = dilation / axis->step;
    const int64_t count =
        (outputs - 1) * axis->per_output + (int64_t)(kernel - 1) * axis->per_tap + 1;
    axis->count = (int32_t)count;
    return count <= MAX_POSITIONS;
}

static int32_t place(int64_t *total, int64_t bytes) {
    const int64_t at = *total;
    *total += (bytes + 15) / 16 * 16;
    return (int32_t)at;
}

/* What lies in shared memory; false when it does not fit. */
static bool make_layout(xn_cuda_fused_shape *s) {
    const int64_t filters = s->cut.row_tiles * ROWS;
    int64_t total = 0;
    /* Eight filters and 4 threads read 16 bytes each, or 8, from different banks. */
    const int32_t step = s->unit_words == 4 ? 64 : 32;
    s->filter_bytes = s->steps * step;
    s->filter_pitch = (s->filter_bytes + 127) / 128 * 128 + step;
    place(&total, filters * s->filter_pitch);
    s->positions_at = place(&total, (int64_t)s->positions * s->tap_words * 4);
    s->table_at = place(&total, (s->steps + 1) * (s->unit_words == 1 ? 8 : 4) * 8);
    s->info_at = place(&total, (int64_t)s->positions * 8);
    s->inside_at = place(&total, (int64_t)s->positions * 4);
    s->sums_at = place(&total, (int64_t)s->tap_words * 4 * s->share * 4);
    s->outputs_at = place(&total, (int64_t)s->outputs * 8);
    s->bytes = (int32_t)(total < INT32_MAX ? total : INT32_MAX);
    return total <= XN_CUDA_FUSED_SHARED_BYTES;
}

static bool takes(const xn_conv *c) {
    return c->mode == XN_MODE_XNOR && xn_is_plain(c->epilogue) &&
           c->group_channels <= MAX_CHANNELS && c->kernel_h <= MAX_TAPS &&
           c->kernel_w <= MAX_TAPS && c->kernel_h * c->kernel_w <= MAX_TAPS &&
           (int64_t)c->height * c->width <= INT32_MAX &&
           (int64_t)c->out_height * c->out_width <= INT32_MAX &&
           (int64_t)c->height + c->pad_top + c->pad_bottom <= 1 << 30 &&
           (int64_t)c->width + c->pad_left + c->pad_right <= 1 << 30;
}

/* A convolution that takes pixels one by one has no rows: any run of them is a tile. */
static xn_conv flatten(const xn_conv *conv) {
    xn_conv c = *conv;
    /* the stride to a single output is 1 too, but then there are fewer outputs than pixels */
    const bool plain = c.kernel_h == 1 && c.kernel_w == 1 && c.stride_h == 1 && c.stride_w == 1 &&
                       c.out_height == c.height && c.out_width == c.width;
    if (plain && !(c.pad_top || c.pad_left || c.pad_bottom || c.pad_right)) {
        c.width *= c.height;
        c.out_width *= c.out_height;
        c.height = c.out_height = 1;
    }
    return c;
}

/* What depends on the tile of outputs alone; the convolution is flat where it can be. */
static bool make_tile(const xn_conv *c, int32_t tile_w, int32_t tile_h, xn_cuda_fused_shape *s) {
    const int64_t outputs = ((int64_t)tile_w * tile_h + COLUMNS - 1) / COLUMNS * COLUMNS;
    if (outputs > XN_CUDA_FUSED_MOST * COLUMNS * WARPS ||
        !make_axis(tile_h, c->kernel_h, c->stride_h, c->dilation_h, &s->rows) ||
        !make_axis(tile_w, c->kernel_w, c->stride_w, c->dilation_w, &s->columns) ||
        (int64_t)s->rows.count * s->columns.count > MAX_POSITIONS)
        return false;
    s->outputs = (int32_t)outputs;
    s->positions = s->rows.count * s->columns.count;
    s->tap_words = xn_packed_words(c->group_channels);
    s->unit_words = s->tap_words < 4 ? 1 : 4;
    s->tap_units = s->tap_words / s->unit_words;
    s->units = c->kernel_h * c->kernel_w * s->tap_units;
    s->steps = quotient_up(s->units, s->unit_words == 1 ? 8 : 4);
    s->octets = quotient_up(c->group_channels, 8);
    s->row_words = (int32_t)xn_cuda_row_words(c->group_channels, c->kernel_h, c->kernel_w);
    s->tiles_x = quotient_up(c->out_width, tile_w);
    s->tiles_y = quotient_up(c->out_height, tile_h);
    return true;
}

/* The rest; of a shape that has its tile. */
static bool make_cut(const xn_conv *c, int64_t images, const xn_cuda_fused_cut *cut,
                     xn_cuda_fused_shape *s) {
    s->cut = *cut;
    s->splits = quotient_up(c->group_out_channels, cut->row_tiles * ROWS);
    if (cut->row_tiles > cut->warps || s->splits % cut->cluster ||
        s->outputs > XN_CUDA_FUSED_MOST * COLUMNS * cut->warps / cut->row_tiles)
        return false;
    const int32_t live = quotient_up(s->outputs / COLUMNS, cut->warps / cut->row_tiles);
    s->live = live == 3 ? 4 : live;
    s->share = quotient_up(s->positions, cut->cluster);
    s->sharers = MIN_SHARERS;
    while (s->sharers < MAX_SHARERS && 2 * s->sharers * s->share <= cut->warps * 32)
        s->sharers *= 2;
    const double blocks = (double)images * c->groups * s->tiles_x * s->tiles_y * (double)s->splits;
    s->blocks = (int64_t)blocks;
    return blocks <= INT32_MAX && make_layout(s);
}

static void finish(const xn_conv *c, xn_cuda_fused_shape *s) {
    s->conv = *c;
    s->channel_reciprocal = 1.0f / (float)c->group_channels;
    s->by_splits = xn_fast_divisor_of(s->splits);
    s->by_tiles_x = xn_fast_divisor_of(s->tiles_x);
    s->by_tiles_y = xn_fast_divisor_of(s->tiles_y);
    s->by_groups = xn_fast_divisor_of(c->groups);
    s->by_columns = xn_fast_divisor_of(s->columns.count);
    s->by_tile_w = xn_fast_divisor_of(s->cut.tile_w);
    s->by_share = xn_fast_divisor_of(s->share);
    s->by_kernel_w = xn_fast_divisor_of(c->kernel_w);
    s->by_tap_units = xn_fast_divisor_of(s->tap_units);
    s->by_pieces = xn_fast_divisor_of(s->filter_bytes / 16);
}

bool xn_cuda_fused_shape_of(const xn_conv *conv, int64_t images, const xn_cuda_fused_cut *cut,
                            bool clusters, xn_cuda_fused_shape *out) {
    const int32_t m = cut->row_tiles, n = cut->cluster;
    if (!takes(conv) || images < 1 || (cut->warps != WARPS && cut->warps != WARPS / 2) ||
        cut->tile_w < 1 || cut->tile_h < 1 || m < 1 || m > WARPS || (m & (m - 1)) || n < 1 ||
        n > XN_CUDA_FUSED_CLUSTER || (n & (n - 1)) || (n > 1 && !clusters))
        return false;
    const xn_conv c = flatten(conv);
    if ((cut->tile_w != c.out_width && (cut->tile_w > c.out_width || cut->tile_w % COLUMNS)) ||
        cut->tile_h > c.out_height || !make_tile(&c, cut->tile_w, cut->tile_h, out) ||
        !make_cut(&c, images, cut, out))
        return false;
    finish(&c, out);
    return true;
}

/* ---- which cut ---- */

/* Instructions of a warp, about. */
static double work_of(const xn_cuda_fused_shape *s) {
    const double threads = s->cut.warps * 32;
    const double tasks = ceil((double)s->octets * s->share / threads);
    const double sums =
        ceil((double)s->share * s->sharers / threads) * (1 + 0.15 * s->octets / s->sharers);
    const double sent = s->cut.cluster > 1 ? (double)s->share * s->tap_units * s->cut.cluster : 0;
    const double windows = ceil(s->outputs * 8 / threads);
    const double products = s->steps * (s->unit_words == 4 ? 2 : 1) * (double)s->live;
    return 570 + 65 * tasks + 105 * sums + 55 * ceil(sent / threads) + 53 * windows +
           18 * s->steps + 3.4 * products + 80 * s->live;
}

/* What a block takes from its first load to its last store, and what all blocks of its
 * multiprocessor issue; whichever is longer. Fitted to 955 timed cuts (of less than 9 us) of 57
 * problems: off by 10%, and what it chooses takes 3% longer than the best of those. */
double xn_cuda_fused_us(const xn_cuda_fused_shape *s, int multiprocessors) {
    const double work = work_of(s), blocks = (double)s->blocks, cycles_us = 1900;
    const bool clusters = s->cut.cluster > 1; /* they do not find room everywhere */
    double resident = floor((double)MULTIPROCESSOR_BYTES / (s->bytes + 1024));
    resident = fmin(resident, (double)(RESIDENT * (WARPS / s->cut.warps)));
    const double waves = ceil(blocks / (multiprocessors * resident * (clusters ? 0.9 : 1)));
    const double chain = (680 + 6.2 * work + (clusters ? 375 : 0)) * (0.77 + 0.23 * waves);
    const double issue = ceil(blocks / multiprocessors) * work * s->cut.warps / 2.1;
    const double squares[2] = {chain * chain, issue * issue};
    return sqrt(sqrt(squares[0] * squares[0] + squares[1] * squares[1])) / cycles_us;
}

struct fused_choice {
    const xn_conv *conv;
    int64_t images;
    const xn_cuda_chip *chip;
    double us; /* of *best; 0: none yet */
    xn_cuda_fused_cut best;
};

/* All ways to share a tile of outputs. */
static void try_tile(fused_choice *choice, int32_t width, int32_t height) {
    const int32_t clusters = choice->chip->overlaps ? XN_CUDA_FUSED_CLUSTER : 1;
    xn_cuda_fused_shape s;
    if (!make_tile(choice->conv, width, height, &s))
        return;
    for (int32_t warps = WARPS / 2; warps <= WARPS; warps *= 2)
        for (int32_t rows = 1; rows <= warps; rows *= 2)
            for (int32_t cluster = 1; cluster <= clusters; cluster *= 2) {
                const xn_cuda_fused_cut cut = {width, height, rows, cluster, warps};
                if (!make_cut(choice->conv, choice->images, &cut, &s))
                    continue;
                const double us = xn_cuda_fused_us(&s, choice->chip->multiprocessors);
                if (choice->us == 0 || us < choice->us) {
                    choice->us = us;
                    choice->best = cut;
                }
            }
}

bool xn_cuda_fused_choose(const xn_conv *conv, int64_t images, const xn_cuda_chip *chip,
                          xn_cuda_fused_shape *out) {
    static const int32_t heights[] = {1, 2, 3, 4, 5, 7, 8, 14};
    static const int32_t widths[] = {0, 8, 16, 24, 32, 64}; /* 0: the image's */
    if (!takes(conv))
        return false;
    const xn_conv c = flatten(conv);
    fused_choice choice = {&c, images, chip, 0, {}};
    for (int32_t height : heights)
        for (int32_t width : widths)
            if (height <= c.out_height && width < c.out_width)
                try_tile(&choice, width ? width : c.out_width, height);
    return choice.us > 0 && xn_cuda_fused_shape_of(conv, images, &choice.best, chip->overlaps, out);
}
