/* form.c: which wire form a request is in and which one its answer takes: media types and content
 * negotiation by RFC 9110, sections 8.3.1 and 12.5.1. */
#include "xn_proto.h"
#include "xn_text.h"

#include <string.h>
#include <strings.h>

#define FORMS 3

static const struct {
    const char *type, *subtype, *media_type;
} forms[FORMS] = {
    [XN_FORM_JSON] = {"application", "json", "application/json"},
    [XN_FORM_OIP_BINARY] = {"application", "octet-stream", "application/octet-stream"},
    [XN_FORM_SAFETENSORS] = {"application", "vnd.safetensors", "application/vnd.safetensors"},
};

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
    return (unsigned)form < FORMS ? forms[form].media_type : "application/octet-stream";
}

const char *xn_form_nearest(const char *content_type) {
    static const char *const names[] = {"application/json", "application/octet-stream",
                                        "application/vnd.safetensors", NULL};
    char type[XN_TEXT_EXCERPT];
    slice given = trim(content_type, element_end(content_type, ';'));
    return xn_text_nearest(xn_text_excerpt(given.text, given.length, type), names);
}

bool xn_form_parse(const char *content_type, xn_form *out) {
    if (!content_type)
        return false;
    slice type = trim(content_type, element_end(content_type, ';'));
    for (int i = 0; i < FORMS; i++) {
        if (equals(type, forms[i].media_type)) {
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

/* How specifically a range names a form: 3 type/subtype, 2 type/ *, 1 * / *, 0 not at all. */
static int specificity(int form, slice type, slice subtype) {
    if (equals(type, forms[form].type)) {
        if (equals(subtype, forms[form].subtype))
            return 3;
        return equals(subtype, "*") ? 2 : 0;
    }
    return equals(type, "*") && equals(subtype, "*") ? 1 : 0;
}

bool xn_form_negotiate(const char *accept, xn_form request_form, xn_form *out) {
    if (!accept || trim(accept, accept + strlen(accept)).length == 0) {
        *out = request_form;
        return true;
    }
    /* The most specific range that matches a form decides its weight. */
    int best[FORMS] = {0}, weight[FORMS] = {0}, position[FORMS] = {0}, index = 0;
    for (const char *at = accept;; at++, index++) {
        const char *end = element_end(at, ',');
        slice type, subtype;
        int w = parse_range(at, end, &type, &subtype);
        for (int i = 0; w >= 0 && i < FORMS; i++) {
            int s = specificity(i, type, subtype);
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
    for (int i = 0; i < FORMS; i++)
        if (weight[i] > weight[chosen] ||
            (weight[i] == weight[chosen] && chosen != (int)request_form &&
             position[i] < position[chosen]))
            chosen = i;
    if (weight[chosen] == 0)
        return false;
    *out = (xn_form)chosen;
    return true;
}
