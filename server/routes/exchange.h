/* exchange.h: one request on its way through a route, from its headers to the end of its answer,
 * and what the routes share: errors, the small JSON answers, admission and the request's body. */
#ifndef XN_EXCHANGE_H
#define XN_EXCHANGE_H

#include "auth.h"
#include "body.h"
#include "coding.h"
#include "config.h"
#include "engine.h"
#include "http.h"
#include "loader.h"
#include "models.h"
#include "shared_memory.h"
#include "weights_dir.h"
#include "xn_proto.h"

/* What the routes work with. */
typedef struct xn_service {
    const xn_config *config;
    xn_engine *engine;
    xn_auth *auth;               /* NULL: open */
    xn_loader *loader;           /* runs what must not run on an HTTP thread */
    xn_weights_dir *weights_dir; /* NULL: registered weights are not kept */
    xn_models *models;           /* NULL: there are none */
    xn_loader *model_loader;     /* loads and unloads them; waits for files and devices */
    xn_shared_memory *shared;    /* regions that clients registered; NULL: that is not allowed */
} xn_service;

typedef struct xn_exchange xn_exchange;

/* What a route does with an exchange of its own, at the moments that xn_http_handler names
 * (http.h). All but complete may be NULL. */
typedef struct xn_resource {
    void (*headers)(xn_exchange *exchange);
    void (*complete)(xn_exchange *exchange);
    void (*answer)(xn_exchange *exchange);
    void (*gone)(xn_exchange *exchange);
    void (*finished)(xn_exchange *exchange);
} xn_resource;

/* One request on its way through a route: from the headers to finished. */
struct xn_exchange {
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
    bool in_use;      /* by a device, after the answer too: its resource gives all back */
    union {
        struct xn_computation *work;
        struct xn_weights_exchange *weights;
        struct xn_errand *errand;
    } of;
};

/* Answers with an error of the closed set; status gives code and HTTP status. Adds Retry-After,
 * names the flag of a limit, counts the rejection. */
void xn_exchange_fail(xn_exchange *exchange, const xn_error *error);
/* The same for a failure that is HTTP's own. */
void xn_exchange_refuse(xn_exchange *exchange, int http_status, xn_reject_reason reason,
                        const char *code, const char *field, const char *message);
/* Retry-After, from the recent rate of finished jobs. */
void xn_exchange_add_retry_after(xn_exchange *exchange);
/* Takes the text (xn_mem) as the JSON answer; NULL answers that there is no memory. */
void xn_exchange_json(xn_exchange *exchange, int http_status, char *text, size_t length);

/* Admits the request, counted at its client's address and key (xn_ticket_enter). */
xn_status xn_exchange_admit(xn_exchange *exchange, size_t expected, xn_error *error);
/* Content-Type, Accept, coding, lengths, limits: what conv and weights share in their headers hook
 * before they receive the body. answers: Accept must name a form there is. False: refused. */
bool xn_exchange_accept_body(xn_exchange *exchange, bool answers);
/* Admission, and the buffer for the body. False: refused. */
bool xn_exchange_receive(xn_exchange *exchange);
/* Both for an inference request, whose form is in its lengths. */
bool xn_exchange_accept_inference(xn_exchange *exchange);
/* Both for a JSON body of any Content-Type, which may be missing; the length is at most `most` and
 * --max-body-bytes. */
bool xn_exchange_accept_document(xn_exchange *exchange, int64_t most);
/* The body grows: counts `bytes` of it, or refuses the rest. */
void xn_exchange_grow_body(xn_exchange *exchange, size_t bytes);
/* The body is complete: its length is known now. False: refused. */
bool xn_exchange_end_body(xn_exchange *exchange);
/* The received body as it came, and whether its values lie where no element may. */
xn_proto_body xn_exchange_received(const xn_exchange *exchange);
bool xn_exchange_must_move(const xn_proto_body *body);
/* The body for the parser. A coded one is decoded, which takes time. One whose binary tensors lie
 * behind a header of unknown length is moved within its buffer, so that they are aligned. */
xn_status xn_exchange_body(xn_exchange *exchange, xn_proto_body *out, xn_error *error);
/* Gives the body and the admission back; idempotent. */
void xn_exchange_release(xn_exchange *exchange);

#endif
