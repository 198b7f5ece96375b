/* store.c: weights registered by name. store_internal.h says what is in the other files, and has
 * the rules of the locks. */
#include "store_internal.h"

#include "threads.h"
#include "xn_program.h"

#include <string.h>

xn_status xn_store_create(const xn_store_device *devices, int device_count,
                          const xn_store_limits *limits, xn_metrics *metrics, xn_store **out,
                          xn_error *error) {
    xn_store *store = xn_mem_zalloc(1, sizeof *store);
    if (!store)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the weights store");
    xn_mutex_init_adaptive(&store->mutex);
    store->device_count = device_count;
    store->limits = *limits;
    store->metrics = metrics;
    atomic_init(&store->next_serial, 0);
    store->devices = xn_mem_zalloc((size_t)device_count, sizeof *store->devices);
    store->lost = xn_mem_zalloc((size_t)device_count, sizeof *store->lost);
    xn_status status = XN_OK;
    if (!store->devices || !store->lost)
        status = xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the weights store");
    if (status == XN_OK)
        status = xn_store_create_cache(store, error);
    if (status != XN_OK) {
        xn_store_free(store);
        return status;
    }
    for (int i = 0; i < device_count; i++) {
        store->devices[i] = devices[i];
        atomic_init(&store->lost[i], false);
    }
    *out = store;
    return XN_OK;
}

void xn_store_free(xn_store *store) {
    if (!store)
        return;
    for (size_t i = 0; i < store->names.count; i++)
        xn_asset_release(store->names.items[i]);
    xn_names_free(&store->names);
    xn_cache_free(store->cache);
    xn_mem_free(store->lost);
    xn_mem_free(store->devices);
    pthread_mutex_destroy(&store->mutex);
    xn_mem_free(store);
}

void xn_store_set_responses(xn_store *store, xn_cache *responses) {
    store->responses = responses;
}

void xn_store_set_loading(xn_store *store, bool loading) {
    pthread_mutex_lock(&store->mutex);
    store->loading = loading;
    pthread_mutex_unlock(&store->mutex);
}

/* ---- names; store->mutex is held ---- */

static xn_status not_found(const char *name, bool loading, xn_error *error) {
    if (loading)
        return xn_fail(error, XN_ERR_LOADING, "weights",
                       "no weights are known under \"%s\" yet; the daemon is still reading "
                       "--weights-dir; try again later",
                       name);
    return xn_fail(error, XN_ERR_NOT_FOUND, "weights",
                   "no weights are registered under \"%s\"; PUT /weights/%s registers them", name,
                   name);
}

static void show_totals_locked(const xn_store *store) {
    xn_metrics_gauge_set(store->metrics, XN_GAUGE_WEIGHTS, (int64_t)store->names.count);
    xn_metrics_gauge_set(store->metrics, XN_GAUGE_WEIGHTS_BYTES, store->named_bytes);
}

/* Whether weights of that size may take the name: it may replace what has the name now. */
static xn_status check_limits_locked(const xn_store *store, const char *name, int64_t bytes,
                                     xn_error *error) {
    const xn_asset *replaced = xn_names_get(&store->names, name);
    if (!replaced && (int64_t)store->names.count >= store->limits.max_weights)
        return xn_fail_limit(error, "max-weights", "weights",
                             "%zu weights are registered; --max-weights is %lld; delete some first",
                             store->names.count, (long long)store->limits.max_weights);
    int64_t others = store->named_bytes;
    if (replaced)
        others -= (int64_t)replaced->named_bytes;
    if (bytes > store->limits.max_weights_bytes - others)
        return xn_fail_limit(error, "max-weights-bytes", "weights",
                             "these weights take %lld bytes and the other registered ones %lld; "
                             "--max-weights-bytes is %lld",
                             (long long)bytes, (long long)others,
                             (long long)store->limits.max_weights_bytes);
    return XN_OK;
}

