/* framing_matrix.c: what comes of a request's head, byte by byte, on a real daemon: the rows of
 * rows.txt and keyed_rows.txt, and each field that the daemon reads with each fault a line can
 * have, and each character where it must not stand. Every case is sent in one piece, byte by byte,
 * and cut at random places. What follows a refused request on its connection must never be
 * answered. */
#include "http.h"
#include "http/client/wire.h"
#include "table.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NEXT                                                                                       \
    "GET /v2/health/live HTTP/1.1\r\nHost: a\r\nX-Request-Id: next\r\nConnection: close\r\n\r\n"
#define SMUGGLED "GET /v2/health/live HTTP/1.1\r\nHost: a\r\nX-Request-Id: smuggled\r\n\r\n"

#define KEY "matrix-key-0123456789abcdef"

/* As rows.txt says at its top. */
typedef enum { ANSWERED, LAST, REFUSED, DROPPED, OUTCOMES } outcome;

typedef struct verdict {
    outcome outcome;
    int status;
} verdict;

static xt_daemon *open_daemon, *keyed_daemon;
static char key_file[64];

static void start(void) {
    open_daemon = xt_daemon_start_shared(XT_NO_FLAGS);
}

static void stop(void) {
    xt_daemon_stop_shared(open_daemon);
}

static void start_keyed(void) {
    xt_make_file(key_file, sizeof key_file, KEY "\n");
    keyed_daemon = xt_daemon_start_shared(XT_FLAGS("--api-keys-file", key_file));
}

static void stop_keyed(void) {
    xt_daemon_stop_shared(keyed_daemon);
    unlink(key_file);
}

static bool library_before_1(void) {
    return xn_http_library_version()[0] == '0';
}

/* ---- ways to send ---- */

typedef enum { WHOLE, BYTES, CUTS, WAYS } way;

/* The daemon may close in the middle: then the rest is nobody's. */
static void deliver(xt_conn *conn, const xt_buffer *bytes, way how, uint64_t seed) {
    xn_rng rng = {xn_test_seed() + seed};
    const struct timespec moment = {0, 300000};
    size_t at = 0;
    for (int piece = 0; at < bytes->length; piece++) {
        size_t left = bytes->length - at, length = left;
        if (how == BYTES)
            length = 1;
        else if (how == CUTS && piece < 4)
            length = 1 + (size_t)xn_rng_below(&rng, left);
        if (how == CUTS && piece)
            nanosleep(&moment, NULL); /* so that the pieces most likely arrive as pieces */
        if (!xt_send(conn, bytes->data + at, length))
            return;
        at += length;
    }
}

/* ---- what must come of it ---- */

static void check_next(xt_conn *conn, const char *what) {
    xt_response response;
    xt_result result = xt_receive(conn, false, false, &response);
    const char *id = result == XT_GOT ? XT_HEADER(&response, "X-Request-Id") : NULL;
    ck_assert_msg(result == XT_GOT && response.status == 200 && id && !strcmp(id, "next"),
                  "%s: the request behind it got %s, status %d, id %s", what,
                  xt_result_name(result), response.status, id ? id : "none");
    xt_response_free(&response);
}

static void check_end(xt_conn *conn, bool more, const char *what) {
    ck_assert_msg(xt_closed_within(conn, XT_PATIENCE_MS), "%s: the connection stays open", what);
    ck_assert_msg(more || !conn->in.length, "%s: more than one answer: %.300s", what,
                  conn->in.data);
    ck_assert_msg(!conn->in.length ||
                      (!strstr(conn->in.data, "HTTP/1.1 2") && !strstr(conn->in.data, "smuggled")),
                  "%s: the body was answered: %.300s", what, conn->in.data);
}

/* Of what the library refuses by itself. 0.9 sends some heads twice. */
static bool is_page_of_library(const xt_response *response) {
    const char *type = XT_HEADER(response, "Content-Type");
    return response->status >= 400 && (!type || strcmp(type, "application/json"));
}

