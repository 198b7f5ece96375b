/* store_cache.c: inline weights recognised by their contents. An asset enters the table before its
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
    cache->buckets = xn_mem_zalloc(buckets, sizeof(xn_asset *));
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

static xn_asset *find_locked(const xn_cache *cache, uint64_t hash, const xn_content *content) {
    for (xn_asset *e = cache->buckets[hash & cache->bucket_mask]; e; e = e->chain)
        if (e->hash == hash && xn_content_equal(&e->content, content))
            return e;
    return NULL;
}

static void insert_locked(xn_cache *cache, xn_asset *asset) {
    xn_asset **bucket = &cache->buckets[asset->hash & cache->bucket_mask];
    asset->chain = *bucket;
    *bucket = asset;
}

static void remove_locked(xn_cache *cache, xn_asset *asset) {
    xn_asset **at = &cache->buckets[asset->hash & cache->bucket_mask];
    for (; *at != asset; at = &(*at)->chain)
        assert(*at); /* it is in its bucket */
    *at = asset->chain;
    asset->chain = NULL;
}

static void use_unlink_locked(xn_cache *cache, xn_asset *asset) {
    *(asset->newer ? &asset->newer->older : &cache->newest) = asset->older;
    *(asset->older ? &asset->older->newer : &cache->oldest) = asset->newer;
    asset->newer = asset->older = NULL;
}

static void use_newest_locked(xn_cache *cache, xn_asset *asset) {
    asset->newer = NULL;
    asset->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = asset;
    cache->newest = asset;
}

/* Takes the least recently used ones out until at most `keep_bytes` remain; returns them, linked
 * by chain, with the cache's references. */
static xn_asset *evict_locked(xn_store *store, size_t keep_bytes) {
    xn_cache *cache = &store->cache;
    xn_asset *evicted = NULL;
    while (cache->bytes > keep_bytes) {
        xn_asset *asset = cache->oldest;
        assert(asset); /* bytes is the sum over the order of use: there is one */
        use_unlink_locked(cache, asset);
        remove_locked(cache, asset);
        cache->bytes -= asset->cost;
        asset->cost = 0;
        asset->chain = evicted;
        evicted = asset;
    }
    xn_metrics_gauge_set(store->metrics, XN_GAUGE_WEIGHTS_CACHE_BYTES, (int64_t)cache->bytes);
    return evicted;
}

static void release_chain(xn_asset *asset) {
    while (asset) {
        xn_asset *next = asset->chain;
        asset->chain = NULL;
        xn_asset_release(asset);
        asset = next;
    }
}

void xn_store_trim(xn_store *store) {
    pthread_mutex_lock(&store->mutex);
    xn_asset *evicted = evict_locked(store, 0);
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

/* ---- making assets ---- */

/* What the request does not give comes from base. */
static xn_status pack(const xn_asset *base, const xn_tensor *weights, const xn_tensor *scale,
                      const xn_tensor *bias, xn_weights **out, xn_error *error) {
    if (!base)
        return xn_weights_create(weights, scale, bias, out, error);
    xn_tensor own[XN_CONTENT_PARTS];
    xn_content_values(base->weights, own);
    return xn_weights_create(&own[0], scale || !own[1].data ? scale : &own[1],
                             bias || !own[2].data ? bias : &own[2], out, error);
}

/* An asset that holds a copy of the contents but no weights yet. */
static xn_status create_asset(xn_store *store, const xn_content *content, uint64_t hash,
                              xn_asset **out, xn_error *error) {
    xn_asset *asset;
    xn_status status = xn_asset_create(store, 1, &asset, error);
    if (status != XN_OK)
        return status;
    status = xn_content_copy(content, &asset->content, &asset->memory, &asset->memory_bytes, error);
    if (status != XN_OK) {
        xn_asset_release(asset);
        return status;
    }
    asset->hash = hash;
    asset->making = true;
    *out = asset;
    return XN_OK;
}

static size_t cost_of(const xn_asset *asset) {
    return xn_asset_own_bytes(asset) + asset->memory_bytes + asset->weights->host_bytes;
}

/* The end of making: into the order of use, or out of the table when packing failed or the asset
 * is larger than the whole cache. Returns what leaves the cache. */
static xn_asset *made_locked(xn_store *store, xn_asset *asset, xn_weights *weights,
                             xn_status status, const xn_error *why) {
    xn_cache *cache = &store->cache;
    asset->making = false;
    asset->weights = weights;
    asset->failure = status;
    pthread_cond_broadcast(&cache->made);
    if (status != XN_OK)
        asset->error = *why;
    size_t cost = status == XN_OK ? cost_of(asset) : 0;
    if (status != XN_OK || cost > cache->limit_bytes) {
        remove_locked(cache, asset);
        return asset;
    }
    asset->cost = cost;
    cache->bytes += cost;
    use_newest_locked(cache, asset);
    return evict_locked(store, cache->limit_bytes);
}

/* The asset of these contents that is in the table, made: with a reference. NULL: there is none. */
static xn_asset *found_locked(xn_store *store, uint64_t hash, const xn_content *content) {
    xn_cache *cache = &store->cache;
    xn_asset *asset = find_locked(cache, hash, content);
    if (!asset)
        return NULL;
    xn_asset_retain(asset);
    while (asset->making)
        pthread_cond_wait(&cache->made, &store->mutex);
    if (asset->cost) { /* still in the order of use */
        use_unlink_locked(cache, asset);
        use_newest_locked(cache, asset);
    }
    xn_metrics_add(store->metrics, XN_COUNTER_CACHE_HITS, 1);
    return asset;
}

/* A found asset goes to the caller, unless its making failed. */
static xn_status hand_over(xn_asset *asset, xn_asset **out, xn_error *error) {
    xn_status status = asset->failure; /* no longer changes: the asset is made */
    if (status == XN_OK) {
        *out = asset;
        return XN_OK;
    }
    if (error)
        *error = asset->error;
    xn_asset_release(asset);
    return status;
}

xn_status xn_store_intern(xn_store *store, const xn_asset *base, const xn_tensor *weights,
                          const xn_tensor *scale, const xn_tensor *bias, xn_asset **out,
                          xn_error *error) {
    xn_content content = xn_content_of(base ? base->serial : 0, weights, scale, bias);
    uint64_t hash = xn_content_hash(&content, store->cache.seed);

    pthread_mutex_lock(&store->mutex);
    xn_asset *asset = found_locked(store, hash, &content);
    pthread_mutex_unlock(&store->mutex);
    if (asset)
        return hand_over(asset, out, error);

    xn_asset *fresh;
    xn_status status = create_asset(store, &content, hash, &fresh, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&store->mutex);
    asset = found_locked(store, hash, &content); /* another thread may have been faster */
    if (!asset) {
        insert_locked(&store->cache, fresh);
        xn_asset_retain(fresh);
        xn_metrics_add(store->metrics, XN_COUNTER_CACHE_MISSES, 1);
    }
    pthread_mutex_unlock(&store->mutex);
    if (asset) {
        xn_asset_release(fresh);
        return hand_over(asset, out, error);
    }

    xn_weights *packed = NULL;
    xn_error why;
    status = pack(base, weights, scale, bias, &packed, &why);
    pthread_mutex_lock(&store->mutex);
    xn_asset *leaving = made_locked(store, fresh, packed, status, &why);
    pthread_mutex_unlock(&store->mutex);
    release_chain(leaving);
    return hand_over(fresh, out, error);
}
