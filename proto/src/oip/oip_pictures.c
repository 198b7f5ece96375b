/* oip_pictures.c: inputs of datatype BYTES: their elements, encoded pictures, one after the other;
 * see xn_oip.h. */
#include "xn_oip_parts.h"
#include "xn_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_BYTES 4

void xn_oip_pictures_begin(const xn_oip_input *input, int number, void *memory,
                           xn_oip_pictures *out) {
    const xn_tensor_ref *tensor = &input->tensor;
    const char *values = tensor->text ? tensor->text : tensor->data;
    *out = (xn_oip_pictures){.input = input, .number = number, .count = tensor->elements};
    out->at = (char *)memory + (values - (const char *)memory); /* the same place, to be written */
    out->end = out->at + (tensor->text ? tensor->text_length : tensor->bytes);
}

void xn_oip_pictures_field(const xn_oip_pictures *p, char *field, size_t size) {
    if (p->input->raw)
        snprintf(field, size, "body");
    else
        snprintf(field, size, "inputs[%d].data[%" PRId64 "]", p->number, p->next);
}

static xn_status fail(const xn_oip_pictures *p, const char *what, xn_error *error) {
    char field[64];
    xn_oip_pictures_field(p, field, sizeof field);
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s %s", field, what);
}

/* ---- behind the header: each behind its length ---- */

static xn_status next_of_bytes(xn_oip_pictures *p, const void **bytes, size_t *length,
                               xn_error *error) {
    const unsigned char *at = (const unsigned char *)p->at;
    const size_t left = (size_t)(p->end - p->at);
    if (left < LENGTH_BYTES)
        return fail(p, "is missing: the input's bytes end before it", error);
    const size_t size = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
    if (size > left - LENGTH_BYTES)
        return fail(p, "is longer, by the 4 bytes of length in front of it, than what follows",
                    error);
    *bytes = at + LENGTH_BYTES;
    *length = size;
    p->at += LENGTH_BYTES + size;
    return XN_OK;
}

/* ---- in JSON: strings of base64 ---- */

static bool is_between(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '[' || c == ']' || c == ',';
}

/* The scanner counted the commas, and balanced the brackets: what stands between the strings is
 * held to that. */
static xn_status next_of_text(xn_oip_pictures *p, const void **bytes, size_t *length,
                              xn_error *error) {
    int commas = 0;
    for (; p->at < p->end && is_between(*p->at); p->at++)
        commas += *p->at == ',';
    if (p->at == p->end || *p->at != '"' || commas != (p->next > 0))
        return fail(p, "is no string; it takes a picture's bytes in base64", error);
    xn_json_span span = {.text = ++p->at};
    while (p->at < p->end && *p->at != '"')
        p->at += *p->at == '\\' ? 2 : 1;
    span.length = (size_t)(p->at - span.text);
    char *text = p->at - span.length;
    p->at++;
    xn_error why;
    size_t unescaped = span.length;
    if (memchr(text, '\\', span.length) && !xn_json_unescape(&span, text, &unescaped))
        return fail(p, "is no JSON string", error);
    if (!xn_base64_decode_in_place(text, unescaped, length, &why)) {
        *bytes = text;
        return XN_OK;
    }
    return fail(p, why.message, error);
}

static xn_status check_end(const xn_oip_pictures *p, xn_error *error) {
    const char *at = p->at;
    while (p->input->tensor.text && at < p->end && is_between(*at) && *at != ',')
        at++;
    return at == p->end ? XN_OK : fail(p, "is one more than the shape says: bytes are left", error);
}

xn_status xn_oip_pictures_next(xn_oip_pictures *p, const void **bytes, size_t *length,
                               xn_error *error) {
    xn_status status;
    if (p->input->raw) {
        *bytes = p->at;
        *length = (size_t)(p->end - p->at);
        status = XN_OK;
    } else {
        status = p->input->tensor.text ? next_of_text(p, bytes, length, error)
                                       : next_of_bytes(p, bytes, length, error);
    }
    if (status)
        return status;
    p->next++;
    return p->next == p->count && !p->input->raw ? check_end(p, error) : XN_OK;
}
