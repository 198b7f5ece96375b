/* admission.c: see admission.h. Clients are in a hash table that never grows: a client is there
 * only while it has a connection or a request, whose number is limited. */
#include "admission.h"

#include "clock.h"
#include "hash_table.h"
#include "list.h"
#include "threads.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#define BUCKETS 1024     /* a power of two */
#define RESERVED_SHARE 8 /* an eighth of --queue-bytes for what bodies are still to fill */

typedef struct {
    int64_t requests, bytes;
} counts;

struct xn_client {
    xn_client_kind kind;
    unsigned char identity[XN_CLIENT_IDENTITY_BYTES];
    int64_t references;
    counts in_flight; /* bytes: of its connections too */
    xn_hash_node node;
};

struct xn_admission {
    xn_admission_limits limits;
    xn_metrics *metrics;
    pthread_mutex_t mutex; /* guards all below and every client and ticket; a leaf */
    pthread_cond_t idle;   /* no request is left */
    counts all;            /* bytes: of requests, without connections */
    int64_t connections_bytes, programs_bytes, reserved;
    xn_status closed; /* XN_OK while open */
    xn_rate rate;
    xn_hash_table clients;
    xn_hash_node *buckets[BUCKETS];
};

/* ---- the rate ---- */

#define RATE_TAU_S 5.0 /* an event this old weighs 1/e */
#define RATE_MIN_WINDOW_S 0.01

static double seconds_between(int64_t from_ns, int64_t to_ns) {
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0.0;
}

static double decayed(const xn_rate *rate, int64_t now_ns) {
    return rate->weight * exp(-seconds_between(rate->at_ns, now_ns) / RATE_TAU_S);
}

void xn_rate_add(xn_rate *rate, int64_t events, int64_t now_ns) {
    if (!rate->first_ns)
        rate->first_ns = now_ns;
    rate->weight = decayed(rate, now_ns) + (double)events;
    if (now_ns > rate->at_ns)
        rate->at_ns = now_ns;
}

/* A constant rate r since first_ns has the weight r * tau * (1 - exp(-elapsed / tau)). */
double xn_rate_per_second(const xn_rate *rate, int64_t now_ns) {
    if (!rate->first_ns)
        return 0.0;
    double elapsed_s = seconds_between(rate->first_ns, now_ns);
    double window_s = RATE_TAU_S * -expm1(-elapsed_s / RATE_TAU_S);
    return decayed(rate, now_ns) / fmax(window_s, RATE_MIN_WINDOW_S);
}

int xn_rate_retry_after(double per_second, int64_t waiting) {
    enum { MAX_S = 60 };
    if (waiting < 1)
        return 1;
    double seconds = ceil((double)waiting / per_second); /* infinite at rate 0 */
    if (!(seconds < MAX_S))
        return MAX_S;
    return seconds < 1.0 ? 1 : (int)seconds;
}

/* ---- creation ---- */

xn_status xn_admission_create(const xn_admission_limits *limits, xn_metrics *metrics,
                              xn_admission **out, xn_error *error) {
    xn_admission *admission = xn_mem_zalloc(1, sizeof *admission);
    if (!admission)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the admission counters");
    admission->limits = *limits;
    admission->metrics = metrics;
    xn_mutex_init_adaptive(&admission->mutex);
    xn_cond_init(&admission->idle);
    admission->clients = (xn_hash_table){admission->buckets, BUCKETS - 1};
    *out = admission;
    return XN_OK;
}

void xn_admission_free(xn_admission *admission) {
    if (!admission)
        return;
    for (int i = 0; i < BUCKETS; i++)
        assert(!admission->buckets[i]);
    pthread_cond_destroy(&admission->idle);
    pthread_mutex_destroy(&admission->mutex);
    xn_mem_free(admission);
}

/* ---- clients ---- */

/* Addresses and digests are no secret, and a client that collides on purpose makes a list of its
 * own connections longer, whose number is limited. */
static uint64_t hash_of(xn_client_kind kind, const unsigned char *identity) {
    uint64_t halves[2];
    memcpy(halves, identity, sizeof halves);
    return xn_hash_mix(xn_hash_mix(halves[0] ^ (uint64_t)kind) ^ halves[1]);
}

