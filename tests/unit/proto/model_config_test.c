/* The files of a model's folder: what is read from them, and what is refused. */
#include "networks/nw_random.h"
#include "networks/nw_write.h"
#include "proto_bodies.h"
#include "xn_json_tree.h"
#include "xn_mem.h"
#include "xn_model_config.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static xn_status parse(const char *text, size_t length, xn_model_config **out, xn_error *error) {
    char *exact = malloc(length ? length : 1); /* so that sanitizers see what is read behind it */
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, text, length);
    xn_status status = xn_model_config_parse(exact, length, out, error);
    free(exact);
    return status;
}

static xn_model_config *must_parse(const char *text) {
    xn_model_config *config = NULL;
    xn_error error = {0};
    ck_assert_msg(!parse(text, strlen(text), &config, &error), "%s: %s", error.field,
                  error.message);
    return config;
}

/* A copy of exactly that size, aligned to 64. */
static void *copy_aligned(const void *bytes, size_t length) {
    void *copy = xn_mem_alloc(length);
    ck_assert_ptr_nonnull(copy);
    return memcpy(copy, bytes, length);
}

static xn_status graph_of(const xn_model_config *config, const void *bytes, size_t length,
                          xn_graph **out, void **memory, xn_error *error) {
    return xn_model_config_graph(config, bytes, length, &nw_limits, out, memory, error);
}

/* ---- the configuration ---- */

#define HEAD "{\"format\": \"xnord-network/1\", "
#define INPUT "\"input\": {\"datatype\": \"FP32\", \"shape\": [4, 5, 6]}"
#define LAYERS(layers) HEAD INPUT ", \"layers\": [" layers "]}"
#define SIGN "{\"op\": \"sign\", \"name\": \"s\"}"
#define WITH(members) HEAD members ", " INPUT ", \"layers\": [" SIGN "]}"

/* The rule of a picture: the default, and all members. */
START_TEST(says_what_a_picture_becomes) {
    xn_model_config *config = must_parse(
        HEAD "\"input\": {\"datatype\": \"UINT8\", \"shape\": [1, 20, 30]}, \"layers\": [" SIGN
             "]}");
    xn_model_about about;
    xn_model_config_about(config, &about);
    ck_assert_int_eq(about.picture.channels, 1);
    ck_assert_int_eq(about.picture.resize, 30);
    ck_assert_int_eq(about.picture.height, 20);
    ck_assert_int_eq(about.picture.width, 30);
    ck_assert_int_eq(about.picture.filter, XN_PICTURE_BILINEAR);
    ck_assert(!about.picture.fast && about.picture.mean[0] == 0 && about.picture.std[0] == 1);
    xn_model_config_free(config);
    config = must_parse(
        HEAD "\"input\": {\"datatype\": \"FP32\", \"shape\": [20, 20, 3], \"layout\": \"NHWC\","
             " \"picture\": {\"resize\": 24, \"crop\": [20, 20], \"filter\": \"bicubic\","
             " \"fast\": true, \"mean\": [0.5, 1, -2], \"std\": [0.25, 2, 1]}}, \"layers\": [" SIGN
             "]}");
    xn_model_config_about(config, &about);
    ck_assert_int_eq(about.picture.channels, 3);
    ck_assert_int_eq(about.picture.resize, 24);
    ck_assert_int_eq(about.picture.filter, XN_PICTURE_BICUBIC);
    ck_assert(about.picture.fast && about.picture.mean[2] == -2 && about.picture.std[0] == 0.25);
    xn_model_config_free(config);
}
END_TEST