static void check_refusal(const xt_response *response, const verdict *wanted, const char *what) {
    xt_check_error(response, wanted->status, NULL, NULL, what);
    ck_assert_msg(response->close, "%s: no Connection: close: %s", what, response->head);
    ck_assert_msg(xt_header_count(response, "Content-Length") == 1 &&
                      xt_header_count(response, "Date") == 1 &&
                      xt_header_count(response, "X-Request-Id") == 1,
                  "%s: not one head: %s", what, response->head);
}

static void judge(xt_conn *conn, const verdict *wanted, bool head, const char *what) {
    xt_response response;
    xt_result result = xt_receive(conn, head, false, &response);
    bool page = result == XT_GOT && is_page_of_library(&response);
    if (wanted->outcome == DROPPED) {
        ck_assert_msg(result == XT_CLOSED, "%s: got %s, status %d", what, xt_result_name(result),
                      response.status);
    } else {
        ck_assert_msg(result == XT_GOT, "%s: got %s", what, xt_result_name(result));
        ck_assert_msg(response.status == wanted->status || (page && response.status == 400),
                      "%s: status %d, expected %d: %s", what, response.status, wanted->status,
                      response.body);
        const char *id = XT_HEADER(&response, "X-Request-Id");
        ck_assert_msg(!id || strcmp(id, "smuggled"), "%s: the body was answered", what);
        ck_assert_msg(!page || wanted->outcome == REFUSED, "%s: the library refuses: %s", what,
                      response.body);
        if (wanted->outcome == REFUSED && !page)
            check_refusal(&response, wanted, what);
        if (wanted->outcome == ANSWERED)
            check_next(conn, what);
    }
    check_end(conn, page, what);
    xt_response_free(&response);
}

static void run_case(const xt_daemon *daemon, const char *name, const void *bytes, size_t length,
                     const verdict *wanted) {
    static const char *const ways[WAYS] = {"whole", "byte by byte", "cut"};
    bool head = length > 5 && !memcmp(bytes, "HEAD ", 5);
    for (way how = WHOLE; how < WAYS; how++) {
        xt_buffer all = {0};
        xt_conn conn;
        char what[240];
        snprintf(what, sizeof what, "%s, %s", name, ways[how]);
        xt_append(&all, bytes, length);
        if (wanted->outcome == ANSWERED)
            xt_append(&all, NEXT, sizeof NEXT - 1);
        else
            xt_append(&all, SMUGGLED, sizeof SMUGGLED - 1);
        ck_assert(xt_connect(&conn, daemon));
        deliver(&conn, &all, how, length + (uint64_t)how);
        judge(&conn, wanted, head, what);
        xt_disconnect(&conn);
        xt_buffer_free(&all);
    }
}

/* ---- the tables ---- */

static verdict verdict_of(const xn_table_row *row, int field) {
    static const char *const words[OUTCOMES] = {"answered", "last", "refused", "dropped"};
    const char *text = row->fields[field].text;
    verdict v = {ANSWERED, 0};
    while (v.outcome < OUTCOMES && strncmp(text, words[v.outcome], strlen(words[v.outcome])) != 0)
        v.outcome++;
    ck_assert_msg(v.outcome < OUTCOMES, "line %d: no verdict: %s", row->line, text);
    v.status = atoi(text + strlen(words[v.outcome]));
    ck_assert_msg((v.status > 0) == (v.outcome != DROPPED), "line %d: %s", row->line, text);
    return v;
}

static void run_row(const xt_daemon *daemon, const char *table, int number) {
    const xn_table_row *row = &xn_table_read(table)->rows[number];
    ck_assert_msg(row->count == 3 || row->count == 5, "%s:%d", table, row->line);
    const verdict wanted = verdict_of(row, row->count == 5 && library_before_1() ? 3 : 0);
    run_case(daemon, row->fields[1].text, row->fields[2].text, row->fields[2].length, &wanted);
}

START_TEST(rows) {
    run_row(open_daemon, "http/framing/rows.txt", _i);
}
END_TEST

