/* mem.c: the one place that asks the C library for memory. */
#include "xn_mem.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Set before other threads start, read by all: no lock. */
static xn_mem_hook hook;
static void *hook_context;
static xn_mem_shortage shortage;

/* Beside the block itself: the heap's header, and what alignment loses of small blocks. */
enum { BLOCK_BYTES = XN_MEM_ALIGNMENT };
static _Thread_local int64_t held;

void xn_mem_set_hook(xn_mem_hook new_hook, void *context) {
    hook = new_hook;
    hook_context = context;
}

void xn_mem_set_shortage(xn_mem_shortage new_shortage) {
    shortage = new_shortage;
}

int64_t xn_mem_held(void) {
    return held;
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

static bool is_allowed(size_t bytes) {
    return !hook || hook(hook_context, bytes);
}

static void *note_shortage(void) {
    if (shortage)
        shortage();
    return NULL;
}

void *xn_mem_alloc(size_t bytes) {
    void *memory = is_allowed(bytes) ? take(bytes) : NULL;
    if (!memory)
        return note_shortage();
    held += (int64_t)malloc_usable_size(memory) + BLOCK_BYTES;
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
    /* No huge pages: touching one byte would commit 2 MiB that admission has not counted. */
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE);
    return memory;
}

void *xn_mem_map(size_t bytes) {
    void *memory = is_allowed(bytes) ? map(bytes) : NULL;
    return memory ? memory : note_shortage();
}

void xn_mem_unmap(void *memory, size_t bytes) {
    if (memory)
        munmap(memory, bytes);
}

void xn_mem_free(void *memory) {
    if (memory)
        held -= (int64_t)malloc_usable_size(memory) + BLOCK_BYTES;
    free(memory);
}
