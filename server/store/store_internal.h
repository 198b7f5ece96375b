/* store_internal.h: what the parts of the store share; each calls those below it:
 *
 *   store.c            names
 *   asset_prepared.c   the form of an asset on each device
 *   store_cache.c      inline weights by their contents
 *   asset.c            one asset
 *   store_content.c    hashing and comparing contents
 *
 * Locks: store->mutex guards names, cache and their totals; asset->mutex guards which devices an
 * asset is being prepared on. Neither is held while the other is taken, nor while a backend, the
 * packing of weights or a callback runs; last references are released outside of both. */
#ifndef XN_STORE_INTERNAL_H
#define XN_STORE_INTERNAL_H

#include "store.h"
#include "xn_mem.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- contents: what makes weights equal ---- */

enum { XN_CONTENT_PARTS = 3 }; /* weights, scale, bias */

typedef struct xn_content_part {
    bool present;
    xn_datatype datatype;
    xn_shape shape;
    size_t bytes;
    const void *data;
} xn_content_part;

typedef struct xn_content {
    uint64_t base; /* the serial number of the base asset, or 0 */
    xn_content_part parts[XN_CONTENT_PARTS];
} xn_content;

/* Of a request's tensors, which it points to; NULL: there is none. base: a serial number, or 0. */
xn_content xn_content_of(uint64_t base, const xn_tensor *weights, const xn_tensor *scale,
                         const xn_tensor *bias);
/* The values of weights as tensors that they could be made of again, and which point into them:
 * weights, scale, bias; data is NULL for one that they do not have. */
void xn_content_values(const xn_weights *from, xn_tensor out[XN_CONTENT_PARTS]);

uint64_t xn_content_hash(const xn_content *content, uint64_t seed);
/* The same in every daemon: what GET /weights shows. */
uint64_t xn_content_hash_values(const xn_weights *weights);
bool xn_content_equal(const xn_content *a, const xn_content *b);
/* Copies the bytes that content points to into one block and points into that. *memory: the
 * caller's to free, *bytes long. */
xn_status xn_content_copy(const xn_content *content, xn_content *out, void **memory, size_t *bytes,
                          xn_error *error);

/* ---- assets ---- */

typedef struct xn_asset_slot {
    xn_prepared **prepared; /* as many as the asset has weights; they change only while preparing */
    atomic_bool ready;      /* set once: they are all there; read without the lock */
    bool preparing;         /* asset->mutex: a thread is at it */
} xn_asset_slot;

struct xn_asset {
    xn_store *store;
    atomic_int references;
    uint64_t serial;      /* never reused, unlike addresses */
    xn_weights *weights;  /* immutable once the asset is visible; NULL while making; */
    xn_network *network;  /* or this, with weights of its own */
    int weights_count;    /* 1, or the network's */
    uint64_t values_hash; /* xn_content_hash_values, of a registered one */
    atomic_llong requests;
    xn_model_counters *counters; /* of a registered one */
    xn_response_owner responses;

    /* For the cache; guarded by store->mutex. */
    uint64_t hash;
    xn_content content; /* points into memory */
    void *memory;
    size_t memory_bytes, cost; /* cost: what it counts for in the cache; 0 when not in it */
    bool making;               /* in the table, but its weights are not packed yet */
    xn_status failure;         /* why making failed; the threads that waited return it */
    xn_error error;
    xn_asset *chain;         /* in its hash bucket, or in a list of evicted ones */
    xn_asset *newer, *older; /* in the order of use */

    pthread_mutex_t mutex; /* guards slots[].preparing */
    pthread_cond_t settled;
    xn_asset_slot slots[]; /* one a device */
};

/* With room for so many weights on each device; one reference. */
xn_status xn_asset_create(xn_store *store, int weights_count, xn_asset **out, xn_error *error);
size_t xn_asset_own_bytes(const xn_asset *asset); /* of the object itself */
/* Frees what is prepared on the device, also a part of it. */
void xn_asset_unprepare(xn_asset *asset, int device);
/* Prepares on every device that is not lost. */
xn_status xn_asset_prepare_all(xn_asset *asset, xn_error *error);

/* ---- the store ---- */

typedef struct xn_cache {
    size_t limit_bytes, bytes;
    uint64_t seed;      /* of the hash, so that clients cannot aim for one bucket */
    xn_asset **buckets; /* holds a reference to each asset */
    size_t bucket_mask;
    xn_asset *newest, *oldest;
    pthread_cond_t made; /* an asset is no longer `making` */
} xn_cache;

xn_status xn_cache_init(xn_cache *cache, int64_t limit_bytes, xn_error *error);
void xn_cache_clear(xn_cache *cache); /* releases everything; no other thread uses the store */

typedef struct xn_named {
    char name[129];
    xn_asset *asset; /* a reference */
} xn_named;

struct xn_store {
    int device_count;
    xn_store_device *devices;
    atomic_bool *lost; /* one a device */
    xn_store_limits limits;
    xn_metrics *metrics;
    atomic_ullong next_serial;
    xn_store_lost_fn on_lost;
    void *on_lost_context;
    xn_response_cache *responses;

    pthread_mutex_t mutex; /* guards all below */
    xn_named *names;       /* in order */
    size_t name_count, name_capacity;
    int64_t named_bytes;
    bool loading; /* more names may come by themselves */
    xn_cache cache;
};

#endif
