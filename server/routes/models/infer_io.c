/* infer_io.c: see infer_io.h. */
#include "infer_io.h"

#include <string.h>

/* ---- the input ---- */

static xn_status refuse_shape(const xn_oip_input *input, const xn_served_model *model,
                              const char *why, xn_error *error) {
    xn_shape batch = {.rank = model->input->shape.rank + 1, .dims = {-1}};
    char got[160], wanted[160];
    memcpy(batch.dims + 1, model->input->shape.dims,
           (size_t)model->input->shape.rank * sizeof *batch.dims);
    xn_shape_format(&input->tensor.shape, got, sizeof got);
    xn_shape_format(&batch, wanted, sizeof wanted);
    return xn_fail(error, XN_ERR_GEOMETRY, input->name,
                   "input \"%.60s\" has shape %s; it must be %s%s", input->name, got, wanted, why);
}

static xn_status check_batch(const xn_oip_input *input, const xn_served_model *model,
                             int64_t images, xn_error *error) {
    if (images <= model->max_batch_size)
        return XN_OK;
    return xn_fail(error, XN_ERR_GEOMETRY, input->name,
                   "input \"%.60s\" has a batch of %lld; the model takes at most %lld", input->name,
                   (long long)images, (long long)model->max_batch_size);
}

static xn_status check_shape(const xn_oip_input *input, const xn_served_model *model,
                             xn_error *error) {
    const xn_shape *shape = &input->tensor.shape, *image = &model->input->shape;
    const size_t image_bytes = (size_t)image->rank * sizeof *image->dims;
    if (shape->rank == image->rank && !memcmp(shape->dims, image->dims, image_bytes))
        return refuse_shape(input, model, ": the first dimension is the batch", error);
    if (shape->rank != image->rank + 1 || memcmp(shape->dims + 1, image->dims, image_bytes) != 0)
        return refuse_shape(input, model, "", error);
    return check_batch(input, model, shape->dims[0], error);
}

static xn_status check_datatype(const xn_oip_input *input, const xn_served_model *model,
                                xn_error *error) {
    if (input->tensor.datatype == model->input->datatype)
        return XN_OK;
    return xn_fail(error, XN_ERR_MALFORMED, input->name,
                   "input \"%.60s\" has datatype %s; the model takes %s", input->name,
                   xn_datatype_name(input->tensor.datatype),
                   xn_datatype_name(model->input->datatype));
}

/* Encoded pictures: [n] or [n, 1] of them. */
static xn_status check_pictures(const xn_oip_input *input, const xn_served_model *model,
                                xn_error *error) {
    const xn_shape *shape = &input->tensor.shape;
    char got[160];
    if (!model->network || !model->network->picture.channels)
        return xn_fail(error, XN_ERR_MALFORMED, input->name,
                       "input \"%.60s\" is a picture; \"%s\" takes %s", input->name, model->name,
                       model->network ? "other values: height, width and 1 or 3 channels are needed"
                                      : "tensors");
    xn_shape_format(shape, got, sizeof got);
    if (!input->raw && shape->rank != 1 && (shape->rank != 2 || shape->dims[1] != 1))
        return xn_fail(error, XN_ERR_GEOMETRY, input->name,
                       "input \"%.60s\" of BYTES has shape %s; it must be [n] or [n, 1], of n "
                       "pictures",
                       input->name, got);
    return check_batch(input, model, input->tensor.elements, error);
}

/* A raw binary body: the values of one image and nothing else. */
static xn_status describe_raw(xn_oip_input *input, const xn_served_model *model, xn_error *error) {
    const xn_model_end *end = model->input;
    xn_tensor_ref *tensor = &input->tensor;
    const size_t bytes = (size_t)end->elements * xn_datatype_bytes(end->datatype);
    if (!model->network)
        return xn_fail(error, XN_ERR_MALFORMED, "input",
                       "the body is raw; the shape of an input of \"%s\" must be said",
                       model->name);
    if (tensor->bytes != bytes)
        return xn_fail(error, XN_ERR_MALFORMED, "input",
                       "the body is raw, of %zu bytes; an image of \"%s\" has %zu", tensor->bytes,
                       model->name, bytes);
    input->name = end->name;
    tensor->datatype = end->datatype;
    tensor->elements = end->elements;
    tensor->shape = (xn_shape){.rank = end->shape.rank + 1, .dims = {1}};
    memcpy(tensor->shape.dims + 1, end->shape.dims,
           (size_t)end->shape.rank * sizeof *end->shape.dims);
    return XN_OK;
}

