/* faults.c: what befalls devices, memory and files, as fibers. */
#include "world.h"

#include "clock.h"
#include "device.h"
#include "xn_mem.h"
#include "xn_weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- memory ---- */

bool faults_allow(void *context, size_t bytes) {
    (void)context, (void)bytes;
    if (w.fail_allocation && ++w.allocations >= w.fail_allocation)
        return w.allocations > w.fail_allocation && !w.fail_all_after;
    return !w.fail_allocations || xn_rng_below(&w.rng, 10000) >= w.fail_allocations;
}

/* ---- devices ---- */

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

static void faults_body(void *argument) {
    const world_mix calm = {.disk = w.mix.disk};
    (void)argument;
    w.busy++;
    for (bool more = true; more;) {
        fibers_sleep(world_about(5000000));
        more = !w.over && fibers_now() < w.end_ns;
        const world_mix mix = w.mix;
        if (!more)
            w.mix = calm;
        for (int kind = 0; kind < SIM_KINDS; kind++)
            for (int i = 0; i < SIM_DEVICES; i++)
                befall(&devices.each[kind][i], kind == SIM_GPU);
        w.mix = mix; /* laws ask which faults there were */
        w.fail_allocations = more && world_draws(w.mix.no_memory) ? 300 : 0;
    }
    event("faults end");
    w.busy--;
}

/* ---- files: another daemon, or somebody's script, in --weights-dir ---- */

int of_fsync(int fd) __asm__("__wrap_fsync");

/* The disk takes its time, and may fail. */
int of_fsync(int fd) {
    (void)fd;
    law(!fibers_locks_held(), "no lock is held while the disk is waited for");
    fibers_sleep(world_about(50000));
    errno = EIO;
    return !w.over && world_draws(w.mix.disk) ? -1 : 0;
}

static const char *path_of(int name, char path[96]) {
    snprintf(path, 96, "%s/%c.safetensors", w.folder, 'a' + name);
    return path;
}

static void write_file(int name, const void *head, size_t length, const float *value) {
    char path[96], aside[96];
    snprintf(aside, sizeof aside, "%s/.aside", w.folder);
    const int fd = open(aside, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    law(fd >= 0 && write(fd, head, length) == (ssize_t)length &&
            (!value || write(fd, value, sizeof *value) == sizeof *value) && !close(fd) &&
            !rename(aside, path_of(name, path)),
        "the simulation can write files");
}

/* What a file holds: a value, 0 where there is none, -1 where it is no weights. */
static float read_file(int name) {
    char path[96], bytes[XN_WEIGHTS_FILE_HEAD_BYTES + sizeof(float)];
    float value = -1;
    const int fd = open(path_of(name, path), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t length = read(fd, bytes, sizeof bytes);
    close(fd);
    if (length > 64)
        memcpy(&value, bytes + length - sizeof value, sizeof value);
    return value;
}

static void change_file(int name) {
    char path[96];
    const uint64_t what = xn_rng_below(&w.rng, 10);
    const float value = what < 7 ? world_new_value() : 0;
    const xn_tensor weights = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    xn_weights_file_head head;
    version *after = what < 9 ? world_begin_version(name, value) : NULL;
    event("file %c: %g", 'a' + name, (double)value);
    if (!after) {
        write_file(name, "rubbish", 7, NULL);
        return;
    }
    after->settled_step = fibers_steps();
    if (value != 0) {
        xn_weights_file_begin(&weights, NULL, NULL, &head);
        write_file(name, head.bytes, head.length, &value);
    } else {
        unlink(path_of(name, path));
    }
}

static void writer_body(void *argument) {
    (void)argument;
    w.busy++;
    while (!w.over && fibers_now() < w.end_ns) {
        fibers_sleep(world_about(2000000));
        if (world_draws(60))
            change_file((int)xn_rng_below(&w.rng, NAMES));
        if (world_draws(30)) {
            event("SIGHUP");
            xn_weights_dir_look(w.service.weights_dir);
        }
    }
    w.busy--;
}

/* The store follows the folder: once nobody changes it and it was looked at, while there is a
 * device to put weights on and room for them. */
void law_of_folder(void) {
    xn_error error;
    int up = 0;
    for (int looks = 0; looks < 2 + SIM_DEVICES; looks++) {
        xn_weights_dir_look(w.service.weights_dir);
        fibers_sleep(40 * XN_NS_PER_MS); /* more than ten polls: what failed is tried again */
    }
    for (int i = 0; i < w.engine->pools.count; i++)
        up += w.engine->pools.each[i].devices_up;
    for (int name = 0; name < NAMES; name++) {
        const char text[2] = {(char)('a' + name), 0};
        const float value = read_file(name);
        xn_asset *asset = NULL;
        xn_store_get(xn_engine_store(w.engine), text, &asset, &error);
        law(value < 0 || !up || w.config.max_weights < NAMES ||
                (asset ? xn_asset_weights(asset)->real[0] : 0) == value,
            "the store follows --weights-dir");
        xn_asset_release(asset);
        unlink(path_of(name, (char[96]){0}));
    }
    rmdir(w.folder);
}

void faults_begin(void) {
    fibers_start("faults", faults_body, NULL);
    if (w.mix.folder)
        fibers_start("writer", writer_body, NULL);
}
