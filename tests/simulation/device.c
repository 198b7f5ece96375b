/* device.c: see device.h. */
#include "device.h"

#include "fibers.h"
#include "laws.h"
#include "world.h"
#include "xn_backends.h"
#include "xn_mem.h"

#include <stdio.h>
#include <string.h>

enum { MOST_STEPS = 8, MOST_ITEMS = 64 };

struct xn_device {
    xn_device *ref;
    sim_kind kind;
    int ordinal;
    sim_device_state *state;
};

struct xn_stream {
    xn_stream *ref;
    xn_device *device;
    bool in_use;  /* by a caller */
    bool running; /* begin was called, and neither the end nor abandon came */
    int64_t started_ns, due_ns;
    xn_batch batch;
    xn_batch_item items[MOST_ITEMS];
    int step_count;
    struct {
        xn_plan *plan;
        const xn_prepared *prepared;
        xn_step_io io;
    } steps[MOST_STEPS];
};

struct xn_plan {
    xn_plan *ref;
    xn_stream *stream;
};

struct xn_prepared {
    xn_prepared *ref;
    xn_device *device;
};

sim_devices devices;

/* From now on the engine knows. */
static xn_status lost(const xn_device *device, xn_error *error) {
    device->state->told = true;
    return xn_fail(error, XN_ERR_DEVICE_LOST, NULL, "simulated: the device is lost");
}

static bool is_drawn(unsigned percent) {
    return percent && xn_rng_below(devices.rng, 100) < percent;
}

static xn_status check_memory(const xn_device *device, xn_error *error) {
    if (device->state->lost)
        return lost(device, error);
    if (is_drawn(device->state->short_percent))
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL, "simulated: no device memory");
    return XN_OK;
}

/* Counts one more of what is to be freed. */
static void *make(size_t bytes, xn_error *error) {
    void *memory = xn_mem_zalloc(1, bytes);
    devices.live += memory != NULL;
    if (!memory)
        xn_fail(error, XN_ERR_NO_MEMORY, NULL, "simulated: no memory");
    return memory;
}

static void unmake(void *memory) {
    devices.live -= memory != NULL;
    xn_mem_free(memory);
}

/* ---- devices ---- */

static xn_status count(int *out, xn_error *error) {
    (void)error;
    *out = SIM_DEVICES;
    return XN_OK;
}

static xn_status open_kind(sim_kind kind, int ordinal, xn_device **out, xn_error *error) {
    xn_device *device = make(sizeof *device, error);
    xn_status status =
        device ? xn_backend_ref.device_open(0, &device->ref, error) : XN_ERR_NO_MEMORY;
    if (status != XN_OK) {
        unmake(device);
        return status;
    }
    device->kind = kind;
    device->ordinal = ordinal;
    device->state = &devices.each[kind][ordinal];
    *out = device;
    return XN_OK;
}

static xn_status open_gpu(int ordinal, xn_device **out, xn_error *error) {
    return open_kind(SIM_GPU, ordinal, out, error);
}

static xn_status open_cpu(int ordinal, xn_device **out, xn_error *error) {
    return open_kind(SIM_CPU, ordinal, out, error);
}

static void close_device(xn_device *device) {
    if (!device)
        return;
    xn_backend_ref.device_close(device->ref);
    unmake(device);
}

static void info(const xn_device *device, xn_device_info *out) {
    *out = (xn_device_info){.compute_units = 1};
    if (device->kind == SIM_GPU)
        snprintf(out->id, sizeof out->id, "cuda:%d", device->ordinal);
    else
        snprintf(out->id, sizeof out->id, "cpu");
}

static xn_status canary(xn_device *device, xn_error *error) {
    sim_device_state *state = device->state;
    law(!fibers_locks_held(), "no lock is held across a canary");
    state->in_canary = true;
    fibers_sleep(state->run_ns);
    while (state->hung)
        fibers_sleep(100000);
    state->in_canary = false;
    state->unfit_ns = state->canary_fails ? fibers_now() : 0;
    if (state->lost)
        return lost(device, error);
    if (state->canary_fails)
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "simulated: 41 instead of 42");
    return XN_OK;
}

static void *host_alloc(xn_device *device, size_t bytes) {
    law(!fibers_locks_held(), "no lock is held while pinned memory is made");
    void *memory = device->state->lost ? NULL : xn_mem_alloc(bytes);
    devices.live += memory != NULL;
    return memory;
}

static void host_free(xn_device *device, void *memory) {
    (void)device;
    law(!memory || !fibers_locks_held(), "no lock is held while pinned memory is freed");
    unmake(memory);
}

