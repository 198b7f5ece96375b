/* buffers.c: a pool of host buffers by size class.
 *
 * Classes are powers of two from 4 KiB; above 64 KiB every octave has four steps, so that a buffer
 * wastes at most a quarter there, where it matters. A free buffer holds its own list node, so
 * keeping buffers costs no further memory. Each class is a list with the most recently returned
 * buffer (the one still in the caches) in front. What callers hold and what is kept are together
 * at most max_bytes, as long as callers keep to it: kept ones make room, those that were returned
 * longest ago first, whatever their class. So the pool follows the traffic: sizes that no caller
 * asks for any more make room for those in use, and xn_buffers_trim gives back what lies idle.
 *
 * Small buffers go first to the shard of the processor that puts them. What a shard keeps stays
 * counted as held, so that neither way between it and a caller touches what all threads share. A
 * buffer is made only where no list and no shard has one. When what counts as held passes
 * max_bytes, the shards are closed and emptied into the lists; trimming takes what is old out of
 * them too.
 *
 * Allocating pinned memory takes the driver's locks and milliseconds, so it and its freeing happen
 * without a lock (lock.h). */
#include "buffers.h"

#include "buffer_shards.h"
#include "clock.h"
#include "list.h"
#include "lock.h"
#include "xn_mem.h"

#include <string.h>

#define SMALLEST_BITS 12              /* 4 KiB */
#define STEPPED_BITS 16               /* above 64 KiB: quarter steps */
#define QUICK_BYTES ((size_t)1 << 20) /* pinning so much takes a fraction of a millisecond */
#define LARGEST_BITS 46               /* no host has more than 64 TiB for one buffer */
#define STEPPED_CLASS (STEPPED_BITS - SMALLEST_BITS)
#define CLASS_COUNT (STEPPED_CLASS + 1 + (LARGEST_BITS - STEPPED_BITS) * 4)
#define SHARD_BYTES ((size_t)1 << 20)
#define SHARDS_PART 64 /* of max_bytes, for all shards: what is in them is not given out by age */

/* Lives in the first bytes of a free buffer. */
typedef struct node {
    xn_list link; /* in its class, or in a list of those to be freed */
    int64_t returned_ns;
} node;

struct xn_buffers {
    const xn_backend *backend; /* NULL: plain memory */
    xn_device *device;
    size_t max_bytes;
    xn_buffer_shards *shards; /* NULL: none */

    /* Guards all below; on a line that the quick way between callers and shards does not read. */
    _Alignas(XN_MEM_ALIGNMENT) xn_lock lock;
    xn_list free[CLASS_COUNT];     /* the newest first */
    size_t kept_bytes, held_bytes; /* of all free lists; of what callers hold and shards keep */
    uint64_t held;                 /* buffers that callers hold or shards keep */
};

/* The class that holds bytes, or -1 when none is large enough. */
static int class_of(size_t bytes) {
    if (bytes <= (size_t)1 << SMALLEST_BITS)
        return 0;
    if (bytes > (size_t)1 << LARGEST_BITS)
        return -1;
    int octave = 63 - __builtin_clzll(bytes - 1); /* 2^octave < bytes <= 2^(octave+1) */
    if (octave < STEPPED_BITS)
        return octave + 1 - SMALLEST_BITS;
    int step = (int)((bytes - 1 - ((size_t)1 << octave)) >> (octave - 2));
    return STEPPED_CLASS + 1 + (octave - STEPPED_BITS) * 4 + step;
}

static size_t class_bytes(int class) {
    if (class <= STEPPED_CLASS)
        return (size_t)1 << (SMALLEST_BITS + class);
    int octave = STEPPED_BITS + (class - STEPPED_CLASS - 1) / 4;
    size_t step = (size_t)(class - STEPPED_CLASS - 1) % 4 + 1;
    return ((size_t)1 << octave) + (step << (octave - 2));
}

size_t xn_buffers_size(size_t bytes) {
    int class = class_of(bytes);
    return class < 0 ? bytes : class_bytes(class);
}

static void *memory_alloc(const xn_buffers *buffers, size_t bytes) {
    xn_lock_assert_none();
    return buffers->backend ? buffers->backend->host_alloc(buffers->device, bytes)
                            : xn_mem_alloc(bytes);
}

static void memory_free(const xn_buffers *buffers, void *memory) {
    xn_lock_assert_none();
    if (buffers->backend)
        buffers->backend->host_free(buffers->device, memory);
    else
        xn_mem_free(memory);
}

static xn_status create_shards(xn_buffers *buffers, unsigned count, xn_error *error) {
    if (!count)
        return XN_OK;
    const size_t part = buffers->max_bytes / SHARDS_PART / count;
    return xn_buffer_shards_create(count, part < SHARD_BYTES ? part : SHARD_BYTES, &buffers->shards,
                                   error);
}

