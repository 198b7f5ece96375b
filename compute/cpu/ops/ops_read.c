/* ops_read.c: channels of a step's input as fp32, whatever its datatype and layout. */
#include "bits.h"
#include "ops.h"

#include <string.h>

static size_t element_bytes(const xn_conv *conv) {
    return xn_datatype_bytes((xn_datatype)conv->input_datatype);
}

static void to_fp32(const xn_cpu_ops_unit *u, const unsigned char *from, int32_t count, float *to) {
    const xn_conv *conv = u->j->conv;
    if (conv->input_datatype == XN_UINT8)
        u->j->kernels->from_bytes(from, count, to);
    else if (conv->input_datatype == XN_FP16)
        u->j->run->plan->kernels->from_fp16((const uint16_t *)(const void *)from, count, to);
    else
        xn_tensor_to_fp32((xn_datatype)conv->input_datatype, from, to, count);
}

/* The block's channels of the unit's pixels, one pixel after the other. */
static void open_nhwc(const xn_cpu_ops_unit *u) {
    const xn_conv *conv = u->j->conv;
    const int32_t count = u->last - u->first;
    const size_t bytes = element_bytes(conv), pixel = (size_t)conv->channels * bytes;
    const unsigned char *from =
        u->image->input + (size_t)u->pixel * pixel + (size_t)u->first * bytes;
    float *to = xn_cpu_ops_own(u, XN_CPU_OPS_PIXELS);
    if (count == conv->channels) {
        to_fp32(u, from, u->n * count, to);
        return;
    }
    for (int32_t x = 0; x < u->n; x++, from += pixel, to += count)
        to_fp32(u, from, count, to);
}

void xn_cpu_ops_open(const xn_cpu_ops_unit *u) {
    const xn_step *step = u->j->step;
    if (step->conv.input_datatype == XN_BITS)
        xn_cpu_bits_read(u->j->conv, step->input_layout, u->image->input, 0,
                         u->first / XN_CPU_OPS_BLOCK, (size_t)u->pixel, u->n,
                         xn_cpu_ops_own(u, XN_CPU_OPS_IN_WORDS));
    else if (step->input_layout == XN_LAYOUT_NHWC)
        open_nhwc(u);
}

const float *xn_cpu_ops_channel(const xn_cpu_ops_unit *u, int32_t c) {
    return xn_cpu_ops_channels(u, c, 1);
}

const float *xn_cpu_ops_channels(const xn_cpu_ops_unit *u, int32_t c, int32_t count) {
    const xn_conv *conv = u->j->conv;
    float *to = xn_cpu_ops_own(u, XN_CPU_OPS_FLOATS);
    if (conv->input_datatype == XN_BITS) {
        u->j->kernels->from_bits(xn_cpu_ops_own(u, XN_CPU_OPS_IN_WORDS),
                                 (uint32_t)1 << (c - u->first), u->n, to);
        return to;
    }
    if (u->j->step->input_layout == XN_LAYOUT_NHWC) {
        const float *pixels = xn_cpu_ops_own(u, XN_CPU_OPS_PIXELS);
        u->j->kernels->every(pixels + (c - u->first), u->last - u->first, u->n, to);
        return to;
    }
    const size_t plane = (size_t)conv->height * (size_t)conv->width;
    const unsigned char *from =
        u->image->input + ((size_t)c * plane + (size_t)u->pixel) * element_bytes(conv);
    if (conv->input_datatype == XN_FP32)
        return (const float *)(const void *)from;
    to_fp32(u, from, u->n * count, to);
    return to;
}
