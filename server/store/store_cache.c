/* store_cache.c: inline weights recognised by their contents. An entry enters the table before its
 * weights are packed, so that threads with the same contents wait for one packing; it enters the
 * order of use, and counts for the bound, once it is made. */
#include "store_internal.h"

#include <assert.h>
#include <stddef.h>
#include <sys/random.h>

xn_status xn_cache_init(xn_cache *cache, int64_t limit_bytes, xn_error *error) {
    enum { MIN_BUCKETS = 64, MAX_BUCKETS = 1 << 16, BYTES_PER_BUCKET = 4096 };
    size_t buckets = MIN_BUCKETS;
    while (buckets < MAX_BUCKETS && (int64_t)buckets < limit_bytes / BYTES_PER_BUCKET)
        buckets *= 2;
    cache->buckets = xn_mem_zalloc(buckets, sizeof(xn_entry *));
    if (!cache->buckets)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a cache of %zu buckets",
                       buckets);
    cache->bucket_mask = buckets - 1;
    cache->limit_bytes = limit_bytes > 0 ? (size_t)limit_bytes : 0;
    /* Without randomness the table still works; only its resistance to chosen contents is less. */
    if (getrandom(&cache->seed, sizeof cache->seed, GRND_NONBLOCK) != sizeof cache->seed)
        cache->seed = (uint64_t)(uintptr_t)cache->buckets;
    return XN_OK;
}

/* ---- the table and the order of use; store->mutex is held ---- */

static xn_entry *find_locked(const xn_cache *cache, uint64_t hash, const xn_content *content) {
    for (xn_entry *e = cache->buckets[hash & cache->bucket_mask]; e; e = e->chain)
        if (e->hash == hash && xn_content_equal(&e->content, content))
            return e;
    return NULL;
}

static void insert_locked(xn_cache *cache, xn_entry *entry) {
    xn_entry **bucket = &cache->buckets[entry->hash & cache->bucket_mask];
    entry->chain = *bucket;
    *bucket = entry;
}

static void remove_locked(xn_cache *cache, xn_entry *entry) {
    xn_entry **at = &cache->buckets[entry->hash & cache->bucket_mask];
    for (; *at != entry; at = &(*at)->chain)
        assert(*at); /* it is in its bucket */
    *at = entry->chain;
    entry->chain = NULL;
}

static void use_unlink_locked(xn_cache *cache, xn_entry *entry) {
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
    entry->newer = entry->older = NULL;
}

