/* ref_canary.c: one small convolution with a known answer. */
#include "ref.h"

#include "xn_program.h"

/* A 3x3 checkerboard of signs under a 2x2 one: each dot is 4 or -4, alpha is 0.5, and K the mean
 * of four magnitudes. */
static xn_status run_canary(const xn_backend *ref, xn_device *device, const xn_conv *conv,
                            const xn_weights *weights, const float *input, float *output,
                            xn_error *error) {
    xn_prepared *prepared = NULL;
    xn_stream *stream = NULL;
    xn_program *program = NULL;
    xn_problem problem;
    xn_stream_options options = {0};
    xn_batch_item item = {.input = input, .output = output, .images = 1};
    xn_problem_of_conv(conv, &problem);
    xn_status status = ref->weights_prepare(device, weights, &prepared, error);
    if (!status)
        status = ref->stream_create(device, &options, &stream, error);
    if (!status)
        status = xn_program_create(ref, stream, &problem, 1, &program, error);
    if (!status)
        status = xn_program_run(program, (const xn_prepared *[]){prepared}, &item, 1, NULL, error);
    xn_program_free(program);
    ref->stream_free(stream);
    ref->weights_free(prepared);
    return status;
}

xn_status xn_ref_canary(const xn_backend *backend, xn_device *device, xn_error *error) {
    static const float input[9] = {1, -2, 3, -4, 5, -6, 7, -8, 9};
    static const float kernel[4] = {0.5f, -0.5f, -0.5f, 0.5f};
    static const float expected[4] = {6, -8, -12, 14};
    float output[4] = {0};
    xn_tensor tensor = {XN_FP32, {4, {1, 1, 2, 2}}, 4, sizeof kernel, kernel};
    xn_shape shape = {4, {1, 1, 3, 3}};
    xn_conv_limits limits = {INT32_MAX, INT32_MAX, INT32_MAX};
    xn_conv_params params;
    xn_weights_shape weights_shape;
    xn_weights *weights = NULL;
    xn_conv conv;
    int64_t images;
    xn_status status = xn_weights_create(&tensor, NULL, NULL, &weights, error);
    if (status)
        return status;
    xn_conv_params_default(&params);
    xn_weights_shape_of(weights, &weights_shape);
    status =
        xn_conv_resolve(&params, XN_FP32, &shape, &weights_shape, &limits, &conv, &images, error);
    if (!status)
        status = run_canary(backend, device, &conv, weights, input, output, error);
    xn_weights_free(weights);
    if (status)
        return status;
    for (int i = 0; i < 4; i++)
        if (output[i] != expected[i])
            return xn_fail(error, XN_ERR_INTERNAL, NULL, "canary output[%d] is %g; expected %g", i,
                           (double)output[i], (double)expected[i]);
    return XN_OK;
}
