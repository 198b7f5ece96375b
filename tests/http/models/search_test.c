/* An index of codes on a real daemon: packed signs in, a top_k out, in every form of answer. */
#include "http/client/oip.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Five codes of 12 bits, of which the first and the last are equal; distances are 6 - dot / 2. */
static const char config[] =
    "{\"format\": \"xnord-network/1\", \"input\": {\"name\": \"query\", \"datatype\": \"UINT8\", "
    "\"shape\": [2], \"packed_channels\": 12}, "
    "\"output\": {\"name\": \"nearest\", \"labels\": \"ids.txt\"}, \"layers\": ["
    "{\"op\": \"conv\", \"name\": \"dot\", \"mode\": \"xnor\", \"packed_channels\": 12}, "
    "{\"op\": \"affine\", \"name\": \"distance\"}, "
    "{\"op\": \"top_k\", \"name\": \"k\", \"k\": 3, \"largest\": false}]}";
static const char header[] = "{\"dot.weight\":{\"dtype\":\"U8\",\"shape\":[5,2],"
                             "\"data_offsets\":[0,10]},\"distance.scale\":{\"dtype\":\"F32\","
                             "\"shape\":[1],\"data_offsets\":[10,14]},\"distance.bias\":{\"dtype\":"
                             "\"F32\",\"shape\":[1],\"data_offsets\":[14,18]}}";
static const uint8_t codes[10] = {0, 0, 1, 0, 0xff, 0x0f, 0x0f, 0, 0, 0};

static xt_daemon *daemon_;
static char repository[256];

static void write_file(const char *name, const xt_buffer *content) {
    char path[300];
    snprintf(path, sizeof path, "%s/codes/%s", repository, name);
    FILE *out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(content->data, 1, content->length, out), content->length);
    ck_assert_int_eq(fclose(out), 0);
}

static void start(void) {
    static const float scale = -0.5f, bias = 6;
    static const char ids[] = "zero\none\n\nfour\nagain\n";
    const uint64_t length = sizeof header - 1;
    xt_buffer tensors = {0}, text = {0};
    char path[300];
    xt_folder_make(repository, sizeof repository);
    snprintf(path, sizeof path, "%s/codes", repository);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    xt_append(&tensors, &length, sizeof length);
    xt_append(&tensors, header, length);
    xt_append(&tensors, codes, sizeof codes);
    xt_append(&tensors, &scale, sizeof scale);
    xt_append(&tensors, &bias, sizeof bias);
    write_file("model.safetensors", &tensors);
    xt_append(&text, config, sizeof config - 1);
    write_file("config.json", &text);
    text.length = 0;
    xt_append(&text, ids, sizeof ids - 1);
    write_file("ids.txt", &text);
    xt_buffer_free(&text);
    xt_buffer_free(&tensors);
    daemon_ = xt_daemon_start_shared(XT_FLAGS("--model-repository", repository));
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
    xt_folder_remove(repository);
}

#define QUERIES                                                                                    \
    "{\"inputs\": [{\"name\": \"query\", \"datatype\": \"UINT8\", \"shape\": [2, 2], \"data\": ["  \
    "0, 0, 255, 255]}]" /* the second with its spare bits set, which mean nothing */

static void ask(const char *query, const char *headers, const char *body, int status,
                xt_response *out) {
    xt_buffer target = {0};
    xt_print(&target, "/v2/models/codes/infer%s", query);
    xt_fetch(daemon_, "POST", (const char *)target.data, headers, body, strlen(body), out);
    ck_assert_msg(out->status == status, "%d: %s", out->status, out->body);
    xt_buffer_free(&target);
}

static const char values[] = "\"datatype\":\"FP32\",\"shape\":[2,3],\"data\":[0,0,1,0,8,11]";
static const char indices[] = "\"datatype\":\"INT32\",\"shape\":[2,3],\"data\":[0,4,1,2,3,1]";
static const char classes[] =
    "\"datatype\":\"BYTES\",\"shape\":[2,2],\"data\":[\"0.000000:0:zero\","
    "\"0.000000:4:again\",\"0.000000:2\",\"8.000000:3:four\"]";

