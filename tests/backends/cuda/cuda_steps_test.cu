/* cuda_steps_test.cu: what the CUDA backend does around its convolutions, without a device: the
 * very code that kernels of ops/ run (op.cuh), a block after the other on the host, against ref.
 * Single steps, each tensor in memory of its own size; whole networks on a backend whose
 * convolutions are ref's, and all that is around them CUDA's; which path a step gets; which graphs
 * a program keeps. */
#include "backends/bk_step.h"
#include "graphs.h"
#include "op.cuh"
#include "xn_cuda.h"
#include "xn_program.h"
#include "xn_test.h"

extern "C" {
#include "networks/nw_random.h"
}

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

enum { STEPS = 6000, NETWORKS = 250 };

/* ---- kernels on the host ---- */

struct host_block {
    int64_t index;

    template <class Action>
    XN_HD void each(Action action) const {
        for (int32_t thread = 0; thread < XN_OP_THREADS; thread++)
            action(thread);
    }
};

template <int LANES>
static void make_stats(const xn_op_args &a) {
    static xn_op_stats_shared shared;
    for (int64_t i = 0; i < xn_op_stats_blocks(&a); i++)
        xn_op_stats<LANES>(a, host_block{i}, shared);
}

template <xn_op_body BODY>
static void run_tiles(const xn_op_args &a) {
    xn_op_shared<1> shared;
    for (int64_t i = 0; i < xn_op_blocks(&a, BODY); i++) {
        memset(&shared, BK_POISON, sizeof shared);
        xn_op_tile<BODY>(a, host_block{i}, shared);
    }
}

template <typename T>
static void run_columns(const xn_op_args &a) {
    xn_op_shared<XN_OP_ROWS> shared;
    for (int64_t i = 0; i < xn_op_blocks(&a, XN_OP_COLUMNS); i++) {
        memset(&shared, BK_POISON, sizeof shared);
        if (a.kind == XN_STEP_AVG_POOL)
            xn_op_pool_columns<T, 2, 2, true>(a, host_block{i}, shared);
        else if (a.kernel_w == 3)
            xn_op_pool_columns<T, 3, 2, false>(a, host_block{i}, shared);
        else if (a.stride_w == 2)
            xn_op_pool_columns<T, 2, 2, false>(a, host_block{i}, shared);
        else
            xn_op_pool_columns<T, 2, 1, false>(a, host_block{i}, shared);
    }
}

template <int V, int C_FP16, int C_FP32, bool APART = false>
static void run_map(const xn_op_args &a, xn_op_body body) {
    xn_op_map_shared shared;
    for (int64_t i = 0; i < xn_op_blocks(&a, body); i++) {
        memset(&shared, BK_POISON, sizeof shared);
        if (a.datatype == XN_FP16)
            xn_op_map<__half, V, C_FP16, APART>(a, host_block{i}, shared);
        else
            xn_op_map<float, V, C_FP32, APART>(a, host_block{i}, shared);
    }
}

static xn_op_body run_op(const xn_op_args &a) {
    xn_op_body body = xn_op_body_of(&a);
    if (body == XN_OP_FEW && a.pixels % 3)
        body = xn_op_few_of_many(&a);
    if (a.kind == XN_STEP_SOFTMAX)
        xn_op_stats_lanes(&a) == 1 ? make_stats<1>(a) : make_stats<32>(a);
    switch (body) {
    case XN_OP_EACH:
        run_tiles<XN_OP_EACH>(a);
        break;
    case XN_OP_MAP_APART:
        run_map<4, 8, 8, true>(a, body);
        break;
    case XN_OP_MAP_FOUR:
        run_map<4, 8, 4>(a, body);
        break;
    case XN_OP_MAP_EIGHT:
        run_map<8, 4, 4>(a, body);
        break;
    case XN_OP_CURVE:
        run_tiles<XN_OP_CURVE>(a);
        break;
    case XN_OP_WINDOW:
        run_tiles<XN_OP_WINDOW>(a);
        break;
    case XN_OP_COLUMNS:
        a.datatype == XN_FP16 ? run_columns<__half>(a) : run_columns<float>(a);
        break;
    case XN_OP_FEW:
        for (int64_t i = 0; i < xn_op_blocks(&a, body); i++)
            xn_op_few<1>(a, host_block{i});
        break;
    case XN_OP_FEW_FOUR:
        for (int64_t i = 0; i < xn_op_blocks(&a, body); i++)
            xn_op_few<4>(a, host_block{i});
        break;
    case XN_OP_WHOLE: {
        static xn_op_whole_shared shared;
        for (int64_t i = 0; i < xn_op_blocks(&a, body); i++)
            xn_op_pool_whole(a, host_block{i}, shared);
        break;
    }
    default:
        for (int64_t i = 0; i < xn_op_blocks(&a, body); i++)
            xn_op_pool_words(a, host_block{i});
    }
    return body;
}

