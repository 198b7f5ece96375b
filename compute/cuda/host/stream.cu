/* stream.cu: what a worker thread owns: a CUDA stream that waits for no other, four events around
 * the three stages of a run, and a device workspace that grows when plans are made, never when
 * they run. */
#include "xn_cpus.h"
#include "xn_cuda.h"

#include <sched.h>
#include <time.h>

/* A thread polls so long before it sleeps: about what falling asleep and waking up costs; longer
 * where processors are many, so that nobody needs this one. */
#define POLL_NS 30000
#define LONG_POLL_NS 100000
#define MANY_CPUS 8
#define NAP_NS 20000 /* of a wait with a bound, between two looks */

static xn_status create_events(xn_stream *s, xn_error *error) {
    cudaEvent_t *const events[] = {&s->start, &s->uploaded, &s->computed};
    xn_status status = XN_OK;
    for (int i = 0; i < 3 && status == XN_OK; i++)
        status = xn_cuda_check(cudaEventCreateWithFlags(events[i], cudaEventDefault),
                               "creating an event", error);
    if (status == XN_OK)
        status = xn_cuda_check(cudaEventCreateWithFlags(&s->done, cudaEventBlockingSync),
                               "creating an event", error);
    return status;
}

xn_status xn_cuda_stream_create(xn_device *device, const xn_stream_options *options,
                                xn_stream **out, xn_error *error) {
    const xn_cuda_path *path = NULL;
    if (options && options->path && !(path = xn_cuda_path_find(device, options->path)))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "GPU %d has no kernel path \"%s\"",
                       device->ordinal, options->path);
    xn_status status = xn_cuda_device_use(device, error);
    if (status)
        return status;
    xn_stream *s = (xn_stream *)xn_mem_zalloc(1, sizeof *s);
    if (!s)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a stream handle");
    s->device = device;
    s->path = path;
    s->poll_ns = xn_cpus_usable() >= MANY_CPUS ? LONG_POLL_NS : POLL_NS;
    status = xn_cuda_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking),
                           "creating a stream", error);
    if (status == XN_OK)
        status = create_events(s, error);
    if (status == XN_OK)
        s->zero_copy = xn_zero_copy_create(s->stream);
    if (status) {
        xn_cuda_stream_free(s);
        return status;
    }
    *out = s;
    return XN_OK;
}

void xn_cuda_stream_free(xn_stream *s) {
    if (!s)
        return;
    (void)xn_cuda_device_use(s->device, NULL);
    if (s->stream)
        (void)cudaStreamSynchronize(s->stream);
    const cudaEvent_t events[] = {s->start, s->uploaded, s->computed, s->done};
    for (int i = 0; i < 4; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    xn_zero_copy_free(s->zero_copy);
    (void)cudaFree(s->workspace);
    (void)cudaFree(s->arena);
    if (s->stream)
        (void)cudaStreamDestroy(s->stream);
    (void)cudaGetLastError();
    xn_mem_free(s);
}

static cudaError_t allocate(size_t bytes, char **out) {
    void *memory = NULL;
    cudaError_t result = cudaMalloc(&memory, bytes);
    if (result == cudaSuccess)
        *out = (char *)memory;
    else
        (void)cudaGetLastError();
    return result;
}

/* When there is no room for the old and the new memory at once, the old one goes first. When there
 * is none for the new one even then, the old size is taken back for those that live with it; should
 * that fail too, their runs say XN_ERR_DEVICE_MEMORY. */
static xn_status grow(xn_stream *s, const char *what, size_t bytes, char **memory, size_t *have,
                      xn_error *error) {
    if (bytes <= *have)
        return XN_OK;
    char *larger = NULL;
    xn_status status =
        xn_cuda_check(cudaStreamSynchronize(s->stream), "waiting for a stream", error);
    if (status)
        return status;
    cudaError_t result = allocate(bytes, &larger);
    if (result == cudaSuccess || result == cudaErrorMemoryAllocation) {
        status = xn_cuda_check(cudaFree(*memory), "freeing a stream's memory", error);
        *memory = NULL;
        if (status == XN_OK && !larger)
            result = allocate(bytes, &larger);
    }
    if (larger) {
        *memory = larger;
        *have = bytes;
        return status;
    }
    if (!*memory && (!*have || allocate(*have, memory) != cudaSuccess))
        *have = 0;
    if (result == cudaErrorMemoryAllocation)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "GPU %d has no room for %s of %zu bytes; send fewer or smaller images",
                       s->device->ordinal, what, bytes);
    return xn_cuda_check(result, "allocating a stream's memory", error);
}

