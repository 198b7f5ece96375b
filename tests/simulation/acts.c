/* acts.c: what operators and faults do to a world, as fibers. */
#include "laws.h"
#include "world.h"

#include "device.h"

#include <stdio.h>
#include <string.h>

/* ---- operators: for each name one, so that what it has is known; for each model two, which load
 * it at the same time ---- */

bool world_had(int name, float value, uint64_t since_step) {
    for (int i = 0; i < w.version_count[name]; i++) {
        const version *v = &w.versions[name][i];
        if (v->value == value && v->last_step >= since_step && v->first_step <= fibers_steps())
            return true;
    }
    return false;
}

/* The version that replaces the name's last one, from now on at the earliest. */
static version *begin_version(int name, float value) {
    if (w.version_count[name] == (int)(sizeof w.versions[0] / sizeof w.versions[0][0]))
        return NULL;
    version *v = &w.versions[name][w.version_count[name]++];
    *v = (version){value, fibers_steps(), UINT64_MAX, 0};
    return v;
}

static void put(int name, const char *text) {
    const float value = (float)(1 + xn_rng_below(&w.rng, 90));
    const xn_tensor weights = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    version *before = &w.versions[name][w.version_count[name] - 1];
    version *after = begin_version(name, value);
    xn_error error = {0};
    bool created = false;
    if (!after)
        return;
    xn_status status =
        xn_store_put(xn_engine_store(w.engine), text, &weights, NULL, NULL, &created, NULL, &error);
    event("put %s = %g: %s", text, (double)value, xn_status_name(status));
    if (status == XN_OK) {
        law(created == (before->value == 0), "created says whether the name is new");
        before->last_step = fibers_steps();
    } else {
        law(status == XN_ERR_LIMIT || status == XN_ERR_NO_MEMORY ||
                status == XN_ERR_DEVICE_MEMORY || status == XN_ERR_DEVICE_LOST,
            "a put fails for want of room or of a device");
        w.version_count[name]--;
    }
}

static void delete_name(int name, const char *text) {
    version *before = &w.versions[name][w.version_count[name] - 1];
    xn_error error = {0};
    if (!begin_version(name, 0))
        return;
    xn_status status = xn_store_delete(xn_engine_store(w.engine), text, &error);
    event("delete %s: %s", text, xn_status_name(status));
    law(status == (before->value != 0 ? XN_OK : XN_ERR_NOT_FOUND), "a delete finds what is there");
    before->last_step = fibers_steps();
}

/* Two fibers change a model: which of two that overlap came last nobody knows, so what either
 * leaves is taken for current until another change begins and ends behind both. */
static void end_versions(int name, uint64_t begun_step, float value) {
    for (int i = 0; i < w.version_count[name]; i++) {
        version *v = &w.versions[name][i];
        if (v->last_step == UINT64_MAX && v->settled_step && v->settled_step < begun_step &&
            v->value != value)
            v->last_step = fibers_steps();
    }
}

static void change_model(int number) {
    static const char config[] =
        "{\"format\": \"xnord-network/1\", \"input\": {\"name\": \"image\", \"datatype\": "
        "\"FP32\", "
        "\"shape\": [1, 1, 1]}, \"output\": {\"name\": \"logits\"}, "
        "\"layers\": [{\"op\": \"conv\", \"name\": \"c\", \"mode\": \"float\"}]}";
    static const char header[] =
        "{\"c.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[0,4]}}    ";
    const char name[2] = {(char)('m' + number), 0};
    const bool unload = world_draws(20);
    const float value = unload ? 0 : (float)(1 + xn_rng_below(&w.rng, 90));
    const uint64_t length = sizeof header - 1, begun_step = fibers_steps();
    char tensors[8 + sizeof header - 1 + sizeof value];
    memcpy(tensors, &length, 8);
    memcpy(tensors + 8, header, sizeof header - 1);
    memcpy(tensors + 8 + length, &value, sizeof value);
    const xn_model_file file = {"model.safetensors", tensors, sizeof tensors};
    version *after = begin_version(NAMES + number, value);
    xn_error error = {0};
    if (!after)
        return;
    xn_status status =
        unload ? xn_models_unload(w.models, name, &error)
               : xn_models_load(w.models, name, config, sizeof config - 1, &file, 1, &error);
    event("%s %s = %g: %s", unload ? "unload" : "load", name, (double)value,
          xn_status_name(status));
    if (status == XN_OK) {
        after->settled_step = fibers_steps();
        end_versions(NAMES + number, begun_step, value);
    } else {
        law(status == XN_ERR_LIMIT || status == XN_ERR_NO_MEMORY ||
                status == XN_ERR_DEVICE_MEMORY || status == XN_ERR_DEVICE_LOST ||
                status == XN_ERR_DRAINING || (unload && status == XN_ERR_NOT_FOUND),
            "a load fails for want of room or of a device");
        after->last_step = fibers_steps();
    }
}

