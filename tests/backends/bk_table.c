/* bk_table.c: the one case table, in sections. A section names geometries; `variants` runs each of
 * them through the exact accumulator and the float epilogues of all modes, with datatypes, padding
 * values and batches taking turns from case to case. */
#include "bk_table.h"

#include <stddef.h>

static const xn_datatype input_datatypes[6] = {XN_FP32, XN_FP16,  XN_BF16,
                                               XN_INT8, XN_UINT8, XN_BOOL};
static const xn_datatype weights_datatypes[5] = {XN_FP32, XN_FP16, XN_BF16, XN_INT8, XN_BOOL};

void bk_deal(bk_cursor *at, bk_case c) {
    uint64_t turn = at->number++;
    c.seed = turn * 7919 + 17;
    c.items = 1 + (int)(turn % 4);
    c.spare = turn % 3 == 2;
    bk_case_signed(&c);
    at->visit(&c, at->context);
}

/* dot itself, with each padding value. */
static void exact_variants(bk_cursor *at, bk_case c) {
    c.params.scaling = XN_SCALING_NONE;
    c.params.output_datatype = XN_INT32;
    for (int pad = -1; pad <= 1; pad++) {
        c.params.pad_value = pad;
        c.input_datatype = pad ? input_datatypes[at->number % 6] : XN_FP32;
        c.weights_datatype = pad ? weights_datatypes[at->number % 5] : XN_FP32;
        c.input_fill = pad ? BK_TIES : BK_RANDOM;
        c.weights_fill = pad ? BK_RANDOM : BK_TIES;
        bk_deal(at, c);
    }
}

static void float_variants(bk_cursor *at, bk_case c) {
    static const struct {
        xn_mode mode;
        xn_scaling scaling;
        xn_datatype output;
        bool scale, bias;
    } epilogues[] = {
        {XN_MODE_XNOR, XN_SCALING_XNOR, XN_FP32, false, false},
        {XN_MODE_XNOR, XN_SCALING_XNOR, XN_FP16, true, true},
        {XN_MODE_XNOR, XN_SCALING_ALPHA, XN_FP32, false, true},
        {XN_MODE_XNOR, XN_SCALING_NONE, XN_FP16, false, false},
        {XN_MODE_BWN, XN_SCALING_XNOR, XN_FP32, false, true},
        {XN_MODE_FLOAT, XN_SCALING_XNOR, XN_FP32, false, false},
    };
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++) {
        c.params.mode = epilogues[i].mode;
        c.params.scaling = epilogues[i].scaling;
        c.params.output_datatype = epilogues[i].output;
        c.params.pad_value = (int)(at->number % 3) - 1;
        c.scale = epilogues[i].scale;
        c.bias = epilogues[i].bias;
        c.input_datatype = i == 0 ? XN_FP32 : input_datatypes[at->number / 2 % 6];
        c.weights_datatype = weights_datatypes[at->number / 3 % 5];
        bk_deal(at, c);
    }
}

static void variants(bk_cursor *at, bk_case c) {
    exact_variants(at, c);
    float_variants(at, c);
}

/* ---- sections ---- */

static void each_channel_count(bk_visit visit, void *context) {
    static const int64_t counts[] = {1,  2,   3,   8,   31,  32,  33,  63,  64,  65,
                                     96, 127, 128, 129, 255, 256, 257, 300, 512, 513};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        bk_case c = bk_geometry(1 + (int64_t)i % 2, counts[i], 4, 5, 3, 3, 3);
        bk_pad(&c, 1, 1, 1, 1);
        variants(&at, c);
        c = bk_geometry(2, counts[i], 3, 3, 5, 1, 1);
        variants(&at, c);
    }
}

/* Output channels around the tile sizes of any sensible kernel. */
static void each_filter_count(bk_visit visit, void *context) {
    static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 129, 257};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        bk_case c = bk_geometry(1, 1, 3, 4, counts[i], 3, 3);
        bk_pad(&c, 1, 1, 1, 1);
        variants(&at, c);
        c = bk_geometry(1, 40, 3, 3, counts[i], 2, 2);
        bk_pad(&c, 0, 1, 1, 0);
        variants(&at, c);
    }
}

static void each_kernel(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    for (int64_t kernel_h = 1; kernel_h <= 7; kernel_h++) {
        for (int64_t kernel_w = 1; kernel_w <= 7; kernel_w++) {
            bool few = (kernel_h + kernel_w) % 2;
            bk_case c = bk_geometry(1, few ? 1 : 34, 8, 9, 2, kernel_h, kernel_w);
            c.params.padding_kind = kernel_w % 3 ? XN_PADDING_SAME : XN_PADDING_VALID;
            variants(&at, c);
        }
    }
    variants(&at, bk_geometry(1, 3, 11, 13, 2, 11, 11));
    variants(&at, bk_geometry(1, 1, 16, 40, 2, 9, 33));
    variants(&at, bk_geometry(1, 2, 20, 9, 1, 17, 2));
}

