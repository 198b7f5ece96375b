/* buffers.c: a pool of host buffers by size class.
 *
 * Classes are powers of two from 4 KiB; above 64 KiB every octave has four steps, so that a buffer
 * wastes at most a quarter there, where it matters. A free buffer holds its own list node, so
 * keeping buffers costs no further memory. Each class is a list with the most recently returned
 * buffer (the one still in the caches) in front. What callers hold and what is kept are together
 * at most max_bytes, as long as callers keep to it: kept ones make room, those that were returned
 * longest ago first, whatever their class. So the pool follows the traffic: sizes that nobody asks
 * for any more make room for those in use, and xn_buffers_trim gives back what lies idle.
 *
 * Allocating pinned memory takes the driver's locks and milliseconds, so it and its freeing happen
 * outside the mutex. */
#include "buffers.h"

#include "clock.h"
#include "threads.h"
#include "xn_mem.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define SMALLEST_BITS 12              /* 4 KiB */
#define STEPPED_BITS 16               /* above 64 KiB: quarter steps */
#define QUICK_BYTES ((size_t)1 << 20) /* pinning so much takes a fraction of a millisecond */
#define LARGEST_BITS 46               /* no host has more than 64 TiB for one buffer */
#define STEPPED_CLASS (STEPPED_BITS - SMALLEST_BITS)
#define CLASS_COUNT (STEPPED_CLASS + 1 + (LARGEST_BITS - STEPPED_BITS) * 4)

/* Lives in the first bytes of a free buffer. */
typedef struct node {
    struct node *newer, *older; /* in its class */
    int64_t returned_ns;
} node;

struct xn_buffers {
    const xn_backend *backend; /* NULL: plain memory */
    xn_device *device;
    size_t max_bytes;

    pthread_mutex_t mutex; /* guards all below */
    struct {
        node *newest, *oldest;
    } free[CLASS_COUNT];
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
    return buffers->backend ? buffers->backend->host_alloc(buffers->device, bytes)
                            : xn_mem_alloc(bytes);
}

static void memory_free(const xn_buffers *buffers, void *memory) {
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
    xn_mutex_init_brief(&buffers->mutex);
    *out = buffers;
    return XN_OK;
}

/* ---- the lists ---- */

static void push_locked(xn_buffers *buffers, int class, node *item) {
    item->newer = NULL;
    item->older = buffers->free[class].newest;
    item->returned_ns = xn_now_ns();
    *(item->older ? &item->older->newer : &buffers->free[class].oldest) = item;
    buffers->free[class].newest = item;
    buffers->kept_bytes += class_bytes(class);
}

/* item: a free buffer of the class, or NULL. */
static node *take_locked(xn_buffers *buffers, int class, node *item) {
    if (!item)
        return NULL;
    *(item->newer ? &item->newer->older : &buffers->free[class].newest) = item->older;
    *(item->older ? &item->older->newer : &buffers->free[class].oldest) = item->newer;
    buffers->kept_bytes -= class_bytes(class);
    return item;
}

/* The class whose oldest buffer was returned before all others', or -1 when none is kept. */
static int oldest_class_locked(const xn_buffers *buffers) {
    int found = -1;
    for (int class = 0; class < CLASS_COUNT; class ++) {
        const node *oldest = buffers->free[class].oldest;
        if (oldest && (found < 0 || oldest->returned_ns < buffers->free[found].oldest->returned_ns))
            found = class;
    }
    return found;
}

/* Takes buffers out, longest unused first, until at most `most` bytes are kept or the next one was
 * returned at keep_ns or later. They come back chained by `older`, to be freed without the mutex.
 */
static node *evict_locked(xn_buffers *buffers, size_t most, int64_t keep_ns) {
    node *evicted = NULL;
    while (buffers->kept_bytes > most) {
        int class = oldest_class_locked(buffers);
        assert(class >= 0); /* kept_bytes > 0, so some list has a buffer */
        if (buffers->free[class].oldest->returned_ns >= keep_ns)
            break;
        node *item = take_locked(buffers, class, buffers->free[class].oldest);
        item->older = evicted;
        evicted = item;
    }
    return evicted;
}

