/* arrays.c: see arrays.h. */
#include "arrays.h"

#include "xn_mem.h"

#include <string.h>

void *xn_array_grow(void *items, size_t count, size_t *capacity, size_t item_bytes, size_t first) {
    if (count < *capacity)
        return items;
    size_t larger = *capacity ? *capacity * 2 : first;
    void *grown = xn_mem_zalloc(larger, item_bytes);
    if (!grown)
        return NULL;
    if (count)
        memcpy(grown, items, count * item_bytes);
    xn_mem_free(items);
    *capacity = larger;
    return grown;
}

bool xn_names_find(const xn_names *names, const char *name, size_t *at) {
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(names->items[middle], name);
        if (order == 0) {
            *at = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low;
    return false;
}

void *xn_names_get(const xn_names *names, const char *name) {
    size_t at;
    return xn_names_find(names, name, &at) ? names->items[at] : NULL;
}

bool xn_names_reserve(xn_names *names) {
    enum { FIRST_CAPACITY = 16 };
    void **items =
        xn_array_grow(names->items, names->count, &names->capacity, sizeof *items, FIRST_CAPACITY);
    if (items)
        names->items = items;
    return items != NULL;
}

void xn_names_insert(xn_names *names, void *item) {
    size_t at;
    xn_names_find(names, item, &at);
    memmove(&names->items[at + 1], &names->items[at], (names->count - at) * sizeof *names->items);
    names->items[at] = item;
    names->count++;
}

void xn_names_remove(xn_names *names, const void *item) {
    size_t at;
    if (!xn_names_find(names, item, &at))
        return;
    names->count--;
    memmove(&names->items[at], &names->items[at + 1], (names->count - at) * sizeof *names->items);
}

void xn_names_free(xn_names *names) {
    xn_mem_free(names->items);
    *names = (xn_names){0};
}
