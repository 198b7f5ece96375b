/* json_scan.c: finds what may be big in a JSON request; see xn_json_scan.h. */
#include "xn_json_scan.h"
#include "xn_mem.h"
#include "xn_proto.h"
#include "xn_text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *const xn_member_names[XN_MEMBER_COUNT] = {
    [XN_MEMBER_INPUT] = "input",
    [XN_MEMBER_WEIGHTS] = "weights",
    [XN_MEMBER_SCALE] = "scale",
    [XN_MEMBER_BIAS] = "bias",
};

const xn_json_limits xn_json_request_limits = {
    XN_PROTO_MAX_HEADER_BYTES, XN_PROTO_MAX_VALUES, " beside its data arrays",
    "; send numbers only in \"data\" of input, weights, scale or bias, without long white space",
    0};

int xn_member_find(const char *name) {
    for (int i = 0; i < XN_MEMBER_COUNT; i++)
        if (!strcmp(name, xn_member_names[i]))
            return i;
    return -1;
}

typedef struct scanner {
    const char *at, *end;
    const char *copied; /* the text before it is in the skeleton, or was taken out */
    xn_json_take take;
    int nesting;
    size_t capacity;
    int depth;
    bool is_object[XN_JSON_MOST_NESTING + 1]; /* by depth; [0] is outside everything */
    const char *string;                       /* the last string token, without its quotes */
    size_t string_length;
    int span;       /* where an array "data" goes, as the value at depth 1 decides; or -1 */
    int count;      /* objects in "inputs", or strings in "parameters" */
    bool inside;    /* in the value of "inputs", or of "parameters" */
    bool after_key; /* the last token was the ':' after a key */
    xn_json_scan *out;
    xn_error *error;
} scanner;

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Whether the string token, its escapes decoded, is that name (lower-case letters: no escape but
 * \u can mean one of them). */
static bool string_is(const scanner *s, const char *name) {
    const char *p = s->string, *end = p + s->string_length;
    for (; *name; name++) {
        int c;
        if (end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
            c = 0;
            for (int i = 2; i < 6; i++) {
                int digit = hex_digit(p[i]);
                if (digit < 0)
                    return false;
                c = c * 16 + digit;
            }
            p += 6;
        } else if (p < end) {
            c = (unsigned char)*p++;
        } else {
            return false;
        }
        if (c != *name)
            return false;
    }
    return p == end;
}

static xn_status append(scanner *s, const char *bytes, size_t length) {
    xn_json_scan *out = s->out;
    if (length > s->capacity - out->skeleton_length)
        return xn_fail(s->error, XN_ERR_MALFORMED, "",
                       "the JSON%s has more than %zu bytes, the limit%s", out->limits->beside,
                       out->limits->bytes, out->limits->instead);
    memcpy(out->skeleton + out->skeleton_length, bytes, length);
    out->skeleton_length += length;
    return XN_OK;
}

static xn_status fail_nesting(const scanner *s) {
    return xn_fail(s->error, XN_ERR_MALFORMED, "",
                   "the JSON is nested more than %d deep, the limit (a data array nested as a "
                   "rank-4 shape needs %d)",
                   s->nesting, s->take == XN_TAKE_INPUTS ? 7 : 6);
}

/* The string whose opening quote is at s->at. One that does not end is the parser's to report. */
static void scan_string(scanner *s) {
    const char *p = ++s->at;
    while (p < s->end && *p != '"')
        p += *p == '\\' ? 2 : 1;
    if (p > s->end)
        p = s->end;
    s->string = s->at;
    s->string_length = (size_t)(p - s->at);
    s->at = p < s->end ? p + 1 : p;
}

/* Blocks without a bracket, a quote or a brace are passed over whole; compilers make vector code
 * of this loop. */
#define BLOCK 64
static bool plain_block(const char *p, int64_t *commas) {
    uint8_t special = 0, count = 0;
    for (int i = 0; i < BLOCK; i++) {
        uint8_t c = (uint8_t)p[i];
        /* [ ] { } become 0x7f, and so do a few characters no number has */
        special |= (uint8_t)((c | 0x26) == 0x7f) | (uint8_t)(c == '"');
        count = (uint8_t)(count + (c == ','));
    }
    if (special)
        return false;
    *commas += count;
    return true;
}

static bool has_value(const char *p, const char *end) {
    while (p < end && strchr("[] \t\r\n", *p) && *p)
        p++;
    return p < end;
}

