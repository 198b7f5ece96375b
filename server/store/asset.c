/* asset.c: one set of weights, or a network, and its references. */
#include "store_internal.h"

/* In one block: the asset, a slot for each device, and each slot's prepared weights. Lowering
 * bounds the number of weights, creating the engine that of devices: the product is small. */
static size_t own_bytes(const xn_store *store, int weights_count) {
    size_t slot = sizeof(xn_asset_slot) + (size_t)weights_count * sizeof(xn_prepared *);
    return sizeof(xn_asset) + (size_t)store->device_count * slot;
}

size_t xn_asset_own_bytes(const xn_asset *asset) {
    return own_bytes(asset->store, asset->weights_count);
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
    xn_asset *asset = xn_mem_zalloc(1, own_bytes(store, weights_count));
    if (!asset)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another set of weights");
    asset->store = store;
    asset->weights_count = weights_count;
    atomic_init(&asset->references, 1);
    atomic_init(&asset->requests, 0);
    asset->serial = atomic_fetch_add(&store->next_serial, 1) + 1;
    pthread_mutex_init(&asset->mutex, NULL);
    pthread_cond_init(&asset->settled, NULL);
    asset->responses = (xn_response_owner){.cache = store->responses};
    place_slots(asset);
    *out = asset;
    return XN_OK;
}

static void asset_free(xn_asset *asset) {
    xn_asset_retire(asset);
    for (int i = 0; i < asset->store->device_count; i++)
        xn_asset_unprepare(asset, i);
    xn_model_counters_free(asset->counters);
    pthread_cond_destroy(&asset->settled);
    pthread_mutex_destroy(&asset->mutex);
    xn_network_free(asset->network);
    xn_weights_free(asset->weights);
    xn_mem_free(asset->memory);
    xn_mem_free(asset);
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

const xn_network *xn_asset_network(const xn_asset *asset) {
    return asset->network;
}

size_t xn_asset_bytes(const xn_asset *asset) {
    size_t bytes = 0;
    if (!asset->network)
        return asset->weights->host_bytes;
    for (int i = 0; i < asset->network->weights_count; i++)
        bytes += asset->network->weights[i]->host_bytes;
    return bytes;
}

void xn_asset_count_requests(xn_asset *asset, int64_t requests) {
    atomic_fetch_add_explicit(&asset->requests, requests, memory_order_relaxed);
}

xn_model_counters *xn_asset_counters(xn_asset *asset) {
    return asset->counters;
}

xn_response_owner *xn_asset_responses(xn_asset *asset) {
    return &asset->responses;
}

void xn_asset_retire(xn_asset *asset) {
    if (asset)
        xn_response_owner_retire(&asset->responses);
}
