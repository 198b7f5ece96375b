/* engine_fake.c: see engine_fake.h. */
#include "engine_fake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct xn_device {
    int kind, ordinal;
    atomic_llong plan_images;
};

struct xn_prepared {
    xn_device *device;
    float weight;
};

struct xn_stream {
    xn_device *device;
    atomic_bool in_use;
    int threads;
    xn_plan *plan; /* of the run under way, one step */
    const xn_prepared *prepared;
    bool behind; /* that run is not computed yet */
};

struct xn_plan {
    xn_stream *stream;
    xn_conv conv;
    int64_t max_images;
};

fake_control fake[FAKE_KINDS];

#define require(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "engine_fake.c:%d: %s\n", __LINE__, #condition);                       \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static fake_control *control(const xn_device *device) {
    return &fake[device->kind];
}

static void nap(void) {
    nanosleep(&(struct timespec){0, 100000}, NULL);
}

static bool lost(const xn_device *device) {
    return atomic_load(&control(device)->lost[device->ordinal]);
}

static bool hung(const xn_device *device) {
    return atomic_load(&control(device)->hung[device->ordinal]);
}

static xn_status fail_lost(xn_error *error) {
    return xn_fail(error, XN_ERR_DEVICE_LOST, NULL, "fake: unspecified launch failure");
}

void fake_reset(void) {
    memset(fake, 0, sizeof fake);
    for (int k = 0; k < FAKE_KINDS; k++) {
        sem_init(&fake[k].entered, 0, 0);
        sem_init(&fake[k].gate, 0, 0);
        sem_init(&fake[k].canary_done, 0, 0);
        sem_init(&fake[k].prepare_entered, 0, 0);
        sem_init(&fake[k].prepare_gate, 0, 0);
        pthread_mutex_init(&fake[k].mutex, NULL);
    }
}

void fake_expect_all_freed(void) {
    for (int k = 0; k < FAKE_KINDS; k++) {
        ck_assert_int_eq(fake[k].live_devices, 0);
        ck_assert_int_eq(fake[k].live_streams, 0);
        ck_assert_int_eq(fake[k].live_plans, 0);
        ck_assert_int_eq(fake[k].live_prepared, 0);
        ck_assert_int_eq(fake[k].live_host, 0);
        ck_assert_int_eq(fake[k].live_pins, 0);
    }
}

int fake_record_count(int kind) {
    pthread_mutex_lock(&fake[kind].mutex);
    int count = fake[kind].record_count;
    pthread_mutex_unlock(&fake[kind].mutex);
    return count;
}

fake_record fake_record_get(int kind, int index) {
    pthread_mutex_lock(&fake[kind].mutex);
    ck_assert_int_lt(index, fake[kind].record_count);
    fake_record record = fake[kind].records[index];
    pthread_mutex_unlock(&fake[kind].mutex);
    return record;
}

/* ---- devices ---- */

static xn_status open_kind(int kind, int ordinal, xn_device **out, xn_error *error) {
    xn_device *device = xn_mem_zalloc(1, sizeof *device);
    if (!device)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "fake: no memory for a device");
    device->kind = kind;
    device->ordinal = ordinal;
    atomic_fetch_add(&fake[kind].live_devices, 1);
    *out = device;
    return XN_OK;
}

static xn_status gpu_count(int *count, xn_error *error) {
    (void)error;
    *count = FAKE_DEVICES;
    return XN_OK;
}

static xn_status cpu_count(int *count, xn_error *error) {
    (void)error;
    *count = 1;
    return XN_OK;
}

static xn_status gpu_open(int ordinal, xn_device **out, xn_error *error) {
    return open_kind(FAKE_GPU, ordinal, out, error);
}

static xn_status cpu_open(int ordinal, xn_device **out, xn_error *error) {
    return open_kind(FAKE_CPU, ordinal, out, error);
}

static void device_close(xn_device *device) {
    if (!device)
        return;
    atomic_fetch_sub(&control(device)->live_devices, 1);
    xn_mem_free(device);
}

static void device_info(const xn_device *device, xn_device_info *out) {
    *out = (xn_device_info){.compute_units = 1};
    if (device->kind == FAKE_GPU)
        snprintf(out->id, sizeof out->id, "cuda:%d", device->ordinal);
    else
        snprintf(out->id, sizeof out->id, "cpu");
}

static xn_status device_canary(xn_device *device, xn_error *error) {
    fake_control *c = control(device);
    while (hung(device))
        nap();
    xn_status status = atomic_load(&c->canary_failure);
    sem_post(&c->canary_done);
    if (lost(device))
        return fail_lost(error);
    return status == XN_OK ? XN_OK : xn_fail(error, status, NULL, "fake: 41 instead of 42");
}

