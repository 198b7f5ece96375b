/* pinned.h: which host memory kernels of this process may read and write: what was pinned for all
 * devices, so that this list is the process's too, not a device's. Thread-safe. Needs no device. */
#ifndef XN_CUDA_PINNED_H
#define XN_CUDA_PINNED_H

#include <stdbool.h>
#include <stddef.h>

enum { XN_CUDA_PINNED_MOST = 1 << 14 };

/* False where the list is full: then it is not in there, and is copied like any other. */
bool xn_cuda_pinned_add(const void *memory, size_t bytes);
/* Before the memory stops being pinned. What is not in the list is left alone. */
void xn_cuda_pinned_remove(const void *memory);
/* Whether all of it lies in one piece of the list. */
bool xn_cuda_pinned_has(const void *memory, size_t bytes);

#endif