xn_status xn_buffers_create(const xn_backend *backend, xn_device *device, size_t max_bytes,
                            unsigned shards, xn_buffers **out, xn_error *error) {
    xn_buffers *buffers = xn_mem_zalloc(1, sizeof *buffers);
    if (!buffers)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the buffer pool (%zu bytes)",
                       sizeof *buffers);
    if (backend && device && backend->host_alloc && backend->host_free)
        buffers->backend = backend;
    buffers->device = device;
    buffers->max_bytes = max_bytes;
    xn_status status = create_shards(buffers, shards, error);
    if (status != XN_OK) {
        xn_mem_free(buffers);
        return status;
    }
    xn_lock_init(&buffers->lock);
    for (int class = 0; class < CLASS_COUNT; class ++)
        xn_list_init(&buffers->free[class]);
    *out = buffers;
    return XN_OK;
}

/* ---- the lists ---- */

static node *node_of(xn_list *link) {
    return XN_LIST_ITEM(link, node, link);
}

/* newer: the one that it goes behind, or the class's list. */
static void link_locked(xn_buffers *buffers, int class, node *item, xn_list *newer,
                        int64_t returned_ns) {
    item->returned_ns = returned_ns;
    xn_list_add_first(newer, &item->link);
    buffers->kept_bytes += class_bytes(class);
}

/* Where it belongs by its time; from the oldest on, because it comes from a shard for its age or
 * when little is kept. */
static void insert_locked(xn_buffers *buffers, int class, node *item, int64_t returned_ns) {
    xn_list *newer = buffers->free[class].previous;
    while (newer != &buffers->free[class] && node_of(newer)->returned_ns < returned_ns)
        newer = newer->previous;
    link_locked(buffers, class, item, newer, returned_ns);
}

/* The newest or the oldest of a class, which has one. */
static node *take_locked(xn_buffers *buffers, int class, xn_list *link) {
    xn_list_remove(link);
    buffers->kept_bytes -= class_bytes(class);
    return node_of(link);
}

/* When the class's oldest buffer was returned; INT64_MAX: it has none. */
static int64_t oldest_ns_locked(const xn_buffers *buffers, int class) {
    const xn_list *list = &buffers->free[class];
    return xn_list_is_empty(list) ? INT64_MAX : node_of(list->previous)->returned_ns;
}

/* The class whose oldest buffer was returned before all others'. */
static int oldest_class_locked(const xn_buffers *buffers) {
    int found = 0;
    for (int class = 1; class < CLASS_COUNT; class ++)
        if (oldest_ns_locked(buffers, class) < oldest_ns_locked(buffers, found))
            found = class;
    return found;
}

/* Takes buffers out, longest unused first, until at most `most` bytes are kept or the next one was
 * returned at keep_ns or later. They come in the list, to be freed without the lock. */
static void evict_locked(xn_buffers *buffers, size_t most, int64_t keep_ns, xn_list *evicted) {
    xn_list_init(evicted);
    while (buffers->kept_bytes > most) {
        int class = oldest_class_locked(buffers);
        if (oldest_ns_locked(buffers, class) >= keep_ns)
            break;
        node *item = take_locked(buffers, class, buffers->free[class].previous);
        xn_list_add_first(evicted, &item->link);
    }
}

/* What may be kept beside what callers hold. */
static size_t room_locked(const xn_buffers *buffers) {
    return buffers->held_bytes < buffers->max_bytes ? buffers->max_bytes - buffers->held_bytes : 0;
}

static void free_all(const xn_buffers *buffers, xn_list *evicted) {
    while (!xn_list_is_empty(evicted)) {
        xn_list *first = evicted->next;
        xn_list_remove(first);
        memory_free(buffers, node_of(first));
    }
}

/* Frees what is kept beside what callers hold beyond max_bytes. */
static void make_room(xn_buffers *buffers) {
    xn_list evicted;
    xn_lock_take(&buffers->lock);
    evict_locked(buffers, room_locked(buffers), INT64_MAX, &evicted);
    xn_lock_drop(&buffers->lock);
    free_all(buffers, &evicted);
}

/* Frees what was returned before that time; the bytes of it. */
static size_t free_old(xn_buffers *buffers, int64_t returned_before_ns) {
    xn_list evicted;
    xn_lock_take(&buffers->lock);
    size_t before = buffers->kept_bytes;
    evict_locked(buffers, 0, returned_before_ns, &evicted);
    size_t freed = before - buffers->kept_bytes;
    xn_lock_drop(&buffers->lock);
    free_all(buffers, &evicted);
    return freed;
}

/* ---- what counts as held ---- */

/* Whether more than max_bytes is held; the shards are closed as long as it is. */
static bool update_shards_locked(xn_buffers *buffers) {
    const bool over = buffers->held_bytes > buffers->max_bytes;
    if (buffers->shards)
        xn_buffer_shards_close(buffers->shards, over);
    return over;
}

static bool hold_locked(xn_buffers *buffers, int class) {
    buffers->held++;
    buffers->held_bytes += class_bytes(class);
    return update_shards_locked(buffers);
}

