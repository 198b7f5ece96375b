/* answer.c: answers of /conv in all forms, read by hand and held against the oracle, and the
 * checks of refusals. */
#include "wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const xt_stage_names[XT_STAGES] = {"receive",  "decode", "queue", "upload", "compute",
                                               "download", "encode", "other", "total"};

static bool wrong(char *error, size_t size, const char *what, const char *text) {
    snprintf(error, size, "%s: %.300s", what, text);
    return false;
}

void xt_answer_free(xt_answer *answer) {
    free(answer->values);
    *answer = (xt_answer){0};
}

/* ---- the parts all forms share ---- */

static bool copy_string(const char *text, const char *path, char *out, size_t size) {
    char *value = xt_json_string(text, path);
    bool ok = value && strlen(value) < size;
    if (ok)
        strcpy(out, value);
    free(value);
    return ok;
}

static bool read_shape(const char *text, const char *path, xt_answer *answer) {
    const char *at = xt_json_at(text, path);
    if (!at || *at++ != '[')
        return false;
    answer->count = 1;
    for (int i = 0; i < 4; i++) {
        char *end;
        answer->shape[i] = strtoll(at, &end, 10);
        if (end == at || answer->shape[i] < 1 || answer->shape[i] > 1 << 24)
            return false;
        answer->count *= answer->shape[i];
        at = end + strspn(end, " ");
        if (*at++ != (i < 3 ? ',' : ']'))
            return false;
    }
    return answer->count < 1 << 28;
}

static bool read_timing(const char *timing, xt_answer *answer) {
    for (int i = 0; timing && i < XT_STAGES; i++) {
        answer->timing_us[i] = xt_json_number(timing, xt_stage_names[i]);
        if (isnan(answer->timing_us[i]))
            return false;
    }
    return timing != NULL;
}

static bool read_names(const char *text, xt_answer *answer) {
    return copy_string(text, "id", answer->id, sizeof answer->id) &&
           copy_string(text, "backend", answer->backend, sizeof answer->backend) &&
           copy_string(text, "precision", answer->precision, sizeof answer->precision) &&
           (answer->cached
                ? !answer->batch_requests && !answer->batch_images
                : answer->batch_requests >= 1 && answer->batch_images >= answer->batch_requests);
}

/* id, backend, precision, batch and timing of the JSON forms. */
static bool read_common(const char *text, xt_answer *answer) {
    answer->batch_requests = xt_json_number(text, "batch.requests");
    answer->batch_images = xt_json_number(text, "batch.images");
    const char *cached = xt_json_at(text, "cached");
    answer->cached = cached && !strncmp(cached, "true", 4);
    return read_timing(xt_json_at(text, "timing"), answer) && read_names(text, answer);
}

/* ---- values ---- */

/* Signs, packed by pixel; spare bits must be 0. */
static bool read_bits(xt_answer *answer, const unsigned char *bytes, size_t length) {
    const int64_t channels = answer->shape[1], plane = answer->shape[2] * answer->shape[3];
    const int64_t pixel = (channels + 7) / 8;
    if (length != (size_t)(answer->shape[0] * plane * pixel))
        return false;
    for (size_t i = 0; channels % 8 && i < length / (size_t)pixel; i++)
        if (bytes[(i + 1) * (size_t)pixel - 1] >> channels % 8)
            return false;
    answer->values = calloc((size_t)answer->count, sizeof *answer->values);
    for (int64_t i = 0; answer->values && i < answer->count; i++) {
        const int64_t n = i / (channels * plane), c = i / plane % channels, at = i % plane;
        answer->values[i] = bytes[(n * plane + at) * pixel + c / 8] >> c % 8 & 1 ? 1 : -1;
    }
    return answer->values != NULL;
}

static bool read_bytes(xt_answer *answer, const unsigned char *bytes, size_t length) {
    if (!strcmp(answer->datatype, "BITS"))
        return read_bits(answer, bytes, length);
    size_t size = xt_datatype_bytes(answer->datatype);
    if (length != (size_t)answer->count * size)
        return false;
    answer->values = calloc((size_t)answer->count, sizeof *answer->values);
    for (int64_t i = 0; answer->values && i < answer->count; i++) {
        uint32_t bits = 0;
        for (size_t b = 0; b < size; b++)
            bits |= (uint32_t)bytes[(size_t)i * size + b] << 8 * b;
        float single;
        memcpy(&single, &bits, 4);
        if (!strcmp(answer->datatype, "INT32"))
            answer->values[i] = (int32_t)bits;
        else if (!strcmp(answer->datatype, "FP16"))
            answer->values[i] = xt_half_value((uint16_t)bits);
        else
            answer->values[i] = (double)single;
    }
    return answer->values != NULL;
}

