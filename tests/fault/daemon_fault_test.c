/* The whole daemon on an allocator that fails: not only its own allocations, as in
 * server_fault_test.c, but also those of the HTTP library, the C library and the compiler's
 * runtime, one of 5, 50 or 500 at random (preload/alloc.c), while clients send everything there is.
 *
 * A failed allocation may cost a request: 503, or a close where not even that could be said. It
 * must never crash or hang the daemon, answer wrongly or blame the client, and when memory is back
 * all must be as before. XNORD_TEST_FAULTS is how many allocations are to fail (make test-alloc:
 * 300000).
 */
#include "alloc_fault.h"
#include "http/client/wire.h"

#include "xn_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENTS 6
#define DEFAULT_FAULTS 20000
#define RESIDENT_SLACK_KB (48 * 1024) /* what buffers, arenas and caches may keep */

extern char **environ;

/* ---- the switch ---- */

typedef struct preload {
    char path[64];
    xt_alloc_fault *page;
} preload;

/* Children of this process run on the allocator from here on. */
static void preload_begin(preload *p) {
    static const xt_alloc_fault none;
    const char *daemon = getenv("XNORD_BIN");
    char library[512];
    if (!daemon)
        daemon = "build/xnord";
    const char *slash = strrchr(daemon, '/');
    int folder = slash ? (int)(slash - daemon) + 1 : 0;
    snprintf(library, sizeof library, "%.*salloc-fault.so", folder, daemon);
    ck_assert_msg(access(library, R_OK) == 0, "%s is missing (make test-binary builds it)",
                  library);
    xt_make_file(p->path, sizeof p->path, "");
    int fd = open(p->path, O_RDWR | O_CLOEXEC);
    ck_assert(fd >= 0 && write(fd, &none, sizeof none) == sizeof none);
    p->page = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(p->page != MAP_FAILED);
    close(fd);
    setenv("LD_PRELOAD", library, 1);
    setenv(XT_ALLOC_VARIABLE, p->path, 1);
}

static void preload_end(preload *p) {
    unsetenv("LD_PRELOAD");
    unsetenv(XT_ALLOC_VARIABLE);
    munmap(p->page, sizeof *p->page);
    unlink(p->path);
}

static void fail_one_in(preload *p, unsigned one_in, uint64_t seed) {
    atomic_store(&p->page->seed, (unsigned)seed);
    atomic_store(&p->page->one_in, one_in);
}

/* ---- what is asked ---- */

typedef enum { ASK_CONV, ASK_PUT, ASK_DELETE, ASK_DOCUMENT, ASK_WRONG } ask_kind;

typedef struct ask {
    ask_kind kind;
    const char *name, *method;
    xt_message message; /* target, headers, body; the body only where there is one */
    xt_problem *problem;
    xt_form form;      /* of the answer */
    bool may_be_gone;  /* names weights that others delete */
    int expected;      /* of ASK_WRONG */
    const char *holds; /* of ASK_DOCUMENT: a piece of the body */
} ask;

#define MOST_ASKS 64

enum { BITS_PROBLEM = 4, PROBLEMS };

static const xt_case cases[PROBLEMS] = {
    {"small", 2, 5, 6, 7, 4, 3, 3, .padding_name = "same", .scale = true, .bias = true},
    {"many", 1, 64, 14, 14, 32, 3, 3, .padding = {1, 1, 1, 1}},
    {"real", 1, 3, 12, 9, 6, 3, 3, .mode = "float"},
    {"large", 1, 1, 60, 60, 1, 3, 3, .padding_name = "same"},
    {"bits", 2, 37, 6, 7, 9, 3, 3, .datatype = "BITS", .scaling = "alpha", .bias = true,
     .output_datatype = "BITS"}};

typedef struct asks {
    ask all[MOST_ASKS];
    int count;
    xt_problem problems[PROBLEMS];
} asks;

static ask *add(asks *a, ask_kind kind, const char *name, const char *method) {
    ck_assert_int_lt(a->count, MOST_ASKS);
    ask *one = &a->all[a->count++];
    *one = (ask){.kind = kind, .name = name, .method = method};
    return one;
}