static void copy_part(const xn_step *step, int64_t images, const void *input, void *to) {
    const size_t unit = xn_datatype_bytes((xn_datatype)step->conv.input_datatype);
    const size_t bytes = (size_t)xn_conv_input_elements(&step->conv) * unit;
    const char *from = (const char *)input + (size_t)step->input_view.offset * unit;
    for (int64_t i = 0; i < images; i++)
        memcpy((char *)to + i * bytes, from + i * step->input_view.pitch * unit, bytes);
}

/* ---- a backend: CUDA's plans and ops, ref's convolutions ---- */

/* Handles begin with what CUDA has of them, so that each is both. */
struct host_stream {
    xn_stream cuda;
    xn_stream *ref;
    xn_device device;
};
struct host_prepared {
    xn_prepared cuda;
    xn_prepared *ref;
};
struct host_plan {
    xn_plan cuda;
    xn_plan *ref;   /* of the step as it is */
    xn_plan *first; /* its convolution to v, whole, as fp32 */
    std::vector<char> workspace;
    std::vector<float> v; /* where kernels would write to parts */
};

static const xn_cuda_chip h200 = {132, true, true, true, 232448};
static const xn_cuda_chip t4 = {40, false, false, false, 65536};
static xn_cuda_chip chip = h200; /* of the streams made next */
static int64_t ran[XN_OP_COLUMNS + 1], parts_in, parts_out, finished;

static xn_status host_stream_create(xn_device *device, const xn_stream_options *options,
                                    xn_stream **out, xn_error *error) {
    host_stream *s = new host_stream();
    s->device.chip = chip;
    s->cuda.device = &s->device;
    *out = &s->cuda;
    return xn_backend_ref.stream_create(device, options, &s->ref, error);
}

static void host_stream_free(xn_stream *stream) {
    xn_backend_ref.stream_free(((host_stream *)stream)->ref);
    delete (host_stream *)stream;
}

static xn_status host_prepare(xn_device *device, const xn_weights *w, xn_prepared **out,
                              xn_error *error) {
    host_prepared *p = new host_prepared();
    p->cuda.alpha = w->alpha;
    p->cuda.scale = w->scale;
    p->cuda.bias = w->bias;
    p->cuda.slope = w->slope;
    p->cuda.shift = w->shift;
    *out = &p->cuda;
    return xn_backend_ref.weights_prepare(device, w, &p->ref, error);
}

static void host_weights_free(xn_prepared *prepared) {
    xn_backend_ref.weights_free(((host_prepared *)prepared)->ref);
    delete (host_prepared *)prepared;
}

/* The convolution to v. */
static xn_step first_of(const xn_step *step) {
    xn_step first = *step;
    xn_epilogue e = {};
    e.factor = step->conv.epilogue.factor;
    e.k = step->conv.epilogue.k;
    e.bias = step->conv.epilogue.bias;
    first.conv.epilogue = e; /* FP32 */
    first.input_view = first.output_view = first.residual_view = xn_view{};
    first.residual = first.bits = XN_NO_TENSOR;
    first.output = 1;
    return first;
}

static void host_plan_free(xn_plan *plan) {
    host_plan *p = (host_plan *)plan;
    xn_mem_free(p->cuda.how.state);
    xn_backend_ref.plan_free(p->first);
    xn_backend_ref.plan_free(p->ref);
    delete p;
}

