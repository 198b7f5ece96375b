/* bk_tiles.c: the sections of the case table that go along the tiles of the kernels: just under, at
 * and over each size at which one ends. The sizes are those of the GPU kernels, whose cuts also
 * depend on how many multiprocessors there are to fill; every case runs on every path that takes
 * it, so one list serves all. What a size is meant for is said beside it. */
#include "bk_table.h"

#include <stddef.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* ---- few channels ---- */

/* The datatypes that have kernels of their own, and one that has none. */
static void few_variants(bk_cursor *at, bk_case c) {
    static const xn_datatype others[4] = {XN_BF16, XN_INT8, XN_FP32, XN_FP16};
    c.input_datatype = XN_FP32;
    c.params.output_datatype = XN_FP32;
    bk_deal(at, c);
    c.input_datatype = c.params.output_datatype = XN_FP16;
    c.params.pad_value = 1;
    bk_deal(at, c);
    c.input_datatype = others[at->number % 4];
    c.params.scaling = XN_SCALING_NONE;
    c.params.output_datatype = XN_INT32;
    c.params.pad_value = -1;
    bk_deal(at, c);
}

/* A square kernel with its outputs as many as its inputs. */
static bk_case same(int64_t images, int64_t channels, int64_t height, int64_t width,
                    int64_t out_channels, int64_t kernel) {
    bk_case c = bk_geometry(images, channels, height, width, out_channels, kernel, kernel);
    bk_pad(&c, kernel / 2, kernel / 2, kernel / 2, kernel / 2);
    return c;
}

/* sliding_window.cu: 4 columns a thread, 4 to 32 threads a segment, 1 or 2 segments side by side.
 */
static void strip_widths(bk_cursor *at) {
    static const int64_t widths[] = {16, 32, 64, 128, 256, 512, 1024};
    static const int64_t around[] = {-4, -1, 0, 1, 4};
    for (size_t i = 0; i < COUNT(widths); i++) {
        for (size_t k = 0; k < COUNT(around); k++) {
            few_variants(at, same(1, 1, 5, widths[i] + around[k], 1, 3));
            if (widths[i] > 256)
                continue;
            few_variants(at, same(1, 3, 4, widths[i] + around[k], 5, 3));
            few_variants(at, same(2, 1, 3, widths[i] + around[k], 1, 5 + 2 * (int64_t)(i % 2)));
        }
    }
}

/* 1, 2 or 4 rows a thread, up to 4 such chunks, 1 to 32 threads below each other, and planes
 * stacked where an image leaves threads over. */
static void strip_heights(bk_cursor *at) {
    static const int64_t heights[] = {1, 2, 3, 4, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65};
    for (size_t i = 0; i < COUNT(heights); i++) {
        few_variants(at, same(1, 1, heights[i], 36, 1, 3));
        few_variants(at, same(1, 1, heights[i], 132, 2, 3));
        bk_case planes = same(1, heights[i], 8, 8 + (int64_t)i % 2, heights[i], 3);
        planes.params.groups = heights[i];
        few_variants(at, planes);
    }
}

/* Windows that pass FLT_MAX on the way to a finite mean beside others that have a NaN or an
 * infinity: a thread's outputs are looked at together. */
static void strip_extremes(bk_cursor *at) {
    for (int64_t width = 8; width <= 41; width += 3)
        for (int64_t kernel = 1; kernel <= 7; kernel++) {
            bk_case c = same(1, 2, 9, width, 2, kernel);
            c.input_fill = BK_EXTREME;
            c.params.groups = 1 + kernel % 2;
            few_variants(at, c);
            c.out_channels = 4;
            few_variants(at, c);
        }
}

void bk_each_strip(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    strip_widths(&at);
    strip_heights(&at);
    strip_extremes(&at);
}

/* patch.cu: 1, 4 or 8 channels at a time, words of one to several taps, tiles of parts of a plane
 * or of several. Sums of each that are not finite are taken again. */
