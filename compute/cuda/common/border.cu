/* border.cu: border.h. Host code without a device. */
#include "border.h"

#include "xn_arith.h"

/* The class of a range, a new one if there is none; -1 when there are too many. */
static int class_of(xn_cuda_axis *axis, int32_t first, int32_t last) {
    for (int32_t i = 0; i < axis->classes; i++)
        if (axis->range[i].first == first && axis->range[i].last == last)
            return i;
    if (axis->classes == XN_CUDA_BORDER_MAX_CLASSES)
        return -1;
    axis->range[axis->classes] = {(uint8_t)first, (uint8_t)last};
    return axis->classes++;
}

struct axis_conv {
    int32_t outputs, stride, pad, dilation, kernel, size;
};

/* From one end inwards, as far as taps are missing. */
static bool add_border(xn_cuda_axis *axis, const axis_conv &c, bool from_end, uint8_t *classes,
                       int32_t *count) {
    for (*count = 0; *count < c.outputs; (*count)++) {
        int32_t first, last;
        xn_valid_taps((from_end ? c.outputs - 1 - *count : *count) * c.stride - c.pad, c.dilation,
                      c.kernel, c.size, &first, &last);
        if (first == 0 && last == c.kernel)
            return true;
        const int cls = class_of(axis, first, last);
        if (cls < 0 || *count == XN_CUDA_BORDER)
            return false;
        classes[*count] = (uint8_t)cls;
    }
    return true;
}

static bool make_axis(xn_cuda_axis *axis, const axis_conv &c) {
    return class_of(axis, 0, c.kernel) == 0 &&
           add_border(axis, c, false, axis->first, &axis->first_count) &&
           add_border(axis, c, true, axis->last, &axis->last_count);
}

static void make_pixel_classes(const xn_conv *c, xn_cuda_borders *b) {
    const int32_t row = c->kernel_w + 1;
    b->classes = 0;
    for (int32_t v = 0; v < b->rows.classes; v++)
        for (int32_t h = 0; h < b->columns.classes; h++) {
            const xn_cuda_range y = b->rows.range[v], x = b->columns.range[h];
            xn_cuda_class *cls = &b->pixel_class[b->classes++];
            cls->high_last = (uint16_t)(y.last * row + x.last);
            cls->low_last = (uint16_t)(y.first * row + x.last);
            cls->high_first = (uint16_t)(y.last * row + x.first);
            cls->low_first = (uint16_t)(y.first * row + x.first);
            cls->inside = (y.last - y.first) * (x.last - x.first);
        }
}

bool xn_cuda_borders_make(const xn_conv *c, xn_cuda_borders *out) {
    *out = {};
    if (c->kernel_h >= UINT8_MAX || c->kernel_w >= UINT8_MAX ||
        !make_axis(&out->rows, {c->out_height, c->stride_h, c->pad_top, c->dilation_h, c->kernel_h,
                                c->height}) ||
        !make_axis(&out->columns,
                   {c->out_width, c->stride_w, c->pad_left, c->dilation_w, c->kernel_w, c->width}))
        return false;
    make_pixel_classes(c, out);
    return true;
}
