/* device.cu: finding, opening and describing GPUs. */
#include "xn_cuda.h"

#include <stdio.h>
#include <string.h>

#define MIN_CAPABILITY 75    /* the oldest chip there is code for */
#define MATRIX_CAPABILITY 80 /* mma.sync as implicit_gemm.cu and real_mma.cu use it */
#define WGMMA_MAJOR 9        /* the one generation of sm_90a */
#define POOL_KEEPS_BYTES (uint64_t)(64ull << 20) /* freed weights kept for the next ones */

xn_status xn_cuda_device_use(const xn_device *device, xn_error *error) {
    return xn_cuda_check(cudaSetDevice(device->ordinal), "selecting the GPU", error);
}

/* Why there is no GPU to be had, as far as the runtime can tell. */
static xn_status explain_no_device(cudaError_t result, xn_error *error) {
    int driver = 0, runtime = 0;
    (void)cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        runtime = 0;
    (void)cudaGetLastError();
    if (driver == 0)
        return xn_fail(error, XN_ERR_NO_DEVICE, NULL,
                       "no NVIDIA driver: libcuda.so.1 was not found; install the driver, or in a "
                       "container run with --gpus all");
    if (result == cudaErrorInsufficientDriver)
        return xn_fail(error, XN_ERR_NO_DEVICE, NULL,
                       "the NVIDIA driver supports CUDA %d.%d, this program needs %d.%d; update "
                       "the driver",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (result == cudaErrorNoDevice)
        return xn_fail(error, XN_ERR_NO_DEVICE, NULL,
                       "the NVIDIA driver shows no GPU; look at CUDA_VISIBLE_DEVICES, and in a "
                       "container run with --gpus all");
    return xn_fail(error, XN_ERR_NO_DEVICE, NULL, "CUDA does not start: %s (%s)",
                   cudaGetErrorString(result), cudaGetErrorName(result));
}

xn_status xn_cuda_device_count(int *count, xn_error *error) {
    int found = 0;
    cudaError_t result = cudaGetDeviceCount(&found);
    if (result != cudaSuccess)
        return explain_no_device(result, error);
    *count = found;
    return XN_OK;
}

/* ---- open ---- */

static xn_status read_properties(xn_device *device, xn_error *error) {
    cudaDeviceProp p;
    xn_status status = xn_cuda_check(cudaGetDeviceProperties(&p, device->ordinal),
                                     "reading the GPU's properties", error);
    if (status)
        return status;
    snprintf(device->name, sizeof device->name, "%s", p.name);
    device->major = p.major;
    device->minor = p.minor;
    device->chip.matrix = p.major * 10 + p.minor >= MATRIX_CAPABILITY;
    device->chip.multiprocessors = p.multiProcessorCount;
    device->chip.overlaps = p.major >= XN_CUDA_OVERLAP_MAJOR;
    device->chip.wgmma = p.major == WGMMA_MAJOR;
    device->chip.shared_bytes = (int32_t)p.sharedMemPerBlockOptin;
    device->memory_bytes = p.totalGlobalMem;
    if (p.major * 10 + p.minor < MIN_CAPABILITY)
        return xn_fail(error, XN_ERR_NO_DEVICE, NULL,
                       "GPU %d (%s) has compute capability %d.%d; at least %d.%d is needed",
                       device->ordinal, p.name, p.major, p.minor, MIN_CAPABILITY / 10,
                       MIN_CAPABILITY % 10);
    return XN_OK;
}

/* A pool of our own, so that weights come and go without cudaFree, which waits for every stream
 * of the device. Drivers without pools leave it NULL. */
static xn_status create_pool(xn_device *device, xn_error *error) {
    int supported = 0;
    xn_status status = xn_cuda_check(
        cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device->ordinal),
        "asking for memory pools", error);
    if (status || !supported)
        return status;
    cudaMemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.handleTypes = cudaMemHandleTypeNone;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = device->ordinal;
    uint64_t keep = POOL_KEEPS_BYTES;
    status =
        xn_cuda_check(cudaMemPoolCreate(&device->pool, &props), "creating a memory pool", error);
    if (status == XN_OK)
        status = xn_cuda_check(
            cudaMemPoolSetAttribute(device->pool, cudaMemPoolAttrReleaseThreshold, &keep),
            "configuring the memory pool", error);
    return status;
}

