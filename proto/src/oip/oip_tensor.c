/* oip_tensor.c: the inputs and the requested outputs of an inference request. */
#include "xn_datatypes.h"
#include "xn_oip_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHERE 24 /* "outputs[63]" */

/* A string of the JSON, kept. */
static const char *keep(xn_oip_parser *p, const char *string, size_t length) {
    char *kept = p->text;
    memcpy(kept, string, length + 1);
    p->text += length + 1;
    return kept;
}

static xn_status read_name(xn_oip_parser *p, const xn_json *value, const char *where,
                           const char **out) {
    xn_error *error = p->error;
    char field[64];
    snprintf(field, sizeof field, "%s.name", where);
    if (!value || xn_json_kind_of(value) != XN_JSON_STRING)
        return xn_json_fail(field, value, "a string", error);
    const size_t length = strlen(xn_json_string(value));
    if (length == 0 || length > XN_OIP_MAX_NAME)
        return xn_fail(error, XN_ERR_MALFORMED, field, "%s has %zu bytes; it takes 1 to %d", field,
                       length, XN_OIP_MAX_NAME);
    *out = keep(p, xn_json_string(value), length);
    return XN_OK;
}

static xn_status fail_again(const char *where, const char *name, int first, xn_error *error) {
    char field[64];
    snprintf(field, sizeof field, "%s.name", where);
    return xn_fail(error, XN_ERR_MALFORMED, field,
                   "%s is \"%.80s\", the name of number %d too; each is given once", field, name,
                   first);
}

/* A member of parameters that counts bytes or classes; *out stays where it is absent. */
static xn_status read_count(const xn_json *parameters, const char *where, const char *name,
                            int64_t least, int64_t *out, xn_error *error) {
    char field[64], takes[64];
    const xn_json *value = parameters ? xn_oip_member(parameters, name) : NULL;
    if (!value)
        return XN_OK;
    if (xn_json_kind_of(value) == XN_JSON_INTEGER && xn_json_integer(value) >= least) {
        *out = xn_json_integer(value);
        return XN_OK;
    }
    snprintf(field, sizeof field, "%s.parameters.%s", where, name);
    snprintf(takes, sizeof takes, "an integer, at least %" PRId64, least);
    return xn_json_fail(field, value, takes, error);
}

static xn_status read_region(xn_oip_parser *p, const xn_json *value, const char *where,
                             xn_oip_shared *out) {
    xn_error *error = p->error;
    char field[64];
    snprintf(field, sizeof field, "%s.parameters.shared_memory_region", where);
    if (xn_json_kind_of(value) != XN_JSON_STRING)
        return xn_json_fail(field, value, "the name of a registered region", error);
    const size_t length = strlen(xn_json_string(value));
    if (length == 0 || length > XN_OIP_MAX_REGION)
        return xn_fail(error, XN_ERR_MALFORMED, field, "%s has %zu bytes; it takes 1 to %d", field,
                       length, XN_OIP_MAX_REGION);
    out->region = keep(p, xn_json_string(value), length);
    out->present = true;
    return XN_OK;
}

/* parameters: NULL, or an object. */
static xn_status read_shared(xn_oip_parser *p, const xn_json *parameters, const char *where,
                             xn_oip_shared *out) {
    xn_error *error = p->error;
    const xn_json *region = parameters ? xn_oip_member(parameters, "shared_memory_region") : NULL;
    int64_t bytes = 0, offset = 0;
    char field[64];
    xn_status status = read_count(parameters, where, "shared_memory_byte_size", 1, &bytes, error);
    if (!status)
        status = read_count(parameters, where, "shared_memory_offset", 0, &offset, error);
    if (status || (!region && !bytes && !offset))
        return status;
    snprintf(field, sizeof field, "%s.parameters.shared_memory_%s", where,
             region ? "byte_size" : "region");
    if (!region || !bytes)
        return xn_json_fail(field, NULL,
                            region ? "the bytes of the tensor" : "the name of a registered region",
                            error);
    out->bytes = (uint64_t)bytes;
    out->offset = (uint64_t)offset;
    return read_region(p, region, where, out);
}

