/* store_cache.c: inline weights recognised by their contents: a cache (cache.h) whose keys are the
 * tensors of a request and whose values are assets. Threads that bring the same new weights at once
 * all pack them; one asset is inserted, and all of them use that one. */
#include "store_internal.h"

#include <string.h>

/* What makes tensors equal besides their bytes. All of it is set, so it can be hashed. */
typedef struct tensor_head {
    int64_t present, datatype, rank, dims[XN_MAX_RANK];
} tensor_head;

typedef struct key_head {
    uint64_t base; /* the serial number of the asset that the weights are taken from, or 0 */
    tensor_head tensors[XN_WEIGHTS_TENSORS];
} key_head;

static tensor_head head_of(const xn_tensor *tensor) {
    tensor_head head = {.present = 1, .datatype = tensor->datatype, .rank = tensor->shape.rank};
    memcpy(head.dims, tensor->shape.dims, (size_t)head.rank * sizeof *head.dims);
    return head;
}

/* *head must live as long as what is returned. */
static xn_content content_of(uint64_t base, const xn_tensor *const tensors[XN_WEIGHTS_TENSORS],
                             key_head *head) {
    *head = (key_head){.base = base};
    xn_content content = {{{head, sizeof *head}}, 1 + XN_WEIGHTS_TENSORS};
    for (int i = 0; i < XN_WEIGHTS_TENSORS; i++)
        if (tensors[i]) {
            head->tensors[i] = head_of(tensors[i]);
            content.parts[1 + i] = (xn_content_part){tensors[i]->data, tensors[i]->bytes};
        }
    return content;
}

/* ---- the values of weights, as tensors that they could be made of again ---- */

typedef struct weights_values {
    xn_tensor tensors[XN_WEIGHTS_TENSORS];
    const xn_tensor *present[XN_WEIGHTS_TENSORS]; /* weights, scale, bias; NULL: there is none */
} weights_values;

static void set_floats(weights_values *out, int index, const float *values, xn_shape shape) {
    int64_t elements = 1;
    for (int i = 0; i < shape.rank; i++)
        elements *= shape.dims[i];
    out->tensors[index] =
        (xn_tensor){XN_FP32, shape, elements, (size_t)elements * sizeof *values, values};
    out->present[index] = values ? &out->tensors[index] : NULL;
}

static void values_of(const xn_weights *from, weights_values *out) {
    const xn_shape channels = {1, {from->out_channels}};
    set_floats(
        out, 0, from->real,
        (xn_shape){4, {from->out_channels, from->group_channels, from->kernel_h, from->kernel_w}});
    set_floats(out, 1, from->scale, channels);
    set_floats(out, 2, from->bias, channels);
}

/* The values decide everything else, bits and alpha too, and the datatype they came in nothing. */
uint64_t xn_weights_hash(const xn_weights *weights) {
    weights_values values;
    key_head head;
    values_of(weights, &values);
    const xn_content content = content_of(0, values.present, &head);
    return xn_content_hash_of(&content, 0).low;
}

/* ---- the cache ---- */

static void drop_asset(void *value) {
    xn_asset_release(*(xn_asset **)value);
}

xn_status xn_store_create_cache(xn_store *store, xn_error *error) {
    const xn_cache_options options = {.limit_bytes = (size_t)store->limits.cache_bytes,
                                      .entry_bytes_max = (size_t)store->limits.cache_bytes,
                                      .drop = drop_asset,
                                      .metrics = store->metrics,
                                      .bytes = XN_GAUGE_WEIGHTS_CACHE_BYTES};
    if (store->limits.cache_bytes <= 0)
        return XN_OK;
    return xn_cache_create(&options, &store->cache, error);
}

/* With a reference for the caller, or NULL. */
static xn_asset *find(xn_store *store, const xn_content *key, xn_cache_ticket *ticket) {
    xn_cache_entry *entry = store->cache ? xn_cache_find(store->cache, key, ticket) : NULL;
    if (!entry)
        return NULL;
    xn_asset *asset = *(xn_asset **)xn_cache_value(entry);
    xn_asset_retain(asset);
    xn_cache_release(store->cache, entry);
    return asset;
}

/* What the request does not give comes from base. */
static xn_status make(xn_store *store, const xn_asset *base, const xn_tensor *const tensors[],
                      xn_asset **out, xn_error *error) {
    xn_asset *asset;
    weights_values own = {0};
    xn_status status = xn_asset_create(store, 1, &asset, error);
    if (status != XN_OK)
        return status;
    if (base)
        values_of(base->weights, &own);
    for (int i = 0; i < XN_WEIGHTS_TENSORS; i++)
        if (tensors[i])
            own.present[i] = tensors[i];
    status =
        xn_weights_create(own.present[0], own.present[1], own.present[2], &asset->weights, error);
    if (status != XN_OK) {
        xn_asset_release(asset);
        return status;
    }
    xn_asset_grow(asset, (int64_t)asset->weights->host_bytes);
    *out = asset;
    return XN_OK;
}

/* Inserts the asset, or finds the one of the same contents that another thread inserted meanwhile.
 * Takes the reference and returns one. */
static xn_asset *keep(xn_store *store, const xn_content *key, xn_cache_ticket *ticket,
                      xn_asset *asset) {
    const xn_content value = {{{&asset, sizeof asset}}, 1};
    const size_t bytes = xn_asset_held_bytes(asset);
    asset->content = ticket->hash;
    if (!store->cache || !xn_cache_fits(store->cache, key, sizeof asset + bytes))
        return asset;
    xn_asset_retain(asset); /* the cache's */
    if (xn_cache_insert(store->cache, key, ticket, &value, bytes, NULL))
        return asset;
    xn_asset_release(asset);
    xn_asset *other = find(store, key, ticket);
    if (!other)
        return asset;
    xn_asset_release(asset);
    return other;
}

xn_status xn_store_intern(xn_store *store, const xn_asset *base, const xn_tensor *weights,
                          const xn_tensor *scale, const xn_tensor *bias, xn_asset **out,
                          xn_error *error) {
    const xn_tensor *const tensors[XN_WEIGHTS_TENSORS] = {weights, scale, bias};
    key_head head;
    xn_cache_ticket ticket;
    xn_asset *asset;
    const xn_content key = content_of(base ? base->serial : 0, tensors, &head);
    asset = find(store, &key, &ticket);
    xn_metrics_add(store->metrics, asset ? XN_COUNTER_CACHE_HITS : XN_COUNTER_CACHE_MISSES, 1);
    if (!asset) {
        xn_status status = make(store, base, tensors, &asset, error);
        if (status != XN_OK)
            return status;
        asset = keep(store, &key, &ticket, asset);
    }
    *out = asset;
    return XN_OK;
}
