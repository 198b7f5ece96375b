/* xn_datatypes.h: datatypes as messages name them, from the one table of them (xn_tensor.h). */
#ifndef XN_DATATYPES_H
#define XN_DATATYPES_H

#include "xn_json_tree.h"
#include "xn_tensor.h"

/* By what names a datatype is read. */
typedef enum {
    XN_NAMES_OIP,        /* "FP32" */
    XN_NAMES_SAFETENSORS /* "F32" */
} xn_datatype_naming;

/* The OIP names of those that may stand somewhere, NULL at the end. Returns names. */
const char *const *xn_datatype_names(xn_datatype_use use, const char *names[XN_DATATYPE_COUNT + 1]);

/* The same in words: "FP32", "FP16" or "INT32", each with its quotation marks. Returns text. */
#define XN_DATATYPE_LIST 96
const char *xn_datatype_list(xn_datatype_use use, char text[XN_DATATYPE_LIST]);

/* The error of a word that names none of them; got: what stood there, for messages. */
xn_status xn_datatype_fail(const char *field, const char *got, const char *word,
                           xn_datatype_use use, xn_datatype_naming naming, xn_error *error);

/* Reads one from a JSON value, NULL where there is none; field is for messages. */
xn_status xn_datatype_read(const char *field, const xn_json *value, xn_datatype_use use,
                           xn_datatype_naming naming, xn_datatype *out, xn_error *error);

#endif
