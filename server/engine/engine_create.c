/* engine_create.c: creating and ending an engine, handing jobs over. engine_struct.h says which
 * file does what, lock.h which lock guards what. */
#include "engine_struct.h"

#include "answers.h"
#include "clock.h"
#include "host_memory.h"
#include "threads.h"

#include <stdio.h>
#include <string.h>

#ifndef XN_VERSION
#define XN_VERSION "unknown"
#endif

static xn_status no_memory(const char *what, xn_error *error) {
    return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the engine's %s", what);
}

/* ---- creation: each step leaves what it made where xn_engine_free finds it ---- */

/* A device with room for the programs of all its streams. */
static xn_status open_device(xn_engine *engine, const xn_config *config, const xn_pool_spec *spec,
                             int pool, int ordinal, xn_error *error) {
    xn_pools *pools = &engine->pools;
    xn_engine_device *device = &pools->devices[pools->device_count];
    device->index = pools->device_count++;
    device->pool = pool;
    const xn_status status =
        xn_engine_device_open(config, spec->backend, ordinal, &engine->lock, device, error);
    if (status != XN_OK)
        return status;
    pools->each[pool].devices_up++;
    device->programs =
        xn_mem_zalloc((size_t)spec->workers + (size_t)spec->callers, sizeof(xn_programs *));
    return device->programs ? XN_OK : no_memory("pools", error);
}

static xn_status open_pools(xn_engine *engine, const xn_config *config, const xn_pool_spec *specs,
                            int pool_count, xn_error *error) {
    int devices = 0, workers = 0;
    for (int p = 0; p < pool_count; p++) {
        devices += specs[p].ordinal_count;
        workers += specs[p].ordinal_count * specs[p].workers;
    }
    engine->workers = xn_mem_zalloc((size_t)workers, sizeof *engine->workers);
    if (!engine->workers)
        return no_memory("pools", error);
    xn_status status = xn_pools_init(&engine->pools, pool_count, devices, error);
    for (int p = 0; status == XN_OK && p < pool_count; p++) {
        xn_pool *pool = &engine->pools.each[p];
        pool->backend = specs[p].backend;
        pool->threads = pool->threads_free = specs[p].threads;
        pool->callers_max = specs[p].callers;
        for (int i = 0; status == XN_OK && i < specs[p].ordinal_count; i++)
            status = open_device(engine, config, &specs[p], p, specs[p].ordinals[i], error);
    }
    return status;
}

static xn_status create_metrics(xn_engine *engine, xn_error *error) {
    const xn_pools *pools = &engine->pools;
    xn_metrics **metrics = &engine->services.metrics;
    const char **ids = xn_mem_zalloc((size_t)pools->device_count, sizeof *ids);
    if (!ids)
        return no_memory("metrics", error);
    for (int i = 0; i < pools->device_count; i++)
        ids[i] = pools->devices[i].info.id;
    xn_status status = xn_metrics_create(ids, pools->device_count, XN_VERSION,
                                         pools->each[0].backend->name, metrics, error);
    xn_mem_free(ids);
    for (int i = 0; status == XN_OK && i < pools->device_count; i++) {
        xn_metrics_device_isa(*metrics, i, pools->devices[i].info.instruction_set);
        xn_metrics_device_up(*metrics, i, 1);
    }
    return status;
}

static void store_lost_device(void *context, int device, const xn_error *error) {
    xn_pools_lose_device(&((xn_engine *)context)->pools, device, error);
}

void xn_engine_drop_programs(xn_engine *engine) {
    xn_lock_take(&engine->lock);
    engine->pools.era++;
    xn_pools_wake_all_locked(&engine->pools);
    xn_lock_drop(&engine->lock);
    xn_callers_drop_programs(&engine->callers);
}

static void store_network_gone(void *context) {
    xn_engine_drop_programs(context);
}

static xn_status create_store(xn_engine *engine, const xn_config *config, xn_error *error) {
    const xn_pools *pools = &engine->pools;
    xn_store **store = &engine->services.store;
    xn_store_limits limits = {config->max_weights, config->max_weights_bytes,
                              config->weights_cache_bytes};
    xn_store_device *devices = xn_mem_zalloc((size_t)pools->device_count, sizeof *devices);
    if (!devices)
        return no_memory("store", error);
    for (int i = 0; i < pools->device_count; i++)
        devices[i] = (xn_store_device){pools->devices[i].backend, pools->devices[i].handle};
    xn_status status = xn_store_create(devices, pools->device_count, &limits,
                                       engine->services.metrics, store, error);
    xn_mem_free(devices);
    if (status == XN_OK)
        xn_store_on_device_lost(*store, store_lost_device, engine);
    if (status == XN_OK)
        xn_store_on_network_gone(*store, store_network_gone, engine);
    return status;
}

/* A client's share, where the flag does not give one: enough that a single client is hardly
 * limited, and a part is left for all others. */
