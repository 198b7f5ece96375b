/* ref_read.c: values of tensors, whatever their datatype and layout. */
#include "ref.h"

#include "xn_arith.h"

/* Channel c of pixel `at` is a set bit. */
static bool bit_at(const xn_step *step, const void *from, int32_t c, int64_t at) {
    const xn_conv *v = &step->conv;
    if (step->input_layout == XN_LAYOUT_BYTES) {
        const uint8_t *pixel = (const uint8_t *)from + at * xn_bits_pixel_bytes(v->channels);
        return pixel[c / 8] >> (c % 8) & 1;
    }
    const int32_t share = step->kind == XN_STEP_CONV ? v->group_channels : v->channels;
    const int64_t pixels = (int64_t)v->height * v->width;
    const uint32_t *words =
        (const uint32_t *)from + ((c / share) * pixels + at) * (int64_t)xn_packed_words(share);
    return words[c % share / 32] >> (c % share % 32) & 1;
}

static void read_bits(const xn_step *step, const void *from, float *image) {
    const xn_conv *v = &step->conv;
    const int64_t pixels = (int64_t)v->height * v->width;
    for (int32_t c = 0; c < v->channels; c++)
        for (int64_t at = 0; at < pixels; at++)
            *image++ = bit_at(step, from, c, at) ? 1.0f : -1.0f;
}

static void read_nhwc(const xn_conv *v, const char *from, float *image) {
    const int64_t pixels = (int64_t)v->height * v->width;
    const size_t size = xn_datatype_bytes((xn_datatype)v->input_datatype);
    for (int64_t at = 0; at < pixels; at++)
        for (int32_t c = 0; c < v->channels; c++, from += size)
            xn_tensor_to_fp32((xn_datatype)v->input_datatype, from, image + c * pixels + at, 1);
}

void xn_ref_read_input(const xn_step *step, const void *from, float *image) {
    const xn_conv *v = &step->conv;
    const xn_datatype datatype = (xn_datatype)v->input_datatype;
    const int64_t elements = xn_conv_input_elements(v);
    const char *part =
        (const char *)from + (size_t)step->input_view.offset * xn_datatype_bytes(datatype);
    if (datatype == XN_BITS)
        read_bits(step, from, image);
    else if (step->input_layout == XN_LAYOUT_NHWC)
        read_nhwc(v, part, image);
    else if (step->kind == XN_STEP_CONV)
        xn_conv_input_to_fp32(v, part, image, elements);
    else
        xn_tensor_to_fp32(datatype, part, image, elements);
}

double xn_ref_read_real(int32_t datatype, const void *from, int64_t index) {
    float value;
    const size_t size = xn_datatype_bytes((xn_datatype)datatype);
    xn_tensor_to_fp32((xn_datatype)datatype, (const char *)from + (size_t)index * size, &value, 1);
    return (double)value;
}
