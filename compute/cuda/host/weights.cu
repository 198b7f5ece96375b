/* weights.cu: weights on a device. What every run may want, a few values a channel, is put there at
 * once; the forms of the filters that kernels want (parts.h) when a plan first wants them, each an
 * allocation of its own that stays until the weights go. */
#include "xn_cuda.h"

#include "parts.h"

#include <math.h>
#include <string.h>

/* ---- device memory ---- */

static cudaError_t allocate(const xn_device *device, size_t bytes, void **memory) {
    return device->pool ? cudaMallocFromPoolAsync(memory, bytes, device->pool, device->setup)
                        : cudaMalloc(memory, bytes);
}

/* NULL-safe. */
static void release(const xn_device *device, void *memory) {
    if (memory)
        (void)xn_cuda_check(device->pool ? cudaFreeAsync(memory, device->setup) : cudaFree(memory),
                            "freeing weights", NULL);
}

static cudaError_t wait_for_setup(const xn_device *device) {
    return cudaStreamSynchronize(device->setup);
}

static xn_status upload(const xn_device *device, const void *staging, size_t bytes, void **out,
                        xn_error *error) {
    void *memory = NULL;
    xn_status status =
        xn_cuda_check(allocate(device, bytes, &memory), "allocating weights on the GPU", error);
    if (status)
        return status;
    cudaError_t result =
        cudaMemcpyAsync(memory, staging, bytes, cudaMemcpyHostToDevice, device->setup);
    if (result == cudaSuccess)
        result = wait_for_setup(device);
    status = xn_cuda_check(result, "uploading weights", error);
    if (status)
        release(device, memory);
    else
        *out = memory;
    return status;
}

static void *staging_of(size_t bytes, xn_error *error) {
    void *memory = xn_mem_zalloc(1, bytes ? bytes : 1);
    if (!memory)
        (void)xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                      "no host memory for %zu bytes of packed weights", bytes);
    return memory;
}

/* ---- values a channel ---- */

enum { VALUES = 5 };

static xn_status put_values(xn_prepared *p, xn_error *error) {
    const xn_weights *w = p->source;
    const float *const from[VALUES] = {w->alpha, w->scale, w->bias, w->slope, w->shift};
    const float **const to[VALUES] = {&p->alpha, &p->scale, &p->bias, &p->slope, &p->shift};
    const size_t each = (size_t)w->out_channels * sizeof(float);
    const size_t pitch = (each + XN_CUDA_ALIGNMENT - 1) / XN_CUDA_ALIGNMENT * XN_CUDA_ALIGNMENT;
    size_t at[VALUES], bytes = 0;
    for (int i = 0; i < VALUES; i++) {
        at[i] = bytes;
        bytes += from[i] ? pitch : 0;
    }
    if (bytes == 0)
        return XN_OK;
    char *staging = (char *)staging_of(bytes, error);
    if (!staging)
        return XN_ERR_NO_MEMORY;
    for (int i = 0; i < VALUES; i++)
        for (int32_t o = 0; from[i] && o < w->out_channels; o++)
            ((float *)(staging + at[i]))[o] = from[i][i ? xn_weights_value_at(w, o) : (size_t)o];
    xn_status status = upload(p->device, staging, bytes, &p->values, error);
    for (int i = 0; i < VALUES && status == XN_OK; i++)
        if (from[i])
            *to[i] = (const float *)((const char *)p->values + at[i]);
    xn_mem_free(staging);
    return status;
}

static bool all_finite(const float *values, int64_t count) {
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++)
        finite += isfinite(values[i]) != 0;
    return finite == count;
}

bool xn_cuda_is_finite(const xn_prepared *weights) {
    return weights->finite;
}

xn_status xn_cuda_weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                  xn_error *error) {
    xn_status status = xn_cuda_device_use(device, error);
    if (status)
        return status;
    xn_prepared *p = (xn_prepared *)xn_mem_zalloc(1, sizeof *p);
    if (!p)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for a weights handle");
    p->device = device;
    p->serial = __atomic_add_fetch(&device->serials, 1, __ATOMIC_RELAXED);
    p->source = weights;
    p->finite = !weights->real ||
                all_finite(weights->real, (int64_t)weights->kernel_h * weights->kernel_w *
                                              weights->group_channels * weights->out_channels);
    (void)pthread_mutex_init(&p->making, NULL); /* cannot fail without attributes */
    p->uniform = xn_weights_is_uniform(weights);
    status = put_values(p, error);
    if (status)
        xn_cuda_weights_free(p);
    else
        *out = p;
    return status;
}

void xn_cuda_weights_free(xn_prepared *prepared) {
    if (!prepared)
        return;
    (void)xn_cuda_device_use(prepared->device, NULL);
    for (void *part : prepared->parts)
        release(prepared->device, part);
    release(prepared->device, prepared->values);
    (void)pthread_mutex_destroy(&prepared->making);
    xn_mem_free(prepared);
}

/* ---- parts ---- */

const void *xn_cuda_part_of(const xn_prepared *weights, xn_cuda_part part) {
    return __atomic_load_n(&weights->parts[part], __ATOMIC_ACQUIRE);
}

static xn_status upload_part(const xn_prepared *p, xn_cuda_part part, void **out, xn_error *error) {
    size_t bytes;
    if (!xn_cuda_part_bytes(p->source, part, &bytes))
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                       "the packed weights pass the address space");
    if (part == XN_CUDA_PART_CODES) /* may be most of the host's memory: the driver takes pieces */
        return upload(p->device, p->source->bits, bytes, out, error);
    void *staging = staging_of(bytes, error);
    if (!staging)
        return XN_ERR_NO_MEMORY;
    xn_cuda_part_fill(p->source, part, staging);
    xn_status status = upload(p->device, staging, bytes, out, error);
    xn_mem_free(staging);
    return status;
}

static xn_status make_locked(const xn_prepared *p, xn_cuda_part part, xn_error *error) {
    void *memory = NULL;
    if (p->parts[part])
        return XN_OK;
    xn_status status = upload_part(p, part, &memory, error);
    if (status == XN_OK)
        __atomic_store_n(&p->parts[part], memory, __ATOMIC_RELEASE);
    return status;
}

bool xn_cuda_weights_have(const xn_prepared *prepared, uint64_t wanted) {
    for (int part = 0; part < XN_CUDA_PARTS; part++)
        if (wanted >> part & 1 && !xn_cuda_part_of(prepared, (xn_cuda_part)part))
            return false;
    return true;
}

xn_status xn_cuda_weights_ready(const xn_prepared *prepared, const xn_plan *plan, xn_error *error) {
    const uint64_t wanted = xn_cuda_plan_wants(plan, prepared);
    if (xn_cuda_weights_have(prepared, wanted))
        return XN_OK;
    xn_status status = xn_cuda_device_use(prepared->device, error);
    if (status)
        return status;
    pthread_mutex_lock(&prepared->making);
    for (int part = 0; part < XN_CUDA_PARTS && status == XN_OK; part++)
        if (wanted >> part & 1)
            status = make_locked(prepared, (xn_cuda_part)part, error);
    pthread_mutex_unlock(&prepared->making);
    return status;
}
