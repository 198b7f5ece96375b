/* runs.c: `bench-conv time --of runs`: whole runs on GPUs, from host memory to host memory, as the
 * service's workers do them: threads with a stream each, on one GPU and on all there are, batches
 * of items that lie apart. Two ways in turns: as the backend does it, which is without copies where
 * a batch is small, and with a copy an item and an event a stage. */
#include "../clock.h"
#include "../model.h"
#include "rows.h"

#include "xn_mem.h"
#include "xn_rng.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS = 2, MOST_DEVICES = 16, MOST_THREADS = 16, MOST_ITEMS = 64, SAMPLES = 1 << 14 };
enum { ROUNDS = 64 };

/* ---- what runs ---- */

typedef struct work {
    const char *name;
    xn_problem problem;
    const xn_weights *const *weights;
    int weights_count;
    size_t in_bytes, out_bytes; /* of an image, which is an item */
} work;

typedef struct gpu {
    xn_device *device;
    xn_prepared **prepared;
} gpu;

typedef struct bench {
    const xn_backend *ways[WAYS];
    gpu gpus[MOST_DEVICES];
    int gpu_count;
    const work *work;
} bench;

static void must(xn_status status, const xn_error *error) {
    if (status)
        xn_bench_fail("runs", error->message);
}

/* ---- a thread ---- */

typedef struct turn {
    atomic_bool go, stop;
} turn;

typedef struct runner {
    const bench *b;
    const gpu *on;
    int items;
    xn_stream *stream;
    xn_program *programs[WAYS];
    xn_batch_item batch[MOST_ITEMS];
    /* of a turn */
    pthread_t thread;
    turn *turn;
    int way, samples;
    int64_t runs;
    double us[SAMPLES]; /* of the first runs */
    xn_run_times times; /* of all together */
} runner;

static void *take_pinned(const runner *r, size_t bytes) {
    void *memory = r->b->ways[0]->host_alloc(r->on->device, bytes);
    if (!memory)
        xn_bench_fail("runs", "no pinned memory");
    return memory;
}

static xn_run_times run_once(runner *r) {
    xn_run_times times = {0};
    xn_error error;
    must(xn_program_run(r->programs[r->way], (const xn_prepared *const *)r->on->prepared, r->batch,
                        (size_t)r->items, &times, &error),
         &error);
    return times;
}

static void open_runner(const bench *b, const gpu *on, int items, runner *r) {
    const work *w = b->work;
    xn_rng rng = {17};
    xn_error error;
    *r = (runner){.b = b, .on = on, .items = items};
    must(b->ways[0]->stream_create(on->device, &(xn_stream_options){0}, &r->stream, &error),
         &error);
    for (int i = 0; i < WAYS; i++) {
        must(xn_program_create(b->ways[i], r->stream, &w->problem, items, &r->programs[i], &error),
             &error);
        must(xn_program_ready(r->programs[i], (const xn_prepared *const *)on->prepared, &error),
             &error);
    }
    for (int i = 0; i < items; i++) {
        unsigned char *input = take_pinned(r, w->in_bytes);
        for (size_t k = 0; k < w->in_bytes; k++) /* as FP32: no NaN */
            input[k] = (unsigned char)(xn_rng_next(&rng) & 0x3f);
        r->batch[i] = (xn_batch_item){input, take_pinned(r, w->out_bytes), 1};
    }
}

static void close_runner(runner *r) {
    const xn_backend *b = r->b->ways[0];
    for (int i = 0; i < r->items; i++) {
        b->host_free(r->on->device, (void *)(uintptr_t)r->batch[i].input);
        b->host_free(r->on->device, r->batch[i].output);
    }
    for (int i = 0; i < WAYS; i++)
        xn_program_free(r->programs[i]);
    b->stream_free(r->stream);
}

static void *play(void *context) {
    runner *r = context;
    while (!atomic_load(&r->turn->go)) {
    }
    while (!atomic_load(&r->turn->stop)) {
        const int64_t start = xn_bench_now_ns();
        const xn_run_times times = run_once(r);
        if (r->samples < SAMPLES)
            r->us[r->samples++] = (double)(xn_bench_now_ns() - start) / 1e3;
        r->times.upload_ns += times.upload_ns;
        r->times.compute_ns += times.compute_ns;
        r->times.download_ns += times.download_ns;
        r->runs++;
    }
    return NULL;
}

