/* load.h: the parts of bench-http load, a load generator that does not wait for the server.
 *
 * Open loop: requests are due at moments fixed in advance, whatever the server does, and a latency
 * counts from the moment its request was due: a server that stalls is charged for every request
 * that should have been sent meanwhile (no coordinated omission). What could not be sent, because
 * all connections were taken for longer than the client's patience, is counted by itself and never
 * believed. How late the generator itself was is a histogram too.
 *
 *   load.c          threads, the report
 *   load_message.c  the workloads: the request's bytes, registering weights, the first answer
 *   load_conn.c     one connection: send, receive, check
 *   load_thread.c   the schedule: what is due goes to a free connection */
#ifndef XN_BENCH_LOAD_H
#define XN_BENCH_LOAD_H

#include "histogram.h"
#include "http.h"

#include "../../xn_rng.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- what is sent, and what must come back ---- */

typedef struct ol_shape {
    const char *name;
    int channels, side, filters;
    const char *mode;
} ol_shape;

const ol_shape *ol_shape_named(const char *name);

typedef struct ol_message {
    char *bytes; /* head and body */
    size_t length, body_length;
    unsigned char *output; /* of the first answer: every other must hold the same; NULL: any */
    size_t output_bytes;
    size_t stamp_at; /* where each request has OL_STAMP bytes of its own; 0: all are the same */
    bool any_length; /* a 200 is right, whatever it holds */
    size_t variants; /* so many of that length lie in bytes: connections have theirs */
} ol_message;

enum { OL_STAMP = sizeof(uint64_t), OL_STAMPS = 64 };

void ol_fill(float *values, size_t count, uint64_t seed); /* random */

/* Head, JSON and values, `variants` times one behind the other. */
void ol_message_build(const char *method, const char *path, const char *json, const void *values,
                      size_t bytes, size_t variants, ol_message *out);
/* Registers the weights of a workload, builds its request, asks it once and keeps the output. */
void ol_message_make(const ol_shape *shape, const struct sockaddr_in *server, ol_message *out);
/* Random 3x3 weights under that name. */
void ol_put_weights(const char *name, int filters, int channels, const struct sockaddr_in *server);
/* The answer to it, owned by the caller; the program ends where that is no success. */
char *ol_ask(const ol_message *message, size_t variant, const struct sockaddr_in *server,
             size_t *length);
/* The last output_bytes of the first answer: every other must hold them. */
void ol_keep_output(ol_message *message, const struct sockaddr_in *server);
void ol_message_free(ol_message *message);

/* ---- system shared memory: a region that the daemon knows by that name ---- */

typedef struct bench_region {
    char key[64];
    char *bytes;
    size_t size;
} bench_region;

void bench_region_make(bench_region *region, const char *name, size_t bytes,
                       const struct sockaddr_in *server);
void bench_region_free(bench_region *region);
/* In the JSON of the input and of the output: variant i has its own range, from i * each_in, i *
 * each_out on. Eight digits are enough for both. */
#define BENCH_OFFSET "@@@@@@@@"
void bench_region_offsets(ol_message *message, size_t each_in, size_t each_out);

/* ---- what happened ---- */

typedef enum {
    OL_GOOD,       /* 200, the right bytes */
    OL_REFUSED,    /* 429 or 503, with Retry-After */
    OL_EXPIRED,    /* 504 */
    OL_BARE,       /* 429 or 503 without Retry-After: a fault */
    OL_OTHER,      /* any other status: a fault */
    OL_WRONG,      /* 200 with other bytes: a fault */
    OL_LOST,       /* the connection ended before an answer: a fault */
    OL_UNANSWERED, /* no answer when the run was over */
    OL_UNSENT,     /* no connection was free in time */
    OL_OUTCOMES
} ol_outcome;

extern const char *const ol_outcome_names[OL_OUTCOMES];

enum { OL_SLICES = 1200 };
typedef struct ol_slice {
    uint64_t due, good; /* of those due in it, whenever the answer came */
} ol_slice;