/* The flat array; each number must read back as a float exactly when it is one. */
static bool read_numbers(xt_answer *answer, const char *text) {
    const char *at = xt_json_at(text, "output.data");
    if (!at || *at++ != '[')
        return false;
    answer->values = calloc((size_t)answer->count, sizeof *answer->values);
    for (int64_t i = 0; answer->values && i < answer->count; i++) {
        char *end;
        at += strspn(at, " \n");
        if (!strncmp(at, "null", 4)) {
            answer->values[i] = NAN;
            at += 4;
        } else {
            bool integer = !strcmp(answer->datatype, "INT32");
            answer->values[i] = integer ? strtod(at, &end) : (double)strtof(at, &end);
            if (end == at)
                return false;
            at = end;
        }
        at += strspn(at, " \n");
        if (*at++ != (i + 1 < answer->count ? ',' : ']'))
            return false;
    }
    return answer->values != NULL;
}

/* ---- forms ---- */

static bool read_json(const xt_response *r, xt_answer *answer, char *error, size_t size) {
    if (!xt_json_valid(r->body))
        return wrong(error, size, "not valid JSON", r->body);
    if (r->body[r->length - 1] != '\n')
        return wrong(error, size, "no newline at the end", r->body);
    if (!read_common(r->body, answer) || !read_shape(r->body, "output.shape", answer) ||
        !copy_string(r->body, "output.datatype", answer->datatype, sizeof answer->datatype))
        return wrong(error, size, "the answer lacks a field", r->body);
    return read_numbers(answer, r->body) || wrong(error, size, "its output.data", r->body);
}

static bool read_oip(const xt_response *r, xt_answer *answer, char *error, size_t size) {
    const char *text = XT_HEADER(r, "Inference-Header-Content-Length");
    size_t length = text ? strtoul(text, NULL, 10) : 0;
    if (!length || length > r->length)
        return wrong(error, size, "Inference-Header-Content-Length", text ? text : "is missing");
    char *json = strndup(r->body, length);
    bool ok = json && xt_json_valid(json) && read_common(json, answer) &&
              read_shape(json, "output.shape", answer) &&
              copy_string(json, "output.datatype", answer->datatype, sizeof answer->datatype) &&
              xt_json_number(json, "output.parameters.binary_data_size") ==
                  (double)(r->length - length) &&
              read_bytes(answer, (unsigned char *)r->body + length, r->length - length);
    if (!ok)
        wrong(error, size, "OIP binary header", json ? json : "");
    free(json);
    return ok;
}

static double metadata_number(const char *metadata, const char *key) {
    char text[32], *end;
    if (!copy_string(metadata, key, text, sizeof text))
        return NAN;
    double value = strtod(text, &end);
    return *text && !*end ? value : NAN;
}

/* A safetensors answer keeps the rest in __metadata__, whose values are strings: numbers as their
 * text, the timing as the text of a JSON object. */
static bool read_metadata(const char *header, xt_answer *answer) {
    const char *metadata = xt_json_at(header, "__metadata__");
    if (!metadata)
        return false;
    answer->batch_requests = metadata_number(metadata, "batch_requests");
    answer->batch_images = metadata_number(metadata, "batch_images");
    answer->cached = xt_json_is(metadata, "cached", "true");
    char *timing = xt_json_string(metadata, "timing");
    bool ok = timing && xt_json_valid(timing) && read_timing(timing, answer) &&
              read_names(metadata, answer);
    free(timing);
    return ok;
}

/* "[0,LENGTH]" at data_offsets. */
static bool offsets_are(const char *header, size_t length) {
    char expected[48];
    const char *at = xt_json_at(header, "output.data_offsets");
    snprintf(expected, sizeof expected, "[0,%zu]", length);
    for (const char *want = expected; at && *want; want++, at++) {
        at += strspn(at, " ");
        if (*at != *want)
            return false;
    }
    return at != NULL;
}

static bool output_dtype(const char *dtype, xt_answer *answer) {
    static const char *const names[][2] = {
        {"F32", "FP32"}, {"F16", "FP16"}, {"I32", "INT32"}, {"U8", "BITS"}};
    for (int i = 0; i < 4; i++) {
        if (strcmp(dtype, names[i][0]))
            continue;
        strcpy(answer->datatype, names[i][1]);
        return true;
    }
    return false;
}

