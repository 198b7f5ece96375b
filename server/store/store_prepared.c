/* store_prepared.c: the form of an entry on each device, and the loss of devices. A device is
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

static xn_status prepare(xn_entry *entry, int device, xn_prepared **out, xn_error *error) {
    xn_store *store = entry->store;
    const xn_store_device *on = &store->devices[device];
    xn_error why;
    xn_status status = refuse_lost(store, device, error);
    if (status != XN_OK)
        return status;
    status = on->backend->weights_prepare(on->device, entry->weights, out, &why);
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
static bool claim(xn_entry *entry, xn_entry_slot *slot) {
    pthread_mutex_lock(&entry->mutex);
    while (slot->preparing)
        pthread_cond_wait(&entry->settled, &entry->mutex);
    bool mine = !atomic_load_explicit(&slot->prepared, memory_order_acquire);
    slot->preparing = mine;
    pthread_mutex_unlock(&entry->mutex);
    return mine;
}

static void settle(xn_entry *entry, xn_entry_slot *slot, xn_prepared *prepared) {
    pthread_mutex_lock(&entry->mutex);
    atomic_store_explicit(&slot->prepared, prepared, memory_order_release);
    slot->preparing = false;
    pthread_cond_broadcast(&entry->settled);
    pthread_mutex_unlock(&entry->mutex);
}

xn_status xn_entry_prepared(xn_entry *entry, int device, const xn_prepared **out, xn_error *error) {
    xn_entry_slot *slot = &entry->slots[device];
    xn_status status = refuse_lost(entry->store, device, error);
    if (status != XN_OK)
        return status;
    xn_prepared *prepared = atomic_load_explicit(&slot->prepared, memory_order_acquire);
    if (!prepared && claim(entry, slot)) {
        status = prepare(entry, device, &prepared, error);
        settle(entry, slot, status == XN_OK ? prepared : NULL);
        if (status != XN_OK)
            return status;
    }
    *out = atomic_load_explicit(&slot->prepared, memory_order_acquire);
    return XN_OK;
}

xn_status xn_entry_prepare_all(xn_entry *entry, xn_error *error) {
    xn_store *store = entry->store;
    bool any = false;
    xn_status status = XN_OK;
    for (int i = 0; i < store->device_count; i++) {
        if (atomic_load(&store->lost[i]))
            continue;
        const xn_prepared *prepared;
        status = xn_entry_prepared(entry, i, &prepared, error);
        if (status == XN_ERR_DEVICE_MEMORY) {
            xn_store_trim(store);
            status = xn_entry_prepared(entry, i, &prepared, error);
        }
        if (status != XN_OK)
            return status;
        any = true;
    }
    return any ? XN_OK
               : xn_fail(error, XN_ERR_DEVICE_LOST, NULL,
                         "no device is left to put the weights on");
}