static xn_status choose(host_plan *p, const xn_step *step, int64_t images, xn_error *error) {
    xn_cuda_scratch scratch = {NULL, images, 0, false};
    if (step->kind == XN_STEP_CONV) {
        const xn_status status =
            xn_cuda_choose(step, images, &p->cuda.stream->device->chip, NULL, &p->cuda.how, error);
        if (status)
            return status;
        (void)xn_cuda_around_take(&p->cuda, &scratch);
    }
    (void)xn_cuda_op_take(&p->cuda, &scratch);
    p->workspace.resize(scratch.bytes);
    return XN_OK;
}

static xn_status host_plan_create(xn_stream *stream, const xn_step *step, int64_t images,
                                  xn_plan **out, xn_error *error) {
    host_plan *p = new host_plan();
    const xn_step first = first_of(step);
    p->cuda.stream = stream;
    p->cuda.step = *step;
    p->cuda.max_images = images;
    xn_stream *ref = ((host_stream *)stream)->ref;
    xn_status status = choose(p, step, images, error);
    if (status == XN_OK)
        status = xn_backend_ref.plan_create(ref, step, images, &p->ref, error);
    if (status == XN_OK)
        status = xn_backend_ref.plan_create(ref, &first, images, &p->first, error);
    if (status)
        host_plan_free(&p->cuda);
    else
        *out = &p->cuda;
    return status;
}

/* What kernels that write everything do with v: the element's own code, one after the other. */
static void write_parts(const host_plan *p, const xn_epilogue_args &given, int64_t images) {
    const xn_conv *c = &p->cuda.how.job.conv; /* with the epilogue that kernels get */
    const xn_epilogue_args e = xn_epilogue_of(c, &given);
    const int64_t plane = (int64_t)c->out_height * c->out_width;
    const int64_t words = xn_packed_words(c->out_channels);
    ck_assert(!xn_is_plain(e.what));
    if (e.what.bits)
        memset(e.bits, 0, (size_t)(images * plane * words) * 4);
    for (int64_t i = 0; i < images * c->out_channels * plane; i++) {
        const int64_t o = i / plane % c->out_channels;
        const int64_t pixel = i / plane / c->out_channels * plane + i % plane;
        float v[1] = {p->v[(size_t)i]};
        const uint32_t bit = xn_finish_and_store(e, o, i, v);
        if (e.what.bits)
            e.bits[pixel * words + o / 32] |= bit << o % 32;
    }
}

static xn_status run_conv(host_plan *p, const xn_prepared *prepared, const xn_step_io *io,
                          xn_error *error) {
    const xn_cuda_choice *how = &p->cuda.how;
    const xn_step *step = &p->cuda.step;
    const int64_t images = io->batch->images;
    xn_cuda_scratch scratch = {p->workspace.data(), p->cuda.max_images, 0, false};
    const xn_cuda_around around = xn_cuda_around_take(&p->cuda, &scratch);
    const xn_epilogue_args e = xn_cuda_epilogue_args(step, prepared, io);
    xn_step_io first = *io;
    if (how->from_part) {
        copy_part(step, images, io->input, around.part);
        first.input = around.part;
        parts_in++;
    }
    const bool parts = step->output_view.pitch || step->residual_view.pitch;
    if (!how->finish && !parts && !how->from_part)
        return xn_backend_ref.enqueue(p->ref, ((host_prepared *)prepared)->ref, io, error);
    p->v.resize((size_t)(images * xn_conv_output_elements(&step->conv)));
    first.output = how->finish ? around.reals : p->v.data();
    first.residual = NULL;
    first.bits = NULL;
    const xn_status status =
        xn_backend_ref.enqueue(p->first, ((host_prepared *)prepared)->ref, &first, error);
    if (how->finish) {
        (void)run_op(xn_op_finish_args_of(step, images, around.reals, &e));
        finished++;
    } else if (how->job.target == XN_CUDA_TO_ALL) {
        write_parts(p, e, images);
        parts_out += parts;
    } else {
        /* no parts but the input's: the rest is as of any step */
        (void)run_op(xn_op_finish_args_of(step, images, p->v.data(), &e));
    }
    return status;
}

