/* model.c: sequences of PUT, DELETE, GET and conv and what the registered names must be after each;
 * see model.h. The convolutions: model_conv.c. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_STEPS = 14 };

bool xt_chance(xt_model *model, unsigned of) {
    return xn_rng_below(&model->rng, of) == 0;
}

int64_t xt_between(xt_model *model, int64_t low, int64_t high) {
    return low + (int64_t)xn_rng_below(&model->rng, (uint64_t)(high - low + 1));
}

const char *xt_any_datatype(xt_model *model) {
    static const char *const names[] = {"FP32", "FP32", "FP32", "FP32", "FP16", "FP16", "BF16",
                                        "BF16", "INT8", "INT8", "BOOL", "BOOL", "UINT8"};
    return names[xn_rng_below(&model->rng, sizeof names / sizeof *names)];
}

xt_tensor xt_copy_tensor(const xt_tensor *tensor) {
    xt_tensor copy = *tensor;
    if (!tensor->datatype)
        return copy;
    size_t values = (size_t)tensor->count * sizeof *tensor->values;
    copy.raw = malloc(tensor->bytes);
    copy.values = malloc(values);
    if (!copy.raw || !copy.values)
        abort();
    memcpy(copy.raw, tensor->raw, tensor->bytes);
    memcpy(copy.values, tensor->values, values);
    return copy;
}

void xt_forget(xt_entry *entry) {
    xt_tensor_free(&entry->weights);
    xt_tensor_free(&entry->scale);
    xt_tensor_free(&entry->bias);
    memset(entry->requests, 0, sizeof entry->requests);
}

void xt_refuse(xt_model *model, int status, const char *field) {
    if (model->refusal_count == XT_MODEL_REFUSALS)
        abort();
    xt_refusal *refusal = &model->refusals[model->refusal_count++];
    refusal->status = status;
    snprintf(refusal->field, sizeof refusal->field, "%s", field);
}

bool xt_wrong(xt_model *model, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = snprintf(model->error, sizeof model->error, "%s: ", model->what);
    if (length >= 0 && (size_t)length < sizeof model->error)
        vsnprintf(model->error + length, sizeof model->error - (size_t)length, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- exchanges ---- */

bool xt_exchange(xt_model *model, const char *method, const char *target, const xt_message *message,
                 xt_response *response) {
    static const char nothing[1];
    const char *headers = message ? message->headers.data : "";
    const char *body = message ? message->body.data ? message->body.data : nothing : NULL;
    size_t length = message ? message->body.length : 0;
    *response = (xt_response){0};
    if (model->conn.fd < 0 && !xt_connect(&model->conn, model->daemon))
        return xt_wrong(model, "cannot connect");
    xt_result result = xt_request(&model->conn, method, target, headers, body, length, response);
    if (result != XT_GOT)
        return xt_wrong(model, "got %s%s", xt_result_name(result),
                        xt_daemon_alive(model->daemon) ? "" : "; the daemon has ended");
    if (response->close)
        xt_disconnect(&model->conn);
    return true;
}

bool xt_is_refused(xt_model *model, const xt_response *response) {
    char expected[512] = "";
    const char *body = response->body ? response->body : "";
    char *field = xt_json_string(body, "error.field");
    bool found = false;
    for (int i = 0; i < model->refusal_count; i++) {
        const xt_refusal *r = &model->refusals[i];
        found =
            found || (r->status == response->status && field && strstr(field, r->field) != NULL);
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, " %d (%s)", r->status, r->field);
    }
    free(field);
    model->played[1] += found;
    return found || xt_wrong(model, "status %d, expected%s: %s", response->status, expected, body);
}

/* ---- PUT ---- */

static const xt_form forms[] = {XT_JSON, XT_OIP, XT_SAFETENSORS};

static void random_affine(xt_model *model, int64_t channels, xt_tensor *out) {
    if (xt_chance(model, 2))
        *out = xt_tensor_random(&model->rng, xt_any_datatype(model), 1, &channels);
}

