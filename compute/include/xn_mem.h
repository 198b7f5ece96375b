/* xn_mem.h: host memory and checked sizes. All host allocation of compute, proto and server goes
 * through xn_mem_alloc and friends, so that tests can fail each allocation in turn. */
#ifndef XN_MEM_H
#define XN_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XN_MEM_ALIGNMENT                                                                           \
    64 /* bytes; every xn_mem_alloc result, a cache line and a zmm register                        \
        */

/* An allocation of that size or more must leave the headroom to all others, or it fails: where the
 * process may not have more memory (a limit on its address space, no overcommitment), what is large
 * is refused first, and small allocations, the libraries' among them, still succeed. */
#define XN_MEM_LARGE_BYTES ((size_t)1 << 20)
#define XN_MEM_HEADROOM_BYTES ((size_t)16 << 20)

/* Uninitialised memory of that many bytes, 64-byte aligned; NULL when there is none. Size 0 gives
 * a valid pointer. The caller owns it and frees it with xn_mem_free. */
void *xn_mem_alloc(size_t bytes);
/* The same, zero-filled, for count objects of that size; NULL also when the product overflows. */
void *xn_mem_zalloc(size_t count, size_t bytes);
void xn_mem_free(void *memory); /* NULL-safe */

/* Pages of their own, zero, that take no memory before they are written: for what may become large
 * and may not come. bytes > 0. NULL when there is none. */
void *xn_mem_map(size_t bytes);
void xn_mem_unmap(void *memory, size_t bytes); /* NULL-safe; the same bytes */

/* Test hook: called before each allocation with its size; returning false makes it fail. Set it
 * before other threads start. NULL restores the default. */
typedef bool (*xn_mem_hook)(void *context, size_t bytes);
void xn_mem_set_hook(xn_mem_hook hook, void *context);

/* Called each time that an allocation fails, in whatever thread and with whatever locks held that
 * its caller holds: it may only take note, for a thread that holds none to give memory back later.
 * An allocation that fails is not tried again. Set it while no other thread allocates; NULL: there
 * is none. */
typedef void (*xn_mem_shortage)(void);
void xn_mem_set_shortage(xn_mem_shortage shortage);

/* What the calling thread has allocated with xn_mem_alloc and has not freed, in bytes of the heap;
 * what another thread freed of it counts as held, what this thread freed of another's as less. The
 * difference of two calls is what the code between them holds. */
int64_t xn_mem_held(void);

/* Checked arithmetic: false on overflow, *out written only on true. */
static inline bool xn_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool xn_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool xn_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

#ifdef __cplusplus
}
#endif
#endif
