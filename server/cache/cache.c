/* cache.c: see cache.h. A table with chains, a list in the order of use, a list a namespace. */
#include "cache.h"

#include "hash_table.h"
#include "xn_mem.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#define BLOCK_BYTES ((size_t)144)       /* what an aligned block of glibc takes beside its bytes */
#define BYTES_PER_BUCKET ((size_t)1024) /* of the limit */
#define BUCKETS_MIN ((size_t)64)
#define BUCKETS_MAX ((size_t)1 << 20)
#define BATCH 256 /* entries that leave each time that the mutex is held */

struct xn_cache_entry {
    xn_hash_node found; /* by hash.low */
    xn_list used;       /* in the order of use, or among those to be freed */
    xn_list owned;      /* in its namespace's list, or in none */
    xn_content_hash hash;
    size_t bytes; /* all that it counts for */
    int readers;
    bool gone;      /* out of the table: the last reader frees it */
    xn_content key; /* points behind the value */
    _Alignas(16) unsigned char value[];
};

struct xn_cache {
    xn_cache_options options; /* constant, like the next two lines */
    uint64_t seed;
    size_t own_bytes;
    xn_hash_table table;
    atomic_ullong generation; /* times that it was cleared */

    pthread_mutex_t mutex; /* guards all below, entries and namespaces */
    xn_list used;          /* the most recently used first */
    size_t bytes;
    xn_hash_node *buckets[];
};

/* ---- contents ---- */

xn_content_hash xn_content_hash_of(const xn_content *content, uint64_t seed) {
    XXH128_hash_t parts[XN_CONTENT_PARTS_MAX] = {{0}};
    for (size_t i = 0; i < content->count; i++)
        parts[i] = XXH3_128bits_withSeed(content->parts[i].data, content->parts[i].bytes, seed);
    const XXH128_hash_t all = XXH3_128bits_withSeed(parts, content->count * sizeof *parts, seed);
    return (xn_content_hash){all.low64, all.high64};
}

static bool part_equal(const xn_content_part *a, const xn_content_part *b) {
    return a->bytes == b->bytes && (a->bytes == 0 || !memcmp(a->data, b->data, a->bytes));
}

bool xn_content_equal(const xn_content *a, const xn_content *b) {
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!part_equal(&a->parts[i], &b->parts[i]))
            return false;
    return true;
}

/* The parts lie in memory together, so the sum does not overflow. */
size_t xn_content_bytes(const xn_content *content) {
    size_t bytes = 0;
    for (size_t i = 0; i < content->count; i++)
        bytes += content->parts[i].bytes;
    return bytes;
}

xn_content xn_content_copy(const xn_content *content, void *memory) {
    unsigned char *at = memory;
    xn_content copy = *content;
    for (size_t i = 0; i < content->count; i++) {
        xn_content_part *part = &copy.parts[i];
        if (part->bytes)
            memcpy(at, part->data, part->bytes);
        part->data = at;
        at += part->bytes;
    }
    return copy;
}

/* ---- life ---- */

xn_status xn_cache_create(const xn_cache_options *options, xn_cache **out, xn_error *error) {
    const size_t buckets =
        xn_hash_size(options->limit_bytes / BYTES_PER_BUCKET, BUCKETS_MIN, BUCKETS_MAX);
    const size_t bytes = sizeof(xn_cache) + buckets * sizeof(xn_hash_node *);
    xn_cache *cache = xn_mem_map(bytes); /* pages of the table come when they are used */
    if (!cache)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a cache of %zu bytes",
                       options->limit_bytes);
    pthread_mutex_init(&cache->mutex, NULL);
    xn_list_init(&cache->used);
    cache->options = *options;
    if (!options->hash)
        cache->options.hash = xn_content_hash_of;
    const size_t room = bytes < options->limit_bytes ? options->limit_bytes - bytes : 0;
    if (options->entry_bytes_max > room)
        cache->options.entry_bytes_max = room; /* one that is larger must not empty the cache */
    cache->own_bytes = cache->bytes = bytes;
    cache->table = (xn_hash_table){cache->buckets, buckets - 1};
    /* Without random numbers collisions can be aimed at, which costs hits and nothing else. */
    if (getrandom(&cache->seed, sizeof cache->seed, GRND_NONBLOCK) != sizeof cache->seed)
        cache->seed = (uint64_t)(uintptr_t)cache;
    xn_metrics_gauge_set(options->metrics, options->bytes, (int64_t)bytes);
    *out = cache;
    return XN_OK;
}

