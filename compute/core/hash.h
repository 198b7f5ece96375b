/* hash.h: a fast 64-bit hash of bytes, to find candidates for equality; never used as proof of
 * it, and not meant to resist an adversary who wants collisions. */
#ifndef XN_HASH_H
#define XN_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t xn_hash_mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h;
}

/* Chains: hash of `size` bytes, continued from h. Four independent lanes keep the multiplier
 * busy. */
static inline uint64_t xn_hash_bytes(uint64_t h, const void *data, size_t size) {
    const unsigned char *at = data;
    uint64_t lanes[4] = {h, h + 1, h + 2, h + 3}, word;
    size_t left = size;
    for (; left >= 32; at += 32, left -= 32) {
        for (int i = 0; i < 4; i++) {
            memcpy(&word, at + 8 * i, 8);
            lanes[i] = (lanes[i] ^ word) * 0x9e3779b97f4a7c15u;
            lanes[i] ^= lanes[i] >> 29;
        }
    }
    for (; left > 0; at += word, left -= word) {
        uint64_t tail = 0;
        word = left < 8 ? left : 8;
        memcpy(&tail, at, (size_t)word);
        lanes[0] = xn_hash_mix(lanes[0] ^ tail) + 1;
    }
    h = size;
    for (int i = 0; i < 4; i++)
        h = xn_hash_mix(h + lanes[i]) * 0x9e3779b97f4a7c15u;
    return xn_hash_mix(h);
}

#endif
