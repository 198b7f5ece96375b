/* The gate: what a client is told of its share, and random sequences against a plain model of all
 * limits. */
#include "admission.h"
#include "xn_rng.h"
#include "xn_test.h"

#include <string.h>

typedef struct {
    xn_metrics *metrics;
    xn_admission *gate;
} fixture;

static void make(fixture *f, const xn_admission_limits *limits) {
    static const char *const ids[] = {"cpu"};
    ck_assert_int_eq(xn_metrics_create(ids, 1, "test", "cpu", &f->metrics, NULL), XN_OK);
    ck_assert_int_eq(xn_admission_create(limits, f->metrics, &f->gate, NULL), XN_OK);
}

static void unmake(fixture *f) {
    xn_admission_free(f->gate);
    xn_metrics_free(f->metrics);
}

static xn_client *client(const fixture *f, xn_client_kind kind, unsigned char number) {
    unsigned char identity[XN_CLIENT_IDENTITY_BYTES] = {number};
    xn_client *got = xn_client_get(f->gate, kind, identity);
    ck_assert_ptr_nonnull(got);
    return got;
}

static const xn_admission_limits limits = {.requests = 6,
                                           .bytes = 1600,
                                           .client_requests = 4,
                                           .client_bytes = 1000,
                                           .connection_bytes = 100};

