/* lookup_weights.c: weights as the path lookup reads them (lookup.h). */
#include "lookup.h"

#include "index.h"
#include "xn_mem.h"

/* What the taps of a kernel row add, 4 at a time, for each pattern of signs: twice the weights of
 * the taps that are +1. Also the sums of the weights above each kernel row (lookup_kernels.h). */
static void lay_out_tables(const xn_prepared *p, xn_cpu_lookup_weights *to) {
    const uint32_t *bits = p->weights->bits;
    const int32_t across = p->filter / p->kernel_h; /* taps of a kernel row, channel by channel */
    const size_t tap_words = (size_t)p->weights->words;
    for (int32_t o = 0; o < p->out_channels; o++)
        for (int32_t i = 0; i < p->kernel_h; i++)
            for (int32_t t = 0; t < across; t++) {
                const int32_t c = t / p->kernel_w, j = t % p->kernel_w;
                const size_t tap = (size_t)o * (size_t)p->taps + (size_t)(i * p->kernel_w + j);
                const int weight =
                    bits[tap * tap_words + (size_t)(c / 32)] >> (c % 32) & 1u ? 1 : -1;
                const size_t row = (size_t)o * (size_t)p->kernel_h + (size_t)i;
                const size_t plane = row * (size_t)to->planes + (size_t)(t / XN_CPU_PATTERN_TAPS);
                uint8_t *table = to->tables + plane * XN_CPU_TABLE_BYTES;
                for (int pattern = 0; pattern < XN_CPU_TABLE_BYTES; pattern++)
                    if (pattern >> t % XN_CPU_PATTERN_TAPS & 1)
                        table[pattern] = (uint8_t)(table[pattern] + 2 * weight);
                to->above[((size_t)o * (size_t)(p->kernel_h + 1) + (size_t)i + 1) *
                              (size_t)p->kernel_w +
                          (size_t)j] += weight;
            }
    const size_t columns = (size_t)p->kernel_w, rows = (size_t)p->kernel_h;
    for (size_t o = 0; o < (size_t)p->out_channels; o++)
        for (size_t at = columns; at < (rows + 1) * columns; at++)
            to->above[o * (rows + 1) * columns + at] +=
                to->above[o * (rows + 1) * columns + at - columns];
}

static void free_weights(void *made) {
    xn_cpu_lookup_weights *w = made;
    if (!w)
        return;
    xn_mem_free(w->above);
    xn_mem_free(w->tables);
    xn_mem_free(w);
}

/* The path fits: a filter has at most XN_CPU_LOOKUP_FILTER taps. */
static void *make_weights(const xn_prepared *p, int variant) {
    const size_t outputs = (size_t)p->out_channels;
    xn_cpu_lookup_weights *w = xn_mem_zalloc(1, sizeof *w);
    (void)variant;
    if (!w)
        return NULL;
    w->planes = (int32_t)xn_cpu_div_up(p->filter / p->kernel_h, XN_CPU_PATTERN_TAPS);
    w->tables = xn_mem_zalloc(outputs * (size_t)(p->kernel_h * w->planes), XN_CPU_TABLE_BYTES);
    w->above = xn_mem_zalloc(outputs * (size_t)((p->kernel_h + 1) * p->kernel_w), sizeof *w->above);
    if (!w->tables || !w->above) {
        free_weights(w);
        return NULL;
    }
    lay_out_tables(p, w);
    return w;
}

const xn_cpu_form xn_cpu_lookup_form = {
    .slot = XN_CPU_FORM_FEW, .what = "the tables", .make = make_weights, .free = free_weights};
