/* keyed_hash.c: see keyed_hash.h. */
#include "keyed_hash.h"

#include "clock.h"

#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

__extension__ typedef unsigned __int128 u128;

#define PRIME ((UINT64_C(1) << 61) - 1)
#define BLOCK_BYTES (XN_HASH_BLOCK_WORDS * sizeof(uint64_t))
#define PAIR_BYTES (2 * sizeof(uint64_t))

/* Spreads what it is given over all bits (the finaliser of splitmix64). */
static uint64_t spread(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* At most 256 bytes at a time: those come whole, whatever signals do. */
static bool fill(unsigned char *at, size_t bytes) {
    enum { MOST = 256 };
    for (size_t now; bytes > 0; at += now, bytes -= now) {
        now = bytes < MOST ? bytes : MOST;
        if (getrandom(at, now, GRND_NONBLOCK) != (ssize_t)now)
            return false;
    }
    return true;
}

void xn_hash_key_make(xn_hash_key *out) {
    /* Without random numbers the hash still works; only its resistance to chosen messages is less.
     */
    if (!fill((unsigned char *)out, sizeof *out)) {
        uint64_t seed = (uint64_t)(uintptr_t)out ^ (uint64_t)xn_now_ns();
        for (int i = 0; i < XN_HASH_BLOCK_WORDS; i++)
            out->words[i] = seed = spread(seed);
        out->point = spread(seed);
    }
    out->point %= PRIME;
}

static uint64_t load(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static u128 pair(const unsigned char *at, const uint64_t *key) {
    return (u128)(load(at) + key[0]) * (load(at + sizeof(uint64_t)) + key[1]);
}

/* Up to a block; a last pair that is not full is filled up with zeros. */
static u128 block_sum(const xn_hash_key *key, const unsigned char *at, size_t bytes) {
    const uint64_t *k = key->words;
    u128 sum = 0;
    for (; bytes >= PAIR_BYTES; bytes -= PAIR_BYTES, at += PAIR_BYTES, k += 2)
        sum += pair(at, k);
    if (bytes) {
        unsigned char last[PAIR_BYTES] = {0};
        memcpy(last, at, bytes);
        sum += pair(last, k);
    }
    return sum;
}

/* value * point + coefficient modulo the prime. */
static uint64_t step(uint64_t value, uint64_t point, uint64_t coefficient) {
    const u128 product = (u128)value * point + coefficient;
    const uint64_t folded = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);
    return folded >= PRIME ? folded - PRIME : folded;
}

static uint64_t add_block(uint64_t value, uint64_t point, u128 sum) {
    enum { BITS = 43 }; /* three of them hold the sum, and each is below the prime */
    const uint64_t mask = (UINT64_C(1) << BITS) - 1;
    for (int i = 0; i < 3; i++, sum >>= BITS)
        value = step(value, point, (uint64_t)sum & mask);
    return value;
}

static uint64_t add_part(const xn_hash_key *key, uint64_t value, const xn_hash_part *part) {
    const unsigned char *at = part->data;
    value = step(value, key->point, part->bytes);
    for (size_t left = part->bytes; left > 0;) {
        const size_t now = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        value = add_block(value, key->point, block_sum(key, at, now));
        at += now;
        left -= now;
    }
    return value;
}

uint64_t xn_keyed_hash(const xn_hash_key *key, const xn_hash_part *parts, size_t count) {
    uint64_t value = 1;
    for (size_t i = 0; i < count; i++)
        value = add_part(key, value, &parts[i]);
    return spread(value);
}
