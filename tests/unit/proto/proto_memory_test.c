/* The memory of a parse: one block, taken before the JSON parser starts, so that none of its own
 * allocations can fail. The parser writes past its buffer when one does. */
#include "xn_json_tree.h"
#include "xn_mem.h"
#include "xn_proto.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>

#define MOST_DOCUMENT 65536

/* Fails every allocation of exactly these many bytes. */
static bool refuse_size(void *context, size_t bytes) {
    return bytes != *(const size_t *)context;
}

static xn_status parse_body(const char *text, size_t length, xn_error *error) {
    const xn_proto_limits limits = {1000};
    const xn_proto_body body = {.form = XN_FORM_JSON, .bytes = text, .length = length};
    xn_conv_request request;
    return xn_proto_parse_conv(&body, NULL, 0, &limits, &request, error);
}

/* A long key, or a long name, makes the parser's buffer grow in the middle of a token. */
START_TEST(a_growing_token_survives_failures) {
    static const char *const shapes[][2] = {
        {"{\"", "\":1}"}, {"{\"id\":\"", "\"}"}, {"[", "]"}, {"\"", "\""}, {"{\"id\":", "}"}};
    char text[1024];
    xn_proto_init();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t length = 1; length < 700; length += 13) {
            size_t begin = strlen(shapes[s][0]), end = strlen(shapes[s][1]);
            memcpy(text, shapes[s][0], begin);
            memset(text + begin, s == 2 ? '7' : 'A', length);
            memcpy(text + begin + length, shapes[s][1], end);
            for (size_t refused = 16; refused <= 2048; refused *= 2) {
                xn_error error = {0};
                xn_mem_set_hook(refuse_size, &refused);
                xn_status status = parse_body(text, begin + length + end, &error);
                xn_mem_set_hook(NULL, NULL);
                ck_assert_msg(status == XN_ERR_MALFORMED || status == XN_ERR_NO_MEMORY, "%s: %s",
                              xn_status_name(status), error.message);
                ck_assert(error.message[0]);
            }
        }
}
END_TEST

/* ---- the bound ---- */

static size_t append(char *text, size_t length, const char *piece) {
    size_t more = strlen(piece);
    if (length + more > MOST_DOCUMENT)
        return length;
    memcpy(text + length, piece, more);
    return length + more;
}

/* So many of one thing; a '%' in it becomes its number. */
static size_t fill(char *text, const char *begin, const char *piece, const char *end, int count) {
    size_t length = append(text, 0, begin);
    for (int i = 0; i < count; i++) {
        length = append(text, length, i ? "," : "");
        for (const char *c = piece; *c; c++) {
            char one[16] = {*c};
            if (*c == '%')
                snprintf(one, sizeof one, "%d", i);
            length = append(text, length, one);
        }
    }
    return append(text, length, end);
}

/* Parses in exactly the bound, and then in less and less. Returns how many times the need the bound
 * is. */
static size_t check_bound(const char *name, const char *text, size_t length) {
    xn_json_scan scan = {0};
    const xn_json *root = NULL;
    xn_error error = {0};
    ck_assert_msg(!xn_json_scan_text(text, length, false, &scan, &error), "%s", error.message);
    size_t bound = xn_json_parse_bound(scan.skeleton, scan.skeleton_length);
    ck_assert_uint_le(2 * bound + MOST_DOCUMENT, XN_PROTO_PARSE_BYTES);
    xn_status status = xn_json_parse_within(&scan, "text", bound, &root, &error);
    ck_assert_msg(status != XN_ERR_NO_MEMORY, "%s: %s", name, error.message);
    size_t step = bound / 97 + 1, enough = bound;
    for (size_t bytes = bound; bytes > step; bytes -= step) {
        xn_status less = xn_json_parse_within(&scan, "text", bytes, &root, &error);
        ck_assert_msg(less == status || less == XN_ERR_NO_MEMORY, "%s in %zu: %s", name, bytes,
                      error.message);
        if (less == status)
            enough = bytes;
    }
    xn_json_scan_free(&scan);
    return bound / enough;
}

