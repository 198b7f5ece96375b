/* context.h: the request context: one request on its way through a route, from its headers to the
 * end of its answer; and what the routes share: errors, JSON answers, background tasks, admission,
 * and the request's body. */
#ifndef XN_CONTEXT_H
#define XN_CONTEXT_H

#include "auth.h"
#include "body.h"
#include "coding.h"
#include "config.h"
#include "document.h"
#include "engine.h"
#include "exporter.h"
#include "http.h"
#include "models.h"
#include "shared_memory.h"
#include "thread_pool.h"
#include "weights_dir.h"
#include "xn_proto.h"

/* What the routes work with. */
typedef struct xn_service {
    const xn_config *config;
    xn_engine *engine;
    xn_auth *auth;                   /* NULL: open */
    xn_thread_pool *background_pool; /* what must not run on an HTTP thread */
    xn_weights_dir *weights_dir;     /* NULL: registered weights are not kept */
    xn_models *models;               /* NULL: there are none */
    xn_thread_pool *model_pool;      /* loading and unloading: waits for files and devices */
    xn_shared_memory *shared; /* regions that clients registered; NULL: that is not allowed */
    xn_exporter *spans;       /* NULL: none are sent */
} xn_service;

typedef struct xn_context xn_context;

/* What a route does with a request of its own, at the moments that xn_http_handler names
 * (http.h). All but complete may be NULL. */
typedef struct xn_resource {
    void (*headers)(xn_context *ctx);
    void (*complete)(xn_context *ctx);
    void (*answer)(xn_context *ctx);
    void (*gone)(xn_context *ctx);
    void (*finished)(xn_context *ctx);
} xn_resource;

/* One request on its way through a route: from the headers to finished. */
struct xn_context {
    xn_service *service;
    xn_request *request;
    const xn_resource *resource; /* NULL once refused */
    xn_route_label label;
    bool oip;     /* errors in the form and with the codes of the Open Inference Protocol */
    uint64_t key; /* whose key it came with (xn_auth_match); 0: none was needed */
    char name[XN_PROTO_MAX_NAME + 1]; /* in the path: of weights, a model, a region; or "" */
    char version[20];                 /* in the path: of a model; or "" */
    /* the body of conv, weights and infer */
    xn_form form, answer_form;
    xn_coding coding, answer_coding;
    bool has_header_length;
    size_t header_length;
    size_t most; /* bytes of the body, decoded too */
    xn_body body;
    xn_ticket ticket; /* admitted, and what it holds */
    xn_span *span;    /* in finished: what is told of it; or NULL */
    bool in_use;      /* by a device, after the answer too: its resource frees all */
    union {
        struct xn_inference *work;
        struct xn_background_task *background;
    } of;
};

/* Answers with an error of the closed set; status gives code and HTTP status. Adds Retry-After,
 * names the flag of a limit, counts the rejection. */
void xn_context_fail(xn_context *ctx, const xn_error *error);
/* The same for a failure that is HTTP's own. */
void xn_context_refuse(xn_context *ctx, int http_status, xn_reject_reason reason, const char *code,
                       const char *field, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* The same where there is no memory for the request or its answer. */
void xn_context_fail_memory(xn_context *ctx);
/* Takes the text as the JSON answer, with a newline behind it, and Retry-After with 503. */
void xn_context_json(xn_context *ctx, int http_status, xn_document *text);

/* Work of a route on a background thread, while the request is suspended; a route may have more
 * behind it. The route's answer hook follows. */
typedef struct xn_background_task {
    xn_task task; /* first: the task pointer is cast back */
    xn_context *ctx;
    xn_status (*run)(struct xn_background_task *task, xn_error *error);
    xn_error error; /* of run; status XN_OK where it succeeded */
} xn_background_task;

/* For complete: `bytes` of which the first are such a task, zeroed, as ctx->of.background; it lives
 * as long as the request. */
void xn_context_run(xn_context *ctx, xn_thread_pool *pool, size_t bytes,
                    xn_status (*run)(xn_background_task *task, xn_error *error));

/* Admits the request, counted at its client's address and key (xn_ticket_enter). */
xn_status xn_context_admit(xn_context *ctx, size_t expected, xn_error *error);
/* Content-Type, Accept, coding, lengths, limits: what conv and weights share in their headers hook
 * before they receive the body. answers: Accept must name a form there is. False: refused. */
bool xn_context_accept_body(xn_context *ctx, bool answers);
/* Admission, and the buffer for the body. False: refused. */
bool xn_context_receive(xn_context *ctx);
/* Both for an inference request, whose form is in its lengths. */
bool xn_context_accept_inference(xn_context *ctx);
/* Both for a JSON body of any Content-Type, which may be missing; the length is at most `most` and
 * --max-body-bytes. */
bool xn_context_accept_document(xn_context *ctx, int64_t most);
/* The body grows: counts `bytes` of it, or refuses the rest. */
void xn_context_grow_body(xn_context *ctx, size_t bytes);
/* The body is complete: its length is known now. False: refused. */
bool xn_context_end_body(xn_context *ctx);
/* The received body as it came, and whether its values lie where no element may. */
xn_proto_body xn_context_received(const xn_context *ctx);
bool xn_context_must_move(const xn_proto_body *body);
/* The body for the parser. A coded one is decoded, which takes time. One whose binary tensors lie
 * behind a header of unknown length is moved within its buffer, so that they are aligned. */
xn_status xn_context_body(xn_context *ctx, xn_proto_body *out, xn_error *error);
/* Gives the body and the admission back; idempotent. */
void xn_context_release(xn_context *ctx);

#endif
