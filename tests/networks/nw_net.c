#include "nw_net.h"

#include "xn_backend.h"
#include "xn_program.h"

#include <stdarg.h>
#include <string.h>

const xn_conv_limits nw_limits = {1 << 26, 1 << 28, (int64_t)1 << 40};

nw_net *nw_create(int64_t channels, int64_t height, int64_t width) {
    nw_net *net = calloc(1, sizeof *net);
    ck_assert_ptr_nonnull(net);
    net->params = (xn_graph_params){.input_name = "input",
                                    .input_datatype = XN_FP32,
                                    .input_shape = {3, {channels, height, width}},
                                    .layers = net->layers,
                                    .outputs = net->outputs};
    return net;
}

void nw_free(nw_net *net) {
    for (int i = 0; i < net->block_count; i++)
        free(net->blocks[i]);
    free(net);
}

void *nw_take(nw_net *net, size_t bytes) {
    ck_assert_int_lt(net->block_count, NW_BLOCKS);
    void *block = calloc(1, bytes ? bytes : 1);
    ck_assert_ptr_nonnull(block);
    return net->blocks[net->block_count++] = block;
}

xn_layer *nw_add(nw_net *net, xn_op op, const char *name, const char *inputs) {
    ck_assert_int_lt(net->params.layer_count, NW_LAYERS);
    xn_layer *layer = &net->layers[net->params.layer_count++];
    xn_layer_default(op, name, layer);
    if (!inputs)
        return layer;
    char *copy = strcpy(nw_take(net, strlen(inputs) + 1), inputs), *rest = copy;
    layer->inputs = &net->names[net->name_count];
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        ck_assert_int_lt(net->name_count, NW_NAMES);
        net->names[net->name_count++] = word;
        layer->input_count++;
    }
    return layer;
}

void nw_output(nw_net *net, const char *name) {
    net->outputs[net->params.output_count++] = name;
}

static xn_tensor *new_tensor(nw_net *net, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
    const int64_t dims[4] = {d0, d1, d2, d3};
    ck_assert_int_lt(net->tensor_count, NW_TENSORS);
    xn_tensor *tensor = &net->tensors[net->tensor_count++];
    *tensor = (xn_tensor){.datatype = XN_FP32, .elements = 1};
    for (int i = 0; i < 4 && dims[i]; i++) {
        tensor->shape.dims[tensor->shape.rank++] = dims[i];
        tensor->elements *= dims[i];
    }
    tensor->bytes = (size_t)tensor->elements * sizeof(float);
    tensor->data = nw_take(net, tensor->bytes);
    return tensor;
}

const xn_tensor *nw_tensor(nw_net *net, const float *values, int64_t d0, int64_t d1, int64_t d2,
                           int64_t d3) {
    xn_tensor *tensor = new_tensor(net, d0, d1, d2, d3);
    memcpy((void *)tensor->data, values, tensor->bytes);
    return tensor;
}

const xn_tensor *nw_values(nw_net *net, int count, ...) {
    xn_tensor *tensor = new_tensor(net, count, 0, 0, 0);
    float *to = (float *)tensor->data;
    va_list args;
    va_start(args, count);
    for (int i = 0; i < count; i++)
        to[i] = (float)va_arg(args, double);
    va_end(args);
    return tensor;
}

const xn_tensor *nw_random(nw_net *net, xn_rng *rng, bool exact, int64_t d0, int64_t d1, int64_t d2,
                           int64_t d3) {
    xn_tensor *tensor = new_tensor(net, d0, d1, d2, d3);
    float *to = (float *)tensor->data;
    for (int64_t i = 0; i < tensor->elements; i++)
        to[i] = exact ? (float)((int)xn_rng_below(rng, 7) - 3) * 0.25f : xn_rng_float(rng);
    return tensor;
}

const xn_tensor *nw_random_scale(nw_net *net, xn_rng *rng, bool exact, int64_t count) {
    static const float powers[] = {0.5f, 1, 2, -0.5f, -1, 0};
    xn_tensor *tensor = new_tensor(net, count, 0, 0, 0);
    float *to = (float *)tensor->data;
    for (int64_t i = 0; i < tensor->elements; i++)
        to[i] = exact ? powers[xn_rng_below(rng, 6)] : 1.5f * xn_rng_float(rng);
    return tensor;
}

