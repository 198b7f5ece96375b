/* model_conv.c: one random /conv: every field present or absent, any form, now and then something
 * that breaks a rule; and what must come of it. See model.h. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct asked {
    xt_case what;
    xt_problem sent; /* the tensors of the request; they are owned */
    xt_entry *entry; /* the name given, or NULL */
    xt_options options;
    xt_parameter parameters[XT_MODEL_PARAMETERS];
    xt_form form, answer;
    char id[32], header[96];
    const char *query; /* behind the target, "" for nothing */
    bool cut;          /* the body lacks its last byte */
    bool shapeless;    /* tensors are missing or of another rank: their sizes say nothing */
} asked;

/* ---- parameters ---- */

static void add(asked *a, const char *key, const char *json, const char *plain) {
    if (a->options.parameter_count == XT_MODEL_PARAMETERS)
        abort();
    xt_parameter *p = &a->parameters[a->options.parameter_count++];
    snprintf(p->key, sizeof p->key, "%s", key);
    snprintf(p->json, sizeof p->json, "%s", json);
    snprintf(p->plain, sizeof p->plain, "%s", plain);
}

static const char *add_word(asked *a, const char *key, const char *word) {
    char json[48];
    snprintf(json, sizeof json, "\"%s\"", word);
    add(a, key, json, word);
    return word;
}

static int64_t add_integer(asked *a, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    add(a, key, text, text);
    return value;
}

static void add_list(asked *a, const char *key, const int64_t *values, int count) {
    char json[96] = "[", plain[96] = "", one[24];
    for (int i = 0; i < count; i++) {
        snprintf(one, sizeof one, "%s%lld", i ? "," : "", (long long)values[i]);
        strcat(json, one);
        strcat(plain, one);
    }
    strcat(json, "]");
    add(a, key, json, plain);
}

/* As one number or as two. */
static void choose_pair(xt_model *model, asked *a, const char *key, int64_t most,
                        int64_t values[2]) {
    if (!xt_chance(model, 3))
        return;
    values[0] = values[1] = xt_between(model, 1, most);
    if (xt_chance(model, 2)) {
        add_integer(a, key, values[0]);
        return;
    }
    values[1] = xt_between(model, 1, most);
    add_list(a, key, values, 2);
}

static void choose_padding(xt_model *model, asked *a) {
    int64_t *p = a->what.padding;
    switch (xn_rng_below(&model->rng, 7)) {
    case 0:
        p[0] = p[1] = p[2] = p[3] = add_integer(a, "padding", xt_between(model, 0, 3));
        return;
    case 1:
        for (int i = 0; i < 4; i++)
            p[i] = i < 2 ? xt_between(model, 0, 3) : p[i - 2];
        add_list(a, "padding", p, 2);
        return;
    case 2:
        for (int i = 0; i < 4; i++)
            p[i] = xt_between(model, 0, 3);
        add_list(a, "padding", p, 4);
        return;
    case 3:
    case 4:
        a->what.padding_name = add_word(a, "padding", "same");
        return;
    case 5:
        a->what.padding_name = add_word(a, "padding", "valid");
        return;
    default:
        return;
    }
}

static const char *choose_word(xt_model *model, asked *a, const char *key,
                               const char *const words[3]) {
    return xt_chance(model, 2) ? add_word(a, key, words[xn_rng_below(&model->rng, 3)]) : NULL;
}

static void choose_backend(xt_model *model, asked *a) {
    static const char *const names[] = {"auto", "cpu", "cuda", "ref"};
    char served[16];
    if (!xt_chance(model, 6))
        return;
    a->options.backend = add_word(a, "backend", names[xn_rng_below(&model->rng, 4)]);
    snprintf(served, sizeof served, "\"id\": \"%s", a->options.backend);
    if (strcmp(a->options.backend, "auto") != 0 && !strstr(model->served, served))
        xt_refuse(model, 422, "backend");
}