static xn_status check_shared(const xn_infer_io *io, const xn_service *service,
                              const xn_oip_shared *range, const char *name, size_t bytes,
                              xn_error *error) {
    if (!range->present)
        return XN_OK;
    if (!service->shared)
        return xn_fail(error, XN_ERR_UNSUPPORTED, name,
                       "\"%.60s\" is to be in shared memory, which clients may not register here; "
                       "--allow-client-shm allows it",
                       name);
    return xn_shared_memory_check(service->shared, io->owner, range, name, bytes, error);
}

static xn_status find_input(xn_infer_io *io, const xn_served_model *model, xn_error *error) {
    xn_infer_request *parsed = &io->parsed;
    xn_oip_input *input = &parsed->inputs[0];
    io->input = input;
    input->tensor.packed_channels = model->network ? model->network->packed_channels : 0;
    if (parsed->input_count != 1)
        return xn_fail(error, XN_ERR_MALFORMED, "inputs",
                       "inputs has %d tensors; \"%s\" takes one, \"%.60s\"", parsed->input_count,
                       model->name, model->input->name);
    if (input->raw && input->pictures)
        input->name = model->input->name;
    else if (input->raw)
        return describe_raw(input, model, error);
    if (strcmp(input->name, model->input->name) != 0)
        return xn_fail(error, XN_ERR_MALFORMED, "inputs",
                       "there is no input \"%.60s\"; that of \"%s\" is \"%.60s\"", input->name,
                       model->name, model->input->name);
    return XN_OK;
}

/* ---- what is computed ---- */

static xn_status check_limits(const xn_infer_io *io, const xn_problem *problem,
                              const xn_config *config, xn_error *error) {
    int64_t images = io->images, operations, bytes;
    if (!xn_mul_i64(images, xn_problem_operations(problem), &operations) ||
        operations > config->max_operations)
        return xn_fail_limit(error, "max-operations", io->input->name,
                             "%lld images need more than %lld multiply-adds; send fewer at once",
                             (long long)images, (long long)config->max_operations);
    if (!xn_mul_i64(images, (int64_t)xn_problem_output_bytes(problem), &bytes) ||
        bytes > config->max_output_bytes)
        return xn_fail_limit(error, "max-output-bytes", io->input->name,
                             "the outputs of %lld images are more than %lld bytes; send fewer at "
                             "once",
                             (long long)images, (long long)config->max_output_bytes);
    return XN_OK;
}

static xn_status resolve_network(xn_infer_io *io, const xn_served_model *model,
                                 const xn_config *config, xn_problem *problem, xn_error *error) {
    const xn_oip_input *input = io->input;
    xn_status status;
    if (io->parsed.conv_given)
        return xn_fail(
            error, XN_ERR_MALFORMED, "parameters",
            "parameters of a convolution are for registered weights; \"%s\" is a network",
            model->name);
    if (input->pictures)
        status = check_pictures(input, model, error);
    else if (!(status = check_datatype(input, model, error)))
        status = check_shape(input, model, error);
    if (status)
        return status;
    io->images = input->pictures ? input->tensor.elements : input->tensor.shape.dims[0];
    *problem = model->network->problem;
    return check_limits(io, problem, config, error);
}

static xn_status resolve_weights(xn_infer_io *io, const xn_served_model *model,
                                 const xn_config *config, xn_problem *problem, xn_error *error) {
    const xn_conv_limits limits = {config->max_elements, config->max_output_bytes,
                                   config->max_operations};
    const xn_oip_input *input = io->input;
    xn_weights_shape shape;
    xn_conv conv;
    if (input->pictures)
        return check_pictures(input, model, error);
    xn_weights_shape_of(xn_asset_weights(model->weights), &shape);
    xn_status status =
        xn_conv_resolve(&io->parsed.conv, input->tensor.datatype, &input->tensor.shape, &shape,
                        &limits, &conv, &io->images, error);
    if (!status)
        status = check_batch(input, model, io->images, error);
    if (!status)
        xn_problem_of_conv(&conv, problem);
    return status;
}

