/* mem.c: the one place that asks the C library for memory. */
#include "xn_mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Set before other threads start, read by all: no lock. */
static xn_mem_hook hook;
static void *hook_context;

void xn_mem_set_hook(xn_mem_hook new_hook, void *context) {
    hook = new_hook;
    hook_context = context;
}

void *xn_mem_alloc(size_t bytes) {
    if (hook && !hook(hook_context, bytes))
        return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, XN_MEM_ALIGNMENT, bytes ? bytes : 1))
        return NULL;
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

char *xn_mem_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = xn_mem_alloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void *xn_mem_map(size_t bytes) {
    if (hook && !hook(hook_context, bytes))
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    /* A page of 2 MiB for a first byte would be memory that nobody counted. */
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE);
    return memory;
}

void xn_mem_unmap(void *memory, size_t bytes) {
    if (memory)
        munmap(memory, bytes);
}

void xn_mem_free(void *memory) {
    free(memory);
}
