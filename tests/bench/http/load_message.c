/* load_message.c: requests: their bytes, what the first answer to one is, and the workloads that
 * bench-http load and others name. */
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

const ol_shape *ol_shape_named(const char *name) {
    for (int i = 0; i < XN_COUNT(shapes); i++)
        if (!strcmp(shapes[i].name, name))
            return &shapes[i];
    xn_bench_fail("--workloads must be of 4k, 64k, layer, slow, heavy, not", name);
}

void ol_fill(float *values, size_t count, uint64_t seed) {
    xn_rng rng = {seed};
    for (size_t i = 0; i < count; i++)
        values[i] = xn_rng_float(&rng);
}

/* ---- messages ---- */

void ol_message_build(const char *method, const char *path, const char *json, const void *values,
                      size_t bytes, size_t variants, ol_message *out) {
    const size_t json_length = strlen(json);
    char head[512];
    *out = (ol_message){.body_length = json_length + bytes, .variants = variants};
    const size_t head_length = (size_t)snprintf(
        head, sizeof head,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        "Inference-Header-Content-Length: %zu\r\nContent-Length: %zu\r\n\r\n",
        method, path, json_length, out->body_length);
    out->length = head_length + out->body_length;
    out->bytes = bench_take(out->length * variants);
    for (size_t i = 0; i < variants; i++) {
        char *to = out->bytes + i * out->length;
        memcpy(to, head, head_length);
        memcpy(to + head_length, json, json_length);
        memcpy(to + head_length + json_length, values, bytes);
    }
}

void ol_message_free(ol_message *message) {
    free(message->bytes);
    free(message->output);
    *message = (ol_message){0};
}

char *ol_ask(const ol_message *message, size_t variant, const struct sockaddr_in *server,
             size_t *length) {
    static const char closes[] = "Connection: close\r\n";
    const char *bytes = message->bytes + variant * message->length;
    const size_t line = strcspn(bytes, "\n") + 1, more = sizeof closes - 1;
    char *all = bench_take(message->length + more);
    memcpy(all, bytes, line);
    memcpy(all + line, closes, more);
    memcpy(all + line + more, bytes + line, message->length - line);
    char *answer = bench_exchange(server, all, message->length + more, length);
    free(all);
    if (!answer || strncmp(answer, "HTTP/1.1 20", 11) != 0) {
        fprintf(stderr, "%.*s: %.600s\n", (int)line - 2, bytes, answer ? answer : "no answer");
        xn_bench_fail("the first request", "it failed");
    }
    return answer;
}

void ol_keep_output(ol_message *message, const struct sockaddr_in *server) {
    size_t length = 0;
    char *answer = ol_ask(message, 0, server, &length);
    if (length < message->output_bytes)
        xn_bench_fail("the first answer", "it is too short");
    message->output = bench_take(message->output_bytes);
    memcpy(message->output, answer + length - message->output_bytes, message->output_bytes);
    free(answer);
}

/* ---- workloads ---- */

void ol_put_weights(const char *name, int filters, int channels, const struct sockaddr_in *server) {
    const size_t count = (size_t)filters * (size_t)channels * 9, bytes = count * sizeof(float);
    char path[128], json[256];
    float *values = bench_take(bytes);
    ol_message message;
    ol_fill(values, count, 11);
    snprintf(path, sizeof path, "/weights/%s", name);
    snprintf(json, sizeof json,
             "{\"weights\": {\"shape\": [%d, %d, 3, 3], \"datatype\": \"FP32\", \"parameters\": "
             "{\"binary_data_size\": %zu}}}",
             filters, channels, bytes);
    ol_message_build("PUT", path, json, values, bytes, 1, &message);
    free(ol_ask(&message, 0, server, NULL));
    ol_message_free(&message);
    free(values);
}

void ol_message_make(const ol_shape *shape, const struct sockaddr_in *server, ol_message *out) {
    const size_t pixels = (size_t)shape->side * (size_t)shape->side;
    const size_t count = (size_t)shape->channels * pixels, bytes = count * sizeof(float);
    char json[256];
    float *values = bench_take(bytes);
    ol_put_weights(shape->name, shape->filters, shape->channels, server);
    ol_fill(values, count, 7);
    snprintf(json, sizeof json,
             "{\"input\": {\"shape\": [1, %d, %d, %d], \"datatype\": \"FP32\", \"parameters\": "
             "{\"binary_data_size\": %zu}}, \"weights\": \"%s\", \"padding\": 1, \"mode\": "
             "\"%s\"}",
             shape->channels, shape->side, shape->side, bytes, shape->name, shape->mode);
    ol_message_build("POST", "/conv", json, values, bytes, 1, out);
    out->output_bytes = (size_t)shape->filters * pixels * sizeof(float);
    ol_keep_output(out, server);
    free(values);
}
