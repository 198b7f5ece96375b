/* exchange_test.c: requests to a real daemon and what must come back, as tables: a row a status and
 * a form. A file is one test, played in its order; its rows (table.h says how they are written) are
 *   daemon | FLAG ...               from here on this daemon, "models" a repository of two networks
 *   file NAME | TEXT                a file, in flags "@NAME"
 *   METHOD TARGET | REQUEST ... | = STATUS | CHECK ...
 *   metric SAMPLE | NUMBER          becomes that
 *   log has | TEXT, log lacks | TEXT
 * REQUEST is a header ("Name: value"; Host and Content-Length are added where they are missing) or
 * "> " and the body. CHECK is
 *   field TEXT, says TEXT           part of the error's field, and of its message
 *   PATH = JSON, no PATH            the value there begins so, blanks aside; there is none
 *   has TEXT, lacks TEXT            of the body
 *   kept                            the connection stays open
 *   head NAME: TEXT, no head NAME   a header is or holds that; there is none
 * The error has the form of the Open Inference Protocol where STATUS is followed by "oip". A whole
 * file is spoken on one connection, as long as the daemon keeps it: each answer leaves it in step.
 */
#include "http/client/oip.h"
#include "table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { FILES = 4, FLAGS = 24 };

typedef struct play {
    const char *file;
    const xn_table_row *row;
    xt_daemon *daemon;
    xt_conn conn;
    struct {
        const char *name;
        char path[64];
    } files[FILES];
    char repository[256];
    xt_net nets[XT_NETS];
} play;

__attribute__((format(printf, 3, 4))) static void expect(const play *p, bool holds,
                                                         const char *format, ...) {
    char text[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ck_assert_msg(holds, "%s:%d: %.60s: %s", p->file, p->row->line, p->row->fields[0].text, text);
}

/* What stands behind the beginning, or NULL. */
static const char *behind(const char *text, const char *begin) {
    const size_t length = strlen(begin);
    return strncmp(text, begin, length) ? NULL : text + length;
}

/* ---- the daemon ---- */

static void stop_daemon(play *p) {
    if (!p->daemon)
        return;
    xt_disconnect(&p->conn);
    if (!p->files[0].name) /* else the page of metrics needs a key */
        expect(p, xt_metric_becomes(p->daemon, "xnord_inflight_requests", 0), "requests are left");
    expect(p, xt_daemon_stop(p->daemon) == 0, "the daemon before ended with an error");
    p->daemon = NULL;
}

static const char *flag_of(play *p, const char *word) {
    if (!strcmp(word, "models") && !p->repository[0])
        xt_nets_make(p->nets, p->repository, sizeof p->repository);
    if (!strcmp(word, "models"))
        return p->repository;
    for (int i = 0; *word == '@' && i < FILES && p->files[i].name; i++)
        if (!strcmp(p->files[i].name, word + 1))
            return p->files[i].path;
    expect(p, *word != '@', "no file %s", word);
    return word;
}

static void start_daemon(play *p) {
    char words[500], *rest = NULL;
    const char *flags[FLAGS + 1] = {NULL};
    int count = 0;
    stop_daemon(p);
    snprintf(words, sizeof words, "%s", p->row->fields[1].text);
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        expect(p, count < FLAGS, "too many flags");
        flags[count++] = flag_of(p, w);
    }
    p->daemon = xt_daemon_start(flags);
}

static void make_file(play *p, const char *name) {
    int at = 0;
    while (at < FILES && p->files[at].name)
        at++;
    expect(p, at < FILES, "too many files");
    p->files[at].name = name;
    xt_make_file(p->files[at].path, sizeof p->files[at].path, p->row->fields[1].text);
}

/* ---- requests ---- */

static bool has_header(const xn_table_row *row, int end, const char *name) {
    for (int i = 1; i < end; i++)
        if (!strncasecmp(row->fields[i].text, name, strlen(name)))
            return true;
    return false;
}

/* The fields up to the status, as they are sent. */
static xt_buffer request_of(const xn_table_row *row, int end) {
    const xn_table_field *body = NULL;
    xt_buffer bytes = {0};
    xt_print(&bytes, "%s HTTP/1.1\r\n", row->fields[0].text);
    if (!has_header(row, end, "Host:"))
        xt_print(&bytes, "Host: xnord.test\r\n");
    for (int i = 1; i < end; i++) {
        const xn_table_field *field = &row->fields[i];
        if (field->text[0] == '>')
            body = field;
        else
            xt_print(&bytes, "%s\r\n", field->text);
    }
    const size_t begins = body && body->length > 1 ? 2 : 1;
    if (body && !has_header(row, end, "Content-Length:") &&
        !has_header(row, end, "Transfer-Encoding:"))
        xt_print(&bytes, "Content-Length: %zu\r\n", body->length - begins);
    xt_print(&bytes, "\r\n");
    if (body)
        xt_append(&bytes, body->text + begins, body->length - begins);
    return bytes;
}

/* A kept connection may have been closed meanwhile: then once more, on a new one. */
static void ask(play *p, int end, xt_response *response) {
    xt_buffer bytes = request_of(p->row, end);
    const bool head = behind(p->row->fields[0].text, "HEAD ") != NULL;
    if (p->conn.fd < 0)
        expect(p, xt_connect(&p->conn, p->daemon), "no connection");
    xt_send(&p->conn, bytes.data, bytes.length);
    const xt_result result = xt_receive(&p->conn, head, true, response);
    expect(p, result == XT_GOT, "got %s", xt_result_name(result));
    if (response->close)
        expect(p, xt_closed_within(&p->conn, XT_PATIENCE_MS), "stays open");
    expect(p, !p->conn.in.length, "more than one answer: %s", p->conn.in.data);
    if (response->close)
        xt_disconnect(&p->conn);
    xt_buffer_free(&bytes);
}

