/* oip_bodies.c: the bodies of the model repository's routes and of shared memory; see xn_oip.h. */
#include "xn_mem.h"
#include "xn_oip_parts.h"
#include "xn_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The object that the body is; *root NULL where there is none. */
static xn_status parse_body(const void *body, size_t length, xn_json_take take, xn_json_scan *scan,
                            const xn_json **root, xn_error *error) {
    static const xn_json_limits limits = {XN_PROTO_MAX_HEADER_BYTES, XN_PROTO_MAX_VALUES,
                                          " beside its parameters", "", 0};
    *root = NULL;
    if (length == 0)
        return XN_OK;
    xn_status status = xn_json_scan_limited(body, length, take, &limits, scan, error);
    return status ? status : xn_json_parse(scan, "the body", root, error);
}

static xn_status check_parameters(const xn_json *parameters, xn_error *error) {
    if (parameters && xn_json_kind_of(parameters) != XN_JSON_OBJECT)
        return xn_json_fail("parameters", parameters, "an object", error);
    return XN_OK;
}

/* ---- load ---- */

static const char file_prefix[] = "file:";

/* What a parameter is while the tree lives: its key there, and its text in the body. */
typedef struct load_parse {
    const xn_json_span *config;
    int file_count;
    const char *paths[XN_OIP_MAX_FILES];
    const xn_json_span *files[XN_OIP_MAX_FILES];
} load_parse;

/* Relative, of parts that are names. */
static bool path_valid(const char *path) {
    for (const char *part = path;; part++) {
        const size_t length = strcspn(part, "/");
        if (length == 0 || length > 255 || !strncmp(part, ".", length) ||
            (length == 2 && !strncmp(part, "..", length)))
            return false;
        part += length;
        if (!*part)
            return part - path <= 1024;
    }
}

static xn_status fail_parameter(const char *key, const char *what, xn_error *error) {
    char field[64], excerpt[XN_TEXT_EXCERPT];
    xn_text_excerpt(key, strlen(key), excerpt);
    snprintf(field, sizeof field, "parameters.%s", excerpt);
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s %s", field, what);
}

static xn_status take_file(load_parse *p, const char *key, const xn_json_span *span,
                           xn_error *error) {
    const char *path = key + strlen(file_prefix);
    if (!path_valid(path))
        return fail_parameter(key,
                              "is no path within a model's folder; it takes one like "
                              "file:1/model.safetensors",
                              error);
    if (p->file_count == XN_OIP_MAX_FILES)
        return xn_fail(error, XN_ERR_MALFORMED, "parameters",
                       "parameters has more than %d files, the limit", XN_OIP_MAX_FILES);
    p->paths[p->file_count] = path;
    p->files[p->file_count++] = span;
    return XN_OK;
}

/* span: of a string; else NULL. */
static xn_status take_parameter(load_parse *p, const char *key, const xn_json *value,
                                const xn_json_span *span, xn_error *error) {
    const bool config = !strcmp(key, "config");
    if (!config && strncmp(key, file_prefix, strlen(file_prefix)) != 0)
        return fail_parameter(key,
                              "is unknown; accepted: config, a string, and file:<path>, base64 "
                              "of what takes the file's place",
                              error);
    if (xn_json_kind_of(value) == XN_JSON_NULL)
        return XN_OK;
    if (!span)
        return fail_parameter(key, "is no string; it takes one", error);
    if (!config)
        return take_file(p, key, span, error);
    p->config = span;
    return XN_OK;
}

static xn_status read_parameters(load_parse *p, const xn_json *parameters, const xn_json_scan *scan,
                                 xn_error *error) {
    void *iterator = NULL;
    const char *key;
    const xn_json *value;
    int strings = 0;
    xn_status status = check_parameters(parameters, error);
    while (!status && parameters && xn_json_next(parameters, &iterator, &key, &value)) {
        const bool string = xn_json_kind_of(value) == XN_JSON_STRING;
        const xn_json_span *span = string ? &scan->data[strings++] : NULL;
        status = take_parameter(p, key, value, span, error);
    }
    return status;
}

/* What strings take in memory of their own: a file's text none where it has no escapes. */
static bool has_escapes(const xn_json_span *span) {
    return memchr(span->text, '\\', span->length) != NULL;
}

static size_t count_bytes(const load_parse *p) { /* of texts that are in memory: no overflow */
    size_t bytes = p->config ? p->config->length + 1 : 0;
    for (int i = 0; i < p->file_count; i++) {
        bytes += strlen(p->paths[i]) + 1;
        bytes += has_escapes(p->files[i]) ? p->files[i]->length + 1 : 0;
    }
    return bytes;
}

static xn_status copy_string(const xn_json_span *span, const char *name, char **at,
                             const char **text, size_t *length, xn_error *error) {
    if (!xn_json_unescape(span, *at, length))
        return fail_parameter(name, "is no valid JSON string of UTF-8 without NUL", error);
    *text = *at;
    *at += *length + 1;
    return XN_OK;
}

static xn_status copy_strings(const load_parse *p, char *at, xn_load_request *out,
                              xn_error *error) {
    xn_status status = XN_OK;
    if (p->config)
        status = copy_string(p->config, "config", &at, &out->config, &out->config_length, error);
    for (int i = 0; !status && i < p->file_count; i++) {
        xn_oip_file *file = &out->files[i];
        const size_t length = strlen(p->paths[i]) + 1;
        file->path = memcpy(at, p->paths[i], length);
        at += length;
        file->base64 = p->files[i]->text;
        file->length = p->files[i]->length;
        if (has_escapes(p->files[i]))
            status = copy_string(p->files[i], file->path, &at, &file->base64, &file->length, error);
    }
    return status;
}