/* What is wrong in the array that is the data of s->span. */
static xn_status fail_data(const scanner *s, const char *what) {
    char field[32];
    if (s->take == XN_TAKE_INPUTS)
        snprintf(field, sizeof field, "inputs[%d].data", s->span);
    else
        snprintf(field, sizeof field, "%s.data", xn_member_names[s->span]);
    return xn_fail(s->error, XN_ERR_MALFORMED, field, "%s %s", field, what);
}

/* One character of a data array other than the plain ones. False stops the scan. */
static xn_status scan_data_character(scanner *s, int *depth) {
    switch (*s->at) {
    case '[':
        if (++*depth > s->nesting)
            return fail_nesting(s);
        return XN_OK;
    case ']':
        --*depth;
        return XN_OK;
    case '"':
        if (s->take != XN_TAKE_INPUTS)
            return fail_data(s, "holds a string; only numbers (or true and false for BOOL)");
        scan_string(s);
        s->at--; /* at its last character */
        s->out->data[s->span].strings = true;
        return XN_OK;
    default:
        return fail_data(s, "holds an object; only numbers (or true and false for BOOL)");
    }
}

/* The text from `begin` to s->at leaves the skeleton, where `instead` takes its place. */
static xn_status take_out(scanner *s, const char *begin, const char *instead, xn_json_span *span) {
    xn_status status = append(s, s->copied, (size_t)(begin - s->copied));
    span->skeleton_at = s->out->skeleton_length;
    s->copied = s->at;
    return status ? status : append(s, instead, 2);
}

/* The array whose '[' is at s->at: records it as the data of s->span and takes it out. */
static xn_status scan_data(scanner *s) {
    const char *begin = s->at;
    int64_t commas = 0;
    int depth = s->depth;
    xn_status status = XN_OK;
    const char *one_by_one = begin; /* before here, blocks hold something special */
    do {
        while (s->at >= one_by_one && s->end - s->at >= BLOCK) {
            if (plain_block(s->at, &commas))
                s->at += BLOCK;
            else
                one_by_one = s->at + BLOCK;
        }
        if (s->at == s->end)
            return fail_data(s, "does not end: its ']' is missing at the end of the text");
        if (*s->at == ',')
            commas++;
        else if (*s->at == '[' || *s->at == ']' || *s->at == '"' || *s->at == '{' || *s->at == '}')
            status = status ? status : scan_data_character(s, &depth);
        if (status)
            return status;
        s->at++;
    } while (depth > s->depth);
    xn_json_span *span = &s->out->data[s->span];
    span->text = begin;
    span->length = (size_t)(s->at - begin);
    span->values = commas || has_value(begin, s->at) ? commas + 1 : 0;
    return take_out(s, begin, "[]", span);
}

/* How deep the object lies whose array "data" is taken out. */
static int tensor_depth(const scanner *s) {
    return s->take == XN_TAKE_INPUTS ? 3 : 2;
}

static xn_status fail_count(const scanner *s, const char *what) {
    return xn_fail(s->error, XN_ERR_MALFORMED, what, "%s has more than %d of them, the limit", what,
                   XN_JSON_SPANS);
}

static xn_status open_container(scanner *s) {
    bool object = *s->at == '{';
    if (!object && s->after_key && s->depth == tensor_depth(s) && s->span >= 0 && s->is_object[1] &&
        s->is_object[s->depth] && string_is(s, "data"))
        return scan_data(s);
    if (s->depth == s->nesting)
        return fail_nesting(s);
    s->is_object[++s->depth] = object;
    s->at++;
    if (object && s->depth == 3 && s->inside && s->take == XN_TAKE_INPUTS && !s->is_object[2]) {
        if (s->count == XN_JSON_SPANS)
            return fail_count(s, "inputs");
        s->span = s->count++;
    }
    return XN_OK;
}

/* A ':' after a key of the top-level object says which member comes. */
static void note_key(scanner *s) {
    if (s->depth != 1 || !s->is_object[1] || !s->string)
        return;
    s->span = -1;
    s->inside = (s->take == XN_TAKE_INPUTS && string_is(s, "inputs")) ||
                (s->take == XN_TAKE_PARAMETERS && string_is(s, "parameters"));
    for (int i = 0; i < XN_MEMBER_COUNT && s->take == XN_TAKE_MEMBERS; i++)
        if (string_is(s, xn_member_names[i]))
            s->span = i;
}

/* The string token at s->at; one that is to be taken out is. */
static xn_status string_token(scanner *s) {
    const char *begin = s->at;
    bool take = s->take == XN_TAKE_PARAMETERS && s->inside && s->after_key && s->depth == 2 &&
                s->is_object[1] && s->is_object[2];
    scan_string(s);
    if (!take || s->at == s->string + s->string_length) /* or has no end */
        return XN_OK;
    if (s->count == XN_JSON_SPANS)
        return fail_count(s, "parameters");
    xn_json_span *span = &s->out->data[s->count++];
    span->text = s->string;
    span->length = s->string_length;
    return take_out(s, begin, "\"\"", span);
}