static xn_client *find_locked(const xn_admission *admission, xn_client_kind kind,
                              const unsigned char *identity, uint64_t hash) {
    xn_hash_node *at = xn_hash_find(&admission->clients, hash);
    for (; at; at = xn_hash_find_next(at)) {
        xn_client *client = XN_ITEM(at, xn_client, node);
        if (client->kind == kind && !memcmp(client->identity, identity, sizeof client->identity))
            return client;
    }
    return NULL;
}

/* An address is held by its connections, and by nothing else. */
static void count_connection_locked(xn_admission *admission, xn_client *client, int64_t sign) {
    if (client->kind != XN_CLIENT_ADDRESS)
        return;
    client->in_flight.bytes += sign * admission->limits.connection_bytes;
    admission->connections_bytes += sign * admission->limits.connection_bytes;
    xn_metrics_gauge_set(admission->metrics, XN_GAUGE_CONNECTIONS_BYTES,
                         admission->connections_bytes);
}

xn_client *xn_client_get(xn_admission *admission, xn_client_kind kind,
                         const unsigned char identity[XN_CLIENT_IDENTITY_BYTES]) {
    const uint64_t hash = hash_of(kind, identity);
    pthread_mutex_lock(&admission->mutex);
    xn_client *client = find_locked(admission, kind, identity, hash);
    if (!client && (client = xn_mem_zalloc(1, sizeof *client))) {
        client->kind = kind;
        memcpy(client->identity, identity, sizeof client->identity);
        xn_hash_add(&admission->clients, &client->node, hash);
    }
    if (client) {
        client->references++;
        count_connection_locked(admission, client, 1);
    }
    pthread_mutex_unlock(&admission->mutex);
    return client;
}

static void put_locked(xn_admission *admission, xn_client *client) {
    count_connection_locked(admission, client, -1);
    if (--client->references)
        return;
    xn_hash_remove(&admission->clients, &client->node);
    xn_mem_free(client);
}

void xn_client_put(xn_admission *admission, xn_client *client) {
    if (!client)
        return;
    pthread_mutex_lock(&admission->mutex);
    put_locked(admission, client);
    pthread_mutex_unlock(&admission->mutex);
}

/* ---- tickets ---- */

/* More by itself than a limit: waiting would never help. */
static xn_status check_possible(const xn_admission *admission, const xn_ticket *ticket,
                                size_t bytes, xn_error *error) {
    const xn_admission_limits *limits = &admission->limits;
    if (bytes > (size_t)limits->bytes - ticket->bytes)
        return xn_fail_limit(error, "queue-bytes", NULL,
                             "the request needs %zu bytes at once beside the %zu that it has; "
                             "--queue-bytes allows %lld for all requests together",
                             bytes, ticket->bytes, (long long)limits->bytes);
    if (bytes > (size_t)limits->client_bytes - ticket->bytes)
        return xn_fail_limit(error, "max-bytes-per-client", NULL,
                             "the request needs %zu bytes at once beside the %zu that it has; "
                             "--max-bytes-per-client allows %lld for one client",
                             bytes, ticket->bytes, (long long)limits->client_bytes);
    return XN_OK;
}

static xn_status check_share_locked(const xn_admission *admission, const xn_client *client,
                                    int64_t requests, size_t bytes, xn_error *error) {
    const xn_admission_limits *limits = &admission->limits;
    if (!client)
        return XN_OK;
    const char *kind = client->kind == XN_CLIENT_KEY ? "key" : "address";
    if (client->in_flight.requests + requests > limits->client_requests)
        return xn_fail(error, XN_ERR_BUSY, NULL,
                       "%lld requests of this client's %s are waiting or running; "
                       "--max-requests-per-client is %lld; try again later",
                       (long long)client->in_flight.requests, kind,
                       (long long)limits->client_requests);
    if ((int64_t)bytes > limits->client_bytes - client->in_flight.bytes)
        return xn_fail(error, XN_ERR_BUSY, NULL,
                       "%zu bytes more would exceed --max-bytes-per-client %lld, of which this "
                       "client's %s has %lld in use; try again later",
                       bytes, (long long)limits->client_bytes, kind,
                       (long long)client->in_flight.bytes);
    return XN_OK;
}

