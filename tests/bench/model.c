/* model.c: see model.h. */
#include "model.h"

#include "report.h"
#include "xn_mem.h"
#include "xn_model_inside.h"

#include <errno.h>
#include <string.h>

static void *read_file(const char *folder, const char *name, size_t *length) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        xn_bench_fail(path, strerror(errno));
    *length = (size_t)ftell(file);
    rewind(file);
    void *bytes = xn_mem_alloc(*length);
    if (!bytes || fread(bytes, 1, *length, file) != *length)
        xn_bench_fail(path, "cannot be read");
    fclose(file);
    return bytes;
}

static xn_model_config *read_config(const char *folder, int64_t side, int precision) {
    size_t length;
    char *text = read_file(folder, "config.json", &length);
    xn_model_config *config = NULL;
    xn_error error;
    if (xn_model_config_parse(text, length, &config, &error))
        xn_bench_fail(folder, error.message);
    xn_graph_params *params = &config->params;
    int64_t *size = &params->input_shape.dims[params->input_layout == XN_IMAGE_NHWC ? 0 : 1];
    if (side && params->input_shape.rank == 3 && side < size[0])
        size[0] = size[1] = side;
    if (precision != XN_BENCH_AS_IT_SAYS)
        params->precision = (xn_precision)precision;
    xn_mem_free(text);
    return config;
}

xn_network *xn_bench_model(const char *folder, int64_t side, int precision) {
    static const xn_conv_limits limits = {INT64_C(1) << 40, INT32_MAX, INT64_MAX};
    size_t length;
    void *memory = NULL, *tensors = read_file(folder, "model.safetensors", &length);
    xn_model_config *config = read_config(folder, side, precision);
    xn_graph *graph = NULL;
    xn_network *network = NULL;
    xn_error error;
    if (xn_model_config_graph(config, tensors, length, &limits, &graph, &memory, &error) ||
        xn_network_lower(graph, &network, &error))
        xn_bench_fail(folder, error.message);
    xn_graph_free(graph);
    xn_model_config_free(config);
    xn_mem_free(memory);
    xn_mem_free(tensors);
    return network;
}

const char *xn_bench_model_name(const char *folder) {
    const char *slash = strrchr(folder, '/');
    return slash ? slash + 1 : folder;
}