/* Both ways must write the same. */
static int64_t count_wrong(runner *r) {
    const size_t bytes = r->b->work->out_bytes;
    char *kept = xn_bench_take((size_t)r->items, bytes);
    int64_t wrong = 0;
    for (r->way = WAYS - 1; r->way >= 0; r->way--) {
        run_once(r);
        for (int i = 0; i < r->items; i++) {
            if (r->way)
                memcpy(kept + (size_t)i * bytes, r->batch[i].output, bytes);
            else
                wrong += memcmp(kept + (size_t)i * bytes, r->batch[i].output, bytes) != 0;
            memset(r->batch[i].output, 0, bytes);
        }
    }
    xn_mem_free(kept);
    return wrong;
}

/* ---- turns ---- */

/* Of each round. */
typedef struct rows {
    double rate[ROUNDS], p50[ROUNDS], p99[ROUNDS];
    xn_run_times times; /* a run, of the last round */
} rows;

static void play_turn(runner *runners, int count, int way, double seconds, int round, rows *out) {
    static double us[MOST_THREADS * MOST_DEVICES * SAMPLES];
    turn t = {false, false};
    xn_run_times all = {0};
    int64_t runs = 0;
    int samples = 0;
    for (int i = 0; i < count; i++) {
        runners[i].turn = &t;
        runners[i].way = way;
        runners[i].runs = runners[i].samples = 0;
        runners[i].times = (xn_run_times){0};
        if (pthread_create(&runners[i].thread, NULL, play, &runners[i]))
            xn_bench_fail("runs", "no thread");
    }
    const struct timespec length = {0, (long)(seconds * 1e9)};
    const int64_t start = xn_bench_now_ns();
    atomic_store(&t.go, true);
    nanosleep(&length, NULL);
    atomic_store(&t.stop, true);
    for (int i = 0; i < count; i++) {
        pthread_join(runners[i].thread, NULL);
        memcpy(us + samples, runners[i].us, (size_t)runners[i].samples * sizeof *us);
        samples += runners[i].samples;
        runs += runners[i].runs;
        all.upload_ns += runners[i].times.upload_ns;
        all.compute_ns += runners[i].times.compute_ns;
        all.download_ns += runners[i].times.download_ns;
    }
    const xn_stats stats = xn_stats_of(us, samples);
    out->rate[round] = (double)runs * 1e9 / (double)(xn_bench_now_ns() - start);
    out->p50[round] = stats.median;
    out->p99[round] = stats.p99;
    runs = runs ? runs : 1;
    out->times =
        (xn_run_times){all.upload_ns / runs, all.compute_ns / runs, all.download_ns / runs};
}

static const xn_column columns[] = {
    {"work", "work", 28, XN_TEXT},
    {"gpus", "GPUs", 4, 0},
    {"threads", "threads", 7, 0},
    {"items", "items", 5, 0},
    {"item_bytes", "in + out", 9, 0},
    {"runs_per_s", "runs/s", 9, 0},
    {"images_per_s", "images/s", 10, 0},
    {"p50_us", "p50 us", 8, 1},
    {"p99_us", "p99 us", 8, 1},
    {"upload_us", "upload", 7, 1},
    {"compute_us", "compute", 7, 1},
    {"download_us", "download", 8, 1},
    {"copies_runs_per_s", "by copies", 9, 0},
    {"copies_p50_us", "p50 us", 8, 1},
    {"factor", "factor", 6, 2},
    {"over_one_gpu", "/ 1 GPU", 7, 2},
    {"verdict", "", 5, XN_TEXT},
};

/* The rate. */
static double run_row(xn_bench_session *s, const bench *b, int gpus, int threads, int items,
                      double one) {
    static runner runners[MOST_THREADS * MOST_DEVICES];
    static rows all[WAYS];
    const int rounds = s->options->rounds < ROUNDS ? s->options->rounds : ROUNDS;
    const double seconds = s->options->turn_ms > 0 ? s->options->turn_ms / 1e3 : 0.1;
    const int count = gpus * threads;
    int64_t wrong = 0;
    xn_stats rate[WAYS];
    for (int i = 0; i < count; i++) {
        open_runner(b, &b->gpus[i % gpus], items, &runners[i]);
        wrong += count_wrong(&runners[i]);
    }
    for (int round = 0; round < rounds && !s->options->check_only; round++)
        for (int way = 0; way < WAYS; way++) {
            if (!round) /* graphs are recorded */
                play_turn(runners, count, way, seconds, 0, &all[way]);
            play_turn(runners, count, way, seconds, round, &all[way]);
        }
    for (int way = 0; way < WAYS; way++)
        rate[way] = xn_stats_of(all[way].rate, rounds);
    const xn_run_times *t = &all[0].times;
    xn_report_row(s->report, XN_T(b->work->name), XN_N(gpus), XN_N(threads), XN_N(items),
                  XN_N(b->work->in_bytes + b->work->out_bytes), XN_N(rate[0].median),
                  XN_N(rate[0].median * items), XN_N(xn_stats_of(all[0].p50, rounds).median),
                  XN_N(xn_stats_of(all[0].p99, rounds).median), XN_N((double)t->upload_ns / 1e3),
                  XN_N((double)t->compute_ns / 1e3), XN_N((double)t->download_ns / 1e3),
                  XN_N(rate[1].median), XN_N(xn_stats_of(all[1].p50, rounds).median),
                  XN_N(rate[0].median / rate[1].median), XN_N(rate[0].median / one),
                  XN_T(xn_bench_verdict(s, wrong)));
    for (int i = 0; i < count; i++)
        close_runner(&runners[i]);
    return rate[0].median;
}

