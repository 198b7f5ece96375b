/* fuzz.c: the table of targets, and what their checks share. */
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const xf_target xf_targets[] = {{"conv_json", xf_conv_json},
                                {"conv_oip", xf_conv_oip},
                                {"conv_safetensors", xf_conv_safetensors},
                                {"conv_raw", xf_conv_raw},
                                {"query", xf_query},
                                {"weights", xf_weights},
                                {"headers", xf_headers},
                                {"number", xf_number},
                                {"answer", xf_answer},
                                {"config", xf_config},
                                {"keys", xf_keys},
                                {"model_config", xf_model_config},
                                {"model_tensors", xf_model_tensors},
                                {"labels", xf_labels},
                                {"oip", xf_oip},
                                {"oip_bodies", xf_oip_bodies},
                                {"oip_answer", xf_oip_answer},
                                {"jpeg", xf_jpeg},
                                {"png", xf_png},
                                {NULL, NULL}};

const char *xf_running;

const xf_target *xf_target_find(const char *name) {
    for (const xf_target *t = xf_targets; t->name; t++)
        if (!strcmp(t->name, name))
            return t;
    return NULL;
}

void xf_require(bool condition, const char *what) {
    if (condition)
        return;
    fprintf(stderr, "fuzz: %s%s%s\n", xf_running ? xf_running : "", xf_running ? ": " : "", what);
    abort();
}

void *xf_alloc(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    xf_require(memory != NULL, "no memory");
    return memory;
}

char *xf_text(const void *bytes, size_t size) {
    char *text = xf_alloc(size + 1);
    memcpy(text, bytes, size);
    text[size] = 0;
    return text;
}

void xf_check_error(xn_status status, const xn_error *error) {
    char text[1024];
    xf_require(error->status == status, "the error has another status");
    xf_require(error->message[0] != 0, "a refusal without a message");
    xf_require(memchr(error->message, 0, sizeof error->message) != NULL, "message not terminated");
    size_t length =
        xn_proto_write_error("bad_request", error->message, error->field, text, sizeof text);
    xf_require(length > 0 && length < sizeof text && !text[length], "error text");
}

/* Written as an answer and read again: the same values. */
static void round_trip(const xn_tensor_ref *ref, const float *values) {
    const xn_answer answer = {.id = "fuzz",
                              .backend = "cpu",
                              .datatype = XN_FP32,
                              .shape = ref->shape,
                              .output_bytes = ref->bytes};
    size_t bound;
    xf_require(xn_proto_json_answer_bound(&answer, &bound), "bound");
    char *text = xf_alloc(bound);
    float *back = xf_alloc(ref->bytes);
    size_t length = xn_proto_json_answer_begin(&answer, values, text);
    xf_require(length <= bound, "the answer is longer than its bound");
    text[length - 1] = 0;
    const char *array = strstr(text, "\"data\":");
    xf_require(array != NULL, "no data");
    xn_tensor_ref again = *ref;
    again.data = NULL;
    again.text = array + strlen("\"data\":");
    again.text_length = (size_t)(text + length - 1 - again.text);
    xn_error error;
    xf_require(!xn_proto_tensor_read(&again, "output", back, &error), "an answer cannot be read");
    xf_require(!memcmp(values, back, ref->bytes), "the answer reads back as other values");
    free(back);
    free(text);
}

void xf_check_tensor(const xn_tensor_ref *ref, const char *field, const xn_proto_body *body) {
    if (!ref->present)
        return;
    const char *begin = body->bytes;
    xf_require(ref->elements >= 1 && ref->elements <= XF_MAX_ELEMENTS, "elements");
    size_t needed = (size_t)ref->elements * xn_datatype_bytes(ref->datatype);
    if (ref->datatype == XN_BITS)
        needed =
            (size_t)(ref->elements / ref->shape.dims[1] * xn_bits_pixel_bytes(ref->shape.dims[1]));
    xf_require(ref->bytes == needed, "bytes");
    xf_require((ref->data != NULL) != (ref->text != NULL), "data and text");
    const char *at = ref->data ? (const char *)ref->data : ref->text;
    size_t length = ref->data ? ref->bytes : ref->text_length;
    xf_require(at >= begin && length <= body->length &&
                   (size_t)(at - begin) <= body->length - length,
               "a tensor outside the body");
    void *values = xf_alloc(ref->bytes);
    xn_error error = {.status = XN_OK};
    xn_status status = xn_proto_tensor_read(ref, field, values, &error);
    xf_require(!status || ref->text, "a binary tensor cannot be read");
    if (status) {
        xf_check_error(status, &error);
    } else if (ref->text && ref->datatype == XN_FP32) {
        for (int64_t i = 0; i < ref->elements; i++)
            xf_require(isfinite(((float *)values)[i]), "a value from text is not finite");
        round_trip(ref, values);
    }
    free(values);
}
