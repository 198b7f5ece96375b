/* bench_cpu.c: the CPU's part of `make bench`: the paper's single-channel sizes and the 3x3 layers
 * of a ResNet, in one table ours, oneDNN's convolution of the same layer in its three datatypes
 * (peer_onednn.h) and a parallel memcpy of the same bytes, with what is to be reached; the same
 * layers with packed tensors (bench_cpu_packed.h); then every instruction set that this machine
 * has.   bench_cpu [--json FILE] [--only TEXT] [--sets]
 *
 * All of a row take turns (bench_turns.h), with as many threads as the process may use. */
#include "bench_cpu_packed.h"
#include "bench_turns.h"
#include "peer_onednn.h"
#include "xn_mem.h"

#include <stdlib.h>
#include <string.h>

enum { SIDES = 12, NAME_BYTES = 48 };

typedef struct row {
    xn_bench_shape shape;
    xn_mode mode;
    double copies; /* to reach: at most so many times the copy, 0 for none; */
    double factor; /* so many times faster than the peer named: */
    bool fp32;     /* its fp32, not its best datatype */
} row;

/* clang-format off: a row is read as a row. */
#define ONE(side, mode) XN_BENCH_LAYER(1, 1, side), mode
#define LAYER(images, channels, side, mode) XN_BENCH_LAYER(images, channels, side), mode
static const row rows[] = {
    {ONE(256, XN_MODE_XNOR), 0, 10, true},
    {ONE(512, XN_MODE_XNOR), 0, 10, true},
    {ONE(1024, XN_MODE_XNOR), 1.5, 10, true},
    {ONE(2048, XN_MODE_XNOR), 1.5, 10, true},
    {ONE(4096, XN_MODE_XNOR), 1.5, 10, true},
    {LAYER(1, 64, 56, XN_MODE_XNOR), 0, 0, false},
    {LAYER(1, 128, 28, XN_MODE_XNOR), 0, 0, false},
    {LAYER(1, 256, 14, XN_MODE_XNOR), 0, 0, false},
    {LAYER(1, 512, 7, XN_MODE_XNOR), 0, 0, false},
    {LAYER(64, 64, 56, XN_MODE_XNOR), 0, 1.5, false},
    {LAYER(64, 128, 28, XN_MODE_XNOR), 0, 1.5, false},
    {LAYER(64, 256, 14, XN_MODE_XNOR), 0, 1.5, false},
    {LAYER(64, 512, 7, XN_MODE_XNOR), 0, 1.5, false},
    {ONE(1024, XN_MODE_FLOAT), 0, 0, true},
    {LAYER(1, 64, 56, XN_MODE_FLOAT), 0, 0, true},
    {LAYER(1, 256, 14, XN_MODE_FLOAT), 0, 0, true},
    {LAYER(8, 256, 14, XN_MODE_FLOAT), 0, 0, true},
    {LAYER(1, 256, 14, XN_MODE_BWN), 0, 0, true},
};
/* clang-format on */
enum { ROWS = sizeof rows / sizeof *rows };

static const char *const type_names[XN_PEER_TYPES] = {"fp32", "bf16", "int8"};

static void fail(const char *what) {
    fprintf(stderr, "bench_cpu: %s\n", what);
    exit(1);
}

/* ---- who takes turns ---- */

static void run_job(void *job) {
    xn_bench_job_run(job);
}

typedef struct copy_job {
    size_t in, out;
    void *from, *to;
} copy_job;

static void run_copy(void *context) {
    const copy_job *c = context;
    xn_bench_copy(c->to, c->from, c->in, c->out);
}

static copy_job make_copy(const xn_bench_shape *p) {
    size_t pixels = (size_t)(p->images * p->side * p->side);
    copy_job c = {.in = pixels * (size_t)p->channels * sizeof(float),
                  .out = pixels * (size_t)p->filters * sizeof(float)};
    c.from = xn_mem_zalloc(c.in, 1);
    c.to = xn_mem_zalloc(c.out, 1);
    if (!c.from || !c.to)
        fail("no memory for a copy");
    memset(c.from, 1, c.in);
    memset(c.to, 2, c.out);
    return c;
}

