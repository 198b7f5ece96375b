/* oip.c: requests, other bodies and answers of the Open Inference Protocol. */
#include "fuzz.h"
#include "xn_json_tree.h"
#include "xn_mem.h"
#include "xn_oip.h"

#include <stdlib.h>
#include <string.h>

/* The first line as text; *data and *size become the rest. free() it. */
static char *first_line(const uint8_t **data, size_t *size) {
    const uint8_t *end = *size ? memchr(*data, '\n', *size) : NULL;
    const size_t length = end ? (size_t)(end - *data) : *size, all = end ? length + 1 : length;
    char *line = xf_text(*data, length);
    *data += all;
    *size -= all;
    return line;
}

/* In memory of its own and exactly that size. */
static void *copy_of(const uint8_t *data, size_t size) {
    void *bytes = xf_alloc(size);
    if (size)
        memcpy(bytes, data, size);
    return bytes;
}

static void check_refusal(xn_status status, const xn_error *error) {
    char text[2048];
    xf_check_error(status, error);
    size_t length = xn_oip_write_error(error->message, text, sizeof text);
    xf_require(length > 2 && length < sizeof text && !text[length], "error text");
}

/* ---- requests ---- */

static void check_shared(const xn_oip_shared *shared) {
    if (!shared->present)
        return;
    const size_t length = strnlen(shared->region, XN_OIP_MAX_REGION + 1);
    xf_require(length > 0 && length <= XN_OIP_MAX_REGION, "a region's name");
    xf_require(shared->bytes > 0 && shared->offset <= INT64_MAX && shared->bytes <= INT64_MAX,
               "a region's part");
}

static void check_name(const char *name) {
    const size_t length = strnlen(name, XN_OIP_MAX_NAME + 1);
    xf_require(length > 0 && length <= XN_OIP_MAX_NAME, "a tensor's name");
}

/* Returns the bytes behind the header that it takes. */
static size_t check_input(const xn_oip_input *input, const xn_proto_body *body) {
    const xn_tensor_ref *ref = &input->tensor;
    check_name(input->name);
    check_shared(&input->shared);
    xf_require(ref->present && !input->raw, "no tensor");
    if (!input->shared.present) {
        xf_check_tensor(ref, input->name, body);
        return ref->data ? ref->bytes : 0;
    }
    xf_require(!ref->data && !ref->text && input->shared.bytes == ref->bytes, "shared values");
    return 0;
}

static void check_request(const xn_infer_request *request, const xn_proto_body *body) {
    size_t taken = 0;
    xf_require(request->input_count >= 1 && request->input_count <= XN_OIP_MAX_INPUTS, "inputs");
    xf_require(request->output_count >= 0 && request->output_count <= XN_OIP_MAX_OUTPUTS,
               "outputs");
    xf_require(!request->id[0] || xn_proto_id_valid(request->id), "id");
    xf_require(request->timeout_us == -1 || request->timeout_us >= 1, "timeout");
    xf_require(request->timeout_us <= INT64_MAX / 1000, "nanoseconds of timeout");
    xf_require(request->timeout_ms == -1 || request->timeout_ms >= 1, "timeout_ms");
    if (request->inputs[0].raw) {
        const xn_tensor_ref *ref = &request->inputs[0].tensor;
        xf_require(ref->data == body->bytes && ref->bytes == body->length, "a raw body");
        return;
    }
    for (int i = 0; i < request->input_count; i++)
        taken += check_input(&request->inputs[i], body);
    const size_t header = body->has_header_length ? body->header_length : body->length;
    xf_require(taken == body->length - header, "bytes of no input, or of two");
    for (int i = 0; i < request->output_count; i++) {
        check_name(request->outputs[i].name);
        check_shared(&request->outputs[i].shared);
        xf_require(request->outputs[i].classification >= 0, "classification");
    }
}

/* A block of exactly the size. */
static xn_status take_once(void *context, size_t bytes, void **out, xn_error *error) {
    void **block = context;
    (void)error;
    xf_require(!*block, "memory is taken twice");
    *out = *block = xf_alloc(bytes);
    return XN_OK;
}

void xf_oip(const uint8_t *data, size_t size) {
    static const xn_proto_limits limits = {XF_MAX_ELEMENTS};
    char *line = first_line(&data, &size);
    const xn_proto_body body = {.form = XN_FORM_OIP_BINARY,
                                .bytes = copy_of(data, size),
                                .length = size,
                                .has_header_length = line[0] != 0,
                                .header_length = strtoul(line, NULL, 10)};
    void *block = NULL;
    const xn_oip_memory memory = {take_once, &block};
    xn_infer_request request;
    xn_error error = {.status = XN_OK};
    xn_status status = xn_oip_parse_infer(&body, &limits, &memory, &request, &error);
    if (status)
        check_refusal(status, &error);
    else
        check_request(&request, &body);
    free(block);
    free((void *)(uintptr_t)body.bytes);
    free(line);
}

