/* cpu_subject.h: one kind of a layer (bench_layer.h) on the CPU backend, with packed or real
 * tensors: made, run once, checked, and ready to be timed. Exits with a message on any failure. */
#ifndef XN_CPU_SUBJECT_H
#define XN_CPU_SUBJECT_H

#include "bench_layer.h"
#include "cpu.h"

typedef struct xn_cpu_subject {
    xn_plan *plan;               /* owned */
    const xn_prepared *prepared; /* borrowed */
    int64_t images;
    void *input, *output; /* owned */
    size_t in_bytes, out_bytes;
    xn_cpu_run_io io;
} xn_cpu_subject;

/* layer gives the thresholds of packed output: it must live as long. */
void xn_cpu_subject_make(xn_stream *stream, xn_bench_layer *layer, xn_bench_kind kind,
                         const xn_prepared *prepared, xn_cpu_subject *out);
void xn_cpu_subject_run(void *subject);
void xn_cpu_subject_free(xn_cpu_subject *subject);

#endif
