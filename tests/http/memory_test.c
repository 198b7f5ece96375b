/* Memory: counted as it comes to be held, shared fairly, given back; and how a connection ends that
 * was answered before all its bytes were read. */
#include "client/oip.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define JSON "Content-Type: application/json\r\n"
/* A body that stalls is not dropped before the test is over, however slow that is. */
#define PATIENT "--body-min-rate", "0", "--body-timeout-ms", "600000"
#define POST_JSON "POST /conv HTTP/1.1\r\nHost: a\r\n" JSON

/* One pixel, in a body of any length: white space between the two parts. */
#define PIXEL_HEAD                                                                                 \
    "{\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}, "                \
    "\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1"
#define PIXEL_TAIL "]}, \"padding\": %4d}"
enum { PIXEL_BYTES = sizeof PIXEL_HEAD - 1 + sizeof PIXEL_TAIL - 1 + 1 }; /* 4 for "%4d" */

static void begin_body(xt_conn *conn, xt_daemon *daemon, const char *source, size_t length) {
    char head[200];
    snprintf(head, sizeof head, POST_JSON "Content-Length: %zu\r\n\r\n", length);
    ck_assert(source ? xt_connect_from(conn, daemon, source) : xt_connect(conn, daemon));
    ck_assert(xt_send_text(conn, head));
}

static bool send_spaces(xt_conn *conn, size_t length) {
    static char spaces[1 << 16];
    memset(spaces, ' ', sizeof spaces);
    for (; length; length -= length < sizeof spaces ? length : sizeof spaces)
        if (!xt_send(conn, spaces, length < sizeof spaces ? length : sizeof spaces))
            return false;
    return true;
}

static bool send_tail(xt_conn *conn, int padding) {
    char tail[64];
    snprintf(tail, sizeof tail, PIXEL_TAIL, padding);
    return xt_send_text(conn, tail);
}

/* The status of a request of `length` bytes from that address; its answer must be whole. */
static int post_from(xt_daemon *daemon, const char *source, size_t length, int padding) {
    xt_conn conn;
    xt_response response;
    length = length < PIXEL_BYTES ? PIXEL_BYTES : length;
    begin_body(&conn, daemon, source, length);
    if (xt_send_text(&conn, PIXEL_HEAD) && send_spaces(&conn, length - PIXEL_BYTES))
        send_tail(&conn, padding); /* may be refused before its end */
    xt_result result = xt_receive(&conn, false, false, &response);
    ck_assert_msg(result == XT_GOT, "%zu bytes from %s: %s", length, source ? source : "here",
                  xt_result_name(result));
    int status = response.status;
    if (status == 429)
        ck_assert_msg(XT_HEADER(&response, "Retry-After"), "429 without Retry-After");
    xt_response_free(&response);
    xt_disconnect(&conn);
    return status;
}

static int post(xt_daemon *daemon, size_t length) {
    return post_from(daemon, NULL, length, 0);
}

/* ---- bodies ---- */

START_TEST(announced_bodies_hold_nothing) {
    enum { COUNT = 8 };
    xt_conn conns[COUNT];
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--queue-bytes", "256M", "--max-body-bytes", "200M",
                                            "--max-bytes-per-client", "256M", PATIENT));
    for (int i = 0; i < COUNT; i++) {
        begin_body(&conns[i], d, NULL, 200 * MIB);
        ck_assert(send_spaces(&conns[i], 1200));
    }
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", COUNT));
    ck_assert_double_lt(xt_metric(d, "xnord_inflight_bytes"), 33.0 * MIB); /* an eighth, ahead */
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(post(d, 100), 200);
    ck_assert_int_eq(post(d, 150 * MIB), 200);
    for (int i = 0; i < COUNT; i++)
        xt_disconnect(&conns[i]);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* Bodies that grow until there is no room: refused in the middle, by a whole answer, and the others
 * go on. */
