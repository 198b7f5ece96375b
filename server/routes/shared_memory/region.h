/* region.h: one region of shared memory that a client registered: the object, open and mapped, and
 * where the devices take that, pinned for their transfers.
 *
 * A client may cut the object short at any moment. So nothing here touches the mapping: touching a
 * page that is gone would kill the process. Values are read by pread, and written by the system's
 * process_vm_writev, which fails instead, and which does not take the one lock that tmpfs has for
 * all writers of an object (pwrite does, where that call is not allowed). Pinned pages stay with
 * the devices whatever becomes of the object; but once it was cut short they are no longer its own,
 * and the region is used as one that is not pinned. */
#ifndef XN_REGION_H
#define XN_REGION_H

#include "engine.h"
#include "thread_pool.h"
#include "xn_oip.h"

#include <sys/types.h>

typedef struct xn_region_item {
    uint64_t owner; /* the key that registered it (xn_auth_match); 0: there are no keys */
    char name[XN_OIP_MAX_REGION + 1];
    xn_shm_request region;
} xn_region_item;

/* What all regions share: the devices that pin them, and the limit. */
typedef struct xn_region_home {
    xn_engine *engine;
    xn_thread_pool *pool; /* pins, unpins and unmaps: all take milliseconds */
    size_t most_pinned;   /* bytes of all regions together; those beyond are not pinned */
    atomic_size_t pinned; /* so far */
    int pagemap;          /* of this process; -1: nothing is pinned */
} xn_region_home;

xn_region_home xn_region_home_open(xn_engine *engine, xn_thread_pool *pool, size_t most_pinned);
void xn_region_home_close(xn_region_home *home); /* after all regions */

typedef struct xn_region xn_region;

/* With one reference. XN_ERR_MALFORMED: a key that is none or names
 * nothing, or too little there; XN_ERR_NO_MEMORY. */
xn_status xn_region_open(xn_region_home *home, const xn_region_item *what, xn_region **out,
                         xn_error *error);
/* Pins it in the background, where the backend uses pinned memory. Called once. */
void xn_region_pin(xn_region *region);
void xn_region_retain(xn_region *region);
void xn_region_release(xn_region *region); /* NULL-safe; quick */
const xn_region_item *xn_region_what(const xn_region *region);

/* As pread and pwrite, from the region's own offset on; 0: the object ends before. */
ssize_t xn_region_read(const xn_region *region, uint64_t at, void *to, size_t bytes);
ssize_t xn_region_write(const xn_region *region, uint64_t at, const void *from, size_t bytes);

/* Where that byte is in the pinned mapping, for devices alone; NULL where it is not pinned, or not
 * any more. */
void *xn_region_pinned(xn_region *region, uint64_t at);

#endif
