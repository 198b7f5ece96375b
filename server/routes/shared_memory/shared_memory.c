/* shared_memory.c: see shared_memory.h. */
#include "shared_memory.h"

#include "xn_mem.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

struct xn_shared_memory {
    xn_region_home home;
    pthread_mutex_t mutex; /* guards the table; never held while bytes are copied */
    size_t count;
    xn_region *regions[XN_SHARED_MEMORY_MAX_REGIONS];
};

xn_status xn_shared_memory_create(xn_engine *engine, xn_thread_pool *pool, size_t most_pinned,
                                  xn_shared_memory **out, xn_error *error) {
    xn_shared_memory *shared = xn_mem_zalloc(1, sizeof *shared);
    if (!shared)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for regions of shared memory");
    shared->home = xn_region_home_open(engine, pool, most_pinned);
    pthread_mutex_init(&shared->mutex, NULL);
    *out = shared;
    return XN_OK;
}

void xn_shared_memory_free(xn_shared_memory *shared) {
    if (!shared)
        return;
    while (shared->count)
        xn_region_release(shared->regions[--shared->count]);
    xn_region_home_close(&shared->home);
    pthread_mutex_destroy(&shared->mutex);
    xn_mem_free(shared);
}

/* ---- registering ---- */

/* name: NULL for any. */
static bool is(const xn_region *region, uint64_t owner, const char *name) {
    const xn_region_item *what = xn_region_what(region);
    return what->owner == owner && (!name || !strcmp(what->name, name));
}

static size_t find_locked(const xn_shared_memory *shared, uint64_t owner, const char *name) {
    size_t i = 0;
    while (i < shared->count && !is(shared->regions[i], owner, name))
        i++;
    return i;
}

static xn_status add_locked(xn_shared_memory *shared, xn_region *r, xn_error *error) {
    const xn_region_item *what = xn_region_what(r);
    if (find_locked(shared, what->owner, what->name) < shared->count)
        return xn_fail(error, XN_ERR_MALFORMED, "name",
                       "the region \"%s\" is registered already; unregister it first", what->name);
    if (shared->count == XN_SHARED_MEMORY_MAX_REGIONS)
        return xn_fail(error, XN_ERR_LIMIT, "name", "%d regions are registered, as many as may be",
                       XN_SHARED_MEMORY_MAX_REGIONS);
    shared->regions[shared->count++] = r;
    return XN_OK;
}

xn_status xn_shared_memory_add(xn_shared_memory *shared, uint64_t owner, const char *name,
                               const xn_shm_request *request, xn_error *error) {
    xn_region_item what = {.owner = owner, .region = *request};
    xn_region *r = NULL;
    if (strlen(name) > XN_OIP_MAX_REGION)
        return xn_fail(error, XN_ERR_MALFORMED, "name",
                       "the name of a region has %zu characters; at most %d", strlen(name),
                       XN_OIP_MAX_REGION);
    memcpy(what.name, name, strlen(name) + 1);
    xn_status status = xn_region_open(&shared->home, &what, &r, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&shared->mutex);
    status = add_locked(shared, r, error);
    if (status == XN_OK)
        xn_region_pin(r);
    pthread_mutex_unlock(&shared->mutex);
    if (status != XN_OK)
        xn_region_release(r);
    return status;
}

void xn_shared_memory_remove(xn_shared_memory *shared, uint64_t owner, const char *name) {
    pthread_mutex_lock(&shared->mutex);
    for (size_t i = 0; i < shared->count;) {
        xn_region *r = shared->regions[i];
        if (!is(r, owner, name)) {
            i++;
            continue;
        }
        shared->count--;
        memmove(&shared->regions[i], &shared->regions[i + 1],
                (shared->count - i) * sizeof *shared->regions);
        xn_region_release(r);
    }
    pthread_mutex_unlock(&shared->mutex);
}

/* ---- copying ---- */

static xn_status check_range(const xn_region *r, const xn_oip_shared *range, const char *field,
                             size_t bytes, xn_error *error) {
    const uint64_t size = xn_region_what(r)->region.byte_size;
    uint64_t end;
    if (range->bytes < bytes)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s: shared_memory_byte_size is %llu; the tensor has %zu bytes", field,
                       (unsigned long long)range->bytes, bytes);
    if (__builtin_add_overflow(range->offset, range->bytes, &end) || end > size)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s: %llu bytes at offset %llu are not within the %llu of the region \"%s\"",
                       field, (unsigned long long)range->bytes, (unsigned long long)range->offset,
                       (unsigned long long)size, range->region);
    return XN_OK;
}