static xn_status scan(scanner *s) {
    while (s->at < s->end) {
        char c = *s->at;
        xn_status status = XN_OK;
        bool key_done = false;
        switch (c) {
        case ' ':
        case '\t':
        case '\r':
        case '\n':
            s->at++;
            continue;
        case '"':
            status = string_token(s);
            break;
        case ':':
            note_key(s);
            key_done = true;
            s->at++;
            break;
        case '{':
        case '[':
            status = open_container(s);
            break;
        case '}':
        case ']':
            s->depth -= s->depth > 0;
            s->at++;
            break;
        default:
            s->at++;
        }
        if (status)
            return status;
        s->after_key = key_done;
    }
    return append(s, s->copied, (size_t)(s->end - s->copied));
}

xn_status xn_json_scan_text(const char *text, size_t length, bool with_data, xn_json_scan *out,
                            xn_error *error) {
    const xn_json_take take = with_data ? XN_TAKE_MEMBERS : XN_TAKE_NOTHING;
    return xn_json_scan_limited(text, length, take, &xn_json_request_limits, out, error);
}

xn_status xn_json_scan_limited(const char *text, size_t length, xn_json_take take,
                               const xn_json_limits *limits, xn_json_scan *out, xn_error *error) {
    xn_json_scan result = {.limits = limits};
    assert(limits->nesting <= XN_JSON_MOST_NESTING);
    size_t capacity = length < limits->bytes ? length : limits->bytes;
    result.skeleton = xn_mem_alloc(capacity);
    if (!result.skeleton)
        return xn_fail(error, XN_ERR_NO_MEMORY, "", "no memory for a JSON header of %zu bytes",
                       capacity);
    scanner s = {.at = text,
                 .end = text + length,
                 .copied = text,
                 .take = take,
                 .nesting = limits->nesting ? limits->nesting : XN_PROTO_MAX_NESTING,
                 .capacity = capacity,
                 .span = -1,
                 .out = &result,
                 .error = error};
    xn_status status = scan(&s);
    if (status)
        xn_json_scan_free(&result);
    else
        *out = result;
    return status;
}

/* Where the text before an offset leads to: the key last met at each depth, "" in arrays. */
typedef struct trail {
    const char *key[XN_JSON_MOST_NESTING + 1];
    size_t length[XN_JSON_MOST_NESTING + 1];
    int depth;
} trail;

static void follow(const char *at, const char *end, trail *out) {
    const char *string = NULL;
    size_t length = 0;
    *out = (trail){.depth = 0};
    for (; at < end; at++) {
        if (*at == '"') {
            for (string = ++at; at < end && *at != '"'; at++)
                at += *at == '\\';
            length = at < end ? (size_t)(at - string) : 0;
        } else if (*at == ':') {
            out->key[out->depth] = string;
            out->length[out->depth] = length;
        } else if ((*at == '{' || *at == '[') && out->depth < XN_JSON_MOST_NESTING) {
            out->length[++out->depth] = 0;
        } else if (*at == '}' || *at == ']') {
            out->depth -= out->depth > 0;
        }
    }
}

void xn_json_scan_path(const xn_json_scan *scan, size_t skeleton_offset, char *out, size_t size) {
    trail found;
    xn_text path = xn_text_over(out, size - 1);
    if (skeleton_offset > scan->skeleton_length)
        skeleton_offset = scan->skeleton_length;
    follow(scan->skeleton, scan->skeleton + skeleton_offset, &found);
    for (int i = 0; i <= found.depth; i++) {
        char excerpt[XN_TEXT_EXCERPT];
        if (!found.length[i])
            continue;
        xn_text_string(&path, path.length ? "." : "");
        xn_text_string(&path, xn_text_excerpt(found.key[i], found.length[i], excerpt));
    }
    out[path.length] = 0;
}

void xn_json_scan_free(xn_json_scan *out) {
    xn_mem_free(out->memory);
    xn_mem_free(out->skeleton);
    out->memory = out->skeleton = NULL;
}

size_t xn_json_scan_offset(const xn_json_scan *out, size_t skeleton_offset) {
    size_t offset = skeleton_offset;
    for (int i = 0; i < XN_JSON_SPANS; i++)
        if (out->data[i].text && out->data[i].skeleton_at < skeleton_offset)
            offset += out->data[i].length - 2;
    return offset;
}