START_TEST(bodies_refused_in_the_middle) {
    enum { COUNT = 5 };
    const size_t step = MIB / 4, length = 15 * MIB / 2;
    xt_conn conns[COUNT];
    xt_response response;
    int served = 0, refused = 0;
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--queue-bytes", "20M", "--max-bytes-per-client", "20M", "--http-threads", "1"));
    for (int i = 0; i < COUNT; i++) {
        begin_body(&conns[i], d, NULL, length);
        ck_assert(xt_send_text(&conns[i], PIXEL_HEAD));
    }
    for (size_t sent = PIXEL_BYTES; sent < length; sent += step)
        for (int i = 0; i < COUNT; i++)
            send_spaces(&conns[i], length - sent < step ? length - sent : step);
    for (int i = 0; i < COUNT; i++)
        send_tail(&conns[i], 0);
    for (int i = 0; i < COUNT; i++) {
        xt_result result = xt_receive(&conns[i], false, false, &response);
        ck_assert_msg(result == XT_GOT, "body %d: %s", i, xt_result_name(result));
        if (response.status == 200) {
            served++;
        } else {
            refused++;
            xt_check_error(&response, 429, NULL, "queue-bytes", "a body in the middle");
            ck_assert_ptr_nonnull(XT_HEADER(&response, "Retry-After"));
            ck_assert_ptr_nonnull(XT_HEADER(&response, "X-Request-Id"));
            ck_assert(response.close);
            ck_assert(xt_closed_within(&conns[i], XT_PATIENCE_MS));
        }
        xt_response_free(&response);
        xt_disconnect(&conns[i]);
    }
    ck_assert_msg(served >= 2 && refused >= 1, "%d served, %d refused", served, refused);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert(xt_metric_reaches(d, "xnord_requests_total{route=\"conv\",code=\"429\"}", refused));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* A refusal does not read what it refused: the client of a large body sees the answer although it
 * sends on, and soon cannot send any more. */
START_TEST(refused_bodies_are_not_read) {
    static const struct {
        const char *head;
        int status;
    } cases[] = {
        {"POST /nowhere HTTP/1.1\r\nHost: a\r\n", 404},
        {"PUT /conv HTTP/1.1\r\nHost: a\r\n", 405},
        {"POST /conv HTTP/1.1\r\nHost: a\r\n", 415},
    };
    xt_daemon *d = xt_daemon_start(XT_NO_FLAGS);
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        xt_conn conn;
        xt_response response;
        char head[200];
        int status = cases[i / 2].status, length = i % 2 ? 200000000 : 600000;
        ck_assert(xt_connect(&conn, d));
        snprintf(head, sizeof head, "%sContent-Length: %d\r\n\r\n", cases[i / 2].head, length);
        ck_assert(xt_send_text(&conn, head));
        send_spaces(&conn, MIB / 2);
        ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
        ck_assert_int_eq(response.status, status);
        ck_assert(response.close);
        xt_response_free(&response);
        size_t more = 0;
        while (more < 64 && send_spaces(&conn, MIB))
            more++;
        ck_assert_msg(more < 64, "%d: still reading", status);
        xt_disconnect(&conn);
    }
    ck_assert_double_lt(xt_metric(d, "xnord_received_body_bytes_total"), 65536);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* With one place, bodies take turns: whoever waits holds nothing, and one that stalls holds others
 * up for a moment only. */
START_TEST(bodies_wait_for_a_place) {
    enum { COUNT = 6, MANY = 200 };
    static xt_conn conns[MANY];
    xt_response response;
    const size_t length = 100000;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--max-active", "1", "--http-threads", "1"));
    for (int i = 0; i < COUNT; i++)
        begin_body(&conns[i], d, NULL, length);
    ck_assert_int_eq(post(d, 100), 200);   /* a small one does not wait */
    for (int i = COUNT - 1; i >= 0; i--) { /* the first stalls until the last */
        ck_assert(xt_send_text(&conns[i], PIXEL_HEAD));
        ck_assert(send_spaces(&conns[i], length - PIXEL_BYTES));
        ck_assert(send_tail(&conns[i], 0));
        ck_assert_int_eq(xt_receive(&conns[i], false, false, &response), XT_GOT);
        ck_assert_int_eq(response.status, 200);
        xt_response_free(&response);
        if (i % 2)
            xt_reset(&conns[i]);
        xt_disconnect(&conns[i]);
    }
    for (int i = 0; i < COUNT; i++) { /* who hangs up while waiting is no trouble either */
        begin_body(&conns[i], d, NULL, length);
        if (i % 2)
            xt_reset(&conns[i]);
        xt_disconnect(&conns[i]);
    }
    ck_assert_int_eq(post(d, length), 200);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 0));
    for (int i = 0; i < MANY; i++) /* 100 ms each until the last would come in */
        begin_body(&conns[i], d, NULL, length);
    ck_assert(xt_metric_reaches(d, "xnord_inflight_requests", 1));
    kill(d->pid, SIGTERM); /* a drain refuses who waits */
    ck_assert_int_eq(xt_receive(&conns[MANY - 1], false, false, &response), XT_GOT);
    ck_assert_int_eq(response.status, 503);
    xt_response_free(&response);
    for (int i = 0; i < MANY; i++)
        xt_disconnect(&conns[i]);
    ck_assert_int_eq(xt_daemon_wait(d), 0);
}
END_TEST

