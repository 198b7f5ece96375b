/* alloc_fault.h: what the test and the preloaded allocator (preload/alloc.c) share: a page of a
 * file, whose path is in the environment of the process under test. */
#ifndef XT_ALLOC_FAULT_H
#define XT_ALLOC_FAULT_H

#include <stdatomic.h>

#define XT_ALLOC_VARIABLE "XNORD_TEST_ALLOC"

typedef struct xt_alloc_fault {
    atomic_uint one_in; /* of so many allocations one fails, at random; 0: none */
    atomic_uint seed;
    atomic_bool from_main; /* none before main is called */
    atomic_ulong calls;    /* while one_in is not 0 */
    atomic_ulong failed;   /* of them */
} xt_alloc_fault;

#endif