/* A U8 is the bytes of BITS, whose channels stand in the metadata. */
static bool unpack_shape(const char *header, xt_answer *answer) {
    const char *metadata = xt_json_at(header, "__metadata__");
    const double channels = metadata ? metadata_number(metadata, "channels") : NAN;
    if (strcmp(answer->datatype, "BITS") != 0)
        return isnan(channels);
    int64_t *d = answer->shape;
    if (!(channels >= 1) || d[3] != ((int64_t)channels + 7) / 8)
        return false;
    memcpy(d, (int64_t[4]){d[0], (int64_t)channels, d[1], d[2]}, sizeof answer->shape);
    answer->count = d[0] * d[1] * d[2] * d[3];
    return true;
}

static bool read_file(const xt_response *r, xt_answer *answer, char *error, size_t size) {
    uint64_t length = 0;
    for (int i = 0; r->length >= 8 && i < 8; i++)
        length |= (uint64_t)(unsigned char)r->body[i] << 8 * i;
    if (!length || length > r->length - 8)
        return wrong(error, size, "safetensors", "its header length");
    size_t begin = 8 + (size_t)length, data = r->length - begin;
    char *json = strndup(r->body + 8, (size_t)length), dtype[8] = "";
    bool ok = json && xt_json_valid(json) && read_metadata(json, answer) &&
              read_shape(json, "output.shape", answer) && offsets_are(json, data) &&
              copy_string(json, "output.dtype", dtype, sizeof dtype) &&
              output_dtype(dtype, answer) && unpack_shape(json, answer);
    ok = ok && read_bytes(answer, (unsigned char *)r->body + begin, data);
    if (!ok)
        wrong(error, size, "safetensors header", json ? json : "");
    free(json);
    return ok;
}

/* The body is the values; the rest stands in header fields. */
static bool read_raw(const xt_response *r, xt_answer *answer, char *error, size_t size) {
    const char *shape = XT_HEADER(r, "Output-Shape"), *datatype = XT_HEADER(r, "Output-Datatype");
    const char *id = XT_HEADER(r, "X-Request-Id"), *timing = XT_HEADER(r, "Server-Timing");
    char rest = 0;
    long long d[4] = {0};
    if (!shape || !datatype || !id || !timing || strlen(datatype) >= sizeof answer->datatype ||
        sscanf(shape, "%lld,%lld,%lld,%lld%c", &d[0], &d[1], &d[2], &d[3], &rest) != 4)
        return wrong(error, size, "header fields of a raw answer", shape ? shape : "none");
    answer->count = 1;
    for (int i = 0; i < 4; i++)
        answer->count *= answer->shape[i] = d[i];
    snprintf(answer->datatype, sizeof answer->datatype, "%s", datatype);
    snprintf(answer->id, sizeof answer->id, "%s", id);
    return read_bytes(answer, (unsigned char *)r->body, r->length) ||
           wrong(error, size, "the bytes of a raw answer", shape);
}

bool xt_answer_read(const xt_response *response, xt_form form, xt_answer *answer, char *error,
                    size_t size) {
    *answer = (xt_answer){.json = form == XT_JSON};
    const char *type = XT_HEADER(response, "Content-Type");
    size_t length = strlen(xt_form_type(form));
    if (!type || strncmp(type, xt_form_type(form), length) || (type[length] && type[length] != ';'))
        return wrong(error, size, "Content-Type", type ? type : "is missing");
    if (form == XT_JSON)
        return read_json(response, answer, error, size);
    return form == XT_OIP   ? read_oip(response, answer, error, size)
           : form == XT_RAW ? read_raw(response, answer, error, size)
                            : read_file(response, answer, error, size);
}

/* ---- against the oracle ---- */

static bool same_special(double got, double want) {
    return isnan(want) ? isnan(got) : isinf(got) && signbit(got) == signbit(want);
}

