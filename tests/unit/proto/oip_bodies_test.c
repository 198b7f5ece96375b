/* The bodies of the model repository's routes and of shared memory, and base64. */
#include "proto_bodies.h"
#include "xn_json_tree.h"
#include "xn_mem.h"
#include "xn_oip.h"
#include "xn_test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- load ---- */

static xn_status load(const char *text, size_t length, proto_bytes *copy, xn_load_request *out,
                      xn_error *error) {
    *copy = proto_bytes_of(text, length);
    memset(out, 0xa5, sizeof *out);
    return xn_oip_parse_load(copy->bytes, copy->length, out, error);
}

START_TEST(loads) {
    static const char *const empty[] = {"",
                                        "{}",
                                        " {} ",
                                        "{\"parameters\":{}}",
                                        "{\"parameters\":null}",
                                        "{\"parameters\":{\"config\":null,\"file:a\":null}}"};
    xn_error error = {0};
    xn_load_request request;
    proto_bytes copy;
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        ck_assert_msg(!load(empty[i], strlen(empty[i]), &copy, &request, &error), "%s",
                      error.message);
        ck_assert(!request.config && request.file_count == 0);
        xn_load_request_free(&request);
        proto_bytes_free(&copy);
    }
    /* as tritonclient writes it, and with escapes where no client puts them */
    static const char body[] =
        "{\"parameters\": {\"config\": \"{\\\"name\\\": \\\"caf\\u00e9 \\ud83d\\ude00\\\"}\\n\", "
        "\"file:1/model.safetensors\": \"QUJD\", \"file:labels.txt\": \"Y\\u0057I\\/\", "
        "\"file:empty\": \"\"}}";
    ck_assert_msg(!load(body, sizeof body - 1, &copy, &request, &error), "%s", error.message);
    ck_assert_str_eq(request.config, "{\"name\": \"caf\xc3\xa9 \xf0\x9f\x98\x80\"}\n");
    ck_assert_uint_eq(request.config_length, strlen(request.config));
    ck_assert_int_eq(request.file_count, 3);
    ck_assert_str_eq(request.files[0].path, "1/model.safetensors");
    ck_assert(request.files[0].length == 4 && !memcmp(request.files[0].base64, "QUJD", 4));
    ck_assert_str_eq(request.files[1].path, "labels.txt");
    ck_assert(request.files[1].length == 4 && !memcmp(request.files[1].base64, "YWI/", 4));
    ck_assert(request.files[2].length == 0);
    xn_load_request_free(&request);
    proto_bytes_free(&copy);
}
END_TEST

/* A configuration and a file far longer than a request's header may be. */
START_TEST(loads_long_strings) {
    enum { LONG = 3000000 };
    char *text = malloc(2 * LONG + 100);
    ck_assert_ptr_nonnull(text);
    size_t length = (size_t)sprintf(text, "{\"parameters\":{\"config\":\"");
    memset(text + length, 'c', LONG);
    length += LONG;
    length += (size_t)sprintf(text + length, "\",\"file:f\":\"");
    memset(text + length, 'Q', LONG);
    length += LONG;
    length += (size_t)sprintf(text + length, "\"}}");
    proto_bytes copy;
    xn_load_request request;
    xn_error error = {0};
    ck_assert_msg(!load(text, length, &copy, &request, &error), "%s", error.message);
    ck_assert_uint_eq(request.config_length, LONG);
    ck_assert_uint_eq(request.files[0].length, LONG);
    ck_assert(request.config[LONG - 1] == 'c' && request.files[0].base64[LONG - 1] == 'Q');
    xn_load_request_free(&request);
    proto_bytes_free(&copy);
    free(text);
}
END_TEST

#define PARAMETER(member) "{\"parameters\":{" member "}}"
static xn_status parse_row(const xn_table_row *row, xn_error *error) {
    xn_load_request request;
    proto_bytes copy;
    const xn_status status =
        load(row->fields[0].text, row->fields[0].length, &copy, &request, error);
    proto_bytes_free(&copy);
    return status;
}

START_TEST(refuses_loads) {
    proto_refuse_all("load.txt", parse_row);
}
END_TEST