/* ---- checks ---- */

/* Equal to the end of the wanted text; blanks do not count. */
static bool begins_with(const char *json, const char *wanted) {
    for (; *wanted; wanted++, json++) {
        while (*json == ' ')
            json++;
        while (*wanted == ' ')
            wanted++;
        if (*json != *wanted)
            return false;
    }
    return true;
}

static void check_header(const play *p, const xt_response *response, const char *text) {
    char name[64];
    const char *colon = strchr(text, ':');
    expect(p, colon, "no header: %s", text);
    snprintf(name, sizeof name, "%.*s", (int)(colon - text), text);
    const char *value = XT_HEADER(response, name);
    expect(p, value && strstr(value, colon[1] ? colon + 2 : ""), "%s: %s", text, response->head);
    expect(p, xt_header_count(response, name) == 1, "%s: more than one: %s", name, response->head);
}

static void check(const play *p, const xt_response *response, const char *text) {
    const char *body = response->body, *rest, *equals = strstr(text, " = ");
    char path[64];
    if (!strcmp(text, "kept")) {
        expect(p, !response->close, "closes: %s", response->head);
    } else if ((rest = behind(text, "no head "))) {
        expect(p, !XT_HEADER(response, rest), "%s: %s", rest, response->head);
    } else if ((rest = behind(text, "head "))) {
        check_header(p, response, rest);
    } else if ((rest = behind(text, "has "))) {
        expect(p, strstr(body, rest), "lacks %s: %s", rest, body);
    } else if ((rest = behind(text, "lacks "))) {
        expect(p, !strstr(body, rest), "has %s: %s", rest, body);
    } else if ((rest = behind(text, "no "))) {
        expect(p, !xt_json_at(body, rest), "has %s: %s", rest, body);
    } else {
        expect(p, equals, "no check: %s", text);
        snprintf(path, sizeof path, "%.*s", (int)(equals - text), text);
        const char *json = xt_json_at(body, path);
        expect(p, json && begins_with(json, equals + 3), "not %s: %s", text, body);
    }
}

/* An error of that status, well-formed, and what it says. */
static void check_answer(const play *p, const xt_response *response, int at) {
    const xn_table_row *row = p->row;
    const char *field = NULL, *says = NULL, *rest;
    const bool oip = strstr(row->fields[at].text, " oip") != NULL;
    const int status = atoi(row->fields[at].text + 2);
    expect(p, response->status == status, "%d, expected %d: %s", response->status, status,
           response->body);
    for (int i = at + 1; i < row->count; i++) {
        if ((rest = behind(row->fields[i].text, "field ")))
            field = rest;
        else if ((rest = behind(row->fields[i].text, "says ")))
            says = rest;
        else
            check(p, response, row->fields[i].text);
    }
    expect(p, status >= 400 || (!field && !says), "no error");
    if (status >= 400 && oip)
        xt_check_oip_error(response, status, says, row->fields[0].text);
    else if (status >= 400)
        xt_check_error(response, status, field, says, row->fields[0].text);
}

static void exchange(play *p) {
    xt_response response;
    int at = 1;
    while (at < p->row->count && strncmp(p->row->fields[at].text, "= ", 2) != 0)
        at++;
    expect(p, at < p->row->count && p->daemon, "no status, or no daemon");
    ask(p, at, &response);
    check_answer(p, &response, at);
    xt_response_free(&response);
}

/* ---- files ---- */

static void check_log(const play *p, bool has) {
    const char *text = p->row->fields[1].text;
    if (has) {
        expect(p, xt_daemon_log_wait(p->daemon, text), "not in the log");
        return;
    }
    char *log = xt_daemon_log(p->daemon);
    expect(p, !strstr(log, text), "in the log: %s", text);
    free(log);
}

static void play_row(play *p) {
    const char *first = p->row->fields[0].text, *rest;
    if (!strcmp(first, "daemon"))
        start_daemon(p);
    else if ((rest = behind(first, "file ")))
        make_file(p, rest);
    else if ((rest = behind(first, "metric ")))
        expect(p, xt_metric_becomes(p->daemon, rest, (double)xn_table_number(p->row, 1)),
               "it is %g", xt_metric(p->daemon, rest));
    else if ((rest = behind(first, "log ")))
        check_log(p, !strcmp(rest, "has"));
    else
        exchange(p);
}

static const char *const files[] = {"conv",  "limits", "weights", "models",
                                    "infer", "auth",   "meta",    "trace"};

START_TEST(exchanges) {
    char path[64];
    play p = {.conn = {.fd = -1}, .file = path};
    snprintf(path, sizeof path, "http/exchanges/%s.txt", files[_i]);
    const xn_table *table = xn_table_read(path);
    for (int i = 0; i < table->count; i++) {
        p.row = &table->rows[i];
        play_row(&p);
    }
    stop_daemon(&p);
    if (p.repository[0])
        xt_nets_free(p.nets, p.repository);
    for (int i = 0; i < FILES && p.files[i].name; i++)
        unlink(p.files[i].path);
}
END_TEST

XN_SUITE(http_exchange) {
    Suite *s = suite_create("http_exchange");
    TCase *t = tcase_create("exchange");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_loop_test(t, exchanges, 0, (int)(sizeof files / sizeof *files));
    suite_add_tcase(s, t);
    return s;
}
