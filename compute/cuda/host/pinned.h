/* pinned.h: which host memory kernels of this process may read and write: what was pinned for all
 * devices, so that this list is the process's too, not a device's. Thread-safe. Needs no device. */
#ifndef XN_CUDA_PINNED_H
#define XN_CUDA_PINNED_H

#include <stdbool.h>
#include <stddef.h>

/* False without memory: then it is not in the list, and is copied like any other. */
bool xn_cuda_pinned_add(const void *memory, size_t bytes);
/* Before the memory stops being pinned. What is not in the list is left alone. */
void xn_cuda_pinned_remove(const void *memory);
/* Whether all of it lies in one piece of the list. */
bool xn_cuda_pinned_has(const void *memory, size_t bytes);

#endif
