/* store.h: the assets that the daemon knows: registered by name, and inline ones recognised by
 * their contents. Deleting or replacing a name never pulls an asset from under a running batch.
 * Thread-safe. */
#ifndef XN_STORE_H
#define XN_STORE_H

#include "asset.h"
#include "metrics.h"

typedef struct xn_store xn_store;

/* One device that assets are prepared on; index = position in the array given to create. */
typedef struct xn_store_device {
    const xn_backend *backend;
    xn_device *device;
} xn_store_device;

typedef struct xn_store_limits {
    int64_t max_weights;       /* names                       --max-weights */
    int64_t max_weights_bytes; /* host bytes of registered    --max-weights-bytes */
    int64_t cache_bytes;       /* host bytes of inline ones   --weights-cache-bytes */
} xn_store_limits;

/* Called by a thread that finds a device lost while it prepares weights. */
typedef void (*xn_store_lost_fn)(void *context, int device, const xn_error *error);

xn_status xn_store_create(const xn_store_device *devices, int device_count,
                          const xn_store_limits *limits, xn_metrics *metrics, xn_store **out,
                          xn_error *error);
void xn_store_free(xn_store *store); /* NULL-safe; after every asset was released */

/* The cache of answers, for assets made from now on; it outlives them. NULL: there is none. */
void xn_store_set_responses(xn_store *store, xn_cache *responses);
void xn_store_on_device_lost(xn_store *store, xn_store_lost_fn callback, void *context);
/* Called after a network was freed, by the thread that released it last. */
void xn_store_on_network_gone(xn_store *store, void (*callback)(void *context), void *context);
/* From now on that device's backend is only called to free: put leaves it out, and
 * xn_asset_prepared answers XN_ERR_DEVICE_LOST for it. */
void xn_store_device_lost(xn_store *store, int device);
/* Forgets the recognised inline weights, so that their device memory comes back once no running
 * job holds them. */
void xn_store_trim(xn_store *store);

/* What GET /weights shows of a name. */
typedef struct xn_store_item {
    char name[129];
    int64_t dims[4];
    xn_datatype datatype;
    bool has_scale, has_bias;
    uint64_t hash;     /* of the contents: equal weights have equal hashes in every daemon */
    size_t host_bytes; /* of all that is kept for it */
    int64_t requests;  /* served with these weights so far */
} xn_store_item;

/* Validates, packs and prepares on every device, then makes it visible under the name, replacing
 * what was there. *created: whether the name is new; *item (may be NULL): what was registered, as
 * GET shows it until another PUT or DELETE. XN_ERR_LIMIT names max-weights or max-weights-bytes.
 * Tensors are borrowed for the call. */
xn_status xn_store_put(xn_store *store, const char *name, const xn_tensor *weights,
                       const xn_tensor *scale, const xn_tensor *bias, bool *created,
                       xn_store_item *item, xn_error *error);
xn_status xn_store_delete(xn_store *store, const char *name, xn_error *error); /* or NOT_FOUND */
/* The same for a caller that holds a lock of its own: *out is for it to release without that, which
 * may free weights on devices. */
xn_status xn_store_remove(xn_store *store, const char *name, xn_asset **out, xn_error *error);

/* Put in two steps, for a caller that does something between them. make does the slow part and
 * makes nothing visible. publish makes it visible under the name that make was given; if it
 * succeeds, it takes the reference, and *asset is what had the name before, or NULL, for the caller
 * to release as above. It cannot fail when check_room has just succeeded and no put or delete came
 * in between. */
xn_status xn_store_make(xn_store *store, const char *name, const xn_tensor *weights,
                        const xn_tensor *scale, const xn_tensor *bias, xn_asset **out,
                        xn_error *error);
/* Whether weights of that many host bytes may have the name: the limits, and memory for it. */
xn_status xn_store_check_room(xn_store *store, const char *name, size_t host_bytes,
                              xn_error *error);
xn_status xn_store_publish(xn_store *store, xn_asset **asset, bool *created, xn_store_item *item,
                           xn_error *error);

/* An asset of a network, prepared on every device that is not lost. Takes the network, also when
 * it fails. The store gives it no name: its references are all that keeps it. Besides what put
 * says: XN_ERR_UNSUPPORTED where the backend of a device has not all the steps. */
xn_status xn_store_make_network(xn_store *store, xn_network *network, xn_asset **out,
                                xn_error *error);

/* While names are still being read in, one that is not known is XN_ERR_LOADING, not NOT_FOUND. */
void xn_store_set_loading(xn_store *store, bool loading);

/* A reference to the named asset, or XN_ERR_NOT_FOUND (field "weights"). */
xn_status xn_store_get(xn_store *store, const char *name, xn_asset **out, xn_error *error);

/* A reference to an asset of these contents. It comes from the cache when the same datatype, shapes
 * and bytes were seen before (found by a hash, then compared byte by byte). Otherwise it is made,
 * inserted, and prepared on a device when that device first runs it. base: NULL, or an asset whose
 * weights are to be used (weights is NULL then), and of whose scale and bias those that are not
 * NULL here are replaced. Threads that ask for the same new contents at once get the same asset. */
xn_status xn_store_intern(xn_store *store, const xn_asset *base, const xn_tensor *weights,
                          const xn_tensor *scale, const xn_tensor *bias, xn_asset **out,
                          xn_error *error);

/* The names in order, as a snapshot; free with xn_mem_free. */
xn_status xn_store_list(xn_store *store, xn_store_item **items, size_t *count, xn_error *error);
xn_status xn_store_item_get(xn_store *store, const char *name, xn_store_item *out, xn_error *error);

#endif