/* New tensors, or some of those the name has. */
static void choose_tensors(xt_model *model, const xt_entry *old, xt_problem *p) {
    bool keep = old->weights.datatype && xt_chance(model, 3);
    if (keep) {
        p->weights = xt_copy_tensor(&old->weights);
    } else {
        const int64_t dims[4] = {xt_between(model, 1, 6), xt_between(model, 1, 5),
                                 xt_between(model, 1, 3), xt_between(model, 1, 3)};
        const int64_t wide[4] = {dims[0], xt_chance(model, 8) ? 33 : dims[1], dims[2], dims[3]};
        p->weights = xt_tensor_random(&model->rng, xt_any_datatype(model), 4, wide);
    }
    if (keep && xt_chance(model, 2)) { /* the same content */
        p->scale = xt_copy_tensor(&old->scale);
        p->bias = xt_copy_tensor(&old->bias);
        return;
    }
    random_affine(model, p->weights.dims[0], &p->scale);
    random_affine(model, p->weights.dims[0], &p->bias);
}

/* Sometimes something that must not be registered. */
static const char *break_put(xt_model *model, xt_problem *p) {
    const int64_t channels = p->weights.dims[0];
    const int64_t too_many = channels + 1, square[2] = {1, channels};
    if (!xt_chance(model, 6))
        return "";
    switch (xn_rng_below(&model->rng, 5)) {
    case 0:
        xt_tensor_free(&p->weights);
        xt_refuse(model, 400, "weights");
        return "";
    case 1:
        xt_tensor_free(&p->scale);
        p->scale = xt_tensor_random(&model->rng, "FP32", 1, &too_many);
        xt_refuse(model, 422, "scale.shape");
        return "";
    case 2:
        xt_tensor_free(&p->bias);
        p->bias = xt_tensor_random(&model->rng, "FP16", 2, square);
        xt_refuse(model, 422, "bias.shape");
        return "";
    case 3:
        p->weights.dims[1] *= p->weights.dims[3];
        p->weights.rank = 3;
        xt_refuse(model, 422, "weights.shape");
        return "";
    default:
        xt_refuse(model, 400, "query");
        return "?stride=1";
    }
}

/* That the text describes what the name stands for. */
static bool describes(xt_model *model, const char *text, const xt_entry *e, const char *name) {
    char shape[96];
    const int64_t *d = e->weights.dims;
    snprintf(shape, sizeof shape, "[%lld, %lld, %lld, %lld]", (long long)d[0], (long long)d[1],
             (long long)d[2], (long long)d[3]);
    const char *has = xt_json_at(text, "shape"), *scale = xt_json_at(text, "scale");
    const char *bias = xt_json_at(text, "bias");
    double requests = xt_json_number(text, "requests");
    if (xt_json_valid(text) && xt_json_is(text, "name", name) &&
        xt_json_is(text, "datatype", e->weights.datatype) && has &&
        !strncmp(has, shape, strlen(shape)) && scale &&
        (*scale == 't') == (e->scale.datatype != NULL) && bias &&
        (*bias == 't') == (e->bias.datatype != NULL) && requests >= (double)e->requests[0] &&
        requests <= (double)e->requests[1])
        return true;
    return xt_wrong(model, "expected shape %s, %s, %lld to %lld requests: %s", shape,
                    e->weights.datatype, (long long)e->requests[0], (long long)e->requests[1],
                    text);
}

static bool accept_put(xt_model *model, xt_entry *entry, xt_problem *p,
                       const xt_response *response) {
    int status = entry->weights.datatype ? 200 : 201;
    if (model->refusal_count)
        return xt_is_refused(model, response);
    if (response->status != status)
        return xt_wrong(model, "status %d, expected %d: %s", response->status, status,
                        response->body);
    xt_forget(entry);
    entry->weights = p->weights;
    entry->scale = p->scale;
    entry->bias = p->bias;
    memset(p, 0, sizeof *p);
    model->played[0]++;
    return describes(model, response->body, entry, entry->name);
}

static bool play_put(xt_model *model, xt_entry *entry) {
    xt_problem p = {0};
    xt_message message;
    xt_response response;
    char target[96];
    xt_form form = forms[xn_rng_below(&model->rng, XT_FORMS)];
    choose_tensors(model, entry, &p);
    snprintf(target, sizeof target, "/weights/%s%s", entry->name, break_put(model, &p));
    snprintf(model->what, sizeof model->what, "PUT %s, %s, weights %s, scale %s, bias %s", target,
             xt_form_type(form), p.weights.datatype ? p.weights.datatype : "none",
             p.scale.datatype ? p.scale.datatype : "none",
             p.bias.datatype ? p.bias.datatype : "none");
    xt_encode_weights(&p, form, &message);
    bool ok = xt_exchange(model, "PUT", target, &message, &response);
    if (ok) {
        ok = accept_put(model, entry, &p, &response);
        xt_response_free(&response);
    }
    xt_message_free(&message);
    xt_problem_free(&p);
    return ok;
}

