/* load_message.c: the workloads of bench-http load. Weights are registered under a name, the
 * request is built once, and its first answer is what every later one is compared with. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 3x3, padding 1, fp32 in and out: bodies of 4 KiB and 64 KiB, a layer of 64 KiB, and layers that
 * take the CPU a while: "slow" is a layer of a ResNet (784 KiB); "heavy" has much work for its 98
 * KiB, so that the workers are what everything waits for. */
static const ol_shape shapes[] = {{"4k", 1, 32, 1, "xnor"},
                                  {"64k", 1, 128, 1, "xnor"},
                                  {"layer", 64, 16, 64, "xnor"},
                                  {"slow", 64, 56, 64, "xnor"},
                                  {"heavy", 128, 14, 128, "float"}};
const char ol_shape_names[] = "4k, 64k, layer, slow, heavy";

const ol_shape *ol_shape_find(const char *name) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!strcmp(shapes[i].name, name))
            return &shapes[i];
    return NULL;
}

static void fill(float *values, size_t count, uint64_t seed) {
    xn_rng rng = {seed};
    for (size_t i = 0; i < count; i++)
        values[i] = xn_rng_float(&rng);
}

/* Head, text and values in one piece. */
static char *join(const char *head, const char *text, const void *values, size_t bytes,
                  size_t *length) {
    size_t head_length = strlen(head), text_length = strlen(text);
    char *all = malloc(head_length + text_length + bytes);
    if (!all)
        return NULL;
    memcpy(all, head, head_length);
    memcpy(all + head_length, text, text_length);
    memcpy(all + head_length + text_length, values, bytes);
    *length = head_length + text_length + bytes;
    return all;
}

bool ol_put_weights(const char *name, int filters, int channels, const struct sockaddr_in *server) {
    size_t count = (size_t)filters * (size_t)channels * 9, length = 0, got = 0;
    size_t bytes = count * sizeof(float);
    char head[256], text[256];
    float *values = malloc(bytes);
    if (!values)
        return false;
    fill(values, count, 11);
    snprintf(text, sizeof text,
             "{\"weights\": {\"shape\": [%d, %d, 3, 3], \"datatype\": \"FP32\", \"parameters\": "
             "{\"binary_data_size\": %zu}}}",
             filters, channels, bytes);
    snprintf(head, sizeof head,
             "PUT /weights/%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
             "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %zu\r\n"
             "Content-Length: %zu\r\n\r\n",
             name, strlen(text), strlen(text) + bytes);
    char *all = join(head, text, values, bytes, &length);
    char *answer = all ? bench_exchange(server, all, length, &got) : NULL;
    bool ok =
        answer && (!strncmp(answer, "HTTP/1.1 201", 12) || !strncmp(answer, "HTTP/1.1 200", 12));
    if (answer && !ok)
        fprintf(stderr, "bench-http load: PUT: %.300s\n", answer);
    free(answer);
    free(all);
    free(values);
    return ok;
}

static char *build(const ol_shape *shape, const char *connection, const float *values,
                   ol_message *out, size_t *length) {
    size_t bytes = (size_t)shape->channels * (size_t)shape->side * (size_t)shape->side * 4;
    char head[512], text[256];
    snprintf(text, sizeof text,
             "{\"input\": {\"shape\": [1, %d, %d, %d], \"datatype\": \"FP32\", \"parameters\": "
             "{\"binary_data_size\": %zu}}, \"weights\": \"%s\", \"padding\": 1, \"mode\": "
             "\"%s\"}",
             shape->channels, shape->side, shape->side, bytes, shape->name, shape->mode);
    out->body_length = strlen(text) + bytes;
    snprintf(
        head, sizeof head,
        "POST /conv HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/octet-stream\r\n"
        "Inference-Header-Content-Length: %zu\r\nContent-Length: %zu\r\n\r\n",
        connection, strlen(text), out->body_length);
    return join(head, text, values, bytes, length);
}

/* Keeps the output's bytes of the first answer. */
static bool keep_output(const ol_shape *shape, const char *answer, size_t length, ol_message *out) {
    out->output_bytes = (size_t)shape->filters * (size_t)shape->side * (size_t)shape->side * 4;
    if (strncmp(answer, "HTTP/1.1 200", 12) || length < out->output_bytes) {
        fprintf(stderr, "bench-http load: the first answer: %.300s\n", answer);
        return false;
    }
    out->output = malloc(out->output_bytes);
    if (!out->output)
        return false;
    memcpy(out->output, answer + length - out->output_bytes, out->output_bytes);
    return true;
}

bool ol_message_make(const ol_shape *shape, const struct sockaddr_in *server, ol_message *out) {
    size_t count = (size_t)shape->channels * (size_t)shape->side * (size_t)shape->side;
    size_t length = 0, got = 0;
    *out = (ol_message){0};
    float *values = malloc(count * sizeof *values);
    if (!values || !ol_put_weights(shape->name, shape->filters, shape->channels, server)) {
        free(values);
        return false;
    }
    fill(values, count, 7);
    char *first = build(shape, "Connection: close\r\n", values, out, &length);
    char *answer = first ? bench_exchange(server, first, length, &got) : NULL;
    bool ok = answer && keep_output(shape, answer, got, out);
    if (ok)
        out->bytes = build(shape, "", values, out, &out->length);
    free(answer);
    free(first);
    free(values);
    return ok && out->bytes;
}

void ol_message_free(ol_message *message) {
    free(message->bytes);
    free(message->output);
    *message = (ol_message){0};
}