START_TEST(rows_with_keys) {
    run_row(keyed_daemon, "http/framing/keyed_rows.txt", _i);
}
END_TEST

/* ---- every field that the daemon reads, with every fault ---- */

typedef struct {
    const char *name, *rest; /* the name in two halves */
    const char *value;
} read_field;

static const read_field fields[] = {
    {"Content-", "Length", "53"},
    {"Transfer-", "Encoding", "chunked"},
    {"Ho", "st", "a"},
    {"Content-", "Type", "application/json"},
    {"Content-", "Encoding", "identity"},
    {"Author", "ization", "Bearer " KEY},
    {"X-Request", "-Id", "abc"},
    {"Inference-Header-", "Content-Length", "5"},
    {"Ex", "pect", "100-continue"},
    {"Acc", "ept", "*/*"},
    {"Connec", "tion", "keep-alive"},
};

/* 1 and 2 stand for the name's halves, 3 for the value. */
#define FAULT(name_, text)                                                                         \
    { name_, text, sizeof(text) - 1 }
static const struct fault {
    const char *name, *text;
    size_t length;
} faults[] = {
    FAULT("NUL behind the value", "\1\2: \3\0\r\n"),
    FAULT("NUL and more behind the value", "\1\2: \3\0junk\r\n"),
    FAULT("NUL before the value", "\1\2: \0\3\r\n"),
    FAULT("NUL for the blank", "\1\2:\0\3\r\n"),
    FAULT("NUL in the name", "\1\0\2: \3\r\n"),
    FAULT("NUL behind the name", "\1\2\0: \3\r\n"),
    FAULT("NUL before the name", "\0\1\2: \3\r\n"),
    FAULT("NUL for the colon", "\1\2\0\3\r\n"),
    FAULT("a fold before the value", "\1\2:\r\n \3\r\n"),
    FAULT("a fold by tab before the value", "\1\2:\r\n\t\3\r\n"),
    FAULT("a fold behind the value", "\1\2: \3\r\n x\r\n"),
    FAULT("an empty fold behind the value", "\1\2: \3\r\n \r\n"),
    FAULT("a fold in the name", "\1: \3\r\n \2\r\n"),
    FAULT("a fold in the name by tab", "\1: \3\r\n\t\2\r\n"),
    FAULT("in a fold", "X-A: b\r\n \1\2: \3\r\n"),
    FAULT("a fold before the colon", "\1\2\r\n : \3\r\n"),
    FAULT("a bare CR behind the value", "\1\2: \3\rx\r\n"),
    FAULT("a bare CR before the value", "\1\2: \r\3\r\n"),
    FAULT("a bare CR in the name", "\1\r\2: \3\r\n"),
    FAULT("a bare CR before it", "X-A: b\r\1\2: \3\r\n"),
    FAULT("CR CR LF", "\1\2: \3\r\r\n"),
    FAULT("a bare LF", "\1\2: \3\n"),
    FAULT("a bare LF before it", "X-A: b\n\1\2: \3\r\n"),
    FAULT("LF CR", "\1\2: \3\n\r"),
    FAULT("a blank before the colon", "\1\2 : \3\r\n"),
    FAULT("a tab before the colon", "\1\2\t: \3\r\n"),
    FAULT("a blank in the name", "\1 \2: \3\r\n"),
    FAULT("a blank before the name", " \1\2: \3\r\n"),
    FAULT("no colon", "\1\2 \3\r\n"),
    FAULT("DEL", "\1\2: \3\x7f\r\n"),
    FAULT("an escape", "\1\2: \x1b\3\r\n"),
    FAULT("a vertical tab", "\1\2:\v\3\r\n"),
};

enum { FIELDS = sizeof fields / sizeof *fields, FAULTS = sizeof faults / sizeof *faults };

static void append_line(xt_buffer *bytes, const read_field *field, const struct fault *fault) {
    const char *const parts[] = {field->name, field->rest, field->value};
    for (size_t i = 0; i < fault->length; i++) {
        unsigned char c = (unsigned char)fault->text[i];
        if (c >= 1 && c <= 3)
            xt_append(bytes, parts[c - 1], strlen(parts[c - 1]));
        else
            xt_append(bytes, &fault->text[i], 1);
    }
}

