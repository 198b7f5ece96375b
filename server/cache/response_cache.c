/* response_cache.c: see response_cache.h. A table with chains, a list in the order of use, a list
 * an owner. Comparing and copying bytes happens outside of the lock, on entries with a reader. */
#include "response_cache.h"

#include "popularity.h"
#include "xn_mem.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define SHARE 8                         /* one output takes at most the limit over this */
#define BYTES_PER_BUCKET ((size_t)1024) /* of the limit */
#define COUNTERS_PER_BUCKET 8           /* of popularity */
#define MIN_BUCKETS ((size_t)512)
#define MAX_BUCKETS ((size_t)1 << 20)
#define MAX_VICTIMS 256 /* looked at for one output: bounds the time under the lock */
/* What a hit takes, about: of its bytes most are read twice, the others copied. And what a run
 * takes besides computing. */
#define HIT_NS 500
#define HIT_BYTES_PER_NS 8
#define RUN_NS 5000

typedef struct xn_cached_response {
    struct xn_cached_response *chain; /* in its bucket, or in a list of those to be freed */
    struct xn_cached_response *newer, *older;
    struct xn_cached_response *owner_next, *owner_previous;
    uint64_t hash;
    xn_response_owner *owner; /* not followed once out of the table */
    double work;              /* multiply-adds */
    size_t bytes;             /* all that it counts for */
    int readers;              /* outside of the lock */
    bool gone;                /* out of the table: the last reader frees it */
    /* The rest of the key, and what is kept with it. */
    int pool;
    uint64_t tenant;
    size_t input_bytes, output_bytes;
    xn_response_origin origin;
    xn_problem problem;
    _Alignas(XN_MEM_ALIGNMENT) unsigned char data[]; /* input, output */
} entry;

struct xn_response_cache {
    size_t limit_bytes;
    xn_hash_key key;
    xn_response_hash_fn *hash;
    xn_metrics *metrics;
    size_t bucket_mask;

    pthread_mutex_t mutex; /* guards all below, entries and owners */
    entry **buckets;
    entry *newest, *oldest;
    size_t bytes;
    uint64_t generation; /* times that it was cleared */
    xn_popularity popularity;
};

/* ---- creation ---- */

static size_t bucket_count(size_t limit_bytes) {
    size_t count = MIN_BUCKETS;
    while (count < MAX_BUCKETS && count < limit_bytes / BYTES_PER_BUCKET)
        count *= 2;
    return count;
}

xn_status xn_response_cache_create(size_t limit_bytes, xn_response_hash_fn *hash,
                                   xn_metrics *metrics, xn_response_cache **out, xn_error *error) {
    const size_t buckets = bucket_count(limit_bytes);
    xn_response_cache *cache = xn_mem_zalloc(1, sizeof *cache);
    if (!cache)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the cache of answers");
    pthread_mutex_init(&cache->mutex, NULL);
    cache->limit_bytes = limit_bytes;
    cache->hash = hash ? hash : xn_keyed_hash;
    cache->metrics = metrics;
    cache->bucket_mask = buckets - 1;
    cache->bytes = sizeof *cache + buckets * (sizeof *cache->buckets + COUNTERS_PER_BUCKET);
    xn_hash_key_make(&cache->key);
    xn_status status = xn_popularity_init(&cache->popularity, COUNTERS_PER_BUCKET * buckets, error);
    cache->buckets = xn_mem_zalloc(buckets, sizeof *cache->buckets);
    if (!status && !cache->buckets)
        status = xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the cache of answers");
    if (status) {
        xn_response_cache_free(cache);
        return status;
    }
    xn_metrics_gauge_set(metrics, XN_GAUGE_RESPONSE_CACHE_BYTES, (int64_t)cache->bytes);
    *out = cache;
    return XN_OK;
}

void xn_response_cache_free(xn_response_cache *cache) {
    if (!cache)
        return;
    xn_response_cache_clear(cache);
    xn_mem_free(cache->buckets);
    xn_popularity_clear(&cache->popularity);
    pthread_mutex_destroy(&cache->mutex);
    xn_mem_free(cache);
}

/* ---- table and lists; the mutex is held ---- */

static entry **bucket_of(const xn_response_cache *cache, uint64_t hash) {
    return &cache->buckets[hash & cache->bucket_mask];
}