static void operator_of_model(void *argument) {
    w.busy++;
    while (!w.over && fibers_now() < w.end_ns) {
        if (w.mix.by_model && world_draws(w.mix.changes))
            change_model((int)(intptr_t)argument);
        fibers_sleep(world_about(2000000));
    }
    w.busy--;
}

static void operator_of_name(void *argument) {
    const int name = (int)(intptr_t)argument;
    const char text[2] = {(char)('a' + name), 0};
    w.busy++;
    while (!w.over && fibers_now() < w.end_ns) {
        if (world_draws(w.mix.changes)) {
            if (world_draws(90))
                put(name, text);
            else
                delete_name(name, text);
        }
        fibers_sleep(world_about(2000000));
    }
    w.busy--;
}

void operators_begin(void) {
    for (int name = 0; name < NAMES; name++) {
        begin_version(name, 0);
        fibers_start("operator", operator_of_name, (void *)(intptr_t)name);
    }
    for (int number = 0; number < MODELS; number++) {
        version *none = begin_version(NAMES + number, 0);
        none->settled_step = fibers_steps();
        fibers_start("loader-1", operator_of_model, (void *)(intptr_t)number);
        fibers_start("loader-2", operator_of_model, (void *)(intptr_t)number);
    }
}

/* ---- faults ---- */

static bool allocation_succeeds(void *context, size_t bytes) {
    (void)context, (void)bytes;
    return !w.fail_allocations || xn_rng_below(&w.rng, 10000) >= w.fail_allocations;
}

/* One device's minute: something may befall it. */
static void befall(sim_device_state *device, bool gpu) {
    device->short_percent = world_draws(w.mix.shortages) ? 30 : 0;
    device->fail_percent = world_draws(w.mix.failures) ? 20 : 0;
    device->canary_fails = world_draws(w.mix.canaries);
    device->hung = gpu && world_draws(w.mix.hangs);
    if (gpu && !device->lost && world_draws(w.mix.losses)) {
        device->lost = true;
        event("a device is lost");
    }
    if (device->hung)
        event("a device hangs");
}

static void faults_end(void) {
    w.fail_allocations = 0;
    for (int kind = 0; kind < SIM_KINDS; kind++)
        for (int i = 0; i < SIM_DEVICES; i++) {
            sim_device_state *device = &devices.each[kind][i];
            device->hung = device->canary_fails = false;
            device->short_percent = device->fail_percent = 0;
        }
    event("faults end");
}

static void faults(void *argument) {
    (void)argument;
    w.busy++;
    while (!w.over && fibers_now() < w.end_ns) {
        fibers_sleep(world_about(5000000));
        for (int kind = 0; kind < SIM_KINDS; kind++)
            for (int i = 0; i < SIM_DEVICES; i++)
                befall(&devices.each[kind][i], kind == SIM_GPU);
        w.fail_allocations = world_draws(w.mix.no_memory) ? 300 : 0;
    }
    faults_end();
    w.busy--;
}

void faults_begin(void) {
    xn_mem_set_hook(allocation_succeeds, NULL);
    fibers_start("faults", faults, NULL);
}
