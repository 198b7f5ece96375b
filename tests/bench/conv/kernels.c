/* kernels.c: `bench-conv time`: each row by the path that the plan chooses, beside a copy of the
 * same bytes, the rate of operations that instructions alone reach, and peers (peers.h), with what
 * is to be reached. Operands are exact in fp16, so what a precision changes is only what its sums
 * round to. */
#include "peers/peers.h"
#include "rows.h"

#include <string.h>

static const xn_column columns[] = {
    {"backend", NULL, 0, XN_TEXT},
    {"workload", "images x channels x side", 32, XN_TEXT},
    {"path", "path", 17, XN_TEXT},
    {"precision", "by", 4, XN_TEXT},
    {"median_us", "median us", 9, 2},
    {"least_us", "least", 9, 2},
    {"p10_us", "p10", 9, 2},
    {"p90_us", "p90", 9, 2},
    {"copy_us", "copy", 8, 2},
    {"copies", "x copy", 6, 2},
    {"tops", "Tops", 8, 3},
    {"of_peak_percent", "peak %", 6, 1},
    {"ns_an_output", "ns/out", 7, 4},
    {"peer", "peer", 5, XN_TEXT},
    {"peer_us", "us", 9, 2},
    {"times_faster", "faster", 6, 2},
    {"filter2d_us", "filter2D", 9, 2},
    {"filters", "faster", 6, 2},
    {"openvino_us", "OpenVINO", 9, 2},
    {"openvino_p10_us", NULL, 0, 2},
    {"openvino_p90_us", NULL, 0, 2},
    {"openvino_times_faster", "faster", 6, 2},
    {"onednn_own_us", "own us", 9, 2},
    {"onednn_fp32_us", NULL, 0, 2},
    {"onednn_bf16_us", NULL, 0, 2},
    {"onednn_int8_us", NULL, 0, 2},
    {"target", "to reach", 45, XN_TEXT},
    {"verdict", "", 7, XN_TEXT},
    {"wrong", NULL, 0, 0},
};

/* ---- judging ---- */

typedef struct beside {
    const char *peer;
    /* NAN: not known, as here. own: oneDNN's fp32 in its own layouts. */
    double us[XN_PEER_TYPES], peer_us, own_us, filter2d_us, peak;
    xn_stats copy, openvino;
} beside;

static void best_peer(const xn_bench_session *s, const xn_row *r, const xn_peers *peers,
                      beside *out) {
    static const char *const names[XN_PEER_TYPES] = {"fp32", "bf16", "int8"};
    out->peer = "";
    out->peer_us = NAN;
    out->own_us =
        r->kind->mode == XN_MODE_XNOR ? NAN : xn_peers_form_us(peers, XN_PEER_FP32, XN_PEER_OWN);
    out->filter2d_us = xn_peer_filter2d_us(s, &r->shape);
    out->openvino = xn_peers_openvino(peers);
    for (int t = 0; t < XN_PEER_TYPES; t++) {
        out->us[t] = xn_peers_us(peers, (xn_peer_type)t, r->kind);
        /* few channels: fp32's alone */
        const bool counts = t == XN_PEER_FP32 || r->shape.channels > 1;
        if (counts && !isnan(out->us[t]) && !(out->us[t] >= out->peer_us)) {
            out->peer_us = out->us[t];
            out->peer = names[t];
        }
    }
    if (s->is_cuda) {
        out->peer_us = xn_peer_cudnn_us(s, &r->shape);
        out->peer = isnan(out->peer_us) ? "" : "cudnn";
    }
}

typedef struct judgement {
    char text[96];
    size_t length;
    bool asked, missed;
} judgement;

/* One condition: what is asked for, and whether it holds; value NAN: cannot be judged here. */
static void ask(judgement *j, const char *relation, double goal, int decimals, const char *unit,
                double value, bool holds) {
    if (goal == 0)
        return;
    j->length += (size_t)snprintf(j->text + j->length, sizeof j->text - j->length, "%s%s %.*f %s",
                                  j->length ? ", " : "", relation, decimals, goal, unit);
    if (isnan(value)) /* also where nothing was timed */
        return;
    j->asked = true;
    j->missed = j->missed || !holds;
}

