/* xn_wire_form.h: the table of wire forms: a row and a file in forms/ each. What differs from form
 * to form stands in its row; no other code in proto asks for a message's form. */
#ifndef XN_WIRE_FORM_H
#define XN_WIRE_FORM_H

#include "xn_request.h"
#include "xn_text.h"

typedef struct xn_wire_form {
    const char *media_type;
    /* Told apart from a form of the same media type by Inference-Header-Content-Length: */
    bool header_length; /* a request has that header */
    bool query;         /* a request's parameters may stand in the query */
    xn_status (*parse)(const xn_proto_body *body, const xn_proto_query *query, size_t query_count,
                       const xn_proto_limits *limits, const xn_targets *targets, xn_error *error);
    /* Bytes in front of a request's values; NULL: the values are text. */
    size_t (*prefix_bytes)(const xn_proto_body *body);
    /* Writes what stands in front of an answer's tensor, at most XN_PROTO_HEADROOM_BYTES. NULL: an
     * answer is text (xn_proto_json_answer_*). */
    void (*write_prefix)(xn_text *text, const xn_answer *answer);
    /* The header fields that a client needs to read an answer, whose prefix has `prefix` bytes;
     * returns how many. NULL: none. */
    int (*headers)(const xn_answer *answer, size_t prefix, xn_proto_header *out);
} xn_wire_form;

extern const xn_wire_form xn_wire_json, xn_wire_oip_binary, xn_wire_safetensors, xn_wire_raw;

const xn_wire_form *xn_wire_form_of(xn_form form);

/* ---- what the files of forms share ---- */

/* The JSON of a request's header and, behind it, the values of its tensors where binary. */
xn_status xn_request_parse_json(const xn_proto_body *body, const xn_proto_limits *limits,
                                const xn_targets *targets, bool binary, xn_error *error);
/* Parameters of a query, each once; `own` is asked first and takes what is the form's own (false:
 * not its own). */
typedef struct xn_query_own {
    const char *names[XN_PARAM_BESIDE]; /* of what it takes, for messages */
    bool (*take)(void *context, const char *key, const char *value, xn_status *status,
                 xn_error *error);
    void *context;
} xn_query_own;
xn_status xn_request_parse_query(const xn_proto_query *query, size_t query_count,
                                 const xn_targets *targets, const xn_query_own *own,
                                 xn_error *error);
/* The first query parameter of that name; query_count if there is none. */
size_t xn_request_query_find(const xn_proto_query *query, size_t query_count, const char *key);

/* The stages of a request, by name: "receive", ..., "total". */
#define XN_ANSWER_STAGES 9
typedef struct xn_answer_stage {
    const char *name;
    int64_t ns;
} xn_answer_stage;
void xn_answer_stages(const xn_timing *timing, xn_answer_stage out[XN_ANSWER_STAGES]);

/* Pieces of answers. An id or a name is cut where it is longer than it may be. */
void xn_answer_word(xn_text *text, const char *word);
void xn_answer_dims(xn_text *text, const xn_shape *shape);                   /* 1,2,3 */
void xn_answer_shape(xn_text *text, const xn_shape *shape);                  /* [1,2,3] */
void xn_answer_timing(xn_text *text, const xn_timing *t, const char *quote); /* an object */
void xn_answer_type(xn_text *text, const xn_answer *answer);          /* datatype and shape */
void xn_answer_circumstances(xn_text *text, const xn_answer *answer); /* to the closing brace */
/* Values as JSON numbers with commas between them; returns the length. number_bytes: the most that
 * one takes with its comma; 0 of a datatype that JSON does not have here. */
size_t xn_answer_number_bytes(xn_datatype datatype);
size_t xn_answer_numbers(xn_datatype datatype, const void *values, size_t count, char *text);

#endif
