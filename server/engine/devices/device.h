/* device.h: the owner of one open device: its runs, its out-of-memory recovery, its canary.
 *
 * Out-of-memory recovery. A thread whose run finds no device memory enters the device's exclusive
 * section: it waits until no other run is under way on the device, frees the programs of all its
 * streams and the cached inline weights, and tries again. Two threads that wait for each other
 * cannot hang: one that waits does not count as running. */
#ifndef XN_ENGINE_DEVICE_H
#define XN_ENGINE_DEVICE_H

#include "config.h"
#include "lock.h"
#include "programs.h"
#include "services.h"

#include <stdatomic.h>

typedef struct xn_engine_device {
    /* constant after creation */
    const xn_backend *backend;
    xn_device *handle;
    xn_device_info info;
    int index, pool; /* of the device, of its pool */
    xn_lock *lock;   /* the engine's; guards all below */

    atomic_bool up;          /* false: lost. Written with the lock, read without it too */
    int running;             /* threads in a run on it */
    int oom_waiters;         /* threads waiting for, or in, the exclusive section; while it is
                                positive no new run starts */
    bool exclusive;          /* a thread is in the exclusive section */
    pthread_cond_t changed;  /* of the four above */
    int64_t canary_since_ns; /* when the canary under way started; 0: none is */
    char canary_error[128];  /* of the last canary; "" when it passed */
    xn_programs **programs;  /* of all its streams; constant */
    int programs_count;
} xn_engine_device;

/* A device by the daemon's settings: opened and configured. An instruction set (--cpu-isa) that the
 * machine lacks is XN_ERR_UNSUPPORTED, and the message names what there is. */
xn_status xn_engine_open_device(const xn_config *config, const xn_backend *backend, int ordinal,
                                xn_device **out, xn_error *error);

/* Opens it, sets it up by the configuration, and runs its canary. *out is the caller's to close
 * also when that fails. */
xn_status xn_engine_device_open(const xn_config *config, const xn_backend *backend, int ordinal,
                                xn_lock *lock, xn_engine_device *out, xn_error *error);
void xn_engine_device_close(xn_engine_device *device); /* also of one that was never opened */

/* A run begins; ends. */
void xn_engine_device_begin_locked(xn_engine_device *device);
void xn_engine_device_end_locked(xn_engine_device *device);

/* The exclusive section, from within a run, which goes on after it. No lock held. */
void xn_engine_device_enter_exclusive(xn_engine_device *device, xn_store *store,
                                      pthread_cond_t *idle_workers, const xn_error *why);
void xn_engine_device_leave_exclusive(xn_engine_device *device);

#endif
