/* The trained network of the demo, from its folder to its answers: on the pictures that were held
 * out of its training it recognises what train.py saw it recognise, and 97 of 100 rightly. On ref,
 * which is slow, some of them; on every other backend and instruction set all. */
#include "nw_net.h"

#include "xn_mem.h"
#include "xn_model_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FOLDER "deploy/demo/digits/"

enum {
    PIXELS = 64,
    CLASSES = 10,
    OUTPUTS = 2,
    LEAST = 97,
    REF_PICTURES = 100,
    BATCH = 128,
    THREADS = 2
};

typedef struct record {
    uint8_t pixels[PIXELS], shown, recognised;
} record;

/* The whole file; the caller frees it with xn_mem_free. */
static void *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file, "%s is not there; tests run in the project's folder", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    void *data = xn_mem_alloc((size_t)size);
    rewind(file);
    ck_assert(size > 0 && data && fread(data, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    *bytes = (size_t)size;
    return data;
}

static xn_model_config *read_config(void) {
    xn_model_config *config = NULL;
    xn_error error = {0};
    size_t length;
    char *text = read_file(FOLDER "config.json", &length);
    xn_status status = xn_model_config_parse(text, length, &config, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", error.field, error.message);
    xn_mem_free(text);
    return config;
}

static xn_network *read_network(void) {
    xn_model_config *config = read_config();
    xn_graph *graph = NULL;
    xn_network *network = NULL;
    xn_error error = {0};
    void *copies = NULL;
    size_t length;
    void *bytes = read_file(FOLDER "model.safetensors", &length);
    xn_status status =
        xn_model_config_graph(config, bytes, length, &nw_limits, &graph, &copies, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", error.field, error.message);
    status = xn_network_lower(graph, &network, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    xn_graph_free(graph);
    xn_mem_free(copies);
    xn_mem_free(bytes);
    xn_model_config_free(config);
    return network;
}

/* The pictures one behind the other, as a request has them. */
static uint8_t *pixels_of(const record *records, int64_t count) {
    uint8_t *pixels = malloc((size_t)count * PIXELS);
    ck_assert_ptr_nonnull(pixels);
    for (int64_t i = 0; i < count; i++)
        memcpy(pixels + i * PIXELS, records[i].pixels, PIXELS);
    return pixels;
}

static int largest(const float *values) {
    int best = 0;
    for (int i = 1; i < CLASSES; i++)
        best = values[i] > values[best] ? i : best;
    return best;
}

/* got: of each picture the scores, then the logits. */
static void check_answers(const char *name, const record *records, int64_t count,
                          const float *got) {
    int64_t right = 0;
    for (int64_t i = 0; i < count; i++, got += OUTPUTS * CLASSES) {
        double sum = 0;
        for (int c = 0; c < CLASSES; c++)
            sum += (double)got[c];
        ck_assert_msg(sum > 0.9999 && sum < 1.0001, "%s: scores of %" PRId64 " add up to %g", name,
                      i, sum);
        for (int output = 0; output < OUTPUTS; output++)
            ck_assert_msg(largest(got + output * CLASSES) == records[i].recognised,
                          "%s: picture %" PRId64 " is taken for %d, not %d", name, i,
                          largest(got + output * CLASSES), records[i].recognised);
        right += largest(got) == records[i].shown;
    }
    ck_assert_msg(right * 100 >= count * LEAST, "%s: %" PRId64 " of %" PRId64 " right", name, right,
                  count);
}

START_TEST(config_is_what_the_demo_asks_for) {
    xn_model_config *config = read_config();
    xn_model_about about;
    xn_model_config_about(config, &about);
    ck_assert_str_eq(about.name, "digits");
    ck_assert_str_eq(about.input_name, "input");
    ck_assert_int_eq(about.input_datatype, XN_UINT8);
    ck_assert_int_eq(about.output_count, OUTPUTS);
    ck_assert_str_eq(about.outputs[0].name, "scores");
    ck_assert_str_eq(about.outputs[0].labels, "labels.txt");
    ck_assert_str_eq(about.outputs[1].name, "logits");
    xn_model_config_free(config);
}
END_TEST

START_TEST(held_out_digits_are_recognised) {
    size_t bytes;
    record *records = read_file(FOLDER "held_out.u8", &bytes);
    const int64_t count = (int64_t)(bytes / sizeof *records);
    xn_network *network = read_network();
    uint8_t *pixels = pixels_of(records, count);
    ck_assert_uint_eq(bytes % sizeof *records, 0);
    ck_assert_uint_eq(network->output_bytes, OUTPUTS * CLASSES * sizeof(float));
    float *got = nw_run(network, pixels, REF_PICTURES);
    check_answers("ref", records, REF_PICTURES, got);
    free(got);
    const nw_subject *s = nw_subject_at(0);
    ck_assert_ptr_nonnull(s);
    for (int i = 0; (s = nw_subject_at(i)); i++) {
        got = nw_run_on(s, network, pixels, count, BATCH, THREADS);
        check_answers(s->name, records, count, got);
        free(got);
    }
    free(pixels);
    xn_network_free(network);
    xn_mem_free(records);
}
END_TEST

XN_SUITE(networks_digits) {
    Suite *s = suite_create("networks_digits");
    TCase *t = xn_test_case(s, "networks_digits", 60);
    tcase_add_test(t, config_is_what_the_demo_asks_for);
    tcase_add_test(t, held_out_digits_are_recognised);
    return s;
}
