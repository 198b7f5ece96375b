/* network.c: a work of `bench-http compare`: a whole network over HTTP, Bi-Real-18 of random
 * weights for pictures of 224x224 as bytes, beside the echo ceiling with the same bodies. The first
 * answers' logits are compared with ref's; every other must be a 200 of the same length. The
 * ceiling sends each body back, xnord 4,000 bytes an image. */
#include "../birealnet.h"
#include "compare.h"

#include "xn_mem.h"
#include "xn_program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 224, PIXELS = SIDE * SIDE * 3, CLASSES = XN_BIREALNET_CLASSES };
enum { MOST_IMAGES = 8, PICTURES = 2 }; /* a batch has the same ones several times: ref is slow */

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

/* All but the last layer is exact (birealnet.h). */
static bool is_right(const pictures *b, const char *answer, size_t length, int images) {
    const size_t known = (size_t)PICTURES * CLASSES, count = (size_t)images * CLASSES;
    const size_t bytes = count * sizeof(float);
    float most = 0;
    if (strncmp(answer, "HTTP/1.1 200", 12) || length < bytes)
        return false;
    for (size_t i = 0; i < known; i++)
        most = fmaxf(most, fabsf(b->logits[i]));
    for (size_t i = 0; i < count; i++) {
        float logit;
        memcpy(&logit, answer + length - bytes + i * sizeof logit, sizeof logit);
        if (!(fabsf(logit - b->logits[i % known]) <= 1e-3f * most))
            return false;
    }
    return true;
}

/* ---- requests ---- */

static void make_message(const pictures *b, const body_kind *body, bool is_echo, ol_message *out) {
    const size_t values = (size_t)body->images * PIXELS;
    char json[512] = "";
    unsigned char *pixels = bench_take(values);
    for (int i = 0; i < body->images; i++)
        memcpy(pixels + (size_t)i * PIXELS, b->pixels + (size_t)(i % PICTURES) * PIXELS, PIXELS);
    if (!body->raw)
        snprintf(json, sizeof json,
                 "{\"inputs\": [{\"name\": \"input\", \"datatype\": \"UINT8\", \"shape\": [%d, %d, "
                 "%d, 3], \"parameters\": {\"binary_data_size\": %zu}}], \"parameters\": "
                 "{\"binary_data_output\": true}}",
                 body->images, SIDE, SIDE, values);
    ol_message_build("POST", is_echo ? "/" : "/v2/models/birealnet/infer", json, pixels, values, 1,
                     out);
    out->output_bytes = is_echo ? out->body_length : (size_t)body->images * CLASSES * sizeof(float);
    free(pixels);
}

static void check_first(const pictures *b, const body_kind *body, const bench_side *side) {
    size_t length = 0;
    char *answer = ol_ask(&side->message, 0, &side->server, &length);
    if (!is_right(b, answer, length, body->images))
        xn_bench_fail(body->form, "xnord's logits are not ref's");
    free(answer);
}

/* ---- the servers ---- */

static void remove_folder(const char *folder) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[128];
    for (int i = 0; i < XN_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

void bench_birealnet_start(bench_process *p, const bench_options *o, const xn_birealnet *net,
                           const char *const *more, struct sockaddr_in *address) {
    enum { MORE = 8 };
    char folder[] = "/tmp/xnord-bench-XXXXXX", model[64], backend[32];
    const char *flags[MORE + 3] = {"--model", model};
    for (int i = 0; more && more[i] && i < MORE; i++)
        flags[2 + i] = more[i];
    if (!mkdtemp(folder))
        xn_bench_fail(folder, strerror(errno));
    snprintf(model, sizeof model, "birealnet=%s", folder);
    xn_birealnet_write(net, folder);
    bench_daemon_start(p, o, flags, address);
    bench_daemon_ready(address, backend, sizeof backend);
    remove_folder(folder);
}

static void make_expected(pictures *b, const xn_birealnet *net) {
    xn_network *network = xn_birealnet_lower(net);
    xn_rng rng = {8};
    b->pixels = bench_take(PICTURES * PIXELS);
    b->logits = bench_take(PICTURES * CLASSES * sizeof(float));
    for (size_t i = 0; i < PICTURES * PIXELS; i++)
        b->pixels[i] = (unsigned char)xn_rng_next(&rng);
    run_on_ref(network, b);
    xn_network_free(network);
}

double bench_network(const bench_options *o, xn_report *report, const char *name) {
    static const int connections[] = {1, 8, 32};
    bench_contest c = {.o = o, .report = report, .hits = NAN};
    bench_side *ours = &c.sides[c.count++];
    xn_birealnet *net = xn_birealnet_make(SIDE, o->fp16 ? XN_PRECISION_FP16 : XN_PRECISION_FP32);
    pictures b;
    (void)name;
    make_expected(&b, net);
    ours->name = "xnord";
    bench_birealnet_start(&ours->process, o, net, NULL, &ours->server);
    xn_birealnet_free(net);
    bench_echo_side(o, &c.sides[c.count++]);
    for (int i = 0; i < XN_COUNT(bodies); i++) {
        c.work = bodies[i].form;
        c.images = bodies[i].images;
        for (int k = 0; k < c.count; k++)
            make_message(&b, &bodies[i], c.sides[k].is_echo, &c.sides[k].message);
        check_first(&b, &bodies[i], ours);
        bench_compare_sides(&c, connections, XN_COUNT(connections));
        bench_contest_next(&c);
    }
    bench_contest_end(&c);
    free(b.pixels);
    free(b.logits);
    return c.failures;
}
