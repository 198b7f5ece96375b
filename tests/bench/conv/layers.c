/* layers.c: `bench-conv layers` and `packed`: the paper's single-channel sizes and the 3x3 layers
 * of a ResNet, real and packed, each with what is to be reached: beside a copy of the same bytes,
 * the rate of 1-bit operations that instructions alone reach, and a peer (peers.h). */
#include "peers/peers.h"

#include <stdlib.h>
#include <string.h>

/* What is to be reached; 0: nothing. */
typedef struct target {
    double us, copies; /* at most; copies: times the copy */
    /* At least; peak: part of it; the others: times faster than the peer, filter2D, OpenVINO. */
    double tops, peak, peers, filters, openvino;
} target;

typedef struct row {
    xn_bench_shape shape;
    int kind;     /* of mode xnor */
    xn_mode mode; /* or another: fp32, on the CPU alone */
    target cpu, cuda;
} row;

/* A row is read as a row. */
/* clang-format off */
#define NONE {.us = 0}
#define ONE(SIDE, ...) {XN_BENCH_LAYER(1, 1, SIDE), XN_BENCH_FP32, XN_MODE_XNOR, __VA_ARGS__}
#define LAYER(N, C, SIDE, KIND, ...) \
    {XN_BENCH_LAYER(N, C, SIDE), XN_BENCH_##KIND, XN_MODE_XNOR, __VA_ARGS__}
#define REAL(N, C, SIDE, MODE) \
    {XN_BENCH_LAYER(N, C, SIDE), XN_BENCH_FP32, XN_MODE_##MODE, NONE, NONE}

/* Rows of one shape and mode are neighbours: they share their data. */
static const row rows[] = {
    ONE(256, {.peers = 10, .filters = 2.5}, {.us = 3.0}),
    ONE(384, {.peers = 10, .filters = 2.5}, NONE),
    ONE(512, {.peers = 10, .filters = 2.5}, {.us = 3.0}),
    ONE(1024, {.copies = 1.5, .peers = 10, .filters = 2.5}, {.us = 3.5}),
    ONE(2048, {.copies = 1.5, .peers = 10, .filters = 2.5}, {.copies = 1.15}),
    ONE(4096, {.copies = 1.5, .peers = 10, .filters = 2.5}, {.copies = 1.15}),
    ONE(8192, NONE, {.copies = 1.15}),
    LAYER(64, 1024, 14, PACKED_INT32, NONE, {.tops = 9000, .peers = 13}),
    LAYER(64, 1024, 14, PACKED_FP16, NONE, {.tops = 9000, .peers = 13}),
    LAYER(64, 1024, 14, PACKED_PACKED, NONE, NONE),
    LAYER(64, 64, 56, PACKED_INT32, {.peak = 0.6, .peers = 2, .openvino = 1.1}, NONE),
    LAYER(64, 64, 56, PACKED_PACKED, {.openvino = 1.1}, {.peers = 8}),
    LAYER(64, 64, 56, FP16, NONE, {.copies = 1.5, .peers = 2}),
    LAYER(64, 64, 56, FP32, {.peers = 1.5, .openvino = 1.5}, {.copies = 1.3}),
    LAYER(64, 64, 56, FP32_ALPHA, {.openvino = 1.5}, NONE),
    LAYER(64, 128, 28, PACKED_INT32, {.peak = 0.6, .peers = 2, .openvino = 1.1}, NONE),
    LAYER(64, 128, 28, PACKED_PACKED, {.openvino = 1.1}, {.peers = 8}),
    LAYER(64, 128, 28, FP16, NONE, {.copies = 1.5, .peers = 2}),
    LAYER(64, 128, 28, FP32, {.peers = 1.5, .openvino = 1.5}, {.copies = 1.3}),
    LAYER(64, 128, 28, FP32_ALPHA, {.openvino = 1.5}, NONE),
    LAYER(64, 256, 14, PACKED_INT32, {.peak = 0.6, .peers = 2, .openvino = 1.1}, NONE),
    LAYER(64, 256, 14, PACKED_PACKED, {.openvino = 1.1}, {.peers = 8}),
    LAYER(64, 256, 14, FP16, NONE, {.us = 4.0, .peers = 2}),
    LAYER(64, 256, 14, FP32, {.peers = 1.5, .openvino = 1.5}, {.copies = 2.0}),
    LAYER(64, 256, 14, FP32_ALPHA, {.openvino = 1.5}, NONE),
    LAYER(64, 512, 7, PACKED_INT32, {.peak = 0.6, .peers = 2, .openvino = 1.1}, NONE),
    LAYER(64, 512, 7, PACKED_PACKED, {.openvino = 1.1}, {.peers = 8}),
    LAYER(64, 512, 7, FP16, NONE, {.us = 4.0, .peers = 2}),
    LAYER(64, 512, 7, FP32, {.peers = 1.5, .openvino = 1.5}, {.copies = 2.0}),
    LAYER(64, 512, 7, FP32_ALPHA, {.openvino = 1.5}, NONE),
    LAYER(1, 64, 56, PACKED_INT32, {.peers = 3, .openvino = 1.1}, NONE),
    LAYER(1, 64, 56, PACKED_PACKED, {.openvino = 1.1}, {.us = 5.0}),
    LAYER(1, 64, 56, FP16, NONE, NONE),
    LAYER(1, 64, 56, FP32, {.openvino = 1.5}, NONE),
    LAYER(1, 64, 56, FP32_ALPHA, {.openvino = 1.5}, NONE),
    LAYER(1, 128, 28, PACKED_INT32, {.peers = 3, .openvino = 1.1}, NONE),
    LAYER(1, 128, 28, PACKED_PACKED, {.openvino = 1.1}, NONE),
    LAYER(1, 128, 28, FP16, NONE, NONE),
    LAYER(1, 128, 28, FP32, {.openvino = 1.5}, NONE),
    LAYER(1, 128, 28, FP32_ALPHA, {.openvino = 1.5}, NONE),
    LAYER(1, 256, 14, PACKED_INT32, {.peers = 3, .openvino = 1.1}, NONE),
    LAYER(1, 256, 14, PACKED_PACKED, {.openvino = 1.1}, NONE),
    LAYER(1, 256, 14, FP16, NONE, NONE),
    LAYER(1, 256, 14, FP32, {.openvino = 1.5}, NONE),
    LAYER(1, 256, 14, FP32_ALPHA, {.openvino = 1.5}, NONE),
    LAYER(1, 512, 7, PACKED_INT32, {.peers = 3, .openvino = 1.1}, NONE),
    LAYER(1, 512, 7, PACKED_PACKED, {.openvino = 1.1}, NONE),
    LAYER(1, 512, 7, FP16, NONE, NONE),
    LAYER(1, 512, 7, FP32, {.openvino = 1.5}, NONE),
    LAYER(1, 512, 7, FP32_ALPHA, {.openvino = 1.5}, NONE),
    REAL(1, 1, 1024, FLOAT),
    REAL(1, 64, 56, FLOAT),
    REAL(1, 256, 14, FLOAT),
    REAL(8, 256, 14, FLOAT),
    REAL(1, 256, 14, BWN),
};
/* clang-format on */

static const xn_column columns[] = {
    {"backend", NULL, 0, XN_TEXT},
    {"workload", "images x channels x side", 32, XN_TEXT},
    {"path", "path", 17, XN_TEXT},
    {"median_us", "median us", 9, 2},
    {"least_us", "least", 9, 2},
    {"p10_us", "p10", 9, 2},
    {"p90_us", "p90", 9, 2},
    {"copy_us", "copy", 8, 2},
    {"copies", "x copy", 6, 2},
    {"tops", "Tops", 8, 3},
    {"of_peak_percent", "peak %", 6, 1},
    {"peer", "peer", 5, XN_TEXT},
    {"peer_us", "us", 9, 2},
    {"times_faster", "faster", 6, 2},
    {"filter2d_us", "filter2D", 9, 2},
    {"filters", "faster", 6, 2},
    {"openvino_us", "OpenVINO", 9, 2},
    {"openvino_p10_us", NULL, 0, 2},
    {"openvino_p90_us", NULL, 0, 2},
    {"openvino_times_faster", "faster", 6, 2},
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
    double us[XN_PEER_TYPES], peer_us, filter2d_us, peak; /* NAN: not known, */
    xn_stats openvino;                                    /* as here */
} beside;

static void best_peer(const xn_bench_session *s, const row *r, const xn_peers *peers, beside *out) {
    static const char *const names[XN_PEER_TYPES] = {"fp32", "bf16", "int8"};
    out->peer = "";
    out->peer_us = NAN;
    out->filter2d_us = xn_peer_filter2d_us(s, &r->shape);
    out->openvino = xn_peers_openvino(peers);
    for (int t = 0; t < XN_PEER_TYPES; t++) {
        out->us[t] = xn_peers_us(peers, (xn_peer_type)t);
        /* few channels and real-valued modes: fp32's alone */
        const bool counts = t == XN_PEER_FP32 || (r->shape.channels > 1 && r->mode == XN_MODE_XNOR);
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

static judgement judge(const target *t, const xn_figures *f, const beside *b) {
    const double us = f->ours.median;
    judgement j = {.length = 0};
    ask(&j, "<=", t->us, 1, "us", us, us <= t->us);
    ask(&j, "<=", t->copies, 2, "copies", us, us <= t->copies * f->copy.median);
    ask(&j, ">=", t->tops, 0, "Tops", us, f->tops >= t->tops);
    ask(&j, ">=", t->peak, 2, "of peak", b->peak, f->tops >= t->peak * b->peak);
    ask(&j, ">=", t->peers, 1, "x peer", b->peer_us, b->peer_us >= t->peers * us);
    ask(&j, ">=", t->openvino, 1, xn_openvino_version() ? "x OpenVINO" : "x OpenVINO (absent)",
        b->openvino.median, b->openvino.median >= t->openvino * us);
    ask(&j, ">=", t->filters, 1, "x filter2D", b->filter2d_us, b->filter2d_us >= t->filters * us);
    return j;
}

/* ---- rows ---- */

static void name_of(const row *r, char *name, size_t size) {
    char shape[XN_BENCH_NAME];
    xn_bench_name(&r->shape, shape);
    snprintf(name, size, "%s %s", shape,
             r->mode == XN_MODE_XNOR ? xn_bench_kinds[r->kind].name : xn_mode_name(r->mode));
}

static void report(xn_bench_session *s, const row *r, const xn_figures *f, const beside *b) {
    char name[2 * XN_BENCH_NAME];
    const judgement j = judge(s->is_cuda ? &r->cuda : &r->cpu, f, b);
    const char *verdict = xn_bench_verdict(s, f->wrong);
    name_of(r, name, sizeof name);
    if (j.asked && !f->wrong) {
        s->reached += !j.missed;
        s->missed += j.missed;
        verdict = j.missed ? "MISSED" : "reached";
    }
    const double us = f->ours.median;
    xn_report_row(s->report, XN_T(s->on.info.id), XN_T(name), XN_T(f->path), XN_N(us),
                  XN_N(f->ours.least), XN_N(f->ours.p10), XN_N(f->ours.p90), XN_N(f->copy.median),
                  XN_N(us / f->copy.median), XN_N(f->tops), XN_N(100 * f->tops / b->peak),
                  XN_T(b->peer), XN_N(b->peer_us), XN_N(b->peer_us / us), XN_N(b->filter2d_us),
                  XN_N(b->filter2d_us / us), XN_N(b->openvino.median), XN_N(b->openvino.p10),
                  XN_N(b->openvino.p90), XN_N(b->openvino.median / us), XN_N(b->us[0]),
                  XN_N(b->us[1]), XN_N(b->us[2]), XN_T(j.text), XN_T(verdict), XN_N(f->wrong));
}

static void run_row(xn_bench_session *s, const row *r, xn_bench_data *data, double *peak) {
    xn_bench_kind kind = xn_bench_kinds[r->kind];
    xn_peers peers;
    xn_turns turns;
    xn_figures f;
    *peak = fmax(*peak, s->on.place->peak_binary()); /* other work may have met the ones before */
    beside b = {.peak = r->mode == XN_MODE_XNOR ? *peak : NAN};
    kind.mode = r->mode;
    xn_peers_make(s, data, &kind, &peers);
    const xn_turns *how = xn_bench_how(s, &turns);
    const bool ran =
        xn_bench_measure(&s->on, data, &kind, how, peers.sides, how ? XN_PEER_SIDES : 0, &f);
    best_peer(s, r, &peers, &b);
    if (ran)
        report(s, r, &f, &b);
    xn_peers_free(&peers);
}

static void run_rows(xn_bench_session *s, bool (*takes)(const row *r)) {
    const row *made = NULL; /* whose data these are */
    double peak = s->on.place->peak_binary();
    const char *onednn = xn_peer_version(), *openvino = xn_openvino_version();
    xn_bench_data data = {0};
    printf("3x3, padding 1; peak: %.2f Tops of 1-bit operations, 2 a tap", peak);
    if (!s->is_cuda)
        printf("; oneDNN %s; OpenVINO %s",
               onednn ? onednn : "is not installed (Debian: libdnnl-dev)",
               openvino ? openvino : "is not installed (make openvino)");
    putchar('\n');
    xn_report_table(s->report, columns, XN_COUNT(columns));
    for (int i = 0; i < XN_COUNT(rows); i++) {
        const row *r = &rows[i];
        char name[2 * XN_BENCH_NAME];
        name_of(r, name, sizeof name);
        if (!takes(r) || !xn_bench_wanted(s, name, r->shape.images) ||
            (s->is_cuda && r->mode != XN_MODE_XNOR))
            continue;
        xn_report_doing(s->report, i + 1, XN_COUNT(rows), name);
        if (!made || made->mode != r->mode || memcmp(&made->shape, &r->shape, sizeof r->shape)) {
            xn_bench_data_free(&data);
            xn_bench_data_make(&r->shape, r->mode, &data);
            made = r;
        }
        run_row(s, r, &data, &peak);
    }
    xn_bench_data_free(&data);
    printf("peak at last: %.2f Tops\n", peak);
}

static bool is_any(const row *r) {
    (void)r;
    return true;
}

static bool is_of_many(const row *r) {
    return r->shape.channels > 1 && r->shape.channels < 1024 && r->mode == XN_MODE_XNOR &&
           r->kind != XN_BENCH_FP16;
}

void xn_bench_layers(xn_bench_session *s) {
    run_rows(s, is_any);
}

void xn_bench_packed(xn_bench_session *s) {
    xn_bench_options alone = *s->options;
    alone.peer = "none";
    s->options = &alone;
    run_rows(s, is_of_many);
}