/* A request that is well but for that line, whose body is another request. */
static void append_request(xt_buffer *bytes, const read_field *field, const struct fault *fault) {
    bool framed = !strcmp(field->rest, "Length") || !strcmp(field->name, "Transfer-");
    xt_print(bytes, "POST /conv HTTP/1.1\r\n");
    if (strcmp(field->name, "Ho"))
        xt_print(bytes, "Host: a\r\n");
    if (strcmp(field->rest, "Type"))
        xt_print(bytes, "Content-Type: application/json\r\n");
    append_line(bytes, field, fault);
    if (!framed)
        xt_print(bytes, "Content-Length: %zu\r\n", sizeof SMUGGLED - 1);
    xt_print(bytes, "\r\n" SMUGGLED);
}

START_TEST(fields_and_faults) {
    static const verdict refused = {REFUSED, 400};
    const struct fault *fault = &faults[_i];
    for (size_t i = 0; i < FIELDS; i++) {
        xt_buffer bytes = {0};
        char name[120];
        snprintf(name, sizeof name, "%s%s: %s", fields[i].name, fields[i].rest, fault->name);
        append_request(&bytes, &fields[i], fault);
        run_case(open_daemon, name, bytes.data, bytes.length, &refused);
        xt_buffer_free(&bytes);
    }
}
END_TEST

/* ---- fields that may stand only once ---- */

START_TEST(fields_twice) {
    static const char *const once[][3] = {{"Host", "a", "b"},
                                          {"Content-Length", "3", "4"},
                                          {"Transfer-Encoding", "chunked", "gzip"},
                                          {"Content-Type", "application/json", "text/plain"},
                                          {"Content-Encoding", "identity", "gzip"},
                                          {"Authorization", "Bearer a", "Bearer b"},
                                          {"X-Request-Id", "a", "b"},
                                          {"Inference-Header-Content-Length", "3", "4"}};
    static const verdict refused = {REFUSED, 400};
    const char *const *f = once[_i / 3];
    const char *first = f[1], *second = _i % 3 ? f[2] : f[1];
    bool host = !strcmp(f[0], "Host"), apart = _i % 3 == 2;
    xt_buffer bytes = {0};
    xt_print(&bytes, "GET /v2 HTTP/1.1\r\n%s%s: %s\r\n%s%s: %s\r\n\r\n", host ? "" : "Host: a\r\n",
             f[0], first, apart ? "X-A: b\r\n" : "", f[0], second);
    run_case(open_daemon, f[0], bytes.data, bytes.length, &refused);
    xt_buffer_free(&bytes);
}
END_TEST

/* ---- each character where it must not stand ---- */

static bool token_character(int c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && c < 128 && strchr("!#$%&'*+-.^_`|~", c));
}

/* Lines that 1.0 of the library closes on: it takes these for the end of the line, or for a blank,
 * and then finds no request line at all. */
static bool line_unreadable(int c) {
    return !library_before_1() && (c == 0 || c == '\v' || c == '\f' || c == '\r');
}

static void run_character(const char *place, const char *before, int c, const char *after,
                          verdict wanted) {
    char name[64], character = (char)c;
    xt_buffer bytes = {0};
    snprintf(name, sizeof name, "character %d in %s", c, place);
    xt_append(&bytes, before, strlen(before));
    xt_append(&bytes, &character, 1);
    xt_append(&bytes, after, strlen(after));
    run_case(open_daemon, name, bytes.data, bytes.length, &wanted);
    xt_buffer_free(&bytes);
}

static verdict answered_if(bool valid, int status) {
    return valid ? (verdict){ANSWERED, status} : (verdict){REFUSED, 400};
}