/* ---- the outputs ---- */

/* The shape of a batch's values, and where they are in the output of an image. */
static void describe_output(const xn_infer_io *io, const xn_served_model *model, int index,
                            const xn_problem *problem, xn_oip_result *out, size_t *offset) {
    const xn_model_end *end = &model->outputs[index];
    *out = (xn_oip_result){.name = end->name,
                           .datatype = end->datatype,
                           .labels = end->labels,
                           .label_count = end->label_count,
                           .longest_label = end->longest_label,
                           .ranked = model->network && xn_model_end_is_positions(end)};
    *offset = 0;
    if (model->network) {
        for (int i = 0; i < index; i++)
            *offset += (size_t)model->outputs[i].elements * sizeof(float);
        out->shape.rank = end->shape.rank + 1;
        memcpy(out->shape.dims + 1, end->shape.dims,
               (size_t)end->shape.rank * sizeof *end->shape.dims);
        out->bytes = (size_t)(io->images * end->elements) * sizeof(float);
    } else {
        const xn_conv *conv = &problem->conv;
        out->datatype = (xn_datatype)conv->epilogue.datatype;
        out->shape = (xn_shape){4, {0, conv->out_channels, conv->out_height, conv->out_width}};
        out->bytes = (size_t)io->images * xn_problem_output_bytes(problem);
    }
    out->shape.dims[0] = io->images;
}

static xn_status apply_wish(const xn_infer_io *io, const xn_service *service,
                            const xn_oip_output *wish, xn_oip_result *result, xn_error *error) {
    result->binary = wish->binary;
    result->classification = wish->classification;
    result->shared = wish->shared.present ? &wish->shared : NULL;
    if (result->classification && result->shared)
        return xn_fail(error, XN_ERR_UNSUPPORTED, wish->name,
                       "output \"%.60s\" is to be classified and in shared memory; ask for one of "
                       "them",
                       wish->name);
    return check_shared(io, service, &wish->shared, wish->name, result->bytes, error);
}

static xn_status check_bits(const xn_oip_result *result, xn_error *error) {
    if (result->datatype != XN_BITS ||
        (!result->classification && (result->binary || result->shared)))
        return XN_OK;
    return xn_fail(error, XN_ERR_MALFORMED, "output_datatype",
                   "output_datatype is BITS, whose values are packed bytes: neither JSON nor "
                   "classes; ask for binary data");
}

/* A picture as the body has no place for parameters: it is answered with labels, if there are any.
 */
static int64_t default_classes(const xn_infer_io *io, const xn_oip_result *result) {
    enum { BEST = 5 };
    const bool labels = io->input->raw && io->input->pictures && result->labels;
    if (io->classes >= 0 && (io->classes || !io->lines))
        return io->classes;
    return labels || io->lines ? BEST : 0;
}

/* The values of a top_k stand beside its positions where those are classified. */
static bool is_beside_positions(const xn_served_model *model, int index) {
    return model->network && index + 1 < model->output_count &&
           xn_model_end_is_positions(&model->outputs[index + 1]);
}

static xn_status refuse_classes(const xn_served_model *model, int index, xn_error *error) {
    const char *name = model->outputs[index].name;
    return xn_fail(error, XN_ERR_MALFORMED, name,
                   "output \"%.60s\" is the values of a top_k and has no classes; ask for those of "
                   "\"%.60s\"",
                   name, model->outputs[index + 1].name);
}

static xn_status check_lines(const xn_infer_io *io, const xn_oip_result *result, xn_error *error) {
    if (!io->lines || !result->shared)
        return XN_OK;
    return xn_fail(error, XN_ERR_MALFORMED, result->name,
                   "output \"%.60s\" is to be in shared memory, and Accept asks for text/plain; "
                   "ask for one of them",
                   result->name);
}