/* A name that is as long as a folder's may be, with "..." and the like in it, is one. */
START_TEST(loads_odd_paths) {
    static const char *const paths[] = {"...", "a/...b", ".hidden", "..a", "1/2/3/4", "a b"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char body[100];
        xn_error error = {0};
        xn_load_request request;
        proto_bytes copy;
        int length = snprintf(body, sizeof body, PARAMETER("\"file:%s\":\"\""), paths[i]);
        ck_assert_msg(!load(body, (size_t)length, &copy, &request, &error), "%s", error.message);
        ck_assert_str_eq(request.files[0].path, paths[i]);
        xn_load_request_free(&request);
        proto_bytes_free(&copy);
    }
}
END_TEST

/* Random pieces of strings: what comes out is what the parser of the tree makes of them. */
START_TEST(strings_as_the_parser_reads_them) {
    static const char *const pieces[] = {"a",
                                         "\\\"",
                                         "\\\\",
                                         "\\/",
                                         "\\b",
                                         "\\f",
                                         "\\n",
                                         "\\r",
                                         "\\t",
                                         "\\u0041",
                                         "\\u00E9",
                                         "\\u20aC",
                                         "\\ud83d\\ude00",
                                         "\\uD800",
                                         "\\uDC00",
                                         "\\u0000",
                                         "\\u00",
                                         "\\",
                                         "\\x",
                                         "\xc3\xa9",
                                         "\xe2\x82\xac",
                                         "\xf0\x9f\x98\x80",
                                         "\xff",
                                         "\xc3",
                                         "\x01",
                                         "\\udbff\\udfff",
                                         "\\uffff",
                                         "\xed\xa0\x80",
                                         " ",
                                         "{",
                                         "]",
                                         ",",
                                         ":"};
    xn_rng rng = {xn_test_seed()};
    int good = 0;
    for (int round = 0; round < 20000; round++) {
        char string[120] = "", body[200];
        for (uint64_t n = xn_rng_below(&rng, 6); n; n--)
            strcat(string, pieces[xn_rng_below(&rng, sizeof pieces / sizeof *pieces)]);
        xn_error error = {0};
        xn_load_request request;
        xn_json_scan scan = {0};
        const xn_json *root = NULL;
        proto_bytes copy;
        size_t length = (size_t)snprintf(body, sizeof body, "[\"%s\"]", string);
        bool parses = !xn_json_scan_text(body, length, false, &scan, &error) &&
                      !xn_json_parse(&scan, "it", &root, &error);
        length = (size_t)snprintf(body, sizeof body, PARAMETER("\"config\":\"%s\""), string);
        xn_status status = load(body, length, &copy, &request, &error);
        ck_assert_msg(parses == !status, "%s: %s", string, status ? error.message : "taken");
        if (parses) {
            ck_assert_str_eq(request.config, xn_json_string(xn_json_element(root, 0)));
            xn_load_request_free(&request);
            good++;
        }
        xn_json_scan_free(&scan);
        proto_bytes_free(&copy);
    }
    ck_assert_int_gt(good, 2000);
}
END_TEST

/* ---- the others ---- */

