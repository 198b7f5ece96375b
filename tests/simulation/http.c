/* http.c: in place of server/http: what the handler above may call of a request (http.h), and its
 * life. Each client is an HTTP thread of its own. */
#include "world.h"

#include "device.h"
#include "xn_mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
    _Alignas(XN_MEM_ALIGNMENT) struct block *next;
};

/* ---- what a request says ---- */

static const xn_trace no_trace;

#define SAYS(type, what, value)                                                                    \
    type xn_request_##what(const xn_request *r) {                                                  \
        (void)r;                                                                                   \
        return value;                                                                              \
    }

SAYS(const char *, method, r->act->method)
SAYS(const char *, path, r->path)
SAYS(const char *, id, r->id)
SAYS(const struct sockaddr *, client, NULL)
SAYS(size_t, bytes_in, r->received)
SAYS(size_t, bytes_out, r->answer_length)
SAYS(bool, has_body, r->length > 0)
SAYS(size_t, length, r->length)
SAYS(int64_t, started_ns, r->started_ns)
SAYS(int64_t, received_ns, r->received_ns)
SAYS(const xn_trace *, trace, &no_trace)
SAYS(void *, user, r->user)
SAYS(xn_client *, address_client, r->by->address)
SAYS(void **, connection_data, &r->by->data)
SAYS(size_t, room, 1024)
SAYS(bool, responded, r->status || r->aborted)

void xn_request_set_id(xn_request *r, const char *id) {
    snprintf(r->id, sizeof r->id, "%s", id);
}
void xn_request_set_user(xn_request *r, void *user) {
    r->user = user;
}
const char *xn_request_header(const xn_request *r, const char *name) {
    static const char *const media_types[FORMS] = {"application/json", "application/octet-stream",
                                                   "application/vnd.safetensors",
                                                   "application/octet-stream", "image/png"};
    if (!strcmp(name, "Content-Type") && r->length)
        return media_types[r->act->form];
    if (!strcmp(name, "Inference-Header-Content-Length") && r->header_length[0])
        return r->header_length;
    if (!strcmp(name, "Content-Encoding") && r->coded)
        return "gzip";
    return !strcmp(name, "Accept-Encoding") && r->takes_coded ? "gzip" : NULL;
}

void xn_request_query(const xn_request *r,
                      bool (*visit)(void *context, const char *key, const char *value),
                      void *context) {
    for (const char *at = r->query; *at;) {
        const char *value = at + strlen(at) + 1;
        if (!visit(context, at, value))
            return;
        at = value + strlen(value) + 1;
    }
}

/* ---- memory ---- */

void *xn_request_alloc(xn_request *r, size_t bytes) {
    struct block *block = xn_mem_zalloc(1, sizeof *block + bytes);
    if (!block)
        return NULL;
    block->next = r->blocks;
    r->blocks = block;
    return block + 1;
}

void xn_request_retain(xn_request *r) {
    law(r->suspended && !r->resumed && !r->retained, "a suspended request is kept, once");
    r->retained = true;
    r->address = r->by->address;
    r->by->address = NULL;
}

static void free_request(xn_request *r) {
    xn_request **at = &w.requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    while (r->blocks) {
        struct block *next = r->blocks->next;
        xn_mem_free(r->blocks);
        r->blocks = next;
    }
    event(r, "end", "%d", r->status);
    free(r);
}

void xn_request_release(xn_request *r) {
    law(r->retained && r->leaving, "released is the last, after done, of what is in use");
    law(!fibers_locks_held(), "released is called without a lock");
    w.connecting++;
    xn_client_put(xn_engine_admission(w.engine), r->address);
    w.connections--;
    w.connecting--;
    free_request(r);
}

/* ---- answering ---- */

void xn_request_respond(xn_request *r, int status, const char *type, void *body, size_t length,
                        void (*release)(void *context), void *release_context) {
    (void)type;
    law(!xn_request_responded(r), "a request has one answer");
    r->status = status;
    r->answer = body;
    r->answer_length = length;
    r->release = release;
    r->release_context = release_context;
    w.successes += act_infers(r->act) && status == 200;
}