static xn_status add_result(xn_infer_io *io, const xn_served_model *model,
                            const xn_service *service, const xn_problem *problem, int index,
                            const xn_oip_output *wish, xn_error *error) {
    xn_oip_result *result = &io->results[io->result_count];
    xn_status status = XN_OK;
    describe_output(io, model, index, problem, result, &io->offsets[io->result_count]);
    io->result_count++;
    if (wish)
        status = apply_wish(io, service, wish, result, error);
    else
        result->binary = io->parsed.binary;
    if (!status && is_beside_positions(model, index) && (result->classification || io->lines))
        return refuse_classes(model, index, error);
    if (!result->classification && !result->shared && !is_beside_positions(model, index))
        result->classification = default_classes(io, result);
    if (!status)
        status = check_lines(io, result, error);
    return status ? status : check_bits(result, error);
}

static int find_output(const xn_served_model *model, const char *name) {
    int i = 0;
    while (i < model->output_count && strcmp(model->outputs[i].name, name) != 0)
        i++;
    return i;
}

static xn_status take_results(xn_infer_io *io, int count, const xn_oip_memory *memory,
                              xn_error *error) {
    const size_t results = (size_t)count * sizeof *io->results;
    void *block = NULL;
    xn_status status =
        memory->take(memory->context, results + (size_t)count * sizeof *io->offsets, &block, error);
    if (status)
        return status;
    io->results = block;
    io->offsets = (size_t *)(void *)((char *)block + results);
    return XN_OK;
}

static xn_status add_results(xn_infer_io *io, const xn_served_model *model,
                             const xn_service *service, const xn_oip_memory *memory,
                             const xn_problem *problem, xn_error *error) {
    const xn_infer_request *parsed = &io->parsed;
    const int count = parsed->output_count ? parsed->output_count : model->output_count;
    xn_status status = take_results(io, count, memory, error);
    for (int i = 0; i < model->output_count && !parsed->output_count && !status; i++)
        if (!io->lines || !is_beside_positions(model, i))
            status = add_result(io, model, service, problem, i, NULL, error);
    for (int i = 0; i < parsed->output_count && !status; i++) {
        const xn_oip_output *wish = &parsed->outputs[i];
        int index = find_output(model, wish->name);
        if (index == model->output_count)
            return xn_fail(error, XN_ERR_MALFORMED, "outputs",
                           "there is no output \"%.60s\"; the first of \"%s\" is \"%.60s\"",
                           wish->name, model->name, model->outputs[0].name);
        status = add_result(io, model, service, problem, index, wish, error);
    }
    return status;
}

xn_status xn_infer_io_resolve(xn_infer_io *io, const xn_served_model *model,
                              const xn_service *service, const xn_oip_memory *memory,
                              xn_problem *problem, xn_error *error) {
    xn_status (*resolve)(xn_infer_io *, const xn_served_model *, const xn_config *, xn_problem *,
                         xn_error *) = model->network ? resolve_network : resolve_weights;
    io->result_count = 0;
    xn_status status = find_input(io, model, error);
    if (status || (status = resolve(io, model, service->config, problem, error)))
        return status;
    const xn_oip_input *input = io->input;
    status = check_shared(io, service, &input->shared, input->name, input->tensor.bytes, error);
    if (status || (status = add_results(io, model, service, memory, problem, error)))
        return status;
    io->image_bytes = xn_problem_output_bytes(problem);
    io->scattered = model->output_count > 1 && io->images > 1;
    return XN_OK;
}

/* ---- values ---- */

size_t xn_infer_io_gather_bytes(const xn_infer_io *io) {
    size_t bytes = 0;
    for (int i = 0; i < io->result_count && io->scattered; i++)
        bytes += io->results[i].bytes;
    return bytes;
}

void xn_infer_io_set_values(xn_infer_io *io, const unsigned char *output, unsigned char *room) {
    for (int i = 0; i < io->result_count; i++) {
        xn_oip_result *result = &io->results[i];
        const unsigned char *from = output + io->offsets[i];
        if (result->ranked) { /* those of an image are in front of its positions */
            result->scores = (const char *)from - result->bytes / (size_t)io->images;
            result->scores_pitch = io->image_bytes;
        }
        result->values = io->scattered ? room : from;
        if (!io->scattered)
            continue;
        const size_t part = result->bytes / (size_t)io->images;
        for (int64_t n = 0; n < io->images; n++, room += part)
            memcpy(room, from + (size_t)n * io->image_bytes, part);
    }
}