xn_graph *nw_graph(const nw_net *net) {
    xn_graph *graph = NULL;
    xn_error error = {0};
    xn_status status = xn_graph_create(&net->params, &nw_limits, &graph, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", error.field, error.message);
    return graph;
}

xn_network *nw_lower(const nw_net *net) {
    xn_graph *graph = nw_graph(net);
    xn_network *network = NULL;
    xn_error error = {0};
    xn_status status = xn_network_lower(graph, &network, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    xn_graph_free(graph);
    return network;
}

/* ---- running ---- */

/* Two items where there is more than one image: a batch of two requests. */
static void run_items(xn_program *program, const xn_prepared *const *prepared,
                      const xn_network *network, const char *input, char *output, int64_t images) {
    const size_t in = network->input_bytes, out = network->output_bytes;
    xn_batch_item items[2] = {{input, output, 1}, {input + in, output + out, images - 1}};
    xn_error error = {0};
    xn_status status = xn_program_run(program, prepared, items, images > 1 ? 2 : 1, NULL, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
}

/* ref as a backend that has memory of its own: inputs are copied to it, outputs from it. */
static xn_status staged_begin(xn_stream *stream, const xn_batch *batch, void *input,
                              xn_error *error) {
    char *to = input;
    for (size_t i = 0; i < batch->count; i++) {
        const size_t bytes = batch->input_bytes * (size_t)batch->items[i].images;
        memcpy(to, batch->items[i].input, bytes);
        to += bytes;
    }
    return xn_backend_find("ref")->begin(stream, batch, input, error);
}

static xn_status staged_end(xn_stream *stream, const xn_batch *batch, const void *output,
                            xn_run_times *times, xn_error *error) {
    const char *from = output;
    for (size_t i = 0; i < batch->count; i++) {
        const size_t bytes = batch->output_bytes * (size_t)batch->items[i].images;
        memcpy(batch->items[i].output, from, bytes);
        from += bytes;
    }
    return xn_backend_find("ref")->end(stream, batch, output, times, error);
}

static float *run_on(const xn_backend *backend, const xn_network *network, const void *input,
                     int64_t images) {
    xn_device *device;
    xn_stream *stream;
    xn_program *program = NULL;
    xn_error error = {0};
    xn_stream_options options = {0};
    const size_t weights = (size_t)network->weights_count;
    xn_prepared **prepared = calloc(weights + 1, sizeof *prepared);
    float *output = malloc(network->output_bytes * (size_t)images);
    xn_problem problem;
    ck_assert(prepared && output);
    ck_assert_int_eq(backend->device_open(0, &device, NULL), XN_OK);
    ck_assert_int_eq(backend->stream_create(device, &options, &stream, NULL), XN_OK);
    for (size_t i = 0; i < weights; i++)
        ck_assert_int_eq(backend->weights_prepare(device, network->weights[i], &prepared[i], NULL),
                         XN_OK);
    xn_problem_of_network(network, &problem);
    xn_status status = xn_program_create(backend, stream, &problem, images, &program, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    ck_assert_int_eq(xn_program_ready(program, (const xn_prepared *const *)prepared, NULL), XN_OK);
    run_items(program, (const xn_prepared *const *)prepared, network, input, (char *)output,
              images);
    xn_program_free(program);
    for (size_t i = 0; i < weights; i++)
        backend->weights_free(prepared[i]);
    backend->stream_free(stream);
    backend->device_close(device);
    free(prepared);
    return output;
}

float *nw_run(const xn_network *network, const void *input, int64_t images) {
    const xn_backend *ref = xn_backend_find("ref");
    xn_backend staged = *ref;
    staged.in_place = false;
    staged.begin = staged_begin;
    staged.end = staged_end;
    float *output = run_on(ref, network, input, images);
    float *again = run_on(&staged, network, input, images);
    ck_assert_mem_eq(again, output, network->output_bytes * (size_t)images);
    free(again);
    return output;
}