static void add_document(asks *a, const char *target, const char *holds) {
    ask *one = add(a, ASK_DOCUMENT, target, "GET");
    xt_print(&one->message.target, "%s", target);
    xt_print(&one->message.headers, "%s", "");
    one->holds = holds;
}

static void add_wrong(asks *a, const char *method, const char *target, const char *body,
                      int expected) {
    ask *one = add(a, ASK_WRONG, target, method);
    xt_print(&one->message.target, "%s", target);
    xt_print(&one->message.headers, "%s", body ? "Content-Type: application/json\r\n" : "");
    if (body)
        xt_print(&one->message.body, "%s", body);
    one->expected = expected;
}

static void add_weights(asks *a, const char *target, xt_problem *problem) {
    for (int form = 0; form < XT_FORMS; form++) {
        ask *put = add(a, ASK_PUT, target, "PUT");
        xt_encode_weights(problem, (xt_form)form, &put->message);
        xt_print(&put->message.target, "%s", target);
    }
    ask *gone = add(a, ASK_DELETE, target, "DELETE");
    xt_print(&gone->message.target, "%s", target);
    xt_print(&gone->message.headers, "%s", "");
}

/* Packed bits to packed bits, in the forms that have them. */
static void add_bits(asks *a, xt_problem *problem) {
    static const xt_form forms[] = {XT_OIP, XT_SAFETENSORS, XT_RAW};
    xt_problem_make(problem, &cases[BITS_PROBLEM], xn_test_seed());
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        ask *one = add(a, ASK_CONV, "bits", "POST");
        one->problem = problem;
        one->form = forms[i];
        xt_encode(problem, one->form,
                  &(xt_options){.weights_name = one->form == XT_RAW ? "bits" : NULL},
                  &one->message);
    }
}

static void make_asks(asks *a) {
    memset(a, 0, sizeof *a);
    for (size_t p = 0; p < BITS_PROBLEM; p++) {
        xt_problem *problem = &a->problems[p];
        xt_problem_make(problem, &cases[p], xn_test_seed() + p);
        for (int form = 0; form < XT_FORMS; form++)
            for (int named = 0; named < (p == 0 ? 3 : 1); named++) {
                xt_form answer = (xt_form)((form + named) % XT_FORMS);
                xt_options options = {.weights_name = named == 1   ? "known"
                                                      : named == 2 ? "passing"
                                                                   : NULL,
                                      .accept = xt_form_type(answer)};
                ask *one = add(a, ASK_CONV, cases[p].name, "POST");
                xt_encode(problem, (xt_form)form, &options, &one->message);
                one->problem = problem;
                one->form = answer;
                one->may_be_gone = named == 2;
            }
    }
    add_bits(a, &a->problems[BITS_PROBLEM]);
    add_weights(a, "/weights/passing", &a->problems[0]);
    add_document(a, "/weights", "\"weights\": [");
    add_document(a, "/weights/known", "\"name\": \"known\"");
    add_document(a, "/metrics", "xnord_inflight_requests");
    add_document(a, "/v2", "\"name\": \"xnord\"");
    add_document(a, "/v2/health/live", "\"live\": true");
    add_document(a, "/v2/health/ready", "\"ready\":");
    add_document(a, "/openapi.yaml", "openapi:");
    add_document(a, "/", "<!doctype html>");
    add_wrong(a, "GET", "/nothing", NULL, 404);
    add_wrong(a, "PATCH", "/conv", NULL, 405);
    add_wrong(a, "POST", "/conv", "{\"input\": 1}", 400);
    add_wrong(a, "POST", "/conv",
              "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\"", 400);
}

static void free_asks(asks *a) {
    for (int i = 0; i < a->count; i++)
        xt_message_free(&a->all[i].message);
    for (size_t p = 0; p < sizeof a->problems / sizeof *a->problems; p++)
        xt_problem_free(&a->problems[p]);
}