void bk_each_plane(bk_visit visit, void *context) {
    static const bk_fill fills[] = {BK_HUGE, BK_INFINITY, BK_NAN, BK_MIXED, BK_EXTREME};
    static const int64_t channels[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32};
    bk_cursor at = {visit, context, 0};
    for (int64_t width = 2; width <= 18; width++)
        for (int64_t kernel = 3; kernel <= 7; kernel += 2) {
            bk_case c = same(2, 5, 3 + width * 3 % 13, width, 5, kernel);
            c.params.groups = 5;
            few_variants(&at, c);
            c.input_fill = fills[(width + kernel / 2) % 5];
            bk_deal(&at, c);
        }
    for (size_t i = 0; i < COUNT(channels); i++)
        for (int64_t groups = 1; groups <= 9; groups += 4) {
            bk_case c = same(2, channels[i] * groups, 5, 13 + (int64_t)i, 3 * groups, 3);
            c.params.groups = groups;
            few_variants(&at, c);
            c.input_fill = fills[(i + (size_t)groups / 4) % 5];
            bk_deal(&at, c);
            c.params.dilation[1] = 1 + (int64_t)i % 3;
            c.params.stride[0] = 2;
            c.params.stride[1] = 1 + (int64_t)i % 4;
            few_variants(&at, c);
        }
}

/* cpu/lookup.c: tiles of 64 columns, two rows at a time, that are done again row by row
 * where a sum overflows; strips of 1024 columns, with tiles of 4096; outputs of 8 MiB and more past
 * the caches, from rows that start on a cache line and rows that do not. */
void bk_each_strip_of_columns(bk_visit visit, void *context) {
    static const int64_t tiles[][2] = {{33, 300}, {34, 191}, {35, 257}, {66, 129}, {67, 320}};
    static const int64_t strips[][2] = {{4, 1536}, {3, 1537}, {3, 2049}, {3, 3200},
                                        {4, 6144}, {5, 6145}, {4, 8257}};
    static const int64_t large[][2] = {{1025, 2048}, {1448, 1449}};
    static const bk_fill fills[] = {BK_RANDOM, BK_NAN,   BK_INFINITY, BK_HUGE,
                                    BK_TIES,   BK_MIXED, BK_DENORMAL};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < COUNT(tiles); i++)
        for (size_t f = 0; f < COUNT(fills); f++) {
            bk_case c = same(1 + (int64_t)f % 2, 1, tiles[i][0], tiles[i][1], 1, 3);
            bk_pad(&c, (int64_t)f % 3, (int64_t)i % 3, 1, 2);
            c.params.pad_value = (int)(i + f) % 3 - 1;
            c.bias = f % 2;
            c.input_fill = fills[f];
            bk_deal(&at, c);
        }
    for (size_t i = 0; i < COUNT(strips); i++) {
        few_variants(&at, same(1, 1, strips[i][0], strips[i][1], 1, 3));
        few_variants(&at, same(1, 3, strips[i][0], strips[i][1], 2, 5));
    }
    for (size_t i = 0; i < COUNT(large); i++) {
        bk_deal(&at, same(1, 1, large[i][0], large[i][1], 1, 3));
        bk_deal(&at, same(1, 1, large[i][0] / 2, large[i][1] + 1, 2, 3));
    }
}

/* Few channels, any step: rows around 32, 64 and 128 outputs; filters of 1 to 13 words, with bits
 * at either side of a word. */
void bk_each_tile(bk_visit visit, void *context) {
    static const int64_t outputs[][2] = {{7, 127},  {8, 128},  {9, 129}, {15, 63}, {16, 64},
                                         {17, 65},  {31, 31},  {32, 32}, {33, 33}, {8, 255},
                                         {16, 256}, {17, 257}, {64, 32}, {65, 33}, {1, 32}};
    static const int64_t filters[][3] = {/* channels, kernel: bits at either side of a word */
                                         {3, 3, 3},  {4, 2, 4}, {3, 3, 4},  {7, 3, 3},  {8, 2, 4},
                                         {5, 1, 13}, {8, 3, 4}, {7, 2, 7},  {8, 4, 5},  {7, 1, 23},
                                         {8, 4, 8},  {8, 8, 4}, {1, 8, 32}, {3, 9, 11}, {16, 5, 5}};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < COUNT(outputs); i++) {
        bk_case c = same(1, 1 + (int64_t)i % 3, outputs[i][0], outputs[i][1], 2, 3);
        few_variants(&at, c);
        c.height *= 2;
        c.width *= 2;
        c.params.stride[0] = c.params.stride[1] = 2;
        few_variants(&at, c);
        c = same(1, 2, outputs[i][0], outputs[i][1], 9, 3);
        c.params.dilation[0] = c.params.dilation[1] = 2;
        bk_pad(&c, 2, 2, 2, 2);
        few_variants(&at, c);
    }
    for (size_t i = 0; i < COUNT(filters); i++) {
        bk_case c = bk_geometry(2, filters[i][0], 9, 33, 3, filters[i][1], filters[i][2]);
        bk_pad(&c, 1, 2, 0, 3);
        few_variants(&at, c);
    }
}

