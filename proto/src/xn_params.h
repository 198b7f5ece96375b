/* xn_params.h: the parameters of a convolution request: one table, whatever they come from. JSON
 * members, query parameters and safetensors metadata are first made into an xn_param_value. */
#ifndef XN_PARAMS_H
#define XN_PARAMS_H

#include "xn_json_tree.h"
#include "xn_proto.h"

typedef enum { XN_VALUE_NUMBER, XN_VALUE_LIST, XN_VALUE_WORD } xn_value_kind;

typedef struct xn_param_value {
    xn_value_kind kind;
    int64_t numbers[4]; /* NUMBER: 1; LIST: count */
    int count;
    const char *word; /* WORD: borrowed */
} xn_param_value;

typedef struct xn_param xn_param;

const xn_param *xn_param_find(const char *name); /* or NULL */

/* The request with every default. */
void xn_params_default(xn_conv_request *request);

/* Sets a parameter from a JSON value, or from text as a query or metadata has it (lists
 * comma-separated). Errors are XN_ERR_MALFORMED: the parameter as the field, what it got, what it
 * takes. */
xn_status xn_param_set_json(const xn_param *param, const xn_json *value, xn_conv_request *request,
                            xn_error *error);
xn_status xn_param_set_text(const xn_param *param, const char *text, xn_conv_request *request,
                            xn_error *error);

/* Integers with commas between them, at most `most`: how many, 0 where it is something else. */
int xn_param_integers(const char *text, int64_t *out, int most);

/* "unknown <kind> \"naem\"; accepted: ...". kind: "field", "query parameter", ...; beside: names
 * that the form takes beside parameters, NULL behind the last. */
#define XN_PARAM_BESIDE 3
xn_status xn_param_fail_unknown(const char *kind, const char *name,
                                const char *const beside[XN_PARAM_BESIDE], xn_error *error);

#endif
