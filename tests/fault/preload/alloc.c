/* alloc.c: an allocator to preload: the C library's, but one of so many calls fails, whoever makes
 * it: the program, the HTTP library, the TLS library, the compiler's runtime, the C library itself.
 * Anonymous mappings fail too, as far as libraries ask for them by name. */
#define _GNU_SOURCE
#include "../alloc_fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The C library's own, by the names under which it exports them beside the usual ones. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

/* Declared in headers that would also declare what must not be used here. */
void *memalign(size_t alignment, size_t bytes);

static _Atomic(xt_alloc_fault *) control;
static atomic_bool looked, in_main;

static void *map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): it is what the system call gives */
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* The page, once there is an environment. Allocates nothing. */
static xt_alloc_fault *find_control(void) {
    xt_alloc_fault *page = atomic_load(&control);
    if (page || !environ || atomic_exchange(&looked, true))
        return page;
    const char *path = getenv(XT_ALLOC_VARIABLE);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return NULL;
    page = map(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return NULL;
    atomic_store(&control, page);
    return page;
}

static bool fails(void) {
    int saved = errno;
    xt_alloc_fault *page = find_control();
    errno = saved;
    unsigned one_in = page ? atomic_load_explicit(&page->one_in, memory_order_relaxed) : 0;
    if (!one_in || (atomic_load(&page->from_main) && !atomic_load(&in_main)))
        return false;
    uint64_t z = atomic_fetch_add_explicit(&page->calls, 1, memory_order_relaxed);
    z = (z + page->seed + 1) * 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    if ((z ^ (z >> 31)) % one_in)
        return false;
    atomic_fetch_add_explicit(&page->failed, 1, memory_order_relaxed);
    errno = ENOMEM;
    return true;
}

/* ---- when main begins ---- */

typedef int main_function(int count, char **arguments, char **variables);
typedef int start_function(main_function *main, int count, char **arguments, void (*init)(void),
                           void (*fini)(void), void (*end)(void), void *stack);
static main_function *real_main;

static int enter_main(int count, char **arguments, char **variables) {
    atomic_store(&in_main, true);
    return real_main(count, arguments, variables);
}

start_function __libc_start_main;
int __libc_start_main(main_function *main, int count, char **arguments, void (*init)(void),
                      void (*fini)(void), void (*end)(void), void *stack) {
    start_function *start = NULL;
    *(void **)(void *)&start = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main;
    return start(enter_main, count, arguments, init, fini, end, stack);
}

/* ---- the allocator ---- */

void *malloc(size_t bytes) {
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    return fails() ? NULL : __libc_realloc(memory, bytes);
}

void *reallocarray(void *memory, size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return fails() ? NULL : __libc_realloc(memory, total);
}

void *memalign(size_t alignment, size_t bytes) {
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    int saved = errno;
    void *memory = fails() ? NULL : __libc_memalign(alignment, bytes);
    errno = saved;
    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_ANONYMOUS) && fails())
        return MAP_FAILED;
    return map(at, bytes, protection, flags, fd, offset);
}
