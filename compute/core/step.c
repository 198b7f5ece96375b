/* step.c: see xn_step.h. */
#include "xn_step.h"

#include "xn_arith.h"

#include <string.h>

void xn_step_of_conv(const xn_conv *conv, xn_step *out) {
    memset(out, 0, sizeof *out);
    out->kind = XN_STEP_CONV;
    out->residual = out->second = XN_NO_TENSOR;
    out->output = conv->epilogue.datatype == XN_BITS ? XN_NO_TENSOR : 1;
    out->bits = conv->epilogue.bits ? 1 : XN_NO_TENSOR;
    out->conv = *conv;
}

bool xn_step_has_kernel(const xn_step *step) {
    return step->kind == XN_STEP_CONV ||
           (step->kind == XN_STEP_TOP_K && step->conv.mode == XN_MODE_XNOR);
}

bool xn_step_is_whole(const xn_step *step) {
    return !step->input_view.pitch && !step->second_view.pitch && !step->residual_view.pitch &&
           !step->output_view.pitch && step->input_layout != XN_LAYOUT_NHWC;
}

static size_t bits_bytes(int32_t layout, int32_t channels, int32_t groups, int64_t pixels) {
    if (layout == XN_LAYOUT_BYTES)
        return (size_t)(pixels * xn_bits_pixel_bytes(channels));
    return (size_t)(pixels * groups) * (size_t)xn_packed_words(channels / groups) *
           sizeof(uint32_t);
}

static size_t real_bytes(int32_t datatype, const xn_view *view, int64_t elements) {
    return (size_t)(view->pitch ? view->pitch : elements) *
           xn_datatype_bytes((xn_datatype)datatype);
}

size_t xn_step_input_bytes(const xn_step *step) {
    const xn_conv *v = &step->conv;
    if (v->input_datatype != XN_BITS)
        return real_bytes(v->input_datatype, &step->input_view, xn_conv_input_elements(v));
    return bits_bytes(step->input_layout, v->channels, step->kind == XN_STEP_CONV ? v->groups : 1,
                      (int64_t)v->height * v->width);
}

size_t xn_step_residual_bytes(const xn_step *step) {
    if (step->residual == XN_NO_TENSOR)
        return 0;
    return real_bytes(step->residual_datatype, &step->residual_view,
                      xn_conv_output_elements(&step->conv));
}

size_t xn_step_second_bytes(const xn_step *step) {
    if (step->second == XN_NO_TENSOR)
        return 0;
    return real_bytes(step->second_datatype, &step->second_view, step->conv.channels);
}

size_t xn_step_output_bytes(const xn_step *step) {
    if (step->output == XN_NO_TENSOR)
        return 0;
    return real_bytes(step->conv.epilogue.datatype, &step->output_view,
                      step->kind == XN_STEP_TOP_K ? 2 * step->attributes.k
                                                  : xn_conv_output_elements(&step->conv));
}

size_t xn_step_bits_bytes(const xn_step *step) {
    const xn_conv *v = &step->conv;
    if (step->bits == XN_NO_TENSOR)
        return 0;
    return bits_bytes(step->bits_layout, v->out_channels, 1, (int64_t)v->out_height * v->out_width);
}
