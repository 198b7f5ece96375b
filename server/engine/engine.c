/* engine.c: the engine as others see it: creating and ending it, handing jobs over, its health.
 * engine_internal.h says which file does what, and which lock guards what. */
#include "engine_internal.h"

#include "clock.h"
#include "threads.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#ifndef XN_VERSION
#define XN_VERSION "unknown"
#endif

static xn_status no_memory(const char *what, xn_error *error) {
    return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the engine's %s", what);
}

/* ---- creation: each step leaves what it made where xn_engine_free finds it ---- */

static xn_status allocate(xn_engine *engine, const xn_pool_spec *specs, int pool_count,
                          xn_error *error) {
    int members = 0, workers = 0;
    for (int i = 0; i < pool_count; i++) {
        members += specs[i].ordinal_count;
        workers += specs[i].ordinal_count * (specs[i].workers + specs[i].callers);
    }
    engine->pools = xn_mem_zalloc((size_t)pool_count, sizeof *engine->pools);
    engine->members = xn_mem_zalloc((size_t)members, sizeof *engine->members);
    engine->workers = xn_mem_zalloc((size_t)workers, sizeof *engine->workers);
    if (!engine->pools || !engine->members || !engine->workers)
        return no_memory("pools", error);
    for (int p = 0; p < pool_count; p++) {
        engine->pools[p].backend = specs[p].backend;
        engine->pools[p].threads = engine->pools[p].threads_free = specs[p].threads;
        engine->pools[p].callers_max = specs[p].callers;
        xn_cond_init(&engine->pools[p].work);
        xn_cond_init(&engine->pools[p].quiet);
        engine->pool_count++;
    }
    return XN_OK;
}

static xn_status open_member(xn_engine *engine, const xn_config *config, int pool, int ordinal,
                             xn_error *error) {
    xn_member *member = &engine->members[engine->member_count];
    member->backend = engine->pools[pool].backend;
    member->pool = pool;
    xn_status status =
        xn_engine_open_device(config, member->backend, ordinal, &member->device, error);
    if (status != XN_OK)
        return status;
    engine->member_count++;
    engine->pools[pool].members_up++;
    member->up = true;
    member->backend->device_info(member->device, &member->info);
    xn_error why = {0};
    status = member->backend->device_canary(member->device, &why);
    if (status != XN_OK)
        return xn_fail(error, status, NULL, "%s fails its self-test: %s", member->info.id,
                       why.message);
    return XN_OK;
}

static xn_status open_members(xn_engine *engine, const xn_config *config, const xn_pool_spec *specs,
                              xn_error *error) {
    for (int p = 0; p < engine->pool_count; p++)
        for (int i = 0; i < specs[p].ordinal_count; i++) {
            xn_status status = open_member(engine, config, p, specs[p].ordinals[i], error);
            if (status != XN_OK)
                return status;
        }
    return XN_OK;
}

static void store_lost_device(void *context, int device, const xn_error *error) {
    xn_engine_lose_member(context, device, error);
}

static void store_network_gone(void *context) {
    xn_engine_drop_programs(context);
}

static xn_status create_metrics(xn_engine *engine, xn_error *error) {
    const char **ids = xn_mem_zalloc((size_t)engine->member_count, sizeof *ids);
    if (!ids)
        return no_memory("metrics", error);
    for (int i = 0; i < engine->member_count; i++)
        ids[i] = engine->members[i].info.id;
    xn_status status = xn_metrics_create(ids, engine->member_count, XN_VERSION,
                                         engine->pools[0].backend->name, &engine->metrics, error);
    xn_mem_free(ids);
    for (int i = 0; status == XN_OK && i < engine->member_count; i++) {
        xn_metrics_device_isa(engine->metrics, i, engine->members[i].info.instruction_set);
        xn_metrics_device_up(engine->metrics, i, 1);
    }
    return status;
}

static xn_status create_store(xn_engine *engine, const xn_config *config, xn_error *error) {
    xn_store_limits limits = {config->max_weights, config->max_weights_bytes,
                              config->weights_cache_bytes};
    xn_store_device *devices = xn_mem_zalloc((size_t)engine->member_count, sizeof *devices);
    if (!devices)
        return no_memory("store", error);
    for (int i = 0; i < engine->member_count; i++)
        devices[i] = (xn_store_device){engine->members[i].backend, engine->members[i].device};
    xn_status status = xn_store_create(devices, engine->member_count, &limits, engine->metrics,
                                       &engine->store, error);
    xn_mem_free(devices);
    if (status == XN_OK)
        xn_store_on_device_lost(engine->store, store_lost_device, engine);
    if (status == XN_OK)
        xn_store_on_network_gone(engine->store, store_network_gone, engine);
    return status;
}

