/* peers.c: see peers.h. */
#include "peers.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

static bool is_wanted(const xn_bench_session *s) {
    return !s->options->check_only && !(s->options->peer && !strcmp(s->options->peer, "none"));
}

/* ---- oneDNN ---- */

/* From the definition. */
static double right_at(const xn_peer *peer, const xn_bench_shape *p, int64_t side, int64_t at) {
    const float *in = xn_peer_input(peer), *w = xn_peer_weights(peer);
    const int64_t x = at % side, y = at / side % side, o = at / side / side % p->filters;
    const int64_t n = at / side / side / p->filters, group = p->channels / p->groups;
    const int64_t base = n * p->channels + o / (p->filters / p->groups) * group;
    double sum = 0;
    for (int64_t c = 0; c < group; c++)
        for (int64_t k = 0; k < p->kernel * p->kernel; k++) {
            const int64_t iy = y * p->stride + k / p->kernel * p->dilation - p->padding;
            const int64_t ix = x * p->stride + k % p->kernel * p->dilation - p->padding;
            if (iy >= 0 && iy < p->side && ix >= 0 && ix < p->side)
                sum += (double)in[((base + c) * p->side + iy) * p->side + ix] *
                       (double)w[(o * group + c) * p->kernel * p->kernel + k];
        }
    return sum;
}

/* Some outputs, spread over all: a wrong peer would be a fast one. */
static void check_peer(const xn_peer *peer, const xn_bench_shape *p) {
    const int64_t extent = p->dilation * (p->kernel - 1) + 1;
    const int64_t side = (p->side + 2 * p->padding - extent) / p->stride + 1;
    const int64_t count = p->images * p->filters * side * side;
    for (int64_t at = 0; at < count; at += count / 97 + 1)
        if ((double)xn_peer_output(peer)[at] != right_at(peer, p, side, at))
            xn_bench_fail("oneDNN", "its result is not the convolution");
}

/* With fp32 in and out, or packed in layouts and datatypes of its own; of real-valued modes fp32 in
 * every form. */
static bool is_peer_of(const xn_bench_kind *kind, xn_peer_type type, xn_peer_form form) {
    if (kind->mode != XN_MODE_XNOR)
        return type == XN_PEER_FP32;
    return kind->input == XN_FP32 && (form == XN_PEER_OWN) == kind->packed_input;
}

static void make_onednn(const xn_bench_shape *shape, const xn_bench_kind *kind, xn_peers *out) {
    for (int i = 0; i < XN_PEER_ONEDNN; i++) {
        const xn_peer_type type = (xn_peer_type)(i / XN_PEER_FORMS);
        const xn_peer_form form = (xn_peer_form)(i % XN_PEER_FORMS);
        xn_peer *peer = is_peer_of(kind, type, form) ? xn_peer_create(shape, type, form) : NULL;
        if (!peer)
            continue;
        xn_peer_run(peer);
        if (form != XN_PEER_OWN)
            check_peer(peer, shape);
        out->peer[i] = peer;
        out->sides[i] = xn_contender_make(&xn_bench_host, xn_peer_run, peer);
    }
}

/* Of mode xnor, and channels that it packs without a rest. */
static void make_openvino(xn_bench_data *data, const xn_bench_kind *kind, xn_peers *out) {
    const bool reals = !kind->packed_input && kind->output == XN_FP32;
    if (kind->mode != XN_MODE_XNOR || data->shape.channels % 32 || !xn_openvino_version() ||
        (!reals && kind->output != XN_INT32))
        return;
    xn_bench_expect_dots(data);
    out->openvino = xn_openvino_create(data, reals                 ? XN_OPENVINO_REALS
                                             : kind->packed_output ? XN_OPENVINO_BITS
                                                                   : XN_OPENVINO_DOTS);
    out->sides[XN_PEER_OPENVINO] = xn_openvino_contender(out->openvino);
}

void xn_peers_make(const xn_bench_session *s, xn_bench_data *data, const xn_bench_kind *kind,
                   xn_peers *out) {
    *out = (xn_peers){0};
    if (s->is_cuda || !is_wanted(s))
        return;
    make_onednn(&data->shape, kind, out);
    if (kind->input == XN_FP32)
        make_openvino(data, kind, out);
}

void xn_peers_free(xn_peers *p) {
    for (int i = 0; i < XN_PEER_ONEDNN; i++)
        xn_peer_free(p->peer[i]);
    xn_openvino_free(p->openvino);
}

xn_stats xn_peers_openvino(const xn_peers *p) {
    const xn_contender *side = &p->sides[XN_PEER_OPENVINO];
    return side->place ? side->stats : (xn_stats){.p10 = NAN, .median = NAN, .p90 = NAN};
}

double xn_peers_form_us(const xn_peers *p, xn_peer_type type, xn_peer_form form) {
    const xn_contender *side = &p->sides[(int)type * XN_PEER_FORMS + (int)form];
    return side->place ? side->stats.median : NAN;
}

double xn_peers_us(const xn_peers *p, xn_peer_type type, const xn_bench_kind *kind) {
    double us = NAN;
    for (int form = 0; form < XN_PEER_FORMS; form++)
        if (form != XN_PEER_OWN || kind->packed_input) /* of a number and NAN the number */
            us = fmin(us, xn_peers_form_us(p, type, (xn_peer_form)form));
    return us;
}

/* ---- cuDNN, OpenCV: figures that a command prints ---- */

typedef struct figure {
    long long images, channels, side;
    double us;
} figure;

enum { FIGURES = 64, LINE = 512, WORD = 16 };

typedef struct figures {
    figure all[FIGURES];
    int count;
    bool asked;
} figures;

/* The lines "NxCxS PEER TYPE MEDIAN ..." of the command's output; others are passed on. */
static void ask(const char *command, const char *peer, figures *out) {
    char line[LINE], word[WORD];
    FILE *pipe = popen(command, "r");
    out->asked = true;
    while (pipe && fgets(line, sizeof line, pipe)) {
        figure f;
        if (out->count < FIGURES &&
            sscanf(line, "%lldx%lldx%lld %15s %*15s %lf", &f.images, &f.channels, &f.side, word,
                   &f.us) == 5 &&
            !strcmp(word, peer))
            out->all[out->count++] = f;
        else
            fputs(line, stdout);
    }
    if (!pipe || pclose(pipe) || !out->count)
        printf("no figures of %s: the peer's command failed\n", peer);
}

static double figure_of(const figures *f, const xn_bench_shape *shape) {
    for (int i = 0; i < f->count; i++)
        if (f->all[i].images == shape->images && f->all[i].channels == shape->channels &&
            f->all[i].side == shape->side)
            return f->all[i].us;
    return NAN;
}

double xn_peer_cudnn_us(const xn_bench_session *s, const xn_bench_shape *shape) {
    static figures had;
    if (!s->is_cuda || !s->options->peer || !is_wanted(s))
        return NAN;
    if (!had.asked)
        ask(s->options->peer, "cudnn", &had);
    return figure_of(&had, shape);
}

double xn_peer_filter2d_us(const xn_bench_session *s, const xn_bench_shape *shape) {
    static figures had;
    char command[LINE];
    if (s->is_cuda || !s->options->opencv || !is_wanted(s) || shape->channels > 1)
        return NAN;
    snprintf(command, sizeof command, "%s %d", s->options->opencv, omp_get_max_threads());
    if (!had.asked)
        ask(command, "opencv", &had);
    return figure_of(&had, shape);
}
