/* store_entry.c: one set of weights and its references. */
#include "store_internal.h"

xn_status xn_entry_create(xn_store *store, xn_entry **out, xn_error *error) {
    size_t slots = (size_t)store->device_count * sizeof(xn_entry_slot);
    xn_entry *entry = xn_mem_zalloc(1, sizeof *entry + slots);
    if (!entry)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another set of weights");
    entry->store = store;
    atomic_init(&entry->references, 1);
    atomic_init(&entry->requests, 0);
    entry->serial = atomic_fetch_add(&store->next_serial, 1) + 1;
    pthread_mutex_init(&entry->mutex, NULL);
    pthread_cond_init(&entry->settled, NULL);
    for (int i = 0; i < store->device_count; i++)
        atomic_init(&entry->slots[i].prepared, NULL);
    *out = entry;
    return XN_OK;
}

static void entry_free(xn_entry *entry) {
    const xn_store *store = entry->store;
    for (int i = 0; i < store->device_count; i++)
        store->devices[i].backend->weights_free(atomic_load(&entry->slots[i].prepared));
    pthread_cond_destroy(&entry->settled);
    pthread_mutex_destroy(&entry->mutex);
    xn_weights_free(entry->weights);
    xn_mem_free(entry->memory);
    xn_mem_free(entry);
}

void xn_entry_retain(xn_entry *entry) {
    atomic_fetch_add_explicit(&entry->references, 1, memory_order_relaxed);
}

void xn_entry_release(xn_entry *entry) {
    if (entry && atomic_fetch_sub_explicit(&entry->references, 1, memory_order_acq_rel) == 1)
        entry_free(entry);
}

const xn_weights *xn_entry_weights(const xn_entry *entry) {
    return entry->weights;
}

void xn_entry_count_requests(xn_entry *entry, int64_t requests) {
    atomic_fetch_add_explicit(&entry->requests, requests, memory_order_relaxed);
}
