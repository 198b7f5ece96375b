/* asset.c: one set of weights, or a network, and its references. */
#include "mapping.h"
#include "store_internal.h"

/* In one block: the asset, a slot for each device, and each slot's prepared weights. Lowering
 * bounds the number of weights, creating the engine that of devices: the product is small. */
static size_t own_bytes(const xn_store *store, int weights_count) {
    size_t slot = sizeof(xn_asset_slot) + (size_t)weights_count * sizeof(xn_prepared *);
    return sizeof(xn_asset) + (size_t)store->device_count * slot;
}

static void place_slots(xn_asset *asset) {
    const int devices = asset->store->device_count;
    xn_prepared **next = (xn_prepared **)(void *)&asset->slots[devices];
    for (int i = 0; i < devices; i++, next += asset->weights_count) {
        asset->slots[i].prepared = next;
        atomic_init(&asset->slots[i].ready, false);
    }
}

xn_status xn_asset_create(xn_store *store, int weights_count, xn_asset **out, xn_error *error) {
    const int64_t before = xn_mem_held();
    xn_asset *asset = xn_mem_zalloc(1, own_bytes(store, weights_count));
    if (!asset)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another set of weights");
    asset->store = store;
    asset->weights_count = weights_count;
    atomic_init(&asset->references, 1);
    atomic_init(&asset->requests, 0);
    asset->serial = atomic_fetch_add(&store->next_serial, 1) + 1;
    pthread_mutex_init(&asset->mutex, NULL);
    pthread_cond_init(&asset->preparing_ended, NULL);
    xn_cache_namespace_init(&asset->responses, store->responses);
    place_slots(asset);
    atomic_init(&asset->held_bytes, (size_t)(xn_mem_held() - before));
    *out = asset;
    return XN_OK;
}

static void asset_free(xn_asset *asset) {
    const xn_store *store = asset->store;
    const bool network = asset->network;
    xn_asset_retire(asset);
    for (int i = 0; i < asset->store->device_count; i++)
        xn_asset_unprepare(asset, i);
    xn_model_counters_release(asset->counters);
    pthread_cond_destroy(&asset->preparing_ended);
    pthread_mutex_destroy(&asset->mutex);
    xn_network_free(asset->network);
    xn_weights_free(asset->weights);
    xn_mem_free(asset);
    if (network && store->on_gone)
        store->on_gone(store->on_gone_context);
}

void xn_store_on_network_gone(xn_store *store, void (*callback)(void *context), void *context) {
    store->on_gone = callback;
    store->on_gone_context = context;
}

void xn_asset_retain(xn_asset *asset) {
    atomic_fetch_add_explicit(&asset->references, 1, memory_order_relaxed);
}

void xn_asset_release(xn_asset *asset) {
    if (asset && atomic_fetch_sub_explicit(&asset->references, 1, memory_order_acq_rel) == 1)
        asset_free(asset);
}

const xn_weights *xn_asset_weights(const xn_asset *asset) {
    return asset->weights;
}

xn_status xn_asset_check_intact(const xn_asset *asset, xn_error *error) {
    if (!asset->network || !asset->network->tensors.bytes ||
        xn_mapping_is_intact(&asset->network->tensors))
        return XN_OK;
    return xn_fail(error, XN_ERR_IO, "model",
                   "the model's file was written into while it served; load the model again, and "
                   "replace files by renaming others to their names");
}

size_t xn_asset_bytes(const xn_asset *asset) {
    if (!asset->network)
        return asset->weights->host_bytes;
    size_t bytes = asset->network->tensors.length;
    for (int i = 0; i < asset->network->weights_count; i++)
        bytes += asset->network->weights[i]->host_bytes;
    return bytes;
}

size_t xn_asset_held_bytes(const xn_asset *asset) {
    return atomic_load(&asset->held_bytes);
}

void xn_asset_grow(xn_asset *asset, int64_t bytes) {
    xn_store *store = asset->store;
    if (bytes <= 0)
        return;
    pthread_mutex_lock(&store->mutex);
    atomic_fetch_add(&asset->held_bytes, (size_t)bytes);
    if (asset->named_bytes) {
        asset->named_bytes += (size_t)bytes;
        store->named_bytes += bytes;
        xn_metrics_gauge_set(store->metrics, XN_GAUGE_WEIGHTS_BYTES, store->named_bytes);
    }
    pthread_mutex_unlock(&store->mutex);
    if (store->cache)
        xn_cache_grow(store->cache, &asset->content, &(xn_content){{{&asset, sizeof asset}}, 1},
                      (size_t)bytes);
}

void xn_asset_count_requests(xn_asset *asset, int64_t requests) {
    atomic_fetch_add_explicit(&asset->requests, requests, memory_order_relaxed);
}

xn_model_counters *xn_asset_counters(xn_asset *asset) {
    return asset->counters;
}

xn_cache_namespace *xn_asset_responses(xn_asset *asset) {
    return &asset->responses;
}

void xn_asset_retire(xn_asset *asset) {
    if (asset)
        xn_cache_namespace_retire(&asset->responses);
}

/* ---- its form on each device: prepared by the first thread that needs it; the others wait for
 * that one ---- */

