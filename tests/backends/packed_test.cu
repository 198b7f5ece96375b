/* packed_test.cu: packed tensors, which are internal to the CUDA backend (xn_cuda.h) and so have a
 * test there: packed input to INT32 and FP16, packed and real input to packed output, on every path
 * that can. The geometries are the integer cases of the table and random ones; dots come from ref
 * and are compared bit by bit. */
#include "bk_run.h"
#include "rails.h"
#include "xn_cuda.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

enum { GUARD = 256, POISON = 0xa5, USUAL_RANDOM = 150 };

#define CUDA(call) ck_assert_msg((call) == cudaSuccess, #call)

struct variant {
    const char *name;
    bool packed_in, packed_out, rails; /* rails: packed tensors lie as such */
    xn_scaling scaling;
    xn_datatype output;
};

static const variant variants[] = {
    {"packed to INT32", true, false, false, XN_SCALING_NONE, XN_INT32},
    {"packed to FP16", true, false, false, XN_SCALING_ALPHA, XN_FP16},
    {"packed to packed", true, true, false, XN_SCALING_NONE, XN_INT32},
    {"real to packed", false, true, false, XN_SCALING_NONE, XN_INT32},
    {"rails to rails", true, true, true, XN_SCALING_NONE, XN_INT32},
    {"real to rails", false, true, true, XN_SCALING_NONE, XN_INT32},
};

/* What the variants of a case share. */
struct packed_problem {
    bk_problem problem;
    xn_prepared *prepared;
    std::vector<int32_t> dots, threshold;
    std::vector<uint32_t> bits, flip;
};

static int64_t runs[XN_CUDA_PATHS];
static const char *names[XN_CUDA_PATHS]; /* of the paths that ran */

static const bk_target *cuda_target() {
    for (int i = 0; i < bk_target_count(); i++)
        if (!strcmp(xn_backend_all()[i]->name, "cuda"))
            return bk_target_open(i);
    return NULL;
}

/* layout.h's activations from the real input. */
static std::vector<uint32_t> pack(const bk_problem &p) {
    const xn_conv &c = p.conv;
    const int64_t words = xn_packed_words(c.group_channels), plane = (int64_t)c.height * c.width;
    std::vector<uint32_t> bits((size_t)(p.images * c.groups * plane * words));
    for (int64_t n = 0; n < p.images; n++)
        for (int64_t channel = 0; channel < c.channels; channel++)
            for (int64_t i = 0; i < plane; i++) {
                const int64_t group = channel / c.group_channels, at = channel % c.group_channels;
                bits[((n * c.groups + group) * plane + i) * words + at / 32] |=
                    xn_sign_bit(p.real[(n * c.channels + channel) * plane + i]) << at % 32;
            }
    return bits;
}

static bool has_flip(const bk_case *c) {
    return c->seed % 4 != 3;
}

static void make(const bk_target *target, const bk_case *c, packed_problem *out) {
    bk_problem_make(c, &out->problem);
    const xn_conv &conv = out->problem.conv;
    out->dots.resize((size_t)(out->problem.images * xn_conv_output_elements(&conv)));
    bk_run(bk_target_ref(), &out->problem, &conv, out->dots.data());
    out->prepared = bk_prepare(target, &out->problem);
    out->bits = pack(out->problem);
    /* about half of the dots pass, and a few thresholds are ones that all or none do */
    const int32_t most = conv.group_channels * conv.kernel_h * conv.kernel_w;
    const int32_t spread = (int32_t)sqrt((double)most) + 1;
    xn_rng rng = {c->seed};
    for (int32_t o = 0; o < conv.out_channels; o++) {
        const uint64_t kind = xn_rng_below(&rng, 16);
        out->threshold.push_back(kind == 0 ? INT32_MIN
                                 : kind == 1
                                     ? INT32_MAX
                                     : (int32_t)xn_rng_below(&rng, 2u * spread + 1) - spread);
        out->flip.resize((size_t)o / 32 + 1);
        if (has_flip(c))
            out->flip[o / 32] |= (uint32_t)xn_rng_below(&rng, 2) << o % 32;
    }
}

static void free_problem(const bk_target *target, packed_problem *p) {
    target->backend->weights_free(p->prepared);
    bk_problem_free(&p->problem);
}

/* ---- what is right ---- */

static double alpha_of(const xn_weights *w, int32_t filter) {
    const int64_t count = (int64_t)w->group_channels * w->kernel_h * w->kernel_w;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs((double)w->real[filter * count + i]);
    return sum / (double)count;
}

