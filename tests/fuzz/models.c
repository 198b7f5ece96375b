/* models.c: the files of a model's folder. */
#include "fuzz.h"
#include "graph.h"
#include "xn_mem.h"
#include "xn_model_config.h"

#include <stdlib.h>
#include <string.h>

static const xn_conv_limits limits = {XF_MAX_ELEMENTS, 1 << 20, 1 << 28};

static xn_model_config *parse(const void *text, size_t size) {
    xn_model_config *config = NULL;
    xn_error error = {.status = XN_OK};
    xn_status status = xn_model_config_parse(text, size, &config, &error);
    if (status)
        xf_check_error(status, &error);
    xf_require(!status == (config != NULL), "neither a configuration nor an error");
    return config;
}

/* Reads every byte that a graph borrows. */
static void touch(const xn_graph *graph) {
    unsigned sum = 0;
    for (int i = 0; i < graph->layer_count; i++) {
        xn_layer layer = graph->layers[i].given;
        for (int p = 0; p < XN_LAYER_PARTS; p++) {
            const xn_tensor *tensor = *xn_layer_part(&layer, p);
            const uint8_t *bytes = tensor ? tensor->data : NULL;
            const bool packed = tensor && tensor->datatype == XN_BITS;
            const size_t each = tensor && !packed ? xn_datatype_bytes(tensor->datatype) : 1;
            xf_require((uintptr_t)bytes % each == 0, "a tensor is not aligned");
            for (size_t b = 0; tensor && b < tensor->bytes; b++)
                sum += bytes[b];
        }
    }
    xf_require(sum != 1u << 31, "so large a sum");
}

static void make_graph(const xn_model_config *config, const void *bytes, size_t size) {
    xn_graph *graph = NULL;
    void *memory = NULL;
    xn_error error = {.status = XN_OK};
    xn_status status = xn_model_config_graph(config, bytes, size, &limits, &graph, &memory, &error);
    if (status) {
        xf_check_error(status, &error);
        xf_require(!graph && !memory, "something beside an error");
    } else {
        touch(graph);
    }
    xn_graph_free(graph);
    xn_mem_free(memory);
}

void xf_model_config(const uint8_t *data, size_t size) {
    static const char nothing[] = "\2\0\0\0\0\0\0\0{}";
    xn_model_config *config = parse(data, size);
    xn_model_about about;
    if (!config)
        return;
    xn_model_config_about(config, &about);
    xf_require(about.max_batch_size >= 1 && about.layer_count >= 1 && about.output_count >= 1,
               "counts");
    xf_require(!about.name[0] || xn_proto_name_valid(about.name), "name");
    for (int i = 0; i < about.output_count; i++) {
        const xn_model_output *o = &about.outputs[i];
        xf_require(o->name[0] && o->layer[0], "an output without a name");
        xf_require(!o->labels || (!strchr(o->labels, '/') && o->labels[0] != '.'), "labels");
    }
    make_graph(config, nothing, sizeof nothing - 1);
    xn_model_config_free(config);
}

void xf_model_tensors(const uint8_t *data, size_t size) {
    static const char text[] =
        "{\"format\":\"xnord-network/1\","
        "\"input\":{\"datatype\":\"UINT8\",\"shape\":[9,2,2]},\"layers\":["
        "{\"op\":\"affine\",\"name\":\"n\"},"
        "{\"op\":\"conv\",\"name\":\"a.b\",\"mode\":\"xnor\",\"packed_channels\":9},"
        "{\"op\":\"prelu\",\"name\":\"p\"},{\"op\":\"sign\",\"name\":\"s\"},"
        "{\"op\":\"conv\",\"name\":\"c\",\"padding\":\"same\"}]}";
    xn_model_config *config = parse(text, sizeof text - 1);
    uint8_t *aligned = xn_mem_alloc(size);
    xf_require(config && aligned, "no configuration");
    memcpy(aligned, data, size);
    make_graph(config, aligned, size);
    xn_mem_free(aligned);
    xn_model_config_free(config);
}

void xf_labels(const uint8_t *data, size_t size) {
    char **labels = NULL, *memory = NULL;
    int64_t count = 0;
    xn_error error = {.status = XN_OK};
    xn_status status =
        xn_model_labels_parse((const char *)data, size, 20, &labels, &count, &memory, &error);
    if (status)
        xf_check_error(status, &error);
    else
        xf_require(count >= 0 && count <= 20, "too many labels");
    for (int64_t i = 0; i < count; i++)
        xf_require(!strchr(labels[i], '\n') && strlen(labels[i]) <= size, "a label of two lines");
    xn_mem_free(labels);
    xn_mem_free(memory);
}