static xn_status reserve_locked(xn_store *store, xn_error *error) {
    if (!xn_names_reserve(&store->names))
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another name");
    return XN_OK;
}

static void describe_locked(const xn_asset *asset, xn_store_item *out) {
    const xn_weights *weights = asset->weights;
    xn_weights_shape shape;
    xn_weights_shape_of(weights, &shape);
    *out = (xn_store_item){.datatype = weights->datatype,
                           .has_scale = shape.has_scale,
                           .has_bias = shape.has_bias,
                           .hash = asset->values_hash,
                           .host_bytes = asset->named_bytes,
                           .requests = atomic_load(&asset->requests)};
    memcpy(out->name, asset->name, sizeof out->name);
    memcpy(out->dims, shape.dims, sizeof out->dims);
}

static void remove_locked(xn_store *store, xn_asset *asset) {
    xn_names_remove(&store->names, asset);
    store->named_bytes -= (int64_t)asset->named_bytes;
    asset->named_bytes = 0;
}

/* Takes the caller's reference to asset. *replaced: the asset that had the name, or NULL. item may
 * be NULL. */
static xn_status publish_locked(xn_store *store, xn_asset *asset, xn_asset **replaced,
                                xn_store_item *item, xn_error *error) {
    const size_t bytes = xn_asset_held_bytes(asset);
    xn_status status = check_limits_locked(store, asset->name, (int64_t)bytes, error);
    if (status == XN_OK)
        status = reserve_locked(store, error);
    if (status != XN_OK)
        return status;
    *replaced = xn_names_get(&store->names, asset->name);
    if (*replaced)
        remove_locked(store, *replaced);
    xn_names_insert(&store->names, asset);
    asset->named_bytes = bytes;
    store->named_bytes += (int64_t)bytes;
    if (item)
        describe_locked(asset, item);
    show_totals_locked(store);
    return XN_OK;
}

/* ---- the interface ---- */

xn_status xn_store_make(xn_store *store, const char *name, const xn_tensor *weights,
                        const xn_tensor *scale, const xn_tensor *bias, xn_asset **out,
                        xn_error *error) {
    xn_asset *asset = NULL;
    size_t length = strlen(name);
    if (length == 0 || length >= sizeof asset->name)
        return xn_fail(error, XN_ERR_MALFORMED, "name",
                       "the name has %zu characters; it needs 1 "
                       "to %zu",
                       length, sizeof asset->name - 1);
    xn_status status = xn_asset_create(store, 1, &asset, error);
    if (status != XN_OK)
        return status;
    memcpy(asset->name, name, length);
    const int64_t before = xn_mem_held();
    status = xn_weights_create(weights, scale, bias, &asset->weights, error);
    if (status == XN_OK && !(asset->counters = xn_model_counters_create()))
        status =
            xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another set of weights");
    if (status == XN_OK)
        xn_asset_grow(asset, xn_mem_held() - before);
    if (status == XN_OK) /* before the devices are troubled; checked again when it counts */
        status = xn_store_check_room(store, name, xn_asset_held_bytes(asset), error);
    if (status == XN_OK)
        status = xn_asset_prepare_all(asset, error);
    if (status == XN_OK)
        asset->values_hash = xn_weights_hash(asset->weights);
    if (status != XN_OK) {
        xn_asset_release(asset);
        return status;
    }
    *out = asset;
    return XN_OK;
}

static xn_status check_backends(const xn_store *store, const xn_network *network, xn_error *error) {
    xn_status status = XN_OK;
    for (int i = 0; i < store->device_count && status == XN_OK; i++)
        if (!atomic_load(&store->lost[i]))
            status = xn_program_check(store->devices[i].backend, network->steps,
                                      network->step_count, error);
    return status;
}

