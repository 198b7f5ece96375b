/* ref_epilogue.c: the equation of xn_epilogue.h in double. */
#include "ref.h"

#include "xn_arith.h"

static double linear(const xn_ref_image *image, int32_t o, int64_t at, double acc, double k) {
    const xn_epilogue *e = &image->step->conv.epilogue;
    const xn_prepared *w = image->weights;
    double v = acc;
    if (e->factor != XN_FACTOR_NONE)
        v *= e->factor == XN_FACTOR_ALPHA ? w->alpha[o] : w->scale[o];
    if (e->k)
        v *= k;
    if (e->bias)
        v += w->bias[o];
    if (e->residual)
        v += xn_ref_read_real(image->step->residual_datatype, image->residual,
                              image->step->residual_view.offset + at);
    return v;
}

static double activated(const xn_ref_image *image, int32_t o, double v) {
    const xn_epilogue *e = &image->step->conv.epilogue;
    if (e->activation == XN_ACTIVATION_PRELU)
        return v >= 0 ? v : image->weights->slope[o] * v;
    if (e->activation == XN_ACTIVATION_CLIP)
        return v < (double)e->low ? (double)e->low : v > (double)e->high ? (double)e->high : v;
    return v;
}

static void store_real(const xn_epilogue *e, void *output, int64_t at, double y) {
    switch ((xn_datatype)e->datatype) {
    case XN_INT32:
        ((int32_t *)output)[at] = (int32_t)y;
        return;
    case XN_FP16:
        ((uint16_t *)output)[at] = xn_fp32_to_fp16((float)y);
        return;
    case XN_BITS:
        return;
    default:
        ((float *)output)[at] = (float)y;
    }
}

double xn_ref_value(const xn_ref_image *image, int32_t o, int64_t at, double acc, double k) {
    return activated(image, o, linear(image, o, at, acc, k));
}

/* The bits were zero before. */
static void store_bit(const xn_ref_image *image, int32_t o, int64_t pixel, double y) {
    const xn_conv *v = &image->step->conv;
    const double shifted = v->epilogue.shift ? y + image->weights->shift[o] : y;
    if (!(shifted >= 0))
        return;
    if (image->step->bits_layout == XN_LAYOUT_BYTES) {
        uint8_t *bytes = (uint8_t *)image->bits + pixel * xn_bits_pixel_bytes(v->out_channels);
        bytes[o / 8] |= (uint8_t)(1u << (o % 8));
        return;
    }
    uint32_t *words = (uint32_t *)image->bits + pixel * (int64_t)xn_packed_words(v->out_channels);
    words[o / 32] |= (uint32_t)1 << (o % 32);
}

void xn_ref_finish(const xn_ref_image *image, int32_t o, int32_t y, int32_t x, double acc,
                   double k) {
    const xn_conv *v = &image->step->conv;
    const int64_t pixel = (int64_t)y * v->out_width + x;
    const int64_t at = (int64_t)o * v->out_height * v->out_width + pixel;
    const double value = xn_ref_value(image, o, at, acc, k);
    store_real(&v->epilogue, image->output, image->step->output_view.offset + at, value);
    if (v->epilogue.bits)
        store_bit(image, o, pixel, value);
}