static void choose_parameters(xt_model *model, asked *a) {
    static const char *const modes[] = {"xnor", "bwn", "float"};
    static const char *const scalings[] = {"xnor", "alpha", "none"};
    static const char *const precisions[] = {"fp32", "tf32", "fp16"};
    static const char *const outputs[] = {"FP32", "FP16", "INT32", "BITS"};
    xt_case *c = &a->what;
    choose_pair(model, a, "stride", 3, c->stride);
    choose_pair(model, a, "dilation", 2, c->dilation);
    choose_padding(model, a);
    c->mode = choose_word(model, a, "mode", modes);
    c->scaling = choose_word(model, a, "scaling", scalings);
    c->precision = choose_word(model, a, "precision", precisions);
    if (xt_chance(model, 4))
        c->output_datatype = add_word(a, "output_datatype", outputs[xn_rng_below(&model->rng, 4)]);
    if (xt_chance(model, 3))
        c->pad_value = (int)add_integer(a, "pad_value", xt_between(model, -1, 1));
    if (xt_chance(model, 4))
        add_integer(a, "timeout_ms", xt_between(model, 100000, 300000));
    if (c->groups > 1 || xt_chance(model, 4))
        add_integer(a, "groups", c->groups);
    choose_backend(model, a);
}

/* The request's name comes from the header, else from the parameter. */
static void choose_id(xt_model *model, asked *a) {
    if (xt_chance(model, 4)) {
        snprintf(a->id, sizeof a->id, "p-%llx", (unsigned long long)(model->rng.state >> 32));
        a->options.id = add_word(a, "id", a->id);
    }
    if (xt_chance(model, 4)) {
        snprintf(a->id, sizeof a->id, "h-%llx", (unsigned long long)(model->rng.state >> 32));
        snprintf(a->header, sizeof a->header, "X-Request-Id: %s\r\n", a->id);
        a->options.extra_headers = a->header;
        a->options.id = a->id;
    }
}

/* ---- tensors ---- */

/* Values that only bytes can bring. */
static void sprinkle(xt_model *model, const xt_tensor *tensor) {
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f};
    if (!tensor->datatype || strcmp(tensor->datatype, "FP32") != 0)
        return;
    for (int i = 0; i < 3; i++) {
        int64_t at = (int64_t)xn_rng_below(&model->rng, (uint64_t)tensor->count);
        float value = specials[xn_rng_below(&model->rng, 4)];
        tensor->values[at] = (double)value;
        memcpy(tensor->raw + 4 * at, &value, 4);
    }
}

static void choose_affine(xt_model *model, asked *a) {
    if (xt_chance(model, 3))
        a->sent.scale = xt_tensor_random(&model->rng, xt_any_datatype(model), 1, &a->what.o);
    if (xt_chance(model, 3))
        a->sent.bias = xt_tensor_random(&model->rng, xt_any_datatype(model), 1, &a->what.o);
    a->options.own_affine = true;
}

/* A name, registered or not, or inline weights; then an input that fits them but for a slip. */
static void choose_tensors(xt_model *model, asked *a) {
    xt_case *c = &a->what;
    int64_t dims[4] = {xt_between(model, 1, 6), xt_between(model, 1, 5), xt_between(model, 1, 3),
                       xt_between(model, 1, 3)};
    if (xt_chance(model, 10))
        dims[1] = xt_between(model, 31, 70);
    if (!xt_chance(model, 3)) {
        a->entry = &model->entries[xn_rng_below(&model->rng, XT_MODEL_NAMES)];
        a->options.weights_name = a->entry->name;
    }
    if (!a->entry)
        a->sent.weights = xt_tensor_random(&model->rng, xt_any_datatype(model), 4, dims);
    else if (a->entry->weights.datatype)
        memcpy(dims, a->entry->weights.dims, sizeof dims);
    else
        xt_refuse(model, 404, "weights");
    c->o = dims[0];
    c->kh = dims[2];
    c->kw = dims[3];
    c->groups = xt_chance(model, 3) ? xt_between(model, 1, 3) : 1;
    if (c->o % c->groups && !xt_chance(model, 8))
        c->groups = 1;
    c->c = dims[1] * c->groups + xt_chance(model, 40);
    c->n = xt_chance(model, 3) ? xt_between(model, 1, 3) : 1;
    c->h = xt_between(model, 1, 7);
    c->w = xt_chance(model, 8) ? xt_between(model, 30, 70) : xt_between(model, 1, 7);
    const int64_t input[4] = {c->n, c->c, c->h, c->w};
    const char *datatype = xt_chance(model, 6) ? "BITS" : xt_any_datatype(model);
    a->sent.input = xt_tensor_random(&model->rng, datatype, 4, input);
    choose_affine(model, a);
}

/* ---- forms ---- */

static bool is_bits(const xt_tensor *tensor) {
    return tensor->datatype && !strcmp(tensor->datatype, "BITS");
}