START_TEST(characters_in_names) {
    for (int c = 0; c < 256; c++)
        if (c != ':')
            run_character("a name", "GET /v2 HTTP/1.1\r\nHost: a\r\nX-", c, "A: b\r\n\r\n",
                          answered_if(token_character(c), 200));
}
END_TEST

START_TEST(characters_in_values) {
    for (int c = 0; c < 256; c++)
        if (c != '\n')
            run_character("a value", "GET /v2 HTTP/1.1\r\nHost: a\r\nX-A: b", c, "c\r\n\r\n",
                          answered_if(c == '\t' || (c >= ' ' && c != 127), 200));
}
END_TEST

START_TEST(characters_in_methods) {
    for (int c = 0; c < 256; c++) {
        verdict wanted = answered_if(token_character(c), c == 'E' ? 200 : 405);
        if (line_unreadable(c))
            wanted.outcome = DROPPED;
        if (c != '\n' && c != ' ')
            run_character("a method", "G", c, "T /v2 HTTP/1.1\r\nHost: a\r\n\r\n", wanted);
    }
}
END_TEST

START_TEST(characters_in_targets) {
    for (int c = 0; c < 256; c++) {
        verdict wanted = answered_if(c > ' ' && c < 127 && c != '#', 404);
        if (line_unreadable(c) && c != '\r')
            wanted.outcome = DROPPED;
        if (c != '\n' && c != '/')
            run_character("a target", "GET /v", c, "x HTTP/1.1\r\nHost: a\r\n\r\n", wanted);
    }
}
END_TEST

/* ---- sizes ---- */

START_TEST(heads_over_the_limit) {
#define GET "GET /v2 HTTP/1.1\r\nHost: a\r\n"
    static const struct {
        const char *name, *before, *repeated, *after;
        int times;
        outcome outcome;
        int status;
    } table[] = {
        {"many fields", GET, "a:b\r\n", "\r\n", 1500, REFUSED, 431},
        {"a long value", GET "X-A: ", "a", "\r\n\r\n", 70000, REFUSED, 431},
        {"a long name", GET "X-", "a", ": b\r\n\r\n", 70000, REFUSED, 431},
        {"a long target", "GET /v2?", "a", " HTTP/1.1\r\nHost: a\r\n\r\n", 70000, REFUSED, 414},
        {"a hundred fields", GET, "X-A: b\r\n", "\r\n", 100, ANSWERED, 200},
        {"a value of 8 KiB", GET "X-A: ", "a", "\r\n\r\n", 8192, ANSWERED, 200},
    };
#undef GET
    const verdict wanted = {table[_i].outcome, table[_i].status};
    xt_buffer bytes = {0};
    xt_append(&bytes, table[_i].before, strlen(table[_i].before));
    for (int i = 0; i < table[_i].times; i++)
        xt_append(&bytes, table[_i].repeated, strlen(table[_i].repeated));
    xt_append(&bytes, table[_i].after, strlen(table[_i].after));
    run_case(open_daemon, table[_i].name, bytes.data, bytes.length, &wanted);
    xt_buffer_free(&bytes);
}
END_TEST

XN_SUITE(http_matrix) {
    Suite *s = suite_create("http_matrix");
    TCase *t = tcase_create("open");
    tcase_set_timeout(t, 180);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_loop_test(t, rows, 0, xn_table_read("http/framing/rows.txt")->count);
    tcase_add_loop_test(t, fields_and_faults, 0, FAULTS);
    tcase_add_loop_test(t, fields_twice, 0, 3 * 8);
    tcase_add_test(t, characters_in_names);
    tcase_add_test(t, characters_in_values);
    tcase_add_test(t, characters_in_methods);
    tcase_add_test(t, characters_in_targets);
    tcase_add_loop_test(t, heads_over_the_limit, 0, 6);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    t = tcase_create("keys");
    tcase_set_timeout(t, 180);
    tcase_add_unchecked_fixture(t, start_keyed, stop_keyed);
    tcase_add_loop_test(t, rows_with_keys, 0, xn_table_read("http/framing/keyed_rows.txt")->count);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    return s;
}
