/* oip_members.c: the members of JSON objects; see xn_oip_parts.h. */
#include "xn_oip_parts.h"

#include <stdio.h>

xn_status xn_oip_members(const xn_json *object, const char *where, const char *const *names,
                         const xn_json **values, xn_error *error) {
    char got[XN_JSON_DESCRIPTION], path[64] = "", of[64] = "";
    if (xn_json_kind_of(object) != XN_JSON_OBJECT)
        return xn_fail(error, XN_ERR_MALFORMED, where, "%s is %s; it takes an object",
                       *where ? where : "the JSON", xn_json_describe(object, got));
    if (*where) {
        snprintf(path, sizeof path, "%s.", where);
        snprintf(of, sizeof of, " in %s", where);
    }
    xn_status status = xn_json_members(object, "field", path, of, names, values, error);
    for (int i = 0; !status && names[i]; i++)
        if (values[i] && xn_json_kind_of(values[i]) == XN_JSON_NULL)
            values[i] = NULL;
    return status;
}

const xn_json *xn_oip_member(const xn_json *object, const char *name) {
    const xn_json *value = xn_json_member(object, name);
    return value && xn_json_kind_of(value) != XN_JSON_NULL ? value : NULL;
}

xn_status xn_oip_bool(const xn_json *value, const char *path, bool *out, xn_error *error) {
    const xn_json_kind kind = xn_json_kind_of(value);
    if (kind != XN_JSON_TRUE && kind != XN_JSON_FALSE)
        return xn_json_fail(path, value, "true or false", error);
    *out = kind == XN_JSON_TRUE;
    return XN_OK;
}
