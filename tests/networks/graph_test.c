/* Graphs: shapes that are inferred, and what is refused: with which status, at which field, and in
 * which words. */
#include "nw_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- shapes ---- */

static void expect_shape(const nw_net *net, const char *layer, int64_t c, int64_t h, int64_t w) {
    xn_graph *graph = nw_graph(net);
    xn_shape shape;
    ck_assert(xn_graph_layer_shape(graph, layer, &shape));
    ck_assert_msg(shape.dims[0] == c && shape.dims[1] == h && shape.dims[2] == w,
                  "%s is [%d, %d, %d]", layer, (int)shape.dims[0], (int)shape.dims[1],
                  (int)shape.dims[2]);
    xn_graph_free(graph);
}

START_TEST(shapes_are_inferred) {
    xn_rng rng = {xn_test_seed()};
    nw_net *net = nw_text(&rng, "3x9x12: conv=conv 8 stride=2; max=max_pool; avg=avg_pool;"
                                "concat=concat max max max; slice=slice from=3 to=10;"
                                "flat=flatten; global=avg_pool < conv global; mul=mul conv global");
    net->layers[0].window.padding_kind = XN_PADDING_SAME;
    net->layers[1].kernel[1] = 3; /* the stride is the kernel's */
    net->layers[2].window.stride[0] = net->layers[2].window.stride[1] = 1;
    net->layers[2].window.padding[0] = 1;
    xn_layer *l = nw_add(net, XN_OP_CONV, "dense", "flat");
    l->weight = nw_random(net, &rng, true, 5, 28, 0, 0);
    expect_shape(net, "conv", 8, 5, 6);
    expect_shape(net, "max", 8, 2, 2);
    expect_shape(net, "avg", 8, 2, 1);
    expect_shape(net, "concat", 24, 2, 2);
    expect_shape(net, "slice", 7, 2, 2);
    expect_shape(net, "flat", 28, 1, 1);
    expect_shape(net, "global", 8, 1, 1);
    expect_shape(net, "mul", 8, 5, 6);
    expect_shape(net, "dense", 5, 1, 1);
    nw_free(net);
}
END_TEST

START_TEST(ends_are_as_the_user_sees_them) {
    xn_rng rng = {xn_test_seed()};
    nw_net *net = nw_text(&rng, "9x12x3 nhwc uint8: a=conv 8 float; b=avg_pool global; out b a");
    xn_graph_end end;
    net->params.input_name = "picture";
    memset(net->layers[0].window.padding, 0, sizeof net->layers[0].window.padding);
    xn_graph *graph = nw_graph(net);
    xn_graph_input(graph, &end);
    ck_assert_str_eq(end.name, "picture");
    ck_assert_int_eq(end.datatype, XN_UINT8);
    ck_assert_int_eq(end.shape.dims[2], 3);
    ck_assert_int_eq(xn_graph_output_count(graph), 2);
    xn_graph_output(graph, 0, &end);
    ck_assert_str_eq(end.name, "b");
    ck_assert(end.shape.rank == 1 && end.shape.dims[0] == 8 && end.datatype == XN_FP32);
    xn_graph_output(graph, 1, &end);
    ck_assert(end.shape.rank == 3 && end.shape.dims[1] == 7 && end.shape.dims[2] == 10);
    ck_assert_int_eq(xn_graph_operations(graph), 8 * 7 * 10 * 27 + 8 * 70);
    ck_assert(!xn_graph_layer_shape(graph, "picture", &end.shape));
    xn_graph_free(graph);
    nw_free(net);
}
END_TEST

static char *read_page(const char *name) {
    char *text = calloc(1, 200000);
    FILE *file = fopen(name, "rb");
    ck_assert_msg(file && text, "%s: run the tests from the repository's root", name);
    ck_assert_uint_gt(fread(text, 1, 199999, file), 0);
    fclose(file);
    return text;
}

