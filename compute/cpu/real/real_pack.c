/* real_pack.c: the weights of modes bwn and float in the order of real_kernels.h, part by part:
 * [part][tile][term of the part][XN_CPU_REAL_FILTERS], so that a panel meets one contiguous run of
 * them. bwn has floats of +1 and -1: its products then are those of float. Filters past the last
 * are 0. Either is made when a plan of its mode first wants it: mode xnor, which most use, reads
 * neither. */
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

bool xn_cpu_real_open(xn_prepared *p) {
    p->on_demand = xn_mem_zalloc(1, sizeof *p->on_demand);
    if (!p->on_demand)
        return false;
    pthread_mutex_init(&p->on_demand->making, NULL);
    atomic_init(&p->on_demand->real, NULL);
    atomic_init(&p->on_demand->sign, NULL);
    return true;
}

void xn_cpu_real_close(xn_prepared *p) {
    if (!p->on_demand)
        return;
    xn_mem_free(atomic_load(&p->on_demand->sign));
    xn_mem_free(atomic_load(&p->on_demand->real));
    pthread_mutex_destroy(&p->on_demand->making);
    xn_mem_free(p->on_demand);
}

/* NULL where memory is short. */
static float *make(const xn_prepared *p, xn_mode mode) {
    size_t count;
    if (!xn_mul_size((size_t)xn_cpu_real_tiles(p->out_channels) * XN_CPU_REAL_FILTERS,
                     (size_t)p->filter, &count))
        return NULL;
    float *made = xn_mem_zalloc(count, sizeof *made);
    if (made)
        lay_out(p, p->weights->real, mode == XN_MODE_BWN, made);
    return made;
}

xn_status xn_cpu_weights_ready(const xn_prepared *p, const xn_plan *plan, xn_error *error) {
    const xn_mode mode = (xn_mode)plan->conv.mode;
    if (mode == XN_MODE_XNOR)
        return XN_OK;
    _Atomic(float *) *slot = xn_cpu_real_slot(p, mode);
    float *there = atomic_load_explicit(slot, memory_order_acquire);
    if (there)
        return XN_OK;
    pthread_mutex_lock(&p->on_demand->making);
    there = atomic_load_explicit(slot, memory_order_relaxed);
    if (!there) {
        there = make(p, mode);
        atomic_store_explicit(slot, there, memory_order_release);
    }
    pthread_mutex_unlock(&p->on_demand->making);
    if (there)
        return XN_OK;
    return xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                   "no memory for the weights [%d, %d, %d, %d] of mode %s", p->out_channels,
                   p->group_channels, p->kernel_h, p->kernel_w, xn_mode_name(mode));
}
