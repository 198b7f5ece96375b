/* real_pack.c: the weights of modes bwn and float in the order of real_kernels.h, part by part:
 * [part][tile][term of the part][XN_CPU_REAL_FILTERS], so that a panel meets one contiguous run of
 * them. bwn has floats of +1 and -1: its products then are those of float. Filters past the last
 * are 0. */
#include "real.h"
#include "xn_arith.h"

static void lay_out(const xn_prepared *p, const float *from, bool signs, float *to) {
    const int32_t part = xn_cpu_part_terms(p->filter), tiles = xn_cpu_real_tiles(p->out_channels);
    const int32_t channels = p->group_channels;
    for (int32_t first = 0; first < p->filter; first += part) {
        int32_t last = (int32_t)xn_cpu_min((int64_t)first + part, p->filter);
        for (int32_t tile = 0; tile < tiles; tile++)
            for (int32_t term = first; term < last; term++, to += XN_CPU_REAL_FILTERS) {
                int32_t base = tile * XN_CPU_REAL_FILTERS;
                int32_t count = (int32_t)xn_cpu_min(XN_CPU_REAL_FILTERS, p->out_channels - base);
                size_t at = (size_t)(term % channels) * (size_t)p->taps + (size_t)(term / channels);
                for (int32_t f = 0; f < count; f++) {
                    float weight = from[(size_t)(base + f) * (size_t)p->filter + at];
                    to[f] = !signs ? weight : xn_sign_bit(weight) ? 1.0f : -1.0f;
                }
            }
        if (last == p->filter)
            break;
    }
}

bool xn_cpu_real_prepare(xn_prepared *p, const float *real) {
    size_t count;
    if (!xn_mul_size((size_t)xn_cpu_real_tiles(p->out_channels) * XN_CPU_REAL_FILTERS,
                     (size_t)p->filter, &count))
        return false;
    p->real = xn_mem_zalloc(count, sizeof *p->real);
    p->sign = xn_mem_zalloc(count, sizeof *p->sign);
    if (!p->real || !p->sign)
        return false;
    lay_out(p, real, false, p->real);
    lay_out(p, real, true, p->sign);
    return true;
}