/* ---- the peer ---- */

/* Some outputs, spread over all, from the definition: a wrong peer would be a fast one. */
static void check_peer(const xn_peer *peer, const xn_bench_shape *p) {
    const float *in = xn_peer_input(peer), *w = xn_peer_weights(peer), *out = xn_peer_output(peer);
    int64_t side = p->side, count = p->images * p->filters * side * side;
    for (int64_t at = 0; at < count; at += count / 97 + 1) {
        int64_t x = at % side, y = at / side % side, o = at / side / side % p->filters;
        int64_t n = at / side / side / p->filters;
        double sum = 0;
        for (int64_t c = 0; c < p->channels; c++)
            for (int64_t k = 0; k < p->kernel * p->kernel; k++) {
                int64_t iy = y + k / p->kernel - p->padding, ix = x + k % p->kernel - p->padding;
                if (iy >= 0 && iy < side && ix >= 0 && ix < side)
                    sum += (double)in[((n * p->channels + c) * side + iy) * side + ix] *
                           (double)w[(o * p->channels + c) * p->kernel * p->kernel + k];
            }
        if ((double)out[at] != sum)
            fail("oneDNN's result is not the convolution");
    }
}

typedef struct peers {
    xn_peer *peer[XN_PEER_TYPES][2]; /* fp32 in and out: with reorders, or plain */
    xn_peer *own[XN_PEER_TYPES];
} peers;

static void make_peers(const xn_bench_shape *p, peers *out) {
    for (int t = 0; t < XN_PEER_TYPES; t++) {
        out->own[t] = xn_peer_create(p, (xn_peer_type)t, XN_PEER_OWN);
        for (int f = 0; f < 2; f++) {
            xn_peer *peer = xn_peer_create(p, (xn_peer_type)t, f ? XN_PEER_PLAIN : XN_PEER_REORDER);
            out->peer[t][f] = peer;
            if (!peer)
                continue;
            xn_peer_run(peer);
            check_peer(peer, p);
        }
    }
}

static void free_peers(peers *p) {
    for (int t = 0; t < XN_PEER_TYPES; t++) {
        xn_peer_free(p->own[t]);
        xn_peer_free(p->peer[t][0]);
        xn_peer_free(p->peer[t][1]);
    }
}

/* ---- the table ---- */

/* Of a row: microseconds, 0 where there is none. */
typedef struct figures {
    xn_bench_stats ours, copy;
    double plain_us[XN_PEER_TYPES]; /* fp32 in and out, the faster of its two ways */
    double own_us[XN_PEER_TYPES];   /* its own layouts and datatypes */
    const char *kernel[XN_PEER_TYPES];
} figures;

static double faster(const xn_contender *a, const xn_contender *b) {
    if (!a->run || !b->run)
        return a->run ? a->stats.median_us : b->stats.median_us;
    return a->stats.median_us < b->stats.median_us ? a->stats.median_us : b->stats.median_us;
}

static void measure_row(const xn_bench_device *d, const row *r, figures *out) {
    xn_contender *sides = xn_bench_contenders(SIDES);
    peers with = {0};
    copy_job copy = make_copy(&r->shape);
    xn_bench_job *job = xn_bench_job_create(d, &r->shape, r->mode);
    make_peers(&r->shape, &with);
    sides[0] = (xn_contender){.run = run_job, .context = job};
    sides[1] = (xn_contender){.run = run_copy, .context = &copy};
    for (int t = 0; t < XN_PEER_TYPES; t++) {
        xn_peer *all[3] = {with.peer[t][0], with.peer[t][1], with.own[t]};
        for (int k = 0; k < 3; k++)
            if (all[k])
                sides[2 + 3 * t + k] = (xn_contender){.run = xn_peer_run, .context = all[k]};
    }
    xn_bench_turns(sides, SIDES);
    *out = (figures){.ours = sides[0].stats, .copy = sides[1].stats};
    for (int t = 0; t < XN_PEER_TYPES; t++) {
        out->plain_us[t] = faster(&sides[2 + 3 * t], &sides[3 + 3 * t]);
        out->own_us[t] = sides[4 + 3 * t].stats.median_us;
        if (with.own[t])
            out->kernel[t] = xn_peer_kernel(with.own[t]);
    }
    free_peers(&with);
    xn_bench_job_free(job);
    xn_mem_free(copy.from);
    xn_mem_free(copy.to);
    xn_mem_free(sides);
}

