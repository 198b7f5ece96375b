/* model.h: random requests played against a daemon and, beside it, against a plain model of what
 * must come out: a few names with the tensors registered under them, the rules of the protocol
 * written down once more as tests of a request, and the naive convolution of problem.c.
 *
 * A request that breaks rules must be refused with the status and the field of one of those it
 * breaks (which is looked at first is the daemon's business); one that breaks none must be
 * answered, and every value be right. */
#ifndef XT_MODEL_H
#define XT_MODEL_H

#include "wire.h"

enum { XT_MODEL_NAMES = 3, XT_MODEL_REFUSALS = 24, XT_MODEL_PARAMETERS = 24 };

typedef struct xt_refusal {
    int status;
    char field[24]; /* a part of the error's field; "" for any */
} xt_refusal;

/* What a name stands for; weights.datatype NULL: nothing. */
typedef struct xt_entry {
    char name[32];
    xt_tensor weights, scale, bias;
    int64_t
        requests[2]; /* computed with exactly these; and with a scale or bias of their own too */
} xt_entry;

typedef struct xt_model {
    const xt_daemon *daemon;
    const char *served; /* the daemon's readiness page: which backends it has */
    xn_rng rng;
    xt_conn conn;
    xt_entry entries[XT_MODEL_NAMES];
    xt_refusal refusals[XT_MODEL_REFUSALS]; /* of the request at hand */
    int refusal_count;
    bool crowd;        /* others play too: the list of names has theirs */
    int64_t played[2]; /* answered, refused */
    char what[512];    /* the request at hand, for messages */
    char error[1536];  /* "" while all is right */
} xt_model;

/* ---- for model.c and model_conv.c ---- */

bool xt_chance(xt_model *model, unsigned of);
int64_t xt_between(xt_model *model, int64_t low, int64_t high);
const char *xt_any_datatype(xt_model *model);
xt_tensor xt_copy_tensor(const xt_tensor *tensor);
void xt_forget(xt_entry *entry); /* and the tensors with it */

void xt_refuse(xt_model *model, int status, const char *field);
/* False, with the reason in model->error. */
bool xt_wrong(xt_model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sends, on the model's connection, and gets one response. */
bool xt_exchange(xt_model *model, const char *method, const char *target, const xt_message *message,
                 xt_response *response);
/* Whether the response is a refusal that the model expects; frees nothing. */
bool xt_is_refused(xt_model *model, const xt_response *response);

/* One random /conv, with named or inline weights. */
bool xt_model_conv(xt_model *model);

/* ---- for tests ---- */

/* One sequence from that seed, with names that begin with prefix; it ends with none registered.
 * False with model->error. The caller has zeroed the model but for daemon, served and crowd. */
bool xt_model_play(xt_model *model, uint64_t seed, const char *prefix);

#endif