/* A client's share, where the flag does not give one: so much that one alone is hardly held up, and
 * a part is left for all others. */
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
    return xn_admission_create(&limits, engine->metrics, &engine->admission, error);
}

static xn_status create_services(xn_engine *engine, const xn_config *config, xn_error *error) {
    xn_status status = create_metrics(engine, error);
    if (status == XN_OK)
        status = create_admission(engine, config, error);
    if (status == XN_OK)
        status = create_store(engine, config, error);
    if (status == XN_OK)
        status = xn_engine_create_responses(engine, config->response_cache_bytes, error);
    if (status == XN_OK)
        status = xn_engine_create_buffers(engine, (size_t)config->queue_bytes, error);
    xn_batch_policy policy = {config->max_batch_images, config->batch_delay_us * XN_NS_PER_US};
    for (int p = 0; status == XN_OK && p < engine->pool_count; p++)
        status = xn_queue_create(&policy, config->queue_depth, &engine->pools[p].queue, error);
    return status;
}

static xn_status create_worker(xn_engine *engine, int member, bool borrowed, xn_error *error) {
    xn_worker *worker = &engine->workers[engine->worker_count++];
    const xn_member *on = &engine->members[member];
    size_t most = borrowed ? 1 : (size_t)engine->max_batch_images;
    xn_stream_options options = {.threads = borrowed ? 1 : engine->pools[on->pool].threads,
                                 .most_scratch_bytes =
                                     xn_admission_programs_most(engine->admission)};
    worker->engine = engine;
    worker->member = member;
    worker->pool = on->pool;
    worker->borrowed = borrowed;
    worker->jobs = xn_mem_zalloc(most, sizeof *worker->jobs);
    worker->items = xn_mem_zalloc(most, sizeof *worker->items);
    if (!worker->jobs || !worker->items)
        return no_memory("batches", error);
    xn_status status = on->backend->stream_create(on->device, &options, &worker->stream, error);
    if (status != XN_OK)
        return status;
    return xn_programs_create(on->backend, worker->stream, XN_PROGRAMS_PER_WORKER,
                              engine->max_batch_images, engine->admission, engine->buffers,
                              &worker->programs, error);
}

static xn_status create_workers(xn_engine *engine, const xn_pool_spec *specs, xn_error *error) {
    for (int m = 0; m < engine->member_count; m++) {
        const xn_pool_spec *spec = &specs[engine->members[m].pool];
        for (int i = 0; i < spec->workers + spec->callers; i++) {
            bool borrowed = i >= spec->workers;
            xn_status status = create_worker(engine, m, borrowed, error);
            if (status != XN_OK)
                return status;
            if (borrowed)
                xn_inline_free_locked(&engine->workers[engine->worker_count - 1]);
        }
    }
    /* A run that is under way cannot fail for want of room among the deadlines. */
    return xn_deadlines_reserve(&engine->deadlines, (size_t)engine->worker_count, error);
}

static xn_status start_threads(xn_engine *engine, xn_error *error) {
    xn_status status =
        xn_thread_start(&engine->watcher, "xn-watcher", xn_watcher_main, engine, error);
    engine->watcher_started = status == XN_OK;
    if (status == XN_OK) {
        status = xn_thread_start(&engine->waiter, "xn-waiter", xn_waiter_main, engine, error);
        engine->waiter_started = status == XN_OK;
    }
    for (int i = 0; status == XN_OK && i < engine->worker_count; i++) {
        xn_worker *worker = &engine->workers[i];
        char name[16]; /* the most that Linux takes */
        if (worker->borrowed)
            continue;
        snprintf(name, sizeof name, "xn-w%d", i);
        status = xn_thread_start(&worker->thread, name, xn_worker_main, worker, error);
        worker->started = status == XN_OK;
    }
    if (status == XN_OK && engine->canary_interval_ns > 0) {
        status = xn_thread_start(&engine->canary, "xn-canary", xn_canary_main, engine, error);
        engine->canary_started = status == XN_OK;
    }
    return status;
}