START_TEST(index_and_unload) {
    static const struct {
        const char *body;
        int ready, unload; /* ready -1, unload 0: refused */
    } cases[] = {
        {"", 0, 1},
        {"{}", 0, 1},
        {"{\"ready\":true}", 1, 0},
        {"{\"ready\":false}", 0, 0},
        {"{\"ready\":null}", 0, 0},
        {"{\"ready\":1}", -1, 0},
        {"{\"parameters\":{\"unload_dependents\": false}}", 0, 1},
        {"{\"parameters\":{\"anything\":[1]}}", 0, 1},
        {"{\"parameters\":[]}", -1, 0},
        {"{\"reedy\":true}", -1, 0},
        {"null", -1, 0},
        {"{", -1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t length = strlen(cases[i].body);
        xn_error error = {0};
        bool ready = true;
        xn_status status = xn_oip_parse_index(cases[i].body, length, &ready, &error);
        ck_assert_msg((status ? -1 : ready) == cases[i].ready, "%s", cases[i].body);
        status = xn_oip_parse_unload(cases[i].body, length, &error);
        ck_assert_msg((status == XN_OK) == cases[i].unload, "%s", cases[i].body);
    }
}
END_TEST

START_TEST(shared_memory) {
    static const struct {
        const char *body, *key;
        uint64_t offset, bytes;
        const char *field, *fragment;
    } cases[] = {
        {"{\"key\": \"/in\", \"offset\": 0, \"byte_size\": 64}", "/in", 0, 64, 0, 0},
        {"{\"key\":\"in\",\"byte_size\":1}", "/in", 0, 1, 0, 0},
        {"{\"key\":\"/in\",\"byte_size\":1,\"offset\":9223372036854775806}", "/in", INT64_MAX - 1,
         1, 0, 0},
        {"{\"key\":\"/in\",\"byte_size\":1,\"offset\":9223372036854775807}", 0, 0, 0, "offset",
         "are together more than"},
        {"", 0, 0, 0, "key", "key is missing"},
        {"{\"byte_size\":1}", 0, 0, 0, "key", "key is missing"},
        {"{\"key\":\"\",\"byte_size\":1}", 0, 0, 0, "key", "it takes a name for shm_open"},
        {"{\"key\":\"/\",\"byte_size\":1}", 0, 0, 0, "key", "it takes a name"},
        {"{\"key\":\"/a/b\",\"byte_size\":1}", 0, 0, 0, "key", "it takes a name"},
        {"{\"key\":\"//a\",\"byte_size\":1}", 0, 0, 0, "key", "it takes a name"},
        {"{\"key\":\"/..\",\"byte_size\":1}", 0, 0, 0, "key", "it takes a name"},
        {"{\"key\":\".\",\"byte_size\":1}", 0, 0, 0, "key", "it takes a name"},
        {"{\"key\":7,\"byte_size\":1}", 0, 0, 0, "key", "key is 7"},
        {"{\"key\":\"/a\"}", 0, 0, 0, "byte_size", "byte_size is missing"},
        {"{\"key\":\"/a\",\"byte_size\":0}", 0, 0, 0, "byte_size", "is 0; it takes an integer"},
        {"{\"key\":\"/a\",\"byte_size\":1,\"offset\":-1}", 0, 0, 0, "offset", "is -1"},
        {"{\"key\":\"/a\",\"byte_size\":1.0}", 0, 0, 0, "byte_size", "is the real number 1"},
        {"{\"key\":\"/a\",\"bytesize\":1}", 0, 0, 0, "bytesize", "did you mean \"byte_size\"?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_error error = {0};
        xn_shm_request request;
        xn_status status = xn_oip_parse_shm(cases[i].body, strlen(cases[i].body), &request, &error);
        if (cases[i].field) {
            proto_expect_error(status, &error, cases[i].body, cases[i].field, cases[i].fragment);
            continue;
        }
        ck_assert_msg(!status, "%s", error.message);
        ck_assert_str_eq(request.key, cases[i].key);
        ck_assert(request.offset == cases[i].offset && request.byte_size == cases[i].bytes);
    }
    for (int length = 253; length <= 256; length++) {
        char body[400];
        xn_error error = {0};
        xn_shm_request request;
        int size = snprintf(body, sizeof body, "{\"key\":\"%0*d\",\"byte_size\":1}", length, 0);
        xn_status status = xn_oip_parse_shm(body, (size_t)size, &request, &error);
        ck_assert_int_eq(!status, length <= 254);
        ck_assert(status || strlen(request.key) == (size_t)length + 1);
    }
}
END_TEST

START_TEST(every_allocation_fails) {
    static const char body[] = PARAMETER("\"config\":\"{}\",\"file:a\":\"Q\\/==\"");
    static const char shm[] = "{\"key\":\"/a\",\"byte_size\":1}";
    xn_status last[5] = {0};
    xn_proto_init();
    for (int n = 0; n < 4; n++)
        for (int which = 0; which < 5; which++) {
            atomic_int countdown = n;
            xn_error error = {0};
            xn_load_request request = {0};
            xn_shm_request region;
            void *bytes = NULL;
            size_t length;
            bool ready;
            xn_mem_set_hook(xn_test_count_down, &countdown);
            last[which] = which == 0   ? xn_oip_parse_load(body, sizeof body - 1, &request, &error)
                          : which == 1 ? xn_oip_parse_index("{}", 2, &ready, &error)
                          : which == 2 ? xn_oip_parse_unload("{}", 2, &error)
                          : which == 3 ? xn_oip_parse_shm(shm, sizeof shm - 1, &region, &error)
                                       : xn_base64_decode("QUJD", 4, &bytes, &length, &error);
            xn_mem_set_hook(NULL, NULL);
            const int takes = which == 0 ? 3 : which == 4 ? 1 : 2;
            ck_assert_int_eq(last[which], n < takes ? XN_ERR_NO_MEMORY : XN_OK);
            if (!last[which] && which == 0)
                xn_load_request_free(&request);
            xn_mem_free(bytes);
        }
}
END_TEST

/* ---- base64 ---- */

static size_t encode(const unsigned char *bytes, size_t length, char *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *p = out;
    for (size_t i = 0; i < length; i += 3) {
        unsigned v = (unsigned)bytes[i] << 16 | (i + 1 < length ? bytes[i + 1] : 0u) << 8 |
                     (i + 2 < length ? bytes[i + 2] : 0u);
        *p++ = digits[v >> 18];
        *p++ = digits[v >> 12 & 63];
        *p++ = i + 1 < length ? digits[v >> 6 & 63] : '=';
        *p++ = i + 2 < length ? digits[v & 63] : '=';
    }
    return (size_t)(p - out);
}

START_TEST(base64_round_trips) {
    xn_rng rng = {xn_test_seed()};
    for (size_t length = 0; length < 200; length++)
        for (int round = 0; round < 10; round++) {
            unsigned char bytes[200];
            char text[300];
            void *back = NULL;
            size_t size = 0;
            xn_error error = {0};
            for (size_t i = 0; i < length; i++)
                bytes[i] = (unsigned char)xn_rng_next(&rng);
            proto_bytes copy = proto_bytes_of(text, encode(bytes, length, text));
            ck_assert_msg(!xn_base64_decode((char *)copy.bytes, copy.length, &back, &size, &error),
                          "%s", error.message);
            ck_assert_uint_eq(size, length);
            ck_assert(!memcmp(back, bytes, length));
            ck_assert_uint_eq((uintptr_t)back % 64, 0);
            xn_mem_free(back);
            proto_bytes_free(&copy);
        }
}
END_TEST

START_TEST(base64_refuses) {
    static const struct {
        const char *text, *fragment;
    } cases[] = {
        {"QUJ", "has 3 characters; it takes a multiple of 4"},
        {"QUI", "has 3 characters"},
        {"QQ==QUJD", "has '=' at byte 2"},
        {"Q===", "has '=' at byte 1"},
        {"====", "has '=' at byte 0"},
        {"QU J", "has ' ' at byte 2"},
        {"QUJDQU-D", "has '-' at byte 6"},
        {"QUJDQU_=", "has '_' at byte 6"},
        {"QUJ\xc3", "has '?' at byte 3"},
        {"QR==", "ends with bits that are no byte's, before byte 4"},
        {"QUJDQUJ=", "ends with bits that are no byte's, before byte 8"},
        {"QUJDQQ=\n", "at byte 6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *out = NULL;
        size_t size = 0;
        xn_error error = {0};
        xn_status status =
            xn_base64_decode(cases[i].text, strlen(cases[i].text), &out, &size, &error);
        proto_expect_error(status, &error, cases[i].text, "", cases[i].fragment);
        ck_assert_ptr_null(out);
    }
}
END_TEST

XN_SUITE(oip_bodies) {
    Suite *s = suite_create("oip_bodies");
    TCase *t = xn_test_case(s, "bodies", 60);
    tcase_add_test(t, loads);
    tcase_add_test(t, loads_long_strings);
    tcase_add_test(t, refuses_loads);
    tcase_add_test(t, loads_odd_paths);
    tcase_add_test(t, strings_as_the_parser_reads_them);
    tcase_add_test(t, index_and_unload);
    tcase_add_test(t, shared_memory);
    tcase_add_test(t, every_allocation_fails);
    tcase_add_test(t, base64_round_trips);
    tcase_add_test(t, base64_refuses);
    return s;
}