/* An address has its connections' memory and its requests, a key its requests from anywhere. */
START_TEST(a_client_has_a_share) {
    fixture f;
    xn_ticket tickets[4], other;
    xn_error error = {0};
    make(&f, &limits);
    xn_client *one = client(&f, XN_CLIENT_ADDRESS, 1), *two = client(&f, XN_CLIENT_ADDRESS, 2);
    ck_assert_int_eq(xn_metrics_gauge(f.metrics, XN_GAUGE_CONNECTIONS_BYTES), 200);
    ck_assert_int_eq(xn_ticket_enter(f.gate, one, NULL, 1001, &other, &error), XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-bytes-per-client");
    ck_assert_int_eq(xn_ticket_enter(f.gate, one, NULL, 901, &other, &error), XN_ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(error.message, "--max-bytes-per-client 1000"));
    ck_assert_int_eq(xn_ticket_enter(f.gate, one, NULL, 900, &tickets[0], &error), XN_OK);
    ck_assert_int_eq(xn_ticket_grow(&tickets[0], 900, &error), XN_OK);
    ck_assert_int_eq(xn_ticket_grow(&tickets[0], 1, &error), XN_ERR_BUSY);
    ck_assert_int_eq(xn_ticket_enter(f.gate, two, NULL, 500, &other, &error), XN_OK);
    xn_ticket_leave(&other);
    xn_ticket_leave(&tickets[0]);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(xn_ticket_enter(f.gate, i % 2 ? one : two, client(&f, XN_CLIENT_KEY, 1), 0,
                                         &tickets[i], &error),
                         XN_OK);
    ck_assert_int_eq(xn_ticket_enter(f.gate, two, client(&f, XN_CLIENT_KEY, 1), 0, &other, &error),
                     XN_ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(error.message, "key"));
    ck_assert_ptr_nonnull(strstr(error.message, "--max-requests-per-client is 4"));
    ck_assert_int_eq(xn_ticket_enter(f.gate, two, client(&f, XN_CLIENT_KEY, 2), 0, &other, &error),
                     XN_OK);
    xn_ticket_leave(&other);
    for (int i = 0; i < 4; i++)
        xn_ticket_leave(&tickets[i]);
    xn_client_put(f.gate, one);
    xn_client_put(f.gate, two);
    ck_assert_int_eq(xn_metrics_gauge(f.metrics, XN_GAUGE_CONNECTIONS_BYTES), 0);
    unmake(&f);
}
END_TEST

/* ---- against a model ---- */

enum { ADDRESSES = 3, KEYS = 3, TICKETS = 10 };

typedef struct {
    int64_t requests, bytes;
} model_counts;

typedef struct {
    fixture f;
    xn_rng rng;
    xn_client *connections[ADDRESSES]; /* one connection each */
    model_counts all, address[ADDRESSES], key[KEYS];
    int64_t reserved;
    struct {
        bool in;
        int address, key; /* -1: none */
        int64_t bytes, reserved;
        xn_ticket ticket;
    } tickets[TICKETS];
} model;

static bool share_has_room(const model_counts *share, int64_t requests, int64_t bytes) {
    return share->requests + requests <= limits.client_requests &&
           share->bytes + bytes <= limits.client_bytes;
}

static bool has_room(const model *m, int slot, int64_t requests, int64_t bytes) {
    int a = m->tickets[slot].address, k = m->tickets[slot].key;
    return m->all.bytes + ADDRESSES * limits.connection_bytes + bytes <= limits.bytes &&
           share_has_room(&m->address[a], requests, bytes) &&
           (k < 0 || share_has_room(&m->key[k], requests, bytes));
}

static void count(model *m, int slot, int64_t requests, int64_t bytes) {
    int a = m->tickets[slot].address, k = m->tickets[slot].key;
    model_counts *counts[] = {&m->all, &m->address[a], k < 0 ? NULL : &m->key[k]};
    for (int i = 0; i < 3; i++)
        if (counts[i]) {
            counts[i]->requests += requests;
            counts[i]->bytes += bytes;
        }
    m->tickets[slot].bytes += bytes;
}

static void enter(model *m, int slot, int64_t expected) {
    m->tickets[slot].address = (int)xn_rng_below(&m->rng, ADDRESSES);
    m->tickets[slot].key = (int)xn_rng_below(&m->rng, KEYS + 1) - 1;
    m->tickets[slot].bytes = m->tickets[slot].reserved = 0;
    int k = m->tickets[slot].key;
    xn_client *key = k < 0 ? NULL : client(&m->f, XN_CLIENT_KEY, (unsigned char)k);
    xn_status status = xn_ticket_enter(m->f.gate, m->connections[m->tickets[slot].address], key,
                                       (size_t)expected, &m->tickets[slot].ticket, &(xn_error){0});
    xn_status expectation = expected > limits.client_bytes       ? XN_ERR_LIMIT
                            : m->all.requests >= limits.requests ? XN_ERR_BUSY
                            : has_room(m, slot, 1, expected)     ? XN_OK
                                                                 : XN_ERR_BUSY;
    ck_assert_int_eq(status, expectation);
    m->tickets[slot].in = !status;
    if (!status)
        count(m, slot, 1, 0);
}

static void grow(model *m, int slot, int64_t bytes) {
    xn_status status = xn_ticket_grow(&m->tickets[slot].ticket, (size_t)bytes, &(xn_error){0});
    bool possible = m->tickets[slot].bytes + bytes <= limits.client_bytes;
    ck_assert_int_eq(status, !possible                     ? XN_ERR_LIMIT
                             : has_room(m, slot, 0, bytes) ? XN_OK
                                                           : XN_ERR_BUSY);
    if (!status)
        count(m, slot, 0, bytes);
}

static void go_ahead(model *m, int slot, int64_t bytes) {
    if (m->tickets[slot].reserved)
        return;
    bool granted = xn_ticket_reserve(&m->tickets[slot].ticket, (size_t)bytes);
    ck_assert(granted == (m->reserved + bytes <= limits.bytes / 8 && has_room(m, slot, 0, bytes)));
    if (!granted)
        return;
    count(m, slot, 0, bytes);
    m->reserved += bytes;
    m->tickets[slot].reserved = bytes;
}

static void arrive(model *m, int slot) {
    xn_ticket_arrived(&m->tickets[slot].ticket);
    m->reserved -= m->tickets[slot].reserved;
    m->tickets[slot].reserved = 0;
}

static void leave(model *m, int slot) {
    xn_ticket_leave(&m->tickets[slot].ticket);
    m->reserved -= m->tickets[slot].reserved;
    count(m, slot, -1, -m->tickets[slot].bytes);
    m->tickets[slot].in = false;
}

static void step(model *m) {
    int slot = (int)xn_rng_below(&m->rng, TICKETS);
    int64_t bytes = (int64_t)xn_rng_below(&m->rng, xn_rng_below(&m->rng, 4) ? 300 : 1200);
    if (!m->tickets[slot].in) {
        enter(m, slot, bytes);
        return;
    }
    switch (xn_rng_below(&m->rng, 4)) {
    case 0:
        grow(m, slot, bytes);
        break;
    case 1:
        go_ahead(m, slot, bytes);
        break;
    case 2:
        arrive(m, slot);
        break;
    default:
        leave(m, slot);
    }
}

START_TEST(random_sequences_against_a_model) {
    model m = {.rng = {xn_test_seed() + (uint64_t)_i}};
    make(&m.f, &limits);
    for (int i = 0; i < ADDRESSES; i++) {
        m.connections[i] = client(&m.f, XN_CLIENT_ADDRESS, (unsigned char)i);
        m.address[i].bytes = limits.connection_bytes;
    }
    for (int i = 0; i < 20000; i++) {
        step(&m);
        ck_assert_int_eq(xn_metrics_gauge(m.f.metrics, XN_GAUGE_INFLIGHT), m.all.requests);
        ck_assert_int_eq(xn_metrics_gauge(m.f.metrics, XN_GAUGE_INFLIGHT_BYTES), m.all.bytes);
    }
    for (int i = 0; i < TICKETS; i++)
        if (m.tickets[i].in)
            leave(&m, i);
    for (int i = 0; i < ADDRESSES; i++)
        xn_client_put(m.f.gate, m.connections[i]);
    ck_assert_int_eq(xn_metrics_gauge(m.f.metrics, XN_GAUGE_INFLIGHT_BYTES), 0);
    unmake(&m.f);
}
END_TEST

XN_SUITE(admission) {
    Suite *s = suite_create("admission");
    TCase *t = tcase_create("admission");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_client_has_a_share);
    tcase_add_loop_test(t, random_sequences_against_a_model, 0, 8);
    suite_add_tcase(s, t);
    return s;
}