/* What may be kept beside what callers hold. */
static size_t room_locked(const xn_buffers *buffers) {
    return buffers->held_bytes < buffers->max_bytes ? buffers->max_bytes - buffers->held_bytes : 0;
}

static void free_chain(const xn_buffers *buffers, node *item) {
    while (item) {
        node *next = item->older;
        memory_free(buffers, item);
        item = next;
    }
}

/* ---- */

/* A kept buffer of the class, or NULL: one more is held then all the same, for the caller to make
 * or to take back. */
static void *hold(xn_buffers *buffers, int class) {
    pthread_mutex_lock(&buffers->mutex);
    void *memory = take_locked(buffers, class, buffers->free[class].newest);
    buffers->held++;
    buffers->held_bytes += class_bytes(class);
    node *evicted = evict_locked(buffers, room_locked(buffers), INT64_MAX);
    pthread_mutex_unlock(&buffers->mutex);
    free_chain(buffers, evicted);
    return memory;
}

static void *make(xn_buffers *buffers, int class) {
    void *memory = memory_alloc(buffers, class_bytes(class));
    if (!memory) {
        xn_buffers_trim(buffers, INT64_MAX); /* what lies in other classes may be what is missing */
        memory = memory_alloc(buffers, class_bytes(class));
    }
    if (memory)
        return memory;
    pthread_mutex_lock(&buffers->mutex);
    buffers->held--;
    buffers->held_bytes -= class_bytes(class);
    pthread_mutex_unlock(&buffers->mutex);
    return NULL;
}

void *xn_buffers_get(xn_buffers *buffers, size_t bytes) {
    int class = class_of(bytes);
    if (class < 0)
        return NULL;
    void *memory = hold(buffers, class);
    return memory ? memory : make(buffers, class);
}

void *xn_buffers_get_quick(xn_buffers *buffers, size_t bytes) {
    int class = class_of(bytes);
    if (class < 0)
        return NULL;
    if (!buffers->backend || bytes <= QUICK_BYTES)
        return xn_buffers_get(buffers, bytes);
    pthread_mutex_lock(&buffers->mutex);
    void *memory = take_locked(buffers, class, buffers->free[class].newest);
    if (memory) {
        buffers->held++;
        buffers->held_bytes += class_bytes(class);
    }
    pthread_mutex_unlock(&buffers->mutex);
    return memory;
}

void xn_buffers_put(xn_buffers *buffers, void *buffer, size_t bytes) {
    int class = class_of(bytes);
    if (!buffer)
        return;
    assert(class >= 0); /* get gave no such buffer */
    pthread_mutex_lock(&buffers->mutex);
    assert(buffers->held);
    buffers->held--;
    buffers->held_bytes -= class_bytes(class);
    push_locked(buffers, class, buffer);
    node *evicted = evict_locked(buffers, room_locked(buffers), INT64_MAX);
    pthread_mutex_unlock(&buffers->mutex);
    free_chain(buffers, evicted);
}

size_t xn_buffers_trim(xn_buffers *buffers, int64_t returned_before_ns) {
    pthread_mutex_lock(&buffers->mutex);
    size_t before = buffers->kept_bytes;
    node *evicted = evict_locked(buffers, 0, returned_before_ns);
    size_t freed = before - buffers->kept_bytes;
    pthread_mutex_unlock(&buffers->mutex);
    free_chain(buffers, evicted);
    return freed;
}

void xn_buffers_free(xn_buffers *buffers) {
    if (!buffers)
        return;
    assert(!buffers->held);
    xn_buffers_trim(buffers, INT64_MAX);
    pthread_mutex_destroy(&buffers->mutex);
    xn_mem_free(buffers);
}