/* Rows that end anywhere in a word or a vector. */
static void each_width(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    for (int64_t width = 1; width <= 70; width++) {
        bk_case c = bk_geometry(1, 1, 3, width, 2, 3, 3);
        bk_pad(&c, 1, 1, 1, 1);
        variants(&at, c);
    }
    for (int64_t width = 1; width <= 70; width += 5) {
        bk_case c = bk_geometry(2, 33, 2, width, 2, 1, 3);
        bk_pad(&c, 0, 2, 0, 0);
        variants(&at, c);
        variants(&at, bk_geometry(1, 4, 2, width + 4, 3, 2, 5));
    }
    static const int64_t wide[] = {127, 128, 129, 255, 257, 1000, 1025};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        bk_case c = bk_geometry(1, 1, 2, wide[i], 1, 3, 3);
        c.params.padding_kind = XN_PADDING_SAME;
        variants(&at, c);
        variants(&at, bk_geometry(1, 1, wide[i], 3, 1, 3, 3));
    }
}

static void each_thin_image(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    static const int64_t lengths[] = {1, 2, 17, 32, 33, 64, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int64_t channels = 1; channels <= 65; channels += 32) {
            bk_case c = bk_geometry(2, channels, 1, lengths[i], 2, 1, 1);
            variants(&at, c);
            c = bk_geometry(1, channels, lengths[i], 1, 2, 3, 3);
            bk_pad(&c, 1, 1, 1, 1);
            variants(&at, c);
            c = bk_geometry(1, channels, 1, lengths[i], 2, 3, 3);
            bk_pad(&c, 1, 1, 1, 1);
            variants(&at, c);
        }
    }
}

static void each_stride_and_dilation(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    for (int64_t stride = 1; stride <= 4; stride++) {
        for (int64_t dilation = 1; dilation <= 3; dilation++) {
            for (int64_t channels = 1; channels <= 67; channels += 33) {
                bk_case c = bk_geometry(1, channels, 9, 11, 2, 3, 3);
                c.params.stride[0] = stride;
                c.params.stride[1] = stride % 3 + 1;
                c.params.dilation[0] = dilation;
                c.params.dilation[1] = dilation % 2 + 1;
                if (channels == 1)
                    c.params.padding_kind = XN_PADDING_SAME;
                else
                    bk_pad(&c, 2, 3, 3, 1);
                variants(&at, c);
            }
        }
    }
    bk_case skips = bk_geometry(2, 5, 20, 23, 3, 2, 2); /* a stride over what the kernel covers */
    skips.params.stride[0] = 7;
    skips.params.stride[1] = 9;
    variants(&at, skips);
    bk_case far = bk_geometry(1, 2, 30, 40, 2, 2, 3); /* taps in three different words of a row */
    far.params.dilation[0] = 28;
    far.params.dilation[1] = 19;
    variants(&at, far);
}

static void each_padding(bk_visit visit, void *context) {
    static const int64_t paddings[][4] = {
        {0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1},
        {2, 1, 0, 3}, {3, 3, 3, 3}, {0, 5, 6, 0}, {7, 0, 0, 9}, {10, 40, 12, 35},
    };
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < sizeof paddings / sizeof *paddings; i++) {
        for (int64_t channels = 1; channels <= 36; channels += 35) {
            bk_case c = bk_geometry(1, channels, 4, 5, 2, 3, 2);
            for (int side = 0; side < 4; side++)
                c.params.padding[side] = paddings[i][side];
            variants(&at, c);
        }
    }
    for (int64_t channels = 1; channels <= 33; channels += 16) { /* larger than the image */
        bk_case c = bk_geometry(2, channels, 2, 3, 2, 7, 6);
        bk_pad(&c, 3, 3, 3, 3);
        variants(&at, c);
        c = bk_geometry(1, channels, 1, 1, 2, 5, 5);
        bk_pad(&c, 4, 4, 4, 4); /* some kernels touch nothing but one corner */
        variants(&at, c);
        c = bk_geometry(1, channels, 2, 2, 1, 3, 3);
        bk_pad(&c, 5, 5, 5, 5); /* and some nothing at all */
        variants(&at, c);
        c.params.dilation[0] = c.params.dilation[1] = 3; /* the image falls between the taps */
        variants(&at, c);
    }
}

