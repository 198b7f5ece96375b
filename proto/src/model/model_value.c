/* model_value.c: values of a configuration, and the errors about them; see xn_model_inside.h. */
#include "xn_model_inside.h"
#include "xn_safetensors_file.h"
#include "xn_text.h"

#include <stdio.h>
#include <string.h>

xn_status xn_model_fail(const char *field, const xn_json *value, const char *takes,
                        xn_error *error) {
    return xn_safetensors_fail(field, value, takes, error);
}

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
        return xn_model_fail(field, value, takes, error);
    const char *name = xn_json_string(value);
    bool fits = *name != 0;
    for (const char *c = name; *c; c++)
        fits = fits && (unsigned char)*c >= ' ' && *c != 0x7f;
    if (!fits)
        return xn_model_fail(field, value, takes, error);
    *out = name;
    return XN_OK;
}

xn_status xn_model_read_word(const char *field, const xn_json *value, const char *const *words,
                             const char *takes, int *out, xn_error *error) {
    char got[XN_JSON_DESCRIPTION], hint[XN_TEXT_HINT];
    if (!value || xn_json_kind_of(value) != XN_JSON_STRING)
        return xn_model_fail(field, value, takes, error);
    const char *word = xn_json_string(value);
    for (int i = 0; words[i]; i++) {
        if (!strcmp(word, words[i])) {
            *out = i;
            return XN_OK;
        }
    }
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s is %s; it takes %s%s", field,
                   xn_json_describe(value, got), takes, xn_text_hint(word, words, hint));
}

static bool is_among(const char *word, const char *const *names) {
    while (*names && strcmp(word, *names) != 0)
        names++;
    return *names != NULL;
}

xn_status xn_model_check_members(const xn_json *object, const char *const *names, const char *of,
                                 const char *prefix, xn_error *error) {
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    while (xn_json_next(object, &iterator, &key, &value)) {
        char field[64], excerpt[XN_TEXT_EXCERPT], hint[XN_TEXT_HINT], list[200];
        if (is_among(key, names))
            continue;
        xn_text text = xn_text_over(list, sizeof list - 1);
        for (int i = 0; names[i]; i++) {
            xn_text_string(&text, i ? ", " : "");
            xn_text_string(&text, names[i]);
        }
        list[text.length] = 0;
        xn_text_excerpt(key, strlen(key), excerpt);
        snprintf(field, sizeof field, "%s%s", prefix, excerpt);
        return xn_fail(error, XN_ERR_MALFORMED, field, "unknown member \"%s\"%s; accepted: %s%s",
                       excerpt, of, list, xn_text_hint(key, names, hint));
    }
    return XN_OK;
}
