/* popularity.c: see popularity.h. */
#include "popularity.h"

#include "xn_mem.h"

enum { PROBES = 4, LINE = 64, PART = LINE / PROBES }; /* a key's counters share a line */

xn_status xn_popularity_init(xn_popularity *popularity, size_t counters, xn_error *error) {
    *popularity = (xn_popularity){
        .counters = xn_mem_zalloc(counters, 1), .mask = counters - 1, .period = counters / 4};
    if (!popularity->counters)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for %zu counters of popularity",
                       counters);
    return XN_OK;
}

void xn_popularity_clear(xn_popularity *popularity) {
    xn_mem_free(popularity->counters);
    popularity->counters = NULL;
}

/* One in each part of the line. */
static unsigned char *counter(const xn_popularity *popularity, uint64_t hash, int probe) {
    const size_t line = (size_t)(hash * LINE) & popularity->mask;
    return &popularity->counters[line + (size_t)(probe * PART) + (hash >> (44 + 4 * probe)) % PART];
}

unsigned xn_popularity_of(const xn_popularity *popularity, uint64_t hash) {
    unsigned least = XN_POPULARITY_MOST;
    for (int i = 0; i < PROBES; i++) {
        const unsigned count = *counter(popularity, hash, i);
        least = count < least ? count : least;
    }
    return least;
}

static void halve(xn_popularity *popularity) {
    for (size_t i = 0; i <= popularity->mask; i++)
        popularity->counters[i] /= 2;
    popularity->added = 0;
}

void xn_popularity_add(xn_popularity *popularity, uint64_t hash) {
    const unsigned count = xn_popularity_of(popularity, hash);
    for (int i = 0; i < PROBES && count < XN_POPULARITY_MOST; i++) {
        unsigned char *at = counter(popularity, hash, i);
        *at = *at == count ? (unsigned char)(count + 1) : *at;
    }
    if (++popularity->added >= popularity->period)
        halve(popularity);
}