static void use_newest_locked(xn_cache *cache, xn_entry *entry) {
    entry->newer = NULL;
    entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

/* Takes the least recently used ones out until at most `keep_bytes` remain; returns them, linked
 * by chain, with the cache's references. */
static xn_entry *evict_locked(xn_store *store, size_t keep_bytes) {
    xn_cache *cache = &store->cache;
    xn_entry *evicted = NULL;
    while (cache->bytes > keep_bytes) {
        xn_entry *entry = cache->oldest;
        assert(entry); /* bytes is the sum over the order of use: there is one */
        use_unlink_locked(cache, entry);
        remove_locked(cache, entry);
        cache->bytes -= entry->cost;
        entry->cost = 0;
        entry->chain = evicted;
        evicted = entry;
    }
    xn_metrics_gauge_set(store->metrics, XN_GAUGE_WEIGHTS_CACHE_BYTES, (int64_t)cache->bytes);
    return evicted;
}

static void release_chain(xn_entry *entry) {
    while (entry) {
        xn_entry *next = entry->chain;
        entry->chain = NULL;
        xn_entry_release(entry);
        entry = next;
    }
}

void xn_store_trim(xn_store *store) {
    pthread_mutex_lock(&store->mutex);
    xn_entry *evicted = evict_locked(store, 0);
    pthread_mutex_unlock(&store->mutex);
    release_chain(evicted);
}

void xn_cache_clear(xn_cache *cache) {
    if (cache->buckets)
        for (size_t i = 0; i <= cache->bucket_mask; i++)
            release_chain(cache->buckets[i]);
    xn_mem_free(cache->buckets);
    cache->buckets = NULL;
}

/* ---- making entries ---- */

/* What the request does not give comes from base. */
static xn_status pack(const xn_entry *base, const xn_tensor *weights, const xn_tensor *scale,
                      const xn_tensor *bias, xn_weights **out, xn_error *error) {
    if (!base)
        return xn_weights_create(weights, scale, bias, out, error);
    xn_tensor own[XN_CONTENT_PARTS];
    xn_content_values(base->weights, own);
    return xn_weights_create(&own[0], scale || !own[1].data ? scale : &own[1],
                             bias || !own[2].data ? bias : &own[2], out, error);
}

/* An entry that holds a copy of the contents but no weights yet. */
static xn_status create_entry(xn_store *store, const xn_content *content, uint64_t hash,
                              xn_entry **out, xn_error *error) {
    xn_entry *entry;
    xn_status status = xn_entry_create(store, &entry, error);
    if (status != XN_OK)
        return status;
    status = xn_content_copy(content, &entry->content, &entry->memory, &entry->memory_bytes, error);
    if (status != XN_OK) {
        xn_entry_release(entry);
        return status;
    }
    entry->hash = hash;
    entry->making = true;
    *out = entry;
    return XN_OK;
}

static size_t cost_of(const xn_entry *entry) {
    size_t own = sizeof *entry + (size_t)entry->store->device_count * sizeof(xn_entry_slot);
    return own + entry->memory_bytes + entry->weights->host_bytes;
}

/* The end of making: into the order of use, or out of the table when packing failed or the entry
 * is larger than the whole cache. Returns what leaves the cache. */
static xn_entry *made_locked(xn_store *store, xn_entry *entry, xn_weights *weights,
                             xn_status status, const xn_error *why) {
    xn_cache *cache = &store->cache;
    entry->making = false;
    entry->weights = weights;
    entry->failure = status;
    pthread_cond_broadcast(&cache->made);
    if (status != XN_OK)
        entry->error = *why;
    size_t cost = status == XN_OK ? cost_of(entry) : 0;
    if (status != XN_OK || cost > cache->limit_bytes) {
        remove_locked(cache, entry);
        return entry;
    }
    entry->cost = cost;
    cache->bytes += cost;
    use_newest_locked(cache, entry);
    return evict_locked(store, cache->limit_bytes);
}

/* The entry of these contents that is in the table, made: with a reference. NULL: there is none. */
static xn_entry *found_locked(xn_store *store, uint64_t hash, const xn_content *content) {
    xn_cache *cache = &store->cache;
    xn_entry *entry = find_locked(cache, hash, content);
    if (!entry)
        return NULL;
    xn_entry_retain(entry);
    while (entry->making)
        pthread_cond_wait(&cache->made, &store->mutex);
    if (entry->cost) { /* still in the order of use */
        use_unlink_locked(cache, entry);
        use_newest_locked(cache, entry);
    }
    xn_metrics_add(store->metrics, XN_COUNTER_CACHE_HITS, 1);
    return entry;
}

/* A found entry goes to the caller, unless its making failed. */
static xn_status hand_over(xn_entry *entry, xn_entry **out, xn_error *error) {
    xn_status status = entry->failure; /* no longer changes: the entry is made */
    if (status == XN_OK) {
        *out = entry;
        return XN_OK;
    }
    if (error)
        *error = entry->error;
    xn_entry_release(entry);
    return status;
}

xn_status xn_store_intern(xn_store *store, const xn_entry *base, const xn_tensor *weights,
                          const xn_tensor *scale, const xn_tensor *bias, xn_entry **out,
                          xn_error *error) {
    xn_content content = xn_content_of(base ? base->serial : 0, weights, scale, bias);
    uint64_t hash = xn_content_hash(&content, store->cache.seed);

    pthread_mutex_lock(&store->mutex);
    xn_entry *entry = found_locked(store, hash, &content);
    pthread_mutex_unlock(&store->mutex);
    if (entry)
        return hand_over(entry, out, error);

    xn_entry *fresh;
    xn_status status = create_entry(store, &content, hash, &fresh, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&store->mutex);
    entry = found_locked(store, hash, &content); /* another thread may have been faster */
    if (!entry) {
        insert_locked(&store->cache, fresh);
        xn_entry_retain(fresh);
        xn_metrics_add(store->metrics, XN_COUNTER_CACHE_MISSES, 1);
    }
    pthread_mutex_unlock(&store->mutex);
    if (entry) {
        xn_entry_release(fresh);
        return hand_over(entry, out, error);
    }

    xn_weights *packed = NULL;
    xn_error why;
    status = pack(base, weights, scale, bias, &packed, &why);
    pthread_mutex_lock(&store->mutex);
    xn_entry *leaving = made_locked(store, fresh, packed, status, &why);
    pthread_mutex_unlock(&store->mutex);
    release_chain(leaving);
    return hand_over(fresh, out, error);
}
