/* xn_json_tree.h: the small JSON tree of a request's header, or of a model's files. A thin wall
 * around Jansson, so that one file includes it and the rest of proto could live with another
 * parser. */
#ifndef XN_JSON_TREE_H
#define XN_JSON_TREE_H

#include "xn_json_scan.h"

typedef struct xn_json xn_json;

typedef enum {
    XN_JSON_OBJECT,
    XN_JSON_ARRAY,
    XN_JSON_STRING,
    XN_JSON_INTEGER,
    XN_JSON_REAL,
    XN_JSON_TRUE,
    XN_JSON_FALSE,
    XN_JSON_NULL
} xn_json_kind;

/* Parses the skeleton; a duplicate key, invalid UTF-8, an integer over 64 bits, NaN, more than
 * the scan's limit of values, or anything after the value is an error, with its offset in the
 * scanned text. `what` names the text in messages ("the JSON body"). The tree lies in memory that
 * the scan owns: it lives until xn_json_scan_free. Needs one allocation, taken before the parser
 * starts: XN_ERR_NO_MEMORY without it. */
xn_status xn_json_parse(xn_json_scan *scan, const char *what, const xn_json **out, xn_error *error);

/* Its parts, for tests: no parse of that text takes more bytes than the bound, and one that is
 * given fewer ends with XN_ERR_NO_MEMORY. */
size_t xn_json_parse_bound(const char *text, size_t length);
xn_status xn_json_parse_within(xn_json_scan *scan, const char *what, size_t bytes,
                               const xn_json **out, xn_error *error);

xn_json_kind xn_json_kind_of(const xn_json *value);
const char *xn_json_string(const xn_json *value);       /* of a string; holds no NUL inside */
int64_t xn_json_integer(const xn_json *value);          /* of an integer */
bool xn_json_number(const xn_json *value, double *out); /* of an integer or a real; else false */
size_t xn_json_count(const xn_json *value);             /* elements of an array; else 0 */
const xn_json *xn_json_element(const xn_json *array, size_t index);

/* Walks an object's members in the order of the text: start with *iterator NULL. False at the
 * end. */
bool xn_json_next(const xn_json *object, void **iterator, const char **key, const xn_json **value);
const xn_json *xn_json_member(const xn_json *object, const char *key); /* or NULL */

/* The members of an object by their names (NULL at the end): values[i], where values is not NULL,
 * is that of names[i], or NULL where it is absent. A member of another name is refused as
 * "unknown <kind> \"naem\"<of>; accepted: ...", its field behind path: "field", "inputs[0].",
 * " in inputs[0]". */
xn_status xn_json_members(const xn_json *object, const char *kind, const char *path, const char *of,
                          const char *const *names, const xn_json **values, xn_error *error);
xn_status xn_json_fail_unknown(const char *kind, const char *key, const char *path, const char *of,
                               const char *const *names, xn_error *error);

/* "<field> is <what the value is>; it takes <takes>". value NULL: it is missing. */
xn_status xn_json_fail(const char *field, const xn_json *value, const char *takes, xn_error *error);

/* The text of a string that the scanner took out, its escapes decoded: into out, which has room for
 * span->length and a terminator; returns the length. False for what no JSON string may hold, and
 * for \u0000. */
bool xn_json_unescape(const xn_json_span *span, char *out, size_t *length);

/* What a value is, for messages: "a string \"abc\"", "the number 1.5", "an object". Returns out. */
#define XN_JSON_DESCRIPTION 80
const char *xn_json_describe(const xn_json *value, char out[XN_JSON_DESCRIPTION]);

#endif
