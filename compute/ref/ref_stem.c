/* ref_stem.c: the stem by the definition of xn_planes.h, whose one rounded operation is fp32's. */
#include "ref.h"

#include "xn_planes.h"

#include <math.h>

/* The convolution's value of filter o at (y, x). */
static float value_at(const xn_ref_image *image, int32_t o, int32_t y, int32_t x) {
    const xn_step *s = image->step;
    const xn_conv *v = &s->conv;
    const xn_planes *p = image->weights->planes;
    const int32_t *m = p->weight + (int64_t)o * v->kernel_h * v->kernel_w * v->channels;
    int64_t sum = 0;
    for (int32_t i = 0; i < v->kernel_h; i++)
        for (int32_t j = 0; j < v->kernel_w; j++)
            for (int32_t c = 0; c < v->channels; c++, m++) {
                const int64_t in_y = (int64_t)y * v->stride_h - v->pad_top + i * v->dilation_h;
                const int64_t in_x = (int64_t)x * v->stride_w - v->pad_left + j * v->dilation_w;
                if (in_y >= 0 && in_y < v->height && in_x >= 0 && in_x < v->width)
                    sum += *m * (int64_t)image->input[(c * v->height + in_y) * v->width + in_x];
            }
    const int32_t row = xn_planes_class(y, s->stem_height, p->top, p->bottom);
    const int32_t column = xn_planes_class(x, s->stem_width, p->left, p->right);
    const int64_t where = (int64_t)row * (p->left + 1 + p->right) + column;
    return fmaf((float)sum, (float)image->weights->scale[o],
                p->border[where * v->out_channels + o]);
}

static float largest_at(const xn_ref_image *image, int32_t o, int32_t y, int32_t x) {
    const xn_step *s = image->step;
    float most = -INFINITY;
    for (int32_t at_y = 2 * y - 1; at_y <= 2 * y + 1; at_y++)
        for (int32_t at_x = 2 * x - 1; at_x <= 2 * x + 1; at_x++)
            if (at_y >= 0 && at_y < s->stem_height && at_x >= 0 && at_x < s->stem_width)
                most = fmaxf(most, value_at(image, o, at_y, at_x));
    return most;
}

void xn_ref_stem(const xn_ref_image *image) {
    const xn_conv *v = &image->step->conv;
    for (int32_t o = 0; o < v->out_channels; o++)
        for (int32_t y = 0; y < v->out_height; y++)
            for (int32_t x = 0; x < v->out_width; x++)
                xn_ref_finish(image, o, y, x,
                              (double)(image->step->pool ? largest_at(image, o, y, x)
                                                         : value_at(image, o, y, x)),
                              1);
}
