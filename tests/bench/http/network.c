/* network.c: a work of `bench-http compare`: a whole network over HTTP, of a model folder for
 * pictures as bytes (--model), in bodies and in system shared memory, beside the echo ceiling with
 * the same bodies. The first answers are compared with ref's; every other must be a 200 of the same
 * length. The ceiling sends each body back, xnord what the network makes of it. */
#include "../model.h"
#include "compare.h"

#include "xn_mem.h"
#include "xn_program.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 224, PIXELS = SIDE * SIDE * 3, CLASSES = 1000, CONNECTIONS = 32 };
enum { MOST_IMAGES = 8, PICTURES = 2 }; /* a batch has the same ones several times: ref is slow */
enum { BYTES_IN = MOST_IMAGES * PIXELS, BYTES_OUT = MOST_IMAGES * CLASSES * (int)sizeof(float) };

/* How images are sent. Raw bodies are of one image. */
typedef struct body_kind {
    const char *form;
    bool raw;
    int images;
} body_kind;

static const body_kind bodies[] = {
    {"raw, 1 image", true, 1}, {"OIP, 1 image", false, 1}, {"OIP, 8 images", false, MOST_IMAGES}};

typedef struct pictures {
    unsigned char *pixels; /* of PICTURES */
    float *logits;         /* of each of them, by ref */
} pictures;

/* ---- what the answers must be ---- */

static void must(xn_status status, const xn_error *error) {
    if (status)
        xn_bench_fail("ref", error->message);
}

static void run_on_ref(const xn_network *network, const pictures *b) {
    const xn_backend *ref = xn_backend_find("ref");
    const xn_batch_item item = {b->pixels, b->logits, PICTURES};
    const size_t count = (size_t)network->weights_count;
    xn_prepared **prepared = bench_take(count * sizeof *prepared);
    const xn_prepared *const *weights = (const xn_prepared *const *)prepared;
    xn_device *device = NULL;
    xn_stream *stream = NULL;
    xn_program *program = NULL;
    xn_problem problem;
    xn_error error;
    must(ref->device_open(0, &device, &error), &error);
    must(ref->stream_create(device, &(xn_stream_options){0}, &stream, &error), &error);
    for (size_t i = 0; i < count; i++)
        must(ref->weights_prepare(device, network->weights[i], &prepared[i], &error), &error);
    xn_problem_of_network(network, &problem);
    must(xn_program_create(ref, stream, &problem, PICTURES, &program, &error), &error);
    must(xn_program_ready(program, weights, &error), &error);
    must(xn_program_run(program, weights, &item, 1, NULL, &error), &error);
    xn_program_free(program);
    for (size_t i = 0; i < count; i++)
        ref->weights_free(prepared[i]);
    ref->stream_free(stream);
    ref->device_close(device);
    free(prepared);
}

/* All but the last layer is exact (networks.py). */
static bool are_right(const pictures *b, const char *logits, int images) {
    const size_t known = (size_t)PICTURES * CLASSES, count = (size_t)images * CLASSES;
    float most = 0;
    for (size_t i = 0; i < known; i++)
        most = fmaxf(most, fabsf(b->logits[i]));
    for (size_t i = 0; i < count; i++) {
        float logit;
        memcpy(&logit, logits + i * sizeof logit, sizeof logit);
        if (!(fabsf(logit - b->logits[i % known]) <= 1e-3f * most))
            return false;
    }
    return true;
}

static void check(const pictures *b, const char *what, const char *logits, int images) {
    if (!are_right(b, logits, images))
        xn_bench_fail(what, "xnord's logits are not ref's");
}

/* ---- requests ---- */

static void copy_pictures(const pictures *b, int images, void *to) {
    for (int i = 0; i < images; i++)
        memcpy((char *)to + (size_t)i * PIXELS, b->pixels + (size_t)(i % PICTURES) * PIXELS,
               PIXELS);
}

#define TENSORS(input, output)                                                                     \
    "{\"inputs\": [{\"name\": \"input\", \"datatype\": \"UINT8\", \"shape\": [%d, 224, 224, 3], "  \
    "\"parameters\": {" input "}}]" output "}"

static void make_message(const pictures *b, const body_kind *body, bool is_echo, ol_message *out) {
    const size_t values = (size_t)body->images * PIXELS;
    char json[512] = "";
    unsigned char *pixels = bench_take(values);
    copy_pictures(b, body->images, pixels);
    if (!body->raw)
        snprintf(json, sizeof json,
                 TENSORS("\"binary_data_size\": %zu",
                         ", \"parameters\": {\"binary_data_output\": true}"),
                 body->images, values);
    ol_message_build("POST", is_echo ? "/" : "/v2/models/network/infer", json, pixels, values, 1,
                     out);
    out->output_bytes = is_echo ? out->body_length : (size_t)body->images * CLASSES * sizeof(float);
    free(pixels);
}

