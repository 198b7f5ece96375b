/* hash_table.h: an intrusive hash table with a fixed number of buckets. No function allocates. What
 * is put in is found by its hash; whether it is the one that is meant, the caller compares. */
#ifndef XN_HASH_TABLE_H
#define XN_HASH_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct xn_hash_node {
    struct xn_hash_node *next; /* in its bucket */
    uint64_t hash;
} xn_hash_node;

typedef struct xn_hash_table {
    xn_hash_node **buckets; /* the caller's memory; zeroed: the table is empty */
    size_t mask;            /* their number less one */
} xn_hash_table;

/* A number of buckets: `wanted` rounded up to a power of two, within powers of two. */
static inline size_t xn_hash_size(size_t wanted, size_t least, size_t most) {
    size_t size = least;
    while (size < wanted && size < most)
        size *= 2;
    return size;
}

/* A hash of a number or an address. */
static inline uint64_t xn_hash_mix(uint64_t value) {
    value = (value ^ value >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return value ^ value >> 29;
}

static inline void xn_hash_add(const xn_hash_table *table, xn_hash_node *node, uint64_t hash) {
    xn_hash_node **bucket = &table->buckets[hash & table->mask];
    *node = (xn_hash_node){*bucket, hash};
    *bucket = node;
}

static inline void xn_hash_remove(const xn_hash_table *table, const xn_hash_node *node) {
    xn_hash_node **at = &table->buckets[node->hash & table->mask];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
}

/* The first of that hash from the node on, which may be NULL. */
static inline xn_hash_node *xn_hash_from(xn_hash_node *node, uint64_t hash) {
    while (node && node->hash != hash)
        node = node->next;
    return node;
}

static inline xn_hash_node *xn_hash_find(const xn_hash_table *table, uint64_t hash) {
    return xn_hash_from(table->buckets[hash & table->mask], hash);
}

static inline xn_hash_node *xn_hash_find_next(const xn_hash_node *node) {
    return xn_hash_from(node->next, node->hash);
}

#endif
