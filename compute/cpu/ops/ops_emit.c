/* ops_emit.c: the outputs of a unit (ops.h): the epilogue of a channel's pixels, bits of 32. */
#include "ops.h"

#include "bits.h"

#include <math.h>
#include <string.h>

void xn_cpu_ops_begin(const xn_cpu_ops_unit *u) {
    if (u->j->conv->epilogue.bits)
        memset(xn_cpu_ops_own(u, XN_CPU_OPS_WORDS), 0, (size_t)u->out_n * sizeof(uint32_t));
}

void xn_cpu_ops_end(const xn_cpu_ops_unit *u) {
    const int32_t layout = u->j->step->bits_layout, channels = u->j->conv->out_channels;
    if (!u->j->conv->epilogue.bits)
        return;
    unsigned char *to = u->image->bits + (size_t)u->out_pixel * xn_cpu_bits_pitch(layout, channels);
    xn_cpu_bits_write(layout, channels, u->first / XN_CPU_OPS_BLOCK,
                      xn_cpu_ops_own(u, XN_CPU_OPS_WORDS), 0, u->out_n, to);
}

/* v = acc * factor + bias, in double where that is not finite. */
static const float *values_again(const xn_cpu_ops_unit *u, int32_t c, const float *acc) {
    const xn_cpu_epilogue *e = &u->j->run->epilogue;
    float *v = xn_cpu_ops_own(u, XN_CPU_OPS_VALUES);
    xn_cpu_make_values(e, c, XN_CPU_SUMS, acc, NULL, u->out_n, v);
    for (int32_t x = 0; x < u->out_n; x++)
        if (!isfinite(v[x]))
            v[x] = xn_cpu_value_again(e->conv, e->weights, c, (double)acc[x]);
    return v;
}

void xn_cpu_ops_emit(const xn_cpu_ops_unit *u, int32_t c, const float *acc) {
    const xn_cpu_epilogue *e = &u->j->run->epilogue;
    xn_cpu_place place = xn_cpu_place_of(e->conv, u->image, c, (size_t)u->out_pixel);
    if (e->conv->epilogue.bits) {
        place.words = xn_cpu_ops_own(u, XN_CPU_OPS_WORDS);
        place.bit = (uint32_t)1 << (c - u->first);
    }
    if (!u->j->linear)
        xn_cpu_finish(e, c, 1, acc, 0, u->out_n, &place);
    else if (!xn_cpu_finish_acc(e, c, 1, XN_CPU_SUMS, acc, 0, NULL, u->out_n, &place))
        xn_cpu_finish(e, c, 1, values_again(u, c, acc), 0, u->out_n, &place);
}