static double least(const double us[XN_PEER_TYPES]) {
    double best = 0;
    for (int t = 0; t < XN_PEER_TYPES; t++)
        if (us[t] > 0 && (best == 0 || us[t] < best))
            best = us[t];
    return best;
}

/* "64x256x14", "1x1x1024 float" */
static void name_problem(const row *r, char name[NAME_BYTES]) {
    static const char *const modes[] = {"", " bwn", " float"};
    snprintf(name, NAME_BYTES, "%lldx%lldx%lld%s", (long long)r->shape.images,
             (long long)r->shape.channels, (long long)r->shape.side, modes[r->mode]);
}

static void describe_target(const row *r, const figures *f, char *text, size_t size) {
    double peer = r->fp32 ? f->plain_us[XN_PEER_FP32] : least(f->plain_us);
    size_t n = 0;
    text[0] = '\0';
    if (r->copies > 0)
        n += (size_t)snprintf(text, size, "%s <= %.1f copy; ",
                              f->ours.median_us <= r->copies * f->copy.median_us ? "yes" : "NO",
                              r->copies);
    if (r->factor > 0 && peer > 0)
        snprintf(text + n, size - n, "%s >= %.1f of %s",
                 peer >= r->factor * f->ours.median_us ? "yes" : "NO", r->factor,
                 r->fp32 ? "fp32" : "best");
}

static void print_row(const row *r, const figures *f, FILE *json) {
    char name[NAME_BYTES], target[80];
    double ours = f->ours.median_us, best = least(f->plain_us);
    name_problem(r, name);
    describe_target(r, f, target, sizeof target);
    printf("%-15s %10.1f %9.1f..%-9.1f %9.1f %6.2f |", name, ours, f->ours.p10_us, f->ours.p90_us,
           f->copy.median_us, ours / f->copy.median_us);
    for (int t = 0; t < XN_PEER_TYPES; t++)
        printf(" %9.1f", f->plain_us[t]);
    printf(" %6.2f |", best / ours);
    for (int t = 0; t < XN_PEER_TYPES; t++)
        printf(" %9.1f", f->own_us[t]);
    printf(" | %s\n", target);
    fflush(stdout);
    xn_bench_json_row(json,
                      "{\"problem\": \"%s\", \"ours_us\": %.2f, \"p10_us\": %.2f, "
                      "\"p90_us\": %.2f, \"copy_us\": %.2f, \"onednn_plain_us\": [%.2f, %.2f, "
                      "%.2f], \"onednn_own_us\": [%.2f, %.2f, %.2f], \"target\": \"%s\"}",
                      name, ours, f->ours.p10_us, f->ours.p90_us, f->copy.median_us, f->plain_us[0],
                      f->plain_us[1], f->plain_us[2], f->own_us[0], f->own_us[1], f->own_us[2],
                      target);
}

/* A peer that runs plain C code would be no peer. */
static void print_kernels(const figures *f) {
    for (int t = 0; t < XN_PEER_TYPES; t++)
        if (f->kernel[t])
            printf("oneDNN %s ran %s\n", type_names[t], f->kernel[t]);
}

static bool wanted(const row *r, const char *only) {
    char name[NAME_BYTES];
    name_problem(r, name);
    return !only || strstr(name, only);
}