static void choose_forms(xt_model *model, asked *a) {
    const bool alone = a->entry && !a->sent.scale.datatype && !a->sent.bias.datatype;
    a->form = a->answer = (xt_form)xn_rng_below(&model->rng, XT_FORMS);
    if (alone && xt_chance(model, 3))
        a->form = a->answer = XT_RAW;
    a->options.nested = xt_chance(model, 2);
    a->options.in_file = xt_chance(model, 2);
    if (a->form == XT_OIP && xt_chance(model, 4))
        a->options.inline_data = (unsigned)xn_rng_below(&model->rng, 16);
    if (xt_chance(model, 3)) {
        a->answer = (xt_form)xn_rng_below(&model->rng, XT_FORMS);
        a->options.accept = xt_form_type(a->answer);
        if (a->form == XT_RAW && a->answer == XT_OIP) /* the same media type */
            a->answer = XT_RAW;
    } else if (xt_chance(model, 6)) {
        a->options.accept = "*/*";
    }
    if (is_bits(&a->sent.input) && (a->form == XT_JSON || (a->options.inline_data & 1)))
        xt_refuse(model, 400, "input.datatype");
    if (a->what.output_datatype && !strcmp(a->what.output_datatype, "BITS") && a->answer == XT_JSON)
        xt_refuse(model, 400, "output_datatype");
    if (a->form != XT_JSON && !a->options.inline_data && xt_chance(model, 10)) {
        sprinkle(model, &a->sent.input);
        sprinkle(model, &a->sent.weights);
        sprinkle(model, &a->sent.scale);
    }
}

/* ---- what breaks a rule ---- */

/* One parameter that no request may have. */
static const struct {
    const char *key, *json, *plain, *field;
} bad_parameters[] = {
    {"stride", "0", "0", "stride"},
    {"stride", "[1,2,3]", "1,2,3", "stride"},
    {"stride", "\"1\"", "one", "stride"},
    {"stride", "1.5", "1.5", "stride"},
    {"dilation", "[1,0]", "1,0", "dilation"},
    {"dilation", "2147483648", "2147483648", "dilation"},
    {"padding", "-1", "-1", "padding"},
    {"padding", "\"full\"", "full", "padding"},
    {"padding", "[1,1,1]", "1,1,1", "padding"},
    {"groups", "0", "0", "groups"},
    {"groups", "[1,1]", "1,1", "groups"},
    {"pad_value", "2", "2", "pad_value"},
    {"scaling", "\"beta\"", "beta", "scaling"},
    {"mode", "\"binary\"", "binary", "mode"},
    {"mode", "3", "3", "mode"},
    {"precision", "\"fp64\"", "fp64", "precision"},
    {"output_datatype", "\"FP64\"", "FP64", "output_datatype"},
    {"output_datatype", "\"INT8\"", "INT8", "output_datatype"},
    {"backend", "\"tpu\"", "tpu", "backend"},
    {"timeout_ms", "0", "0", "timeout_ms"},
    {"timeout_ms", "300001", "300001", "timeout_ms"},
    {"id", "\"\"", "", "id"},
    {"id", "7", "a\tb", "id"},
    {"strides", "1", "1", "strides"},
    {"", "1", "1", ""},
};

static void break_parameter(xt_model *model, asked *a) {
    size_t i = xn_rng_below(&model->rng, sizeof bad_parameters / sizeof *bad_parameters);
    const char *key = bad_parameters[i].key;
    bool text = a->form == XT_SAFETENSORS || a->form == XT_RAW;
    if (text && strchr(bad_parameters[i].plain, '\t'))
        return;
    for (int p = 0; p < a->options.parameter_count; p++)
        if (!strcmp(a->parameters[p].key, key))
            a->parameters[p] = a->parameters[--a->options.parameter_count];
    if (!strcmp(key, "id"))
        a->options.id = NULL;
    add(a, key, bad_parameters[i].json, bad_parameters[i].plain);
    xt_refuse(model, 400, bad_parameters[i].field);
}

static void break_affine(xt_model *model, asked *a) {
    const int64_t too_many = a->what.o + 1, square[2] = {1, a->what.o};
    if (xt_chance(model, 2)) {
        xt_tensor_free(&a->sent.scale);
        a->sent.scale = xt_tensor_random(&model->rng, "FP32", 1, &too_many);
        xt_refuse(model, 422, "scale.shape");
    } else {
        xt_tensor_free(&a->sent.bias);
        a->sent.bias = xt_tensor_random(&model->rng, "FP32", 2, square);
        xt_refuse(model, 422, "bias.shape");
    }
}

