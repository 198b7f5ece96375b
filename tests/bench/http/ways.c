/* ways.c: `bench-http ways`: the same work, sent in another way: a layer with floats and with
 * packed bits in and out, an image in the body and in system shared memory, and a small one to
 * /conv and as an inference request. Both of a pair against one daemon, by the same generator, in
 * turns, round after round. Each connection has its own range of shared memory, as clients do that
 * want their answers; it fills and reads it by itself: that is not in the times, nor is making a
 * body. */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TEXT = 1024, CHANNELS = 64, SIDE = 56, PIXELS = SIDE * SIDE, IMAGE = 512 };
enum { FLOATS = CHANNELS * PIXELS * 4, BITS = CHANNELS / 8 * PIXELS };
enum { IMAGE_BYTES = IMAGE * IMAGE * 4, SMALL_BYTES = 32 * 32 * 4, WAYS = 2, CONNECTIONS = 32 };
enum { REGION_BYTES = CONNECTIONS * IMAGE_BYTES };

/* A request: its JSON and the values behind it. */
typedef struct way {
    const char *name, *path, *json; /* an OFFSET in the JSON: the connection's, of its image */
    size_t values, output;          /* bytes behind the JSON, of the request and of the answer */
} way;

typedef struct pair {
    const char *work;
    double asked; /* of the second, over the first */
    way ways[WAYS];
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
#define OFFSET "@@@@@@@@"
#define REGION(name)                                                                               \
    "\"shared_memory_region\": \"" name "\", \"shared_memory_byte_size\": 1048576, "               \
    "\"shared_memory_offset\": " OFFSET

static const pair pairs[] = {
    {"64 channels of 56x56",
     4,
     {{"FP32", "/conv", LAYER("FP32", "802816", ""), FLOATS, FLOATS},
      {"BITS", "/conv", LAYER("BITS", "25088", ", \"output_datatype\": \"BITS\""), BITS, BITS}}},
    {"an image of 512x512",
     1.5,
     {{"body", "/v2/models/image/infer",
       INFER(TENSOR("input", "512", "\"binary_data_size\": 1048576"), "\"binary_data\": true"),
       IMAGE_BYTES, IMAGE_BYTES},
      {"shared memory", "/v2/models/image/infer",
       INFER(TENSOR("input", "512", REGION("in")), REGION("out")), 0, 0}}},
    {"an image of 32x32",
     0.9,
     {{"/conv", "/conv",
       "{\"input\": {\"shape\": [1, 1, 32, 32], \"datatype\": \"FP32\", \"parameters\": "
       "{\"binary_data_size\": 4096}}, \"weights\": \"image\", \"padding\": 1}",
       SMALL_BYTES, SMALL_BYTES},
      {"/infer", "/v2/models/image/infer",
       INFER(TENSOR("input", "32", "\"binary_data_size\": 4096"), "\"binary_data\": true"),
       SMALL_BYTES, SMALL_BYTES}}},
};

static const xn_column columns[] = {
    {"work", "work", 20, XN_TEXT},
    {"way", "way", 13, XN_TEXT},
    {"body_bytes", "body bytes", 10, 0},
    {"connections", "conns", 5, 0},
    {"requests_per_second", "requests/s", 10, 0},
    {"least_per_second", "least", 9, 0},
    {"most_per_second", "most", 9, 0},
    {"p50_us", "p50 us", 9, 0},
    {"p99_us", "p99 us", 9, 0},
    {"compute_us", "compute us", 10, 0},
    {"factor", "factor", 6, 2},
    {"asked", "asked", 5, 1},
    {"failures", "failures", 8, 0},
};

/* ---- requests ---- */

static void fill(void *values, size_t bytes) {
    xn_rng rng = {7};
    for (size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
        const float value = xn_rng_float(&rng);
        memcpy((char *)values + i, &value, sizeof value);
    }
}

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

static void *take(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory)
        xn_bench_fail("ways", "no memory");
    return memory;
}

/* Random floats, or the signs of the layer's. */
static void make_values(const way *w, char *values) {
    if (w->values != BITS) {
        fill(values, w->values);
        return;
    }
    char *floats = take(FLOATS);
    fill(floats, FLOATS);
    pack(floats, values);
    free(floats);
}

