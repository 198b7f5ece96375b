/* laws.c: see laws.h. */
#include "laws.h"

#include "world.h"

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

void event(const xn_request *of, const char *what, const char *format, ...) {
    char *line = lines[count++ % LAST_EVENTS];
    const long long us = fibers_now() % 1000000000000 / 1000;
    int length = snprintf(line, LINE_BYTES, "%9lld.%03lld  %3d %-14s %5.0u  %-8s ", us / 1000,
                          us % 1000, fibers_self(), fibers_name(), of ? of->number : 0, what);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, LINE_BYTES - (size_t)length, format, arguments);
    va_end(arguments);
}

void law_broken(const char *file, int line, const char *text) {
    uint64_t first = count - begun_with > LAST_EVENTS ? count - LAST_EVENTS : begun_with;
    printf("the last events of seed %llu:\n%13s  %-18s %5s  event\n", (unsigned long long)seed_now,
           "ms", "fiber", "of");
    for (; first < count; first++)
        printf("%s\n", lines[first % LAST_EVENTS]);
    fibers_print();
    printf("%s:%d: broken: %s\n", file, line, text);
    printf("again: make simulate SEED=%llu\n", (unsigned long long)seed_now);
    fflush(stdout);
    _Exit(1);
}