START_TEST(says_what_it_holds) {
    xn_model_config *config = must_parse(
        "{\"format\": \"xnord-network/1\", \"name\": \"bi-real.18\", \"max_batch_size\": 512,"
        " \"precision\": \"fp16\","
        " \"input\": {\"name\": \"pixels\", \"datatype\": \"UINT8\", \"shape\": [224, 224, 3],"
        " \"layout\": \"NHWC\"},"
        " \"outputs\": [\"a.b\", {\"layer\": \"s\", \"name\": \"logits\", \"labels\": \"l.txt\"},"
        " {\"layer\": \"s\"}],"
        " \"layers\": [{\"op\": \"flatten\", \"name\": \"a.b\"}, " SIGN "]}");
    xn_model_about about;
    xn_model_config_about(config, &about);
    ck_assert_str_eq(about.name, "bi-real.18");
    ck_assert_int_eq(about.max_batch_size, 512);
    ck_assert_int_eq(about.precision, XN_PRECISION_FP16);
    ck_assert_str_eq(about.input_name, "pixels");
    ck_assert_int_eq(about.input_datatype, XN_UINT8);
    ck_assert_int_eq(about.input_layout, XN_IMAGE_NHWC);
    ck_assert_int_eq(about.input_shape.rank, 3);
    ck_assert_int_eq(about.input_shape.dims[2], 3);
    ck_assert_int_eq(about.layer_count, 2);
    ck_assert_int_eq(about.output_count, 3);
    ck_assert_str_eq(about.outputs[0].name, "a.b");
    ck_assert_str_eq(about.outputs[0].layer, "a.b");
    ck_assert_ptr_null(about.outputs[0].labels);
    ck_assert_str_eq(about.outputs[1].name, "logits");
    ck_assert_str_eq(about.outputs[1].layer, "s");
    ck_assert_str_eq(about.outputs[1].labels, "l.txt");
    ck_assert_str_eq(about.outputs[2].name, "s");
    xn_model_config_free(config);
}
END_TEST

START_TEST(has_defaults) {
    xn_model_config *config = must_parse(LAYERS(SIGN));
    xn_model_about about;
    xn_model_config_about(config, &about);
    ck_assert_str_eq(about.name, "");
    ck_assert_int_eq(about.max_batch_size, 1024);
    ck_assert_int_eq(about.precision, XN_PRECISION_FP32);
    ck_assert_str_eq(about.input_name, "input");
    ck_assert_int_eq(about.input_layout, XN_IMAGE_NCHW);
    ck_assert_int_eq(about.output_count, 1);
    ck_assert_str_eq(about.outputs[0].name, "s");
    ck_assert_str_eq(about.outputs[0].layer, "s");
    xn_model_config_free(config);
    config = must_parse(WITH("\"output\": {\"name\": \"y\"}"));
    xn_model_config_about(config, &about);
    ck_assert_str_eq(about.outputs[0].name, "y");
    ck_assert_str_eq(about.outputs[0].layer, "s");
    xn_model_config_free(config);
}
END_TEST

/* Every string is read once, with its escapes; none is longer than in the file. */
START_TEST(strings_are_unescaped) {
    xn_model_config *config = must_parse(
        "{\"\\u0066ormat\":\"xnord-network/1\",\"input\":{\"name\":\"\\u00e9\",\"datatype\":"
        "\"FP32\",\"shape\":[1]},\"layers\":[{\"name\":\"\\ud83d\\ude00\",\"op\":\"si\\u0067n\","
        "\"inputs\":[\"\xc3\xa9\"]}]}");
    xn_model_about about;
    xn_model_config_about(config, &about);
    ck_assert_str_eq(about.input_name, "\xc3\xa9");
    ck_assert_str_eq(about.outputs[0].layer, "\xf0\x9f\x98\x80");
    xn_model_config_free(config);
}
END_TEST

static xn_status parse_row(const xn_table_row *row, xn_error *error) {
    xn_model_config *config = NULL;
    const xn_status status = parse(row->fields[0].text, row->fields[0].length, &config, error);
    ck_assert_msg(status ? !config : config != NULL, "line %d", row->line);
    xn_model_config_free(config);
    return status;
}

START_TEST(refuses_what_is_wrong) {
    proto_refuse_all("config.txt", parse_row);
}
END_TEST