xn_status xn_engine_create_with(const xn_config *config, const xn_pool_spec *specs, int pool_count,
                                const char *fallback_reason, xn_engine **out, xn_error *error) {
    xn_engine *engine = xn_mem_zalloc(1, sizeof *engine);
    if (!engine)
        return no_memory("state", error);
    engine->maker = pthread_self();
    xn_mutex_init_adaptive(&engine->mutex);
    xn_cond_init(&engine->watch);
    xn_cond_init(&engine->canary_stop);
    xn_cond_init(&engine->inline_done);
    xn_cond_init(&engine->waiter_work);
    xn_deadlines_init(&engine->deadlines);
    atomic_init(&engine->primary, 0);
    atomic_init(&engine->primary_memory_lost, false);
    engine->loss_policy = config->on_device_loss;
    engine->canary_interval_ns = config->canary_interval_ms * XN_NS_PER_MS;
    engine->max_batch_images = config->max_batch_images;
    /* Where requests wait for company, none is run alone. */
    engine->inline_ns = config->batch_delay_us ? 0 : (double)config->inline_us * 1e3;
    engine->watch_until_ns = INT64_MIN;
    snprintf(engine->fallback_reason, sizeof engine->fallback_reason, "%s", fallback_reason);

    xn_status status = allocate(engine, specs, pool_count, error);
    if (status == XN_OK)
        status = open_members(engine, config, specs, error);
    if (status == XN_OK)
        status = create_services(engine, config, error);
    if (status == XN_OK)
        status = create_workers(engine, specs, error);
    if (status == XN_OK)
        status = start_threads(engine, error);
    if (status != XN_OK) {
        xn_engine_free(engine);
        return status;
    }
    pthread_mutex_lock(&engine->mutex);
    xn_engine_show_ready_locked(engine);
    pthread_mutex_unlock(&engine->mutex);
    *out = engine;
    return XN_OK;
}

/* ---- ending ---- */

void xn_engine_drain(xn_engine *engine) {
    xn_admission_close(engine->admission, XN_ERR_DRAINING);
    pthread_mutex_lock(&engine->mutex);
    engine->draining = true;
    for (int p = 0; p < engine->pool_count; p++)
        pthread_cond_broadcast(&engine->pools[p].work); /* no group waits for company any more */
    pthread_cond_broadcast(&engine->canary_stop);
    xn_engine_show_ready_locked(engine);
    pthread_mutex_unlock(&engine->mutex);
}

static bool canary_runs_locked(const xn_engine *engine) {
    for (int i = 0; i < engine->member_count; i++)
        if (engine->members[i].canary_since_ns)
            return true;
    return false;
}

bool xn_engine_wait_idle(xn_engine *engine, int64_t deadline_ns) {
    const struct timespec until = xn_timespec(deadline_ns);
    if (!xn_admission_wait_idle(engine->admission, deadline_ns))
        return false;
    pthread_mutex_lock(&engine->mutex);
    while (canary_runs_locked(engine) && xn_now_ns() < deadline_ns)
        pthread_cond_timedwait(&engine->canary_stop, &engine->mutex, &until);
    const bool idle = !canary_runs_locked(engine);
    pthread_mutex_unlock(&engine->mutex);
    return idle;
}

static void stop_taking(xn_engine *engine) {
    pthread_mutex_lock(&engine->mutex);
    engine->draining = engine->stopping = true;
    for (int p = 0; p < engine->pool_count; p++) {
        xn_pool *pool = &engine->pools[p];
        xn_job *job;
        while (pool->queue && (job = xn_queue_oldest(pool->queue)))
            xn_engine_end_job_locked(engine, job, XN_ERR_DRAINING);
        pthread_cond_broadcast(&pool->work);
        pthread_cond_broadcast(&pool->quiet);
    }
    pthread_cond_broadcast(&engine->canary_stop);
    if (engine->metrics)
        xn_engine_show_ready_locked(engine);
    pthread_mutex_unlock(&engine->mutex);
}

static void stop_waiter(xn_engine *engine) {
    pthread_mutex_lock(&engine->mutex);
    engine->waiter_stop = true;
    pthread_cond_signal(&engine->waiter_work);
    pthread_mutex_unlock(&engine->mutex);
    if (engine->waiter_started)
        pthread_join(engine->waiter, NULL);
    engine->waiter_started = false;
}

void xn_engine_stop(xn_engine *engine) {
    if (engine->admission)
        xn_admission_close(engine->admission, XN_ERR_DRAINING);
    stop_taking(engine);
    xn_engine_await_inline(engine);
    stop_waiter(engine);
    for (int i = 0; i < engine->worker_count; i++)
        if (engine->workers[i].started)
            pthread_join(engine->workers[i].thread, NULL);
    for (int i = 0; i < engine->worker_count; i++)
        engine->workers[i].started = false;
    if (engine->canary_started)
        pthread_join(engine->canary, NULL);
    engine->canary_started = false;
    pthread_mutex_lock(&engine->mutex);
    engine->watcher_stop = true; /* it ends what is left to end first */
    pthread_cond_signal(&engine->watch);
    pthread_mutex_unlock(&engine->mutex);
    if (engine->watcher_started)
        pthread_join(engine->watcher, NULL);
    engine->watcher_started = false;
}

