/* cpu_subject.c: see cpu_subject.h. */
#include "cpu_subject.h"

#include "xn_arith.h"

#include <stdlib.h>

void xn_cpu_subject_make(xn_stream *stream, xn_bench_layer *layer, xn_bench_kind kind,
                         const xn_prepared *prepared, xn_cpu_subject *s) {
    xn_conv conv = xn_bench_layer_conv(layer, kind);
    xn_bench_words words = {xn_packed_words(conv.group_channels),
                            xn_packed_words(conv.out_channels)};
    xn_cpu_plan_options options = {kind != XN_BENCH_FP32, kind == XN_BENCH_PACKED_PACKED};
    xn_error error;
    *s = (xn_cpu_subject){.prepared = prepared,
                          .images = layer->shape.images,
                          .in_bytes = xn_bench_input_bytes(layer, kind, words),
                          .out_bytes = xn_bench_output_bytes(layer, kind, words)};
    s->input = xn_mem_alloc(s->in_bytes);
    s->output = xn_mem_zalloc(s->out_bytes, 1);
    if (!s->input || !s->output)
        xn_bench_fail("buffers", "no memory");
    xn_bench_fill_input(layer, kind, words, s->input);
    if (xn_cpu_plan_create_with(stream, &conv, s->images, &options, &s->plan, &error))
        xn_bench_fail("plan", error.message);
    s->io = (xn_cpu_run_io){.input = s->input,
                            .bits = s->input,
                            .output = s->output,
                            .packed = s->output,
                            .threshold = layer->threshold,
                            .flip = layer->flip};
    xn_cpu_subject_run(s);
    if (xn_bench_count_wrong(layer, kind, words, s->output))
        xn_bench_fail("check", "outputs are wrong");
}

void xn_cpu_subject_run(void *subject) {
    const xn_cpu_subject *s = subject;
    xn_cpu_run_with(s->plan, s->prepared, s->images, &s->io);
}

void xn_cpu_subject_free(xn_cpu_subject *s) {
    xn_cpu_plan_free(s->plan);
    xn_mem_free(s->input);
    xn_mem_free(s->output);
}
