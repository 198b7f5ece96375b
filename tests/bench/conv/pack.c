/* pack.c: `bench-conv pack`: binarise-and-pack on a GPU, beside reading and copying the same bytes,
 * the layers that begin with it, and those that find their input packed. */
#include "pack.h"
#include "bench.h"

static const xn_bench_shape layers[] = {XN_BENCH_RESNET(1), XN_BENCH_RESNET(64),
                                        XN_BENCH_LAYER(64, 1024, 14)};

static const xn_column columns[] = {
    {"layer", "images x channels x side", 24, XN_TEXT},
    {"datatype", "type", 5, XN_TEXT},
    {"read_us", "read us", 8, 2},
    {"pack_us", "pack", 8, 2},
    {"pack_overlapped_us", "overlap", 8, 2},
    {"tb_per_s", "TB/s", 6, 2},
    {"layer_us", "layer", 8, 2},
    {"layer_path", "by", 17, XN_TEXT},
    {"copy_us", "copy", 8, 2},
    {"packed_us", "packed", 8, 2},
    {"packed_path", "by", 17, XN_TEXT},
    {"verdict", "", 5, XN_TEXT},
};

static void run_layer(xn_bench_session *s, const xn_bench_shape *shape, int kind_number) {
    const xn_bench_kind *kind = &xn_bench_kinds[kind_number];
    char name[XN_BENCH_NAME];
    xn_bench_data data;
    xn_figures layer, packed;
    xn_subject subject;
    xn_turns how;
    xn_bench_name(shape, name);
    if (!xn_bench_wanted(s, name, shape->images))
        return;
    xn_report_doing(s->report, (int)(shape - layers) + 1, XN_COUNT(layers), name);
    xn_bench_data_make(shape, XN_MODE_XNOR, &data);
    xn_bench_how(s, &how);
    if (xn_bench_measure(&s->on, &data, kind, &how, NULL, 0, &layer) &&
        xn_bench_measure(&s->on, &data, &xn_bench_kinds[XN_BENCH_PACKED_FP16], &how, NULL, 0,
                         &packed) &&
        xn_subject_make(&s->on, &data, kind, &subject)) {
        const double us = xn_bench_pack_us(&subject.conv, shape->images, subject.input, false);
        const double overlapped =
            xn_bench_pack_us(&subject.conv, shape->images, subject.input, true);
        xn_report_row(s->report, XN_T(name), XN_T(xn_datatype_name(kind->input)),
                      XN_N(xn_bench_pack_read_us(subject.input, subject.in_bytes)), XN_N(us),
                      XN_N(overlapped), XN_N((double)subject.in_bytes / overlapped / 1e6),
                      XN_N(layer.ours.median), XN_T(layer.path), XN_N(layer.copy.median),
                      XN_N(packed.ours.median), XN_T(packed.path),
                      XN_T(xn_bench_verdict(s, layer.wrong | packed.wrong)));
        xn_subject_free(&subject);
    }
    xn_bench_data_free(&data);
}

void xn_bench_pack(xn_bench_session *s) {
    const int kinds[] = {XN_BENCH_FP32, XN_BENCH_FP16};
    if (!s->is_cuda)
        xn_bench_fail("pack", "is for a GPU");
    s->wrong += xn_bench_pack_check();
    if (s->options->check_only)
        return;
    puts(
        "layer: from real input, pack and all; packed: the same from packed bits, fp16 out; copy:\n"
        "of as many bytes as the layer reads and writes");
    xn_report_table(s->report, columns, XN_COUNT(columns));
    for (int k = 0; k < XN_COUNT(kinds); k++)
        for (int i = 0; i < XN_COUNT(layers); i++)
            run_layer(s, &layers[i], kinds[k]);
}
