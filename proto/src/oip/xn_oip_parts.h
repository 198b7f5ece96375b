/* xn_oip_parts.h: what the files about inference requests share. */
#ifndef XN_OIP_PARTS_H
#define XN_OIP_PARTS_H

#include "xn_oip.h"
#include "xn_request.h"

/* The members of an object by their names (NULL at the end): values[i] is that of names[i], or NULL
 * where it is absent or null. A member of another name is refused. where: the object's path, "" of
 * the whole text. */
xn_status xn_oip_members(const xn_json *object, const char *where, const char *const *names,
                         const xn_json **values, xn_error *error);

/* The same for a member alone, of an object that may have others. NULL: absent or null. */
const xn_json *xn_oip_member(const xn_json *object, const char *name);

/* true or false at a path. */
xn_status xn_oip_bool(const xn_json *value, const char *path, bool *out, xn_error *error);

typedef struct xn_oip_parser {
    const xn_proto_limits *limits;
    const xn_oip_memory *memory;
    const xn_json_scan *scan;
    xn_request_values values;
    xn_infer_request *out;
    char *text; /* room for all names and regions that the JSON holds, terminated */
    xn_error *error;
} xn_oip_parser;

/* Element `index` of inputs or outputs, into that of the request. */
xn_status xn_oip_read_input(xn_oip_parser *p, int index, const xn_json *object);
xn_status xn_oip_read_output(xn_oip_parser *p, int index, const xn_json *object);

/* The request's parameters. */
xn_status xn_oip_read_parameters(xn_infer_request *out, const xn_json *parameters, xn_error *error);

/* ---- classification ---- */

typedef struct xn_oip_classes {
    const xn_oip_result *result;
    int64_t rows, classes;
    int64_t best; /* how many of a row are named */
} xn_oip_classes;

/* False where the values have no order, as bits. */
bool xn_oip_classes_of(const xn_oip_result *result, xn_oip_classes *out);

/* Where the best of a row stand in it, best first: higher values first, of equal ones the lower
 * index, NaN last; of what is ranked, the first. best has room for classes->best. */
void xn_oip_best_classes(const xn_oip_classes *classes, int64_t row, int64_t *best);

/* The class that stands there: its index, or the position of what is ranked. */
int64_t xn_oip_class_of(const xn_oip_classes *classes, int64_t row, int64_t at);

/* "0.500000:281", without an end; returns the length. */
#define XN_OIP_CLASS_CHARS 72
size_t xn_oip_class_text(const xn_oip_classes *classes, int64_t row, int64_t at,
                         char text[XN_OIP_CLASS_CHARS]);

/* What follows behind a colon, or NULL. */
const char *xn_oip_class_label(const xn_oip_classes *classes, int64_t row, int64_t at);

#endif
