/* faults.c: what befalls devices, memory and files, as fibers. */
#include "world.h"

#include "clock.h"
#include "device.h"
#include "store_internal.h"
#include "xn_mem.h"
#include "xn_weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
        event(NULL, "device", "is lost");
    }
    if (device->hung)
        event(NULL, "device", "hangs");
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
    event(NULL, "faults", "end");
    w.busy--;
}

/* ---- files: another program that writes the folders ---- */

int of_fsync(int fd) __asm__("__wrap_fsync");

/* The disk takes its time, and may fail. */
int of_fsync(int fd) {
    (void)fd;
    law(!fibers_locks_held(), "no lock is held while the disk is waited for");
    fibers_sleep(world_about(50000));
    errno = EIO;
    return !w.over && world_draws(w.mix.disk) ? -1 : 0;
}

/* Weights lie in --weights-dir, FOLDER in --model-repository. */
static const char *path_of(int name, char path[96]) {
    snprintf(path, 96, name == FOLDER ? "%s/models/%c/model.safetensors" : "%s/%c.safetensors",
             w.folder, 'a' + name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t length) {
    char aside[96];
    snprintf(aside, sizeof aside, "%s/.aside", w.folder);
    const int fd = open(aside, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    law(fd >= 0 && write(fd, bytes, length) == (ssize_t)length && !close(fd) &&
            !rename(aside, path),
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

const char model_config[] =
    "{\"format\":\"xnord-network/1\",\"input\":{\"name\":\"image\",\"datatype\":\"FP32\","
    "\"shape\":[1,1,1]},\"output\":{\"name\":\"logits\"},\"layers\":[{\"op\":\"conv\","
    "\"name\":\"c\",\"mode\":\"float\"}]}";

void model_tensors(float value, unsigned char out[MODEL_BYTES]) {
    const uint64_t length = MODEL_BYTES - sizeof length - sizeof value;
    memset(out, ' ', MODEL_BYTES);
    memcpy(out, &length, sizeof length);
    memcpy(out + sizeof length,
           "{\"c.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[0,4]}}", 67);
    memcpy(out + MODEL_BYTES - sizeof value, &value, sizeof value);
}

/* What a file of that value has. */
static size_t contents_of(int name, float value, unsigned char *out) {
    const xn_tensor weights = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    xn_weights_file_head head;
    if (name == FOLDER) {
        model_tensors(value, out);
        return MODEL_BYTES;
    }
    xn_weights_file_begin(&weights, NULL, NULL, &head);
    memcpy(out, head.bytes, head.length);
    memcpy(out + head.length, &value, sizeof value);
    return head.length + sizeof value;
}

static void change_file(int name) {
    char path[96];
    unsigned char bytes[XN_WEIGHTS_FILE_HEAD_BYTES + sizeof(float)];
    const uint64_t what = w.alone ? 0 : xn_rng_below(&w.rng, 10); /* weights, none, rubbish */
    const float value = what < 7 ? world_new_value() : 0;
    event(NULL, "file", "%c: %g", 'a' + name, (double)value);
    if (what == 9) {
        write_file(path_of(name, path), "rubbish", 7);
        return;
    }
    world_begin_version(name, value)->settled_step = fibers_steps();
    if (value != 0)
        write_file(path_of(name, path), bytes, contents_of(name, value, bytes));
    else
        unlink(path_of(name, path));
}

void folders_make(void) {
    char path[96];
    strcpy(w.folder, "/dev/shm/xnord-simulate-XXXXXX"); /* stays where a law is broken */
    law(mkdtemp(w.folder), "the simulation can make folders");
    snprintf(w.config.model_repository, sizeof w.config.model_repository, "%s/models", w.folder);
    snprintf(path, sizeof path, "%s/models/%c", w.folder, 'a' + FOLDER);
    law(!mkdir(w.config.model_repository, 0700) && !mkdir(path, 0700),
        "the simulation can make folders");
    strcat(path, "/config.json");
    write_file(path, model_config, strlen(model_config));
    change_file(FOLDER);
}

void folders_remove(void) {
    char path[96];
    for (int name = 0; name < ALL_NAMES; name++)
        unlink(path_of(name, path));
    snprintf(path, sizeof path, "%s/models/%c/config.json", w.folder, 'a' + FOLDER);
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    rmdir(w.config.model_repository);
    law(!rmdir(w.folder), "no temporary file is left in --weights-dir");
}

static void writer_body(void *argument) {
    (void)argument;
    w.busy++;
    while (!w.over && fibers_now() < w.end_ns) {
        fibers_sleep(world_about(2000000));
        if (world_draws(60))
            change_file(!w.mix.folder || world_draws(30) ? FOLDER
                                                         : (int)xn_rng_below(&w.rng, NAMES));
        if (world_draws(30)) {
            event(NULL, "SIGHUP", "%s", w.folder);
            if (w.service.weights_dir)
                xn_weights_dir_look(w.service.weights_dir);
            xn_models_scan(w.service.models, NULL);
        }
    }
    w.busy--;
}

/* The value that the name is served with; 0: none. */
static float value_served(int name) {
    const char text[2] = {(char)('a' + name), 0};
    float value = 0;
    xn_error error;
    xn_asset *asset = NULL;
    const xn_model *model = NULL;
    if (name < NAMES) {
        xn_store_get(xn_engine_store(w.engine), text, &asset, &error);
        value = asset ? asset->weights->real[0] : 0;
    } else {
        xn_models_get(w.service.models, text, "", &model, &error);
        value = model ? model->asset->network->weights[0]->real[0] : 0;
    }
    xn_asset_release(asset);
    if (model)
        xn_model_release(model);
    return value;
}

/* What is served follows the files: once they change no more and were looked at, while there is a
 * device to put weights on and room for them. */
void law_of_folders(void) {
    const char folder[2] = {'a' + FOLDER, 0};
    xn_error error;
    int up = 0;
    if (!w.mix.folder && !w.mix.files)
        return;
    for (int looks = 0; looks < 2 + SIM_DEVICES; looks++) { /* each may find a device lost */
        if (w.mix.folder)
            xn_weights_dir_look(w.service.weights_dir);
        xn_models_scan(w.service.models, NULL);
        if (w.unloaded)
            xn_models_load(w.service.models, folder, NULL, 0, NULL, 0, &error);
        fibers_sleep(40 * XN_NS_PER_MS); /* more than ten polls: what failed is tried again */
    }
    for (int i = 0; i < w.engine->pools.count; i++)
        up += w.engine->pools.each[i].devices_up;
    for (int name = w.mix.folder ? 0 : FOLDER; name < ALL_NAMES; name++) {
        const float value = read_file(name);
        if (value < 0 || !up)
            continue;
        if (name < NAMES && w.config.max_weights >= NAMES && w.config.max_weights_bytes == 1 << 20)
            law(value_served(name) == value, "the store follows --weights-dir");
        if (name == FOLDER && w.config.max_models_bytes == 1 << 20 && value != 0 && !w.draining)
            law(value_served(name) == value, "models follow --model-repository");
    }
}

void faults_begin(void) {
    fibers_start("faults", faults_body, NULL);
    if (w.mix.files)
        fibers_start("writer", writer_body, NULL);
}
