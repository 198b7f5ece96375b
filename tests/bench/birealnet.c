/* birealnet.c: see birealnet.h. */
#include "birealnet.h"

#include "../xn_rng.h"
#include "report.h"
#include "xn_mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 80, TENSORS = 120 };

static void *take(size_t count, size_t bytes) {
    void *memory = xn_mem_zalloc(count, bytes);
    if (!memory)
        xn_bench_fail("network", "no memory");
    return memory;
}

/* ---- the layers ---- */

struct xn_birealnet {
    xn_graph_params params;
    xn_layer layers[LAYERS];
    char names[LAYERS][8];
    const char *inputs[LAYERS][2];
    xn_tensor tensors[TENSORS];
    int tensor_count;
    xn_rng rng;
};

/* Multiples of `step` in [centre - reach, centre + reach]; with step 0 any. */
static const xn_tensor *values(xn_birealnet *m, float centre, float reach, float step,
                               xn_shape shape) {
    xn_tensor *t = &m->tensors[m->tensor_count++];
    *t = (xn_tensor){.datatype = XN_FP32, .shape = shape, .elements = 1};
    for (int i = 0; i < shape.rank; i++)
        t->elements *= shape.dims[i];
    t->bytes = (size_t)t->elements * sizeof(float);
    float *to = take((size_t)t->elements, sizeof *to);
    for (int64_t i = 0; i < t->elements; i++)
        to[i] = centre + (step > 0 ? step * rintf(reach * xn_rng_float(&m->rng) / step)
                                   : reach * xn_rng_float(&m->rng));
    t->data = to;
    return t;
}

/* The weights of a shortcut: of each filter one is 1. */
static const xn_tensor *picks(xn_birealnet *m, xn_shape shape) {
    const xn_tensor *t = values(m, 0, 0, 0, shape);
    const int64_t each = shape.dims[1];
    for (int64_t o = 0; o < shape.dims[0]; o++)
        ((float *)t->data)[o * each + (int64_t)xn_rng_below(&m->rng, (uint64_t)each)] = 1;
    return t;
}

/* Its number; reads layers `first` and, where it is not -1, `second`; -1: the layer before. */
static int add(xn_birealnet *m, xn_op op, int first, int second) {
    const int index = m->params.layer_count++;
    xn_layer *l = &m->layers[index];
    snprintf(m->names[index], sizeof m->names[index], "%d", index);
    xn_layer_default(op, m->names[index], l);
    if (first >= 0) {
        m->inputs[index][l->input_count++] = m->names[first];
        if (second >= 0)
            m->inputs[index][l->input_count++] = m->names[second];
        l->inputs = m->inputs[index];
    }
    return index;
}

static void window(xn_layer *l, int64_t stride, int64_t padding) {
    l->window.stride[0] = l->window.stride[1] = stride;
    for (int i = 0; i < 4; i++)
        l->window.padding[i] = padding;
}

/* A convolution and its batch norm, whose scale is the power of 2 next to 1 / sqrt(terms), at times
 * negative. */
static int conv(xn_birealnet *m, xn_mode mode, int from, int64_t in, int64_t out, int64_t kernel,
                int64_t stride) {
    const float scale = exp2f(-rintf(log2f((float)(in * kernel * kernel)) / 2));
    const xn_shape each = {1, {out}}, all = {4, {out, in, kernel, kernel}};
    xn_layer *l = &m->layers[add(m, XN_OP_CONV, from, -1)];
    window(l, stride, kernel / 2);
    l->window.mode = mode;
    l->weight = kernel == 1 ? picks(m, all) : values(m, 0, 1, 0.125f, all);
    const int norm = add(m, XN_OP_AFFINE, -1, -1);
    m->layers[norm].scale = values(m, 0, 0, 0, each);
    for (int64_t o = 0; o < out; o++)
        ((float *)m->layers[norm].scale->data)[o] = kernel == 1 ? 1 : o % 4 == 3 ? -scale : scale;
    m->layers[norm].bias = values(m, 0, 0.5f, 1.0f / 64, each);
    return norm;
}

