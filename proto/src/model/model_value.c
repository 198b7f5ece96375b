/* model_value.c: values of a configuration, and the errors about them; see xn_model_inside.h. */
#include "xn_model_inside.h"
#include "xn_text.h"

#include <string.h>

const char *xn_model_keep(xn_model_pool *pool, const char *string) {
    const size_t bytes = strlen(string) + 1;
    char *copy = memcpy(pool->text, string, bytes);
    pool->text += bytes;
    return copy;
}

xn_status xn_model_read_name(const char *field, const xn_json *value, const char **out,
                             xn_error *error) {
    static const char takes[] = "a string, not empty and without control characters";
    if (!value || xn_json_kind_of(value) != XN_JSON_STRING)
        return xn_json_fail(field, value, takes, error);
    const char *name = xn_json_string(value);
    bool fits = *name != 0;
    for (const char *c = name; *c; c++)
        fits = fits && (unsigned char)*c >= ' ' && *c != 0x7f;
    if (!fits)
        return xn_json_fail(field, value, takes, error);
    *out = name;
    return XN_OK;
}

xn_status xn_model_read_word(const char *field, const xn_json *value, const char *const *words,
                             const char *takes, int *out, xn_error *error) {
    char got[XN_JSON_DESCRIPTION], hint[XN_TEXT_HINT];
    if (!value || xn_json_kind_of(value) != XN_JSON_STRING)
        return xn_json_fail(field, value, takes, error);
    const char *word = xn_json_string(value);
    const int found = xn_name_find(word, words);
    if (found >= 0) {
        *out = found;
        return XN_OK;
    }
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s is %s; it takes %s%s", field,
                   xn_json_describe(value, got), takes, xn_text_hint(word, words, hint));
}
