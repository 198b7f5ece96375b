/* devices.c: `bench-http devices`: large layers on one GPU and on more, bytes in and half floats
 * out, by the same generator, in turns, round after round; beside the echo ceiling, which takes
 * bodies and sends answers of the same lengths. */
#include "load.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum { SERVERS = 9, TEXT = 512, CONNECTIONS = 128 };

typedef struct layer {
    const char *name;
    int channels, side;
} layer;

static const layer layers[] = {{"256x14", 256, 14}, {"512x7", 512, 7}, {"1024x14", 1024, 14}};

typedef struct server {
    bench_process process;
    struct sockaddr_in address;
    int gpus; /* 0: echo */
} server;

static const xn_column columns[] = {
    {"layer", "layer", 8, XN_TEXT},
    {"server", "server", 6, XN_TEXT},
    {"gpus", "GPUs", 4, 0},
    {"connections", "conns", 5, 0},
    {"body_bytes", "body bytes", 10, 0},
    {"answer_bytes", "answer bytes", 12, 0},
    {"requests_per_second", "requests/s", 10, 0},
    {"least_per_second", "least", 9, 0},
    {"most_per_second", "most", 9, 0},
    {"gigabytes_per_second", "GB/s", 6, 2},
    {"p50_us", "p50 us", 9, 0},
    {"p99_us", "p99 us", 9, 0},
    {"compute_us", "compute us", 10, 1},
    {"over_first", "/ first", 7, 2},
    {"over_echo", "/ echo", 7, 2},
    {"failures", "failures", 8, 0},
};

static size_t values_of(const layer *l) {
    return (size_t)l->channels * (size_t)l->side * (size_t)l->side;
}

/* ---- requests ---- */

static void make_message(const layer *l, const server *s, const char *connection, ol_message *out) {
    const size_t values = values_of(l);
    char json[TEXT], head[TEXT], path[32] = "/conv";
    xn_rng rng = {5};
    snprintf(json, sizeof json,
             "{\"input\": {\"shape\": [1, %d, %d, %d], \"datatype\": \"INT8\", \"parameters\": "
             "{\"binary_data_size\": %zu}}, \"weights\": \"%s\", \"padding\": 1, "
             "\"output_datatype\": \"FP16\"}",
             l->channels, l->side, l->side, values, l->name);
    if (!s->gpus)
        snprintf(path, sizeof path, "/%zu", values * 2);
    const size_t json_length = strlen(json);
    *out = (ol_message){.body_length = json_length + values, .output_bytes = values * 2};
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/octet-stream\r\n"
             "Inference-Header-Content-Length: %zu\r\nContent-Length: %zu\r\n\r\n",
             path, connection, json_length, out->body_length);
    const size_t head_length = strlen(head);
    out->length = head_length + out->body_length;
    out->bytes = malloc(out->length);
    if (!out->bytes)
        xn_bench_fail("devices", "no memory");
    memcpy(out->bytes, head, head_length);
    memcpy(out->bytes + head_length, json, json_length);
    for (size_t i = 0; i < values; i++)
        out->bytes[head_length + json_length + i] = (char)xn_rng_next(&rng);
}

/* The first answer of a server of xnord; every other must be it. */
static void keep_output(const layer *l, const server *s, ol_message *message) {
    ol_message once;
    size_t length = 0;
    make_message(l, s, "Connection: close\r\n", &once);
    char *answer = bench_exchange(&s->address, once.bytes, once.length, &length);
    if (!answer || strncmp(answer, "HTTP/1.1 200", 12) || length < once.output_bytes) {
        fprintf(stderr, "%s: %.600s\n", l->name, answer ? answer : "no answer");
        xn_bench_fail("devices", "the first answer is none");
    }
    message->output = once.output_bytes ? malloc(once.output_bytes) : NULL;
    if (!message->output)
        xn_bench_fail("devices", "no memory");
    memcpy(message->output, answer + length - once.output_bytes, once.output_bytes);
    ol_message_free(&once);
    free(answer);
}

/* ---- measuring ---- */

static ol_plan plan_of(const bench_options *given, const server *s) {
    bench_options o = *given;
    const int cores = bench_pin(NULL);
    o.connections = o.connections ? o.connections : CONNECTIONS;
    o.threads = o.threads ? o.threads : cores > 16 ? 8 : cores > 4 ? 4 : 1;
    o.seconds = o.seconds > 0 ? o.seconds : 3;
    o.rate = 0; /* a closed loop */
    return ol_plan_of(&o, &s->address);
}