void xn_engine_free(xn_engine *engine) {
    if (!engine)
        return;
    xn_engine_stop(engine);
    for (int i = 0; i < engine->worker_count; i++) {
        xn_worker *worker = &engine->workers[i];
        xn_programs_free(worker->programs);
        engine->members[worker->member].backend->stream_free(worker->stream);
        xn_mem_free(worker->items);
        xn_mem_free(worker->jobs);
    }
    xn_buffers_free(engine->buffers);
    xn_store_free(engine->store);
    xn_cache_free(engine->responses);
    xn_admission_free(engine->admission);
    if (engine->metrics)
        xn_metrics_free(engine->metrics);
    for (int i = 0; i < engine->member_count; i++)
        engine->members[i].backend->device_close(engine->members[i].device);
    for (int p = 0; p < engine->pool_count; p++) {
        xn_queue_free(engine->pools[p].queue);
        pthread_cond_destroy(&engine->pools[p].quiet);
        pthread_cond_destroy(&engine->pools[p].work);
    }
    xn_deadlines_clear(&engine->deadlines);
    pthread_cond_destroy(&engine->waiter_work);
    pthread_cond_destroy(&engine->inline_done);
    pthread_cond_destroy(&engine->canary_stop);
    pthread_cond_destroy(&engine->watch);
    pthread_mutex_destroy(&engine->mutex);
    xn_mem_free(engine->workers);
    xn_mem_free(engine->members);
    xn_mem_free(engine->pools);
    xn_mem_free(engine);
}

/* ---- jobs ---- */

int xn_engine_retry_after(const xn_engine *engine) {
    return xn_admission_retry_after(engine->admission, xn_now_ns());
}

/* *wake: the pool that is to have a worker woken, once the lock is given up, or NULL. */
static xn_status submit_locked(xn_engine *engine, xn_job *job, xn_pool **wake, xn_error *error) {
    if (engine->stopping)
        return xn_fail(error, XN_ERR_DRAINING, NULL, "the service is shutting down");
    if (job->any_pool && !engine->pools[job->pool].members_up)
        job->pool = atomic_load(&engine->primary);
    xn_pool *pool = &engine->pools[job->pool];
    if (!pool->members_up)
        return xn_fail(error, XN_ERR_DEVICE_LOST, "backend", "backend %s has lost its devices",
                       pool->backend->name);
    job->submitted_ns = xn_now_ns(); /* under the lock, so that the queue is in order */
    xn_status status = xn_deadlines_add(&engine->deadlines, job, error);
    if (status != XN_OK)
        return status;
    status = xn_queue_push(pool->queue, job, error);
    if (status != XN_OK) {
        xn_deadlines_remove(&engine->deadlines, job);
        return status;
    }
    job->state = XN_JOB_QUEUED;
    xn_metrics_gauge_add(engine->metrics, XN_GAUGE_QUEUE_DEPTH, 1);
    if (job->deadline_ns < engine->watch_until_ns)
        pthread_cond_signal(&engine->watch);
    *wake = xn_pool_wants_worker_locked(engine, pool, job->submitted_ns) ? pool : NULL;
    return XN_OK;
}

xn_status xn_engine_submit(xn_engine *engine, xn_job *job, xn_error *error) {
    assert(job->pool >= 0 && job->pool < engine->pool_count && job->images >= 1);
    xn_pool *wake = NULL;
    if (job->caller) {
        xn_inline_hand_over(engine, job);
        return XN_OK;
    }
    pthread_mutex_lock(&engine->mutex);
    xn_status status = submit_locked(engine, job, &wake, error);
    pthread_mutex_unlock(&engine->mutex);
    if (wake)
        xn_pool_wake(wake);
    return status;
}

void xn_engine_cancel(xn_engine *engine, xn_job *job, xn_status status) {
    pthread_mutex_lock(&engine->mutex);
    if (job->state == XN_JOB_QUEUED)
        xn_engine_end_job_locked(engine, job, status);
    else
        atomic_store(&job->unwanted, (int)status);
    pthread_mutex_unlock(&engine->mutex);
}

void xn_engine_on_fatal(xn_engine *engine, void (*callback)(void *context), void *context) {
    pthread_mutex_lock(&engine->mutex);
    engine->on_fatal = callback;
    engine->on_fatal_context = context;
    pthread_cond_signal(&engine->watch);
    pthread_mutex_unlock(&engine->mutex);
}
