/* network.c: `bench-conv time --of network`: whole networks, of model folders (--model): each
 * step's time, and all of them together. Steps that a GPU runs as one are a row, beside the least
 * time that they could take there. On the CPU, with --threads 1, it is the processor's time, which
 * other programs on the machine change less. */
#include "../model.h"
#include "bench.h"
#include "floor.h"

#include "xn_mem.h"
#include "xn_rng.h"

#include <string.h>
#include <time.h>

enum { SMALL_SIDE = 64, MOST_STEPS = 128, MOST_RUNS = 400, MOST_TIMES = 4 };

/* ---- running ---- */

/* A network on a device, and a batch. */
typedef struct runner {
    xn_backend backend; /* the device's, whose steps are timed */
    const xn_network *network;
    xn_prepared **prepared;
    xn_program *program;
    unsigned char *input;
    float *output;
    int64_t images;
} runner;

/* What the steps of the run under way took; a large batch goes through them several times. */
static struct {
    xn_status (*enqueue)(xn_plan *, const xn_prepared *, const xn_step_io *, xn_error *);
    double us[MOST_STEPS];
    int count, steps;
    bool alone; /* on one thread */
} timed;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(timed.alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static xn_status timed_enqueue(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                               xn_error *error) {
    const int64_t start = now_ns();
    const xn_status status = timed.enqueue(plan, prepared, io, error);
    timed.us[timed.count++ % timed.steps] += (double)(now_ns() - start) / 1e3;
    return status;
}

static void make_runner(const xn_bench_device *on, const xn_network *network, int64_t images,
                        runner *r) {
    xn_rng rng = {images};
    xn_problem problem;
    xn_error error;
    *r = (runner){.backend = *on->backend, .network = network, .images = images};
    timed.enqueue = on->backend->enqueue;
    if (!on->backend->run) /* on a GPU enqueue returns before anything is done */
        r->backend.enqueue = timed_enqueue;
    r->prepared = xn_bench_take((size_t)network->weights_count, sizeof(xn_prepared *));
    for (int i = 0; i < network->weights_count; i++)
        r->prepared[i] = xn_bench_prepare(on, network->weights[i]);
    r->input = on->backend->host_alloc(on->device, (size_t)images * network->input_bytes);
    r->output = on->backend->host_alloc(on->device, (size_t)images * network->output_bytes);
    if (!r->input || !r->output)
        xn_bench_fail("buffers", "no memory");
    for (size_t i = 0; i < (size_t)images * network->input_bytes; i++)
        r->input[i] = (unsigned char)xn_rng_next(&rng);
    if (network->step_count > MOST_STEPS)
        xn_bench_fail("network", "too many steps");
    const xn_conv *first = &network->steps[0].conv;
    if (first->input_datatype != XN_UINT8 &&
        (first->input_datatype != XN_BITS || first->channels % 8))
        xn_bench_fail("network", "takes neither bytes nor bits that fill bytes");
    xn_problem_of_network(network, &problem);
    if (xn_program_create(&r->backend, on->stream, &problem, images, &r->program, &error) ||
        xn_program_ready(r->program, (const xn_prepared *const *)r->prepared, &error))
        xn_bench_fail(on->backend->name, error.message);
}

static void free_runner(const xn_bench_device *on, runner *r) {
    xn_program_free(r->program);
    for (int i = 0; i < r->network->weights_count; i++)
        on->backend->weights_free(r->prepared[i]);
    xn_mem_free(r->prepared);
    on->backend->host_free(on->device, r->input);
    on->backend->host_free(on->device, r->output);
}

/* Microseconds of all of it; on a GPU of what lies between the transfers. */
static double run_once(runner *r) {
    const xn_batch_item item = {r->input, r->output, r->images};
    xn_run_times times;
    xn_error error;
    memset(timed.us, 0, sizeof timed.us);
    timed.count = 0;
    timed.steps = r->network->step_count;
    const int64_t start = now_ns();
    if (xn_program_run(r->program, (const xn_prepared *const *)r->prepared, &item, 1, &times,
                       &error))
        xn_bench_fail("run", error.message);
    return (double)(r->backend.in_place ? now_ns() - start : times.compute_ns) / 1e3;
}

/* Outputs of a small picture that are not ref's. All but the last layer is exact (networks.py),
 * which reads fp16 where that is kept. */
static int64_t count_wrong(const xn_bench_device *on, const char *folder, xn_precision precision) {
    const double allowed = precision == XN_PRECISION_FP16 ? 1e-3 : 1e-5;
    xn_network *network = xn_bench_model(folder, SMALL_SIDE, precision);
    xn_bench_device ref;
    runner ours, right;
    int64_t wrong = 0;
    if (!xn_bench_open("ref", NULL, NULL, &ref))
        xn_bench_fail("ref", "not there");
    make_runner(on, network, 1, &ours);
    run_once(&ours);
    make_runner(&ref, network, 1, &right);
    run_once(&right);
    double most = 0;
    for (int i = 0; i < network->output_elements; i++)
        most = fmax(most, fabs((double)right.output[i]));
    for (int i = 0; i < network->output_elements; i++)
        wrong += !(fabs((double)ours.output[i] - (double)right.output[i]) <= allowed * most);
    free_runner(&ref, &right);
    free_runner(on, &ours);
    xn_bench_close(&ref);
    xn_network_free(network);
    return wrong;
}

/* ---- the table ---- */

static const xn_column columns[] = {
    {"network", "network", 16, XN_TEXT},
    {"backend", NULL, 0, XN_TEXT},
    {"precision", "edges", 5, XN_TEXT},
    {"images", "images", 6, 0},
    {"step", "step", 4, 0},
    {"steps", "+", 2, 0},
    {"kind", "kind", 8, XN_TEXT},
    {"shape", "channels x side, kernel, to", 34, XN_TEXT},
    {"path", "path", 17, XN_TEXT},
    {"median_us", "median us", 9, 1},
    {"least_us", "least", 9, 1},
    {"share_percent", "%", 5, 1},
    {"floor_us", "floor", 7, 1},
    {"over_floor", "times", 5, 1},
    {"images_a_second", "images/s", 9, 0},
    {"verdict", "", 5, XN_TEXT},
};

/* A network in a precision, and a number of images. */
typedef struct measured {
    xn_bench_session *s;
    const char *name, *precision;
    const xn_network *network;
    int64_t images, wrong;
    runner r;
    double *whole, *steps; /* samples; of the steps MOST_RUNS each */
} measured;

static void report_step(const measured *m, int index, int count, const xn_stats *stats,
                        double whole) {
    const xn_step *step = &m->network->steps[index];
    const xn_conv *v = &step->conv;
    const double floor_us =
        m->s->is_cuda ? xn_bench_floor_us(m->network, index, count, m->images) : NAN;
    const double times = stats->median / floor_us;
    char shape[80];
    snprintf(
        shape, sizeof shape, "%dx%d %dx%d/%d %s to %d %s%s%s", v->channels, v->height, v->kernel_h,
        v->kernel_w, v->stride_h, xn_datatype_name((xn_datatype)v->input_datatype), v->out_channels,
        step->output == XN_NO_TENSOR ? "" : xn_datatype_name((xn_datatype)v->epilogue.datatype),
        step->bits == XN_NO_TENSOR ? "" : " bits",
        step->residual == XN_NO_TENSOR ? "" : " + residual");
    xn_report_row(
        m->s->report, XN_T(m->name), XN_T(m->s->on.info.id), XN_T(m->precision), XN_N(m->images),
        XN_N(index), XN_N(count > 1 ? count - 1 : NAN),
        XN_T(xn_step_kind_name((xn_step_kind)step->kind)), XN_T(shape),
        XN_T(count > 1 ? "fused" : xn_bench_path(&m->s->on, xn_program_plan(m->r.program, index))),
        XN_N(stats->median), XN_N(stats->least), XN_N(100 * stats->median / whole), XN_N(floor_us),
        XN_N(times), XN_N(NAN), XN_T(times > MOST_TIMES ? "SLOW" : ""));
}

/* Steps that ran as one with those before them have no time. */
static void report_steps(measured *m, int runs, double whole) {
    for (int i = 0, count; i < timed.steps; i += count) {
        for (count = 1; i + count < timed.steps && isnan(m->steps[(i + count) * MOST_RUNS]);)
            count++;
        const xn_stats stats = xn_stats_of(m->steps + (size_t)i * MOST_RUNS, runs);
        report_step(m, i, count, &stats, whole);
    }
}

/* Runs for `ms` and takes their samples; how many. */
static int take_samples(measured *m, double ms, bool of_steps) {
    enum { WARM_UPS = 3, LEAST_RUNS = 5 }; /* a graph is made in the second run */
    const xn_bench_place *place = m->s->on.place;
    int runs = 0;
    m->r.backend.run = of_steps && place->run_steps ? place->run_steps : m->s->on.backend->run;
    for (int i = 0; i < WARM_UPS; i++)
        run_once(&m->r);
    const int64_t end = now_ns() + (int64_t)(ms * 1e6);
    for (; runs < MOST_RUNS && (runs < LEAST_RUNS || now_ns() < end); runs++) {
        m->whole[runs] = run_once(&m->r);
        if (of_steps && place->run_steps)
            place->steps_us(timed.us);
        for (int i = 0; i < timed.steps; i++)
            m->steps[i * MOST_RUNS + runs] = timed.us[i];
    }
    return runs;
}

/* On a GPU steps are timed in runs of their own, at the largest batch or the one asked for: in
 * small ones an event takes as long as a step. */
static void run_batch(measured *m, bool of_steps) {
    const xn_bench_options *o = m->s->options;
    const double ms = (o->turn_ms > 0 ? o->turn_ms : 200) * o->rounds;
    char doing[48];
    snprintf(doing, sizeof doing, "%.16s, %s, %lld images", m->name, m->precision,
             (long long)m->images);
    xn_report_doing(m->s->report, 0, 0, doing);
    make_runner(&m->s->on, m->network, m->images, &m->r);
    int runs = take_samples(m, ms, false);
    const xn_stats whole = xn_stats_of(m->whole, runs);
    if (of_steps && m->s->is_cuda)
        runs = take_samples(m, ms / 4, true);
    if (of_steps)
        report_steps(m, runs, whole.median);
    xn_report_row(m->s->report, XN_T(m->name), XN_T(m->s->on.info.id), XN_T(m->precision),
                  XN_N(m->images), XN_N(NAN), XN_N(NAN), XN_T("all"), XN_T(""), XN_T(""),
                  XN_N(whole.median), XN_N(whole.least), XN_N(100), XN_N(NAN), XN_N(NAN),
                  XN_N(1e6 * (double)m->images / whole.median),
                  XN_T(xn_bench_verdict(m->s, m->wrong)));
    free_runner(&m->s->on, &m->r);
}

static void run_model(xn_bench_session *s, const char *folder, xn_precision precision) {
    static const int64_t on_cpu[] = {1, 16, 0}, on_gpu[] = {1, 8, 64, 512, 0};
    const int64_t asked[] = {s->options->batch, 0};
    const int64_t *batches = asked[0] ? asked : s->is_cuda ? on_gpu : on_cpu;
    measured m = {.s = s,
                  .name = xn_bench_model_name(folder),
                  .precision = xn_precision_name(precision),
                  .wrong = count_wrong(&s->on, folder, precision)};
    if (s->options->check_only) {
        printf("%s %s %s\n", m.name, m.precision, xn_bench_verdict(s, m.wrong));
        return;
    }
    xn_network *network = xn_bench_model(folder, 0, precision);
    m.network = network;
    m.whole = xn_bench_take(MOST_RUNS, sizeof *m.whole);
    m.steps = xn_bench_take((size_t)MOST_STEPS * MOST_RUNS, sizeof *m.steps);
    for (int i = 0; batches[i]; i++) {
        m.images = batches[i];
        run_batch(&m, !s->is_cuda || !batches[i + 1]);
    }
    xn_mem_free(m.steps);
    xn_mem_free(m.whole);
    xn_network_free(network);
}

void xn_bench_network(xn_bench_session *s) {
    static const xn_precision precisions[] = {XN_PRECISION_FP32, XN_PRECISION_FP16};
    const xn_texts *models = &s->options->models;
    timed.alone = s->options->threads == 1;
    if (!models->count)
        xn_bench_fail("no network", "name --model; tests/bench/networks.py writes some");
    puts("edges: reals between steps; + so many steps in the same kernel; floor: the least that an "
         "H200 needs; SLOW: more than 4 times that");
    xn_report_table(s->report, columns, XN_COUNT(columns));
    for (int i = 0; i < models->count; i++)
        for (int p = 0; p < XN_COUNT(precisions); p++)
            run_model(s, models->text[i], precisions[p]);
}
