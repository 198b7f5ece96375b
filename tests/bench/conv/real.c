/* real.c: `bench-conv real`: modes float and bwn on layers of a ResNet and of a MobileNet, beside a
 * copy of the same bytes and, on the CPU, the rate of fused multiplications. Operands are exact in
 * fp16, so what a precision changes is only what its sums round to. */
#include "peers/peers.h"

#include <string.h>

/* images: 0 for both batches, 1 and 64, else the one. The stems, shortcuts and dense layers of
 * networks whose other layers are binary come first. */
static const xn_bench_shape shapes[] = {
    {0, 3, 224, 64, 7, 2, 3, 1, 1},     {0, 3, 224, 32, 3, 2, 1, 1, 1},
    {0, 3, 32, 64, 3, 1, 1, 1, 1},      {0, 3, 32, 128, 3, 1, 1, 1, 1},
    {0, 1, 28, 32, 3, 1, 1, 1, 1},      {1, 1, 28, 128, 3, 1, 1, 1, 1},
    {0, 64, 56, 128, 1, 2, 0, 1, 1},    {0, 128, 28, 256, 1, 2, 0, 1, 1},
    {0, 256, 14, 512, 1, 2, 0, 1, 1},   {0, 64, 28, 128, 1, 1, 0, 1, 1},
    {0, 128, 14, 256, 1, 1, 0, 1, 1},   {0, 256, 7, 512, 1, 1, 0, 1, 1},
    {1, 512, 1, 1000, 1, 1, 0, 1, 1},   {16, 512, 1, 1000, 1, 1, 0, 1, 1},
    {1, 2048, 1, 1000, 1, 1, 0, 1, 1},  {16, 2048, 1, 1000, 1, 1, 0, 1, 1},
    {0, 64, 56, 64, 3, 1, 1, 1, 1},     {0, 128, 28, 128, 3, 1, 1, 1, 1},
    {0, 256, 14, 256, 3, 1, 1, 1, 1},   {0, 512, 7, 512, 3, 1, 1, 1, 1},
    {0, 64, 56, 256, 1, 1, 0, 1, 1},    {0, 256, 56, 64, 1, 1, 0, 1, 1},
    {0, 1024, 14, 256, 1, 1, 0, 1, 1},  {0, 256, 56, 512, 1, 2, 0, 1, 1},
    {0, 128, 56, 128, 3, 2, 1, 1, 1},   {0, 64, 112, 64, 3, 1, 1, 1, 64},
    {0, 512, 14, 512, 3, 1, 1, 1, 512}, {0, 128, 56, 128, 3, 2, 1, 1, 128},
    {0, 128, 56, 128, 3, 1, 1, 1, 32},  {64, 1024, 14, 1024, 3, 1, 1, 1, 1},
};

#define KIND(MODE, TYPE, PRECISION)                                                                \
    {                                                                                              \
        .mode = XN_MODE_##MODE, .input = XN_##TYPE, .output = XN_##TYPE,                           \
        .scaling = XN_SCALING_XNOR, .precision = XN_PRECISION_##PRECISION                          \
    }
static const xn_bench_kind kinds[] = {
    KIND(FLOAT, FP32, FP32), KIND(FLOAT, FP16, FP16), KIND(FLOAT, FP32, FP16),
    KIND(FLOAT, FP32, TF32), KIND(BWN, FP32, FP32),   KIND(BWN, FP16, FP16),
};

static const xn_column columns[] = {
    {"backend", NULL, 0, XN_TEXT},
    {"problem", "images x channels x side", 26, XN_TEXT},
    {"mode", "mode", 5, XN_TEXT},
    {"datatype", "type", 4, XN_TEXT},
    {"precision", "by", 4, XN_TEXT},
    {"path", "path", 17, XN_TEXT},
    {"median_us", "median us", 10, 2},
    {"least_us", "least", 10, 2},
    {"p90_us", "p90", 10, 2},
    {"copy_us", "copy", 9, 2},
    {"copies", "x copy", 7, 2},
    {"tflops", "Tflop/s", 8, 3},
    {"of_peak_percent", "peak %", 6, 1},
    {"onednn_nchw_us", "NCHW us", 9, 2},
    {"onednn_nchw_times", "faster", 6, 2},
    {"onednn_own_us", "own us", 9, 2},
    {"onednn_own_times", "faster", 6, 2},
    {"verdict", "", 5, XN_TEXT},
};