xn_status xn_store_make_network(xn_store *store, xn_network *network, xn_asset **out,
                                xn_error *error) {
    xn_asset *asset = NULL;
    xn_status status = check_backends(store, network, error);
    if (status == XN_OK)
        status = xn_asset_create(store, network->weights_count, &asset, error);
    if (status != XN_OK) {
        xn_network_free(network);
        return status;
    }
    asset->network = network;
    status = xn_asset_prepare_all(asset, error);
    if (status != XN_OK) {
        xn_asset_release(asset);
        return status;
    }
    *out = asset;
    return XN_OK;
}

xn_status xn_store_check_room(xn_store *store, const char *name, size_t host_bytes,
                              xn_error *error) {
    pthread_mutex_lock(&store->mutex);
    xn_status status = check_limits_locked(store, name, (int64_t)host_bytes, error);
    if (status == XN_OK)
        status = reserve_locked(store, error);
    pthread_mutex_unlock(&store->mutex);
    return status;
}

xn_status xn_store_publish(xn_store *store, xn_asset **asset, bool *created, xn_store_item *item,
                           xn_error *error) {
    xn_asset *replaced = NULL;
    pthread_mutex_lock(&store->mutex);
    xn_status status = publish_locked(store, *asset, &replaced, item, error);
    pthread_mutex_unlock(&store->mutex);
    if (status != XN_OK)
        return status;
    *created = !replaced;
    xn_asset_retire(*asset = replaced);
    return XN_OK;
}

xn_status xn_store_put(xn_store *store, const char *name, const xn_tensor *weights,
                       const xn_tensor *scale, const xn_tensor *bias, bool *created,
                       xn_store_item *item, xn_error *error) {
    xn_asset *asset = NULL;
    xn_status status = xn_store_make(store, name, weights, scale, bias, &asset, error);
    if (status == XN_OK)
        status = xn_store_publish(store, &asset, created, item, error);
    xn_asset_release(asset);
    return status;
}

xn_status xn_store_remove(xn_store *store, const char *name, xn_asset **out, xn_error *error) {
    pthread_mutex_lock(&store->mutex);
    xn_asset *asset = xn_names_get(&store->names, name);
    if (asset) {
        remove_locked(store, asset);
        show_totals_locked(store);
    }
    bool loading = store->loading;
    pthread_mutex_unlock(&store->mutex);
    if (!asset)
        return not_found(name, loading, error);
    xn_asset_retire(*out = asset);
    return XN_OK;
}

xn_status xn_store_delete(xn_store *store, const char *name, xn_error *error) {
    xn_asset *asset = NULL;
    xn_status status = xn_store_remove(store, name, &asset, error);
    xn_asset_release(asset);
    return status;
}

xn_status xn_store_get(xn_store *store, const char *name, xn_asset **out, xn_error *error) {
    pthread_mutex_lock(&store->mutex);
    xn_asset *asset = xn_names_get(&store->names, name);
    if (asset)
        xn_asset_retain(*out = asset);
    bool loading = store->loading;
    pthread_mutex_unlock(&store->mutex);
    return asset ? XN_OK : not_found(name, loading, error);
}

xn_status xn_store_list(xn_store *store, xn_store_item **items, size_t *count, xn_error *error) {
    pthread_mutex_lock(&store->mutex);
    size_t listed = store->names.count;
    xn_store_item *list = xn_mem_zalloc(listed, sizeof *list);
    for (size_t i = 0; list && i < listed; i++)
        describe_locked(store->names.items[i], &list[i]);
    pthread_mutex_unlock(&store->mutex);
    if (!list)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to list %zu weights", listed);
    *items = list;
    *count = listed;
    return XN_OK;
}

xn_status xn_store_item_get(xn_store *store, const char *name, xn_store_item *out,
                            xn_error *error) {
    pthread_mutex_lock(&store->mutex);
    const xn_asset *asset = xn_names_get(&store->names, name);
    if (asset)
        describe_locked(asset, out);
    bool loading = store->loading;
    pthread_mutex_unlock(&store->mutex);
    return asset ? XN_OK : not_found(name, loading, error);
}
