/* peer_openvino.c: see peer_openvino.h. The one file that includes OpenVINO, by its C interface.
 *
 * A network is written as its intermediate representation: input, FakeQuantize with the threshold 0
 * and levels 0 and 1, BinaryConvolution. That of BITS goes on with another FakeQuantize, which
 * OpenVINO fuses into the convolution, and one 1x1 filter of ones, which counts a pixel's bits.
 * That of REALS multiplies by alpha.
 *
 * A convolution's own time is what OpenVINO's profile says of its node: microseconds added up since
 * the network was compiled, divided by the number of inferences and rounded down. So a sample is a
 * network compiled anew and the mean of some inferences after the first. */
#include "peer_openvino.h"

#include "bench/clock.h"
#include "xn_mem.h"

#include <omp.h>
#include <openvino/c/openvino.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 1 << 16, WARM = 3, LEAST = 3 };
static const char node[] = "convolution"; /* reorders are named after it, with more behind */
static const double sample_us = 1e4;

struct xn_openvino {
    xn_openvino_kind kind;
    ov_core_t *core;
    ov_model_t *model;
    ov_tensor_t *input, *output;
    float *in, *out;
    unsigned char *constants;
};

static void need(ov_status_e status, const char *what) {
    if (status == OK)
        return;
    fprintf(stderr, "bench: OpenVINO: %s: %s\n", what, ov_get_error_info(status));
    exit(1);
}

const char *xn_openvino_version(void) {
    static char text[32];
    ov_version_t version;
    need(ov_get_openvino_version(&version), "version");
    snprintf(text, sizeof text, "%.*s", (int)strcspn(version.buildNumber, "-"),
             version.buildNumber);
    ov_version_free(&version);
    return text;
}

/* ---- the network's text ---- */

typedef struct network {
    char layers[TEXT], edges[TEXT];
    size_t layers_used, edges_used;
    int count;
    size_t constant_bytes;
} network;

typedef struct dims {
    long long d[4];
} dims;