void xn_store_on_device_lost(xn_store *store, xn_store_lost_fn callback, void *context) {
    store->on_lost = callback;
    store->on_lost_context = context;
}

void xn_store_device_lost(xn_store *store, int device) {
    atomic_store(&store->lost[device], true);
}

static xn_status refuse_lost(const xn_store *store, int device, xn_error *error) {
    if (!atomic_load(&store->lost[device]))
        return XN_OK;
    return xn_fail(error, XN_ERR_DEVICE_LOST, NULL, "device %d of backend %s was lost", device,
                   store->devices[device].backend->name);
}

static const xn_weights *weights_of(const xn_asset *asset, int index) {
    return asset->network ? asset->network->weights[index] : asset->weights;
}

void xn_asset_unprepare(xn_asset *asset, int device) {
    const xn_backend *backend = asset->store->devices[device].backend;
    xn_asset_slot *slot = &asset->slots[device];
    for (int i = 0; i < asset->weights_count; i++) {
        backend->weights_free(slot->prepared[i]);
        slot->prepared[i] = NULL;
    }
}

static xn_status prepare_each(xn_asset *asset, int device, xn_error *error) {
    const xn_store_device *on = &asset->store->devices[device];
    xn_asset_slot *slot = &asset->slots[device];
    xn_status status = XN_OK;
    for (int i = 0; i < asset->weights_count && status == XN_OK; i++)
        status = on->backend->weights_prepare(on->device, weights_of(asset, i), &slot->prepared[i],
                                              error);
    if (status != XN_OK)
        xn_asset_unprepare(asset, device);
    return status;
}

static xn_status prepare(xn_asset *asset, int device, xn_error *error) {
    xn_store *store = asset->store;
    xn_error why;
    xn_status status = refuse_lost(store, device, error);
    if (status != XN_OK)
        return status;
    const int64_t before = xn_mem_held();
    status = prepare_each(asset, device, &why);
    xn_asset_grow(asset, xn_mem_held() - before);
    if (status == XN_OK)
        return XN_OK;
    if (status == XN_ERR_DEVICE_LOST) {
        xn_store_device_lost(store, device);
        if (store->on_lost)
            store->on_lost(store->on_lost_context, device, &why);
    }
    if (error)
        *error = why;
    return status;
}

/* Single flight: waits while another thread prepares. True: the caller has to prepare. */
static bool begin_preparing(xn_asset *asset, xn_asset_slot *slot) {
    pthread_mutex_lock(&asset->mutex);
    while (slot->preparing)
        pthread_cond_wait(&asset->preparing_ended, &asset->mutex);
    bool mine = !atomic_load_explicit(&slot->ready, memory_order_acquire);
    slot->preparing = mine;
    pthread_mutex_unlock(&asset->mutex);
    return mine;
}

static void end_preparing(xn_asset *asset, xn_asset_slot *slot, bool ready) {
    pthread_mutex_lock(&asset->mutex);
    atomic_store_explicit(&slot->ready, ready, memory_order_release);
    slot->preparing = false;
    pthread_cond_broadcast(&asset->preparing_ended);
    pthread_mutex_unlock(&asset->mutex);
}

xn_status xn_asset_prepared(xn_asset *asset, int device, const xn_prepared *const **out,
                            xn_error *error) {
    xn_asset_slot *slot = &asset->slots[device];
    xn_status status = refuse_lost(asset->store, device, error);
    if (status != XN_OK)
        return status;
    if (!atomic_load_explicit(&slot->ready, memory_order_acquire) && begin_preparing(asset, slot)) {
        status = prepare(asset, device, error);
        end_preparing(asset, slot, status == XN_OK);
        if (status != XN_OK)
            return status;
    }
    *out = (const xn_prepared *const *)slot->prepared;
    return XN_OK;
}

xn_status xn_asset_ready(xn_asset *asset, const xn_program *program,
                         const xn_prepared *const *prepared, xn_error *error) {
    const int64_t before = xn_mem_held();
    const xn_status status = xn_program_ready(program, prepared, error);
    xn_asset_grow(asset, xn_mem_held() - before);
    return status;
}

bool xn_asset_is_prepared(const xn_asset *asset, int device) {
    return atomic_load_explicit(&asset->slots[device].ready, memory_order_acquire) &&
           !atomic_load(&asset->store->lost[device]);
}

void xn_store_trim(xn_store *store) {
    if (store->cache)
        xn_cache_clear(store->cache);
}

xn_status xn_asset_prepare_all(xn_asset *asset, xn_error *error) {
    xn_store *store = asset->store;
    bool any = false;
    xn_status status = XN_OK;
    for (int i = 0; i < store->device_count; i++) {
        if (atomic_load(&store->lost[i]))
            continue;
        const xn_prepared *const *prepared;
        status = xn_asset_prepared(asset, i, &prepared, error);
        if (status == XN_ERR_DEVICE_MEMORY) {
            xn_store_trim(store);
            status = xn_asset_prepared(asset, i, &prepared, error);
        }
        if (status != XN_OK)
            return status;
        any = true;
    }
    return any ? XN_OK
               : xn_fail(error, XN_ERR_DEVICE_LOST, NULL,
                         "no device is left to put the weights on");
}
