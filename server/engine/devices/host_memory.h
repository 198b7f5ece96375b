/* host_memory.h: where the buffers of bodies and outputs come from: memory pinned for the first
 * device while it lives; plain memory where the device has none to give, and once it is lost (under
 * --on-device-loss cpu the daemon goes on without it). Each block says in a header where it came
 * from, because blocks of both kinds are in use at the same time then. */
#ifndef XN_HOST_MEMORY_H
#define XN_HOST_MEMORY_H

#include "device.h"

/* The pool of buffers; the device must outlive it. */
xn_status xn_host_memory_buffers(xn_engine_device *device, size_t keep_bytes, xn_buffers **out,
                                 xn_error *error);

#endif
