/* The header traceparent against the recommendation, ids, which traces begin here, and what
 * --otlp-endpoint and --otlp-sample take. */
#include "otlp_target.h"
#include "span.h"
#include "xn_test.h"

#include <ctype.h>
#include <string.h>

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static const struct {
    const char *text;
    bool valid, sampled;
} headers[] = {
    {"00-" TRACE "-" PARENT "-01", true, true},
    {"00-" TRACE "-" PARENT "-00", true, false},
    {"00-" TRACE "-" PARENT "-02", true, false},
    {"00-" TRACE "-" PARENT "-fb", true, true},
    {"01-" TRACE "-" PARENT "-01", true, true},
    {"fe-" TRACE "-" PARENT "-01-", true, true},
    {"cc-" TRACE "-" PARENT "-00-more=1", true, false},
    {"00-" TRACE "-" PARENT "-01-", false, false},
    {"00-" TRACE "-" PARENT "-01 ", false, false},
    {"cc-" TRACE "-" PARENT "-01.more", false, false},
    {"cc-" TRACE "-" PARENT "-011", false, false},
    {"ff-" TRACE "-" PARENT "-01", false, false},
    {"00-00000000000000000000000000000000-" PARENT "-01", false, false},
    {"00-" TRACE "-0000000000000000-01", false, false},
    {"00-" TRACE "-" PARENT "-1", false, false},
    {"00-" TRACE "-" PARENT, false, false},
    {"0-" TRACE "-" PARENT "-01", false, false},
    {"000-" TRACE "-" PARENT "-01", false, false},
    {"", false, false},
};

START_TEST(headers_of_the_recommendation) {
    xn_trace trace;
    ck_assert_msg(xn_trace_parse(headers[_i].text, &trace) == headers[_i].valid, "%s",
                  headers[_i].text);
    ck_assert_str_eq(trace.trace_id, headers[_i].valid ? TRACE : "");
    ck_assert_str_eq(trace.parent_id, headers[_i].valid ? PARENT : "");
    ck_assert_str_eq(trace.span_id, "");
    ck_assert_int_eq(trace.sampled, headers[_i].sampled);
}
END_TEST

/* The grammar, as plainly as it can be said, of texts whose every character is looked at. */
static bool model(const char *text) {
    static const char form[] = "hh-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
    const size_t length = strlen(text), fixed = sizeof form - 1;
    bool trace_zero = true, parent_zero = true;
    if (length < fixed)
        return false;
    for (size_t i = 0; i < fixed; i++) {
        const bool digit = isdigit((unsigned char)text[i]) || (text[i] >= 'a' && text[i] <= 'f');
        if (form[i] == 'h' ? !digit : text[i] != '-')
            return false;
        trace_zero = trace_zero && (i < 3 || i >= 35 || text[i] == '0');
        parent_zero = parent_zero && (i < 36 || i >= 52 || text[i] == '0');
    }
    if (trace_zero || parent_zero || (text[0] == 'f' && text[1] == 'f'))
        return false;
    return length == fixed || ((text[0] != '0' || text[1] != '0') && text[fixed] == '-');
}

/* Bytes replaced, removed and put in, of headers that are valid and that are not. */
START_TEST(mutated_headers) {
    static const char bytes[] = "0123456789abcdefABCDEFg- \t\r\n\"\x7f\xff;,=.00ff--";
    xn_rng rng = {.state = xn_test_seed() ^ 28};
    int valid = 0;
    for (int round = 0; round < 60000; round++) {
        char text[80] = "";
        xn_trace trace;
        const size_t row = xn_rng_below(&rng, sizeof headers / sizeof *headers);
        strcpy(text, headers[row].text);
        for (uint64_t n = xn_rng_below(&rng, 3); n > 0; n--) {
            const size_t length = strlen(text), at = xn_rng_below(&rng, length + 1);
            const char byte = bytes[xn_rng_below(&rng, sizeof bytes - 1)];
            const uint64_t how = xn_rng_below(&rng, 3);
            if (how == 0)
                memmove(text + at + 1, text + at, length + 1 - at);
            else if (how == 1 && at < length)
                memmove(text + at, text + at + 1, length - at);
            if (how != 1 && (at < length || how == 0))
                text[at] = byte;
        }
        const bool parsed = xn_trace_parse(text, &trace);
        ck_assert_msg(parsed == model(text), "%s", text);
        if (parsed) {
            char back[XN_TRACEPARENT_BYTES];
            xn_trace_format(&trace, back);
            ck_assert_msg(!strncmp(back + 2, text + 2, 51), "%s: %s", text, back);
            valid++;
        }
    }
    ck_assert_int_gt(valid, 3000);
}
END_TEST