START_TEST(no_document_takes_more_than_the_bound) {
    static const struct {
        const char *name, *begin, *piece, *end;
        int count;
    } documents[] = {
        {"empty objects", "[", "{}", "]", 2000},
        {"empty arrays", "[", "[]", "]", 2000},
        {"members", "{", "\"%\":0", "}", 2000},
        {"members just over a doubling", "{", "\"%\":0", "}", 1025},
        {"members just below one", "{", "\"%\":0", "}", 1024},
        {"one member each", "[", "{\"k\":\"v\"}", "]", 1300},
        {"nine members", "{", "\"%\":{}", "}", 9},
        {"empty strings", "[", "\"\"", "]", 4000},
        {"short strings", "[", "\"%\"", "]", 4000},
        {"escapes", "[", "\"\\u00e9\\n\"", "]", 4000},
        {"integers", "[", "%", "]", 4000},
        {"nine integers", "[", "%", "]", 9},
        {"reals", "[", "1.5e%", "]", 300},
        {"words", "[", "true,false,null", "]", 1300},
        {"half an object", "{", "\"%\":[1,2", "", 1},
        {"a key twice", "{", "\"k\":1,\"k\":2", "}", 1},
        {"nothing of it", "[", "}", "", 1},
    };
    char *text = malloc(MOST_DOCUMENT);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        size_t length = fill(text, documents[i].begin, documents[i].piece, documents[i].end,
                             documents[i].count);
        size_t times = check_bound(documents[i].name, text, length);
        ck_assert_uint_le(times, 8); /* one far above the need would prove nothing */
    }
    for (size_t length = 1; length < MOST_DOCUMENT; length = length * 3 / 2 + 1) {
        memset(text, 'x', length);
        text[0] = text[length - 1] = '"';
        check_bound("one string", text, length);
        memset(text, '8', length);
        check_bound("one number", text, length);
        text[0] = '[';
        memset(text + 1, ' ', length - 1);
        text[length - 1] = ']';
        check_bound("white space", text, length);
    }
    free(text);
}
END_TEST

/* A document of random pieces, most of them no JSON, never takes more either. */
START_TEST(random_documents_hold_the_bound) {
    static const char *const pieces[] = {
        "{",    "}",  "[",       "]",       "{\"a\":", "\"b\":[",  ",",    ":",
        "\"",   "\\", "\"key\"", "1",       "-2.5e3",  "true",     "null", "\xc3\xa9",
        "\xff", "{}", "[]",      "[1,2,3]", " ",       "\"\\u12\""};
    char text[512];
    xn_rng rng = {xn_test_seed()};
    for (int round = 0; round < 4000; round++) {
        size_t length = 0;
        for (uint64_t n = 1 + xn_rng_below(&rng, 40); n > 0; n--) {
            const char *piece = pieces[xn_rng_below(&rng, sizeof pieces / sizeof *pieces)];
            memcpy(text + length, piece, strlen(piece));
            length += strlen(piece);
        }
        xn_json_scan scan = {0};
        const xn_json *root = NULL;
        xn_error error = {0};
        if (xn_json_scan_text(text, length, false, &scan, &error))
            continue;
        size_t bound = xn_json_parse_bound(scan.skeleton, scan.skeleton_length);
        xn_status status = xn_json_parse_within(&scan, "text", bound, &root, &error);
        ck_assert_msg(status != XN_ERR_NO_MEMORY, "%.*s", (int)length, text);
        xn_json_scan_free(&scan);
    }
}
END_TEST

START_TEST(refuses_many_values) {
    xn_error error = {0};
    char *text = malloc(MOST_DOCUMENT);
    ck_assert_ptr_nonnull(text);
    size_t length = fill(text, "{\"values\":[", "%", "]}", XN_PROTO_MAX_VALUES);
    ck_assert_int_eq(parse_body(text, length, &error), XN_ERR_MALFORMED);
    ck_assert_msg(strstr(error.message, "more than 4096 values"), "%s", error.message);
    length = fill(text, "{\"values\":[", "%", "]}", XN_PROTO_MAX_VALUES - 4);
    ck_assert_int_eq(parse_body(text, length, &error), XN_ERR_MALFORMED);
    ck_assert_msg(strstr(error.message, "unknown field"), "%s", error.message);
    free(text);
}
END_TEST

XN_SUITE(proto_memory) {
    Suite *s = suite_create("proto_memory");
    TCase *t = xn_test_case(s, "memory", 120);
    tcase_add_test(t, a_growing_token_survives_failures);
    tcase_add_test(t, no_document_takes_more_than_the_bound);
    tcase_add_test(t, random_documents_hold_the_bound);
    tcase_add_test(t, refuses_many_values);
    return s;
}
