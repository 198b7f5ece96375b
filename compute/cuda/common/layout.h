/* layout.h: how bits lie in device memory, and the index arithmetic that goes with it. Shared by
 * the host code that packs weights and sizes the workspace and by the kernels.
 *
 *   activations  bits[N*G][H*W][tap_words]     channel c of the group is bit c % 32 of word c / 32
 *   filters      rows[O][row_words]            tap-major: word (i*KW + j)*tap_words + c/32, then 0
 *   tap popcount prefix[(KH+1)*(KW+1)][O]      of popc over filter taps [0,i) x [0,j)
 *   few channels patches[O][patch_words]       channel c of tap t: bit t % n * C + c of word t / n
 *   lines filters lines_filters[chunks/2][rows/8][2][8][4] two chunks, of 8 filters at a time
 *   stage filters stage[O/32][steps][2][32][4] filters of 3x3 as operands of mma.sync: of each
 *                step's 256 bits two tiles of 16 filters, a lane's 4 blocks together
 *   lines        lines[N*G][units][plane][4]   activations with their borders (xn_cuda_padded)
 *
 * A chunk of lines filters is 128 bits: 4 words of a tap, where taps run faster than words, or
 * where a tap has less, as many taps of a kernel row (xn_cuda_padded_chunk).
 *
 * tap_words is 1, 2 or a multiple of 4, so that a tap is copied in units of 4, 8 or 16 bytes, and
 * row_words is a multiple of 8: the 256 bits of one matrix instruction. The words that pad are
 * zero on both sides, so neither AND nor XOR counts them. */
#ifndef XN_CUDA_LAYOUT_H
#define XN_CUDA_LAYOUT_H

#include "xn_arith.h"

#define XN_CUDA_STEP_WORDS 8 /* 256 bits: k of one matrix instruction */

/* Shared memory that a block of the wgmma kernels may have; 1 KiB of sm_90's 227 is left for what
 * they declare themselves. */
#define XN_CUDA_WGMMA_SHARED_BYTES (226 * 1024)

/* Lines, and columns, from a window's first tap to its last. */
XN_HD int64_t xn_cuda_span_h(const xn_conv *c) {
    return (int64_t)(c->kernel_h - 1) * c->dilation_h;
}
XN_HD int64_t xn_cuda_span_w(const xn_conv *c) {
    return (int64_t)(c->kernel_w - 1) * c->dilation_w;
}

XN_HD int64_t xn_cuda_row_words(int32_t group_channels, int32_t kernel_h, int32_t kernel_w) {
    int64_t words = (int64_t)kernel_h * kernel_w * xn_packed_words(group_channels);
    return (words + XN_CUDA_STEP_WORDS - 1) / XN_CUDA_STEP_WORDS * XN_CUDA_STEP_WORDS;
}

/* Chunks of 128 bits of one kernel row. */
XN_HD int64_t xn_cuda_row_chunks(int32_t group_channels, int32_t kernel_w) {
    return ((int64_t)kernel_w * xn_packed_words(group_channels) + 3) / 4;
}

/* Filters of lines filters: the last tile of 64 reads past the filters there are. */
XN_HD int64_t xn_cuda_wgmma_rows(int32_t out_channels) {
    return ((int64_t)out_channels + 31) / 32 * 32 + 32;
}

/* The number of a kernel's row or column where those of each phase (xn_cuda_padded) lie together.
 */
XN_HD int32_t xn_cuda_phase_rank(int32_t at, int32_t size, int32_t phases) {
    return phases == 1 ? at : at % 2 * ((size + 1) / 2) + at / 2;
}

/* The chunk that has a word of tap (i, j). Taps are in the order of their phases, so that where
 * they overlap in memory (warp_specialised.cu) each chunk begins after the one before. */
XN_HD int64_t xn_cuda_padded_chunk(int32_t i, int32_t j, int32_t word, int32_t tap_words,
                                   int32_t kernel_h, int32_t kernel_w, int32_t phases_h,
                                   int32_t phases_w) {
    const int32_t row = xn_cuda_phase_rank(i, kernel_h, phases_h);
    if (tap_words < 4)
        return (int64_t)row * ((kernel_w * tap_words + 3) / 4) + (j * tap_words + word) / 4;
    const int32_t phase = j % phases_w, first = phase * ((kernel_w + 1) / 2);
    const int32_t columns = (kernel_w + phases_w - 1 - phase) / phases_w; /* of the phase */
    return (int64_t)word / 4 * kernel_h * kernel_w + (int64_t)first * kernel_h + row * columns +
           j / phases_w;
}

