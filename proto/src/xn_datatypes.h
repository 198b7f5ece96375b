/* xn_datatypes.h: datatypes as requests name them, from the one table of them (xn_tensor.h). */
#ifndef XN_DATATYPES_H
#define XN_DATATYPES_H

#include "xn_json_tree.h"
#include "xn_tensor.h"

/* The error of a word that names none of them; got: what stood there, for messages. */
xn_status xn_datatype_fail(const char *field, const char *got, const char *word,
                           xn_datatype_use use, xn_datatype_naming naming, xn_error *error);

/* Reads one from a JSON value, NULL where there is none; field is for messages. */
xn_status xn_datatype_read(const char *field, const xn_json *value, xn_datatype_use use,
                           xn_datatype_naming naming, xn_datatype *out, xn_error *error);

#endif