static xn_status host_enqueue(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                              xn_error *error) {
    host_plan *p = (host_plan *)plan;
    if (plan->step.kind == XN_STEP_CONV)
        return run_conv(p, prepared, io, error);
    if (plan->step.kind == XN_STEP_STEM)
        return xn_backend_ref.enqueue(p->ref, ((host_prepared *)prepared)->ref, io, error);
    plan->stream->workspace = p->workspace.data();
    ran[run_op(xn_cuda_op_args(plan, prepared, io->batch->images, io))]++;
    return XN_OK;
}

static xn_status host_begin(xn_stream *stream, const xn_batch *batch, void *input,
                            xn_error *error) {
    char *to = (char *)input;
    (void)stream, (void)error;
    for (size_t i = 0; i < batch->count; i++) {
        const size_t bytes = batch->input_bytes * (size_t)batch->items[i].images;
        memcpy(to, batch->items[i].input, bytes);
        to += bytes;
    }
    return XN_OK;
}

static xn_status host_end(xn_stream *stream, const xn_batch *batch, const void *output,
                          xn_run_times *times, xn_error *error) {
    const char *from = (const char *)output;
    (void)stream, (void)times, (void)error;
    for (size_t i = 0; i < batch->count; i++) {
        const size_t bytes = batch->output_bytes * (size_t)batch->items[i].images;
        memcpy(batch->items[i].output, from, bytes);
        from += bytes;
    }
    return XN_OK;
}

static xn_status host_arena_reserve(xn_stream *stream, size_t bytes, xn_error *error) {
    return xn_backend_ref.arena_reserve(((host_stream *)stream)->ref, bytes, error);
}

static void *host_arena(const xn_stream *stream, size_t bytes) {
    return xn_backend_ref.arena(((const host_stream *)stream)->ref, bytes);
}

static void host_abandon(xn_stream *stream) {
    (void)stream;
}

static xn_backend host_backend() {
    xn_backend b = xn_backend_ref;
    b.name = "cuda on the host";
    b.stream_create = host_stream_create;
    b.stream_free = host_stream_free;
    b.weights_prepare = host_prepare;
    b.weights_free = host_weights_free;
    b.weights_ready = NULL;
    b.plan_create = host_plan_create;
    b.plan_free = host_plan_free;
    b.arena_reserve = host_arena_reserve;
    b.arena = host_arena;
    b.in_place = false;
    b.begin = host_begin;
    b.enqueue = host_enqueue;
    b.end = host_end;
    b.abandon = host_abandon;
    return b;
}

/* ---- single steps ---- */

enum { HOST = BK_BACKENDS - 1 }; /* the number of no backend that is built */

/* The backend's device, opened, with a stream of the chip. */
static bk_target open_host(const xn_backend *b) {
    const xn_stream_options options = {};
    bk_target t = {"cuda on the host", NULL, b, NULL, NULL, HOST, -1};
    ck_assert_int_eq(b->device_open(0, &t.device, NULL), XN_OK);
    ck_assert_int_eq(b->stream_create(t.device, &options, &t.stream, NULL), XN_OK);
    return t;
}

static void close_host(const bk_target *t) {
    t->backend->stream_free(t->stream);
    t->backend->device_close(t->device);
}

static void check_on(const bk_target *host, bk_step *s) {
    bk_written got, right;
    ck_assert(bk_step_run(host, s, s->images, &got));
    ck_assert(bk_step_run(bk_target_ref(), s, s->images, &right));
    bk_step_expect(host->name, s, &got, &right);
    bk_written_free(&got);
    bk_written_free(&right);
    if (s->prepared[HOST])
        host->backend->weights_free(s->prepared[HOST]);
    s->prepared[HOST] = NULL;
    bk_step_free(s);
}

START_TEST(steps_are_those_of_ref) {
    const xn_backend b = host_backend();
    const bk_target host = open_host(&b);
    memset(ran, 0, sizeof ran);
    for (uint64_t i = 0; i < STEPS; i++) {
        bk_step s;
        const int kind = XN_STEP_MAX_POOL + (int)(i % (XN_STEP_STEM - XN_STEP_MAX_POOL));
        bk_step_random((xn_step_kind)kind, xn_test_seed() + i * 977, false, &s);
        check_on(&host, &s);
    }
    for (int body = XN_OP_EACH; body <= XN_OP_COLUMNS; body++)
        ck_assert_msg(ran[body] >= 20, "%lld steps of body %d", (long long)ran[body], body);
    close_host(&host);
}
END_TEST

