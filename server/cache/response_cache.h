/* response_cache.h: an exact cache of answers (--response-cache-bytes).
 *
 * What is computed of an input is a pure function of the asset, the problem, the backend and the
 * input's bytes. The cache keeps outputs under exactly these. A hash finds the candidate; the key
 * is then compared byte by byte, so a hit is never wrong. It keeps one output for each hash: of two
 * inputs with one hash, which nobody can aim for (keyed_hash.h), the second is not kept.
 *
 * An output belongs to an owner, which an asset has, and goes when that is retired; to a tenant,
 * the API key that the request came with, and no other tenant's request finds it; and to a pool,
 * because backends round differently. What is counted against the limit is all that is held:
 * inputs, outputs, the table, also what was let go of and is still being read.
 *
 * What is kept. An output is worth the time that computing it takes, times how often it was asked
 * for again lately (popularity.h). Where there is room, it is kept at once, if reading it back
 * takes clearly less than computing it did. Else it has to be worth more than all that would have
 * to go for it, which are those that were not used for longest; one that outweighs it gets a second
 * chance at the other end. So inputs that come once do not push out those that come again, and cost
 * no copy. What is larger than an eighth of the limit is neither looked for nor kept.
 *
 * Requests for the same input at the same time are all computed: they share a launch as it is, and
 * one that waited for another would share its deadline, its client's hang-up and its failure.
 *
 * Thread-safe. Its mutex is a leaf: nothing else is locked or allocated while it is held. */
#ifndef XN_RESPONSE_CACHE_H
#define XN_RESPONSE_CACHE_H

#include "keyed_hash.h"
#include "metrics.h"
#include "xn_problem.h"

typedef struct xn_response_cache xn_response_cache;

/* What answers belong to. Zeroes with cache set; NULL where there is none. */
typedef struct xn_response_owner {
    xn_response_cache *cache;         /* constant */
    struct xn_cached_response *first; /* the cache's mutex guards this and all below */
    double ns_per_work;               /* a multiply-add's share of the last computations */
    bool retired;                     /* nothing is kept any more */
} xn_response_owner;

typedef struct xn_response_key {
    xn_response_owner *owner;
    const xn_problem *problem;
    uint64_t tenant;
    int pool;
    const void *input; /* all images of it */
    size_t input_bytes;
} xn_response_key;

/* What is told of an output besides its bytes. */
typedef struct xn_response_origin {
    int device;
    xn_precision precision;
} xn_response_origin;

/* What a lookup leaves for keeping what is computed then. */
typedef struct xn_response_probe {
    bool asked;
    uint64_t hash, generation;
    int pool;
} xn_response_probe;

typedef uint64_t xn_response_hash_fn(const xn_hash_key *key, const xn_hash_part *parts,
                                     size_t count);

/* hash: NULL, or one that takes the place of xn_keyed_hash, for tests. limit_bytes > 0. metrics:
 * borrowed. */
xn_status xn_response_cache_create(size_t limit_bytes, xn_response_hash_fn *hash,
                                   xn_metrics *metrics, xn_response_cache **out, xn_error *error);
void xn_response_cache_free(xn_response_cache *cache); /* NULL-safe; nobody uses it any more */

/* The output of that key into `output`, output_bytes long as the problem says. *probe is set either
 * way. */
bool xn_response_cache_get(xn_response_cache *cache, const xn_response_key *key, void *output,
                           size_t output_bytes, xn_response_origin *origin,
                           xn_response_probe *probe);
/* Keeps a copy of input and output, where it pays; whether it does. probe: of the lookup that did
 * not find it. run_ns: what computing it took. Not kept: what was computed across a clear. */
bool xn_response_cache_put(xn_response_cache *cache, const xn_response_key *key,
                           const xn_response_probe *probe, const void *output, size_t output_bytes,
                           const xn_response_origin *origin, int64_t run_ns);

/* Nothing of the owner is there from now on. Idempotent; also of one without a cache. */
void xn_response_owner_retire(xn_response_owner *owner);
/* Forgets everything, also what is being computed now: a device was lost, and with it what it
 * computed last is in doubt. */
void xn_response_cache_clear(xn_response_cache *cache);
/* Gives back the memory of all outputs; whether there were any. For a thread that finds none; it
 * may hold any other lock. */
bool xn_response_cache_trim(xn_response_cache *cache);

#endif
