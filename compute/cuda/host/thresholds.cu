/* thresholds.cu: thresholds by bisection. With f and b the factor and bias of a filter, the bit is
 * the sign of fma(dot, f, b) + shift in fp32, which rises with dot, or falls, or stays the same: so
 * it changes at most once between the least and the largest dot there can be, and asking the
 * epilogue's own expression finds where, to the last rounding. */
#include "thresholds.h"

#include "xn_arith.h"

#include <math.h>

bool xn_cuda_thresholds_suffice(const xn_epilogue *e) {
    return e->bits && e->datatype == XN_BITS && !e->k && !e->residual &&
           e->activation == XN_ACTIVATION_NONE;
}

struct filter {
    float factor, bias, shift;
    bool shifted;
};

/* As epilogue.cuh has it. */
static uint32_t bit_of(const filter *f, int64_t dot) {
    float v = fmaf((float)dot, f->factor, f->bias);
    if (!isfinite(v))
        v = (float)fma((double)dot, (double)f->factor, (double)f->bias);
    return xn_sign_bit(f->shifted ? v + f->shift : v);
}

static filter filter_of(const xn_weights *w, const xn_epilogue *e, int32_t o) {
    filter f = {1.0f, 0.0f, 0.0f, e->shift != 0};
    if (e->factor != XN_FACTOR_NONE)
        f.factor = e->factor == XN_FACTOR_SCALE ? w->scale[o] : w->alpha[o];
    if (e->bias)
        f.bias = w->bias[o];
    if (e->shift)
        f.shift = w->shift[o];
    return f;
}

void xn_cuda_thresholds_fill(const xn_weights *w, const xn_epilogue *e, int32_t *threshold,
                             uint32_t *flip) {
    const int64_t most = (int64_t)w->group_channels * w->kernel_h * w->kernel_w;
    for (int32_t o = 0; o < w->out_channels; o++) {
        const filter f = filter_of(w, e, o);
        int64_t low = -most, high = most; /* the bit of low is `first`, that of high another */
        const uint32_t first = bit_of(&f, low);
        if (bit_of(&f, high) == first) {
            threshold[o] = (int32_t)low;
            flip[o / 32] |= (first ^ 1u) << o % 32;
            continue;
        }
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            *(bit_of(&f, middle) == first ? &low : &high) = middle;
        }
        threshold[o] = (int32_t)high;
        flip[o / 32] |= first << o % 32;
    }
}