static void report_server(xn_report *report, const layer *l, const server *s, const ol_plan *plan,
                          ol_rounds *r, int rounds, double first, double echo) {
    const xn_stats rate = xn_stats_of(r->rate, rounds);
    const double answer = (double)values_of(l) * 2;
    xn_report_row(
        report, XN_T(l->name), XN_T(s->gpus ? "xnord" : "echo"), XN_N(s->gpus ? s->gpus : NAN),
        XN_N(plan->connections), XN_N(plan->message.body_length), XN_N(answer), XN_N(rate.median),
        XN_N(rate.least), XN_N(r->rate[rounds - 1]),
        XN_N(rate.median * ((double)plan->message.body_length + answer) / 1e9),
        XN_N(xn_stats_of(r->p50_us, rounds).median), XN_N(xn_stats_of(r->p99_us, rounds).median),
        XN_N(s->gpus ? xn_stats_of(r->compute_us, rounds).median : NAN),
        XN_N(s->gpus ? rate.median / first : NAN), XN_N(s->gpus ? rate.median / echo : NAN),
        XN_N(r->failures));
}

/* Servers: xnord's in front, echo last. How many failures there were. */
static double run_layer(const bench_options *o, const layer *l, server *servers, int count,
                        xn_report *report) {
    static ol_rounds all[SERVERS];
    ol_plan plans[SERVERS];
    double failures = 0;
    const int rounds = o->rounds < OL_ROUNDS ? o->rounds : OL_ROUNDS;
    memset(all, 0, sizeof all);
    for (int i = 0; i < count; i++) {
        plans[i] = plan_of(o, &servers[i]);
        make_message(l, &servers[i], "", &plans[i].message);
        if (servers[i].gpus)
            keep_output(l, &servers[0], &plans[i].message);
    }
    for (int round = 0; round < rounds; round++) {
        char doing[64];
        snprintf(doing, sizeof doing, "round of %.40s", l->name);
        xn_report_doing(report, round + 1, rounds, doing);
        for (int i = 0; i < count; i++)
            ol_play_round(&plans[i], round, &all[i]);
    }
    const double first = xn_stats_of(all[0].rate, rounds).median;
    const double echo = xn_stats_of(all[count - 1].rate, rounds).median;
    for (int i = 0; i < count; i++) {
        report_server(report, l, &servers[i], &plans[i], &all[i], rounds, first, echo);
        failures += all[i].failures;
        ol_message_free(&plans[i].message);
    }
    return failures;
}

/* ---- the servers ---- */

static void start_xnord(const bench_options *o, server *s, int gpus) {
    char list[64] = "0", backend[32];
    const char *const flags[] = {"--backend", "cuda", "--devices", list, NULL};
    for (int i = 1; i < gpus; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), ",%d", i);
    s->gpus = gpus;
    bench_daemon_start(&s->process, o, flags, &s->address);
    bench_daemon_ready(&s->address, backend, sizeof backend);
    for (int i = 0; i < XN_COUNT(layers); i++)
        if (!ol_put_weights(layers[i].name, layers[i].channels, layers[i].channels, &s->address))
            xn_bench_fail("xnord", "it took no weights");
}

int bench_devices(const bench_options *o) {
    server servers[SERVERS] = {0};
    const char *gpus = o->gpus;
    char word[16];
    xn_report report;
    double failures = 0;
    int count = 0;
    while (count < SERVERS - 1 && bench_next_word(&gpus, word, sizeof word))
        start_xnord(o, &servers[count++], atoi(word) > 1 ? atoi(word) : 1);
    if (!count)
        xn_bench_fail("--gpus", "is a list of numbers such as \"1 2\"");
    bench_echo_start(&servers[count].process, o, &servers[count].address);
    count++;
    xn_report_open(&report, o->json);
    printf("3x3, as many filters as channels, INT8 to FP16, an image a request; %d cores; medians "
           "of %d rounds, in turns\n",
           bench_pin(NULL), o->rounds);
    xn_report_table(&report, columns, XN_COUNT(columns));
    for (int i = 0; i < XN_COUNT(layers); i++)
        failures += run_layer(o, &layers[i], servers, count, &report);
    xn_report_close(&report);
    for (int i = 0; i < count; i++)
        bench_process_stop(&servers[i].process);
    return failures > 0;
}