static judgement judge(const xn_target *t, const xn_figures *f, const beside *b) {
    const double us = f->us.median;
    judgement j = {.length = 0};
    ask(&j, "<=", t->us, 1, "us", us, us <= t->us);
    ask(&j, "<=", t->copies, 2, "copies", us, us <= t->copies * b->copy.median);
    ask(&j, ">=", t->tops, 0, "Tops", us, f->tops >= t->tops);
    ask(&j, ">=", t->peak, 2, "of peak", b->peak, f->tops >= t->peak * b->peak);
    ask(&j, ">=", t->peers, 1, "x peer", b->peer_us, b->peer_us >= t->peers * us);
    ask(&j, ">=", t->openvino, 1, xn_openvino_version() ? "x OpenVINO" : "x OpenVINO (absent)",
        b->openvino.median, b->openvino.median >= t->openvino * us);
    ask(&j, ">=", t->filters, 1, "x filter2D", b->filter2d_us, b->filter2d_us >= t->filters * us);
    return j;
}

/* ---- rows ---- */

static void report(xn_bench_session *s, const xn_row *r, int64_t outputs, const xn_figures *f,
                   const beside *b) {
    const judgement j = judge(&r->target[s->is_cuda ? XN_BENCH_CUDA : XN_BENCH_CPU], f, b);
    const char *verdict = xn_bench_verdict(s, f->wrong);
    if (j.asked && !f->wrong) {
        s->reached += !j.missed;
        s->missed += j.missed;
        verdict = j.missed ? "MISSED" : "reached";
    }
    const double us = f->us.median;
    xn_report_row(s->report, XN_T(s->on.info.id), XN_T(r->name), XN_T(f->path), XN_T(f->precision),
                  XN_N(us), XN_N(f->us.least), XN_N(f->us.p10), XN_N(f->us.p90),
                  XN_N(b->copy.median), XN_N(us / b->copy.median), XN_N(f->tops),
                  XN_N(100 * f->tops / b->peak), XN_N(1e3 * us / (double)outputs), XN_T(b->peer),
                  XN_N(b->peer_us), XN_N(b->peer_us / us), XN_N(b->filter2d_us),
                  XN_N(b->filter2d_us / us), XN_N(b->openvino.median), XN_N(b->openvino.p10),
                  XN_N(b->openvino.p90), XN_N(b->openvino.median / us), XN_N(b->own_us),
                  XN_N(b->us[XN_PEER_FP32]), XN_N(b->us[XN_PEER_BF16]), XN_N(b->us[XN_PEER_INT8]),
                  XN_T(j.text), XN_T(verdict), XN_N(f->wrong));
}

static void run_row(xn_bench_session *s, const xn_row *r, xn_bench_data *data, double peak) {
    beside b = {.peak = peak};
    xn_peers peers;
    xn_turns turns;
    xn_figures f;
    xn_peers_make(s, data, r->kind, &peers);
    const bool ran = xn_bench_measure_one(&s->on, data, r->kind, xn_bench_how(s, 15, &turns),
                                          peers.sides, XN_PEER_SIDES, &f, &b.copy);
    best_peer(s, r, &peers, &b);
    if (ran)
        report(s, r, r->shape.images * xn_conv_output_elements(&data->conv), &f, &b);
    xn_peers_free(&peers);
}

static void print_head(const xn_bench_session *s, double binary, double real) {
    const char *onednn = xn_peer_version(), *openvino = xn_openvino_version();
    printf("peak: %.2f Tops of 1-bit operations, 2 a tap; %.3f of fp32", binary, real);
    if (!s->is_cuda)
        printf("; oneDNN %s; OpenVINO %s; own: oneDNN's fp32 from and to layouts of its own",
               onednn ? onednn : "is not installed (Debian: libdnnl-dev)",
               openvino ? openvino : "is not installed (make openvino)");
    putchar('\n');
}

/* The CPU has fp32 alone; there, other precisions are the same rows again. */
static bool is_taken(const xn_bench_session *s, const xn_row *r) {
    return s->is_cuda || r->kind->precision == XN_PRECISION_FP32;
}

void xn_bench_kernels(xn_bench_session *s) {
    const double real = s->on.place->peak_real();
    double binary = s->on.place->peak_binary();
    xn_bench_data data = {0}; /* of the row before, which neighbours share */
    print_head(s, binary, real);
    xn_report_table(s->report, columns, XN_COUNT(columns));
    const xn_row *r;
    for (int i = 0; (r = xn_rows_next(s, &i));) {
        const bool is_binary = r->kind->mode == XN_MODE_XNOR;
        if (!is_taken(s, r))
            continue;
        if (data.kind.mode != r->kind->mode ||
            memcmp(&data.shape, &r->shape, sizeof r->shape) != 0) {
            xn_bench_data_free(&data);
            xn_bench_data_make(&r->shape, r->kind->mode, &data);
        }
        if (is_binary) /* other work may have met the ones before */
            binary = fmax(binary, s->on.place->peak_binary());
        run_row(s, r, &data, is_binary ? binary : real);
    }
    xn_bench_data_free(&data);
    printf("peak at last: %.2f Tops\n", binary);
}