/* ---- other bodies ---- */

static xn_status run_base64(const char *text, size_t length, xn_error *error) {
    void *bytes = NULL;
    size_t size = 0;
    xn_status status = xn_base64_decode(text, length, &bytes, &size, error);
    xf_require(status || size <= length / 4 * 3, "more bytes than there were");
    xn_mem_free(bytes);
    return status;
}

static xn_status run_load(const char *text, size_t length, xn_error *error) {
    xn_load_request request;
    xn_status status = xn_oip_parse_load(text, length, &request, error);
    if (status)
        return status;
    xf_require(!request.config || strlen(request.config) == request.config_length, "config");
    xf_require(request.file_count >= 0 && request.file_count <= XN_OIP_MAX_FILES, "files");
    for (int i = 0; i < request.file_count; i++) {
        const char *path = request.files[i].path;
        xn_error ignored;
        xf_require(path[0] && path[0] != '/' && !strstr(path, "//"), "an absolute path");
        xf_require(strcmp(path, "..") != 0 && strncmp(path, "../", 3) != 0 && !strstr(path, "/../"),
                   "a path that leads out");
        (void)run_base64(request.files[i].base64, request.files[i].length, &ignored);
    }
    xn_load_request_free(&request);
    return XN_OK;
}

static xn_status run_shm(const char *text, size_t length, xn_error *error) {
    xn_shm_request request;
    xn_status status = xn_oip_parse_shm(text, length, &request, error);
    if (status)
        return status;
    xf_require(memchr(request.key, 0, sizeof request.key) != NULL, "a key without an end");
    xf_require(request.key[0] == '/' && request.key[1] && !strchr(request.key + 1, '/'), "a key");
    xf_require(request.byte_size > 0, "no bytes");
    xf_require(request.offset <= INT64_MAX - request.byte_size, "an end that overflows");
    return XN_OK;
}

/* "load\n", "index\n", "unload\n", "shm\n" or "base64\n", and the body. */
void xf_oip_bodies(const uint8_t *data, size_t size) {
    char *line = first_line(&data, &size), *text = copy_of(data, size);
    bool ready;
    xn_error error = {.status = XN_OK};
    xn_status status = XN_OK;
    switch (line[0]) {
    case 'i':
        status = xn_oip_parse_index(text, size, &ready, &error);
        break;
    case 'u':
        status = xn_oip_parse_unload(text, size, &error);
        break;
    case 's':
        status = run_shm(text, size, &error);
        break;
    case 'b':
        status = run_base64(text, size, &error);
        break;
    default:
        status = run_load(text, size, &error);
    }
    if (status)
        check_refusal(status, &error);
    free(text);
    free(line);
}

/* ---- answers ---- */

#define MOST_RESULTS 4
#define MOST_VALUES 24
#define MOST_WORD 300

/* Takes values from the input; zeroes past its end. */
static void take(const uint8_t **data, size_t *size, void *out, size_t bytes) {
    const size_t there = bytes < *size ? bytes : *size;
    memset(out, 0, bytes);
    memcpy(out, *data, there);
    *data += there;
    *size -= there;
}

static uint8_t take_byte(const uint8_t **data, size_t *size) {
    uint8_t byte;
    take(data, size, &byte, 1);
    return byte;
}

typedef struct sample {
    xn_oip_answer answer;
    xn_oip_result results[MOST_RESULTS];
    xn_oip_shared shared[MOST_RESULTS];
    char *words[4 + 2 * MOST_RESULTS];
    const char *labels[3];
    int32_t values[MOST_RESULTS][MOST_VALUES];
} sample;

static void take_result(const uint8_t **data, size_t *size, sample *s, int i) {
    static const xn_datatype datatypes[] = {XN_FP32, XN_FP16, XN_INT32};
    const uint8_t flags = take_byte(data, size);
    const int64_t rows = 1 + take_byte(data, size) % 4, classes = 1 + take_byte(data, size) % 6;
    s->results[i] = (xn_oip_result){.name = s->words[4 + i],
                                    .datatype = datatypes[flags % 3],
                                    .shape = {2, {rows, classes}},
                                    .values = s->values[i],
                                    .binary = flags & 4,
                                    .classification = flags & 8 ? flags >> 5 : 0};
    xn_oip_result *r = &s->results[i];
    r->bytes = (size_t)(rows * classes) * xn_datatype_bytes(r->datatype);
    if (flags & 16) {
        r->labels = s->labels;
        r->label_count = 3;
        r->longest_label = MOST_WORD;
    }
    if (take_byte(data, size) % 4 == 3) {
        take(data, size, &s->shared[i].offset, sizeof s->shared[i].offset);
        s->shared[i].region = "region";
        r->shared = &s->shared[i];
    }
    take(data, size, s->values[i], sizeof s->values[i]);
}