/* ---- and answered ---- */

static xt_result send_ask(xt_conn *conn, const ask *one, xt_response *response) {
    return xt_request(conn, one->method, one->message.target.data, one->message.headers.data,
                      one->message.body.data, one->message.body.length, response);
}

/* NULL, or what is wrong with a response; 503 is right when memory fails. */
static const char *judge(const ask *one, const xt_response *r, bool failing, char *text,
                         size_t size) {
    bool right = false;
    switch (one->kind) {
    case ASK_CONV:
        if (r->status == 200)
            return xt_response_matches(r, one->form, one->problem, NULL, text, size) ? NULL : text;
        right = one->may_be_gone && r->status == 404;
        break;
    case ASK_PUT:
        right = r->status == 200 || r->status == 201 || r->status == 404; /* deleted meanwhile */
        break;
    case ASK_DELETE:
        right = r->status == 204 || r->status == 404;
        break;
    case ASK_DOCUMENT:
        right = r->status == 200 && strstr(r->body, one->holds);
        break;
    case ASK_WRONG:
        right = r->status == one->expected;
        break;
    }
    if (right)
        return NULL;
    if (failing && r->status == 503 &&
        (xt_json_is(r->body, "error.code", "unavailable") ||
         (one->kind == ASK_DOCUMENT && strstr(r->body, "\"ready\": false"))))
        return NULL;
    snprintf(text, size, "status %d: %.300s", r->status, r->body ? r->body : "");
    return text;
}

/* ---- clients ---- */

typedef struct crowd {
    const xt_daemon *daemon;
    const asks *asks;
    atomic_bool stop;
    atomic_long answered, refused, closed;
    pthread_mutex_t mutex; /* guards wrong */
    char wrong[1024];      /* the first thing that was */
} crowd;

typedef struct client {
    crowd *crowd;
    uint64_t seed;
    pthread_t thread;
} client;

static void note_wrong(crowd *c, const ask *one, const char *what) {
    pthread_mutex_lock(&c->mutex);
    if (!c->wrong[0])
        snprintf(c->wrong, sizeof c->wrong, "%s %s (%s): %s", one->method, one->message.target.data,
                 one->name, what);
    pthread_mutex_unlock(&c->mutex);
    atomic_store(&c->stop, true);
}

static void ask_once(crowd *c, xt_conn *conn, const ask *one) {
    xt_response response = {0};
    char text[600] = "";
    xt_result result = send_ask(conn, one, &response);
    if (result == XT_GOT) {
        const char *wrong = judge(one, &response, true, text, sizeof text);
        if (wrong)
            note_wrong(c, one, wrong);
        atomic_fetch_add(response.status == 503 ? &c->refused : &c->answered, 1);
    } else if (result == XT_CLOSED || result == XT_CUT) {
        atomic_fetch_add(&c->closed, 1);
    } else {
        note_wrong(c, one, xt_result_name(result));
    }
    if (result != XT_GOT || response.close)
        xt_disconnect(conn);
    xt_response_free(&response);
}

static void *ask_on(void *argument) {
    client *self = argument;
    crowd *c = self->crowd;
    xn_rng rng = {self->seed};
    xt_conn conn = {.fd = -1};
    while (!atomic_load(&c->stop)) {
        const ask *one = &c->asks->all[xn_rng_below(&rng, (uint64_t)c->asks->count)];
        if (conn.fd < 0 && !xt_connect(&conn, c->daemon)) {
            note_wrong(c, one, "cannot connect");
            break;
        }
        ask_once(c, &conn, one);
        if (conn.fd >= 0 && xn_rng_below(&rng, 50) == 0)
            xt_disconnect(&conn);
    }
    xt_disconnect(&conn);
    return NULL;
}

