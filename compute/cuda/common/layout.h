/* layout.h: how bits lie in device memory, and the index arithmetic that goes with it. Shared by
 * the host code that packs weights and sizes the workspace and by the kernels.
 *
 *   activations  bits[N*G][H*W][tap_words]     channel c of the group is bit c % 32 of word c / 32
 *   filters      rows[O][row_words]            tap-major: word (i*KW + j)*tap_words + c/32, then 0
 *   tap popcount prefix[O][(KH+1)*(KW+1)]      of popc over filter taps [0,i) x [0,j)
 *   few channels patches[O][patch_words]       bit (c*KH + i)*KW + j, then 0
 *   fields       fields[O][KH][row words]      channels of tap j from bit j * field on, then 0
 *   wide filters wide[chunks/2][rows/8][2][8][4] two chunks, of 8 filters at a time
 *   lines filters lines_filters[chunks/2][rows/8][2][8][4] likewise, in the order of filters
 *   stage filters stage[O/32][steps][2][32][4] filters of 3x3 as operands of mma.sync: of each
 *                step's 256 bits two tiles of 16 filters, a lane's 4 blocks together
 *   wide prefix  wide_prefix[(KH+1)*(KW+1)][O] the numbers of prefix
 *   lines        lines[N*G][units][plane][4]   activations with their borders (xn_cuda_padded)
 *
 * A chunk is 128 bits, 4 words. Where tap_words is a multiple of 8, chunks are those of tap (0, 0),
 * (0, 1) and so on. Otherwise chunk c*KH + i is words 4c .. 4c+3 of kernel row i, whose taps lie
 * one after the other. The filters of a chunk are in the order of xn_cuda_wgmma_row. In lines a
 * chunk is 4 words of a tap, taps run faster than words, or where a tap has less, as many taps of a
 * kernel row.
 *
 * tap_words is 1, 2 or a multiple of 4, so that a tap is copied in units of 4, 8 or 16 bytes, and
 * row_words is a multiple of 8: the 256 bits of one matrix instruction. The words that pad are
 * zero on both sides, so neither AND nor XOR counts them. */
#ifndef XN_CUDA_LAYOUT_H
#define XN_CUDA_LAYOUT_H

#include "xn_arith.h"

#define XN_CUDA_STEP_WORDS 8      /* 256 bits: k of one matrix instruction */
#define XN_CUDA_FEW_CHANNELS 8    /* the most channels of a group whose filters are patches, */
#define XN_CUDA_FEW_PATCH_WORDS 8 /* the most words of one, */
#define XN_CUDA_FEW_KERNEL_W 32   /* and the widest kernel: a row of taps fits one word */
#define XN_CUDA_FIELDS_WORDS 24   /* the most words a filter may take as fields */

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

/* Filters of the wide layout: the last tile of up to 128 reads past the filters there are. */
XN_HD int64_t xn_cuda_wgmma_rows(int32_t out_channels) {
    return ((int64_t)out_channels + 31) / 32 * 32 + 96;
}

/* The chunk that has a word of tap (i, j). */
XN_HD int64_t xn_cuda_stationary_chunk(int32_t i, int32_t j, int32_t word, int32_t tap_words,
                                       int32_t kernel_h, int32_t kernel_w) {
    if (tap_words % 8 == 0)
        return ((int64_t)i * kernel_w + j) * (tap_words / 4) + word / 4;
    return ((int64_t)j * tap_words + word) / 4 * kernel_h + i;
}

/* Where the words of taps lie unit by unit, 4 words each. */
XN_HD int64_t xn_cuda_unit_chunk(int32_t i, int32_t j, int32_t word, int32_t kernel_h,
                                 int32_t kernel_w) {
    return ((int64_t)(word / 4) * kernel_h + i) * kernel_w + j;
}

/* The same for lines: where taps overlap in memory (warp_specialised.cu), each chunk begins after
 * the one before. */
XN_HD int64_t xn_cuda_padded_chunk(int32_t i, int32_t j, int32_t word, int32_t tap_words,
                                   int32_t kernel_h, int32_t kernel_w) {
    if (tap_words >= 4)
        return xn_cuda_unit_chunk(i, j, word, kernel_h, kernel_w);
    return ((int64_t)i * ((kernel_w * tap_words + 3) / 4)) + (j * tap_words + word) / 4;
}

/* The first of the 4 words of a filter's chunk; row as xn_cuda_wgmma_row. */
XN_HD int64_t xn_cuda_wgmma_word(int64_t chunk, int64_t row, int64_t rows) {
    return (((chunk / 2 * (rows / 8) + row / 8) * 2 + chunk % 2) * 8 + row % 8) * 4;
}

/* Where a filter lies: within 32, so that column 8j + 2t + e of the matrix instruction, which is
 * with thread t of a quad, is filter 8t + 2j + e: a thread has 8 neighbours. */
