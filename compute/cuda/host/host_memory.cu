/* host_memory.cu: memory of the host that transfers run from at full speed: pinned from the
 * beginning, or another's, pinned where it lies. */
#include "pinned.h"
#include "xn_cuda.h"

void *xn_cuda_host_alloc(xn_device *device, size_t bytes) {
    void *memory = NULL;
    if (xn_cuda_device_use(device, NULL))
        return NULL;
    cudaError_t result = cudaHostAlloc(&memory, bytes ? bytes : 1, cudaHostAllocPortable);
    if (xn_cuda_check(result, "allocating pinned memory", NULL))
        return NULL;
    (void)xn_cuda_pinned_add(memory, bytes);
    return memory;
}

void xn_cuda_host_free(xn_device *device, void *memory) {
    if (!memory)
        return;
    xn_cuda_pinned_remove(memory);
    (void)xn_cuda_device_use(device, NULL);
    (void)xn_cuda_check(cudaFreeHost(memory), "freeing pinned memory", NULL);
}

/* ---- another's ---- */

static bool has(const xn_device *device, cudaDeviceAttr attribute) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, attribute, device->ordinal) == cudaSuccess && value;
}

/* Where the GPU walks the host's page tables, pinning leaves it to them which page it reaches: one
 * that is taken away would be a fault of the GPU, which is then lost. */
static bool can_register(const xn_device *device) {
    return has(device, cudaDevAttrHostRegisterSupported) &&
           has(device, cudaDevAttrCanUseHostPointerForRegisteredMem) &&
           !has(device, cudaDevAttrPageableMemoryAccessUsesHostPageTables);
}

/* Whatever it is, memory that is not pinned still serves: a lost device shows by itself. */
static xn_status refuse(cudaError_t result, size_t bytes, xn_error *error) {
    const bool full = result == cudaErrorMemoryAllocation;
    (void)cudaGetLastError();
    return xn_fail(error, full ? XN_ERR_NO_MEMORY : XN_ERR_UNSUPPORTED, NULL,
                   "pinning %zu bytes: %s (%s)", bytes, cudaGetErrorString(result),
                   cudaGetErrorName(result));
}

xn_status xn_cuda_host_register(xn_device *device, void *memory, size_t bytes, xn_error *error) {
    xn_status status = xn_cuda_device_use(device, error);
    if (status)
        return status;
    if (!can_register(device))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "GPU %d does not pin memory where it lies",
                       device->ordinal);
    cudaError_t result =
        cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (result != cudaSuccess)
        return refuse(result, bytes, error);
    if (xn_cuda_pinned_add(memory, bytes))
        return XN_OK;
    (void)cudaHostUnregister(memory);
    return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no room to note %zu pinned bytes", bytes);
}

xn_status xn_cuda_host_unregister(xn_device *device, void *memory, xn_error *error) {
    xn_status status = xn_cuda_device_use(device, error);
    if (status)
        return status;
    xn_cuda_pinned_remove(memory);
    cudaError_t result = cudaHostUnregister(memory);
    if (result == cudaSuccess)
        return XN_OK;
    (void)cudaGetLastError();
    return xn_fail(error, XN_ERR_INTERNAL, NULL, "unpinning: %s (%s)", cudaGetErrorString(result),
                   cudaGetErrorName(result));
}
