/* services.h: what the engine's parts use and do not own: made before them, freed after them,
 * constant in between. Each of these is thread-safe by itself. */
#ifndef XN_ENGINE_SERVICES_H
#define XN_ENGINE_SERVICES_H

#include "admission.h"
#include "buffers.h"
#include "metrics.h"
#include "store.h"

typedef struct xn_services {
    xn_metrics *metrics;
    xn_admission *admission;
    xn_store *store;
    xn_buffers *buffers;
    xn_cache *answers; /* NULL: there is no answer cache */
} xn_services;

/* What may still be read in while the daemon runs. */
typedef enum { XN_LOADING_WEIGHTS = 1, XN_LOADING_MODELS = 2 } xn_loading;

#endif
