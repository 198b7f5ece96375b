/* peer_onednn.c: see peer_onednn.h. The one file that includes oneDNN, versions 2 and 3.
 *
 * It gets what is best for it: layouts of its own choice (format "any"), the algorithm of its own
 * choice (Winograd where it thinks that faster), inference only, weights reordered before the
 * clock starts, int8 with unsigned input where the values allow it and the least output it can
 * write. Threads are OpenMP's, as many as the process may use. */
#include "peer_onednn.h"

#include "xn_mem.h"
#include "xn_rng.h"

#include <dnnl.h>
#include <stdlib.h>

enum { SRC, WEIGHTS, DST, TENSORS };

struct xn_peer {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t convolution, reorder_in, reorder_out; /* reorders: of form REORDER */
    dnnl_memory_t own[TENSORS];                            /* what the convolution gets */
    dnnl_memory_t plain[TENSORS];                          /* fp32 NCHW */
};

static void need(dnnl_status_t status, const char *what) {
    if (status == dnnl_success)
        return;
    fprintf(stderr, "bench: oneDNN: %s: status %d\n", what, (int)status);
    exit(1);
}

const char *xn_peer_version(void) {
    static char text[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

/* ---- where versions 2 and 3 differ: descriptors of memory and of a convolution ---- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t owned_desc;
typedef const_dnnl_memory_desc_t seen_desc;

static owned_desc make_desc(const dnnl_dims_t dims, dnnl_data_type_t element,
                            dnnl_format_tag_t tag) {
    owned_desc desc;
    need(dnnl_memory_desc_create_with_tag(&desc, 4, dims, element, tag), "desc");
    return desc;
}

static void free_desc(owned_desc desc) {
    dnnl_memory_desc_destroy(desc);
}

static bool describe_convolution(xn_peer *p, const owned_desc desc[TENSORS],
                                 const dnnl_dims_t padding) {
    const dnnl_dims_t strides = {1, 1}, dilation = {0, 0};
    return dnnl_convolution_forward_primitive_desc_create(
               &p->description, p->engine, dnnl_forward_inference, dnnl_convolution_auto, desc[SRC],
               desc[WEIGHTS], NULL, desc[DST], strides, dilation, padding, padding,
               NULL) == dnnl_success;
}
#else
typedef dnnl_memory_desc_t *owned_desc;
typedef const dnnl_memory_desc_t *seen_desc;

static owned_desc make_desc(const dnnl_dims_t dims, dnnl_data_type_t element,
                            dnnl_format_tag_t tag) {
    owned_desc desc = xn_mem_zalloc(1, sizeof *desc);
    need(desc ? dnnl_memory_desc_init_by_tag(desc, 4, dims, element, tag) : dnnl_out_of_memory,
         "desc");
    return desc;
}

static void free_desc(owned_desc desc) {
    xn_mem_free(desc);
}

static bool describe_convolution(xn_peer *p, const owned_desc desc[TENSORS],
                                 const dnnl_dims_t padding) {
    const dnnl_dims_t strides = {1, 1};
    dnnl_convolution_desc_t convolution;
    need(dnnl_convolution_forward_desc_init(&convolution, dnnl_forward_inference,
                                            dnnl_convolution_auto, desc[SRC], desc[WEIGHTS], NULL,
                                            desc[DST], strides, padding, padding),
         "convolution");
    return dnnl_primitive_desc_create(&p->description, &convolution, NULL, p->engine, NULL) ==
           dnnl_success;
}
#endif

static float *values_of(dnnl_memory_t memory) {
    void *values = NULL;
    need(dnnl_memory_get_data_handle(memory, &values), "data handle");
    return values;
}

static dnnl_memory_t allocate(const xn_peer *p, seen_desc desc) {
    dnnl_memory_t memory;
    need(dnnl_memory_create(&memory, desc, p->engine, DNNL_MEMORY_ALLOCATE), "memory");
    return memory;
}

static dnnl_primitive_t make_reorder(const xn_peer *p, dnnl_memory_t from, dnnl_memory_t to) {
    seen_desc a, b;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t reorder;
    need(dnnl_memory_get_memory_desc(from, &a), "desc");
    need(dnnl_memory_get_memory_desc(to, &b), "desc");
    need(dnnl_reorder_primitive_desc_create(&description, a, p->engine, b, p->engine, NULL),
         "reorder");
    need(dnnl_primitive_create(&reorder, description), "reorder");
    dnnl_primitive_desc_destroy(description);
    return reorder;
}

static void run_reorder(const xn_peer *p, dnnl_primitive_t reorder, dnnl_memory_t from,
                        dnnl_memory_t to) {
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    need(dnnl_primitive_execute(reorder, p->stream, 2, arguments), "reorder");
}

static void copy(const xn_peer *p, dnnl_memory_t from, dnnl_memory_t to) {
    dnnl_primitive_t reorder = make_reorder(p, from, to);
    run_reorder(p, reorder, from, to);
    need(dnnl_stream_wait(p->stream), "wait");
    dnnl_primitive_destroy(reorder);
}

/* Shapes as oneDNN's descriptors, in the types of the convolution. */
static bool describe(xn_peer *p, const xn_bench_shape *b, xn_peer_type type, xn_peer_form form,
                     dnnl_dims_t dims[TENSORS]) {
    static const dnnl_data_type_t types[XN_PEER_TYPES][TENSORS] = {
        {dnnl_f32, dnnl_f32, dnnl_f32},
        {dnnl_bf16, dnnl_bf16, dnnl_bf16},
        {dnnl_u8, dnnl_s8, dnnl_u8},
    };
    const dnnl_dims_t padding = {b->padding, b->padding};
    owned_desc desc[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        dnnl_data_type_t element = types[type][t];
        if (type == XN_PEER_INT8 && form != XN_PEER_OWN && t == SRC)
            element = dnnl_s8; /* +1 and -1 as they come */
        if (form != XN_PEER_OWN && t == DST)
            element = dnnl_f32;
        dnnl_format_tag_t tag =
            form == XN_PEER_PLAIN && t != WEIGHTS ? dnnl_nchw : dnnl_format_tag_any;
        desc[t] = make_desc(dims[t], element, tag);
    }
    bool made = describe_convolution(p, desc, padding);
    for (int t = 0; t < TENSORS; t++)
        free_desc(desc[t]);
    return made;
}

static void fill(float *values, int64_t count, xn_rng *rng, bool bits) {
    for (int64_t i = 0; i < count; i++) {
        bool one = xn_rng_float(rng) >= 0;
        values[i] = one ? 1.0f : bits ? 0.0f : -1.0f;
    }
}

static void make_tensors(xn_peer *p, xn_peer_form form, dnnl_dims_t dims[TENSORS], bool bits) {
    static const dnnl_query_t query[TENSORS] = {dnnl_query_src_md, dnnl_query_weights_md,
                                                dnnl_query_dst_md};
    xn_rng rng = {20200728};
    for (int t = 0; t < TENSORS; t++) {
        int64_t count = dims[t][0] * dims[t][1] * dims[t][2] * dims[t][3];
        owned_desc plain = make_desc(dims[t], dnnl_f32, t == WEIGHTS ? dnnl_oihw : dnnl_nchw);
        p->plain[t] = allocate(p, plain);
        free_desc(plain);
        fill(values_of(p->plain[t]), count, &rng, bits && t == SRC);
        if (form == XN_PEER_PLAIN && t != WEIGHTS)
            continue;
        p->own[t] = allocate(p, dnnl_primitive_desc_query_md(p->description, query[t], 0));
        if (t != DST)
            copy(p, p->plain[t], p->own[t]);
    }
}

xn_peer *xn_peer_create(const xn_bench_shape *b, xn_peer_type type, xn_peer_form form) {
    dnnl_dim_t out = b->side + 2 * b->padding - b->kernel + 1;
    dnnl_dims_t dims[TENSORS] = {{b->images, b->channels, b->side, b->side},
                                 {b->filters, b->channels, b->kernel, b->kernel},
                                 {b->images, b->filters, out, out}};
    if (form == XN_PEER_PLAIN && type != XN_PEER_FP32)
        return NULL;
    xn_peer *p = xn_mem_zalloc(1, sizeof *p);
    if (!p)
        return NULL;
    need(dnnl_engine_create(&p->engine, dnnl_cpu, 0), "engine");
    need(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags), "stream");
    if (!describe(p, b, type, form, dims)) {
        xn_peer_free(p);
        return NULL;
    }
    make_tensors(p, form, dims, type == XN_PEER_INT8 && form == XN_PEER_OWN);
    need(dnnl_primitive_create(&p->convolution, p->description), "convolution");
    if (form == XN_PEER_REORDER) {
        p->reorder_in = make_reorder(p, p->plain[SRC], p->own[SRC]);
        p->reorder_out = make_reorder(p, p->own[DST], p->plain[DST]);
    }
    return p;
}

void xn_peer_free(xn_peer *p) {
    if (!p)
        return;
    for (int t = 0; t < TENSORS; t++) {
        dnnl_memory_destroy(p->own[t]);
        dnnl_memory_destroy(p->plain[t]);
    }
    dnnl_primitive_destroy(p->reorder_out);
    dnnl_primitive_destroy(p->reorder_in);
    dnnl_primitive_destroy(p->convolution);
    dnnl_primitive_desc_destroy(p->description);
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
    xn_mem_free(p);
}

void xn_peer_run(void *peer) {
    const xn_peer *p = peer;
    dnnl_memory_t in = p->own[SRC] ? p->own[SRC] : p->plain[SRC];
    dnnl_memory_t out = p->own[DST] ? p->own[DST] : p->plain[DST];
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, in}, {DNNL_ARG_WEIGHTS, p->own[WEIGHTS]}, {DNNL_ARG_DST, out}};
    if (p->reorder_in)
        run_reorder(p, p->reorder_in, p->plain[SRC], in);
    need(dnnl_primitive_execute(p->convolution, p->stream, 3, arguments), "run");
    if (p->reorder_out)
        run_reorder(p, p->reorder_out, out, p->plain[DST]);
    need(dnnl_stream_wait(p->stream), "wait");
}

const char *xn_peer_kernel(const xn_peer *p) {
    const char *text = "";
    need(dnnl_primitive_desc_query(p->description, dnnl_query_impl_info_str, 0, (void *)&text),
         "name");
    return text;
}

const float *xn_peer_input(const xn_peer *p) {
    return values_of(p->plain[SRC]);
}

const float *xn_peer_weights(const xn_peer *p) {
    return values_of(p->plain[WEIGHTS]);
}

const float *xn_peer_output(const xn_peer *p) {
    return values_of(p->plain[DST]);
}