/* ---- DELETE, GET ---- */

static bool play_delete(xt_model *model, xt_entry *entry) {
    xt_response response;
    char target[64];
    snprintf(target, sizeof target, "/weights/%s", entry->name);
    snprintf(model->what, sizeof model->what, "DELETE %s", target);
    if (!xt_exchange(model, "DELETE", target, NULL, &response))
        return false;
    int status = entry->weights.datatype ? 204 : 404;
    bool ok = response.status == status ||
              xt_wrong(model, "status %d, expected %d", response.status, status);
    xt_response_free(&response);
    if (ok)
        xt_forget(entry);
    return ok;
}

static bool play_get(xt_model *model, xt_entry *entry) {
    xt_response response;
    char target[64];
    snprintf(target, sizeof target, "/weights/%s", entry->name);
    snprintf(model->what, sizeof model->what, "GET %s", target);
    if (!xt_exchange(model, "GET", target, NULL, &response))
        return false;
    int status = entry->weights.datatype ? 200 : 404;
    bool ok = response.status == status ||
              xt_wrong(model, "status %d, expected %d", response.status, status);
    if (ok && status == 200)
        ok = describes(model, response.body, entry, entry->name);
    xt_response_free(&response);
    return ok;
}

/* Each name once where it is registered, and in order. */
static bool play_list(xt_model *model) {
    xt_response response;
    snprintf(model->what, sizeof model->what, "GET /weights");
    if (!xt_exchange(model, "GET", "/weights", NULL, &response))
        return false;
    bool ok = response.status == 200 && xt_json_valid(response.body);
    const char *last = response.body;
    size_t listed = 0;
    for (int i = 0; ok && i < XT_MODEL_NAMES; i++) {
        char text[64];
        const xt_entry *entry = &model->entries[i];
        snprintf(text, sizeof text, "\"name\": \"%s\"", entry->name);
        const char *at = strstr(response.body, text);
        ok = (at != NULL) == (entry->weights.datatype != NULL) && (!at || at >= last);
        last = at ? at : last;
        listed += at != NULL;
    }
    for (const char *at = response.body; ok && !model->crowd && *at; at++)
        listed -= !strncmp(at, "\"name\": ", 8);
    ok = ok && (model->crowd || !listed);
    if (!ok)
        xt_wrong(model, "status %d, not the names there are: %s", response.status,
                 response.body ? response.body : "");
    xt_response_free(&response);
    return ok;
}

/* ---- sequences ---- */

static bool step(xt_model *model) {
    xt_entry *entry = &model->entries[xn_rng_below(&model->rng, XT_MODEL_NAMES)];
    model->refusal_count = 0;
    switch (xn_rng_below(&model->rng, 12)) {
    case 0:
    case 1:
    case 2:
        return play_put(model, entry);
    case 3:
        return play_delete(model, entry);
    case 4:
        return xt_chance(model, 2) ? play_list(model) : play_get(model, entry);
    default:
        return xt_model_conv(model);
    }
}

bool xt_model_play(xt_model *model, uint64_t seed, const char *prefix) {
    bool ok = true;
    model->rng = (xn_rng){seed};
    model->conn = (xt_conn){.fd = -1};
    for (int i = 0; i < XT_MODEL_NAMES; i++)
        snprintf(model->entries[i].name, sizeof model->entries[i].name, "%s%c", prefix, 'a' + i);
    int64_t steps = xt_between(model, 4, MOST_STEPS);
    for (int64_t i = 0; ok && i < steps; i++)
        ok = step(model);
    for (int i = 0; i < XT_MODEL_NAMES; i++) {
        if (ok && model->entries[i].weights.datatype)
            ok = play_delete(model, &model->entries[i]);
        xt_forget(&model->entries[i]);
    }
    xt_disconnect(&model->conn);
    return ok;
}
