/* oip_members.c: the members of JSON objects; see xn_oip_parts.h. */
#include "xn_oip_parts.h"
#include "xn_text.h"

#include <stdio.h>
#include <string.h>

static xn_status fail_unknown(const char *key, const char *where, const char *const *names,
                              xn_error *error) {
    char field[64], excerpt[XN_TEXT_EXCERPT], hint[XN_TEXT_HINT], list[160];
    xn_text text = xn_text_over(list, sizeof list - 1);
    for (const char *const *name = names; *name; name++) {
        xn_text_string(&text, name == names ? "" : ", ");
        xn_text_string(&text, *name);
    }
    list[text.length] = 0;
    xn_text_excerpt(key, strlen(key), excerpt);
    snprintf(field, sizeof field, "%s%s%s", where, *where ? "." : "", excerpt);
    return xn_fail(error, XN_ERR_MALFORMED, field, "unknown field \"%s\"%s%s; accepted: %s%s",
                   excerpt, *where ? " in " : "", where, list, xn_text_hint(key, names, hint));
}

xn_status xn_oip_members(const xn_json *object, const char *where, const char *const *names,
                         const xn_json **values, xn_error *error) {
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    char got[XN_JSON_DESCRIPTION];
    if (xn_json_kind_of(object) != XN_JSON_OBJECT)
        return xn_fail(error, XN_ERR_MALFORMED, where, "%s is %s; it takes an object",
                       *where ? where : "the JSON", xn_json_describe(object, got));
    for (size_t i = 0; names[i]; i++)
        values[i] = NULL;
    while (xn_json_next(object, &iterator, &key, &value)) {
        size_t i = 0;
        while (names[i] && strcmp(names[i], key) != 0)
            i++;
        if (!names[i])
            return fail_unknown(key, where, names, error);
        values[i] = xn_json_kind_of(value) == XN_JSON_NULL ? NULL : value;
    }
    return XN_OK;
}

const xn_json *xn_oip_member(const xn_json *object, const char *name) {
    const xn_json *value = xn_json_member(object, name);
    return value && xn_json_kind_of(value) != XN_JSON_NULL ? value : NULL;
}

xn_status xn_oip_bool(const xn_json *value, const char *path, bool *out, xn_error *error) {
    const xn_json_kind kind = xn_json_kind_of(value);
    if (kind != XN_JSON_TRUE && kind != XN_JSON_FALSE)
        return xn_request_fail_value(path, value, "true or false", error);
    *out = kind == XN_JSON_TRUE;
    return XN_OK;
}
