/* ways.c: works of `bench-http compare`: the same one sent in another way: "bits": a layer with
 * floats and with packed bits in and out; "shm": an image in the body and in system shared memory.
 * Both against one daemon. Each connection has its own range of shared memory, as clients do that
 * want their answers; it fills and reads it by itself: that is not in the times, nor is making a
 * body. */
#include "compare.h"

#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 64, SIDE = 56, PIXELS = SIDE * SIDE, IMAGE = 512 };
enum { FLOATS = CHANNELS * PIXELS * 4, BITS = CHANNELS / 8 * PIXELS };
enum { IMAGE_BYTES = IMAGE * IMAGE * 4, WAYS = 2, CONNECTIONS = 32 };
enum { REGION_BYTES = CONNECTIONS * IMAGE_BYTES };

/* A request: its JSON and the values behind it. */
typedef struct way {
    const char *name, *path, *json; /* in the JSON a BENCH_OFFSET each of input and output */
    size_t values, output;          /* bytes behind the JSON, of the request and of the answer */
} way;

typedef struct pair {
    const char *name, *work;
    double asked; /* of the second, over the first */
    way ways[WAYS];
    void (*check)(const ol_message *messages, const struct sockaddr_in *server);
} pair;

#define LAYER(datatype, bytes, more)                                                               \
    "{\"input\": {\"shape\": [1, 64, 56, 56], \"datatype\": \"" datatype                           \
    "\", \"parameters\": {\"binary_data_size\": " bytes "}}, \"weights\": \"layer\", "             \
    "\"padding\": 1, \"scaling\": \"alpha\"" more "}"
#define TENSOR(name, side, where)                                                                  \
    "{\"name\": \"" name "\", \"shape\": [1, 1, " side ", " side "], \"datatype\": \"FP32\", "     \
    "\"parameters\": {" where "}}"
#define INFER(input, output)                                                                       \
    "{\"inputs\": [" input "], \"outputs\": [{\"name\": \"output\", \"parameters\": {" output      \
    "}}], \"parameters\": {\"padding\": 1}}"
#define REGION(name)                                                                               \
    "\"shared_memory_region\": \"" name "\", \"shared_memory_byte_size\": 1048576, "               \
    "\"shared_memory_offset\": " BENCH_OFFSET

/* ---- requests ---- */

/* The signs of a layer's floats as the wire has them: pixel by pixel, 8 channels a byte. */
static void pack(const char *floats, char *bits) {
    memset(bits, 0, BITS);
    for (int c = 0; c < CHANNELS; c++)
        for (int p = 0; p < PIXELS; p++) {
            float value;
            memcpy(&value, floats + ((size_t)c * PIXELS + (size_t)p) * sizeof value, sizeof value);
            bits[p * (CHANNELS / 8) + c / 8] |= (char)((value >= 0) << c % 8);
        }
}

/* Without values one a connection, each with its own offset. */
static void make_message(const way *w, ol_message *out) {
    const size_t variants = w->values ? 1 : CONNECTIONS;
    float *values = bench_take(IMAGE_BYTES); /* the largest */
    char *bits = bench_take(BITS);
    ol_fill(values, IMAGE_BYTES / sizeof(float), 7);
    pack((const char *)values, bits);
    ol_message_build("POST", w->path, w->json, w->values == BITS ? bits : (char *)values, w->values,
                     variants, out);
    out->output_bytes = w->output;
    out->any_length = !w->output;
    bench_region_offsets(out, IMAGE_BYTES, IMAGE_BYTES);
    free(bits);
    free(values);
}

/* ---- checks ---- */

static bench_region in, out;

static void make_regions(const struct sockaddr_in *server) {
    bench_region_make(&in, "in", REGION_BYTES, server);
    bench_region_make(&out, "out", REGION_BYTES, server);
    for (size_t i = 0; i < CONNECTIONS; i++)
        ol_fill((float *)(void *)(in.bytes + i * IMAGE_BYTES), IMAGE_BYTES / sizeof(float), 7);
}

/* Both ways must give the same: values in the body, and for each connection in shared memory. */
static void check_image(const ol_message *messages, const struct sockaddr_in *server) {
    size_t length = 0;
    char *body = ol_ask(&messages[0], 0, server, &length);
    for (size_t i = 0; i < CONNECTIONS; i++)
        free(ol_ask(&messages[1], i, server, NULL));
    bool same = length >= IMAGE_BYTES;
    for (size_t i = 0; i < CONNECTIONS && same; i++)
        same = !memcmp(out.bytes + i * IMAGE_BYTES, body + length - IMAGE_BYTES, IMAGE_BYTES);
    free(body);
    bench_region_free(&in);
    bench_region_free(&out);
    if (!same)
        xn_bench_fail("xnord", "shared memory has other values than the body");
}

/* The bits must be the signs of the floats. */
static void check_layer(const ol_message *messages, const struct sockaddr_in *server) {
    size_t length[WAYS] = {0};
    char *answers[WAYS], signs[BITS];
    for (int i = 0; i < WAYS; i++)
        answers[i] = ol_ask(&messages[i], 0, server, &length[i]);
    bool same = length[0] >= FLOATS && length[1] >= BITS;
    if (same) {
        pack(answers[0] + length[0] - FLOATS, signs);
        same = !memcmp(signs, answers[1] + length[1] - BITS, BITS);
    }
    for (int i = 0; i < WAYS; i++)
        free(answers[i]);
    if (!same)
        xn_bench_fail("xnord", "the bits are not the signs of the floats");
}

/* ---- works ---- */

static const pair pairs[] = {
    {"bits",
     "64 channels of 56x56",
     4,
     {{"FP32", "/conv", LAYER("FP32", "802816", ""), FLOATS, FLOATS},
      {"BITS", "/conv", LAYER("BITS", "25088", ", \"output_datatype\": \"BITS\""), BITS, BITS}},
     check_layer},
    {"shm",
     "an image of 512x512",
     1.5,
     {{"body", "/v2/models/image/infer",
       INFER(TENSOR("input", "512", "\"binary_data_size\": 1048576"), "\"binary_data\": true"),
       IMAGE_BYTES, IMAGE_BYTES},
      {"shared memory", "/v2/models/image/infer",
       INFER(TENSOR("input", "512", REGION("in")), REGION("out")), 0, 0}},
     check_image},
};

double bench_ways(const bench_options *o, xn_report *report, const char *name) {
    static const int connections[] = {1, CONNECTIONS};
    static const char *const flags[] = {"--allow-client-shm", NULL};
    const pair *p = pairs;
    struct sockaddr_in server;
    char backend[32];
    ol_message messages[WAYS];
    while (strcmp(p->name, name) != 0)
        p++;
    bench_contest c = {.o = o,
                       .report = report,
                       .work = p->work,
                       .count = WAYS,
                       .images = 1,
                       .asked = p->asked,
                       .hits = NAN};
    bench_daemon_start(&c.sides[0].process, o, flags, &server);
    bench_daemon_ready(&server, backend, sizeof backend);
    ol_put_weights("layer", CHANNELS, CHANNELS, &server);
    ol_put_weights("image", 1, 1, &server);
    if (!p->ways[1].values)
        make_regions(&server);
    for (int i = 0; i < WAYS; i++) {
        make_message(&p->ways[i], &messages[i]);
        c.sides[i].name = p->ways[i].name;
        c.sides[i].server = server;
        c.sides[i].message = messages[i];
    }
    p->check(messages, &server);
    bench_compare_sides(&c, connections, XN_COUNT(connections));
    bench_contest_end(&c);
    return c.failures;
}
