/* store_internal.h: what the parts of the store share; each calls those below it:
 *
 *   store.c         names
 *   store_cache.c   inline weights by their contents
 *   asset.c         one asset, and its form on each device
 *
 * Locks: store->mutex guards names and their totals; asset->mutex guards which devices an
 * asset is being prepared on. Neither is held while the other is taken, nor while a backend, the
 * packing of weights or a callback runs; last references are released outside of both. */
#ifndef XN_STORE_INTERNAL_H
#define XN_STORE_INTERNAL_H

#include "arrays.h"
#include "store.h"
#include "xn_mem.h"

#include <pthread.h>
#include <stdatomic.h>

enum { XN_WEIGHTS_TENSORS = 3 }; /* weights, scale, bias */

/* Of the values: the same in every daemon, what GET /weights shows. */
uint64_t xn_weights_hash(const xn_weights *weights);

/* ---- assets ---- */

typedef struct xn_asset_slot {
    xn_prepared **prepared; /* as many as the asset has weights; they change only while preparing */
    atomic_bool ready;      /* set once: they are all there; read without the lock */
    bool preparing;         /* asset->mutex: a thread is preparing it */
} xn_asset_slot;

struct xn_asset {
    char name[129]; /* that it is, or may be, registered under; else "" */
    xn_store *store;
    atomic_int references;
    uint64_t serial;          /* never reused, unlike addresses */
    xn_weights *weights;      /* immutable once the asset is visible; */
    xn_network *network;      /* or this, with weights of its own */
    int weights_count;        /* 1, or the network's */
    uint64_t values_hash;     /* xn_weights_hash, of a registered one */
    xn_content_hash content;  /* of an inline one: its key's in the cache */
    atomic_size_t held_bytes; /* host memory of all that is here, as it was made */
    size_t named_bytes; /* store->mutex: what store->named_bytes has of it; 0: no name has it */
    atomic_llong requests;
    xn_model_counters *counters; /* of a registered one */
    xn_cache_namespace responses;

    pthread_mutex_t mutex; /* guards slots[].preparing */
    pthread_cond_t preparing_ended;
    xn_asset_slot slots[]; /* one a device */
};

/* With room for weights_count weights on each device; one reference. */
xn_status xn_asset_create(xn_store *store, int weights_count, xn_asset **out, xn_error *error);
/* The asset holds `bytes` more of the host's memory than before: limits count them too. */
void xn_asset_grow(xn_asset *asset, int64_t bytes);
/* Frees what is prepared on the device, also a part of it. */
void xn_asset_unprepare(xn_asset *asset, int device);
/* Prepares on every device that is not lost. */
xn_status xn_asset_prepare_all(xn_asset *asset, xn_error *error);

/* ---- the store ---- */

/* None where the limit is 0. */
xn_status xn_store_create_cache(xn_store *store, xn_error *error);

struct xn_store {
    int device_count;
    xn_store_device *devices;
    atomic_bool *lost; /* one a device */
    xn_store_limits limits;
    xn_metrics *metrics;
    atomic_ullong next_serial;
    xn_store_lost_fn on_lost;
    void *on_lost_context;
    void (*on_gone)(void *context);
    void *on_gone_context;
    xn_cache *responses; /* of answers; NULL: there is none */
    xn_cache *cache;     /* of inline weights; NULL: there is none */

    pthread_mutex_t mutex; /* guards all below */
    xn_names names;        /* of xn_asset, a reference each */
    int64_t named_bytes;
    bool loading; /* more names may come by themselves */
};

#endif