/* All of the key but the input's bytes. */
static bool fits_key(const entry *e, const xn_response_key *key) {
    return e->owner == key->owner && e->tenant == key->tenant && e->pool == key->pool &&
           e->input_bytes == key->input_bytes && xn_problem_equal(&e->problem, key->problem);
}

static entry *find_locked(const xn_response_cache *cache, uint64_t hash,
                          const xn_response_key *key) {
    for (entry *e = *bucket_of(cache, hash); e; e = e->chain)
        if (e->hash == hash && fits_key(e, key))
            return e;
    return NULL;
}

/* Whether what was not found is still to be kept. */
static bool is_welcome_locked(const xn_response_cache *cache, const xn_response_key *key,
                              const xn_response_probe *probe) {
    return probe->generation == cache->generation && !key->owner->retired &&
           !find_locked(cache, probe->hash, key);
}

static void count_locked(xn_response_cache *cache, size_t add, size_t remove) {
    cache->bytes += add;
    cache->bytes -= remove;
    xn_metrics_gauge_set(cache->metrics, XN_GAUGE_RESPONSE_CACHE_BYTES, (int64_t)cache->bytes);
}

static void order_remove_locked(xn_response_cache *cache, entry *e) {
    *(e->newer ? &e->newer->older : &cache->newest) = e->older;
    *(e->older ? &e->older->newer : &cache->oldest) = e->newer;
}

static void order_newest_locked(xn_response_cache *cache, entry *e) {
    e->newer = NULL;
    e->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = e;
    cache->newest = e;
}

static void use_locked(xn_response_cache *cache, entry *e) {
    if (cache->newest == e)
        return;
    order_remove_locked(cache, e);
    order_newest_locked(cache, e);
}

static void owner_add_locked(entry *e) {
    e->owner_previous = NULL;
    e->owner_next = e->owner->first;
    if (e->owner_next)
        e->owner_next->owner_previous = e;
    e->owner->first = e;
}

static void owner_remove_locked(entry *e) {
    *(e->owner_previous ? &e->owner_previous->owner_next : &e->owner->first) = e->owner_next;
    if (e->owner_next)
        e->owner_next->owner_previous = e->owner_previous;
}

static void insert_locked(xn_response_cache *cache, entry *e) {
    entry **bucket = bucket_of(cache, e->hash);
    e->chain = *bucket;
    *bucket = e;
    order_newest_locked(cache, e);
    owner_add_locked(e);
    xn_metrics_gauge_add(cache->metrics, XN_GAUGE_RESPONSE_CACHE_ENTRIES, 1);
}

/* Nobody finds it any more. It goes onto the list of those to be freed, or its last reader frees
 * it. */
static void remove_locked(xn_response_cache *cache, entry *e, entry **freed) {
    entry **at = bucket_of(cache, e->hash);
    for (; *at != e; at = &(*at)->chain)
        assert(*at); /* it is in its bucket */
    *at = e->chain;
    order_remove_locked(cache, e);
    owner_remove_locked(e);
    xn_metrics_gauge_add(cache->metrics, XN_GAUGE_RESPONSE_CACHE_ENTRIES, -1);
    e->gone = true;
    if (e->readers)
        return;
    count_locked(cache, 0, e->bytes);
    e->chain = *freed;
    *freed = e;
}

static void free_list(entry *list) {
    while (list) {
        entry *next = list->chain;
        xn_mem_free(list);
        list = next;
    }
}

/* ---- looking up ---- */

static uint64_t hash_of(const xn_response_cache *cache, const xn_response_key *key) {
    const uint64_t who[] = {(uint64_t)(uintptr_t)key->owner, key->tenant, (uint64_t)key->pool,
                            key->problem->serial};
    const xn_hash_part parts[] = {{who, sizeof who},
                                  {&key->problem->conv, sizeof key->problem->conv},
                                  {key->input, key->input_bytes}};
    return cache->hash(&cache->key, parts, sizeof parts / sizeof *parts);
}

/* What an entry would take; false where that is more than one may. */
static bool measure(const xn_response_cache *cache, size_t input_bytes, size_t output_bytes,
                    size_t *bytes) {
    return xn_add_size(sizeof(entry), input_bytes, bytes) &&
           xn_add_size(*bytes, output_bytes, bytes) && *bytes <= cache->limit_bytes / SHARE;
}