static xn_status check_object(const xn_json *parameters, const char *where, xn_error *error) {
    char field[64];
    snprintf(field, sizeof field, "%s.parameters", where);
    if (parameters && xn_json_kind_of(parameters) != XN_JSON_OBJECT)
        return xn_json_fail(field, parameters, "an object", error);
    return XN_OK;
}

/* ---- inputs ---- */

enum { NAME, SHAPE, DATATYPE, DATA, PARAMETERS, INPUT_MEMBERS };
static const char *const input_names[] = {"name", "shape", "datatype", "data", "parameters", NULL};

/* Exactly one says where the values are. */
static xn_status check_places(const char *where, const xn_json *data, const xn_json *size,
                              const xn_oip_shared *shared, xn_error *error) {
    const int places = (data != NULL) + (size != NULL) + shared->present;
    char field[64];
    if (places == 1)
        return XN_OK;
    if (places > 1)
        return xn_fail(error, XN_ERR_MALFORMED, where,
                       "%s has its values in %d places; it takes one of data, "
                       "parameters.binary_data_size and parameters.shared_memory_region",
                       where, places);
    snprintf(field, sizeof field, "%s.data", where);
    return xn_fail(error, XN_ERR_MALFORMED, field,
                   "%s is missing; %s takes data, parameters.binary_data_size or "
                   "parameters.shared_memory_region",
                   field, where);
}

static bool is_bytes(const xn_json *datatype) {
    return datatype && xn_json_kind_of(datatype) == XN_JSON_STRING &&
           !strcmp(xn_json_string(datatype), "BYTES");
}

static xn_status read_type(const xn_oip_parser *p, const char *where,
                           const xn_json *const members[INPUT_MEMBERS], xn_oip_input *input) {
    xn_tensor_ref *ref = &input->tensor;
    char field[64];
    xn_status status = xn_request_shape(members[SHAPE], where, &ref->shape, p->error);
    snprintf(field, sizeof field, "%s.datatype", where);
    input->pictures = is_bytes(members[DATATYPE]);
    ref->datatype = XN_UINT8;
    if (!status && !input->pictures) /* packed bits are no JSON */
        status =
            xn_datatype_read(field, members[DATATYPE], members[DATA] ? XN_AS_WEIGHTS : XN_AS_INPUT,
                             XN_NAMES_OIP, &ref->datatype, p->error);
    if (!status)
        status = xn_shape_elements(&ref->shape, ref->datatype, p->limits->max_elements, where,
                                   &ref->elements, &ref->bytes, p->error);
    return status;
}

/* ---- where values are ---- */

static xn_status take_text(const xn_oip_parser *p, const char *where, const xn_json *data,
                           const xn_json_span *span, xn_oip_input *input) {
    char field[64];
    snprintf(field, sizeof field, "%s.data", where);
    if (span->strings && !input->pictures)
        return xn_fail(p->error, XN_ERR_MALFORMED, field,
                       "%s holds a string; only numbers (or true and false for BOOL)", field);
    return xn_request_take_text(where, data, span, &input->tensor, p->error);
}

/* Pictures have their lengths among them: that of all is what the request says. */
static xn_status take_bytes(xn_oip_parser *p, const char *where, const xn_json *size,
                            xn_oip_input *input) {
    char field[64];
    if (!input->pictures)
        return xn_request_take_bytes(where, size, &p->values, &input->tensor, p->error);
    snprintf(field, sizeof field, "%s.parameters.binary_data_size", where);
    const int64_t bytes = xn_json_kind_of(size) == XN_JSON_INTEGER ? xn_json_integer(size) : -1;
    if (bytes < 0)
        return xn_json_fail(field, size, "a number of bytes", p->error);
    if ((uint64_t)bytes > p->values.left)
        return xn_fail(p->error, XN_ERR_MALFORMED, field,
                       "%s is %" PRId64 ", but only %zu bytes of the body are left for it", field,
                       bytes, p->values.left);
    input->tensor.bytes = (size_t)bytes;
    input->tensor.data = p->values.at;
    p->values.at += bytes;
    p->values.left -= (size_t)bytes;
    return XN_OK;
}

