/* Media types and content negotiation. */
#include "xn_proto.h"
#include "xn_test.h"
#include "xn_text.h"

#include <string.h>

START_TEST(parses_content_types) {
    static const struct {
        const char *text;
        int form; /* with Inference-Header-Content-Length; -1: none */
    } cases[] = {{"application/json", XN_FORM_JSON},
                 {"Application/JSON; charset=utf-8", XN_FORM_JSON},
                 {"application/json;charset=\"a;b\"", XN_FORM_JSON},
                 {"  application/octet-stream\t", XN_FORM_OIP_BINARY},
                 {"application/vnd.safetensors", XN_FORM_SAFETENSORS},
                 {"application/vnd.safetensors ; x=y", XN_FORM_SAFETENSORS},
                 {"application/jsonx", -1},
                 {"application/jso", -1},
                 {"text/plain", -1},
                 {"application/x-www-form-urlencoded", -1},
                 {"", -1},
                 {";", -1},
                 {"*/*", -1},
                 {NULL, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_form form = XN_FORM_JSON;
        bool ok = xn_form_parse(cases[i].text, true, &form);
        ck_assert_msg(ok == (cases[i].form >= 0), "case %zu", i);
        ck_assert_msg(!ok || (int)form == cases[i].form, "case %zu: %d", i, (int)form);
        const int without = cases[i].form == XN_FORM_OIP_BINARY ? XN_FORM_RAW : cases[i].form;
        ok = xn_form_parse(cases[i].text, false, &form);
        ck_assert_msg((ok ? (int)form : -1) == without, "case %zu without: %d", i, (int)form);
    }
    for (int f = 0; f < XN_FORM_COUNT; f++) {
        xn_form form;
        ck_assert(xn_form_parse(xn_form_media_type((xn_form)f), f != XN_FORM_RAW, &form));
        ck_assert_int_eq((int)form, f);
        ck_assert_int_eq(xn_form_is_text((xn_form)f), f == XN_FORM_JSON);
    }
}
END_TEST

static void check_near(const char *word, const char *got, const char *want) {
    ck_assert_msg(got == want || (got && want && !strcmp(got, want)), "%s: %s", word,
                  got ? got : "none");
}

START_TEST(guesses_content_types) {
    static const struct {
        const char *header, *nearest;
    } cases[] = {
        {"application/jsonx", "application/json"},
        {"aplication/jsn; charset=utf-8", "application/json"},
        {"application/safetensors", "application/vnd.safetensors"},
        {"application/octetstream", "application/octet-stream"},
        {"text/plain", NULL},
        {"", NULL},
        {"multipart/form-data; boundary=x", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_near(cases[i].header, xn_form_nearest(cases[i].header), cases[i].nearest);
}
END_TEST

/* What is near enough to be offered, and what is not. */
START_TEST(near_words) {
    static const char *const names[] = {"stride", "padding", "groups", "id", "mode", "INT8", NULL};
    static const struct {
        const char *word, *nearest;
    } cases[] = {
        {"stride", "stride"},  {"STRIDE", "stride"},
        {"strdie", "stride"},  {"tride", "stride"},
        {"strides", "stride"}, {"padd", NULL},
        {"pading", "padding"}, {"group", "groups"},
        {"i", NULL},           {"ID", "id"},
        {"it", NULL},          {"node", "mode"},
        {"mod", "mode"},       {"nod", NULL},
        {"int8", "INT8"},      {"", NULL},
        {"colour", NULL},      {"a word of more than forty characters has none", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_near(cases[i].word, xn_text_nearest(cases[i].word, names), cases[i].nearest);
}
END_TEST

START_TEST(negotiates) {
    enum {
        J = XN_FORM_JSON,
        B = XN_FORM_OIP_BINARY,
        S = XN_FORM_SAFETENSORS,
        R = XN_FORM_RAW,
        NONE = -1
    };
    static const struct {
        const char *accept;
        int request, expected;
    } cases[] = {
        {NULL, B, B},
        {NULL, R, R},
        {"*/*", R, R},
        {"application/octet-stream", R, R},
        {"application/octet-stream;q=0", R, NONE},
        {"application/octet-stream;q=0, */*", R, J},
        {"application/json", R, J},
        {"application/vnd.safetensors, application/octet-stream", R, R},
        {"", S, S},
        {" \t", J, J},
        {"*/*", S, S},
        {"*/*", B, B},
        {"application/*", B, B},
        {"text/*", J, NONE},
        {"text/html", J, NONE},
        {"application/json", B, J},
        {"APPLICATION/JSON", B, J},
        {"application/octet-stream", J, B},
        {"application/json, application/octet-stream", S, J},
        {"application/octet-stream, application/json", S, B},
        {"application/octet-stream, application/json", J, J},
        {"application/json;q=0.5, application/octet-stream", J, B},
        {"application/json;q=0.5, application/octet-stream;q=0.4", B, J},
        {"application/json;q=0", J, NONE},
        {"application/json;q=0, */*", J, B},
        {"application/json;q=0, */*;q=0.1", S, S},
        {"*/*;q=0", J, NONE},
        {"*/*;q=0, application/json", B, J},
        {"application/*;q=0.2, application/json;q=0.9", B, J},
        {"*/*, application/json;q=0.1", J, B},
        {"text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", S, S},
        {"application/json;charset=utf-8;q=0.3, application/vnd.safetensors;q=0.31", J, S},
        {"application/json;Q=0.001", B, J},
        {"application/json;q=0.000", B, NONE},
        {"application/json;q=1.000", B, J},
        {"application/json;q=1.001", B, NONE},
        {"application/json;q=2", B, NONE},
        {"application/json;q=-1", B, NONE},
        {"application/json;q=", B, NONE},
        {"application/json;q=0.1234", B, NONE},
        {"application/json ; q=0.7 , application/octet-stream ; q=0.8", J, B},
        {"text/plain;x=\"a,application/json\"", J, NONE},
        {"text/plain;x=\"\\\",application/json;\"", J, NONE},
        {"text/plain;x=\"a\", application/json", B, J},
        {",,application/json,,", B, J},
        {"json", J, NONE},
        {"/", J, NONE},
        {"*/json", J, NONE},
        {"*", J, NONE},
        {"text/plain;x=\"unterminated, application/json", J, NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xn_form form = XN_FORM_JSON;
        bool ok = xn_form_negotiate(cases[i].accept, (xn_form)cases[i].request, &form);
        ck_assert_msg((ok ? (int)form : NONE) == cases[i].expected, "Accept: %s: got %d, not %d",
                      cases[i].accept ? cases[i].accept : "(none)", ok ? (int)form : NONE,
                      cases[i].expected);
    }
}
END_TEST

START_TEST(names_and_ids) {
    char longest[XN_PROTO_MAX_NAME + 2];
    memset(longest, 'a', sizeof longest);
    longest[XN_PROTO_MAX_NAME + 1] = 0;
    ck_assert(!xn_proto_name_valid(longest) && !xn_proto_id_valid(longest));
    longest[XN_PROTO_MAX_NAME] = 0;
    ck_assert(xn_proto_name_valid(longest) && xn_proto_id_valid(longest));
    static const char *const good[] = {"a", "edge", "layer1.0-conv_2", "...", ".a", "-"};
    static const char *const bad[] = {"",         ".",   "..",   "a/b", "a b",
                                      "\xc3\xa9", "a\n", "a%20", "a\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(xn_proto_name_valid(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!xn_proto_name_valid(bad[i]), "%s", bad[i]);
    ck_assert(xn_proto_id_valid("req 1/a:~!"));
    ck_assert(!xn_proto_id_valid("") && !xn_proto_id_valid("a\"") && !xn_proto_id_valid("a\\"));
    ck_assert(!xn_proto_id_valid("a\x7f") && !xn_proto_id_valid("\t") &&
              !xn_proto_id_valid("\xff"));
}
END_TEST

XN_SUITE(proto_form) {
    Suite *s = suite_create("proto_form");
    TCase *t = xn_test_case(s, "forms", 60);
    tcase_add_test(t, parses_content_types);
    tcase_add_test(t, guesses_content_types);
    tcase_add_test(t, near_words);
    tcase_add_test(t, negotiates);
    tcase_add_test(t, names_and_ids);
    return s;
}