/* The entry with a reader, or NULL. */
static entry *begin_reading(xn_response_cache *cache, const xn_response_key *key,
                            xn_response_probe *probe) {
    pthread_mutex_lock(&cache->mutex);
    probe->generation = cache->generation;
    xn_popularity_add(&cache->popularity, probe->hash);
    entry *e = find_locked(cache, probe->hash, key);
    if (e) {
        e->readers++;
        use_locked(cache, e);
    }
    pthread_mutex_unlock(&cache->mutex);
    return e;
}

static void end_reading(xn_response_cache *cache, entry *e) {
    pthread_mutex_lock(&cache->mutex);
    const bool last = --e->readers == 0 && e->gone;
    if (last)
        count_locked(cache, 0, e->bytes);
    pthread_mutex_unlock(&cache->mutex);
    if (last)
        xn_mem_free(e);
}

bool xn_response_cache_get(xn_response_cache *cache, const xn_response_key *key, void *output,
                           size_t output_bytes, xn_response_origin *origin,
                           xn_response_probe *probe) {
    size_t bytes;
    *probe = (xn_response_probe){.pool = key->pool};
    if (!measure(cache, key->input_bytes, output_bytes, &bytes)) {
        xn_metrics_add(cache->metrics, XN_COUNTER_RESPONSE_CACHE_BYPASSED, 1);
        return false;
    }
    probe->asked = true;
    probe->hash = hash_of(cache, key);
    entry *e = begin_reading(cache, key, probe);
    const bool hit = e && !memcmp(e->data, key->input, key->input_bytes);
    if (hit) {
        assert(e->output_bytes == output_bytes); /* problem and input say how many */
        memcpy(output, e->data + e->input_bytes, output_bytes);
        *origin = e->origin;
    }
    if (e)
        end_reading(cache, e);
    xn_metrics_add(cache->metrics,
                   hit ? XN_COUNTER_RESPONSE_CACHE_HITS : XN_COUNTER_RESPONSE_CACHE_MISSES, 1);
    return hit;
}

/* ---- keeping ---- */

/* The time that it saves, by what the owner's computations took lately, times how often it was
 * asked for again: nothing where it came once. */
static double worth_locked(const xn_response_cache *cache, uint64_t hash,
                           const xn_response_owner *owner, double work) {
    const unsigned asked = xn_popularity_of(&cache->popularity, hash);
    return asked > 1 ? (asked - 1) * work * owner->ns_per_work : 0;
}

/* Whether the oldest ones that would have to go for `bytes` more are worth less than value; how
 * many they are. No more are looked at than may go in one call: what needs more room than they
 * leave comes in another time. */
static bool weigh_locked(xn_response_cache *cache, size_t bytes, double value, int *victims) {
    size_t room = cache->limit_bytes - cache->bytes;
    double against = 0;
    *victims = 0;
    for (entry *e = cache->oldest; room < bytes && *victims < MAX_VICTIMS; e = e->newer) {
        if (!e)
            return false; /* the rest is gone and still being read */
        against += worth_locked(cache, e->hash, e->owner, e->work);
        if (e->readers || against >= value) {
            use_locked(cache, e);
            return false;
        }
        room += e->bytes;
        ++*victims;
    }
    return true;
}

/* Whether there is room for `bytes` more now, of that value. */
static bool make_room_locked(xn_response_cache *cache, size_t bytes, double value, entry **freed) {
    int victims;
    if (cache->bytes > cache->limit_bytes)
        return false;
    if (bytes <= cache->limit_bytes - cache->bytes)
        return true;
    if (!(value > 0) || !weigh_locked(cache, bytes, value, &victims))
        return false;
    for (int i = 0; i < victims; i++)
        remove_locked(cache, cache->oldest, freed);
    xn_metrics_add(cache->metrics, XN_COUNTER_RESPONSE_CACHE_EVICTIONS, victims);
    return bytes <= cache->limit_bytes - cache->bytes;
}

static void learn_locked(xn_response_owner *owner, double work, int64_t run_ns) {
    enum { RUNS = 16 }; /* about so many of the last ones count */
    const double now = (double)run_ns / work;
    owner->ns_per_work += (now - owner->ns_per_work) / (owner->ns_per_work > 0 ? RUNS : 1);
}

static bool pays_locked(const xn_response_owner *owner, double work, size_t bytes) {
    return RUN_NS + work * owner->ns_per_work > HIT_NS + (double)bytes / HIT_BYTES_PER_NS;
}

