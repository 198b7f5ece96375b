/* fault.h: makes the n-th allocation from now on fail, once or from there on for good, in whatever
 * thread it happens. */
#ifndef XT_FAULT_H
#define XT_FAULT_H

#include "xn_mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct xt_fault {
    atomic_long left;  /* allocations to let through; negative: past the failing one */
    atomic_bool armed; /* off: all succeed and none are counted */
    atomic_bool for_good;
    atomic_long failed; /* how many were refused */
} xt_fault;

static inline bool xt_fault_hook(void *context, size_t bytes) {
    xt_fault *fault = context;
    (void)bytes;
    if (!atomic_load(&fault->armed))
        return true;
    long left = atomic_fetch_sub(&fault->left, 1);
    if (left > 0 || (left < 0 && !atomic_load(&fault->for_good)))
        return true;
    atomic_fetch_add(&fault->failed, 1);
    return false;
}

/* Allocation number n (from 0) fails, and with for_good all that follow. */
static inline void xt_fault_arm(xt_fault *fault, long n, bool for_good) {
    atomic_store(&fault->failed, 0);
    atomic_store(&fault->for_good, for_good);
    atomic_store(&fault->left, n);
    atomic_store(&fault->armed, true);
}

/* How many allocations failed since it was armed. */
static inline long xt_fault_disarm(xt_fault *fault) {
    atomic_store(&fault->armed, false);
    return atomic_load(&fault->failed);
}

#endif
