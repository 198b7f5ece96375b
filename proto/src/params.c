/* params.c: the table of request parameters, their types and ranges; see xn_params.h. Only what
 * needs no geometry is checked here; xn_conv_resolve does the rest. */
#include "xn_datatypes.h"
#include "xn_params.h"
#include "xn_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_SIZE INT64_C(2147483647) /* strides, paddings, milliseconds: what fits int32 */

struct xn_param {
    const char *name;
    bool numbers, words;      /* the forms it takes; a list is numbers */
    const char *accepts;      /* for messages; NULL: datatypes of outputs */
    const char *const *names; /* the words there are, where they are a closed set; ends with NULL */
    xn_status (*set)(const xn_param *, const xn_param_value *, xn_conv_request *, xn_error *);
};

void xn_params_default(xn_conv_request *request) {
    memset(request, 0, sizeof *request);
    xn_conv_params_default(&request->params);
    memcpy(request->backend, "auto", sizeof "auto");
    request->timeout_ms = -1;
}

/* What a parameter takes, for messages; text is for one that is made. */
static const char *accepts_of(const xn_param *param, char text[XN_DATATYPE_LIST]) {
    return param->accepts ? param->accepts
                          : xn_datatype_list(XN_AS_OUTPUT, XN_NAMES_OIP, "\"", text);
}

static xn_status fail_word(const xn_param *param, const char *word, xn_error *error) {
    char excerpt[XN_TEXT_EXCERPT], hint[XN_TEXT_HINT] = "", list[XN_DATATYPE_LIST];
    const char *outputs[XN_DATATYPE_COUNT + 1];
    const char *const *names =
        param->accepts ? param->names : xn_datatype_names(XN_AS_OUTPUT, XN_NAMES_OIP, outputs);
    if (names)
        xn_text_hint(word, names, hint);
    return xn_fail(error, XN_ERR_MALFORMED, param->name, "%s is \"%s\"; it takes %s%s", param->name,
                   xn_text_excerpt(word, strlen(word), excerpt), accepts_of(param, list), hint);
}

static xn_status check_range(const xn_param *param, const xn_param_value *value, int64_t low,
                             int64_t high, xn_error *error) {
    int count = value->kind == XN_VALUE_LIST ? value->count : 1;
    for (int i = 0; i < count; i++) {
        if (value->numbers[i] >= low && value->numbers[i] <= high)
            continue;
        char index[16] = "";
        if (value->kind == XN_VALUE_LIST)
            snprintf(index, sizeof index, "[%d]", i);
        return xn_fail(error, XN_ERR_MALFORMED, param->name,
                       "%s%s is %" PRId64 "; it must be between %" PRId64 " and %" PRId64,
                       param->name, index, value->numbers[i], low, high);
    }
    return XN_OK;
}

static xn_status fail_count(const xn_param *param, const xn_param_value *value, xn_error *error) {
    return xn_fail(error, XN_ERR_MALFORMED, param->name, "%s is a list of %d numbers; it takes %s",
                   param->name, value->count, param->accepts);
}

/* An integer for both axes, or [h, w]. */
static xn_status read_pair(const xn_param *param, const xn_param_value *value, int64_t low,
                           int64_t pair[2], xn_error *error) {
    if (value->kind == XN_VALUE_LIST && value->count != 2)
        return fail_count(param, value, error);
    xn_status status = check_range(param, value, low, MAX_SIZE, error);
    if (status)
        return status;
    pair[0] = value->numbers[0];
    pair[1] = value->numbers[value->kind == XN_VALUE_LIST];
    return XN_OK;
}

static xn_status set_stride(const xn_param *param, const xn_param_value *value,
                            xn_conv_request *request, xn_error *error) {
    return read_pair(param, value, 1, request->params.stride, error);
}

static xn_status set_dilation(const xn_param *param, const xn_param_value *value,
                              xn_conv_request *request, xn_error *error) {
    return read_pair(param, value, 1, request->params.dilation, error);
}

static xn_status set_padding(const xn_param *param, const xn_param_value *value,
                             xn_conv_request *request, xn_error *error) {
    xn_conv_params *params = &request->params;
    if (value->kind == XN_VALUE_WORD) {
        if (!strcmp(value->word, "same"))
            params->padding_kind = XN_PADDING_SAME;
        else if (!strcmp(value->word, "valid"))
            params->padding_kind = XN_PADDING_VALID;
        else
            return fail_word(param, value->word, error);
        return XN_OK;
    }
    if (value->kind == XN_VALUE_LIST && value->count == 4) {
        xn_status status = check_range(param, value, 0, MAX_SIZE, error);
        if (status)
            return status;
        memcpy(params->padding, value->numbers, sizeof params->padding);
    } else {
        int64_t pair[2] = {0};
        xn_status status = read_pair(param, value, 0, pair, error);
        if (status)
            return status;
        for (int i = 0; i < 4; i++) /* top, left, bottom, right */
            params->padding[i] = pair[i % 2];
    }
    params->padding_kind = XN_PADDING_EXPLICIT;
    return XN_OK;
}