/* A reference to the region, with that range in it. */
static xn_status retain_range(xn_shared_memory *shared, uint64_t owner, const xn_oip_shared *range,
                              const char *field, size_t bytes, xn_region **out, xn_error *error) {
    xn_region *r = NULL;
    pthread_mutex_lock(&shared->mutex);
    size_t i = find_locked(shared, owner, range->region);
    if (i < shared->count) {
        r = shared->regions[i];
        xn_region_retain(r);
    }
    pthread_mutex_unlock(&shared->mutex);
    if (!r)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s: there is no region \"%s\"; register it first", field, range->region);
    xn_status status = check_range(r, range, field, bytes, error);
    if (status == XN_OK)
        *out = r;
    else
        xn_region_release(r);
    return status;
}

xn_status xn_shared_memory_check(xn_shared_memory *shared, uint64_t owner,
                                 const xn_oip_shared *range, const char *field, size_t bytes,
                                 xn_error *error) {
    xn_region *r = NULL;
    xn_status status = retain_range(shared, owner, range, field, bytes, &r, error);
    xn_region_release(r);
    return status;
}

/* Into `in`, or from `out`. */
static xn_status copy(xn_shared_memory *shared, uint64_t owner, const xn_oip_shared *range,
                      const char *field, unsigned char *in, const unsigned char *out, size_t bytes,
                      xn_error *error) {
    xn_region *r = NULL;
    xn_status status = retain_range(shared, owner, range, field, bytes, &r, error);
    for (size_t done = 0; status == XN_OK && done < bytes;) {
        const uint64_t at = range->offset + done;
        const ssize_t n = in ? xn_region_read(r, at, in + done, bytes - done)
                             : xn_region_write(r, at, out + done, bytes - done);
        if (n <= 0)
            status = xn_fail(error, XN_ERR_MALFORMED, field,
                             "%s: the region \"%s\" ends at byte %zu of %zu: %s", field,
                             range->region, done, bytes, n < 0 ? strerror(errno) : "it has shrunk");
        else
            done += (size_t)n;
    }
    xn_region_release(r);
    return status;
}

xn_status xn_shared_memory_read(xn_shared_memory *shared, uint64_t owner, const xn_oip_shared *from,
                                const char *field, void *destination, size_t bytes,
                                xn_error *error) {
    return copy(shared, owner, from, field, destination, NULL, bytes, error);
}

xn_status xn_shared_memory_write(xn_shared_memory *shared, uint64_t owner, const xn_oip_shared *to,
                                 const char *field, const void *values, size_t bytes,
                                 xn_error *error) {
    return copy(shared, owner, to, field, NULL, values, bytes, error);
}

/* ---- in place ---- */

bool xn_shared_memory_borrow(xn_shared_memory *shared, uint64_t owner, const xn_oip_shared *range,
                             size_t bytes, xn_shared_loan *out) {
    xn_region *r = NULL;
    xn_error ignored;
    void *memory = NULL;
    if (retain_range(shared, owner, range, "", bytes, &r, &ignored) == XN_OK)
        memory = xn_region_pinned(r, range->offset);
    if (!memory) {
        xn_region_release(r);
        return false;
    }
    *out = (xn_shared_loan){memory, r};
    return true;
}

void xn_shared_memory_give_back(xn_shared_loan *loan) {
    xn_region_release(loan->region);
    *loan = (xn_shared_loan){0};
}

/* ---- what there is ---- */

xn_status xn_shared_memory_list(xn_shared_memory *shared, uint64_t owner, const char *name,
                                xn_region_item **items, size_t *count, xn_error *error) {
    xn_region_item *all = xn_mem_zalloc(XN_SHARED_MEMORY_MAX_REGIONS, sizeof *all);
    if (!all)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the answer; try again later");
    *count = 0;
    pthread_mutex_lock(&shared->mutex);
    for (size_t i = 0; i < shared->count; i++)
        if (is(shared->regions[i], owner, name))
            all[(*count)++] = *xn_region_what(shared->regions[i]);
    pthread_mutex_unlock(&shared->mutex);
    *items = all;
    return XN_OK;
}