/* ---- many channels ---- */

/* The integer itself, and a real output, which takes another way out of the kernel. */
static void many_variants(bk_cursor *at, bk_case c) {
    c.params.scaling = XN_SCALING_NONE;
    c.params.output_datatype = XN_INT32;
    c.params.pad_value = (int)(at->number / 2 % 3) - 1;
    bk_deal(at, c);
    c.params.scaling = XN_SCALING_XNOR;
    c.params.output_datatype = at->number % 4 == 1 ? XN_FP16 : XN_FP32;
    c.input_datatype = c.params.output_datatype;
    c.scale = at->number % 8 == 5;
    c.bias = at->number % 8 == 7;
    bk_deal(at, c);
}

static void real_variants(bk_cursor *at, bk_case c) {
    c.params.mode = at->number % 2 ? XN_MODE_FLOAT : XN_MODE_BWN;
    c.params.pad_value = (int)(at->number % 3) - 1;
    c.input_datatype = at->number % 4 == 2 ? XN_FP16 : XN_FP32;
    bk_deal(at, c);
}

/* implicit_gemm.cu: 32, 64 or 128 output positions a block; warp_specialised.cu: 128, 224 or 256 in
 * lines of whole groups of 8, of rows and of whole images. Positions count through rows and images,
 * with rows and images kept apart by zeros, which neighbours share, and with a stride of 2 lines
 * and columns by their parity. */
void bk_each_position_count(bk_visit visit, void *context) {
    static const int64_t images[][3] = {
        /* images, height, width */
        {1, 1, 31},  {1, 4, 8},   {1, 3, 11},  {1, 7, 9},   {1, 8, 8},   {1, 5, 13},
        {1, 1, 95},  {1, 1, 97},  {1, 1, 127}, {2, 8, 8},   {3, 1, 43},  {1, 8, 16},
        {3, 5, 9},   {1, 3, 85},  {4, 8, 8},   {1, 1, 257}, {5, 7, 7},   {1, 3, 129},
        {2, 14, 14}, {1, 17, 31}, {1, 1, 223}, {1, 1, 225}, {1, 1, 239}, {1, 1, 241},
        {1, 12, 16}, {1, 13, 16}, {1, 14, 16}, {7, 3, 4},   {9, 1, 1},   {3, 9, 10},
        {1, 1, 63},  {1, 1, 111}, {1, 1, 113}, {1, 5, 56},  {2, 5, 28},  {3, 7, 7}};
    bk_cursor at = {visit, context, 0};
    for (int64_t top = 0; top < 2; top++) { /* bands of several images, padded at one side */
        bk_case c = same(400, 32, 5, 4, 9, 3);
        bk_pad(&c, top, 2, 2 - 2 * top, 1);
        many_variants(&at, c);
    }
    for (size_t i = 0; i < COUNT(images); i++) {
        const int64_t *n = images[i];
        many_variants(&at, same(n[0], 32, n[1], n[2], 18, 3));
        many_variants(&at, same(n[0], 64, n[1], n[2], 33, 1));
        many_variants(&at, same(n[0], 256, n[1], n[2], 2, 3));
        real_variants(&at, same(n[0], 16, n[1], n[2], 17, 3));
        bk_case c = same(n[0], n[2] % 2 ? 128 : 64, 2 * n[1], 2 * n[2], 33, 3);
        c.params.stride[0] = 2;
        c.params.stride[1] = 1 + (int64_t)i % 2;
        many_variants(&at, c);
    }
}