/* One layer again and again, which every limit of a text is found with. */
static char *repeated(const char *layer, int count, size_t *length) {
    char *text;
    FILE *file = open_memstream(&text, length);
    ck_assert_ptr_nonnull(file);
    fprintf(file, HEAD INPUT ", \"layers\": [");
    for (int i = 0; i < count; i++)
        fprintf(file, "%s%s", i ? "," : "", layer);
    fprintf(file, "]}");
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

START_TEST(refuses_more_than_the_limits) {
    static const struct {
        const char *layer;
        int count;
        xn_status status;
        const char *fragment;
    } cases[] = {
        {SIGN, 4096, XN_OK, NULL},
        {SIGN, 4097, XN_ERR_MALFORMED, "has 4097 layers"},
        {"{\"op\":\"sign\",\"name\":\"s\",\"inputs\":[\"s\",\"s\",\"s\",\"s\"]}", 4096, XN_OK,
         NULL},
        {"[[[]]]", 40000, XN_ERR_MALFORMED, "more than 131072 values, the limit"},
        {"[[[[[[[1]]]]]]]", 1, XN_ERR_MALFORMED, "nested more than 8 deep"},
        {"                                                                ", 70000, XN_ERR_LIMIT,
         "more than 4194304, the limit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t length;
        char *text = repeated(cases[i].layer, cases[i].count, &length);
        xn_model_config *config = NULL;
        xn_error error = {0};
        ck_assert_int_eq(parse(text, length, &config, &error), cases[i].status);
        if (cases[i].fragment)
            ck_assert_msg(strstr(error.message, cases[i].fragment) != NULL, "%s", error.message);
        xn_model_config_free(config);
        free(text);
    }
}
END_TEST

/* A string as long as a file may be: what the parser takes for it was taken before it began. */
START_TEST(takes_long_strings) {
    static const char begin[] = LAYERS("{\"op\": \"sign\", \"name\": \""), end[] = "\"}]}";
    const size_t length = XN_MODEL_CONFIG_BYTES, at = sizeof begin - 3; /* without its ]} */
    char *text = malloc(length);
    xn_model_config *config = NULL;
    xn_model_about about;
    xn_error error = {0};
    ck_assert_ptr_nonnull(text);
    memcpy(text, begin, at);
    memset(text + at, 'n', length - at);
    memcpy(text + length - sizeof end + 1, end, sizeof end - 1);
    ck_assert_msg(!parse(text, length, &config, &error), "%s", error.message);
    xn_model_config_about(config, &about);
    ck_assert_uint_eq(strlen(about.outputs[0].name), length - at - sizeof end + 1);
    xn_model_config_free(config);
    free(text);
}
END_TEST

/* ---- the tensors ---- */

#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* A file of that header and so many bytes of values, 0 or as given. */
static void *make_file(const char *header, size_t spaces, const void *values, size_t count,
                       size_t *length) {
    const size_t n = strlen(header) + spaces;
    uint8_t *file = xn_mem_alloc(8 + n + count);
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)n >> (8 * i));
    memcpy(file + 8, header, strlen(header));
    memset(file + 8 + strlen(header), ' ', spaces);
    memset(file + 8 + n, 0, count);
    if (values)
        memcpy(file + 8 + n, values, count);
    *length = 8 + n + count;
    return file;
}

#define DENSE(members)                                                                             \
    HEAD "\"input\": {\"datatype\": \"FP32\", \"shape\": [9]}, \"layers\": ["                      \
         "{\"op\": \"conv\", \"name\": \"a.b\"" members "}]}"
#define PACKED DENSE(", \"packed_channels\": 9")

typedef struct file_case {
    const char *config, *header;
    size_t values;
    const char *field, *fragment; /* NULL: accepted */
} file_case;

static void check_file(const file_case *c, const void *values) {
    xn_model_config *config = must_parse(c->config);
    size_t length;
    void *file = make_file(c->header, 0, values, c->values, &length), *memory = NULL;
    xn_graph *graph = NULL;
    xn_error error = {0};
    xn_status status = graph_of(config, file, length, &graph, &memory, &error);
    if (!c->field) {
        ck_assert_msg(!status, "%s: %s: %s", c->header, error.field, error.message);
    } else {
        ck_assert_msg(status, "%s: accepted", c->header);
        ck_assert_int_eq(status, error.status);
        ck_assert_msg(!strcmp(error.field, c->field), "%s: field %s", c->header, error.field);
        ck_assert_msg(strstr(error.message, c->fragment) != NULL, "%s: %s", c->header,
                      error.message);
        ck_assert(!graph && !memory);
    }
    xn_graph_free(graph);
    xn_mem_free(memory);
    xn_mem_free(file);
    xn_model_config_free(config);
}

START_TEST(tensors_by_their_header) {
    const xn_table *table = xn_table_read("unit/proto/refusals/tensors.txt");
    for (int i = 0; i < table->count; i++) {
        const xn_table_field *f = table->rows[i].fields;
        const file_case c = {.config = f[0].text,
                             .header = f[1].text,
                             .values = (size_t)xn_table_number(&table->rows[i], 4),
                             .field = f[3].length ? f[2].text : NULL,
                             .fragment = f[3].text};
        check_file(&c, NULL);
    }
}
END_TEST

