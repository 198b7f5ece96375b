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
 * Allocating pinned memory takes the driver's locks and milliseconds, so it and its freeing happen
 * without a lock (lock.h). */
#include "buffers.h"

#include "clock.h"
#include "list.h"
#include "lock.h"
#include "xn_mem.h"

#include <string.h>

#define SMALLEST_BITS 12              /* 4 KiB */
#define STEPPED_BITS 16               /* above 64 KiB: quarter steps */
#define QUICK_BYTES ((size_t)1 << 20) /* pinning as many takes a fraction of a millisecond */
#define LARGEST_BITS 46               /* no host has more than 64 TiB for one buffer */
#define STEPPED_CLASS (STEPPED_BITS - SMALLEST_BITS)
#define CLASS_COUNT (STEPPED_CLASS + 1 + (LARGEST_BITS - STEPPED_BITS) * 4)

/* Lives in the first bytes of a free buffer. */
typedef struct node {
    xn_list link; /* in its class, or in a list of those to be freed */
    int64_t returned_ns;
} node;

struct xn_buffers {
    const xn_backend *backend; /* NULL: plain memory */
    xn_device *device;
    size_t max_bytes;

    xn_lock lock;                  /* guards all below */
    xn_list free[CLASS_COUNT];     /* the newest first */
    size_t kept_bytes, held_bytes; /* of all free lists; of what callers hold */
    uint64_t held;                 /* buffers that callers hold */
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

xn_status xn_buffers_create(const xn_backend *backend, xn_device *device, size_t max_bytes,
                            xn_buffers **out, xn_error *error) {
    xn_buffers *buffers = xn_mem_zalloc(1, sizeof *buffers);
    if (!buffers)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the buffer pool (%zu bytes)",
                       sizeof *buffers);
    if (backend && device && backend->host_alloc && backend->host_free)
        buffers->backend = backend;
    buffers->device = device;
    buffers->max_bytes = max_bytes;
    xn_lock_init(&buffers->lock);
    for (int class = 0; class < CLASS_COUNT; class ++)
        xn_list_init(&buffers->free[class]);
    *out = buffers;
    return XN_OK;
}

/* ---- the lists ---- */

static node *node_of(xn_list *link) {
    return XN_ITEM(link, node, link);
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

/* Frees what was returned before that time, until at most `most` bytes are kept and those fit
 * beside what callers hold; the bytes of it. */
static size_t free_kept(xn_buffers *buffers, size_t most, int64_t returned_before_ns) {
    xn_list evicted;
    xn_lock_take(&buffers->lock);
    const size_t room = room_locked(buffers), before = buffers->kept_bytes;
    evict_locked(buffers, most < room ? most : room, returned_before_ns, &evicted);
    const size_t freed = before - buffers->kept_bytes;
    xn_lock_drop(&buffers->lock);
    free_all(buffers, &evicted);
    return freed;
}

static void release_locked(xn_buffers *buffers, int class) {
    assert(buffers->held);
    buffers->held--;
    buffers->held_bytes -= class_bytes(class);
}

/* It counts as held already. */
static void *make(xn_buffers *buffers, int class) {
    free_kept(buffers, SIZE_MAX, INT64_MAX);
    void *memory = memory_alloc(buffers, class_bytes(class));
    if (!memory) {
        xn_buffers_trim(buffers, INT64_MAX); /* what lies in other classes may be what is missing */
        memory = memory_alloc(buffers, class_bytes(class));
    }
    if (!memory) {
        xn_lock_take(&buffers->lock);
        release_locked(buffers, class);
        xn_lock_drop(&buffers->lock);
    }
    return memory;
}

/* made: whether it may be made. */
static void *get(xn_buffers *buffers, int class, bool made) {
    void *memory = NULL;
    xn_lock_take(&buffers->lock);
    xn_list *list = &buffers->free[class];
    if (!xn_list_is_empty(list))
        memory = take_locked(buffers, class, list->next);
    if (memory || made) {
        buffers->held++;
        buffers->held_bytes += class_bytes(class);
    }
    xn_lock_drop(&buffers->lock);
    return memory || !made ? memory : make(buffers, class);
}

void *xn_buffers_get(xn_buffers *buffers, size_t bytes) {
    const int class = class_of(bytes);
    return class < 0 ? NULL : get(buffers, class, true);
}

void *xn_buffers_get_quick(xn_buffers *buffers, size_t bytes) {
    const int class = class_of(bytes);
    return class < 0 ? NULL : get(buffers, class, !buffers->backend || bytes <= QUICK_BYTES);
}

void xn_buffers_put(xn_buffers *buffers, void *buffer, size_t bytes) {
    const int class = class_of(bytes);
    node *item = buffer;
    xn_list evicted;
    if (!buffer)
        return;
    assert(class >= 0); /* get gave no such buffer */
    xn_lock_take(&buffers->lock);
    release_locked(buffers, class);
    item->returned_ns = xn_now_ns();
    xn_list_add_first(&buffers->free[class], &item->link);
    buffers->kept_bytes += class_bytes(class);
    evict_locked(buffers, room_locked(buffers), INT64_MAX, &evicted);
    xn_lock_drop(&buffers->lock);
    free_all(buffers, &evicted);
}

void xn_buffers_charge(xn_buffers *buffers, int64_t bytes) {
    xn_lock_take(&buffers->lock);
    buffers->held_bytes += (size_t)bytes;
    xn_lock_drop(&buffers->lock);
    free_kept(buffers, SIZE_MAX, INT64_MAX);
}

size_t xn_buffers_trim(xn_buffers *buffers, int64_t returned_before_ns) {
    return free_kept(buffers, 0, returned_before_ns);
}

void xn_buffers_free(xn_buffers *buffers) {
    if (!buffers)
        return;
    xn_buffers_trim(buffers, INT64_MAX);
    assert(!buffers->held);
    xn_lock_destroy(&buffers->lock);
    xn_mem_free(buffers);
}
