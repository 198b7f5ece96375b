/* asset.h: what a problem is computed with: a set of kernel weights, packed once on the host and
 * prepared once on each device. Immutable and reference-counted. Jobs of the same asset and an
 * equal problem share a batch. Made by the store (store.h). Thread-safe. */
#ifndef XN_ASSET_H
#define XN_ASSET_H

#include "xn_backend.h"

typedef struct xn_asset xn_asset;

void xn_asset_release(xn_asset *asset); /* NULL-safe */
void xn_asset_retain(xn_asset *asset);
const xn_weights *xn_asset_weights(const xn_asset *asset);

/* Adds to what xn_store_item.requests shows. */
void xn_asset_count_requests(xn_asset *asset, int64_t requests);

/* The weights on that device, prepared now if it is not yet. Borrowed from the asset. */
xn_status xn_asset_prepared(xn_asset *asset, int device, const xn_prepared **out, xn_error *error);

#endif
