/* pack.c: `bench-conv time --of pack`: binarise-and-pack on a GPU, beside reading and copying the
 * same bytes, the layers that begin with it, and those that find their input packed. */
#include "pack.h"
#include "rows.h"

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

static void run_row(xn_bench_session *s, const xn_row *r) {
    const xn_bench_kind *packed_kind = &xn_bench_kinds[XN_BENCH_PACKED_FP16];
    xn_bench_data data;
    xn_figures layer, packed;
    xn_stats copy, ignored;
    xn_subject subject;
    xn_turns how;
    xn_bench_data_make(&r->shape, XN_MODE_XNOR, &data);
    xn_bench_how(s, 15, &how);
    if (xn_bench_measure_one(&s->on, &data, r->kind, &how, NULL, 0, &layer, &copy) &&
        xn_bench_measure_one(&s->on, &data, packed_kind, &how, NULL, 0, &packed, &ignored)) {
        xn_subject_make(&s->on, &data, r->kind, &subject);
        const int64_t images = subject.images;
        const void *input = subject.io.input;
        const double us = xn_bench_pack_us(&subject.conv, images, input, false);
        const double overlapped = xn_bench_pack_us(&subject.conv, images, input, true);
        xn_report_row(s->report, XN_T(r->name), XN_T(xn_datatype_name(r->kind->input)),
                      XN_N(xn_bench_pack_read_us(input, subject.in_bytes)), XN_N(us),
                      XN_N(overlapped), XN_N((double)subject.in_bytes / overlapped / 1e6),
                      XN_N(layer.us.median), XN_T(layer.path), XN_N(copy.median),
                      XN_N(packed.us.median), XN_T(packed.path),
                      XN_T(xn_bench_verdict(s, layer.wrong | packed.wrong)));
        xn_subject_free(&subject);
    }
    xn_bench_data_free(&data);
}

void xn_bench_pack(xn_bench_session *s) {
    if (!s->is_cuda)
        xn_bench_fail("pack", "is for a GPU");
    s->wrong += xn_bench_pack_check();
    if (s->options->check_only)
        return;
    puts(
        "layer: from real input, pack and all; packed: the same from packed bits, fp16 out; copy:\n"
        "of as many bytes as the layer reads and writes");
    xn_report_table(s->report, columns, XN_COUNT(columns));
    const xn_row *r;
    for (int i = 0; (r = xn_rows_next(s, &i));)
        run_row(s, r);
}
