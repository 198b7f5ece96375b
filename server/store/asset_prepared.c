/* asset_prepared.c: the form of an asset on each device, and the loss of devices. A device is
 * prepared by the first thread that needs it; the others wait for that one. */
#include "store_internal.h"

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

static xn_status prepare(xn_asset *asset, int device, xn_prepared **out, xn_error *error) {
    xn_store *store = asset->store;
    const xn_store_device *on = &store->devices[device];
    xn_error why;
    xn_status status = refuse_lost(store, device, error);
    if (status != XN_OK)
        return status;
    status = on->backend->weights_prepare(on->device, asset->weights, out, &why);
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

/* Waits while another thread prepares. True: it is the caller's to do. */
static bool claim(xn_asset *asset, xn_asset_slot *slot) {
    pthread_mutex_lock(&asset->mutex);
    while (slot->preparing)
        pthread_cond_wait(&asset->settled, &asset->mutex);
    bool mine = !atomic_load_explicit(&slot->prepared, memory_order_acquire);
    slot->preparing = mine;
    pthread_mutex_unlock(&asset->mutex);
    return mine;
}

static void settle(xn_asset *asset, xn_asset_slot *slot, xn_prepared *prepared) {
    pthread_mutex_lock(&asset->mutex);
    atomic_store_explicit(&slot->prepared, prepared, memory_order_release);
    slot->preparing = false;
    pthread_cond_broadcast(&asset->settled);
    pthread_mutex_unlock(&asset->mutex);
}

xn_status xn_asset_prepared(xn_asset *asset, int device, const xn_prepared **out, xn_error *error) {
    xn_asset_slot *slot = &asset->slots[device];
    xn_status status = refuse_lost(asset->store, device, error);
    if (status != XN_OK)
        return status;
    xn_prepared *prepared = atomic_load_explicit(&slot->prepared, memory_order_acquire);
    if (!prepared && claim(asset, slot)) {
        status = prepare(asset, device, &prepared, error);
        settle(asset, slot, status == XN_OK ? prepared : NULL);
        if (status != XN_OK)
            return status;
    }
    *out = atomic_load_explicit(&slot->prepared, memory_order_acquire);
    return XN_OK;
}

xn_status xn_asset_prepare_all(xn_asset *asset, xn_error *error) {
    xn_store *store = asset->store;
    bool any = false;
    xn_status status = XN_OK;
    for (int i = 0; i < store->device_count; i++) {
        if (atomic_load(&store->lost[i]))
            continue;
        const xn_prepared *prepared;
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