#define PRINT(n, part, ...)                                                                        \
    ((n)->part##_used += (size_t)snprintf((n)->part + (n)->part##_used,                            \
                                          sizeof((n)->part) - (n)->part##_used, __VA_ARGS__))

static void port(network *n, int id, const char *precision, dims s) {
    PRINT(n, layers, "<port id=\"%d\" precision=\"%s\">", id, precision);
    for (int i = 0; i < 4; i++)
        PRINT(n, layers, "<dim>%lld</dim>", s.d[i]);
    PRINT(n, layers, "</port>");
}

/* A layer, and edges from the layers it reads; its output is the port after them. */
static int layer(network *n, const char *type, const char *name, const char *attributes,
                 const int *from, const dims *in, int inputs, const dims *out,
                 const char *precision) {
    const int id = n->count++;
    PRINT(n, layers, "<layer id=\"%d\" name=\"%s\" type=\"%s\" version=\"opset1\"><data %s/>", id,
          name, type, attributes);
    if (inputs)
        PRINT(n, layers, "<input>");
    for (int i = 0; i < inputs; i++) {
        port(n, i, "FP32", in[i]);
        PRINT(n, edges, "<edge from-layer=\"%d\" from-port=\"%d\" to-layer=\"%d\" to-port=\"%d\"/>",
              from[i] & 0xffff, from[i] >> 16, id, i);
    }
    if (inputs)
        PRINT(n, layers, "</input>");
    if (out) {
        PRINT(n, layers, "<output>");
        port(n, inputs, precision, *out);
        PRINT(n, layers, "</output>");
    }
    PRINT(n, layers, "</layer>");
    return id | inputs << 16;
}

static int constant(network *n, const char *element, dims s, size_t bytes) {
    char attributes[160], name[32];
    snprintf(name, sizeof name, "constant%d", n->count);
    snprintf(attributes, sizeof attributes,
             "element_type=\"%s\" shape=\"%lld, %lld, %lld, %lld\" offset=\"%zu\" size=\"%zu\"",
             element, s.d[0], s.d[1], s.d[2], s.d[3], n->constant_bytes, bytes);
    n->constant_bytes += bytes;
    return layer(n, "Const", name, attributes, NULL, NULL, 0, &s,
                 strcmp(element, "u1") ? "FP32" : "BIN");
}

/* 0 where an input is at most 0, 1 elsewhere. Constants: 0, 0, 0, 1. */
static int quantize(network *n, int from, dims s) {
    const dims one = {{1, 1, 1, 1}}, in[] = {s, one, one, one, one};
    int reads[5] = {from};
    for (int i = 1; i < 5; i++)
        reads[i] = constant(n, "f32", one, sizeof(float));
    char name[32];
    snprintf(name, sizeof name, "quantize%d", n->count);
    return layer(n, "FakeQuantize", name, "levels=\"2\" auto_broadcast=\"numpy\"", reads, in, 5, &s,
                 "FP32");
}

static int convolve(network *n, int from, dims s, long long filters, long long kernel,
                    const char *name) {
    const dims w = {{filters, s.d[1], kernel, kernel}}, in[] = {s, w};
    const dims out = {{s.d[0], filters, s.d[2], s.d[3]}};
    const long long pad = kernel / 2;
    char attributes[256];
    const int reads[] = {
        from, constant(n, "u1", w, (size_t)(filters * s.d[1] * kernel * kernel + 7) / 8)};
    snprintf(attributes, sizeof attributes,
             "strides=\"1, 1\" pads_begin=\"%lld, %lld\" pads_end=\"%lld, %lld\" dilations=\"1, 1\""
             " mode=\"xnor-popcount\" pad_value=\"0\" auto_pad=\"explicit\"",
             pad, pad, pad, pad);
    return layer(n, "BinaryConvolution", name, attributes, reads, in, 2, &out, "FP32");
}

static dims write_network(network *n, const xn_bench_shape *p, xn_openvino_kind kind) {
    dims s = {{p->images, p->channels, p->side, p->side}};
    char attributes[160];
    snprintf(attributes, sizeof attributes, "shape=\"%lld,%lld,%lld,%lld\" element_type=\"f32\"",
             s.d[0], s.d[1], s.d[2], s.d[3]);
    int last = layer(n, "Parameter", "input", attributes, NULL, NULL, 0, &s, "FP32");
    last = convolve(n, quantize(n, last, s), s, p->filters, p->kernel, node);
    s.d[1] = p->filters;
    if (kind == XN_OPENVINO_BITS) {
        last = convolve(n, quantize(n, last, s), s, 1, 1, "count");
        s.d[1] = 1;
    } else if (kind == XN_OPENVINO_REALS) {
        const dims scale = {{1, p->filters, 1, 1}}, in[] = {s, scale};
        const int reads[] = {last, constant(n, "f32", scale, (size_t)p->filters * sizeof(float))};
        last = layer(n, "Multiply", "scale", "auto_broadcast=\"numpy\"", reads, in, 2, &s, "FP32");
    }
    layer(n, "Result", "output", "", &last, &s, 1, NULL, NULL);
    if (n->layers_used >= TEXT || n->edges_used >= TEXT)
        xn_bench_fail("OpenVINO", "the network's text is too long");
    return s;
}

/* ---- constants, in the order in which they were written ---- */

static unsigned char *put_thresholds(unsigned char *to) {
    const float values[] = {0, 0, 0, 1};
    memcpy(to, values, sizeof values);
    return to + sizeof values;
}

/* Least significant bit first. */
static unsigned char *put_signs(unsigned char *to, const float *weights, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i / 8] = (unsigned char)(to[i / 8] | (weights[i] >= 0) << i % 8);
    return to + (count + 7) / 8;
}

