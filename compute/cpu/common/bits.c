/* bits.c: see bits.h. Bytes of a word are in the order of the machine, little-endian, as channels
 * are in the layout of bytes. */
#include "bits.h"

#include "index.h"
#include "xn_arith.h"

#include <string.h>

enum { WORD_CHANNELS = 32, WORD_BYTES = 4 };

size_t xn_cpu_bits_pitch(int32_t layout, int32_t channels) {
    return layout == XN_LAYOUT_WORDS ? (size_t)xn_packed_words(channels) * WORD_BYTES
                                     : (size_t)xn_bits_pixel_bytes(channels);
}

/* Of 5 bytes at most, the 32 bits from `bit` on. */
static uint32_t word_at(const unsigned char *from, int32_t bit, size_t bytes) {
    uint64_t five = 0;
    memcpy(&five, from, bytes);
    return (uint32_t)(five >> bit);
}

static void read_bytes(const xn_conv *conv, const unsigned char *bits, int32_t group, int32_t w,
                       size_t pixel, int32_t n, uint32_t *words) {
    const size_t pitch = (size_t)xn_bits_pixel_bytes(conv->channels);
    const int64_t first = (int64_t)group * conv->group_channels + (int64_t)w * WORD_CHANNELS;
    const int32_t count =
        (int32_t)xn_cpu_min(WORD_CHANNELS, conv->group_channels - (int64_t)w * WORD_CHANNELS);
    const int32_t bit = (int32_t)(first % 8);
    const size_t bytes = (size_t)xn_cpu_div_up(bit + count, 8);
    const uint32_t mask = UINT32_MAX >> (WORD_CHANNELS - count);
    const unsigned char *from = bits + pixel * pitch + (size_t)(first / 8);
    if (bit == 0 && count == WORD_CHANNELS)
        for (int32_t x = 0; x < n; x++, from += pitch)
            memcpy(&words[x], from, WORD_BYTES);
    else
        for (int32_t x = 0; x < n; x++, from += pitch)
            words[x] = word_at(from, bit, bytes) & mask;
}

void xn_cpu_bits_read(const xn_conv *conv, int32_t layout, const unsigned char *bits, int32_t group,
                      int32_t w, size_t pixel, int32_t n, uint32_t *words) {
    if (layout == XN_LAYOUT_BYTES) {
        read_bytes(conv, bits, group, w, pixel, n, words);
        return;
    }
    const size_t plane = (size_t)conv->height * (size_t)conv->width;
    const size_t step = (size_t)xn_packed_words(conv->group_channels);
    const uint32_t *from =
        (const uint32_t *)(const void *)bits + ((size_t)group * plane + pixel) * step + (size_t)w;
    for (int32_t x = 0; x < n; x++)
        words[x] = from[(size_t)x * step];
}

static void write_words(const uint32_t *words, uint32_t flip, int32_t n, size_t pitch,
                        unsigned char *to) {
    for (int32_t x = 0; x < n; x++, to += pitch) {
        const uint32_t word = words[x] ^ flip;
        memcpy(to, &word, WORD_BYTES);
    }
}

/* The last bytes of a pixel, fewer than a word's. */
static void write_bytes(const uint32_t *words, uint32_t flip, int32_t n, size_t pitch, size_t bytes,
                        unsigned char *to) {
    for (int32_t x = 0; x < n; x++, to += pitch)
        for (size_t i = 0; i < bytes; i++)
            to[i] = (unsigned char)((words[x] ^ flip) >> 8 * i);
}

void xn_cpu_bits_write(int32_t layout, int32_t channels, int32_t w, const uint32_t *words,
                       uint32_t flip, int32_t n, unsigned char *bits) {
    const size_t pitch = xn_cpu_bits_pitch(layout, channels), at = (size_t)w * WORD_BYTES;
    const bool last = (int64_t)(w + 1) * WORD_CHANNELS >= channels;
    if (last && pitch - at < WORD_BYTES)
        write_bytes(words, flip, n, pitch, pitch - at, bits + at);
    else
        write_words(words, flip, n, pitch, bits + at);
    for (int32_t x = 0; last && at + WORD_BYTES < pitch && x < n; x++) /* spare words */
        memset(bits + (size_t)x * pitch + at + WORD_BYTES, 0, pitch - at - WORD_BYTES);
}

void xn_cpu_bits_write_bytes(int32_t layout, int32_t channels, int32_t byte, const uint32_t *words,
                             int32_t n, unsigned char *bits) {
    const size_t pitch = xn_cpu_bits_pitch(layout, channels), at = (size_t)byte;
    const bool last = (int64_t)(byte + 1) * 8 >= channels;
    for (int32_t x = 0; x < n; x++)
        bits[(size_t)x * pitch + at] = (unsigned char)words[x];
    for (int32_t x = 0; last && at + 1 < pitch && x < n; x++) /* spare bytes */
        memset(bits + (size_t)x * pitch + at + 1, 0, pitch - at - 1);
}
