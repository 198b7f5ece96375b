/* arena.h: where the tensors of a program lie in one block of memory. Tensors that are never needed
 * at the same time share bytes. Pure. */
#ifndef XN_ARENA_H
#define XN_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct xn_arena_tensor {
    size_t bytes;
    int first, last; /* needed from the one step to the other, both included; last >= first */
    size_t offset;   /* result */
    int next;        /* of no interest: the one behind it */
    bool placed;     /* of no interest */
} xn_arena_tensor;

/* Gives each tensor of more than 0 bytes an offset, a multiple of alignment, and returns in *total
 * how many bytes that takes. False when it passes the address space. The largest are placed first,
 * each at the lowest offset where it fits: O(count^2). */
bool xn_arena_plan(xn_arena_tensor *tensors, int count, size_t alignment, size_t *total);

#endif
