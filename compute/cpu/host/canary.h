/* canary.h: whether the device computes what it should. */
#ifndef XN_CPU_CANARY_H
#define XN_CPU_CANARY_H

#include "xn_backend.h"

xn_status xn_cpu_canary(xn_device *device, xn_error *error);

#endif
