/* thresholds.c: see thresholds.h. */
#include "thresholds.h"

#include "epilogue.h"
#include "xn_arith.h"
#include "xn_mem.h"

#include <math.h>

bool xn_cpu_has_thresholds(const xn_conv *conv) {
    const xn_epilogue *e = &conv->epilogue;
    /* differences are compared with limits that must fit 32 bits (bitgemm.c) */
    const int64_t filter = (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w;
    return conv->mode == XN_MODE_XNOR && e->datatype == XN_BITS && e->bits && !e->k &&
           !e->residual && e->activation == XN_ACTIVATION_NONE && filter < INT64_C(1) << 28;
}

/* The form's variants: what of the weights is in the value. */
static int variant_of(const xn_epilogue *e) {
    return e->factor * 4 + (e->bias ? 2 : 0) + (e->shift ? 1 : 0);
}

static xn_epilogue epilogue_of(int variant) {
    return (xn_epilogue){.factor = variant / 4,
                         .bias = variant >> 1 & 1,
                         .shift = variant & 1,
                         .datatype = XN_BITS,
                         .bits = 1};
}

typedef struct channel {
    const xn_conv *conv;
    const xn_weights *weights;
    int32_t o;
    float factor, bias, shift;
} channel;

/* The bit as any path has it. */
static uint32_t bit_of(const void *context, int32_t dot) {
    const channel *c = context;
    float v = xn_epilogue_value((float)dot, c->factor, 1.0f, c->bias);
    if (!isfinite(v))
        v = xn_cpu_value_again(c->conv, c->weights, c->o, dot);
    return xn_sign_bit(v + c->shift);
}

static xn_threshold find(const xn_conv *conv, const xn_prepared *p, int32_t o) {
    channel c = {.conv = conv, .weights = p->weights, .o = o};
    c.shift = conv->epilogue.shift ? p->weights->shift[o] : 0.0f;
    xn_cpu_epilogue_fill(conv, p->weights, o, o + 1, &c.factor, &c.bias);
    return xn_threshold_of(p->filter, bit_of, &c);
}

static void free_thresholds(void *made) {
    xn_cpu_thresholds *t = made;
    if (!t)
        return;
    xn_mem_free(t->flip);
    xn_mem_free(t->least);
    xn_mem_free(t);
}

static void *make(const xn_prepared *p, int variant) {
    const size_t outputs = (size_t)p->out_channels;
    const xn_conv conv = {.out_channels = p->out_channels,
                          .group_channels = p->group_channels,
                          .kernel_h = p->kernel_h,
                          .kernel_w = p->kernel_w,
                          .epilogue = epilogue_of(variant)};
    xn_cpu_thresholds *t = xn_mem_zalloc(1, sizeof *t);
    if (t) {
        t->least = xn_mem_zalloc(outputs, sizeof *t->least);
        t->flip = xn_mem_zalloc(outputs / 32 + 1, sizeof *t->flip);
    }
    if (!t || !t->least || !t->flip) {
        free_thresholds(t);
        return NULL;
    }
    for (int32_t o = 0; o < p->out_channels; o++) {
        const xn_threshold found = find(&conv, p, o);
        t->least[o] = found.least;
        t->flip[o / 32] |= found.flip << o % 32;
    }
    return t;
}

static const xn_cpu_form form = {.slot = XN_CPU_FORM_THRESHOLDS,
                                 .what = "the thresholds",
                                 .make = make,
                                 .free = free_thresholds};

xn_status xn_cpu_thresholds_ready(const xn_prepared *prepared, const xn_epilogue *epilogue,
                                  xn_error *error) {
    return xn_cpu_form_ready(prepared, &form, variant_of(epilogue), error);
}

const xn_cpu_thresholds *xn_cpu_thresholds_of(const xn_prepared *prepared,
                                              const xn_epilogue *epilogue) {
    return xn_cpu_form_of(prepared, &form, variant_of(epilogue));
}
