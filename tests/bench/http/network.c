/* network.c: `bench-http network`: a whole network over HTTP, Bi-Real-18 of random weights for
 * pictures of 224x224 as bytes, beside the echo ceiling with the same bodies, by the same
 * generator, in turns, round after round. The first answers' logits are compared with ref's; every
 * other must be a 200 of the same length. The ceiling sends each body back, xnord 4,000 bytes an
 * image. */
#include "../birealnet.h"
#include "load.h"

#include "xn_mem.h"
#include "xn_program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 224, PIXELS = SIDE * SIDE * 3, CLASSES = XN_BIREALNET_CLASSES };
enum { MOST_IMAGES = 8, PICTURES = 2 }; /* a batch has the same ones several times: ref is slow */
enum { XNORD, ECHO, SERVERS, HEAD = 512 };

static const char *const names[SERVERS] = {"xnord", "echo"};
static const char *const paths[SERVERS] = {"/v2/models/birealnet/infer", "/"};

/* How images are sent. Raw bodies are of one image. */
typedef struct body_kind {
    const char *form;
    bool raw;
    int images;
} body_kind;

static const body_kind bodies[] = {
    {"raw", true, 1}, {"OIP", false, 1}, {"OIP", false, MOST_IMAGES}};

typedef struct bench {
    const bench_options *o;
    bench_process processes[SERVERS];
    struct sockaddr_in servers[SERVERS];
    unsigned char *pixels; /* of PICTURES */
    float *logits;         /* of each of them, by ref */
    int rounds, failures;
    xn_report report;
} bench;

static const xn_column columns[] = {
    {"form", "form", 4, XN_TEXT},
    {"images", "images", 6, 0},
    {"body_bytes", "body bytes", 10, 0},
    {"connections", "conns", 5, 0},
    {"server", "server", 6, XN_TEXT},
    {"requests_per_second", "requests/s", 10, 1},
    {"least_per_second", "least", 9, 1},
    {"most_per_second", "most", 9, 1},
    {"images_per_second", "images/s", 9, 1},
    {"megabytes_per_second", "MB/s in", 9, 1},
    {"percent_of_echo", "% of echo", 9, 1},
    {"p50_ms", "p50 ms", 9, 2},
    {"p99_ms", "p99 ms", 9, 2},
    {"compute_ms", "compute ms", 10, 2},
    {"failures", "failures", 8, 0},
};

static void *take(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory)
        xn_bench_fail("network", "no memory");
    return memory;
}

/* ---- what the answers must be ---- */

static void must(xn_status status, const xn_error *error) {
    if (status)
        xn_bench_fail("ref", error->message);
}