/* The files of a load are held twice, in the body's text and decoded: both count. */
START_TEST(files_of_a_load_count) {
    static const int lengths[] = {1200000, 1700000};
    char repository[256];
    xt_folder_make(repository, sizeof repository);
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--model-repository", repository, "--queue-bytes", "4M",
                                            "--max-bytes-per-client", "4M"));
    for (int i = 0; i < 2; i++) { /* of 4.19 MB: 3.3 and 4.7 MB */
        xt_buffer body = {0};
        xt_response response;
        xt_print(&body, "{\"parameters\": {\"config\": \"{}\", \"file:1/model.safetensors\": \"");
        for (int n = 0; n < lengths[i]; n++)
            xt_append(&body, "A", 1);
        xt_print(&body, "\"}}");
        xt_fetch(d, "POST", "/v2/repository/models/new/load", "", body.data, body.length,
                 &response);
        if (i)
            xt_check_oip_error(&response, 413, "--queue-bytes", "files over the limit");
        else
            ck_assert_msg(response.status != 413, "%s", response.body);
        xt_response_free(&response);
        xt_buffer_free(&body);
    }
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    xt_folder_remove(repository);
}
END_TEST

/* ---- clients ---- */

START_TEST(an_address_has_a_share_of_the_bytes) {
    xt_conn holder;
    xt_daemon *d =
        xt_daemon_start(XT_FLAGS("--queue-bytes", "64M", "--max-bytes-per-client", "16M", PATIENT));
    begin_body(&holder, d, "127.0.0.2", 15 * MIB);
    ck_assert(send_spaces(&holder, 14 * MIB));
    ck_assert(xt_metric_reaches(d, "xnord_inflight_bytes", 14.0 * MIB));
    ck_assert_int_eq(post_from(d, "127.0.0.2", 4 * MIB, 0), 429);
    ck_assert_int_eq(post_from(d, "127.0.0.2", 17 * MIB, 0), 413); /* never */
    ck_assert_int_eq(post_from(d, "127.0.0.2", 100, 1500), 413);
    ck_assert_int_eq(post_from(d, "127.0.0.2", 100, 0), 200); /* there is some room */
    ck_assert_int_eq(post_from(d, "127.0.0.3", 4 * MIB, 0), 200);
    xt_disconnect(&holder);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(post_from(d, "127.0.0.2", 4 * MIB, 0), 200);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* From wherever it is used. */
START_TEST(a_key_has_a_share) {
    enum { SHARE = 2 };
    static const char keys[] = "one-key-of-the-test\nother-key-of-the-test\n";
    static const char head[] = "POST /conv HTTP/1.1\r\nHost: a\r\n" JSON
                               "Authorization: Bearer %s\r\n%sContent-Length: 100\r\n\r\n";
    static const struct {
        const char *key;
        int status;
    } cases[] = {{"one-key-of-the-test", 429}, {"other-key-of-the-test", 400}};
    char path[64], text[300];
    xt_conn holders[SHARE], conn;
    xt_response response = {0};
    xt_make_file(path, sizeof path, keys);
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--max-requests-per-client", "2", "--api-keys-file", path, PATIENT));
    snprintf(text, sizeof text, head, cases[0].key, "Expect: 100-continue\r\n");
    for (int i = 0; i < SHARE; i++) {
        ck_assert(xt_connect_from(&holders[i], d, i ? "127.0.0.2" : "127.0.0.3"));
        ck_assert(xt_send_text(&holders[i], text));
        ck_assert_int_eq(xt_receive(&holders[i], false, true, &response), XT_GOT);
        ck_assert_int_eq(response.status, 100); /* it is admitted */
        xt_response_free(&response);
    }
    for (int i = 0; i < 2; i++) {
        char blank[100];
        memset(blank, ' ', sizeof blank); /* no JSON: 400 once it is admitted */
        snprintf(text, sizeof text, head, cases[i].key, "");
        ck_assert(xt_connect_from(&conn, d, "127.0.0.4"));
        ck_assert(xt_send_text(&conn, text));
        ck_assert(xt_send(&conn, blank, sizeof blank));
        ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
        ck_assert_int_eq(response.status, cases[i].status);
        if (!i)
            ck_assert_msg(strstr(response.body, "key"), "%s", response.body);
        xt_response_free(&response);
        xt_disconnect(&conn);
    }
    for (int i = 0; i < SHARE; i++)
        xt_disconnect(&holders[i]);
    unlink(path);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* Their headers' memory is part of --queue-bytes: 160 connections hold 6.25 MiB of the 8. */
START_TEST(connections_count) {
    enum { COUNT = 160 };
    xt_conn conns[COUNT];
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--queue-bytes", "8M", "--max-bytes-per-client", "8M"));
    for (int i = 0; i < COUNT; i++)
        ck_assert(xt_connect(&conns[i], d));
    ck_assert(xt_metric_becomes(d, "xnord_connections_bytes", (COUNT + 1) * 40960));
    ck_assert_int_eq(post(d, 4 * MIB), 429);
    for (int i = 0; i < COUNT; i++)
        xt_disconnect(&conns[i]);
    ck_assert(xt_metric_becomes(d, "xnord_connections_bytes", 40960));
    ck_assert_int_eq(post(d, 4 * MIB), 200);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- answers ---- */

/* Asks for an answer of some 16 MiB through a small window. */
static void ask_for_much(xt_conn *conn, xt_daemon *daemon, const char *type) {
    xt_buffer head = {0};
    int small = 65536;
    ck_assert(xt_connect(conn, daemon));
    setsockopt(conn->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    xt_print(&head, POST_JSON "Accept: %s\r\nContent-Length: %d\r\n\r\n", type, PIXEL_BYTES);
    xt_print(&head, PIXEL_HEAD PIXEL_TAIL, 1024);
    ck_assert(xt_send(conn, head.data, head.length));
    xt_buffer_free(&head);
}

/* As long as it reads, the answer stays: the whole takes many times the timeout. */
START_TEST(a_reader_that_makes_progress_is_served) {
    xt_conn conn;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--send-timeout-ms", "300"));
    static char piece[1 << 14];
    size_t all = 0;
    ask_for_much(&conn, d, "application/octet-stream");
    for (int64_t end = xt_now_ms() + 1200; xt_now_ms() < end; xt_nap()) {
        ssize_t got = recv(conn.fd, piece, sizeof piece, MSG_DONTWAIT);
        ck_assert_msg(got != 0, "cut off after %zu bytes", all);
        all += got > 0 ? (size_t)got : 0;
    }
    for (ssize_t got = 1; got > 0 && all < 4u * 2049 * 2049; all += (size_t)got)
        got = recv(conn.fd, piece, sizeof piece, 0);
    ck_assert_uint_ge(all, 4u * 2049 * 2049);
    xt_disconnect(&conn);
    ck_assert_double_eq(xt_metric(d, "xnord_connections_closed_total{reason=\"send_timeout\"}"), 0);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* What idle traffic leaves behind: less than a fifth of what the requests held. */
START_TEST(idle_memory_is_given_back) {
    xt_daemon *d = xt_daemon_start(XT_NO_FLAGS);
    ck_assert_int_eq(post(d, 100), 200);
    long before = xt_daemon_memory_kb(d, "VmRSS"), after = 0;
    ck_assert_int_eq(post(d, 100 * MIB), 200);
    ck_assert_int_eq(post_from(d, NULL, 100, 2500), 200); /* 100 MB of output, as JSON */
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS / 2; xt_now_ms() < end; xt_nap()) {
        after = xt_daemon_memory_kb(d, "VmRSS");
        if (after < before + 20 * 1024)
            break;
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep what was freed */
    ck_assert_msg(after < before + 20 * 1024, "%ld kB before, %ld kB after", before, after);
#endif
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- half-closed connections ---- */

/* The client ends its direction right behind its request. */
static void half_closed(xt_daemon *daemon, const char *head, size_t spaces, const char *tail,
                        int status) {
    xt_conn conn;
    xt_response response;
    ck_assert(xt_connect(&conn, daemon));
    ck_assert(xt_send_text(&conn, head));
    ck_assert(send_spaces(&conn, spaces));
    ck_assert(xt_send_text(&conn, tail));
    ck_assert_int_eq(shutdown(conn.fd, SHUT_WR), 0);
    xt_result result = xt_receive(&conn, false, false, &response);
    ck_assert_msg(result == XT_GOT && response.status == status, "%.40s: %s, %d", head,
                  xt_result_name(result), response.status);
    ck_assert(xt_closed_within(&conn, XT_PATIENCE_MS));
    xt_response_free(&response);
    xt_disconnect(&conn);
}

START_TEST(half_closing_clients_are_answered) {
    static const size_t lengths[] = {PIXEL_BYTES, 70000, 3 * MIB}; /* also in the background */
    xt_daemon *d =
        xt_daemon_start(XT_FLAGS("--batch-delay-us", "200000", "--http-threads", _i ? "2" : "1"));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char head[512], tail[64];
        snprintf(head, sizeof head, POST_JSON "Content-Length: %zu\r\n\r\n" PIXEL_HEAD, lengths[i]);
        snprintf(tail, sizeof tail, PIXEL_TAIL, 0);
        half_closed(d, head, lengths[i] - PIXEL_BYTES, tail, 200);
    }
    half_closed(d, "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n", 0, "", 200);
    half_closed(d, "GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 0, "", 404);
    half_closed(d, "PUT /weights/a HTTP/1.1\r\nHost: a\r\n" JSON "Content-Length: 81\r\n\r\n", 15,
                "{\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"INT8\", \"data\": [1]}}",
                201);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 0));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- HTTP threads ---- */

/* The only HTTP thread answers others while a large body is decoded: others see that it is complete
 * before its client sees that it is refused, for what stands at its very end. */
START_TEST(decoding_keeps_no_http_thread) {
    const size_t length = 96 * MIB;
    xt_conn conn;
    xt_response response;
    xt_buffer data = {0};
    static const char begin[] = "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", "
                                "\"data\": [1]}, \"extra\": [";
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--http-threads", "1"));
    xt_print(&data, "%s", begin);
    while (data.length < length - 3)
        xt_append(&data, "1,", 2);
    xt_append(&data, "x", 1);
    while (data.length < length)
        xt_append(&data, " ", 1);
    begin_body(&conn, d, NULL, length);
    ck_assert(xt_send(&conn, data.data, length));
    ck_assert(xt_metric_reaches(d, "xnord_received_body_bytes_total", (double)length));
    ck_assert_msg(xt_quiet(&conn, 0), "nobody was served while the body was decoded");
    ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
    ck_assert_int_eq(response.status, 400);
    xt_response_free(&response);
    xt_buffer_free(&data);
    xt_disconnect(&conn);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* A client that resets while a background thread decodes: the work is dropped, nothing leaks. */
START_TEST(hang_ups_while_a_background_thread_decodes) {
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--http-threads", "1"));
    for (int i = 0; i < 20; i++) {
        xt_conn conn;
        begin_body(&conn, d, NULL, 4 * MIB);
        ck_assert(xt_send_text(&conn, PIXEL_HEAD));
        ck_assert(send_spaces(&conn, 4 * MIB - PIXEL_BYTES));
        ck_assert(send_tail(&conn, 0));
        if (i % 2)
            xt_reset(&conn);
        xt_disconnect(&conn);
    }
    ck_assert(xt_metric_becomes(d, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(post(d, 100), 200);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- small requests for much ---- */

#define IMAGE "{\"shape\": [1,1,2,2], \"datatype\": \"FP32\", \"data\": [1,2,3,4]}"
#define KERNEL "{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}"
#define WITH(rest) "{\"input\": " IMAGE ", \"weights\": " KERNEL rest "}"
#define INPUT(tensor) "{\"input\": " tensor ", \"weights\": " KERNEL "}"

static void post_conv(xt_daemon *daemon, const char *body, xt_response *response) {
    xt_fetch(daemon, "POST", "/conv", JSON, body, strlen(body), response);
}

/* Small requests for giant outputs: refused by their limit, and the memory stays. */
START_TEST(giant_outputs) {
    static const struct {
        const char *body;
        const char *limit;
    } table[] = {
        {WITH(", \"padding\": 200000"), "--max-"},
        {WITH(", \"padding\": [1000000000, 1000000000, 1000000000, 1000000000]"), NULL},
        {WITH(", \"padding\": 2147483647"), NULL},
        {WITH(", \"padding\": 9223372036854775807"), NULL},
        {WITH(", \"padding\": [0, 0, 40000000, 0]"), "--max-output-bytes"},
        {WITH(", \"padding\": [8000, 8000, 8000, 8000], \"output_datatype\": \"FP16\""), "--max-"},
    };
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_NO_FLAGS);
    long before = xt_daemon_memory_kb(d, "VmHWM");
    ck_assert_int_gt(before, 0);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            post_conv(d, table[i].body, &response);
            ck_assert_msg(response.status == 413 || (!table[i].limit && (response.status == 422 ||
                                                                         response.status == 400)),
                          "%s: %d %s", table[i].body, response.status, response.body);
            xt_check_error(&response, response.status, NULL, table[i].limit, table[i].body);
            xt_response_free(&response);
        }
    long after = xt_daemon_memory_kb(d, "VmHWM");
    ck_assert_msg(after - before < 64 * 1024, "the peak went from %ld to %ld kB", before, after);
    ck_assert(xt_metric_becomes(d, "xnord_inflight_bytes", 0));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* A header that promises much, and sends little: nothing is taken for what is not there. */
START_TEST(promised_tensors_take_no_memory) {
    const char *body = INPUT("{\"shape\": [1,1,8192,8192], \"datatype\": \"FP32\", \"data\": [1]}");
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_NO_FLAGS);
    long before = xt_daemon_memory_kb(d, "VmHWM");
    post_conv(d, body, &response);
    xt_check_error(&response, 400, "input", NULL, body);
    xt_response_free(&response);
    long after = xt_daemon_memory_kb(d, "VmHWM");
    ck_assert_msg(after - before < 64 * 1024, "the peak went from %ld to %ld kB", before, after);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* ---- answers before the body ---- */

static void nap_ms(int64_t ms) {
    for (int64_t end = xt_now_ms() + ms; xt_now_ms() < end;)
        xt_nap();
}

/* The client goes on writing after the answer, at once or a while later: its bytes are taken. A
 * reset would tell it of a failure, and could take the answer with it. */
START_TEST(bytes_behind_an_early_answer_are_taken) {
    enum { PIECE = 20000, PIECES = 20, ROUNDS = 10 };
    static const char piece[PIECE];
    xt_conn conn;
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_NO_FLAGS);
    for (int round = 0; round < ROUNDS; round++) {
        ck_assert(xt_connect(&conn, d));
        ck_assert(xt_send_text(&conn, "POST /conv HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain"
                                      "\r\nContent-Length: 10000000\r\n\r\n"));
        ck_assert(xt_send(&conn, piece, PIECE));
        ck_assert_int_eq(xt_receive(&conn, false, false, &response), XT_GOT);
        ck_assert_int_eq(response.status, 415);
        xt_response_free(&response);
        nap_ms(round < ROUNDS - 2 ? 5 : 300);
        for (int i = 0; i < PIECES; i++, xt_nap())
            ck_assert_msg(xt_send(&conn, piece, PIECE), "round %d: reset at piece %d", round, i);
        xt_disconnect(&conn);
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

XN_SUITE(http_memory) {
    Suite *s = suite_create("http_memory");
    TCase *t = tcase_create("memory");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, announced_bodies_hold_nothing);
    tcase_add_test(t, bodies_refused_in_the_middle);
    tcase_add_test(t, refused_bodies_are_not_read);
    tcase_add_test(t, bodies_wait_for_a_place);
    tcase_add_test(t, files_of_a_load_count);
    tcase_add_test(t, an_address_has_a_share_of_the_bytes);
    tcase_add_test(t, a_key_has_a_share);
    tcase_add_test(t, connections_count);
    tcase_add_test(t, a_reader_that_makes_progress_is_served);
    tcase_add_test(t, idle_memory_is_given_back);
    tcase_add_loop_test(t, half_closing_clients_are_answered, 0, 2);
    tcase_add_test(t, decoding_keeps_no_http_thread);
    tcase_add_test(t, hang_ups_while_a_background_thread_decodes);
    tcase_add_test(t, giant_outputs);
    tcase_add_test(t, promised_tensors_take_no_memory);
    tcase_add_test(t, bytes_behind_an_early_answer_are_taken);
    suite_add_tcase(s, t);
    return s;
}
