/* engine_memory.c: where the buffers of bodies and outputs come from: memory pinned for the primary
 * device while it lives; plain memory where the device has none to give, and once it is lost (under
 * --on-device-loss cpu the daemon goes on without it). Each block says in a header where it came
 * from, because blocks of both kinds are in use at the same time then. The buffer pool sees this as
 * one more backend's host memory. */
#include "engine_internal.h"

#include <assert.h>

typedef struct header {
    _Alignas(XN_MEM_ALIGNMENT) bool plain;
} header;

/* The handle that the pool passes back is the engine. */
static xn_engine *engine_of(xn_device *device) {
    return (xn_engine *)(void *)device;
}

static void *memory_alloc(xn_device *device, size_t bytes) {
    xn_engine *engine = engine_of(device);
    const xn_member *member = &engine->members[0];
    bool plain = atomic_load(&engine->primary_memory_lost);
    size_t total;
    if (!xn_add_size(bytes, sizeof(header), &total))
        return NULL;
    header *block = plain ? NULL : member->backend->host_alloc(member->device, total);
    /* A device that is lost gives none. The request goes on in plain memory, and its run finds the
     * loss: without memory there would be no run, and the loss would go unrecorded. */
    plain = !block;
    if (plain)
        block = xn_mem_alloc(total);
    if (!block)
        return NULL;
    block->plain = plain;
    return block + 1;
}

static void memory_free(xn_device *device, void *memory) {
    const xn_member *member = &engine_of(device)->members[0];
    if (!memory)
        return;
    header *block = (header *)memory - 1;
    if (block->plain)
        xn_mem_free(block);
    else
        member->backend->host_free(member->device, block);
}

/* ---- memory of another's ---- */

/* What keeps answers reads inputs and outputs on the host. */
bool xn_engine_uses_pinned(const xn_engine *engine, int pool) {
    const xn_member *member = &engine->members[0];
    return member->backend->host_register && pool == member->pool && !engine->responses &&
           !atomic_load(&engine->primary_memory_lost);
}

xn_status xn_engine_pin(xn_engine *engine, void *memory, size_t bytes, xn_error *error) {
    const xn_member *member = &engine->members[0];
    if (!xn_engine_uses_pinned(engine, member->pool))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "%s takes no pinned memory",
                       member->info.id);
    return member->backend->host_register(member->device, memory, bytes, error);
}

xn_status xn_engine_unpin(xn_engine *engine, void *memory, xn_error *error) {
    const xn_member *member = &engine->members[0];
    return member->backend->host_unregister(member->device, memory, error);
}

/* ---- the pool of buffers ---- */

/* As many as processors that serve at once, or so: a 64th of 1 GiB is 512 KiB for each. */
#define BUFFER_SHARDS 32

xn_status xn_engine_create_buffers(xn_engine *engine, size_t keep_bytes, xn_error *error) {
    static const xn_backend memory = {
        .name = "memory", .host_alloc = memory_alloc, .host_free = memory_free};
    const xn_backend *primary = engine->members[0].backend;
    if (!primary->host_alloc || !primary->host_free)
        return xn_buffers_create(NULL, NULL, keep_bytes, BUFFER_SHARDS, &engine->buffers, error);
    return xn_buffers_create(&memory, (xn_device *)(void *)engine, keep_bytes, BUFFER_SHARDS,
                             &engine->buffers, error);
}

void xn_engine_reclaim(xn_engine *engine) {
    assert(pthread_equal(pthread_self(), engine->maker));
    xn_buffers_trim(engine->buffers, INT64_MAX);
    if (engine->responses)
        xn_cache_clear(engine->responses);
}