static void put_constants(unsigned char *to, const xn_bench_data *data, xn_openvino_kind kind) {
    const size_t filters = (size_t)data->shape.filters;
    to = put_signs(put_thresholds(to), data->real, (size_t)xn_bench_weight_count(&data->shape));
    if (kind == XN_OPENVINO_BITS)
        memset(put_thresholds(to), 0xff, (filters + 7) / 8);
    if (kind == XN_OPENVINO_REALS)
        memcpy(to, data->weights->alpha, filters * sizeof(float));
}

static void read_model(xn_openvino *p, const xn_bench_data *data, network *n) {
    static char text[2 * TEXT + 256];
    ov_tensor_t *constants;
    ov_shape_t shape;
    const int64_t bytes = (int64_t)n->constant_bytes;
    const int length =
        snprintf(text, sizeof text,
                 "<?xml version=\"1.0\"?><net name=\"peer\" version=\"11\"><layers>%s</layers>"
                 "<edges>%s</edges></net>",
                 n->layers, n->edges);
    p->constants = xn_bench_take(n->constant_bytes, 1);
    put_constants(p->constants, data, p->kind);
    need(ov_shape_create(1, &bytes, &shape), "shape");
    need(ov_tensor_create_from_host_ptr(U8, shape, p->constants, &constants), "constants");
    need(ov_core_read_model_from_memory_buffer(p->core, text, (size_t)length, constants, &p->model),
         "model");
    ov_tensor_free(constants);
    ov_shape_free(&shape);
}

/* ---- inferences ---- */

typedef struct compiled {
    ov_compiled_model_t *model;
    ov_infer_request_t *request;
} compiled;

static compiled compile(const xn_openvino *p) {
    char threads[16];
    compiled c;
    snprintf(threads, sizeof threads, "%d", omp_get_max_threads());
    need(ov_core_compile_model(p->core, p->model, "CPU", 8, &c.model, "PERF_COUNT",
                               p->kind == XN_OPENVINO_REALS ? "NO" : "YES", "INFERENCE_NUM_THREADS",
                               threads, "NUM_STREAMS", "1", "INFERENCE_PRECISION_HINT", "f32"),
         "compile");
    need(ov_compiled_model_create_infer_request(c.model, &c.request), "request");
    need(ov_infer_request_set_input_tensor(c.request, p->input), "input");
    need(ov_infer_request_set_output_tensor(c.request, p->output), "output");
    return c;
}

static void release(compiled *c) {
    ov_infer_request_free(c->request);
    ov_compiled_model_free(c->model);
}

/* Microseconds of the node in all inferences so far, by their mean. */
static double node_us(const compiled *c, int inferences) {
    ov_profiling_info_list_t list;
    double us = NAN;
    need(ov_infer_request_get_profiling_info(c->request, &list), "profile");
    for (size_t i = 0; i < list.size; i++)
        if (!strcmp(list.profiling_infos[i].node_name, node))
            us = (double)list.profiling_infos[i].real_time * inferences;
    ov_profiling_info_list_free(&list);
    if (isnan(us))
        xn_bench_fail("OpenVINO", "its profile does not have the convolution");
    return us;
}

static double sample_node(const xn_openvino *p) {
    compiled c = compile(p);
    int count = 0;
    for (int i = 0; i < WARM; i++)
        need(ov_infer_request_infer(c.request), "inference");
    const double before = node_us(&c, WARM);
    const int64_t end = xn_bench_now_ns() + (int64_t)(1e3 * sample_us);
    for (; count < LEAST || xn_bench_now_ns() < end; count++)
        need(ov_infer_request_infer(c.request), "inference");
    const double us = (node_us(&c, WARM + count) - before) / count;
    release(&c);
    return us;
}

static double sample_inferences(const xn_openvino *p) {
    compiled c = compile(p);
    int count = 0;
    for (int i = 0; i < WARM; i++)
        need(ov_infer_request_infer(c.request), "inference");
    const int64_t start = xn_bench_now_ns(), end = start + (int64_t)(1e3 * sample_us);
    for (; count < LEAST || xn_bench_now_ns() < end; count++)
        need(ov_infer_request_infer(c.request), "inference");
    const double us = (double)(xn_bench_now_ns() - start) / 1e3 / count;
    release(&c);
    return us;
}

