/* pinned.cu: see pinned.h. Ranges in order of their addresses; they do not overlap. */
#include "pinned.h"

#include "xn_mem.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

struct range {
    uintptr_t first, end;
};

static struct {
    pthread_rwlock_t lock;
    range *ranges;
    size_t count, size;
} pinned = {PTHREAD_RWLOCK_INITIALIZER, NULL, 0, 0};

/* The first range that ends behind the address; count: none does. */
static size_t find(uintptr_t address) {
    size_t low = 0, high = pinned.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (pinned.ranges[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Room for one more, allocated without the lock, so that no allocation waits for the driver's
 * pinning or runs under it. *spare: what is to be freed without the lock too. */
static bool make_room_drop_lock(range **spare) {
    size_t size = 0;
    while (pinned.count == pinned.size && size <= pinned.size) {
        size = pinned.size ? pinned.size * 2 : 64;
        pthread_rwlock_unlock(&pinned.lock);
        xn_mem_free(*spare);
        *spare = (range *)xn_mem_zalloc(size, sizeof **spare);
        pthread_rwlock_wrlock(&pinned.lock);
        if (!*spare)
            return pinned.count < pinned.size; /* another thread may have removed a range */
    }
    if (pinned.count < pinned.size)
        return true;
    range *old = pinned.ranges;
    if (pinned.count)
        memcpy(*spare, old, pinned.count * sizeof *old);
    pinned.ranges = *spare;
    pinned.size = size;
    *spare = old;
    return true;
}

static void drop_all_when_empty(void) {
    if (pinned.count)
        return;
    xn_mem_free(pinned.ranges);
    pinned.ranges = NULL;
    pinned.size = 0;
}

bool xn_cuda_pinned_add(const void *memory, size_t bytes) {
    const uintptr_t first = (uintptr_t)memory;
    range *spare = NULL;
    pthread_rwlock_wrlock(&pinned.lock);
    bool added = bytes && make_room_drop_lock(&spare);
    const size_t at = find(first);
    added = added && (at == pinned.count || first + bytes <= pinned.ranges[at].first);
    if (added) {
        memmove(&pinned.ranges[at + 1], &pinned.ranges[at],
                (pinned.count - at) * sizeof *pinned.ranges);
        pinned.ranges[at] = {first, first + bytes};
        pinned.count++;
    }
    pthread_rwlock_unlock(&pinned.lock);
    xn_mem_free(spare);
    return added;
}

void xn_cuda_pinned_remove(const void *memory) {
    pthread_rwlock_wrlock(&pinned.lock);
    const size_t at = find((uintptr_t)memory);
    if (at < pinned.count && pinned.ranges[at].first == (uintptr_t)memory) {
        pinned.count--;
        memmove(&pinned.ranges[at], &pinned.ranges[at + 1],
                (pinned.count - at) * sizeof *pinned.ranges);
        drop_all_when_empty();
    }
    pthread_rwlock_unlock(&pinned.lock);
}

bool xn_cuda_pinned_has(const void *memory, size_t bytes) {
    const uintptr_t first = (uintptr_t)memory;
    pthread_rwlock_rdlock(&pinned.lock);
    const size_t at = find(first);
    const bool has = at < pinned.count && pinned.ranges[at].first <= first &&
                     bytes <= pinned.ranges[at].end - first;
    pthread_rwlock_unlock(&pinned.lock);
    return has;
}
