/* xn_json_scan.h: takes what may be big out of a JSON text, number arrays or strings, so that the
 * general parser sees only the small rest.
 *
 * The scanner walks the text once, string- and escape-aware, without recursion, and finds the
 * values that it is told to take. The skeleton is the text with each of these replaced by [] or "":
 * it goes to the parser, which alone judges the syntax. The scanner may lose its way only in a text
 * that is no JSON; the array it took out was balanced, so the skeleton of such a text is no JSON
 * either and is refused. A key that appears twice (also "data") is still twice in the skeleton and
 * refused there. What is inside what was taken out is judged when it is read. */
#ifndef XN_JSON_SCAN_H
#define XN_JSON_SCAN_H

#include "xn_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tensors a request can have, in the order of their names below. */
typedef enum {
    XN_MEMBER_INPUT,
    XN_MEMBER_WEIGHTS,
    XN_MEMBER_SCALE,
    XN_MEMBER_BIAS,
    XN_MEMBER_COUNT
} xn_member;
extern const char *const xn_member_names[XN_MEMBER_COUNT];
int xn_member_find(const char *name); /* xn_member, or -1 */

/* What is taken out of the text. */
typedef enum {
    XN_TAKE_NOTHING,
    XN_TAKE_MEMBERS,   /* arrays "data" of the top-level members input, weights, scale and bias */
    XN_TAKE_INPUTS,    /* those of the objects in the top-level array "inputs" */
    XN_TAKE_PARAMETERS /* the strings that are members of the top-level object "parameters" */
} xn_json_take;

typedef struct xn_json_span {
    /* In the scanned text; NULL when there is none. An array from '[' to ']'; a string without its
     * quotes, escapes as they stand. */
    const char *text;
    size_t length;
    int64_t values;     /* of an array: how many it holds, if its syntax is right */
    bool strings;       /* of an array: strings are among them; of TAKE_INPUTS alone */
    size_t skeleton_at; /* where its [] or "" is in the skeleton */
} xn_json_span;
#define XN_JSON_SPANS 17

/* How much a text may hold beside its data arrays. */
typedef struct xn_json_limits {
    size_t bytes;        /* of the skeleton */
    size_t values;       /* of it; of "{[:,", to be exact */
    const char *beside;  /* for messages: " beside its data arrays", or "" */
    const char *instead; /* how to do with less, behind a message; or "" */
    int nesting;         /* the deepest, in what is taken out too; 0: XN_PROTO_MAX_NESTING */
} xn_json_limits;
#define XN_JSON_MOST_NESTING 16                     /* that limits may allow */
extern const xn_json_limits xn_json_request_limits; /* XN_PROTO_MAX_* */

typedef struct xn_json_scan {
    const xn_json_limits *limits;
    char *skeleton; /* owned */
    size_t skeleton_length;
    void *memory; /* of the tree that was parsed from it, or NULL; owned */
    /* What was taken out: by xn_member, by the element of "inputs" among its objects, or in the
     * order of the strings. */
    xn_json_span data[XN_JSON_SPANS];
} xn_json_scan;

/* Errors: nesting or a skeleton over the limits, more to take out than XN_JSON_SPANS, an object
 * in a data array, a string in one of XN_TAKE_MEMBERS, a data array that does not end (all
 * XN_ERR_MALFORMED); XN_ERR_NO_MEMORY. The limits are looked at until the result is freed with
 * xn_json_scan_free. */
xn_status xn_json_scan_limited(const char *text, size_t length, xn_json_take take,
                               const xn_json_limits *limits, xn_json_scan *out, xn_error *error);
/* By the limits of requests; with_data: XN_TAKE_MEMBERS. */
xn_status xn_json_scan_text(const char *text, size_t length, bool with_data, xn_json_scan *out,
                            xn_error *error);
void xn_json_scan_free(xn_json_scan *scan); /* of a zeroed or a filled one; its tree too */

/* The offset in the scanned text of an offset in the skeleton. */
size_t xn_json_scan_offset(const xn_json_scan *scan, size_t skeleton_offset);

/* The dotted path, such as "input.shape", of the value that ends at an offset in the skeleton; cut
 * to fit. */
void xn_json_scan_path(const xn_json_scan *scan, size_t skeleton_offset, char *out, size_t size);

#endif