static bool is_real_right(const packed_problem &p, const variant &v, const void *got, size_t i) {
    const xn_conv &c = p.problem.conv;
    const int32_t filter =
        (int32_t)(i / ((size_t)c.out_height * c.out_width) % (size_t)c.out_channels);
    const double factor = v.scaling == XN_SCALING_ALPHA ? alpha_of(p.problem.weights, filter) : 1.0;
    const double right = p.dots[i] * factor;
    return bk_is_right(v.output, bk_value(v.output, got, (int64_t)i), right, 1e-5 * fabs(right),
                       false);
}

/* Word i of [N][OH*OW][words]. */
static uint32_t right_word(const packed_problem &p, size_t i) {
    const xn_conv &c = p.problem.conv;
    const size_t words = (size_t)xn_packed_words(c.out_channels);
    const size_t plane = (size_t)c.out_height * c.out_width;
    const size_t pixel = i / words % plane, image = i / words / plane;
    const int32_t first = (int32_t)(i % words) * 32;
    uint32_t word = 0;
    for (int32_t o = first; o < first + 32 && o < c.out_channels; o++) {
        const int32_t dot = p.dots[(image * (size_t)c.out_channels + (size_t)o) * plane + pixel];
        const uint32_t turned = p.flip[o / 32] >> o % 32 & 1u;
        word |= ((uint32_t)(dot >= p.threshold[o]) ^ turned) << o % 32;
    }
    return word;
}

static void judge(const packed_problem &p, const variant &v, const char *path,
                  const std::vector<unsigned char> &got, size_t bytes) {
    const size_t count = v.packed_out ? bytes / 4 : p.dots.size();
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < count; i++) {
        const bool right = v.packed_out
                               ? ((const uint32_t *)(got.data() + GUARD))[i] == right_word(p, i)
                               : is_real_right(p, v, got.data() + GUARD, i);
        if (!right && !wrong++)
            first = i;
    }
    for (size_t i = 0; i < GUARD; i++)
        if (got[i] != POISON || got[GUARD + bytes + i] != POISON)
            wrong++;
    char text[BK_TEXT];
    bk_case_describe(p.problem.c, text);
    ck_assert_msg(!wrong, "%s on %s: %zu of %zu wrong, first %zu, of %s; run seed %llu", v.name,
                  path, wrong, count, first, text, (unsigned long long)xn_test_seed());
}

/* ---- a run ---- */

