/* datatypes.c: see xn_datatypes.h. */
#include "xn_datatypes.h"

#include "xn_text.h"

#include <string.h>

static const char *name_of(xn_datatype datatype, xn_datatype_naming naming) {
    const xn_datatype_info *info = xn_datatype_describe(datatype);
    return naming == XN_NAMES_OIP ? info->name : info->safetensors;
}

static const char *const *list_names(xn_datatype_use use, xn_datatype_naming naming,
                                     const char *names[XN_DATATYPE_COUNT + 1]) {
    int count = 0;
    for (int d = 0; d < XN_DATATYPE_COUNT; d++)
        if (xn_datatype_may_be((xn_datatype)d, use) && name_of((xn_datatype)d, naming))
            names[count++] = name_of((xn_datatype)d, naming);
    names[count] = NULL;
    return names;
}

static const char *list_in_words(const char *const *names, char text[XN_DATATYPE_LIST]) {
    xn_text list = xn_text_over(text, XN_DATATYPE_LIST - 1);
    for (int i = 0; names[i]; i++) {
        xn_text_string(&list, !i ? "\"" : names[i + 1] ? ", \"" : " or \"");
        xn_text_string(&list, names[i]);
        xn_text_string(&list, "\"");
    }
    text[list.length] = 0;
    return text;
}

const char *const *xn_datatype_names(xn_datatype_use use,
                                     const char *names[XN_DATATYPE_COUNT + 1]) {
    return list_names(use, XN_NAMES_OIP, names);
}

const char *xn_datatype_list(xn_datatype_use use, char text[XN_DATATYPE_LIST]) {
    const char *names[XN_DATATYPE_COUNT + 1];
    return list_in_words(xn_datatype_names(use, names), text);
}

xn_status xn_datatype_fail(const char *field, const char *got, const char *word,
                           xn_datatype_use use, xn_datatype_naming naming, xn_error *error) {
    char takes[XN_DATATYPE_LIST], hint[XN_TEXT_HINT] = "";
    const char *names[XN_DATATYPE_COUNT + 1];
    list_in_words(list_names(use, naming, names), takes);
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
        const char *name = name_of((xn_datatype)d, naming);
        if (name && xn_datatype_may_be((xn_datatype)d, use) && !strcmp(word, name)) {
            *out = (xn_datatype)d;
            return XN_OK;
        }
    }
    if (value)
        xn_json_describe(value, got);
    return xn_datatype_fail(field, got, word, use, naming, error);
}