static void each_group_count(bk_visit visit, void *context) {
    static const int64_t groups[][3] = {/* groups, channels, out_channels */
                                        {2, 2, 2},    {2, 4, 6},    {3, 9, 3},    {4, 4, 4},
                                        {8, 8, 16},   {5, 35, 10},  {2, 66, 4},   {3, 96, 6},
                                        {33, 33, 33}, {64, 64, 64}, {40, 40, 80}, {4, 260, 8},
                                        {2, 130, 34}, {16, 48, 16}};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        bk_case c = bk_geometry(1 + (int64_t)i % 2, groups[i][1], 4, 5, groups[i][2], 3, 3);
        c.params.groups = groups[i][0];
        bk_pad(&c, 1, 1, 1, 1);
        variants(&at, c);
        c.kernel_h = 2;
        c.kernel_w = 1;
        c.params.stride[1] = 2;
        bk_pad(&c, 0, 0, 1, 0);
        variants(&at, c);
    }
}

static void each_batch(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    for (int64_t images = 1; images <= 5; images++) {
        static const int64_t channels[] = {1, 3, 32, 100};
        for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
            bk_case c = bk_geometry(images, channels[i], 6, 7, 3, 3, 3);
            bk_pad(&c, 1, 1, 1, 1);
            variants(&at, c);
        }
    }
    variants(&at, bk_geometry(17, 1, 3, 3, 1, 3, 3));
    variants(&at, bk_geometry(33, 2, 2, 2, 1, 1, 1));
}

/* Shapes of real layers, small enough for the oracle. */
static void each_layer(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    bk_case c = bk_geometry(1, 1, 64, 64, 1, 3, 3);
    bk_pad(&c, 1, 1, 1, 1);
    variants(&at, c);
    c = bk_geometry(1, 3, 30, 31, 8, 7, 7);
    c.params.stride[0] = c.params.stride[1] = 2;
    bk_pad(&c, 3, 3, 3, 3);
    variants(&at, c);
    c = bk_geometry(1, 64, 14, 14, 16, 3, 3);
    bk_pad(&c, 1, 1, 1, 1);
    variants(&at, c);
    c = bk_geometry(2, 256, 7, 7, 12, 3, 3);
    c.params.padding_kind = XN_PADDING_SAME;
    variants(&at, c);
    c = bk_geometry(1, 512, 7, 7, 10, 1, 1);
    c.params.stride[0] = c.params.stride[1] = 2;
    variants(&at, c);
}

/* cuda/real/real_pointwise.cu: tiles of 64 and 128 filters by 64 pixels of several images, planes
 * of whole fours or not, steps of 64 channels, filters in whole words or not. */
static void each_pointwise(bk_visit visit, void *context) {
    static const int64_t sizes[][4] = {/* images, channels, filters of a group, side */
                                       {1, 64, 128, 4}, {5, 65, 64, 7},   {2, 3, 192, 6},
                                       {2, 8, 33, 9},   {2, 130, 256, 5}, {1, 200, 384, 10},
                                       {3, 31, 32, 11}, {7, 129, 128, 7}};
    bk_cursor at = {visit, context, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int64_t groups = 1; groups <= 3; groups++) {
            const int64_t *s = sizes[i];
            bk_case c = bk_geometry(s[0], s[1] * groups, s[3], s[3], s[2] * groups, 1, 1);
            c.params.groups = groups;
            c.params.mode = XN_MODE_BWN;
            c.params.precision = XN_PRECISION_FP16;
            c.input_datatype = XN_FP16;
            c.params.output_datatype = groups == 2 ? XN_FP32 : XN_FP16;
            c.bias = i % 2;
            bk_deal(&at, c);
        }
}

/* cuda/real/real_depthwise.cu: fours of a column, neighbouring columns of neighbouring lanes. */
static void each_depthwise(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    for (int64_t side = 1; side <= 19; side += 3)
        for (int64_t stride = 1; stride <= 2; stride++)
            for (int fp16 = 0; fp16 < 2; fp16++) {
                bk_case c = bk_geometry(1 + side % 3, side + 2, side, 2 * side - 1, side + 2, 3, 3);
                c.params.groups = side + 2;
                c.params.mode = (side + fp16) % 2 ? XN_MODE_FLOAT : XN_MODE_BWN;
                c.params.stride[0] = c.params.stride[1] = stride;
                c.params.pad_value = (int)(side % 3) - 1;
                c.input_datatype = fp16 ? XN_FP16 : XN_FP32;
                c.params.output_datatype = side % 2 ? XN_FP16 : XN_FP32;
                bk_pad(&c, 1, 1, 1, 1);
                bk_deal(&at, c);
            }
}

/* ---- extremes of values ---- */

