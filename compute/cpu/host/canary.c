/* canary.c: a known problem for each path of the device's instruction set, checked against results
 * worked out by hand. Runs on a stream of its own, so beside any other.
 *
 *        |  1 -2  3 |                   signs of the four windows agree with W in 4, 0, 0 and 4
 *    I = | -4  5 -6 |   W = |  1 -1 |   places, so dot = 4, -4, -4, 4; alpha = 1; K = 3, 4, 6, 7,
 *        |  7 -8  9 |       | -1  1 |   the windows' mean magnitudes
 *
 * The plain convolution gives the same numbers. The many-channel problem has two pixels of 40
 * channels, 30 of +1 and 10 of -1 in one, the opposite times 2 in the other, and weights of 0.5:
 * dot = 20 and -20, alpha = 0.5, K = 1 and 2. */
#include "canary.h"

#include "path.h"
#include "xn_program.h"

#include <stdio.h>

enum { MANY = 40, POSITIVE = 30 };

typedef struct known {
    const char *path;
    xn_mode mode;
    xn_shape input, weights;
    const float *input_data, *weights_data, *expected;
    int outputs;
} known;

static xn_status compare(const known *problem, const float *output, xn_error *error) {
    for (int n = 0; n < problem->outputs; n++)
        if (output[n] != problem->expected[n])
            return xn_fail(error, XN_ERR_INTERNAL, NULL,
                           "the cpu's known %s problem gave %g for element %d; it is %g",
                           problem->path, (double)output[n], n, (double)problem->expected[n]);
    return XN_OK;
}

static xn_status resolve(const known *problem, const xn_weights *weights, xn_conv *conv,
                         xn_error *error) {
    const xn_conv_limits none = {INT64_MAX, INT64_MAX, INT64_MAX};
    xn_conv_params params;
    xn_weights_shape shape;
    int64_t images;
    xn_conv_params_default(&params);
    params.mode = problem->mode;
    xn_weights_shape_of(weights, &shape);
    return xn_conv_resolve(&params, XN_FP32, &problem->input, &shape, &none, conv, &images, error);
}

static xn_status check(const xn_backend *cpu, xn_device *device, const known *problem,
                       xn_error *error) {
    float output[4] = {0};
    xn_weights *weights = NULL;
    xn_prepared *prepared = NULL;
    xn_stream *stream = NULL;
    xn_program *program = NULL;
    xn_problem whole;
    xn_conv conv;
    char way[48];
    const xn_stream_options options = {.path = way};
    xn_tensor tensor = {
        .datatype = XN_FP32, .shape = problem->weights, .data = problem->weights_data};
    snprintf(way, sizeof way, "%s/%s", problem->path, device->set->name);
    xn_status status = xn_shape_elements(&tensor.shape, XN_FP32, INT64_MAX, "weights",
                                         &tensor.elements, &tensor.bytes, error);
    if (!status)
        status = xn_weights_create(&tensor, NULL, NULL, &weights, error);
    if (!status)
        status = resolve(problem, weights, &conv, error);
    if (!status)
        xn_problem_of_conv(&conv, &whole);
    if (!status)
        status = cpu->weights_prepare(device, weights, &prepared, error);
    if (!status)
        status = cpu->stream_create(device, &options, &stream, error);
    if (!status)
        status = xn_program_create(cpu, stream, &whole, 1, &program, error);
    const xn_prepared *const all[] = {prepared};
    if (!status)
        status = xn_program_ready(program, all, error);
    if (!status) {
        xn_batch_item item = {.input = problem->input_data, .output = output, .images = 1};
        status = xn_program_run(program, all, &item, 1, NULL, error);
    }
    if (!status)
        status = compare(problem, output, error);
    xn_program_free(program);
    cpu->stream_free(stream);
    cpu->weights_free(prepared);
    xn_weights_free(weights);
    return status;
}

xn_status xn_cpu_canary(const xn_backend *backend, xn_device *device, xn_error *error) {
    static const float image[] = {1, -2, 3, -4, 5, -6, 7, -8, 9}, cross[] = {1, -1, -1, 1};
    static const float cross_expected[] = {12, -16, -24, 28}, many_expected[] = {10, -20};
    float many_image[MANY * 2], many_weights[MANY];
    for (int c = 0; c < MANY; c++) {
        many_image[c * 2] = c < POSITIVE ? 1.0f : -1.0f;
        many_image[c * 2 + 1] = c < POSITIVE ? -2.0f : 2.0f;
        many_weights[c] = 0.5f;
    }
    known cross_problem = {"lookup", XN_MODE_XNOR, {4, {1, 1, 3, 3}}, {4, {1, 1, 2, 2}},
                           image,    cross,        cross_expected,    4};
    const known many_problem = {
        "bitgemm",  XN_MODE_XNOR, {4, {1, MANY, 1, 2}}, {4, {1, MANY, 1, 1}},
        many_image, many_weights, many_expected,        2};
    xn_status status = check(backend, device, &cross_problem, error);
    if (!status)
        status = check(backend, device, &many_problem, error);
    cross_problem.path = "real";
    cross_problem.mode = XN_MODE_FLOAT;
    if (!status)
        status = check(backend, device, &cross_problem, error);
    cross_problem.path = "direct";
    if (!status)
        status = check(backend, device, &cross_problem, error);
    return status;
}
