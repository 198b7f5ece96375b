/* mem.c: the one place that asks the C library for memory. */
#include "xn_mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Set before other threads start, read by all: no lock. */
static xn_mem_hook hook;
static void *hook_context;
static xn_mem_reclaim reclaim;
static void *reclaim_context;

void xn_mem_set_hook(xn_mem_hook new_hook, void *context) {
    hook = new_hook;
    hook_context = context;
}

void xn_mem_set_reclaim(xn_mem_reclaim new_reclaim, void *context) {
    reclaim = new_reclaim;
    reclaim_context = context;
}

/* Whether a large allocation leaves something to others: for a moment that much more is mapped. */
static bool has_headroom(void) {
    void *more = mmap(NULL, XN_MEM_HEADROOM_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return more != MAP_FAILED && !munmap(more, XN_MEM_HEADROOM_BYTES);
}

static void *take(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, XN_MEM_ALIGNMENT, bytes ? bytes : 1))
        return NULL;
    if (bytes < XN_MEM_LARGE_BYTES || has_headroom())
        return memory;
    free(memory);
    return NULL;
}

void *xn_mem_alloc(size_t bytes) {
    if (hook && !hook(hook_context, bytes))
        return NULL;
    void *memory = take(bytes);
    if (!memory && reclaim && reclaim(reclaim_context))
        memory = take(bytes);
    return memory;
}

void *xn_mem_zalloc(size_t count, size_t bytes) {
    size_t total;
    if (!xn_mul_size(count, bytes, &total))
        return NULL;
    void *memory = xn_mem_alloc(total);
    if (memory)
        memset(memory, 0, total);
    return memory;
}

static void *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= XN_MEM_LARGE_BYTES && !has_headroom()) {
        munmap(memory, bytes);
        return NULL;
    }
    /* A page of 2 MiB for a first byte would be memory that nobody counted. */
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE);
    return memory;
}

void *xn_mem_map(size_t bytes) {
    if (hook && !hook(hook_context, bytes))
        return NULL;
    void *memory = map(bytes);
    if (!memory && reclaim && reclaim(reclaim_context))
        memory = map(bytes);
    return memory;
}

void xn_mem_unmap(void *memory, size_t bytes) {
    if (memory)
        munmap(memory, bytes);
}

void xn_mem_free(void *memory) {
    free(memory);
}