void xn_cache_free(xn_cache *cache) {
    if (!cache)
        return;
    xn_cache_clear(cache);
    pthread_mutex_destroy(&cache->mutex);
    xn_mem_unmap(cache, cache->own_bytes);
}

/* ---- entries ---- */

static size_t charge(const xn_content *key, size_t value_bytes) {
    return sizeof(xn_cache_entry) + BLOCK_BYTES + value_bytes + xn_content_bytes(key);
}

bool xn_cache_fits(const xn_cache *cache, const xn_content *key, size_t value_bytes) {
    return charge(key, value_bytes) <= cache->options.entry_bytes_max;
}

static xn_cache_entry *make_entry(const xn_content *key, const xn_content *value) {
    const size_t value_bytes = xn_content_bytes(value);
    xn_cache_entry *e = xn_mem_alloc(sizeof *e + value_bytes + xn_content_bytes(key));
    if (!e)
        return NULL;
    *e = (xn_cache_entry){.key = xn_content_copy(key, e->value + value_bytes)};
    xn_content_copy(value, e->value);
    return e;
}

/* Those that remove_locked or the last reader put there. */
static void free_all(const xn_cache *cache, xn_list *freed) {
    while (!xn_list_is_empty(freed)) {
        xn_cache_entry *e = XN_ITEM(freed->next, xn_cache_entry, used);
        xn_list_remove(&e->used);
        if (cache->options.drop)
            cache->options.drop(e->value);
        xn_mem_free(e);
    }
}

/* ---- table and lists ---- */

static xn_cache_entry *lookup_locked(const xn_cache *cache, const xn_content_hash *hash) {
    xn_hash_node *at = xn_hash_find(&cache->table, hash->low);
    while (at && XN_ITEM(at, xn_cache_entry, found)->hash.high != hash->high)
        at = xn_hash_find_next(at);
    return at ? XN_ITEM(at, xn_cache_entry, found) : NULL;
}

static void add_bytes_locked(xn_cache *cache, size_t add, size_t remove) {
    cache->bytes += add - remove;
    xn_metrics_gauge_set(cache->options.metrics, cache->options.bytes, (int64_t)cache->bytes);
}

static void count_locked(const xn_cache *cache, int entries, int evictions) {
    if (!cache->options.counts_entries)
        return;
    xn_metrics_gauge_add(cache->options.metrics, cache->options.entries, entries);
    xn_metrics_add(cache->options.metrics, cache->options.evictions, evictions);
}

/* An entry that is out of the table and has no readers. */
static void let_go_locked(xn_cache *cache, xn_cache_entry *e, xn_list *freed) {
    add_bytes_locked(cache, 0, e->bytes);
    xn_list_add_first(freed, &e->used);
}

static void remove_locked(xn_cache *cache, xn_cache_entry *e, xn_list *freed) {
    xn_hash_remove(&cache->table, &e->found);
    xn_list_remove(&e->used);
    xn_list_remove(&e->owned);
    e->gone = true;
    if (!e->readers)
        let_go_locked(cache, e, freed);
}

/* ---- looking up ---- */

xn_cache_entry *xn_cache_find(xn_cache *cache, const xn_content *key, xn_cache_ticket *ticket) {
    ticket->generation = atomic_load(&cache->generation);
    ticket->hash = cache->options.hash(key, cache->seed);
    pthread_mutex_lock(&cache->mutex);
    xn_cache_entry *e = lookup_locked(cache, &ticket->hash);
    if (e) {
        e->readers++;
        xn_list_remove(&e->used);
        xn_list_add_first(&cache->used, &e->used);
    }
    pthread_mutex_unlock(&cache->mutex);
    if (!e || xn_content_equal(&e->key, key))
        return e;
    xn_cache_release(cache, e);
    return NULL;
}

void *xn_cache_value(xn_cache_entry *entry) {
    return entry->value;
}

void xn_cache_release(xn_cache *cache, xn_cache_entry *entry) {
    xn_list freed;
    xn_list_init(&freed);
    pthread_mutex_lock(&cache->mutex);
    if (--entry->readers == 0 && entry->gone)
        let_go_locked(cache, entry, &freed);
    pthread_mutex_unlock(&cache->mutex);
    free_all(cache, &freed);
}

/* ---- inserting and removing ---- */