/* cpu/real.c: panels of 3 vectors of 4, 8 or 16 lanes, over rows and images; tiles of 8 filters, 64
 * tiles a unit; parts of 128 terms; rows in place or copied; outputs of 8 MiB and more past the
 * caches. cpu/direct.c: bands of copied rows, few filters a group. */
void bk_each_real_panel(bk_visit visit, void *context) {
    static const int64_t rows[][3] = {/* images, height, width */
                                      {1, 1, 7},  {1, 1, 17}, {3, 1, 1},  {1, 3, 15}, {5, 3, 3},
                                      {1, 7, 7},  {3, 7, 7},  {1, 5, 47}, {1, 2, 48}, {2, 3, 49},
                                      {1, 1, 97}, {2, 14, 9}, {1, 24, 2}, {7, 1, 23}};
    static const int64_t terms[][2] = {/* channels, kernel: around parts of 128 */
                                       {127, 1}, {128, 1}, {129, 1}, {14, 3}, {15, 3}, {29, 3},
                                       {43, 3},  {256, 1}, {257, 1}, {5, 5},  {6, 5},  {900, 3}};
    static const int64_t groups[][3] = {/* groups, channels and filters of each */
                                        {3, 2, 1}, {5, 1, 3}, {2, 3, 5}, {3, 4, 8},
                                        {4, 2, 7}, {3, 1, 9}, {2, 9, 4}, {7, 1, 1}};
    static const bk_fill fills[] = {BK_RANDOM, BK_NAN,   BK_INFINITY, BK_HUGE,
                                    BK_EQUAL,  BK_MIXED, BK_DENORMAL};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t f = 0; f < COUNT(fills); f++) {
            bk_case c = same(rows[i][0], 3, rows[i][1], rows[i][2], 5 + 6 * (int64_t)(f % 3), 3);
            c.input_fill = fills[f];
            c.weights_fill = fills[(f + i) % COUNT(fills)];
            c.params.stride[1] = 1 + (int64_t)(i + f) % 3;
            c.params.stride[0] = 1 + (int64_t)f % 2;
            real_variants(&at, c);
        }
    for (size_t i = 0; i < COUNT(terms); i++)
        for (int64_t filters = 8; filters <= 17; filters += 9) {
            bk_case c = same(1, terms[i][0], 4, 5, filters, terms[i][1]);
            real_variants(&at, c);
            c.input_fill = BK_EQUAL;
            c.weights_fill = BK_EQUAL;
            real_variants(&at, c);
        }
    for (size_t i = 0; i < COUNT(groups); i++)
        for (int64_t stride = 1; stride <= 2; stride++)
            for (int64_t dilation = 1; dilation <= 3; dilation++) {
                bk_case c =
                    same(2, groups[i][0] * groups[i][1], 9, 11, groups[i][0] * groups[i][2], 3);
                c.params.groups = groups[i][0];
                c.params.stride[0] = c.params.stride[1] = stride;
                c.params.dilation[0] = c.params.dilation[1] = dilation;
                real_variants(&at, c);
            }
    /* a few pixels left of full vectors: filters in their place, 8, 4 or 2 tiles at a time */
    for (int64_t left = 1; left <= 5; left++)
        for (size_t f = 0; f < COUNT(fills); f++) {
            bk_case c = same(1 + (int64_t)f % 3, 70 * (1 + left % 3), 1, 16 + left,
                             4 + 25 * (int64_t)(f % 4), 1);
            c.input_fill = fills[f];
            c.weights_fill = fills[(f + (size_t)left) % COUNT(fills)];
            real_variants(&at, c);
        }
    /* 1x1 that leaves out nothing, and what only has as many outputs as the image has pixels */
    static const int64_t edges[][6] = {/* top, left, bottom, right, strides */
                                       {0, 0, 0, 0, 1, 1}, {0, 0, 0, 96, 1, 2},
                                       {1, 0, 0, 0, 2, 1}, {0, 1, 0, 0, 1, 1},
                                       {0, 0, 1, 0, 1, 1}, {0, 0, 2, 96, 2, 2}};
    for (size_t i = 0; i < COUNT(edges); i++)
        for (int64_t height = 1; height <= 2; height++) {
            bk_case c = same(2, 30, height, 96, 9, 1);
            c.params.padding_kind = XN_PADDING_EXPLICIT;
            for (int side = 0; side < 4; side++)
                c.params.padding[side] = edges[i][side];
            c.params.stride[0] = edges[i][4];
            c.params.stride[1] = edges[i][5];
            real_variants(&at, c);
            real_variants(&at, c);
            real_variants(&at, c);
        }
    /* cpu/real.c, one output pixel: a tail of up to 4 images, whose lanes are filters, or panels */
    for (size_t i = 0; i < COUNT(terms); i++)
        for (size_t n = 0; n < COUNT(rows); n++) {
            bk_case c = same((int64_t)(n * n) % 41 + 1, terms[i][0], terms[i][1], terms[i][1],
                             1 + 47 * (int64_t)((i + n) % 4), terms[i][1]);
            c.params.padding_kind = XN_PADDING_VALID;
            c.input_fill = fills[(i + n) % COUNT(fills)];
            c.weights_fill = fills[n % COUNT(fills)];
            if (n % 6 == i % 6)
                real_variants(&at, c);
        }
    real_variants(&at, same(1, 1, 3, 5, 513, 1));
    real_variants(&at, same(1, 2, 2, 3, 1100, 2));
    real_variants(&at, same(3, 2, 64, 304, 40, 1));
    real_variants(&at, same(2, 1, 400, 304, 9, 3));
    bk_case tall = same(1, 3, 900, 60, 3, 3);
    tall.params.groups = 3;
    real_variants(&at, tall);
    tall.images = 16;
    real_variants(&at, tall);
}

