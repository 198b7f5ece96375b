/* mapping.c: see mapping.h. Reading a page that a file no longer has raises SIGBUS. Its handler
 * finds the mapping in a table and puts zeros in the place of the rest; such a fault outside of all
 * mappings ends the process, as it does without a handler. */
#include "mapping.h"

#include "xn_mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAPPINGS_MAX = 1024 };

typedef struct mapping {
    _Atomic(char *) bytes; /* NULL: free. The handler reads these two without the lock, */
    atomic_size_t length;
    atomic_bool lost; /* and sets this */
    int fd;
    struct stat was;
} mapping;

static mapping mappings[MAPPINGS_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards which are free */
static pthread_once_t handling = PTHREAD_ONCE_INIT;
static uintptr_t page_bytes;

/* A length is that of bytes which are the same before and behind it. */
static bool has(mapping *m, const char *at) {
    const char *bytes = atomic_load(&m->bytes);
    const size_t length = atomic_load(&m->length);
    return bytes && (uintptr_t)at - (uintptr_t)bytes < length && bytes == atomic_load(&m->bytes);
}

/* NULL: no mapping has the address. */
static mapping *find(const char *at) {
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (has(&mappings[i], at))
            return &mappings[i];
    return NULL;
}

/* mmap as the system call that it is, since a handler may not call more. */
static void fill_with_zeros(int signal, siginfo_t *info, void *context) {
    (void)context;
    const int before = errno;
    char *page = (char *)info->si_addr - (uintptr_t)info->si_addr % page_bytes;
    mapping *m = find(info->si_addr);
    const size_t rest = m ? (size_t)(atomic_load(&m->bytes) + atomic_load(&m->length) - page) : 0;
    if (m)
        atomic_store(&m->lost, true);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (!m || syscall(SYS_mmap, page, rest, PROT_READ, flags, -1, 0) != (long)page)
        sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL); /* faults again */
    errno = before;
}

static void handle(void) {
    const struct sigaction action = {.sa_sigaction = fill_with_zeros, .sa_flags = SA_SIGINFO};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, &action, NULL);
}

static mapping *take(void) {
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (!atomic_load(&mappings[i].bytes))
            return &mappings[i];
    return NULL;
}

static void release(void *bytes, size_t length) {
    mapping *m = find(bytes);
    assert(m);
    pthread_mutex_lock(&mutex);
    const int fd = m->fd;
    atomic_store(&m->bytes, NULL);
    pthread_mutex_unlock(&mutex);
    xn_mem_unmap(bytes, length);
    close(fd);
}

bool xn_mapping_create(int fd, const struct stat *info, xn_memory *out) {
    const size_t length = (size_t)info->st_size;
    *out = (xn_memory){.length = length, .release = release};
    pthread_once(&handling, handle);
    char *bytes = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return false;
    pthread_mutex_lock(&mutex);
    mapping *m = take();
    const int own = m ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (own >= 0) {
        m->fd = own;
        m->was = *info;
        atomic_store(&m->lost, false);
        atomic_store(&m->length, length);
        atomic_store(&m->bytes, bytes);
        out->bytes = bytes;
    }
    pthread_mutex_unlock(&mutex);
    if (own < 0)
        xn_mem_unmap(bytes, length);
    return own >= 0;
}

/* Not by the time of the last change, which a file that loses its name has too. */
bool xn_mapping_is_intact(const xn_memory *memory) {
    const mapping *m = find(memory->bytes);
    struct stat is;
    return !atomic_load(&m->lost) && !fstat(m->fd, &is) && is.st_size == m->was.st_size &&
           is.st_mtim.tv_sec == m->was.st_mtim.tv_sec &&
           is.st_mtim.tv_nsec == m->was.st_mtim.tv_nsec;
}
