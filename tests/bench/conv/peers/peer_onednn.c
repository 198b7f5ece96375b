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
#include <string.h>

enum { SRC, WEIGHTS, DST, TENSORS };

struct xn_peer {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t operation, reorder_in, reorder_out; /* reorders: of form REORDER */
    dnnl_memory_t own[TENSORS];                          /* what the operation gets */
    dnnl_memory_t plain[TENSORS];                        /* fp32 NCHW */
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

/* What is computed, in oneDNN's words: dilation 0 leaves no gap. */
typedef struct geometry {
    bool dense; /* images of one pixel: an inner product, which is faster there */
    int dst_dims;
    dnnl_dims_t dims[TENSORS], strides, dilation, before, behind;
    int weights_dims;
} geometry;

/* ---- where versions 2 and 3 differ: descriptors of memory and of an operation ---- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t owned_desc;
typedef const_dnnl_memory_desc_t seen_desc;

static owned_desc make_desc(int count, const dnnl_dims_t dims, dnnl_data_type_t element,
                            dnnl_format_tag_t tag) {
    owned_desc desc;
    need(dnnl_memory_desc_create_with_tag(&desc, count, dims, element, tag), "desc");
    return desc;
}

static void free_desc(owned_desc desc) {
    dnnl_memory_desc_destroy(desc);
}

static bool describe_operation(xn_peer *p, const owned_desc desc[TENSORS], const geometry *g) {
    if (g->dense)
        return dnnl_inner_product_forward_primitive_desc_create(
                   &p->description, p->engine, dnnl_forward_inference, desc[SRC], desc[WEIGHTS],
                   NULL, desc[DST], NULL) == dnnl_success;
    return dnnl_convolution_forward_primitive_desc_create(
               &p->description, p->engine, dnnl_forward_inference, dnnl_convolution_auto, desc[SRC],
               desc[WEIGHTS], NULL, desc[DST], g->strides, g->dilation, g->before, g->behind,
               NULL) == dnnl_success;
}
#else
typedef dnnl_memory_desc_t *owned_desc;
typedef const dnnl_memory_desc_t *seen_desc;

static owned_desc make_desc(int count, const dnnl_dims_t dims, dnnl_data_type_t element,
                            dnnl_format_tag_t tag) {
    owned_desc desc = xn_mem_zalloc(1, sizeof *desc);
    need(desc ? dnnl_memory_desc_init_by_tag(desc, count, dims, element, tag) : dnnl_out_of_memory,
         "desc");
    return desc;
}

static void free_desc(owned_desc desc) {
    xn_mem_free(desc);
}

static bool describe_operation(xn_peer *p, const owned_desc desc[TENSORS], const geometry *g) {
    dnnl_inner_product_desc_t product;
    dnnl_convolution_desc_t convolution;
    const_dnnl_op_desc_t operation = g->dense ? (void *)&product : (void *)&convolution;
    if (g->dense)
        need(dnnl_inner_product_forward_desc_init(&product, dnnl_forward_inference, desc[SRC],
                                                  desc[WEIGHTS], NULL, desc[DST]),
             "inner product");
    else
        need(dnnl_dilated_convolution_forward_desc_init(
                 &convolution, dnnl_forward_inference, dnnl_convolution_auto, desc[SRC],
                 desc[WEIGHTS], NULL, desc[DST], g->strides, g->dilation, g->before, g->behind),
             "convolution");
    return dnnl_primitive_desc_create(&p->description, operation, NULL, p->engine, NULL) ==
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

static geometry geometry_of(const xn_bench_shape *b) {
    const dnnl_dim_t extent = b->dilation * (b->kernel - 1) + 1;
    const dnnl_dim_t out = (b->side + 2 * b->padding - extent) / b->stride + 1;
    /* the last row and column that is read may lie before the padding's end */
    const dnnl_dim_t behind = (out - 1) * b->stride + extent - b->side - b->padding;
    const dnnl_dim_t group = b->channels / b->groups;
    geometry g = {.dense = b->side == 1 && b->kernel == 1 && b->groups == 1,
                  .dims = {{b->images, b->channels, b->side, b->side},
                           {b->filters, group, b->kernel, b->kernel},
                           {b->images, b->filters, out, out}},
                  .strides = {b->stride, b->stride},
                  .dilation = {b->dilation - 1, b->dilation - 1},
                  .before = {b->padding, b->padding},
                  .behind = {behind, behind}};
    g.dst_dims = g.dense ? 2 : 4;
    g.weights_dims = b->groups > 1 ? 5 : 4;
    if (b->groups > 1) {
        const dnnl_dims_t grouped = {b->groups, b->filters / b->groups, group, b->kernel,
                                     b->kernel};
        memcpy(g.dims[WEIGHTS], grouped, sizeof grouped);
    }
    return g;
}

