/* buffers.c: a pool of host buffers by size class.
 *
 * Classes are powers of two from 4 KiB; above 1 MiB every octave has four steps, so that a buffer
 * wastes at most a quarter there, where it matters. A free buffer holds its own list node, so
 * keeping buffers costs no further memory. Each class is a list with the most recently returned
 * buffer (the one still in the caches) in front; when more is kept than allowed, the buffer that
 * was returned longest ago, whatever its class, goes back to the system. So the pool follows the
 * traffic: sizes that nobody asks for any more make room for those in use.
 *
 * Allocating pinned memory takes the driver's locks and milliseconds, so it and its freeing happen
 * outside the mutex. */
#include "buffers.h"

#include "xn_mem.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define SMALLEST_BITS 12 /* 4 KiB */
#define STEPPED_BITS 20  /* above 1 MiB: quarter steps */
#define LARGEST_BITS 46  /* no host has more than 64 TiB for one buffer */
#define STEPPED_CLASS (STEPPED_BITS - SMALLEST_BITS)
#define CLASS_COUNT (STEPPED_CLASS + 1 + (LARGEST_BITS - STEPPED_BITS) * 4)

/* Lives in the first bytes of a free buffer. */
typedef struct node {
    struct node *newer, *older; /* in its class */
    uint64_t returned;          /* when, by the count of returns */
} node;

struct xn_buffers {
    const xn_backend *backend; /* NULL: plain memory */
    xn_device *device;
    size_t keep_bytes;

    pthread_mutex_t mutex; /* guards all below */
    struct {
        node *newest, *oldest;
    } free[CLASS_COUNT];
    size_t kept_bytes; /* of all free lists; at most keep_bytes */
    uint64_t returns;
    uint64_t outstanding; /* buffers that callers hold */
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

xn_status xn_buffers_create(const xn_backend *backend, xn_device *device, size_t keep_bytes,
                            xn_buffers **out, xn_error *error) {
    xn_buffers *buffers = xn_mem_zalloc(1, sizeof *buffers);
    if (!buffers)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the buffer pool (%zu bytes)",
                       sizeof *buffers);
    if (backend && device && backend->host_alloc && backend->host_free)
        buffers->backend = backend;
    buffers->device = device;
    buffers->keep_bytes = keep_bytes;
    if (pthread_mutex_init(&buffers->mutex, NULL)) {
        xn_mem_free(buffers);
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the buffer pool's mutex");
    }
    *out = buffers;
    return XN_OK;
}

/* ---- the lists ---- */

static void push_locked(xn_buffers *buffers, int class, node *item) {
    item->newer = NULL;
    item->older = buffers->free[class].newest;
    item->returned = buffers->returns++;
    if (item->older)
        item->older->newer = item;
    else
        buffers->free[class].oldest = item;
    buffers->free[class].newest = item;
    buffers->kept_bytes += class_bytes(class);
}

static node *take_newest_locked(xn_buffers *buffers, int class) {
    node *item = buffers->free[class].newest;
    if (!item)
        return NULL;
    buffers->free[class].newest = item->older;
    if (item->older)
        item->older->newer = NULL;
    else
        buffers->free[class].oldest = NULL;
    buffers->kept_bytes -= class_bytes(class);
    return item;
}

static node *take_oldest_locked(xn_buffers *buffers, int class) {
    node *item = buffers->free[class].oldest;
    buffers->free[class].oldest = item->newer;
    if (item->newer)
        item->newer->older = NULL;
    else
        buffers->free[class].newest = NULL;
    buffers->kept_bytes -= class_bytes(class);
    return item;
}

/* Takes buffers out, longest unused first, until at most `most` bytes are kept. They come back
 * chained by `older`, to be freed without the mutex. */
static node *evict_locked(xn_buffers *buffers, size_t most) {
    node *evicted = NULL;
    while (buffers->kept_bytes > most) {
        int victim = -1;
        for (int class = 0; class < CLASS_COUNT; class ++) {
            const node *oldest = buffers->free[class].oldest;
            if (oldest && (victim < 0 || oldest->returned < buffers->free[victim].oldest->returned))
                victim = class;
        }
        assert(victim >= 0); /* kept_bytes > 0, so some list has a buffer */
        node *item = take_oldest_locked(buffers, victim);
        item->older = evicted;
        evicted = item;
    }
    return evicted;
}

static void free_chain(const xn_buffers *buffers, node *item) {
    while (item) {
        node *next = item->older;
        memory_free(buffers, item);
        item = next;
    }
}

/* ---- */

void *xn_buffers_get(xn_buffers *buffers, size_t bytes) {
    int class = class_of(bytes);
    if (class < 0)
        return NULL;
    pthread_mutex_lock(&buffers->mutex);
    void *memory = take_newest_locked(buffers, class);
    buffers->outstanding++;
    pthread_mutex_unlock(&buffers->mutex);
    if (memory)
        return memory;

    memory = memory_alloc(buffers, class_bytes(class));
    if (memory)
        return memory;
    /* What lies in other classes may be what is missing. */
    pthread_mutex_lock(&buffers->mutex);
    node *kept = evict_locked(buffers, 0);
    pthread_mutex_unlock(&buffers->mutex);
    free_chain(buffers, kept);
    memory = memory_alloc(buffers, class_bytes(class));
    if (memory)
        return memory;

    pthread_mutex_lock(&buffers->mutex);
    buffers->outstanding--;
    pthread_mutex_unlock(&buffers->mutex);
    return NULL;
}

void xn_buffers_put(xn_buffers *buffers, void *buffer, size_t bytes) {
    int class = class_of(bytes);
    node *evicted = NULL;
    if (!buffer)
        return;
    assert(class >= 0); /* get gave no such buffer */
    pthread_mutex_lock(&buffers->mutex);
    assert(buffers->outstanding);
    buffers->outstanding--;
    bool keep = class_bytes(class) <= buffers->keep_bytes;
    if (keep) {
        push_locked(buffers, class, buffer);
        evicted = evict_locked(buffers, buffers->keep_bytes);
    }
    pthread_mutex_unlock(&buffers->mutex);
    free_chain(buffers, evicted);
    if (!keep)
        memory_free(buffers, buffer);
}

void xn_buffers_free(xn_buffers *buffers) {
    if (!buffers)
        return;
    assert(!buffers->outstanding);
    free_chain(buffers, evict_locked(buffers, 0));
    pthread_mutex_destroy(&buffers->mutex);
    xn_mem_free(buffers);
}
