/* lower_stem.c: the first layers of a picture in bytes: what normalises it and the convolution are
 * one step, whose sums are of whole numbers (xn_planes.h). lower_steps.c takes in what follows. */
#include "lower.h"

#include <math.h>

static bool is_picture(const xn_lowering *l, int node) {
    return node == 0 && l->graph->input_datatype == XN_UINT8 && l->graph->input_shape.rank == 3;
}

bool xn_lower_is_moderate(const xn_values *values, int32_t channels) {
    for (int32_t i = 0; i < xn_values_count(values, channels); i++) {
        const double magnitude = fabs(values->at[i]);
        if (magnitude != 0 && !(magnitude >= 0x1p-60 && magnitude <= 0x1p60))
            return false;
    }
    return true;
}

const double *xn_lower_each(xn_lowering *l, xn_values *values, int32_t channels) {
    const xn_values *each = xn_lower_spread(l, values, channels);
    return each ? each->at : NULL;
}

xn_planes_source xn_lower_planes_of(xn_lowering *l, const xn_node *stem) {
    const int32_t channels = stem->conv.channels;
    return (xn_planes_source){.conv = &stem->conv,
                              .count = l->graph->precision == XN_PRECISION_FP16 ? 2 : 3,
                              .weight = stem->kernel,
                              .gain = xn_lower_each(l, stem->gain, channels),
                              .offset = xn_lower_each(l, stem->offset, channels)};
}

static const float *kernel_of(xn_lowering *l, const xn_tensor *weight) {
    if (weight->datatype == XN_FP32)
        return weight->data;
    float *values = xn_lower_take(l, (size_t)weight->elements, sizeof *values);
    if (values)
        xn_tensor_to_signed_fp32(weight->datatype, weight->data, values, weight->elements);
    return values;
}

static void make_stem(xn_lowering *l, xn_node *n) {
    const xn_conv *v = &n->conv;
    const xn_node *norm = &l->nodes[n->inputs[0]];
    const bool normalised = norm->op == XN_OP_AFFINE && is_picture(l, norm->inputs[0]);
    xn_node stem = *n;
    if (n->op != XN_OP_CONV || v->mode != XN_MODE_FLOAT || v->pad_value != 0 ||
        n->attributes.k_map || (!normalised && !is_picture(l, n->inputs[0])) ||
        !xn_lower_is_moderate(n->scale, v->out_channels))
        return;
    stem.op = XN_NODE_STEM;
    stem.gain = normalised ? norm->scale : NULL;
    stem.offset = normalised ? norm->bias : NULL;
    stem.kernel = kernel_of(l, n->weight);
    const xn_planes_source source = xn_lower_planes_of(l, &stem);
    if (l->no_memory || !xn_planes_fit(&source))
        return;
    *n = stem;
    n->inputs[0] = 0;
}

bool xn_lower_find_stems(xn_lowering *l) {
    for (int i = 1; i < l->count; i++)
        make_stem(l, &l->nodes[i]);
    return !l->no_memory;
}

bool xn_lower_is_stem_pool(const xn_node *pool) {
    const xn_conv *v = &pool->conv;
    return pool->op == XN_OP_MAX_POOL && !pool->turned && v->kernel_h == 3 && v->kernel_w == 3 &&
           (v->stride_h == 2 || v->out_height == 1) && (v->stride_w == 2 || v->out_width == 1) &&
           v->pad_top == 1 && v->pad_left == 1 && v->dilation_h == 1 && v->dilation_w == 1;
}
