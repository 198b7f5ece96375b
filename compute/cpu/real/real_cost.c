/* real_cost.c: what a blocked matrix product costs, and how it reads its input (real.c). */
#include "real.h"

#include <math.h>

enum { MOST_TERMS_IN_PLACE = 160 };

/* A group may lie across one tile more than it fills: what is not its own is multiplied, too. */
static int64_t tiles_of(const xn_conv *conv) {
    const int64_t filters = conv->group_out_channels;
    int64_t tiles = 0;
    for (int64_t g = 0; g < conv->groups; g++)
        tiles += xn_cpu_div_up((g + 1) * filters, XN_CPU_REAL_FILTERS) -
                 g * filters / XN_CPU_REAL_FILTERS;
    return tiles;
}

int32_t xn_cpu_real_tail(int64_t outputs, int32_t lanes) {
    const int32_t left = (int32_t)(outputs % lanes);
    const bool few = left <= XN_CPU_REAL_TAIL && 2 * left <= lanes;
    return few && (outputs > lanes || outputs == left) ? left : 0;
}

/* Vectors of an image: of all its outputs, or of each row's. A pixel of a tail takes about an
 * eighth of one. */
static double vectors_of(const xn_conv *conv, int lanes, bool by_rows) {
    const int64_t outputs = (int64_t)conv->out_height * conv->out_width;
    const int32_t tail = xn_cpu_real_tail(outputs, lanes);
    if (by_rows)
        return (double)conv->out_height * (double)xn_cpu_div_up(conv->out_width, lanes);
    return ceil((double)(outputs - tail) / lanes) + tail / 8.0;
}

static double cost_of(const xn_conv *conv, const xn_cpu_real_kernels *real,
                      xn_cpu_reading reading) {
    const xn_cpu_real_costs *costs = &real->costs;
    const bool packed = reading != XN_CPU_READ_IN_PLACE;
    const double vectors = vectors_of(conv, real->lanes, !packed);
    const double panels = ceil(vectors / real->most), groups = conv->groups;
    const double taps = (double)conv->kernel_h * conv->kernel_w;
    const double tiles = (double)tiles_of(conv), terms = taps * conv->group_channels;
    double cost =
        vectors * (terms * costs->multiply * XN_CPU_REAL_FILTERS * tiles + costs->tile * tiles) +
        groups * costs->panel * panels + costs->output * (double)xn_conv_output_elements(conv);
    if (packed)
        cost += groups *
                (vectors * terms * costs->pack + costs->tap * taps * (panels + conv->out_height));
    if (reading != XN_CPU_READ_IMAGE)
        cost += costs->copy * (double)xn_conv_input_elements(conv);
    return cost;
}

xn_cpu_reading xn_cpu_real_reading(const xn_conv *conv, const xn_cpu_real_kernels *real) {
    const xn_cpu_reading packed =
        xn_cpu_source_in_image(conv) ? XN_CPU_READ_IMAGE : XN_CPU_READ_ROWS;
    const double terms = (double)conv->kernel_h * conv->kernel_w * conv->group_channels;
    if (terms <= MOST_TERMS_IN_PLACE && xn_cpu_source_fits_in_place(conv) &&
        cost_of(conv, real, XN_CPU_READ_IN_PLACE) < cost_of(conv, real, packed))
        return XN_CPU_READ_IN_PLACE;
    return packed;
}

double xn_cpu_real_cost_ns(const xn_step *step, const void *kernels) {
    const xn_conv conv = xn_cpu_source_flat(&step->conv);
    return cost_of(&conv, kernels, xn_cpu_real_reading(&conv, kernels));
}