static void check_first(const pictures *b, const body_kind *body, const bench_side *side) {
    const size_t bytes = (size_t)body->images * CLASSES * sizeof(float);
    size_t length = 0;
    char *answer = ol_ask(&side->message, 0, &side->server, &length);
    if (length < bytes)
        xn_bench_fail(body->form, "the answer is too short");
    check(b, body->form, answer + length - bytes, body->images);
    free(answer);
}

/* ---- in shared memory: each connection has its own range ---- */

#define REGION(name, bytes)                                                                        \
    "\"shared_memory_region\": \"" name "\", \"shared_memory_byte_size\": " bytes                  \
    ", \"shared_memory_offset\": " BENCH_OFFSET

static void share(const pictures *b, bench_side *side, bench_region *in, bench_region *out) {
    char json[512];
    bench_region_make(in, "in", (size_t)CONNECTIONS * BYTES_IN, &side->server);
    bench_region_make(out, "out", (size_t)CONNECTIONS * BYTES_OUT, &side->server);
    for (int i = 0; i < CONNECTIONS; i++)
        copy_pictures(b, MOST_IMAGES, in->bytes + (size_t)i * BYTES_IN);
    snprintf(json, sizeof json,
             TENSORS(REGION("in", "%d"),
                     ", \"outputs\": [{\"name\": \"logits\", \"parameters\": {" REGION("out",
                                                                                       "%d") "}}]"),
             MOST_IMAGES, BYTES_IN, BYTES_OUT);
    ol_message_build("POST", "/v2/models/network/infer", json, "", 0, CONNECTIONS, &side->message);
    bench_region_offsets(&side->message, BYTES_IN, BYTES_OUT);
    side->message.any_length = true;
    for (size_t i = 0; i < CONNECTIONS; i++) {
        free(ol_ask(&side->message, i, &side->server, NULL));
        check(b, "shared memory", out->bytes + i * BYTES_OUT, MOST_IMAGES);
    }
}

/* ---- the servers ---- */

void bench_model_start(bench_process *p, const bench_options *o, const char *const *more,
                       struct sockaddr_in *address) {
    enum { MORE = 8 };
    char model[512], backend[32];
    const char *flags[MORE + 3] = {"--model", model};
    for (int i = 0; more && more[i] && i < MORE; i++)
        flags[2 + i] = more[i];
    snprintf(model, sizeof model, "network=%s", o->model);
    bench_daemon_start(p, o, flags, address);
    bench_daemon_ready(address, backend, sizeof backend);
}

static void make_expected(pictures *b, const bench_options *o) {
    xn_network *network = xn_bench_model(o->model, 0, XN_BENCH_AS_IT_SAYS);
    xn_rng rng = {8};
    if (network->input_bytes != PIXELS || network->output_elements != CLASSES)
        xn_bench_fail(o->model, "takes or gives something else than 224x224x3 bytes, 1000 logits");
    b->pixels = bench_take(PICTURES * PIXELS);
    b->logits = bench_take(PICTURES * CLASSES * sizeof(float));
    for (size_t i = 0; i < PICTURES * PIXELS; i++)
        b->pixels[i] = (unsigned char)xn_rng_next(&rng);
    run_on_ref(network, b);
    xn_network_free(network);
}

double bench_network(const bench_options *o, xn_report *report, const char *name) {
    static const int connections[] = {1, 8, CONNECTIONS};
    static const char *const flags[] = {"--allow-client-shm", NULL};
    enum { OURS, ECHO, SHARED };
    bench_contest c = {.o = o, .report = report, .hits = NAN, .count = SHARED};
    bench_side *sides = c.sides;
    bench_region in, out;
    pictures b;
    (void)name;
    make_expected(&b, o);
    sides[OURS].name = "xnord";
    bench_model_start(&sides[OURS].process, o, flags, &sides[OURS].server);
    bench_echo_side(o, &sides[ECHO]);
    for (int i = 0; i < XN_COUNT(bodies); i++) {
        c.work = bodies[i].form;
        c.images = bodies[i].images;
        for (int k = 0; k < c.count; k++)
            make_message(&b, &bodies[i], sides[k].is_echo, &sides[k].message);
        check_first(&b, &bodies[i], &sides[OURS]);
        if (c.images == MOST_IMAGES) {
            sides[SHARED] = (bench_side){.name = "shared memory", .server = sides[OURS].server};
            share(&b, &sides[SHARED], &in, &out);
            c.count++;
        }
        if (!o->images || o->images == c.images)
            bench_compare_sides(&c, connections, XN_COUNT(connections));
        bench_contest_next(&c);
    }
    bench_contest_end(&c);
    bench_region_free(&in);
    bench_region_free(&out);
    free(b.pixels);
    free(b.logits);
    return c.failures;
}