static xn_status check_load(const xn_device *device, cudaError_t result, xn_error *error) {
    xn_status status = xn_cuda_check(result, "loading the kernels", error);
    if (status == XN_ERR_NO_DEVICE)
        return xn_fail(error, status, NULL,
                       "this build has no code for GPU %d (%s, sm_%d%d), or its driver is too old "
                       "for it",
                       device->ordinal, device->name, device->major, device->minor);
    return status;
}

/* Code is otherwise loaded inside the first launch of each kernel, which stalls other streams. */
static xn_status load_kernels(xn_device *device, xn_error *error) {
    static cudaError_t (*const shared[])(void) = {xn_cuda_pack_load, xn_cuda_packed_load,
                                                  xn_cuda_box_load,  xn_cuda_bits_load,
                                                  xn_cuda_op_load,   xn_zero_copy_load};
    const xn_cuda_path *path;
    xn_status status = XN_OK;
    for (size_t i = 0; i < sizeof shared / sizeof *shared && status == XN_OK; i++)
        status = check_load(device, shared[i](), error);
    if (status == XN_OK)
        status = check_load(device, xn_cuda_stem_load(&device->chip), error);
    if (status == XN_OK)
        status = check_load(device, xn_cuda_stage_load(&device->chip), error);
    if (status == XN_OK)
        status = check_load(device, xn_cuda_strided_load(&device->chip), error);
    if (status == XN_OK)
        status = check_load(device, xn_cuda_top_k_load(&device->chip), error);
    for (int i = 0; (path = xn_cuda_path_at(i)) != NULL && status == XN_OK; i++) {
        bool usable = true;
        if (!xn_cuda_path_exists(path, &device->chip))
            continue;
        status = check_load(device, path->load(&usable), error);
        if (!usable) /* wgmma alone may be missing from a build */
            device->chip.wgmma = false;
    }
    return status;
}

static xn_status open_device(xn_device *device, xn_error *error) {
    xn_status status = read_properties(device, error);
    if (status == XN_OK)
        status = xn_cuda_device_use(device, error);
    if (status == XN_OK)
        status = xn_cuda_check(cudaStreamCreateWithFlags(&device->setup, cudaStreamNonBlocking),
                               "creating the set-up stream", error);
    if (status == XN_OK)
        status = create_pool(device, error);
    if (status == XN_OK)
        status = load_kernels(device, error);
    if (status == XN_OK)
        status = xn_cuda_canary_create(device, &device->canary, error);
    return status;
}

xn_status xn_cuda_device_open(int ordinal, xn_device **out, xn_error *error) {
    int count = 0;
    xn_status status = xn_cuda_device_count(&count, error);
    if (status)
        return status;
    if (ordinal < 0 || ordinal >= count)
        return xn_fail(error, XN_ERR_NO_DEVICE, "devices", "GPU %d was asked for; there %s %d",
                       ordinal, count == 1 ? "is" : "are", count);
    xn_device *device = (xn_device *)xn_mem_zalloc(1, sizeof *device);
    if (!device)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a device handle");
    device->ordinal = ordinal;
    status = open_device(device, error);
    if (status) {
        xn_cuda_device_close(device);
        return status;
    }
    *out = device;
    return XN_OK;
}

/* Results are ignored from here on: a lost device answers every call with its error. */
void xn_cuda_device_close(xn_device *device) {
    if (!device)
        return;
    (void)xn_cuda_device_use(device, NULL);
    xn_cuda_canary_free(device->canary);
    if (device->setup) {
        (void)cudaStreamSynchronize(device->setup);
        (void)cudaStreamDestroy(device->setup);
    }
    if (device->pool)
        (void)cudaMemPoolDestroy(device->pool);
    (void)cudaGetLastError();
    xn_mem_free(device);
}

void xn_cuda_device_info(const xn_device *device, xn_device_info *out) {
    memset(out, 0, sizeof *out);
    snprintf(out->id, sizeof out->id, "cuda:%d", device->ordinal);
    snprintf(out->description, sizeof out->description, "%.90s, sm_%d%d, %d SMs", device->name,
             device->major, device->minor, device->chip.multiprocessors);
    out->memory_bytes = device->memory_bytes;
    out->compute_units = device->chip.multiprocessors;
}
