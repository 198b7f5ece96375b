/* table.h: an intrusive hash table with a fixed number of buckets. No function allocates. What is
 * put in is found by its hash; whether it is the one that is meant, the caller compares. */
#ifndef XN_TABLE_H
#define XN_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct xn_table_node {
    struct xn_table_node *next; /* in its bucket */
    uint64_t hash;
} xn_table_node;

typedef struct xn_table {
    xn_table_node **buckets; /* the caller's memory; zeroed: the table is empty */
    size_t mask;             /* their number less one */
} xn_table;

/* A number of buckets: `wanted` rounded up to a power of two, within powers of two. */
static inline size_t xn_table_size(size_t wanted, size_t least, size_t most) {
    size_t size = least;
    while (size < wanted && size < most)
        size *= 2;
    return size;
}

/* A hash of a number or an address. */
static inline uint64_t xn_table_mix(uint64_t value) {
    value = (value ^ value >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return value ^ value >> 29;
}

static inline void xn_table_add(const xn_table *table, xn_table_node *node, uint64_t hash) {
    xn_table_node **bucket = &table->buckets[hash & table->mask];
    *node = (xn_table_node){*bucket, hash};
    *bucket = node;
}

static inline void xn_table_remove(const xn_table *table, const xn_table_node *node) {
    xn_table_node **at = &table->buckets[node->hash & table->mask];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
}

/* The first of that hash from the node on, which may be NULL. */
static inline xn_table_node *xn_table_from(xn_table_node *node, uint64_t hash) {
    while (node && node->hash != hash)
        node = node->next;
    return node;
}

static inline xn_table_node *xn_table_find(const xn_table *table, uint64_t hash) {
    return xn_table_from(table->buckets[hash & table->mask], hash);
}

static inline xn_table_node *xn_table_find_next(const xn_table_node *node) {
    return xn_table_from(node->next, node->hash);
}

#endif
