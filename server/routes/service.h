/* service.h: what the routes work with, and the handler the HTTP layer calls. One file a resource:
 * service.c dispatches and answers the small documents, conv.c is POST /conv, weights.c is
 * /weights. */
#ifndef XN_SERVICE_H
#define XN_SERVICE_H

#include "auth.h"
#include "body.h"
#include "config.h"
#include "engine.h"
#include "http.h"
#include "loader.h"
#include "weights_dir.h"
#include "xn_proto.h"

typedef struct xn_service {
    const xn_config *config;
    xn_engine *engine;
    xn_auth *auth;               /* NULL: open */
    xn_loader *loader;           /* runs what must not run on an HTTP thread */
    xn_weights_dir *weights_dir; /* NULL: registered weights are not kept */
} xn_service;

/* The callbacks for xn_http_start; service must outlive the server. */
void xn_service_handler(xn_service *service, xn_http_handler *out);
/* Housekeeping, once a second or so. */
void xn_service_tick(int64_t now_ns);

typedef struct xn_exchange xn_exchange;

/* What a route does with an exchange of its own; hooks may be NULL. */
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
    uint64_t key; /* whose key it came with (xn_auth_match); 0: none was needed */
    char name[XN_PROTO_MAX_NAME + 1]; /* of /weights/{name} */
    /* the body of conv and weights */
    xn_form form, answer_form;
    bool has_header_length;
    size_t header_length;
    xn_body body;
    xn_ticket ticket; /* admitted, and what it holds */
    union {
        struct xn_conv_exchange *conv;
        struct xn_weights_exchange *weights;
    } of;
};

extern const xn_resource xn_conv_resource;
extern const xn_resource xn_weights_put_resource;
extern const xn_resource xn_weights_delete_resource;

/* Answers with an error of the closed set; status gives code and HTTP status. Adds Retry-After,
 * names the flag of a limit, counts the rejection. */
void xn_exchange_fail(xn_exchange *exchange, const xn_error *error);
/* The same for a failure that is HTTP's own. */
void xn_exchange_refuse(xn_exchange *exchange, int http_status, xn_reject_reason reason,
                        const char *code, const char *field, const char *message);
/* Takes the text (xn_mem) as the JSON answer; NULL answers that there is no memory. */
void xn_exchange_json(xn_exchange *exchange, int http_status, char *text, size_t length);

/* Admits the request, counted at its client's address and key (xn_ticket_enter). */
xn_status xn_exchange_admit(xn_exchange *exchange, size_t expected, xn_error *error);
/* Content-Type, Accept, lengths, limits, admission, the buffer for the body: what conv and weights
 * share in their headers hook. answers: Accept must name one of the three forms. False: refused. */
bool xn_exchange_accept_body(xn_exchange *exchange, bool answers);
/* The received body for the parser; moves it within its buffer so that binary tensors right after
 * a header of unknown length are aligned. */
void xn_exchange_body(xn_exchange *exchange, xn_proto_body *out);
/* Gives the body and the admission back; idempotent. */
void xn_exchange_release(xn_exchange *exchange);

/* weights.c: the small documents of GET. */
void xn_weights_list(xn_exchange *exchange);
void xn_weights_show(xn_exchange *exchange);

/* openapi.c: the file, embedded. */
extern const char xn_openapi_yaml[];
extern const char xn_openapi_yaml_end[];

#endif