static void *host_alloc(xn_device *device, size_t bytes) {
    if (lost(device))
        return NULL;
    void *memory = xn_mem_alloc(bytes);
    if (memory)
        atomic_fetch_add(&control(device)->live_host, 1);
    return memory;
}

static void host_free(xn_device *device, void *memory) {
    if (memory)
        atomic_fetch_sub(&control(device)->live_host, 1);
    xn_mem_free(memory);
}

/* ---- memory of another's ---- */

/* The one that has such a byte, or NULL. */
static fake_pin *find_pin_locked(fake_control *c, const void *memory, size_t bytes) {
    const unsigned char *first = memory;
    for (int i = 0; i < c->pin_count; i++)
        if (first < c->pins[i].memory + c->pins[i].bytes && c->pins[i].memory < first + bytes)
            return &c->pins[i];
    return NULL;
}

/* As pinning does, and by a call that fails where a page is gone. */
static bool have_pages(unsigned char *memory, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    require((uintptr_t)memory % page == 0 && bytes && bytes % page == 0);
    for (size_t at = 0; at < bytes; at += page) {
        char byte;
        const struct iovec here = {&byte, 1}, there = {memory + at, 1};
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1)
            return false;
    }
    return true;
}

static xn_status host_register(xn_device *device, void *memory, size_t bytes, xn_error *error) {
    fake_control *c = control(device);
    xn_status status = atomic_load(&c->register_failure);
    if (lost(device))
        status = XN_ERR_DEVICE_LOST;
    else if (!status && !have_pages(memory, bytes))
        status = XN_ERR_UNSUPPORTED;
    pthread_mutex_lock(&c->mutex);
    require(!find_pin_locked(c, memory, bytes) && c->pin_count < FAKE_MAX_PINS);
    if (!status) {
        c->pins[c->pin_count++] = (fake_pin){.memory = memory, .bytes = bytes};
        c->pinned_bytes += bytes;
        if (c->pinned_bytes > c->most_pinned_bytes)
            c->most_pinned_bytes = c->pinned_bytes;
        atomic_fetch_add(&c->live_pins, 1);
    }
    pthread_mutex_unlock(&c->mutex);
    atomic_fetch_add(&c->registers, 1);
    return status ? xn_fail(error, status, NULL, "fake: cannot pin") : XN_OK;
}

static xn_status host_unregister(xn_device *device, void *memory, xn_error *error) {
    fake_control *c = control(device);
    const bool gone = lost(device);
    pthread_mutex_lock(&c->mutex);
    fake_pin *pin = find_pin_locked(c, memory, 1);
    require(pin && pin->memory == memory && !pin->runs && !pin->stale);
    c->pinned_bytes -= pin->bytes;
    if (gone)
        pin->stale = true;
    else
        *pin = c->pins[--c->pin_count];
    pthread_mutex_unlock(&c->mutex);
    atomic_fetch_sub(&c->live_pins, 1);
    return gone ? fail_lost(error) : XN_OK;
}

/* On the host nothing may touch what a GPU has pinned. */
static bool is_of_gpu(const void *memory, size_t bytes) {
    pthread_mutex_lock(&fake[FAKE_GPU].mutex);
    const bool is = find_pin_locked(&fake[FAKE_GPU], memory, bytes);
    pthread_mutex_unlock(&fake[FAKE_GPU].mutex);
    return is;
}

/* A run begins to use an item's memory (1), or has ended (-1). */
static void count_use(fake_control *c, const void *memory, size_t bytes, int by, atomic_int *uses) {
    require(c == &fake[FAKE_GPU] || !is_of_gpu(memory, bytes));
    pthread_mutex_lock(&c->mutex);
    fake_pin *pin = find_pin_locked(c, memory, bytes);
    require(!pin || !pin->stale);
    if (pin) {
        pin->runs += by;
        *uses += by > 0;
    }
    pthread_mutex_unlock(&c->mutex);
}

static void count_uses(fake_control *c, const xn_batch_item *items, size_t count, int by) {
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = (size_t)items[i].images * sizeof(float);
        count_use(c, items[i].input, bytes, by, &c->pinned_inputs);
        count_use(c, items[i].output, bytes, by, &c->pinned_outputs);
    }
}

/* ---- weights, streams, plans ---- */

