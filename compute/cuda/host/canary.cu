/* canary.cu: a 2x2 filter over a 3x3 image, with stream, plan and pinned memory of its own, so
 * that a health check asks the device the way a worker does, and waits for none of them.
 *
 *   image   1  2 -3     filter   1 -1     signs  + -     alpha = (1 + 1 + 3 + 3) / 4 = 2
 *           4 -5  6             -3  3            - +
 *          -7  8  9
 *   dot    -2  4        K        3  4     out = dot * alpha * K
 *           4 -2                 6  7 */
#include "xn_cuda.h"
#include "xn_program.h"

#include <math.h>
#include <string.h>

static const float image[9] = {1, 2, -3, 4, -5, 6, -7, 8, 9};
static const float filter[4] = {1, -1, -3, 3};
static const float expected[4] = {-12, 32, 48, -28};

struct xn_canary {
    pthread_mutex_t lock; /* guards the stream, the program and the buffer */
    xn_device *device;
    xn_stream *stream;
    xn_program *program;
    xn_weights *weights; /* what the next one is made of */
    xn_prepared *prepared;
    float *buffer; /* pinned: the image, then the output */
};

static xn_status prepare_filter(xn_canary *canary, xn_weights_shape *shape, xn_error *error) {
    xn_tensor tensor = {};
    tensor.datatype = XN_FP32;
    tensor.shape = {4, {1, 1, 2, 2}};
    tensor.elements = 4;
    tensor.bytes = sizeof filter;
    tensor.data = filter;
    xn_status status = xn_weights_create(&tensor, NULL, NULL, &canary->weights, error);
    if (status)
        return status;
    xn_weights_shape_of(canary->weights, shape);
    return xn_cuda_weights_prepare(canary->device, canary->weights, &canary->prepared, error);
}

static xn_status make_plan(xn_canary *canary, const xn_weights_shape *shape, xn_error *error) {
    const xn_conv_limits limits = {64, 64, 64};
    const xn_shape input = {4, {1, 1, 3, 3}};
    const xn_stream_options options = {};
    xn_conv_params params;
    xn_conv conv;
    xn_problem problem;
    int64_t images;
    xn_conv_params_default(&params);
    xn_status status =
        xn_conv_resolve(&params, XN_FP32, &input, shape, &limits, &conv, &images, error);
    if (status == XN_OK)
        xn_problem_of_conv(&conv, &problem);
    if (status == XN_OK)
        status = xn_cuda_stream_create(canary->device, &options, &canary->stream, error);
    if (status == XN_OK)
        status = xn_program_create(&xn_backend_cuda, canary->stream, &problem, 1, &canary->program,
                                   error);
    const xn_prepared *const weights[] = {canary->prepared};
    if (status == XN_OK)
        status = xn_program_ready(canary->program, weights, error);
    return status;
}

xn_status xn_cuda_canary_create(xn_device *device, xn_canary **out, xn_error *error) {
    xn_weights_shape shape;
    xn_canary *canary = (xn_canary *)xn_mem_zalloc(1, sizeof *canary);
    if (!canary)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a health check");
    canary->device = device;
    xn_status status = XN_OK;
    (void)pthread_mutex_init(&canary->lock, NULL); /* cannot fail without attributes */
    canary->buffer = (float *)xn_cuda_host_alloc(device, sizeof image + sizeof expected);
    if (!canary->buffer)
        status = xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no pinned memory for a health check");
    if (status == XN_OK)
        status = prepare_filter(canary, &shape, error);
    if (status == XN_OK)
        status = make_plan(canary, &shape, error);
    if (status) {
        xn_cuda_canary_free(canary);
        return status;
    }
    memcpy(canary->buffer, image, sizeof image);
    *out = canary;
    return XN_OK;
}

void xn_cuda_canary_free(xn_canary *canary) {
    if (!canary)
        return;
    xn_program_free(canary->program);
    xn_cuda_stream_free(canary->stream);
    xn_cuda_weights_free(canary->prepared);
    xn_weights_free(canary->weights);
    xn_cuda_host_free(canary->device, canary->buffer);
    pthread_mutex_destroy(&canary->lock);
    xn_mem_free(canary);
}

static xn_status run_locked(xn_canary *canary, xn_error *error) {
    float *output = canary->buffer + 9;
    const xn_batch_item item = {canary->buffer, output, 1};
    xn_run_times times;
    for (int i = 0; i < 4; i++)
        output[i] = NAN;
    const xn_prepared *const weights[] = {canary->prepared};
    xn_status status = xn_program_run(canary->program, weights, &item, 1, &times, error);
    for (int i = 0; i < 4 && status == XN_OK; i++)
        if (output[i] != expected[i])
            status = xn_fail(error, XN_ERR_DEVICE_LOST, NULL,
                             "GPU %d computes wrong results: %g instead of %g in a known problem",
                             canary->device->ordinal, (double)output[i], (double)expected[i]);
    return status;
}

xn_status xn_cuda_device_canary(xn_device *device, xn_error *error) {
    pthread_mutex_lock(&device->canary->lock);
    xn_status status = run_locked(device->canary, error);
    pthread_mutex_unlock(&device->canary->lock);
    return status;
}
