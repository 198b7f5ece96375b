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

bool xn_names_find(const void *items, size_t count, xn_name_of_item *name_of, const char *name,
                   size_t *at) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name_of(items, middle), name);
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
