/* bits.h: tensors of signs, in the layouts of xn_step.h: bytes and words. */
#ifndef XN_CPU_BITS_H
#define XN_CPU_BITS_H

#include "xn_step.h"

/* Word w (32 channels of a group) of n pixels from `pixel` on; bits past the group's channels are
 * 0. bits is the image's. */
void xn_cpu_bits_read(const xn_conv *conv, int32_t layout, const unsigned char *bits, int32_t group,
                      int32_t w, size_t pixel, int32_t n, uint32_t *words);
/* Writes word w of n pixels, with the bits of `flip` turned, as of one group of all channels; with
 * the last word the spare ones after it. bits is the first pixel's place. */
void xn_cpu_bits_write(int32_t layout, int32_t channels, int32_t w, const uint32_t *words,
                       uint32_t flip, int32_t n, unsigned char *bits);
/* Writes the lowest byte of n words, channels 8 * byte .. of as many pixels; with the last byte the
 * spare ones after it. */
void xn_cpu_bits_write_bytes(int32_t layout, int32_t channels, int32_t byte, const uint32_t *words,
                             int32_t n, unsigned char *bits);
/* Bytes from a pixel to the next, as they are written. */
size_t xn_cpu_bits_pitch(int32_t layout, int32_t channels);

#endif