bool xt_answer_matches(const xt_answer *answer, const xt_problem *problem, char *error,
                       size_t size) {
    const char *datatype = problem->what.output_datatype;
    datatype = datatype ? datatype : "FP32";
    if (strcmp(answer->datatype, datatype))
        return wrong(error, size, "output datatype", answer->datatype);
    if (memcmp(answer->shape, problem->shape, sizeof answer->shape)) {
        snprintf(error, size, "output shape [%lld, %lld, %lld, %lld]", (long long)answer->shape[0],
                 (long long)answer->shape[1], (long long)answer->shape[2],
                 (long long)answer->shape[3]);
        return false;
    }
    bool exact = !strcmp(datatype, "INT32");
    bool half = !strcmp(datatype, "FP16"), bits = !strcmp(datatype, "BITS");
    double relative = half ? 1e-5 + 1.0 / 2048 : 1e-5;
    const char *mode = problem->what.mode;
    /* raw does not tell; two operands, each rounded to 11 bits */
    if (strcmp(answer->precision, "fp32") && mode && strcmp(mode, "xnor"))
        relative += 1.0 / 1024;
    double least = half ? ldexp(1, -25) : 0;
    for (int64_t i = 0; i < problem->count; i++) {
        double want = problem->expected[i], got = answer->values[i];
        double slack = exact ? 0 : relative * problem->magnitude[i] + least;
        if (bits && fabs(want) <= slack) /* rounding may take it to either side */
            continue;
        if (bits)
            want = want >= 0 ? 1 : -1, slack = 0;
        if (!isfinite(want) && (answer->json ? isnan(got) : same_special(got, want)))
            continue;
        /* 65520 and more is infinite in binary16 */
        if (half && fabs(want) + slack >= 65520 && (answer->json ? isnan(got) : isinf(got)) &&
            (answer->json || (got > 0) == (want > 0)))
            continue;
        if (!(fabs(got - want) <= slack)) {
            snprintf(error, size, "output[%lld] is %.9g, expected %.9g (within %.3g)", (long long)i,
                     got, want, slack);
            return false;
        }
    }
    return true;
}

bool xt_response_matches(const xt_response *response, xt_form form, const xt_problem *problem,
                         const char *id, char *error, size_t size) {
    if (response->status != 200) {
        snprintf(error, size, "status %d: %.300s", response->status,
                 response->body ? response->body : "");
        return false;
    }
    xt_answer answer;
    bool ok = xt_answer_read(response, form, &answer, error, size);
    if (ok && id && strcmp(answer.id, id))
        ok = wrong(error, size, "another request's id", answer.id);
    ok = ok && xt_answer_matches(&answer, problem, error, size);
    xt_answer_free(&answer);
    return ok;
}

/* ---- refusals ---- */

/* The closed set: one code for each status. */
static const char *code_of(int status) {
    static const struct {
        int status;
        const char *code;
    } codes[] = {{400, "bad_request"},
                 {401, "unauthorized"},
                 {403, "forbidden"},
                 {404, "not_found"},
                 {405, "method_not_allowed"},
                 {406, "not_acceptable"},
                 {408, "request_timeout"},
                 {411, "length_required"},
                 {413, "too_large"},
                 {415, "unsupported_media_type"},
                 {417, "expectation_failed"},
                 {421, "misdirected_request"},
                 {422, "unprocessable"},
                 {429, "too_many_requests"},
                 {500, "internal"},
                 {501, "not_implemented"},
                 {503, "unavailable"},
                 {504, "deadline_exceeded"},
                 {414, "uri_too_long"},
                 {431, "header_too_large"},
                 {505, "version_not_supported"}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == status)
            return codes[i].code;
    return "none";
}

void xt_check_error(const xt_response *response, int status, const char *field,
                    const char *message_part, const char *what) {
    const char *body = response->body ? response->body : "";
    ck_assert_msg(response->status == status, "%s: status %d, expected %d: %s", what,
                  response->status, status, body);
    const char *type = XT_HEADER(response, "Content-Type");
    ck_assert_msg(type && !strncmp(type, "application/json", 16), "%s: Content-Type %s", what,
                  type ? type : "missing");
    ck_assert_msg(xt_json_valid(body), "%s: not JSON: %s", what, body);
    ck_assert_msg(response->length && body[response->length - 1] == '\n',
                  "%s: no newline at the end: %s", what, body);
    char *code = xt_json_string(body, "error.code");
    char *message = xt_json_string(body, "error.message");
    char *named = xt_json_string(body, "error.field");
    ck_assert_msg(code && !strcmp(code, code_of(status)), "%s: code is not %s: %s", what,
                  code_of(status), body);
    ck_assert_msg(message && *message, "%s: no message: %s", what, body);
    ck_assert_msg(!field || (named && strstr(named, field)), "%s: field is not %s: %s", what, field,
                  body);
    ck_assert_msg(!message_part || strstr(message, message_part), "%s: message lacks '%s': %s",
                  what, message_part, body);
    free(code);
    free(message);
    free(named);
}
