/* stages.c: `bench-conv time --of stage`: whole runs with their transfers, of which the compute
 * stage is timed as answers report it. Beside it the same shape in mode float, the same row on the
 * CPU, and what Kaya, Inci and Temizel (arXiv 2007.14178) published for rows that say it (GTX 1080
 * Ti, 4-core i7): with shapes/paper.txt that is their three tables, vanilla against XNOR
 * convolution on the GPU, and CPU against GPU for each. */
#include "rows.h"

#include "xn_mem.h"

#include <string.h>

enum { RUNS = 100, WARM_UPS = 3 };

static const xn_column columns[] = {
    {"backend", "", 6, XN_TEXT},
    {"workload", "images x channels x side", 32, XN_TEXT},
    {"mean_us", "mean us", 10, 2},
    {"median_us", "median", 10, 2},
    {"p10_us", "p10", 10, 2},
    {"p90_us", "p90", 10, 2},
    {"tops", "Tops", 8, 3},
    {"float_times", "x float", 8, 2},
    {"cpu_times", "x CPU", 8, 2},
    {"published_us", "published", 10, 0},
    {"published_float_times", "x float", 8, 2},
    {"published_cpu_times", "x CPU", 8, 2},
};

static xn_stats measure(const xn_bench_device *on, const xn_row *r) {
    const xn_backend *b = on->backend;
    double us[RUNS];
    xn_bench_data data;
    xn_bench_data_make(&r->shape, r->kind->mode, &data);
    const size_t in_bytes = xn_bench_input_bytes(&data, &data.kind);
    const size_t out_bytes = xn_bench_output_bytes(&data, &data.kind);
    void *input = b->host_alloc(on->device, in_bytes);
    void *output = b->host_alloc(on->device, out_bytes);
    if (!input || !output)
        xn_bench_fail("buffers", "no memory");
    memcpy(input, data.input, in_bytes);
    memset(output, 0xff, out_bytes);
    xn_prepared *prepared = xn_bench_prepare(on, data.weights);
    xn_program *program = xn_bench_program(on, &data.conv, r->shape.images, prepared);
    for (int i = -WARM_UPS; i < RUNS; i++)
        us[i < 0 ? 0 : i] = xn_bench_program_run(program, prepared, r->shape.images, input, output);
    if (xn_bench_count_wrong(&data, &data.kind, output))
        xn_bench_fail("check", "outputs are wrong");
    xn_program_free(program);
    b->weights_free(prepared);
    b->host_free(on->device, input);
    b->host_free(on->device, output);
    xn_bench_data_free(&data);
    return xn_stats_of(us, RUNS);
}

static double ratio(double slow, double fast) {
    return slow > 0 && fast > 0 ? slow / fast : NAN;
}

/* The row of the same shape in mode float. */
static const xn_row *in_float(const xn_rows *rows, const xn_row *r) {
    for (int i = 0; i < rows->count; i++)
        if (rows->all[i].kind->mode == XN_MODE_FLOAT &&
            !memcmp(&rows->all[i].shape, &r->shape, sizeof r->shape))
            return &rows->all[i];
    return r;
}

void xn_bench_stages(xn_bench_session *s) {
    const int on = s->is_cuda ? XN_BENCH_CUDA : XN_BENCH_CPU;
    puts("fp32 in and out, K and alpha applied; launching is in it; times: how much slower the\n"
         "other is");
    xn_report_table(s->report, columns, XN_COUNT(columns));
    xn_row *r;
    for (int i = 0; (r = xn_rows_next(s, &i));) {
        if (r->kind->input != XN_FP32 || r->kind->output != XN_FP32)
            xn_bench_fail("--of stage is for fp32 in and out", r->name);
        const xn_conv conv = xn_bench_resolve(&r->shape, r->kind);
        const xn_row *vanilla = in_float(s->rows, r);
        const xn_target *published = r->target;
        const xn_stats us = measure(&s->on, r);
        r->mean_us[on] = us.mean;
        xn_report_row(
            s->report, XN_T(s->on.info.id), XN_T(r->name), XN_N(us.mean), XN_N(us.median),
            XN_N(us.p10), XN_N(us.p90),
            XN_N(xn_bench_operations(&conv, r->shape.images) / us.median / 1e6),
            XN_N(ratio(vanilla->mean_us[on], us.mean)),
            XN_N(ratio(r->mean_us[XN_BENCH_CPU], us.mean)),
            XN_N(published[on].published_us > 0 ? published[on].published_us : NAN),
            XN_N(ratio(vanilla->target[on].published_us, published[on].published_us)),
            XN_N(ratio(published[XN_BENCH_CPU].published_us, published[on].published_us)));
    }
}
