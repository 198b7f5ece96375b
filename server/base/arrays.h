/* arrays.h: arrays that grow, and tables of items in the order of their names. */
#ifndef XN_ARRAYS_H
#define XN_ARRAYS_H

#include <stdbool.h>
#include <stddef.h>

/* The array with room for one item more than `count`: items itself, or a larger copy of it in its
 * place (items is freed, *capacity follows; `first` is the first capacity). NULL without memory:
 * items stays as it is. */
void *xn_array_grow(void *items, size_t count, size_t *capacity, size_t item_bytes, size_t first);

/* Pointers to items in the order of their names (strcmp), found by binary search. An item is a
 * struct whose first member is its name, an array of char. Zeroed it is empty. The table owns
 * `items`, not what they point to. */
typedef struct xn_names {
    void **items;
    size_t count, capacity;
} xn_names;

/* Where the name is (true) or belongs (false). */
bool xn_names_find(const xn_names *names, const char *name, size_t *at);
void *xn_names_get(const xn_names *names, const char *name); /* NULL: there is none */
bool xn_names_reserve(xn_names *names); /* room for one more; false without memory */
/* Into the room reserved; no item has the name. */
void xn_names_insert(xn_names *names, void *item);
void xn_names_remove(xn_names *names, const void *item); /* which is in the table */
void xn_names_free(xn_names *names);

#endif