/* The page and the converter say of each op what the table does. */
START_TEST(every_op_is_documented) {
    char *models = read_page("proto/MODELS.md"), *ops = strstr(models, "## 4. Ops");
    char *converter = read_page("deploy/convert/xnord_convert/network.py");
    for (int i = 0; i < XN_OP_COUNT; i++) {
        const char *name = xn_op_name((xn_op)i);
        char cell[40], call[40];
        snprintf(cell, sizeof cell, "`%s`", name);
        snprintf(call, sizeof call, "\"%s\", name", name);
        const char *row = ops ? strstr(ops, cell) : NULL;
        ck_assert_msg(row, "MODELS.md has no op %s", name);
        ck_assert_msg(strstr(converter, call), "the converter makes no %s", name);
        for (const xn_attribute *a = xn_op_attributes((xn_op)i); a->name; a++) {
            const char *end = strchr(row, '\n'), *at = strstr(row, a->name);
            ck_assert_msg(at && at < end, "MODELS.md has no %s of %s", a->name, name);
        }
    }
    ck_assert_str_eq(xn_op_name(XN_OP_COUNT), "unknown");
    free(models);
    free(converter);
}
END_TEST

/* ---- refusals ---- */

/* A network that is right, which a case then spoils: conv "c" [8, 6, 6], affine "a", max_pool "p",
 * add "s" of a and c. */
static nw_net *good(xn_rng *rng) {
    nw_net *net = nw_text(rng, "4x8x8: c=conv 8; a=affine scale; p=max_pool; s=add a c");
    memset(net->layers[0].window.padding, 0, sizeof net->layers[0].window.padding);
    return net;
}

enum { CONV, AFFINE, POOL, ADD };

static void read(nw_net *net, int layer, const char *first, const char *second) {
    net->names[8] = first;
    net->names[9] = second;
    net->layers[layer].inputs = &net->names[8];
    net->layers[layer].input_count = second ? 2 : 1;
}

static void best(nw_net *net, int64_t k) {
    net->layers[POOL].op = XN_OP_FLATTEN;
    net->layers[ADD].op = XN_OP_TOP_K;
    net->layers[ADD].attributes.k = k;
    read(net, ADD, "p", NULL);
}

static void pack(nw_net *net, int64_t channels, int64_t bytes) {
    net->params.input_datatype = XN_UINT8;
    net->params.input_shape = (xn_shape){1, {bytes}};
    net->params.packed_channels = channels;
}

static void expect_refused(const nw_net *net, const char *spoilt, xn_status expected,
                           const char *field, const char *text) {
    xn_graph *graph = NULL;
    xn_error error = {0};
    xn_status status = xn_graph_create(&net->params, &nw_limits, &graph, &error);
    ck_assert_msg(status == expected && error.status == status, "%s: %s, \"%s\"", spoilt,
                  xn_status_name(status), error.message);
    ck_assert_msg(!strcmp(error.field, field), "%s: field \"%s\"", spoilt, error.field);
    ck_assert_msg(strstr(error.message, text) != NULL, "%s: \"%s\"", spoilt, error.message);
    ck_assert_ptr_null(graph);
    ck_assert_int_eq(xn_graph_create(&net->params, &nw_limits, &graph, NULL), expected);
}

/* The good network, spoilt so, is refused with that status and field, and a text that holds that.
 */