static void run_on_ref(const xn_network *network, bench *b) {
    const xn_backend *ref = xn_backend_find("ref");
    const xn_batch_item item = {b->pixels, b->logits, PICTURES};
    const size_t count = (size_t)network->weights_count;
    xn_prepared **prepared = take(count * sizeof *prepared);
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
static bool is_right(const bench *b, const char *answer, size_t length, int images) {
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

static void make_message(const bench *b, const body_kind *body, int server, const char *connection,
                         ol_message *out) {
    char json[HEAD] = "", head[HEAD];
    const size_t values = (size_t)body->images * PIXELS;
    if (!body->raw)
        snprintf(json, sizeof json,
                 "{\"inputs\": [{\"name\": \"input\", \"datatype\": \"UINT8\", \"shape\": [%d, %d, "
                 "%d, 3], \"parameters\": {\"binary_data_size\": %zu}}], \"parameters\": "
                 "{\"binary_data_output\": true}}",
                 body->images, SIDE, SIDE, values);
    const size_t json_length = strlen(json);
    out->body_length = json_length + values;
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/octet-stream\r\n"
             "Inference-Header-Content-Length: %zu\r\nContent-Length: %zu\r\n\r\n",
             paths[server], connection, json_length, out->body_length);
    const size_t head_length = strlen(head);
    out->length = head_length + out->body_length;
    out->bytes = take(out->length);
    memcpy(out->bytes, head, head_length);
    memcpy(out->bytes + head_length, json, json_length);
    for (int i = 0; i < body->images; i++)
        memcpy(out->bytes + head_length + json_length + (size_t)i * PIXELS,
               b->pixels + (size_t)(i % PICTURES) * PIXELS, PIXELS);
    out->output = NULL;
    out->output_bytes =
        server == ECHO ? out->body_length : (size_t)body->images * CLASSES * sizeof(float);
}

static void check_first(const bench *b, const body_kind *body) {
    ol_message message;
    size_t length = 0;
    make_message(b, body, XNORD, "Connection: close\r\n", &message);
    char *answer = bench_exchange(&b->servers[XNORD], message.bytes, message.length, &length);
    if (!answer || !is_right(b, answer, length, body->images)) {
        fprintf(stderr, "the answer to %d images, %s: %.600s\n", body->images, body->form,
                answer ? answer : "none");
        xn_bench_fail("xnord", "its logits are not ref's");
    }
    free(answer);
    ol_message_free(&message);
}

/* ---- measuring ---- */

static ol_plan plan_of(const bench *b, int server, int connections) {
    bench_options o = *b->o;
    const int threads = o.threads ? o.threads : sysconf(_SC_NPROCESSORS_ONLN) > 4 ? 4 : 1;
    o.connections = connections;
    o.threads = threads < connections ? threads : connections;
    o.seconds = o.seconds > 0 ? o.seconds : 5;
    o.rate = 0; /* a closed loop */
    return ol_plan_of(&o, &b->servers[server]);
}

static void report(bench *b, const body_kind *body, const ol_plan *plans, ol_rounds *all) {
    xn_stats rates[SERVERS];
    for (int i = 0; i < SERVERS; i++)
        rates[i] = xn_stats_of(all[i].rate, b->rounds);
    for (int i = 0; i < SERVERS; i++) {
        const double rate = rates[i].median, bytes = (double)plans[i].message.body_length;
        b->failures += all[i].failures > 0;
        xn_report_row(
            &b->report, XN_T(body->form), XN_N(body->images), XN_N(bytes),
            XN_N(plans[i].connections), XN_T(names[i]), XN_N(rate), XN_N(rates[i].least),
            XN_N(all[i].rate[b->rounds - 1]), XN_N(rate * body->images), XN_N(rate * bytes / 1e6),
            XN_N(100 * rate / rates[ECHO].median),
            XN_N(1e-3 * xn_stats_of(all[i].p50_us, b->rounds).median),
            XN_N(1e-3 * xn_stats_of(all[i].p99_us, b->rounds).median),
            XN_N(i == XNORD ? 1e-3 * xn_stats_of(all[i].compute_us, b->rounds).median : NAN),
            XN_N(all[i].failures));
    }
}

static void run_body(bench *b, const body_kind *body, int connections) {
    static ol_rounds all[SERVERS];
    ol_plan plans[SERVERS];
    memset(all, 0, sizeof all);
    for (int i = 0; i < SERVERS; i++) {
        plans[i] = plan_of(b, i, connections);
        make_message(b, body, i, "", &plans[i].message);
    }
    for (int round = 0; round < b->rounds; round++) {
        char doing[64];
        snprintf(doing, sizeof doing, "round of %s, %d images, %d connections", body->form,
                 body->images, connections);
        xn_report_doing(&b->report, round + 1, b->rounds, doing);
        for (int i = 0; i < SERVERS; i++)
            ol_play_round(&plans[i], round, &all[i]);
    }
    report(b, body, plans, all);
    for (int i = 0; i < SERVERS; i++)
        ol_message_free(&plans[i].message);
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

static void make_expected(bench *b, const xn_birealnet *net) {
    xn_network *network = xn_birealnet_lower(net);
    xn_rng rng = {8};
    b->pixels = take(PICTURES * PIXELS);
    b->logits = take(PICTURES * CLASSES * sizeof(float));
    for (size_t i = 0; i < PICTURES * PIXELS; i++)
        b->pixels[i] = (unsigned char)xn_rng_next(&rng);
    run_on_ref(network, b);
    xn_network_free(network);
}

int bench_network(const bench_options *o) {
    static const int connections[] = {1, 8, 32};
    const xn_precision precision = o->fp16 ? XN_PRECISION_FP16 : XN_PRECISION_FP32;
    bench b = {.o = o, .rounds = o->rounds < OL_ROUNDS ? o->rounds : OL_ROUNDS};
    xn_birealnet *net = xn_birealnet_make(SIDE, precision);
    char backend[32];
    make_expected(&b, net);
    bench_birealnet_start(&b.processes[XNORD], o, net, NULL, &b.servers[XNORD]);
    bench_daemon_ready(&b.servers[XNORD], backend, sizeof backend);
    xn_birealnet_free(net);
    bench_echo_start(&b.processes[ECHO], o, &b.servers[ECHO]);
    xn_report_open(&b.report, o->json);
    printf("Bi-Real-18, %dx%dx3 bytes to logits, %s; xnord backend %s, %ld cores; medians of %d "
           "rounds\n",
           SIDE, SIDE, xn_precision_name(precision), backend, sysconf(_SC_NPROCESSORS_ONLN),
           b.rounds);
    xn_report_table(&b.report, columns, XN_COUNT(columns));
    for (int i = 0; i < XN_COUNT(bodies); i++) {
        check_first(&b, &bodies[i]);
        for (int c = 0; c < XN_COUNT(connections); c++)
            if (!o->connections || o->connections == connections[c])
                run_body(&b, &bodies[i], connections[c]);
    }
    xn_report_close(&b.report);
    for (int i = 0; i < SERVERS; i++)
        bench_process_stop(&b.processes[i]);
    free(b.pixels);
    free(b.logits);
    return b.failures ? 1 : 0;
}