/* ---- weights, streams, plans ---- */

static xn_status prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                         xn_error *error) {
    law(!fibers_locks_held(), "no lock is held while weights are prepared");
    world_sees_prepare(weights);
    fibers_sleep((int64_t)xn_rng_below(devices.rng, (uint64_t)device->state->run_ns));
    xn_status status = check_memory(device, error);
    if (status != XN_OK)
        return status;
    xn_prepared *prepared = make(sizeof *prepared, error);
    status = prepared ? xn_backend_ref.weights_prepare(device->ref, weights, &prepared->ref, error)
                      : XN_ERR_NO_MEMORY;
    if (status != XN_OK) {
        unmake(prepared);
        return status;
    }
    prepared->device = device;
    *out = prepared;
    return XN_OK;
}

static void free_weights(xn_prepared *prepared) {
    if (!prepared)
        return;
    law(!fibers_locks_held(), "no lock is held while weights are freed");
    xn_backend_ref.weights_free(prepared->ref);
    memset(prepared, 0xdd, sizeof *prepared);
    unmake(prepared);
}

static xn_status create_stream(xn_device *device, const xn_stream_options *options, xn_stream **out,
                               xn_error *error) {
    xn_stream *stream = make(sizeof *stream, error);
    xn_status status = stream
                           ? xn_backend_ref.stream_create(device->ref, options, &stream->ref, error)
                           : XN_ERR_NO_MEMORY;
    if (status != XN_OK) {
        unmake(stream);
        return status;
    }
    stream->device = device;
    *out = stream;
    return XN_OK;
}

static void free_stream(xn_stream *stream) {
    if (!stream)
        return;
    law(!stream->running, "a stream is not freed while it runs");
    xn_backend_ref.stream_free(stream->ref);
    unmake(stream);
}

/* From here to leave() the stream is this caller's, which holds no lock. */
static void enter(xn_stream *stream) {
    law(!stream->in_use, "a stream is used by one thread at a time");
    law(!fibers_locks_held(), "no lock is held across a call of a device");
    stream->in_use = true;
    fibers_yield();
}

static void leave(xn_stream *stream) {
    stream->in_use = false;
}

static xn_status create_plan(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error) {
    enter(stream);
    xn_plan *plan = NULL;
    xn_status status = check_memory(stream->device, error);
    if (status == XN_OK && !(plan = make(sizeof *plan, error)))
        status = XN_ERR_NO_MEMORY;
    if (status == XN_OK)
        status = xn_backend_ref.plan_create(stream->ref, step, max_images, &plan->ref, error);
    leave(stream);
    if (status != XN_OK) {
        unmake(plan);
        return status;
    }
    plan->stream = stream;
    *out = plan;
    return XN_OK;
}

static void free_plan(xn_plan *plan) {
    if (!plan)
        return;
    law(!plan->stream->running, "a plan is not freed while its stream runs");
    xn_backend_ref.plan_free(plan->ref);
    unmake(plan);
}

static xn_status reserve_arena(xn_stream *stream, size_t bytes, xn_error *error) {
    xn_status status = check_memory(stream->device, error);
    return status ? status : xn_backend_ref.arena_reserve(stream->ref, bytes, error);
}

static void *arena(const xn_stream *stream, size_t bytes) {
    return xn_backend_ref.arena(stream->ref, bytes);
}

static void trim_stream(xn_stream *stream) {
    law(!stream->running, "a stream is not trimmed while it runs");
    xn_backend_ref.stream_trim(stream->ref);
}

/* ---- a run ---- */

static xn_status begin(xn_stream *stream, const xn_batch *batch, void *input, xn_error *error) {
    enter(stream);
    law(!stream->running && !input, "a stream has one run at a time");
    law(batch->count >= 1 && batch->count <= MOST_ITEMS, "a batch has 1 to 64 requests");
    stream->running = true;
    stream->batch = *batch;
    memcpy(stream->items, batch->items, batch->count * sizeof *batch->items);
    stream->batch.items = stream->items;
    stream->step_count = 0;
    stream->started_ns = fibers_now();
    stream->due_ns = stream->started_ns + stream->device->state->run_ns / 2 +
                     (int64_t)xn_rng_below(devices.rng, (uint64_t)stream->device->state->run_ns);
    stream->device->state->runs++;
    law(stream->device->kind == SIM_GPU || stream->device->state->runs <= w.cpu_threads,
        "runs on the CPU share its threads");
    devices.runs++;
    leave(stream);
    return stream->device->state->lost ? lost(stream->device, error) : XN_OK;
}

