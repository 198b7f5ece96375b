/* recent.c: see recent.h. Where the values of a tensor are is kept as offsets in the body: the next
 * one lies elsewhere. */
#include "recent.h"

#include "config.h"
#include "xn_mem.h"

#include <string.h>

#define HEADER_BYTES 512 /* longer ones are not kept */

enum { TENSORS = 4 };

/* Where a tensor's data or text is, one of which it has. */
typedef struct place {
    bool is_text;
    size_t offset;
} place;

struct xn_recent {
    size_t header_length, body_length;
    xn_conv_request parsed; /* its tensors without data and text */
    place places[TENSORS];
    char header[HEADER_BYTES];
};

/* Beside what http keeps for its requests (request.c). */
_Static_assert(sizeof(struct xn_recent) <= XN_CONNECTION_REQUEST_BYTES / 4, "what it counts for");

static xn_tensor_ref *tensor_at(xn_conv_request *request, int index) {
    xn_tensor_ref *const all[TENSORS] = {&request->input, &request->weights, &request->scale,
                                         &request->bias};
    return all[index];
}

static bool is_short(const xn_proto_body *body) {
    return body->form == XN_FORM_OIP_BINARY && body->header_length &&
           body->header_length <= HEADER_BYTES;
}

static void put_back(xn_tensor_ref *ref, const place *at, const xn_proto_body *body) {
    const char *where = (const char *)body->bytes + at->offset;
    if (ref->present && at->is_text)
        ref->text = where;
    else if (ref->present)
        ref->data = where;
}

static place take_out(xn_tensor_ref *ref, const xn_proto_body *body) {
    place at = {.is_text = ref->text != NULL};
    if (ref->present)
        at.offset = (size_t)((at.is_text ? ref->text : (const char *)ref->data) -
                             (const char *)body->bytes);
    ref->text = NULL;
    ref->data = NULL;
    return at;
}

bool xn_recent_find(const xn_recent *recent, const xn_proto_body *body, xn_conv_request *out) {
    if (!recent || !is_short(body) || recent->header_length != body->header_length ||
        recent->body_length != body->length ||
        memcmp(recent->header, body->bytes, body->header_length) != 0)
        return false;
    *out = recent->parsed;
    for (int i = 0; i < TENSORS; i++)
        put_back(tensor_at(out, i), &recent->places[i], body);
    return true;
}

void xn_recent_keep(void **kept, const xn_proto_body *body, const xn_conv_request *parsed) {
    xn_recent *recent = *kept;
    if (!is_short(body) || (!recent && !(recent = xn_mem_alloc(sizeof *recent))))
        return;
    recent->header_length = body->header_length;
    recent->body_length = body->length;
    recent->parsed = *parsed;
    for (int i = 0; i < TENSORS; i++)
        recent->places[i] = take_out(tensor_at(&recent->parsed, i), body);
    memcpy(recent->header, body->bytes, body->header_length);
    *kept = recent;
}
