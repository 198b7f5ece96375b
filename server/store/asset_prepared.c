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