static void *to_device(const void *data, size_t bytes) {
    void *memory = NULL;
    CUDA(cudaMalloc(&memory, bytes));
    CUDA(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
    return memory;
}

static xn_conv conv_of(const packed_problem &p, const variant &v) {
    xn_conv conv = p.problem.conv;
    conv.epilogue = xn_conv_epilogue(XN_MODE_XNOR, v.scaling, false, false, v.output);
    return conv;
}

static size_t output_bytes(const packed_problem &p, const variant &v) {
    const xn_conv conv = conv_of(p, v);
    if (!v.packed_out)
        return (size_t)p.problem.images * xn_conv_output_bytes(&conv);
    const size_t pixels = (size_t)p.problem.images * conv.out_height * conv.out_width;
    return pixels * (v.rails ? 16 * (size_t)xn_cuda_dual_rail_of(conv.out_channels).units
                             : 4 * (size_t)xn_packed_words(conv.out_channels));
}

/* Rails with what guards them, as plain bits with the same; all wrong where a bit's complement is.
 */
static std::vector<unsigned char> to_plain(const xn_conv &c, int64_t images,
                                           const std::vector<unsigned char> &rails) {
    const size_t pixels = (size_t)c.out_height * c.out_width;
    const size_t bytes = (size_t)images * pixels * (size_t)xn_packed_words(c.out_channels) * 4;
    std::vector<unsigned char> plain(GUARD + bytes + GUARD);
    memcpy(plain.data(), rails.data(), GUARD);
    memcpy(plain.data() + GUARD + bytes, rails.data() + rails.size() - GUARD, GUARD);
    if (!xn_rails_to_plain((const uint32_t *)(rails.data() + GUARD), c.out_channels, (size_t)images,
                           pixels, (uint32_t *)(plain.data() + GUARD)))
        memset(plain.data() + GUARD, 0xff, bytes);
    return plain;
}

static void run_on(xn_stream *stream, const packed_problem &p, const variant &v, int path,
                   xn_cuda_run_io io, unsigned char *output, size_t bytes) {
    const xn_conv conv = conv_of(p, v);
    xn_cuda_plan_options options = {};
    xn_plan *plan = NULL;
    xn_error error = {};
    options.packed_input = v.packed_in;
    options.packed_output = v.packed_out;
    options.rails = v.rails;
    options.forced = true;
    options.path = (xn_cuda_path)path;
    const xn_status status = xn_cuda_plan_create_with(
        stream, &conv, p.problem.images + p.problem.c->spare, &options, &plan, &error);
    if (status == XN_ERR_UNSUPPORTED)
        return;
    ck_assert_msg(status == XN_OK, "%s: %s", v.name, error.message);
    std::vector<unsigned char> got(GUARD + bytes + GUARD);
    if (stream->workspace)
        CUDA(cudaMemset(stream->workspace, 0xff, stream->workspace_bytes));
    CUDA(cudaMemset(output, POISON, got.size()));
    CUDA(cudaDeviceSynchronize());
    CUDA(xn_cuda_enqueue(plan, p.prepared, p.problem.images, &io, stream->stream));
    CUDA(cudaStreamSynchronize(stream->stream));
    CUDA(cudaMemcpy(got.data(), output, got.size(), cudaMemcpyDeviceToHost));
    if (v.rails && v.packed_out) {
        got = to_plain(conv, p.problem.images, got);
        bytes = got.size() - 2 * GUARD;
    }
    judge(p, v, xn_cuda_plan_path(plan), got, bytes);
    names[path] = xn_cuda_plan_path(plan);
    runs[path]++;
    xn_cuda_plan_free(plan);
}

static void check_case(const bk_target *target, const bk_case *c) {
    packed_problem p = {};
    make(target, c, &p);
    const size_t in_bytes = (size_t)p.problem.images * xn_conv_input_bytes(&p.problem.conv);
    const xn_conv &conv = p.problem.conv;
    const std::vector<uint32_t> as_rails =
        xn_rails_of(p.bits.data(), conv.group_channels, (size_t)(p.problem.images * conv.groups),
                    (size_t)conv.height * conv.width);
    void *bits = to_device(p.bits.data(), p.bits.size() * 4);
    void *rails = to_device(as_rails.data(), as_rails.size() * 4);
    void *input = to_device(p.problem.input, in_bytes);
    void *threshold = to_device(p.threshold.data(), p.threshold.size() * 4);
    void *flip = to_device(p.flip.data(), p.flip.size() * 4);
    for (const variant &v : variants) {
        const size_t bytes = output_bytes(p, v);
        unsigned char *output = NULL;
        CUDA(cudaMalloc(&output, GUARD + bytes + GUARD));
        xn_cuda_run_io io = {};
        io.bits = (const uint32_t *)(!v.packed_in ? NULL : v.rails ? rails : bits);
        io.input = v.packed_in ? NULL : input;
        io.output = v.packed_out ? NULL : output + GUARD;
        io.packed = (uint32_t *)(v.packed_out ? output + GUARD : NULL);
        io.threshold = (const int32_t *)threshold;
        io.flip = (const uint32_t *)(has_flip(c) ? flip : NULL);
        for (int path = 0; path < XN_CUDA_PATHS; path++)
            run_on(target->stream, p, v, path, io, output, bytes);
        CUDA(cudaFree(output));
    }
    for (void *memory : {bits, rails, input, threshold, flip})
        CUDA(cudaFree(memory));
    free_problem(target, &p);
}

/* ---- tests ---- */

struct table_walk {
    const bk_target *target;
    int64_t number;
};

static void visit(const bk_case *c, void *context) {
    table_walk *walk = (table_walk *)context;
    if (c->params.mode == XN_MODE_XNOR && c->params.output_datatype == XN_INT32 &&
        walk->number++ % bk_every() == 0)
        check_case(walk->target, c);
}

static void report(const bk_target *target) {
    int64_t all = 0;
    printf("packed:");
    for (int path = 0; path < XN_CUDA_PATHS; path++) {
        all += runs[path];
        if (runs[path])
            printf(" %s %lld", names[path], (long long)runs[path]);
        runs[path] = 0;
    }
    printf("\n");
    ck_assert_msg(!target->device->wide || all > 0, "nothing ran");
}

START_TEST(table) {
    const bk_target *target = cuda_target();
    if (!target)
        return;
    table_walk walk = {target, 0};
    for (int i = 0; i < bk_section_count; i++)
        bk_sections[i].each(visit, &walk);
    report(target);
}
END_TEST

START_TEST(random_problems) {
    const bk_target *target = cuda_target();
    const char *text = getenv("XNORD_TEST_RANDOM");
    const int count = text ? atoi(text) : USUAL_RANDOM;
    if (!target)
        return;
    for (int i = 0; i < count; i++) {
        bk_case c;
        bk_case_random(xn_test_seed() + (uint64_t)i, &c);
        c.params.mode = XN_MODE_XNOR;
        c.params.scaling = XN_SCALING_NONE;
        c.params.output_datatype = XN_INT32;
        c.scale = c.bias = false;
        bk_case_signed(&c);
        check_case(target, &c);
    }
    report(target);
}
END_TEST

XN_SUITE(cuda_packed) {
    Suite *s = suite_create("cuda_packed");
    TCase *t = tcase_create("packed");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, table);
    tcase_add_test(t, random_problems);
    suite_add_tcase(s, t);
    return s;
}