static int block(xn_birealnet *m, int x, int64_t in, int64_t out) {
    const bool down = in != out;
    int shortcut = x;
    const int main = conv(m, XN_MODE_XNOR, x, in, out, 3, down ? 2 : 1);
    if (down) {
        xn_layer *pool = &m->layers[add(m, XN_OP_AVG_POOL, x, -1)];
        pool->kernel[0] = pool->kernel[1] = 2;
        shortcut = conv(m, XN_MODE_FLOAT, -1, in, out, 1, 1);
    }
    return add(m, XN_OP_ADD, main, shortcut);
}

xn_birealnet *xn_birealnet_make(int64_t side, xn_precision precision) {
    xn_birealnet *m = take(1, sizeof *m);
    m->rng.state = 18;
    m->params = (xn_graph_params){.input_name = "input",
                                  .input_datatype = XN_UINT8,
                                  .input_layout = XN_IMAGE_NHWC,
                                  .input_shape = {3, {side, side, 3}},
                                  .layers = m->layers,
                                  .precision = precision};
    xn_layer *l = &m->layers[add(m, XN_OP_AFFINE, -1, -1)];
    l->scale = values(m, 1.0f / 64, 0, 0, (xn_shape){1, {3}});
    l->bias = values(m, -2, 0, 0, (xn_shape){1, {3}});
    conv(m, XN_MODE_FLOAT, -1, 3, 64, 7, 2);
    l = &m->layers[add(m, XN_OP_MAX_POOL, -1, -1)];
    l->kernel[0] = l->kernel[1] = 3;
    window(l, 2, 1);
    int x = m->params.layer_count - 1;
    for (int i = 0; i < 16; i++)
        x = block(m, x, i && i % 4 == 0 ? 32 << i / 4 : 64 << i / 4, 64 << i / 4);
    m->layers[add(m, XN_OP_AVG_POOL, -1, -1)].global = true;
    add(m, XN_OP_FLATTEN, -1, -1);
    l = &m->layers[add(m, XN_OP_CONV, -1, -1)];
    l->window.mode = XN_MODE_FLOAT;
    l->weight = values(m, 0, 0.05f, 0, (xn_shape){2, {XN_BIREALNET_CLASSES, 512}});
    l->bias = values(m, 0, 0.05f, 0, (xn_shape){1, {XN_BIREALNET_CLASSES}});
    return m;
}

void xn_birealnet_free(xn_birealnet *m) {
    for (int i = 0; i < m->tensor_count; i++)
        xn_mem_free((void *)m->tensors[i].data);
    xn_mem_free(m);
}

xn_network *xn_birealnet_lower(const xn_birealnet *m) {
    static const xn_conv_limits limits = {INT32_MAX, INT32_MAX, INT64_MAX};
    xn_graph *graph = NULL;
    xn_network *network = NULL;
    xn_error error;
    if (xn_graph_create(&m->params, &limits, &graph, &error) ||
        xn_network_lower(graph, &network, &error))
        xn_bench_fail("network", error.message);
    xn_graph_free(graph);
    return network;
}

/* ---- as files (proto/MODELS.md) ---- */

static FILE *create(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file)
        xn_bench_fail(path, strerror(errno));
    return file;
}

static void finish(FILE *file) {
    if (ferror(file) | fclose(file))
        xn_bench_fail("network", "its files cannot be written");
}

static void write_window(FILE *file, const xn_layer *l) {
    if (l->window.stride[0])
        fprintf(file, ", \"stride\": %lld", (long long)l->window.stride[0]);
    fprintf(file, ", \"padding\": %lld", (long long)l->window.padding[0]);
}

