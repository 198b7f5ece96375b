/* many_weights.c: weights as the path for many channels reads them (many.h). */
#include "many_job.h"
#include "xn_mem.h"

/* One filter from [tap][word] to the words of its patches, and their nibbles. */
static void lay_out_filter(const xn_prepared *p, xn_cpu_many_weights *w, const xn_cpu_patch *patch,
                           size_t o, const uint32_t *from) {
    size_t words = (size_t)patch->words;
    uint32_t *bits = w->bits + o * words;
    uint8_t *nibbles = w->nibbles + o * words * XN_CPU_WORD_NIBBLES;
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
static void add_up_taps(const xn_prepared *p, xn_cpu_many_weights *w, size_t o,
                        const uint32_t *from) {
    size_t pitch = (size_t)p->kernel_w + 1;
    int32_t *above = w->prefix + o * ((size_t)p->kernel_h + 1) * pitch;
    for (int32_t i = 0; i < p->kernel_h; i++, above += pitch) {
        int32_t row = 0;
        for (size_t j = 1; j < pitch; j++) {
            for (int32_t word = 0; word < p->weights->words; word++)
                row += __builtin_popcount(*from++);
            above[pitch + j] = above[j] + row;
        }
    }
}

static void free_weights(void *made) {
    xn_cpu_many_weights *w = made;
    if (!w)
        return;
    xn_mem_free(w->prefix);
    xn_mem_free(w->nibbles);
    xn_mem_free(w->bits);
    xn_mem_free(w);
}

static bool allocate(const xn_prepared *p, const xn_cpu_patch *patch, xn_cpu_many_weights *w) {
    const size_t outputs = (size_t)p->out_channels;
    size_t words, prefix;
    if (!xn_mul_size(outputs, (size_t)patch->words, &words) ||
        !xn_mul_size((size_t)p->kernel_h + 1, (size_t)p->kernel_w + 1, &prefix) ||
        !xn_mul_size(prefix, outputs, &prefix))
        return false;
    w->bits = xn_mem_zalloc(words + XN_CPU_COLUMN_WORDS, sizeof *w->bits);
    w->nibbles = xn_mem_zalloc(words, XN_CPU_WORD_NIBBLES);
    w->prefix = xn_mem_zalloc(prefix, sizeof *w->prefix);
    return w->bits && w->nibbles && w->prefix;
}

static void *make_weights(const xn_prepared *p, int variant) {
    const xn_cpu_patch patch = xn_cpu_patch_of(p->group_channels, p->kernel_h, p->kernel_w);
    const size_t filter_words = (size_t)p->taps * (size_t)p->weights->words;
    xn_cpu_many_weights *w = xn_mem_zalloc(1, sizeof *w);
    (void)variant;
    if (!w || !allocate(p, &patch, w)) {
        free_weights(w);
        return NULL;
    }
    for (size_t o = 0; o < (size_t)p->out_channels; o++) {
        lay_out_filter(p, w, &patch, o, p->weights->bits + o * filter_words);
        add_up_taps(p, w, o, p->weights->bits + o * filter_words);
    }
    return w;
}

const xn_cpu_form xn_cpu_many_form = {
    .slot = XN_CPU_FORM_MANY, .what = "the bits", .make = make_weights, .free = free_weights};
