/* choose.c: from the configuration to pools: which backends, which devices, how many workers. */
#include "engine_struct.h"
#include "xn_cpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS_PER_GPU 3 /* one uploads, one computes, one downloads */

/* At most cuda with its stand-in. */
enum { MAX_POOLS = 2 };

typedef struct choice {
    xn_pool_spec pools[MAX_POOLS];
    int count;
    int *ordinals; /* of cuda; owned */
    char fallback_reason[XN_FALLBACK_REASON_MAX];
} choice;

/* ---- the list of devices ---- */

static void list_devices(int found, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < found && length < size; i++)
        length += (size_t)snprintf(text + length, size - length, i ? ", %d" : "%d", i);
}

xn_status xn_devices_parse(const char *list, int found, int *ordinals, int *count,
                           xn_error *error) {
    char text[120];
    int taken = 0;
    const bool all = !strcmp(list, "all");
    for (; all && taken < found; taken++)
        ordinals[taken] = taken;
    for (const char *at = all ? "" : list; *at; at += strcspn(at, ","), at += *at == ',') {
        const int ordinal = atoi(at);
        if (ordinal < 0 || ordinal >= found || taken == found) {
            list_devices(found, text, sizeof text);
            return xn_fail(error, XN_ERR_NO_DEVICE, "devices",
                           "--devices is \"%.63s\": there is no such device; this host has %s; "
                           "give \"all\" or ordinals such as \"0\" or \"0,1\"",
                           list, text);
        }
        ordinals[taken++] = ordinal;
    }
    *count = taken;
    return XN_OK;
}

/* ---- pools ---- */

static xn_status add_host(const xn_config *config, const char *name, choice *out, xn_error *error) {
    static const int first = 0;
    const xn_backend *backend = xn_backend_find(name);
    if (!backend)
        return xn_fail(error, XN_ERR_NO_DEVICE, "backend", "this build has no backend %s", name);
    int threads = config->threads ? (int)config->threads : xn_cpus_usable();
    out->pools[out->count++] = (xn_pool_spec){
        .backend = backend,
        .ordinals = &first,
        .ordinal_count = 1,
        .workers = config->workers ? (int)config->workers : threads,
        .threads = threads,
        .callers = config->inline_us ? threads : 0,
    };
    return XN_OK;
}

/* XN_ERR_NO_DEVICE when there is no GPU to use, and why. */
static xn_status find_gpus(const xn_backend **backend, int *found, xn_error *error) {
    *backend = xn_backend_find("cuda");
    if (!*backend)
        return xn_fail(error, XN_ERR_NO_DEVICE, "backend",
                       "this build has no backend cuda: it was built without nvcc; build it where "
                       "the CUDA toolkit is (make finds nvcc in PATH or in /usr/local/cuda), or "
                       "give --backend cpu");
    xn_status status = (*backend)->device_count(found, error);
    if (status == XN_OK && *found < 1)
        return xn_fail(error, XN_ERR_NO_DEVICE, "backend",
                       "no usable GPU was found; nvidia-smi says what the "
                       "driver sees");
    return status;
}

static xn_status add_gpus(const xn_config *config, const xn_backend *backend, int found,
                          choice *out, xn_error *error) {
    int count = 0;
    out->ordinals = xn_mem_zalloc((size_t)found, sizeof *out->ordinals);
    if (!out->ordinals)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a list of %d devices", found);
    xn_status status = xn_devices_parse(config->devices, found, out->ordinals, &count, error);
    if (status != XN_OK)
        return status;
    out->pools[out->count++] = (xn_pool_spec){
        .backend = backend,
        .ordinals = out->ordinals,
        .ordinal_count = count,
        .workers = config->workers ? (int)config->workers : WORKERS_PER_GPU,
        .callers = config->inline_us
                       ? xn_callers_of(xn_config_http_threads(config, xn_cpus_usable(), true))
                       : 0,
    };
    return XN_OK;
}

/* --backend cuda, and no GPU: why, and that there is another way. */
static xn_status fail_cuda(const xn_config *config, const xn_error *why, xn_error *error) {
    if (why->status != XN_ERR_NO_DEVICE || strstr(why->message, "--backend cpu")) {
        if (error)
            *error = *why;
        return why->status;
    }
    return xn_fail(error, why->status, "backend",
                   "--backend %s: %.300s; or give --backend cpu, or auto, which takes the GPU when "
                   "there is one",
                   config->backend, why->message);
}

static xn_status choose(const xn_config *config, choice *out, xn_error *error) {
    bool automatic = !strcmp(config->backend, "auto");
    if (!automatic && strcmp(config->backend, "cuda"))
        return add_host(config, config->backend, out, error);
    const xn_backend *cuda = NULL;
    int found = 0;
    xn_error why = {0};
    xn_status status = find_gpus(&cuda, &found, &why);
    if (status == XN_ERR_NO_DEVICE && automatic) {
        snprintf(out->fallback_reason, sizeof out->fallback_reason, "%.250s", why.message);
        return add_host(config, "cpu", out, error);
    }
    if (status != XN_OK)
        return fail_cuda(config, &why, error);
    status = add_gpus(config, cuda, found, out, error);
    if (status == XN_OK && (automatic || config->on_device_loss == XN_LOSS_CPU))
        status = add_host(config, "cpu", out, error);
    return status;
}

xn_status xn_engine_create(const xn_config *config, xn_engine **out, xn_error *error) {
    choice chosen = {.count = 0};
    xn_status status = choose(config, &chosen, error);
    if (status == XN_OK)
        status = xn_engine_create_with(config, chosen.pools, chosen.count, chosen.fallback_reason,
                                       out, error);
    xn_mem_free(chosen.ordinals);
    return status;
}

static xn_status check_pool(const xn_config *config, const xn_pool_spec *pool, xn_error *error) {
    for (int i = 0; i < pool->ordinal_count; i++) {
        xn_device *device = NULL;
        xn_status status =
            xn_engine_open_device(config, pool->backend, pool->ordinals[i], &device, error);
        if (status != XN_OK)
            return status;
        pool->backend->device_close(device);
    }
    return XN_OK;
}

xn_status xn_engine_check(const xn_config *config, char fallback_reason[XN_FALLBACK_REASON_MAX],
                          xn_error *error) {
    choice chosen = {.count = 0};
    xn_status status = choose(config, &chosen, error);
    for (int i = 0; status == XN_OK && i < chosen.count; i++)
        status = check_pool(config, &chosen.pools[i], error);
    memcpy(fallback_reason, chosen.fallback_reason, sizeof chosen.fallback_reason);
    xn_mem_free(chosen.ordinals);
    return status;
}
