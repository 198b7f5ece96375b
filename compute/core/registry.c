/* registry.c: the list of backends this build has, in the order of preference of "auto". */
#include "xn_backends.h"

#include <string.h>

static const xn_backend *const backends[] = {
#if XN_HAVE_CUDA
    &xn_backend_cuda,
#endif
    &xn_backend_cpu,
    &xn_backend_ref,
    NULL,
};

const xn_backend *const *xn_backend_all(void) {
    return backends;
}

const xn_backend *xn_backend_find(const char *name) {
    for (const xn_backend *const *b = backends; *b; b++)
        if (!strcmp((*b)->name, name))
            return *b;
    return NULL;
}
