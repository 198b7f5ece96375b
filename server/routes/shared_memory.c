/* shared_memory.c: see shared_memory.h. */
#include "shared_memory.h"

#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    xn_shared_memory_item what;
    int fd;
    atomic_int references; /* the table's, and of copies under way */
} region;

struct xn_shared_memory {
    pthread_mutex_t mutex; /* guards the table; never held while bytes are copied */
    size_t count;
    region *regions[XN_SHARED_MEMORY_MAX_REGIONS];
};

xn_status xn_shared_memory_create(xn_shared_memory **out, xn_error *error) {
    xn_shared_memory *shared = xn_mem_zalloc(1, sizeof *shared);
    if (!shared)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for regions of shared memory");
    pthread_mutex_init(&shared->mutex, NULL);
    *out = shared;
    return XN_OK;
}

static void release(region *r) {
    if (!r || atomic_fetch_sub(&r->references, 1) != 1)
        return;
    close(r->fd);
    xn_mem_free(r);
}

void xn_shared_memory_free(xn_shared_memory *shared) {
    if (!shared)
        return;
    xn_shared_memory_remove(shared, NULL);
    pthread_mutex_destroy(&shared->mutex);
    xn_mem_free(shared);
}

/* ---- registering ---- */

static xn_status check_key(const char *key, xn_error *error) {
    const char *rest = key + (key[0] == '/');
    if (*rest && !strchr(rest, '/') && strcmp(rest, ".") != 0 && strcmp(rest, "..") != 0)
        return XN_OK;
    return xn_fail(error, XN_ERR_MALFORMED, "key",
                   "key is \"%.100s\"; it must be the name of a shared memory object, \"/name\"",
                   key);
}

static xn_status check_size(int fd, const xn_shm_request *request, xn_error *error) {
    struct stat info;
    uint64_t end;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return xn_fail(error, XN_ERR_MALFORMED, "key", "key is \"%.100s\"; that is no memory",
                       request->key);
    if (!request->byte_size || __builtin_add_overflow(request->offset, request->byte_size, &end) ||
        end > (uint64_t)info.st_size)
        return xn_fail(error, XN_ERR_MALFORMED, "byte_size",
                       "byte_size is %llu at offset %llu; it must be at least 1 and end within the "
                       "%lld bytes that \"%.100s\" has",
                       (unsigned long long)request->byte_size, (unsigned long long)request->offset,
                       (long long)info.st_size, request->key);
    return XN_OK;
}

static xn_status open_key(const xn_shm_request *request, int *out, xn_error *error) {
    xn_status status = check_key(request->key, error);
    if (status != XN_OK)
        return status;
    int fd = shm_open(request->key, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return xn_fail(error, XN_ERR_MALFORMED, "key", "key is \"%.100s\", which did not open: %s",
                       request->key, strerror(errno));
    status = check_size(fd, request, error);
    if (status == XN_OK)
        *out = fd;
    else
        close(fd);
    return status;
}

static xn_status open_region(const char *name, const xn_shm_request *request, region **out,
                             xn_error *error) {
    region *r = xn_mem_zalloc(1, sizeof *r);
    if (!r)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a region");
    xn_status status = open_key(request, &r->fd, error);
    if (status != XN_OK) {
        xn_mem_free(r);
        return status;
    }
    atomic_init(&r->references, 1);
    r->what.region = *request;
    memcpy(r->what.name, name, strlen(name) + 1);
    *out = r;
    return XN_OK;
}

static size_t find_locked(const xn_shared_memory *shared, const char *name) {
    size_t i = 0;
    while (i < shared->count && strcmp(shared->regions[i]->what.name, name) != 0)
        i++;
    return i;
}

static xn_status add_locked(xn_shared_memory *shared, region *r, xn_error *error) {
    if (find_locked(shared, r->what.name) < shared->count)
        return xn_fail(error, XN_ERR_MALFORMED, "name",
                       "the region \"%s\" is registered already; unregister it first",
                       r->what.name);
    if (shared->count == XN_SHARED_MEMORY_MAX_REGIONS)
        return xn_fail(error, XN_ERR_LIMIT, "name", "%d regions are registered, as many as may be",
                       XN_SHARED_MEMORY_MAX_REGIONS);
    shared->regions[shared->count++] = r;
    return XN_OK;
}

xn_status xn_shared_memory_add(xn_shared_memory *shared, const char *name,
                               const xn_shm_request *request, xn_error *error) {
    region *r = NULL;
    if (strlen(name) > XN_OIP_MAX_REGION)
        return xn_fail(error, XN_ERR_MALFORMED, "name",
                       "the name of a region has %zu characters; at most %d", strlen(name),
                       XN_OIP_MAX_REGION);
    xn_status status = open_region(name, request, &r, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&shared->mutex);
    status = add_locked(shared, r, error);
    pthread_mutex_unlock(&shared->mutex);
    if (status != XN_OK)
        release(r);
    return status;
}

void xn_shared_memory_remove(xn_shared_memory *shared, const char *name) {
    pthread_mutex_lock(&shared->mutex);
    for (size_t i = 0; i < shared->count;) {
        region *r = shared->regions[i];
        if (name && strcmp(r->what.name, name) != 0) {
            i++;
            continue;
        }
        shared->count--;
        memmove(&shared->regions[i], &shared->regions[i + 1],
                (shared->count - i) * sizeof *shared->regions);
        release(r);
    }
    pthread_mutex_unlock(&shared->mutex);
}

/* ---- copying ---- */

static xn_status check_range(const region *r, const xn_oip_shared *range, const char *field,
                             size_t bytes, xn_error *error) {
    uint64_t end;
    if (range->bytes < bytes)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s: shared_memory_byte_size is %llu; the tensor has %zu bytes", field,
                       (unsigned long long)range->bytes, bytes);
    if (__builtin_add_overflow(range->offset, range->bytes, &end) || end > r->what.region.byte_size)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s: %llu bytes at offset %llu are not within the %llu of the region \"%s\"",
                       field, (unsigned long long)range->bytes, (unsigned long long)range->offset,
                       (unsigned long long)r->what.region.byte_size, range->region);
    return XN_OK;
}

