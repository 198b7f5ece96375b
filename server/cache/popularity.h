/* popularity.h: how often each key was asked for lately, roughly, in little memory: a count-min
 * sketch with conservative updates (Cormode and Muthukrishnan), whose counters are halved now and
 * then, as in TinyLFU (Einziger, Friedman, Manes, arXiv 1512.00727). Keys are given as good 64-bit
 * hashes. Not thread-safe. */
#ifndef XN_POPULARITY_H
#define XN_POPULARITY_H

#include "xn_status.h"

#include <stddef.h>
#include <stdint.h>

#define XN_POPULARITY_MOST 15 /* a count goes no further */

typedef struct xn_popularity {
    unsigned char *counters;
    size_t mask;   /* how many, a power of 2, less 1 */
    size_t added;  /* since they were halved */
    size_t period; /* so many are added in between */
} xn_popularity;

/* counters: a power of 2, 64 or more; ten times as many as there are keys of interest. They are
 * halved whenever a quarter as many keys were added: more would leave no counter at 0, and every
 * key would seem popular. */
xn_status xn_popularity_init(xn_popularity *popularity, size_t counters, xn_error *error);
void xn_popularity_clear(xn_popularity *popularity);

void xn_popularity_add(xn_popularity *popularity, uint64_t hash);
/* 0 .. XN_POPULARITY_MOST; hardly ever less than what was added since the last few halvings. */
unsigned xn_popularity_of(const xn_popularity *popularity, uint64_t hash);

#endif
