/* served_model.c: see served_model.h. */
#include "served_model.h"

#include <string.h>

static const char weights_version[] = "1";

static void describe_network(const xn_model *model, xn_served_model *out) {
    out->name = model->name;
    out->version = model->version;
    out->platform = "xnord_network";
    out->counters = model->counters;
    out->max_batch_size = model->max_batch_size;
    out->layout = model->input_layout;
    out->input = &model->input;
    out->outputs = model->outputs;
    out->output_count = model->output_count;
}

static xn_model_end image_of(const char *name, int64_t channels) {
    return (xn_model_end){
        .name = name, .datatype = XN_FP32, .shape = {3, {channels, -1, -1}}, .elements = -1};
}

static void describe_weights(const xn_service *service, const char *name, xn_served_model *out) {
    xn_weights_shape shape;
    xn_weights_shape_of(xn_asset_weights(out->weights), &shape);
    out->name = name;
    out->version = weights_version;
    out->platform = "xnord_weights";
    out->counters = xn_asset_counters(out->weights);
    out->max_batch_size = service->config->max_batch_images;
    out->layout = XN_IMAGE_NCHW;
    out->ends[0] = image_of("input", shape.dims[1]);
    out->ends[1] = image_of("output", shape.dims[0]);
    out->input = &out->ends[0];
    out->outputs = &out->ends[1];
    out->output_count = 1;
}

static xn_status get_network(const xn_service *service, const char *name, const char *version,
                             const xn_model **out, xn_error *error) {
    if (service->models)
        return xn_models_get(service->models, name, version, out, error);
    return xn_fail(error, XN_ERR_NOT_FOUND, "model", "there is no model \"%s\"", name);
}

/* A network of that name, of whatever version, comes before weights of the name. */
static bool is_network(const xn_service *service, const char *name) {
    const xn_model *model = NULL;
    xn_error ignored;
    xn_status status = get_network(service, name, "", &model, &ignored);
    if (status == XN_OK)
        xn_model_release(model);
    return status != XN_ERR_NOT_FOUND;
}

static xn_status get_weights(const xn_service *service, const char *name, xn_served_model *out,
                             xn_error *error) {
    xn_error why;
    xn_status status = xn_store_get(xn_engine_store(service->engine), name, &out->weights, &why);
    if (status == XN_OK)
        describe_weights(service, name, out);
    else if (status != XN_ERR_NOT_FOUND)
        *error = why; /* else what was said of models stays */
    return status;
}

xn_status xn_served_model_get(const xn_service *service, const char *name, const char *version,
                              xn_served_model *out, xn_error *error) {
    memset(out, 0, sizeof *out);
    xn_status status = get_network(service, name, version, &out->network, error);
    if (status == XN_OK)
        describe_network(out->network, out);
    if (status != XN_ERR_NOT_FOUND)
        return status;
    if (version[0] && (strcmp(version, weights_version) != 0 || is_network(service, name)))
        return status;
    return get_weights(service, name, out, error);
}

void xn_served_model_release(xn_served_model *model) {
    if (model->network)
        xn_model_release(model->network);
    xn_asset_release(model->weights);
    memset(model, 0, sizeof *model);
}
