/* prepared.c: weights in the layouts of the paths, whatever the geometry (cpu.h, xn_prepared). */
#include "cpu.h"

#include <string.h>

/* From [o][tap][word] to [o / 16][tap][word][o % 16]. */
static void lay_out_bits(xn_prepared *p, const uint32_t *bits) {
    for (int32_t o = 0; o < p->out_channels; o++) {
        size_t block = (size_t)(o / XN_CPU_LANES), lane = (size_t)(o % XN_CPU_LANES);
        size_t taps = (size_t)p->taps, words = (size_t)p->words;
        for (size_t tap = 0; tap < taps; tap++) {
            int32_t ones = 0;
            for (size_t word = 0; word < words; word++) {
                uint32_t value = bits[((size_t)o * taps + tap) * words + word];
                p->bits[((block * taps + tap) * words + word) * XN_CPU_LANES + lane] = value;
                ones += __builtin_popcount(value);
            }
            p->tap_ones[(block * taps + tap) * XN_CPU_LANES + lane] = ones;
        }
    }
}

/* The taps of weight +1 first; within each sign in memory order. */
static void order_taps(xn_prepared *p, const uint32_t *bits) {
    for (int32_t o = 0; o < p->out_channels; o++) {
        int32_t *order = p->order + (size_t)o * (size_t)p->filter;
        int32_t count = 0;
        for (uint32_t sign = 2; sign-- > 0;) {
            for (int32_t t = 0; t < p->filter; t++) {
                size_t tap = (size_t)(t % p->taps);
                int32_t c = t / p->taps;
                size_t word =
                    ((size_t)o * (size_t)p->taps + tap) * (size_t)p->words + (size_t)(c / 32);
                if ((bits[word] >> (c % 32) & 1u) == sign)
                    order[count++] = t;
            }
            if (sign)
                p->plus[o] = count;
        }
    }
}

static void *copy(const void *from, size_t count, size_t bytes, bool *failed) {
    if (!from)
        return NULL;
    void *to = xn_mem_zalloc(count, bytes);
    if (to)
        memcpy(to, from, count * bytes);
    else
        *failed = true;
    return to;
}

static bool fill(xn_prepared *p, const xn_weights *weights) {
    size_t outputs = (size_t)p->out_channels, filter = (size_t)p->filter, lanes, words;
    bool failed = !xn_mul_size((size_t)p->blocks * XN_CPU_LANES, (size_t)p->taps, &lanes) ||
                  !xn_mul_size(lanes, (size_t)p->words, &words);
    if (failed)
        return false;
    p->bits = xn_mem_zalloc(words, sizeof *p->bits);
    p->tap_ones = xn_mem_zalloc(lanes, sizeof *p->tap_ones);
    p->real = copy(weights->real, outputs * filter, sizeof(float), &failed);
    p->alpha = copy(weights->alpha, outputs, sizeof(float), &failed);
    p->scale = copy(weights->scale, outputs, sizeof(float), &failed);
    p->bias = copy(weights->bias, outputs, sizeof(float), &failed);
    if (failed || !p->bits || !p->tap_ones)
        return false;
    lay_out_bits(p, weights->bits);
    if (p->group_channels > XN_CPU_FEW_CHANNELS || p->filter > XN_CPU_FEW_FILTER)
        return true;
    p->order = xn_mem_zalloc(outputs * filter, sizeof *p->order);
    p->plus = xn_mem_zalloc(outputs, sizeof *p->plus);
    if (!p->order || !p->plus)
        return false;
    order_taps(p, weights->bits);
    return true;
}

xn_status xn_cpu_weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                 xn_error *error) {
    (void)device;
    xn_prepared *p = xn_mem_zalloc(1, sizeof *p);
    if (p) {
        p->out_channels = weights->out_channels;
        p->group_channels = weights->group_channels;
        p->kernel_h = weights->kernel_h;
        p->kernel_w = weights->kernel_w;
        p->taps = weights->kernel_h * weights->kernel_w;
        p->filter = p->taps * weights->group_channels;
        p->words = weights->words;
        p->blocks = (int32_t)xn_cpu_div_up(weights->out_channels, XN_CPU_LANES);
    }
    if (!p || !fill(p, weights)) {
        xn_cpu_weights_free(p);
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                       "no memory for the prepared weights [%d, %d, %d, %d]", weights->out_channels,
                       weights->group_channels, weights->kernel_h, weights->kernel_w);
    }
    *out = p;
    return XN_OK;
}

void xn_cpu_weights_free(xn_prepared *prepared) {
    if (!prepared)
        return;
    xn_mem_free(prepared->bias);
    xn_mem_free(prepared->scale);
    xn_mem_free(prepared->alpha);
    xn_mem_free(prepared->real);
    xn_mem_free(prepared->plus);
    xn_mem_free(prepared->order);
    xn_mem_free(prepared->tap_ones);
    xn_mem_free(prepared->bits);
    xn_mem_free(prepared);
}