static xn_status read_integer(const xn_param *param, const xn_param_value *value, int64_t low,
                              int64_t high, int64_t *out, xn_error *error) {
    if (value->kind == XN_VALUE_LIST)
        return fail_count(param, value, error);
    xn_status status = check_range(param, value, low, high, error);
    if (!status)
        *out = value->numbers[0];
    return status;
}

static xn_status set_groups(const xn_param *param, const xn_param_value *value,
                            xn_conv_request *request, xn_error *error) {
    return read_integer(param, value, 1, MAX_SIZE, &request->params.groups, error);
}

static xn_status set_pad_value(const xn_param *param, const xn_param_value *value,
                               xn_conv_request *request, xn_error *error) {
    int64_t pad_value = 0;
    xn_status status = read_integer(param, value, -1, 1, &pad_value, error);
    if (!status)
        request->params.pad_value = (int)pad_value;
    return status;
}

static xn_status set_timeout(const xn_param *param, const xn_param_value *value,
                             xn_conv_request *request, xn_error *error) {
    return read_integer(param, value, 1, MAX_SIZE, &request->timeout_ms, error);
}

/* One of the parameter's words, by its number. */
static xn_status read_word(const xn_param *param, const xn_param_value *value, int *out,
                           xn_error *error) {
    *out = xn_name_find(value->word, param->names);
    return *out < 0 ? fail_word(param, value->word, error) : XN_OK;
}

static xn_status set_scaling(const xn_param *param, const xn_param_value *value,
                             xn_conv_request *request, xn_error *error) {
    int found = 0;
    xn_status status = read_word(param, value, &found, error);
    if (!status)
        request->params.scaling = (xn_scaling)found;
    return status;
}

static xn_status set_mode(const xn_param *param, const xn_param_value *value,
                          xn_conv_request *request, xn_error *error) {
    int found = 0;
    xn_status status = read_word(param, value, &found, error);
    if (!status)
        request->params.mode = (xn_mode)found;
    return status;
}

static xn_status set_precision(const xn_param *param, const xn_param_value *value,
                               xn_conv_request *request, xn_error *error) {
    int found = 0;
    xn_status status = read_word(param, value, &found, error);
    if (!status)
        request->params.precision = (xn_precision)found;
    return status;
}

static xn_status set_output_datatype(const xn_param *param, const xn_param_value *value,
                                     xn_conv_request *request, xn_error *error) {
    xn_datatype datatype;
    if (!xn_datatype_parse(value->word, &datatype) || !xn_datatype_may_be(datatype, XN_AS_OUTPUT))
        return fail_word(param, value->word, error);
    request->params.output_datatype = datatype;
    return XN_OK;
}

static xn_status set_backend(const xn_param *param, const xn_param_value *value,
                             xn_conv_request *request, xn_error *error) {
    int found = 0;
    xn_status status = read_word(param, value, &found, error);
    if (!status)
        memcpy(request->backend, value->word, strlen(value->word) + 1);
    return status;
}

static xn_status set_id(const xn_param *param, const xn_param_value *value,
                        xn_conv_request *request, xn_error *error) {
    if (!xn_proto_id_valid(value->word))
        return fail_word(param, value->word, error);
    memcpy(request->id, value->word, strlen(value->word) + 1);
    return XN_OK;
}

static xn_status set_weights(const xn_param *param, const xn_param_value *value,
                             xn_conv_request *request, xn_error *error) {
    if (!xn_proto_name_valid(value->word))
        return fail_word(param, value->word, error);
    memcpy(request->weights_name, value->word, strlen(value->word) + 1);
    return XN_OK;
}

static const char *const paddings[] = {"same", "valid", NULL};
static const char *const backends[] = {"auto", "cpu", "cuda", "ref", NULL};

#define SIZES "an integer or a list [h, w], each at least 1"
static const xn_param table[] = {
    {"weights", false, true,
     "a tensor or the name of registered weights: 1 to 128 of A-Z a-z 0-9 . _ -, not . or ..", NULL,
     set_weights},
    {"stride", true, false, SIZES, NULL, set_stride},
    {"padding", true, true, "an integer, [h, w], [top, left, bottom, right], \"same\" or \"valid\"",
     paddings, set_padding},
    {"dilation", true, false, SIZES, NULL, set_dilation},
    {"groups", true, false, "an integer, at least 1", NULL, set_groups},
    {"pad_value", true, false, "-1, 0 or 1", NULL, set_pad_value},
    {"scaling", false, true, "\"xnor\", \"alpha\" or \"none\"", xn_scaling_names, set_scaling},
    {"mode", false, true, "\"xnor\", \"bwn\" or \"float\"", xn_mode_names, set_mode},
    {"precision", false, true, "\"fp32\", \"tf32\" or \"fp16\"", xn_precision_names, set_precision},
    {"output_datatype", false, true, NULL, NULL, set_output_datatype},
    {"backend", false, true, "\"auto\", \"cpu\", \"cuda\" or \"ref\"", backends, set_backend},
    {"timeout_ms", true, false, "an integer, milliseconds, at least 1", NULL, set_timeout},
    {"id", false, true, "a string of 1 to 128 printable ASCII characters without \" and \\", NULL,
     set_id},
};
#define PARAMS (sizeof table / sizeof *table)