/* The first of the 4 words of a filter's chunk. */
XN_HD int64_t xn_cuda_wgmma_word(int64_t chunk, int64_t row, int64_t rows) {
    return (((chunk / 2 * (rows / 8) + row / 8) * 2 + chunk % 2) * 8 + row % 8) * 4;
}

/* Steps of a 3x3 filter of 2, 4, 8 or 16 words a tap (fused_stage.h). A step is 4 taps of
 * 2 words, 2 of 4, one of 8 or half of one of 16. */
XN_HD int32_t xn_cuda_stage_steps(int32_t tap_words) {
    return (9 * tap_words + XN_CUDA_STEP_WORDS - 1) / XN_CUDA_STEP_WORDS;
}
XN_HD int64_t xn_cuda_stage_row_words(int32_t tap_words) {
    const bool some = tap_words == 2 || tap_words == 4 || tap_words == 8 || tap_words == 16;
    return some ? (int64_t)xn_cuda_stage_steps(tap_words) * XN_CUDA_STEP_WORDS : 0;
}

/* Behind the filters, for each place at the border (top, middle, bottom by left, middle, right) a
 * value a filter: channels times taps inside, less twice their set bits and twice all channels
 * times taps. */
enum { XN_CUDA_STAGE_VALUES = 9 };

/* Where word `at` of a filter lies. Blocks q and q + 4 of a step are with lanes q: words q and q +
 * 4 of it, but of 2 words a tap those of tap q, and of the last tap, whose step has 128 bits, words
 * 0 and 1 with lanes 0 and 1. Lane 4 g + q has filters 4 g .. 4 g + 3 of each 32: rows g and g + 8
 * of tile 0, then of tile 1. */
XN_HD int64_t xn_cuda_stage_word(int32_t filter, int32_t at, int32_t tap_words) {
    const int32_t step = at / XN_CUDA_STEP_WORDS, n = at % XN_CUDA_STEP_WORDS;
    const bool pairs = tap_words == 2 && step < 2;
    const int32_t q = pairs ? n / 2 : n % 4, half = pairs ? n % 2 : n / 4;
    const int32_t lane = filter % 32 / 4 * 4 + q, tile = filter % 4 / 2;
    const int64_t operand =
        ((int64_t)(filter / 32) * xn_cuda_stage_steps(tap_words) + step) * 2 + tile;
    return (operand * 32 + lane) * 4 + half * 2 + filter % 2;
}

/* Activations as warp_specialised.cu reads them: 16 bytes a position and unit, with zeros around
 * each image and between its lines.
 *
 * Pixel (y, x) is at line y + top and column x + left of the image with its border. With a stride
 * of 2 lines and columns are told apart by their parity, so that an output's taps lie at one offset
 * for all outputs: a phase has those of one parity of lines and one of columns, as an image of its
 * own, and phases follow one another in a unit's plane, those of even columns first. A phase that
 * no tap reads is left out. Line l and column c of a phase are at position first + l * pitch + c of
 * it; all positions without a pixel are zeros: lines above and below, and between lines as many as
 * a window reaches past either end, which both lines share.
 *
 * A position has 128 channels of its pixel, or below 65 channels (tap_words 1 and 2) all of its
 * pixel and then of the pixels of the taps to the right, 16 bytes in all: then the first tap of
 * each chunk is of an even column, and phases of odd columns have no bits. Set bits and means lie
 * likewise, 4 bytes a position, without units. */
typedef struct xn_cuda_padded {
    int32_t tap_words, units, step; /* step: from tap to tap, in columns */
    int32_t odd_h, odd_w;           /* 1 with a stride of 2, else 0: a mask and a shift */
    int32_t top, left;
    int32_t phases_h, phases_w, phases, bit_phases; /* the last: of those, the first have bits */
    int32_t first, lead,
        pitch;            /* no pixel lies before lead; lead and pitch: multiples of 4 and 8 */
    int32_t phase, plane; /* positions of a phase; of an image and unit */
} xn_cuda_padded;