static bool is_welcome_locked(xn_cache *cache, const xn_cache_ticket *ticket,
                              const xn_cache_namespace *space) {
    return ticket->generation == atomic_load(&cache->generation) &&
           !(space && atomic_load(&space->retired)) && !lookup_locked(cache, &ticket->hash);
}

/* The oldest entry of the namespace, or of all; NULL: there is none. */
static xn_cache_entry *oldest_locked(const xn_cache *cache, const xn_cache_namespace *space) {
    const xn_list *list = space ? &space->entries : &cache->used;
    if (xn_list_is_empty(list))
        return NULL;
    return space ? XN_ITEM(list->previous, xn_cache_entry, owned)
                 : XN_ITEM(list->previous, xn_cache_entry, used);
}

/* Counts that many bytes more, if there is room. */
static bool reserve_locked(xn_cache *cache, size_t bytes) {
    const size_t limit = cache->options.limit_bytes;
    if (limit < cache->bytes || bytes > limit - cache->bytes)
        return false;
    add_bytes_locked(cache, bytes, 0);
    return true;
}

/* Lets the oldest entries go, of the namespace or of all, until that many bytes could be reserved.
 */
static bool reserve(xn_cache *cache, const xn_cache_namespace *space, size_t bytes) {
    xn_cache_entry *e = NULL;
    bool room;
    do {
        xn_list freed;
        int removed = 0;
        xn_list_init(&freed);
        pthread_mutex_lock(&cache->mutex);
        while (!(room = reserve_locked(cache, bytes)) && removed < BATCH &&
               (e = oldest_locked(cache, space))) {
            remove_locked(cache, e, &freed);
            removed++;
        }
        count_locked(cache, -removed, space ? 0 : removed);
        pthread_mutex_unlock(&cache->mutex);
        free_all(cache, &freed);
    } while (!room && e);
    return room;
}

static void insert_locked(xn_cache *cache, xn_cache_entry *e, xn_cache_namespace *space) {
    xn_hash_add(&cache->table, &e->found, e->hash.low);
    xn_list_add_first(&cache->used, &e->used);
    xn_list_init(&e->owned);
    if (space)
        xn_list_add_first(&space->entries, &e->owned);
    count_locked(cache, 1, 0);
}

bool xn_cache_insert(xn_cache *cache, const xn_content *key, const xn_cache_ticket *ticket,
                     const xn_content *value, size_t more_bytes, xn_cache_namespace *space) {
    const size_t bytes = charge(key, xn_content_bytes(value) + more_bytes);
    pthread_mutex_lock(&cache->mutex);
    bool kept = is_welcome_locked(cache, ticket, space); /* before others leave for it */
    pthread_mutex_unlock(&cache->mutex);
    if (!kept || bytes > cache->options.entry_bytes_max || !reserve(cache, NULL, bytes))
        return false;
    xn_cache_entry *e = make_entry(key, value);
    pthread_mutex_lock(&cache->mutex);
    kept = e && is_welcome_locked(cache, ticket, space);
    if (kept) {
        e->hash = ticket->hash;
        e->bytes = bytes;
        insert_locked(cache, e, space);
    } else {
        add_bytes_locked(cache, 0, bytes);
    }
    pthread_mutex_unlock(&cache->mutex);
    if (!kept)
        xn_mem_free(e);
    return kept;
}

void xn_cache_grow(xn_cache *cache, const xn_content_hash *hash, const xn_content *value,
                   size_t bytes) {
    pthread_mutex_lock(&cache->mutex);
    xn_cache_entry *e = lookup_locked(cache, hash);
    if (e && !memcmp(e->value, value->parts[0].data, value->parts[0].bytes)) {
        e->bytes += bytes;
        add_bytes_locked(cache, bytes, 0);
    }
    pthread_mutex_unlock(&cache->mutex);
}

void xn_cache_namespace_init(xn_cache_namespace *space, xn_cache *cache) {
    *space = (xn_cache_namespace){.cache = cache};
    xn_list_init(&space->entries);
}

void xn_cache_namespace_retire(xn_cache_namespace *space) {
    if (!space->cache)
        return;
    atomic_store(&space->retired, true);
    reserve(space->cache, space, SIZE_MAX); /* for which all of its entries go */
}

void xn_cache_clear(xn_cache *cache) {
    atomic_fetch_add(&cache->generation, 1);
    reserve(cache, NULL, SIZE_MAX); /* for which all entries go */
}