/* Until so many allocations have failed and so many requests were answered. */
static void run_crowd(preload *p, const xt_daemon *daemon, const asks *a, unsigned one_in,
                      unsigned long faults, long answers) {
    crowd c = {.daemon = daemon, .asks = a, .mutex = PTHREAD_MUTEX_INITIALIZER};
    client clients[CLIENTS];
    unsigned long before = atomic_load(&p->page->failed), failed = 0;
    fail_one_in(p, one_in, xn_test_seed());
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (client){.crowd = &c, .seed = xn_test_seed() + (uint64_t)i};
        ck_assert(!pthread_create(&clients[i].thread, NULL, ask_on, &clients[i]));
    }
    /* A daemon that hangs makes a client's patience end, so this does. */
    while ((failed < faults || atomic_load(&c.answered) < answers) && !atomic_load(&c.stop)) {
        xt_nap();
        failed = atomic_load(&p->page->failed) - before;
    }
    atomic_store(&c.stop, true);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i].thread, NULL);
    fail_one_in(p, 0, 0);
    printf("one in %u: %lu failed; %ld answered, %ld refused, %ld closed\n", one_in, failed,
           atomic_load(&c.answered), atomic_load(&c.refused), atomic_load(&c.closed));
    char *log = xt_daemon_alive(daemon) ? NULL : xt_daemon_log(daemon);
    size_t length = log ? strlen(log) : 0;
    ck_assert_msg(!log, "the daemon is gone: %s", length > 1500 ? log + length - 1500 : log);
    ck_assert_msg(!c.wrong[0], "one in %u failed: %s", one_in, c.wrong);
}

/* Memory is there: every request is answered, and nothing is counted any more. */
static void check_recovered(const xt_daemon *daemon, const asks *a) {
    char text[600];
    ck_assert_msg(xt_metric_becomes(daemon, "xnord_ready", 1), "it does not get ready again");
    for (int i = 0; i < a->count; i++) {
        xt_conn conn;
        xt_response response;
        ck_assert(xt_connect(&conn, daemon));
        xt_result result = send_ask(&conn, &a->all[i], &response);
        ck_assert_msg(result == XT_GOT, "%s %s: %s", a->all[i].method,
                      a->all[i].message.target.data, xt_result_name(result));
        const char *wrong = judge(&a->all[i], &response, false, text, sizeof text);
        ck_assert_msg(!wrong, "%s %s afterwards: %s", a->all[i].method,
                      a->all[i].message.target.data, wrong);
        xt_response_free(&response);
        xt_disconnect(&conn);
    }
    ck_assert(xt_metric_becomes(daemon, "xnord_inflight_requests", 0));
    ck_assert(xt_metric_becomes(daemon, "xnord_inflight_bytes", 0));
    ck_assert(xt_metric_becomes(daemon, "xnord_queue_depth", 0));
    ck_assert(xt_metric_becomes(daemon, "xnord_connections", 1)); /* the one that asks */
}

static unsigned long faults_wanted(void) {
    const char *text = getenv("XNORD_TEST_FAULTS");
    return text ? strtoul(text, NULL, 10) : DEFAULT_FAULTS;
}

static void register_weights(const xt_daemon *daemon, const char *target,
                             const xt_problem *problem) {
    xt_message message;
    xt_response response;
    xt_encode_weights(problem, XT_OIP, &message);
    xt_fetch(daemon, "PUT", target, message.headers.data, message.body.data, message.body.length,
             &response);
    ck_assert_int_eq(response.status, 201);
    xt_response_free(&response);
    xt_message_free(&message);
}

START_TEST(survives_failures_under_load) {
    /* Rare failures take many requests, so there are fewer of them. */
    static const struct { unsigned one_in, percent; } rates[] = {{5, 47}, {50, 47}, {500, 6}};
    static asks a;
    preload p;
    make_asks(&a);
    preload_begin(&p);
    xt_daemon *daemon = xt_daemon_start(XT_FLAGS(
        "--backend", "cpu", "--threads", "3", "--http-threads", "2", "--canary-interval-ms", "50"));
    register_weights(daemon, "/weights/known", &a.problems[0]);
    register_weights(daemon, "/weights/bits", &a.problems[BITS_PROBLEM]);
    check_recovered(daemon, &a);
    run_crowd(&p, daemon, &a, UINT_MAX, 0, 3000); /* memory that ordinary work keeps */
    long resident = xt_daemon_memory_kb(daemon, "VmRSS");
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        run_crowd(&p, daemon, &a, rates[i].one_in, faults_wanted() * rates[i].percent / 100, 0);
        check_recovered(daemon, &a);
    }
    long now = xt_daemon_memory_kb(daemon, "VmRSS");
    ck_assert_msg(now < resident + RESIDENT_SLACK_KB, "resident: %ld kB, and %ld before", now,
                  resident);
    ck_assert_int_eq(xt_daemon_stop(daemon), 0);
    preload_end(&p);
    free_asks(&a);
}
END_TEST