static void extreme_epilogues(bk_cursor *at, bk_case c) {
    static const struct {
        xn_mode mode;
        xn_scaling scaling;
        bool channel;
    } epilogues[] = {{XN_MODE_XNOR, XN_SCALING_XNOR, false},
                     {XN_MODE_XNOR, XN_SCALING_XNOR, true},
                     {XN_MODE_XNOR, XN_SCALING_NONE, false},
                     {XN_MODE_BWN, XN_SCALING_XNOR, false},
                     {XN_MODE_FLOAT, XN_SCALING_XNOR, true}};
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++) {
        c.params.mode = epilogues[i].mode;
        c.params.scaling = epilogues[i].scaling;
        c.params.output_datatype = at->number % 3 == 2 ? XN_FP16 : XN_FP32;
        c.params.pad_value = (int)(at->number % 5 % 3) - 1;
        c.scale = c.bias = epilogues[i].channel;
        bk_deal(at, c);
    }
    c.scale = c.bias = false;
    c.params.mode = XN_MODE_XNOR;
    c.params.scaling = XN_SCALING_NONE;
    c.params.output_datatype = XN_INT32;
    bk_deal(at, c);
}

static void extremes_of(bk_cursor *at, xn_datatype datatype, int64_t channels) {
    for (int input = 0; input < BK_FILLS; input++) {
        for (int weights = 0; weights < BK_FILLS; weights++) {
            bk_case c = bk_geometry(2, channels, 4, 5, 2, 3, 3);
            bk_pad(&c, 1, 1, 1, 1);
            c.input_datatype = datatype;
            c.input_fill = (bk_fill)input;
            c.weights_fill = (bk_fill)weights;
            extreme_epilogues(at, c);
        }
    }
}

static void each_extreme(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    extremes_of(&at, XN_FP32, 1);
    extremes_of(&at, XN_FP32, 33);
}

static void each_extreme_narrow(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    extremes_of(&at, XN_FP16, 3);
    extremes_of(&at, XN_BF16, 40);
    for (int fill = 0; fill < BK_FILLS; fill++) { /* scale and bias */
        bk_case c = bk_geometry(1, 2, 3, 4, 5, 2, 2);
        c.channel_fill = (bk_fill)fill;
        extreme_epilogues(&at, c);
        c.channels = 64;
        extreme_epilogues(&at, c);
    }
}

/* Long sums of equal values, where careless rounding drifts one way. */
static void each_long_sum(bk_visit visit, void *context) {
    bk_cursor at = {visit, context, 0};
    static const int64_t channels[] = {64, 513, 2048};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        bk_case c = bk_geometry(1, channels[i], 3, 3, 1, 3, 3);
        c.input_fill = BK_EQUAL;
        c.weights_fill = BK_EQUAL;
        extreme_epilogues(&at, c);
        c.weights_fill = BK_MINUS;
        extreme_epilogues(&at, c);
    }
    bk_case c = bk_geometry(1, 1, 40, 50, 1, 31, 33);
    c.input_fill = BK_EQUAL;
    c.weights_fill = BK_EQUAL;
    extreme_epilogues(&at, c);
}

const bk_section bk_sections[] = {
    {"channels", each_channel_count, NULL},
    {"filters", each_filter_count, NULL},
    {"kernels", each_kernel, NULL},
    {"widths", each_width, NULL},
    {"thin images", each_thin_image, NULL},
    {"strides and dilations", each_stride_and_dilation, NULL},
    {"padding", each_padding, NULL},
    {"groups", each_group_count, NULL},
    {"batches", each_batch, NULL},
    {"layers", each_layer, NULL},
    {"pointwise", each_pointwise, NULL},
    {"depthwise", each_depthwise, NULL},
    {"extremes", each_extreme, NULL},
    {"extremes, narrow datatypes", each_extreme_narrow, NULL},
    {"long sums", each_long_sum, NULL},
    {"strips", bk_each_strip, NULL},
    {"planes", bk_each_plane, NULL},
    {"strips of columns", bk_each_strip_of_columns, NULL},
    {"tiles", bk_each_tile, NULL},
    {"positions of a tile", bk_each_position_count, NULL},
    {"panels of reals", bk_each_real_panel, NULL},
    {"shifted rows", bk_each_shifted_row, "cpu"},
    {"filters of a tile", bk_each_filter_tile, NULL},
    {"steps", bk_each_step, NULL},
    {"dilated strips", bk_each_dilated_strip, NULL},
    {"bits of a step", bk_each_bit_count, NULL},
    {"allowed precisions", bk_each_allowed_precision, NULL},
    {"full grids", bk_each_grid, "cuda"},
};
const int bk_section_count = sizeof bk_sections / sizeof *bk_sections;