/* To three dimensions, of as many values. */
static void flatten(xt_tensor *tensor) {
    tensor->rank = 3;
    tensor->dims[2] *= tensor->dims[3];
}

static void give_both(xt_model *model, asked *a) {
    const int64_t dims[4] = {a->what.o, a->what.c / a->what.groups, a->what.kh, a->what.kw};
    if (!a->entry) {
        a->options.weights_name = model->entries[0].name;
    } else {
        a->sent.weights = xt_tensor_random(&model->rng, "FP32", 4, dims);
    }
    a->options.both = true;
    xt_refuse(model, 400, a->form == XT_SAFETENSORS ? "weights" : "");
}

static void break_tensors(xt_model *model, asked *a) {
    a->shapeless = true;
    switch (xn_rng_below(&model->rng, 6)) {
    case 0:
        xt_tensor_free(&a->sent.input);
        xt_refuse(model, 400, "input");
        return;
    case 1:
        xt_tensor_free(&a->sent.weights);
        a->options.weights_name = NULL;
        a->entry = NULL;
        xt_refuse(model, 400, "weights");
        return;
    case 2:
        if (is_bits(&a->sent.input))
            break;
        flatten(&a->sent.input);
        xt_refuse(model, 422, "input.shape");
        return;
    case 3:
        if (a->entry)
            break;
        flatten(&a->sent.weights);
        xt_refuse(model, 422, "weights.shape");
        return;
    case 4:
        give_both(model, a);
        return;
    default:
        xt_tensor_free(&a->sent.input);
        a->sent.input = xt_tensor_random(&model->rng, "INT32", 4,
                                         (const int64_t[4]){1, 1, a->what.h, a->what.w});
        xt_refuse(model, 400, "input.d"); /* datatype or dtype */
        return;
    }
    a->shapeless = false;
}

static void break_message(xt_model *model, asked *a) {
    int count = a->options.parameter_count;
    switch (xn_rng_below(&model->rng, 4)) {
    case 0:
        a->cut = true;
        xt_refuse(model, 400, "");
        return;
    case 1:
        a->options.accept = "text/html, application/json;q=0";
        xt_refuse(model, 406, "Accept");
        return;
    case 2:
        if (a->form == XT_SAFETENSORS || a->form == XT_RAW)
            return;
        a->query = "?stride=1";
        xt_refuse(model, 400, "stride");
        return;
    default:
        if (!count)
            return;
        a->parameters[a->options.parameter_count++] = a->parameters[count - 1];
        xt_refuse(model, 400, "");
        return;
    }
}

static void break_something(xt_model *model, asked *a) {
    switch (xn_rng_below(&model->rng, 24)) {
    case 0:
        break_parameter(model, a);
        return;
    case 1:
        if (a->form != XT_RAW)
            break_affine(model, a);
        return;
    case 2:
        if (a->form != XT_RAW)
            break_tensors(model, a);
        return;
    case 3:
        break_message(model, a);
        return;
    default:
        return;
    }
}

/* ---- the rules of the protocol about what fits together ---- */

static bool is(const char *word, const char *fallback, const char *value) {
    return !strcmp(word ? word : fallback, value);
}

static void check_shapes(xt_model *model, const asked *a, const xt_tensor *weights) {
    const xt_case *c = &a->what;
    const int64_t size[2] = {c->h, c->w}, kernel[2] = {c->kh, c->kw};
    if (c->c % c->groups || c->o % c->groups)
        xt_refuse(model, 422, "groups");
    if (weights->dims[1] * c->groups != c->c)
        xt_refuse(model, 422, "weights.shape");
    for (int axis = 0; axis < 2; axis++) {
        int64_t dilation = c->dilation[axis] ? c->dilation[axis] : 1;
        int64_t padded = size[axis] + c->padding[axis] + c->padding[axis + 2];
        if (dilation * (kernel[axis] - 1) + 1 > padded && !is(c->padding_name, "", "same"))
            xt_refuse(model, 422, "weights.shape");
    }
}