typedef struct ol_counts {
    uint64_t outcomes[OL_OUTCOMES];
    uint64_t statuses[600];
    uint64_t due, reconnects;
    ol_slice slices[OL_SLICES]; /* from the window's beginning; of a plan that has them */
    xn_histogram good;          /* latencies of 200, from the moment due */
    xn_histogram refused;       /* and of refusals */
    xn_histogram compute;       /* of 200, as Server-Timing says it */
    xn_histogram late; /* the generator's own: from the moment due to the first byte sent, while
                          a connection was free */
} ol_counts;

/* ---- connections ---- */

typedef enum { OL_CLOSED, OL_IDLE, OL_BUSY } ol_state;

typedef struct ol_thread ol_thread;

typedef struct ol_conn {
    ol_thread *thread;
    int fd;
    ol_state state;
    struct ol_conn *next; /* among the thread's free ones */
    int64_t due_ns;       /* of the request under way */
    bool counted;         /* it was due inside the window */
    bool fresh;           /* nothing was answered on this connection yet */
    size_t sent;
    /* the answer as it comes */
    char head[4096];
    size_t head_length; /* so far */
    bool head_done, closes, retry_after, differs;
    int status;
    size_t length, received, skip; /* of the body; bytes of it in front of the output */
    int64_t compute_ns;
    uint64_t stamp;
} ol_conn;

struct ol_thread {
    /* set by the main thread */
    pthread_t thread;
    const struct ol_plan *plan;
    int index;
    /* its own */
    int epoll_fd;
    ol_conn *conns;
    ol_conn *free_conns;
    int busy;
    xn_rng rng;
    uint32_t stamps; /* new ones so far */
    int64_t next_due_ns;
    int64_t *waiting; /* a ring of due moments without a connection */
    size_t waiting_first, waiting_count, waiting_size;
    unsigned char *scratch;
    ol_counts counts;
};

typedef struct ol_plan {
    struct sockaddr_in server;
    ol_message message;
    double rate; /* a second, of all threads; 0: closed loop */
    bool poisson;
    uint64_t seed;
    double repeat; /* the share of requests with one of OL_STAMPS stamps; others have a new one,
                      also beside runs with another seed */
    int threads, connections, sources;
    double seconds, warmup;
    int64_t patience_ns;
    int64_t slice_ns;                    /* 0: none */
    int64_t start_ns, window_ns, end_ns; /* the schedule, what is counted of it, its end */
    int cpus[64], cpu_count;
} ol_plan;

#define OL_SCRATCH_BYTES (256 * 1024)

/* Sends the request that was due then. The connection is free. */
void ol_conn_start(ol_conn *conn, int64_t due_ns, bool counted);
/* After epoll reported it. */
void ol_conn_ready(ol_conn *conn);
/* Called when a request is over; the connection is free again. */
void ol_thread_done(ol_conn *conn, ol_outcome outcome);

void *ol_thread_main(void *thread);

/* ---- a run (load.c) ---- */

/* The defaults that the command line changes. */
ol_plan ol_plan_of(const bench_options *options, const struct sockaddr_in *server);
/* Plays the plan from now on; counts are of all its threads. Exits where a thread does not start.
 */
void ol_run(ol_plan *plan, ol_counts *counts);
/* The results of a closed loop in each round, of one side of a comparison. */
enum { OL_ROUNDS = 64 };
typedef struct ol_rounds {
    double rate[OL_ROUNDS]; /* good answers a second */
    double p50_us[OL_ROUNDS], p99_us[OL_ROUNDS], compute_us[OL_ROUNDS];
    double cpu_us[OL_ROUNDS]; /* of the server's process, for a good answer */
    double failures;          /* of all rounds: every answer that was not good */
} ol_rounds;
void ol_play_round(ol_plan *plan, pid_t server, int round, ol_rounds *out);
int bench_rounds(const bench_options *options); /* at most OL_ROUNDS */
/* Answers that were wrong, lost or without Retry-After. */
uint64_t ol_faults(const ol_counts *counts);
double ol_ms(const xn_histogram *h, double share);

#endif
