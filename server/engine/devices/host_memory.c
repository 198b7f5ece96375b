/* host_memory.c: see host_memory.h. The buffer pool sees this as one more backend's host memory. */
#include "host_memory.h"

#include "xn_mem.h"

typedef struct header {
    _Alignas(XN_MEM_ALIGNMENT) bool plain;
} header;

/* The handle that the pool of buffers passes back. */
static const xn_engine_device *owner_of(xn_device *handle) {
    return (const xn_engine_device *)(void *)handle;
}

static void *memory_alloc(xn_device *handle, size_t bytes) {
    const xn_engine_device *device = owner_of(handle);
    size_t total;
    if (!xn_add_size(bytes, sizeof(header), &total))
        return NULL;
    xn_lock_assert_none();
    header *block =
        atomic_load(&device->up) ? device->backend->host_alloc(device->handle, total) : NULL;
    /* A device that is lost gives none. The request goes on in plain memory, and its run finds the
     * loss: without memory there would be no run, and the loss would go unrecorded. */
    const bool plain = !block;
    if (plain)
        block = xn_mem_alloc(total);
    if (!block)
        return NULL;
    block->plain = plain;
    return block + 1;
}

static void memory_free(xn_device *handle, void *memory) {
    const xn_engine_device *device = owner_of(handle);
    if (!memory)
        return;
    header *block = (header *)memory - 1;
    if (block->plain)
        xn_mem_free(block);
    else
        device->backend->host_free(device->handle, block);
}

xn_status xn_host_memory_buffers(xn_engine_device *device, size_t keep_bytes, xn_buffers **out,
                                 xn_error *error) {
    static const xn_backend memory = {
        .name = "memory", .host_alloc = memory_alloc, .host_free = memory_free};
    const bool pins = device->backend->host_alloc && device->backend->host_free;
    return xn_buffers_create(pins ? &memory : NULL, (xn_device *)(void *)device, keep_bytes, out,
                             error);
}