static xn_status check_all_locked(const xn_admission *admission, int64_t bytes, xn_error *error) {
    int64_t used = admission->all.bytes + admission->connections_bytes + admission->programs_bytes;
    if (bytes > admission->limits.bytes - used)
        return xn_fail(error, XN_ERR_BUSY, NULL,
                       "%lld bytes more would exceed --queue-bytes %lld, of which %lld are in "
                       "use; try again later",
                       (long long)bytes, (long long)admission->limits.bytes, (long long)used);
    return XN_OK;
}

static xn_status check_room_locked(const xn_admission *admission, const xn_ticket *ticket,
                                   int64_t requests, size_t bytes, xn_error *error) {
    xn_status status = check_all_locked(admission, (int64_t)bytes, error);
    if (status == XN_OK)
        status = check_share_locked(admission, ticket->address, requests, bytes, error);
    return status ? status : check_share_locked(admission, ticket->key, requests, bytes, error);
}

static xn_status check_open_locked(const xn_admission *admission, xn_error *error) {
    if (admission->closed == XN_ERR_DEVICE_LOST)
        return xn_fail(error, XN_ERR_DEVICE_LOST, NULL,
                       "the device was lost; the service is about to restart");
    if (admission->closed != XN_OK)
        return xn_fail(error, admission->closed, NULL, "the service is shutting down");
    if (admission->all.requests >= admission->limits.requests)
        return xn_fail(error, XN_ERR_BUSY, NULL,
                       "%lld requests are waiting or running; --queue-depth is %lld; try again "
                       "later",
                       (long long)admission->all.requests, (long long)admission->limits.requests);
    return XN_OK;
}

static void add(counts *to, int64_t requests, int64_t bytes) {
    to->requests += requests;
    to->bytes += bytes;
    assert(to->requests >= 0 && to->bytes >= 0);
}

static void count_locked(xn_ticket *ticket, int64_t requests, int64_t bytes) {
    xn_admission *admission = ticket->admission;
    ticket->bytes += (size_t)bytes;
    add(&admission->all, requests, bytes);
    if (ticket->address)
        add(&ticket->address->in_flight, requests, bytes);
    if (ticket->key)
        add(&ticket->key->in_flight, requests, bytes);
    xn_metrics_gauge_set(admission->metrics, XN_GAUGE_INFLIGHT, admission->all.requests);
    xn_metrics_gauge_set(admission->metrics, XN_GAUGE_INFLIGHT_BYTES, admission->all.bytes);
}

xn_status xn_ticket_enter(xn_admission *admission, xn_client *address, xn_client *key,
                          size_t expected, xn_ticket *out, xn_error *error) {
    xn_ticket ticket = {.admission = admission, .address = address, .key = key};
    xn_status status = check_possible(admission, &ticket, expected, error);
    pthread_mutex_lock(&admission->mutex);
    if (status == XN_OK)
        status = check_open_locked(admission, error);
    if (status == XN_OK)
        status = check_room_locked(admission, &ticket, 1, expected, error);
    if (status == XN_OK) {
        count_locked(&ticket, 1, 0);
        *out = ticket;
    } else if (key) {
        put_locked(admission, key);
    }
    pthread_mutex_unlock(&admission->mutex);
    return status;
}

xn_status xn_ticket_grow(xn_ticket *ticket, size_t bytes, xn_error *error) {
    xn_admission *admission = ticket->admission;
    xn_status status = check_possible(admission, ticket, bytes, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&admission->mutex);
    status = check_room_locked(admission, ticket, 0, bytes, error);
    if (status == XN_OK)
        count_locked(ticket, 0, (int64_t)bytes);
    pthread_mutex_unlock(&admission->mutex);
    return status;
}

bool xn_ticket_reserve(xn_ticket *ticket, size_t bytes) {
    xn_admission *admission = ticket->admission;
    xn_error ignored;
    pthread_mutex_lock(&admission->mutex);
    bool granted =
        bytes <= (size_t)(admission->limits.bytes / RESERVED_SHARE - admission->reserved) &&
        !check_room_locked(admission, ticket, 0, bytes, &ignored);
    if (granted) {
        count_locked(ticket, 0, (int64_t)bytes);
        ticket->reserved = bytes;
        admission->reserved += (int64_t)bytes;
    }
    pthread_mutex_unlock(&admission->mutex);
    return granted;
}