static double sample(void *peer) {
    const xn_openvino *p = peer;
    return p->kind == XN_OPENVINO_REALS ? sample_inferences(p) : sample_node(p);
}

static void keep(void *peer) { /* its maker frees it */
    (void)peer;
}

static const xn_bench_place place = {
    .pause_ns = 10000000, .timer_sample = sample, .timer_free = keep};

xn_contender xn_openvino_contender(xn_openvino *peer) {
    return (xn_contender){
        .place = &place, .timer = peer, .samples = xn_bench_take(XN_BENCH_SAMPLES, sizeof(double))};
}

/* ---- peers ---- */

/* What output i must be: of a filter, or of all of them. */
static double right_of(const xn_bench_data *data, xn_openvino_kind kind, int64_t i) {
    const int64_t filters = data->shape.filters, plane = data->shape.side * data->shape.side;
    if (kind != XN_OPENVINO_BITS)
        return (double)data->dots[i] *
               (kind == XN_OPENVINO_REALS ? (double)data->weights->alpha[i / plane % filters] : 1);
    int64_t sum = 0;
    for (int64_t o = 0; o < filters; o++)
        sum += data->dots[(i / plane * filters + o) * plane + i % plane] > 0 ? 1 : -1;
    return (double)sum;
}

static void check(const xn_openvino *p, const xn_bench_data *data, int64_t outputs) {
    for (int64_t i = 0; i < outputs; i++) {
        const double right = right_of(data, p->kind, i), got = (double)p->out[i];
        if (!(fabs(got - right) <= (p->kind == XN_OPENVINO_REALS ? 1e-5 * fabs(right) : 0)))
            xn_bench_fail("OpenVINO", "its result is not the convolution");
    }
}

static ov_tensor_t *tensor(dims s, float *values) {
    ov_tensor_t *made;
    ov_shape_t shape;
    const int64_t d[] = {s.d[0], s.d[1], s.d[2], s.d[3]};
    need(ov_shape_create(4, d, &shape), "shape");
    need(ov_tensor_create_from_host_ptr(F32, shape, values, &made), "tensor");
    ov_shape_free(&shape);
    return made;
}

static int64_t elements(dims s) {
    return s.d[0] * s.d[1] * s.d[2] * s.d[3];
}

xn_openvino *xn_openvino_create(const xn_bench_data *data, xn_openvino_kind kind) {
    const xn_bench_shape *shape = &data->shape;
    const dims in = {{shape->images, shape->channels, shape->side, shape->side}};
    network *n = xn_bench_take(1, sizeof *n);
    xn_openvino *p = xn_bench_take(1, sizeof *p);
    p->kind = kind;
    need(ov_core_create(&p->core), "core");
    const dims out = write_network(n, shape, kind);
    read_model(p, data, n);
    xn_mem_free(n);
    p->in = xn_bench_take((size_t)elements(in), sizeof(float));
    p->out = xn_bench_take((size_t)elements(out), sizeof(float));
    for (int64_t i = 0; i < elements(in); i++) /* 0 would be -1 there */
        p->in[i] = data->input[i] >= 0 ? 1.0f : -1.0f;
    p->input = tensor(in, p->in);
    p->output = tensor(out, p->out);
    compiled c = compile(p);
    need(ov_infer_request_infer(c.request), "inference");
    release(&c);
    check(p, data, elements(out));
    return p;
}

void xn_openvino_free(xn_openvino *p) {
    if (!p)
        return;
    ov_tensor_free(p->output);
    ov_tensor_free(p->input);
    ov_model_free(p->model);
    ov_core_free(p->core);
    xn_mem_free(p->out);
    xn_mem_free(p->in);
    xn_mem_free(p->constants);
    xn_mem_free(p);
}
