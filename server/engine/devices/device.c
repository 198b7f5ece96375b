/* device.c: see device.h. */
#include "device.h"

#include "log.h"
#include "threads.h"

#include <string.h>

/* ---- opening ---- */

xn_status xn_engine_open_device(const xn_config *config, const xn_backend *backend, int ordinal,
                                xn_device **out, xn_error *error) {
    bool automatic = !config->cpu_isa[0] || !strcmp(config->cpu_isa, "auto");
    const xn_device_options options = {.instruction_set = automatic ? NULL : config->cpu_isa,
                                       .threads = (int)config->threads,
                                       .pin_threads = config->cpu_pin};
    xn_device *device = NULL;
    xn_error why = {0};
    xn_status status = backend->device_open(ordinal, &device, error);
    if (status != XN_OK)
        return status;
    if (backend->device_configure)
        status = backend->device_configure(device, &options, &why);
    if (status == XN_ERR_UNSUPPORTED)
        xn_fail(error, status, "cpu-isa", "--cpu-isa: %.300s", why.message);
    else if (status != XN_OK && error)
        *error = why;
    if (status != XN_OK) {
        backend->device_close(device);
        return status;
    }
    *out = device;
    return XN_OK;
}

xn_status xn_engine_device_open(const xn_config *config, const xn_backend *backend, int ordinal,
                                xn_lock *lock, xn_engine_device *out, xn_error *error) {
    xn_error why = {0};
    xn_status status = xn_engine_open_device(config, backend, ordinal, &out->handle, error);
    if (status != XN_OK)
        return status;
    out->backend = backend;
    out->lock = lock;
    atomic_init(&out->up, true);
    xn_cond_init(&out->changed);
    backend->device_info(out->handle, &out->info);
    status = backend->device_canary(out->handle, &why);
    if (status != XN_OK)
        return xn_fail(error, status, NULL, "%s fails its self-test: %s", out->info.id,
                       why.message);
    return XN_OK;
}

void xn_engine_device_close(xn_engine_device *device) {
    if (!device->handle)
        return;
    device->backend->device_close(device->handle);
    pthread_cond_destroy(&device->changed);
    xn_mem_free(device->programs);
}

/* ---- runs ---- */

void xn_engine_device_begin_locked(xn_engine_device *device) {
    xn_lock_assert_mine(device->lock);
    device->running++;
}

void xn_engine_device_end_locked(xn_engine_device *device) {
    xn_lock_assert_mine(device->lock);
    device->running--;
    if (device->oom_waiters)
        pthread_cond_broadcast(&device->changed);
}

/* ---- out of memory ---- */

void xn_engine_device_enter_exclusive(xn_engine_device *device, xn_store *store,
                                      pthread_cond_t *idle_workers, const xn_error *why) {
    xn_log(XN_LOG_WARN, NULL, "%s: out of device memory (%s); freeing programs and cached weights",
           device->info.id, why->message);
    xn_lock_take(device->lock);
    device->oom_waiters++;
    pthread_cond_broadcast(idle_workers); /* those of this device wait for its change instead */
    pthread_cond_broadcast(&device->changed);
    while (device->exclusive || device->running > device->oom_waiters)
        xn_lock_wait(device->lock, &device->changed, INT64_MAX);
    device->exclusive = true;
    xn_lock_drop(device->lock);
    for (int i = 0; i < device->programs_count; i++)
        xn_programs_trim(device->programs[i]);
    xn_store_trim(store);
}

void xn_engine_device_leave_exclusive(xn_engine_device *device) {
    xn_lock_take(device->lock);
    device->exclusive = false;
    device->oom_waiters--;
    pthread_cond_broadcast(&device->changed);
    xn_lock_drop(device->lock);
}