const xn_param *xn_param_find(const char *name) {
    for (size_t i = 0; i < PARAMS; i++)
        if (!strcmp(name, table[i].name))
            return &table[i];
    return NULL;
}

/* ---- values ---- */

static xn_status list_from_json(const xn_param *param, const xn_json *array, xn_param_value *out,
                                xn_error *error) {
    size_t count = xn_json_count(array);
    if (count > 4)
        return xn_fail(error, XN_ERR_MALFORMED, param->name,
                       "%s is a list of %zu numbers; it takes %s", param->name, count,
                       param->accepts);
    out->kind = XN_VALUE_LIST;
    out->count = (int)count;
    for (size_t i = 0; i < count; i++) {
        const xn_json *element = xn_json_element(array, i);
        char got[XN_JSON_DESCRIPTION];
        if (xn_json_kind_of(element) != XN_JSON_INTEGER)
            return xn_fail(error, XN_ERR_MALFORMED, param->name, "%s[%zu] is %s; it takes %s",
                           param->name, i, xn_json_describe(element, got), param->accepts);
        out->numbers[i] = xn_json_integer(element);
    }
    return XN_OK;
}

xn_status xn_param_set_json(const xn_param *param, const xn_json *value, xn_conv_request *request,
                            xn_error *error) {
    xn_param_value v = {.kind = XN_VALUE_NUMBER};
    xn_json_kind kind = xn_json_kind_of(value);
    if (kind == XN_JSON_INTEGER && param->numbers) {
        v.numbers[0] = xn_json_integer(value);
    } else if (kind == XN_JSON_STRING && param->words) {
        v.kind = XN_VALUE_WORD;
        v.word = xn_json_string(value);
    } else if (kind == XN_JSON_ARRAY && param->numbers) {
        xn_status status = list_from_json(param, value, &v, error);
        if (status)
            return status;
    } else {
        char list[XN_DATATYPE_LIST];
        return xn_json_fail(param->name, value, accepts_of(param, list), error);
    }
    return param->set(param, &v, request, error);
}

/* -?[0-9]+ within int64, without leading zeros. */
static bool parse_integer(const char **text, int64_t *out) {
    const char *p = *text;
    bool negative = *p == '-';
    p += negative;
    if (*p < '0' || *p > '9' || (*p == '0' && p[1] >= '0' && p[1] <= '9'))
        return false;
    int64_t value = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, *p - '0', &value))
            return false;
    if (!negative && __builtin_sub_overflow(0, value, &value))
        return false;
    *text = p;
    *out = value;
    return true;
}

int xn_param_integers(const char *text, int64_t *out, int most) {
    int count = 0;
    const char *at = text;
    do {
        at += count > 0;
        if (count == most || !parse_integer(&at, &out[count]))
            return 0;
        count++;
    } while (*at == ',');
    return *at ? 0 : count;
}

xn_status xn_param_set_text(const xn_param *param, const char *text, xn_conv_request *request,
                            xn_error *error) {
    xn_param_value v = {.kind = XN_VALUE_WORD, .word = text};
    bool number = (*text >= '0' && *text <= '9') || *text == '-';
    if (!param->numbers || (param->words && !number))
        return param->set(param, &v, request, error);
    v.count = xn_param_integers(text, v.numbers, 4);
    if (!v.count)
        return fail_word(param, text, error);
    v.kind = v.count == 1 ? XN_VALUE_NUMBER : XN_VALUE_LIST;
    return param->set(param, &v, request, error);
}

xn_status xn_param_fail_unknown(const char *kind, const char *name,
                                const char *const beside[XN_PARAM_BESIDE], xn_error *error) {
    const char *names[XN_PARAM_BESIDE + PARAMS + 1] = {0};
    size_t count = 0;
    for (size_t i = 0; i < XN_PARAM_BESIDE && beside[i]; i++)
        names[count++] = beside[i];
    for (size_t i = 0; i < PARAMS; i++)
        names[count++] = table[i].name;
    return xn_json_fail_unknown(kind, name, "", "", names, error);
}
