/* xn_backends.h: the tables this build has. Each backend's folder defines its own; only the
 * registry (registry.c) reads them, so this is the one place with an #if for CUDA. */
#ifndef XN_BACKENDS_H
#define XN_BACKENDS_H

#include "xn_backend.h"

#ifndef XN_HAVE_CUDA
#define XN_HAVE_CUDA 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if XN_HAVE_CUDA
extern const xn_backend xn_backend_cuda;
#endif
extern const xn_backend xn_backend_cpu;
extern const xn_backend xn_backend_ref;

#ifdef __cplusplus
}
#endif
#endif
