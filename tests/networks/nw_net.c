#include "nw_net.h"

#include "xn_backend.h"
#include "xn_program.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

xn_shape nw_input_shape(const xn_graph_params *params) {
    const int64_t *d = params->input_shape.dims;
    const bool flat = params->input_shape.rank == 1;
    const bool nhwc = !flat && params->input_layout == XN_IMAGE_NHWC;
    const int64_t channels = params->packed_channels ? params->packed_channels : d[nhwc ? 2 : 0];
    if (flat)
        return (xn_shape){3, {channels, 1, 1}};
    return (xn_shape){3, {channels, d[nhwc ? 0 : 1], d[nhwc ? 1 : 2]}};
}

void nw_pack_input(nw_net *net) {
    xn_graph_params *p = &net->params;
    const xn_shape shape = nw_input_shape(p);
    const int64_t bytes = xn_bits_pixel_bytes(shape.dims[0]);
    p->input_shape = p->input_shape.rank == 1
                         ? (xn_shape){1, {bytes}}
                         : (xn_shape){3, {shape.dims[1], shape.dims[2], bytes}};
    p->input_layout = XN_IMAGE_NHWC;
    p->input_datatype = XN_UINT8;
    p->packed_channels = shape.dims[0];
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

/* ref as a backend that has memory of its own: inputs are copied to it, outputs from it; and that
 * wants no more than two images at a time. */
static int64_t staged_pass_images(const xn_stream *stream, size_t image_bytes) {
    (void)stream;
    ck_assert_uint_gt(image_bytes, 0);
    return 2;
}

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

static xn_prepared **prepare(const nw_subject *s, const xn_network *network) {
    const size_t count = (size_t)network->weights_count;
    xn_prepared **prepared = calloc(count + 1, sizeof *prepared);
    xn_error error = {0};
    ck_assert_ptr_nonnull(prepared);
    for (size_t i = 0; i < count; i++) {
        xn_status status =
            s->backend->weights_prepare(s->device, network->weights[i], &prepared[i], &error);
        ck_assert_msg(status == XN_OK, "%s: %s", s->name, error.message);
    }
    return prepared;
}

float *nw_run_on(const nw_subject *s, const xn_network *network, const void *input, int64_t images,
                 int64_t batch, int threads) {
    xn_program *program = NULL;
    xn_error error = {0};
    xn_problem problem;
    xn_prepared **prepared = prepare(s, network);
    const xn_prepared *const *weights = (const xn_prepared *const *)prepared;
    char *output = calloc((size_t)images, network->output_bytes);
    ck_assert_ptr_nonnull(output);
    if (s->backend->stream_set_threads)
        s->backend->stream_set_threads(s->stream, threads);
    xn_problem_of_network(network, &problem);
    xn_status status = xn_program_create(s->backend, s->stream, &problem, batch, &program, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", s->name, error.message);
    ck_assert_int_eq(xn_program_ready(program, weights, NULL), XN_OK);
    ck_assert_int_ge(xn_program_precision(program, weights), network->precision);
    for (int64_t n = 0; n < images; n += batch)
        run_items(program, weights, network, (const char *)input + (size_t)n * network->input_bytes,
                  output + (size_t)n * network->output_bytes,
                  images - n < batch ? images - n : batch);
    xn_program_free(program);
    for (int i = 0; i < network->weights_count; i++)
        s->backend->weights_free(prepared[i]);
    free(prepared);
    return (float *)(void *)output;
}

/* ---- subjects ---- */

enum { SUBJECTS = 16, THREADS = 3 };

static nw_subject subjects[SUBJECTS];
static int subject_count = -1;

/* False where the machine has not the set. */
static bool open_device(const xn_backend *backend, const char *set, nw_subject *s) {
    const xn_device_options options = {.instruction_set = set, .threads = THREADS};
    snprintf(s->name, sizeof s->name, "%s%s%s", backend->name, set ? "/" : "", set ? set : "");
    s->backend = backend;
    ck_assert_int_eq(backend->device_open(0, &s->device, NULL), XN_OK);
    if (backend->device_configure &&
        backend->device_configure(s->device, &options, NULL) != XN_OK) {
        backend->device_close(s->device);
        return false;
    }
    ck_assert_int_eq(backend->stream_create(s->device, &(xn_stream_options){.threads = THREADS},
                                            &s->stream, NULL),
                     XN_OK);
    return true;
}

static void open_subjects(void) {
    static const char *const sets[] = {NULL,   "amx",  "avx512-vpopcnt", "avx512",
                                       "avx2", "neon", "portable"};
    const xn_backend *const *all = xn_backend_all();
    subject_count = 0;
    for (int b = 0; all[b]; b++) {
        const bool has_all = all[b]->parts && all[b]->kinds == (1u << XN_STEP_KIND_COUNT) - 1;
        int devices = 0;
        if (!has_all || !strcmp(all[b]->name, "ref") ||
            all[b]->device_count(&devices, NULL) != XN_OK || !devices)
            continue;
        for (size_t i = 0; i < (all[b]->device_configure ? sizeof sets / sizeof *sets : 1); i++)
            subject_count += open_device(all[b], sets[i], &subjects[subject_count]);
    }
}

const nw_subject *nw_subject_at(int index) {
    if (subject_count < 0)
        open_subjects();
    return index < subject_count ? &subjects[index] : NULL;
}

static float *run_on_ref(const xn_backend *backend, const xn_network *network, const void *input,
                         int64_t images) {
    nw_subject s;
    ck_assert(open_device(backend, NULL, &s));
    float *output = nw_run_on(&s, network, input, images, images, 1);
    backend->stream_free(s.stream);
    backend->device_close(s.device);
    return output;
}

float *nw_run(const xn_network *network, const void *input, int64_t images) {
    const xn_backend *ref = xn_backend_find("ref");
    xn_backend staged = *ref;
    staged.in_place = false;
    staged.pass_images = staged_pass_images;
    staged.begin = staged_begin;
    staged.end = staged_end;
    float *output = run_on_ref(ref, network, input, images);
    float *again = run_on_ref(&staged, network, input, images);
    ck_assert_mem_eq(again, output, network->output_bytes * (size_t)images);
    free(again);
    return output;
}

/* ---- steps as one ---- */

uint64_t nw_chains(void) {
    const char *text = getenv("XNORD_TEST_CHAINS");
    return text ? strtoull(text, NULL, 10) : 60;
}

float *nw_images(nw_net *net, const xn_network *network, xn_rng *rng, int64_t images) {
    const size_t elements = (size_t)(images * network->input_elements);
    float *input = nw_take(net, elements * sizeof *input);
    for (size_t i = 0; i < elements; i++)
        input[i] = xn_rng_below(rng, 64) ? xn_rng_float(rng) * 20.0f : -0.0f;
    if (elements && xn_rng_below(rng, 4) == 0)
        input[xn_rng_below(rng, elements)] = NAN;
    return input;
}

void nw_expect_layers(const nw_subject *s, const nw_net *net, const xn_network *network,
                      uint64_t seed, const float *input, int64_t images, const float *want,
                      size_t want_each) {
    const int64_t *dims = net->params.input_shape.dims;
    const size_t each = network->output_bytes / sizeof *want;
    for (int64_t batch = images; batch > 0; batch = batch / 2) {
        float *got = nw_run_on(s, network, input, images, batch, 1);
        for (size_t i = 0; i < each * (size_t)images; i++) {
            const float *right = &want[i / each * want_each + i % each];
            ck_assert_msg(!memcmp(&got[i], right, sizeof *right),
                          "seed %" PRIu64 ", %dx%dx%d, %d steps, batches of %d: output %zu is %.9g,"
                          " layer by layer %.9g",
                          seed, (int)dims[0], (int)dims[1], (int)dims[2], network->step_count,
                          (int)batch, i, (double)got[i], (double)*right);
        }
        free(got);
    }
}

void nw_count_reads(const xn_network *network, int32_t reads[NW_READS]) {
    memset(reads, 0, NW_READS * sizeof *reads);
    for (int n = 0; n < network->step_count; n++) {
        const xn_step *s = &network->steps[n];
        reads[s->input]++;
        if (s->residual != XN_NO_TENSOR)
            reads[s->residual]++;
    }
}