static void release_locked(xn_buffers *buffers, int class) {
    assert(buffers->held);
    buffers->held--;
    buffers->held_bytes -= class_bytes(class);
    update_shards_locked(buffers);
}

/* From the shards to the lists what was returned before that time. */
static void empty_shards(xn_buffers *buffers, int64_t returned_before_ns) {
    const unsigned count = buffers->shards ? xn_buffer_shards_count(buffers->shards) : 0;
    for (unsigned shard = 0; shard < count; shard++) {
        xn_shard_buffer taken[XN_SHARD_MOST];
        const int n =
            xn_buffer_shards_take(buffers->shards, shard, returned_before_ns, class_bytes, taken);
        if (!n)
            continue;
        xn_lock_take(&buffers->lock);
        for (int i = 0; i < n; i++) {
            release_locked(buffers, taken[i].class);
            insert_locked(buffers, taken[i].class, taken[i].memory, taken[i].returned_ns);
        }
        xn_lock_drop(&buffers->lock);
    }
}

/* ---- */

static void *take_kept(xn_buffers *buffers, int class) {
    xn_lock_take(&buffers->lock);
    xn_list *list = &buffers->free[class];
    void *memory = xn_list_is_empty(list) ? NULL : take_locked(buffers, class, list->next);
    if (memory)
        hold_locked(buffers, class);
    xn_lock_drop(&buffers->lock);
    return memory;
}

/* One that lies in a list or a shard, nearest first. */
static void *take_free(xn_buffers *buffers, int class) {
    if (!buffers->shards)
        return take_kept(buffers, class);
    void *memory = xn_buffer_shards_get(buffers->shards, class, class_bytes(class));
    if (!memory)
        memory = take_kept(buffers, class);
    return memory ? memory : xn_buffer_shards_steal(buffers->shards, class, class_bytes(class));
}

/* Counts one more as held, and makes room for it. */
static void hold(xn_buffers *buffers, int class) {
    xn_list evicted;
    xn_lock_take(&buffers->lock);
    const bool over = hold_locked(buffers, class);
    evict_locked(buffers, room_locked(buffers), INT64_MAX, &evicted);
    xn_lock_drop(&buffers->lock);
    free_all(buffers, &evicted);
    if (over && buffers->shards) {
        empty_shards(buffers, INT64_MAX);
        make_room(buffers);
    }
}

void xn_buffers_charge(xn_buffers *buffers, int64_t bytes) {
    xn_lock_take(&buffers->lock);
    buffers->held_bytes += (size_t)bytes;
    update_shards_locked(buffers);
    xn_lock_drop(&buffers->lock);
    make_room(buffers);
}

static void *make(xn_buffers *buffers, int class) {
    hold(buffers, class);
    void *memory = memory_alloc(buffers, class_bytes(class));
    if (!memory) {
        xn_buffers_trim(buffers, INT64_MAX); /* what lies in other classes may be what is missing */
        memory = memory_alloc(buffers, class_bytes(class));
    }
    if (memory)
        return memory;
    xn_lock_take(&buffers->lock);
    release_locked(buffers, class);
    xn_lock_drop(&buffers->lock);
    return NULL;
}

void *xn_buffers_get(xn_buffers *buffers, size_t bytes) {
    int class = class_of(bytes);
    if (class < 0)
        return NULL;
    void *memory = take_free(buffers, class);
    return memory ? memory : make(buffers, class);
}

void *xn_buffers_get_quick(xn_buffers *buffers, size_t bytes) {
    int class = class_of(bytes);
    if (class < 0)
        return NULL;
    void *memory = take_free(buffers, class);
    return memory || (buffers->backend && bytes > QUICK_BYTES) ? memory : make(buffers, class);
}

void xn_buffers_put(xn_buffers *buffers, void *buffer, size_t bytes) {
    int class = class_of(bytes);
    xn_list evicted;
    if (!buffer)
        return;
    assert(class >= 0); /* get gave no such buffer */
    if (buffers->shards && xn_buffer_shards_put(buffers->shards, class, class_bytes(class), buffer))
        return;
    xn_lock_take(&buffers->lock);
    release_locked(buffers, class);
    link_locked(buffers, class, buffer, &buffers->free[class], xn_now_ns());
    evict_locked(buffers, room_locked(buffers), INT64_MAX, &evicted);
    xn_lock_drop(&buffers->lock);
    free_all(buffers, &evicted);
}

size_t xn_buffers_trim(xn_buffers *buffers, int64_t returned_before_ns) {
    size_t freed = free_old(buffers, returned_before_ns);
    if (!buffers->shards)
        return freed;
    empty_shards(buffers, returned_before_ns);
    return freed + free_old(buffers, returned_before_ns);
}

void xn_buffers_free(xn_buffers *buffers) {
    if (!buffers)
        return;
    xn_buffers_trim(buffers, INT64_MAX);
    assert(!buffers->held); /* counts what shards keep, so after they are empty */
    xn_buffer_shards_free(buffers->shards);
    xn_lock_destroy(&buffers->lock);
    xn_mem_free(buffers);
}
