/* buffer_shards.c: for each processor a lock, which hardly any other processor asks for, and a
 * stack of buffers a class. What is known of a free buffer is here and not in its first bytes: a
 * buffer that a device has written need not come into the caches for it. */
#include "buffer_shards.h"

#include "clock.h"
#include "cpu_shard.h"
#include "lock.h"
#include "xn_mem.h"

#include <stdatomic.h>
#include <string.h>

typedef struct slot {
    void *memory;
    int64_t returned_ns;
} slot;

typedef struct stack {
    int count;
    slot slots[XN_SHARD_SLOTS]; /* the newest last */
} stack;

typedef struct shard {
    _Alignas(XN_MEM_ALIGNMENT) xn_lock lock; /* guards all below */
    size_t bytes;
    stack stacks[XN_SHARD_CLASSES];
} shard;

/* What all read is hardly ever written, and shares no line with a shard. */
struct xn_buffer_shards {
    unsigned count;
    size_t shard_bytes;
    atomic_bool closed;
    shard each[];
};

xn_status xn_buffer_shards_create(unsigned count, size_t shard_bytes, xn_buffer_shards **out,
                                  xn_error *error) {
    assert(count && !(count & (count - 1)));
    size_t bytes = sizeof(xn_buffer_shards) + count * sizeof(shard);
    xn_buffer_shards *shards = xn_mem_zalloc(1, bytes);
    if (!shards)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL,
                       "no memory for the buffer pool's shards (%zu bytes)", bytes);
    shards->count = count;
    shards->shard_bytes = shard_bytes;
    for (unsigned i = 0; i < count; i++)
        xn_lock_init(&shards->each[i].lock);
    *out = shards;
    return XN_OK;
}

void xn_buffer_shards_free(xn_buffer_shards *shards) {
    if (!shards)
        return;
    for (unsigned i = 0; i < shards->count; i++) {
        assert(!shards->each[i].bytes);
        xn_lock_destroy(&shards->each[i].lock);
    }
    xn_mem_free(shards);
}

unsigned xn_buffer_shards_count(const xn_buffer_shards *shards) {
    return shards->count;
}

static shard *lock_shard(xn_buffer_shards *shards, unsigned number) {
    shard *s = &shards->each[number];
    xn_lock_take(&s->lock);
    return s;
}

bool xn_buffer_shards_put(xn_buffer_shards *shards, int class, size_t bytes, void *memory) {
    if (class >= XN_SHARD_CLASSES)
        return false;
    shard *s = lock_shard(shards, xn_cpu_shard(shards->count));
    stack *of = &s->stacks[class];
    /* Under the lock: a thread that closes the shards and then locks this one finds what was put
     * before. */
    const bool fits = !atomic_load_explicit(&shards->closed, memory_order_relaxed) &&
                      of->count < XN_SHARD_SLOTS && s->bytes + bytes <= shards->shard_bytes;
    if (fits) {
        of->slots[of->count++] = (slot){memory, xn_now_ns()};
        s->bytes += bytes;
    }
    xn_lock_drop(&s->lock);
    return fits;
}

static void *get_from(xn_buffer_shards *shards, unsigned number, int class, size_t bytes) {
    shard *s = lock_shard(shards, number);
    stack *of = &s->stacks[class];
    void *memory = NULL;
    if (of->count) {
        memory = of->slots[--of->count].memory;
        s->bytes -= bytes;
    }
    xn_lock_drop(&s->lock);
    return memory;
}

void *xn_buffer_shards_get(xn_buffer_shards *shards, int class, size_t bytes) {
    return class < XN_SHARD_CLASSES ? get_from(shards, xn_cpu_shard(shards->count), class, bytes)
                                    : NULL;
}

void *xn_buffer_shards_steal(xn_buffer_shards *shards, int class, size_t bytes) {
    void *memory = NULL;
    for (unsigned i = 0; class < XN_SHARD_CLASSES && !memory && i < shards->count; i++)
        memory = get_from(shards, i, class, bytes);
    return memory;
}

/* The oldest are the first of a stack. */
static int take_old_locked(stack *of, int class, int64_t before_ns, xn_shard_buffer *out) {
    int taken = 0;
    for (; taken < of->count && of->slots[taken].returned_ns < before_ns; taken++)
        out[taken] =
            (xn_shard_buffer){of->slots[taken].memory, class, of->slots[taken].returned_ns};
    of->count -= taken;
    memmove(of->slots, of->slots + taken, (size_t)of->count * sizeof of->slots[0]);
    return taken;
}

int xn_buffer_shards_take(xn_buffer_shards *shards, unsigned number, int64_t before_ns,
                          size_t (*bytes_of)(int class), xn_shard_buffer out[XN_SHARD_MOST]) {
    int taken = 0;
    shard *s = lock_shard(shards, number);
    for (int class = 0; class < XN_SHARD_CLASSES; class ++) {
        const int old = take_old_locked(&s->stacks[class], class, before_ns, out + taken);
        s->bytes -= (size_t)old * bytes_of(class);
        taken += old;
    }
    xn_lock_drop(&s->lock);
    return taken;
}

void xn_buffer_shards_close(xn_buffer_shards *shards, bool closed) {
    if (closed != atomic_load_explicit(&shards->closed, memory_order_relaxed))
        atomic_store_explicit(&shards->closed, closed, memory_order_relaxed);
}