static xn_status weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                 xn_error *error) {
    fake_control *c = control(device);
    atomic_fetch_add(&c->prepares, 1);
    if (atomic_load(&c->prepare_gated)) {
        sem_post(&c->prepare_entered);
        while (sem_wait(&c->prepare_gate))
            ;
    }
    if (lost(device))
        return fail_lost(error);
    xn_status status = atomic_load(&c->prepare_failure);
    if (atomic_load(&c->prepare_short_after) > 0) {
        atomic_fetch_sub(&c->prepare_short_after, 1);
    } else if (atomic_load(&c->prepare_short) > 0) {
        atomic_fetch_sub(&c->prepare_short, 1);
        status = XN_ERR_DEVICE_MEMORY;
    }
    if (status != XN_OK)
        return xn_fail(error, status, NULL, "fake: cannot prepare");
    xn_prepared *prepared = xn_mem_zalloc(1, sizeof *prepared);
    if (!prepared)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "fake: no memory for weights");
    prepared->device = device;
    prepared->weight = weights->real ? weights->real[0] : 0;
    atomic_fetch_add(&c->live_prepared, 1);
    *out = prepared;
    return XN_OK;
}

static void weights_free(xn_prepared *prepared) {
    if (!prepared)
        return;
    atomic_fetch_sub(&control(prepared->device)->live_prepared, 1);
    xn_mem_free(prepared);
}

static xn_status stream_create(xn_device *device, const xn_stream_options *options, xn_stream **out,
                               xn_error *error) {
    xn_stream *stream = xn_mem_zalloc(1, sizeof *stream);
    if (!stream)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "fake: no memory for a stream");
    stream->device = device;
    stream->threads = options->threads;
    atomic_fetch_add(&control(device)->live_streams, 1);
    *out = stream;
    return XN_OK;
}

static void stream_free(xn_stream *stream) {
    if (!stream)
        return;
    atomic_fetch_sub(&control(stream->device)->live_streams, 1);
    xn_mem_free(stream);
}

static void stream_set_threads(xn_stream *stream, int threads) {
    stream->threads = threads;
}

/* From here to leave(), the stream is this thread's. */
static void enter(xn_stream *stream) {
    require(!atomic_exchange(&stream->in_use, true));
}

static void leave(xn_stream *stream) {
    atomic_store(&stream->in_use, false);
}

static bool reserve(xn_device *device, int64_t images) {
    int64_t limit = atomic_load(&control(device)->memory[device->ordinal]);
    int64_t held = atomic_fetch_add(&device->plan_images, images);
    if (!limit || held + images <= limit)
        return true;
    atomic_fetch_sub(&device->plan_images, images);
    return false;
}

static xn_status plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error) {
    fake_control *c = control(stream->device);
    if (lost(stream->device))
        return fail_lost(error);
    if (!reserve(stream->device, max_images))
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL, "fake: no memory for %lld images",
                       (long long)max_images);
    xn_plan *plan = xn_mem_zalloc(1, sizeof *plan);
    if (!plan) {
        atomic_fetch_sub(&stream->device->plan_images, max_images);
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "fake: no memory for a plan");
    }
    enter(stream);
    plan->stream = stream;
    plan->conv = step->conv;
    plan->max_images = max_images;
    atomic_fetch_add(&c->live_plans, 1);
    atomic_fetch_add(&c->plan_creates, 1);
    leave(stream);
    *out = plan;
    return XN_OK;
}

static void plan_free(xn_plan *plan) {
    if (!plan)
        return;
    xn_stream *stream = plan->stream;
    enter(stream);
    atomic_fetch_sub(&stream->device->plan_images, plan->max_images);
    atomic_fetch_sub(&control(stream->device)->live_plans, 1);
    leave(stream);
    xn_mem_free(plan);
}

/* ---- running ---- */

static void record(fake_control *c, const xn_plan *plan, const xn_prepared *prepared,
                   const xn_batch_item *items, size_t count, int64_t images) {
    pthread_mutex_lock(&c->mutex);
    if (c->record_count < FAKE_MAX_RECORDS)
        c->records[c->record_count++] =
            (fake_record){plan->stream->device->ordinal, count, images, prepared->weight,
                          *(const float *)items[0].input};
    pthread_mutex_unlock(&c->mutex);
}

static void count_threads(fake_control *c, int threads) {
    int now = atomic_fetch_add(&c->threads_now, threads) + threads;
    int most = atomic_load(&c->threads_most);
    while (now > most && !atomic_compare_exchange_weak(&c->threads_most, &most, now))
        ;
}

static int64_t multiply(const xn_batch_item *items, size_t count, float weight) {
    int64_t images = 0;
    for (size_t i = 0; i < count; i++) {
        for (int64_t n = 0; n < items[i].images; n++)
            ((float *)items[i].output)[n] = ((const float *)items[i].input)[n] * weight;
        images += items[i].images;
    }
    return images;
}