static xn_status enqueue(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                         xn_error *error) {
    xn_stream *stream = plan->stream;
    enter(stream);
    law(stream->running && stream->step_count < MOST_STEPS, "a step belongs to a run");
    law(!prepared || prepared->device == stream->device, "weights are of the stream's device");
    if (!stream->step_count)
        world_sees_run(&stream->batch, prepared);
    stream->steps[stream->step_count].plan = plan;
    stream->steps[stream->step_count].prepared = prepared;
    stream->steps[stream->step_count].io = *io;
    stream->steps[stream->step_count++].io.batch = &stream->batch;
    leave(stream);
    if (is_drawn(stream->device->state->fail_percent))
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "simulated: the launch failed");
    return stream->device->state->lost ? lost(stream->device, error) : XN_OK;
}

static void end_run(xn_stream *stream) {
    stream->running = false;
    stream->device->state->runs--;
}

/* Its time is over: reads inputs, writes outputs. */
static xn_status finish(xn_stream *stream, xn_run_times *times, xn_error *error) {
    xn_status status = stream->device->state->lost ? lost(stream->device, error) : XN_OK;
    for (int i = 0; status == XN_OK && i < stream->step_count; i++) {
        const xn_prepared *prepared = stream->steps[i].prepared;
        status = xn_backend_ref.enqueue(stream->steps[i].plan->ref, prepared ? prepared->ref : NULL,
                                        &stream->steps[i].io, error);
    }
    *times = (xn_run_times){.compute_ns = fibers_now() - stream->started_ns};
    if (status == XN_OK)
        end_run(stream);
    return status;
}

static bool is_over(const xn_stream *stream) {
    return stream->device->state->lost ||
           (!stream->device->state->hung && stream->due_ns <= fibers_now());
}

static xn_status end_cpu(xn_stream *stream, const xn_batch *batch, const void *output,
                         xn_run_times *times, xn_error *error) {
    (void)batch, (void)output;
    enter(stream);
    while (!is_over(stream))
        fibers_sleep(stream->device->state->hung ? 100000 : stream->due_ns - fibers_now());
    xn_status status = finish(stream, times, error);
    leave(stream);
    return status;
}

static xn_status end_gpu(xn_stream *stream, const xn_batch *batch, const void *output,
                         xn_run_times *times, xn_error *error) {
    (void)batch, (void)output, (void)times;
    return stream->device->state->lost ? lost(stream->device, error) : XN_OK;
}

static xn_status wait_gpu(xn_stream *stream, const xn_batch *batch, int64_t until_ns,
                          xn_run_times *times, xn_error *error) {
    (void)batch;
    enter(stream);
    while (!is_over(stream) && fibers_now() < until_ns) {
        int64_t next_ns = stream->device->state->hung ? fibers_now() + 100000 : stream->due_ns;
        fibers_sleep((next_ns < until_ns ? next_ns : until_ns) - fibers_now());
    }
    xn_status status = is_over(stream)
                           ? finish(stream, times, error)
                           : xn_fail(error, XN_ERR_DEADLINE, NULL, "simulated: it goes on");
    leave(stream);
    return status;
}

static void abandon(xn_stream *stream) {
    enter(stream);
    while (!is_over(stream))
        fibers_sleep(100000);
    if (stream->running)
        end_run(stream);
    leave(stream);
}

#define SIM_TABLE(label, open_function, end_function, wait_function)                               \
    {                                                                                              \
        .name = (label), .kinds = (1u << XN_STEP_KIND_COUNT) - 1, .parts = true,                   \
        .device_count = count, .device_open = (open_function), .device_close = close_device,       \
        .device_info = info, .device_canary = canary, .host_alloc = host_alloc,                    \
        .host_free = host_free, .weights_prepare = prepare, .weights_free = free_weights,          \
        .stream_create = create_stream, .stream_free = free_stream, .plan_create = create_plan,    \
        .plan_free = free_plan, .arena_reserve = reserve_arena, .arena = arena,                    \
        .stream_trim = trim_stream, .in_place = true, .begin = begin, .enqueue = enqueue,          \
        .end = (end_function), .abandon = abandon, .wait = (wait_function)                         \
    }

const xn_backend sim_gpu = SIM_TABLE("cuda", open_gpu, end_gpu, wait_gpu);
const xn_backend sim_cpu = SIM_TABLE("cpu", open_cpu, end_cpu, NULL);