static xn_status parse_load(const xn_json_scan *scan, const xn_json *root, xn_load_request *out,
                            xn_error *error) {
    static const char *const names[] = {"parameters", NULL};
    const xn_json *parameters;
    load_parse p = {0};
    xn_status status = xn_oip_members(root, "", names, &parameters, error);
    if (!status)
        status = read_parameters(&p, parameters, scan, error);
    if (status)
        return status;
    const size_t bytes = count_bytes(&p);
    xn_load_request request = {.file_count = p.file_count, .memory = xn_mem_alloc(bytes)};
    if (!request.memory)
        return xn_fail(error, XN_ERR_NO_MEMORY, "", "no memory for %zu bytes of parameters", bytes);
    status = copy_strings(&p, request.memory, &request, error);
    if (status)
        xn_load_request_free(&request);
    else
        *out = request;
    return status;
}

xn_status xn_oip_parse_load(const void *body, size_t length, xn_load_request *out,
                            xn_error *error) {
    xn_json_scan scan = {0};
    const xn_json *root;
    xn_status status = parse_body(body, length, XN_TAKE_PARAMETERS, &scan, &root, error);
    if (!status && root)
        status = parse_load(&scan, root, out, error);
    else if (!status)
        *out = (xn_load_request){0};
    xn_json_scan_free(&scan);
    return status;
}

void xn_load_request_free(xn_load_request *request) {
    xn_mem_free(request->memory);
    request->memory = NULL;
}

/* ---- unload, index ---- */

xn_status xn_oip_parse_unload(const void *body, size_t length, xn_error *error) {
    static const char *const names[] = {"parameters", NULL};
    const xn_json *root, *parameters = NULL;
    xn_json_scan scan = {0};
    xn_status status = parse_body(body, length, XN_TAKE_NOTHING, &scan, &root, error);
    if (!status && root)
        status = xn_oip_members(root, "", names, &parameters, error);
    if (!status)
        status = check_parameters(parameters, error);
    xn_json_scan_free(&scan);
    return status;
}

xn_status xn_oip_parse_index(const void *body, size_t length, bool *ready_only, xn_error *error) {
    static const char *const names[] = {"ready", "parameters", NULL};
    const xn_json *root, *members[2] = {NULL, NULL};
    xn_json_scan scan = {0};
    bool ready = false;
    xn_status status = parse_body(body, length, XN_TAKE_NOTHING, &scan, &root, error);
    if (!status && root)
        status = xn_oip_members(root, "", names, members, error);
    if (!status && members[0])
        status = xn_oip_bool(members[0], "ready", &ready, error);
    if (!status)
        status = check_parameters(members[1], error);
    xn_json_scan_free(&scan);
    if (!status)
        *ready_only = ready;
    return status;
}

/* ---- shared memory ---- */

/* A name of shm_open: one '/', in front, put there where there is none. */
static xn_status read_key(const xn_json *value, xn_shm_request *out, xn_error *error) {
    static const char takes[] = "a name for shm_open, \"/name\", of at most 254 bytes";
    const bool is = value && xn_json_kind_of(value) == XN_JSON_STRING;
    const char *key = is ? xn_json_string(value) : "";
    const char *name = key + (*key == '/');
    const size_t length = strlen(name);
    if (length == 0 || length > 254 || strchr(name, '/') || !strcmp(name, ".") ||
        !strcmp(name, ".."))
        return xn_json_fail("key", value, takes, error);
    out->key[0] = '/';
    memcpy(out->key + 1, name, length + 1);
    return XN_OK;
}

static xn_status read_size(const xn_json *value, const char *name, int64_t least, uint64_t *out,
                           xn_error *error) {
    char takes[48];
    if (!value && least == 0) {
        *out = 0;
        return XN_OK;
    }
    snprintf(takes, sizeof takes, "an integer, at least %" PRId64, least);
    if (!value || xn_json_kind_of(value) != XN_JSON_INTEGER || xn_json_integer(value) < least)
        return xn_json_fail(name, value, takes, error);
    *out = (uint64_t)xn_json_integer(value);
    return XN_OK;
}

static xn_status parse_shm(const xn_json *root, xn_shm_request *out, xn_error *error) {
    static const char *const names[] = {"key", "offset", "byte_size", NULL};
    const xn_json *members[3] = {NULL, NULL, NULL};
    xn_shm_request request = {.offset = 0};
    xn_status status = root ? xn_oip_members(root, "", names, members, error) : XN_OK;
    if (!status)
        status = read_key(members[0], &request, error);
    if (!status)
        status = read_size(members[1], "offset", 0, &request.offset, error);
    if (!status)
        status = read_size(members[2], "byte_size", 1, &request.byte_size, error);
    if (!status && request.offset > (uint64_t)INT64_MAX - request.byte_size)
        status =
            xn_fail(error, XN_ERR_MALFORMED, "offset",
                    "offset %" PRIu64 " and byte_size %" PRIu64 " are together more than %" PRId64,
                    request.offset, request.byte_size, INT64_MAX);
    if (!status)
        *out = request;
    return status;
}

xn_status xn_oip_parse_shm(const void *body, size_t length, xn_shm_request *out, xn_error *error) {
    xn_json_scan scan = {0};
    const xn_json *root;
    xn_status status = parse_body(body, length, XN_TAKE_NOTHING, &scan, &root, error);
    if (!status)
        status = parse_shm(root, out, error);
    xn_json_scan_free(&scan);
    return status;
}