/* cpu/direct.c, rows read where they are: vectors of 4, 8 or 16 outputs, of which the last has some
 * and any may reach out of the image on either side; 3x3 kernels of one channel that go down the
 * rows with strides of 1 and 2, 5x5 and others; up to 64 terms; bands of 64 rows, or of 16 where
 * the outputs are 8 MiB and more. */
void bk_each_shifted_row(bk_visit visit, void *context) {
    static const int64_t widths[] = {1,  2,  3,  4,  5,  7,  8,  9,  11, 15, 16,
                                     17, 23, 31, 32, 33, 40, 47, 48, 65, 97};
    static const int64_t kernels[][2] = {{3, 3}, {3, 3}, {5, 5}, {1, 1}, {2, 4},
                                         {4, 1}, {3, 3}, {7, 9}, {1, 6}};
    static const bk_fill fills[] = {BK_RANDOM, BK_MIXED, BK_NAN, BK_INFINITY, BK_HUGE};
    bk_cursor at = {visit, context, 0};
    for (size_t w = 0; w < COUNT(widths); w++)
        for (int64_t n = 0; n < 24; n++) {
            const int64_t *kernel = kernels[(w + (size_t)n) % COUNT(kernels)];
            const int64_t channels = kernel[0] * kernel[1] > 25 ? 1 : 1 + n / 4 % 3 / 2;
            bk_case c = bk_geometry(1 + n % 2, 3 * channels, 1 + (n * 5 + (int64_t)w) % 11,
                                    widths[w], 3 * (1 + n % 3), kernel[0], kernel[1]);
            c.params.groups = 3;
            c.params.mode = n % 3 ? XN_MODE_FLOAT : XN_MODE_BWN;
            c.params.stride[0] = 1 + n / 2 % 3;
            c.params.stride[1] = 1 + n % 2;
            c.params.dilation[0] = n % 7 ? 1 : 2;
            c.params.dilation[1] = n % 2 || n % 5 ? 1 : 3;
            const int64_t down = (kernel[0] - 1) * c.params.dilation[0];
            const int64_t across = (kernel[1] - 1) * c.params.dilation[1];
            bk_pad(&c, down / 2 + n % 3, across / 2 + n % 5, down, across);
            c.params.pad_value = (int)(n + (int64_t)w) % 3 - 1;
            c.input_fill = fills[(w + (size_t)n) % COUNT(fills)];
            c.weights_fill = n % 6 == 5 ? BK_INFINITY : BK_RANDOM;
            c.scale = n % 4 == 1;
            c.bias = n % 4 > 1;
            bk_deal(&at, c);
        }
    static const int64_t large[][4] = {/* images, height, width, stride */
                                       {1, 150, 20, 1},   {1, 150, 20, 2},   {16, 900, 60, 1},
                                       {1, 131, 301, 1},  {1, 131, 301, 2},  {40, 699, 122, 2},
                                       {3600, 14, 14, 1}, {3600, 27, 28, 2}, {3600, 15, 13, 1}};
    for (size_t i = 0; i < COUNT(large); i++) {
        bk_case c = same(large[i][0], 3, large[i][1], large[i][2], i % 2 ? 6 : 3, 3);
        c.params.groups = 3;
        c.params.mode = XN_MODE_FLOAT;
        c.params.stride[0] = c.params.stride[1] = large[i][3];
        c.input_fill = i == COUNT(large) - 1 ? BK_NAN : BK_RANDOM;
        bk_deal(&at, c);
    }
}

