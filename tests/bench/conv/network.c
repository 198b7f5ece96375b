/* network.c: `bench-conv network`: a whole network, Bi-Real-18 for pictures of 224x224 as bytes,
 * RGB after RGB, with random weights: each step's time, and all of them together. On the CPU, where
 * steps run one after the other while they are asked for; with --threads 1 it is the processor's
 * time, which other programs on the machine change less. */
#include "../birealnet.h"
#include "bench.h"

#include "xn_mem.h"
#include "xn_rng.h"

#include <string.h>
#include <time.h>

enum { SIDE = 224, SMALL_SIDE = 64, MOST_STEPS = 64 };

static xn_network *lowered(int64_t side, xn_precision precision) {
    xn_birealnet *net = xn_birealnet_make(side, precision);
    xn_network *network = xn_birealnet_lower(net);
    xn_birealnet_free(net);
    return network;
}

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
    r->input = xn_bench_take((size_t)images, network->input_bytes);
    r->output = xn_bench_take((size_t)images, network->output_bytes);
    for (size_t i = 0; i < (size_t)images * network->input_bytes; i++)
        r->input[i] = (unsigned char)xn_rng_next(&rng);
    if (network->step_count > MOST_STEPS)
        xn_bench_fail("network", "too many steps");
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
    xn_mem_free(r->input);
    xn_mem_free(r->output);
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

/* Logits of a small picture that are not ref's. All but the last layer is exact (birealnet.h),
 * which reads fp16 where that is kept. */
static int64_t count_wrong(const xn_bench_device *on, xn_precision precision) {
    const double allowed = precision == XN_PRECISION_FP16 ? 1e-3 : 1e-5;
    xn_network *network = lowered(SMALL_SIDE, precision);
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
    for (int i = 0; i < XN_BIREALNET_CLASSES; i++)
        most = fmax(most, fabs((double)right.output[i]));
    for (int i = 0; i < XN_BIREALNET_CLASSES; i++)
        wrong += !(fabs((double)ours.output[i] - (double)right.output[i]) <= allowed * most);
    free_runner(&ref, &right);
    free_runner(on, &ours);
    xn_bench_close(&ref);
    xn_network_free(network);
    return wrong;
}

/* ---- the table ---- */

static const xn_column columns[] = {
    {"backend", NULL, 0, XN_TEXT},
    {"precision", "edges", 5, XN_TEXT},
    {"images", "images", 6, 0},
    {"step", "step", 4, 0},
    {"kind", "kind", 9, XN_TEXT},
    {"shape", "channels x side, kernel, to", 28, XN_TEXT},
    {"path", "path", 20, XN_TEXT},
    {"median_us", "median us", 10, 1},
    {"least_us", "least", 10, 1},
    {"share_percent", "%", 5, 1},
    {"images_a_second", "images/s", 9, 1},
    {"verdict", "", 5, XN_TEXT},
};

static void report_step(xn_bench_session *s, const runner *r, const char *precision, int index,
                        const xn_stats *stats, double whole) {
    const xn_step *step = &r->network->steps[index];
    const xn_conv *v = &step->conv;
    char shape[80];
    snprintf(
        shape, sizeof shape, "%dx%d %dx%d/%d %s to %s%s%s", v->channels, v->height, v->kernel_h,
        v->kernel_w, v->stride_h, xn_datatype_name((xn_datatype)v->input_datatype),
        step->output == XN_NO_TENSOR ? "" : xn_datatype_name((xn_datatype)v->epilogue.datatype),
        step->bits == XN_NO_TENSOR ? "" : " bits",
        step->residual == XN_NO_TENSOR ? "" : " + residual");
    xn_report_row(s->report, XN_T(s->on.info.id), XN_T(precision), XN_N(r->images), XN_N(index),
                  XN_T(xn_step_kind_name((xn_step_kind)step->kind)), XN_T(shape),
                  XN_T(xn_bench_path(&s->on, xn_program_plan(r->program, index))),
                  XN_N(stats->median), XN_N(stats->least), XN_N(100 * stats->median / whole),
                  XN_N(NAN), XN_T(""));
}

static void run_batch(xn_bench_session *s, const xn_network *network, xn_precision precision,
                      int64_t images, int64_t wrong) {
    enum { WARM_UPS = 3, LEAST_RUNS = 5, MOST_RUNS = 400 }; /* a graph is made in the second run */
    const char *name = precision == XN_PRECISION_FP16 ? "fp16" : "fp32";
    const double ms = s->options->turn_ms > 0 ? s->options->turn_ms : 200;
    double *samples = xn_bench_take((MOST_STEPS + 1) * MOST_RUNS, sizeof *samples);
    runner r;
    char doing[48];
    int runs = 0;
    snprintf(doing, sizeof doing, "%s, %lld images", name, (long long)images);
    xn_report_doing(s->report, 0, 0, doing);
    make_runner(&s->on, network, images, &r);
    for (int i = 0; i < WARM_UPS; i++)
        run_once(&r);
    const int64_t end = now_ns() + (int64_t)(ms * 1e6 * s->options->rounds);
    for (; runs < MOST_RUNS && (runs < LEAST_RUNS || now_ns() < end); runs++) {
        samples[MOST_STEPS * MOST_RUNS + runs] = run_once(&r);
        for (int i = 0; i < timed.steps; i++)
            samples[i * MOST_RUNS + runs] = timed.us[i];
    }
    const xn_stats whole = xn_stats_of(samples + (size_t)MOST_STEPS * MOST_RUNS, runs);
    for (int i = 0; i < timed.steps && timed.count; i++) {
        const xn_stats stats = xn_stats_of(samples + (size_t)i * MOST_RUNS, runs);
        report_step(s, &r, name, i, &stats, whole.median);
    }
    xn_report_row(s->report, XN_T(s->on.info.id), XN_T(name), XN_N(images), XN_N(NAN), XN_T("all"),
                  XN_T("Bi-Real-18"), XN_T(""), XN_N(whole.median), XN_N(whole.least), XN_N(100),
                  XN_N(1e6 * (double)images / whole.median), XN_T(xn_bench_verdict(s, wrong)));
    free_runner(&s->on, &r);
    xn_mem_free(samples);
}

void xn_bench_network(xn_bench_session *s) {
    static const xn_precision precisions[] = {XN_PRECISION_FP32, XN_PRECISION_FP16};
    static const int64_t on_cpu[] = {1, 16, 0}, on_gpu[] = {1, 8, 64, 512, 0};
    const int64_t *batches = s->is_cuda ? on_gpu : on_cpu;
    timed.alone = s->options->threads == 1;
    puts("Bi-Real-18, bytes of 224x224x3 in, logits out; edges: reals between steps");
    xn_report_table(s->report, columns, XN_COUNT(columns));
    for (int p = 0; p < XN_COUNT(precisions); p++) {
        const int64_t wrong = count_wrong(&s->on, precisions[p]);
        xn_network *network = lowered(SIDE, precisions[p]);
        for (int i = 0; batches[i] && !s->options->check_only; i++)
            if (!s->options->batch || s->options->batch == batches[i])
                run_batch(s, network, precisions[p], batches[i], wrong);
        if (s->options->check_only)
            printf("%s\n", xn_bench_verdict(s, wrong));
        xn_network_free(network);
    }
}