START_TEST(every_form_of_answer) {
    static const struct {
        const char *query, *headers, *rest, *with, *without;
    } forms[] = {
        {"", "", "", values, "BYTES"},
        {"", "", "", indices, "BYTES"},
        {"?classes=2", "", "", values, "INT32"},
        {"?classes=2", "", "", classes, "INT32"},
        {"", "", ", \"outputs\": [{\"name\": \"nearest.indices\"}]", indices, "FP32\","},
        {"", "",
         ", \"outputs\": [{\"name\": \"nearest.indices\", \"parameters\": {\"classification\": "
         "2}}]",
         classes, "INT32"},
        {"?classes=2", "Accept: text/plain\r\n", "",
         "0.000000 zero\n0.000000 again\n\n0.000000 2\n8.000000 four\n", "{"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        xt_buffer body = {0};
        xt_response response;
        xt_print(&body, QUERIES "%s}", forms[i].rest);
        ask(forms[i].query, forms[i].headers, (const char *)body.data, 200, &response);
        ck_assert_msg(strstr(response.body, forms[i].with) != NULL, "%s has not %s", response.body,
                      forms[i].with);
        ck_assert_ptr_null(strstr(response.body, forms[i].without));
        xt_response_free(&response);
        xt_buffer_free(&body);
    }
}
END_TEST

/* Values and positions of an image lie one behind the other in the output, of a batch not. */
START_TEST(binary_answers) {
    static const float distances[6] = {0, 0, 1, 0, 8, 11};
    static const int32_t positions[6] = {0, 4, 1, 2, 3, 1};
    xt_response response;
    ask("", "", QUERIES ", \"parameters\": {\"binary_data_output\": true}}", 200, &response);
    const char *at = response.body + atoi(XT_HEADER(&response, "Inference-Header-Content-Length"));
    ck_assert_uint_eq(response.length - (size_t)(at - response.body), 48);
    ck_assert_mem_eq(at, distances, sizeof distances);
    ck_assert_mem_eq(at + sizeof distances, positions, sizeof positions);
    xt_response_free(&response);
}
END_TEST

START_TEST(refusals) {
    static const struct {
        const char *query, *headers, *body, *says;
    } cases[] = {
        {"", "",
         QUERIES ", \"outputs\": [{\"name\": \"nearest.values\", \"parameters\": "
                 "{\"classification\": 1}}]}",
         "\\\"nearest.values\\\" is the values of a top_k"},
        {"", "Accept: text/plain\r\n", QUERIES ", \"outputs\": [{\"name\": \"nearest.values\"}]}",
         "ask for those of \\\"nearest.indices\\\""},
        {"", "", QUERIES ", \"outputs\": [{\"name\": \"nearest\"}]}", "no output \\\"nearest\\\""},
        {"", "",
         "{\"inputs\": [{\"name\": \"query\", \"datatype\": \"UINT8\", \"shape\": [1, 3], "
         "\"data\": [0, 0, 0]}]}",
         "has shape [1, 3]; it must be [-1, 2]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xt_response response;
        ask(cases[i].query, cases[i].headers, cases[i].body, 400, &response);
        ck_assert_msg(strstr(response.body, cases[i].says) != NULL, "%s", response.body);
        xt_response_free(&response);
    }
}
END_TEST

START_TEST(what_clients_read) {
    char *model = xt_get(daemon_, "/v2/models/codes"),
         *settings = xt_get(daemon_, "/v2/models/codes/config");
    ck_assert_ptr_nonnull(strstr(model, "nearest.values"));
    ck_assert_ptr_nonnull(strstr(model, "nearest.indices"));
    ck_assert_ptr_nonnull(strstr(settings, "TYPE_INT32"));
    ck_assert_ptr_nonnull(strstr(settings, "ids.txt"));
    free(settings);
    free(model);
}
END_TEST

XN_SUITE(http_search) {
    Suite *suite = suite_create("http_search");
    TCase *tcase = tcase_create("search");
    tcase_add_unchecked_fixture(tcase, start, stop);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_form_of_answer);
    tcase_add_test(tcase, binary_answers);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, what_clients_read);
    suite_add_tcase(suite, tcase);
    xt_add_stopped_case(suite);
    return suite;
}