void xn_request_respond_empty(xn_request *r, int status) {
    static char nothing[1];
    xn_request_respond(r, status, NULL, nothing, 0, NULL, NULL);
}

void xn_request_respond_error(xn_request *r, int status, const char *code, const char *field,
                              const char *message) {
    char text[1024];
    size_t length =
        w.handler.write_error(w.handler.context, r, code, field, message, text, sizeof text);
    char *copy = xn_mem_alloc(length + 1);
    law(message[0], "a refusal has a message");
    w.refused++;
    event(r, "refused", "%d %s: %.60s", status, code, message);
    if (!copy) {
        xn_request_abort(r);
        return;
    }
    memcpy(copy, text, length + 1);
    xn_request_respond(r, status, "application/json", copy, length, xn_mem_free, copy);
}

void xn_request_add_header(xn_request *r, const char *name, const char *value) {
    r->retry_after |= !strcmp(name, "Retry-After") && atoi(value) >= 1;
    r->answer_coded |= !strcmp(name, "Content-Encoding");
}

void xn_request_abort(xn_request *r) {
    r->aborted = true;
}

void xn_request_receive(xn_request *r, void *buffer, size_t allowed) {
    law(!r->into || r->into == buffer, "the bytes so far stay where they are");
    r->into = buffer;
    r->allowed = allowed;
}

void xn_request_suspend(xn_request *r) {
    law(!r->suspended && r->received_ns, "a request is suspended once, when it is complete");
    r->suspended = true;
}

xn_inference *request_work(const xn_request *r) {
    const xn_context *ctx = r->user;
    return ctx && act_infers(r->act) && r->received_ns ? ctx->of.work : NULL;
}

/* The last moment at which the job is the engine's, which has had it since it was submitted: a
 * coded body is decoded before, on the background pool, which may be late. */
static void law_of_end(const xn_request *r, const xn_job *job) {
    xn_engine_health health;
    if (!job->state)
        return;
    const bool decoded_late = job->submitted_ns > job->deadline_ns;
    const int64_t latest_ns = (decoded_late ? job->submitted_ns : job->deadline_ns) + SLACK_NS;
    law(job->finished_ns <= latest_ns && (!job->status || fibers_now() <= latest_ns),
        "done comes by the deadline");
    law(!job->status || (job->error.status == job->status && job->error.message[0]),
        "a failure has a message of its status");
    law(!job->in_use || job->status == XN_ERR_DEADLINE, "a device is at it past the deadline only");
    law(job->in_use == r->retained, "a request that a device uses is kept");
    xn_engine_health_get(w.engine, &health); /* would hang if a lock of the engine were held */
    if (job->status == XN_ERR_DEVICE_LOST && job->device >= 0) {
        int up = 0;
        for (int i = 0; i < SIM_DEVICES; i++)
            up += !devices.each[SIM_GPU][i].told;
        law(up || !health.ready || strcmp(health.backend, "cuda") != 0,
            "not ready before the loss of the last device is told");
    }
}

