/* asset.h: what a problem is computed with: a set of kernel weights, packed once on the host, or a
 * network with its weights; prepared once on each device. Immutable and reference-counted. Jobs of
 * the same asset and an equal problem share a batch. Made by the store (store.h). Thread-safe. */
#ifndef XN_ASSET_H
#define XN_ASSET_H

#include "cache.h"
#include "model_stats.h"
#include "xn_backend.h"
#include "xn_network.h"
#include "xn_program.h"

typedef struct xn_asset xn_asset;

void xn_asset_release(xn_asset *asset); /* NULL-safe */
void xn_asset_retain(xn_asset *asset);
const xn_weights *xn_asset_weights(const xn_asset *asset); /* NULL: it is a network */
/* XN_ERR_IO: its weights lie in a file that was written into since it was loaded. */
xn_status xn_asset_check_intact(const xn_asset *asset, xn_error *error);

/* Adds to what xn_store_item.requests shows. */
void xn_asset_count_requests(xn_asset *asset, int64_t requests);

/* Its entries in the cache of answers. */
xn_cache_namespace *xn_asset_responses(xn_asset *asset);
/* Its name is another asset's now, or none's: removes its cached answers. NULL-safe. */
void xn_asset_retire(xn_asset *asset);

/* Of inference requests; changed and read by its own functions. NULL but for registered weights. */
xn_model_counters *xn_asset_counters(xn_asset *asset);

/* The weights on that device, prepared now if they are not yet: one, or a network's by their
 * numbers, as xn_program_run takes them. Borrowed from the asset. */
xn_status xn_asset_prepared(xn_asset *asset, int device, const xn_prepared *const **out,
                            xn_error *error);
/* Whether xn_asset_prepared would return without preparing. */
bool xn_asset_is_prepared(const xn_asset *asset, int device);
/* Host memory of its weights, those of a network together. */
size_t xn_asset_bytes(const xn_asset *asset);
/* Host memory of all of it, prepared forms included, which grow during the first runs. */
size_t xn_asset_held_bytes(const xn_asset *asset);
/* Makes the forms of its prepared weights that runs of the program use on that device. */
xn_status xn_asset_ready(xn_asset *asset, const xn_program *program,
                         const xn_prepared *const *prepared, xn_error *error);

#endif