static void put_offset(char *json, int connection) {
    char digits[16]; /* eight are enough for REGION_BYTES */
    snprintf(digits, sizeof digits, "%8d", connection * IMAGE_BYTES);
    for (char *at = json; (at = strstr(at, OFFSET));)
        memcpy(at, digits, strlen(OFFSET));
}

/* Those of connections first .. first + count - 1. */
static void make_messages(const way *w, const char *more, int first, int count, ol_message *out) {
    const size_t json = strlen(w->json);
    char head[TEXT], text[TEXT];
    *out = (ol_message){.body_length = json + w->values,
                        .output_bytes = w->output,
                        .any_length = !w->output,
                        .variants = (size_t)count};
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/octet-stream\r\n"
             "Inference-Header-Content-Length: %zu\r\nContent-Length: %zu\r\n\r\n",
             w->path, more, json, out->body_length);
    const size_t head_length = strlen(head);
    out->length = head_length + out->body_length;
    out->bytes = take(out->length * out->variants);
    for (int i = 0; i < count; i++) {
        char *bytes = out->bytes + (size_t)i * out->length;
        memcpy(bytes, head, head_length);
        memcpy(text, w->json, json + 1);
        put_offset(text, first + i);
        memcpy(bytes + head_length, text, json);
        make_values(w, bytes + head_length + json);
    }
}

static char *ask_once(const way *w, int connection, const struct sockaddr_in *server,
                      size_t *length) {
    ol_message message;
    make_messages(w, "Connection: close\r\n", connection, 1, &message);
    char *answer = bench_exchange(server, message.bytes, message.length, length);
    ol_message_free(&message);
    if (!answer || strncmp(answer, "HTTP/1.1 200", 12)) {
        fprintf(stderr, "%s: %.600s\n", w->name, answer ? answer : "no answer");
        xn_bench_fail("ways", "the first answer is none");
    }
    return answer;
}

/* ---- measuring ---- */

static ol_plan plan_of(const bench_options *given, const struct sockaddr_in *server,
                       int connections) {
    bench_options o = *given;
    const int threads = o.threads ? o.threads : bench_pin(NULL) > 4 ? 4 : 1;
    o.connections = connections;
    o.threads = threads < connections ? threads : connections;
    o.seconds = o.seconds > 0 ? o.seconds : 4;
    o.rate = 0; /* a closed loop */
    return ol_plan_of(&o, server);
}

/* How many failures there were. */
static double run_pair(const bench_options *o, const pair *p, const struct sockaddr_in *server,
                       int connections, xn_report *report) {
    static ol_rounds all[WAYS];
    ol_plan plans[WAYS];
    xn_stats rates[WAYS];
    const int rounds = o->rounds < OL_ROUNDS ? o->rounds : OL_ROUNDS;
    memset(all, 0, sizeof all);
    for (int i = 0; i < WAYS; i++) {
        plans[i] = plan_of(o, server, connections);
        make_messages(&p->ways[i], "", 0, p->ways[i].values ? 1 : connections, &plans[i].message);
    }
    for (int round = 0; round < rounds; round++) {
        char doing[96];
        snprintf(doing, sizeof doing, "round of %.40s, %d connections", p->work, connections);
        xn_report_doing(report, round + 1, rounds, doing);
        for (int i = 0; i < WAYS; i++)
            ol_play_round(&plans[i], round, &all[i]);
    }
    for (int i = 0; i < WAYS; i++) {
        rates[i] = xn_stats_of(all[i].rate, rounds);
        xn_report_row(report, XN_T(p->work), XN_T(p->ways[i].name),
                      XN_N(plans[i].message.body_length), XN_N(connections), XN_N(rates[i].median),
                      XN_N(rates[i].least), XN_N(all[i].rate[rounds - 1]),
                      XN_N(xn_stats_of(all[i].p50_us, rounds).median),
                      XN_N(xn_stats_of(all[i].p99_us, rounds).median),
                      XN_N(xn_stats_of(all[i].compute_us, rounds).median),
                      XN_N(i ? rates[i].median / rates[0].median : NAN), XN_N(i ? p->asked : NAN),
                      XN_N(all[i].failures));
        ol_message_free(&plans[i].message);
    }
    return all[0].failures + all[1].failures;
}

/* ---- shared memory ---- */

