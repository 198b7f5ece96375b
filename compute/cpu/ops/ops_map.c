/* ops_map.c: kinds of step that take elements by themselves, and softmax, which takes pixels. */
#include "ops.h"

#include <math.h>

/* The gate of channel c. */
static float gate_of(const xn_cpu_ops_unit *u, int32_t c) {
    const xn_datatype datatype = (xn_datatype)u->j->step->second_datatype;
    float gate;
    xn_tensor_to_fp32(datatype, u->image->second + (size_t)c * xn_datatype_bytes(datatype), &gate,
                      1);
    return gate;
}

static const float *accumulators(const xn_cpu_ops_unit *u, int32_t c) {
    const xn_step *s = u->j->step;
    const xn_cpu_element element = u->j->kernels->element[s->kind];
    const float *from = xn_cpu_ops_channel(u, c);
    float *acc = xn_cpu_ops_own(u, XN_CPU_OPS_ACC);
    if (!element)
        return from;
    element(from, &s->attributes, s->second == XN_NO_TENSOR ? 1 : gate_of(u, c), u->n, acc);
    return acc;
}

void xn_cpu_ops_map(xn_cpu_ops_unit *u) {
    u->pixel = u->out_pixel;
    u->n = u->out_n;
    xn_cpu_ops_open(u);
    xn_cpu_ops_begin(u);
    for (int32_t c = u->first; c < u->last; c++)
        xn_cpu_ops_emit(u, c, accumulators(u, c));
    xn_cpu_ops_end(u);
}

/* ---- softmax ---- */

/* The unit with block after block of all channels. */
static bool next_block(xn_cpu_ops_unit *u) {
    u->first = u->last;
    u->last = (int32_t)xn_cpu_min(u->first + XN_CPU_OPS_BLOCK, u->j->conv->channels);
    return u->first < u->last;
}

/* Of a single pixel the channels follow one another, and are taken as the pixels of one. */
static void exps_of_pixel(const xn_cpu_ops_unit *u, float *exps, double *sum) {
    const int32_t channels = u->j->conv->channels;
    const xn_cpu_ops_kernels *kernels = u->j->kernels;
    const float most = kernels->extreme_of(exps, 1, channels, false, -INFINITY);
    kernels->exps(&most, true, channels, exps);
    *sum = kernels->sum_of(exps, 1, channels, 0);
    kernels->divide(sum, true, channels, exps);
}

static void exps_of_pixels(const xn_cpu_ops_unit *u, float *exps, double *sums) {
    const int32_t channels = u->j->conv->channels, n = u->n;
    const xn_cpu_ops_kernels *kernels = u->j->kernels;
    float *most = xn_cpu_ops_own(u, XN_CPU_OPS_ROW), *next = xn_cpu_ops_own(u, XN_CPU_OPS_VALUES);
    for (int32_t x = 0; x < n; x++) {
        most[x] = -INFINITY;
        sums[x] = 0;
    }
    for (int32_t c = 0; c < channels; c++) {
        const float *const rows[2] = {most, exps + (int64_t)c * n};
        kernels->extremes_down(rows, 2, n, false, next);
        float *swap = most;
        most = next;
        next = swap;
    }
    for (int32_t c = 0; c < channels; c++) {
        float *row = exps + (int64_t)c * n;
        kernels->exps(most, false, n, row);
        kernels->add(row, n, sums);
    }
    for (int32_t c = 0; c < channels; c++)
        kernels->divide(sums, false, n, exps + (int64_t)c * n);
}

/* All channels as fp32: [C][n]. */
static void read_all(xn_cpu_ops_unit *u, float *to) {
    u->last = 0;
    while (next_block(u)) {
        xn_cpu_ops_open(u);
        for (int32_t c = u->first; c < u->last; c++, to += u->n) {
            const float *from = xn_cpu_ops_channel(u, c);
            for (int32_t x = 0; x < u->n; x++)
                to[x] = from[x];
        }
    }
}

void xn_cpu_ops_softmax(xn_cpu_ops_unit *u) {
    float *exps = xn_cpu_ops_own(u, XN_CPU_OPS_ACC);
    double *sums = xn_cpu_ops_own(u, XN_CPU_OPS_SUMS);
    u->pixel = u->out_pixel;
    u->n = u->out_n;
    read_all(u, exps);
    if (u->n == 1)
        exps_of_pixel(u, exps, sums);
    else
        exps_of_pixels(u, exps, sums);
    u->last = 0;
    while (next_block(u)) {
        xn_cpu_ops_begin(u);
        for (int32_t c = u->first; c < u->last; c++)
            xn_cpu_ops_emit(u, c, exps + (int64_t)c * u->n);
        xn_cpu_ops_end(u);
    }
}