static bool is_taken(const xn_bench_session *s, const xn_bench_kind *k, xn_mode mode) {
    /* the CPU has fp32 alone; there, other precisions are the same rows again */
    return k->mode == mode && (s->is_cuda || k->precision == XN_PRECISION_FP32);
}

static void report(xn_bench_session *s, const char *name, const xn_bench_kind *kind,
                   const xn_figures *f, const xn_peers *peers, double peak) {
    const double us = f->ours.median;
    const double own = xn_peers_form_us(peers, XN_PEER_FP32, XN_PEER_OWN);
    const double nchw = fmin(xn_peers_form_us(peers, XN_PEER_FP32, XN_PEER_PLAIN),
                             xn_peers_form_us(peers, XN_PEER_FP32, XN_PEER_REORDER));
    xn_report_row(s->report, XN_T(s->on.info.id), XN_T(name), XN_T(xn_mode_name(kind->mode)),
                  XN_T(xn_datatype_name(kind->input)), XN_T(f->precision), XN_T(f->path), XN_N(us),
                  XN_N(f->ours.least), XN_N(f->ours.p90), XN_N(f->copy.median),
                  XN_N(us / f->copy.median), XN_N(f->tops), XN_N(100 * f->tops / peak), XN_N(nchw),
                  XN_N(nchw / us), XN_N(own), XN_N(own / us), XN_T(xn_bench_verdict(s, f->wrong)));
}

static void run_mode(xn_bench_session *s, const xn_bench_shape *shape, xn_mode mode, double peak) {
    char name[XN_BENCH_NAME];
    xn_bench_data data;
    xn_turns turns;
    xn_bench_name(shape, name);
    xn_bench_data_make(shape, mode, &data);
    for (int i = 0; i < XN_COUNT(kinds); i++) {
        const xn_turns *how = xn_bench_how(s, &turns);
        xn_peers peers;
        xn_figures f;
        if (!is_taken(s, &kinds[i], mode))
            continue;
        xn_peers_make_fp32(s, shape, &peers);
        if (xn_bench_measure(&s->on, &data, &kinds[i], how, peers.sides, how ? XN_PEER_SIDES : 0,
                             &f))
            report(s, name, &kinds[i], &f, &peers, peak);
        xn_peers_free(&peers);
    }
    xn_bench_data_free(&data);
}

void xn_bench_real(xn_bench_session *s) {
    static const int64_t batches[] = {1, 64};
    const double peak = s->on.place->peak_real();
    xn_mode only = XN_MODE_XNOR;
    if (s->options->mode && !xn_mode_parse(s->options->mode, &only))
        xn_bench_fail("--mode", "must be float or bwn");
    const char *version = s->is_cuda ? NULL : xn_peer_version();
    printf("modes float and bwn, NCHW in and out; peak %.3f Tflop/s; beside oneDNN's %s: NCHW in "
           "and out, and from and to layouts of its own\n",
           peak, version ? version : "(none here)");
    xn_report_table(s->report, columns, XN_COUNT(columns));
    for (int i = 0; i < XN_COUNT(shapes); i++)
        for (int b = 0; b < XN_COUNT(batches); b++) {
            xn_bench_shape shape = shapes[i];
            char name[XN_BENCH_NAME];
            if (shape.images && b)
                continue;
            shape.images = shape.images ? shape.images : batches[b];
            xn_bench_name(&shape, name);
            if (!xn_bench_wanted(s, name, shape.images))
                continue;
            xn_report_doing(s->report, i + 1, XN_COUNT(shapes), name);
            if (only != XN_MODE_BWN)
                run_mode(s, &shape, XN_MODE_FLOAT, peak);
            if (only != XN_MODE_FLOAT)
                run_mode(s, &shape, XN_MODE_BWN, peak);
        }
}
