/* form.c: which wire form a request is in and which one its answer takes: media types and content
 * negotiation by RFC 9110, sections 8.3.1 and 12.5.1. */
#include "xn_wire_form.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

static const xn_wire_form *const forms[XN_FORM_COUNT] = {
    [XN_FORM_JSON] = &xn_wire_json,
    [XN_FORM_OIP_BINARY] = &xn_wire_oip_binary,
    [XN_FORM_SAFETENSORS] = &xn_wire_safetensors,
    [XN_FORM_RAW] = &xn_wire_raw,
};

const xn_wire_form *xn_wire_form_of(xn_form form) {
    assert((unsigned)form < XN_FORM_COUNT);
    return forms[form];
}

/* A piece of a header value. */
typedef struct slice {
    const char *text;
    size_t length;
} slice;

static slice trim(const char *begin, const char *end) {
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    while (begin < end && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return (slice){begin, (size_t)(end - begin)};
}

static bool equals(slice s, const char *name) {
    return s.length == strlen(name) && !strncasecmp(s.text, name, s.length);
}

/* Where the element that starts at text ends: at the separator outside quoted strings, or at the
 * terminator. */
static const char *element_end(const char *text, char separator) {
    bool quoted = false;
    for (; *text && (quoted || *text != separator); text++) {
        if (*text == '"')
            quoted = !quoted;
        else if (quoted && *text == '\\' && text[1])
            text++;
    }
    return text;
}

const char *xn_form_media_type(xn_form form) {
    return xn_wire_form_of(form)->media_type;
}

size_t xn_proto_prefix_bytes(const xn_proto_body *body) {
    const xn_wire_form *form = xn_wire_form_of(body->form);
    return form->prefix_bytes ? form->prefix_bytes(body) : body->length;
}

bool xn_form_is_text(xn_form form) {
    return !xn_wire_form_of(form)->write_prefix;
}

const char *xn_form_nearest(const char *content_type) {
    const char *names[XN_FORM_COUNT + 1] = {0};
    for (int i = 0; i < XN_FORM_COUNT; i++)
        names[i] = forms[i]->media_type;
    char type[XN_TEXT_EXCERPT];
    slice given = trim(content_type, element_end(content_type, ';'));
    return xn_text_nearest(xn_text_excerpt(given.text, given.length, type), names);
}

/* Whether another form of the same media type is told apart from this one by the header. */
static bool is_shared(int form) {
    for (int i = 0; i < XN_FORM_COUNT; i++)
        if (i != form && !strcmp(forms[i]->media_type, forms[form]->media_type))
            return true;
    return false;
}

bool xn_form_is_type(const char *content_type, const char *media_type) {
    return equals(trim(content_type, element_end(content_type, ';')), media_type);
}

bool xn_form_parse(const char *content_type, bool has_header_length, xn_form *out) {
    if (!content_type)
        return false;
    for (int i = 0; i < XN_FORM_COUNT; i++) {
        if (xn_form_is_type(content_type, forms[i]->media_type) &&
            (!is_shared(i) || forms[i]->header_length == has_header_length)) {
            *out = (xn_form)i;
            return true;
        }
    }
    return false;
}

/* weight = OWS ";" OWS "q=" qvalue; qvalue = 0[.ddd] or 1[.000]. In thousandths, or -1. */
static int parse_weight(slice s) {
    if (s.length < 1 || s.length > 5 || (s.text[0] != '0' && s.text[0] != '1'))
        return -1;
    int value = s.text[0] == '1' ? 1000 : 0, unit = 100;
    if (s.length > 1 && s.text[1] != '.')
        return -1;
    for (size_t i = 2; i < s.length; i++, unit /= 10) {
        if (s.text[i] < '0' || s.text[i] > '9')
            return -1;
        value += (s.text[i] - '0') * unit;
    }
    return value <= 1000 ? value : -1;
}

/* One element of Accept: its range, and its weight in thousandths (1000 when it has none, -1 when
 * the element is malformed). */
static int parse_range(const char *begin, const char *end, slice *type, slice *subtype) {
    const char *at = begin;
    while (at < end && *at != ';')
        at++;
    const char *slash = memchr(begin, '/', (size_t)(at - begin));
    if (!slash)
        return -1;
    *type = trim(begin, slash);
    *subtype = trim(slash + 1, at);
    int weight = 1000;
    while (at < end) {
        const char *parameter = at + 1;
        at = element_end(parameter, ';');
        if (at > end)
            at = end;
        const char *equal = memchr(parameter, '=', (size_t)(at - parameter));
        if (equal && equals(trim(parameter, equal), "q"))
            weight = parse_weight(trim(equal + 1, at));
    }
    return weight;
}

/* How specifically a range names a media type: 3 type/subtype, 2 type/ *, 1 * / *, 0 not at all. */
static int specificity(const char *name, slice type, slice subtype) {
    const char *slash = strchr(name, '/');
    if (type.length == (size_t)(slash - name) && !strncasecmp(type.text, name, type.length)) {
        if (equals(subtype, slash + 1))
            return 3;
        return equals(subtype, "*") ? 2 : 0;
    }
    return equals(type, "*") && equals(subtype, "*") ? 1 : 0;
}

/* Of forms that share a media type the request's own, else the one with a header that says what
 * the answer is. */
static bool is_answer(int form, xn_form request_form) {
    if (!is_shared(form) || form == (int)request_form)
        return true;
    return is_shared((int)request_form) ? false : forms[form]->header_length;
}

int xn_form_weight(const char *accept, const char *media_type) {
    int best = 0, weight = 0;
    for (const char *at = accept;; at++) {
        const char *end = element_end(at, ',');
        slice type, subtype;
        const int w = parse_range(at, end, &type, &subtype);
        const int s = w >= 0 ? specificity(media_type, type, subtype) : 0;
        if (s > best) {
            best = s;
            weight = w;
        }
        at = end;
        if (!*at)
            return weight;
    }
}

bool xn_form_negotiate(const char *accept, xn_form request_form, xn_form *out) {
    if (!accept || trim(accept, accept + strlen(accept)).length == 0) {
        *out = request_form;
        return true;
    }
    /* The most specific range that matches a form decides its weight. */
    int best[XN_FORM_COUNT] = {0}, weight[XN_FORM_COUNT] = {0}, position[XN_FORM_COUNT] = {0};
    int index = 0;
    for (const char *at = accept;; at++, index++) {
        const char *end = element_end(at, ',');
        slice type, subtype;
        int w = parse_range(at, end, &type, &subtype);
        for (int i = 0; w >= 0 && i < XN_FORM_COUNT; i++) {
            int s =
                is_answer(i, request_form) ? specificity(forms[i]->media_type, type, subtype) : 0;
            if (s > best[i]) {
                best[i] = s;
                weight[i] = w;
                position[i] = index;
            }
        }
        at = end;
        if (!*at)
            break;
    }
    /* Equal weights: the request's own form, then the one named first. */
    int chosen = (int)request_form;
    for (int i = 0; i < XN_FORM_COUNT; i++)
        if (weight[i] > weight[chosen] ||
            (weight[i] == weight[chosen] && chosen != (int)request_form &&
             position[i] < position[chosen]))
            chosen = i;
    if (weight[chosen] == 0)
        return false;
    *out = (xn_form)chosen;
    return true;
}
