/* laws.c: see laws.h. */
#include "laws.h"

#include "fibers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAST_EVENTS = 50, LINE_BYTES = 120 };

static char lines[LAST_EVENTS][LINE_BYTES];
static uint64_t count, begun_with, seed_now;

void events_begin(uint64_t seed) {
    seed_now = seed;
    begun_with = count;
}

uint64_t events_counted(void) {
    return count - begun_with;
}

void event(const char *format, ...) {
    char *line = lines[count++ % LAST_EVENTS];
    int length =
        snprintf(line, LINE_BYTES, "%13.6f ms  %3d %-16s ",
                 (double)(fibers_now() % 1000000000000) / 1e6, fibers_self(), fibers_name());
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, LINE_BYTES - (size_t)length, format, arguments);
    va_end(arguments);
}

void law_broken(const char *file, int line, const char *text) {
    uint64_t first = count - begun_with > LAST_EVENTS ? count - LAST_EVENTS : begun_with;
    printf("the last events of seed %llu:\n", (unsigned long long)seed_now);
    for (; first < count; first++)
        printf("%s\n", lines[first % LAST_EVENTS]);
    fibers_print();
    printf("%s:%d: broken: %s\n", file, line, text);
    printf("again: make simulate SEED=%llu\n", (unsigned long long)seed_now);
    fflush(stdout);
    _Exit(1);
}