/* 32, 64 or 128 filters a block; outputs turned 16 at a time; packed in words of 32. */
void bk_each_filter_tile(bk_visit visit, void *context) {
    static const int64_t filters[] = {15, 16,  17,  31,  32,  33,  47,  48,  63,  64,  65, 95,
                                      97, 127, 128, 129, 160, 191, 192, 193, 255, 256, 257};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < COUNT(filters); i++) {
        many_variants(&at, same(1, 33, 9, 9, filters[i], 1));
        many_variants(&at, same(2, 32, 4, 5, filters[i], 3));
        real_variants(&at, same(1, 8, 5, 13, filters[i], 3));
        if (filters[i] % 16)
            continue;
        bk_case c = same(1, 66, 4, 6, 2 * filters[i], 3);
        c.params.groups = 2;
        many_variants(&at, c);
    }
}

/* Steps and dilation along each axis, of rows of outputs that end within tiles; channels that end
 * within words. Means and windows that overflow are taken again. */
void bk_each_step(bk_visit visit, void *context) {
    static const int64_t widths[] = {7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129};
    static const int64_t channels[] = {7, 8, 9, 23, 24, 25, 33, 64, 100, 129, 256, 520, 1024};
    static const int64_t filters[] = {16, 17, 33, 64, 65, 128, 129, 256};
    static const bk_fill fills[] = {BK_HUGE, BK_INFINITY, BK_NAN, BK_MIXED};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < COUNT(widths); i++) {
        bk_case c = same(1 + (int64_t)i % 2, 40, 3, widths[i], filters[i % COUNT(filters)], 3);
        many_variants(&at, c);
        const int64_t down = 1 + (int64_t)i % 4, across = 1 + (int64_t)i % 3;
        c.params.dilation[0] = down;
        c.params.dilation[1] = across;
        bk_pad(&c, down, across, down, across);
        many_variants(&at, c);
        c.params.stride[0] = 1 + (int64_t)i % 2;
        c.params.stride[1] = 1 + (int64_t)i % 4;
        many_variants(&at, c);
        c = same(1, 40, 5, widths[i], filters[(i + 3) % COUNT(filters)], 1);
        many_variants(&at, c);
        c.params.stride[0] = c.params.stride[1] = 2;
        many_variants(&at, c);
    }
    for (size_t i = 0; i < COUNT(channels); i++) {
        bk_case c = same(1, channels[i], 6, 9, filters[i % COUNT(filters)], 3);
        many_variants(&at, c);
        c.input_fill = fills[i % COUNT(fills)];
        c.input_datatype = i % 2 ? XN_BF16 : XN_FP32;
        bk_deal(&at, c);
        c.params.dilation[0] = c.params.dilation[1] = 2;
        c.input_fill = BK_RANDOM;
        c.input_datatype = i % 3 ? XN_INT8 : XN_BOOL;
        bk_deal(&at, c);
    }
    for (int64_t kernel = 5; kernel <= 15; kernel += 2)
        many_variants(&at, same(1, 12 * kernel, 9, 11, 20, kernel));
    /* warp_specialised.cu: lines of whole groups of 8 without zeros beside or below them, but above
     */
    for (int64_t width = 4; width <= 5; width++) {
        bk_case c = bk_geometry(2, 33 * width, 3, 8, 17, 1 + width % 2, width);
        bk_pad(&c, 2, 0, 0, 0);
        many_variants(&at, c);
    }
}

