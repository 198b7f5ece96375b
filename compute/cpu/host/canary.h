/* canary.h: whether the device computes what it should. */
#ifndef XN_CPU_CANARY_H
#define XN_CPU_CANARY_H

#include "xn_backend.h"

/* backend: the table that the device is of. */
xn_status xn_cpu_canary(const xn_backend *backend, xn_device *device, xn_error *error);

#endif