static void make_region(const char *name, const struct sockaddr_in *server, char *key,
                        size_t size) {
    char body[TEXT], request[2 * TEXT];
    snprintf(key, size, "/xnord-bench-%d-%s", (int)getpid(), name);
    const int fd = shm_open(key, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, REGION_BYTES))
        xn_bench_fail(key, strerror(errno));
    char *values = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (values == MAP_FAILED)
        xn_bench_fail(key, strerror(errno));
    for (int i = 0; i < CONNECTIONS; i++)
        fill(values + (size_t)i * IMAGE_BYTES, IMAGE_BYTES);
    munmap(values, REGION_BYTES);
    close(fd);
    snprintf(body, sizeof body, "{\"key\": \"%s\", \"offset\": 0, \"byte_size\": %d}", key,
             REGION_BYTES);
    const int length =
        snprintf(request, sizeof request,
                 "POST /v2/systemsharedmemory/region/%s/register HTTP/1.1\r\n"
                 "Host: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                 name, strlen(body), body);
    char *answer = bench_exchange(server, request, (size_t)length, NULL);
    const bool ok = answer && !strncmp(answer, "HTTP/1.1 200", 12);
    if (!ok)
        fprintf(stderr, "%.600s\n", answer ? answer : "no answer");
    free(answer);
    if (!ok) {
        shm_unlink(key);
        xn_bench_fail("xnord", "it took no shared memory");
    }
}

/* Both ways must give the same: values in the body, and for each connection in shared memory. */
static void check_image(const pair *p, const struct sockaddr_in *server, const char *out_key) {
    size_t length = 0, ignored = 0;
    char *body = ask_once(&p->ways[0], 0, server, &length);
    for (int i = 0; i < CONNECTIONS; i++)
        free(ask_once(&p->ways[1], i, server, &ignored));
    const int fd = shm_open(out_key, O_RDONLY, 0);
    const char *values = mmap(NULL, REGION_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    bool same = values != MAP_FAILED && length >= IMAGE_BYTES;
    for (int i = 0; i < CONNECTIONS && same; i++)
        same = !memcmp(values + (size_t)i * IMAGE_BYTES, body + length - IMAGE_BYTES, IMAGE_BYTES);
    if (values != MAP_FAILED)
        munmap((void *)values, REGION_BYTES);
    if (fd >= 0)
        close(fd);
    free(body);
    if (!same)
        xn_bench_fail("xnord", "shared memory has other values than the body");
}

/* The bits must be the signs of the floats. */
static void check_layer(const pair *p, const struct sockaddr_in *server) {
    size_t length[WAYS] = {0};
    char *answers[WAYS], signs[BITS];
    for (int i = 0; i < WAYS; i++)
        answers[i] = ask_once(&p->ways[i], 0, server, &length[i]);
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

int bench_ways(const bench_options *o) {
    static const int connections[] = {1, 32};
    static const char *const flags[] = {"--allow-client-shm", NULL};
    char backend[32], keys[WAYS][64];
    bench_process process = {0};
    struct sockaddr_in server;
    xn_report report;
    double failures = 0;
    bench_daemon_start(&process, o, flags, &server);
    bench_daemon_ready(&server, backend, sizeof backend);
    if (!ol_put_weights("layer", CHANNELS, CHANNELS, &server) ||
        !ol_put_weights("image", 1, 1, &server))
        xn_bench_fail("xnord", "it took no weights");
    make_region("in", &server, keys[0], sizeof keys[0]);
    make_region("out", &server, keys[1], sizeof keys[1]);
    check_layer(&pairs[0], &server);
    check_image(&pairs[1], &server, keys[1]);
    for (int i = 0; i < WAYS; i++) /* the daemon has them open */
        shm_unlink(keys[i]);
    xn_report_open(&report, o->json);
    printf("xnord backend %s, %d cores; medians of %d rounds, in turns\n", backend, bench_pin(NULL),
           o->rounds);
    xn_report_table(&report, columns, XN_COUNT(columns));
    for (int i = 0; i < XN_COUNT(pairs); i++)
        for (int c = 0; c < XN_COUNT(connections); c++)
            if (!o->connections || o->connections == connections[c])
                failures += run_pair(o, &pairs[i], &server, connections[c], &report);
    xn_report_close(&report);
    bench_process_stop(&process);
    return failures > 0;
}