/* sliding_window.cuh: columns 2 apart, rows any number: phases of 1 row and more, none in
 * some. */
void bk_each_dilated_strip(bk_visit visit, void *context) {
    static const bk_fill fills[] = {BK_HUGE, BK_INFINITY, BK_NAN, BK_MIXED, BK_EXTREME};
    bk_cursor at = {visit, context, 0};
    for (int64_t height = 1; height <= 40; height += 1 + height / 3)
        for (int64_t rows = 1; rows <= 9; rows += 1 + rows / 2) {
            bk_case c = same(1 + height % 2, 3, height, 8 + 4 * (height * rows % 17), 3, 3);
            c.params.groups = 3;
            c.params.dilation[0] = rows;
            c.params.dilation[1] = 2;
            bk_pad(&c, rows * (1 + height % 2), 2, rows + height % 3, 2);
            few_variants(&at, c);
            c.input_fill = fills[(height + rows) % 5];
            bk_deal(&at, c);
            c.params.pad_value = 1;
            bk_deal(&at, c);
        }
}

/* Words of 32 bits, copies of 1, 2 or 4 words, chunks of 128, instructions of 256, stages of 512.
 */
void bk_each_bit_count(bk_visit visit, void *context) {
    static const int64_t channels[] = {31,  32,  33,  63,  64,  65,  95,  96,  97,   127,  128,
                                       129, 159, 160, 161, 191, 193, 223, 225, 255,  256,  257,
                                       383, 384, 385, 511, 512, 513, 767, 768, 1023, 1024, 1025};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < COUNT(channels); i++) {
        many_variants(&at, same(1, channels[i], 4, 5, 17, 1));
        many_variants(&at, same(1, channels[i], 3, 4, 9, 3));
        real_variants(&at, same(1, channels[i], 3, 3, 5, 3));
        bk_case c = bk_geometry(1, channels[i], 3, 9, 5, 1 + (int64_t)i % 3, 2 + (int64_t)i % 5);
        bk_pad(&c, 0, 1, 0, 2);
        many_variants(&at, c);
    }
    /* many units of rows that are long, and of few lines */
    static const int64_t held[][3] = {/* channels, height, width */
                                      {256, 2, 230}, {256, 1, 300},  {512, 14, 14},
                                      {512, 2, 241}, {1024, 14, 14}, {1024, 13, 17}};
    for (size_t i = 0; i < COUNT(held); i++)
        many_variants(&at, same(1, held[i][0], held[i][1], held[i][2], 2, 3));
    /* a row of taps that reaches further than from one row to the next */
    for (int64_t n = 1; n <= 3; n++) {
        bk_case c = bk_geometry(n, 33 * n, 2, n, 6, 11, 5);
        bk_pad(&c, 4, 10, 5, 10);
        c.params.dilation[1] = 5;
        many_variants(&at, c);
    }
}

/* Matrix kernels of mode bwn, which a lower precision allows: with fp16 input no operand is
 * rounded, so that these results are those of fp32. Tiles of 64 or 128 pixels by 64 or 128 filters,
 * steps of 64 channels. */
void bk_each_allowed_precision(bk_visit visit, void *context) {
    static const int64_t filters[] = {4, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    static const int64_t channels[] = {1, 3, 8, 31, 33, 63, 64, 65, 128};
    static const int64_t sides[] = {1, 7, 8, 9, 11, 12};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < COUNT(filters); i++)
        for (size_t j = i % 2; j < COUNT(channels); j += 2) {
            const int64_t side = sides[(i * 5 + j) % COUNT(sides)];
            bk_case c = same(1 + (int64_t)(i + j) % 3, channels[j], side, side, filters[i],
                             1 + (int64_t)(i + j) % 3);
            c.params.mode = XN_MODE_BWN;
            c.params.precision = i % 3 ? XN_PRECISION_FP16 : XN_PRECISION_TF32;
            c.params.pad_value = (int)(j % 3) - 1;
            c.params.output_datatype = j % 2 ? XN_FP16 : XN_FP32;
            c.input_datatype = XN_FP16;
            c.bias = j % 2;
            bk_deal(&at, c);
        }
}

