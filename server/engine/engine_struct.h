/* engine_struct.h: what an engine is made of, and the door for tests: pools given explicitly.
 *
 *   choose            from the configuration to pools
 *   engine_create     creating and ending; submit and cancel
 *   engine_info       what can be asked: parts, devices, readiness
 *   worker, callers   running a job: on a worker, or on the thread that has it
 *   answers           jobs that need no run
 *   warm_up           runs before an asset serves
 *   devices/          device, pools, runner (a stream and a run on it), canary, host memory
 *   jobs/             job, queue, endings (deadlines, jobs that will not run), loop (a thread)
 *   memory/           programs, buffers
 *
 * Each owner has its header. A file uses only what stands below it in this list; lock.h has the
 * rules of the locks. Only the first three files know this struct. */
#ifndef XN_ENGINE_STRUCT_H
#define XN_ENGINE_STRUCT_H

#include "callers.h"
#include "device_canary.h"
#include "engine.h"
#include "worker.h"

typedef struct xn_pool_spec {
    const xn_backend *backend;
    const int *ordinals; /* devices to open */
    int ordinal_count;   /* >= 1 */
    int workers;         /* per device, >= 1 */
    int threads;         /* the budget its workers share, >= 1; 0 = runs use no host threads */
    int callers;         /* how many threads may run jobs of their own in the pool at a time */
} xn_pool_spec;

struct xn_engine {
    xn_lock lock;
    xn_services services;
    xn_endings endings;
    xn_pools pools;
    xn_callers callers;
    xn_canary canary;
    xn_worker *workers;
    int worker_count;
    int64_t warm_up_ns; /* the deadline of a warm-up's run */
    char fallback_reason[XN_FALLBACK_REASON_MAX];
    pthread_t creator; /* the thread that created it: see xn_engine_reclaim */
};

/* The first pool is the primary one. Everything is copied. fallback_reason: "" or what
 * xn_engine_fallback_reason gives. */
xn_status xn_engine_create_with(const xn_config *config, const xn_pool_spec *pools, int pool_count,
                                const char *fallback_reason, xn_engine **out, xn_error *error);

/* A network is gone: the programs of all streams are freed, of a busy one as soon as it is done. */
void xn_engine_drop_programs(xn_engine *engine);

/* The ordinals of "all" or a list such as "0,2", which the configuration has checked but for the
 * `found` devices that there are. Writes at most `found` of them. Pure. */
xn_status xn_devices_parse(const char *list, int found, int *ordinals, int *count, xn_error *error);

#endif
