/* pinned.cu: see pinned.h. Ranges in order of their addresses; they do not overlap. */
#include "pinned.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

struct range {
    uintptr_t first, end;
};

static struct {
    pthread_rwlock_t lock; /* its initialiser is zeros, as all of this is, so that no file has it */
    size_t count;
    range ranges[XN_CUDA_PINNED_MOST];
} pinned = {PTHREAD_RWLOCK_INITIALIZER, 0, {}};

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

bool xn_cuda_pinned_add(const void *memory, size_t bytes) {
    const uintptr_t first = (uintptr_t)memory;
    pthread_rwlock_wrlock(&pinned.lock);
    const size_t at = find(first);
    const bool added = bytes && pinned.count < XN_CUDA_PINNED_MOST &&
                       (at == pinned.count || first + bytes <= pinned.ranges[at].first);
    if (added) {
        memmove(&pinned.ranges[at + 1], &pinned.ranges[at],
                (pinned.count - at) * sizeof *pinned.ranges);
        pinned.ranges[at] = {first, first + bytes};
        pinned.count++;
    }
    pthread_rwlock_unlock(&pinned.lock);
    return added;
}

void xn_cuda_pinned_remove(const void *memory) {
    pthread_rwlock_wrlock(&pinned.lock);
    const size_t at = find((uintptr_t)memory);
    if (at < pinned.count && pinned.ranges[at].first == (uintptr_t)memory) {
        pinned.count--;
        memmove(&pinned.ranges[at], &pinned.ranges[at + 1],
                (pinned.count - at) * sizeof *pinned.ranges);
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
