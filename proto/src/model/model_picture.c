/* model_picture.c: what a configuration says of encoded pictures, the member `picture` of its
 * input; see MODELS.md. */
#include "xn_model_inside.h"

#include <math.h>
#include <stdio.h>

static xn_status read_resize(const xn_json *value, xn_picture_rule *rule, xn_error *error) {
    const int64_t side = rule->height > rule->width ? rule->height : rule->width;
    char takes[120];
    if (value && xn_json_kind_of(value) == XN_JSON_INTEGER && xn_json_integer(value) >= side &&
        xn_json_integer(value) <= XN_PICTURE_MAX_RESIZE) {
        rule->resize = xn_json_integer(value);
        return XN_OK;
    }
    snprintf(takes, sizeof takes,
             "an integer from %lld, the input's longer side, to %d: what the shorter side becomes",
             (long long)side, XN_PICTURE_MAX_RESIZE);
    return value ? xn_json_fail("input.picture.resize", value, takes, error) : XN_OK;
}

static bool is_side(const xn_json *value, int64_t side) {
    return value && xn_json_kind_of(value) == XN_JSON_INTEGER && xn_json_integer(value) == side;
}

/* What is cut out is the input: another size could not be computed. */
static xn_status check_crop(const xn_json *value, const xn_picture_rule *rule, xn_error *error) {
    char takes[100];
    if (!value || (rule->height == rule->width && is_side(value, rule->height)) ||
        (xn_json_kind_of(value) == XN_JSON_ARRAY && xn_json_count(value) == 2 &&
         is_side(xn_json_element(value, 0), rule->height) &&
         is_side(xn_json_element(value, 1), rule->width)))
        return XN_OK;
    snprintf(takes, sizeof takes, "the input's height and width, [%lld, %lld]",
             (long long)rule->height, (long long)rule->width);
    return xn_json_fail("input.picture.crop", value, takes, error);
}

static xn_status read_filter(const xn_json *value, xn_picture_rule *rule, xn_error *error) {
    static const char *const words[] = {"bilinear", "bicubic", NULL}; /* as they are numbered */
    int found = XN_PICTURE_BILINEAR;
    xn_status status = value ? xn_model_read_word("input.picture.filter", value, words,
                                                  "\"bilinear\" or \"bicubic\"", &found, error)
                             : XN_OK;
    rule->filter = (xn_picture_filter)found;
    return status;
}

static xn_status read_fast(const xn_json *value, xn_picture_rule *rule, xn_error *error) {
    const xn_json_kind kind = value ? xn_json_kind_of(value) : XN_JSON_FALSE;
    rule->fast = kind == XN_JSON_TRUE;
    return kind == XN_JSON_TRUE || kind == XN_JSON_FALSE
               ? XN_OK
               : xn_json_fail("input.picture.fast", value, "true or false", error);
}

/* A number for each channel. */
static xn_status read_channels(const char *field, const xn_json *value, const xn_picture_rule *rule,
                               double least, double *out, xn_error *error) {
    static const char takes[] = "a list with a finite number for each channel; std's are above 0. "
                                "They are for inputs in FP32 and FP16";
    if (!value)
        return XN_OK;
    if (rule->datatype == XN_UINT8 || xn_json_kind_of(value) != XN_JSON_ARRAY ||
        xn_json_count(value) != (size_t)rule->channels)
        return xn_json_fail(field, value, takes, error);
    for (int i = 0; i < rule->channels; i++)
        if (!xn_json_number(xn_json_element(value, (size_t)i), &out[i]) ||
            !isfinite((float)out[i]) || out[i] < least)
            return xn_json_fail(field, value, takes, error);
    return XN_OK;
}

xn_status xn_model_picture_read(const xn_json *value, xn_picture_rule *rule, xn_error *error) {
    static const char *const names[] = {"resize", "crop", "filter", "fast", "mean", "std", NULL};
    if (!value)
        return XN_OK;
    if (xn_json_kind_of(value) != XN_JSON_OBJECT)
        return xn_json_fail("input.picture", value,
                            "an object with resize, crop, filter, fast, mean and std", error);
    if (!rule->channels)
        return xn_fail(error, XN_ERR_MALFORMED, "input.picture",
                       "there is input.picture, but pictures are for inputs of height, width and 1 "
                       "or 3 channels, with sides of at most %d",
                       XN_PICTURE_MAX_RESIZE);
    xn_status status =
        xn_json_members(value, "member", "input.picture.", " of input.picture", names, NULL, error);
    if (!status)
        status = read_resize(xn_json_member(value, "resize"), rule, error);
    if (!status)
        status = check_crop(xn_json_member(value, "crop"), rule, error);
    if (!status)
        status = read_filter(xn_json_member(value, "filter"), rule, error);
    if (!status)
        status = read_fast(xn_json_member(value, "fast"), rule, error);
    if (!status)
        status = read_channels("input.picture.mean", xn_json_member(value, "mean"), rule, -HUGE_VAL,
                               rule->mean, error);
    if (!status)
        status = read_channels("input.picture.std", xn_json_member(value, "std"), rule, 1e-30,
                               rule->std, error);
    return status;
}