static void write_layer(FILE *file, const xn_layer *l) {
    fprintf(file, "{\"op\": \"%s\", \"name\": \"%s\"", xn_op_name(l->op), l->name);
    for (int i = 0; i < l->input_count; i++)
        fprintf(file, "%s\"%s\"", i ? ", " : ", \"inputs\": [", l->inputs[i]);
    fputs(l->input_count ? "]" : "", file);
    if (l->op == XN_OP_CONV)
        fprintf(file, ", \"mode\": \"%s\"", xn_mode_name(l->window.mode));
    if (l->global)
        fputs(", \"kernel\": \"global\"", file);
    else if (l->op == XN_OP_MAX_POOL || l->op == XN_OP_AVG_POOL)
        fprintf(file, ", \"kernel\": %lld", (long long)l->kernel[0]);
    if (l->op == XN_OP_CONV || (l->kernel[0] && !l->global))
        write_window(file, l);
    fputc('}', file);
}

static void write_config(const xn_birealnet *m, const char *folder) {
    const xn_graph_params *p = &m->params;
    const long long side = p->input_shape.dims[0];
    FILE *file = create(folder, "config.json");
    fprintf(file,
            "{\"format\": \"xnord-network/1\", \"precision\": \"%s\", \"input\": {\"name\": "
            "\"%s\", \"datatype\": \"UINT8\", \"shape\": [%lld, %lld, 3], \"layout\": \"NHWC\"}, "
            "\"layers\": [",
            xn_precision_name(p->precision), p->input_name, side, side);
    for (int i = 0; i < p->layer_count; i++) {
        fputs(i ? ",\n " : "\n ", file);
        write_layer(file, &p->layers[i]);
    }
    fputs("]}\n", file);
    finish(file);
}

/* What the header says of a tensor, if there is one; returns where the next begins. */
static size_t describe(FILE *header, const xn_layer *l, const char *part, const xn_tensor *t,
                       size_t at) {
    if (!t)
        return at;
    fprintf(header, "%s\"%s.%s\": {\"dtype\": \"F32\", \"shape\": [", at ? ", " : "{", l->name,
            part);
    for (int i = 0; i < t->shape.rank; i++)
        fprintf(header, "%s%lld", i ? ", " : "", (long long)t->shape.dims[i]);
    fprintf(header, "], \"data_offsets\": [%zu, %zu]}", at, at + t->bytes);
    return at + t->bytes;
}

static char *tensors_header(const xn_birealnet *m, size_t *length) {
    char *text = NULL;
    size_t at = 0;
    FILE *header = open_memstream(&text, length);
    if (!header)
        xn_bench_fail("network", "no memory");
    for (int i = 0; i < m->params.layer_count; i++) {
        const xn_layer *l = &m->layers[i];
        at = describe(header, l, "weight", l->weight, at);
        at = describe(header, l, "scale", l->scale, at);
        at = describe(header, l, "bias", l->bias, at);
    }
    fputc('}', header);
    fflush(header);
    fprintf(header, "%*s", (int)(-*length % 8), ""); /* values are aligned */
    finish(header);
    return text;
}

static void write_tensors(const xn_birealnet *m, const char *folder) {
    FILE *file = create(folder, "model.safetensors");
    size_t length = 0;
    char *header = tensors_header(m, &length);
    for (int i = 0; i < 64; i += 8)
        fputc((int)((uint64_t)length >> i & 255), file);
    fwrite(header, 1, length, file);
    for (int i = 0; i < m->params.layer_count; i++) {
        const xn_layer *l = &m->layers[i];
        const xn_tensor *const parts[] = {l->weight, l->scale, l->bias};
        for (int p = 0; p < XN_COUNT(parts); p++)
            if (parts[p])
                fwrite(parts[p]->data, 1, parts[p]->bytes, file);
    }
    finish(file);
    free(header);
}

void xn_birealnet_write(const xn_birealnet *m, const char *folder) {
    write_config(m, folder);
    write_tensors(m, folder);
}
