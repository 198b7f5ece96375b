/* bench_cpu_packed.c: see bench_cpu_packed.h. The peak is that of cpu_peak.h, taking turns too:
 * what xor, popcount and addition could do on all cores if there were no memory. */
#include "bench_cpu_packed.h"

#include "bench_turns.h"
#include "cpu_peak.h"
#include "cpu_subject.h"
#include "peer_onednn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INT32_OUT, PACKED_OUT, PEAK, COUNT, PEERS, SIDES = PEERS + XN_PEER_TYPES };
enum { NAME_BYTES = 48 };

typedef struct row {
    xn_bench_shape shape;
    double factor; /* to reach: so many times faster than oneDNN's best */
    double peak;   /* to reach: this part of the peak; 0: none */
} row;

static const row rows[] = {
    {XN_BENCH_LAYER(1, 64, 56), 3, 0},     {XN_BENCH_LAYER(1, 128, 28), 3, 0},
    {XN_BENCH_LAYER(1, 256, 14), 3, 0},    {XN_BENCH_LAYER(1, 512, 7), 3, 0},
    {XN_BENCH_LAYER(64, 64, 56), 2, 0.6},  {XN_BENCH_LAYER(64, 128, 28), 2, 0.6},
    {XN_BENCH_LAYER(64, 256, 14), 2, 0.6}, {XN_BENCH_LAYER(64, 512, 7), 2, 0.6},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* A loop of cpu_peak.h, and the best rate that its runs had: a peak is what can be had. */
typedef struct loop {
    double (*rate)(void);
    double best;
} loop;

static void run_loop(void *context) {
    loop *l = context;
    l->best = fmax(l->best, l->rate());
}

typedef struct figures {
    xn_bench_stats ours, packed;
    double tops, packed_tops; /* by the medians */
    double peak, count;       /* 10^12 operations a second; 0: unknown */
    double peer_us[XN_PEER_TYPES], best_us;
} figures;

static double operations_of(const row *r) {
    const xn_bench_shape *s = &r->shape;
    return 2.0 * 9 * (double)(s->images * s->filters * s->channels * s->side * s->side);
}

static double tops_of(const row *r, const xn_bench_stats *stats) {
    return operations_of(r) / stats->median_us / 1e6;
}

static void make_layer(const xn_bench_device *d, const row *r, xn_bench_layer *layer,
                       xn_prepared **prepared) {
    xn_error error;
    xn_bench_layer_make(&r->shape, layer);
    if (d->backend->weights_prepare(d->device, layer->weights, prepared, &error)) {
        fprintf(stderr, "bench_cpu: weights: %s\n", error.message);
        exit(1);
    }
}

static void fill_peers(const row *r, xn_contender *sides) {
    for (int t = 0; t < XN_PEER_TYPES; t++) {
        xn_peer *peer = xn_peer_create(&r->shape, (xn_peer_type)t, XN_PEER_OWN);
        if (peer)
            sides[t] = (xn_contender){.run = xn_peer_run, .context = peer};
    }
}

static void summarise(const row *r, const xn_contender *sides, const loop *peak, const loop *count,
                      figures *out) {
    *out = (figures){.ours = sides[INT32_OUT].stats,
                     .packed = sides[PACKED_OUT].stats,
                     .peak = peak->best,
                     .count = count->best};
    out->tops = tops_of(r, &out->ours);
    out->packed_tops = tops_of(r, &out->packed);
    for (int t = 0; t < XN_PEER_TYPES; t++) {
        double us = sides[PEERS + t].stats.median_us;
        out->peer_us[t] = us;
        if (us > 0 && (out->best_us == 0 || us < out->best_us))
            out->best_us = us;
    }
}

static void measure_row(const xn_bench_device *d, const row *r, figures *out) {
    static const xn_bench_kind kinds[] = {XN_BENCH_PACKED_INT32, XN_BENCH_PACKED_PACKED};
    xn_contender *sides = xn_bench_contenders(SIDES);
    loop peak = {.rate = xn_cpu_peak_xor_count_add}, count = {.rate = xn_cpu_peak_count};
    xn_cpu_subject subjects[2];
    xn_bench_layer layer;
    xn_prepared *prepared = NULL;
    make_layer(d, r, &layer, &prepared);
    for (int k = 0; k < 2; k++) {
        xn_cpu_subject_make(d->stream, &layer, kinds[k], prepared, &subjects[k]);
        sides[k] = (xn_contender){.run = xn_cpu_subject_run, .context = &subjects[k]};
    }
    sides[PEAK] = (xn_contender){.run = run_loop, .context = &peak};
    sides[COUNT] = (xn_contender){.run = run_loop, .context = &count};
    fill_peers(r, sides + PEERS);
    xn_bench_turns(sides, SIDES);
    summarise(r, sides, &peak, &count, out);
    for (int t = 0; t < XN_PEER_TYPES; t++)
        xn_peer_free(sides[PEERS + t].context);
    for (int k = 0; k < 2; k++)
        xn_cpu_subject_free(&subjects[k]);
    d->backend->weights_free(prepared);
    xn_bench_layer_free(&layer);
    xn_mem_free(sides);
}

static double part(double of, double whole) {
    return whole > 0 ? of / whole : 0;
}

static void describe_target(const row *r, const figures *f, char *text, size_t size) {
    size_t n = 0;
    text[0] = '\0';
    if (r->peak > 0 && f->peak > 0)
        n = (size_t)snprintf(text, size, "%s >= %.0f%% of peak; ",
                             f->tops >= r->peak * f->peak ? "yes" : "NO", 100 * r->peak);
    if (f->best_us > 0)
        snprintf(text + n, size - n, "%s >= %.1f of best",
                 f->best_us >= r->factor * f->ours.median_us ? "yes" : "NO", r->factor);
}

static void print_row(const row *r, const char *name, const figures *f, FILE *json) {
    char target[80];
    double us = f->ours.median_us;
    describe_target(r, f, target, sizeof target);
    printf("%-15s %10.1f %9.1f..%-9.1f %6.2f %4.0f%% %4.0f%% | %9.1f %6.2f |", name, us,
           f->ours.p10_us, f->ours.p90_us, f->tops, 100 * part(f->tops, f->peak),
           100 * part(f->tops, f->count), f->packed.median_us, f->packed_tops);
    for (int t = 0; t < XN_PEER_TYPES; t++)
        printf(" %9.1f", f->peer_us[t]);
    printf(" %6.2f | %s\n", f->best_us / us, target);
    fflush(stdout);
    xn_bench_json_row(json,
                      "{\"problem\": \"%s packed\", \"ours_us\": %.2f, \"p10_us\": %.2f, "
                      "\"p90_us\": %.2f, \"tops\": %.3f, \"peak_tops\": %.3f, "
                      "\"popcount_tops\": %.3f, \"packed_out_us\": %.2f, "
                      "\"onednn_own_us\": [%.2f, %.2f, %.2f], \"target\": \"%s\"}",
                      name, us, f->ours.p10_us, f->ours.p90_us, f->tops, f->peak, f->count,
                      f->packed.median_us, f->peer_us[0], f->peer_us[1], f->peer_us[2], target);
}

void xn_bench_cpu_packed(const xn_bench_device *d, const char *only, FILE *json) {
    figures f = {0};
    puts("\n3x3, padding 1, packed in, INT32 out (then packed out); Tops: 2 operations a tap. peak:"
         "\nof xor, popcount and addition in registers; popc: of popcount alone. oneDNN from and to"
         "\nits own layouts and datatypes. x: the best of its three over ours with INT32 out.");
    printf("%-15s %10s %20s %6s %5s %5s | %9s %6s | %8s %9s %9s %6s | to reach\n", "batch", "ours",
           "p10..p90", "Tops", "peak", "popc", "packed", "Tops", "fp32", "bf16", "int8", "x");
    for (int i = 0; i < ROWS; i++) {
        const row *r = &rows[i];
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)r->shape.images,
                 (long long)r->shape.channels, (long long)r->shape.side);
        if (only && !strstr(name, only))
            continue;
        measure_row(d, r, &f);
        print_row(r, name, &f, json);
    }
    if (f.peak > 0)
        printf("peak %.2f Tops, popcount alone %.2f\n", f.peak, f.count);
}
