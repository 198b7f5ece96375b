/* countdown.h: allocations that are counted, and fail: the one after the first `left`, once;
 * negative: none. xn_mem_set_hook(xn_countdown_hook, &countdown). */
#ifndef XN_COUNTDOWN_H
#define XN_COUNTDOWN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct xn_countdown {
    int left, calls;
} xn_countdown;

static inline bool xn_countdown_hook(void *context, size_t bytes) {
    xn_countdown *c = context;
    (void)bytes;
    c->calls++;
    return c->left-- != 0;
}

#endif
