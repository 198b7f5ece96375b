/* buffer_shards.h: a few free buffers for each processor, so that what a processor has put comes
 * back to it, with its lines still in that processor's caches, and without a lock that all share.
 * The front of the pool of buffers.h, which counts what is in here as held. Classes are the pool's,
 * by number, smallest first. Thread-safe; takes no lock of another's and allocates nothing. */
#ifndef XN_BUFFER_SHARDS_H
#define XN_BUFFER_SHARDS_H

#include "xn_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XN_SHARD_CLASSES 9 /* the smallest ones: 4 to 128 KiB */
#define XN_SHARD_SLOTS 2   /* buffers of a class */
#define XN_SHARD_MOST (XN_SHARD_CLASSES * XN_SHARD_SLOTS)

typedef struct xn_buffer_shards xn_buffer_shards;

typedef struct xn_shard_buffer {
    void *memory;
    int class;
    int64_t returned_ns; /* when it was put */
} xn_shard_buffer;

/* count: a power of two; processors share a shard by their number modulo count. shard_bytes: what
 * each keeps at most. */
xn_status xn_buffer_shards_create(unsigned count, size_t shard_bytes, xn_buffer_shards **out,
                                  xn_error *error);
void xn_buffer_shards_free(xn_buffer_shards *shards); /* emptied before; NULL-safe */
unsigned xn_buffer_shards_count(const xn_buffer_shards *shards);

/* To this processor's shard; bytes: those of the class. False: it has no room for it. */
bool xn_buffer_shards_put(xn_buffer_shards *shards, int class, size_t bytes, void *memory);
/* From this processor's shard, the newest; NULL: it has none. */
void *xn_buffer_shards_get(xn_buffer_shards *shards, int class, size_t bytes);
/* From whichever shard has one. */
void *xn_buffer_shards_steal(xn_buffer_shards *shards, int class, size_t bytes);

/* Takes what was put before that time out of one shard, 0 to count - 1; how many. bytes_of: the
 * bytes of a class. */
int xn_buffer_shards_take(xn_buffer_shards *shards, unsigned shard, int64_t before_ns,
                          size_t (*bytes_of)(int class), xn_shard_buffer out[XN_SHARD_MOST]);

/* Closed ones take nothing: a shard whose buffers are taken out after that stays empty. */
void xn_buffer_shards_close(xn_buffer_shards *shards, bool closed);

#endif
