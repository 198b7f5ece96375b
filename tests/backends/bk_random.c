/* bk_random.c: random cases. Any geometry that resolves may come up; the work is bounded by
 * shrinking what costs most, so that hundreds of cases take seconds even for the oracle. */
#include "bk_case.h"

/* Multiply-adds of one case; one case in LARGE_EVERY may be larger, so that it has many tiles. */
enum { MOST_WORK = 300000, LARGE_EVERY = 16, MOST_LARGE_WORK = 6000000 };

static int64_t between(xn_rng *rng, int64_t low, int64_t high) {
    return low + (int64_t)xn_rng_below(rng, (uint64_t)(high - low + 1));
}

static void pick_channels(xn_rng *rng, bk_case *c, bool large) {
    static const int64_t counts[] = {1,  1,  2,  3,   4,   8,   16,  31,  32,  33,
                                     64, 65, 96, 128, 200, 257, 511, 512, 640, 1030};
    int64_t group_channels = counts[xn_rng_below(rng, large ? 20 : 16)];
    int64_t groups = xn_rng_below(rng, 4) ? 1 : between(rng, 2, 5);
    if (xn_rng_below(rng, 10) == 0) { /* depth-wise */
        groups = group_channels;
        group_channels = 1;
    }
    c->params.groups = groups;
    c->channels = groups * group_channels;
    int64_t most = groups > 5 ? 2 : large ? 150 : 9;
    c->out_channels = groups * between(rng, 1, xn_rng_below(rng, 4) ? most : most * 4);
}

/* What most layers are: an odd kernel, stride 1, as many outputs as inputs. */
static void pick_plain_axis(xn_rng *rng, bk_case *c, int axis) {
    int64_t kernel = 2 * (int64_t)xn_rng_below(rng, 4) + 1;
    int64_t size = xn_rng_below(rng, 2) ? between(rng, 1, 40) : 4 * between(rng, 1, axis ? 40 : 10);
    bool explicit = c->params.padding_kind == XN_PADDING_EXPLICIT;
    c->params.padding[axis] = c->params.padding[axis + 2] = explicit ? kernel / 2 : 0;
    *(axis ? &c->kernel_w : &c->kernel_h) = kernel;
    *(axis ? &c->width : &c->height) = size < kernel ? kernel : size;
}

/* One axis: kernel, stride, dilation and padding freely, then a size that they fit. */
static void pick_axis(xn_rng *rng, bk_case *c, int axis) {
    int64_t kernel = xn_rng_below(rng, 3) ? between(rng, 1, 5) : between(rng, 1, 11);
    int64_t stride = xn_rng_below(rng, 2) ? 1 : between(rng, 1, 5);
    int64_t dilation = xn_rng_below(rng, 2) ? 1 : between(rng, 1, 6);
    int64_t extent = dilation * (kernel - 1) + 1;
    int64_t before = between(rng, 0, xn_rng_below(rng, 3) ? kernel / 2 : extent + 2);
    int64_t after = xn_rng_below(rng, 2) ? before : between(rng, 0, extent);
    bool explicit = c->params.padding_kind == XN_PADDING_EXPLICIT;
    int64_t padded = explicit ? before + after : 0;
    int64_t least =
        c->params.padding_kind == XN_PADDING_SAME || extent <= padded ? 1 : extent - padded;
    int64_t size = least + between(rng, 0, xn_rng_below(rng, 5) ? 12 : axis ? 150 : 40);
    c->params.stride[axis] = stride;
    c->params.dilation[axis] = dilation;
    c->params.padding[axis] = explicit ? before : 0;
    c->params.padding[axis + 2] = explicit ? after : 0;
    *(axis ? &c->kernel_w : &c->kernel_h) = kernel;
    *(axis ? &c->width : &c->height) = size;
}

static void pick_epilogue(xn_rng *rng, bk_case *c) {
    static const xn_datatype inputs[6] = {XN_FP32, XN_FP16, XN_BF16, XN_INT8, XN_UINT8, XN_BOOL};
    static const xn_datatype outputs[2] = {XN_FP32, XN_FP16};
    c->params.mode =
        xn_rng_below(rng, 4) ? XN_MODE_XNOR : (xn_mode)between(rng, XN_MODE_BWN, XN_MODE_FLOAT);
    c->params.scaling = (xn_scaling)xn_rng_below(rng, 3);
    c->params.pad_value = (int)between(rng, -1, 1);
    c->params.output_datatype = outputs[xn_rng_below(rng, 2)];
    c->input_datatype = inputs[xn_rng_below(rng, 6)];
    c->weights_datatype = inputs[xn_rng_below(rng, 6)];
    bk_case_signed(c);
    c->scale = c->params.scaling != XN_SCALING_NONE && xn_rng_below(rng, 2);
    c->bias = xn_rng_below(rng, 2);
    if (c->params.mode == XN_MODE_XNOR && xn_rng_below(rng, 2)) {
        c->params.scaling = XN_SCALING_NONE;
        c->params.output_datatype = XN_INT32;
        c->scale = c->bias = false;
    }
    static const bk_fill fills[8] = {BK_RANDOM, BK_RANDOM, BK_RANDOM, BK_RANDOM,
                                     BK_TIES,   BK_TIES,   BK_EQUAL,  BK_MIXED};
    c->input_fill = fills[xn_rng_below(rng, 8)];
    c->weights_fill = fills[xn_rng_below(rng, 8)];
}

/* An upper bound: every padded position an output. */
static int64_t work_of(const bk_case *c) {
    const int64_t *p = c->params.padding;
    int64_t same_h = (c->kernel_h - 1) * c->params.dilation[0];
    int64_t same_w = (c->kernel_w - 1) * c->params.dilation[1];
    bool same = c->params.padding_kind == XN_PADDING_SAME;
    int64_t height = c->height + p[0] + p[2] + (same ? 0 : -same_h);
    int64_t width = c->width + p[1] + p[3] + (same ? 0 : -same_w);
    return c->images * c->out_channels * (height / c->params.stride[0] + 1) *
           (width / c->params.stride[1] + 1) * (c->channels / c->params.groups) * c->kernel_h *
           c->kernel_w;
}

void bk_case_random(uint64_t seed, bk_case *out) {
    const bool large = seed % LARGE_EVERY == LARGE_EVERY - 1;
    const int64_t most = large ? MOST_LARGE_WORK : MOST_WORK;
    for (uint64_t attempt = 0;; attempt++) {
        xn_rng rng = {seed * 1000003 + attempt};
        bk_case c = bk_case_default();
        uint64_t kind = xn_rng_below(&rng, 6);
        c.params.padding_kind = kind == 0   ? XN_PADDING_SAME
                                : kind == 1 ? XN_PADDING_VALID
                                            : XN_PADDING_EXPLICIT;
        pick_channels(&rng, &c, large);
        bool plain = xn_rng_below(&rng, 3) == 0;
        for (int axis = 0; axis < 2; axis++)
            (plain ? pick_plain_axis : pick_axis)(&rng, &c, axis);
        pick_epilogue(&rng, &c);
        c.images = between(&rng, 1, large ? 20 : 5);
        c.items = (int)between(&rng, 1, 5);
        c.spare = (int)between(&rng, 0, 2);
        c.seed = seed;
        while (c.images > 1 && work_of(&c) > most)
            c.images--;
        while (c.out_channels > c.params.groups && work_of(&c) > most)
            c.out_channels -= c.params.groups;
        if (work_of(&c) > most)
            continue;
        *out = c;
        return;
    }
}
