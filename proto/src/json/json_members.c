/* json_members.c: the members that an object may have, and the errors about values; see
 * xn_json_tree.h. */
#include "xn_json_tree.h"
#include "xn_tensor.h"
#include "xn_text.h"

#include <stdio.h>
#include <string.h>

xn_status xn_json_fail(const char *field, const xn_json *value, const char *takes,
                       xn_error *error) {
    char got[XN_JSON_DESCRIPTION] = "missing";
    if (value)
        xn_json_describe(value, got);
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s is %s; it takes %s", field, got, takes);
}

xn_status xn_json_fail_unknown(const char *kind, const char *key, const char *path, const char *of,
                               const char *const *names, xn_error *error) {
    char field[64], excerpt[XN_TEXT_EXCERPT], hint[XN_TEXT_HINT], list[200];
    xn_text_excerpt(key, strlen(key), excerpt);
    snprintf(field, sizeof field, "%s%s", path, excerpt);
    return xn_fail(error, XN_ERR_MALFORMED, field, "unknown %s \"%s\"%s; accepted: %s%s", kind,
                   excerpt, of, xn_text_list(names, list, sizeof list),
                   xn_text_hint(key, names, hint));
}

xn_status xn_json_members(const xn_json *object, const char *kind, const char *path, const char *of,
                          const char *const *names, const xn_json **values, xn_error *error) {
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    for (int i = 0; values && names[i]; i++)
        values[i] = NULL;
    while (xn_json_next(object, &iterator, &key, &value)) {
        const int i = xn_name_find(key, names);
        if (i < 0)
            return xn_json_fail_unknown(kind, key, path, of, names, error);
        if (values)
            values[i] = value;
    }
    return XN_OK;
}