void xn_request_resume(xn_request *r) {
    const xn_inference *work = request_work(r);
    law(!fibers_locks_held(), "a request is resumed without a lock");
    law(r->suspended && !r->resumed, "a suspended request is resumed once");
    if (work)
        law_of_end(r, &work->job);
    event(r, "resume", "%s", work ? xn_status_name(work->job.status) : "");
    pthread_mutex_lock(&r->mutex);
    r->resumed = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

/* ---- the life of a request ---- */

void client_connect(client *by) {
    const unsigned char identity[XN_CLIENT_IDENTITY_BYTES] = {
        (unsigned char)(by->number % ADDRESSES)};
    w.connecting++;
    by->address = xn_client_get(xn_engine_admission(w.engine), XN_CLIENT_ADDRESS, identity);
    w.connections += by->address != NULL;
    w.connecting--;
}

void client_disconnect(client *by) {
    w.connecting++;
    xn_mem_free(by->data);
    w.connections -= by->address != NULL;
    xn_client_put(xn_engine_admission(w.engine), by->address);
    *by = (client){.number = by->number};
    w.connecting--;
}

xn_request *request_new(client *by, const act *what) {
    xn_request *r = calloc(1, sizeof *r);
    r->by = by;
    r->act = what;
    r->number = ++w.serial;
    r->name =
        what->count ? what->first + (w.alone ? 0 : (int)xn_rng_below(&w.rng, what->count)) : -1;
    snprintf(r->id, sizeof r->id, "simulated-%u", r->number % 1000);
    snprintf(r->path, sizeof r->path, "%s", what->path);
    for (char *at = r->path; *at; at++)
        *at = *at == '*' ? (char)('a' + r->name) : *at;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->since_step = fibers_steps();
    what->make(r);
    event(r, what->method, "%s %s", r->path, r->query);
    for (char *at = r->query; *at; at++) /* keys and values, each with its end */
        *at = *at == '&' || *at == '=' ? '\0' : *at;
    return r;
}

/* The body comes in parts. False: the client hung up, or was refused. */
static bool receive(xn_request *r) {
    const size_t parts = 1 + xn_rng_below(&w.rng, 3);
    for (size_t i = 1; i <= parts; i++) {
        const size_t until = i < parts ? r->bytes * i / parts : r->bytes;
        if (world_draws(w.mix.stalls))
            fibers_sleep(world_about(3000000));
        if (world_draws(w.mix.resets / 4))
            return false;
        if (r->into && until > r->allowed)
            w.handler.more(w.handler.context, r, until);
        if (xn_request_responded(r))
            return false;
        if (r->into)
            memcpy(r->into + r->received, r->body + r->received, until - r->received);
        r->received = until;
    }
    r->length = r->received;
    return true;
}

/* Until it is resumed; meanwhile the client may hang up. */
static void await(xn_request *r) {
    const bool resets = world_draws(w.mix.resets);
    const int64_t reset_ns = fibers_now() + world_about(500000);
    pthread_mutex_lock(&r->mutex);
    while (!r->resumed) {
        const struct timespec at = {reset_ns / 1000000000, reset_ns % 1000000000};
        if (!resets || r->gone) {
            pthread_cond_wait(&r->changed, &r->mutex);
        } else if (fibers_now() < reset_ns) {
            pthread_cond_timedwait(&r->changed, &r->mutex, &at);
        } else {
            event(r, "reset", "%s", r->path);
            const xn_inference *work = request_work(r);
            const bool queued = work && work->job.state == XN_JOB_QUEUED;
            r->gone = true;
            w.handler.gone(w.handler.context, r);
            law(!queued || work->job.state != XN_JOB_QUEUED, "a cancelled job leaves the queue");
        }
    }
    pthread_mutex_unlock(&r->mutex);
}

static void give_answer_back(xn_request *r) {
    if (r->release)
        r->release(r->release_context);
    r->release = NULL;
}

static void end(xn_request *r) {
    const xn_context *ctx = r->user;
    const int status = r->aborted ? 0 : r->status;
    const bool delivered = status && !r->gone && !world_draws(w.mix.resets / 4);
    const bool kept = r->retained, late = !kept && delivered && world_draws(50);
    law(!delivered || !xn_request_responded(r) || r->status, "an answer has a status");
    request_judge(r);
    request_settle(r);
    if (status)
        w.counts[ctx->label][status]++;
    all->answers[status]++;
    all->requests++;
    if (!late)
        give_answer_back(r);
    r->leaving = true;
    w.handler.finished(w.handler.context, r, status, delivered);
    if (kept)
        return; /* it may be freed already */
    give_answer_back(r);
    free_request(r);
}

void request_run(xn_request *r) {
    r->next = w.requests;
    w.requests = r;
    r->started_ns = fibers_now();
    w.handler.headers(w.handler.context, r);
    if (!xn_request_responded(r) && receive(r)) {
        r->received_ns = fibers_now();
        r->received_step = fibers_steps();
        w.handler.complete(w.handler.context, r);
        if (r->suspended)
            await(r);
        if (!xn_request_responded(r) && !(r->gone && world_draws(50)))
            w.handler.answer(w.handler.context, r);
        law(xn_request_responded(r) || r->gone, "a request that is complete is answered");
    }
    end(r);
}