static void run_work(xn_bench_session *s, bench *b, const work *w) {
    static const struct { int threads, items; } loads[] = {{1, 1}, {8, 1}, {1, 16}, {4, 16}};
    b->work = w;
    for (int i = 0; i < b->gpu_count; i++) {
        gpu *g = &b->gpus[i];
        g->prepared = xn_bench_take((size_t)w->weights_count, sizeof(xn_prepared *));
        for (int k = 0; k < w->weights_count; k++) {
            xn_error error;
            must(b->ways[0]->weights_prepare(g->device, w->weights[k], &g->prepared[k], &error),
                 &error);
        }
    }
    for (int i = 0; i < XN_COUNT(loads); i++) {
        xn_report_doing(s->report, i + 1, XN_COUNT(loads), w->name);
        const double one = run_row(s, b, 1, loads[i].threads, loads[i].items, NAN);
        if (b->gpu_count > 1)
            run_row(s, b, b->gpu_count, loads[i].threads, loads[i].items, one);
    }
    for (int i = 0; i < b->gpu_count; i++) {
        for (int k = 0; k < w->weights_count; k++)
            b->ways[0]->weights_free(b->gpus[i].prepared[k]);
        xn_mem_free(b->gpus[i].prepared);
    }
}

/* ---- the works ---- */

static void run_layer(xn_bench_session *s, bench *b, const xn_row *r) {
    const int64_t count = xn_bench_weight_count(&r->shape);
    float *real = xn_bench_take((size_t)count, sizeof *real);
    xn_rng rng = {3};
    for (int64_t i = 0; i < count; i++)
        real[i] = xn_rng_float(&rng);
    xn_weights *weights = xn_bench_weights(&r->shape, real);
    const xn_weights *const all[] = {weights};
    work w = {.name = r->name, .weights = all, .weights_count = 1};
    w.problem.conv = xn_bench_resolve(&r->shape, r->kind);
    w.in_bytes = xn_conv_input_bytes(&w.problem.conv);
    w.out_bytes = xn_conv_output_bytes(&w.problem.conv);
    run_work(s, b, &w);
    xn_weights_free(weights);
    xn_mem_free(real);
}

static void run_network(xn_bench_session *s, bench *b, const char *folder) {
    xn_network *network = xn_bench_model(folder, 0, XN_PRECISION_FP16);
    work w = {.name = xn_bench_model_name(folder),
              .weights = (const xn_weights *const *)network->weights,
              .weights_count = network->weights_count,
              .in_bytes = network->input_bytes,
              .out_bytes = network->output_bytes};
    xn_problem_of_network(network, &w.problem);
    run_work(s, b, &w);
    xn_network_free(network);
}

/* The session's GPU, and the others beside it. */
static void open_gpus(const xn_bench_session *s, bench *b) {
    int count = 0;
    xn_error error;
    must(b->ways[0]->device_count(&count, &error), &error);
    b->gpu_count = count < MOST_DEVICES ? count : MOST_DEVICES;
    b->gpus[0].device = s->on.device;
    for (int i = 1; i < b->gpu_count; i++)
        must(b->ways[0]->device_open(i, &b->gpus[i].device, &error), &error);
}

void xn_bench_runs(xn_bench_session *s) {
    xn_backend copies = *s->on.backend;
    bench b = {.ways = {s->on.backend, &copies}};
    if (!s->is_cuda)
        xn_bench_fail("runs", "is for a GPU");
    copies.run = NULL;
    open_gpus(s, &b);
    puts("threads: of each GPU; items: of a run, an image each; upload, compute, download: us of a "
         "run, by the device's clock");
    xn_report_table(s->report, columns, XN_COUNT(columns));
    const xn_row *r;
    for (int i = 0; (r = xn_rows_next(s, &i));)
        run_layer(s, &b, r);
    for (int i = 0; i < s->options->models.count; i++)
        run_network(s, &b, s->options->models.text[i]);
    for (int i = 1; i < b.gpu_count; i++)
        b.ways[0]->device_close(b.gpus[i].device);
}
