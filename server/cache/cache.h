/* cache.h: a cache by content. What was made of some bytes is found again by the same bytes: the
 * daemon's answers by their inputs (answers.c), the assets of inline weights by their tensors
 * (store_cache.c).
 *
 * XXH3-128 of a key, with a random seed, finds the one entry that can be equal. Then the bytes are
 * compared, because XXH3 is no cryptographic hash and a hit must never be the value of another
 * content: without the lock, on an entry that the reader holds. Of two contents with one hash the
 * second is not kept.
 *
 * Exact LRU: the least recently used entries are evicted for a new one. Everything counts against
 * the limit: keys, values, the entries themselves, the table, and evicted entries that are still
 * held.
 *
 * Thread-safe. The mutex is a leaf. Nothing is allocated, hashed, compared or freed under it, and
 * it is held for a few hundred entries at most. */
#ifndef XN_CACHE_H
#define XN_CACHE_H

#include "list.h"
#include "metrics.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- contents: bytes in parts, hashed, compared and copied without being put together first.
 * Parts are told apart: a byte that moves from one to the next makes another content. ---- */

enum { XN_CONTENT_PARTS_MAX = 4 };

typedef struct xn_content_part {
    const void *data; /* borrowed */
    size_t bytes;
} xn_content_part;

typedef struct xn_content {
    xn_content_part parts[XN_CONTENT_PARTS_MAX];
    size_t count;
} xn_content;

typedef struct xn_content_hash {
    uint64_t low, high;
} xn_content_hash;

/* XXH3-128. It finds candidates: a client that knows the seed can make collisions. */
xn_content_hash xn_content_hash_of(const xn_content *content, uint64_t seed);
bool xn_content_equal(const xn_content *a, const xn_content *b);
size_t xn_content_bytes(const xn_content *content);
/* The parts one behind the other into memory of that many bytes. Returns the content of the copy,
 * which points there. */
xn_content xn_content_copy(const xn_content *content, void *memory);

/* ---- the cache ---- */

typedef struct xn_cache xn_cache;
typedef struct xn_cache_entry xn_cache_entry;

typedef xn_content_hash xn_content_hash_fn(const xn_content *content, uint64_t seed);

typedef struct xn_cache_options {
    size_t limit_bytes;        /* > 0 */
    size_t entry_bytes_max;    /* a larger entry is not kept */
    void (*drop)(void *value); /* called without the lock for each value that left; or NULL */
    xn_content_hash_fn *hash;  /* instead of xn_content_hash_of, for tests; or NULL */
    xn_metrics *metrics;       /* borrowed */
    xn_gauge bytes;
    bool counts_entries; /* else the two below do not matter */
    xn_gauge entries;
    xn_counter evictions;
} xn_cache_options;

xn_status xn_cache_create(const xn_cache_options *options, xn_cache **out, xn_error *error);
void xn_cache_free(xn_cache *cache); /* NULL-safe; no other thread uses it any more */

/* A namespace: entries that are removed together. The caller's memory; retire it before freeing it.
 */
typedef struct xn_cache_namespace {
    xn_cache *cache;     /* constant; NULL: it has no entries */
    xn_list entries;     /* the cache's mutex guards it */
    atomic_bool retired; /* no more entries are inserted */
} xn_cache_namespace;

void xn_cache_namespace_init(xn_cache_namespace *space, xn_cache *cache);
/* Removes its entries and refuses new ones. Idempotent. */
void xn_cache_namespace_retire(xn_cache_namespace *space);

/* From a lookup to the insertion of what it did not find. */
typedef struct xn_cache_ticket {
    xn_content_hash hash;
    uint64_t generation;
} xn_cache_ticket;

/* Whether a value of that size may be kept under the key at all. */
bool xn_cache_fits(const xn_cache *cache, const xn_content *key, size_t value_bytes);
/* The entry of the key, held until it is released, and the most recently used now; or NULL. */
xn_cache_entry *xn_cache_find(xn_cache *cache, const xn_content *key, xn_cache_ticket *ticket);
/* The value as it was inserted, one part behind the other; its address is a multiple of 16. */
void *xn_cache_value(xn_cache_entry *entry);
void xn_cache_release(xn_cache *cache, xn_cache_entry *entry);

/* Inserts copies of key and value. False where the hash has an entry already, the namespace is
 * retired, the cache was cleared since the lookup, or there is no memory. more_bytes: what the
 * value counts for beside its own bytes. space: may be NULL. */
bool xn_cache_insert(xn_cache *cache, const xn_content *key, const xn_cache_ticket *ticket,
                     const xn_content *value, size_t more_bytes, xn_cache_namespace *space);

/* Adds to the bytes that the value counts for, if it is the one under that hash. If that exceeds
 * the limit, the next insertion evicts entries. */
void xn_cache_grow(xn_cache *cache, const xn_content_hash *hash, const xn_content *value,
                   size_t bytes);

/* Removes all entries. Values whose lookup came before are not inserted any more. */
void xn_cache_clear(xn_cache *cache);

#endif
