/* planes.c: see xn_planes.h. */
#include "xn_planes.h"

#include "xn_mem.h"

#include <math.h>
#include <stdlib.h>

static const double most_of[] = {[2] = 127.0 * 128, [3] = 127.0 * 128 * 128}; /* of |m| */

static int64_t filter_of(const xn_conv *c) {
    return (int64_t)c->channels * c->kernel_h * c->kernel_w;
}

/* W * gain of filter o, in the order of the source. */
static double value_of(const xn_planes_source *s, int32_t o, int64_t at) {
    const int64_t taps = (int64_t)s->conv->kernel_h * s->conv->kernel_w;
    const double w = (double)s->weight[o * filter_of(s->conv) + at];
    return s->gain ? w * s->gain[at / taps] : w;
}

/* log2 of q: the least that keeps every |m| in its bits. */
static int exponent_of(const xn_planes_source *s, int32_t o) {
    double most = 0;
    for (int64_t i = 0; i < filter_of(s->conv); i++) {
        const double magnitude = fabs(value_of(s, o, i));
        if (magnitude > most) /* fmax here ends GCC 12 for arm64 with an internal error */
            most = magnitude;
    }
    if (most == 0)
        return 0;
    int e = ilogb(most / most_of[s->count]);
    return ldexp(most_of[s->count], e) < most ? e + 1 : e;
}

/* Outputs whose first tap is before the picture, and whose last is behind it. */
static void border_of(int32_t outputs, int32_t stride, int32_t pad, int64_t span, int32_t size,
                      int32_t *before, int32_t *after) {
    *before = (int32_t)((pad + (int64_t)stride - 1) / stride);
    *before = *before < outputs ? *before : outputs;
    for (*after = 0; *after < outputs; ++*after)
        if ((int64_t)(outputs - 1 - *after) * stride - pad + span < size)
            return;
}

static int64_t set_classes(const xn_conv *c, xn_planes *p) {
    border_of(c->out_height, c->stride_h, c->pad_top, (int64_t)(c->kernel_h - 1) * c->dilation_h,
              c->height, &p->top, &p->bottom);
    border_of(c->out_width, c->stride_w, c->pad_left, (int64_t)(c->kernel_w - 1) * c->dilation_w,
              c->width, &p->left, &p->right);
    return ((int64_t)p->top + 1 + p->bottom) * ((int64_t)p->left + 1 + p->right);
}

bool xn_planes_fit(const xn_planes_source *s) {
    enum { MOST_EXPONENT = 60 };
    const xn_conv *c = s->conv;
    xn_planes classes = {0};
    if (c->groups != 1 || filter_of(c) > XN_PLANES_TAPS ||
        set_classes(c, &classes) > XN_PLANES_CLASSES)
        return false;
    for (int32_t i = 0; i < c->channels; i++)
        if ((s->gain && (s->gain[i] == 0 || !isfinite(s->gain[i]))) ||
            (s->offset && !isfinite(s->offset[i])))
            return false;
    for (int32_t o = 0; o < c->out_channels; o++) {
        for (int64_t i = 0; i < filter_of(c); i++)
            if (!isfinite(value_of(s, o, i)))
                return false;
        if (abs(exponent_of(s, o)) > MOST_EXPONENT)
            return false;
    }
    return true;
}

/* The output that stands for a class. */
static int32_t output_of(int32_t cls, int32_t outputs, int32_t before) {
    const int32_t at = cls <= before ? cls : outputs - (cls - before);
    return at < outputs ? at : outputs - 1;
}

/* The sum of m * offset / gain over the taps inside the picture. */
static double offset_of(const xn_planes_source *s, const int32_t *m, int32_t y, int32_t x) {
    const xn_conv *c = s->conv;
    int32_t i0, i1, j0, j1;
    double sum = 0;
    xn_valid_taps(y * c->stride_h - c->pad_top, c->dilation_h, c->kernel_h, c->height, &i0, &i1);
    xn_valid_taps(x * c->stride_w - c->pad_left, c->dilation_w, c->kernel_w, c->width, &j0, &j1);
    for (int32_t i = i0; i < i1; i++)
        for (int32_t j = j0; j < j1; j++)
            for (int32_t k = 0; k < c->channels; k++)
                sum += m[((int64_t)i * c->kernel_w + j) * c->channels + k] *
                       (s->offset[k] / (s->gain ? s->gain[k] : 1));
    return sum;
}

static void fill(const xn_planes_source *s, int32_t o, xn_planes *p, float *scale) {
    const xn_conv *c = s->conv;
    const int64_t taps = (int64_t)c->kernel_h * c->kernel_w;
    const int e = exponent_of(s, o);
    const double each = (s->factor ? s->factor[o] : 1) * ldexp(1, e);
    const int32_t rows = p->top + 1 + p->bottom, columns = p->left + 1 + p->right;
    int32_t *m = p->weight + o * filter_of(c);
    for (int64_t at = 0; at < filter_of(c); at++)
        m[at % taps * c->channels + at / taps] = (int32_t)rint(ldexp(value_of(s, o, at), -e));
    scale[o] = (float)each;
    for (int32_t n = 0; n < rows * columns; n++) {
        const int32_t y = output_of(n / columns, c->out_height, p->top);
        const int32_t x = output_of(n % columns, c->out_width, p->left);
        const double sum = s->offset ? offset_of(s, m, y, x) : 0;
        p->border[(int64_t)n * c->out_channels + o] =
            (float)(each * sum + (s->bias ? s->bias[o] : 0)) + 0.0f; /* never -0 */
    }
}

xn_planes *xn_planes_create(const xn_planes_source *s, float *scale) {
    const xn_conv *c = s->conv;
    const size_t filters = (size_t)c->out_channels;
    xn_planes *p = xn_mem_zalloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->count = s->count;
    p->terms = (int32_t)filter_of(c);
    p->kernel_h = c->kernel_h;
    p->kernel_w = c->kernel_w;
    const size_t classes = (size_t)set_classes(c, p), filter = (size_t)filter_of(c);
    p->weight = xn_mem_zalloc(filters, filter * sizeof *p->weight);
    p->border = xn_mem_zalloc(filters, classes * sizeof *p->border);
    if (!p->weight || !p->border) {
        xn_planes_free(p);
        return NULL;
    }
    p->bytes = sizeof *p + filters * (filter * sizeof *p->weight + classes * sizeof *p->border);
    for (int32_t o = 0; o < c->out_channels; o++)
        fill(s, o, p, scale);
    return p;
}

void xn_planes_free(xn_planes *planes) {
    if (!planes)
        return;
    xn_mem_free(planes->border);
    xn_mem_free(planes->weight);
    xn_mem_free(planes);
}
