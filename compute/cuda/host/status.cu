/* status.cu: CUDA's errors as ours. An error that is not known to leave the device usable counts
 * as sticky: better to restart a process for nothing than to serve errors for hours. */
#include "xn_cuda.h"

static xn_status status_of(cudaError_t result) {
    switch (result) {
    case cudaSuccess:
        return XN_OK;
    case cudaErrorMemoryAllocation:
        return XN_ERR_DEVICE_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorInitializationError:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
        return XN_ERR_NO_DEVICE;
    case cudaErrorInvalidValue: /* a call refused for its arguments: nothing was started */
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotReady:
    case cudaErrorNotSupported:
        return XN_ERR_INTERNAL;
    default:
        return XN_ERR_DEVICE_LOST;
    }
}

xn_status xn_cuda_check(cudaError_t result, const char *what, xn_error *error) {
    if (result == cudaSuccess)
        return XN_OK;
    xn_status status = status_of(result);
    if (status != XN_ERR_DEVICE_LOST)
        (void)cudaGetLastError();
    return xn_fail(error, status, NULL, "%s: %s (%s)", what, cudaGetErrorString(result),
                   cudaGetErrorName(result));
}
