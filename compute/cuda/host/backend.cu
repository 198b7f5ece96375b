/* backend.cu: the table of the CUDA backend. */
#include "xn_cuda.h"

const xn_backend xn_backend_cuda = {
    "cuda",
    (1u << XN_STEP_KIND_COUNT) - 1, /* kinds: all */
    xn_cuda_device_count,
    xn_cuda_device_open,
    NULL, /* device_configure: nothing to choose */
    xn_cuda_device_close,
    xn_cuda_device_info,
    xn_cuda_device_canary,
    xn_cuda_host_alloc,
    xn_cuda_host_free,
    xn_cuda_weights_prepare,
    xn_cuda_weights_free,
    xn_cuda_stream_create,
    xn_cuda_stream_free,
    NULL, /* stream_set_threads: nothing to set */
    xn_cuda_plan_create,
    xn_cuda_plan_free,
    xn_cuda_device_path,
    xn_cuda_plan_path,
    xn_cuda_precision,
    xn_cuda_weights_ready,
    xn_cuda_arena_reserve,
    xn_cuda_arena,
    false, /* in_place */
    xn_cuda_begin,
    xn_cuda_enqueue_step,
    xn_cuda_end,
    xn_cuda_abandon,
    xn_cuda_plan_cost_ns,
    true, /* parts */
    xn_cuda_enqueue_all,
    xn_cuda_recordings_free,
};
