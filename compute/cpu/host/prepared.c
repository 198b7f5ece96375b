/* prepared.c: weights in the layouts of the paths, whatever the geometry (cpu.h, xn_prepared). */
#include "cpu.h"

#include <string.h>

/* One filter from [tap][word] to the words of its patches, and their nibbles. */
static void lay_out_filter(xn_prepared *p, const xn_cpu_patch *patch, size_t o,
                           const uint32_t *from) {
    size_t words = (size_t)patch->words;
    uint32_t *bits = p->bits + o * words;
    uint8_t *nibbles = p->nibbles + o * words * XN_CPU_WORD_NIBBLES;
    for (int32_t tap = 0; tap < p->taps; tap++) {
        int32_t shift = tap % patch->sharing * p->group_channels;
        uint32_t *to = bits + (size_t)(tap / patch->sharing) * (size_t)patch->tap_words;
        for (int32_t word = 0; word < patch->tap_words; word++)
            to[word] |= *from++ << shift;
    }
    for (size_t n = 0; n < words * XN_CPU_WORD_NIBBLES; n++)
        nibbles[n] =
            (uint8_t)((bits[n / XN_CPU_WORD_NIBBLES] >> 4 * (n % XN_CPU_WORD_NIBBLES) & 15) << 4);
}

/* prefix[i][j] of one filter. */
static void add_up_taps(xn_prepared *p, int32_t words, size_t o, const uint32_t *from) {
    size_t pitch = (size_t)p->kernel_w + 1;
    int32_t *above = p->prefix + o * ((size_t)p->kernel_h + 1) * pitch;
    for (int32_t i = 0; i < p->kernel_h; i++, above += pitch) {
        int32_t row = 0;
        for (size_t j = 1; j < pitch; j++) {
            for (int32_t word = 0; word < words; word++)
                row += __builtin_popcount(*from++);
            above[pitch + j] = above[j] + row;
        }
    }
}

/* The taps of weight +1 first; within each sign in memory order. */
static void order_taps(xn_prepared *p, int32_t words, const uint32_t *bits) {
    for (int32_t o = 0; o < p->out_channels; o++) {
        int32_t *order = p->order + (size_t)o * (size_t)p->filter;
        int32_t count = 0;
        for (uint32_t sign = 2; sign-- > 0;) {
            for (int32_t t = 0; t < p->filter; t++) {
                size_t tap = (size_t)(t % p->taps);
                int32_t c = t / p->taps;
                size_t word =
                    ((size_t)o * (size_t)p->taps + tap) * (size_t)words + (size_t)(c / 32);
                if ((bits[word] >> (c % 32) & 1u) == sign)
                    order[count++] = t;
            }
            if (sign)
                p->plus[o] = count;
        }
    }
}

/* What the taps of a kernel row add, 4 at a time, for each pattern of signs: twice the weights of
 * the taps that are +1. Also the sums of the weights above each kernel row (few_kernels.h). */
static void lay_out_tables(xn_prepared *p, int32_t words, const uint32_t *bits) {
    const int32_t across = p->filter / p->kernel_h; /* taps of a kernel row, channel by channel */
    const size_t tap_words = (size_t)words;
    for (int32_t o = 0; o < p->out_channels; o++)
        for (int32_t i = 0; i < p->kernel_h; i++)
            for (int32_t t = 0; t < across; t++) {
                const int32_t c = t / p->kernel_w, j = t % p->kernel_w;
                const size_t tap = (size_t)o * (size_t)p->taps + (size_t)(i * p->kernel_w + j);
                const int weight =
                    bits[tap * tap_words + (size_t)(c / 32)] >> (c % 32) & 1u ? 1 : -1;
                const size_t row = (size_t)o * (size_t)p->kernel_h + (size_t)i;
                const size_t plane = row * (size_t)p->planes + (size_t)(t / XN_CPU_PATTERN_TAPS);
                uint8_t *table = p->tables + plane * XN_CPU_TABLE_BYTES;
                for (int pattern = 0; pattern < XN_CPU_TABLE_BYTES; pattern++)
                    if (pattern >> t % XN_CPU_PATTERN_TAPS & 1)
                        table[pattern] = (uint8_t)(table[pattern] + 2 * weight);
                p->above[((size_t)o * (size_t)(p->kernel_h + 1) + (size_t)i + 1) *
                             (size_t)p->kernel_w +
                         (size_t)j] += weight;
            }
    const size_t columns = (size_t)p->kernel_w, rows = (size_t)p->kernel_h;
    for (size_t o = 0; o < (size_t)p->out_channels; o++)
        for (size_t at = columns; at < (rows + 1) * columns; at++)
            p->above[o * (rows + 1) * columns + at] +=
                p->above[o * (rows + 1) * columns + at - columns];
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
    size_t outputs = (size_t)p->out_channels, filter = (size_t)p->filter, words, prefix;
    xn_cpu_patch patch = xn_cpu_patch_of(p->group_channels, p->kernel_h, p->kernel_w);
    bool failed = !xn_mul_size(outputs, (size_t)patch.words, &words) ||
                  !xn_mul_size((size_t)p->kernel_h + 1, (size_t)p->kernel_w + 1, &prefix) ||
                  !xn_mul_size(prefix, outputs, &prefix);
    if (failed)
        return false;
    p->bits = xn_mem_zalloc(words + XN_CPU_COLUMN_WORDS, sizeof *p->bits);
    p->nibbles = xn_mem_zalloc(words, XN_CPU_WORD_NIBBLES);
    p->prefix = xn_mem_zalloc(prefix, sizeof *p->prefix);
    failed |= !xn_cpu_real_open(p);
    p->alpha = copy(weights->alpha, outputs, sizeof(float), &failed);
    p->scale = copy(weights->scale, outputs, sizeof(float), &failed);
    p->bias = copy(weights->bias, outputs, sizeof(float), &failed);
    if (failed || !p->bits || !p->nibbles || !p->prefix)
        return false;
    size_t filter_words = (size_t)p->taps * (size_t)weights->words;
    for (size_t o = 0; o < outputs; o++) {
        lay_out_filter(p, &patch, o, weights->bits + o * filter_words);
        add_up_taps(p, weights->words, o, weights->bits + o * filter_words);
    }
    if (p->group_channels > XN_CPU_FEW_CHANNELS || p->filter > XN_CPU_FEW_FILTER)
        return true;
    p->order = xn_mem_zalloc(outputs * filter, sizeof *p->order);
    p->plus = xn_mem_zalloc(outputs, sizeof *p->plus);
    p->planes = (int32_t)xn_cpu_div_up(p->filter / p->kernel_h, XN_CPU_PATTERN_TAPS);
    p->tables = xn_mem_zalloc(outputs * (size_t)(p->kernel_h * p->planes), XN_CPU_TABLE_BYTES);
    p->above = xn_mem_zalloc(outputs * (size_t)((p->kernel_h + 1) * p->kernel_w), sizeof *p->above);
    if (!p->order || !p->plus || !p->tables || !p->above)
        return false;
    order_taps(p, weights->words, weights->bits);
    lay_out_tables(p, weights->words, weights->bits);
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
        p->weights = weights;
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
    xn_cpu_real_close(prepared);
    xn_mem_free(prepared->above);
    xn_mem_free(prepared->tables);
    xn_mem_free(prepared->plus);
    xn_mem_free(prepared->order);
    xn_mem_free(prepared->prefix);
    xn_mem_free(prepared->nibbles);
    xn_mem_free(prepared->bits);
    xn_mem_free(prepared);
}