static xn_status take_shared(const xn_oip_parser *p, const char *where, const xn_json *parameters,
                             const xn_oip_input *input) {
    char field[64];
    snprintf(field, sizeof field, "%s.parameters.shared_memory_region", where);
    if (input->pictures)
        return xn_fail(p->error, XN_ERR_MALFORMED, field,
                       "%s is given, but datatype BYTES takes data or parameters.binary_data_size",
                       field);
    return xn_request_check_bytes(where, "shared_memory_byte_size",
                                  xn_oip_member(parameters, "shared_memory_byte_size"),
                                  &input->tensor, p->error);
}

xn_status xn_oip_read_input(xn_oip_parser *p, int index, const xn_json *object) {
    const xn_json *members[INPUT_MEMBERS];
    xn_oip_input *input = &p->out->inputs[index];
    char where[WHERE];
    memset(input, 0, sizeof *input);
    input->tensor.present = true;
    snprintf(where, sizeof where, "inputs[%d]", index);
    xn_status status = xn_oip_members(object, where, input_names, members, p->error);
    if (!status)
        status = read_name(p, members[NAME], where, &input->name);
    for (int i = 0; !status && i < index; i++)
        if (!strcmp(p->out->inputs[i].name, input->name))
            status = fail_again(where, input->name, i, p->error);
    if (!status)
        status = check_object(members[PARAMETERS], where, p->error);
    if (!status)
        status = read_shared(p, members[PARAMETERS], where, &input->shared);
    if (!status)
        status = read_type(p, where, members, input);
    if (status)
        return status;
    const xn_json *parameters = members[PARAMETERS];
    const xn_json *size = parameters ? xn_oip_member(parameters, "binary_data_size") : NULL;
    status = check_places(where, members[DATA], size, &input->shared, p->error);
    if (status)
        return status;
    if (members[DATA])
        return take_text(p, where, members[DATA], &p->scan->data[index], input);
    if (size)
        return take_bytes(p, where, size, input);
    return take_shared(p, where, parameters, input);
}

/* ---- outputs ---- */

static xn_status read_wishes(xn_oip_parser *p, const xn_json *parameters, const char *where,
                             xn_oip_output *out) {
    xn_error *error = p->error;
    char field[64];
    const xn_json *binary = parameters ? xn_oip_member(parameters, "binary_data") : NULL;
    snprintf(field, sizeof field, "%s.parameters.binary_data", where);
    xn_status status = binary ? xn_oip_bool(binary, field, &out->binary, error) : XN_OK;
    if (!status)
        status = read_count(parameters, where, "classification", 0, &out->classification, error);
    if (!status)
        status = read_shared(p, parameters, where, &out->shared);
    if (status || !out->classification || !out->shared.present)
        return status;
    snprintf(field, sizeof field, "%s.parameters.classification", where);
    return xn_fail(error, XN_ERR_MALFORMED, field,
                   "%s is %" PRId64 ", but shared memory takes the values themselves; leave one of "
                   "them out",
                   field, out->classification);
}

xn_status xn_oip_read_output(xn_oip_parser *p, int index, const xn_json *object) {
    static const char *const names[] = {"name", "parameters", NULL};
    const xn_json *members[2];
    xn_oip_output *output = &p->out->outputs[index];
    char where[WHERE];
    memset(output, 0, sizeof *output);
    snprintf(where, sizeof where, "outputs[%d]", index);
    xn_status status = xn_oip_members(object, where, names, members, p->error);
    if (!status)
        status = read_name(p, members[0], where, &output->name);
    for (int i = 0; !status && i < index; i++)
        if (!strcmp(p->out->outputs[i].name, output->name))
            status = fail_again(where, output->name, i, p->error);
    if (!status)
        status = check_object(members[1], where, p->error);
    return status ? status : read_wishes(p, members[1], where, output);
}
