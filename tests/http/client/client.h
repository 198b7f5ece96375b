/* client.h: a daemon as a child process and a plain HTTP/1.1 client over sockets, for black-box
 * tests. Nothing here knows the daemon's code: it speaks bytes.
 *
 * Every wait is bounded by XT_PATIENCE_MS; what must not hang fails instead. Functions that tests
 * call from their main thread abort the test themselves (ck_abort_msg) when the harness breaks;
 * connection functions only report, so that worker threads may use them. */
#ifndef XT_CLIENT_H
#define XT_CLIENT_H

#include "xn_test.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define XT_PATIENCE_MS 40000 /* generous: under sanitizers all is ten times slower */

/* ---- growing text ---- */

typedef struct xt_buffer {
    char *data; /* always terminated once anything was appended */
    size_t length, capacity;
} xt_buffer;

void xt_append(xt_buffer *buffer, const void *bytes, size_t length);
void xt_print(xt_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void xt_buffer_free(xt_buffer *buffer);

int64_t xt_now_ms(void); /* CLOCK_MONOTONIC */
void xt_nap(void);       /* 2 ms, inside polling loops with a deadline */

/* ---- the daemon ---- */

typedef struct xt_daemon {
    pid_t pid;
    int log_fd;
    int port;
    bool tls;
    char log_file[80]; /* of a --log-file among its flags; "": its log is its stderr */
    bool shared;       /* outlives single tests: xt_reap leaves it alone */
    pid_t owner;
} xt_daemon;

#define XT_FLAGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define XT_NO_FLAGS ((const char *const[]){NULL})

/* Starts $XNORD_BIN (default build/xnord) on 127.0.0.1, port 0, with these flags, and waits until
 * it is ready. Unless the flags choose a --backend, those of $XNORD_TEST_FLAGS come first. The
 * child dies with this process. */
xt_daemon *xt_daemon_start(const char *const *flags);
/* The same without waiting for /v2/health/ready: only for its start-up line. */
xt_daemon *xt_daemon_launch(const char *const *flags);
/* For unchecked fixtures: one daemon for many tests. The suite adds the stopped case right after
 * the case with the fixture: its test checks that the daemon ended with status 0. */
xt_daemon *xt_daemon_start_shared(const char *const *flags);
void xt_daemon_stop_shared(xt_daemon *daemon);
void xt_add_stopped_case(Suite *suite);
/* SIGTERM, then waits; the exit status (or 1000 + signal). Aborts the test when it does not end. */
int xt_daemon_stop(xt_daemon *daemon);
/* Waits for an end that the test has caused itself. */
int xt_daemon_wait(xt_daemon *daemon);
/* Kills what a failed test of this process left behind; a checked teardown. */
void xt_reap(void);
bool xt_daemon_alive(const xt_daemon *daemon);
char *xt_daemon_log(const xt_daemon *daemon); /* all of its log so far; free() */
/* Waits until the log holds the text; false after XT_PATIENCE_MS. */
bool xt_daemon_log_wait(const xt_daemon *daemon, const char *text);
/* A "Name:  123 kB" line of /proc/PID/status, in kB; -1 if absent. */
long xt_daemon_memory_kb(const xt_daemon *daemon, const char *name);

/* Runs the binary to its end with exactly these flags. environment: extra "NAME=value" strings or
 * NULL. The exit status as for xt_daemon_stop; out and err get all it wrote. */
int xt_run(const char *const *flags, const char *const *environment, xt_buffer *out,
           xt_buffer *err);
/* The same for another program, found in PATH. input: its stdin or NULL; -1 if there is no such
 * program. */
int xt_run_program(const char *const *arguments, const char *const *environment, const char *input,
                   xt_buffer *out, xt_buffer *err);

/* A new temporary file of this content; its name into path. The test unlinks it. */
void xt_make_file(char *path, size_t size, const char *content);

/* ---- connections ---- */

typedef struct xt_conn {
    int fd; /* -1 when closed */
    xt_buffer in;
} xt_conn;

typedef struct xt_response {
    int status;
    char *head; /* status line and headers, terminated */
    char *body; /* terminated too */
    size_t length;
    bool close; /* Connection: close was announced */
} xt_response;

typedef enum {
    XT_GOT,     /* one whole response */
    XT_CLOSED,  /* the peer closed before the first byte of one */
    XT_CUT,     /* the peer closed in the middle of one */
    XT_SILENT,  /* nothing for XT_PATIENCE_MS */
    XT_GARBLED, /* not HTTP */
} xt_result;

const char *xt_result_name(xt_result result);

bool xt_connect(xt_conn *conn, const xt_daemon *daemon);
/* From another loopback address, such as "127.0.0.2". */
bool xt_connect_from(xt_conn *conn, const xt_daemon *daemon, const char *source);
void xt_disconnect(xt_conn *conn); /* an orderly close; safe to repeat */
void xt_reset(xt_conn *conn);      /* by RST */
/* False when the peer no longer takes bytes. */
bool xt_send(xt_conn *conn, const void *bytes, size_t length);
bool xt_send_text(xt_conn *conn, const char *text);
/* One response: 100 Continue is skipped unless `interim`. head: the answer to a HEAD request. */
xt_result xt_receive(xt_conn *conn, bool head, bool interim, xt_response *response);
/* True when the peer closes (and sends nothing but what was buffered) within that time. */
bool xt_closed_within(xt_conn *conn, int64_t ms);
bool xt_quiet(xt_conn *conn, int64_t ms); /* neither bytes nor a close for that long */

/* headers: whole lines ending in CRLF, or "". Adds Host and, when body is not NULL,
 * Content-Length. */
xt_result xt_request(xt_conn *conn, const char *method, const char *target, const char *headers,
                     const void *body, size_t length, xt_response *response);
void xt_response_free(xt_response *response);
/* A header's value, or NULL; into text. */
const char *xt_header(const xt_response *response, const char *name, char *text, size_t size);
#define XT_HEADER(response, name) xt_header((response), (name), (char[512]){0}, 512)
int xt_header_count(const xt_response *response, const char *name);

/* A request on a connection of its own; aborts the test unless a response comes. */
void xt_fetch(const xt_daemon *daemon, const char *method, const char *target, const char *headers,
              const void *body, size_t length, xt_response *response);
/* The same with a body of text, or NULL, for its status alone, which must be that one. */
void xt_expect(const xt_daemon *daemon, const char *method, const char *target, const char *headers,
               const char *body, int status);
/* GET; the body, which the caller frees; aborts unless 200. */
char *xt_get(const xt_daemon *daemon, const char *target);

/* The value of a Prometheus sample such as `xnord_inflight_requests` or
 * `xnord_rejected_requests_total{reason="client_gone"}` in a page; NAN if absent. */
double xt_sample(const char *page, const char *sample);
double xt_metric(const xt_daemon *daemon, const char *sample);
/* Polls until the metric is at least (or exactly) this; false after XT_PATIENCE_MS. */
bool xt_metric_reaches(const xt_daemon *daemon, const char *sample, double at_least);
bool xt_metric_becomes(const xt_daemon *daemon, const char *sample, double value);

#endif