static int64_t share_of(int64_t given, int64_t all) {
    int64_t share = given ? given : all - all / 4;
    return share < all ? share : all;
}

static xn_status create_admission(xn_engine *engine, const xn_config *config, xn_error *error) {
    const xn_admission_limits limits = {
        .requests = config->queue_depth,
        .bytes = config->queue_bytes,
        .client_requests = share_of(config->max_requests_per_client, config->queue_depth),
        .client_bytes = share_of(config->max_bytes_per_client, config->queue_bytes),
        .connection_bytes = XN_CONNECTION_BYTES};
    return xn_admission_create(&limits, engine->services.metrics, &engine->services.admission,
                               error);
}

static xn_status create_services(xn_engine *engine, const xn_config *config, xn_error *error) {
    xn_services *services = &engine->services;
    xn_status status = create_metrics(engine, error);
    if (status == XN_OK)
        status = create_admission(engine, config, error);
    if (status == XN_OK)
        status = create_store(engine, config, error);
    if (status == XN_OK)
        status = xn_answers_create(services, config->response_cache_bytes, error);
    if (status == XN_OK)
        status = xn_host_memory_buffers(&engine->pools.devices[0], (size_t)config->queue_bytes,
                                        &services->buffers, error);
    xn_batch_policy policy = {config->max_batch_images, config->batch_delay_us * XN_NS_PER_US};
    for (int p = 0; status == XN_OK && p < engine->pools.count; p++)
        status = xn_queue_create(&policy, config->queue_depth, &engine->pools.each[p].queue, error);
    return status;
}

static xn_status create_workers(xn_engine *engine, const xn_config *config,
                                const xn_pool_spec *specs, xn_error *error) {
    xn_pools *pools = &engine->pools;
    for (int i = 0; i < pools->device_count; i++)
        for (int w = 0; w < specs[pools->devices[i].pool].workers; w++) {
            xn_worker *worker = &engine->workers[engine->worker_count++];
            xn_status status =
                xn_worker_init(worker, pools, &pools->devices[i], config->max_batch_images, error);
            if (status != XN_OK)
                return status;
        }
    return XN_OK;
}

static xn_status create_callers(xn_engine *engine, const xn_config *config, xn_error *error) {
    /* Where requests wait to fill a batch, none is run alone. */
    const double work_ns_max = config->batch_delay_us ? 0 : (double)config->inline_us * 1e3;
    return xn_callers_init(&engine->callers, &engine->pools, work_ns_max, config->max_batch_images,
                           error);
}

static xn_status start_threads(xn_engine *engine, xn_error *error) {
    xn_status status = xn_endings_start(&engine->endings, engine->services.metrics, error);
    if (status == XN_OK)
        status = xn_callers_start(&engine->callers, error);
    for (int i = 0; status == XN_OK && i < engine->worker_count; i++)
        status = xn_worker_start(&engine->workers[i], i, error);
    if (status == XN_OK)
        status = xn_canary_start(&engine->canary, error);
    return status;
}

xn_status xn_engine_create_with(const xn_config *config, const xn_pool_spec *specs, int pool_count,
                                const char *fallback_reason, xn_engine **out, xn_error *error) {
    xn_engine *engine = xn_mem_zalloc(1, sizeof *engine);
    if (!engine)
        return no_memory("state", error);
    engine->creator = pthread_self();
    engine->warm_up_ns = config->timeout_ms * XN_NS_PER_MS;
    xn_lock_init(&engine->lock);
    xn_endings_init(&engine->endings, &engine->lock);
    engine->pools = (xn_pools){.services = &engine->services,
                               .endings = &engine->endings,
                               .loss_policy = config->on_device_loss,
                               .lock = &engine->lock};
    xn_canary_init(&engine->canary, &engine->pools, config->canary_interval_ms * XN_NS_PER_MS);
    snprintf(engine->fallback_reason, sizeof engine->fallback_reason, "%s", fallback_reason);

    xn_status status = open_pools(engine, config, specs, pool_count, error);
    if (status == XN_OK)
        status = create_services(engine, config, error);
    if (status == XN_OK)
        status = create_workers(engine, config, specs, error);
    if (status == XN_OK)
        status = create_callers(engine, config, error);
    if (status == XN_OK)
        status = start_threads(engine, error);
    if (status != XN_OK) {
        xn_engine_free(engine);
        return status;
    }
    xn_lock_take(&engine->lock);
    xn_pools_show_ready_locked(&engine->pools);
    xn_lock_drop(&engine->lock);
    *out = engine;
    return XN_OK;
}

/* ---- ending ---- */

static void cancel_locked(xn_engine *engine, xn_job *job, xn_status status) {
    if (job->state == XN_JOB_QUEUED)
        xn_endings_end_locked(&engine->endings, job, status, "");
    else
        atomic_store(&job->cancelled, (int)status);
}