/* Images that fill the multiprocessors: more rows a thread, rows copied ahead. */
static void strip_grids(bk_cursor *at) {
    static const int64_t grids[][3] = {/* images, height, width */
                                       {1, 700, 1028},
                                       {1, 1059, 1028},
                                       {1, 1061, 1027},
                                       {2, 1058, 1032}};
    for (size_t i = 0; i < COUNT(grids); i++) {
        bk_case c = same(grids[i][0], 1, grids[i][1], grids[i][2], 1, 3);
        bk_deal(at, c);
        c.input_datatype = c.params.output_datatype = XN_FP16;
        if (i % 2)
            bk_deal(at, c);
    }
}

/* warp_specialised.cu: several bands a block, which only many groups bring about in problems of
 * this size: of whole images and of rows, the last one of fewer; 1, 4 and 8 outputs at once. */
static void many_bands(bk_cursor *at) {
    static const int64_t bands[][5] = {/* images, channels of a group, height, width, kernel */
                                       {9, 1, 7, 7, 3},   {8, 33, 5, 5, 3},  {11, 65, 4, 4, 1},
                                       {7, 1, 8, 8, 3},   {5, 2, 14, 14, 3}, {2, 1, 23, 28, 5},
                                       {1, 1, 18, 56, 3}, {2, 1, 7, 120, 3}, {3, 1, 3, 251, 3}};
    for (size_t i = 0; i < COUNT(bands); i++) {
        const int64_t *b = bands[i];
        bk_case c = same(b[0], 132 * b[1], b[2], b[3], 132 * 32, b[4]);
        c.params.groups = 132;
        many_variants(at, c);
        c.params.output_datatype = c.input_datatype = XN_FP16;
        bk_deal(at, c);
    }
    /* lines of whole groups of 8 outputs, of which none, the first, the last or more miss taps */
    for (int64_t width = 8; width <= 40; width += 16)
        for (int64_t sides = 0; sides < 5; sides++) {
            const int64_t left = sides == 4 ? 2 : sides & 1, right = sides == 4 ? 2 : sides >> 1;
            bk_case c =
                bk_geometry(1, 132, 9 - width / 8, width + 2 - left - right, 132 * 32, 3, 3);
            bk_pad(&c, 1, left, 1, right);
            c.params.groups = 132;
            c.params.output_datatype = c.input_datatype = XN_FP16;
            bk_deal(at, c);
        }
}

/* The large tiles are taken only where they give each multiprocessor a block, here by groups; and
 * blocks take several tiles only where there are more than run at once. */
void bk_each_grid(bk_visit visit, void *context) {
    static const int64_t groups[][5] = {
        /* groups, channels and filters of one, height, width */
        {33, 3, 129, 3, 43},  {66, 2, 128, 1, 129}, {66, 2, 128, 8, 16},
        {132, 2, 96, 1, 127}, {66, 1, 64, 5, 13},   {132, 1, 64, 7, 9},
        {70, 33, 33, 3, 11},  {132, 1, 32, 1, 65},  {132, 4, 17, 1, 33}};
    static const int64_t tiles[][4] = {/* images, channels, filters, kernel, of 64 x 64 */
                                       {13, 3, 17, 1},
                                       {13, 3, 5, 3},
                                       {13, 3, 33, 1},
                                       {9, 3, 65, 1},
                                       {9, 40, 3, 3}};
    bk_cursor at = {visit, context, 0};
    strip_grids(&at);
    many_bands(&at);
    for (size_t i = 0; i < COUNT(groups); i++) {
        const int64_t *g = groups[i];
        bk_case c = same(1, g[0] * g[1], g[3], g[4], g[0] * g[2], g[2] == 64 ? 3 : 1);
        c.params.groups = g[0];
        many_variants(&at, c);
        real_variants(&at, c);
    }
    for (size_t i = 0; i < COUNT(tiles); i++)
        many_variants(&at, same(tiles[i][0], tiles[i][1], 64, 64, tiles[i][2], tiles[i][3]));
}