/* An axis of a conv with a stride of 1 or 2, in lines or columns of a phase. */
typedef struct xn_cuda_padded_axis {
    int32_t phases;
    int32_t before; /* zeros ahead of the first pixel, in the phase with the fewest, */
    int32_t own;    /* up to the last pixel, */
    int32_t span;   /* from a window's first tap to its last */
    int32_t
        apart; /* the least from one line, or image, to the next, where neighbours share zeros */
} xn_cuda_padded_axis;

XN_HD xn_cuda_padded_axis xn_cuda_padded_axis_of(int32_t size, int32_t pad, int32_t kernel,
                                                 int32_t dilation, int32_t stride,
                                                 int32_t outputs) {
    xn_cuda_padded_axis a;
    a.phases = stride == 2 && kernel > 1 && dilation % 2 ? 2 : 1;
    a.before = (pad + stride - a.phases) / stride;
    a.own = (pad + size - 1) / stride + 1;
    a.span = (kernel - 1) * dilation / stride;
    a.apart = outputs + a.span - a.before;
    a.apart = a.apart > a.own ? a.apart : a.own;
    a.apart = a.apart > outputs ? a.apart : outputs;
    return a;
}
XN_HD xn_cuda_padded_axis xn_cuda_padded_rows(const xn_conv *c) {
    return xn_cuda_padded_axis_of(c->height, c->pad_top, c->kernel_h, c->dilation_h, c->stride_h,
                                  c->out_height);
}
XN_HD xn_cuda_padded_axis xn_cuda_padded_columns(const xn_conv *c) {
    return xn_cuda_padded_axis_of(c->width, c->pad_left, c->kernel_w, c->dilation_w, c->stride_w,
                                  c->out_width);
}

/* Sizes are those of a conv with strides of 1 and 2. */
XN_HD xn_cuda_padded xn_cuda_padded_of(const xn_conv *c) {
    const xn_cuda_padded_axis rows = xn_cuda_padded_rows(c), columns = xn_cuda_padded_columns(c);
    const int32_t reach = c->out_height + rows.span, lines = reach > rows.own ? reach : rows.own;
    /* the first tap of a kernel row lies after the last of the row above */
    const int32_t row = c->dilation_h * rows.phases / c->stride_h;
    const int32_t least = row ? columns.span / row + 1 : 1;
    xn_cuda_padded l;
    l.tap_words = xn_packed_words(c->group_channels);
    l.units = (l.tap_words + 3) / 4;
    l.step = c->dilation_w;
    l.odd_h = c->stride_h - 1;
    l.odd_w = c->stride_w - 1;
    l.top = c->pad_top;
    l.left = c->pad_left;
    l.phases_h = rows.phases;
    l.phases_w = columns.phases;
    l.phases = l.phases_h * l.phases_w;
    l.bit_phases = l.tap_words < 4 ? l.phases_h : l.phases;
    l.lead = (columns.before + 3) / 4 * 4;
    l.first = l.lead - columns.before;
    l.pitch = ((columns.apart > least ? columns.apart : least) + 7) / 8 * 8;
    l.phase = l.lead + lines * l.pitch;
    l.plane = l.phases * l.phase;
    return l;
}

/* Where a pixel lies: the phase, -1 where no tap reads it, and the position there. */
XN_HD int32_t xn_cuda_padded_position(const xn_cuda_padded *l, int32_t y, int32_t x,
                                      int32_t *phase) {
    const int32_t line = y + l->top, column = x + l->left;
    const int32_t odd_h = line & l->odd_h, odd_w = column & l->odd_w;
    *phase = odd_h < l->phases_h && odd_w < l->phases_w ? odd_w * l->phases_h + odd_h : -1;
    return l->first + (line >> l->odd_h) * l->pitch + (column >> l->odd_w);
}

/* Positions from a window's first tap to tap (i, j), where phases lie so far apart. The same as
 * (i & 1) * that of (1, 0) + (i >> 1) * that of (2, 0), and likewise for j. */
XN_HD int32_t xn_cuda_padded_tap(const xn_conv *c, const xn_cuda_padded *l, int32_t i, int32_t j,
                                 int32_t phase) {
    const int32_t line = i * c->dilation_h, column = j * c->dilation_w;
    return ((column & l->odd_w) * l->phases_h + (line & l->odd_h)) * phase +
           (line >> l->odd_h) * l->pitch + (column >> l->odd_w);
}