/* ---- the start ---- */

static bool holds(int fd, const char *text) {
    char log[4096];
    ssize_t n = pread(fd, log, sizeof log - 1, 0);
    log[n > 0 ? n : 0] = 0;
    return strstr(log, text) != NULL;
}

/* The CUDA runtime crashes when it finds no memory to register its kernels, before main. */
static bool has_cuda(void) {
    const xn_backend *const *all = xn_backend_all();
    while (*all && strcmp((*all)->name, "cuda") != 0)
        all++;
    return *all != NULL;
}

/* Starts with failures from the first instruction on, or from main's. It comes up, or ends with
 * status 1 and says why; in the first case, memory comes back and it ends in order. True when it
 * came up. */
static bool start_failing(preload *p, unsigned one_in, uint64_t seed) {
    const char *binary = getenv("XNORD_BIN");
    char words[][16] = {"xnord",     "--listen", "127.0.0.1", "--port", "0",
                        "--backend", "cpu",      "--threads", "3"};
    char *arguments[sizeof words / sizeof *words + 1] = {NULL};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        arguments[i] = words[i];
    posix_spawn_file_actions_t actions;
    int log = memfd_create("xnord-log", MFD_CLOEXEC), status = 0;
    pid_t pid;
    atomic_store(&p->page->from_main, has_cuda());
    fail_one_in(p, one_in, seed);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, log, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
    ck_assert(
        !posix_spawn(&pid, binary ? binary : "build/xnord", &actions, NULL, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    int64_t end = xt_now_ms() + XT_PATIENCE_MS;
    bool up = false, ended = false;
    while (!(ended = waitpid(pid, &status, WNOHANG) == pid) && xt_now_ms() < end) {
        if (!up && holds(log, "listening on http")) {
            up = true;
            fail_one_in(p, 0, 0);
            kill(pid, SIGTERM);
        }
        xt_nap();
    }
    if (!ended) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    char text[1024];
    ssize_t n = pread(log, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(log);
    ck_assert_msg(ended, "one in %u, seed %llu: it hangs: %s", one_in, (unsigned long long)seed,
                  text);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == (up ? 0 : 1) && text[0],
                  "one in %u, seed %llu: it ends with %x: %s", one_in, (unsigned long long)seed,
                  (unsigned)status, text);
    return up;
}

START_TEST(starts_or_says_why_not) {
    static const unsigned rates[] = {5, 30, 100, 500, 5000}; /* few come up at the first ones */
    preload p;
    int up = 0, starts = 0;
    preload_begin(&p);
    for (int round = 0; round < 12; round++)
        for (size_t i = 0; i < sizeof rates / sizeof *rates; i++, starts++)
            up += start_failing(&p, rates[i], xn_test_seed() + (uint64_t)starts);
    ck_assert_msg(up > 0 && up < starts, "%d of %d came up: nothing was tested", up, starts);
    preload_end(&p);
}
END_TEST

XN_SUITE(fault_daemon) {
    Suite *s = suite_create("fault_daemon");
    TCase *t = tcase_create("preload");
    tcase_set_timeout(t, 900);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    if (!XN_TEST_SANITIZED) {
        tcase_add_test(t, survives_failures_under_load);
        tcase_add_test(t, starts_or_says_why_not);
    }
    suite_add_tcase(s, t);
    return s;
}