static void take_sample(const uint8_t **data, size_t *size, sample *s) {
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < sizeof s->words / sizeof *s->words; i++) {
        s->words[i] = first_line(data, size);
        if (strlen(s->words[i]) > MOST_WORD)
            s->words[i][MOST_WORD] = 0;
    }
    for (int i = 0; i < 3; i++)
        s->labels[i] = s->words[4 + MOST_RESULTS + i];
    s->answer = (xn_oip_answer){.id = s->words[0],
                                .model_name = s->words[1],
                                .model_version = s->words[2],
                                .backend = s->words[3],
                                .result_count = take_byte(data, size) % (MOST_RESULTS + 1),
                                .results = s->results};
    take(data, size, &s->answer.timing, sizeof s->answer.timing);
    for (int i = 0; i < s->answer.result_count; i++)
        take_result(data, size, s, i);
    if (s->answer.result_count) { /* the last one's values may be sent from where they are */
        xn_oip_result *last = &s->results[s->answer.result_count - 1];
        last->apart =
            last->binary && !last->classification && !last->shared && take_byte(data, size) % 2;
    }
}

static int64_t size_of(const xn_json *output) {
    const xn_json *parameters = xn_json_member(output, "parameters");
    const xn_json *size = parameters ? xn_json_member(parameters, "binary_data_size") : NULL;
    return size ? xn_json_integer(size) : 0;
}

/* Name, datatype and shape of a result; *behind goes past the bytes that it says it has, which are
 * its values where it lists no classes. */
static void check_result(const xn_oip_result *r, const xn_json *output, const char **behind) {
    const bool classes = r->classification && !r->shared;
    const char *datatype = classes ? "BYTES" : xn_datatype_name(r->datatype);
    const int64_t bytes = size_of(output);
    const xn_json *shape = xn_json_member(output, "shape");
    xf_require(xn_json_member(output, "name") != NULL, "no name");
    xf_require(!strcmp(xn_json_string(xn_json_member(output, "datatype")), datatype), "datatype");
    xf_require(xn_json_integer(xn_json_element(shape, 0)) == r->shape.dims[0], "rows");
    xf_require((bytes > 0) == (r->binary && !r->shared), "binary");
    xf_require((xn_json_member(output, "data") != NULL) == (!r->binary && !r->shared), "data");
    if (!bytes || r->apart)
        return;
    xf_require(classes || (bytes == (int64_t)r->bytes && !memcmp(*behind, r->values, r->bytes)),
               "other values");
    *behind += bytes;
}

/* The header is JSON and says what follows, and nothing else does. */
static void check_answer(const sample *s, const char *text, size_t length, size_t header) {
    static const xn_json_limits limits = {1 << 20, 1 << 20, "", "", 0};
    const size_t json = header ? header : length;
    const char *behind = text + json;
    xn_json_scan scan = {0};
    const xn_json *root = NULL;
    xn_error error;
    xf_require(!xn_json_scan_limited(text, json, XN_TAKE_NOTHING, &limits, &scan, &error),
               "the scanner refuses it");
    xf_require(!xn_json_parse(&scan, "an answer", &root, &error), "it is no JSON");
    xf_require((xn_json_member(root, "id") != NULL) == (s->answer.id[0] != 0), "id");
    xf_require(header % 8 == 0, "values that are not aligned");
    const xn_json *outputs = xn_json_member(root, "outputs");
    xf_require(xn_json_count(outputs) == (size_t)s->answer.result_count, "outputs");
    for (int i = 0; i < s->answer.result_count; i++)
        check_result(&s->results[i], xn_json_element(outputs, (size_t)i), &behind);
    xf_require(behind == text + length, "the bytes behind the header");
    xn_json_scan_free(&scan);
}

void xf_oip_answer(const uint8_t *data, size_t size) {
    sample *s = xf_alloc(sizeof *s);
    size_t bound = 0, header = 0;
    take_sample(&data, &size, s);
    xf_require(xn_oip_answer_bound(&s->answer, &bound), "bound");
    char *text = xf_alloc(bound);
    const size_t length = xn_oip_answer_write(&s->answer, text, &header);
    xf_require(length > 0 && length <= bound && header <= length, "longer than its bound");
    check_answer(s, text, length, header);
    free(text);
    for (size_t i = 0; i < sizeof s->words / sizeof *s->words; i++)
        free(s->words[i]);
    free(s);
}