START_TEST(traces_that_begin_here) {
    static const struct {
        const char *ratio;
        int least, most;
    } rows[] = {{"0", 0, 0}, {"0.1", 800, 1200}, {"0.5", 4700, 5300}, {"1", 10000, 10000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t ids;
        int begun = 0;
        ck_assert_int_eq(xn_otlp_sample_parse(rows[i].ratio, &ids, NULL), XN_OK);
        for (int n = 0; n < 10000; n++) {
            xn_trace trace = {.trace_id = ""};
            xn_trace_begin(&trace, ids);
            begun += trace.sampled;
            ck_assert_uint_eq(strlen(trace.trace_id), trace.sampled ? 32 : 0);
            ck_assert_uint_eq(strlen(trace.span_id), trace.sampled ? 16 : 0);
        }
        ck_assert_msg(begun >= rows[i].least && begun <= rows[i].most, "%s: %d", rows[i].ratio,
                      begun);
    }
}
END_TEST

START_TEST(traces_that_go_on) {
    xn_trace sampled, not, other;
    ck_assert(xn_trace_parse("00-" TRACE "-" PARENT "-01", &sampled));
    ck_assert(xn_trace_parse("00-" TRACE "-" PARENT "-00", &not ));
    xn_trace_begin(&sampled, 0);
    xn_trace_begin(&not, XN_OTLP_ALL_IDS);
    ck_assert(strlen(sampled.span_id) == 16 && !not .span_id[0] && !not .sampled);
    ck_assert_str_eq(sampled.trace_id, TRACE);
    ck_assert_str_eq(not .trace_id, TRACE);
    char text[XN_TRACEPARENT_BYTES];
    xn_trace_format(&sampled, text);
    ck_assert(xn_trace_parse(text, &other) && other.sampled);
    ck_assert_str_eq(other.parent_id, sampled.span_id);
}
END_TEST

START_TEST(what_an_endpoint_is) {
    static const struct {
        const char *url, *host, *port, *authority, *path;
    } rows[] = {
        {"http://127.0.0.1:4318", "127.0.0.1", "4318", "127.0.0.1:4318", "/v1/traces"},
        {"http://collector", "collector", "80", "collector", "/v1/traces"},
        {"http://collector/", "collector", "80", "collector", "/v1/traces"},
        {"http://a.b-c.d:65535/x/v1/traces", "a.b-c.d", "65535", "a.b-c.d:65535", "/x/v1/traces"},
        {"http://[::1]:4318/", "::1", "4318", "[::1]:4318", "/v1/traces"},
        {"https://collector:4318", NULL, "https", NULL, NULL},
        {"HTTP://collector", NULL, "scheme", NULL, NULL},
        {"collector:4318", NULL, "scheme", NULL, NULL},
        {"http://", NULL, "host", NULL, NULL},
        {"http:///v1", NULL, "host", NULL, NULL},
        {"http://[::1:4318", NULL, "host", NULL, NULL},
        {"http://[]:4318", NULL, "host", NULL, NULL},
        {"http://a:", NULL, "port", NULL, NULL},
        {"http://a:0", NULL, "port", NULL, NULL},
        {"http://a:65536", NULL, "port", NULL, NULL},
        {"http://a:123456", NULL, "port", NULL, NULL},
        {"http://user@a", NULL, "path", NULL, NULL},
        {"http://a b", NULL, "path", NULL, NULL},
        {"http://a/?x", NULL, "path", NULL, NULL},
        {"http://a/\r\nX: y", NULL, "path", NULL, NULL},
        {"http://a/\xc3\xa4", NULL, "path", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        xn_otlp_target target;
        xn_error error = {.message = ""};
        const xn_status status = xn_otlp_target_parse(rows[i].url, &target, &error);
        if (rows[i].host) {
            ck_assert_msg(!status, "%s: %s", rows[i].url, error.message);
            ck_assert_str_eq(target.host, rows[i].host);
            ck_assert_str_eq(target.port, rows[i].port);
            ck_assert_str_eq(target.authority, rows[i].authority);
            ck_assert_str_eq(target.path, rows[i].path);
        } else {
            ck_assert_msg(status == XN_ERR_MALFORMED && strstr(error.message, rows[i].port),
                          "%s: %s", rows[i].url, error.message);
        }
    }
}
END_TEST

START_TEST(what_a_ratio_is) {
    static const char *const good[] = {"0", "1", "0.5", "1.0", "0.000000001", "1.000000000"};
    static const char *const bad[] = {"",    "2",   "-0",  "1.1",   "01", "0.",           ".5",
                                      "1e0", "nan", "0,5", "0.5 x", " 0", "0.0000000001", "inf"};
    uint64_t ids;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(!xn_otlp_sample_parse(good[i], &ids, NULL) && ids <= XN_OTLP_ALL_IDS, "%s",
                      good[i]);
    ck_assert_uint_eq(ids, XN_OTLP_ALL_IDS);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(xn_otlp_sample_parse(bad[i], &ids, NULL) == XN_ERR_MALFORMED, "%s", bad[i]);
}
END_TEST

/* Decoded it is the path, or as much of it as fits with whole bytes. */
START_TEST(paths_of_spans) {
    static xn_span span;
    xn_rng rng = {.state = xn_test_seed() ^ 29};
    for (int round = 0; round < 3000; round++) {
        char path[400], back[400];
        size_t length = xn_rng_below(&rng, sizeof path), n = 0;
        for (size_t i = 0; i < length; i++)
            path[i] = (char)(1 + xn_rng_below(&rng, round % 2 ? 255 : 125));
        path[length] = '\0';
        xn_span_set_path(&span, path);
        for (const char *at = span.path; *at; at += *at == '%' ? 3 : 1) {
            ck_assert(*at > ' ' && *at < 0x7f && !strchr("?#", *at));
            back[n++] = *at == '%' ? (char)strtoul((char[]){at[1], at[2], 0}, NULL, 16) : *at;
        }
        ck_assert(n <= length && !memcmp(back, path, n));
        ck_assert(n == length || strlen(span.path) + 3 >= sizeof span.path);
    }
    xn_span_set_path(&span, "/a b%?#\"");
    ck_assert_str_eq(span.path, "/a%20b%25%3F%23\"");
}
END_TEST

XN_SUITE(trace) {
    Suite *s = suite_create("trace");
    TCase *t = tcase_create("trace");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, headers_of_the_recommendation, 0, sizeof headers / sizeof *headers);
    tcase_add_test(t, mutated_headers);
    tcase_add_test(t, traces_that_begin_here);
    tcase_add_test(t, traces_that_go_on);
    tcase_add_test(t, what_an_endpoint_is);
    tcase_add_test(t, what_a_ratio_is);
    tcase_add_test(t, paths_of_spans);
    suite_add_tcase(s, t);
    return s;
}