/* want: with the tensors that count, of the request or registered. */
static void check_rules(xt_model *model, const asked *a, const xt_problem *want) {
    const xt_case *c = &a->what;
    if (want->scale.datatype && is(c->scaling, "xnor", "none"))
        xt_refuse(model, 400, "scale");
    if (is(c->output_datatype, "FP32", "INT32")) {
        if (!is(c->mode, "xnor", "xnor") || !is(c->scaling, "xnor", "none"))
            xt_refuse(model, 400, "output_datatype");
        if (want->bias.datatype)
            xt_refuse(model, 400, "bias");
    }
    if (is(c->mode, "xnor", "xnor") && is(want->input.datatype, "", "UINT8"))
        xt_refuse(model, 422, "input.datatype");
    if (is_bits(&want->input) && !is(c->mode, "xnor", "xnor"))
        xt_refuse(model, 422, "input.datatype");
    else if (is_bits(&want->input) && is(c->scaling, "xnor", "xnor"))
        xt_refuse(model, 422, "scaling");
    if (is(c->mode, "xnor", "xnor") && is(want->weights.datatype, "", "UINT8"))
        xt_refuse(model, 422, "weights.datatype");
    if (want->weights.datatype && !a->shapeless)
        check_shapes(model, a, &want->weights);
}

/* ---- playing it ---- */

static xt_problem effective(const asked *a) {
    xt_problem want = {.what = a->what,
                       .input = a->sent.input,
                       .weights = a->sent.weights,
                       .scale = a->sent.scale,
                       .bias = a->sent.bias};
    if (!a->entry)
        return want;
    want.weights = a->entry->weights;
    if (!want.scale.datatype)
        want.scale = a->entry->scale;
    if (!want.bias.datatype)
        want.bias = a->entry->bias;
    return want;
}

static const char *name_of(const xt_tensor *tensor) {
    return tensor->datatype ? tensor->datatype : "no";
}

static void describe(xt_model *model, const asked *a) {
    const xt_case *c = &a->what;
    const xt_entry none = {.name = "inline"}, *entry = a->entry ? a->entry : &none;
    int used = snprintf(
        model->what, sizeof model->what,
        "POST /conv%s, %s to %s, %s [%lld,%lld,%lld,%lld], weights %s %s "
        "[%lld,%lld,%lld,%lld], %s scale, %s bias (registered %s, %s)",
        a->query, xt_form_type(a->form), xt_form_type(a->answer), name_of(&a->sent.input),
        (long long)c->n, (long long)c->c, (long long)c->h, (long long)c->w, entry->name,
        name_of(a->entry ? &entry->weights : &a->sent.weights), (long long)c->o,
        (long long)(c->c / c->groups), (long long)c->kh, (long long)c->kw, name_of(&a->sent.scale),
        name_of(&a->sent.bias), name_of(&entry->scale), name_of(&entry->bias));
    for (int i = 0; i < a->options.parameter_count; i++)
        if (used > 0 && (size_t)used < sizeof model->what)
            used += snprintf(model->what + used, sizeof model->what - (size_t)used, " %s=%s",
                             a->parameters[i].key, a->parameters[i].plain);
}

static bool accept_values(xt_model *model, asked *a, const xt_response *response) {
    xt_problem want = effective(a);
    char error[512] = "";
    xt_problem_solve(&want);
    bool ok = xt_response_matches(response, a->answer, &want, a->options.id, error, sizeof error);
    if (!ok)
        xt_wrong(model, "%s", error);
    free(want.expected);
    free(want.magnitude);
    if (ok && a->entry) {
        a->entry->requests[0] += !a->sent.scale.datatype && !a->sent.bias.datatype;
        a->entry->requests[1]++;
    }
    model->played[0] += ok;
    return ok;
}

static bool send_and_judge(xt_model *model, asked *a) {
    xt_message message;
    xt_response response;
    char target[600];
    xt_encode(&a->sent, a->form, &a->options, &message);
    snprintf(target, sizeof target, "%s%s", message.target.data, a->query);
    if (a->cut)
        message.body.length--;
    bool ok = xt_exchange(model, "POST", target, &message, &response);
    if (ok) {
        ok = model->refusal_count ? xt_is_refused(model, &response)
                                  : accept_values(model, a, &response);
        xt_response_free(&response);
    }
    xt_message_free(&message);
    return ok;
}

bool xt_model_conv(xt_model *model) {
    asked a = {.query = ""};
    a.options.parameters = a.parameters;
    choose_tensors(model, &a);
    choose_parameters(model, &a);
    choose_id(model, &a);
    choose_forms(model, &a);
    break_something(model, &a);
    const xt_problem want = effective(&a);
    check_rules(model, &a, &want);
    describe(model, &a);
    bool ok = send_and_judge(model, &a);
    xt_problem_free(&a.sent);
    return ok;
}