/* Sums over more channels than a block has threads, for both ways to share them. */
START_TEST(softmax_takes_all_channels) {
    const xn_backend b = host_backend();
    const bk_target host = open_host(&b);
    for (int side = 1; side <= 7; side += 3) {
        bk_case c = bk_geometry(3, 1000, side, side, 1, 1, 1);
        xn_rng rng = {xn_test_seed() + (uint64_t)side};
        bk_step s;
        c.params.mode = XN_MODE_FLOAT;
        bk_step_of_case(&c, &s);
        xn_conv *v = &s.step.conv;
        s.exact = false;
        s.step.kind = XN_STEP_SOFTMAX;
        v->out_channels = v->group_out_channels = v->channels;
        v->epilogue = xn_epilogue{};
        bk_step_fill(&rng, false, &s);
        check_on(&host, &s);
    }
    close_host(&host);
}
END_TEST

/* ---- networks ---- */

/* As nw_run, on another backend of the host. The caller frees it. */
static float *run_network(const xn_backend *b, const xn_network *network, const void *input,
                          int64_t images) {
    const bk_target host = open_host(b);
    const nw_subject s = {"cuda on the host", b, host.device, host.stream};
    float *output = nw_run_on(&s, network, input, images, images, 1);
    close_host(&host);
    return output;
}

static bool same(double got, double want) {
    return got == want || (isnan(got) && isnan(want)) ||
           fabs(got - want) <= 1e-6 * (1 + fabs(want));
}

/* In networks that fp32 computes exactly, nothing may differ. */
START_TEST(networks_are_those_of_ref) {
    const xn_backend host = host_backend();
    parts_in = parts_out = finished = 0;
    for (uint64_t i = 0; i < NETWORKS; i++) {
        const uint64_t seed = xn_test_seed() + i * 1009;
        xn_rng rng = {seed};
        nw_net *net = nw_random_net(&rng, true);
        net->params.precision = i % 4 == 3 ? XN_PRECISION_FP16 : XN_PRECISION_FP32;
        xn_network *network = nw_lower(net);
        const int64_t images = 1 + (int64_t)(i % 3);
        std::vector<char> input(network->input_bytes * (size_t)images);
        bk_fill_quarters(&rng, i % 8 == 0, net->params.input_datatype, input.size(), input.data());
        chip = i % 2 ? t4 : h200;
        float *got = run_network(&host, network, input.data(), images);
        float *want = nw_run(network, input.data(), images);
        for (size_t k = 0; k < network->output_bytes / sizeof *want * (size_t)images; k++)
            ck_assert_msg(same((double)got[k], (double)want[k]),
                          "seed %llu: output %zu is %.9g, ref has %.9g", (unsigned long long)seed,
                          k, (double)got[k], (double)want[k]);
        free(got);
        free(want);
        xn_network_free(network);
        nw_free(net);
    }
    printf("parts: %lld convolutions read, %lld written; %lld finished behind their path\n",
           (long long)parts_in, (long long)parts_out, (long long)finished);
    ck_assert(parts_in > 0 && parts_out > 0 && finished > 0);
}
END_TEST

/* ---- paths ---- */

/* Every step of any network has a path on every chip, for one image and for many. */
START_TEST(every_step_has_a_path) {
    static const xn_cuda_chip chips[] = {h200, t4, {108, true, false, false, 166912}};
    int64_t asked = 0;
    for (uint64_t i = 0; i < 4 * NETWORKS; i++) {
        const uint64_t seed = xn_test_seed() + i * 1013;
        xn_rng rng = {seed};
        nw_net *net = nw_random_net(&rng, i % 2);
        net->params.precision = i % 3 ? XN_PRECISION_FP32 : XN_PRECISION_FP16;
        xn_network *network = nw_lower(net);
        for (int k = 0; k < network->step_count; k++)
            for (const xn_cuda_chip &on : chips)
                for (int64_t images = 1; images <= 4096; images *= 64) {
                    xn_cuda_choice how = {};
                    xn_error error = {};
                    if (network->steps[k].kind != XN_STEP_CONV)
                        continue;
                    ck_assert_msg(xn_cuda_choose(&network->steps[k], images, &on, NULL, &how,
                                                 &error) == XN_OK,
                                  "seed %llu, step %d: %s", (unsigned long long)seed, k,
                                  error.message);
                    xn_mem_free(how.state);
                    asked++;
                }
        xn_network_free(network);
        nw_free(net);
    }
    ck_assert_int_gt(asked, 1000);
}
END_TEST

