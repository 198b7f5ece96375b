/* pixels.c: samples of a decoder as the model's channels, and bytes as the input's values. What
 * becomes grey or RGB is as Pillow's convert("L") and convert("RGB") have it. */
#include "xn_picture_inside.h"

#include <string.h>

/* ITU-R 601-2 luma in 16 bits behind the point. */
static uint8_t luma(int red, int green, int blue) {
    return (uint8_t)((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
}

/* a * b / 255, rounded. */
static int multiply_255(int a, int b) {
    const int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
}

static void read_rgb(const uint8_t *samples, xn_pixels kind, uint8_t rgb[3]) {
    switch (kind) {
    case XN_PIXELS_GREY:
        memset(rgb, samples[0], 3);
        return;
    case XN_PIXELS_RGB:
        memcpy(rgb, samples, 3);
        return;
    case XN_PIXELS_CMYK: /* inverted: samples[3] is the light that black leaves */
        for (int i = 0; i < 3; i++)
            rgb[i] = (uint8_t)(samples[3] - multiply_255(255 - samples[i], samples[3]));
        return;
    }
}

void xn_pixels_convert(const uint8_t *samples, xn_pixels kind, int64_t width, int channels,
                       bool mirror, uint8_t *out) {
    const ptrdiff_t step = mirror ? -(ptrdiff_t)channels : channels;
    uint8_t rgb[3];
    if (!mirror && (int)kind == channels) {
        memcpy(out, samples, (size_t)width * (size_t)channels);
        return;
    }
    if (mirror)
        out += (width - 1) * channels;
    for (int64_t x = 0; x < width; x++, samples += (int)kind, out += step) {
        read_rgb(samples, kind, rgb);
        if (channels == 1)
            out[0] = kind == XN_PIXELS_GREY ? rgb[0] : luma(rgb[0], rgb[1], rgb[2]);
        else
            memcpy(out, rgb, 3);
    }
}

void xn_pixel_values_begin(const xn_picture_rule *rule, xn_pixel_values *out) {
    out->rule = rule;
    if (rule->datatype == XN_UINT8)
        return;
    for (int c = 0; c < rule->channels; c++)
        for (int v = 0; v < 256; v++)
            out->of[c][v] = (float)((v / 255.0 - rule->mean[c]) / rule->std[c]);
}

static void put(const xn_pixel_values *values, int channel, uint8_t pixel, size_t at,
                void *destination) {
    switch (values->rule->datatype) {
    case XN_UINT8:
        ((uint8_t *)destination)[at] = pixel;
        return;
    case XN_FP16:
        ((uint16_t *)destination)[at] = xn_fp32_to_fp16(values->of[channel][pixel]);
        return;
    default:
        ((float *)destination)[at] = values->of[channel][pixel];
    }
}

void xn_pixel_values_row(const xn_pixel_values *values, int64_t y, const uint8_t *pixels,
                         void *destination) {
    const xn_picture_rule *rule = values->rule;
    const size_t channels = (size_t)rule->channels, width = (size_t)rule->width;
    const size_t plane = (size_t)rule->height * width, row = (size_t)y * width;
    if (rule->layout == XN_IMAGE_NHWC && rule->datatype == XN_UINT8) {
        memcpy((uint8_t *)destination + row * channels, pixels, width * channels);
        return;
    }
    for (size_t c = 0; c < channels; c++)
        for (size_t x = 0; x < width; x++)
            put(values, (int)c, pixels[x * channels + c],
                rule->layout == XN_IMAGE_NHWC ? (row + x) * channels + c : c * plane + row + x,
                destination);
}
