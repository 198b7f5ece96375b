/* main.c: worlds by seed.
 *   xnord-simulate [--seed N] [--seeds COUNT] [--seconds S]
 * With --seed alone it is that one; without it they begin with a number of the clock's. Each BLOCK
 * of seeds has a process of its own, at the same addresses and with the same heap: a seed replays
 * exactly behind those before it in its block. */
#include "log.h"
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 16, CPU_SECONDS = 120 };

/* ---- laws and events (laws.h) ---- */

enum { LAST_EVENTS = 50, LINE_BYTES = 120 };

static char lines[LAST_EVENTS][LINE_BYTES];
static uint64_t counted, begun_with, seed_now;

void events_begin(uint64_t seed) {
    seed_now = seed;
    begun_with = counted;
}

uint64_t events_counted(void) {
    return counted - begun_with;
}

void event(const xn_request *of, const char *what, const char *format, ...) {
    char *line = lines[counted++ % LAST_EVENTS];
    const long long us = fibers_now() % 1000000000000 / 1000;
    int length = snprintf(line, LINE_BYTES, "%9lld.%03lld  %3d %-14s %5.0u  %-8s ", us / 1000,
                          us % 1000, fibers_self(), fibers_name(), of ? of->number : 0, what);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, LINE_BYTES - (size_t)length, format, arguments);
    va_end(arguments);
}

void law_broken(const char *file, int line, const char *text) {
    uint64_t first = counted - begun_with > LAST_EVENTS ? counted - LAST_EVENTS : begun_with;
    printf("the last events of seed %llu:\n%13s  %-18s %5s  event\n", (unsigned long long)seed_now,
           "ms", "fiber", "of");
    for (; first < counted; first++)
        printf("%s\n", lines[first % LAST_EVENTS]);
    fibers_print();
    printf("%s:%d: broken: %s\n", file, line, text);
    printf("again: make simulate SEED=%llu\n", (unsigned long long)seed_now);
    fflush(stdout);
    _Exit(1);
}

/* ---- worlds ---- */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The seeds from `first` on, up to the end of their block or `end`. 0: one of them has broken a
 * law, which it has told, or crashed. */
static uint64_t run_block(uint64_t first, uint64_t end, bool failing) {
    const uint64_t next = (first / BLOCK + 1) * BLOCK < end ? (first / BLOCK + 1) * BLOCK : end;
    const struct rlimit limit = {CPU_SECONDS, CPU_SECONDS};
    int status;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CPU, &limit); /* a loop without an end */
        for (all->seed = failing ? first : first / BLOCK * BLOCK; all->seed < next; all->seed++)
            (failing ? world_allocations : world_run)(all->seed);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 0;
    if (WIFSIGNALED(status))
        printf("seed %llu: ended by signal %d (%s)\nagain: make simulate SEED=%llu\n",
               (unsigned long long)all->seed, WTERMSIG(status), strsignal(WTERMSIG(status)),
               (unsigned long long)all->seed);
    return status ? 0 : next;
}

int main(int argc, char **argv) {
    uint64_t seed = 0, count = 0;
    double limit = 0;
    const bool failing = argc > 1 && !strcmp(argv[1], "--allocations");
    xn_error error;
    const int now = personality(0xffffffff);
    if (now != -1 && !(now & ADDR_NO_RANDOMIZE) && personality(now | ADDR_NO_RANDOMIZE) != -1)
        execv("/proc/self/exe", argv);
    for (int i = 1 + failing; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--seeds"))
            count = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--seconds"))
            limit = strtod(argv[i + 1], NULL);
    }
    if (seed && !count && limit <= 0)
        count = 1;
    if (!seed)
        seed = (uint64_t)(seconds() * 1e6);
    if (!count && limit <= 0)
        limit = 60;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || xn_log_open("/dev/null", &error) != XN_OK)
        return 2;
    const double started = seconds();
    const uint64_t end = count ? seed + count : UINT64_MAX;
    uint64_t next = seed;
    while (next < end && (limit <= 0 || seconds() - started < limit))
        if (!(next = run_block(next, end, failing)))
            return 1;
    const double took = seconds() - started;
    printf("simulation: seeds %llu to %llu, %llu events in %.1f s (%.0f a second)\n"
           "%llu requests, %llu runs of devices; answers:",
           (unsigned long long)seed, (unsigned long long)(next - 1),
           (unsigned long long)all->events, took, (double)all->events / took,
           (unsigned long long)all->requests, (unsigned long long)all->runs);
    for (int status = 0; status < STATUSES; status++)
        if (all->answers[status])
            printf(" %llu of %d", (unsigned long long)all->answers[status], status);
    printf("\n");
    return 0;
}
