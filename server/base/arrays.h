/* arrays.h: arrays that grow, and arrays in the order of names. */
#ifndef XN_ARRAYS_H
#define XN_ARRAYS_H

#include <stdbool.h>
#include <stddef.h>

/* The array with room for one item more than `count`: items itself, or a larger copy of it in its
 * place (items is freed, *capacity follows; `first` is the first capacity). NULL without memory:
 * items stays as it is. */
void *xn_array_grow(void *items, size_t count, size_t *capacity, size_t item_bytes, size_t first);

/* Where the name is (true) or belongs (false) in an array in the order of names (strcmp). */
typedef const char *xn_name_of_item(const void *items, size_t index);
bool xn_names_find(const void *items, size_t count, xn_name_of_item *name_of, const char *name,
                   size_t *at);

#endif
