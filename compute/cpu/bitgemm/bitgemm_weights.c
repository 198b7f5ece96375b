/* bitgemm_weights.c: weights as the path bitgemm reads them (bitgemm.h). */
#include "bitgemm_job.h"
#include "xn_mem.h"

/* One filter from [tap][word] to the words of its patches. */
static void lay_out_filter(const xn_prepared *p, xn_cpu_bitgemm_weights *w,
                           const xn_cpu_patch *patch, size_t o, const uint32_t *from) {
    uint32_t *bits = w->own_bits + o * (size_t)patch->words;
    for (int32_t tap = 0; tap < p->taps; tap++) {
        int32_t shift = tap % patch->sharing * p->group_channels;
        uint32_t *to = bits + (size_t)(tap / patch->sharing) * (size_t)patch->tap_words;
        for (int32_t word = 0; word < patch->tap_words; word++)
            to[word] |= *from++ << shift;
    }
}

static void fill_nibbles(xn_cpu_bitgemm_weights *w, size_t words) {
    for (size_t n = 0; w->nibbles && n < words * XN_CPU_WORD_NIBBLES; n++)
        w->nibbles[n] =
            (uint8_t)((w->bits[n / XN_CPU_WORD_NIBBLES] >> 4 * (n % XN_CPU_WORD_NIBBLES) & 15)
                      << 4);
}

static void pair_words(xn_cpu_bitgemm_weights *w, int32_t filters) {
    const uint32_t *bits = w->bits;
    for (int32_t o = 0; w->pairs && o < filters; o++) {
        xn_cpu_pair *pair = (xn_cpu_pair *)xn_cpu_word_pairs_of(w, o);
        const int32_t f = o % XN_CPU_PAIR_FILTERS;
        uint32_t parity = 0;
        for (int32_t k = 0; k < w->words; k++, bits++) {
            parity ^= *bits;
            (k % 2 ? pair->odd : pair->even)[f] = parity;
            pair += k % 2;
        }
    }
}

/* prefix[i][j] of one filter. */
static void add_up_taps(const xn_prepared *p, xn_cpu_bitgemm_weights *w, size_t o,
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
    xn_cpu_bitgemm_weights *w = made;
    if (!w)
        return;
    xn_mem_free(w->prefix);
    xn_mem_free(w->pairs);
    xn_mem_free(w->nibbles);
    xn_mem_free(w->own_bits);
    xn_mem_free(w);
}

/* *words: of all filters. */
static bool allocate(const xn_prepared *p, xn_cpu_bitgemm_weights *w, const xn_cpu_patch *patch,
                     int layout, size_t *words) {
    const size_t outputs = (size_t)p->out_channels;
    const bool nibbles = layout == XN_CPU_BITGEMM_NIBBLES,
               by_pairs = layout == XN_CPU_BITGEMM_PAIRS;
    size_t prefix, pairs;
    if (!xn_mul_size(outputs, (size_t)w->words, words) ||
        !xn_mul_size(outputs / XN_CPU_PAIR_FILTERS + 1, xn_cpu_pairs(w->words), &pairs) ||
        !xn_mul_size((size_t)p->kernel_h + 1, (size_t)p->kernel_w + 1, &prefix) ||
        !xn_mul_size(prefix, outputs, &prefix))
        return false;
    if (patch->sharing > 1)
        w->own_bits = xn_mem_zalloc(*words, sizeof *w->own_bits);
    w->bits = patch->sharing > 1 ? w->own_bits : p->weights->bits;
    w->nibbles = nibbles ? xn_mem_zalloc(*words, XN_CPU_WORD_NIBBLES) : NULL;
    w->pairs = by_pairs ? xn_mem_zalloc(pairs, sizeof *w->pairs) : NULL;
    w->prefix = xn_mem_zalloc(prefix, sizeof *w->prefix);
    return w->bits && w->prefix && (w->nibbles || !nibbles) && (w->pairs || !by_pairs);
}

/* variant: xn_cpu_bitgemm_layout */
static void *make_weights(const xn_prepared *p, int variant) {
    const xn_cpu_patch patch = xn_cpu_patch_of(p->group_channels, p->kernel_h, p->kernel_w);
    const size_t filter_words = (size_t)p->taps * (size_t)p->weights->words;
    xn_cpu_bitgemm_weights *w = xn_mem_zalloc(1, sizeof *w);
    size_t words;
    if (w)
        w->words = patch.words;
    if (!w || !allocate(p, w, &patch, variant, &words)) {
        free_weights(w);
        return NULL;
    }
    for (size_t o = 0; o < (size_t)p->out_channels; o++) {
        if (w->own_bits)
            lay_out_filter(p, w, &patch, o, p->weights->bits + o * filter_words);
        add_up_taps(p, w, o, p->weights->bits + o * filter_words);
    }
    fill_nibbles(w, words);
    pair_words(w, p->out_channels);
    return w;
}

const xn_cpu_form xn_cpu_bitgemm_form = {
    .slot = XN_CPU_FORM_MANY, .what = "the bits", .make = make_weights, .free = free_weights};