static void arrived_locked(xn_ticket *ticket) {
    ticket->admission->reserved -= (int64_t)ticket->reserved;
    ticket->reserved = 0;
}

void xn_ticket_arrived(xn_ticket *ticket) {
    if (!ticket->reserved)
        return;
    pthread_mutex_lock(&ticket->admission->mutex);
    arrived_locked(ticket);
    pthread_mutex_unlock(&ticket->admission->mutex);
}

void xn_ticket_leave(xn_ticket *ticket) {
    xn_admission *admission = ticket->admission;
    if (!admission)
        return;
    pthread_mutex_lock(&admission->mutex);
    arrived_locked(ticket);
    count_locked(ticket, -1, -(int64_t)ticket->bytes);
    if (ticket->key)
        put_locked(admission, ticket->key);
    if (admission->all.requests == 0)
        pthread_cond_broadcast(&admission->idle);
    pthread_mutex_unlock(&admission->mutex);
    *ticket = (xn_ticket){0};
}

void xn_admission_close(xn_admission *admission, xn_status status) {
    pthread_mutex_lock(&admission->mutex);
    if (admission->closed != XN_ERR_DEVICE_LOST)
        admission->closed = status;
    pthread_mutex_unlock(&admission->mutex);
}

bool xn_admission_wait_idle(xn_admission *admission, int64_t deadline_ns) {
    pthread_mutex_lock(&admission->mutex);
    while (admission->all.requests > 0 &&
           xn_cond_wait_until(&admission->idle, &admission->mutex, deadline_ns))
        ;
    bool idle = admission->all.requests == 0;
    pthread_mutex_unlock(&admission->mutex);
    return idle;
}

/* ---- programs ---- */

size_t xn_admission_programs_most(const xn_admission *admission) {
    return (size_t)admission->limits.bytes / 2;
}

static xn_status check_programs_locked(const xn_admission *admission, int64_t bytes,
                                       xn_error *error) {
    const int64_t most = (int64_t)xn_admission_programs_most(admission);
    if (bytes > most - admission->programs_bytes)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "%lld bytes more to run with would exceed %lld, half of --queue-bytes, of "
                       "which %lld are in use",
                       (long long)bytes, (long long)most, (long long)admission->programs_bytes);
    return check_all_locked(admission, bytes, error);
}

xn_status xn_admission_charge_programs(xn_admission *admission, int64_t bytes, xn_error *error) {
    pthread_mutex_lock(&admission->mutex);
    xn_status status = bytes > 0 ? check_programs_locked(admission, bytes, error) : XN_OK;
    if (status == XN_OK) {
        admission->programs_bytes += bytes;
        assert(admission->programs_bytes >= 0);
        xn_metrics_gauge_set(admission->metrics, XN_GAUGE_PROGRAMS_BYTES,
                             admission->programs_bytes);
    }
    pthread_mutex_unlock(&admission->mutex);
    return status;
}

size_t xn_admission_programs_room(xn_admission *admission) {
    pthread_mutex_lock(&admission->mutex);
    int64_t left = admission->limits.bytes / 4 - admission->programs_bytes;
    pthread_mutex_unlock(&admission->mutex);
    return left > 0 ? (size_t)left : 0;
}

/* ---- the rate of jobs ---- */

void xn_admission_finished(xn_admission *admission, int64_t jobs, int64_t now_ns) {
    pthread_mutex_lock(&admission->mutex);
    xn_rate_add(&admission->rate, jobs, now_ns);
    pthread_mutex_unlock(&admission->mutex);
}

int xn_admission_retry_after(xn_admission *admission, int64_t now_ns) {
    pthread_mutex_lock(&admission->mutex);
    double per_second = xn_rate_per_second(&admission->rate, now_ns);
    int64_t waiting = admission->all.requests;
    bool known = admission->rate.first_ns != 0;
    pthread_mutex_unlock(&admission->mutex);
    return known ? xn_rate_retry_after(per_second, waiting) : 1;
}