XN_HD int64_t xn_cuda_wgmma_row(int32_t filter) {
    return (filter & ~31) + (filter >> 1 & 3) * 8 + (filter >> 3 & 3) * 2 + (filter & 1);
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
 * value a filter: channels times taps inside less twice their set bits; and another, that plus 2.
 */
enum { XN_CUDA_STAGE_VALUES = 18 };

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

/* Activations as warp_specialised.cu reads them: 16 bytes a position and unit. A position has 128
 * channels of its pixel, or below 65 channels (tap_words 1 and 2) all of its pixel and then of the
 * pixels of the taps to the right, 16 bytes in all. Pixel (y, x) of an image is at position lead +
 * (top + y) * pitch + x; all others are zeros: lines above and below, and between lines as many as
 * a window reaches past either end, which both lines share. Set bits and means lie likewise, 4
 * bytes a position, without units. */
typedef struct xn_cuda_padded {
    int32_t tap_words, units, step; /* step: from tap to tap, in positions */
    int32_t lead, top, pitch;       /* lead and pitch are multiples of 4 and 8 */
    int32_t lines, plane;           /* an image's; positions of an image and unit */
} xn_cuda_padded;

/* The least positions from line to line where lines share the zeros that a window reaches past
 * either end: wide enough for inputs and outputs, and the first tap of a kernel row lies after the
 * last of the row above. Stride 1. */
XN_HD int64_t xn_cuda_line_pitch(const xn_conv *c) {
    const int64_t span = xn_cuda_span_w(c);
    const int64_t own = (int64_t)c->pad_left + c->width, reach = c->out_width + span - c->pad_left;
    const int64_t rows = span / c->dilation_h + 1;
    int64_t pitch = c->out_width;
    pitch = pitch > own ? pitch : own;
    pitch = pitch > reach ? pitch : reach;
    return pitch > rows ? pitch : rows;
}

/* Sizes are those of a conv with stride 1. */
XN_HD xn_cuda_padded xn_cuda_padded_of(const xn_conv *c) {
    const int32_t below = c->out_height + (int32_t)xn_cuda_span_h(c), own = c->pad_top + c->height;
    xn_cuda_padded l;
    l.tap_words = xn_packed_words(c->group_channels);
    l.units = (l.tap_words + 3) / 4;
    l.step = c->dilation_w;
    l.lead = (c->pad_left + 3) / 4 * 4;
    l.top = c->pad_top;
    l.pitch = ((int32_t)xn_cuda_line_pitch(c) + 7) / 8 * 8;
    l.lines = below > own ? below : own;
    l.plane = l.lead + l.lines * l.pitch;
    return l;
}

/* Words of a filter as a patch: 1, 2, 3, 5 or 8; 0 where it is too large for one. */
XN_HD int32_t xn_cuda_patch_words(int32_t group_channels, int32_t kernel_h, int32_t kernel_w) {
    int64_t bits = (int64_t)group_channels * kernel_h * kernel_w;
    if (group_channels > XN_CUDA_FEW_CHANNELS || kernel_w > XN_CUDA_FEW_KERNEL_W ||
        bits > 32 * XN_CUDA_FEW_PATCH_WORDS)
        return 0;
    int32_t words = (int32_t)((bits + 31) / 32);
    return words <= 3 ? words : words <= 5 ? 5 : 8;
}

/* Bits of a tap in the fields of patch_gemm.cu, as a power of 2; its words of a kernel row, and
 * those of a filter, 0 when it is too large for that kernel. */
XN_HD int32_t xn_cuda_field_log2(int32_t channels) {
    int32_t log = 0;
    while (1 << log < channels)
        log++;
    return log;
}

XN_HD int64_t xn_cuda_field_row_words(int32_t group_channels, int32_t kernel_w) {
    return (((int64_t)kernel_w << xn_cuda_field_log2(group_channels)) - 1) / 32 + 1;
}

XN_HD int32_t xn_cuda_field_words(int32_t group_channels, int32_t kernel_h, int32_t kernel_w) {
    if (group_channels > 32 || kernel_h > XN_CUDA_FIELDS_WORDS)
        return 0;
    const int64_t words = xn_cuda_field_row_words(group_channels, kernel_w) * kernel_h;
    return words <= XN_CUDA_FIELDS_WORDS ? (int32_t)words : 0;
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

/* Set bits of one filter over the taps of a rectangle, from its prefix table. */
XN_HD int32_t xn_cuda_rect_popc(const int32_t *prefix, int32_t kernel_w, const xn_cuda_rect *r) {
    int64_t pitch = kernel_w + 1;
    return prefix[r->i1 * pitch + r->j1] - prefix[r->i0 * pitch + r->j1] -
           prefix[r->i1 * pitch + r->j0] + prefix[r->i0 * pitch + r->j0];
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

/* A walk along the words of a filter row: tap (i, j), word within the tap. */
typedef struct xn_cuda_walk {
    int32_t i, j, word;
} xn_cuda_walk;

XN_HD void xn_cuda_walk_advance(xn_cuda_walk *walk, int32_t words, int32_t tap_words,
                                int32_t kernel_w) {
    walk->word += words;
    while (walk->word >= tap_words) {
        walk->word -= tap_words;
        if (++walk->j == kernel_w) {
            walk->j = 0;
            walk->i++;
        }
    }
}

/* `count` (1..32) low bits set. */
XN_HD uint32_t xn_cuda_low_bits(int32_t count) {
    return 0xffffffffu >> (32 - count);
}

/* Bits [first, last) of a word; 0 <= first <= last <= 32. */
XN_HD uint32_t xn_cuda_bit_range(int32_t first, int32_t last) {
    return first < last ? xn_cuda_low_bits(last - first) << first : 0u;
}

#endif