static void bench_rows(const xn_bench_device *d, const char *only, FILE *json) {
    figures f = {0};
    puts(
        "\n3x3, padding 1; ours: fp32 in and out, K and alpha; medians in us; copy: the same bytes."
        "\noneDNN with fp32 NCHW in and out, reorders in the time; then in its own layouts, from"
        "\nand to its own datatypes. x: the best of oneDNN's three over ours.");
    printf("%-15s %10s %20s %9s %6s | %9s %9s %9s %6s | %9s %9s %9s | to reach\n", "batch", "ours",
           "p10..p90", "copy", "ratio", "fp32", "bf16", "int8", "x", "fp32 own", "bf16 own",
           "int8 own");
    for (int i = 0; i < ROWS; i++) {
        if (!wanted(&rows[i], only))
            continue;
        measure_row(d, &rows[i], &f);
        print_row(&rows[i], &f, json);
    }
    print_kernels(&f);
}

/* ---- instruction sets ---- */

static const char *const sets[] = {"avx512-vpopcnt", "avx512", "avx2", "neon", "portable"};
enum { SETS = sizeof sets / sizeof *sets };

/* A device of its own, held to the set; false where the machine lacks it. */
static bool open_set(const char *set, xn_bench_device *out) {
    const xn_backend *cpu = xn_backend_find("cpu");
    const xn_device_options options = {.instruction_set = set};
    xn_error error;
    *out = (xn_bench_device){.backend = cpu};
    if (cpu->device_open(0, &out->device, &error))
        fail(error.message);
    if (cpu->device_configure(out->device, &options, &error)) {
        cpu->device_close(out->device);
        return false;
    }
    if (cpu->stream_create(out->device, &(xn_stream_options){0}, &out->stream, &error))
        fail(error.message);
    cpu->device_info(out->device, &out->info);
    return true;
}

static void bench_set_row(const xn_bench_device *devices, const bool *has, const row *r,
                          FILE *json) {
    xn_contender *sides = xn_bench_contenders(SETS);
    for (int i = 0; i < SETS; i++)
        if (has[i])
            sides[i] = (xn_contender){
                .run = run_job, .context = xn_bench_job_create(&devices[i], &r->shape, r->mode)};
    xn_bench_turns(sides, SETS);
    char name[NAME_BYTES];
    name_problem(r, name);
    printf("%-15s", name);
    for (int i = 0; i < SETS; i++) {
        if (!has[i])
            continue;
        double us = sides[i].stats.median_us, portable = sides[SETS - 1].stats.median_us;
        printf(" %9.1f (%5.2f)", us, portable / us);
        xn_bench_json_row(json,
                          "{\"problem\": \"%s\", \"instruction_set\": \"%s\", "
                          "\"ours_us\": %.2f, \"portable_us\": %.2f}",
                          name, sets[i], us, portable);
        xn_bench_job_free(sides[i].context);
    }
    putchar('\n');
    fflush(stdout);
    xn_mem_free(sides);
}

static void bench_sets(const char *only, FILE *json) {
    xn_bench_device devices[SETS];
    bool has[SETS];
    printf("\neach instruction set: us (times as fast as portable)\n%-15s", "");
    for (int i = 0; i < SETS; i++) {
        has[i] = open_set(sets[i], &devices[i]);
        if (has[i])
            printf(" %17s", sets[i]);
    }
    putchar('\n');
    for (int i = 0; i < ROWS; i++)
        if (rows[i].shape.images == 1 && wanted(&rows[i], only))
            bench_set_row(devices, has, &rows[i], json);
    for (int i = 0; i < SETS; i++)
        if (has[i])
            xn_bench_close(&devices[i]);
}

int main(int argc, char **argv) {
    const char *only = NULL, *version = xn_peer_version();
    bool sets_only = false;
    xn_bench_device device;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--only") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--sets"))
            sets_only = true;
    }
    FILE *json = xn_bench_json_open(argc, argv, "bench_cpu.json");
    if (!xn_bench_open("cpu", NULL, &device))
        fail("no cpu");
    printf("cpu (%s); oneDNN %s\n", device.info.description,
           version ? version : "is not installed: its columns are 0 (Debian: libdnnl-dev)");
    if (!sets_only) {
        bench_rows(&device, only, json);
        xn_bench_cpu_packed(&device, only, json);
    }
    xn_bench_close(&device);
    bench_sets(only, json);
    xn_bench_json_close(json);
    return 0;
}
