/* floor.c: see floor.h. Rates are those that an H200 was measured to reach. */
#include "floor.h"

#include <math.h>

#define BIT_TOPS 15000.0 /* 10^12 operations a second, 2 a product; K padded to 256 */
#define BYTE_TOPS 1400.0
#define FP16_TOPS 700.0
#define FP32_TOPS 55.0
#define BYTES_PER_US 4.2e6
#define LAUNCH_US 0.56

/* Some steps of a network. */
typedef struct span {
    const xn_network *network;
    int first, end;
} span;

static bool reads(const xn_step *s, int32_t tensor) {
    return s->input == tensor || s->residual == tensor || s->second == tensor;
}

static bool writes(const xn_step *s, int32_t tensor) {
    return s->output == tensor || s->bits == tensor;
}

/* By a step of the span in front of `step`. */
static bool is_made(const span *n, int step, int32_t tensor) {
    for (int i = n->first; i < step; i++)
        if (writes(&n->network->steps[i], tensor))
            return true;
    return false;
}

/* By a step behind the span, or as the network's output. */
static bool is_wanted(const span *n, int32_t tensor) {
    const int count = n->network->step_count;
    for (int i = n->end; i < count; i++)
        if (reads(&n->network->steps[i], tensor))
            return true;
    return writes(&n->network->steps[count - 1], tensor);
}

/* Of one image. */
static double tensor_bytes(const span *n, int index) {
    xn_step s = n->network->steps[index];
    s.input_view.pitch = s.residual_view.pitch = s.output_view.pitch = 0; /* the part alone */
    double bytes = is_made(n, index, s.input) ? 0 : (double)xn_step_input_bytes(&s);
    if (s.residual != s.input && !is_made(n, index, s.residual))
        bytes += (double)xn_step_residual_bytes(&s);
    if (is_wanted(n, s.output))
        bytes += (double)xn_step_output_bytes(&s);
    return bytes + (is_wanted(n, s.bits) ? (double)xn_step_bits_bytes(&s) : 0);
}

static double products_us(const span *n, const xn_step *s) {
    const xn_conv *v = &s->conv;
    const double outputs = (double)xn_conv_output_elements(v);
    const double terms = (double)v->group_channels * v->kernel_h * v->kernel_w;
    if (s->kind == XN_STEP_STEM) {
        const int planes = n->network->precision == XN_PRECISION_FP16 ? 2 : 3;
        return 2 * planes * terms * v->out_channels * s->stem_height * s->stem_width / BYTE_TOPS /
               1e6;
    }
    if (s->kind != XN_STEP_CONV)
        return 0;
    if (v->mode == XN_MODE_XNOR)
        return 2 * outputs * 256 * ceil(terms / 256) / BIT_TOPS / 1e6;
    return 2 * outputs * terms / (v->precision == XN_PRECISION_FP16 ? FP16_TOPS : FP32_TOPS) / 1e6;
}

static double weight_bytes(const xn_step *s) {
    const xn_conv *v = &s->conv;
    if (s->kind != XN_STEP_CONV && s->kind != XN_STEP_STEM)
        return 0;
    const double values = (double)v->out_channels * v->group_channels * v->kernel_h * v->kernel_w;
    return v->mode == XN_MODE_XNOR             ? values / 8
           : v->precision == XN_PRECISION_FP16 ? values * 2
                                               : values * 4;
}

double xn_bench_floor_us(const xn_network *network, int first, int count, int64_t images) {
    const span n = {network, first, first + count};
    double products = 0, bytes = 0;
    for (int i = first; i < n.end; i++) {
        products += (double)images * products_us(&n, &network->steps[i]);
        bytes += (double)images * tensor_bytes(&n, i) + weight_bytes(&network->steps[i]);
    }
    return fmax(LAUNCH_US, fmax(products, bytes / BYTES_PER_US));
}
