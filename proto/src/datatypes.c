/* datatypes.c: see xn_datatypes.h. */
#include "xn_datatypes.h"

#include "xn_text.h"

#include <string.h>

xn_status xn_datatype_fail(const char *field, const char *got, const char *word,
                           xn_datatype_use use, xn_datatype_naming naming, xn_error *error) {
    char takes[XN_DATATYPE_LIST], hint[XN_TEXT_HINT] = "";
    const char *names[XN_DATATYPE_COUNT + 1];
    xn_datatype_names(use, naming, names);
    xn_datatype_list(use, naming, "\"", takes);
    if (strstr(word, "64"))
        return xn_fail(error, XN_ERR_MALFORMED, field,
                       "%s is %s; it takes %s: convert the values to %s, 64-bit ones are not taken",
                       field, got, takes, names[0]);
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s is %s; it takes %s%s", field, got, takes,
                   xn_text_hint(word, names, hint));
}

xn_status xn_datatype_read(const char *field, const xn_json *value, xn_datatype_use use,
                           xn_datatype_naming naming, xn_datatype *out, xn_error *error) {
    char got[XN_JSON_DESCRIPTION] = "missing";
    const char *word = "";
    if (value && xn_json_kind_of(value) == XN_JSON_STRING)
        word = xn_json_string(value);
    for (int d = 0; d < XN_DATATYPE_COUNT; d++) {
        const xn_datatype_info *info = xn_datatype_describe((xn_datatype)d);
        const char *name = naming == XN_NAMES_OIP ? info->name : info->safetensors;
        if (name && xn_datatype_may_be((xn_datatype)d, use) && !strcmp(word, name)) {
            *out = (xn_datatype)d;
            return XN_OK;
        }
    }
    if (value)
        xn_json_describe(value, got);
    return xn_datatype_fail(field, got, word, use, naming, error);
}
