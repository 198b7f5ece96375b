/* host.c: device.h on the CPU: host memory, the monotonic clock, a copy by all threads. */
#include "bench/clock.h"
#include "device.h"
#include "host_peak.h"
#include "xn_mem.h"

#include <math.h>
#include <omp.h>
#include <sched.h>
#include <string.h>

static void *take(size_t bytes) {
    void *memory = xn_mem_alloc(bytes);
    if (!memory)
        xn_bench_fail("buffers", "no memory");
    memset(memory, 1, bytes); /* pages of its own */
    return memory;
}

static void move(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}

static void poison(void *memory, size_t bytes) {
    memset(memory, 0xff, bytes);
}

/* ---- runs ---- */

static void enqueue(xn_plan *plan, const xn_prepared *prepared, int64_t images,
                    const xn_bench_kind *kind, const xn_bench_io *io) {
    const xn_batch_item item = {io->input, io->output, images};
    const xn_batch batch = {.items = &item, .count = 1, .images = images};
    const xn_step_io step = {.input = io->input,
                             .output = kind->packed_output ? NULL : io->output,
                             .bits = kind->packed_output ? io->output : NULL,
                             .batch = &batch};
    xn_error error;
    if (xn_backend_find("cpu")->enqueue(plan, prepared, &step, &error))
        xn_bench_fail("cpu", error.message);
}

static void nothing(void) {
}

/* A thread of OpenMP stays on a processor of its own: one that wakes where its caller spins waits
 * there for its caller's slice of time, 8 ms. The caller itself floats. */
static void keep_apart(void) {
    static _Thread_local bool apart;
    cpu_set_t all, one;
    int skip = omp_get_thread_num();
    if (apart || !skip || sched_getaffinity(0, sizeof all, &all) || skip >= CPU_COUNT(&all))
        return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && skip-- == 0)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    apart = true;
}

enum { COPY_BLOCK = 64 << 10 };

/* A block of both, of which one may be longer. */
static unsigned long long copy_block(const xn_bench_copy *c, size_t at) {
    unsigned char *to = c->to;
    const unsigned char *from = c->from;
    const size_t in = c->in_bytes, out = c->out_bytes, end = at + COPY_BLOCK;
    const size_t both = in < out ? in : out, copy_end = end < both ? end : both;
    unsigned long long sum = 0;
    if (copy_end > at)
        memcpy(to + at, from + at, copy_end - at);
    for (size_t i = at > both ? at : both; i < end && i < out; i += 64)
        memset(to + i, 1, out - i < 64 ? out - i : 64);
    for (size_t i = at > both ? at : both; i < end && i < in; i += 64)
        sum += from[i];
    return sum;
}

/* Reads in_bytes and writes out_bytes with all threads of OpenMP. */
static void copy(void *context) {
    const xn_bench_copy *c = context;
    unsigned char *to = c->to;
    const size_t larger = c->in_bytes > c->out_bytes ? c->in_bytes : c->out_bytes;
    const long blocks = (long)((larger + COPY_BLOCK - 1) / COPY_BLOCK);
    unsigned long long sum = 0;
#pragma omp parallel reduction(+ : sum) if (larger > 4 * COPY_BLOCK)
    {
        keep_apart();
#pragma omp for schedule(static)
        for (long b = 0; b < blocks; b++)
            sum += copy_block(c, (size_t)b * COPY_BLOCK);
    }
    if (sum == 1) /* keep the reads */
        to[0] = 1;
}

typedef struct timer {
    void (*run)(void *context);
    void *context;
} timer;

static void *timer_make(void (*run)(void *context), void *context) {
    timer *t = xn_bench_take(1, sizeof *t);
    *t = (timer){run, context};
    return t;
}

static double timer_sample(void *made) {
    const timer *t = made;
    const int64_t start = xn_bench_now_ns();
    t->run(t->context);
    return (double)(xn_bench_now_ns() - start) / 1e3;
}

/* ---- peaks: the best of some runs, as a peak is what can be had ---- */

static double best_of(double (*rate)(void)) {
    double best = 0;
    for (int i = 0; i < 15; i++)
        best = fmax(best, rate());
    return best > 0 ? best : NAN;
}

static double peak_binary(void) {
    return best_of(xn_host_peak_xor_count_add);
}

static double peak_real(void) {
    return best_of(xn_host_peak_multiply_add);
}

const xn_bench_place xn_bench_host = {.pause_ns = 10000000,
                                      .take = take,
                                      .give = xn_mem_free,
                                      .upload = move,
                                      .download = move,
                                      .poison = poison,
                                      .enqueue = enqueue,
                                      .wait = nothing,
                                      .copy = copy,
                                      .timer_make = timer_make,
                                      .timer_sample = timer_sample,
                                      .timer_free = xn_mem_free,
                                      .peak_binary = peak_binary,
                                      .peak_real = peak_real};
