/* recent.c: see recent.h. Where the values of a tensor are is kept as offsets in the body: the next
 * one lies elsewhere. */
#include "recent.h"

#include "config.h"
#include "xn_mem.h"

#include <string.h>

#define HEADER_BYTES 512                             /* longer ones are not kept */
#define MOST_BYTES (XN_CONNECTION_REQUEST_BYTES / 4) /* beside what http keeps (request.c) */

enum { TENSORS = 4 };

/* Where a tensor's data or text is; neither is there of one in shared memory. */
typedef struct place {
    bool is_text;
    size_t offset;
} place;

typedef enum { KEPT_CONV, KEPT_INFER } kept_kind;

struct xn_recent {
    kept_kind kind;
    size_t header_length, body_length; /* header_length 0: nothing is kept */
    char header[HEADER_BYTES];
};

typedef struct recent_conv {
    xn_recent head;         /* first, as in: */
    xn_conv_request parsed; /* its tensors without data and text */
    place places[TENSORS];
} recent_conv;

typedef struct recent_infer {
    xn_recent head;
    xn_infer_request parsed;
    place places[XN_OIP_MAX_INPUTS];
    _Alignas(8) char room[]; /* of its inputs, outputs and names */
} recent_infer;

#define INFER_ROOM (MOST_BYTES - sizeof(recent_infer))

_Static_assert(sizeof(recent_conv) <= MOST_BYTES, "what it counts for");
_Static_assert(sizeof(recent_infer) + 512 <= MOST_BYTES, "room for a usual request");

/* ---- what both have in common ---- */

static bool is_short(const xn_proto_body *body) {
    return body->header_length && body->header_length <= HEADER_BYTES;
}

static bool is_same(const xn_recent *recent, kept_kind kind, const xn_proto_body *body) {
    return recent && recent->kind == kind && recent->header_length == body->header_length &&
           recent->body_length == body->length &&
           !memcmp(recent->header, body->bytes, body->header_length);
}

/* *data as such a block, of whatever; NULL without memory. */
static xn_recent *block_of(void **data, kept_kind kind, size_t bytes) {
    xn_recent *recent = *data;
    if (recent && recent->kind == kind)
        return recent;
    xn_mem_free(recent);
    *data = recent = xn_mem_alloc(bytes);
    if (recent)
        recent->kind = kind;
    return recent;
}

static void keep_header(xn_recent *recent, const xn_proto_body *body) {
    recent->header_length = body->header_length;
    recent->body_length = body->length;
    memcpy(recent->header, body->bytes, body->header_length);
}

static void put_back(xn_tensor_ref *ref, const place *at, const xn_proto_body *body) {
    const char *where = (const char *)body->bytes + at->offset;
    if (ref->present && at->is_text)
        ref->text = where;
    else if (ref->present)
        ref->data = where;
}

static place place_of(const xn_tensor_ref *ref, const xn_proto_body *body) {
    const char *where = ref->text ? ref->text : ref->data;
    place at = {.is_text = ref->text != NULL};
    if (where)
        at.offset = (size_t)(where - (const char *)body->bytes);
    return at;
}

/* ---- of /conv ---- */

static xn_tensor_ref *tensor_at(xn_conv_request *request, int index) {
    xn_tensor_ref *const all[TENSORS] = {&request->input, &request->weights, &request->scale,
                                         &request->bias};
    return all[index];
}

static bool is_conv(const xn_proto_body *body) {
    return body->form == XN_FORM_OIP_BINARY && is_short(body);
}

bool xn_recent_find(const xn_recent *recent, const xn_proto_body *body, xn_conv_request *out) {
    if (!is_conv(body) || !is_same(recent, KEPT_CONV, body))
        return false;
    const recent_conv *conv = (const recent_conv *)recent;
    *out = conv->parsed;
    for (int i = 0; i < TENSORS; i++)
        put_back(tensor_at(out, i), &conv->places[i], body);
    return true;
}

void xn_recent_keep(void **data, const xn_proto_body *body, const xn_conv_request *parsed) {
    recent_conv *conv =
        is_conv(body) ? (recent_conv *)block_of(data, KEPT_CONV, sizeof *conv) : NULL;
    if (!conv)
        return;
    keep_header(&conv->head, body);
    conv->parsed = *parsed;
    for (int i = 0; i < TENSORS; i++) {
        xn_tensor_ref *ref = tensor_at(&conv->parsed, i);
        conv->places[i] = place_of(ref, body);
        ref->text = NULL;
        ref->data = NULL;
    }
}

/* ---- of inference requests ---- */

bool xn_recent_find_infer(xn_recent *recent, const xn_proto_body *body, xn_infer_request *out) {
    if (!body->has_header_length || !is_short(body) || !is_same(recent, KEPT_INFER, body))
        return false;
    const recent_infer *infer = (const recent_infer *)recent;
    *out = infer->parsed;
    for (int i = 0; i < out->input_count; i++)
        if (!out->inputs[i].shared.present)
            put_back(&out->inputs[i].tensor, &infer->places[i], body);
    return true;
}

void *xn_recent_take_infer(void **data, const xn_proto_body *body, size_t bytes) {
    if (!body->has_header_length || !is_short(body) || bytes > INFER_ROOM)
        return NULL;
    recent_infer *infer = (recent_infer *)block_of(data, KEPT_INFER, MOST_BYTES);
    if (!infer)
        return NULL;
    infer->head.header_length = 0;
    return infer->room;
}

void xn_recent_keep_infer(xn_recent *recent, const xn_proto_body *body,
                          const xn_infer_request *parsed) {
    recent_infer *infer = (recent_infer *)recent;
    if (!recent || recent->kind != KEPT_INFER || (const void *)parsed->inputs != infer->room)
        return;
    keep_header(recent, body);
    infer->parsed = *parsed;
    for (int i = 0; i < parsed->input_count; i++)
        infer->places[i] = place_of(&parsed->inputs[i].tensor, body);
}