/* Words of a filter as a patch, of which patch.cu has kernels; 0 where it is too large for one. */
XN_HD int32_t xn_cuda_patch_words(int32_t group_channels, int32_t kernel_h, int32_t kernel_w) {
    const int64_t taps = (int64_t)kernel_h * kernel_w, each = 32 / group_channels;
    const int64_t words = each ? (taps - 1) / each + 1 : 0;
    return words > 13 ? 0 : words > 9 ? 13 : words > 5 ? 9 : words > 3 ? 5 : (int32_t)words;
}

/* Taps of each word: the same number but for the last, of one channel all that fit. */
XN_HD int32_t xn_cuda_patch_taps(int32_t group_channels, int32_t kernel_h, int32_t kernel_w) {
    const int32_t words = xn_cuda_patch_words(group_channels, kernel_h, kernel_w);
    return group_channels == 1 || !words ? 32 : (kernel_h * kernel_w - 1) / words + 1;
}

/* The taps of one output that fall inside the image: rows [i0, i1), columns [j0, j1). */
typedef struct xn_cuda_rect {
    int32_t i0, i1, j0, j1;
} xn_cuda_rect;

XN_HD xn_cuda_rect xn_cuda_valid_rect(const xn_conv *c, int32_t out_y, int32_t out_x) {
    xn_cuda_rect r;
    xn_valid_taps(out_y * c->stride_h - c->pad_top, c->dilation_h, c->kernel_h, c->height, &r.i0,
                  &r.i1);
    xn_valid_taps(out_x * c->stride_w - c->pad_left, c->dilation_w, c->kernel_w, c->width, &r.j0,
                  &r.j1);
    return r;
}

XN_HD int32_t xn_cuda_rect_taps(const xn_cuda_rect *r) {
    return (r->i1 - r->i0) * (r->j1 - r->j0);
}

/* Set bits of one of `filters` filters over the taps of a rectangle; `prefix` is its own. */
XN_HD int32_t xn_cuda_rect_popc(const int32_t *prefix, int32_t filters, int32_t kernel_w,
                                const xn_cuda_rect *r) {
    const int64_t step = filters, pitch = step * (kernel_w + 1);
    return prefix[r->i1 * pitch + r->j1 * step] - prefix[r->i0 * pitch + r->j1 * step] -
           prefix[r->i1 * pitch + r->j0 * step] + prefix[r->i0 * pitch + r->j0 * step];
}

/* What the taps outside the image add to dot: there the image holds pad_value, so each adds
 * pad_value * sum over channels of sign(w) = pad_value * (2 popc(w) - channels). */
XN_HD int32_t xn_cuda_outside_dot(int32_t pad_value, int32_t channels, int32_t taps_outside,
                                  int32_t popc_w_outside) {
    uint32_t signs = 2u * (uint32_t)popc_w_outside - (uint32_t)channels * (uint32_t)taps_outside;
    return (int32_t)((uint32_t)pad_value * signs);
}

/* dot splits into what depends on the pixel only, on the filter (and border) only, and the count
 * of the AND, which is zero for taps outside the image because their words are read as zero:
 *
 *   dot = [k - 2 popc(a)]                            k and popc(a) over the taps inside
 *       - 2 popc(w inside) + 4 popc(a and w)
 *       + pad_value * (2 popc(w outside) - channels * taps outside)
 *
 * In unsigned arithmetic, since parts may pass 2^31 where the sum does not. */
XN_HD int32_t xn_cuda_pixel_part(int32_t pad_value, int32_t channels, int32_t taps_inside,
                                 int32_t taps_outside, int32_t popc_a) {
    return (int32_t)((uint32_t)channels * (uint32_t)taps_inside - 2u * (uint32_t)popc_a -
                     (uint32_t)pad_value * (uint32_t)channels * (uint32_t)taps_outside);
}

XN_HD int32_t xn_cuda_filter_part(int32_t pad_value, int32_t popc_w_inside,
                                  int32_t popc_w_outside) {
    return (int32_t)(2u * (uint32_t)pad_value * (uint32_t)popc_w_outside -
                     2u * (uint32_t)popc_w_inside);
}

XN_HD int32_t xn_cuda_dot(int32_t pixel_part, int32_t filter_part, int32_t popc_and) {
    return (int32_t)((uint32_t)pixel_part + (uint32_t)filter_part + 4u * (uint32_t)popc_and);
}

/* `count` (1..32) low bits set. */
XN_HD uint32_t xn_cuda_low_bits(int32_t count) {
    return 0xffffffffu >> (32 - count);
}

#endif