static owned_desc desc_of(const geometry *g, int t, dnnl_data_type_t element, bool any) {
    const dnnl_format_tag_t tags[TENSORS] = {dnnl_nchw,
                                             g->weights_dims == 5 ? dnnl_goihw : dnnl_oihw,
                                             g->dst_dims == 2 ? dnnl_nc : dnnl_nchw};
    const int dims[TENSORS] = {4, g->weights_dims, g->dst_dims};
    return make_desc(dims[t], g->dims[t], element, any ? dnnl_format_tag_any : tags[t]);
}

/* The operation, in its types and layouts. */
static bool describe(xn_peer *p, const geometry *g, xn_peer_type type, xn_peer_form form) {
    static const dnnl_data_type_t types[XN_PEER_TYPES][TENSORS] = {
        {dnnl_f32, dnnl_f32, dnnl_f32},
        {dnnl_bf16, dnnl_bf16, dnnl_bf16},
        {dnnl_u8, dnnl_s8, dnnl_u8},
    };
    owned_desc desc[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        dnnl_data_type_t element = types[type][t];
        if (type == XN_PEER_INT8 && form != XN_PEER_OWN && t == SRC)
            element = dnnl_s8; /* +1 and -1 as they come */
        if (form != XN_PEER_OWN && t == DST)
            element = dnnl_f32;
        desc[t] = desc_of(g, t, element, form != XN_PEER_PLAIN || t == WEIGHTS);
    }
    bool made = describe_operation(p, desc, g);
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

static int64_t count_of(const geometry *g, int t) {
    const int dims = t == WEIGHTS ? g->weights_dims : 4;
    int64_t count = 1;
    for (int i = 0; i < dims; i++)
        count *= g->dims[t][i];
    return count;
}

static void make_tensors(xn_peer *p, const geometry *g, xn_peer_form form, bool bits) {
    static const dnnl_query_t query[TENSORS] = {dnnl_query_src_md, dnnl_query_weights_md,
                                                dnnl_query_dst_md};
    xn_rng rng = {20200728};
    for (int t = 0; t < TENSORS; t++) {
        owned_desc plain = desc_of(g, t, dnnl_f32, false);
        p->plain[t] = allocate(p, plain);
        free_desc(plain);
        fill(values_of(p->plain[t]), count_of(g, t), &rng, bits && t == SRC);
        if (form == XN_PEER_PLAIN && t != WEIGHTS)
            continue;
        p->own[t] = allocate(p, dnnl_primitive_desc_query_md(p->description, query[t], 0));
        if (t != DST)
            copy(p, p->plain[t], p->own[t]);
    }
}

xn_peer *xn_peer_create(const xn_bench_shape *b, xn_peer_type type, xn_peer_form form) {
    const geometry g = geometry_of(b);
    if (form == XN_PEER_PLAIN && type != XN_PEER_FP32)
        return NULL;
    xn_peer *p = xn_mem_zalloc(1, sizeof *p);
    if (!p)
        return NULL;
    need(dnnl_engine_create(&p->engine, dnnl_cpu, 0), "engine");
    need(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags), "stream");
    if (!describe(p, &g, type, form)) {
        xn_peer_free(p);
        return NULL;
    }
    make_tensors(p, &g, form, type == XN_PEER_INT8 && form == XN_PEER_OWN);
    need(dnnl_primitive_create(&p->operation, p->description), "operation");
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
    dnnl_primitive_destroy(p->operation);
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
    need(dnnl_primitive_execute(p->operation, p->stream, 3, arguments), "run");
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
