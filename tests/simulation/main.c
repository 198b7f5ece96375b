/* main.c: worlds by seed.
 *   xnord-simulate [--seed N] [--seeds COUNT] [--seconds S]
 * Without --seed they begin with a number of the clock's; with --seed alone it is that one. */
#include "laws.h"
#include "log.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The one that the linker leaves, not the virtual one. */
int real_clock_gettime(clockid_t clock, struct timespec *out) __asm__("__real_clock_gettime");

static double seconds(void) {
    struct timespec now;
    real_clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void print_counts(const uint64_t *counts) {
    for (int i = 0; i < ANSWERS_MAX; i++)
        if (counts[i])
            printf(" %llu %s", (unsigned long long)counts[i], xn_status_name((xn_status)i));
}

int main(int argc, char **argv) {
    uint64_t seed = (uint64_t)(seconds() * 1e6), count = 0;
    double limit = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 0), count = count ? count : 1;
        else if (!strcmp(argv[i], "--seeds"))
            count = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--seconds"))
            limit = strtod(argv[i + 1], NULL);
    }
    if (!count && limit <= 0)
        limit = 60;
    xn_error error;
    if (xn_log_open("/dev/null", &error) != XN_OK)
        return 2;
    const double started = seconds();
    uint64_t done = 0;
    while ((!count || done < count) && (limit <= 0 || seconds() - started < limit))
        world_run(seed + done++);
    const double took = seconds() - started;
    printf("simulation: seeds %llu to %llu, %llu events in %.1f s (%.0f a second)\n",
           (unsigned long long)seed, (unsigned long long)(seed + done - 1),
           (unsigned long long)events_counted(), took, (double)events_counted() / took);
    printf("%llu runs of devices, %llu of them by callers, %llu answers from the cache; answers:",
           (unsigned long long)runs_in_all, (unsigned long long)inline_runs,
           (unsigned long long)recalls);
    print_counts(answers);
    printf("; refusals:");
    print_counts(refusals);
    printf("\n");
    return 0;
}
