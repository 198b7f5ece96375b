/* region.c: see region.h. */
#include "region.h"

#include "log.h"
#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct xn_region {
    xn_task task; /* first: the background pool's, to pin it, and at last to close it */
    xn_region_home *home;
    xn_region_item what;
    int fd;
    unsigned char *pages; /* the mapping, from the page on that the offset lies in; or NULL */
    size_t page_bytes, skip;
    bool registered;       /* with the devices: of the background tasks */
    atomic_bool pinned;    /* and its pages are the object's, as far as is known */
    atomic_int references; /* the table's, the background tasks', and of requests under way */
};

xn_region_home xn_region_home_open(xn_engine *engine, xn_thread_pool *pool, size_t most_pinned) {
    return (xn_region_home){.engine = engine,
                            .pool = pool,
                            .most_pinned = most_pinned,
                            .pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)};
}

void xn_region_home_close(xn_region_home *home) {
    if (home->pagemap >= 0)
        close(home->pagemap);
    home->pagemap = -1;
}

const xn_region_item *xn_region_what(const xn_region *region) {
    return &region->what;
}

/* ---- closing ---- */

/* False where the driver keeps the registration: then the mapping stays, so that nothing else gets
 * its addresses. */
static bool unpin(xn_region *r) {
    xn_error error;
    if (!r->registered)
        return true;
    if (xn_engine_unpin(r->home->engine, r->pages, &error)) {
        xn_log(XN_LOG_WARN, NULL, "shared memory \"%s\" stays mapped: %s", r->what.name,
               error.message);
        return false;
    }
    atomic_fetch_sub(&r->home->pinned, r->page_bytes);
    return true;
}

static void close_in_background(xn_task *task) {
    xn_region *r = (xn_region *)task;
    if (r->pages && unpin(r))
        munmap(r->pages, r->page_bytes);
    xn_mem_free(r);
}

void xn_region_retain(xn_region *r) {
    atomic_fetch_add(&r->references, 1);
}

void xn_region_release(xn_region *r) {
    if (!r || atomic_fetch_sub(&r->references, 1) != 1)
        return;
    close(r->fd); /* at once: there are not many */
    r->task.run = close_in_background;
    xn_thread_pool_submit(r->home->pool, &r->task);
}

/* ---- pinning ---- */

static xn_status take_room(xn_region *r, xn_error *error) {
    xn_region_home *home = r->home;
    size_t pinned = atomic_load(&home->pinned);
    do
        if (r->page_bytes > home->most_pinned - pinned)
            return xn_fail_limit(error, "queue-bytes", NULL,
                                 "%zu bytes beside %zu that are pinned are more than %zu",
                                 r->page_bytes, pinned, home->most_pinned);
    while (!atomic_compare_exchange_weak(&home->pinned, &pinned, pinned + r->page_bytes));
    return XN_OK;
}

static xn_status pin(xn_region *r, xn_error *error) {
    xn_status status = take_room(r, error);
    if (status)
        return status;
    status = xn_engine_pin(r->home->engine, r->pages, r->page_bytes, error);
    r->registered = !status;
    if (status)
        atomic_fetch_sub(&r->home->pinned, r->page_bytes);
    atomic_store(&r->pinned, r->registered);
    return status;
}

static void pin_in_background(xn_task *task) {
    xn_region *r = (xn_region *)task;
    xn_error error;
    const bool wanted = atomic_load(&r->references) > 1;
    if (wanted && pin(r, &error))
        xn_log(XN_LOG_INFO, NULL, "shared memory \"%s\" is not pinned and copied instead: %s",
               r->what.name, error.message);
    xn_region_release(r);
}

void xn_region_pin(xn_region *r) {
    const int pool = 0; /* the one that memory is pinned for */
    if (!r->pages || r->home->pagemap < 0 || !xn_engine_uses_pinned(r->home->engine, pool))
        return;
    xn_region_retain(r);
    r->task.run = pin_in_background;
    xn_thread_pool_submit(r->home->pool, &r->task);
}

/* Whether this process still has the page that was there when it was pinned. Cutting the object
 * short takes its pages away from the end on: so the last one tells of all, also when the object
 * has grown again, since nothing here touches the new one. */
static bool has_last_page(const xn_region *r) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t last = (uintptr_t)r->pages + r->page_bytes - 1;
    uint64_t entry = 0;
    const ssize_t n =
        pread(r->home->pagemap, &entry, sizeof entry, (off_t)(last / page * sizeof entry));
    return n == sizeof entry && entry >> 63;
}

/* Shorter by less than a page, it has all of its pages. */
static bool is_whole(const xn_region *r) {
    const xn_shm_request *of = &r->what.region;
    struct stat info;
    return !fstat(r->fd, &info) && of->offset + of->byte_size <= (uint64_t)info.st_size;
}

void *xn_region_pinned(xn_region *r, uint64_t at) {
    if (!atomic_load(&r->pinned) || !is_whole(r))
        return NULL;
    if (has_last_page(r))
        return r->pages + r->skip + at;
    if (atomic_exchange(&r->pinned, false))
        xn_log(XN_LOG_INFO, NULL,
               "shared memory \"%s\" was cut short since it was registered, and is copied from "
               "now on",
               r->what.name);
    return NULL;
}

/* ---- opening ---- */

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

/* Whole pages. Without a mapping the region serves too, more slowly. */
static void map_pages(xn_region *r) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const xn_shm_request *of = &r->what.region;
    const uint64_t skip = of->offset % page,
                   bytes = (skip + of->byte_size + page - 1) / page * page;
    if (bytes > SIZE_MAX / 2 || bytes < of->byte_size)
        return;
    void *pages = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
                       (off_t)(of->offset - skip));
    if (pages == MAP_FAILED)
        return;
    r->pages = pages;
    r->page_bytes = (size_t)bytes;
    r->skip = (size_t)skip;
}

xn_status xn_region_open(xn_region_home *home, const xn_region_item *what, xn_region **out,
                         xn_error *error) {
    xn_region *r = xn_mem_zalloc(1, sizeof *r);
    if (!r)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a region");
    xn_status status = open_key(&what->region, &r->fd, error);
    if (status != XN_OK) {
        xn_mem_free(r);
        return status;
    }
    atomic_init(&r->references, 1);
    r->home = home;
    r->what = *what;
    map_pages(r);
    *out = r;
    return XN_OK;
}

/* ---- copying ---- */

ssize_t xn_region_read(const xn_region *r, uint64_t at, void *to, size_t bytes) {
    ssize_t n;
    do
        n = pread(r->fd, to, bytes, (off_t)(r->what.region.offset + at));
    while (n < 0 && errno == EINTR);
    return n;
}

/* By the system, as another process would write here. */
static ssize_t write_mapped(const xn_region *r, uint64_t at, const void *from, size_t bytes) {
    const struct iovec here = {(void *)from, bytes}, there = {r->pages + r->skip + at, bytes};
    const ssize_t n = process_vm_writev(getpid(), &here, 1, &there, 1, 0);
    return n < 0 && errno == EFAULT ? 0 : n;
}

/* Pages that are pinned must not be replaced by new ones here: see has_last_page. */
ssize_t xn_region_write(const xn_region *r, uint64_t at, const void *from, size_t bytes) {
    const ssize_t written =
        r->pages && !atomic_load(&r->pinned) ? write_mapped(r, at, from, bytes) : -1;
    if (written >= 0)
        return written;
    ssize_t n;
    do
        n = pwrite(r->fd, from, bytes, (off_t)(r->what.region.offset + at));
    while (n < 0 && errno == EINTR);
    return n;
}