/* Whether the output may come in; then its bytes are counted. */
static bool reserve(xn_response_cache *cache, const xn_response_key *key,
                    const xn_response_probe *probe, const entry *wanted, int64_t run_ns) {
    xn_response_owner *owner = key->owner;
    entry *freed = NULL;
    pthread_mutex_lock(&cache->mutex);
    learn_locked(owner, wanted->work, run_ns);
    const bool room =
        pays_locked(owner, wanted->work, wanted->bytes) && is_welcome_locked(cache, key, probe) &&
        make_room_locked(cache, wanted->bytes,
                         worth_locked(cache, probe->hash, owner, wanted->work), &freed);
    if (room)
        count_locked(cache, wanted->bytes, 0);
    pthread_mutex_unlock(&cache->mutex);
    free_list(freed);
    return room;
}

static entry *copy(const entry *wanted, const void *input, const void *output) {
    entry *e = xn_mem_alloc(wanted->bytes);
    if (!e)
        return NULL;
    *e = *wanted;
    memcpy(e->data, input, e->input_bytes);
    memcpy(e->data + e->input_bytes, output, e->output_bytes);
    return e;
}

/* Others may have changed something since there was room for it. */
static bool settle(xn_response_cache *cache, const xn_response_key *key,
                   const xn_response_probe *probe, entry *e, size_t bytes) {
    pthread_mutex_lock(&cache->mutex);
    const bool kept = e && is_welcome_locked(cache, key, probe);
    if (kept)
        insert_locked(cache, e);
    else
        count_locked(cache, 0, bytes);
    pthread_mutex_unlock(&cache->mutex);
    if (!kept)
        xn_mem_free(e);
    return kept;
}

static double work_of(const xn_response_key *key) {
    const double images = (double)(key->input_bytes / xn_problem_input_bytes(key->problem));
    return images * (1 + (double)xn_problem_operations(key->problem));
}

bool xn_response_cache_put(xn_response_cache *cache, const xn_response_key *key,
                           const xn_response_probe *probe, const void *output, size_t output_bytes,
                           const xn_response_origin *origin, int64_t run_ns) {
    entry wanted = {.hash = probe->hash,
                    .owner = key->owner,
                    .problem = *key->problem,
                    .tenant = key->tenant,
                    .pool = key->pool,
                    .origin = *origin,
                    .input_bytes = key->input_bytes,
                    .output_bytes = output_bytes,
                    .work = work_of(key)};
    if (!probe->asked || probe->pool != key->pool ||
        !measure(cache, key->input_bytes, output_bytes, &wanted.bytes) ||
        !reserve(cache, key, probe, &wanted, run_ns))
        return false;
    entry *e = copy(&wanted, key->input, output);
    const bool kept = settle(cache, key, probe, e, wanted.bytes);
    xn_metrics_add(cache->metrics, XN_COUNTER_RESPONSE_CACHE_INSERTIONS, kept);
    return kept;
}

/* ---- forgetting ---- */

void xn_response_owner_retire(xn_response_owner *owner) {
    xn_response_cache *cache = owner->cache;
    entry *freed = NULL;
    if (!cache)
        return;
    pthread_mutex_lock(&cache->mutex);
    owner->retired = true;
    while (owner->first)
        remove_locked(cache, owner->first, &freed);
    pthread_mutex_unlock(&cache->mutex);
    free_list(freed);
}

static int64_t remove_all_locked(xn_response_cache *cache, entry **freed) {
    int64_t removed = 0;
    for (; cache->oldest; removed++)
        remove_locked(cache, cache->oldest, freed);
    return removed;
}

void xn_response_cache_clear(xn_response_cache *cache) {
    entry *freed = NULL;
    pthread_mutex_lock(&cache->mutex);
    cache->generation++;
    remove_all_locked(cache, &freed);
    pthread_mutex_unlock(&cache->mutex);
    free_list(freed);
}

bool xn_response_cache_trim(xn_response_cache *cache) {
    entry *freed = NULL;
    pthread_mutex_lock(&cache->mutex);
    xn_metrics_add(cache->metrics, XN_COUNTER_RESPONSE_CACHE_EVICTIONS,
                   remove_all_locked(cache, &freed));
    pthread_mutex_unlock(&cache->mutex);
    const bool any = freed;
    free_list(freed);
    return any;
}
