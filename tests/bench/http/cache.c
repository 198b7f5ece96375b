/* cache.c: works of `bench-http compare`: two daemons, one with a cache of answers, one without,
 * for the workload behind "cache-". Of the requests a share has one of 64 inputs, and all others an
 * input that never came before. So the share is the rate of hits, but for the first of each input;
 * what the daemon counted stands beside it. */
#include "compare.h"

#include <stdlib.h>
#include <string.h>

enum { OFF, ON, SIDES, PIXELS = 224 * 224 * 3, CLASSES = 1000, CONNECTIONS = 32 };

static void picture_message(ol_message *out) {
    static unsigned char pixels[PIXELS];
    xn_rng rng = {8};
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (unsigned char)xn_rng_next(&rng);
    ol_message_build("POST", "/v2/models/network/infer", "", pixels, PIXELS, 1, out);
    out->output_bytes = CLASSES * sizeof(float);
    out->stamp_at = out->length - PIXELS;
}

/* The values are the end of the body. */
static void shape_message(const ol_shape *shape, const struct sockaddr_in *server,
                          ol_message *out) {
    ol_message_make(shape, server, out);
    free(out->output); /* other inputs have other outputs */
    out->output = NULL;
    out->stamp_at = out->length - (size_t)shape->channels * (size_t)shape->side *
                                      (size_t)shape->side * sizeof(float);
}

static void start(bench_contest *c, const char *workload) {
    static const char *const cache[] = {"--response-cache-bytes", "64M", NULL};
    static const char *const names[SIDES] = {"no cache", "64 MiB"};
    const bool is_network = !strcmp(workload, "network");
    char backend[32];
    for (int i = 0; i < SIDES; i++) {
        bench_side *s = &c->sides[c->count++];
        const char *const *more = i == ON ? cache : NULL;
        s->name = names[i];
        if (is_network) {
            bench_model_start(&s->process, c->o, more, &s->server);
            picture_message(&s->message);
        } else {
            bench_daemon_start(&s->process, c->o, more, &s->server);
            bench_daemon_ready(&s->server, backend, sizeof backend);
            shape_message(ol_shape_named(workload), &s->server, &s->message);
        }
    }
}

static double counter(const bench_contest *c, const char *name) {
    char line[64];
    char *page = bench_get(&c->sides[ON].server, "/metrics");
    snprintf(line, sizeof line, "\nxnord_response_cache_%s_total ", name);
    const char *at = page ? strstr(page, line) : NULL;
    const double value = at ? strtod(at + strlen(line), NULL) : NAN;
    free(page);
    return value;
}

double bench_cache(const bench_options *o, xn_report *report, const char *name) {
    bench_contest c = {.o = o,
                       .report = report,
                       .work = name,
                       .connections = o->connections ? o->connections : CONNECTIONS,
                       .images = 1,
                       .seed = o->seed};
    const char *hits = o->hits;
    char word[16];
    start(&c, name + strlen("cache-"));
    while (bench_next_word(&hits, word, sizeof word)) {
        c.repeat = atof(word) / 100;
        const double hit = counter(&c, "hits"), missed = counter(&c, "misses");
        bench_play_sides(&c);
        const double hits_now = counter(&c, "hits") - hit;
        c.hits = 100 * hits_now / (hits_now + counter(&c, "misses") - missed);
        bench_report_sides(&c);
    }
    bench_contest_end(&c);
    return c.failures;
}