#define REFUSED(status, field, text, ...)                                                          \
    do {                                                                                           \
        xn_rng seeded = {xn_test_seed()}, *rng = &seeded;                                          \
        nw_net *net = good(rng);                                                                   \
        xn_layer *l = net->layers;                                                                 \
        (void)l;                                                                                   \
        __VA_ARGS__;                                                                               \
        expect_refused(net, #__VA_ARGS__, status, field, text);                                    \
        nw_free(net);                                                                              \
    } while (0)
#define MALFORMED(field, text, ...) REFUSED(XN_ERR_MALFORMED, field, text, __VA_ARGS__)
#define GEOMETRY(field, text, ...) REFUSED(XN_ERR_GEOMETRY, field, text, __VA_ARGS__)

START_TEST(layers_that_are_refused) {
    MALFORMED("layers", "has 0 layers", net->params.layer_count = 0);
    MALFORMED("layers", "4097", net->params.layer_count = XN_GRAPH_MAX_LAYERS + 1);
    MALFORMED("name", "layers[1] has no name", l[AFFINE].name = "");
    MALFORMED("name", "input has no name", net->params.input_name = NULL);
    MALFORMED("name", "256 bytes; at most 255",
              l[AFFINE].name = memset(nw_take(net, 300), 'x', 256));
    MALFORMED("layers[2].name", "layer \"c\": another layer", l[POOL].name = "c");
    MALFORMED("layers[2].name", "unique", l[POOL].name = "input");
    MALFORMED("layers[3].inputs",
              "layer \"s\": inputs[1] is \"q\", which is neither a layer nor the network's input "
              "\"input\"",
              read(net, ADD, "c", "q"));
    MALFORMED("layers[3].inputs", "not before it", read(net, ADD, "s", "c"));
    MALFORMED("layers[1].inputs", "no cycle", read(net, AFFINE, "s", NULL));
    MALFORMED("layers[3].inputs", "1 inputs; op add takes at least 2", l[ADD].input_count = 1);
    MALFORMED("layers[1].inputs", "takes 1", read(net, AFFINE, "c", "c"));
    MALFORMED("layers[3].inputs", "at most 64", l[ADD].input_count = XN_GRAPH_MAX_INPUTS + 1);
    GEOMETRY("layers[3].inputs", "[8, 6, 6] and inputs[1] [8, 3, 3]", read(net, ADD, "c", "p"));
    MALFORMED("layers[3].op", "no op", l[ADD].op = XN_OP_COUNT);
}
END_TEST

START_TEST(parameters_that_are_refused) {
    MALFORMED("layers[0].weight", "has no tensor weight", l[CONV].weight = NULL);
    GEOMETRY("layers[0].weight.shape", "3 dimensions",
             l[CONV].weight = nw_random(net, rng, true, 8, 4, 3, 0));
    GEOMETRY("layers[0].weight.shape", "flatten layer",
             l[CONV].weight = nw_random(net, rng, true, 8, 4, 0, 0));
    GEOMETRY("layers[0].weights.shape", "must be 4",
             l[CONV].weight = nw_random(net, rng, true, 8, 5, 3, 3));
    GEOMETRY("layers[0].weights.shape", "kernel over 9",
             l[CONV].weight = nw_random(net, rng, true, 8, 4, 9, 3));
    GEOMETRY("layers[0].groups", "must divide", l[CONV].window.groups = 3);
    MALFORMED("layers[0].stride", "stride[1] is 0", l[CONV].window.stride[1] = 0);
    GEOMETRY("layers[0].scale.shape", "[9]; it must be [8] or [1]",
             l[CONV].scale = nw_random(net, rng, true, 9, 0, 0, 0));
    MALFORMED("layers[0].slope", "does not take",
              l[CONV].slope = nw_random(net, rng, true, 8, 0, 0, 0));
    MALFORMED("layers[0].k_map", "mode bwn", l[CONV].window.mode = XN_MODE_BWN;
              l[CONV].attributes.k_map = true);
    MALFORMED("layers[0].weight.datatype", "INT32",
              ((xn_tensor *)l[CONV].weight)->datatype = XN_INT32);
    GEOMETRY("layers[0].weight.shape", "holds 287", ((xn_tensor *)l[CONV].weight)->elements--);
    MALFORMED("layers[1].scale", "neither", l[AFFINE].scale = NULL);
    GEOMETRY("layers[1].bias.shape", "or [8, 6, 6]",
             l[AFFINE].bias = nw_random(net, rng, true, 8, 6, 5, 0));
}
END_TEST

START_TEST(attributes_that_are_refused) {
    MALFORMED("layers[2].kernel", "kernel[1] is 0", l[POOL].kernel[1] = 0);
    GEOMETRY("layers[2].kernel", "only 6", l[POOL].kernel[0] = 7);
    GEOMETRY("layers[2].padding", "padding alone", l[POOL].window.padding[2] = 2);
    MALFORMED("layers[2].padding", "-1", l[POOL].window.padding[0] = -1);
    GEOMETRY("layers[2].from", "from is 3 and to 3", l[POOL].op = XN_OP_SLICE;
             l[POOL].attributes.from = l[POOL].attributes.to = 3);
    GEOMETRY("layers[2].from", "to <= 8", l[POOL].op = XN_OP_SLICE; l[POOL].attributes.to = 9);
    GEOMETRY("layers[3].inputs", "height and width", read(net, ADD, "c", "p");
             l[ADD].op = XN_OP_CONCAT);
    GEOMETRY("layers[3].inputs", "[8, 1, 1]", l[ADD].op = XN_OP_MUL);
    MALFORMED("layers[2].step", "above 0", l[POOL].op = XN_OP_QUANTIZE;
              l[POOL].attributes.quantum = NAN);
    MALFORMED("layers[2].min", "min is 2 and max 1", l[POOL].op = XN_OP_CLIP;
              l[POOL].attributes.low = 2);
    MALFORMED("layers[2].slope", "finite", l[POOL].op = XN_OP_PRELU;
              l[POOL].attributes.slope = INFINITY);
}
END_TEST

START_TEST(ends_that_are_refused) {
    GEOMETRY("layers[0].input.datatype", "UINT8", net->params.input_datatype = XN_UINT8);
    GEOMETRY("layers[0].inputs", "UINT8", net->params.input_datatype = XN_UINT8;
             l[CONV].op = XN_OP_SIGN; l[CONV].weight = NULL);
    MALFORMED("input.datatype", "FP32, FP16 or UINT8", net->params.input_datatype = XN_INT8);
    GEOMETRY("input.shape", "[C, H, W]", net->params.input_shape.rank = 2);
    MALFORMED("input.shape", "input.shape[1] is 0", net->params.input_shape.dims[1] = 0);
    REFUSED(XN_ERR_LIMIT, "input.shape", "elements",
            net->params.input_shape = (xn_shape){3, {1 << 30, 1 << 30, 1 << 30}});
    MALFORMED("input.packed_channels", "must be UINT8", net->params.packed_channels = 4);
    MALFORMED("input.packed_channels", "is -1; it must be", pack(net, -1, 2));
    GEOMETRY("input.shape", "ends in 2; bits of", pack(net, 17, 2));
    MALFORMED("input.packed_channels", "NHWC", net->params.input_datatype = XN_UINT8;
              net->params.packed_channels = 60);
    REFUSED(XN_ERR_LIMIT, "input.packed_channels", "--max-elements",
            pack(net, (int64_t)1 << 27, 1 << 24));
    MALFORMED("outputs", "\"z\", which is no layer", nw_output(net, "z"));
    MALFORMED("outputs", "which is no layer", nw_output(net, "input"));
    MALFORMED("outputs", "at most 64", net->params.output_count = XN_GRAPH_MAX_OUTPUTS + 1);
    MALFORMED("precision", "fp32", net->params.precision = (xn_precision)7);
}
END_TEST

START_TEST(top_k_that_is_refused) {
    GEOMETRY("layers[2].inputs", "[C, 1, 1]", l[POOL].op = XN_OP_TOP_K; l[POOL].attributes.k = 1);
    MALFORMED("layers[3].k", "k is 0; it must be from 1 to 1024", best(net, 0));
    GEOMETRY("layers[3].k", "only 288 values", best(net, 289));
    MALFORMED("layers[3].k", "k is 1025", best(net, XN_TOP_K_MAX + 1));
    MALFORMED("outputs", "give it once", best(net, 3); nw_output(net, "s"); nw_output(net, "s"));
    GEOMETRY("layers[3].inputs", "\"p\", a top_k, which is for outputs alone", best(net, 3);
             l[POOL + 1] = l[ADD]; l[AFFINE].op = XN_OP_FLATTEN; l[AFFINE].scale = NULL;
             l[POOL].op = XN_OP_TOP_K; l[POOL].attributes.k = 3; l[ADD].op = XN_OP_FLATTEN);
}
END_TEST

/* Each limit is the last that passes. */
START_TEST(limits_are_kept) {
    xn_rng rng = {xn_test_seed()};
    nw_net *net = good(&rng);
    const int64_t operations = 8 * 36 * 36 + 8 * 9 * 4; /* of the convolution and the pool */
    const struct {
        xn_conv_limits limits;
        const char *limit, *field;
    } cases[] = {
        {{288, 1152, operations}, NULL, NULL},
        {{287, 1152, operations}, "max-elements", NULL},
        {{288, 1151, operations}, "max-output-bytes", "outputs"},
        {{288, 1152, operations - 1}, "max-operations", "layers[2].shape"},
        {{288, 1152, 8 * 36 * 36 - 1}, "max-operations", "layers[0].input.shape"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_graph *graph = NULL;
        xn_error error = {0};
        xn_status status = xn_graph_create(&net->params, &cases[i].limits, &graph, &error);
        xn_graph_free(graph);
        ck_assert_msg(status == (cases[i].limit ? XN_ERR_LIMIT : XN_OK), "%zu: %s", i,
                      error.message);
        if (!cases[i].limit)
            continue;
        ck_assert_str_eq(error.limit, cases[i].limit);
        if (cases[i].field)
            ck_assert_str_eq(error.field, cases[i].field);
    }
    nw_free(net);
}
END_TEST

/* As many inputs as may be are taken; one layer more is not. */
START_TEST(all_inputs_together_are_limited) {
    enum { LAYERS = XN_GRAPH_MAX_EDGES / XN_GRAPH_MAX_INPUTS };
    static xn_layer layers[LAYERS + 1];
    static char names[LAYERS + 1][16];
    static const char *inputs[XN_GRAPH_MAX_INPUTS];
    nw_net *net = nw_create(1, 1, 1);
    for (int i = 0; i < XN_GRAPH_MAX_INPUTS; i++)
        inputs[i] = "input";
    for (int i = 0; i <= LAYERS; i++) {
        snprintf(names[i], sizeof names[i], "l%d", i);
        xn_layer_default(XN_OP_ADD, names[i], &layers[i]);
        layers[i].inputs = inputs;
        layers[i].input_count = XN_GRAPH_MAX_INPUTS;
    }
    net->params.layers = layers;
    for (int more = 0; more < 2; more++) {
        xn_graph *graph = NULL;
        xn_error error = {0};
        net->params.layer_count = LAYERS + more;
        xn_status status = xn_graph_create(&net->params, &nw_limits, &graph, &error);
        ck_assert_msg(status == (more ? XN_ERR_MALFORMED : XN_OK), "%s", error.message);
        ck_assert(!more || strstr(error.message, "at most 16384"));
        xn_graph_free(graph);
    }
    nw_free(net);
}
END_TEST

/* Names are the graph's own, tensors' descriptions too. */
START_TEST(a_graph_keeps_what_it_was_given) {
    xn_rng rng = {xn_test_seed()};
    nw_net *net = good(&rng);
    char name[] = "changes";
    net->layers[ADD].name = name;
    xn_graph *graph = nw_graph(net);
    xn_graph_end end;
    xn_network *network = NULL;
    memset(name, 'x', sizeof name - 1);
    memset(net->layers, 0, sizeof net->layers);
    memset(net->tensors, 0, sizeof net->tensors);
    memset(net->names, 0, sizeof net->names);
    xn_graph_output(graph, 0, &end);
    ck_assert_str_eq(end.name, "changes");
    ck_assert_int_eq(xn_network_lower(graph, &network, NULL), XN_OK);
    xn_graph_free(graph);
    nw_free(net);
    ck_assert_int_eq(network->steps[0].conv.out_channels, 8);
    ck_assert_int_eq(network->weights[0]->out_channels, 8);
    xn_network_free(network);
    xn_network_free(NULL);
    xn_graph_free(NULL);
}
END_TEST

XN_SUITE(networks_graph) {
    Suite *s = suite_create("networks_graph");
    TCase *t = xn_test_case(s, "graph", 0);
    tcase_add_test(t, shapes_are_inferred);
    tcase_add_test(t, ends_are_as_the_user_sees_them);
    tcase_add_test(t, every_op_is_documented);
    tcase_add_test(t, layers_that_are_refused);
    tcase_add_test(t, parameters_that_are_refused);
    tcase_add_test(t, attributes_that_are_refused);
    tcase_add_test(t, ends_that_are_refused);
    tcase_add_test(t, top_k_that_is_refused);
    tcase_add_test(t, limits_are_kept);
    tcase_add_test(t, all_inputs_together_are_limited);
    tcase_add_test(t, a_graph_keeps_what_it_was_given);
    return s;
}
