/* backend.cu: the table of the CUDA backend. */
#include "graphs.h"
#include "xn_cuda.h"

/* What is not named is NULL or false. */
static constexpr xn_backend table() {
    xn_backend b = {};
    b.name = "cuda";
    b.kinds = (1u << XN_STEP_KIND_COUNT) - 1;
    b.device_count = xn_cuda_device_count;
    b.device_open = xn_cuda_device_open;
    b.device_close = xn_cuda_device_close;
    b.device_info = xn_cuda_device_info;
    b.device_canary = xn_cuda_device_canary;
    b.host_alloc = xn_cuda_host_alloc;
    b.host_free = xn_cuda_host_free;
    b.host_register = xn_cuda_host_register;
    b.host_unregister = xn_cuda_host_unregister;
    b.weights_prepare = xn_cuda_weights_prepare;
    b.weights_free = xn_cuda_weights_free;
    b.stream_create = xn_cuda_stream_create;
    b.stream_free = xn_cuda_stream_free;
    b.plan_create = xn_cuda_plan_create;
    b.plan_free = xn_cuda_plan_free;
    b.device_path = xn_cuda_device_path;
    b.plan_path = xn_cuda_plan_path;
    b.precision = xn_cuda_precision;
    b.weights_ready = xn_cuda_weights_ready;
    b.arena_reserve = xn_cuda_arena_reserve;
    b.stream_trim = xn_cuda_stream_trim;
    b.arena = xn_cuda_arena;
    b.begin = xn_cuda_begin;
    b.enqueue = xn_cuda_enqueue_step;
    b.end = xn_cuda_end;
    b.abandon = xn_cuda_abandon;
    b.wait = xn_cuda_wait;
    b.plan_cost_ns = xn_cuda_plan_cost_ns;
    b.fuses = xn_cuda_fuses;
    b.parts = true;
    b.run = xn_cuda_run_batch;
    b.recordings_create = xn_cuda_recordings_create;
    b.recordings_free = xn_cuda_recordings_free;
    return b;
}

const xn_backend xn_backend_cuda = table();