xn_status xn_cuda_workspace_reserve(xn_stream *s, size_t bytes, xn_error *error) {
    return grow(s, "a workspace", bytes, &s->workspace, &s->workspace_bytes, error);
}

xn_status xn_cuda_arena_reserve(xn_stream *s, size_t bytes, xn_error *error) {
    xn_status status = xn_cuda_device_use(s->device, error);
    return status ? status : grow(s, "tensors", bytes, &s->arena, &s->arena_bytes, error);
}

void *xn_cuda_arena(const xn_stream *s, size_t bytes) {
    return bytes <= s->arena_bytes ? s->arena : NULL;
}

void xn_cuda_stream_trim(xn_stream *s) {
    (void)xn_cuda_device_use(s->device, NULL);
    (void)cudaStreamSynchronize(s->stream);
    (void)cudaFree(s->workspace);
    (void)cudaFree(s->arena);
    (void)cudaGetLastError(); /* of a lost device, which the next run tells of */
    s->workspace = s->arena = NULL;
    s->workspace_bytes = s->arena_bytes = 0;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* There is no wait for an event with a bound: asks again after a nap. */
static cudaError_t ask_until(cudaEvent_t event, int64_t until_ns) {
    const struct timespec nap = {0, NAP_NS};
    cudaError_t result;
    while ((result = cudaEventQuery(event)) == cudaErrorNotReady && now_ns() < until_ns)
        nanosleep(&nap, NULL);
    if (result == cudaErrorNotReady)
        (void)cudaGetLastError();
    return result;
}

static xn_status wait_for_done(const xn_stream *s, int64_t until_ns, xn_error *error) {
    const cudaError_t result =
        until_ns == INT64_MAX ? cudaEventSynchronize(s->done) : ask_until(s->done, until_ns);
    if (result == cudaErrorNotReady)
        return xn_fail(error, XN_ERR_DEADLINE, NULL, "GPU %d has not ended a run in time",
                       s->device->ordinal);
    return xn_cuda_check(result, "running a batch", error);
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

xn_status xn_cuda_stream_wait(xn_stream *s, int64_t until_ns, xn_error *error) {
    const int64_t until = earlier(now_ns() + POLL_NS, until_ns);
    cudaError_t result;
    do {
        result = cudaEventQuery(s->done);
    } while (result == cudaErrorNotReady && now_ns() < until);
    if (result != cudaErrorNotReady)
        return xn_cuda_check(result, "running a batch", error);
    (void)cudaGetLastError();
    return wait_for_done(s, until_ns, error);
}

static void pause_a_moment(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Reads memory, which takes nothing from other threads, as the driver's locks would; and lets those
 * run that wait for this processor. */
static bool poll_zero_copy(const xn_stream *s, int64_t until_ns) {
    enum { SPINS = 32 }; /* a microsecond or so */
    const int64_t until = earlier(now_ns() + s->poll_ns, until_ns);
    do {
        for (int i = 0; i < SPINS; i++) {
            if (xn_zero_copy_is_done(s->zero_copy))
                return true;
            pause_a_moment();
        }
        sched_yield();
    } while (now_ns() < until);
    return false;
}

/* Once a run: a stream that hangs takes only so many. */
static xn_status record_done(xn_stream *s, xn_error *error) {
    if (s->recorded)
        return XN_OK;
    s->recorded = true;
    return xn_cuda_check(cudaEventRecord(s->done, s->stream), "recording an event", error);
}

xn_status xn_cuda_stream_wait_zero_copy(xn_stream *s, int64_t until_ns, xn_error *error) {
    if (poll_zero_copy(s, until_ns))
        return XN_OK;
    xn_status status = record_done(s, error);
    if (status == XN_OK)
        status = wait_for_done(s, until_ns, error);
    if (status == XN_OK && !xn_zero_copy_is_done(s->zero_copy))
        status = xn_fail(error, XN_ERR_INTERNAL, NULL, "a run on GPU %d ended without a report",
                         s->device->ordinal);
    return status;
}
