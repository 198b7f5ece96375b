/* devices.c: a work of `bench-http compare`: large layers on one GPU and on more, bytes in and half
 * floats out; beside the echo ceiling, which takes bodies and sends answers of the same lengths. */
#include "compare.h"

#include <stdlib.h>
#include <string.h>

enum { CONNECTIONS = 128 };

typedef struct layer {
    const char *name;
    int channels, side;
} layer;

static const layer layers[] = {{"256x14", 256, 14}, {"512x7", 512, 7}, {"1024x14", 1024, 14}};

static void make_message(const layer *l, const bench_side *s, ol_message *out) {
    const size_t values = (size_t)l->channels * (size_t)l->side * (size_t)l->side;
    char json[512], path[32] = "/conv";
    unsigned char *bytes = bench_take(values);
    xn_rng rng = {5};
    for (size_t i = 0; i < values; i++)
        bytes[i] = (unsigned char)xn_rng_next(&rng);
    snprintf(json, sizeof json,
             "{\"input\": {\"shape\": [1, %d, %d, %d], \"datatype\": \"INT8\", \"parameters\": "
             "{\"binary_data_size\": %zu}}, \"weights\": \"%s\", \"padding\": 1, "
             "\"output_datatype\": \"FP16\"}",
             l->channels, l->side, l->side, values, l->name);
    if (s->is_echo)
        snprintf(path, sizeof path, "/%zu", values * 2);
    ol_message_build("POST", path, json, bytes, values, 1, out);
    out->output_bytes = values * 2;
    free(bytes);
}

static void start_xnord(const bench_options *o, bench_side *s, int gpus) {
    static const char *const names[] = {"1 GPU",  "2 GPUs", "3 GPUs", "4 GPUs",
                                        "5 GPUs", "6 GPUs", "7 GPUs", "8 GPUs"};
    char list[64] = "0", backend[32];
    const char *const flags[] = {"--backend", "cuda", "--devices", list, NULL};
    if (gpus < 1 || gpus > XN_COUNT(names))
        xn_bench_fail("--gpus", "is a list of numbers such as \"1 2\", at most 8");
    for (int i = 1; i < gpus; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), ",%d", i);
    s->name = names[gpus - 1];
    bench_daemon_start(&s->process, o, flags, &s->server);
    bench_daemon_ready(&s->server, backend, sizeof backend);
    for (int i = 0; i < XN_COUNT(layers); i++)
        ol_put_weights(layers[i].name, layers[i].channels, layers[i].channels, &s->server);
}

/* Servers: xnord's in front, echo last. Every answer must be the first one's. */
double bench_devices(const bench_options *o, xn_report *report, const char *name) {
    const int connections = o->connections ? o->connections : CONNECTIONS;
    bench_contest c = {.o = o, .report = report, .images = 1, .hits = NAN};
    const char *gpus = o->gpus;
    char word[16];
    (void)name;
    while (c.count < BENCH_SIDES - 1 && bench_next_word(&gpus, word, sizeof word))
        start_xnord(o, &c.sides[c.count++], atoi(word));
    bench_echo_side(o, &c.sides[c.count++]);
    for (int i = 0; i < XN_COUNT(layers); i++) {
        c.work = layers[i].name;
        for (int k = 0; k < c.count; k++) {
            bench_side *s = &c.sides[k];
            make_message(&layers[i], s, &s->message);
            if (!s->is_echo)
                ol_keep_output(&s->message, &c.sides[0].server);
        }
        bench_compare_sides(&c, &connections, 1);
        bench_contest_next(&c);
    }
    bench_contest_end(&c);
    return c.failures;
}