/* ---- graphs ---- */

START_TEST(graphs_are_known_by_all_that_their_addresses_follow_from) {
    enum { SEEN = 3 };
    uint64_t serials[SEEN] = {1, 0, 2};
    const char memory[2] = {};
    xn_recordings *set = xn_cuda_recordings_create(SEEN);
    ck_assert_ptr_nonnull(set);
    xn_cuda_graph_key key = {1, memory, memory + 1, serials, false};
    xn_cuda_graph *g = xn_cuda_graph_of(set, &key);
    ck_assert_int_eq(g->meetings, 0);
    ck_assert_ptr_eq(xn_cuda_graph_of(set, &key), g);
    ck_assert(g->meetings == 1 && !g->exec);
    for (int what = 0; what < 6; what++) {
        uint64_t others[SEEN] = {1, 0, 2};
        xn_cuda_graph_key other = key;
        other.serials = others;
        if (what == 0)
            other.images = 2;
        else if (what == 1)
            other.workspace = NULL;
        else if (what == 2)
            other.arena = NULL;
        else if (what == 3)
            other.zero_copy = true;
        else
            others[what == 4 ? 0 : 2]++;
        const xn_cuda_graph *h = xn_cuda_graph_of(set, &other);
        ck_assert_ptr_ne(h, g);
        ck_assert_msg(!h->meetings, "what %d", what);
        ck_assert_ptr_eq(xn_cuda_graph_of(set, &other), h);
        ck_assert_int_eq(h->meetings, 1);
    }
    ck_assert_ptr_eq(xn_cuda_graph_of(set, &key), g);
    ck_assert_int_eq(g->meetings, 2);
    serials[0] = 9; /* the set has its own */
    ck_assert_int_eq(xn_cuda_graph_of(set, &key)->meetings, 0);
    xn_cuda_recordings_free(set);
}
END_TEST

/* Those used last stay, whatever comes. */
START_TEST(graphs_are_few) {
    enum { SEEN = 4 };
    xn_rng rng = {xn_test_seed()};
    uint64_t serials[SEEN] = {1, 2, 3, 4};
    std::vector<int64_t> last; /* image counts, most recently used first */
    xn_recordings *set = xn_cuda_recordings_create(SEEN);
    for (int i = 0; i < 20000; i++) {
        const int64_t images = 1 + (int64_t)xn_rng_below(&rng, 40);
        const xn_cuda_graph_key key = {images, NULL, NULL, serials, false};
        bool expected = false;
        const xn_cuda_graph *g = xn_cuda_graph_of(set, &key);
        for (size_t k = 0; k < last.size(); k++)
            if (last[k] == images) {
                expected = k < XN_CUDA_GRAPHS;
                last.erase(last.begin() + (long)k);
                break;
            }
        last.insert(last.begin(), images);
        ck_assert_int_eq(g->meetings > 0, expected);
        ck_assert_int_eq(g->key.images, images);
    }
    xn_cuda_recordings_free(set);
    xn_cuda_recordings_free(NULL);
}
END_TEST

XN_SUITE(cuda_steps) {
    Suite *s = suite_create("cuda_steps");
    TCase *t = xn_test_case(s, "cuda_steps", 60);
    tcase_add_test(t, steps_are_those_of_ref);
    tcase_add_test(t, softmax_takes_all_channels);
    tcase_add_test(t, networks_are_those_of_ref);
    tcase_add_test(t, every_step_has_a_path);
    tcase_add_test(t, graphs_are_known_by_all_that_their_addresses_follow_from);
    tcase_add_test(t, graphs_are_few);
    return s;
}