START_TEST(refuses_what_is_no_safetensors_file) {
    xn_model_config *config = must_parse(LAYERS(SIGN));
    static const struct {
        const char *bytes;
        size_t length;
        const char *fragment;
    } cases[] = {
        {"", 0, "model.safetensors has 0 bytes and is no safetensors file"},
        {"\2\0\0\0\0\0\0", 7, "7 bytes"},
        {"\2\0\0\0\0\0\0\0{", 9, "only 1 bytes follow"},
        {"PK\3\4\24\0\0\0\10\0", 10, "it looks like a zip archive"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "is no safetensors file"},
        {"\1\0\0\1\0\0\0\0{}", 10, "the limit is 16777216"},
        {"\2\0\0\0\0\0\0\0[]", 10, "beginning with '{'"},
        {"\1\0\0\0\0\0\0\0 ", 9, "beginning with '{'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *file = copy_aligned(cases[i].bytes, cases[i].length), *memory = NULL;
        xn_graph *graph = NULL;
        xn_error error = {0};
        ck_assert_int_eq(graph_of(config, file, cases[i].length, &graph, &memory, &error),
                         XN_ERR_MALFORMED);
        ck_assert_msg(strstr(error.message, cases[i].fragment) != NULL, "%s", error.message);
        xn_mem_free(file);
    }
    xn_model_config_free(config);
}
END_TEST

/* The format lets a header end in spaces; so many are not given to the parser. */
START_TEST(takes_spaces_behind_a_header) {
    xn_model_config *config = must_parse(LAYERS(SIGN));
    for (size_t spaces = 0; spaces <= 16777214; spaces = spaces * 5 + 3) {
        size_t length;
        void *file = make_file("{}", spaces, NULL, 0, &length), *memory = NULL;
        xn_graph *graph = NULL;
        xn_error error = {0};
        ck_assert_msg(!graph_of(config, file, length, &graph, &memory, &error), "%s",
                      error.message);
        xn_graph_free(graph);
        xn_mem_free(memory);
        xn_mem_free(file);
    }
    xn_model_config_free(config);
}
END_TEST

START_TEST(takes_a_long_header) {
    static const char begin[] = "{\"__metadata__\":{\"k\":\"", end[] = "\"}}";
    char *header = malloc(XN_MODEL_HEADER_BYTES + 2);
    ck_assert_ptr_nonnull(header);
    memset(header, 'v', XN_MODEL_HEADER_BYTES);
    memcpy(header, begin, sizeof begin - 1);
    xn_model_config *config = must_parse(LAYERS(SIGN));
    for (int more = 0; more < 2; more++) {
        size_t length;
        void *memory = NULL;
        xn_graph *graph = NULL;
        xn_error error = {0};
        memcpy(header + XN_MODEL_HEADER_BYTES + more + 1 - sizeof end, end, sizeof end);
        void *file = make_file(header, 0, NULL, 0, &length);
        xn_status status = graph_of(config, file, length, &graph, &memory, &error);
        ck_assert_int_eq(status, more ? XN_ERR_MALFORMED : XN_OK);
        xn_graph_free(graph);
        xn_mem_free(file);
        memset(header + XN_MODEL_HEADER_BYTES - 3, 'v', 4);
    }
    xn_model_config_free(config);
    free(header);
}
END_TEST

/* Bits behind the last channel are 0, wherever they are. */
START_TEST(refuses_spare_bits) {
    for (int bit = 0; bit < 32; bit++) {
        const uint8_t values[4] = {(uint8_t)(bit / 8 == 0 ? 1u << bit % 8 : 0),
                                   (uint8_t)(bit / 8 == 1 ? 1u << bit % 8 : 0),
                                   (uint8_t)(bit / 8 == 2 ? 1u << bit % 8 : 0),
                                   (uint8_t)(bit / 8 == 3 ? 1u << bit % 8 : 0)};
        const bool spare = bit % 16 >= 9;
        const file_case c = {PACKED, "{" TENSOR("a.b.weight", "U8", "[2,2]", "[0,4]") "}", 4,
                             spare ? "layers[0].weight" : NULL,
                             "a bit that is not 0 behind channel 8"};
        check_file(&c, values);
    }
}
END_TEST

/* ---- whole networks ---- */

static void fill_input(xn_rng *rng, xn_datatype datatype, int64_t count, void *to) {
    for (int64_t i = 0; i < count; i++) {
        const float value = (float)((int)xn_rng_below(rng, 17) - 8) * 0.25f;
        if (datatype == XN_UINT8)
            ((uint8_t *)to)[i] = (uint8_t)xn_rng_below(rng, 256);
        else if (datatype == XN_FP16)
            ((uint16_t *)to)[i] = xn_fp32_to_fp16(value);
        else
            ((float *)to)[i] = value;
    }
}

static void same_graph(const nw_net *net, const xn_graph *graph, const xn_graph *again,
                       int64_t *ops) {
    xn_graph_end a, b;
    ck_assert_int_eq(xn_graph_output_count(graph), xn_graph_output_count(again));
    ck_assert_int_eq(xn_graph_operations(graph), xn_graph_operations(again));
    for (int i = 0; i < xn_graph_output_count(graph); i++) {
        xn_graph_output(graph, i, &a);
        xn_graph_output(again, i, &b);
        ck_assert_str_eq(a.name, b.name);
        ck_assert_int_eq(a.datatype, b.datatype);
        ck_assert_int_eq(a.classes, b.classes);
        ck_assert_mem_eq(&a.shape, &b.shape, sizeof a.shape);
    }
    xn_graph_input(graph, &a);
    xn_graph_input(again, &b);
    ck_assert_str_eq(a.name, b.name);
    ck_assert_int_eq(a.datatype, b.datatype);
    ck_assert_mem_eq(&a.shape, &b.shape, sizeof a.shape);
    for (int i = 0; i < net->params.layer_count; i++) {
        ck_assert(xn_graph_layer_shape(graph, net->layers[i].name, &a.shape));
        ck_assert(xn_graph_layer_shape(again, net->layers[i].name, &b.shape));
        ck_assert_mem_eq(&a.shape, &b.shape, sizeof a.shape);
        ops[net->layers[i].op]++;
    }
}

static xn_network *lower(const xn_graph *graph) {
    xn_network *network = NULL;
    xn_error error = {0};
    ck_assert_msg(!xn_network_lower(graph, &network, &error), "%s", error.message);
    return network;
}

/* What is computed, bit for bit. */
static void same_results(const nw_net *net, const xn_graph *graph, const xn_graph *again,
                         xn_rng *rng, uint64_t seed) {
    xn_network *a = lower(graph), *b = lower(again);
    void *input = calloc((size_t)a->input_elements, sizeof(float));
    ck_assert_ptr_nonnull(input);
    ck_assert_uint_eq(a->output_bytes, b->output_bytes);
    fill_input(rng, net->params.input_datatype, a->input_elements, input);
    float *x = nw_run(a, input, 1), *y = nw_run(b, input, 1);
    ck_assert_msg(!memcmp(x, y, a->output_bytes), "seed %" PRIu64 ": other results", seed);
    free(x);
    free(y);
    free(input);
    xn_network_free(a);
    xn_network_free(b);
}

/* All ops, all datatypes, in all forms: the graph that is read back is the one that was written. */
START_TEST(random_networks_come_back) {
    int64_t ops[XN_OP_COUNT] = {0}, copied = 0;
    enum { NETWORKS = 250 };
    for (uint64_t i = 0; i < NETWORKS; i++) {
        const uint64_t seed = xn_test_seed() + i;
        xn_rng rng = {seed};
        nw_net *net = nw_random_net(&rng, i % 2);
        net->params.precision = (xn_precision)(i % 3);
        if (i % 8 == 1)
            nw_random_top_k(net, &rng, true);
        if (i % 5 == 2)
            nw_pack_input(net);
        nw_files files;
        nw_write(net, i % 7 ? &rng : NULL, &files);
        xn_model_config *config = must_parse(files.config);
        xn_graph *graph = nw_graph(net), *again = NULL;
        void *memory = NULL;
        xn_error error = {0};
        xn_status status =
            graph_of(config, files.tensors, files.tensors_length, &again, &memory, &error);
        ck_assert_msg(!status, "seed %" PRIu64 ": %s: %s\n%s", seed, error.field, error.message,
                      files.config);
        copied += memory != NULL;
        same_graph(net, graph, again, ops);
        same_results(net, graph, again, &rng, seed);
        xn_graph_free(again);
        xn_graph_free(graph);
        xn_mem_free(memory);
        xn_model_config_free(config);
        nw_files_free(&files);
        nw_free(net);
    }
    for (int op = 0; op < XN_OP_COUNT; op++)
        ck_assert_msg(ops[op] > 5, "few of %s", xn_op_name((xn_op)op));
    ck_assert(copied > NETWORKS / 4 && copied < NETWORKS);
}
END_TEST

/* A dense layer and a grouped convolution with packed weights, bit by bit. */
START_TEST(packed_bits_are_signs) {
    static const char text[] =
        HEAD "\"input\": {\"datatype\": \"FP32\", \"shape\": [9]}, \"layers\": ["
             "{\"op\": \"conv\", \"name\": \"d\", \"mode\": \"float\", \"packed_channels\": 9}]}";
    for (int bit = 0; bit < 18; bit++) {
        uint8_t values[4] = {0};
        values[bit / 9 * 2 + bit % 9 / 8] = (uint8_t)(1u << (bit % 9 % 8));
        size_t length;
        void *file = make_file("{" TENSOR("d.weight", "U8", "[2,2]", "[0,4]") "}", 0, values, 4,
                               &length),
             *memory = NULL;
        xn_model_config *config = must_parse(text);
        xn_graph *graph = NULL;
        xn_error error = {0};
        ck_assert_msg(!graph_of(config, file, length, &graph, &memory, &error), "%s",
                      error.message);
        xn_network *network = lower(graph);
        float input[9] = {0};
        input[bit % 9] = 1;
        float *output = nw_run(network, input, 1);
        ck_assert(output[bit / 9] == 1 && output[1 - bit / 9] == -1);
        free(output);
        xn_network_free(network);
        xn_graph_free(graph);
        xn_mem_free(memory);
        xn_mem_free(file);
        xn_model_config_free(config);
    }
}
END_TEST

/* ---- hostile files ---- */

/* Any text and any file: a graph, or an error that says something. */
static void try_both(const char *text, size_t text_length, const void *bytes, size_t length,
                     int *accepted) {
    xn_model_config *config = NULL;
    xn_graph *graph = NULL;
    void *memory = NULL;
    xn_error error = {0};
    xn_status status = parse(text, text_length, &config, &error);
    if (!status) {
        void *file = copy_aligned(bytes, length);
        status = graph_of(config, file, length, &graph, &memory, &error);
        xn_graph_free(graph);
        xn_mem_free(memory);
        xn_mem_free(file);
    }
    *accepted += !status;
    ck_assert(!status || (error.status == status && error.message[0]));
    xn_model_config_free(config);
}

static void small_files(uint64_t seed, nw_files *out) {
    xn_rng rng = {seed};
    nw_net *net = NULL;
    do {
        nw_free(net ? net : calloc(1, sizeof *net));
        net = nw_random_net(&rng, true);
    } while (net->params.layer_count < 4 || net->tensor_count < 3);
    nw_write(net, &rng, out);
    nw_free(net);
}

START_TEST(refuses_whatever_is_cut_off) {
    nw_files files;
    int accepted = 0;
    small_files(xn_test_seed(), &files);
    for (size_t cut = 1; cut <= files.tensors_length; cut += cut < 2000 ? 1 : 97)
        try_both(files.config, files.config_length, files.tensors, files.tensors_length - cut,
                 &accepted);
    for (size_t cut = 2; cut <= files.config_length; cut++) /* it ends in a newline */
        try_both(files.config, files.config_length - cut, files.tensors, files.tensors_length,
                 &accepted);
    ck_assert_int_eq(accepted, 0);
    try_both(files.config, files.config_length, files.tensors, files.tensors_length, &accepted);
    ck_assert_int_eq(accepted, 1);
    nw_files_free(&files);
}
END_TEST

static xn_status read_all(const nw_files *files, xn_error *error) {
    xn_model_config *config = NULL;
    xn_graph *graph = NULL;
    void *memory = NULL;
    char **labels = NULL, *text = NULL;
    int64_t count;
    xn_status status = xn_model_config_parse(files->config, files->config_length, &config, error);
    if (!status)
        status = graph_of(config, files->tensors, files->tensors_length, &graph, &memory, error);
    if (!status)
        status = xn_model_labels_parse("a\nb", 3, 2, &labels, &count, &text, error);
    xn_mem_free(labels);
    xn_mem_free(text);
    xn_graph_free(graph);
    xn_mem_free(memory);
    xn_model_config_free(config);
    return status;
}

START_TEST(every_allocation_may_fail) {
    nw_files files;
    int failed = 0;
    small_files(xn_test_seed(), &files);
    for (xn_status status = XN_ERR_NO_MEMORY; status; failed++) {
        atomic_int countdown = failed;
        xn_error error = {0};
        xn_mem_set_hook(xn_test_count_down, &countdown);
        status = read_all(&files, &error);
        xn_mem_set_hook(NULL, NULL);
        ck_assert_msg(!status || (status == XN_ERR_NO_MEMORY && error.message[0]), "%d: %s: %s",
                      failed, xn_status_name(status), error.message);
        ck_assert_int_lt(failed, 100);
    }
    ck_assert_int_gt(failed, 10);
    nw_files_free(&files);
}
END_TEST

/* ---- labels ---- */

START_TEST(reads_labels) {
    static const struct {
        const char *text;
        size_t length;
        int count;
        const char *labels[3];
    } cases[] = {
        {"", 0, 0, {NULL}},
        {"\n", 1, 1, {""}},
        {"a", 1, 1, {"a"}},
        {"a\n", 2, 1, {"a"}},
        {"a\nb", 3, 2, {"a", "b"}},
        {"a b\r\n\r\nc\r\n", 10, 3, {"a b", "", "c"}},
        {"\xef\xbb\xbfK\xc3\xa4se\n\xf0\x9f\x98\x80", 13, 2, {"K\xc3\xa4se", "\xf0\x9f\x98\x80"}},
        {"a\rb\n\r", 5, 2, {"a\rb", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char **labels, *memory, *text = copy_aligned(cases[i].text, cases[i].length);
        int64_t count;
        xn_error error = {0};
        ck_assert_msg(
            !xn_model_labels_parse(text, cases[i].length, 3, &labels, &count, &memory, &error),
            "%s", error.message);
        ck_assert_int_eq(count, cases[i].count);
        for (int64_t n = 0; n < count; n++)
            ck_assert_str_eq(labels[n], cases[i].labels[n]);
        xn_mem_free(labels);
        xn_mem_free(memory);
        xn_mem_free(text);
    }
}
END_TEST

START_TEST(refuses_wrong_labels) {
    static const struct {
        const char *text;
        size_t length;
        const char *fragment;
    } cases[] = {
        {"a\nb\nc\nd", 7, "there is a line 4 of labels; the output has 3"},
        {"a\nb\nc\n\n", 7, "there is a line 4"},
        {"a\n\xff\n", 4, "line 2 of the labels is no valid UTF-8"},
        {"\xc3", 1, "line 1 of the labels is no valid UTF-8"},
        {"\xf0\x9f\x98", 3, "is no valid UTF-8"},
        {"a\n\xed\xa0\x80", 5, "line 2 of the labels is no valid UTF-8"},
        {"a\nb\n\0", 5, "line 3 of the labels holds a NUL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char **labels = NULL, *memory = NULL, *text = copy_aligned(cases[i].text, cases[i].length);
        int64_t count;
        xn_error error = {0};
        ck_assert_int_eq(
            xn_model_labels_parse(text, cases[i].length, 3, &labels, &count, &memory, &error),
            XN_ERR_MALFORMED);
        ck_assert_str_eq(error.field, "labels");
        ck_assert_msg(strstr(error.message, cases[i].fragment) != NULL, "%s", error.message);
        ck_assert(!labels && !memory);
        xn_mem_free(text);
    }
}
END_TEST

XN_SUITE(model_config) {
    Suite *s = suite_create("model_config");
    TCase *t = xn_test_case(s, "files", 60);
    tcase_add_test(t, says_what_it_holds);
    tcase_add_test(t, says_what_a_picture_becomes);
    tcase_add_test(t, has_defaults);
    tcase_add_test(t, strings_are_unescaped);
    tcase_add_test(t, refuses_what_is_wrong);
    tcase_add_test(t, refuses_more_than_the_limits);
    tcase_add_test(t, takes_long_strings);
    tcase_add_test(t, tensors_by_their_header);
    tcase_add_test(t, refuses_what_is_no_safetensors_file);
    tcase_add_test(t, takes_spaces_behind_a_header);
    tcase_add_test(t, takes_a_long_header);
    tcase_add_test(t, refuses_spare_bits);
    tcase_add_test(t, random_networks_come_back);
    tcase_add_test(t, packed_bits_are_signs);
    tcase_add_test(t, refuses_whatever_is_cut_off);
    tcase_add_test(t, every_allocation_may_fail);
    tcase_add_test(t, reads_labels);
    tcase_add_test(t, refuses_wrong_labels);
    return s;
}
