/* shared_memory.h: regions of POSIX shared memory that clients on the same host registered, to take
 * inputs from and put outputs into. A client that may register them can read and write what the
 * daemon's user may: so there is a flag, --allow-client-shm.
 *
 * A region belongs to the key that registered it, its owner: under another key there is none of
 * that name, and the same name may be registered there too. Without keys the owner is 0.
 *
 * Where the backend uses pinned memory, it uses theirs in place (region.h). Thread-safe. */
#ifndef XN_SHARED_MEMORY_H
#define XN_SHARED_MEMORY_H

#include "region.h"

#define XN_SHARED_MEMORY_MAX_REGIONS 128

typedef struct xn_shared_memory xn_shared_memory;

/* Borrows both. most_pinned: bytes of clients' memory that may be pinned. */
xn_status xn_shared_memory_create(xn_engine *engine, xn_thread_pool *pool, size_t most_pinned,
                                  xn_shared_memory **out, xn_error *error);
/* NULL-safe; the background pool has been stopped, and what was borrowed given back. */
void xn_shared_memory_free(xn_shared_memory *shared);

/* Opens what the key names, and checks that it is as large as it is said to be. XN_ERR_MALFORMED:
 * a name that is taken, a key that is none or names nothing, or too little; XN_ERR_LIMIT. */
xn_status xn_shared_memory_add(xn_shared_memory *shared, uint64_t owner, const char *name,
                               const xn_shm_request *request, xn_error *error);
/* NULL: all of the owner's. A name that is not known is as good as removed. */
void xn_shared_memory_remove(xn_shared_memory *shared, uint64_t owner, const char *name);

/* Copies bytes of a region. The range must lie in what was registered. XN_ERR_MALFORMED, field
 * `field`. */
xn_status xn_shared_memory_read(xn_shared_memory *shared, uint64_t owner, const xn_oip_shared *from,
                                const char *field, void *destination, size_t bytes,
                                xn_error *error);
xn_status xn_shared_memory_write(xn_shared_memory *shared, uint64_t owner, const xn_oip_shared *to,
                                 const char *field, const void *values, size_t bytes,
                                 xn_error *error);
/* What both would say of the range, without copying. */
xn_status xn_shared_memory_check(xn_shared_memory *shared, uint64_t owner,
                                 const xn_oip_shared *range, const char *field, size_t bytes,
                                 xn_error *error);

/* A range of a region where it lies, for devices alone to read and write (xn_engine_uses_pinned).
 */
typedef struct xn_shared_loan {
    void *memory; /* NULL: none */
    xn_region *region;
} xn_shared_loan;
/* False where it has to be copied, and where the range is wrong: copying reports that. */
bool xn_shared_memory_borrow(xn_shared_memory *shared, uint64_t owner, const xn_oip_shared *range,
                             size_t bytes, xn_shared_loan *out);
void xn_shared_memory_give_back(xn_shared_loan *loan); /* idempotent */

/* In the order of registration; free with xn_mem_free. name: that one, or NULL: all the owner's. */
xn_status xn_shared_memory_list(xn_shared_memory *shared, uint64_t owner, const char *name,
                                xn_region_item **items, size_t *count, xn_error *error);

#endif