static void stop_taking(xn_engine *engine, bool stopping) {
    xn_pools *pools = &engine->pools;
    if (engine->services.admission)
        xn_admission_close(engine->services.admission, XN_ERR_DRAINING);
    xn_lock_take(&engine->lock);
    pools->draining = true; /* no group waits to fill a batch any more, no canary begins */
    pools->stopping = pools->stopping || stopping;
    for (xn_warm_up *up = pools->warm_ups; up; up = up->next)
        cancel_locked(engine, &up->job, XN_ERR_DRAINING);
    for (int p = 0; stopping && p < pools->count; p++) {
        xn_queue *queue = pools->each[p].queue;
        xn_job *job;
        while (queue && (job = xn_queue_any(queue)))
            xn_endings_end_locked(&engine->endings, job, XN_ERR_DRAINING, "");
    }
    xn_pools_wake_all_locked(pools);
    pthread_cond_broadcast(&engine->canary.wake);
    if (engine->services.metrics)
        xn_pools_show_ready_locked(pools);
    xn_lock_drop(&engine->lock);
}

void xn_engine_drain(xn_engine *engine) {
    stop_taking(engine, false);
}

bool xn_engine_wait_idle(xn_engine *engine, int64_t deadline_ns) {
    return xn_admission_wait_idle(engine->services.admission, deadline_ns) &&
           xn_canary_wait_idle(&engine->canary, deadline_ns);
}

void xn_engine_stop(xn_engine *engine) {
    stop_taking(engine, true);
    xn_callers_stop(&engine->callers);
    for (int i = 0; i < engine->worker_count; i++)
        xn_loop_join(&engine->workers[i].loop);
    xn_loop_join(&engine->canary.loop);
    xn_endings_close(&engine->endings);
}

void xn_engine_free(xn_engine *engine) {
    if (!engine)
        return;
    const xn_services *services = &engine->services;
    xn_engine_stop(engine);
    for (int i = 0; i < engine->worker_count; i++)
        xn_runner_destroy(&engine->workers[i].runner);
    xn_callers_destroy(&engine->callers);
    xn_buffers_free(services->buffers);
    xn_store_free(services->store);
    xn_cache_free(services->answers);
    xn_admission_free(services->admission);
    if (services->metrics)
        xn_metrics_free(services->metrics);
    xn_pools_destroy(&engine->pools);
    xn_canary_destroy(&engine->canary);
    xn_endings_destroy(&engine->endings);
    xn_lock_destroy(&engine->lock);
    xn_mem_free(engine->workers);
    xn_mem_free(engine);
}

/* ---- jobs ---- */

bool xn_engine_try_run(xn_engine *engine, xn_job *job) {
    return xn_callers_try_run(&engine->callers, job);
}

/* *wake: the pool that is to have a worker woken, once the lock is given up, or NULL. */
static xn_status submit_locked(xn_engine *engine, xn_job *job, xn_pool **wake, xn_error *error) {
    const xn_pools *pools = &engine->pools;
    if (pools->stopping)
        return xn_fail(error, XN_ERR_DRAINING, NULL, "the service is shutting down");
    if (job->any_pool && !pools->each[job->pool].devices_up)
        job->pool = atomic_load(&pools->primary);
    xn_pool *pool = &pools->each[job->pool];
    if (!pool->devices_up)
        return xn_fail(error, XN_ERR_DEVICE_LOST, "backend", "backend %s has lost its devices",
                       pool->backend->name);
    job->submitted_ns = xn_now_ns(); /* under the lock, so that the queue is in order */
    xn_status status = xn_queue_push(pool->queue, job, error);
    if (status != XN_OK)
        return status;
    job->state = XN_JOB_QUEUED;
    xn_endings_watch_locked(&engine->endings, job);
    xn_metrics_gauge_add(engine->services.metrics, XN_GAUGE_QUEUE_DEPTH, 1);
    *wake = xn_pools_want_worker_locked(pools, pool, job->submitted_ns) ? pool : NULL;
    return XN_OK;
}

xn_status xn_engine_submit(xn_engine *engine, xn_job *job, xn_error *error) {
    assert(job->pool >= 0 && job->pool < engine->pools.count && job->images >= 1);
    xn_pool *wake = NULL;
    if (job->caller) {
        xn_callers_hand_over(&engine->callers, job);
        return XN_OK;
    }
    xn_lock_take(&engine->lock);
    xn_status status = submit_locked(engine, job, &wake, error);
    xn_lock_drop(&engine->lock);
    if (wake)
        pthread_cond_signal(&wake->work);
    return status;
}

void xn_engine_cancel(xn_engine *engine, xn_job *job, xn_status status) {
    xn_lock_take(&engine->lock);
    cancel_locked(engine, job, status);
    xn_lock_drop(&engine->lock);
}

void xn_engine_on_fatal(xn_engine *engine, void (*callback)(void *context), void *context) {
    xn_endings_on_fatal(&engine->endings, callback, context);
}
