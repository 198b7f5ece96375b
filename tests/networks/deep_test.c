/* Deep networks: what reading and lowering one costs grows with its layers, whatever their shape.
 * Measured as time of this thread for so many layers and for an eighth of them: about 8 times as
 * much where the cost is linear, 64 times where it is quadratic. */
#include "nw_net.h"

#include "xn_model_config.h"

#include "xn_mem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LAYERS = 4095, SHARE = 8, ROUNDS = 5, MOST_RATIO = 24, FEW = 60 };

/* Layers behind each other, of which `op` is the text without the name; `part` is their tensor of
 * one value, each another one, or NULL. */
typedef struct shape {
    const char *name, *op, *other, *part, *dims;
    bool sums; /* all read the input, and sums of FEW read them */
} shape;

static const shape shapes[] = {
    {"convolutions", "\"conv\", \"mode\": \"xnor\"", NULL, "weight", "1, 1, 1, 1", false},
    {"biases", "\"affine\"", NULL, "bias", "1", false},
    {"pools", "\"max_pool\", \"kernel\": 1", NULL, NULL, NULL, false},
    {"pools and signs", "\"max_pool\", \"kernel\": 1", "\"sign\"", NULL, NULL, false},
    {"clips", "\"clip\"", NULL, NULL, NULL, false},
    {"activations", "\"prelu\", \"slope\": 0.5", "\"clip\"", NULL, NULL, false},
    {"thresholds of one tensor", "\"sign\"", NULL, "shift", "1", true},
    {"signs of one tensor", "\"sign\"", NULL, NULL, NULL, true},
    {"dead ends", "\"sigmoid\", \"inputs\": [\"input\"]", NULL, NULL, NULL, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct files {
    char *config;
    size_t config_length;
    void *tensors;
    size_t tensors_length;
} files;

static void write_sum(FILE *text, int layer) {
    fprintf(text, "{\"op\": \"add\", \"name\": \"layer_%04d\", \"inputs\": [", layer);
    for (int i = layer - FEW < 0 ? 0 : layer - FEW; i < layer; i++)
        fprintf(text, "\"layer_%04d\", ", i);
    fprintf(text, "\"input\"]}");
}

static void write_config(const shape *s, int layers, files *out) {
    FILE *text = open_memstream(&out->config, &out->config_length);
    fprintf(text, "{\"format\": \"xnord-network/1\", \"input\": {\"datatype\": \"FP32\", "
                  "\"shape\": [1, 2, 2]}, \"layers\": [");
    for (int i = 0; i < layers; i++) {
        const char *op = s->other && i % 2 ? s->other : s->op;
        if (s->sums && (i % FEW == FEW - 1 || i == layers - 1))
            write_sum(text, i);
        else
            fprintf(text, "{\"op\": %s, \"name\": \"layer_%04d\"%s}", op, i,
                    s->sums ? ", \"inputs\": [\"input\"]" : "");
        fprintf(text, "%s", i < layers - 1 ? ", " : "]}");
    }
    fclose(text);
}

static void write_tensors(const shape *s, int layers, files *out) {
    char *header;
    size_t length;
    uint64_t count = 0;
    FILE *text = open_memstream(&header, &length);
    fprintf(text, "{\"__metadata__\": {}");
    for (int i = 0; i < layers && s->part; i++) {
        if (s->sums && (i % FEW == FEW - 1 || i == layers - 1))
            continue;
        fprintf(text,
                ", \"layer_%04d.%s\": {\"dtype\": \"F32\", \"shape\": [%s], \"data_offsets\": "
                "[%d, %d]}",
                i, s->part, s->dims, (int)count * 4, (int)count * 4 + 4);
        count++;
    }
    fprintf(text, "}%*s", (int)(7 - ftell(text) % 8), "");
    fclose(text);
    out->tensors_length = 8 + length + count * 4;
    char *file = out->tensors = xn_mem_zalloc(out->tensors_length, 1);
    const uint64_t header_bytes = length;
    memcpy(file, &header_bytes, 8);
    memcpy(file + 8, header, length);
    for (uint64_t i = 0; i < count; i++) {
        const float value = 1 + (float)i;
        memcpy(file + 8 + length + i * 4, &value, sizeof value);
    }
    free(header);
}

static double thread_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void load(const files *f, const char *name) {
    xn_model_config *config = NULL;
    xn_graph *graph = NULL;
    xn_network *network = NULL;
    void *copies = NULL;
    xn_error error = {0};
    xn_status status = xn_model_config_parse(f->config, f->config_length, &config, &error);
    if (!status)
        status = xn_model_config_graph(config, f->tensors, f->tensors_length, &nw_limits, &graph,
                                       &copies, &error);
    if (!status)
        status = xn_network_lower(graph, &network, &error);
    ck_assert_msg(!status, "%s: %s", name, error.message);
    xn_network_free(network);
    xn_graph_free(graph);
    xn_mem_free(copies);
    xn_model_config_free(config);
}

/* The least of several rounds. */
static double cost_of(const shape *s, int layers) {
    files f = {0};
    double least = 1e9;
    write_config(s, layers, &f);
    write_tensors(s, layers, &f);
    for (int i = 0; i < ROUNDS; i++) {
        const double began = thread_ms();
        load(&f, s->name);
        const double took = thread_ms() - began;
        least = took < least ? took : least;
    }
    free(f.config);
    xn_mem_free(f.tensors);
    return least;
}

START_TEST(cost_is_linear_in_layers) {
    const shape *s = &shapes[_i];
    const double few = cost_of(s, LAYERS / SHARE), all = cost_of(s, LAYERS);
    printf("%s: %.1f ms for %d layers, %.1f for %d\n", s->name, few, LAYERS / SHARE, all, LAYERS);
    ck_assert_msg(all < few * MOST_RATIO, "%s: %.1f ms for %d layers, %.1f for %d", s->name, few,
                  LAYERS / SHARE, all, LAYERS);
}
END_TEST

XN_SUITE(networks_deep) {
    Suite *s = suite_create("networks_deep");
    TCase *t = xn_test_case(s, "networks_deep", 300);
    tcase_add_loop_test(t, cost_is_linear_in_layers, 0, SHAPES);
    return s;
}