static xn_status run_failure(const xn_device *device, int64_t images, xn_error *error) {
    fake_control *c = control(device);
    int64_t room = atomic_load(&c->run_memory);
    xn_status status = atomic_load(&c->run_failure);
    if (lost(device))
        return fail_lost(error);
    if (room && images > room)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL, "fake: no memory to run");
    return status == XN_OK ? XN_OK : xn_fail(error, status, NULL, "fake: the run fails");
}

static xn_status begin(xn_stream *stream, const xn_batch *batch, void *input, xn_error *error) {
    (void)error;
    require(batch->count > 0 && !input);
    enter(stream);
    leave(stream);
    return XN_OK;
}

/* Reads and writes the items' memory. */
static xn_status compute(const xn_stream *stream, const xn_batch *batch, xn_error *error) {
    const xn_batch_item *items = batch->items;
    fake_control *c = control(stream->device);
    count_threads(c, stream->threads);
    count_uses(c, items, batch->count, 1);
    int64_t images = multiply(items, batch->count, stream->prepared->weight);
    require(images >= 1 && images <= stream->plan->max_images);
    record(c, stream->plan, stream->prepared, items, batch->count, images);
    if (atomic_load(&c->gated)) {
        sem_post(&c->entered);
        while (sem_wait(&c->gate))
            ;
    }
    xn_status status = run_failure(stream->device, images, error);
    atomic_fetch_sub(&c->threads_now, stream->threads);
    count_uses(c, items, batch->count, -1);
    return status;
}

static xn_status enqueue(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                         xn_error *error) {
    xn_stream *stream = plan->stream;
    xn_status status = XN_OK;
    require(prepared->device == stream->device && io->batch->count > 0);
    enter(stream);
    stream->plan = plan;
    stream->prepared = prepared;
    stream->behind = hung(stream->device);
    if (!stream->behind)
        status = compute(stream, io->batch, error);
    leave(stream);
    return status;
}

static xn_status end(xn_stream *stream, const xn_batch *batch, const void *output,
                     xn_run_times *times, xn_error *error) {
    (void)error;
    require(batch->images >= 1 && !output);
    enter(stream);
    *times = (xn_run_times){1000, 2000, 3000};
    leave(stream);
    return XN_OK;
}

/* Of GPUs: what one that hung has not computed. */
static xn_status wait_until(xn_stream *stream, const xn_batch *batch, int64_t until_ns,
                            xn_run_times *times, xn_error *error) {
    xn_status status = XN_OK;
    enter(stream);
    while (stream->behind && hung(stream->device) && xn_now_ns() < until_ns)
        nap();
    if (stream->behind && hung(stream->device))
        status = xn_fail(error, XN_ERR_DEADLINE, NULL, "fake: it hangs");
    else if (stream->behind)
        status = compute(stream, batch, error);
    stream->behind = stream->behind && status == XN_ERR_DEADLINE;
    *times = (xn_run_times){1000, 2000, 3000};
    leave(stream);
    return status;
}

static void abandon(xn_stream *stream) {
    enter(stream);
    leave(stream);
}

/* The GPU takes the precision it is asked for. */
static xn_precision precision(const xn_plan *plan, const xn_prepared *prepared) {
    require(prepared->device == plan->stream->device);
    return (xn_precision)plan->conv.precision;
}

#define FAKE_TABLE(name_, count_, open_, threads_, precision_, register_, unregister_, wait_)      \
    {                                                                                              \
        .name = name_, .device_count = count_, .device_open = open_, .device_close = device_close, \
        .device_info = device_info, .device_canary = device_canary, .host_alloc = host_alloc,      \
        .host_free = host_free, .host_register = register_, .host_unregister = unregister_,        \
        .weights_prepare = weights_prepare, .weights_free = weights_free,                          \
        .stream_create = stream_create, .stream_free = stream_free,                                \
        .stream_set_threads = threads_, .plan_create = plan_create, .plan_free = plan_free,        \
        .precision = precision_, .in_place = true, .begin = begin, .enqueue = enqueue, .end = end, \
        .abandon = abandon, .wait = wait_                                                          \
    }

const xn_backend fake_gpu = FAKE_TABLE("cuda", gpu_count, gpu_open, NULL, precision, host_register,
                                       host_unregister, wait_until);
const xn_backend fake_cpu =
    FAKE_TABLE("cpu", cpu_count, cpu_open, stream_set_threads, NULL, NULL, NULL, NULL);

void fake_wait_at(sem_t *sem, const char *file, int line) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    while (sem_timedwait(sem, &until))
        ck_assert_msg(errno == EINTR, "%s:%d: waits in vain", file, line);
}
