/* keyed_hash.h: a fast 64-bit hash whose collisions nobody can aim for without its key.
 *
 * Blocks of 1024 bytes go through NH, the sum of (m[2i] + k[2i]) * (m[2i+1] + k[2i+1]) over 64-bit
 * words m with 128 key words k; the sums are the coefficients of a polynomial modulo 2^61 - 1,
 * evaluated at a secret point (the construction of UMAC and VMAC, Krovetz, RFC 4418). For any two
 * different messages of up to L bytes, chosen without the key, the chance of equal hashes is below
 * 2^-64 + (3 L / 1024 + 8) / 2^61. */
#ifndef XN_KEYED_HASH_H
#define XN_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { XN_HASH_BLOCK_WORDS = 128 };

typedef struct xn_hash_key {
    uint64_t words[XN_HASH_BLOCK_WORDS];
    uint64_t point; /* of the polynomial; < 2^61 - 1 */
} xn_hash_key;

/* From the system's random source. */
void xn_hash_key_make(xn_hash_key *out);

/* A part of a message. Parts are told apart: moving bytes from one to the next is another message.
 */
typedef struct xn_hash_part {
    const void *data;
    size_t bytes;
} xn_hash_part;

uint64_t xn_keyed_hash(const xn_hash_key *key, const xn_hash_part *parts, size_t count);

#endif
