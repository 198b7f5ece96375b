/* asset.c: one set of weights and its references. */
#include "store_internal.h"

xn_status xn_asset_create(xn_store *store, xn_asset **out, xn_error *error) {
    size_t slots = (size_t)store->device_count * sizeof(xn_asset_slot);
    xn_asset *asset = xn_mem_zalloc(1, sizeof *asset + slots);
    if (!asset)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another set of weights");
    asset->store = store;
    atomic_init(&asset->references, 1);
    atomic_init(&asset->requests, 0);
    asset->serial = atomic_fetch_add(&store->next_serial, 1) + 1;
    pthread_mutex_init(&asset->mutex, NULL);
    pthread_cond_init(&asset->settled, NULL);
    for (int i = 0; i < store->device_count; i++)
        atomic_init(&asset->slots[i].prepared, NULL);
    *out = asset;
    return XN_OK;
}

static void asset_free(xn_asset *asset) {
    const xn_store *store = asset->store;
    for (int i = 0; i < store->device_count; i++)
        store->devices[i].backend->weights_free(atomic_load(&asset->slots[i].prepared));
    pthread_cond_destroy(&asset->settled);
    pthread_mutex_destroy(&asset->mutex);
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

void xn_asset_count_requests(xn_asset *asset, int64_t requests) {
    atomic_fetch_add_explicit(&asset->requests, requests, memory_order_relaxed);
}