/* A reference to the region, with that range in it. */
static xn_status hold(xn_shared_memory *shared, const xn_oip_shared *range, const char *field,
                      size_t bytes, region **out, xn_error *error) {
    region *r = NULL;
    pthread_mutex_lock(&shared->mutex);
    size_t i = find_locked(shared, range->region);
    if (i < shared->count) {
        r = shared->regions[i];
        atomic_fetch_add(&r->references, 1);
    }
    pthread_mutex_unlock(&shared->mutex);
    if (!r)
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s: there is no region \"%s\"; register it first", field, range->region);
    xn_status status = check_range(r, range, field, bytes, error);
    if (status == XN_OK)
        *out = r;
    else
        release(r);
    return status;
}

xn_status xn_shared_memory_check(xn_shared_memory *shared, const xn_oip_shared *range,
                                 const char *field, size_t bytes, xn_error *error) {
    region *r = NULL;
    xn_status status = hold(shared, range, field, bytes, &r, error);
    release(r);
    return status;
}

/* 0 at the end of the object, which has shrunk. */
static ssize_t copy_some(const region *r, uint64_t at, void *in, const void *out, size_t bytes) {
    ssize_t n;
    do
        n = in ? pread(r->fd, in, bytes, (off_t)at) : pwrite(r->fd, out, bytes, (off_t)at);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Into `in`, or from `out`. */
static xn_status copy(xn_shared_memory *shared, const xn_oip_shared *range, const char *field,
                      unsigned char *in, const unsigned char *out, size_t bytes, xn_error *error) {
    region *r = NULL;
    xn_status status = hold(shared, range, field, bytes, &r, error);
    uint64_t at = r ? r->what.region.offset + range->offset : 0;
    for (size_t done = 0; status == XN_OK && done < bytes;) {
        ssize_t n =
            copy_some(r, at + done, in ? in + done : NULL, out ? out + done : NULL, bytes - done);
        if (n <= 0)
            status = xn_fail(error, XN_ERR_MALFORMED, field,
                             "%s: the region \"%s\" ends at byte %zu of %zu: %s", field,
                             range->region, done, bytes, n < 0 ? strerror(errno) : "it has shrunk");
        else
            done += (size_t)n;
    }
    release(r);
    return status;
}

xn_status xn_shared_memory_read(xn_shared_memory *shared, const xn_oip_shared *from,
                                const char *field, void *destination, size_t bytes,
                                xn_error *error) {
    return copy(shared, from, field, destination, NULL, bytes, error);
}

xn_status xn_shared_memory_write(xn_shared_memory *shared, const xn_oip_shared *to,
                                 const char *field, const void *values, size_t bytes,
                                 xn_error *error) {
    return copy(shared, to, field, NULL, values, bytes, error);
}

xn_status xn_shared_memory_list(xn_shared_memory *shared, const char *name,
                                xn_shared_memory_item **items, size_t *count, xn_error *error) {
    xn_shared_memory_item *all = xn_mem_zalloc(XN_SHARED_MEMORY_MAX_REGIONS, sizeof *all);
    if (!all)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the answer; try again later");
    *count = 0;
    pthread_mutex_lock(&shared->mutex);
    for (size_t i = 0; i < shared->count; i++)
        if (!name || !strcmp(shared->regions[i]->what.name, name))
            all[(*count)++] = shared->regions[i]->what;
    pthread_mutex_unlock(&shared->mutex);
    *items = all;
    return XN_OK;
}
